"""Retrieval metrics from the ranks of the right answers, and a paired bootstrap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, ShapeError

HIT_SIZES = (1, 5, 10, 20, 50)
NAMES = (*(f"hit@{k}" for k in HIT_SIZES), "recall@10", "all@10", "mrr")
"""The metrics of one question, in the order in which they are printed."""

_CUT = 10


def spread(size: int, limit: int) -> list[int]:
    """Return at most `limit` places out of `size`, evenly spaced, both ends among them.

    Examples
    --------
    >>> spread(9, 3), spread(2, 3), spread(2, 0)
    ([0, 4, 8], [0, 1], [])
    """
    if size <= limit:
        return list(range(size))
    return [int(place) for place in np.linspace(0, size - 1, limit).round()]


def gold_ranks(ranking: Sequence[int] | NDArray[np.int64], gold: Sequence[int]) -> list[float]:
    """Return the rank, counted from 1, of each right answer; infinite where it was not returned.

    Parameters
    ----------
    ranking : sequence of int
        Rows, best first; it need not hold all of them.
    gold : sequence of int
        The right rows.

    Returns
    -------
    list of float

    Examples
    --------
    >>> gold_ranks([4, 2, 9], [9, 4, 7])
    [3.0, 1.0, inf]
    """
    place = {int(row): rank for rank, row in reversed(list(enumerate(ranking, start=1)))}
    return [float(place.get(row, np.inf)) for row in gold]


def question_metrics(ranks: Sequence[float]) -> dict[str, float]:
    """Return the metrics of one question from the ranks of its right answers.

    ``hit@k = [min rank <= k]``, ``recall@10`` = share of ranks <= 10, ``all@10 = [max rank <=
    10]``, ``mrr = 1 / min rank``.

    Parameters
    ----------
    ranks : sequence of float
        At least one; from :func:`gold_ranks`.

    Returns
    -------
    dict of str to float

    Raises
    ------
    ArgumentError
        `ranks` is empty: a question without a right answer has no metrics.

    Examples
    --------
    >>> values = question_metrics([3.0, 40.0])
    >>> values["hit@1"], values["hit@5"], values["recall@10"], values["all@10"]
    (0.0, 1.0, 0.5, 0.0)
    """
    if not len(ranks):
        raise ArgumentError("ranks: expected at least one right answer, got none")
    best = min(ranks)
    values = {f"hit@{k}": float(best <= k) for k in HIT_SIZES}
    values["recall@10"] = sum(rank <= _CUT for rank in ranks) / len(ranks)
    values["all@10"] = float(max(ranks) <= _CUT)
    values["mrr"] = 1.0 / best
    return values


def hubness_skewness(top: Sequence[Sequence[int]], n_points: int) -> float:
    """Return the skewness of how often each point is among the ten best.

    ``mean((c - mean c)^3) / std(c)^3`` over the points, c = number of queries that have the point
    among their ten best. 0 where all points are found equally often. Large values: a few points
    are near to everything.

    Parameters
    ----------
    top : sequence of sequences of int
        One ranking per query, best first; only the first ten entries count.
    n_points : int
        Number of points, those never found included.

    Returns
    -------
    float

    Examples
    --------
    >>> round(hubness_skewness([[0], [0], [0], [1]], n_points=4), 4)
    0.8165
    """
    counts = np.zeros(n_points)
    for ranking in top:
        np.add.at(counts, np.asarray(ranking[:_CUT], dtype=np.int64), 1)
    deviation = counts - counts.mean()
    spread = np.sqrt(np.mean(deviation**2))
    return float(np.mean(deviation**3) / spread**3) if spread > 0 else 0.0


def paired_bootstrap(
    difference: NDArray[np.float64], *, resamples: int = 2000, seed: int = 0, level: float = 0.95
) -> dict[str, float]:
    """Return the mean of paired differences and its percentile bootstrap interval.

    Parameters
    ----------
    difference : ndarray of float64, shape (n,)
        One difference per question, both methods asked the same question.
    resamples : int
        Number of resamples of n questions with replacement.
    seed : int
        Seed of the resampling.
    level : float
        Coverage of the interval.

    Returns
    -------
    dict
        ``mean``, ``low``, ``high``.

    Raises
    ------
    ShapeError
        `difference` is empty or not one-dimensional.

    Notes
    -----
    The same seed and n draw the same questions, so the intervals of several methods are paired
    too. Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3.

    Examples
    --------
    >>> paired_bootstrap(np.full(5, 0.25))
    {'mean': 0.25, 'low': 0.25, 'high': 0.25}
    """
    difference = np.asarray(difference, dtype=np.float64)
    if difference.ndim != 1 or difference.size == 0:
        raise ShapeError(f"difference: expected shape (n,) with n >= 1, got {difference.shape}")
    rng = np.random.default_rng(seed)
    draws = rng.integers(0, difference.size, size=(resamples, difference.size), dtype=np.int32)
    means = difference[draws].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return {"mean": float(difference.mean()), "low": float(low), "high": float(high)}


def average(questions: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each metric over the questions.

    Examples
    --------
    >>> average([question_metrics([1.0]), question_metrics([2.0])])["mrr"]
    0.75
    """
    return {name: float(np.mean([values[name] for values in questions])) for name in NAMES}


def shown_interval(found: Mapping[str, float]) -> str:
    """Return what :func:`paired_bootstrap` found as one text.

    Examples
    --------
    >>> shown_interval({"mean": 0.25, "low": -0.5, "high": 1.0})
    '+0.250 [-0.500, +1.000]'
    """
    return f"{found['mean']:+.3f} [{found['low']:+.3f}, {found['high']:+.3f}]"

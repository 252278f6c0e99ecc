"""The neighbours channel: an answer often stands beside the words of its question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from riemem.errors import ArgumentError
from riemem.retrieval.beside import REACH
from riemem.retrieval.corpus import CorpusView, Floats, Ids, Mask

__all__ = ["lent", "neighbour_scores"]


def neighbour_scores(
    base: Sequence[tuple[float, Floats]],
    view: CorpusView,
    passes: Mask,
    kernel: Mapping[int, float],
    rows: Ids,
    factor: Floats | None = None,
) -> Floats:
    """Return ``sum over d of kernel[d] * base[the row d turns later in the session]``; (m,).

    Parameters
    ----------
    base : sequence of (float, (n,) float64 ndarray)
        Scores of the rows by themselves: the sum of weight times scores.
    view : CorpusView
    passes : (n,) bool ndarray
        Rows that may lend something.
    kernel : mapping of int to float
        Weights by distance in turns; negative distances are earlier turns.
    rows : (m,) int64 ndarray
        Rows for which the sum is wanted.
    factor : (n,) float64 ndarray, optional
        What the base of each row is multiplied by first.

    Raises
    ------
    ArgumentError
        A distance is 0 or beyond :data:`riemem.retrieval.corpus.REACH`.
    """
    total = np.zeros(rows.size)
    distances = sorted(kernel)
    # All distances together: for a hundred rows it is the number of steps that counts.
    own_lane = view.beside
    steps = np.array([[_checked(distance)] for distance in distances], np.int64)
    beside = own_lane.lane[own_lane.place[rows] + steps.reshape(-1, 1)]
    lends = beside < len(view)
    beside[~lends] = 0
    lends &= passes[beside]
    shares = []
    for own, scores in base:
        lent_by = scores[beside] if factor is None else scores[beside] * factor[beside]
        values = np.where(lends, lent_by, 0.0)
        values *= np.array([kernel[distance] * own for distance in distances])[:, None]
        shares.append(values)
    for at in range(len(distances)):
        for values in shares:
            total += values[at]
    return total


def lent(
    base: Floats, view: CorpusView, kernel: Mapping[int, float], answers: float = 0.0
) -> Floats:
    """The same sum for all rows and of one base, of rows that pass, to rounding; shape (n,).

    Also `answers` times the base of the turn before, where that one is a question.

    Parameters
    ----------
    base : (n + 1,) float64 ndarray
        The last is 0, for neighbours that are not there.
    """
    own = view.beside
    along = base.take(own.lane)
    weights = np.zeros(2 * REACH + 1)
    for distance, weight in kernel.items():
        weights[REACH + _checked(distance)] = weight
    total = np.correlate(along, weights, "same")
    if answers:
        asks = view.cached("asks", lambda: np.append(view.questions, 0.0)[own.lane])
        along *= asks
        along *= answers
        total[1:] += along[:-1]
    found: Floats = total.take(own.place)
    return found


def _checked(distance: int) -> int:
    if distance == 0 or abs(distance) > REACH:
        raise ArgumentError(f"kernel: expected distances within {REACH}, got {distance}")
    return distance

"""Which rows can be among the best, found by quick looks at all of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from riemem.retrieval.beside import REACH
from riemem.retrieval.channel import Ids
from riemem.retrieval.corpus import CorpusView, Floats, Mask
from riemem.retrieval.fusion import Ranking, weights_for

__all__ = ["adds_up", "most_off", "near_best", "promising", "top", "with_neighbours"]

#: Of many memories: how many of each channel are looked at.
_ALONE = 512


def adds_up(ranking: Ranking) -> bool:
    """Whether an error of a dense score changes no other row but its neighbours.

    Examples
    --------
    >>> from riemem.retrieval.fusion import rankings
    >>> adds_up(rankings["default"]), adds_up(rankings["slm-v3"])
    (True, False)
    """
    return ranking.method == "sum" and not ranking.bridges and ranking.scenes == 0.0


def most_off(
    ranking: Ranking, kind: str, off: Mapping[str, float], *, beside: bool = False
) -> float:
    """How far a joined score can be off while those of "dense" and "likeness" are off by so much.

    With `beside` a row's own score of "dense" is exact, and only those of its neighbours are off.

    Examples
    --------
    >>> from riemem.retrieval.fusion import rankings
    >>> round(most_off(rankings["dense"], "single-hop", {"dense": 0.25}), 9)
    0.25
    """
    weights = weights_for(ranking, kind)
    lent = 1.0 + sum(map(abs, ranking.kernel.values())) + abs(ranking.answers)
    reach = off.get("dense", 0.0) * abs(weights.get("dense", 0.0)) * (lent - float(beside))
    reach += off.get("likeness", 0.0) * abs(weights.get("likeness", 0.0))
    # No channel exceeds 1, and another order of adding up changes far less than 1e-12 of that.
    return reach + 1e-12 * lent * sum(map(abs, weights.values()))


def near_best(near: Floats, passes: Mask, k: int, off: float) -> Ids:
    """Rows that can be among the k best while scores are off by so much; the others are not.

    Examples
    --------
    >>> near_best(np.array([3.0, 1.0, 2.9, 9.0]), np.array([1, 1, 1, 0], bool), 1, 0.1).tolist()
    [0, 2]
    """
    passing = np.count_nonzero(passes)
    if not 0 < k < passing:
        return np.flatnonzero(passes)
    own = near if passing == near.size else np.where(passes, near, -np.inf)
    # A row that is further below the k-th than both can be off is out.
    edge = np.partition(own, own.size - k)[own.size - k]
    found: Ids = np.flatnonzero(own >= edge - 2.0 * off)
    return found


def promising(
    ranking: Ranking, channels: Mapping[str, Floats], passes: Mask, found: Ids, k: int
) -> Ids:
    """Of many rows those that a channel with weight puts first; ascending.

    `found` are the best of the dense channel. Names, kinds of words and length choose between
    rows that mean or say something of the query, and find none by themselves.
    """
    rows = [found]
    for name in ("lexical", "temporal", "entities", "profile"):
        if name not in ranking.weights or name not in channels:
            continue
        scores = channels[name]
        own = np.flatnonzero(scores > 0.0)
        if name == "temporal" and own.size:  # of equally near days those with the query's words
            scores = scores + 0.1 * channels.get("lexical", 0.0)
        most = max(2 * k, _ALONE)
        if own.size > most:
            own = own[np.argpartition(-scores[own], most - 1)[:most]]
        rows.append(own)
    together: Ids = np.unique(np.concatenate(rows))
    chosen: Ids = together[passes[together]]
    return chosen


def with_neighbours(rows: Ids, view: CorpusView) -> Ids:
    """The rows and everything within reach of them in their sessions; ascending."""
    within = np.zeros(len(view) + 1, np.bool_)  # the last for neighbours that are not there
    within[rows] = True
    own = view.beside
    within[own.lane[own.place[rows][:, None] + np.arange(-REACH, REACH + 1)]] = True
    together: Ids = np.flatnonzero(within[:-1])
    return together


def top(scores: Floats, ids: Ids, k: int) -> Ids:
    """The positions of the k best, best first, ties by lower id.

    Examples
    --------
    >>> top(np.array([1.0, 2.0, 2.0]), np.array([5, 9, 7]), 2).tolist()
    [2, 1]
    """
    positions = np.arange(scores.size)
    if 0 < k < scores.size:
        edge = -np.partition(-scores, k - 1)[k - 1]
        positions = np.flatnonzero(scores >= edge)
    best: Ids = positions[np.lexsort((ids[positions], -scores[positions]))][:k]
    return best

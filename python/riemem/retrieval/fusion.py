"""Joining the channels: weighted sums, min-max sums and reciprocal ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from riemem.retrieval.corpus import CorpusView, Floats, Ids, Mask
from riemem.retrieval.neighbours import Lenders, lent
from riemem.retrieval.ranking import CHANNELS, Ranking, as_ranking, rankings, weights_for

__all__ = ["CHANNELS", "Fused", "Ranking", "added_up", "as_ranking", "fuse", "min_max", "rankings"]
__all__ += ["weights_for"]


#: Those that say the same of a memory whatever the query is.
_STANDING = ("substance", "opening", "first_person", "questions")
#: Rankings of one state of the memories for which their sum is remembered.
_MOST_STANDING = 8


@dataclass(frozen=True)
class Fused:
    """The joined score of some rows, and each channel's share; the shares add up to the score."""

    rows: Ids
    scores: Floats
    shares: Mapping[str, Floats]


def fuse(
    ranking: Ranking,
    channels: Mapping[str, Floats],
    view: CorpusView,
    passes: Mask,
    kind: str,
    rows: Ids | None = None,
) -> Fused:
    """Join the scores of the channels.

    Parameters
    ----------
    ranking : Ranking
    channels : mapping of str to (n,) float64 ndarray
        Larger is better, 0 says nothing. A channel that could not run is missing: it gives
        nothing to anybody, so nobody loses by it.
    view : CorpusView
    passes : (n,) bool ndarray
        Rows that may be returned. Others lend nothing to their neighbours and do not count for
        scales and ranks.
    kind : str
        Kind of the question.
    rows : (m,) int64 ndarray, optional
        Rows to score, all of which pass; by default all that pass.

    Returns
    -------
    Fused
    """
    if rows is None:
        rows = np.flatnonzero(passes)
    weights = weights_for(ranking, kind)
    shares: dict[str, Floats] = {}
    base: list[tuple[float, Floats]] = []
    for name in CHANNELS:
        if name not in weights or name not in channels:
            continue
        scaled = _scaled(ranking, channels[name], view.ids, passes)
        shares[name] = weights[name] * scaled[rows]
        if name in ("dense", "lexical"):
            base.append((weights[name], scaled))
    turn_before = {-1: ranking.answers} if ranking.answers else {}
    if ranking.kernel or turn_before:
        lenders = Lenders(view, passes, {**ranking.kernel, **turn_before}, rows)
    if ranking.kernel:
        shares["neighbours"] = lenders.scores(base, ranking.kernel)
    if turn_before:
        shares["answers"] = lenders.scores(base, turn_before, factor=view.questions)
    return Fused(rows, sum(shares.values(), np.zeros(rows.size)), shares)


def added_up(
    ranking: Ranking, channels: Mapping[str, Floats], view: CorpusView, passes: Mask, kind: str
) -> Floats:
    """The joined scores of all rows to rounding, faster than :func:`fuse`; shape (n,).

    For rankings of method "sum". Rows that do not pass have a meaningless score.
    """
    weights = weights_for(ranking, kind)
    total = _standing(weights, channels, view).copy()
    base = np.zeros(len(view) + 1)  # the last for neighbours that are not there
    own, nothing = base[:-1], view.nothing()
    for name, scores in channels.items():
        if name in weights and name not in _STANDING and scores is not nothing:
            into = own if name in ("dense", "lexical") else total
            into += weights[name] * scores
    total += own
    if ranking.kernel or ranking.answers:
        own[~passes] = 0.0
        total += lent(base, view, ranking.kernel, ranking.answers)
    return total


def _standing(
    weights: Mapping[str, float], channels: Mapping[str, Floats], view: CorpusView
) -> Floats:
    """What the channels that do not look at the query add to each row; not to be written to.

    Added up once for each state of the memories and each choice of weights.
    """
    own = tuple((name, weights[name]) for name in _STANDING if name in channels and name in weights)
    known: dict[object, Floats] = view.cached("standing", dict)
    found = known.get(own)
    if found is None:
        if len(known) >= _MOST_STANDING:
            known.clear()
        found = known[own] = sum((w * channels[name] for name, w in own), np.zeros(len(view)))
    return found


def _scaled(ranking: Ranking, scores: Floats, ids: Ids, passes: Mask) -> Floats:
    if ranking.method == "minmax":
        return min_max(scores, passes)
    if ranking.method == "rrf":
        return _reciprocal_ranks(scores, ids, passes, ranking.rrf_k)
    return scores


def min_max(scores: Floats, passes: Mask) -> Floats:
    """Scale to [0, 1] over the rows that pass; 0 where they are all equal."""
    own = scores[passes]
    if own.size == 0:
        return np.zeros_like(scores)
    low, high = own.min(), own.max()
    return (scores - low) / (high - low) if high > low else np.zeros_like(scores)


def _reciprocal_ranks(scores: Floats, ids: Ids, passes: Mask, k: float) -> Floats:
    # A channel finds what it has a positive score for: rank 3 of nothing is no evidence.
    rows = np.flatnonzero(passes & (scores > 0.0))
    order = rows[np.lexsort((ids[rows], -scores[rows]))]
    votes = np.zeros_like(scores)
    votes[order] = 1.0 / (k + np.arange(1, order.size + 1))
    return votes

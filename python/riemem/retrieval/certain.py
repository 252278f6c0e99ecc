"""Exact scores for those rows that decide which are the best, and for no others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from riemem.retrieval.channel import Ids
from riemem.retrieval.corpus import CorpusView, Floats, Mask
from riemem.retrieval.demotion import Edges, with_superseding
from riemem.retrieval.dense import VectorScores
from riemem.retrieval.fusion import Ranking, added_up, fuse, weights_for
from riemem.retrieval.likeness import Likeness
from riemem.retrieval.narrowing import most_off, near_best, promising, top, with_neighbours
from riemem.retrieval.vector_rows import VectorRows

__all__ = ["Case", "ExactScores", "NearBest", "best_of_many", "nearly_best"]

#: Of many memories: of how many of the best the neighbours are looked at.
_OPENED = 64
#: Up to twice as many rows as wanted and so many more are made exact as they are: to find out which
#: of them matter takes about as long as the scores of a hundred rows.
_FEW = 64


class Case(NamedTuple):
    """What is to be ranked.

    Attributes
    ----------
    ranking : Ranking
        Of method "sum".
    kind : str
        Kind of the question.
    view : CorpusView
    passes : (n,) bool ndarray
        The rows that may be returned.
    channels : dict of str to (n,) float64 ndarray
        Those that ran. Scores of "dense" are replaced by exact ones where that matters.
    found : VectorScores
        What "dense" was made from.
    rows_of : callable
        The row of each vector.
    """

    ranking: Ranking
    kind: str
    view: CorpusView
    passes: Mask
    channels: dict[str, Floats]
    found: VectorScores
    rows_of: Callable[[Ids, CorpusView], VectorRows]

    def alike(self, rows: Ids | None) -> Likeness:
        """Prepare the channel "likeness" from what all others give some rows, or all of them."""
        ranking, view = self.ranking, self.view
        bare = ranking.without_likeness
        first = fuse(bare, self.channels, view, self.passes, self.kind, rows)
        return Likeness.of(first, view, ranking.likeness, self.found, self.rows_of)


class ExactScores:
    """Gives rows the dense score that a scan left out, or knows only nearly; each row once."""

    def __init__(self, case: Case) -> None:
        self._own = case.rows_of(case.found.keys, case.view)
        self._more, self._dense = case.found.more, case.channels["dense"]
        self._beside = case.view.beside
        kernel = case.ranking.kernel
        self._lenders = np.array(sorted({*kernel, -1} if case.ranking.answers else kernel), int)
        self._known = np.zeros(len(case.view) + 1, np.bool_)
        if case.found.rows is not None:
            self._known[self._own.rows[case.found.rows]] = True
        self._known[-1] = True  # of no row: what is in no view, and beside a turn where none is

    def fill(self, rows: Ids) -> None:
        """Make the scores of some rows exact."""
        self._make(rows[~self._known[rows]])

    def fill_around(self, rows: Ids) -> None:
        """The same for some rows and for those that lend them something."""
        own = self._beside
        wanted = np.zeros(self._known.size, np.bool_)
        wanted[rows] = True
        wanted[own.lane[own.place[rows][:, None] + self._lenders]] = True
        self._make(np.flatnonzero(np.greater(wanted, self._known, out=wanted)))

    def _make(self, rows: Ids) -> None:
        if rows.size == 0:
            return
        self._known[rows] = True
        positions, counts = self._own.positions(rows)
        if positions.size:
            values = self._own.best(self._more(positions), counts)
            self._dense[rows if values.size == rows.size else rows[counts > 0]] = values


class NearBest:
    """Narrows rows to those that can be among the best, while dense scores are nearly known.

    Parameters
    ----------
    case : Case
        Its scores of "dense" are within ``found.off`` of the exact ones.
    exact : ExactScores

    Notes
    -----
    With s a joined score, t what is known of it and ``|t - s| <= off`` in all of a set of rows that
    holds the k best, let e be the k-th largest t of the set. k of its rows have ``s >= e - off``,
    so one with ``t < e - 2 off``, thus ``s < e - off``, is not among the k best: the rest holds
    them again, ties of the last place included. :meth:`candidates` narrows so twice, first all
    rows by what a scan knows, then what is left by exact scores of their own, where only the
    neighbours' scores are still off; those of the neighbours are made for what is left then.
    """

    def __init__(self, case: Case, exact: ExactScores) -> None:
        self._case, self._exact = case, exact
        self._off = {"dense": case.found.off}
        bare = case.ranking.without_likeness
        self._near = added_up(bare, case.channels, case.view, case.passes, case.kind)
        self._guessed = case.channels["dense"].copy()

    def candidates(self, k: int, alike: Likeness | None = None) -> Ids:
        """Return rows among which the k best are; ascending.

        Without `alike` by all channels but "likeness", with it by all; then that one is set,
        exactly in the rows that are returned. It may be given once.
        """
        case, off = self._case, dict(self._off)
        ranking = case.ranking if alike is not None else case.ranking.without_likeness
        channels, weights = case.channels, weights_for(ranking, case.kind)
        if alike is not None:
            channels["likeness"], off["likeness"] = alike.nearly()
            self._near += weights["likeness"] * channels["likeness"]
        rows = near_best(self._near, case.passes, k, most_off(ranking, case.kind, off))
        own = None
        if alike is not None:
            own = alike.some(rows)
            change = weights["likeness"] * (own - channels["likeness"][rows])
            channels["likeness"][rows] = own
        if rows.size <= 2 * k + _FEW:
            return rows
        self._exact.fill(rows)
        near = self._near[rows]
        near += weights.get("dense", 0.0) * (channels["dense"][rows] - self._guessed[rows])
        if own is not None:
            near += change
        reach = most_off(ranking, case.kind, self._off, beside=True)
        return rows[near_best(near, np.ones(rows.size, np.bool_), k, reach)]


def nearly_best(case: Case, k: int, edges: Edges) -> Ids:
    """Return rows among which the k best are, all of whose scores are exact then; ascending.

    And the rows that supersede others; see :func:`riemem.retrieval.demotion.with_superseding`.
    """
    exact = ExactScores(case)
    near = NearBest(case, exact)
    likens = case.ranking.without_likeness is not case.ranking
    alike = None
    if likens:
        rows = near.candidates(case.ranking.likeness[0])
        exact.fill_around(rows)
        alike = case.alike(rows)
    best = near.candidates(k, alike)
    rows = with_superseding(best, edges, case.view, case.passes)
    exact.fill_around(rows)
    if alike is not None and rows.size > best.size:
        more = rows[best.take(best.searchsorted(rows), mode="clip") != rows]
        case.channels["likeness"][more] = alike.some(more)
    return rows


def best_of_many(case: Case, k: int) -> Ids:
    """Return rows that may be among the k best, where a scan gave the best dense scores only.

    They are scored exactly, and are those of the best of each channel that are the best of them
    together, and what lies beside these.
    """
    ranking, kind, view, passes, channels, found, rows_of = case
    exact = ExactScores(case)
    best = rows_of(found.keys, view).rows[found.rows]
    bare = ranking.without_likeness
    rows = promising(ranking, channels, passes, best[best < len(view)], k)
    exact.fill(rows)
    plain = replace(bare, kernel={}, answers=0.0)
    alone = fuse(plain, channels, view, passes, kind, rows)
    first = rows[top(alone.scores, view.ids[rows], max(4 * k, _OPENED))]
    opened = with_neighbours(first, view)
    exact.fill_around(opened)
    own: Ids = opened[passes[opened]]
    return own

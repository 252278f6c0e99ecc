"""Which row of a view each vector belongs to, and the way back."""

from __future__ import annotations

import numpy as np

from riemem.retrieval.channel import Ids
from riemem.retrieval.corpus import CorpusView, Floats
from riemem.retrieval.embedding import MAX_CHUNKS

__all__ = ["VectorRows"]


class VectorRows:
    """The vectors of one state of an index as vectors of the rows of a view.

    Parameters
    ----------
    keys : (m,) int64 ndarray
        ``keys // MAX_CHUNKS`` is the memory's id.
    view : CorpusView

    Attributes
    ----------
    rows : (m,) int64 ndarray
        Row of each vector; n for one whose memory is not in the view.
    single : bool
        Whether no memory has more than one vector.

    Notes
    -----
    O((n + m) log n) to make, once for each state; what is asked of some rows costs O(rows).
    """

    def __init__(self, keys: Ids, view: CorpusView) -> None:
        self.keys, self.view = keys, view
        living = np.flatnonzero(view.alive)
        order = living[np.argsort(view.ids[living], kind="stable")]
        ids = view.ids[order]
        owners = keys // MAX_CHUNKS
        place = np.searchsorted(ids, owners)
        inside = np.minimum(place, max(ids.size - 1, 0))
        hit = (ids[inside] == owners) if ids.size else np.zeros(owners.size, np.bool_)
        n = len(view)
        self.rows: Ids = np.where(hit, order[inside] if ids.size else 0, n).astype(np.int64)
        self.single = bool((np.diff(np.sort(owners, kind="stable")) > 0).all())
        self._by_row: Ids = np.argsort(self.rows, kind="stable")
        # Mostly memories and their vectors were added together.
        self._alike = keys.size == n and bool((self.rows == np.arange(n)).all())
        counts = np.bincount(self.rows, minlength=n + 1)
        self._starts = np.zeros(n + 2, np.int64)
        np.cumsum(counts, out=self._starts[1:])

    def spread(self, scores: Floats, at: Ids | None = None) -> Floats:
        """Scores of vectors as scores of rows: the best of a row's, 0 for one without; (n,).

        `at` are the positions of the vectors; by default all of them, and where each row has one,
        in their order, the scores themselves are returned.
        """
        if self._alike and at is None:
            return scores
        rows = self.rows if at is None else self.rows[at]
        values = np.zeros(len(self.view) + 1)  # the last for vectors of memories not in the view
        if self.single:
            values[rows] = scores
        else:
            values[rows] = -np.inf
            np.maximum.at(values, rows, scores)
        return values[:-1]

    def positions(self, rows: Ids) -> tuple[Ids, Ids]:
        """The positions of the vectors of some rows, row by row, and how many each row has."""
        if self._alike:
            return rows, np.ones(rows.size, np.int64)
        first = self._starts[rows]
        counts: Ids = self._starts[rows + 1] - first
        if self.single:
            return self._by_row[first[counts > 0]], counts
        begins = np.cumsum(counts) - counts
        steps = np.arange(int(counts.sum())) - np.repeat(begins - first, counts)
        return self._by_row[steps], counts

    @staticmethod
    def best(scores: Floats, counts: Ids) -> Floats:
        """The best score of each row that has vectors, in the order of :meth:`positions`."""
        own = counts[counts > 0]
        if scores.size == own.size:
            return scores
        found: Floats = np.maximum.reduceat(scores, np.cumsum(own) - own)
        return found

"""The likeness channel: what is near to the best of what the other channels found.

"Which books has Tim read?" shares little with "I finished The Alchemist last night", and much
with what the first hits of that question say. Rocchio's idea, 1971, in the metric of the memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from riemem.index import Asked
from riemem.retrieval.channel import Ids
from riemem.retrieval.corpus import CorpusView, Floats
from riemem.retrieval.dense import VectorScores
from riemem.retrieval.fusion import Fused
from riemem.retrieval.vector_rows import VectorRows

__all__ = ["Likeness", "centre_of", "likeness_weights"]

Rows = npt.NDArray[np.float32]


def likeness_weights(scores: Floats, ids: Ids, top: int, spread: float) -> tuple[Ids, Floats]:
    """Return the positions of the `top` best scores, and their weights, which add up to 1.

    ``weight = exp(score / spread) / sum``; ties go to the lower id.

    Examples
    --------
    >>> best, weights = likeness_weights(np.array([1.0, 3.0, 3.0]), np.array([4, 9, 5]), 2, 2.0)
    >>> best.tolist(), weights.tolist()
    ([2, 1], [0.5, 0.5])
    """
    order: Ids = np.lexsort((ids, -scores))[:top]
    weights = np.exp((scores[order] - scores[order[0]]) / spread)
    return order, weights / weights.sum()


def centre_of(
    vectors: Mapping[int, Rows], ids: Sequence[int], weights: Floats
) -> npt.NDArray[np.float64] | None:
    """Return the weighted mean of memories' unit vectors, or None where it has no direction.

    A memory with several vectors counts with the direction of their mean. The length of the
    result, in (0, 1], says how much the memories agree.

    Examples
    --------
    >>> rows = {1: np.eye(2, dtype=np.float32)[:1], 2: np.eye(2, dtype=np.float32)[1:]}
    >>> centre_of(rows, [1, 2], np.array([0.75, 0.25])).tolist()
    [0.75, 0.25]
    """
    total: npt.NDArray[np.float64] | None = None
    for memory_id, weight in zip(ids, weights.tolist(), strict=True):
        if memory_id not in vectors:
            continue
        rows = vectors[memory_id].astype(np.float64)
        own = rows[0] if len(rows) == 1 else rows.mean(axis=0)
        length = math.sqrt(own @ own)
        if length > 0.0:
            own *= weight / length
            if total is None:
                total = own
            else:
                total += own
    if total is None or not total @ total > 0.0:
        return None
    return total


class Likeness:
    """Scores of rows by nearness to the centre of the best of a first pass.

    ``|c| s(c)``, c = the centre of :func:`centre_of` over the rows and weights of
    :func:`likeness_weights`, s = the dense channel's score of a memory for c as the query.
    """

    def __init__(self, n: int, length: float, asked: Asked | None, own: VectorRows | None) -> None:
        self._n = n
        self._length = length
        self._asked = asked
        self._own = own

    @classmethod
    def of(
        cls,
        first: Fused,
        view: CorpusView,
        options: tuple[int, float],
        found: VectorScores,
        rows_of: Callable[[Ids, CorpusView], VectorRows],
    ) -> Likeness:
        """Prepare the scores.

        Parameters
        ----------
        first : Fused
            What the other channels give together.
        view : CorpusView
        options : (int, float)
            How many of the best, and the spread of their weights.
        found : VectorScores
            What the dense channel gave for the query.
        rows_of : callable
            The row of each vector.
        """
        nothing = cls(len(view), 0.0, None, None)
        if first.rows.size == 0:
            return nothing
        best, weights = likeness_weights(first.scores, view.ids[first.rows], *options)
        rows = first.rows[best]
        chosen = view.ids[rows].tolist()
        positions, counts = rows_of(found.keys, view).positions(rows)
        vectors = found.vectors(positions)
        known, end = {}, 0
        for memory_id, count in zip(chosen, counts.tolist(), strict=True):
            if count:
                known[memory_id] = vectors[end : end + count]
                end += count
        centre = centre_of(known, chosen, weights)
        if centre is None:
            return nothing
        asked = found.again(centre)
        return cls(len(view), float(np.sqrt(centre @ centre)), asked, rows_of(asked.ids, view))

    def scores(self, rows: Ids | None = None) -> Floats:
        """Return the scores of all rows, or of some, and 0 for the others; shape (n,)."""
        if rows is None and self._asked is not None and self._own is not None:
            return self._own.spread(self._asked.all()) * self._length
        values = np.zeros(self._n)
        if rows is not None:
            values[rows] = self.some(rows)
        return values

    def some(self, rows: Ids) -> Floats:
        """Return the scores of some rows, in their order; shape (m,)."""
        if self._asked is None or self._own is None:
            return np.zeros(rows.size)
        positions, counts = self._own.positions(rows)
        if positions.size == 0:
            return np.zeros(rows.size)
        best = self._own.best(self._asked.some(positions), counts) * self._length
        if best.size == rows.size:
            return best
        values = np.zeros(rows.size)
        values[counts > 0] = best
        return values

    def nearly(self) -> tuple[Floats, float]:
        """Return nearly the scores of all rows, faster, and how far off each can be at most."""
        if self._asked is None or self._own is None:
            return np.zeros(self._n), 0.0
        scores, off = self._asked.approximate()
        if not np.isfinite(off):
            return self.scores(), 0.0
        return self._own.spread(scores) * self._length, off * self._length

"""The neighbours channel: an answer often stands beside the words of its question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from riemem.errors import ArgumentError
from riemem.retrieval.beside import REACH
from riemem.retrieval.corpus import CorpusView, Floats, Ids, Mask

__all__ = ["Lenders", "lent"]


class Lenders:
    """The turns around some rows, looked up once for all that is lent.

    Parameters
    ----------
    view : CorpusView
    passes : (n,) bool ndarray
        Rows that may lend something.
    distances : iterable of int
        In turns; negative ones are earlier.
    rows : (m,) int64 ndarray
        Rows that borrow.

    Raises
    ------
    ArgumentError
        A distance is 0 or beyond :data:`riemem.retrieval.beside.REACH`.
    """

    def __init__(self, view: CorpusView, passes: Mask, distances: Iterable[int], rows: Ids) -> None:
        self._distances = sorted(map(_checked, set(distances)))
        own = view.beside
        # All distances together: for a hundred rows it is the number of steps that counts.
        steps = np.array(self._distances, np.int64)
        self._rows = own.lane[own.place[rows] + steps[:, None]]
        self._none = self._rows >= len(view)
        self._rows[self._none] = 0
        self._none |= ~passes[self._rows]

    def scores(
        self,
        base: Sequence[tuple[float, Floats]],
        kernel: Mapping[int, float],
        factor: Floats | None = None,
    ) -> Floats:
        """Return ``sum over d of kernel[d] * base[the row d turns later in the session]``; (m,).

        Parameters
        ----------
        base : sequence of (float, (n,) float64 ndarray)
            Scores of the rows by themselves: the sum of weight times scores.
        kernel : mapping of int to float
            Weights by distance, out of those that were looked up.
        factor : (n,) float64 ndarray, optional
            What the base of each row is multiplied by first.
        """
        distances = sorted(kernel)
        rows, none = self._rows, self._none
        if distances != self._distances:
            chosen = [self._distances.index(distance) for distance in distances]
            rows, none = rows[chosen], none[chosen]
        shares = []
        for own, scores in base:
            values = scores[rows]
            if factor is not None:
                values *= factor[rows]
            values[none] = 0.0
            values *= np.array([[kernel[distance] * own] for distance in distances])
            shares.append(values)
        total = np.zeros(self._rows.shape[1])
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

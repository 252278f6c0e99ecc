"""The texts of a corpus's rows and what was derived from each; shared by the states of a corpus."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from riemem.retrieval.lines import NOTHING, Turn
from riemem.retrieval.spoken import Spoken, spoken_of

__all__ = ["Derived"]

Ids = npt.NDArray[np.int64]


class Derived:
    """Values per row, made at the first ask.

    A text whose words came from a segment is not held: it is read from the store when needed.

    Parameters
    ----------
    read : callable
        The texts of some memory ids, as far as they are there.
    """

    def __init__(self, read: Callable[[list[int]], dict[int, Turn]]) -> None:
        self.turns: list[Turn | None] = []
        self.known: npt.NDArray[np.bool_] = np.empty(0, np.bool_)  # rows that `spoken` is about
        self._spoken = Spoken.nothing()
        self._ids: Ids = np.empty(0, np.int64)
        self._read = read
        self._columns: dict[str, list[Any]] = {}
        self._lock = threading.Lock()

    def append(
        self, ids: Ids, turns: Sequence[Turn | None], spoken: Sequence[Spoken | int]
    ) -> None:
        """Add rows.

        Parameters
        ----------
        ids : (n,) int64 ndarray
        turns : sequence of Turn
            One that is None is read when it is needed.
        spoken : sequence
            What the rows speak of, piece by piece; the number of rows where that is not known.
        """
        known = [
            np.full(own if isinstance(own, int) else len(own), not isinstance(own, int))
            for own in spoken
        ]
        pieces = [Spoken.nothing(own) if isinstance(own, int) else own for own in spoken]
        with self._lock:
            self._ids = np.concatenate([self._ids, ids])
            self.turns += turns
            self.known = np.concatenate([self.known, *known])
            self._spoken = self._spoken.then(*pieces)

    def column(self, name: str, derive: Callable[[Turn], Any], n: int) -> Sequence[Any]:
        """A value per row of the first n."""
        with self._lock:
            values = self._columns.setdefault(name, [])
            if len(values) < n:
                values += [derive(turn) for turn in self._texts(range(len(values), n))]
            return values[:n]

    def spoken_of(self, n: int) -> Spoken:
        """What the texts of the first n rows speak of."""
        with self._lock:
            rows = np.flatnonzero(~self.known[:n])
            if rows.size:
                found = spoken_of(self._texts(rows.tolist()))
                self._spoken = self._spoken.put(rows, found)
                self.known = self.known.copy()
                self.known[rows] = True
            return self._spoken.cut(0, n)

    def _texts(self, rows: Sequence[int]) -> list[Turn]:
        ids = self._ids[rows].tolist()
        missing = [i for i, row in zip(ids, rows, strict=True) if self.turns[row] is None]
        read = self._read(missing) if missing else {}
        # What is no longer there is hidden at the next look at the store.
        return [self.turns[row] or read.get(i, NOTHING) for i, row in zip(ids, rows, strict=True)]

    def erase(self, row: int) -> None:
        """Leave nothing of a forgotten text in memory."""
        with self._lock:
            self.turns[row] = NOTHING
            self._spoken = self._spoken.without(row)
            self.known = self.known.copy()
            self.known[row] = True
            for name, values in self._columns.items():
                if row < len(values):
                    values[row] = type(values[row])()
                    assert not values[row], name

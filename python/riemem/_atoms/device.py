"""The arrays of a clustering on a GPU, ahead of those in host memory by what nobody has asked for.

Assigning is queued on the library's current stream and waits for nothing. The host's arrays catch
up when somebody reads them; a batch with a row that has no direction is found then, and it and what
was queued after it are as if they had never been given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from riemem._arrays import I64
from riemem._atoms.state import ROUTES, AtomState
from riemem._backend import cuda_module
from riemem._device import KINDS, Home, Library, View, rows_span, span
from riemem.errors import NotFiniteError, RiememError, ZeroVectorError

__all__ = ["AtomMirror"]

_PER_ROW = ("rows", "squares", "atom")
_PER_ATOM = ("sums", "sum_squares", "centres", "sizes")
_FIRST_CAPACITY = 64


@dataclass(frozen=True)
class _Batch:
    """Rows that were queued: where they begin, their ids and norms."""

    first: int
    ids: I64
    norms: Any


class AtomMirror:
    """What a GPU holds of a clustering.

    Parameters
    ----------
    library, place
        Whose memory it is, and on which device.
    state : AtomState
        Copied there now; it must not change until :meth:`settle` has brought it up to date.
    """

    def __init__(self, library: Library, place: int, state: AtomState) -> None:
        self.library, self.place = library, place
        self._home = Home(library, place)
        self.dim = state.dim
        self.stale = False  # a launch failed: what the device holds is not known any more
        self._rows, self._atoms = state.row_count, state.atom_count  # atoms at most
        self._known, self._next = state.atom_count, state.next_atom_id
        self._batches: list[_Batch] = []
        with self._home.working():
            self._arrays = {
                name: library.put(state.view(name), place) for name in (*_PER_ROW, *_PER_ATOM)
            }
            self._arrays["counts"] = library.full((1,), "int64", state.atom_count, place)
            self._arrays["bad"] = library.full((1,), "int64", -1, place)
            self._names = library.put(state.atom_ids, place)
        self._capacity = {"rows": state.row_count, "atoms": state.atom_count}

    @property
    def pending_ids(self) -> list[I64]:
        """Ids of members that the host's arrays do not have yet."""
        return [batch.ids for batch in self._batches]

    def _reserve(self, rows: int, atoms: int) -> None:
        """Make room for so many; on an error nothing has changed."""
        d, padded = self.dim, -(-self.dim // 8) * 8
        widths: dict[str, tuple[tuple[int, ...], str]] = {
            "rows": ((d,), "float32"), "squares": ((), "float64"), "atom": ((), "int64"),
            "sums": ((padded,), "float64"), "sum_squares": ((), "float64"),
            "centres": ((d,), "float32"), "sizes": ((), "int64"),
        }  # fmt: skip
        fresh, capacity = {}, dict(self._capacity)
        for what, needed, names in (("rows", rows, _PER_ROW), ("atoms", atoms, _PER_ATOM)):
            if needed <= capacity[what]:
                continue
            capacity[what] = max(needed, 2 * capacity[what], _FIRST_CAPACITY)
            for name in names:
                shape, kind = widths[name]
                fresh[name] = self.library.empty((capacity[what], *shape), kind, self.place)
                if self._capacity[what]:
                    self.library.write(fresh[name], 0, self._arrays[name])
        self._arrays.update(fresh)
        self._capacity = capacity

    def _spans(self) -> dict[str, Any]:
        return {name: span(self.library, array) for name, array in self._arrays.items()}

    def _room(self, size: int, kind: str) -> Any:
        return self.library.empty((size,), kind, self.place)

    def assign(self, rows: View, ids: I64, threshold: float, route: str) -> tuple[Any, Any, Any]:
        """Queue the assignment of rows; their labels, scores and who opened an atom."""
        count, library, module = rows.shape[0], self.library, cuda_module()
        with self._home.working() as stream:
            self._reserve(self._rows + count, self._atoms + count)
            norms, scores = self._room(count, "float64"), self._room(count, "float64")
            created, labels = self._room(count, "uint8"), self._room(count, "int64")
            if count == 0:
                return labels, scores, library.truth(created)
            work = self._room(self._rows + self._atoms + 2 * count, "float64")
            spans = self._spans()
            self.stale = True
            self._place(rows, self._rows, norms, spans["rows"], spans["bad"], stream)
            module.max_member_assign(
                spans, self.dim, self._rows, self._atoms, count, threshold, ROUTES.index(route),
                span(library, scores), span(library, created), span(library, work), stream,
            )  # fmt: skip
            module.max_member_labels(
                spans["atom"], self._rows, count, span(library, self._names), self._known,
                self._next, span(library, labels), stream,
            )  # fmt: skip
            self.stale = False
            self._batches.append(_Batch(self._rows, ids, norms))
            self._rows += count
            self._atoms += count
            return labels, scores, library.truth(created)

    def _place(self, rows: View, first: int, norms: Any, out: Any, bad: Any, stream: int) -> None:
        cuda_module().max_member_place(
            rows_span(rows), KINDS[rows.kind], rows.shape[0], self.dim, rows.strides[0], first,
            span(self.library, norms), out, bad, stream,
        )  # fmt: skip

    def nearest(self, rows: View, route: str) -> tuple[Any, Any]:
        """Queue the search for the atom that would win for each row, and its best."""
        count, library, module = rows.shape[0], self.library, cuda_module()
        with self._home.working() as stream:
            labels, scores = self._room(count, "int64"), self._room(count, "float64")
            if count == 0:
                return labels, scores
            slots, norms = self._room(count, "int64"), self._room(count, "float64")
            chunks = library.empty((count, self.dim), "float32", self.place)
            bad = library.full((1,), "int64", -1, self.place)
            work = self._room(self._rows + self._atoms, "float64")
            spans = {**self._spans(), "bad": span(library, bad)}
            self._place(rows, 0, norms, span(library, chunks), spans["bad"], stream)
            module.max_member_nearest(
                spans, self.dim, self._rows, self._atoms, span(library, chunks), count,
                ROUTES.index(route), span(library, slots), span(library, scores),
                span(library, work), stream,
            )  # fmt: skip
            module.max_member_labels(
                span(library, slots), 0, count, span(library, self._names), self._known,
                self._next, span(library, labels), stream,
            )  # fmt: skip
            return labels, scores

    def settle(self, state: AtomState) -> RiememError | None:
        """Wait, and bring the host's arrays up to date; returns why a batch was left out, if so.

        After that error nothing of what is on the device may be used.
        """
        if not self._batches:
            return None
        library, first = self.library, self._batches[0].first
        with self._home.working():
            bad = int(library.get(self._arrays["bad"])[0])
            good = [b for b in self._batches if bad < 0 or b.first + b.ids.size <= bad]
            error = None
            if len(good) < len(self._batches):
                error = self._fault(self._batches[len(good)], bad)
            if good:
                last = good[-1].first + good[-1].ids.size
                rows, slots = (
                    library.get(library.part(self._arrays[name], first, last))
                    for name in ("rows", "atom")
                )
                ids = np.concatenate([batch.ids for batch in good])
                atoms = max(state.atom_count, int(slots.max()) + 1)
                state.append(rows, ids, slots, atoms)
        self._batches = []
        self._atoms = state.atom_count
        return error

    def _fault(self, batch: _Batch, bad: int) -> RiememError:
        row = bad - batch.first
        norm = float(self.library.get(batch.norms)[row])
        after = "it and what was assigned after it were left out"
        if norm == 0.0:
            return ZeroVectorError(
                f"X: expected vectors with a direction, got the zero vector in row {row} of rows "
                f"given to the device; {after}"
            )
        return NotFiniteError(
            f"X: expected finite values, got NaN or an infinity in row {row} of rows given to the "
            f"device; {after}"
        )

"""A clustering whose arrays are in host memory, and on a GPU as long as rows come from there."""

from __future__ import annotations

import numpy as np

from riemem._arrays import I64, LAST_ID
from riemem._atoms.device import AtomMirror
from riemem._atoms.reader import AtomReader
from riemem._atoms.state import AtomState
from riemem._device import View, as_device_rows, library_of
from riemem.errors import ArgumentError

__all__ = ["PlacedAtoms"]


class PlacedAtoms(AtomReader):
    """Keeps the two in step."""

    _arrays: AtomState
    _mirror: AtomMirror | None
    _next_id: int

    def _mirror_for(self, X: object) -> tuple[AtomMirror, View]:
        library, array = library_of(X, "X")
        rows = as_device_rows(array, "X", library, dim=self._arrays.dim, one_row=True)
        mirror = self._mirror
        if mirror is not None and (
            mirror.stale or mirror.library is not library or mirror.place != rows.device
        ):
            self._alone()
        if self._mirror is None:
            self._mirror = AtomMirror(library, rows.device, self._arrays)
        return self._mirror, rows

    @property
    def _state(self) -> AtomState:
        """The arrays in host memory, after what a device has still to tell."""
        with self._lock:
            mirror = self._mirror
            error = None if mirror is None else mirror.settle(self._arrays)
            if error is not None:
                self._mirror = None
                raise error
            return self._arrays

    def _alone(self) -> AtomState:
        """The arrays in host memory, to be changed: what a device holds is of no use then."""
        state = self._state
        self._mirror = None
        return state

    def _claim(self, given: I64 | None, count: int) -> I64:
        if given is None:
            if self._next_id > LAST_ID - count + 1:
                raise ArgumentError("ids: expected to be given, because the largest id is in use")
            fresh: I64 = np.arange(self._next_id, self._next_id + count, dtype=np.int64)
        else:
            fresh = given
            queued = [] if self._mirror is None else self._mirror.pending_ids
            used = fresh[np.isin(fresh, np.concatenate([self._arrays.ids, *queued]))]
            if used.size:
                raise ArgumentError(f"ids: expected ids that are not in use, got {used[0]}")
        if count:
            self._next_id = max(self._next_id, int(fresh.max()) + 1)
        return fresh

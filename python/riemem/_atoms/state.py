"""The arrays of a clustering: rows and their atoms, and what the kernel keeps beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from riemem import _backend
from riemem._arrays import F32, F64, I64, Bool, as_rows, raise_if_bad_row
from riemem.errors import ZeroVectorError

ROUTES = ("max_member", "nearest_fallback", "centroid")
STORAGES = ("float32", "int8")

_FIRST_CAPACITY = 64


def usable_rows(X: object, name: str, dim: int | None, letter: str = "N") -> F32:
    """Return rows that the kernel takes: contiguous float32 with norms within [0.5, 2).

    Rows outside that range are multiplied by a power of two, which changes no cosine.

    Raises
    ------
    ZeroVectorError, NotFiniteError, ShapeError, DTypeError, DeviceError
        Naming the argument and the row.
    """
    rows = np.ascontiguousarray(as_rows(X, name, dim=dim, letter=letter, one_row=True))
    if rows.shape[0] == 0:
        return rows
    norms, bad = _backend.core.row_stats(rows)
    raise_if_bad_row(bad, name)
    if (norms == 0.0).any():
        raise ZeroVectorError(
            f"{name}: expected vectors with a direction, got the zero vector in row "
            f"{int(np.argmin(norms))}"
        )
    far = np.flatnonzero((norms < 0.5) | (norms >= 2.0))
    if far.size:
        rows = rows.copy()
        exponents = np.frexp(norms[far])[1]
        rows[far] = np.ldexp(rows[far].astype(np.float64), -exponents[:, None])
    return rows


class AtomState:
    """Rows in order of arrival, each in one atom; atoms in order of age, each with an id."""

    def __init__(self, dim: int, storage: str) -> None:
        self.dim = dim
        self.storage = storage
        self.row_count = 0
        self.atom_count = 0
        self.ids: I64 = np.empty(0, np.int64)
        self.atom_ids: I64 = np.empty(0, np.int64)
        self.next_atom_id = 0
        self.arrays: dict[str, NDArray[Any]] = {}
        self._reserve(0, 0)

    def _shapes(self) -> dict[str, tuple[bool, tuple[int, ...], Any]]:
        """Name -> whether it counts rows, shape of one, dtype."""
        d, padded = self.dim, -(-self.dim // 8) * 8
        shapes: dict[str, tuple[bool, tuple[int, ...], Any]] = {
            "rows": (True, (d,), np.float32),
            "squares": (True, (), np.float64),
            "inverse": (True, (), np.float32),
            "atom": (True, (), np.int64),
            "next": (True, (), np.int64),
            "sums": (False, (padded,), np.float64),
            "sum_squares": (False, (), np.float64),
            "centres": (False, (d,), np.float32),
            "reach": (False, (3,), np.float64),
            "newest": (False, (), np.int64),
            "sizes": (False, (), np.int64),
        }
        if self.storage == "int8":
            shapes["codes"] = (True, (-(-d // 4) * 4,), np.int8)
            shapes["code_scale"] = (True, (), np.float32)
            shapes["code_error"] = (True, (), np.float32)
            shapes["code_sum"] = (True, (), np.int32)
        return shapes

    def _reserve(self, rows: int, atoms: int) -> None:
        for name, (per_row, shape, dtype) in self._shapes().items():
            old = self.arrays.get(name)
            needed = rows if per_row else atoms
            if old is not None and old.shape[0] >= needed:
                continue
            held = 0 if old is None else old.shape[0]
            new = np.zeros((max(needed, 2 * held, _FIRST_CAPACITY), *shape), dtype)
            if old is not None:
                used = self.row_count if per_row else self.atom_count
                new[:used] = old[:used]
            self.arrays[name] = new

    def view(self, name: str) -> NDArray[Any]:
        """Return the used part of an array."""
        per_row = self._shapes()[name][0]
        return self.arrays[name][: self.row_count if per_row else self.atom_count]

    def assign(self, rows: F32, ids: I64, threshold: float, route: str) -> tuple[I64, F64, Bool]:
        """Append rows by the rule; return their atoms' ids, the scores, and who opened an atom."""
        count = rows.shape[0]
        self._reserve(self.row_count + count, self.atom_count + count)
        first = self.row_count
        self.arrays["rows"][first : first + count] = rows
        atoms, scores, created = _backend.core.max_member_assign(
            self.arrays, first, self.atom_count, count, threshold, ROUTES.index(route)
        )
        self.row_count += count
        self._name_atoms(atoms)
        self.ids = np.concatenate([self.ids, ids])
        return self.atom_ids[self.arrays["atom"][first : first + count]], scores, created

    def append(self, rows: F32, ids: I64, slots: I64, atoms: int) -> None:
        """Append rows to the atoms they are told to be in; `atoms` is the new number of atoms."""
        first, count = self.row_count, rows.shape[0]
        self._reserve(first + count, atoms)
        self.arrays["rows"][first : first + count] = rows
        self.arrays["atom"][first : first + count] = slots
        self.row_count += count
        self.ids = np.concatenate([self.ids, ids])
        self._name_atoms(atoms)
        self.rebuild(np.ones(atoms, bool), all_rows=True)

    def _name_atoms(self, atoms: int) -> None:
        fresh = atoms - self.atom_count
        names = np.arange(self.next_atom_id, self.next_atom_id + fresh, dtype=np.int64)
        self.atom_ids = np.concatenate([self.atom_ids, names])
        self.next_atom_id += fresh
        self.atom_count = atoms

    def nearest(self, rows: F32, route: str) -> tuple[I64, F64]:
        """Return for each row the slot of the atom that would win, and its best."""
        return _backend.core.max_member_nearest(
            self.arrays, self.row_count, self.atom_count, rows, ROUTES.index(route)
        )

    def rebuild(self, dirty: Bool, *, all_rows: bool = False) -> None:
        """Derive member lists afresh, and the sums and centres of the atoms marked."""
        _backend.core.max_member_rebuild(
            self.arrays, self.row_count, self.atom_count, np.ascontiguousarray(dirty), all_rows
        )

    def keep(self, kept: Bool) -> list[int]:
        """Drop the rows that are not kept; return the ids of the atoms that became empty."""
        slots = self.view("atom").copy()
        touched = np.zeros(self.atom_count, bool)
        touched[slots[~kept]] = True
        alive = np.zeros(self.atom_count, bool)
        alive[slots[kept]] = True
        renumbered = np.cumsum(alive) - 1
        remaining = int(kept.sum())
        for name, (per_row, _, _) in self._shapes().items():
            mask, array = (kept, self.view(name)) if per_row else (alive, self.view(name))
            self.arrays[name][: int(mask.sum())] = array[mask]
        self.arrays["atom"][:remaining] = renumbered[slots[kept]]
        gone = self.atom_ids[~alive].tolist()
        self.ids, self.atom_ids = self.ids[kept], self.atom_ids[alive]
        self.row_count, self.atom_count = remaining, int(alive.sum())
        self.rebuild(touched[alive])
        return [int(i) for i in gone]

    def members_of(self, slot: int) -> I64:
        """Return the rows of one atom in order of arrival."""
        return np.flatnonzero(self.view("atom") == slot)

    def unit_centres(self) -> F64:
        """Return the unit centroids in float64, shape (M, d); zero where there is no direction."""
        sums = self.view("sums")[:, : self.dim]
        squares = self.view("sum_squares")
        with np.errstate(divide="ignore", invalid="ignore"):
            units: F64 = np.where(squares[:, None] > 0.0, sums / np.sqrt(squares)[:, None], 0.0)
        return units

    def unit_rows(self, rows: I64 | slice = slice(None)) -> F64:
        """Return rows as float64 unit vectors."""
        wide: F64 = self.view("rows")[rows].astype(np.float64)
        unit: F64 = wide / np.sqrt(self.view("squares")[rows])[:, None]
        return unit

    @property
    def nbytes(self) -> int:
        """Bytes held in arrays, spare room included."""
        held = sum(int(array.nbytes) for array in self.arrays.values())
        return held + int(self.ids.nbytes) + int(self.atom_ids.nbytes)

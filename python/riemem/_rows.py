"""How an index holds its rows: four storages with one set of operations.

Every storage can give back each float32 row bit for bit, because the last word in a search is
always the row itself; what differs is what the scan reads. Rows are written behind the ones that a
view shows, so a view stays as it is while the index grows.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from riemem import _backend
from riemem._arrays import F32, F64, I64, Bool
from riemem.errors import ArgumentError, StoreError

__all__ = ["STORAGES", "RowStore", "RowsView", "fastest_scan", "make_rows"]

_FIRST_CAPACITY = 64
# From how many rows on which copy is read, where both are there. Processor time per query at
# d = 384, int8 / float32: 300 rows 16 / 22 us (B = 1), 15 / 10 us (B = 64); 1,000 rows 23 / 54 us,
# 21 / 20 us; 3,000 rows 31 / 48 us (B = 64). Measured again by
# python bench/topk_table.py --clock cpu --scan float32 (or int8) --sizes 300x384x64,...
_SCANS = ((0, "float32"), (512, "int8"))
# int8 sums of products fit 32 bits up to here.
_MOST_INT8_DIMS = 32768


@dataclass(frozen=True)
class RowsView:
    """The first rows of a store as they were: nothing here is written to again."""

    count: int
    dim: int
    twin: NDArray[np.int32] | None
    rows: F32 | None = None
    tiles: NDArray[np.uint8] | None = None
    tile_scale: F32 | None = None
    high: NDArray[np.uint16] | None = None
    low: NDArray[np.int16] | None = None
    residual: F32 | None = None

    def get(self, start: int, stop: int) -> F32:
        """Rows [start, stop) as float32."""
        if self.rows is not None:
            return self.rows[start:stop]
        assert self.high is not None and self.low is not None
        return _backend.core.join_bfloat16(self.high[start:stop], self.low[start:stop])

    def take(self, positions: I64) -> F32:
        """Some rows as float32."""
        if self.rows is not None:
            return self.rows[positions]
        assert self.high is not None and self.low is not None
        return _backend.core.join_bfloat16(self.high[positions], self.low[positions])

    def kernel(self, inv_norms: F64, scale: F64 | None, bias: F64 | None, scan: str) -> Any:
        """The points as the kernel takes them; `scan` says what it reads."""
        core = _backend.core.Points
        if self.high is not None:
            assert self.low is not None and self.residual is not None
            return core.bfloat16(
                self.high, self.low, inv_norms, scale, bias, self.twin, self.residual
            )
        assert self.rows is not None
        if scan == "float32" or self.tiles is None:
            return core.float32(self.rows, inv_norms, scale, bias, self.twin)
        assert self.tile_scale is not None and self.residual is not None
        return core.int8(
            self.rows,
            inv_norms,
            scale,
            bias,
            self.twin,
            self.tiles,
            self.tile_scale,
            self.residual,
        )


class RowStore:
    """float32 rows in memory, and for each the lowest row with the same bits."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self._rows: F32 = np.empty((0, dim), np.float32)
        self._twin = np.empty(0, np.int32)
        self._twins: Any = _backend.core.Twins()

    @property
    def capacity(self) -> int:
        """Rows there is room for."""
        return int(self._twin.shape[0])

    @property
    def nbytes(self) -> int:
        """Bytes of memory, spare room included."""
        return self._rows.nbytes + self._twin.nbytes

    def reserve(self, used: int, needed: int) -> None:
        """Make room for `needed` rows; on MemoryError or a full disk nothing has changed."""
        if needed > self.capacity:
            self._grow(used, max(needed, 2 * self.capacity, _FIRST_CAPACITY))

    def _room(self, capacity: int) -> F32:
        return np.empty((capacity, self.dim), np.float32)

    def _grow(self, used: int, capacity: int) -> None:
        rows = self._room(capacity)
        twin = np.empty(capacity, np.int32)
        rows[:used], twin[:used] = self._rows[:used], self._twin[:used]
        if self._twins is not None:
            self._twins.reserve(capacity)
        self._rows, self._twin = rows, twin

    def space(self, used: int, count: int) -> F32:
        """Where to make rows that are then written behind the `used` first ones."""
        return self._rows[used : used + count]

    def write(self, used: int, unit: F32) -> None:
        """Put rows behind the `used` first ones, for which there is room.

        Rows that were made in :meth:`space` are not moved.
        """
        end = used + unit.shape[0]
        if not np.may_share_memory(unit, self._rows):
            self._rows[used:end] = unit
        self._find_twins(used, end)

    def adopt(self, rows: F32) -> None:
        """Hold rows as they are, in place of an empty store's; the first growth copies them.

        They may be read-only, such as rows in a mapped file.
        """
        self._rows, self._twin = rows, np.empty(rows.shape[0], np.int32)
        self._find_twins(0, rows.shape[0])

    def _find_twins(self, used: int, end: int) -> None:
        begin = used
        if self._twins is None:  # an earlier write broke off half-way
            self._twins, begin = _backend.core.Twins(), 0
        twins, self._twins = self._twins, None
        twins.extend(self._rows[:end], begin, self._twin)
        self._twins = twins

    def view(self, used: int) -> RowsView:
        """The first `used` rows."""
        return RowsView(used, self.dim, self._twin[:used], rows=self._rows[:used])

    def vectors(self, used: int) -> F32:
        """The first `used` rows; may share memory with the store."""
        return self.view(used).get(0, used)

    def take(self, used: int, rows: I64) -> F32:
        """Some of the first `used` rows."""
        return self._rows[rows]

    def kept(self, used: int, keep: Bool) -> RowStore:
        """A new store of the rows that stay; the old one is left as it is."""
        fresh = self._empty()
        stays = np.flatnonzero(keep)
        fresh.reserve(0, stays.size)
        for start in range(0, stays.size, 4096):
            fresh.write(start, self.take(used, stays[start : start + 4096]))
        return fresh

    def _empty(self) -> RowStore:
        return type(self)(self.dim)


class Int8Rows(RowStore):
    """float32 rows beside int8 tiles; the tiles are what the scan reads."""

    def __init__(self, dim: int) -> None:
        if dim > _MOST_INT8_DIMS:
            raise ArgumentError(f"dim: expected at most {_MOST_INT8_DIMS} for int8, got {dim}")
        super().__init__(dim)
        self._tiles = np.empty(0, np.uint8)
        self._tile_scale: F32 = np.empty(0, np.float32)
        self._residual: F32 = np.empty(0, np.float32)

    @property
    def nbytes(self) -> int:
        planes = self._tiles.nbytes + self._tile_scale.nbytes + self._residual.nbytes
        return super().nbytes + planes

    def _tile_bytes(self, rows: int) -> int:
        tile = _backend.core.int8_tile_rows
        return -(-rows // tile) * _backend.core.int8_tile_bytes(self.dim)

    def _grow(self, used: int, capacity: int) -> None:
        tiles = np.empty(self._tile_bytes(capacity), np.uint8)
        tile_scale = np.empty(capacity, np.float32)
        residual = np.empty(capacity, np.float32)
        held = self._tile_bytes(used)
        tiles[:held] = self._tiles[:held]
        tile_scale[:used], residual[:used] = self._tile_scale[:used], self._residual[:used]
        super()._grow(used, capacity)
        self._tiles, self._tile_scale, self._residual = tiles, tile_scale, residual

    def adopt(self, rows: F32) -> None:
        super().adopt(rows)
        count = rows.shape[0]
        self._tiles = np.empty(self._tile_bytes(count), np.uint8)
        self._tile_scale = np.empty(count, np.float32)
        self._residual = np.empty(count, np.float32)
        _backend.core.quantize_int8(rows, 0, self._tiles, self._tile_scale, self._residual)

    def write(self, used: int, unit: F32) -> None:
        super().write(used, unit)
        _backend.core.quantize_int8(unit, used, self._tiles, self._tile_scale, self._residual)

    def view(self, used: int) -> RowsView:
        return RowsView(
            used,
            self.dim,
            self._twin[:used],
            rows=self._rows[:used],
            tiles=self._tiles[: self._tile_bytes(used)],
            tile_scale=self._tile_scale[:used],
            residual=self._residual[:used],
        )


class Int8FileRows(Int8Rows):
    """int8 tiles in memory, the float32 rows in a memory-mapped file without a name."""

    def __init__(self, dim: int, directory: str | None) -> None:
        super().__init__(dim)
        self._directory = directory

    @property
    def nbytes(self) -> int:
        return super().nbytes - self._rows.nbytes

    def _room(self, capacity: int) -> F32:
        return _mapped_rows(capacity, self.dim, self._directory)

    def _empty(self) -> RowStore:
        return Int8FileRows(self.dim, self._directory)


def _mapped_rows(capacity: int, dim: int, directory: str | None) -> F32:
    try:
        with tempfile.TemporaryFile(dir=directory, prefix="riemem-") as file:
            size = max(capacity * dim * 4, 1)
            # Reserved now: a mapped page that finds the disk full later would be a crash.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            return np.memmap(file, np.float32, "r+", shape=(capacity, dim))
    except OSError as error:
        where = directory or tempfile.gettempdir()
        reason = "no space left" if error.errno == errno.ENOSPC else str(error)
        raise StoreError(f"directory: cannot keep {capacity} rows in {where}: {reason}") from error


class SplitRows(RowStore):
    """Each float32 as its nearest bfloat16 and the rest of its bits; the scan reads the first."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self._high = np.empty((0, dim), np.uint16)
        self._low = np.empty((0, dim), np.int16)
        self._residual: F32 = np.empty(0, np.float32)

    @property
    def capacity(self) -> int:
        return int(self._residual.shape[0])

    @property
    def nbytes(self) -> int:
        return self._high.nbytes + self._low.nbytes + self._residual.nbytes

    def _grow(self, used: int, capacity: int) -> None:
        high = np.empty((capacity, self.dim), np.uint16)
        low = np.empty((capacity, self.dim), np.int16)
        residual = np.empty(capacity, np.float32)
        high[:used], low[:used] = self._high[:used], self._low[:used]
        residual[:used] = self._residual[:used]
        self._high, self._low, self._residual = high, low, residual

    def space(self, used: int, count: int) -> F32:
        return np.empty((count, self.dim), np.float32)

    def write(self, used: int, unit: F32) -> None:
        end = used + unit.shape[0]
        halves = _backend.core.split_bfloat16(unit)
        self._high[used:end], self._low[used:end], self._residual[used:end] = halves

    def adopt(self, rows: F32) -> None:
        self.reserve(0, rows.shape[0])
        for start in range(0, rows.shape[0], 4096):
            self.write(start, rows[start : start + 4096])

    def view(self, used: int) -> RowsView:
        return RowsView(
            used,
            self.dim,
            None,
            high=self._high[:used],
            low=self._low[:used],
            residual=self._residual[:used],
        )

    def take(self, used: int, rows: I64) -> F32:
        return _backend.core.join_bfloat16(self._high[rows], self._low[rows])


STORAGES = ("float32", "float32+int8", "bf16", "int8")


def fastest_scan(count: int) -> str:
    """What a search of that many rows reads, where an int8 copy exists."""
    return next(scan for least, scan in reversed(_SCANS) if count >= least)


def make_rows(storage: str, dim: int, directory: object) -> RowStore:
    """An empty store of the named kind; `directory` is where "int8" keeps its file."""
    if directory is not None and storage != "int8":
        raise ArgumentError("directory: expected None unless storage is 'int8'")
    if storage == "float32":
        return RowStore(dim)
    if storage == "float32+int8":
        return Int8Rows(dim)
    if storage == "bf16":
        return SplitRows(dim)
    where = None
    if directory is not None:
        with contextlib.suppress(TypeError):
            where = os.fspath(directory)  # type: ignore[call-overload]
        if not isinstance(where, str) or not Path(where).is_dir():
            raise ArgumentError(f"directory: expected an existing folder, got {directory!r}")
    return Int8FileRows(dim, where)

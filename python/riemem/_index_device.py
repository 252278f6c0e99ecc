"""What a GPU holds of an index: a copy of its rows that follows it, and searches there.

The index itself stays in host memory, where it is changed, saved and checked; the device holds what
a search reads. Rows are copied once, when they are first searched; after a removal all are.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from riemem._arrays import I64, Bool, as_rows, require_finite
from riemem._backend import cuda_module
from riemem._device import (
    Library,
    as_device_rows,
    default_library,
    is_device,
    library_of,
    span,
)
from riemem._fused import (
    Options,
    Points,
    TopK,
    convert,
    prepare_queries,
    unit_rows,
)
from riemem._fused_device import (
    DevicePoints,
    DeviceQueries,
    as_device_mask,
    fold_queries,
    run_topk,
)
from riemem._rows import RowStore, RowsView
from riemem.metric import FisherMetric

__all__ = ["DeviceRows", "State", "to_host"]

_FIRST_CAPACITY = 64
_FLOAT32, _INT8, _BFLOAT16 = 0, 1, 2
_TILE = 64


@dataclass(frozen=True)
class State:
    """One state of an index, as a search takes it."""

    version: int
    points: Points
    ids: I64
    metric: FisherMetric
    rows: RowsView
    store: RowStore  # whose rows these are: another one after a removal


def to_host(value: object, name: str) -> NDArray[Any]:
    """Copy a device array to the host, which waits for it."""
    library, array = library_of(value, name)
    with library.working(library.view(array, name).device):
        return library.get(array)


class DeviceRows:
    """The rows of one index on one device.

    Parameters
    ----------
    device : int
        Number of the GPU.
    dim : int
        Number of columns.
    storage : str
        As for the index: decides what the scan reads.
    vram : VramBudget, optional
        Asked before memory is taken for rows.
    """

    def __init__(self, device: int, dim: int, storage: str, vram: Any = None) -> None:
        self.device = device
        self._library = default_library("device")
        self._dim = dim
        self._vram = vram
        self._tiled = storage in ("float32+int8", "int8")
        self._split = storage == "bf16"
        self._capacity = 0
        self._arrays: dict[str, Any] = {}
        self._store: RowStore | None = None
        self._held = 0  # rows of that store that have been copied
        self._rotation: tuple[Any, Any] | None = None
        self._latest: tuple[int, DevicePoints] | None = None
        self._lock = threading.Lock()

    def _shapes(self, capacity: int) -> dict[str, tuple[tuple[int, ...], str]]:
        """The arrays for so many rows: shape and dtype."""
        dim = self._dim
        shapes: dict[str, tuple[tuple[int, ...], str]]
        if self._split:
            shapes = {"high": ((capacity, dim), "int16"), "low": ((capacity, dim), "int16")}
        else:
            shapes = {"rows": ((capacity, dim), "float32")}
        if self._tiled:
            tiles = -(-capacity // _TILE)
            shapes["tiles"] = ((tiles * -(-dim // 4) * 4 * _TILE,), "uint8")
            shapes["tile_scale"] = ((capacity,), "float32")
        if self._tiled or self._split:
            shapes["residual"] = ((capacity,), "float32")
        return shapes

    def bytes_for(self, rows: int) -> int:
        """Device memory that so many rows take, without the workspace of a search."""
        shapes = self._shapes(rows).values()
        held = sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in shapes)
        return held + rows * (3 * 8 + 8) + -(-rows // _TILE) * 7 * 8

    @property
    def nbytes(self) -> int:
        """Device memory that is held for rows and what depends on them."""
        return self.bytes_for(self._capacity) if self._capacity else 0

    def reserve(self, needed: int) -> None:
        """Make room; on an error nothing has changed.

        Raises
        ------
        CudaError
            The device is full.
        VramBudgetError
            The budget does not allow it.
        """
        with self._lock:
            if needed > self._capacity:
                self._grow(max(needed, 2 * self._capacity, _FIRST_CAPACITY))

    def _grow(self, capacity: int) -> None:
        if self._vram is not None:
            self._vram.check(self.bytes_for(capacity))
        with self._library.working(self.device) as stream:
            fresh = {
                name: self._library.empty(shape, kind, self.device)
                for name, (shape, kind) in self._shapes(capacity).items()
            }
            if self._held:
                for name, array in self._arrays.items():
                    self._library.write(fresh[name], 0, array)
            cuda_module().synchronize(stream)
        self._arrays, self._capacity = fresh, capacity

    def _copy(self, state: State) -> None:
        """Bring the rows of a state to the device: those that are not there yet."""
        count, view = state.rows.count, state.rows
        begin = self._held if state.store is self._store else 0
        write = self._library.write
        if count > begin:
            if self._split:
                assert view.high is not None and view.low is not None
                write(self._arrays["high"], begin, view.high[begin:].view(np.int16))
                write(self._arrays["low"], begin, view.low[begin:])
            else:
                assert view.rows is not None
                write(self._arrays["rows"], begin, np.asarray(view.rows[begin:]))
            if self._tiled:
                assert view.tiles is not None and view.tile_scale is not None
                first = begin // _TILE * -(-self._dim // 4) * 4 * _TILE
                write(self._arrays["tiles"], first, view.tiles[first:])
                write(self._arrays["tile_scale"], begin, view.tile_scale[begin:])
            if view.residual is not None and "residual" in self._arrays:
                write(self._arrays["residual"], begin, view.residual[begin:])
        self._store, self._held = state.store, count

    def points(self, state: State) -> DevicePoints:
        """The prepared rows of a state; waits for what has to be copied."""
        with self._lock:
            if self._latest is not None and self._latest[0] == state.version:
                return self._latest[1]
            if state.rows.count > self._capacity:
                self._grow(state.rows.count)
            library = self._library
            with library.working(self.device) as stream:
                self._copy(state)
                made = self._make(state, library, stream)
                cuda_module().synchronize(stream)
            # An older state may be asked for once more; it must not take the newer one's place.
            if self._latest is None or self._latest[0] < state.version:
                self._latest = (state.version, made)
            return made

    def _make(self, state: State, library: Library, stream: int) -> DevicePoints:
        module, points, count = cuda_module(), state.points, state.rows.count
        arrays = dict(self._arrays)
        arrays["inv_norm"] = library.put(points.inv_norms, self.device)
        arrays["ids"] = library.put(state.ids, self.device)
        for name, values in (("row_scale", points.scale), ("row_bias", points.bias)):
            if values is not None:
                arrays[name] = library.put(values, self.device)
        size = module.part_scales_size(count)
        arrays["part_scales"] = library.empty((size,), "float64", self.device)
        if self._tiled:
            if self._rotation is None:
                signs, order = module.rotation(self._dim)
                self._rotation = (
                    library.put(signs, self.device),
                    library.put(order, self.device),
                )
            arrays["signs"], arrays["order"] = self._rotation
        names = (
            "rows", "high", "low", "tiles", "tile_scale", "residual", "inv_norm", "row_scale",
            "row_bias", "part_scales", "signs", "order", "ids",
        )  # fmt: skip
        spans = {name: span(library, arrays[name]) if name in arrays else None for name in names}
        storage = _BFLOAT16 if self._split else _INT8 if self._tiled else _FLOAT32
        kernel = module.Points(
            count=count, dim=self._dim, storage=storage, stride=self._dim, **spans
        )
        kernel.prepare(stream)
        held = tuple(arrays.values())
        return DevicePoints(library, self.device, count, self._dim, kernel, None, held)

    def search(
        self, state: State, Q: object, k: int, filter: Bool | None, options: Options
    ) -> TopK:
        """Search for host queries: the same bits as on the processor, numpy arrays back."""
        rows = as_rows(Q, "Q", dim=self._dim, letter="B", one_row=True)
        require_finite(rows, "Q")
        queries = prepare_queries(unit_rows(rows)[0], state.metric, options)
        batch = rows.shape[0]
        width = min(k, state.rows.count)
        if width == 0 or batch == 0:
            none, nothing = np.empty((batch, 0), np.int64), np.zeros(batch, np.int64)
            nowhere = TopK(none, np.empty((batch, 0)), nothing, queries.empty, queries.scoring, -1)
            return convert(nowhere, Q)
        points, library = self.points(state), self._library
        with library.working(self.device) as stream:
            q, w, offsets, bias, empty = (
                library.put(np.ascontiguousarray(array), self.device)
                for array in (
                    queries.q,
                    queries.w,
                    queries.offsets,
                    queries.bias,
                    queries.empty.astype(np.uint8),
                )
            )
            asked = DeviceQueries(
                batch, q, w, offsets, bias, empty, queries.options, queries.bounds, queries.scoring
            )
            mask = None if filter is None else library.put(filter, self.device)
            indices, scores, counts = (
                library.get(array) for array in run_topk(points, asked, mask, width, stream)
            )
        hits = int(counts.max(initial=0))
        answer = TopK(
            np.ascontiguousarray(indices[:, :hits]),
            np.ascontiguousarray(scores[:, :hits]),
            counts,
            queries.empty,
            queries.scoring,
            -1,
        )
        return convert(answer, Q)

    def search_device(
        self,
        state: State,
        Q: object,
        k: int,
        filter: object,
        host_filter: Bool | None,
        options: Options,
    ) -> TopK:
        """Search for queries on the device: arrays of their library back, nothing waited for."""
        library, own = library_of(Q, "Q")
        asked = as_device_rows(
            own, "Q", library, self.device, dim=self._dim, letter="B", one_row=True
        )
        batch, count = asked.shape[0], state.rows.count
        points = replace(self.points(state), library=library) if count else None
        with library.working(self.device) as stream:
            queries = fold_queries(asked, library, state.metric, options, stream, unit=True)
            empty = library.truth(queries.empty)
            width = min(k, count)
            if points is None or width == 0:
                shape = (batch, 0)
                return TopK(
                    library.empty(shape, "int64", self.device),
                    library.empty(shape, "float64", self.device),
                    library.put(np.zeros(batch, np.int64), self.device),
                    empty,
                    queries.scoring,
                    -1,
                )
            if host_filter is not None:
                mask = library.put(host_filter, self.device)
            else:
                mask = as_device_mask(filter, library, self.device, count, batch, "filter")
            indices, scores, counts = run_topk(points, queries, mask, width, stream)
            return TopK(indices, scores, counts, empty, queries.scoring, -1)

    def find(
        self,
        state: State,
        Q: object,
        k: int,
        filter: object,
        host_filter: Bool | None,
        options: Options,
    ) -> TopK:
        """Search where the queries are."""
        if is_device(Q):
            return self.search_device(state, Q, k, filter, host_filter, options)
        return self.search(state, Q, k, host_filter, options)

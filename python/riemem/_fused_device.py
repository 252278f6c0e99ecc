"""The fused search on a GPU: arrays of torch or cupy in, arrays of the same library out.

Everything is queued on the library's current stream; nothing is read back. So what the processor
reports after looking at the numbers is reported differently here: rows with NaN or an infinity are
never returned, such a query is flagged in ``TopK.empty``, short answers keep their full width
(``TopK.counts`` says how much of it holds hits), and ``TopK.exact_rows`` is -1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from riemem._backend import cuda_module
from riemem._device import (
    KINDS,
    Library,
    View,
    as_device_rows,
    as_view,
    is_device,
    library_of,
    rows_span,
    span,
)
from riemem._fused import NORMS, Options, TopK, score_bounds, why_cosine
from riemem.errors import ArgumentError, DeviceError, ShapeError
from riemem.metric import FisherMetric

__all__ = [
    "DevicePoints",
    "DeviceQueries",
    "as_device_mask",
    "device_scores",
    "device_search",
    "fold_queries",
    "run_topk",
]

FORM_CODES = {"inner": 0, "cosine": 1, "mahalanobis": 2}
_STORAGE_FLOAT32, _STORAGE_BFLOAT16 = 0, 2

# Mean and whitening of a metric's state on each device that has asked for it.
_metrics: WeakKeyDictionary[Any, dict[tuple[str, int], tuple[Any, Any]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class DevicePoints:
    """Rows on a device with what depends on them alone; `held` keeps the memory alive."""

    library: Library
    device: int
    count: int
    dim: int
    kernel: Any
    usable: Any  # (N,) bytes, 0 for a row with NaN or an infinity; None: all are
    held: tuple[Any, ...]


@dataclass(frozen=True)
class DeviceQueries:
    """What the kernel takes for each query, as arrays on the device."""

    count: int
    q: Any
    w: Any
    offsets: Any
    bias: Any
    empty: Any
    options: Options
    bounds: tuple[float, float]
    scoring: str


def metric_on_device(state: Any, library: Library, device: int) -> tuple[Any, Any]:
    """Mean and whitening of a metric's state, copied to the device once."""
    known = _metrics.setdefault(state, {})
    key = (library.name, device)
    if key not in known:
        known[key] = (library.put(state.mean, device), library.put(state.whitening, device))
    return known[key]


def make_points(
    rows: View, library: Library, metric: FisherMetric | None, options: Options, stream: int
) -> DevicePoints:
    """Prepare rows of the caller for a search; only new memory is written."""
    module = cuda_module()
    device = rows.device
    count, dim = rows.shape
    plain = why_cosine(metric) is not None or options.cosine_weight == 1.0
    form = 0 if plain or metric is None else FORM_CODES[options.form]

    def room(size: int, dtype: str = "float64") -> Any:
        return library.empty((size,), dtype, device)

    norms, inverse = room(count), room(count)
    bad = room(1, "int64")
    usable = library.ones(count, device)
    scales = room(module.part_scales_size(count))
    squares = row_scale = row_bias = None
    memory, stride = rows_span(rows), rows.strides[0]
    kind = KINDS[rows.kind]
    module.row_norms(
        memory, kind, count, dim, stride, span(library, norms), span(library, bad), stream
    )
    at_mean = 0.0
    if form and metric is not None:
        state = metric._current()
        mean, whitening = metric_on_device(state, library, device)
        squares, at_mean = room(count), float(state.at_mean)
        row_scale = room(count) if form == 1 else None
        row_bias = room(count) if form == 2 else None
        rank = state.whitening.shape[1]
        module.quadratic_rows(
            memory, kind, count, dim, stride, span(library, mean), span(library, whitening), rank,
            span(library, squares), stream,
        )  # fmt: skip

    def maybe(array: Any) -> Any:
        return None if array is None else span(library, array)

    module.row_constants(
        span(library, norms), maybe(squares), count, form, at_mean, span(library, inverse),
        maybe(row_scale), maybe(row_bias), span(library, usable), stream,
    )  # fmt: skip
    narrow = rows.bfloat16  # read as they are: half the bytes, and nothing to add to them
    storage = _STORAGE_BFLOAT16 if narrow else _STORAGE_FLOAT32
    kernel = module.Points(
        count=count, dim=dim, storage=storage, stride=stride, rows=None if narrow else memory,
        high=memory if narrow else None, low=None, tiles=None, tile_scale=None, residual=None,
        inv_norm=span(library, inverse), row_scale=maybe(row_scale), row_bias=maybe(row_bias),
        part_scales=span(library, scales), signs=None, order=None, ids=None,
    )  # fmt: skip
    kernel.prepare(stream)
    held = (rows.owner, inverse, scales, row_scale, row_bias)
    return DevicePoints(library, device, count, dim, kernel, usable, held)


def fold_queries(
    rows: View,
    library: Library,
    metric: FisherMetric | None,
    options: Options,
    stream: int,
    *,
    unit: bool = False,
) -> DeviceQueries:
    """Fold metric and form into two vectors and two constants per query, on the device."""
    module = cuda_module()
    if rows.bfloat16:  # a few rows, at once
        rows = as_device_rows(library.cast(rows.owner, "float32"), "queries", library, one_row=True)
    count, dim = rows.shape
    device = rows.device
    reason = why_cosine(metric)
    if reason is not None:
        options = Options(1.0, options.form, "none")
    mean = whitening = None
    at_mean = 0.0
    if metric is not None and reason is None and options.cosine_weight < 1.0:
        state = metric._current()
        at_mean = float(state.at_mean)
        mean, whitening = (
            span(library, array) for array in metric_on_device(state, library, device)
        )
    q, w, scratch = (library.empty((count, dim), "float64", device) for _ in range(3))
    offsets, bias = (library.empty((count,), "float64", device) for _ in range(2))
    empty = library.empty((count,), "uint8", device)
    module.fold_queries(
        rows_span(rows), count, dim, rows.strides[0], mean, whitening, at_mean,
        FORM_CODES[options.form], unit, span(library, q), span(library, w),
        span(library, offsets), span(library, bias), span(library, empty),
        span(library, scratch), stream,
    )  # fmt: skip
    bounds = score_bounds(options)
    return DeviceQueries(count, q, w, offsets, bias, empty, options, bounds, reason or "fused")


def as_device_mask(
    mask: object, library: Library, device: int, rows: int, queries: int, name: str = "mask"
) -> Any:
    """Check a mask on the device, of shape (rows,) or (queries, rows), or None."""
    if mask is None:
        return None
    expected = f"({rows},) or ({queries}, {rows})"
    view = as_view(mask, name, library, device, ("bool",), expected)
    if view.shape not in ((rows,), (queries, rows)):
        raise ShapeError(f"{name}: expected shape {expected}, got {view.shape}")
    return view.owner


def _passing(points: DevicePoints, mask: Any) -> tuple[Any, bool]:
    """The mask as bytes for the kernel, and whether each query has its own."""
    library = points.library
    if mask is None:
        return points.usable, False
    usable = points.usable if points.usable is not None else library.ones(
        points.count, points.device
    )  # fmt: skip
    return library.both(mask, usable), len(library.view(mask, "mask").shape) == 2


def _call(points: DevicePoints, queries: DeviceQueries, mask: Any) -> dict[str, Any]:
    """The arguments that both kernels take; `mask` stays alive with the caller."""
    library = points.library
    return {
        "count": queries.count,
        "q": span(library, queries.q),
        "w": span(library, queries.w),
        "offset": span(library, queries.offsets),
        "bias": span(library, queries.bias),
        "empty": span(library, queries.empty),
        "cosine_weight": queries.options.cosine_weight,
        "norm": NORMS.index(queries.options.norm),
        "mask": None if mask is None else span(library, mask),
        "least": queries.bounds[0],
        "greatest": queries.bounds[1],
    }


def run_topk(
    points: DevicePoints, queries: DeviceQueries, mask: Any, k: int, stream: int
) -> tuple[Any, Any, Any]:
    """Indices (B, k), scores (B, k) and counts (B,); k is at least 1, and so are the rows."""
    library, device = points.library, points.device
    shape = (queries.count, k)
    indices = library.empty(shape, "int64", device)
    scores = library.empty(shape, "float64", device)
    counts = library.empty((queries.count,), "int64", device)
    if queries.count == 0:
        return indices, scores, counts
    passing, own = _passing(points, mask)
    size = points.kernel.workspace_bytes(queries.count, NORMS.index(queries.options.norm), k)
    workspace = library.empty((size,), "uint8", device)
    points.kernel.topk(
        **_call(points, queries, passing), mask_per_query=own, k=k,
        indices=span(library, indices), scores=span(library, scores), counts=span(library, counts),
        workspace=span(library, workspace), stream=stream,
    )  # fmt: skip
    return indices, scores, counts


def _prepare(
    queries: object, points: object, metric: FisherMetric | None
) -> tuple[Library, View, View]:
    """The library and the rows of both; they must be on one device."""
    if not is_device(queries):
        raise DeviceError(
            "queries: expected an array on the device of points, got one in host memory"
        )
    library, own = library_of(queries, "queries")
    if not is_device(points):
        raise DeviceError(
            "points: expected an array on the device of queries, got one in host memory"
        )
    dim = None if metric is None else metric.dim
    device = library.view(own, "queries").device
    rows = as_device_rows(points, "points", library, device, dim=dim)
    asked = as_device_rows(
        own, "queries", library, device, dim=rows.shape[1], letter="B", one_row=True
    )
    return library, asked, rows


def device_search(
    queries: object,
    points: object,
    metric: FisherMetric | None,
    k: int,
    options: Options,
    mask: object,
) -> TopK:
    """:func:`riemem.search` for arrays on a device."""
    library, asked, rows = _prepare(queries, points, metric)
    batch, count = asked.shape[0], rows.shape[0]
    with library.working(asked.device) as stream:
        passing = as_device_mask(mask, library, asked.device, count, batch)
        folded = fold_queries(asked, library, metric, options, stream)
        empty = library.truth(folded.empty)
        width = min(k, count)
        if width == 0:
            none = library.empty((batch, 0), "int64", asked.device)
            scores = library.empty((batch, 0), "float64", asked.device)
            counts = library.put(np.zeros(batch, np.int64), asked.device)
            return TopK(none, scores, counts, empty, folded.scoring, -1)
        prepared = make_points(rows, library, metric, options, stream)
        indices, scores, counts = run_topk(prepared, folded, passing, width, stream)
        return TopK(indices, scores, counts, empty, folded.scoring, -1)


def device_scores(
    queries: object,
    points: object,
    metric: FisherMetric | None,
    options: Options,
    mask: object,
    out: object,
) -> Any:
    """:func:`riemem.scores` for arrays on a device."""
    library, asked, rows = _prepare(queries, points, metric)
    shape = (asked.shape[0], rows.shape[0])
    with library.working(asked.device) as stream:
        passing = as_device_mask(mask, library, asked.device, shape[1], shape[0])
        target = library.empty(shape, "float64", asked.device) if out is None else out
        wide = _as_device_out(target, library, asked.device, shape)
        if math.prod(shape) == 0:
            return target
        folded = fold_queries(asked, library, metric, options, stream)
        prepared = make_points(rows, library, metric, options, stream)
        bytes_, own = _passing(prepared, passing)
        norm = NORMS.index(folded.options.norm)
        size = prepared.kernel.workspace_bytes(folded.count, norm, 0)
        workspace = library.empty((size,), "uint8", asked.device)
        prepared.kernel.scores(
            **_call(prepared, folded, bytes_), mask_per_query=own, out=span(library, target),
            wide=wide, workspace=span(library, workspace), stream=stream,
        )  # fmt: skip
        return target


def _as_device_out(out: Any, library: Library, device: int, shape: tuple[int, int]) -> bool:
    """Check `out`; returns whether it is float64."""
    if not library.owns(out):
        raise DeviceError(f"out: expected an array of {library.name} on device {device}")
    wide = library.view(out, "out").dtype == np.float64
    dtype = "float64" if wide else "float32"
    view = as_view(out, "out", library, device, (dtype,), str(shape))
    if view.shape != shape:
        raise ShapeError(f"out: expected shape {shape}, got {view.shape}")
    if not view.contiguous:
        raise ArgumentError(f"out: expected contiguous memory, got strides {view.strides}")
    return bool(wide)

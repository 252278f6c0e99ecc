"""Rows with a variance per dimension on a GPU: :mod:`riemem.fisher_rao` for device arrays.

Everything is queued on the library's current stream and nothing is read back. So rows that the
processor would refuse (NaN, an infinity, a variance that is not positive, a ramp outside [0, 1])
are treated as if the mask left them out, and a query without direction is flagged in ``.empty``.
"""

from __future__ import annotations

from typing import Any

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
from riemem._fused import TopK
from riemem._fused_device import as_device_mask
from riemem.errors import DeviceError, ShapeError

__all__ = ["device_uncertain_scores", "device_uncertain_topk"]

_FLOAT32 = ("float32",)
_SCORING = "fisher-rao"


def _arrays(
    queries: object, points: object, variances: object
) -> tuple[Library, View, View, View, bool]:
    """Rows, variances and queries on one device, and whether all rows share their variances."""
    for value, name in ((queries, "queries"), (points, "points"), (variances, "variances")):
        if not is_device(value):
            raise DeviceError(f"{name}: expected an array on a device, got one in host memory")
    library, own = library_of(points, "points")
    rows = as_device_rows(own, "points", library, kinds=_FLOAT32)
    device, (n, d) = rows.device, rows.shape
    asked = as_device_rows(
        queries, "queries", library, device, dim=d, letter="B", one_row=True, kinds=_FLOAT32
    )
    library, given = library_of(variances, "variances")
    shared = len(library.view(given, "variances").shape) == 1
    spread = as_device_rows(
        given, "variances", library, device, dim=d, one_row=True, kinds=_FLOAT32
    )
    if not shared and spread.shape[0] != n:
        raise ShapeError(f"variances: expected shape ({n}, {d}) or ({d},), got {spread.shape}")
    return library, asked, rows, spread, shared


def _as_ramp(ramp: object, library: Library, device: int, n: int) -> Any:
    if ramp is None:
        return None
    view = as_view(ramp, "ramp", library, device, ("float64", "float32"), f"({n},)")
    if view.shape != (n,):
        raise ShapeError(f"ramp: expected shape ({n},), got {view.shape}")
    return library.cast(view.owner, "float64")


class _Call:
    """One call, prepared: the kernel's object and everything that its memory belongs to."""

    def __init__(
        self,
        queries: object,
        points: object,
        variances: object,
        temperature: float,
        ramp: object,
        mask: object,
    ) -> None:
        self.library, asked, rows, spread, shared = _arrays(queries, points, variances)
        self.device, self.batch, self.count = rows.device, asked.shape[0], rows.shape[0]
        self.dim = rows.shape[1]
        with self.library.working(self.device) as stream:
            slope = _as_ramp(ramp, self.library, self.device, self.count)
            passes = as_device_mask(mask, self.library, self.device, self.count, self.batch)
            own = passes is not None and len(self.library.view(passes, "mask").shape) == 2
            norms, query_inverse = self._inverse(asked, stream)
            self.empty = self._room(self.batch, "uint8")
            cuda_module().fisher_rao_empty(
                span(self.library, norms), self.batch, span(self.library, self.empty), stream
            )
            self.kernel = None
            if self.count == 0 or self.batch == 0:
                return
            usable = self.library.ones(self.count, self.device)
            _, inverse = self._inverse(rows, stream, usable)
            precision = self._precision(spread, shared, slope, usable, stream)
            if passes is not None:
                usable = self.library.both(passes, usable)
            self.kernel = cuda_module().FisherRao(
                rows=rows_span(rows), stride=rows.strides[0],
                precision=span(self.library, precision), one_precision=shared, count=self.count,
                dim=self.dim, inv_norm=span(self.library, inverse),
                ramp=None if slope is None else span(self.library, slope),
                queries=rows_span(asked), query_stride=asked.strides[0],
                query_inv_norm=span(self.library, query_inverse),
                empty=span(self.library, self.empty), batch=self.batch, temperature=temperature,
                mask=span(self.library, usable), mask_per_query=own,
            )  # fmt: skip
            self._held = (rows, asked, precision, inverse, slope, query_inverse, usable)

    def _room(self, size: int, dtype: str) -> Any:
        return self.library.empty((size,), dtype, self.device)

    def _inverse(self, rows: View, stream: int, usable: Any = None) -> tuple[Any, Any]:
        """Norms of rows and their inverses, 0 where there is none."""
        module, library, count = cuda_module(), self.library, rows.shape[0]
        norms, inverse = self._room(count, "float64"), self._room(count, "float64")
        bad = self._room(1, "int64")
        module.row_norms(
            rows_span(rows), KINDS[rows.kind], count, rows.shape[1], rows.strides[0],
            span(library, norms), span(library, bad), stream,
        )  # fmt: skip
        if count:
            marks = library.ones(count, self.device) if usable is None else usable
            module.row_constants(
                span(library, norms), None, count, 0, 0.0, span(library, inverse), None, None,
                span(library, marks), stream,
            )  # fmt: skip
        return norms, inverse

    def _precision(self, spread: View, shared: bool, ramp: Any, usable: Any, stream: int) -> Any:
        """The inverse variances; rows that have none are no longer usable."""
        shape = (1 if shared else self.count, self.dim)
        made = self.library.empty(shape, "float32", self.device)
        cuda_module().fisher_rao_precision(
            rows_span(spread), self.count, self.dim, 0 if shared else spread.strides[0],
            None if ramp is None else span(self.library, ramp), span(self.library, made),
            span(self.library, usable), stream,
        )  # fmt: skip
        return made


def device_uncertain_scores(
    queries: object,
    points: object,
    variances: object,
    temperature: float,
    ramp: object,
    mask: object,
) -> Any:
    """:func:`riemem.fisher_rao_scores` for arrays on a device."""
    call = _Call(queries, points, variances, temperature, ramp, mask)
    library = call.library
    with library.working(call.device) as stream:
        out = library.empty((call.batch, call.count), "float64", call.device)
        if call.kernel is not None:
            call.kernel.scores(span(library, out), stream)
        return out


def device_uncertain_topk(
    queries: object,
    points: object,
    variances: object,
    k: int,
    temperature: float,
    ramp: object,
    mask: object,
) -> TopK:
    """:func:`riemem.fisher_rao_search` for arrays on a device."""
    call = _Call(queries, points, variances, temperature, ramp, mask)
    library, device, width = call.library, call.device, min(k, call.count)
    with library.working(device) as stream:
        empty = library.truth(call.empty)
        indices = library.empty((call.batch, width), "int64", device)
        scores = library.empty((call.batch, width), "float64", device)
        if call.kernel is None or width == 0:
            counts = library.put(np.zeros(call.batch, np.int64), device)
            return TopK(indices, scores, counts, empty, _SCORING, -1)
        counts = library.empty((call.batch,), "int64", device)
        size = cuda_module().fisher_rao_workspace(call.count, call.dim, call.batch, width)
        workspace = library.empty((size,), "uint8", device)
        call.kernel.topk(
            width, span(library, indices), span(library, scores), span(library, counts),
            span(library, workspace), stream,
        )  # fmt: skip
        return TopK(indices, scores, counts, empty, _SCORING, -1)

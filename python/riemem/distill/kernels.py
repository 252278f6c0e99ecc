"""The numeric steps between gradients and units, on the processor or where the arrays are.

Arrays of torch or cupy on a GPU give arrays of the same library: the work is queued on its current
stream, nothing is waited for, and the bits are those of the processor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from riemem._backend import core, cuda_module, cuda_reason
from riemem._device import (
    Library,
    View,
    as_device_rows,
    as_view,
    is_device,
    library_of,
    rows_span,
    span,
)
from riemem.errors import ArgumentError, DeviceError, ShapeError

__all__ = ["NEVER", "fill_gaps", "largest_size", "on_host", "pool_tokens", "row_norms", "smooth"]

NEVER = int(np.iinfo(np.int64).max)
_POOLS = {"sum": 0, "mean": 1, "max": 2}
_NARROW = ("float32", "bfloat16", "float16")


def row_norms(gradient: Any, embedding: Any) -> Any:
    """Return ``||g_i * h_i||_2`` of every row of two arrays, (n, d) each, as float64.

    torch tensors on the CPU give a numpy array; arrays on a GPU one of their library there. Other
    floating point types than float32 are converted to it first.
    """
    if is_device(gradient) or is_device(embedding):
        if not cuda_reason():
            return _row_norms_there(gradient, embedding)
    elif gradient.device.type == "cpu":
        g, h = gradient.detach().float(), embedding.detach().float()
        return core.token_sensitivity(g.contiguous().numpy(), h.contiguous().numpy())
    # Without kernels for this device torch does the same on it.
    g, h = gradient.detach().float(), embedding.detach().float()
    return (g * h).double().square().sum(-1).sqrt()


def on_host(values: Any) -> NDArray[np.float64]:
    """Copy what :func:`row_norms` gave to host memory; waits for the device."""
    if isinstance(values, np.ndarray):
        return values
    return np.asarray(values.cpu().numpy(), np.float64)


def _row_norms_there(gradient: object, embedding: object) -> Any:
    if not is_device(gradient):
        raise DeviceError("gradient: expected an array on a device, got one in host memory")
    library, given = library_of(gradient, "gradient")
    g = as_device_rows(given, "gradient", library, kinds=_NARROW)
    n, d = g.shape
    h = as_device_rows(embedding, "embedding", library, g.device, dim=d, kinds=_NARROW)
    if h.shape != g.shape:
        raise ShapeError(f"embedding: expected shape {g.shape}, got {h.shape}")
    with library.working(g.device) as stream:
        g, h = (
            view
            if view.kind == "float32"
            else as_device_rows(library.cast(view.owner, "float32"), "gradient", library)
            for view in (g, h)
        )
        out = library.empty((n,), "float64", g.device)
        if n:
            cuda_module().token_sensitivity(
                rows_span(g), g.strides[0], rows_span(h), h.strides[0], n, d, span(library, out),
                stream,
            )  # fmt: skip
        return out


def _vector(
    value: object, name: str, kind: str, library: Library, device: int | None, size: int | None
) -> View:
    expected = "(n,)" if size is None else f"({size},)"
    view = as_view(value, name, library, device, (kind,), expected)
    if len(view.shape) != 1 or (size is not None and view.shape[0] != size):
        raise ShapeError(f"{name}: expected shape {expected}, got {view.shape}")
    if not view.contiguous:
        raise ArgumentError(f"{name}: expected contiguous memory, got strides {view.strides}")
    return view


def _first_vector(value: object, name: str, kind: str) -> tuple[Library, View]:
    if not is_device(value):
        raise DeviceError(f"{name}: expected an array on a device, got one in host memory")
    library, own = library_of(value, name)
    return library, _vector(own, name, kind, library, None, None)


def smooth(scores: Any, width: int) -> Any:
    """Return the mean over a centred window of odd width; the edges are replicated."""
    if width <= 1:
        return scores
    if not is_device(scores):
        return core.token_smooth(scores, width)
    library, given = _first_vector(scores, "scores", "float64")
    with library.working(given.device) as stream:
        out = library.empty(given.shape, "float64", given.device)
        if given.size:
            cuda_module().token_smooth(
                span(library, given.owner), given.size, width, span(library, out), stream
            )
        return out


def pool_tokens(scores: Any, unit_of: Any, units: int, how: str) -> Any:
    """Return per unit the sum, mean or maximum over its tokens; 0 for a unit without one."""
    if not (is_device(scores) or is_device(unit_of)):
        return core.token_pool(scores, unit_of, units, _POOLS[how])
    library, given = _first_vector(scores, "scores", "float64")
    owner = _vector(unit_of, "unit_of", "int64", library, given.device, given.size)
    with library.working(given.device) as stream:
        out = library.empty((units,), "float64", given.device)
        if units:
            cuda_module().token_pool(
                span(library, given.owner), span(library, owner.owner), given.size, _POOLS[how],
                units, span(library, out), stream,
            )  # fmt: skip
        return out


def fill_gaps(entry: Any, segments: Any, gap: int) -> Any:
    """Let the units of a gap of at most `gap` enter as soon as both sides have.

    ``filled_j = min(entry_j, min over a < j < b, b - a - 1 <= gap of max(entry_a, entry_b))``,
    a and b in one segment. The sets stay nested.
    """
    if not gap:
        return entry
    if not (is_device(entry) or is_device(segments)):
        return core.fill_gaps(entry, segments, gap)
    library, given = _first_vector(entry, "entry", "int64")
    lines = _vector(segments, "segments", "int64", library, given.device, given.size)
    with library.working(given.device) as stream:
        out = library.empty(given.shape, "int64", given.device)
        if given.size:
            cuda_module().fill_gaps(
                span(library, given.owner), span(library, lines.owner), given.size, gap,
                span(library, out), stream,
            )  # fmt: skip
        return out


def largest_size(
    entry: NDArray[np.int64], costs: NDArray[np.float64], steps: int, budget: float
) -> int:
    """Return how many steps cost no more than the budget together, by the estimated costs."""
    return core.largest_size(entry, costs, steps, budget)

"""Arrays on a CUDA device: whose they are, where they lie, and whether they are what is asked for.

Nothing here copies an array or waits for the device.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from riemem._backend import cuda_module
from riemem._device_library import Cupy, Home, Library, Torch, View
from riemem.errors import (
    ArgumentError,
    BackendUnavailableError,
    DeviceError,
    DTypeError,
    ShapeError,
)

__all__ = ["LIBRARIES", "Home", "Library", "View", "default_library", "is_device", "library_of"]
__all__ += ["span"]

#: Numbers by which the kernels know the elements of rows.
KINDS = {"float32": 0, "bfloat16": 1, "float64": 2}

_DLPACK_CUDA = (2, 13)  # device memory, managed memory

LIBRARIES: list[Library] = [Torch(), Cupy()]


def _exports_device(value: object) -> bool:
    if hasattr(value, "__cuda_array_interface__"):
        return True
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack_device__"):
        return type(value).__name__ == "PyCapsule"
    return int(value.__dlpack_device__()[0]) in _DLPACK_CUDA


def is_device(value: object) -> bool:
    """Say whether a value is an array on a CUDA device, or a DLPack capsule."""
    return any(library.owns(value) for library in LIBRARIES) or _exports_device(value)


def default_library(name: str) -> Library:
    """The library that holds what has no library of its own: torch if it is here, else cupy."""
    for library in LIBRARIES:
        try:
            library.module  # noqa: B018 - imports it
        except ImportError:
            continue
        return library
    raise BackendUnavailableError(f"{name}: needs torch or cupy to hold memory of the device")


def library_of(value: object, name: str) -> tuple[Library, Any]:
    """The library of a device array, and the array as one of that library.

    Raises
    ------
    ArgumentError
        A DLPack capsule that was consumed before.
    DTypeError
        A masked array, or one of the other byte order.
    """
    for library in LIBRARIES:
        if library.owns(value):
            return library, value
    interface = getattr(value, "__cuda_array_interface__", None)
    if isinstance(interface, dict):
        if interface.get("mask") is not None:
            raise DTypeError(f"{name}: expected plain numbers, got a masked array")
        if str(interface.get("typestr", "")).startswith(">"):
            raise DTypeError(f"{name}: expected little-endian numbers, got {interface['typestr']}")
    library = default_library(name)
    try:
        return library, library.adopt(value)
    except DeviceError as error:
        raise DeviceError(f"{name}: {error}") from error
    except (RuntimeError, BufferError, ValueError, TypeError) as error:
        raise ArgumentError(
            f"{name}: expected an array that can be read once more, got {type(value).__name__}: "
            f"{error}"
        ) from error


def as_view(
    value: object,
    name: str,
    library: Library,
    device: int | None,
    kinds: tuple[str, ...],
    expected: str,
) -> View:
    """Describe an array, which must be of one library and device, and of one of the dtypes."""
    if not is_device(value):
        where = f"device {device}" if device is not None else "the device"
        raise DeviceError(f"{name}: expected an array on {where}, got one in host memory")
    own, array = library_of(value, name)
    if own is not library:
        raise DeviceError(f"{name}: expected an array of {library.name}, got one of {own.name}")
    view = library.view(array, name)
    if device is not None and view.device != device:
        raise DeviceError(f"{name}: expected an array on device {device}, got device {view.device}")
    if view.kind not in kinds:
        words = " or ".join(kinds)
        raise DTypeError(f"{name}: expected {words} of shape {expected}, got {view.kind}")
    return view


def as_device_rows(
    value: object,
    name: str,
    library: Library,
    device: int | None = None,
    *,
    dim: int | None = None,
    letter: str = "N",
    one_row: bool = False,
    kinds: tuple[str, ...] = ("float32", "bfloat16"),
) -> View:
    """Describe rows of one of the dtypes; a vector is one row where `one_row` allows it."""
    columns = "d" if dim is None else str(dim)
    expected = f"({letter}, {columns})" + (f" or ({columns},)" if one_row else "")
    view = as_view(value, name, library, device, kinds, expected)
    shape, strides = view.shape, view.strides
    if len(shape) == 1 and one_row:
        shape, strides = (1, *shape), (shape[0] * max(strides[0], 1), *strides)
    if len(shape) != 2 or shape[1] == 0 or (dim is not None and shape[1] != dim):
        raise ShapeError(f"{name}: expected shape {expected}, got {view.shape}")
    if (shape[1] > 1 and strides[1] != 1) or (shape[0] > 1 and strides[0] < shape[1]):
        raise ArgumentError(
            f"{name}: expected rows whose elements follow each other, got strides {view.strides} "
            f"for shape {view.shape}; make it contiguous first"
        )
    stride = strides[0] if shape[0] > 1 else shape[1]
    return replace(view, shape=shape, strides=(stride, 1))


def span(library: Library, array: Any) -> Any:
    """The memory of an array of this library, as the kernels take it."""
    view = library.view(array, "array")
    if not view.contiguous:
        raise ArgumentError("array: expected contiguous memory")
    return cuda_module().Span(view.pointer, view.size * view.dtype.itemsize)


def rows_span(view: View) -> Any:
    """The memory of rows that may lie apart."""
    rows, dim = view.shape
    reach = (rows - 1) * view.strides[0] + dim if rows else 0
    return cuda_module().Span(view.pointer, reach * view.dtype.itemsize)


def as_device(value: object, name: str = "device") -> int | None:
    """Check a device's name: None or "cpu" for the processor, else the number of a GPU.

    Raises
    ------
    BackendUnavailableError
        No kernels for GPUs in this build, or no GPU here; the message says which.
    """
    if value is None:
        return None
    text = value if isinstance(value, str) else str(value)
    if text == "cpu":
        return None
    kind, _, number = text.partition(":")
    if kind != "cuda" or (number and not number.isdigit()) or text.endswith(":"):
        raise ArgumentError(f"{name}: expected 'cpu', 'cuda' or 'cuda:N', got {value!r}")
    module = cuda_module()
    return int(number) if number else int(module.current_device())

"""Arrays on a CUDA device: whose they are, where they lie, and making more of the same kind.

The memory always belongs to the caller's library (torch or cupy): its allocator counts it, its
current stream orders the work. Nothing here copies an array, and nothing waits for the device but
``get``.
"""

from __future__ import annotations

import contextlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from riemem._arrays import is_torch
from riemem._backend import cuda_module
from riemem.errors import (
    ArgumentError,
    BackendUnavailableError,
    CudaError,
    DeviceError,
    DTypeError,
    RiememError,
    ShapeError,
)

__all__ = ["LIBRARIES", "Library", "View", "default_library", "is_device", "library_of", "span"]

_DLPACK_CUDA = (2, 13)  # device memory, managed memory
_OUT_OF_MEMORY = (2, "cudaErrorMemoryAllocation")


@dataclass(frozen=True)
class View:
    """Where an array lies; the array itself is kept alive by `owner`."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: np.dtype[Any]
    device: int
    owner: Any

    @property
    def contiguous(self) -> bool:
        """Whether the elements follow each other in C order."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size > 1 and stride != expected:
                return False
            expected *= size
        return True

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


class Library(ABC):
    """What is asked of a library of device arrays."""

    name = ""

    def __init__(self) -> None:
        self._module: ModuleType | None = None

    @property
    def module(self) -> Any:
        """The library itself, imported at the first use."""
        if self._module is None:
            self._module = import_module(self.name)
        return self._module

    @abstractmethod
    def owns(self, value: object) -> bool:
        """Say whether a value is a device array of this library."""

    @abstractmethod
    def view(self, value: Any, name: str) -> View:
        """Describe an array of this library."""

    @abstractmethod
    def adopt(self, value: object) -> Any:
        """Make an array of this library of another one's memory, without a copy."""

    @abstractmethod
    def empty(self, shape: Sequence[int], dtype: str, device: int) -> Any:
        """Memory that is not filled."""

    @abstractmethod
    def put(self, array: NDArray[Any], device: int) -> Any:
        """Copy a host array to the device."""

    @abstractmethod
    def write(self, target: Any, start: int, array: Any) -> None:
        """Copy rows of a host or device array behind the first `start` ones of `target`."""

    @abstractmethod
    def get(self, array: Any) -> NDArray[Any]:
        """Copy to the host; waits for the device."""

    @abstractmethod
    def ones(self, count: int, device: int) -> Any:
        """Bytes that are 1."""

    @abstractmethod
    def both(self, first: Any, second: Any) -> Any:
        """Elementwise and of two masks, as contiguous bytes."""

    @abstractmethod
    def truth(self, flags: Any) -> Any:
        """Bytes as this library's booleans, in the same memory."""

    @abstractmethod
    def stream(self, device: int) -> int:
        """The current stream as a number."""

    @abstractmethod
    def guard(self, device: int) -> contextlib.AbstractContextManager[Any]:
        """Make a device the current one for a while."""

    @contextlib.contextmanager
    def working(self, device: int) -> Iterator[int]:
        """Work on a device: yields its current stream; a full device becomes a CudaError."""
        cuda_module()
        try:
            with self.guard(device):
                yield self.stream(device)
        except RiememError:
            raise
        except Exception as error:
            if type(error).__name__ != "OutOfMemoryError":
                raise
            code, name = _OUT_OF_MEMORY
            raise CudaError(
                f"device {device}: out of memory: {name} ({code}), {error}", code=code, name=name
            ) from error


class Torch(Library):
    """torch tensors with ``is_cuda``."""

    name = "torch"

    def owns(self, value: object) -> bool:
        return is_torch(value) and bool(value.is_cuda)  # type: ignore[attr-defined]

    def view(self, value: Any, name: str) -> View:
        if value.layout != self.module.strided:
            raise DTypeError(f"{name}: expected a dense tensor, got layout {value.layout}")
        value = value.detach()
        text = str(value.dtype).removeprefix("torch.")
        try:
            dtype = np.dtype(text)
        except TypeError:
            raise DTypeError(f"{name}: expected a dtype that numpy knows, got {text}") from None
        return View(
            value.data_ptr(),
            tuple(value.shape),
            tuple(value.stride()),
            dtype,
            int(value.device.index or 0),
            value,
        )

    def adopt(self, value: object) -> Any:
        if hasattr(value, "__cuda_array_interface__"):
            return self.module.as_tensor(value, device="cuda")
        return self.module.from_dlpack(value)

    def _at(self, device: int) -> Any:
        return self.module.device("cuda", device)

    def empty(self, shape: Sequence[int], dtype: str, device: int) -> Any:
        kind = getattr(self.module, dtype)
        return self.module.empty(tuple(shape), dtype=kind, device=self._at(device))

    def put(self, array: NDArray[Any], device: int) -> Any:
        return self.module.from_numpy(np.ascontiguousarray(array)).to(self._at(device))

    def write(self, target: Any, start: int, array: Any) -> None:
        if isinstance(array, np.ndarray):
            array = self.module.from_numpy(np.ascontiguousarray(array))
        target[start : start + array.shape[0]].copy_(array)

    def get(self, array: Any) -> NDArray[Any]:
        return np.asarray(array.cpu().numpy())

    def ones(self, count: int, device: int) -> Any:
        return self.module.ones(count, dtype=self.module.uint8, device=self._at(device))

    def both(self, first: Any, second: Any) -> Any:
        return (first.bool() & second.bool()).contiguous().view(self.module.uint8)

    def truth(self, flags: Any) -> Any:
        return flags.view(self.module.bool)

    def stream(self, device: int) -> int:
        return int(self.module.cuda.current_stream(device).cuda_stream)

    def guard(self, device: int) -> contextlib.AbstractContextManager[Any]:
        return self.module.cuda.device(device)  # type: ignore[no-any-return]


class Cupy(Library):
    """cupy arrays."""

    name = "cupy"

    def owns(self, value: object) -> bool:
        cupy = sys.modules.get("cupy")
        array = getattr(cupy, "ndarray", None)
        return array is not None and isinstance(value, array)

    def view(self, value: Any, name: str) -> View:
        item = value.dtype.itemsize
        if any(stride % item for stride in value.strides):
            raise ArgumentError(f"{name}: expected strides of whole elements, got {value.strides}")
        return View(
            int(value.data.ptr),
            tuple(value.shape),
            tuple(stride // item for stride in value.strides),
            np.dtype(value.dtype),
            int(value.device.id),
            value,
        )

    def adopt(self, value: object) -> Any:
        if hasattr(value, "__cuda_array_interface__"):
            return self.module.asarray(value)
        return self.module.from_dlpack(value)

    def empty(self, shape: Sequence[int], dtype: str, device: int) -> Any:
        return self.module.empty(tuple(shape), dtype=dtype)

    def put(self, array: NDArray[Any], device: int) -> Any:
        return self.module.asarray(np.ascontiguousarray(array))

    def write(self, target: Any, start: int, array: Any) -> None:
        target[start : start + array.shape[0]] = self.module.asarray(array)

    def get(self, array: Any) -> NDArray[Any]:
        return np.asarray(self.module.asnumpy(array))

    def ones(self, count: int, device: int) -> Any:
        return self.module.ones(count, dtype="uint8")

    def both(self, first: Any, second: Any) -> Any:
        joined = self.module.logical_and(first, second)
        return self.module.ascontiguousarray(joined).view("uint8")

    def truth(self, flags: Any) -> Any:
        return flags.view("bool")

    def stream(self, device: int) -> int:
        return int(self.module.cuda.get_current_stream().ptr)

    def guard(self, device: int) -> contextlib.AbstractContextManager[Any]:
        return self.module.cuda.Device(device)  # type: ignore[no-any-return]


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
    except (RuntimeError, BufferError, ValueError, TypeError) as error:
        raise ArgumentError(
            f"{name}: expected an array that can be read once more, got {type(value).__name__}: "
            f"{error}"
        ) from error


def as_view(
    value: object, name: str, library: Library, device: int | None, dtype: str, expected: str
) -> View:
    """Describe an array, which must be of one library, device and dtype."""
    if not is_device(value):
        where = f"device {device}" if device is not None else "the device"
        raise DeviceError(f"{name}: expected an array on {where}, got one in host memory")
    own, array = library_of(value, name)
    if own is not library:
        raise DeviceError(f"{name}: expected an array of {library.name}, got one of {own.name}")
    view = library.view(array, name)
    if device is not None and view.device != device:
        raise DeviceError(f"{name}: expected an array on device {device}, got device {view.device}")
    if view.dtype != np.dtype(dtype):
        raise DTypeError(f"{name}: expected {dtype} of shape {expected}, got {view.dtype}")
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
) -> View:
    """Describe float32 rows; a vector is one row where `one_row` allows it."""
    columns = "d" if dim is None else str(dim)
    expected = f"({letter}, {columns})" + (f" or ({columns},)" if one_row else "")
    view = as_view(value, name, library, device, "float32", expected)
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
    return View(view.pointer, shape, (stride, 1), view.dtype, view.device, view.owner)


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

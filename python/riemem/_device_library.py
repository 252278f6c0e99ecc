"""The libraries of device arrays: torch and cupy, asked the same few questions.

The memory always belongs to the caller's library: its allocator counts it, its current stream
orders the work. Nothing waits for the device but ``get``, ``put``, and ``write`` of a host array.
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
from riemem.errors import ArgumentError, CudaError, DeviceError, DTypeError, RiememError

__all__ = ["Cupy", "Home", "Library", "Torch", "View"]

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
    bfloat16: bool = False  # numpy has no such type: dtype is then uint16

    @property
    def kind(self) -> str:
        """The name of the dtype."""
        return "bfloat16" if self.bfloat16 else str(self.dtype)

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
        """Copy a host array to the device; unless it is empty this waits for what is queued."""

    @abstractmethod
    def write(self, target: Any, start: int, array: Any) -> None:
        """Copy rows of a host or device array behind the first `start` ones of `target`."""

    @abstractmethod
    def get(self, array: Any) -> NDArray[Any]:
        """Copy to the host; waits for the device."""

    def copy(self, array: Any) -> Any:
        """The same values in memory of their own."""
        view = self.view(array, "array")
        target = self.empty(view.shape, view.kind, view.device)
        self.write(target, 0, array)
        return target

    def part(self, array: Any, start: int, stop: int) -> Any:
        """Some of the rows, in the same memory."""
        return array[start:stop]

    def shaped(self, array: Any, shape: Sequence[int]) -> Any:
        """Contiguous numbers in another shape, in the same memory."""
        return array.reshape(tuple(shape))

    @abstractmethod
    def cast(self, array: Any, dtype: str) -> Any:
        """The values as another dtype, contiguous; the array itself where it is that already."""

    @abstractmethod
    def turned(self, array: Any) -> Any:
        """The transpose of a matrix, contiguous."""

    @abstractmethod
    def minus(self, first: Any, second: Any) -> Any:
        """Elementwise difference."""

    @abstractmethod
    def beside(self, first: Any, second: Any) -> Any:
        """Two matrices as one, the columns of the first before those of the second."""

    @abstractmethod
    def qr(self, matrix: Any) -> tuple[Any, Any]:
        """The reduced factors of a float64 matrix, contiguous."""

    @abstractmethod
    def oriented(self, matrix: Any) -> Any:
        """Columns with the sign that makes their largest entry positive."""

    @abstractmethod
    def ones(self, count: int, device: int) -> Any:
        """Bytes that are 1."""

    @abstractmethod
    def full(self, shape: Sequence[int], dtype: str, value: float, device: int) -> Any:
        """Memory that holds one number; unlike what :meth:`put` copies it is not waited for."""

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
    def stream_owner(self, device: int) -> Any:
        """The current stream as an object that keeps it from being taken apart."""

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


class Home:
    """The stream that memory held from call to call belongs to: the one current when it was taken.

    There its allocator hands it out again and its work is in order. A call on another stream waits
    for it first, and for itself in the end.
    """

    def __init__(self, library: Library, device: int) -> None:
        self.library, self.device = library, device
        with library.working(device) as stream:
            self.stream, self._owner = stream, library.stream_owner(device)

    @contextlib.contextmanager
    def working(self) -> Iterator[int]:
        """Work as :meth:`Library.working` does, in order with what was done before."""
        with self.library.working(self.device) as stream:
            away = stream != self.stream
            if away:
                cuda_module().synchronize(self.stream)
            yield stream
            if away:
                cuda_module().synchronize(stream)


class _Alias:
    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array
        place = array.ctypes.data, False
        self.__array_interface__ = {**array.__array_interface__, "data": place}


def _readable(array: NDArray[Any]) -> NDArray[Any]:
    """The array in C order; torch warns of memory that is read-only, which is only read here."""
    array = np.ascontiguousarray(array)
    return array if array.flags.writeable else np.asarray(_Alias(array))


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
        narrow = text == "bfloat16"
        try:
            dtype = np.dtype("uint16" if narrow else text)
        except TypeError:
            raise DTypeError(f"{name}: expected a dtype that numpy knows, got {text}") from None
        return View(
            value.data_ptr(),
            tuple(value.shape),
            tuple(value.stride()),
            dtype,
            int(value.device.index or 0),
            value,
            narrow,
        )

    def adopt(self, value: object) -> Any:
        if hasattr(value, "__dlpack__") or not hasattr(value, "__cuda_array_interface__"):
            return self.module.from_dlpack(value)
        interface = value.__cuda_array_interface__
        array = self.module.as_tensor(value, device="cuda")
        if array.numel() and array.data_ptr() != interface["data"][0]:
            raise DeviceError("expected an array on torch's current device, got one on another")
        cuda, stream = self.module.cuda, interface.get("stream")
        if stream is not None:  # what its owner has queued comes first; 1 is the default stream
            owner = cuda.default_stream() if stream == 1 else cuda.ExternalStream(stream)
            cuda.current_stream().wait_stream(owner)
        return array

    def _at(self, device: int) -> Any:
        return self.module.device("cuda", device)

    def empty(self, shape: Sequence[int], dtype: str, device: int) -> Any:
        kind = getattr(self.module, dtype)
        return self.module.empty(tuple(shape), dtype=kind, device=self._at(device))

    def put(self, array: NDArray[Any], device: int) -> Any:
        return self.module.from_numpy(_readable(array)).to(self._at(device))

    def write(self, target: Any, start: int, array: Any) -> None:
        if isinstance(array, np.ndarray):
            array = self.module.from_numpy(_readable(array))
        target[start : start + array.shape[0]].copy_(array)

    def get(self, array: Any) -> NDArray[Any]:
        array = array.detach()
        if array.dtype == self.module.bfloat16:  # numpy has no such type; float32 holds it exactly
            array = array.float()
        return np.asarray(array.cpu().numpy())

    def cast(self, array: Any, dtype: str) -> Any:
        return array.detach().to(getattr(self.module, dtype)).contiguous()

    def turned(self, array: Any) -> Any:
        return array.T.contiguous()

    def minus(self, first: Any, second: Any) -> Any:
        return first - second

    def beside(self, first: Any, second: Any) -> Any:
        return self.module.cat([first, second], dim=1)

    def qr(self, matrix: Any) -> tuple[Any, Any]:
        q, r = self.module.linalg.qr(matrix)
        return q.contiguous(), r.contiguous()

    def oriented(self, matrix: Any) -> Any:
        largest = matrix.gather(0, matrix.abs().argmax(0, keepdim=True))
        return self.module.where(largest < 0, -matrix, matrix)

    def ones(self, count: int, device: int) -> Any:
        return self.module.ones(count, dtype=self.module.uint8, device=self._at(device))

    def full(self, shape: Sequence[int], dtype: str, value: float, device: int) -> Any:
        kind = getattr(self.module, dtype)
        return self.module.full(tuple(shape), value, dtype=kind, device=self._at(device))

    def both(self, first: Any, second: Any) -> Any:
        return (first.bool() & second.bool()).contiguous().view(self.module.uint8)

    def truth(self, flags: Any) -> Any:
        return flags.view(self.module.bool)

    def stream(self, device: int) -> int:
        return int(self.module.cuda.current_stream(device).cuda_stream)

    def stream_owner(self, device: int) -> Any:
        return self.module.cuda.current_stream(device)

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
        narrow = str(value.dtype) == "bfloat16"  # of ml_dtypes
        return View(
            int(value.data.ptr),
            tuple(value.shape),
            tuple(stride // item for stride in value.strides),
            np.dtype("uint16" if narrow else value.dtype),
            int(value.device.id),
            value,
            narrow,
        )

    def adopt(self, value: object) -> Any:
        if hasattr(value, "__dlpack__") or not hasattr(value, "__cuda_array_interface__"):
            return self.module.from_dlpack(value)
        return self.module.asarray(value)

    def empty(self, shape: Sequence[int], dtype: str, device: int) -> Any:
        return self.module.empty(tuple(shape), dtype=dtype)

    def put(self, array: NDArray[Any], device: int) -> Any:
        return self.module.asarray(np.ascontiguousarray(array))

    def write(self, target: Any, start: int, array: Any) -> None:
        target[start : start + array.shape[0]] = self.module.asarray(array)

    def get(self, array: Any) -> NDArray[Any]:
        if str(array.dtype) == "bfloat16":  # float32 holds each value exactly
            array = array.astype("float32")
        return np.asarray(self.module.asnumpy(array))

    def cast(self, array: Any, dtype: str) -> Any:
        return self.module.ascontiguousarray(array, dtype=dtype)

    def turned(self, array: Any) -> Any:
        return self.module.ascontiguousarray(array.T)

    def minus(self, first: Any, second: Any) -> Any:
        return first - second

    def beside(self, first: Any, second: Any) -> Any:
        return self.module.concatenate([first, second], axis=1)

    def qr(self, matrix: Any) -> tuple[Any, Any]:
        q, r = self.module.linalg.qr(matrix)
        return self.module.ascontiguousarray(q), self.module.ascontiguousarray(r)

    def oriented(self, matrix: Any) -> Any:
        at = abs(matrix).argmax(axis=0)
        largest = matrix[at, self.module.arange(matrix.shape[1])]
        return self.module.where(largest < 0, -matrix, matrix)

    def ones(self, count: int, device: int) -> Any:
        return self.module.ones(count, dtype="uint8")

    def full(self, shape: Sequence[int], dtype: str, value: float, device: int) -> Any:
        return self.module.full(tuple(shape), value, dtype=dtype)

    def both(self, first: Any, second: Any) -> Any:
        joined = self.module.logical_and(first, second)
        return self.module.ascontiguousarray(joined).view("uint8")

    def truth(self, flags: Any) -> Any:
        return flags.view("bool")

    def stream(self, device: int) -> int:
        return int(self.module.cuda.get_current_stream().ptr)

    def stream_owner(self, device: int) -> Any:
        return self.module.cuda.get_current_stream()

    def guard(self, device: int) -> contextlib.AbstractContextManager[Any]:
        return self.module.cuda.Device(device)  # type: ignore[no-any-return]

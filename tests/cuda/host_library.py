"""A library of "device" arrays in host memory, for kernels that run on the SIMT shim."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from riemem._device import Library, View


class OutOfMemoryError(RuntimeError):
    """What torch and cupy call theirs."""


class HostArray:
    """numpy memory that says it lies on a device."""

    def __init__(self, array: NDArray[Any], device: int = 0, *, bfloat16: bool = False) -> None:
        self.array = array
        self.device = device
        self.bfloat16 = bfloat16  # then the array holds their bits as uint16

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


def on(array: Any, device: int = 0) -> HostArray:
    """An array "on the device", in C order."""
    return HostArray(np.ascontiguousarray(array), device)


def bfloat16(array: Any) -> HostArray:
    """float32 numbers cut off to bfloat16, and `exact` of them as float32."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16
    return HostArray(bits.astype(np.uint16), bfloat16=True)


def exact(narrow: HostArray) -> NDArray[np.float32]:
    """The values of bfloat16 numbers."""
    return (narrow.array.astype(np.uint32) << 16).view(np.float32)


class Interface:
    """An array of nobody's library: it has `__cuda_array_interface__` alone."""

    def __init__(self, array: NDArray[Any], **changes: Any) -> None:
        self.array = array
        self.changes = changes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        held = self.array.__array_interface__
        strides = None if self.array.flags.c_contiguous else self.array.strides
        return {
            "shape": held["shape"],
            "typestr": held["typestr"],
            "data": held["data"],
            "strides": strides,
            "version": 3,
            "stream": 1,
            **self.changes,
        }


class HostLibrary(Library):
    """Hands out numpy memory, filled with 0xff, up to a limit."""

    name = "hostlib"

    def __init__(self) -> None:
        super().__init__()
        self.limit: int | None = None  # bytes that one allocation may have
        self.reads = 0  # copies to the host
        self.puts = 0  # and to the device, which wait too
        self.guarded: list[int] = []
        self.current = 0  # stream
        self.kept: list[Any] = []  # a stream-ordered allocator reuses nothing that is still queued

    @property
    def module(self) -> Any:
        return self

    def owns(self, value: object) -> bool:
        return isinstance(value, HostArray)

    def view(self, value: Any, name: str) -> View:
        held = value.array
        strides = tuple(stride // held.itemsize for stride in held.strides)
        place = held.ctypes.data, held.shape, strides, held.dtype, value.device
        return View(*place, value, value.bfloat16)

    def adopt(self, value: object) -> Any:
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is None:
            raise BufferError("the capsule was consumed")
        dtype = np.dtype(interface["typestr"])
        size = int(np.prod(interface["shape"])) * dtype.itemsize
        memory = (ctypes.c_char * size).from_address(interface["data"][0])
        return HostArray(np.frombuffer(memory, dtype).reshape(interface["shape"]))

    def _room(self, size: int) -> None:
        if self.limit is not None and size > self.limit:
            raise OutOfMemoryError(f"tried to allocate {size} bytes")

    def empty(self, shape: Sequence[int], dtype: str, device: int) -> Any:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self._room(size)
        memory = np.full(size + 64, 0xFF, np.uint8)
        self.kept.append(memory)
        start = -memory.ctypes.data % 64
        return HostArray(memory[start : start + size].view(dtype).reshape(tuple(shape)), device)

    def put(self, array: NDArray[Any], device: int) -> Any:
        self.puts += array.size > 0
        target = self.empty(array.shape, str(array.dtype), device)
        target.array[...] = array
        return target

    def write(self, target: Any, start: int, array: Any) -> None:
        values = array.array if isinstance(array, HostArray) else array
        target.array[start : start + values.shape[0]] = values

    def get(self, array: Any) -> NDArray[Any]:
        self.reads += 1
        copied: NDArray[Any] = exact(array) if array.bfloat16 else array.array.copy()
        return copied

    def part(self, array: Any, start: int, stop: int) -> Any:
        return HostArray(array.array[start:stop], array.device)

    def shaped(self, array: Any, shape: Sequence[int]) -> Any:
        return HostArray(array.array.reshape(tuple(shape)), array.device)

    def cast(self, array: Any, dtype: str) -> Any:
        if array.bfloat16:
            array = HostArray(exact(array), array.device)
        return HostArray(np.ascontiguousarray(array.array, dtype=dtype), array.device)

    def turned(self, array: Any) -> Any:
        return HostArray(np.ascontiguousarray(array.array.T), array.device)

    def minus(self, first: Any, second: Any) -> Any:
        return HostArray(first.array - second.array, first.device)

    def beside(self, first: Any, second: Any) -> Any:
        return HostArray(np.hstack([first.array, second.array]), first.device)

    def qr(self, matrix: Any) -> tuple[Any, Any]:
        q, r = np.linalg.qr(matrix.array)
        return on(q, matrix.device), on(r, matrix.device)

    def oriented(self, matrix: Any) -> Any:
        values = matrix.array
        largest = values[np.abs(values).argmax(axis=0), np.arange(values.shape[1])]
        return on(np.where(largest < 0, -values, values), matrix.device)

    def ones(self, count: int, device: int) -> Any:
        return self.full((count,), "uint8", 1, device)

    def full(self, shape: Sequence[int], dtype: str, value: float, device: int) -> Any:
        target = self.empty(shape, dtype, device)
        target.array[...] = value
        return target

    def both(self, first: Any, second: Any) -> Any:
        both = first.array.astype(bool) & second.array.astype(bool)
        return HostArray(np.ascontiguousarray(both).view(np.uint8), first.device)

    def truth(self, flags: Any) -> Any:
        return HostArray(flags.array.view(bool), flags.device)

    def stream(self, device: int) -> int:
        return self.current

    def stream_owner(self, device: int) -> Any:
        return None

    @contextlib.contextmanager
    def guard(self, device: int) -> Iterator[None]:  # type: ignore[override]
        self.guarded.append(device)
        yield

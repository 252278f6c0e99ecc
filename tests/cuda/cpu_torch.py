"""torch's and cupy's own code paths in host memory, for kernels that run on the SIMT shim."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import numpy as np
from riemem._device_library import Cupy, Torch


class CpuTorch(Torch):
    """torch, which takes its CPU tensors for device memory."""

    def owns(self, value: object) -> bool:
        return isinstance(value, self.module.Tensor)

    def _at(self, device: int) -> Any:
        return self.module.device("cpu")

    def put(self, array: Any, device: int) -> Any:
        return super().put(array, device).clone()  # a device has memory of its own

    def stream(self, device: int) -> int:
        return 0

    def stream_owner(self, device: int) -> Any:
        return None

    def guard(self, device: int) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()


class FakeCupyArray(np.ndarray):
    """numpy memory with the attributes by which cupy's says where it lies."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)

    @property
    def device(self) -> Any:
        return SimpleNamespace(id=0)


def fake_cupy() -> Any:
    """The part of cupy that is used, made of numpy."""

    def wrapped(function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            found = function(*arguments, **options)
            if isinstance(found, tuple):
                return tuple(np.asarray(part).view(FakeCupyArray) for part in found)
            return np.asarray(found).view(FakeCupyArray)

        return call

    names = ("empty", "full", "asarray", "ascontiguousarray", "ones", "logical_and", "concatenate")
    members = {name: wrapped(getattr(np, name)) for name in (*names, "where", "arange")}
    return SimpleNamespace(
        ndarray=FakeCupyArray,
        asnumpy=lambda array: np.array(array).view(np.ndarray),
        linalg=SimpleNamespace(qr=wrapped(np.linalg.qr)),
        **members,
    )


class FakeCupy(Cupy):
    """cupy's code on that."""

    def __init__(self) -> None:
        super().__init__()
        self._module = fake_cupy()

    def owns(self, value: object) -> bool:
        return isinstance(value, FakeCupyArray)

    def stream(self, device: int) -> int:
        return 0

    def stream_owner(self, device: int) -> Any:
        return None

    def guard(self, device: int) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

"""The kernels of the GPU on the SIMT shim, under the Python code that drives them."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from riemem import _backend, _device

_NAME = "_cuda_shim"


def _load() -> ModuleType:
    folder = os.environ.get("RIEMEM_CUDA_SHIM", "")
    found = sorted(Path(folder).glob(f"{_NAME}*.so")) if folder else []
    if not found:
        pytest.skip(
            "RIEMEM_CUDA_SHIM does not name the folder of a build with -DRIEMEM_CUDA_SHIM=ON"
        )
    if _NAME in sys.modules:
        return sys.modules[_NAME]
    spec = importlib.util.spec_from_file_location(_NAME, found[0])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def shim(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module for GPUs, built on the shim, in the place of `riemem._cuda`."""
    module = _load()
    monkeypatch.setattr(_backend, "_load_cuda", lambda: module)
    monkeypatch.setattr(_backend, "_cuda_process", None)
    yield module
    module.shim_fail_device(0)
    module.shim_fail_launch(-1, 0)
    module.shim_defer(False)
    assert module.shim_take_fault() == ""


@pytest.fixture
def library(shim: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A library of arrays that the shim can read."""
    from host_library import HostLibrary

    own = HostLibrary()
    monkeypatch.setattr(_device, "LIBRARIES", [own])
    return own

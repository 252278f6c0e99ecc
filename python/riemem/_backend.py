"""The compiled module, and the questions about it that have one answer per process."""

from __future__ import annotations

import operator
import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from riemem.errors import BackendUnavailableError, CudaError, DTypeError

if TYPE_CHECKING:
    from riemem import _core as core
else:
    core = import_module("riemem._core")

__all__ = ["build_info", "core", "cuda_module", "cuda_reason", "num_threads", "set_num_threads"]


class _OtherBuildError(BackendUnavailableError, AttributeError):
    """The compiled module lacks what the Python files ask of it."""


def _missing(name: str) -> Any:
    """Stand behind the compiled module for names that it has not: it is of an older build."""
    if name.startswith("_"):
        raise AttributeError(f"module 'riemem._core' has no attribute {name!r}")
    raise _OtherBuildError(
        f"riemem._core: has no {name!r}: it was built from other sources than the Python files "
        f"beside it ({core.__file__}); build it again with pip install, or pip install -e"
    )


setattr(core, "__getattr__", _missing)  # noqa: B010  asked for names that are not there alone

_CUDA = "riemem._cuda"
_NOT_BUILT = "built without CUDA kernels"
_cuda_process: int | None = None  # that first used a device


def _load_cuda() -> Any:
    """The module with the kernels for GPUs, or None; importing it needs no driver."""
    return import_module(_CUDA) if find_spec(_CUDA) is not None else None


def cuda_reason() -> str:
    """Say why nothing can run on a GPU here, or return an empty string."""
    module = _load_cuda()
    return _NOT_BUILT if module is None else str(module.why_unavailable())


def cuda_module() -> Any:
    """Return the kernels for GPUs, ready to run.

    Raises
    ------
    BackendUnavailableError
        This build has none, or this machine has no GPU or driver for them.
    CudaError
        This process was forked from one that had used a GPU, which CUDA does not survive.
    """
    global _cuda_process
    if _cuda_process is not None:
        if _cuda_process != os.getpid():
            raise CudaError(
                "device: this process was forked from one that had used CUDA, which cannot be used "
                "here: cudaErrorInitializationError (3); start it with the 'spawn' method",
                code=3,
                name="cudaErrorInitializationError",
            )
        return _load_cuda()
    reason = cuda_reason()
    if reason:
        raise BackendUnavailableError(f"device: CUDA cannot be used: {reason}")
    _cuda_process = os.getpid()
    return _load_cuda()


def build_info() -> dict[str, Any]:
    """Return what this build contains and what it uses on this machine.

    Returns
    -------
    dict
        ``version``, ``compiler``, ``compiled_isas`` (instruction sets in the binary),
        ``available_isas`` (those this processor runs), ``isa`` (the one in use: the fastest
        available, or ``RIEMEM_ISA``), ``num_threads``, ``cuda`` (whether kernels can run on a GPU
        here) and ``cuda_reason`` (why not, else an empty string).

    Raises
    ------
    BackendUnavailableError
        If ``RIEMEM_ISA`` names an instruction set that cannot run here.

    Examples
    --------
    >>> import riemem
    >>> info = riemem.build_info()
    >>> info["isa"] in info["available_isas"]
    True
    """
    reason = cuda_reason()
    return {
        "version": core.version,
        "compiler": core.compiler,
        "compiled_isas": list(core.compiled_isas),
        "available_isas": core.available_isas(),
        "isa": core.active_isa(),
        "num_threads": core.num_threads(),
        "cuda": not reason,
        "cuda_reason": reason,
    }


def set_num_threads(n: int) -> None:
    """Set how many threads a kernel may use; results never depend on it.

    Parameters
    ----------
    n : int
        From 1 to 1024. The default is ``RIEMEM_NUM_THREADS``, else the number of processors this
        process may run on.

    Raises
    ------
    ArgumentError
        If ``n`` is out of range.
    DTypeError
        If ``n`` is not an integer.

    Examples
    --------
    >>> import riemem
    >>> before = riemem.build_info()["num_threads"]
    >>> riemem.set_num_threads(1)
    >>> riemem.build_info()["num_threads"]
    1
    >>> riemem.set_num_threads(before)
    """
    if isinstance(n, bool):
        raise DTypeError("n: expected a number of threads, got a bool")
    try:
        count = operator.index(n)
    except TypeError:
        raise DTypeError(f"n: expected a number of threads, got {type(n).__name__}") from None
    core.set_num_threads(max(count, 0))


def num_threads() -> int:
    """Return how many threads a kernel may use."""
    return core.num_threads()

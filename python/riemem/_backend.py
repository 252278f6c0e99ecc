"""The compiled module, and the questions about it that have one answer per process."""

from __future__ import annotations

import operator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from riemem.errors import DTypeError

if TYPE_CHECKING:
    from riemem import _core as core
else:
    core = import_module("riemem._core")

__all__ = ["build_info", "core", "num_threads", "set_num_threads"]


def build_info() -> dict[str, Any]:
    """Return what this build contains and what it uses on this machine.

    Returns
    -------
    dict
        ``version``, ``compiler``, ``compiled_isas`` (instruction sets in the binary),
        ``available_isas`` (those this processor runs), ``isa`` (the one in use: the fastest
        available, or ``RIEMEM_ISA``), ``num_threads``, ``cuda`` (whether CUDA kernels are part of
        the build) and ``cuda_reason``.

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
    return {
        "version": core.version,
        "compiler": core.compiler,
        "compiled_isas": list(core.compiled_isas),
        "available_isas": core.available_isas(),
        "isa": core.active_isa(),
        "num_threads": core.num_threads(),
        "cuda": False,
        "cuda_reason": "built without CUDA kernels",
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

"""Long-term memory for dialogue agents that live on their user's own machine.

Two doors: functions on arrays (``FisherMetric``, ``search``, ``RiemannianIndex`` and others), which
need numpy alone, and :class:`Memory` for people with text. Nothing heavy is imported, no thread is
started and no file is read until something is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from riemem import errors, reference
from riemem._backend import build_info, set_num_threads
from riemem._backend import core as _core
from riemem.clustering import Assignment, MaxMemberClusters, calibrate_threshold
from riemem.errors import *  # noqa: F403  (every error type is public)
from riemem.fisher_rao import fisher_rao_distance, fisher_rao_scores, fisher_rao_search
from riemem.index import RiemannianIndex
from riemem.metric import FisherMetric
from riemem.presets import Preset, presets
from riemem.scoring import TopK, scores, search
from riemem.subspace import IncrementalSVD

if TYPE_CHECKING:
    from riemem import distill
    from riemem.answering import Answer, answer
    from riemem.async_memory import AsyncMemory
    from riemem.distill import Distillation, Distiller
    from riemem.memory import Memory
    from riemem.vram import VramBudget

__version__: str = _core.version

# Names that come with heavier modules, fetched when first used.
_LAZY = {
    "Answer": "riemem.answering",
    "AsyncMemory": "riemem.async_memory",
    "Distillation": "riemem.distill",
    "Distiller": "riemem.distill",
    "Memory": "riemem.memory",
    "VramBudget": "riemem.vram",
    "answer": "riemem.answering",
}

__all__ = [
    "Answer",
    "Assignment",
    "AsyncMemory",
    "Distillation",
    "Distiller",
    "FisherMetric",
    "IncrementalSVD",
    "MaxMemberClusters",
    "Memory",
    "Preset",
    "RiemannianIndex",
    "TopK",
    "VramBudget",
    "answer",
    "build_info",
    "calibrate_threshold",
    "distill",
    "errors",
    "fisher_rao_distance",
    "fisher_rao_scores",
    "fisher_rao_search",
    "presets",
    "reference",
    "scores",
    "search",
    "set_num_threads",
    *errors.__all__,
]


def __getattr__(name: str) -> Any:
    if name == "distill":  # a package that can be called
        return import_module("riemem.distill")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'riemem' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))

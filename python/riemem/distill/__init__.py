"""Texts inside a token budget; the public names are in :mod:`riemem`.

The package carries the name of its main function, so it can be called like it:
``riemem.distill(text, token_budget=200)``, whoever imported the package first.
"""

import sys
from types import ModuleType
from typing import Any

from .document import Span
from .fdtd import Distiller, distill
from .language_model import LanguageModel, load_language_model
from .options import Options, presets
from .protect import Protection
from .result import Distillation, Removed, Report

__all__ = [
    "Distillation",
    "Distiller",
    "LanguageModel",
    "Options",
    "Protection",
    "Removed",
    "Report",
    "Span",
    "distill",
    "load_language_model",
    "presets",
]


class _Callable(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Distillation:
        return distill(*arguments, **options)


sys.modules[__name__].__class__ = _Callable

"""Texts inside a token budget; the public names are in :mod:`riemem`."""

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

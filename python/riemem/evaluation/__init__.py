"""Benchmark loaders and retrieval metrics: how every number in the documentation was made."""

from __future__ import annotations

from .locomo import Audit, Benchmark, Conversation, Question, Turn, apply_audit, load_locomo
from .report import Report
from .retrieval import run_locomo

__all__ = [
    "Audit",
    "Benchmark",
    "Conversation",
    "Question",
    "Report",
    "Turn",
    "apply_audit",
    "load_locomo",
    "run_locomo",
]

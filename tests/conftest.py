"""Fixtures shared by the whole suite: model files where they are present, and fixed randomness."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from riemem import models
from riemem.embed import HashingEmbedder, MiniLMEmbedder
from riemem.errors import ModelNotFoundError

# Nothing in the suite may reach for a network, whatever a test asks transformers for.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

settings.register_profile(
    "riemem",
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("riemem")


def _model_or_skip(name: str) -> Path:
    try:
        return models.find(name)
    except ModelNotFoundError:
        pytest.skip(f"the files of {name!r} are not on this machine: riemem models pull {name}")


@pytest.fixture(scope="session")
def minilm() -> MiniLMEmbedder:
    """The real embedder on one thread; skips when `riemem models pull minilm` has not been run."""
    pytest.importorskip("torch", reason="the embedder needs torch")
    pytest.importorskip("transformers", reason="the embedder needs transformers")
    _model_or_skip("minilm")
    return MiniLMEmbedder(threads=1)


@pytest.fixture(scope="session")
def smollm_path() -> Path:
    """The folder of SmolLM2; skips when `riemem models pull smollm2-135m` has not been run."""
    return _model_or_skip("smollm2-135m")


@pytest.fixture
def hashing_embedder() -> HashingEmbedder:
    """A deterministic embedder that needs no files."""
    return HashingEmbedder(dim=64, seed=0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line what was not tested for want of a GPU or of the shim, and why."""
    reasons: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        if "tests/cuda/" in report.nodeid:  # keywords would name a folder called cuda too
            reason = str(report.longrepr[2]).removeprefix("Skipped: ")
            reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"cuda: {count} tests skipped: {reason}")

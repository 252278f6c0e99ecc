"""A causal language model small enough to be made on the spot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from conftest_model import make_model


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny model; one byte is one token."""
    return make_model(tmp_path_factory.mktemp("tiny") / "lm")


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path):
    """The tiny model in float32."""
    from riemem.distill import load_language_model

    return load_language_model(tiny_folder, dtype="float32")

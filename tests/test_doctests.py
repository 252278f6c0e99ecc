"""The examples of the docstrings say the truth."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import riemem

#: Packages that an extra brings; their modules are skipped where it is not installed.
_OPTIONAL = {"click", "torch", "transformers", "matplotlib", "mcp", "llama_index", "langgraph"}
_OPTIONAL |= {"langchain_core", "sklearn", "gguf", "safetensors", "platformdirs", "onnxruntime"}


def modules() -> Iterator[str]:
    for found in pkgutil.walk_packages(riemem.__path__, "riemem."):
        if not found.name.endswith(("_core", "__main__")):
            yield found.name


@pytest.mark.parametrize("name", sorted(modules()))
def test_the_examples_of_a_module(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _OPTIONAL:
            raise
        pytest.skip(f"needs {error.name}")
    if "RIEMEM_CACHE" in os.environ:  # put back after an example that sets it
        monkeypatch.setenv("RIEMEM_CACHE", os.environ["RIEMEM_CACHE"])
    result = doctest.testmod(module, optionflags=doctest.REPORT_ONLY_FIRST_FAILURE)
    assert result.failed == 0

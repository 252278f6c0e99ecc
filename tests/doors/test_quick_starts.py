"""The quick starts of the pages about frameworks run as they are printed."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from riemem import embed
from riemem.cli import cli
from riemem.embed import HashingEmbedder

DOCS = Path(__file__).parents[2] / "docs"
_FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: What a block imports first, and the package that brings it.
_PACKAGES = {
    "langchain_core": "langchain-core",
    "langgraph": "langgraph",
    "llama_index": "llama-index-core",
    "mcp": "mcp",
    "faiss": "faiss-cpu",
    "sklearn": "scikit-learn",
}


def _blocks() -> list[tuple[str, str]]:
    found = []
    for page in ("async.md", "mcp.md", "adapters.md", "import.md"):
        texts = _FENCE.findall((DOCS / page).read_text(encoding="utf-8"))
        found += [(f"{page}[{number}]", text) for number, text in enumerate(texts)]
    return found


@pytest.mark.parametrize(("name", "code"), _blocks(), ids=[name for name, _ in _blocks()])
def test_a_quick_start_runs(
    name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, package in _PACKAGES.items():
        adapter = module.removesuffix("_core")
        used = rf"^(from|import) ({module}|riemem\.adapters\.{adapter})\b"
        if re.search(used, code, re.MULTILINE) and not find_spec(module):
            pytest.skip(f"{package} is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embed, "MiniLMEmbedder", HashingEmbedder)
    exec(compile(code, name, "exec"), {"__name__": "quick_start"})


@pytest.mark.parametrize("page", ["../README.md", "mcp.md"])
def test_client_configurations_start_a_command_that_exists(page: str) -> None:
    found = re.findall(
        r"^```json\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.M | re.S
    )
    assert found
    for block in found:
        (servers,) = json.loads(block).values()
        entry = servers["riemem"]
        assert entry["command"] == "riemem"
        name, command, rest = cli.resolve_command(click.Context(cli), list(entry["args"]))
        assert (name, rest) == ("mcp", [])
        assert command is not None

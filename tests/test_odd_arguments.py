"""Arguments that reach numpy, SQLite or the file system: a typed error before they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from riemem import Distiller
from riemem.embed import HashingEmbedder, load_embedder
from riemem.errors import (
    ArgumentError,
    DTypeError,
    InputFileError,
    ModelNotFoundError,
    RiememError,
)
from riemem.memory import Memory

NUMBERS = np.array([1, 2])
LONG = "x" * 100_000


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    with Memory.open(tmp_path / "me.db", embedder=HashingEmbedder(dim=16)) as memory:
        memory.add("Ana lives in Porto", speaker="Ana", when="2024-01-01T00:00:00Z")
        memory.add("Ana lives in Lisbon", speaker="Ana", when="2024-06-01T00:00:00Z")
        yield memory


def test_an_array_is_no_number(memory: Memory) -> None:
    for call in (
        lambda: memory.get(NUMBERS),  # type: ignore[arg-type]
        lambda: memory.update(NUMBERS, text="x"),  # type: ignore[arg-type]
        lambda: memory.search("tea", k=NUMBERS),  # type: ignore[arg-type]
        lambda: memory.recall("tea", token_budget=NUMBERS),  # type: ignore[arg-type]
        lambda: memory.list(limit=NUMBERS),  # type: ignore[arg-type]
        lambda: memory.undo(NUMBERS),  # type: ignore[arg-type]
        lambda: memory.history(NUMBERS),  # type: ignore[arg-type]
    ):
        with pytest.raises(DTypeError, match="expected an int, got ndarray"):
            call()
    assert memory.get(np.int64(1)).text == "Ana lives in Porto"  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [2**63, 10**30])
def test_a_conflict_that_no_store_can_hold(memory: Memory, number: int) -> None:
    assert [conflict.id for conflict in memory.conflicts()] == [1]
    for call in (memory.undo, lambda n: memory.resolve(n, keep=1)):
        with pytest.raises(ArgumentError, match="there is no conflict"):
            call(number)


@pytest.mark.parametrize("order", [[], ["id"], {}, None, 5, "newest"])
def test_an_order_that_is_none(memory: Memory, order: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^order: expected one of"):
        memory.list(order=order)


@pytest.mark.parametrize("name", ["\ud800", "a\0b", "a/\udfff/b", LONG])
def test_a_path_that_no_file_can_have(memory: Memory, name: str) -> None:
    for write in (memory.export, memory.backup):
        with pytest.raises(RiememError, match=r"path: |too long") as caught:
            write(name)
        str(caught.value).encode()  # the message can be printed
    for read in (memory.import_, lambda path: memory.import_from(path, "jsonl")):
        with pytest.raises(InputFileError, match=r"^path: cannot read") as caught:
            read(name)
        str(caught.value).encode()
    for find in (load_embedder, lambda path: Distiller(path).model,
                 lambda path: memory.search("tea", reranker=path)):  # fmt: skip
        with pytest.raises(ModelNotFoundError) as caught:
            find(name)
        assert len(str(caught.value).encode()) < 1000
    assert memory.stats()["memories"] == 2

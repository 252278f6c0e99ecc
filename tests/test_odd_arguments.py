"""Arguments that reach numpy, SQLite or the file system: a typed error before they do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
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


class Named(HashingEmbedder):
    def __init__(self, name: Any) -> None:
        super().__init__(dim=16)
        self.name = name

    @property
    def identity(self) -> Any:
        return self.name


@pytest.mark.parametrize("name", [None, 5, "", " ", b"x", "\ud800", LONG])
def test_an_embedder_that_cannot_be_told_again(tmp_path: Path, name: Any) -> None:
    with Memory.open(tmp_path / "me.db", embedder=Named(name)) as memory:
        with pytest.raises(RiememError, match=r"^embedder\.identity: expected|^embedder\.id.*lone"):
            memory.add("tea")
        assert memory.stats()["embedder"] is None


@pytest.mark.parametrize("windows", [None, 5, "text"])
def test_an_embedder_that_cuts_into_nothing(windows: Any) -> None:
    embedder = HashingEmbedder(dim=16)
    embedder.windows = lambda text: windows  # type: ignore[method-assign]
    with (
        Memory.open(":memory:", embedder=embedder) as memory,
        pytest.raises(DTypeError, match=r"^embedder\.windows: expected it to return texts"),
    ):
        memory.add("tea")


@pytest.mark.parametrize("scores", [["x", "y"], (number for number in [1.0, 2.0]), [None, [1]]])
def test_a_reranker_that_gives_no_numbers(memory: Memory, scores: Any) -> None:
    class Odd:
        def scores(self, query: str, texts: list[str]) -> Any:
            return scores

    with pytest.raises(DTypeError, match=r"^reranker: expected scores\(\) to return numbers"):
        memory.search("Ana", reranker=Odd())


@pytest.mark.parametrize("spans", [5, [()], [3]])
def test_a_compressor_that_gives_no_spans(memory: Memory, spans: Any) -> None:
    class Odd:
        def distill(self, turns: Any, *, token_budget: int, query: str) -> Any:
            return SimpleNamespace(text="x", spans=spans)

    with pytest.raises(DTypeError, match=r"^compressor: expected \.spans of \(id, start, end\)"):
        memory.recall("Ana", token_budget=50, count_tokens=len, compressor=Odd())

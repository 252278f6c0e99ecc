"""Sensitivities in a store: kept by recall, gone with their memory or its text."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest
from riemem.embed import HashingEmbedder
from riemem.memory import Memory

MARK = b"\xc3sensitivity-of-the-lighthouse\x00"


class Keeper:
    """A compressor that keeps a mark for every turn, and counts what it had to make."""

    def __init__(self) -> None:
        self.made = 0

    def distill(self, turns, *, token_budget, query, count_tokens, cache):
        for turn in turns:
            if cache.get(turn.id, "key") is None:
                self.made += 1
                cache.put(turn.id, "key", MARK + str(turn.id).encode())
                assert cache.get(turn.id, "key") == MARK + str(turn.id).encode()
        first = turns[0]
        assert count_tokens(first.text) == len(first.text)
        return SimpleNamespace(text=first.text, spans=[(first.id, 0, len(first.text))])


def recall(memory: Memory, keeper: Keeper):
    return memory.recall("lighthouse", token_budget=80, count_tokens=len, compressor=keeper)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=HashingEmbedder(dim=8)) as memory:
        memory.add_many([{"text": f"the lighthouse {n}"} for n in range(4)])
    return path


def rows(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT count(*) FROM sensitivities").fetchone()[0])
    finally:
        connection.close()


def test_a_second_recall_finds_what_the_first_made(path: Path) -> None:
    keeper = Keeper()
    with Memory.open(path, embedder=HashingEmbedder(dim=8)) as memory:
        found = recall(memory, keeper)
        assert keeper.made == 4
        assert [hit.id for hit in found.hits] == [1]
        assert {(gone.id, gone.reason) for gone in found.dropped} == {
            (n, "over budget") for n in (2, 3, 4)
        }
        recall(memory, keeper)
    assert rows(path) == 4
    with Memory.open(path, embedder=HashingEmbedder(dim=8)) as memory:
        recall(memory, keeper)
        assert memory.check().ok
    assert keeper.made == 4


def test_forgotten_is_gone_byte_for_byte(path: Path) -> None:
    with Memory.open(path, embedder=HashingEmbedder(dim=8)) as memory:
        recall(memory, Keeper())
        memory.forget([2])
    assert rows(path) == 3
    assert MARK + b"2" not in path.read_bytes()
    with Memory.open(path, embedder=HashingEmbedder(dim=8)) as memory:
        memory.forget(profile="default")
    assert rows(path) == 0
    assert MARK not in path.read_bytes()


def test_a_changed_text_takes_its_rows_away(path: Path) -> None:
    keeper = Keeper()
    with Memory.open(path, embedder=HashingEmbedder(dim=8)) as memory:
        recall(memory, keeper)
        memory.update(3, text="the lighthouse is red")
        assert rows(path) == 3
        recall(memory, keeper)
    assert keeper.made == 5


def test_a_read_only_store_is_read_and_not_written(path: Path) -> None:
    keeper = Keeper()
    before = path.read_bytes()
    with Memory.open(path, embedder=HashingEmbedder(dim=8), readonly=True) as memory:
        recall(memory, keeper)
    assert keeper.made == 4
    assert path.read_bytes() == before


def test_compressors_without_these_arguments_work(path: Path) -> None:
    class Plain:
        def distill(self, turns, *, token_budget, query):
            return SimpleNamespace(text="ok")

    with Memory.open(path, embedder=HashingEmbedder(dim=8)) as memory:
        assert memory.recall("x", token_budget=9, count_tokens=len, compressor=Plain()).text == "ok"

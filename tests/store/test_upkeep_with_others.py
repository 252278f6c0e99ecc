"""Checking, ageing and forgetting while others use the store."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import ArgumentError, StoreLockedError
from riemem.memory import Memory
from riemem.store import awake

EMBEDDER = HashingEmbedder(dim=16)


def test_a_check_of_a_busy_store_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=EMBEDDER, timeout=0.05) as memory:
        memory.add("tea")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLockedError, match="try again"):
            memory.check()
        other.execute("ROLLBACK")
        other.close()
        assert memory.check().ok


def test_words_that_do_not_agree_are_still_found(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=EMBEDDER) as memory:
        memory.add("tea")
    other = sqlite3.connect(path, isolation_level=None)
    for (name,) in other.execute(
        "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'memories'"
    ).fetchall():
        other.execute(f"DROP TRIGGER {name}")
    other.execute("UPDATE memories SET text = 'milk'")
    other.close()
    with Memory.open(path, embedder=EMBEDDER) as memory:
        assert any(problem.startswith("words: ") for problem in memory.check().problems)


def test_two_that_maintain_at_once_both_end_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The other reads the clock later and is done first; nobody's clock was wrong.
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=EMBEDDER) as memory:
        memory.add("tea", when="2024-05-01T10:00:00Z")
        load = awake._load
        between = []

        def loaded_late(connection: sqlite3.Connection, profile: str) -> object:
            if not between:
                between.append(True)
                with Memory.open(path, embedder=EMBEDDER) as other:
                    other.maintain()
            return load(connection, profile)

        monkeypatch.setattr(awake, "_load", loaded_late)
        assert sum(memory.maintain().counts.values()) == 1
        assert sum(memory.maintain().counts.values()) == 1


def test_a_clock_that_went_back_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory.open(tmp_path / "me.db", embedder=EMBEDDER) as memory:
        memory.add("tea", when="2024-05-01T10:00:00Z")
        memory.maintain(now="2025-05-01T10:00:00Z")
        before = memory.life(1)
        monkeypatch.setattr(awake, "now_us", lambda: 1_735_689_600_000_000)  # 2025-01-01
        with pytest.raises(ArgumentError, match=r"^now: .*2025-05-01.*2025-01-01.*replay=True"):
            memory.maintain()
        assert memory.life(1) == before
        assert memory.maintain(replay=True).now == "2025-01-01T00:00:00+00:00"

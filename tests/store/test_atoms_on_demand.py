"""A profile has no atoms until it is asked for them, and from then on always the right ones."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from riemem.clustering import MaxMemberClusters
from riemem.embed import HashingEmbedder
from riemem.memory import Memory
from riemem.store import atoms as store_atoms

EMBEDDER = HashingEmbedder(dim=32)
WORDS = ["kite", "river", "tax", "bread", "garden", "engine", "violin", "harbour"]
# Without these rows a store is as it was when every memory was placed as it came.
UNMARK = "DELETE FROM meta WHERE key LIKE 'atoms of %' OR key = 'atoms_on_demand'"


def items(count: int, seed: int = 0, profile: str = "default") -> list[dict[str, str]]:
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        topic = WORDS[rng.integers(8)]
        text = f"{topic} {topic} {topic} {WORDS[rng.integers(8)]} {WORDS[rng.integers(8)]} {i % 5}"
        made.append({"text": text, "profile": profile})
    return made


def open_at(path: Path, **options: object) -> Memory:
    return Memory.open(path, embedder=EMBEDDER, **options)


def query(path: Path, sql: str, *values: object) -> list[tuple]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(sql, values).fetchall()


def stored(path: Path) -> dict[int, int]:
    return dict(query(path, "SELECT memory_id, atom FROM atoms ORDER BY memory_id"))


def placed_one_by_one(path: Path, profile: str = "default") -> list[int]:
    rows = query(
        path,
        "SELECT v.vector FROM vectors v JOIN memories m ON m.id = v.memory_id "
        "WHERE m.profile = ? AND v.chunk = 0 ORDER BY m.id",
        profile,
    )
    clusters = MaxMemberClusters(32, threshold=store_atoms.THRESHOLD)
    vectors = [np.frombuffer(row[0], "<f4") for row in rows]
    return [int(clusters.assign(v[None]).labels[0]) for v in vectors]


def labels(memory: Memory, **options: str) -> dict[int, int]:
    return dict(sorted((i, a.id) for a in memory.atoms(**options) for i in a.ids))


def test_writing_and_flat_recall_make_none_and_load_no_vectors(tmp_path, monkeypatch):
    path = tmp_path / "me.db"

    def fails(*_):
        raise AssertionError("vectors are read for atoms that nobody asked for")

    monkeypatch.setattr(store_atoms, "_load", fails)
    with open_at(path) as memory:
        ids = memory.add_many(items(20))
        memory.add("red kite")
        memory.update(ids[3], text="old bread")
        memory.forget(ids[4])
        assert memory.recall("kite", token_budget=400, count_tokens=len).hits
        assert memory.check().ok
    Memory.reembed_store(path, embedder=EMBEDDER)
    with open_at(path) as memory:
        memory.add("tax form")
        assert memory.check().ok
    assert stored(path) == {}
    assert query(path, "SELECT key FROM meta WHERE key LIKE '%atom%'") == []


@pytest.mark.parametrize("ask", ["atoms", "grouped"])
def test_the_first_ask_is_as_if_each_had_been_placed_when_it_came(tmp_path, ask):
    path = tmp_path / "me.db"
    with open_at(path) as memory:
        memory.add_many(items(30))
        memory.add_many(items(30, seed=1))
        if ask == "atoms":
            memory.atoms()
        else:
            memory.recall("kite", token_budget=900, count_tokens=len, layout="grouped")
        want = placed_one_by_one(path)
        assert list(stored(path).values()) == want
        assert list(labels(memory).values()) == want
        assert 3 < len(set(want)) < 60
        assert memory.check().ok


def test_from_then_on_they_are_kept_through_writes_and_restarts(tmp_path):
    path = tmp_path / "me.db"
    with open_at(path) as memory:
        memory.add_many(items(20))
        memory.atoms()
        memory.add_many(items(10, seed=1))
        assert list(stored(path).values()) == placed_one_by_one(path)
    with open_at(path) as memory:
        memory.add(**items(1, seed=2)[0])
        memory.add_many(items(10, seed=3))
        assert list(stored(path).values()) == placed_one_by_one(path)
        memory.update(5, text="engine engine engine garden 1")
        memory.forget([6, 7])
        memory.add("engine engine engine garden 1")
        kept = stored(path)
        assert sorted(kept) == [1, 2, 3, 4, 5, *range(8, 43)]
        assert kept[5] == kept[42]
        assert memory.check().ok


def test_the_first_ask_after_changes_takes_what_is_there(tmp_path):
    path = tmp_path / "me.db"
    with open_at(path) as memory:
        ids = memory.add_many(items(25))
        memory.update(ids[2], text="violin violin violin")
        memory.forget(ids[:2])
        memory.atoms()
    assert list(stored(path)) == ids[2:]
    assert list(stored(path).values()) == placed_one_by_one(path)


def test_each_profile_for_itself(tmp_path):
    path = tmp_path / "me.db"
    with open_at(path) as memory:
        memory.add_many(items(10, profile="ana"))
        memory.add_many(items(10, profile="ben"))
        memory.atoms(profile="ana")
        memory.atoms(profile="nobody")
        assert list(stored(path)) == list(range(1, 11))
        memory.add_many([*items(5, seed=1, profile="ben"), *items(5, seed=1, profile="ana")])
        assert list(stored(path)) == [*range(1, 11), *range(26, 31)]
        assert memory.check().ok
        assert list(labels(memory, profile="ana").values()) == placed_one_by_one(path, "ana")
        first = min(labels(memory, profile="ben").values())
        assert first > max(labels(memory, profile="ana").values())
    Memory.reembed_store(path, embedder=HashingEmbedder(dim=48))
    assert len(stored(path)) == 30


@pytest.mark.parametrize("older", [False, True])
def test_a_reader_computes_them_and_writes_nothing(tmp_path, older):
    path = tmp_path / "me.db"
    with open_at(path) as memory:
        memory.add_many(items(40))
    if older:  # a schema without the table
        query(path, "DROP TABLE atoms")
        query(path, "PRAGMA user_version = 2")
    before = path.read_bytes()
    with open_at(path, readonly=True) as memory:
        assert list(labels(memory).values()) == placed_one_by_one(path)
        assert memory.atoms() == memory.atoms()
        assert memory.atoms(profile="nobody") == []
        grouped = memory.recall("kite", token_budget=900, count_tokens=len, layout="grouped").text
        assert grouped.startswith("## ")
        assert memory.check().ok
    assert path.read_bytes() == before
    if not older:
        with open_at(path) as memory:
            same = memory.recall("kite", token_budget=900, count_tokens=len, layout="grouped").text
        assert same == grouped


def test_a_reader_follows_a_writer(tmp_path):
    path = tmp_path / "me.db"
    with open_at(path) as writer, open_at(path, readonly=True) as reader:
        assert reader.atoms() == []
        writer.add_many(items(10))
        assert list(labels(reader).values()) == placed_one_by_one(path)
        writer.add_many(items(10, seed=1))
        assert list(labels(reader).values()) == placed_one_by_one(path)
        writer.atoms()
        writer.forget(1)
        assert labels(reader) == stored(path)


def test_a_question_does_not_wait_for_ever_for_a_writer(tmp_path):
    path = tmp_path / "me.db"
    with open_at(path, timeout=0.1) as memory:
        memory.add_many(items(20))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            found = labels(memory)
            other.execute("ROLLBACK")
        assert stored(path) == {}
        assert labels(memory) == found == stored(path)


ASKER = """
import sys
from riemem.embed import HashingEmbedder
from riemem.memory import Memory
with Memory.open(sys.argv[1], embedder=HashingEmbedder(dim=32), timeout=60) as memory:
    print("ready", flush=True)
    sys.stdin.readline()
    found = memory.atoms()
    memory.add(f"{sys.argv[2]} violin violin")
    print(sorted((i, atom.id) for atom in found for i in atom.ids if i <= 60))
"""


def test_two_processes_ask_at_once(tmp_path):
    path = tmp_path / "me.db"
    with open_at(path) as memory:
        memory.add_many(items(60))
    want = list(enumerate(placed_one_by_one(path), 1))
    children = [
        subprocess.Popen(
            [sys.executable, "-c", ASKER, str(path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for name in ("one", "two")
    ]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [child.communicate()[0].strip() for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert said == [str(want)] * 2
    assert list(stored(path).values()) == placed_one_by_one(path)
    assert len(stored(path)) == 62
    with open_at(path) as memory:
        assert memory.check().ok


def files(path: Path) -> bytes:
    return b"".join(f.read_bytes() for f in sorted(path.parent.glob(path.name + "*")))


def test_forgetting_leaves_nothing_of_an_atom(tmp_path):
    path = tmp_path / "me.db"
    with open_at(path) as memory:
        memory.add("tax form")
        gone = memory.add("red kite sky", profile="Zqwxvanished")
        memory.atoms()
        (atom,) = memory.atoms(profile="Zqwxvanished")
        centroid = query(path, "SELECT vector FROM vectors WHERE memory_id = ?", gone)[0][0]
        wide = np.frombuffer(centroid, "<f4").astype("<f8").tobytes()
        assert centroid[8:40] in files(path)
        assert b"Zqwxvanished" in files(path)
        memory.forget(profile="Zqwxvanished")
        for trace in (centroid[8:40], wide[8:40], b"Zqwxvanished"):
            assert trace not in files(path)
        assert list(stored(path).values()) == [0]
        # Its number does not come back, and the profile is one that was never asked.
        again = memory.add("red kite sky", profile="Zqwxvanished")
        assert again not in stored(path)
        assert [a.id for a in memory.atoms(profile="Zqwxvanished")] == [atom.id + 1]
        assert memory.check().ok


class TestOlderStores:
    """Where each memory was placed as it came and nothing marks the profile."""

    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "me.db"
        with open_at(path) as memory:
            memory.add_many([*items(20), *items(5, profile="ana")])
            memory.atoms()
            memory.atoms(profile="ana")
        query(path, UNMARK)
        return path

    def test_atoms_stay_as_they_are_and_are_followed(self, path):
        before = stored(path)
        with open_at(path, readonly=True) as memory:
            assert labels(memory) | labels(memory, profile="ana") == before
        with open_at(path) as memory:
            assert labels(memory) | labels(memory, profile="ana") == before
            assert memory.check().ok
            memory.add("violin violin violin")
            assert list(stored(path)) == list(range(1, 27))
            memory.add("violin violin violin", profile="ana")
            memory.add("violin violin violin", profile="ben")
            assert list(stored(path)) == list(range(1, 28))
            assert stored(path).items() >= before.items()
            assert memory.check().ok

    def test_also_when_the_first_write_takes_them_away(self, path, tmp_path):
        other = tmp_path / "other.db"
        shutil.copy(path, other)
        with open_at(path) as memory:
            memory.update(21, text="harbour harbour", profile="ana")
        assert list(stored(path)) == list(range(1, 26))
        Memory.reembed_store(other, embedder=HashingEmbedder(dim=48))
        assert list(stored(other)) == list(range(1, 26))

    def test_damage_is_found_and_repaired(self, path):
        query(path, "DELETE FROM atoms WHERE memory_id = 4")
        with open_at(path) as memory:
            assert memory.check().problems == ["atoms: 1 memories are in none"]
            assert memory.check(repair=True).ok
        assert list(stored(path)) == list(range(1, 26))


def test_a_marked_profile_that_lost_its_atoms_is_found(tmp_path):
    path = tmp_path / "me.db"
    with open_at(path) as memory:
        memory.add_many(items(10))
        want = labels(memory)
        query(path, "DELETE FROM atoms")
        query(path, "DELETE FROM meta WHERE key = 'next_atom'")
        assert memory.check().problems == ["atoms: 10 memories are in none"]
        assert memory.check(repair=True).ok
        assert stored(path) == want

"""Forgotten is gone: the raw bytes of every file of the store are searched."""

from __future__ import annotations

import os
import random
import sqlite3
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from riemem.embed import HashingEmbedder
from riemem.memory import Memory
from riemem.store.reads import stored_vectors


def raw_bytes(path: Path) -> bytes:
    """Everything on disk whose name begins with the store's."""
    return b"".join(f.read_bytes() for f in sorted(path.parent.glob(path.name + "*")))


def traces(word: str, vector: np.ndarray) -> dict[str, bytes]:
    return {
        "utf-8": word.encode(),
        "utf-16": word.encode("utf-16-le"),
        "the indexed word": word.lower().encode()[2:],
        "vector": vector.astype("<f4").tobytes()[8:40],
    }


def canary(i: int, rng: random.Random) -> str:
    letters = "bcdfghjklmnpqrstvwxz"
    return "Zq" + "".join(rng.choice(letters) for _ in range(10)) + f"{i:03d}"


class QuickEmbedder:
    """Random directions: the texts of the long test need no better ones."""

    identity, dim, max_tokens = "quick", 64, 10**9

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        rows = [np.random.default_rng(zlib.crc32(text.encode())).normal(size=64) for text in texts]
        return np.array([row / np.linalg.norm(row) for row in rows], dtype=np.float32)

    def windows(self, text: str) -> list[str]:
        return [text]


@pytest.fixture
def embedder() -> HashingEmbedder:
    return HashingEmbedder(dim=64)


def test_a_plain_delete_leaves_the_text_behind(tmp_path: Path) -> None:
    # The negative control: without what the store does, this search of the bytes finds it.
    path = tmp_path / "plain.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("CREATE TABLE t (text TEXT)")
    connection.executemany("INSERT INTO t VALUES (?)", [(f"CANARY-{i}",) for i in range(50)])
    connection.commit()
    connection.execute("DELETE FROM t")
    connection.commit()
    connection.close()
    assert raw_bytes(path).count(b"CANARY-") == 50


def test_nothing_is_left_while_open_nor_after_close(
    tmp_path: Path, embedder: HashingEmbedder
) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=embedder) as memory:
        memory.add("something that stays", speaker="Ana")
        ids = memory.add_many(
            [
                {"text": f"CANARY-{i} secretword", "metadata": {"CANARYKEY": f"CANARYVALUE{i}"}}
                for i in range(50)
            ]
        )
        assert raw_bytes(path).count(b"CANARY-") >= 50
        receipt = memory.forget(ids)
        assert receipt.erased
        assert receipt.count == 50
        assert b"CANARY" not in raw_bytes(path)
        assert b"secretword" not in raw_bytes(path)
        assert memory.list()[0].text == "something that stays"
    assert b"CANARY" not in raw_bytes(path)
    assert b"something that stays" in raw_bytes(path)


@pytest.mark.parametrize("seed", [2, 5])
def test_forgetting_bit_by_bit_after_updates_leaves_no_trace(tmp_path: Path, seed: int) -> None:
    # Rows change their size and pages split and merge: that is when SQLite leaves stale copies of
    # rows in a page, which a later DELETE does not see, secure_delete or not.
    rng = random.Random(seed)
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=QuickEmbedder(), durability="normal") as memory:
        words = [canary(i, rng) for i in range(300)]
        ids = memory.add_many(
            [
                {
                    "text": f"{word} " + "tea " * rng.choice([0, 5, 300, rng.randint(0, 900)]),
                    "speaker": f"{word}speaker",
                    "session": f"{word}session",
                    "metadata": {"label": f"{word}label"},
                    "key": f"{word}key",
                }
                for word in words
            ]
        )
        left = dict(zip(ids, words, strict=True))
        for memory_id in rng.sample(ids, 100):
            memory.update(memory_id, text=f"{left[memory_id]} " + "much " * rng.randint(0, 900))
        vectors = {i: stored_vectors(memory._store, i)[0] for i in ids}
        gone: dict[int, str] = {}
        for _ in range(8):
            batch = rng.sample(sorted(left), 15)
            assert memory.forget(batch).erased
            gone |= {i: left.pop(i) for i in batch}
            data = raw_bytes(path)
            found = [
                (i, what)
                for i, word in gone.items()
                for what, trace in traces(word, vectors[i]).items()
                if trace in data
            ]
            assert found == []
        assert [record.id for record in memory.list(order="id")] == sorted(left)
        assert memory.check().ok
        assert all(word.encode() in data for word in left.values())


@pytest.mark.parametrize("way", ["ids", "session", "filters", "profile"])
def test_every_way_of_forgetting_erases(
    tmp_path: Path, embedder: HashingEmbedder, way: str
) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=embedder) as memory:
        wanted = memory.add(
            "CANARYTEXT", session="s1", profile="other", metadata={"topic": "CANARYTOPIC"}
        )
        memory.add("stays", session="s2")
        arguments = {
            "ids": {"ids": wanted, "profile": "other"},
            "session": {"session": "s1", "profile": "other"},
            "filters": {"filters": {"topic": "CANARYTOPIC"}, "profile": "other"},
            "profile": {"profile": "other"},
        }[way]
        receipt = memory.forget(**arguments)
        assert receipt.ids == (wanted,)
        assert receipt.bytes == len(b"CANARYTEXT") + len(b'{"topic":"CANARYTOPIC"}') + 4 * 64
        assert b"CANARY" not in raw_bytes(path)
        assert len(memory.list()) == 1


def test_a_forget_interrupted_before_the_rewrite_is_finished_at_the_next_open(
    tmp_path: Path, embedder: HashingEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=embedder) as memory:
        ids = [memory.add(f"CANARY{i} " + "x" * 300) for i in range(50)]
        with monkeypatch.context() as patch:
            patch.setattr("riemem.store.writes.resume_erasure", lambda store: False)
            receipt = memory.forget(ids[:40])
        assert not receipt.erased
        assert memory.stats()["erasure_pending"]
        assert [record.id for record in memory.list()] == ids[40:]
    with Memory.open(path, embedder=embedder) as memory:
        assert not memory.stats()["erasure_pending"]
        data = raw_bytes(path)
        assert not any(f"CANARY{i} ".encode() in data for i in range(40))
        assert all(f"CANARY{i} ".encode() in data for i in range(40, 50))


def test_a_reader_in_the_way_is_said_and_the_rest_done_later(
    tmp_path: Path, embedder: HashingEmbedder
) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=embedder, timeout=0.05) as memory:
        wanted = memory.add("CANARYTEXT")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM memories").fetchone()
        receipt = memory.forget(wanted)
        assert not receipt.erased
        assert memory.list() == []
        assert memory.stats()["erasure_pending"]
        other.execute("COMMIT")
        other.close()
        assert memory.compact()
        assert not memory.stats()["erasure_pending"]
        assert b"CANARYTEXT" not in raw_bytes(path)


def test_the_files_beside_the_store_are_gone_after_close(
    tmp_path: Path, embedder: HashingEmbedder
) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=embedder) as memory:
        memory.add("tea")
    assert sorted(os.listdir(tmp_path)) == ["me.db"]

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
        "utf-16, the other way round": word.encode("utf-16-be"),
        "utf-32": word.encode("utf-32-le"),
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


@pytest.mark.parametrize("way", ["ids", "session", "filters", "profile"])
def test_no_part_of_a_memory_is_left_in_any_form(
    tmp_path: Path, embedder: HashingEmbedder, way: str
) -> None:
    path = tmp_path / "me.db"
    rng = random.Random(9)
    parts = tuple(canary(i, rng) for i in range(7))
    text, speaker, session, key, label, value, caption = parts
    with Memory.open(path, embedder=embedder) as memory:
        memory.add_many([{"text": f"stays {i}", "session": "other"} for i in range(40)])
        wanted = memory.add(
            f"{text} " + "tea " * 3000,
            speaker=speaker,
            session=session,
            key=key,
            profile="p",
            metadata={label: value, "caption": caption},
        )
        memory.add("stays", profile="p", session="other")
        memory.search(text, profile="p")
        vector = stored_vectors(memory._store, wanted)[0]
        before = raw_bytes(path)
        # The control: all of it can be found this way.
        assert [part for part in parts if part.encode() not in before] == []
        assert vector.astype("<f4").tobytes() in before
        receipt = memory.forget(
            **{
                "ids": {"ids": [wanted], "profile": "p"},
                "session": {"session": session, "profile": "p"},
                "filters": {"filters": {label: value}, "profile": "p"},
                "profile": {"profile": "p"},
            }[way]
        )
        assert receipt.erased
        assert wanted in receipt.ids
        for moment in ("open", "closed"):
            data = raw_bytes(path)
            found = [
                (part, what)
                for part in parts
                for what, trace in traces(part, vector).items()
                if trace in data
            ]
            assert found == [], moment
            memory.close()
    assert b"stays 7" in raw_bytes(path)


def test_everything_is_forgotten(tmp_path: Path, embedder: HashingEmbedder) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=embedder) as memory:
        ids = memory.add_many(
            [{"text": f"CANARY {i} " + "x" * 500, "profile": f"p{i % 3}"} for i in range(300)]
        )
        vector = stored_vectors(memory._store, ids[0])[0]
        memory.search("canary", profile="p0")
        size = memory.stats()["file_bytes"] + memory.stats()["log_bytes"]
        gone = [i for n in range(3) for i in memory.forget(profile=f"p{n}").ids]
        assert sorted(gone) == ids
        assert memory.forget(profile="p0").count == 0  # nothing left to forget is no error
        data = raw_bytes(path)
        assert b"CANARY" not in data
        assert b"canari" not in data
        assert vector.astype("<f4").tobytes() not in data
        assert memory.stats()["file_bytes"] < size / 2
        assert memory.search("canary", profile="p0") == []
        assert memory.check().ok
        assert memory.add("new", profile="p0") == ids[-1] + 1
        assert [hit.text for hit in memory.search("new", profile="p0")] == ["new"]


def test_scores_are_those_of_a_store_that_never_had_it(
    tmp_path: Path, embedder: HashingEmbedder
) -> None:
    rng = random.Random(3)
    words = [canary(i, rng) for i in range(60)]
    stays = [f"{rng.choice(words)} {rng.choice(words)} {rng.choice(words)}" for _ in range(90)]
    goes = [f"{rng.choice(words)} {rng.choice(words)}" for _ in range(60)]
    with (
        Memory.open(tmp_path / "a.db", embedder=embedder) as changed,
        Memory.open(tmp_path / "b.db", embedder=embedder) as never,
    ):
        when = "2024-05-01T10:00:00Z"
        kept = changed.add_many([{"text": text, "when": when} for text in stays[:45]])
        extra = changed.add_many([{"text": text, "when": when} for text in goes])
        kept += changed.add_many([{"text": text, "when": when} for text in stays[45:]])
        changed.search(words[0])  # the metric has learnt them all
        changed.forget(extra[:20])
        changed.search(words[0])
        changed.forget(extra[20:])
        ids = never.add_many([{"text": text, "when": when} for text in stays])
        number = dict(zip(ids, kept, strict=True))
        for query in words[:10]:
            a, b = changed.search(query, k=90), never.search(query, k=90)
            assert [(hit.id, hit.score) for hit in a] == [(number[hit.id], hit.score) for hit in b]
            assert a.scoring == b.scoring

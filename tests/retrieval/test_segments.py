"""Segments of the store: the same answers with and without them, and nothing that is forgotten."""

from __future__ import annotations

import hashlib
import random
import sqlite3
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from riemem.embed import HashingEmbedder
from riemem.memory import Memory
from riemem.retrieval import corpus, loading, postings
from riemem.retrieval.lines import Turn, lines_of, words_of
from riemem.retrieval.segments import dates_segment, words_segment
from riemem.retrieval.spoken import spoken_of
from riemem.store.segments import MAKER

PEOPLE = ["Ana", "Bo", None]
_WORDS = "tea dog boat key moon salt fern coal harp nail oak rain sand wolf yarn"
WORDS = _WORDS.split()
QUERIES = ["When did Ana see the moon?", "salt and yarn in March 2023", "Bo's boat last week"]
EMBEDDER = HashingEmbedder(dim=16)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of 16 memories, and the metric kept from 40 vectors on."""
    for module in (corpus, postings):
        monkeypatch.setattr(module, "PART_TEXTS", 16)
    monkeypatch.setattr(corpus, "_LEAST_KEPT", 4)
    monkeypatch.setattr(corpus, "_LEAST_BETWEEN", 2)
    monkeypatch.setattr(loading, "REBUILT_ROWS", 40)
    monkeypatch.setattr("riemem.index._ROWS", 32)


def items(n: int, seed: int = 0, **more: Any) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "text": " ".join(rng.choice(WORDS) for _ in range(rng.randint(2, 8)))
            + rng.choice(["", "?", " last week", " on Monday", " in May 2022"]),
            "speaker": rng.choice(PEOPLE),
            "session": f"s{i // 8}",
            "when": f"2023-{1 + i % 12:02d}-{1 + i % 28:02d}T10:00:00Z",
            "metadata": {"caption": rng.choice(WORDS)} if i % 5 == 0 else None,
            **more,
        }
        for i in range(n)
    ]


def opened(path: Path) -> Memory:
    return Memory.open(path, embedder=EMBEDDER, durability="normal")


def answers(path: Path, **scope: Any) -> list[Any]:
    with opened(path) as memory:
        return [memory.search(query, k=300, explain=True, **scope) for query in QUERIES]


def held(path: Path) -> list[tuple[str, int, int]]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT kind, first, last FROM segments ORDER BY kind, first")
    found = rows.fetchall()
    connection.close()
    return found


def drop(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM segments")
    connection.commit()
    connection.close()


def plain(results: list[Any]) -> list[Any]:
    return [
        [(hit.id, hit.score, hit.text, hit.channels, hit.why) for hit in hits] for hits in results
    ]


def test_answers_are_the_same_bits_with_segments_and_without(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with opened(path) as memory:
        memory.add_many(items(100))
    without = answers(path)
    ranges = [(1 + 16 * i, min(16 + 16 * i, 100)) for i in range(7)]
    assert held(path) == [
        *(("dates", *own) for own in ranges),
        ("metric", 1, 100),
        *(("words", *own) for own in ranges),
    ]
    assert plain(answers(path)) == plain(without)


@pytest.mark.parametrize("seed", range(4))
def test_any_sequence_of_changes_leaves_true_segments(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "me.db"
    alive: list[int] = []
    for step in range(8):
        with opened(path) as memory:
            for _ in range(rng.randint(1, 3)):
                alive += memory.add_many(items(rng.choice([1, 5, 40]), seed=rng.randint(0, 99)))
                memory.search(rng.choice(QUERIES))
                if rng.random() < 0.5:
                    i = rng.choice(alive)
                    memory.update(i, text=f"the moon of step {step}", when="2023-02-01T00:00:00Z")
                if rng.random() < 0.5 and len(alive) > 10:
                    gone = rng.sample(alive, 3)
                    memory.forget(gone)
                    alive = [i for i in alive if i not in gone]
                if rng.random() < 0.3:
                    memory.add("of another profile", profile="other")
                memory.search(rng.choice(QUERIES))
            report = memory.check()
            assert report.ok, report.problems
        first, second = answers(path), answers(path)
        if len(alive) > 12:
            assert {kind for kind, *_ in held(path)} >= {"words"}
        drop(path)
        assert plain(answers(path)) == plain(first) == plain(second)
        assert sorted(hit.id for hit in first[0]) == sorted(alive)


def test_a_forget_takes_only_the_segments_it_touches(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with opened(path) as memory:
        memory.add_many(items(64))
        memory.search(QUERIES[0])
    with opened(path) as memory:
        memory.forget(20)
        assert {own for own in held(path) if own[0] != "dates"} == {
            ("words", 1, 16),
            ("words", 33, 48),
            ("words", 49, 64),
        }
        memory.update(40, metadata={"caption": "kite"})
        assert ("words", 33, 48) not in held(path)
    answers(path)
    words = [own for own in held(path) if own[0] == "words"]
    assert words == [("words", *own) for own in ((1, 16), (17, 33), (34, 48), (49, 64))]


def test_damaged_and_foreign_segments_are_not_used_and_repaired(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with opened(path) as memory:
        memory.add_many(items(100))
    good = answers(path)
    for change in (
        "data = CAST(substr(data, 1, 100) || x'01' || substr(data, 102) AS BLOB)",
        "data = x''",
        "checksum = checksum + 1",
        "count = count - 1",
    ):
        connection = sqlite3.connect(path)
        connection.execute(f"UPDATE segments SET {change} WHERE first < 20")
        connection.commit()
        connection.close()
        assert plain(answers(path)) == plain(good)
        with opened(path) as memory:
            memory.check(repair=True)
            assert memory.check().ok
    answers(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE segments SET maker = 'somebody else'")
    connection.commit()
    connection.close()
    assert plain(answers(path)) == plain(good)


def test_check_tells_words_dates_and_lengths_that_are_not_those_of_the_memories(
    tmp_path: Path,
) -> None:
    path = tmp_path / "me.db"
    with opened(path) as memory:
        memory.add_many(items(100))
    answers(path)
    connection = sqlite3.connect(path)  # as if the triggers had not been there
    for trigger in ("segments_stale", "segments_vector_gone", "segments_vector_stale"):
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.execute("UPDATE memories SET text = 'the moon on 5 May 2021' WHERE id = 20")
    row = np.zeros(16, "<f4")
    row[3] = 1.0
    connection.execute("UPDATE vectors SET vector = ? WHERE memory_id = 50", (row.tobytes(),))
    connection.commit()
    connection.close()
    with opened(path) as memory:
        problems = [text for text in memory.check().problems if text.startswith("segments")]
    assert problems == [
        "segments: words of memories 17 to 32: do not agree with the texts",
        "segments: dates of memories 17 to 32: do not agree with the texts",
        "segments: metric of profile 'default': does not agree with the vectors",
    ]


def test_memories_that_came_in_by_another_way_are_found(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with opened(path) as memory:
        memory.add_many(items(32))
        memory.search("tea")
        memory.forget(10)
    answers(path)
    connection = sqlite3.connect(path)
    connection.execute(
        "INSERT INTO memories SELECT 10, profile, session, speaker, 'xylophone', metadata, NULL, "
        "observed_at, created_at, updated_at, revision FROM memories WHERE id = 11"
    )
    connection.execute(
        "INSERT INTO vectors (memory_id, chunk, vector) "
        "SELECT 10, 0, vector FROM vectors WHERE memory_id = 11"
    )
    connection.commit()
    connection.close()
    with opened(path) as memory:
        assert memory.search("xylophone", ranking="lexical")[0].id == 10


def test_nothing_of_a_forgotten_memory_is_left_in_the_segments(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with opened(path) as memory:
        ids = memory.add_many(items(60))
        secret = memory.add(
            "zqxjkvbw on 7 March 1987", speaker="Zqspeaker", session="Zqsession", profile="default"
        )
        memory.add_many(items(60, seed=1))
        memory.search(QUERIES[0])
        memory.search("zqxjkvbw in 1987")
    data = path.read_bytes()
    kept = [own for own in held(path) if own[1] <= secret <= own[2]]
    assert {own[0] for own in kept} == {"words", "dates", "metric"}
    assert data.count(b"zqxjkvbw") >= 2  # the text and the segment; the control
    assert data.count(b"Zqsession") >= 2
    with opened(path) as memory:
        memory.search("zqxjkvbw in 1987")
        assert memory.forget(secret).erased
        memory.search("zqxjkvbw in 1987")
    files = b"".join(f.read_bytes() for f in tmp_path.iterdir())
    for trace in (b"zqxjkvbw", b"Zqs", "zqxjkvbw".encode("utf-16-le")):
        assert trace not in files
    # The stored sums are those of a store that never had it: its vector cannot be taken out of
    # the difference.
    other = tmp_path / "never.db"
    with opened(other) as memory:
        memory.add_many(items(60))
        memory.add("placeholder")
        memory.forget(61)
        memory.add_many(items(60, seed=1))
    answers(other)
    answers(path)

    def metric(file: Path) -> bytes:
        connection = sqlite3.connect(file)
        (data,) = connection.execute("SELECT data FROM segments WHERE kind = 'metric'").fetchone()
        connection.close()
        return bytes(data)

    assert metric(path) == metric(other)
    assert len(ids) == 60


def test_embedding_again_takes_the_metric_away(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with opened(path) as memory:
        memory.add_many(items(100))
    answers(path)
    Memory.reembed_store(path, embedder=HashingEmbedder(dim=24))
    assert [own for own in held(path) if own[0] == "metric"] == []
    with Memory.open(path, embedder=HashingEmbedder(dim=24)) as memory:
        assert len(memory.search(QUERIES[0], k=100)) == 100
        assert memory.check().ok


def test_an_update_that_moves_a_vector_keeps_the_order_of_memories(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with opened(path) as memory:
        memory.add_many(items(100))
        memory.update(3, text="a new moon")
    first = answers(path)
    assert ("metric", 1, 100) in held(path)
    assert plain(answers(path)) == plain(first)
    drop(path)
    assert plain(answers(path)) == plain(first)


def test_a_store_that_may_not_be_written_goes_without(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with opened(path) as memory:
        memory.add_many(items(100))
    with Memory.open(path, embedder=EMBEDDER, readonly=True) as memory:
        one = [memory.search(query, k=100, explain=True) for query in QUERIES]
    assert held(path) == []
    busy = sqlite3.connect(path, isolation_level=None)
    busy.execute("BEGIN IMMEDIATE")
    with Memory.open(path, embedder=EMBEDDER, timeout=0.01) as memory:
        two = [memory.search(query, k=100, explain=True) for query in QUERIES]
    busy.execute("ROLLBACK")
    busy.close()
    assert held(path) == []
    assert plain(one) == plain(two) == plain(answers(path))


def test_words_and_dates_come_out_as_the_maker_says() -> None:
    # When this fails, what is kept in stores is no longer what would be made: raise the number in
    # riemem.store.segments.MAKER, then put the new digest here.
    texts = ["I've been running in Porto since last Friday?", "Zoë 東京塔 กรุงเทพ", "on 5 May 2021"]
    turns = [Turn(text, "Ana", date(2023, 6, 1), "a red kite") for text in texts]
    rows = [(i, t.text, "Ana", "s", 10**15 + i, "{}") for i, t in enumerate(turns, 1)]
    words = postings.Postings().make([words_of(turn) for turn in turns])
    digest = hashlib.sha256(words_segment(lines_of(rows, turns, words)).data)
    digest.update(dates_segment(np.array([1, 2, 3]), spoken_of(turns)).data)
    assert MAKER.startswith("1, ")
    assert digest.hexdigest()[:16] == "0e4e1c663113a278"

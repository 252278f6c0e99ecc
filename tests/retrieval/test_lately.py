"""Rows that are kept of found memories are those of the store, whoever changes it."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from riemem.embed import HashingEmbedder
from riemem.memory import Memory
from riemem.retrieval.lately import KeptLately, shown_rows, token_rows
from riemem.store.reads import rows_by_id

WORDS = ["tea", "dog", "boat", "key", "moon", "salt", "fern", "coal", "harp", "nail"]


class Worth(HashingEmbedder):
    """Its tokens are worth keeping."""

    tokens_by_default = True


def opened(path: Path) -> Memory:
    return Memory.open(path, embedder=Worth(dim=32))


def change(memory: Memory, rng: random.Random, living: list[int]) -> None:
    text = " ".join(rng.choices(WORDS, k=4))
    what = rng.choice(["add", "text", "metadata", "speaker", "forget"])
    if what == "add" or len(living) < 4:
        living.append(memory.add(text, metadata={"n": rng.randint(0, 9)}))
    elif what == "forget":
        memory.forget(living.pop(rng.randrange(len(living))))
    else:
        new: dict[str, Any] = {"text": text, "metadata": {"n": 7}, "speaker": rng.choice(WORDS)}
        memory.update(rng.choice(living), **{what: new[what]})


def test_after_each_change_by_anybody_hits_are_those_of_a_store_just_opened(tmp_path: Path) -> None:
    path, rng = tmp_path / "me.db", random.Random(3)
    with opened(path) as one, opened(path) as other:
        living = one.add_many([{"text": " ".join(rng.choices(WORDS, k=4))} for _ in range(12)])
        one.search("tea", k=20)
        for _ in range(40):
            change(rng.choice([one, other]), rng, living)
            with opened(path) as fresh:
                want = [fresh.search(word, k=20) for word in WORDS[:3]]
            assert [one.search(word, k=20) for word in WORDS[:3]] == want
            assert want[0].scoring.startswith("late-interaction")
            assert one._channel("default")._corpus.shown._known
            assert one._channel("default")._corpus.tokens._known


def test_token_rows_that_are_kept_are_those_of_the_store(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with opened(path) as one, opened(path) as other:
        ids = one.add_many([{"text": text} for text in ("tea dog", "boat key", "salt and fern")])
        kept, store = token_rows(one._store), one._store

        def rows() -> dict[int, bytes]:
            with store.reading():
                return kept.of(ids, store.mark())

        first = rows()
        assert sorted(first) == ids
        assert rows() == first
        other.disable_late_interaction()
        assert one.search("tea").scoring.startswith("default")
        other.enable_late_interaction()
        assert rows() == first
        found = one.search("tea")
        with opened(path) as fresh:
            assert found == fresh.search("tea")


def test_rows_that_are_damaged_are_named_and_count_as_missing(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with opened(path) as memory:
        memory.add_many([{"text": text} for text in ("tea dog", "boat key", "salt and fern")])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE token_vectors SET data = x'0102' WHERE memory_id = 2")
    with opened(path) as memory:
        for _ in range(2):
            found = memory.search("tea boat")
            assert found.skipped == (
                "late: the token vectors of memories 2 are damaged; riemem check --repair",
            )
            assert {hit.id for hit in found} == {1, 2, 3}
        assert memory.check(repair=True).ok
        assert memory.search("tea boat").skipped == ()


def test_a_row_is_read_once_and_only_so_many_are_kept(tmp_path: Path) -> None:
    with opened(tmp_path / "me.db") as memory:
        ids = memory.add_many([{"text": f"turn {i}"} for i in range(20)])
        long = memory.add("x" * 3000)
        store, size = memory._store, shown_rows(memory._store)._size
        asked: list[list[int]] = []

        def counted(store: Any, ids: Any) -> Any:
            asked.append(list(ids))
            return rows_by_id(store, ids)

        def rows(wanted: list[int], mark: int | None) -> dict[int, Any]:
            with store.reading():
                return kept.of(wanted, mark)

        kept = KeptLately(store, counted, size, most=15, largest=2048)
        mark = store.mark()
        want = rows_by_id(store, [*ids, long])
        assert rows([*ids[:5], long], mark) == {i: want[i] for i in [*ids[:5], long]}
        assert list(rows([ids[6], *ids[:5], 999, long], mark)) == [ids[6], *ids[:5], long]
        assert asked == [[*ids[:5], long], [ids[6], 999, long]]
        asked.clear()
        assert rows(ids, mark) == {i: want[i] for i in ids}
        assert len(kept._known) == 15  # those that were read last
        assert set(ids[7:]) <= set(kept._known)
        assert rows(list(range(1, 22)), mark) == {i: want[i] for i in [*ids, long]}
        assert len(kept._known) == 15
        asked.clear()
        assert rows(ids[:2], None) == {i: want[i] for i in ids[:2]}
        memory.add("written since")
        assert rows(ids[:2], mark) == {i: want[i] for i in ids[:2]}
        assert asked == [ids[:2], ids[:2]]  # of another moment, or of none that is known

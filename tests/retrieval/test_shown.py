"""Rows that are kept of found memories are those of the store, whoever changes it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from unittest import mock

from riemem.embed import HashingEmbedder
from riemem.memory import Memory
from riemem.retrieval import shown
from riemem.retrieval.shown import ShownRows
from riemem.store.reads import rows_by_id

WORDS = ["tea", "dog", "boat", "key", "moon", "salt", "fern", "coal", "harp", "nail"]


def opened(path: Path) -> Memory:
    return Memory.open(path, embedder=HashingEmbedder(dim=32))


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
            assert one._channel("default")._corpus.shown._known


def test_a_row_is_read_once_and_only_so_many_are_kept(tmp_path: Path) -> None:
    with opened(tmp_path / "me.db") as memory:
        ids = memory.add_many([{"text": f"turn {i}"} for i in range(20)])
        long = memory.add("x" * 3000)
        store, kept = memory._store, ShownRows(memory._store)
        asked: list[list[int]] = []

        def counted(store: Any, ids: Any) -> Any:
            asked.append(list(ids))
            return rows_by_id(store, ids)

        def rows(wanted: list[int], mark: int | None) -> dict[int, Any]:
            with store.reading():
                return kept.of(wanted, mark)

        with mock.patch.object(shown, "rows_by_id", counted), mock.patch.object(shown, "_MOST", 15):
            mark = store.mark()
            want = rows_by_id(store, [*ids, long])
            assert rows([*ids[:5], long], mark) == {i: want[i] for i in [*ids[:5], long]}
            assert list(rows([ids[6], *ids[:5], 999, long], mark)) == [ids[6], *ids[:5], long]
            assert asked == [[*ids[:5], long], [ids[6], 999, long]]
            asked.clear()
            assert rows(ids, mark) == {i: want[i] for i in ids}
            assert len(kept._known) <= 15
            asked.clear()
            assert rows(ids[:2], None) == {i: want[i] for i in ids[:2]}
            memory.add("written since")
            assert rows(ids[:2], mark) == {i: want[i] for i in ids[:2]}
            assert asked == [ids[:2], ids[:2]]  # of another moment, or of none that is known

"""A store's mark changes with every write, so that nothing old is taken for what is there."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import StoreError
from riemem.memory import Memory
from riemem.store import Store
from riemem.store.remembered import holding, remembered
from riemem.store.trust import trust_of

OTHER = """
import sys
from riemem.embed import HashingEmbedder
from riemem.memory import Memory
with Memory.open(sys.argv[1], embedder=HashingEmbedder(dim=32)) as memory:
    exec(sys.argv[2])
"""


def elsewhere(path: Path, code: str) -> None:
    subprocess.run([sys.executable, "-c", OTHER, str(path), code], check=True)


def opened(path: Path) -> Memory:
    return Memory.open(path, embedder=HashingEmbedder(dim=32))


def test_the_mark_changes_with_each_write_and_with_nothing_else(tmp_path: Path) -> None:
    with opened(tmp_path / "me.db") as memory, opened(tmp_path / "me.db") as other:
        store = memory._store
        marks = [store.mark()]

        def written() -> None:
            marks.append(store.mark())
            assert marks[-1] == store.mark()
            assert marks[-1] not in marks[:-1]

        first = memory.add("tea in the harbour")
        written()
        memory.search("tea")
        memory.list()
        assert store.mark() == marks[-1]
        memory.update(first, text="tea at home")
        written()
        second = other.add("a red kite")
        written()
        other.used(second)
        written()
        elsewhere(tmp_path / "me.db", "memory.add('from another process', source='there')")
        written()
        memory.forget(first)
        written()
        other.maintain()
        written()
        memory.compact()
        assert store.mark() not in marks[:-2]


def test_within_a_reading_the_mark_is_that_of_its_moment(tmp_path: Path) -> None:
    with Store.open(tmp_path / "me.db") as store:
        with store.reading():
            before = store.mark()
            with store.writing():
                pass
            assert store.mark() == before
        assert store.mark() != before


def test_a_store_with_one_connection_has_no_mark(tmp_path: Path) -> None:
    with opened(tmp_path / "me.db") as memory:
        memory.add("tea")
    with Store.open(":memory:") as store:
        assert store.mark() is None
    with Store.open(tmp_path / "me.db", readonly=True) as store:
        assert store.mark() is None
    with pytest.raises(StoreError, match="closed"):
        store.mark()


def test_what_was_read_is_kept_until_somebody_writes(tmp_path: Path) -> None:
    asked = []
    with Store.open(tmp_path / "me.db") as store:

        def revision(connection: object) -> int:
            asked.append(1)
            return store.revision()

        mark = store.mark()
        assert [remembered(store, "revision", revision, mark) for _ in range(3)] == [0, 0, 0]
        assert len(asked) == 1
        assert remembered(store, "revision", revision, None) == 0
        assert len(asked) == 2
        with store.writing():
            pass
        assert remembered(store, "revision", revision, store.mark()) == 1
        assert len(asked) == 3


def test_which_notes_there_are_is_asked_again_after_a_write(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with opened(path) as memory, opened(path) as other:
        store = memory._store
        plain = memory.add("Ana lives in Porto")
        assert holding(store) == frozenset()
        assert trust_of(store, [plain]) == {}
        other.add("tea", source="a book")
        assert holding(store) == {"provenance"}
        other.used(plain, helped=True)
        assert holding(store) == {"provenance", "uses"}
        assert trust_of(store, [plain])[plain].confirmed == 1


def test_a_search_sees_every_write_of_others(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    words = ["harbour", "kettle", "violin"]
    with opened(path) as memory, opened(path) as other:
        memory.add("a first turn about lanterns")
        assert memory.search("lanterns")[0].superseded_by == ()
        for number, word in enumerate(words, 2):
            other.add(f"the {word} of old", source=word)
            best = memory.search(word, k=1)[0]
            assert (best.id, best.source) == (number, word)
            assert memory.recall(word, token_budget=100, count_tokens=len).hits
        other.update(2, text="an orchard in the rain")
        assert memory.search("orchard", k=1)[0].text == "an orchard in the rain"
        other.forget(2)
        assert "orchard" not in " ".join(hit.text for hit in memory.search("orchard"))


def test_searches_in_threads_see_what_was_added_before_them(tmp_path: Path) -> None:
    with opened(tmp_path / "me.db") as memory:
        memory.add("turn 0")
        wrong: list[str] = []

        def work(own: int) -> None:
            for i in range(8):
                added = memory.add(f"word{own}x{i} in a turn")
                found = [hit.id for hit in memory.search(f"word{own}x{i}", k=3)]
                if added not in found:
                    wrong.append(f"{own}, {i}: {added} not in {found}")

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []

"""The vectors of tokens in a store: written with every memory, and gone with it."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from riemem.embed import HashingEmbedder, TokenVectors
from riemem.errors import (
    ArgumentError,
    DTypeError,
    ModelNotFoundError,
    NotFiniteError,
    SchemaVersionError,
    ShapeError,
    StoreReadOnlyError,
)
from riemem.memory import Memory
from riemem.retrieval import token_keeping
from riemem.retrieval.embedding import TurnEmbedder
from riemem.retrieval.token_rows import FORM, ROW_BYTES, read_rows, token_rows
from riemem.store.reads import token_rows_of

TEXTS = ["the red kite over the harbour", "and of the", "two tickets for the tram, please"]


PLACE = np.zeros(1, np.int32)
ONE = TokenVectors(PLACE, PLACE + 1, np.ones((1, 4), np.float32))


class Plain:
    """An embedder that gives no tokens."""

    def __init__(self) -> None:
        self._own = HashingEmbedder(dim=64)
        self.identity, self.dim, self.max_tokens = self._own.identity, 64, 10**6

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return self._own.embed(texts)

    def windows(self, text: str) -> Sequence[str]:
        return [text]


class Worth(HashingEmbedder):
    """Its tokens are worth keeping."""

    tokens_by_default = True


class Pieces(HashingEmbedder):
    """Windows of 40 characters that overlap by ten, as a list that does not say where they lie."""

    def windows(self, text: str) -> Any:
        return [text[i : i + 40] for i in range(0, max(1, len(text) - 10), 30)]


def open_at(path: Path, embedder: Any = None, **options: Any) -> Memory:
    return Memory.open(path, embedder=embedder or HashingEmbedder(dim=64), **options)


def rows_of(memory: Memory, ids: Sequence[int]) -> dict[int, bytes]:
    with memory._store.reading() as connection:
        return token_rows_of(connection, ids)


def expected(text: str) -> bytes:
    (tokens,) = HashingEmbedder(dim=64).embed_with_tokens([text])[1]
    return token_rows(text, tokens)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "me.db"
    with open_at(path) as memory:
        memory.add_many([{"text": text} for text in TEXTS])
    return path


@pytest.fixture
def memory(path: Path) -> Iterator[Memory]:
    with open_at(path) as memory:
        yield memory


def execute(path: Path, sql: str, *values: Any) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(sql, values).fetchall()


class TestWriting:
    def test_words_without_their_context_are_not_kept_until_asked(self, memory: Memory) -> None:
        assert rows_of(memory, [1, 2, 3]) == {}
        assert memory.stats()["late_interaction"] == {
            "on": False,
            "memories": 0,
            "missing": 3,
            "bytes": 0,
            "form": None,
        }
        assert "token_vectors" not in memory.check().counts

    def test_those_that_are_there_are_made(self, memory: Memory) -> None:
        memory.add("elsewhere", profile="other")
        state = memory.enable_late_interaction()
        found = rows_of(memory, range(1, 9))
        assert found == {i + 1: expected(text) for i, text in enumerate([*TEXTS, "elsewhere"])}
        assert read_rows(found[1]).shape == (4, ROW_BYTES)  # red, kite, over, harbour
        assert found[2] == b""
        assert (state.on, state.memories, state.missing) == (True, 4, 0)
        assert state.bytes == sum(map(len, found.values()))
        assert memory.stats()["late_interaction"]["form"] == FORM
        report = memory.check()
        assert report.ok, report.problems
        assert report.counts["token_vectors"] == 4

    def test_every_later_write_adds_them(self, memory: Memory, path: Path) -> None:
        memory.enable_late_interaction()
        with open_at(path) as other:  # of another process it would be the same
            one = other.add("a lighthouse", speaker="Ana", metadata={"caption": "blue door"})
        two = memory.add_many([{"text": "first boat"}, {"text": "second boat"}])
        three = memory.add("first boat", duplicates="skip")
        assert three == two[0]
        found = rows_of(memory, [one, *two])
        assert found == {
            one: expected('Ana said, "a lighthouse" [shares blue door]'),
            two[0]: expected("first boat"),
            two[1]: expected("second boat"),
        }

    def test_of_several_some_of_which_are_there(self, memory: Memory) -> None:
        memory.enable_late_interaction()
        memory.add("old", key="a")
        items = [{"text": "x", "key": "a"}, {"text": "green tea", "key": "b"}, {"text": "cup"}]
        items.append({"text": "never", "key": "b"})
        ids = memory.add_many(items)
        assert ids[0] == 4
        assert ids[1] == ids[3]
        found = rows_of(memory, ids)
        assert found == {4: expected("old"), 5: expected("green tea"), 6: expected("cup")}

    def test_an_update_makes_them_again(self, memory: Memory) -> None:
        memory.enable_late_interaction()
        memory.update(1, metadata={"n": 1})
        assert rows_of(memory, [1])[1] == expected(TEXTS[0])
        memory.update(1, text="a blue whale")
        memory.update(3, speaker="Ana")
        found = rows_of(memory, [1, 3])
        assert found == {1: expected("a blue whale"), 3: expected(f'Ana said, "{TEXTS[2]}"')}

    def test_who_wrote_before_and_stores_after_adds_them(
        self, memory: Memory, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Another process switches them on between the embedding and the transaction.
        before = token_keeping.keeps_tokens
        answers = [False, False, False]
        monkeypatch.setattr(
            token_keeping, "keeps_tokens", lambda s: answers.pop() if answers else before(s)
        )
        monkeypatch.setattr(
            "riemem.retrieval.importing.keeps_tokens",
            lambda s: answers.pop() if answers else before(s),
        )
        with open_at(path) as other:
            exported = io.StringIO()
            other.export(exported, vectors=True)
            other.enable_late_interaction()
        one = memory.add("a lighthouse")
        memory.update(1, text="a blue whale")
        ids = memory.import_(io.StringIO(exported.getvalue())).ids
        assert answers == []
        found = rows_of(memory, [one, 1, *ids.values()])
        assert found.pop(one) == expected("a lighthouse")
        assert found.pop(1) == expected("a blue whale")
        assert found == {ids[i]: expected(text) for i, text in enumerate(TEXTS, start=1)}

    @pytest.mark.parametrize("vectors", [False, True])
    def test_an_import_makes_them(self, memory: Memory, vectors: bool) -> None:
        exported = io.StringIO()
        memory.enable_late_interaction()
        memory.export(exported, vectors=vectors)
        assert (FORM in exported.getvalue()) == vectors
        with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as other:
            other.enable_late_interaction()
            other.import_(io.StringIO(exported.getvalue()))
            assert rows_of(other, [1, 2, 3]) == rows_of(memory, [1, 2, 3])
            assert other.stats()["late_interaction"]["on"]

    @pytest.mark.parametrize("absent", [True, False])
    def test_vectors_that_came_where_their_model_is_not(self, path: Path, absent: bool) -> None:
        class Elsewhere(HashingEmbedder):
            """No model here, or another one than the store's; nobody named it."""

            @property
            def identity(self) -> str:
                if absent:
                    raise ModelNotFoundError("it is elsewhere")
                return "another"

        exported = io.StringIO()
        with open_at(path) as memory:
            memory.enable_late_interaction()
            memory.export(exported, vectors=True)
        with open_at(path) as memory:
            memory._embedder = TurnEmbedder(Elsewhere(dim=64))
            without = exported.getvalue().replace(f'"form":"{FORM}"', '"form":"of-another-time"')
            assert without != exported.getvalue()
            ids = memory.import_(io.StringIO(without), profile="p").ids
            assert memory.stats()["late_interaction"]["missing"] == 3
        with open_at(path) as memory:
            assert memory.enable_late_interaction().missing == 0
            assert rows_of(memory, [ids[1]])[ids[1]] == expected(TEXTS[0])

    def test_an_export_brings_them(self, memory: Memory, tmp_path: Path) -> None:
        memory.enable_late_interaction()
        memory.forget(2)
        exported, again, plain = io.StringIO(), io.StringIO(), io.StringIO()
        memory.export(exported, vectors=True)
        memory.export(plain)
        assert json.loads(exported.getvalue().splitlines()[0])["version"] == 2
        assert json.loads(plain.getvalue().splitlines()[0])["version"] == 1
        with open_at(tmp_path / "new.db", Plain()) as other:  # nothing here could make them
            assert other.import_(io.StringIO(exported.getvalue())).embedded == 0
            assert rows_of(other, [1, 2, 3]) == rows_of(memory, [1, 3])
            assert other.stats()["late_interaction"]["on"]
            assert other.check().ok
            other.export(again, vectors=True)
        assert exported.getvalue().splitlines()[1:] == again.getvalue().splitlines()[1:]
        with open_at(tmp_path / "new.db") as other:
            assert other.search("kite").scoring.startswith("late-interaction")

    def test_where_an_export_brings_none_a_new_store_keeps_none(
        self, memory: Memory, tmp_path: Path
    ) -> None:
        exported = io.StringIO()
        memory.export(exported, vectors=True)
        with open_at(tmp_path / "new.db", Worth(dim=64)) as other:
            assert other.import_(io.StringIO(exported.getvalue())).embedded == 0
            assert not other.stats()["late_interaction"]["on"]

    @pytest.mark.parametrize(
        ("found", "other", "message"),
        [
            ('"row_bytes":64', '"row_bytes":0', "line 1: row_bytes: expected an int >= 1"),
            ('"row_bytes":64', '"row_bytes":"64"', "line 1: row_bytes: expected an int, got str"),
            ('"tokens":{', '"tokens":7,"at_":{', "line 1: tokens: expected form and row_bytes"),
            ('"vectors":{', '"victors":{', "line 1: tokens: expected .* beside vectors"),
            ('"row_bytes":64', '"row_bytes":63', "line 2: tokens: expected at most 255 rows of 63"),
            ('"tokens":"', '"tokens":"!', r"line 2: tokens: expected base64"),
            ('"tokens":{', '"takens":{', "line 2: tokens: the first line does not say"),
            ('"version":2', '"version":3', "versions up to 2"),
        ],
    )
    def test_an_export_that_does_not_fit_is_refused(
        self, memory: Memory, found: str, other: str, message: str
    ) -> None:
        memory.enable_late_interaction()
        exported = io.StringIO()
        memory.export(exported, vectors=True)
        assert found in exported.getvalue()
        with (
            open_at(Path(":memory:")) as new,
            pytest.raises((ArgumentError, DTypeError, SchemaVersionError), match=message),
        ):
            new.import_(io.StringIO(exported.getvalue().replace(found, other, 1)))

    def test_a_backup_has_them(self, memory: Memory, tmp_path: Path) -> None:
        memory.enable_late_interaction()
        memory.backup(tmp_path / "copy.db")
        with open_at(tmp_path / "copy.db") as copy:
            assert rows_of(copy, [1, 2, 3]) == rows_of(memory, [1, 2, 3])
            assert copy.stats()["late_interaction"]["on"]
            assert copy.check().ok

    def test_an_embedder_without_tokens(self, memory: Memory, path: Path) -> None:
        memory.enable_late_interaction()
        with open_at(path, Plain()) as other:
            one = other.add("a lighthouse")
            other.update(1, text="a blue whale")
            exported = io.StringIO()
            other.export(exported, vectors=True)
            other.import_(io.StringIO(exported.getvalue()), profile="again")
            with pytest.raises(ArgumentError, match=r"embed_with_tokens\), got hashing-v1"):
                other.enable_late_interaction()
        assert sorted(rows_of(memory, range(1, 20))) == [2, 3, 6, 7]  # what the file brought
        assert memory.check().ok
        state = memory.enable_late_interaction()
        assert (state.memories, state.missing) == (8, 0)
        assert rows_of(memory, [one, 1])[one] == expected("a lighthouse")

    def test_a_long_text_has_the_tokens_of_all_its_windows(self, tmp_path: Path) -> None:
        text = " ".join(f"{i}word" for i in range(10, 60))
        with open_at(tmp_path / "p.db", Pieces(dim=64)) as memory:
            memory.enable_late_interaction()
            memory.add(text)
            rows = read_rows(rows_of(memory, [1])[1])
        whole = read_rows(expected(text))
        # Words that a window cuts in two have other vectors; no whole word is lost or doubled.
        same = [i for i, row in enumerate(rows) if any((row == w).all() for w in whole)]
        assert len({rows[i].tobytes() for i in same}) == len(same) > 40

    def test_whole_numbers_of_an_embedder_are_vectors_like_others(self, tmp_path: Path) -> None:
        class Whole(HashingEmbedder):
            def embed_with_tokens(self, texts: Sequence[str]) -> Any:
                vectors, tokens = super().embed_with_tokens(texts)
                made = [np.sign(own.vectors).astype(np.int8) for own in tokens]
                return vectors, [
                    TokenVectors(own.starts, own.ends, rows)
                    for own, rows in zip(tokens, made, strict=True)
                ]

        with open_at(tmp_path / "o.db", Whole(dim=64)) as memory:
            memory.enable_late_interaction()
            memory.add("Tea and Boats")
            assert read_rows(rows_of(memory, [1])[1]).shape == (2, ROW_BYTES)
            assert memory.search("tea").scoring.startswith("late-interaction")
            assert memory.check().ok

    def test_windows_that_are_no_pieces_of_the_text(self, tmp_path: Path) -> None:
        class Odd(HashingEmbedder):
            def windows(self, text: str) -> Any:
                return [text.upper(), text.lower()]

        with open_at(tmp_path / "o.db", Odd(dim=64)) as memory:
            memory.enable_late_interaction()
            memory.add("Tea and Boats")
            assert rows_of(memory, [1]) == {}
            assert memory.stats()["late_interaction"]["missing"] == 1

    @pytest.mark.parametrize(
        ("given", "error", "message"),
        [
            (None, DTypeError, r"expected \(vectors, tokens\), got NoneType"),
            ([TokenVectors(*np.zeros((2, 0), np.int32), np.zeros((0, 4)))], ShapeError, "of 2 "),
            (["a", "b"], DTypeError, "list of TokenVectors"),
            ([ONE, TokenVectors(PLACE, PLACE, np.ones((2, 4)))], ShapeError, "each of 1 starts"),
            ([ONE, TokenVectors(PLACE, PLACE, np.full((1, 4), np.nan))], NotFiniteError, "token's"),
        ],
    )
    def test_embedders_that_give_something_else(
        self, tmp_path: Path, given: Any, error: type[Exception], message: str
    ) -> None:
        class Wrong(HashingEmbedder):
            def embed_with_tokens(self, texts: Sequence[str]) -> Any:
                return None if given is None else (self.embed(texts), given)

        with open_at(tmp_path / "w.db", Wrong(dim=64)) as memory:
            memory.enable_late_interaction()
            with pytest.raises(error, match=message):
                memory.add_many([{"text": "a"}, {"text": "b"}])
            assert memory.list() == []


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from([*TEXTS, "boat", "tea and boats"])),
        st.tuples(st.just("update"), st.sampled_from(["a blue whale", "the of", "two boats"])),
        st.tuples(st.just("forget"), st.just("")),
        st.tuples(st.just("stop"), st.just("")),
        st.tuples(st.just("on"), st.just("")),
        st.tuples(st.just("off"), st.just("")),
    ),
    max_size=12,
)


class TestNewStores:
    def test_they_keep_them_from_the_first_memory_on(self, tmp_path: Path) -> None:
        with open_at(tmp_path / "new.db", Worth(dim=64)) as memory:
            assert not memory.stats()["late_interaction"]["on"]
            one = memory.add(TEXTS[0])
            (two,) = memory.add_many([{"text": TEXTS[2], "profile": "p"}])
            assert rows_of(memory, [one, two]) == {
                one: expected(TEXTS[0]),
                two: expected(TEXTS[2]),
            }
            assert memory.search("kite").scoring.startswith("late-interaction")
            memory.forget([one])
            memory.forget(profile="p")
            one = memory.add("later")
            assert list(rows_of(memory, [one])) == [one]
            assert memory.check().ok

    def test_an_import_of_texts_makes_them(self, memory: Memory, tmp_path: Path) -> None:
        exported = io.StringIO()
        memory.export(exported)
        with open_at(tmp_path / "new.db", Worth(dim=64)) as new:
            new.import_(io.StringIO(exported.getvalue()))
            assert rows_of(new, [1]) == {1: expected(TEXTS[0])}

    def test_unless_told_not_to(self, tmp_path: Path) -> None:
        path = tmp_path / "new.db"
        with open_at(path, Worth(dim=64)) as memory:
            assert not memory.disable_late_interaction().on
            assert memory.check().ok
        with open_at(path, Worth(dim=64)) as memory:
            memory.add(TEXTS[0])
            assert rows_of(memory, [1]) == {}
            assert memory.check(repair=True).ok
            memory.add(TEXTS[2])
            assert not memory.stats()["late_interaction"]["on"]
            assert memory.search("kite").scoring.startswith("default")
            assert memory.enable_late_interaction().memories == 2

    def test_embedding_an_empty_store_again_decides_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "new.db"
        open_at(path, Worth(dim=64)).close()
        Memory.reembed_store(path, embedder=Worth(dim=64))
        with open_at(path, Worth(dim=64)) as memory:
            memory.add(TEXTS[0])
            assert rows_of(memory, [1]) == {1: expected(TEXTS[0])}

    def test_an_empty_store_is_exported_as_one_can_import(self, tmp_path: Path) -> None:
        exported = io.StringIO()
        with open_at(tmp_path / "new.db", Worth(dim=64)) as memory:
            memory.enable_late_interaction()
            memory.export(exported, vectors=True)
        with open_at(tmp_path / "other.db", Worth(dim=64)) as memory:
            assert memory.import_(io.StringIO(exported.getvalue())).memories == 0

    def test_who_comes_with_the_first_memory_has_the_tokens(self, tmp_path: Path) -> None:
        path = tmp_path / "new.db"
        with open_at(path, Worth(dim=64)) as memory:
            memory.enable_late_interaction()
        with open_at(path, Worth(dim=32)) as memory:
            memory.add(TEXTS[0])
            assert memory.check().ok
            assert memory.search("kite").scoring.startswith("late-interaction")

    def test_what_was_made_before_stays_as_it_was(self, path: Path) -> None:
        with open_at(path, Worth(dim=64)) as memory:
            memory.forget([1, 2, 3])
            memory.add(TEXTS[0])
            assert not memory.stats()["late_interaction"]["on"]

    def test_of_two_who_write_first_the_first_decides(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "new.db"
        with open_at(path, Worth(dim=64)) as memory, open_at(path, Plain()) as other:
            before = token_keeping.may_begin

            def meanwhile(store: Any) -> bool:
                found = before(store)
                monkeypatch.undo()
                other.add("said first")
                return found

            monkeypatch.setattr(token_keeping, "may_begin", meanwhile)
            memory.add(TEXTS[0])
            assert not memory.stats()["late_interaction"]["on"]
            assert rows_of(memory, [1, 2]) == {}
            assert memory.check().ok

    def test_an_embedder_that_gives_none_changes_nothing(self, tmp_path: Path) -> None:
        with open_at(tmp_path / "new.db", Plain()) as memory:
            memory.add(TEXTS[0])
            found = memory.search("kite")
            assert (found.skipped, found.scoring.split(":")[0]) == ((), "default")


@given(STEPS)
@settings(max_examples=30)
def test_every_memory_has_the_rows_of_its_text_or_none(steps: list[tuple[str, str]]) -> None:
    with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as memory:
        said: dict[int, str] = {}
        on, sure = False, True
        for i, (step, text) in enumerate(steps):
            chosen = sorted(said)[i % len(said)] if said else None
            if step == "add":
                said[memory.add(text)] = text
            elif step == "update" and chosen is not None:
                memory.update(chosen, text=text)
                said[chosen] = text
            elif step == "forget" and chosen is not None:
                memory.forget(chosen)
                del said[chosen]
            elif step == "stop":
                memory.enable_late_interaction(progress=lambda done, total: False)
                sure = sure and on
                on = True
            elif step == "on":
                memory.enable_late_interaction()
                on = sure = True
            elif step == "off":
                memory.disable_late_interaction()
                on, sure = False, True
        found = rows_of(memory, range(40))
        right = {i: expected(text) for i, text in said.items()}
        assert found.items() <= right.items()
        if sure:
            assert found == (right if on else {})
        state = memory.stats()["late_interaction"]
        assert (state["on"], state["memories"]) == (on, len(found))
        assert state["memories"] + state["missing"] == len(said)
        report = memory.check()
        assert report.ok, report.problems


class TestFilling:
    def test_what_is_made_stays_and_the_rest_is_made_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(token_keeping, "_PART", 4)
        seen: list[tuple[int, int]] = []

        def progress(done: int, total: int) -> bool:
            seen.append((done, total))
            return done < 8

        with open_at(tmp_path / "me.db") as memory:
            memory.add_many([{"text": f"boat {i}"} for i in range(10)])
            state = memory.enable_late_interaction(progress=progress)
            assert seen == [(0, 10), (4, 10), (8, 10)]
            assert (state.on, state.memories, state.missing) == (True, 8, 2)
            assert memory.check().ok
            assert memory.enable_late_interaction().missing == 0
            assert rows_of(memory, [10]) == {10: expected("boat 9")}

    def test_what_changes_meanwhile_keeps_its_own(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Slow(HashingEmbedder):
            hook: Any = None

            def embed_with_tokens(self, texts: Sequence[str]) -> Any:
                found = super().embed_with_tokens(texts)
                if self.hook is not None:
                    self.hook()
                return found

        embedder = Slow(dim=64)
        with open_at(path, embedder) as memory, open_at(path) as other:

            def meanwhile() -> None:
                other.update(1, text="a blue whale")
                other.forget(3)

            embedder.hook = meanwhile
            state = memory.enable_late_interaction()
            embedder.hook = None
            assert rows_of(memory, [1, 2, 3]) == {1: expected("a blue whale"), 2: b""}
            assert (state.memories, state.missing) == (2, 0)
            embedder.hook = other.disable_late_interaction
            execute(path, "DELETE FROM token_vectors")
            state = memory.enable_late_interaction()
            assert (state.on, state.memories) == (False, 0)
            assert memory.check().ok

    def test_a_store_that_may_only_be_read(self, path: Path) -> None:
        with open_at(path, readonly=True) as memory:
            with pytest.raises(StoreReadOnlyError):
                memory.enable_late_interaction()
            with pytest.raises(StoreReadOnlyError):
                memory.disable_late_interaction()

    def test_embedding_again_makes_them_again(self, memory: Memory, path: Path) -> None:
        memory.enable_late_interaction()
        memory.close()
        new = HashingEmbedder(dim=64, seed=5)
        Memory.reembed_store(path, embedder=new)
        with open_at(path, new) as again:
            (tokens,) = new.embed_with_tokens(TEXTS[:1])[1]
            assert rows_of(again, [1])[1] == token_rows(TEXTS[0], tokens) != expected(TEXTS[0])
            assert again.check().ok
        plain = Plain()
        Memory.reembed_store(path, embedder=plain)
        with open_at(path, plain) as again:
            assert rows_of(again, [1, 2, 3]) == {}
            assert again.stats()["late_interaction"]["on"]
            assert again.check().ok
        Memory.reembed_store(path, embedder=HashingEmbedder(dim=64))
        with open_at(path) as again:
            assert rows_of(again, [1])[1] == expected(TEXTS[0])


class TestErasing:
    MARK = "lighthouse crocodile"

    def all_bytes(self, path: Path) -> bytes:
        return b"".join(f.read_bytes() for f in sorted(path.parent.glob(path.name + "*")))

    @pytest.mark.parametrize("way", ["forget", "update", "disable", "profile", "reembed"])
    def test_not_a_byte_is_left(self, path: Path, way: str) -> None:
        mark = expected(self.MARK)
        half = mark[ROW_BYTES : 2 * ROW_BYTES]
        with open_at(path) as memory:
            memory.enable_late_interaction()
            one = memory.add(self.MARK, profile="p")
            memory.add("stays", profile="q")
            assert mark in self.all_bytes(path)  # the control: it can be found this way
            if way == "forget":
                receipt = memory.forget(one, profile="p")
                assert receipt.bytes == len(self.MARK) + 2 + 4 * 64 + len(mark)
            elif way == "update":
                memory.update(one, text="tea", profile="p")
                memory.compact()
            elif way == "disable":
                state = memory.disable_late_interaction()
                assert not state.on
                assert not memory.stats()["erasure_pending"]
            elif way == "profile":
                memory.forget(profile="p")
            else:
                memory.close()
                Memory.reembed_store(path, embedder=Plain())
                with open_at(path) as again:
                    again.compact()
            assert half not in self.all_bytes(path)
        assert half not in self.all_bytes(path)
        kept = expected("stays") in self.all_bytes(path)
        assert kept == (way not in ("disable", "reembed"))

    def test_a_plain_delete_leaves_them_behind(self, tmp_path: Path) -> None:
        # The negative control: without what the store does, the bytes are found.
        path = tmp_path / "plain.db"
        mark = expected(self.MARK)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA secure_delete = OFF")
            connection.execute("CREATE TABLE t (data BLOB)")
            connection.executemany("INSERT INTO t VALUES (?)", [(mark,)] * 9)
            connection.commit()
            connection.execute("DELETE FROM t")
            connection.commit()
        assert mark in self.all_bytes(path)

    def test_off_is_as_never_on(self, memory: Memory) -> None:
        before = [(hit.id, hit.score) for hit in memory.search("kite tram")]
        memory.enable_late_interaction()
        memory.disable_late_interaction()
        assert [(hit.id, hit.score) for hit in memory.search("kite tram")] == before
        memory.add("later")
        assert rows_of(memory, [1, 2, 3, 4]) == {}
        assert memory.disable_late_interaction().on is False
        assert memory.check().ok


class TestChecking:
    @pytest.mark.parametrize(
        ("sql", "problem"),
        [
            ("UPDATE token_vectors SET data = x'01' WHERE memory_id = 1", "size: memories 1"),
            ("UPDATE token_vectors SET data = zeroblob(64 * 256)", "size: memories 1, 2, 3"),
            ("INSERT INTO token_vectors VALUES (77, x'')", "row 77 belongs to no memory"),
            ("DELETE FROM meta WHERE key = 'token vectors'", "the store keeps none"),
            ("UPDATE meta SET value = '{' WHERE key = 'token vectors'", "cannot be read"),
            (
                "UPDATE meta SET value = replace(value, 'hashing', 'other') "
                "WHERE key = 'token vectors'",
                "of the embedder other",
            ),
            (
                "UPDATE meta SET value = replace(value, 'rotated', 'former') "
                "WHERE key = 'token vectors'",
                "of the form 'former",
            ),
        ],
    )
    def test_what_is_wrong_is_told_and_put_right(self, path: Path, sql: str, problem: str) -> None:
        with open_at(path) as memory:
            memory.enable_late_interaction()
            right = rows_of(memory, [1, 2, 3])
        execute(path, sql)
        with open_at(path) as memory:
            report = memory.check()
            assert any(problem in line for line in report.problems), report.problems
            assert len(report.problems) <= 2
            report = memory.check(repair=True)
            assert report.ok, report.problems
            assert memory.check().ok
            lost = "keeps none" in problem or "cannot be read" in problem
            assert rows_of(memory, [1, 2, 3, 77]) == ({} if lost else right)
            assert memory.stats()["late_interaction"]["on"] == (not lost)

    def test_a_repair_without_the_model_removes(self, path: Path) -> None:
        with open_at(path) as memory:
            memory.enable_late_interaction()
        execute(path, "UPDATE token_vectors SET data = x'01' WHERE memory_id = 1")
        with open_at(path, Plain()) as memory:
            assert memory.check(repair=True).ok
            assert sorted(rows_of(memory, [1, 2, 3])) == [2, 3]

    def test_vectors_that_are_damaged_are_made_with_their_tokens(self, path: Path) -> None:
        with open_at(path) as memory:
            memory.enable_late_interaction()
            right = rows_of(memory, [1, 2, 3])
        execute(path, "DELETE FROM vectors WHERE memory_id = 1")
        assert execute(path, "SELECT count(*) FROM token_vectors") == [(2,)]  # they went along
        with open_at(path) as memory:
            assert memory.check(repair=True).ok
            assert rows_of(memory, [1, 2, 3]) == right

    def test_the_record_names_form_and_embedder(self, path: Path) -> None:
        with open_at(path) as memory:
            memory.enable_late_interaction()
        ((record,),) = execute(path, "SELECT value FROM meta WHERE key = 'token vectors'")
        assert json.loads(record) == {
            "form": FORM,
            "row_bytes": ROW_BYTES,
            "embedder": HashingEmbedder(dim=64).identity,
        }

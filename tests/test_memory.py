"""The facade: what a user does with it, and what comes back."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from riemem.embed import HashingEmbedder, render_turn
from riemem.errors import (
    BudgetTooSmallError,
    EmbedderMismatchError,
    MemoryNotFoundError,
    RiememError,
    StoreCorruptError,
    StoreError,
    StoreReadOnlyError,
)
from riemem.memory import Context, Dropped, Hit, Memory, SearchResult
from riemem.packing import parse
from riemem.retrieval.fusion import rankings
from riemem.store.reads import stored_vectors

TURNS: list[dict[str, Any]] = [
    {"text": "I've taken up photography", "speaker": "Dave", "session": "s1",
     "when": "2023-10-19T14:02:00+00:00", "metadata": {"topic": "hobby"}},
    {"text": "My sister moved to Porto", "speaker": "Ana", "session": "s1",
     "when": "2023-10-19T14:03:00+00:00", "metadata": {"topic": "family", "year": 2023}},
    {"text": "I sold the red van", "speaker": "Ana", "session": "s2",
     "when": "2024-02-01T09:00:00+01:00"},
    {"text": "The spare key is under the blue pot", "speaker": "Dave", "session": "s2",
     "when": "2024-02-01T08:30:00Z", "metadata": {"topic": "house"}},
]  # fmt: skip


def words(text: str) -> int:
    return len(text.split())


@pytest.fixture
def embedder() -> HashingEmbedder:
    return HashingEmbedder(dim=64)


@pytest.fixture
def memory(tmp_path: Path, embedder: HashingEmbedder) -> Any:
    with Memory.open(tmp_path / "me.db", embedder=embedder) as memory:
        memory.add_many(TURNS)
        yield memory


def test_what_goes_in_comes_out(tmp_path: Path, embedder: HashingEmbedder) -> None:
    before = datetime.now(timezone.utc)
    with Memory.open(tmp_path / "me.db", embedder=embedder) as memory:
        assert memory.add_many(TURNS) == [1, 2, 3, 4]
    with Memory.open(tmp_path / "me.db", embedder=embedder) as memory:
        for i, turn in enumerate(TURNS, start=1):
            record = memory.get(i)
            assert record.id == i
            assert (record.text, record.speaker, record.session) == (
                turn["text"],
                turn["speaker"],
                turn["session"],
            )
            assert record.metadata == turn.get("metadata", {})
            assert record.profile == "default"
            assert before <= datetime.fromisoformat(record.created_at) <= datetime.now(timezone.utc)
        assert memory.get(3).when == "2024-02-01T08:00:00+00:00"
        assert [r.id for r in memory.list()] == [1, 2, 3, 4]
        assert [r.id for r in memory.list(order="-time", limit=2)] == [4, 3]
        assert [r.id for r in memory.list(order="id", offset=3)] == [4]
        assert memory.list(limit=0) == []


def test_a_hit_has_every_field_of_the_documentation(memory: Memory) -> None:
    hits = memory.search("photography", k=2)
    assert isinstance(hits, list)
    assert isinstance(hits, SearchResult)
    hit = hits[0]
    names = "id text score speaker session when created_at metadata channels why"
    names += " source trust superseded_by"
    assert " ".join(field.name for field in dataclasses.fields(Hit)) == names
    assert (hit.id, hit.speaker, hit.session) == (1, "Dave", "s1")
    assert hit.text == "I've taken up photography"
    assert hit.when == "2023-10-19T14:02:00+00:00"
    assert hit.metadata == {"topic": "hobby"}
    assert set(hit.channels) == {*rankings["default"].weights, "neighbours", "answers"}
    assert sum(hit.channels.values()) == pytest.approx(hit.score)
    assert hit.why == ""
    assert hits[0].score > hits[1].score
    assert hits.scoring.startswith("default: cosine: 4 samples")
    assert hits.skipped == ()
    explained = memory.search("photography", k=1, explain=True)[0]
    assert {"dense.score", "lexical.score", "cosine", "chunk"} < set(explained.channels)
    assert explained.why.startswith("lexical +")
    with pytest.raises(dataclasses.FrozenInstanceError):
        hit.text = "forged"  # type: ignore[misc]


def test_the_score_is_the_cosine_with_the_rendered_turn(
    memory: Memory, embedder: HashingEmbedder
) -> None:
    texts = [render_turn(turn["text"], speaker=turn["speaker"]) for turn in TURNS]
    rows = embedder.embed(["who moved?", *texts]).astype(np.float64)
    expected = rows[1:] @ rows[0]
    hits = memory.search("who moved?", k=4, ranking="cosine")
    assert [hit.id - 1 for hit in hits] == np.argsort(-expected, kind="stable").tolist()
    assert [hit.score for hit in hits] == pytest.approx(np.sort(expected)[::-1], abs=1e-6)


def test_k_counts(memory: Memory) -> None:
    assert len(memory.search("van", k=10**30)) == 4
    assert len(memory.search("van", k=np.int64(2))) == 2  # type: ignore[arg-type]
    assert memory.search("van", k=0) == []
    assert len(memory.search("van")) == 4


def test_scopes_and_as_of(memory: Memory) -> None:
    assert {hit.id for hit in memory.search("van", session="s1")} == {1, 2}
    assert [hit.id for hit in memory.search("van", filters={"topic": "house"})] == [4]
    assert {hit.id for hit in memory.search("van", at="2023-12-31T00:00:00Z")} == {1, 2}
    assert {hit.id for hit in memory.search("van", at="2024-02-01T08:00:00Z")} == {1, 2, 3}
    assert memory.search("van", at="1999-01-01T00:00:00Z") == []
    assert memory.search("van", filters={"speaker": "Nobody"}) == []


def test_profiles_never_see_each_other(tmp_path: Path, embedder: HashingEmbedder) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=embedder, profile="ana") as ana:
        mine = ana.add("my diary", session="s", metadata={"a": 1})
        theirs = ana.add("his diary", profile="ben", session="s", metadata={"a": 1})
        assert [hit.id for hit in ana.search("diary")] == [mine]
        assert [hit.id for hit in ana.search("diary", profile="ben")] == [theirs]
        assert [hit.id for hit in ana.search("diary", filters={"ids": [mine, theirs]})] == [mine]
        assert [record.id for record in ana.list(session="s")] == [mine]
        assert ana.stats()["memories"] == 1
        assert ana.stats()["profiles"] == {"ana": 1, "ben": 1}
        for use in (
            lambda: ana.get(theirs),
            lambda: ana.update(theirs, text="x"),
            lambda: ana.forget(theirs),
            lambda: ana.forget([mine, theirs]),
        ):
            with pytest.raises(MemoryNotFoundError, match=str(theirs)):
                use()
        assert ana.forget(filters={"a": 1}).ids == (mine,)
        assert ana.get(theirs, profile="ben").text == "his diary"
        assert ana.search("diary", profile="nobody") == []
    with Memory.open(path, embedder=embedder, profile="ben") as ben:
        assert [record.text for record in ben.list()] == ["his diary"]


def test_a_filtered_search_equals_brute_force_over_the_scope(
    tmp_path: Path, embedder: HashingEmbedder
) -> None:
    # The ten memories of the scope rank about in the middle of all. Without the channel
    # "likeness", to which a scope lends its own best.
    rule = dataclasses.replace(
        rankings["default"], weights={"dense": 3.5, "lexical": 5.0, "substance": 3.5}
    )
    rng = np.random.default_rng(7)
    texts = [
        " ".join(rng.choice(["tea", "dog", "boat", "key", "moon"], 6)) + f" {i}" for i in range(400)
    ]
    with Memory.open(tmp_path / "me.db", embedder=embedder) as memory:
        memory.add_many([{"text": text} for text in texts])
        order = [hit.id for hit in memory.search("tea boat", k=400, ranking=rule)]
        for memory_id in order[200:210]:
            memory.update(memory_id, metadata={"scope": "B"})
        hits = memory.search("tea boat", k=5, filters={"scope": "B"}, ranking=rule)
        assert [hit.id for hit in hits] == order[200:205]


def test_ids_are_never_given_twice(memory: Memory) -> None:
    memory.forget(4)
    assert memory.add("new") == 5
    memory.forget([1, 2, 3, 5])
    assert memory.list() == []
    assert memory.search("new") == []
    assert memory.add("newer") == 6


def test_a_key_makes_a_repeated_add_harmless(memory: Memory) -> None:
    first = memory.add("tea", key="t1")
    assert [memory.add("tea", key="t1") for _ in range(3)] == [first] * 3
    assert memory.add_many(
        [{"text": "x"}, {"text": "tea", "key": "t1"}, {"text": "y", "key": "t2"},
         {"text": "y", "key": "t2"}]
    ) == [first + 1, first, first + 2, first + 2]  # fmt: skip
    assert memory.add("tea", key="t1", profile="other") not in (first, first + 2)
    assert len(memory.list()) == 4 + 3
    assert memory.get(first).key == "t1"
    memory.forget(first)
    assert memory.add("tea", key="t1") > first
    assert memory.add("tea") != memory.add("tea")  # without a key every add is a memory


def test_update_changes_everything_or_nothing(memory: Memory, embedder: HashingEmbedder) -> None:
    before = memory.get(3)
    record = memory.update(3, text="I sold the van and cycle now")
    assert record == memory.get(3)
    assert (record.text, record.speaker, record.session, record.when, record.metadata) == (
        "I sold the van and cycle now", "Ana", "s2", before.when, {}
    )  # fmt: skip
    assert record.created_at == before.created_at
    assert record.updated_at >= before.updated_at
    expected = embedder.embed([render_turn(record.text, speaker="Ana")])
    assert np.allclose(stored_vectors(memory._store, 3), expected, atol=1e-6)
    assert memory.search("cycle", k=1)[0].id == 3
    record = memory.update(3, speaker=None, session=None, metadata={"n": 1}, when=TURNS[0]["when"])
    assert (record.speaker, record.session, record.metadata) == (None, None, {"n": 1})
    assert np.allclose(
        stored_vectors(memory._store, 3), embedder.embed([record.text]), atol=1e-6
    )  # the speaker is part of the rendering
    assert [r.id for r in memory.list(filters={"n": 1})] == [3]
    assert memory.check().ok


def test_an_update_without_a_new_rendering_does_not_embed(tmp_path: Path) -> None:
    class Counting(HashingEmbedder):
        calls = 0

        def embed(self, texts: Any) -> Any:
            self.calls += 1
            return super().embed(texts)

    embedder = Counting(dim=8)
    with Memory.open(tmp_path / "me.db", embedder=embedder) as memory:
        i = memory.add("tea")
        calls = embedder.calls
        memory.update(i, metadata={"a": 1}, when="2020-01-01T00:00:00Z", session="s")
        assert embedder.calls == calls
        memory.update(i, text="tea")
        assert embedder.calls == calls
        memory.update(i, text="milk")
        assert embedder.calls == calls + 1


def test_a_failing_vector_leaves_no_trace(tmp_path: Path, embedder: HashingEmbedder) -> None:
    class Failing(HashingEmbedder):
        broken = False

        def embed(self, texts: Any) -> Any:
            rows = super().embed(texts)
            return rows[:, :-1] if self.broken else rows

    failing = Failing(dim=8)
    with Memory.open(tmp_path / "me.db", embedder=failing) as memory:
        i = memory.add("old text")
        vector = stored_vectors(memory._store, i)
        failing.broken = True
        for use in (
            lambda: memory.add("new"),
            lambda: memory.add_many([{"text": "a"}, {"text": "b"}]),
            lambda: memory.update(i, text="new text"),
        ):
            with pytest.raises(RiememError, match=r"^embedder: expected vectors of shape"):
                use()
        assert [record.text for record in memory.list()] == ["old text"]
        assert np.array_equal(stored_vectors(memory._store, i), vector)
        assert memory.check().ok


def test_forget_returns_a_receipt_and_unknown_ids_change_nothing(memory: Memory) -> None:
    with pytest.raises(MemoryNotFoundError, match=r"^ids: there is no memory 12, 99"):
        memory.forget([1, 12, 99])
    assert len(memory.list()) == 4
    receipt = memory.forget([3, 1])
    assert (receipt.ids, receipt.count, receipt.erased) == ((1, 3), 2, True)
    assert datetime.fromisoformat(receipt.at).tzinfo is not None
    assert memory.forget([]).count == 0
    assert memory.forget(session="nothing here").count == 0
    assert {hit.id for hit in memory.search("red van")} == {2, 4}
    assert memory.forget(profile="default").ids == (2, 4)
    assert memory.list() == []


def test_recall_packs_what_was_found(memory: Memory) -> None:
    context = memory.recall("spare key", token_budget=100, count_tokens=words)
    assert isinstance(context, Context)
    assert [hit.id for hit in context.hits] == [1, 2, 3, 4]  # in time order
    assert context.tokens == words(context.text) <= 100
    assert context.token_counter == "caller"
    assert context.text.startswith("# 2023-10-19\nDave: I've taken up photography\nAna: My sister")
    assert [turn.text for turn in parse(context.text)] == [turn["text"] for turn in TURNS]
    small = memory.recall("spare key under the pot", token_budget=11, count_tokens=words)
    assert [hit.id for hit in small.hits] == [4]
    assert {item.id for item in small.dropped} == {1, 2, 3}
    assert all(item == Dropped(item.id, "over budget") for item in small.dropped)
    assert memory.recall("van", token_budget=100, count_tokens=words, session="s1").hits[0].id == 1
    assert memory.recall("van", token_budget=9, filters={"speaker": "Nobody"}).text == ""
    with pytest.raises(BudgetTooSmallError, match=r"^token_budget: 0 tokens hold none of the 4"):
        memory.recall("van", token_budget=0, count_tokens=words)


def test_recall_without_a_counter_names_the_one_it_used(memory: Memory) -> None:
    context = memory.recall("van", token_budget=1000)
    assert context.token_counter in ("smollm2-135m", "utf-8 bytes (upper bound)")
    assert 0 < context.tokens <= 1000


def test_recall_collapses_copies(tmp_path: Path, embedder: HashingEmbedder) -> None:
    with Memory.open(tmp_path / "me.db", embedder=embedder) as memory:
        ids = memory.add_many([{"text": "same", "speaker": "Ana"}] * 5)
        context = memory.recall("same", token_budget=50, count_tokens=words)
        assert [hit.id for hit in context.hits] == ids[:1]
        assert context.dropped == tuple(Dropped(i, "duplicate of 1") for i in ids[1:])


def test_recall_of_nothing_is_empty(tmp_path: Path, embedder: HashingEmbedder) -> None:
    with Memory.open(tmp_path / "me.db", embedder=embedder) as memory:
        context = memory.recall("anything", token_budget=0, count_tokens=words)
        assert (context.text, context.tokens, context.hits, context.dropped) == ("", 0, (), ())


def test_the_same_question_gives_the_same_answer_in_every_opening(
    tmp_path: Path, embedder: HashingEmbedder
) -> None:
    path = tmp_path / "me.db"
    answers = []
    with Memory.open(path, embedder=embedder) as memory:
        for i in range(80):
            memory.add(f"note {i} about {['tea', 'dogs', 'boats'][i % 3]}", speaker="Ana")
            memory.search("boats", k=3)  # the metric follows one by one
        memory.update(17, text="boats at last")
        memory.forget([5, 50])
        answers.append(memory.search("boats", k=20))
    for readonly in (False, True):
        with Memory.open(path, embedder=embedder, readonly=readonly) as memory:
            answers.append(memory.search("boats", k=20))
    assert answers[0] == answers[1] == answers[2]
    assert answers[0].scoring == answers[1].scoring == "default: whitened cosine"


def test_read_only_reads_and_refuses_to_write(memory: Memory, embedder: HashingEmbedder) -> None:
    with Memory.open(memory.path, embedder=embedder, readonly=True) as reader:
        assert reader.search("van", k=1)[0].id == 3
        assert reader.recall("van", token_budget=99, count_tokens=words).hits
        assert reader.check().ok
        assert reader.stats()["readonly"]
        for use in (
            lambda: reader.add("x"),
            lambda: reader.add_many([{"text": "x"}]),
            lambda: reader.update(1, text="x"),
            lambda: reader.forget(1),
            lambda: reader.check(repair=True),
            reader.compact,
        ):
            with pytest.raises(StoreReadOnlyError, match="opened with readonly=True"):
                use()
        memory.add("a red van again")
        assert len(reader.search("van")) == 5


def test_opening_needs_no_model_and_only_vectors_do(tmp_path: Path) -> None:
    # The default embedder is looked for by the first call that needs a vector.
    embedder = HashingEmbedder(dim=64)
    with Memory.open(tmp_path / "me.db", embedder=embedder) as memory:
        memory.add_many(TURNS)
    with Memory.open(tmp_path / "me.db") as memory:
        assert len(memory.list()) == 4
        assert memory.get(1).text
        assert memory.stats()["memories"] == 4
        assert memory.check().ok
        assert memory.update(1, metadata={"a": 1}).metadata == {"a": 1}
        assert memory.forget(1).count == 1
        assert "MiniLM" not in repr(memory)


def test_another_embedder_is_refused_at_open_and_the_file_stays(memory: Memory) -> None:
    memory.close()
    before = Path(memory.path).read_bytes()
    for other in (HashingEmbedder(dim=32), HashingEmbedder(dim=64, seed=1)):
        with pytest.raises(EmbedderMismatchError) as caught:
            Memory.open(memory.path, embedder=other)
        assert HashingEmbedder(dim=64).identity in str(caught.value)
        assert other.identity in str(caught.value)
        assert "riemem reembed" in str(caught.value)
    assert Path(memory.path).read_bytes() == before


def test_reembedding_changes_all_vectors_or_none(memory: Memory) -> None:
    memory.add("in another profile", profile="other")
    memory.close()
    new = HashingEmbedder(dim=32, seed=3)
    seen: list[tuple[int, int]] = []
    assert Memory.reembed_store(memory.path, embedder=new, progress=lambda *a: False) == 0
    with Memory.open(memory.path, embedder=HashingEmbedder(dim=64)) as old:
        assert old.search("van", k=1)[0].id == 3
    assert Memory.reembed_store(memory.path, embedder=new, progress=lambda *a: seen.append(a)) == 5
    assert seen[-1] == (5, 5)
    with Memory.open(memory.path, embedder=new) as again:
        assert again.search("van", k=1)[0].id == 3
        assert again.stats()["dim"] == 32
        assert again.check().ok
    with pytest.raises(StoreError, match="there is no store"):
        Memory.reembed_store(Path(memory.path).parent / "none.db", embedder=new)


def test_adding_many_reports_and_can_be_stopped(memory: Memory) -> None:
    items = [{"text": f"text {i}"} for i in range(300)]
    seen: list[tuple[int, int]] = []
    assert memory.add_many(items, progress=lambda done, total: done < 256) == []
    assert len(memory.list()) == 4
    assert len(memory.add_many(items, progress=lambda *a: seen.append(a))) == 300
    assert seen == [(0, 300), (256, 300), (300, 300)]
    assert memory.add_many([]) == []
    assert memory.add_many(iter(items[:2])) == [305, 306]


def test_stats_counts(memory: Memory) -> None:
    stats = memory.stats()
    assert (stats["memories"], stats["sessions"], stats["speakers"]) == (4, 2, 2)
    assert stats["total_vectors"] == 4
    assert stats["embedder"] == "hashing-v1:64:seed=0"
    assert stats["first"] == "2023-10-19T14:02:00+00:00"
    assert stats["text_bytes"] == sum(len(turn["text"].encode()) for turn in TURNS)
    assert stats["file_bytes"] > 0
    assert memory.stats(session="s1")["memories"] == 2
    assert memory.stats(filters={"speaker": "Nobody"})["first"] is None


def test_a_closed_memory_says_so(memory: Memory) -> None:
    path = memory.path
    assert repr(memory) == f"Memory({path!r}, profile='default')"
    memory.close()
    memory.close()
    assert repr(memory) == f"Memory({path!r}, profile='default', closed)"
    for use in (
        memory.list,
        memory.stats,
        memory.check,
        memory.compact,
        lambda: memory.add("x"),
        lambda: memory.search("x"),
        lambda: memory.recall("x", token_budget=9),
        lambda: memory.get(1),
        lambda: memory.update(1, text="x"),
        lambda: memory.forget(1),
    ):
        with pytest.raises(StoreError, match="the store is closed"):
            use()


def test_damage_is_found_and_repaired(memory: Memory) -> None:
    def spoil(sql: str) -> None:
        with memory._store.writing() as transaction:
            transaction.connection.execute(sql)

    assert memory.check(repair=True).repaired == []
    for sql, problem in (
        ("DELETE FROM vectors WHERE memory_id = 2", "vectors: missing: memories 2"),
        ("UPDATE vectors SET vector = x'00' WHERE memory_id = 1", "vectors: size: memories 1"),
        ("UPDATE vectors SET vector = zeroblob(256) WHERE memory_id = 3", "vectors: not of length"),
        ("DELETE FROM labels WHERE memory_id = 4", "labels: do not agree with the metadata of mem"),
        ("INSERT INTO memories_fts (memories_fts) VALUES ('delete-all')", "words: do not agree"),
        ("UPDATE meta SET value = -5 WHERE key = 'revision'", "meta: the revision is behind"),
    ):
        spoil(sql)
        report = memory.check()
        assert not report.ok
        assert any(text.startswith(problem) for text in report.problems), (sql, report.problems)
        assert memory.check(repair=True).ok, sql
        assert memory.search("photography", k=1)[0].id == 1
    assert memory.check().counts == {"memories": 4, "vectors": 4, "labels": 4}


def test_a_damaged_vector_is_an_error_and_not_a_wrong_answer(memory: Memory) -> None:
    with memory._store.writing() as transaction:
        transaction.connection.execute("UPDATE vectors SET vector = x'0102' WHERE memory_id = 2")
    with pytest.raises(StoreCorruptError, match=r"^vector 2 has 2 bytes, expected 256"):
        memory.search("van")


valid = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@given(valid, st.none() | valid.filter(lambda s: len(s) < 200))
def test_any_text_is_returned_byte_for_byte(text: str, speaker: str | None) -> None:
    with Memory.open(":memory:", embedder=HashingEmbedder(dim=4)) as memory:
        i = memory.add(text, speaker=speaker, metadata={"m": text})
        record = memory.get(i)
        assert record.text.encode() == text.encode()
        assert (record.speaker, record.metadata) == (speaker, {"m": text})
        assert memory.search(text, k=1)[0].text == text
        assert [r.id for r in memory.list(filters={"m": text, "speaker": speaker})] == [i]
        context = memory.recall(text, token_budget=10**6, count_tokens=len)
        assert [(turn.text, turn.speaker) for turn in parse(context.text)] == [(text, speaker)]
        assert memory.check().ok


def test_a_text_of_a_megabyte(tmp_path: Path) -> None:
    class Beginning(HashingEmbedder):
        def embed(self, texts: Any) -> Any:
            return super().embed([text[:200] for text in texts])

    text = "Maya moved the dentist appointment. " * 29_000
    with Memory.open(tmp_path / "me.db", embedder=Beginning(dim=16)) as memory:
        i = memory.add(text)
        assert memory.get(i).text == text
        assert memory.search("dentist appointment", k=1)[0].id == i
        with pytest.raises(BudgetTooSmallError):
            memory.recall("dentist", token_budget=1000, count_tokens=len)
        assert memory.check().ok


@pytest.mark.model
def test_the_end_of_a_long_memory_is_found(tmp_path: Path, minilm: Any) -> None:
    long = "Maya moved the dentist appointment. " * 400 + "The spare key is under the blue pot."
    others = "I like tea;Ben walks the dog;The train was late;We met in Porto;My phone is new"
    with Memory.open(tmp_path / "me.db", embedder=minilm) as memory:
        memory.add_many([{"text": text} for text in others.split(";")])
        wanted = memory.add(long)
        hits = memory.search("where is the spare key", k=6)
        assert [hit.id for hit in hits].count(wanted) == 1
        assert wanted in [hit.id for hit in hits[:3]]
        assert len(stored_vectors(memory._store, wanted)) > 5

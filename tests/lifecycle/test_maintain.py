"""Memories that fall asleep, in a store: states, logs, damage, erasure, the command line."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from riemem import errors
from riemem.cli import main
from riemem.embed import HashingEmbedder
from riemem.fisher_rao import confirmed_variance, signal_variance
from riemem.memory import Memory
from riemem.store import precisions, uses

BORN = "2024-01-01T00:00:00+00:00"
YEAR = "2025-01-01T00:00:00+00:00"
TEXTS = ["red kite over the hill", "tea with Ana", "the harbour in Porto", "a blue bicycle"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "me.db"


def opened(path: Path | str, **options: object) -> Memory:
    return Memory.open(path, embedder=HashingEmbedder(dim=32), **options)


def filled(path: Path | str, count: int = 4) -> Memory:
    memory = opened(path)
    memory.add_many(
        {"text": TEXTS[i % 4] + (f" {i}" if i >= 4 else ""), "when": BORN, "session": "s"}
        for i in range(count)
    )
    return memory


def rows(path: Path, sql: str) -> list[tuple]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def change(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def lives(path: Path) -> list[tuple]:
    return rows(path, "SELECT memory_id, state, step, strength, position, uses FROM lifecycle")


# -- states ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["langevin", "half-life"])
def test_an_unused_year_archives_and_use_keeps_awake(path: Path, policy: str) -> None:
    with filled(path, 40) as memory:
        memory.used([1, 2], helped=True, at="2024-12-20T00:00:00Z")
        memory.used([1, 2], helped=True, at="2024-12-28T00:00:00Z")
        memory.weigh(3, 1.0, at=BORN)
        done = memory.maintain(now=YEAR, policy=policy)
        assert sum(done.counts.values()) == len(memory.list()) == 40
        assert done.counts["archived"] > 30
        assert {memory.life(i).state for i in (1, 2)} == {"active"}
        assert memory.life(3).state in ("active", "warm")
        assert memory.life(3).importance == 1.0
        assert memory.life(1).uses == memory.life(1).confirmed == 2
        assert memory.stats()["lifecycle"] == done.counts
        assert memory.life(4).as_of == YEAR
        assert {i: b for i, _, b in done.changed}[4] == memory.life(4).state


def test_nothing_ages_by_itself(path: Path) -> None:
    with filled(path) as memory:
        assert memory.life(1).state == "active"
        assert memory.life(1).as_of is None
        assert memory.stats()["lifecycle"]["active"] == 4
        memory.search("kite")
        assert lives(path) == []


def test_archived_memories_answer_only_when_asked(path: Path) -> None:
    with filled(path) as memory:
        before = [hit.id for hit in memory.search("harbour", k=4)]
        memory.used([1, 2], helped=True, at="2024-12-30T00:00:00Z")
        memory.maintain(now=YEAR, policy="half-life")
        assert {hit.id for hit in memory.search("harbour", k=4)} == {1, 2}
        assert [hit.id for hit in memory.search("harbour", k=4, archived=True)] == before
        assert memory.search("harbour", filters={"lifecycle": "archived"})[0].id == 3
        assert {h.id for h in memory.search("x", filters={"lifecycle": ["active", "warm"]})} == {
            1,
            2,
        }
        assert {h.id for h in memory.search("harbour", filters={"session": "s"})} == {1, 2}
        assert "harbour" not in memory.recall("harbour", token_budget=200).text
        assert "harbour" in memory.recall("harbour", token_budget=200, archived=True).text
        assert len(memory.list()) == 4
        assert [r.id for r in memory.list(filters={"lifecycle": "archived"})] == [3, 4]
        assert memory.get(3).text == TEXTS[2]
        memory.used(3, helped=True, at=YEAR)  # waking up takes the next maintenance
        memory.maintain(now=YEAR)
        assert memory.search("harbour", k=1)[0].id == 3
    with opened(path, readonly=True) as reader:
        assert {hit.id for hit in reader.search("harbour", k=4)} == {1, 2, 3}
        with pytest.raises(errors.StoreReadOnlyError):
            reader.maintain()


def test_a_search_says_what_it_does_not_ask(path: Path) -> None:
    with filled(path) as memory:
        assert memory.search("harbour").skipped == ()
        memory.used([1, 2, 3], helped=True, at="2024-12-30T00:00:00Z")
        memory.maintain(now=YEAR, policy="half-life")
        (note,) = memory.search("harbour").skipped
        assert note.startswith("1 memory is archived and not asked")
        assert memory.recall("harbour", token_budget=200).skipped == (note,)
        assert memory.search("harbour", archived=True).skipped == ()
        assert memory.search("harbour", filters={"lifecycle": "archived"}).skipped == ()
        assert memory.search("harbour", profile="nobody").skipped == ()
        memory.add("tea", profile="ben", when=BORN)
        memory.maintain(now=YEAR, profile="ben")
        result = memory.search("tea", profile="ben")
        assert (list(result), len(result.skipped)) == ([], 1)


def test_profiles_age_apart(path: Path) -> None:
    with filled(path) as memory:
        memory.add("tea", profile="ben", when=BORN)
        memory.maintain(now=YEAR, policy="half-life")
        assert memory.search("tea") == []
        assert memory.search("tea", profile="ben")[0].text == "tea"
        memory.maintain(now="2024-01-02T00:00:00Z", profile="ben")


# -- idempotent, replayable, cancellable -----------------------------------------------------


@pytest.mark.parametrize("policy", ["langevin", "half-life"])
def test_the_same_instant_twice_changes_nothing(path: Path, policy: str) -> None:
    with filled(path, 30) as memory:
        first = memory.maintain(now="2024-04-01T00:00:00Z", policy=policy)
        stored, revision = lives(path), rows(path, "SELECT value FROM meta WHERE key='revision'")
        second = memory.maintain(now="2024-04-01T00:00:00Z")
        assert second.counts == first.counts
        assert second.changed == ()
        assert second.policy == policy
        assert lives(path) == stored
        assert rows(path, "SELECT value FROM meta WHERE key='revision'") == revision


def test_a_replay_from_the_log_finds_the_same(path: Path) -> None:
    with filled(path, 30) as memory:
        for month in range(2, 12):
            memory.maintain(now=f"2024-{month:02}-01T00:00:00Z")
            memory.used([month, month + 3], helped=month % 2 == 0, at=f"2024-{month:02}-03T00:00Z")
            memory.weigh(month, 0.1 * (month - 1), at=f"2024-{month:02}-04T00:00:00Z")
        memory.used([20], at="2024-02-02T00:00:00Z")  # late: counts from the last maintenance
        memory.maintain(now=YEAR)
        stored = lives(path)
        memory.maintain(now=YEAR, replay=True)
        assert lives(path) == stored
        change(path, "DELETE FROM lifecycle")
        memory.maintain(now=YEAR)
        assert lives(path) == stored


def test_another_policy_or_seed_begins_again(path: Path) -> None:
    with filled(path, 30) as memory:
        memory.maintain(now=YEAR, seed=5, policy="langevin")
        stored = lives(path)
        memory.maintain(now=YEAR, policy="half-life")
        assert lives(path) != stored
        memory.maintain(now=YEAR, policy="langevin", seed=6)
        assert lives(path) != stored
        memory.maintain(now=YEAR, policy="langevin", seed=5)
        assert lives(path) == stored


def test_cancelling_changes_nothing(path: Path) -> None:
    with filled(path) as memory:
        memory.maintain(now="2024-02-01T00:00:00Z")
        stored = lives(path)
        with pytest.raises(errors.CancelledError, match="nothing was changed"):
            memory.maintain(now=YEAR, progress=lambda done, total: False)
        assert lives(path) == stored
        seen: list[tuple[int, int]] = []
        memory.maintain(now=YEAR, progress=lambda done, total: seen.append((done, total)))
        assert seen == [(0, 4), (4, 4)]
        with pytest.raises(errors.DTypeError, match="progress"):
            memory.maintain(now=YEAR, progress=3)


def test_another_writer_in_between_is_seen(path: Path) -> None:
    with filled(path) as memory, opened(path) as other:
        added: list[int] = []

        def meanwhile(done: int, total: int) -> None:
            if not added:
                added.append(other.add("new", when=BORN))

        done = memory.maintain(now=YEAR, progress=meanwhile)
        assert sum(done.counts.values()) == 5
        assert [row[0] for row in lives(path)] == [1, 2, 3, 4, 5]


# -- bad input -----------------------------------------------------------------------------------


def test_a_clock_that_goes_backwards_is_refused(path: Path) -> None:
    with filled(path) as memory:
        memory.maintain(now="2030-01-01T00:00:00Z")
        stored = lives(path)
        with pytest.raises(errors.ArgumentError, match=r"now: .*2030-01-01.*got 2025-01-01"):
            memory.maintain(now=YEAR)
        assert lives(path) == stored
        assert memory.maintain(now=YEAR, replay=True).now == YEAR
        # A use from before the memory was said counts from its birth.
        memory.used(1, at="1999-01-01T00:00:00Z")
        memory.maintain(now=YEAR)
        assert memory.life(1).uses == 1


def test_a_memory_of_the_future_is_not_aged_yet(path: Path) -> None:
    with filled(path) as memory:
        later = memory.add("a plan", when="2031-01-01T00:00:00Z")
        memory.maintain(now=YEAR)
        assert memory.life(later).state == "active"
        memory.update(1, when="2024-12-30T00:00:00Z")  # said to be younger: lives again
        memory.maintain(now=YEAR)
        assert memory.life(1).state == "active"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.used([1, 99]), errors.MemoryNotFoundError, "99"),
        (lambda m: m.used(1, helped="yes"), errors.DTypeError, "helped"),
        (lambda m: m.used(1, query="tea"), errors.ArgumentError, "helped=True"),
        (lambda m: m.used(1, helped=True, query=" "), errors.ArgumentError, "query"),
        (lambda m: m.used(1, at="yesterday"), errors.ArgumentError, "at"),
        (lambda m: m.used("1"), errors.DTypeError, "ids"),
        (lambda m: m.weigh(1, 1.5), errors.ArgumentError, "importance"),
        (lambda m: m.weigh(1, float("nan")), errors.ArgumentError, "importance"),
        (lambda m: m.weigh(1, True), errors.DTypeError, "importance"),
        (lambda m: m.life(99), errors.MemoryNotFoundError, "99"),
        (lambda m: m.maintain(now="soon"), errors.ArgumentError, "now"),
        (lambda m: m.maintain(policy="weekly"), errors.ArgumentError, "policy"),
        (lambda m: m.maintain(policy="langevin", seed=-1), errors.ArgumentError, "seed"),
        (lambda m: m.search("tea", archived=1), errors.DTypeError, "archived"),
        (lambda m: m.search("tea", filters={"lifecycle": "dead"}), errors.ArgumentError, "lifec"),
        (lambda m: m.search("tea", filters={"lifecycle": 3}), errors.DTypeError, "lifecycle"),
    ],
)
def test_bad_input_is_named_and_records_nothing(path: Path, call, error, message) -> None:
    with filled(path) as memory:
        with pytest.raises(error, match=message):
            call(memory)
        assert rows(path, "SELECT * FROM uses") == lives(path) == []


def cut_logs(path: Path) -> Memory:
    memory = filled(path)
    for day in range(2, 7):
        memory.used([1, 2, 3], helped=True, at=f"2024-01-0{day}T00:00:00Z")
    memory.maintain(now="2024-02-01T00:00:00Z")
    return memory


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("DELETE FROM uses WHERE memory_id = 2 AND number = 3", "memory 2 is cut.*3 is missing"),
        ("DELETE FROM uses WHERE memory_id = 2 AND number = 1", "memory 2 is cut.*1 is missing"),
        ("DELETE FROM uses WHERE memory_id = 2 AND number > 3", "memory 2 is cut.*3 are left"),
        ("DELETE FROM uses WHERE memory_id = 2", "memory 2 is cut.*0 are left"),
    ],
)
def test_a_cut_log_is_noticed_and_what_is_left_can_be_gone_on_with(
    path: Path, sql: str, message: str
) -> None:
    with cut_logs(path) as memory:
        before = lives(path)
        change(path, sql)
        left = rows(path, "SELECT count(*) FROM uses")
        with pytest.raises(errors.StoreCorruptError, match=message):
            memory.maintain(now="2024-03-01T00:00:00Z")
        assert lives(path) == before
        report = memory.check()
        assert any("memory 2 is cut" in problem for problem in report.problems), report.problems
        assert memory.search("tea", k=1)[0].id == 2  # reading goes on meanwhile
        repaired = memory.check(repair=True)
        assert repaired.ok, repaired.problems
        assert rows(path, "SELECT count(*) FROM uses") == left
        assert len(memory.list()) == 4
        after = {row[0]: row for row in lives(path)}
        assert sorted(after) == [1, 2, 3, 4]
        assert [after[i] for i in (1, 3, 4)] == [row for row in before if row[0] != 2]
        memory.maintain(now="2024-03-01T00:00:00Z")


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE lifecycle SET position = x'00' WHERE memory_id = 3",
        "UPDATE lifecycle SET position = x'" + "00" * 56 + "000000000000f87f' WHERE memory_id = 3",
        "UPDATE lifecycle SET position = x'" + "00" * 56 + "000000000000f03f' WHERE memory_id = 3",
        "UPDATE lifecycle SET state = 'dead' WHERE memory_id = 3",
        "UPDATE lifecycle SET strength = -1.0 WHERE memory_id = 3",
    ],
)
def test_a_damaged_state_is_made_anew_from_the_log(path: Path, sql: str) -> None:
    with cut_logs(path) as memory:
        before = lives(path)
        change(path, sql)
        assert any("lifecycle: memory 3" in problem for problem in memory.check().problems)
        with pytest.raises(errors.StoreCorruptError, match="memory 3"):
            memory.maintain(now="2024-03-01T00:00:00Z")
        assert memory.check(repair=True).ok
        assert lives(path) == before


# -- what is learnt --------------------------------------------------------------------------


def learnt(memory: Memory) -> tuple[np.ndarray, np.ndarray]:
    return precisions.gained(memory._store, "default", 32)


def test_confirmed_use_teaches_what_the_update_says(path: Path) -> None:
    queries = ["what flew over the hill?", "red kite", "hill"]
    with filled(path) as memory:
        for query in queries:
            memory.used(1, helped=True, query=query)
        memory.used(2)
        memory.used(3, helped=True)
        ids, gained = learnt(memory)
        assert ids.tolist() == [1]
        embedder = HashingEmbedder(dim=32)
        own = signal_variance(embedder.embed(["anything else"]))
        expected = own
        for query in queries:
            expected = confirmed_variance(expected, signal_variance(embedder.embed([query])))
        found = np.clip(1.0 / (1.0 / own.astype(np.float64) + gained), 0.05, 2.0)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        counted, times = uses.counts(memory._store, "default")
        assert dict(zip(counted.tolist(), times.tolist(), strict=True)) == {1: 3, 2: 1, 3: 1}


def test_what_is_learnt_goes_with_the_vector_it_is_about(path: Path) -> None:
    with filled(path) as memory:
        memory.used([1, 2, 3], helped=True, query="tea")
        memory.update(1, text="something else")
        assert learnt(memory)[0].tolist() == [2, 3]
        memory.update(2, session="other")
        assert learnt(memory)[0].tolist() == [2, 3]
    Memory.reembed_store(path, embedder=HashingEmbedder(dim=16))
    assert rows(path, "SELECT * FROM precisions") == []
    with Memory.open(path, embedder=HashingEmbedder(dim=16)) as memory:
        assert memory.check().ok


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE precisions SET gained = x'0000803f' WHERE memory_id = 2",
        "UPDATE precisions SET gained = zeroblob(128) WHERE memory_id = 2",
        "UPDATE precisions SET confirmed = 9 WHERE memory_id = 2",
    ],
)
def test_damaged_precisions_are_found_and_forgotten(path: Path, sql: str) -> None:
    with filled(path) as memory:
        memory.used([1, 2], helped=True, query="tea")
        change(path, sql)
        assert any("precisions: memory 2" in problem for problem in memory.check().problems)
        assert memory.check(repair=True).ok
        assert learnt(memory)[0].tolist() == [1]


def test_forgetting_leaves_no_trace_of_use(path: Path) -> None:
    with filled(path) as memory:
        memory.used([1, 2], helped=True, query="tea")
        memory.weigh(2, 0.12345678)
        memory.maintain(now=YEAR)
        ((blob,),) = rows(path, "SELECT gained FROM precisions WHERE memory_id = 2")
        ((point,),) = rows(path, "SELECT position FROM lifecycle WHERE memory_id = 2")
        assert memory.forget(2).erased
        for table in ("uses", "lifecycle", "precisions"):
            assert 2 not in {row[0] for row in rows(path, f"SELECT memory_id FROM {table}")}
        memory.add("other", profile="quite-a-name")
        memory.maintain(now=YEAR, profile="quite-a-name")
        memory.forget(profile="quite-a-name")
    raw = path.read_bytes()
    assert np.float64(0.12345678).astype(">f8").tobytes() not in raw
    # What 1 and 2 were taught by the same query is the same, so look at the count instead.
    assert raw.count(blob[:64]) == 1
    assert point not in raw
    assert b"quite-a-name" not in raw


# -- the command line ----------------------------------------------------------------------------


def test_the_commands(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(path).close()

    def ask(*words: str) -> dict:
        assert main([*words, "--store", str(path), "--embedder", "hashing:32", "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert ask("used", "1", "2", "--helped", "--query", "tea", "--at", "2024-12-30")["used"] == 2
    assert ask("weigh", "0.5", "1")["weighed"] == 1
    done = ask("maintain", "--now", "2025-01-01", "--policy", "half-life")["maintained"]
    assert done["counts"] == {"active": 2, "warm": 0, "cold": 0, "archived": 2}
    assert [life["state"] for life in ask("life", "1", "4")["lives"]] == ["active", "archived"]
    assert {hit["id"] for hit in ask("search", "harbour")["hits"]} == {1, 2}
    assert len(ask("search", "harbour", "--archived")["hits"]) == 4
    assert "harbour" in ask("recall", "harbour", "--archived")["text"]
    assert ask("stats")["stats"]["lifecycle"]["archived"] == 2
    assert main(["maintain", "--now", "2024-01-01", "--store", str(path)]) == 1
    assert "expected an instant not before" in capsys.readouterr().err
    assert main(["maintain", "--now", "2025-01-01", "--store", str(path)]) == 0
    assert "2 active, 0 warm, 0 cold, 2 archived; 0 changed" in capsys.readouterr().out
    assert main(["life", "1", "--store", str(path)]) == 0
    assert "active" in capsys.readouterr().out

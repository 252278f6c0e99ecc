"""Conflicts in a store: found at add, decided, undone, forgotten; and what goes wrong."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import ArgumentError, MemoryNotFoundError, StoreError
from riemem.memory import Memory


@pytest.fixture
def memory(tmp_path: Path):
    with Memory.open(tmp_path / "me.db", embedder=HashingEmbedder(dim=64)) as opened:
        yield opened


def say(memory: Memory, text: str, day: int, speaker: str = "Maya", **more: object) -> int:
    return memory.add(text, speaker=speaker, when=f"2024-05-{day:02d}T10:00:00Z", **more)


def edges(memory: Memory) -> list[tuple[int, int]]:
    with memory._store.reading() as connection:
        return connection.execute("SELECT newer, older FROM supersedes ORDER BY 1, 2").fetchall()


def test_a_change_supersedes_in_the_same_transaction(memory: Memory) -> None:
    old = say(memory, "I live in Porto.", 1)
    before = memory._store.revision()
    new = say(memory, "I moved to Berlin.", 2)
    assert memory._store.revision() == before + 1
    assert edges(memory) == [(new, old)]
    (found,) = memory.conflicts()
    assert (found.kind, found.state, found.keep, found.by) == ("change", "superseded", new, "rule")
    assert (found.older_value, found.newer_value) == ("porto", "berlin")
    assert 0.0 < found.kappa < 1.0
    assert memory.get(old).text == "I live in Porto."


def test_a_failed_write_leaves_neither_memory_nor_edge(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(memory, "I live in Porto.", 1)
    with monkeypatch.context() as patch:
        patch.setattr("riemem.store.writes.atoms.place", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            say(memory, "I moved to Berlin.", 2)
    assert (len(memory.list()), edges(memory), memory.conflicts()) == (1, [], [])


def test_the_superseded_one_follows_the_one_that_supersedes_it(memory: Memory) -> None:
    old = say(memory, "I live in Porto.", 1)
    for i in range(5):
        say(memory, f"Porto is nice, they say, number {i}.", 3, speaker="Tom")
    new = say(memory, "I moved to Berlin.", 4)
    newest = say(memory, "I moved to Oslo.", 5)
    hits = memory.search("I live in Porto", k=9)
    assert [hit.id for hit in hits][:3] == [newest, new, old]
    assert [hit.superseded_by for hit in hits][:3] == [(), (newest,), (new,)]
    for hit in hits:
        assert sum(v for n, v in hit.channels.items()) == pytest.approx(hit.score, abs=1e-9)
    # As of a day before the change nothing was superseded.
    past = memory.search("I live in Porto", k=9, at="2024-05-03T12:00:00Z")
    assert past[0].id == old
    # A ranking may leave it off.
    from dataclasses import replace

    from riemem.retrieval.fusion import rankings

    off = memory.search("I live in Porto", ranking=replace(rankings["default"], superseded=False))
    assert off[0].id == old
    assert [hit.id for hit in memory.search("I live in Porto", k=1)] == [newest]


def test_a_contradiction_waits_for_a_decision(memory: Memory) -> None:
    a = say(memory, "The server listens on port 8080.", 1)
    b = say(memory, "The server listens on port 9090.", 1)
    (found,) = memory.conflicts(state="open")
    assert (found.kind, found.keep, edges(memory)) == ("contradiction", None, [])
    assert memory.trust(a).contradicted == memory.trust(b).contradicted == 1
    kept = memory.resolve(found.id, keep=a)
    assert (kept.state, kept.keep, kept.superseded, kept.by) == ("superseded", a, b, "user")
    assert edges(memory) == [(a, b)]
    assert (memory.trust(a).confirmed, memory.trust(b).contradicted) == (1, 1)
    assert memory.trust(a).mean == pytest.approx(2 / 3)
    assert memory.trust(b).mean == pytest.approx(1 / 3)
    turned = memory.resolve(found.id, keep=b)
    assert edges(memory) == [(b, a)]
    assert (memory.trust(a).confirmed, memory.trust(b).confirmed) == (0, 1)
    assert memory.resolve(found.id).state == "dismissed"
    assert edges(memory) == []
    # Undone one by one, in the reverse order.
    assert memory.undo(found.id).keep == turned.keep
    assert memory.undo(found.id).keep == kept.keep
    assert memory.trust(a).confirmed == 1
    assert memory.undo(found.id).state == "open"
    assert memory.trust(a).confirmed == 0
    with pytest.raises(ArgumentError, match="nothing was decided about conflict 1"):
        memory.undo(found.id)
    assert [e.event for e in memory.history(a)] == [
        "added", "contradiction", "kept", "superseded", "dismissed", "undone", "undone", "undone",
    ]  # fmt: skip
    assert memory.check().ok


def test_what_a_rule_decided_can_be_undone(memory: Memory) -> None:
    say(memory, "I smoke.", 1)
    say(memory, "I quit smoking.", 2)
    (found,) = memory.conflicts()
    assert memory.undo(found.id).state == "open"
    assert edges(memory) == []


def test_bad_decisions_are_refused(memory: Memory) -> None:
    say(memory, "I like tea.", 1)
    b = say(memory, "I don't like tea.", 1)
    with pytest.raises(ArgumentError, match="there is no conflict 7"):
        memory.resolve(7, keep=b)
    with pytest.raises(ArgumentError, match="keep: expected 1 or 2, got 99"):
        memory.resolve(1, keep=99)
    with pytest.raises(ArgumentError, match="no conflict 1 in this profile"):
        memory.resolve(1, keep=b, profile="other")
    with pytest.raises(ArgumentError, match="state: expected one of"):
        memory.conflicts(state="closed")


def test_circles_are_refused_and_leave_everything_as_it_was(memory: Memory) -> None:
    for i, port in enumerate((80, 81, 82)):
        say(memory, f"The server listens on port {port}.", 1 + i)
    by_pair = {(c.older, c.newer): c.id for c in memory.conflicts()}
    memory.resolve(by_pair[1, 2], keep=1)
    memory.resolve(by_pair[2, 3], keep=2)
    before = memory.conflicts()
    with pytest.raises(ArgumentError, match="memory 1 already supersedes 3"):
        memory.resolve(by_pair[1, 3], keep=3)
    assert memory.conflicts() == before
    assert memory.resolve(by_pair[1, 3], keep=1).keep == 1
    assert edges(memory) == [(1, 2), (1, 3), (2, 3)]


def test_a_circle_in_the_file_is_found_and_repaired(memory: Memory) -> None:
    for port in (80, 81, 82):
        say(memory, f"The server listens on port {port}.", 1)
    conflicts = {(c.older, c.newer): c.id for c in memory.conflicts()}
    memory.resolve(conflicts[1, 2], keep=1)
    memory.resolve(conflicts[2, 3], keep=2)
    with memory._store.writing() as transaction:  # as no call of ours would
        from riemem.store.claims import decide, point_at

        closing = decide(transaction, conflicts[1, 3], None, "superseded", 3, "user")
        point_at(transaction, conflicts[1, 3], closing)
    assert any("in a circle" in problem for problem in memory.check().problems)
    assert memory.search("port", k=3)  # still answers
    assert memory.check(repair=True).ok
    assert edges(memory) == [(1, 2), (2, 3)]


def test_valid_times(memory: Memory) -> None:
    with pytest.raises(ArgumentError, match="valid_to: expected an instant after valid_from"):
        say(memory, "I live in Porto.", 1, valid_from="2024-06-01T00:00:00Z",
            valid_to="2024-05-01T00:00:00Z")  # fmt: skip
    assert memory.list() == []
    say(memory, "I live in Porto.", 1, valid_from="2020-01-01T00:00:00Z",
        valid_to="2022-01-01T00:00:00Z")  # fmt: skip
    say(memory, "I live in Lisbon.", 2, valid_from="2022-01-01T00:00:00Z")
    assert memory.conflicts() == []
    say(memory, "I live in Braga.", 3, valid_from="2021-06-01T00:00:00Z",
        valid_to="2021-07-01T00:00:00Z")  # fmt: skip
    assert [(c.older, c.newer) for c in memory.conflicts()] == [(1, 3)]
    assert memory.trust(1).valid_to == "2022-01-01T00:00:00+00:00"


def test_profiles_never_see_each_other(memory: Memory) -> None:
    say(memory, "I live in Porto.", 1, profile="a")
    say(memory, "I moved to Berlin.", 2, profile="b")
    assert memory.conflicts(profile="a") == memory.conflicts(profile="b") == []


def test_what_was_said_later_wins_whatever_came_first(memory: Memory) -> None:
    new = say(memory, "I moved to Berlin.", 9)
    old = say(memory, "I live in Porto.", 1)
    assert edges(memory) == [(new, old)]


def test_forgetting_the_newer_one_brings_the_older_one_back(memory: Memory) -> None:
    old = say(memory, "I live in Porto.", 1)
    new = say(memory, "I moved to Berlin.", 2)
    memory.forget(new)
    assert (edges(memory), memory.conflicts()) == ([], [])
    assert memory.search("Porto", k=1)[0].superseded_by == ()
    say(memory, "I moved to Oslo.", 3)
    assert edges(memory) == [(3, old)]


def test_an_update_makes_new_claims(memory: Memory) -> None:
    say(memory, "I live in Porto.", 1)
    new = say(memory, "I moved to Berlin.", 2)
    assert memory.search("I live in Porto", k=2)[1].superseded_by == (new,)
    memory.update(new, text="I still live in Porto.")
    assert memory.conflicts() == []
    found = memory.search("I live in Porto", k=2)
    assert all(hit.superseded_by == () for hit in found)
    assert all("superseded" not in hit.channels for hit in found)
    memory.update(new, text="I moved to Rome.")
    assert [(c.older_value, c.newer_value) for c in memory.conflicts()] == [("porto", "rome")]
    updates = [e.detail for e in memory.history(new) if e.event == "updated"]
    assert updates == [{"fields": ["text"]}] * 2
    memory.update(new, metadata={"a": 1})
    assert len(memory.conflicts()) == 1


def test_claims_can_be_left_off_and_read_later(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    embedder = HashingEmbedder(dim=64)
    with Memory.open(path, embedder=embedder, claims=False) as memory:
        say(memory, "I live in Porto.", 1)
        say(memory, "I moved to Berlin.", 2)
        say(memory, "Hello there!", 2)
        assert memory.conflicts() == []
    with Memory.open(path, embedder=embedder, readonly=True) as memory:
        report = memory.check_conflicts()
        assert (report.read, report.claims, report.ok) == (0, 0, True)
    with Memory.open(path, embedder=embedder) as memory:
        report = memory.check_conflicts()
        assert (report.memories, report.claims, report.read, report.found) == (3, 2, 2, 1)
        assert report.ok
        assert edges(memory) == [(2, 1)]
        assert memory.check_conflicts().found == 0


def test_the_whole_check_sees_what_two_names_hide(memory: Memory) -> None:
    say(memory, "My sister lives in Paris.", 1)
    say(memory, "Anna lives in Rome.", 2, speaker="Tom")
    assert memory.conflicts() == []
    say(memory, "My sister's name is Anna.", 3)
    report = memory.check_conflicts()
    assert (report.found, len(report.open), report.ok) == (1, 1, False)
    (group,) = report.obstructed
    assert (group.attribute, group.size) == ("residence", 2)
    assert report.kappa == group.kappa > 0.0
    assert report.cohomology.h1 > 0
    memory.resolve(report.open[0].id, keep=1)
    after = memory.check_conflicts()
    assert (after.ok, after.obstructed, after.kappa) == (True, [], 0.0)


def test_ten_thousand_claims_about_one_entity(tmp_path: Path) -> None:
    class Quick:
        identity, dim, max_tokens = "quick", 4, 10**9

        def embed(self, texts):
            import numpy as np

            return np.tile(np.array([[1.0, 0, 0, 0]], np.float32), (len(texts), 1))

        def windows(self, text):
            return [text]

    with Memory.open(tmp_path / "me.db", embedder=Quick(), durability="normal") as memory:
        memory.add_many(
            {"text": f"I have {i} coins.", "speaker": "Maya", "when": "2024-05-01T10:00:00Z"}
            for i in range(2, 302)
        )
        found = memory.conflicts()
        # At add each is found to exclude the newest four before it.
        assert len(found) == sum(min(i, 4) for i in range(300))
        report = memory.check_conflicts()
        assert [(group.attribute, group.size, group.compared) for group in report.bounded] == [
            ("has coin", 300, 64),
            ("number of coin", 300, 64),
        ]


def test_forget_erases_every_table(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=HashingEmbedder(dim=64)) as memory:
        stays = say(memory, "I live in Stayville.", 1)
        gone = say(memory, "I moved to Canaryville.", 2, source="CANARYSOURCE",
                   valid_from="2024-05-02T00:00:00Z")  # fmt: skip
        other = {"speaker": "canaryspeaker", "profile": "canaryprofile"}
        say(memory, "I live in Canarytown.", 3, **other)
        say(memory, "I moved to Canaryburg.", 4, **other)
        memory.mark(gone, "confirmed")
        memory.used(gone)
        memory.feedback("CANARYQUERY where", gone)
        memory.feedback("CANARYQUERY where", 3, profile="canaryprofile")
        memory.reset_weights(profile="canaryprofile")
        (conflict,) = memory.conflicts()
        memory.resolve(conflict.id, keep=gone)
        memory.undo(conflict.id)

        def data() -> bytes:
            return b"".join(f.read_bytes() for f in sorted(tmp_path.glob("me.db*"))).lower()

        assert data().count(b"canary") > 10
        memory.forget(gone)
        memory.forget(profile="canaryprofile")
        assert b"canary" not in data()
        with closing(sqlite3.connect(path)) as connection:
            for table in ("claims", "conflicts", "decisions", "provenance", "history", "feedback"):
                rows = connection.execute(f"SELECT * FROM {table}").fetchall()
                assert gone not in [row[1] for row in rows if table != "decisions"], table
                left = [row for row in rows if table not in ("claims", "history", "provenance")]
                assert left == [], table
        assert memory.check().ok
        assert memory.weights() == {}
        assert memory.search("Stayville", k=1)[0].id == stays
    assert b"canary" not in b"".join(f.read_bytes() for f in tmp_path.glob("me.db*")).lower()


def test_the_history_only_grows(memory: Memory) -> None:
    a = say(memory, "I like tea.", 1)
    say(memory, "I don't like tea.", 1)
    for sql in (
        "UPDATE history SET event = 'x'",
        "DELETE FROM history",
        "UPDATE decisions SET state = 'x'",
        "DELETE FROM decisions",
    ):
        with (
            pytest.raises(StoreError, match="append-only"),
            memory._store.writing() as transaction,
        ):
            transaction.connection.execute(sql)
    assert len(memory.history(a)) == 2
    with pytest.raises(MemoryNotFoundError):
        memory.history(99)


def test_repair_puts_right_what_was_spoilt(memory: Memory) -> None:
    say(memory, "I like tea.", 1)
    say(memory, "I don't like tea.", 1)
    with memory._store.writing() as transaction:
        transaction.connection.execute("UPDATE conflicts SET decision = NULL")
        transaction.connection.execute("UPDATE claims SET last = first WHERE memory_id = 2")
    problems = memory.check().problems
    assert [p.split(":")[0] for p in problems] == ["conflicts", "claims"]
    report = memory.check(repair=True)
    assert report.ok
    assert "claims" in report.repaired


def test_uses_count_for_trust_and_stand_in_the_history(memory: Memory) -> None:
    a = say(memory, "I like tea.", 1)
    for day in (2, 3):
        memory.used(a, at=f"2024-05-{day:02d}T10:00:00Z")
    memory.used(a, helped=True, at="2024-05-04T10:00:00Z")
    found = memory.trust(a)
    assert (found.accessed, found.confirmed, found.contradicted) == (2, 1, 0)
    assert found.mean == pytest.approx(2.2 / 3.2)
    assert found.variance == pytest.approx(2.2 * 1.0 / (3.2**2 * 4.2))
    assert [e.event for e in memory.history(a)] == ["added", "used", "used", "use confirmed"]


def test_ranking_uses_trust_when_it_is_asked_to(memory: Memory) -> None:
    a = say(memory, "The harbour is full of boats.", 1)
    b = say(memory, "The harbour is full of boats.", 1)
    for _ in range(9):
        memory.mark(b, "confirmed")
    assert [hit.id for hit in memory.search("harbour boats")] == [a, b]
    hits = memory.search("harbour boats", trust=2.0)
    assert [hit.id for hit in hits] == [b, a]
    assert hits[0].trust == pytest.approx(10 / 11)
    assert hits[0].channels["trust"] == pytest.approx(2.0 * (10 / 11 - 0.5))
    with pytest.raises(ArgumentError, match="trust: expected a finite number"):
        memory.search("harbour", trust=float("inf"))
    with pytest.raises(ArgumentError, match="event: expected one of"):
        memory.mark(a, "seen")
    with pytest.raises(MemoryNotFoundError):
        memory.mark([a, 99], "confirmed")
    assert memory.trust(a).confirmed == 0


def test_weights_follow_feedback_within_bounds(tmp_path: Path) -> None:
    embedder = HashingEmbedder(dim=64)
    with Memory.open(tmp_path / "me.db", embedder=embedder) as memory:
        for i in range(12):
            say(memory, f"Number {i} is about tea and boats.", 1 + i)
        other = say(memory, "A harbour.", 20)
        plain = memory.search("tea harbour", k=13)
        for _ in range(30):
            memory.feedback("tea harbour", other)
        factors = memory.weights()
        assert min(factors.values()) == 0.5 or max(factors.values()) == 2.0
        assert all(0.5 <= f <= 2.0 for f in factors.values())
        steps = memory.replay_weights()
        assert (len(steps), steps[-1]) == (30, factors)
        assert memory.replay_weights(until=memory.judgements()[2].id) == steps[:3]
        # Off by default.
        assert [(h.id, h.score) for h in memory.search("tea harbour", k=13)] == [
            (h.id, h.score) for h in plain
        ]
    with Memory.open(tmp_path / "me.db", embedder=embedder, adaptive=True) as memory:
        adapted = {h.id: h.channels for h in memory.search("tea harbour", k=13)}
        for hit in plain:
            for name, factor in factors.items():
                if name == "likeness":  # made from what the others find, which has changed
                    continue
                assert adapted[hit.id][name] == pytest.approx(factor * hit.channels[name])
        assert memory.reset_weights() == 30
        assert memory.weights() == {}
        memory.feedback("tea harbour", other, useful=False)
        assert len(memory.judgements()) == 1
        memory.forget(other)
        assert (memory.weights(), memory.judgements()) == ({}, [])


def test_a_valid_time_can_be_given_later(memory: Memory) -> None:
    a = say(memory, "I live in Porto.", 1, source="chat")
    b = say(memory, "I live in Berlin.", 3)
    assert len(memory.conflicts(state="open")) == 1
    memory.update(a, valid_to="2024-05-02T00:00:00Z")
    assert memory.conflicts() == []
    found = memory.trust(a)
    assert (found.source, found.valid_to) == ("chat", "2024-05-02T00:00:00+00:00")
    with pytest.raises(ArgumentError, match="valid_to: expected an instant after valid_from"):
        memory.update(a, valid_from="2024-06-01T00:00:00Z")
    memory.update(a, valid_to=None, source=None)
    assert memory.trust(a).valid_to is None
    assert [(c.older, c.newer) for c in memory.conflicts()] == [(a, b)]
    assert memory.history(a)[-2].detail == {"fields": ["source", "valid_to"]}

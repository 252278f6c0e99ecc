from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import ArgumentError, DTypeError, TextError
from riemem.memory import Memory
from riemem.store.filters import check_ids, scope

ROWS: list[dict[str, Any]] = [
    {"text": "one", "speaker": "Ana", "session": "s1", "when": "2026-02-03T22:10:00+09:00",
     "metadata": {"n": 1, "tags": ["a", "b"], "ok": True}},
    {"text": "two", "speaker": "Ana", "session": "s2", "when": "2026-02-03T08:30:00-05:00",
     "metadata": {"n": 1.0, "deep": {"x": [1, 2]}, "none": None}},
    {"text": "three", "speaker": "Ben", "session": "s1", "when": "2026-02-03T14:00:00+00:00",
     "metadata": {"n": "1", "nul": "a\0b", "speaker": "Cy",
                  'qu"ote': "'; DROP TABLE memories; --"}},
    {"text": "four", "when": "2026-02-03T14:00:00.000001Z", "metadata": {"n": True}},
]  # fmt: skip


@pytest.fixture(scope="module")
def memory() -> Any:
    with Memory.open(":memory:", embedder=HashingEmbedder(dim=8)) as memory:
        memory.add_many(ROWS)
        memory.add("not mine", profile="other", metadata={"n": 1}, speaker="Ana")
        yield memory


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, "one two three four"),
        ({"speaker": "Ana"}, "one two"),
        ({"speaker": ["Ben", None]}, "three four"),
        ({"speaker": None}, "four"),
        ({"speaker": []}, ""),
        ({"session": "s1"}, "one three"),
        ({"session": ("s1", "s2"), "speaker": "Ana"}, "one two"),
        ({"since": "2026-02-03T13:20:00Z"}, "two three four"),
        ({"until": "2026-02-03T14:00:00Z"}, "one two three"),
        ({"since": "2026-02-03T14:00:00.000001Z"}, "four"),
        ({"since": "2026-02-04T00:00:00Z"}, ""),
        ({"ids": [1, 4, 99]}, "one four"),
        ({"ids": 2}, "two"),
        ({"ids": []}, ""),
        ({"n": 1}, "one two"),
        ({"n": 1.0}, "one two"),
        ({"n": "1"}, "three"),
        ({"n": True}, "four"),
        ({"n": [True, "1"]}, "three four"),
        ({"n": 2}, ""),
        ({"ok": True}, "one"),
        ({"ok": 1}, ""),
        ({"none": None}, "two"),
        ({"missing": None}, ""),
        ({"tags": ["a", "b"]}, "one"),
        ({"tags": "a"}, ""),
        ({"deep": {"x": [1, 2.0]}}, "two"),
        ({"nul": "a\0b"}, "three"),
        ({"nul": "a"}, ""),
        ({'qu"ote': "'; DROP TABLE memories; --"}, "three"),
        ({"metadata": {"speaker": "Cy"}}, "three"),
        ({"metadata": {"n": 1, "ok": True}, "speaker": "Ana"}, "one"),
        ({"metadata": {}}, "one two three four"),
    ],
)
def test_filters_choose(memory: Memory, filters: dict[str, Any], found: str) -> None:
    assert [record.text for record in memory.list(filters=filters)] == found.split()


def test_session_and_filter_both_hold(memory: Memory) -> None:
    assert memory.list(session="s1", filters={"session": "s2"}) == []
    assert [r.text for r in memory.list(session="s1", filters={"n": 1})] == ["one"]


@pytest.mark.parametrize(
    ("filters", "error", "start"),
    [
        ("Ana", DTypeError, "filters: expected a mapping, got str"),
        ([("a", 1)], DTypeError, "filters: expected a mapping"),
        ({1: 2}, DTypeError, "filters: expected str keys, got int 1"),
        ({"speaker": 3}, DTypeError, r"filters\['speaker'\]: expected str"),
        ({"speaker": ["Ana", 3]}, DTypeError, r"filters\['speaker'\]: expected str"),
        ({"session": ""}, ArgumentError, r"filters\['session'\]: expected a name"),
        ({"since": "soon"}, ArgumentError, r"filters\['since'\]: expected ISO 8601"),
        (
            {"until": "2026-02-03T10:00:00"},
            ArgumentError,
            r"filters\['until'\]: expected an offset",
        ),
        ({"since": 5}, DTypeError, r"filters\['since'\]: expected ISO 8601"),
        ({"ids": "12"}, DTypeError, r"filters\['ids'\]: expected an int or"),
        ({"ids": [1, "2"]}, DTypeError, r"filters\['ids'\]\[1\]: expected an int"),
        ({"ids": [True]}, DTypeError, r"filters\['ids'\]\[0\]: expected an int"),
        ({"metadata": "x"}, DTypeError, r"filters\['metadata'\]: expected a mapping"),
        ({"topic": object()}, DTypeError, r"filters\['topic'\].*: object is not JSON"),
        ({"topic": float("nan")}, ArgumentError, r"filters\['topic'\].*: nan is not JSON"),
        ({"topic": "\ud83d"}, TextError, r"filters\['topic'\].*: lone surrogate"),
        ({"topic": list(range(6000))}, ArgumentError, r"filters\['topic'\]: expected at most 5000"),
    ],
)
def test_bad_filters_are_refused_everywhere(
    memory: Memory, filters: Any, error: type[Exception], start: str
) -> None:
    for call in (
        lambda: memory.list(filters=filters),
        lambda: memory.search("one", filters=filters),
        lambda: memory.recall("one", token_budget=10, filters=filters),
        lambda: memory.forget(filters=filters),
        lambda: memory.get(1, filters=filters),
        lambda: memory.update(1, text="x", filters=filters),
        lambda: memory.stats(filters=filters),
    ):
        with pytest.raises(error, match=rf"^{start}"):
            call()
    assert len(memory.list()) == 4


def test_ids_are_kept_in_order_and_once() -> None:
    assert check_ids([3, 1, 3, 2]) == [3, 1, 2]
    assert check_ids(7) == [7]
    assert check_ids(iter([5])) == [5]
    with pytest.raises(ArgumentError, match=r"^ids: expected an id below 2\*\*63"):
        check_ids(2**63)


def test_a_scope_that_asks_for_nothing_more_is_not_narrowed() -> None:
    assert not scope("p").narrowed
    assert not scope("p", filters={}).narrowed
    assert scope("p", session="s").narrowed
    assert scope("p", at="2026-02-03T14:00:00Z").narrowed


def test_sql_in_every_field_is_only_text(tmp_path: Path) -> None:
    bad = "'; DROP TABLE memories; --"
    with Memory.open(tmp_path / f"{bad.replace('/', '')}.db", profile=bad,
                     embedder=HashingEmbedder(dim=8)) as memory:  # fmt: skip
        i = memory.add(bad, speaker=bad, session=bad, metadata={bad: bad}, key=bad)
        assert memory.search(bad, session=bad, filters={bad: bad, "speaker": bad})[0].id == i
        assert memory.check().ok

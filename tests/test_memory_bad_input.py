"""Whatever a user may type by mistake: a typed error that names it, and nothing changed."""

from __future__ import annotations

import json
import math
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import (
    ArgumentError,
    DTypeError,
    MemoryNotFoundError,
    RiememError,
    TextError,
)
from riemem.memory import Memory


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    with Memory.open(tmp_path / "me.db", embedder=HashingEmbedder(dim=16)) as memory:
        memory.add("tea with milk", speaker="Ana", session="s1")
        yield memory


BAD_TEXTS = [
    ("", TextError),
    ("  \n", TextError),
    ("\u3000", TextError),
    ("hi \ud83d", TextError),
    ("\udc81x", TextError),
    (json.loads('"\\ud83d"'), TextError),
    (None, DTypeError),
    (5, DTypeError),
    (b"bytes", DTypeError),
    (["list"], DTypeError),
    ("x" * (16 * 2**20 + 1), TextError),
]


@pytest.mark.parametrize(("text", "error"), BAD_TEXTS)
def test_text_has_one_rule_on_every_path(
    memory: Memory, text: Any, error: type[RiememError]
) -> None:
    with pytest.raises(error, match=r"^text: "):
        memory.add(text)
    with pytest.raises(error, match=r"^items\[1\]\.text: "):
        memory.add_many([{"text": "fine"}, {"text": text}, {"text": "fine too"}])
    with pytest.raises(error, match=r"^text: "):
        memory.update(1, text=text)
    assert [record.text for record in memory.list()] == ["tea with milk"]


@pytest.mark.parametrize("name", ["speaker", "session", "key", "profile"])
@pytest.mark.parametrize(
    ("value", "error"),
    [("", ArgumentError), (" ", ArgumentError), (5, DTypeError), (b"x", DTypeError),
     ("\ud83d", TextError), ("x" * 1025, ArgumentError), (["Ana"], DTypeError)],
)  # fmt: skip
def test_names_have_one_rule(
    memory: Memory, name: str, value: Any, error: type[RiememError]
) -> None:
    with pytest.raises(error, match=rf"^{name}: "):
        memory.add("x", **{name: value})
    with pytest.raises(error, match=rf"^items\[0\]\.{name}: "):
        memory.add_many([{"text": "x", name: value}])
    if name in ("speaker", "session"):
        with pytest.raises(error, match=rf"^{name}: "):
            memory.update(1, **{name: value})
    if name in ("session", "profile"):
        for use in (memory.list, memory.stats, memory.forget):
            with pytest.raises(error, match=rf"^{name}: "):
                use(**{name: value})
        with pytest.raises(error, match=rf"^{name}: "):
            memory.search("x", **{name: value})
    assert len(memory.list()) == 1


@pytest.mark.parametrize(
    ("when", "error"),
    [
        ("yesterday", ArgumentError),
        ("2023-10-19", ArgumentError),
        ("2023-02-30T10:00:00Z", ArgumentError),
        ("2023-10-19T14:02:00", ArgumentError),
        (datetime(2023, 10, 19), ArgumentError),
        (1697724120, DTypeError),
        (b"2023-10-19T14:02:00Z", DTypeError),
    ],
)
def test_instants_have_one_rule(memory: Memory, when: Any, error: type[RiememError]) -> None:
    with pytest.raises(error, match=r"^when: .*2023-10-19T14:02:00\+00:00"):
        memory.add("x", when=when)
    with pytest.raises(error, match=r"^when: "):
        memory.update(1, when=when)
    with pytest.raises(error, match=r"^at: "):
        memory.search("x", at=when)
    with pytest.raises(error, match=r"^at: "):
        memory.recall("x", token_budget=5, at=when)
    assert len(memory.list()) == 1


def test_an_update_may_not_take_away_the_date_or_the_text(memory: Memory) -> None:
    with pytest.raises(ArgumentError, match=r"^when: expected an instant"):
        memory.update(1, when=None)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^update: expected something to change"):
        memory.update(1)


@pytest.mark.parametrize(
    ("metadata", "error"),
    [("x", DTypeError), ([1], DTypeError), ({1: 1}, DTypeError), ({"a": math.nan}, ArgumentError),
     ({"a": object()}, DTypeError), ({"a": "\ud83d"}, TextError)],
)  # fmt: skip
def test_metadata_must_be_json(memory: Memory, metadata: Any, error: type[RiememError]) -> None:
    with pytest.raises(error, match=r"^metadata"):
        memory.add("x", metadata=metadata)
    with pytest.raises(error, match=r"^metadata"):
        memory.update(1, metadata=metadata)
    assert len(memory.list()) == 1


@pytest.mark.parametrize(
    ("k", "error"),
    [(-1, ArgumentError), (True, DTypeError), (1.0, DTypeError), ("5", DTypeError),
     (None, DTypeError), (math.nan, DTypeError)],
)  # fmt: skip
def test_counts_have_one_rule(memory: Memory, k: Any, error: type[RiememError]) -> None:
    with pytest.raises(error, match=r"^k: expected an int"):
        memory.search("tea", k=k)
    with pytest.raises(error, match=r"^k: expected an int"):
        memory.recall("tea", token_budget=10, k=k)
    with pytest.raises(error, match=r"^offset: expected an int"):
        memory.list(offset=k)
    if k is not None:
        with pytest.raises(error, match=r"^limit: expected an int"):
            memory.list(limit=k)


@pytest.mark.parametrize(
    ("query", "error"),
    [("", ArgumentError), (" \t", ArgumentError), (None, DTypeError), (3, DTypeError),
     ("\ud83d", TextError)],
)  # fmt: skip
def test_queries_have_one_rule(memory: Memory, query: Any, error: type[RiememError]) -> None:
    with pytest.raises(error, match=r"^query: "):
        memory.search(query)
    with pytest.raises(error, match=r"^query: "):
        memory.recall(query, token_budget=10)
    with pytest.raises(error, match=r"^query: "):
        memory.search(query, k=0)


@pytest.mark.parametrize(
    "query",
    ['" OR NEAR( *', "🐢", "the of and", "x" * 100_000, "会议", "'; DROP TABLE memories;", "\0"],
)
def test_any_other_query_is_plain_text(memory: Memory, query: str) -> None:
    assert [hit.id for hit in memory.search(query)] == [1]


@pytest.mark.parametrize("budget", [-1, True, 2.0, "many", None])
def test_budgets(memory: Memory, budget: Any) -> None:
    with pytest.raises((ArgumentError, DTypeError), match=r"^token_budget: expected an int"):
        memory.recall("tea", token_budget=budget)


def test_other_arguments_of_recall(memory: Memory) -> None:
    with pytest.raises(DTypeError, match=r"^count_tokens: expected a function"):
        memory.recall("tea", token_budget=10, count_tokens="words")
    with pytest.raises(DTypeError, match=r"^compressor: expected an object with distill\(\)"):
        memory.recall("tea", token_budget=10, compressor=object())


@pytest.mark.parametrize("use", ["get", "update", "forget"])
@pytest.mark.parametrize(
    ("memory_id", "error"),
    [(0, MemoryNotFoundError), (2, MemoryNotFoundError), (-1, MemoryNotFoundError),
     (2**63 - 1, MemoryNotFoundError), (2**63, ArgumentError), ("1", DTypeError),
     (1.0, DTypeError), (True, DTypeError)],
)  # fmt: skip
def test_ids_that_are_none(
    memory: Memory, use: str, memory_id: Any, error: type[RiememError]
) -> None:
    more = {"text": "x"} if use == "update" else {}
    with pytest.raises(error, match=r"^ids?: "):
        getattr(memory, use)(memory_id, **more)
    assert [record.text for record in memory.list()] == ["tea with milk"]


def test_the_message_of_a_missing_id_is_readable(memory: Memory) -> None:
    with pytest.raises(KeyError) as caught:
        memory.get(12)
    assert str(caught.value) == "id: there is no memory 12 in this scope"


def test_forget_needs_something_to_forget(memory: Memory) -> None:
    for arguments in ({}, {"filters": {}}, {"filters": None}):
        with pytest.raises(ArgumentError, match=r"^forget: expected ids=, filters=, session= or"):
            memory.forget(**arguments)
    assert len(memory.list()) == 1


@pytest.mark.parametrize(
    ("items", "start"),
    [("text", "items: expected an iterable"), ({"text": "x"}, "items: expected an iterable"),
     (5, "items: expected an iterable"), (["x"], r"items\[0\]: expected a dict, got str"),
     ([{"text": "x"}, None], r"items\[1\]: expected a dict, got NoneType")],
)  # fmt: skip
def test_items_must_be_dicts(memory: Memory, items: Any, start: str) -> None:
    with pytest.raises(DTypeError, match=f"^{start}"):
        memory.add_many(items)
    assert len(memory.list()) == 1


def test_other_arguments(memory: Memory) -> None:
    with pytest.raises(ArgumentError, match=r"^order: expected one of"):
        memory.list(order="random")
    with pytest.raises(DTypeError, match=r"^progress: expected a function"):
        memory.add_many([{"text": "x"}], progress=5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^items\[0\]\.txt: unknown argument"):
        memory.add_many([{"txt": "x"}])


def test_open_checks_its_arguments_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    for arguments, error, start in (
        ({"embedder": object()}, DTypeError, "embedder: expected"),
        ({"profile": ""}, ArgumentError, "profile: expected a name"),
        ({"profile": None}, DTypeError, "profile: expected str"),
        ({"timeout": -1}, ArgumentError, "timeout: expected"),
        ({"durability": "none"}, ArgumentError, "durability: expected"),
    ):
        with pytest.raises(error, match=f"^{start}"):
            Memory.open(path, **arguments)
    assert list(tmp_path.iterdir()) == []

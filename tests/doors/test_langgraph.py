"""RiememStore against the real LangGraph, with its own in-memory store as the oracle."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from riemem.embed import HashingEmbedder
from riemem.errors import ArgumentError, DTypeError
from riemem.memory import Memory

pytest.importorskip(
    "langgraph.store.base",
    reason="langgraph-checkpoint is not installed: pip install 'riemem[langgraph]'",
)

from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from riemem.adapters.langgraph import RiememStore


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as opened:
        yield opened


def test_put_get_update_delete(memory: Memory) -> None:
    store = RiememStore(memory)
    before = datetime.now(timezone.utc)
    store.put(("users", "maya"), "home", {"city": "Porto", "since": 2021})
    item = store.get(("users", "maya"), "home")
    assert item is not None
    assert (item.namespace, item.key) == (("users", "maya"), "home")
    assert item.value == {"city": "Porto", "since": 2021}
    assert before <= item.created_at == item.updated_at <= datetime.now(timezone.utc)
    store.put(("users", "maya"), "home", {"city": "Braga"})
    changed = store.get(("users", "maya"), "home")
    assert changed is not None
    assert changed.value == {"city": "Braga"}
    assert changed.created_at == item.created_at < changed.updated_at
    assert memory.stats(profile="langgraph")["memories"] == 1
    assert memory.stats()["memories"] == 0  # nothing among what people said
    assert store.get(("users",), "home") is None
    assert store.get(("users", "maya"), "hom") is None
    store.delete(("users", "maya"), "home")
    store.delete(("users", "maya"), "home")
    assert store.get(("users", "maya"), "home") is None
    assert memory.check().ok


def test_names_that_look_alike_are_kept_apart(memory: Memory) -> None:
    store = RiememStore(memory)
    places = [
        (("a", "b"), "c"),
        (("a",), "b"),
        (("a/b",), "c"),
        (('a", "b',), "c"),
        (("a",), "x" * 5000),
    ]
    for number, (namespace, key) in enumerate(places):
        store.put(namespace, key, {"n": number})
    for number, (namespace, key) in enumerate(places):
        found = store.get(namespace, key)
        assert found is not None
        assert found.value == {"n": number}
    assert [item.value["n"] for item in store.search(("a",))] == [0, 1, 4]
    assert [item.value["n"] for item in store.search(())] == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidNamespaceError):
        store.put(("a.b",), "c", {})


def test_search_ranks_as_the_memory_does(memory: Memory) -> None:
    store = RiememStore(memory, fields=["text"])
    texts = ["tea at the mill", "rain on the roof", "the mill burnt down", "cold tea"]
    for number, text in enumerate(texts):
        store.put(
            ("notes", f"n{number % 2}"), f"k{number}", {"text": text, "even": number % 2 == 0}
        )
    hits = memory.search("mill tea", k=4, profile="langgraph")
    found = store.search(("notes",), query="mill tea")
    assert [item.value["text"] for item in found] == [hit.text for hit in hits]
    assert [item.score for item in found] == [hit.score for hit in hits]
    assert store.search(("notes",), query="mill tea", limit=2, offset=1) == found[1:3]
    even = store.search(("notes",), query="mill tea", filter={"even": True})
    assert {item.key for item in even} == {"k0", "k2"}
    inner = store.search(("notes", "n1"), query="mill tea")
    assert {item.key for item in inner} == {"k1", "k3"}
    assert store.search(("none",), query="mill tea") == []


def test_what_is_not_indexed_is_found_by_key_alone(memory: Memory) -> None:
    store = RiememStore(memory, fields=["text", "tags[*]"])
    store.put(("n",), "plain", {"text": "tea", "tags": ["mill", "dawn"]})
    store.put(("n",), "hidden", {"text": "tea"}, index=False)
    store.put(("n",), "other", {"title": "tea"})
    store.put(("n",), "own", {"title": "tea leaves"}, index=["title"])
    assert {item.key for item in store.search(("n",), query="tea")} == {"plain", "own"}
    assert store.search(("n",), query="dawn")[0].key == "plain"
    assert {item.key for item in store.search(("n",))} == {"plain", "hidden", "other", "own"}


def test_filters_and_bad_input(memory: Memory) -> None:
    store = RiememStore(memory)
    for number in range(4):
        store.put(("n",), f"k{number}", {"n": number, "deep": {"a": [number, 1]}})
    store.put(("n",), "text", {"n": "many"})

    def keys(**wanted: Any) -> list[str]:
        return [item.key for item in store.search(("n",), filter=wanted)]

    assert keys(n={"$gte": 2}) == ["k2", "k3"]
    assert keys(n={"$gt": 0, "$lt": 3}) == ["k1", "k2"]
    assert keys(n={"$ne": "many", "$lte": 1}) == ["k0", "k1"]
    assert keys(deep={"a": [2, 1]}) == ["k2"]
    assert keys(n={"$eq": "many"}) == ["text"]
    with pytest.raises(ArgumentError, match=r"filter: expected one of \$eq, .*got '\$like'"):
        keys(n={"$like": "x"})
    with pytest.raises(NotImplementedError):
        store.put(("n",), "k", {}, ttl=5)
    with pytest.raises(DTypeError, match="fields"):
        RiememStore(memory, fields="text")
    with pytest.raises(DTypeError, match="ops: expected operations"):
        store.batch([5])
    with pytest.raises(ValueError, match="JSON compliant"):
        store.put(("n",), "bad", {"x": float("nan")})


def test_a_batch_reads_before_it_writes(memory: Memory) -> None:
    store = RiememStore(memory)
    got = store.batch(
        [
            PutOp(("n",), "a", {"v": 1}),
            GetOp(("n",), "a"),
            PutOp(("n",), "a", {"v": 2}),
            SearchOp(("n",)),
            PutOp(("n",), "b", {"v": 3}),
            PutOp(("n",), "b", None),
        ]
    )
    assert got == [None, None, None, [], None, None]
    assert [item.value for item in store.search(("n",))] == [{"v": 2}]


NAMES = st.sampled_from(["a", "b", "c"])
SPACES = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
VALUES = st.dictionaries(NAMES, st.integers(0, 3) | st.sampled_from(["x", "y"]), max_size=2)
STEPS = st.one_of(
    st.tuples(st.just("put"), SPACES, NAMES, VALUES),
    st.tuples(st.just("delete"), SPACES, NAMES),
    st.tuples(st.just("get"), SPACES, NAMES),
    st.tuples(st.just("search"), st.lists(NAMES, max_size=2).map(tuple), VALUES),
    st.tuples(
        st.just("spaces"),
        st.lists(NAMES | st.just("*"), max_size=2).map(tuple),
        st.lists(NAMES | st.just("*"), max_size=2).map(tuple),
        st.integers(1, 3),
    ),
)


def _do(store: Any, step: tuple[Any, ...]) -> Any:
    what, *rest = step
    if what == "put":
        return store.put(*rest)
    if what == "delete":
        return store.delete(*rest)
    if what == "get":
        item = store.get(*rest)
        return item and (item.namespace, item.key, item.value)
    if what == "search":
        found = store.search(rest[0], filter=rest[1], limit=100)
        return sorted((item.namespace, item.key, repr(item.value)) for item in found)
    prefix, suffix, depth = rest
    return store.list_namespaces(
        prefix=prefix or None, suffix=suffix or None, max_depth=depth, limit=100
    )


@settings(max_examples=15)
@given(st.lists(STEPS, min_size=1, max_size=10))
def test_it_does_what_the_store_of_langgraph_does(steps: list[tuple[Any, ...]]) -> None:
    with Memory.open(":memory:", embedder=HashingEmbedder(dim=8)) as memory:
        ours, theirs = RiememStore(memory), InMemoryStore()
        emptied = set()
        for step in steps:
            found, expected = _do(ours, step), _do(theirs, step)
            if step[0] == "delete":
                emptied.add(step[1])
            if step[0] == "spaces" and emptied:
                continue  # theirs goes on listing namespaces that were emptied
            assert found == expected, step


def test_asynchronously(memory: Memory) -> None:
    store = RiememStore(memory)

    async def work() -> None:
        await asyncio.gather(*(store.aput(("n",), f"k{i}", {"i": i}) for i in range(8)))
        item = await store.aget(("n",), "k3")
        assert item is not None
        assert item.value == {"i": 3}
        assert len(await store.asearch(("n",))) == 8
        await store.adelete(("n",), "k3")
        assert await store.aget(("n",), "k3") is None
        assert await store.alist_namespaces() == [("n",)]

    asyncio.run(work())


def test_many_threads_putting_one_item_leave_one(tmp_path: Path) -> None:
    with Memory.open(tmp_path / "me.db", embedder=HashingEmbedder(dim=8)) as memory:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda i: RiememStore(memory).put(("n",), "k", {"i": i}), range(12)))
        (item,) = RiememStore(memory).search(("n",))
        assert item.value["i"] in range(12)
        assert memory.stats(profile="langgraph")["memories"] == 1
        assert memory.check().ok


def test_in_a_graph(memory: Memory) -> None:
    pytest.importorskip(
        "langgraph.graph", reason="langgraph is not installed: pip install 'riemem[langgraph]'"
    )
    from langgraph.graph import END, START, StateGraph
    from typing_extensions import TypedDict

    class State(TypedDict):
        said: str
        known: list[str]

    def answer(state: State, *, store: Any) -> dict[str, Any]:
        known = [item.value["text"] for item in store.search(("notes",), query=state["said"])]
        store.put(("notes",), state["said"], {"text": state["said"]})
        return {"known": known}

    answer.__annotations__["store"] = __import__("langgraph.store.base").store.base.BaseStore
    builder = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    graph = builder.compile(store=RiememStore(memory, fields=["text"]))
    assert graph.invoke({"said": "tea at the mill", "known": []})["known"] == []
    assert graph.invoke({"said": "tea?", "known": []})["known"] == ["tea at the mill"]

"""AsyncMemory: the same answers as Memory, a loop that goes on, and cancellation without loss."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from riemem.async_memory import AsyncMemory
from riemem.embed import HashingEmbedder
from riemem.errors import ArgumentError, CancelledError, DTypeError, StoreError
from riemem.memory import Memory

R = TypeVar("R")


class Gate(HashingEmbedder):
    """An embedder that waits inside ``embed`` until the test opens the gate."""

    def __init__(self) -> None:
        super().__init__(dim=32)
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def embed(self, texts: Any) -> np.ndarray:
        self.entered.release()
        assert self.open.wait(60), "the loop never opened the gate: it is blocked"
        return super().embed(texts)


def run(work: Coroutine[Any, Any, R]) -> R:
    return asyncio.run(work)


async def entered(gate: Gate) -> None:
    """Wait in the loop until a thread is inside ``embed``."""
    while not gate.entered.acquire(blocking=False):
        await asyncio.sleep(0)


def test_every_method_of_memory_is_there_with_its_signature() -> None:
    for name, method in inspect.getmembers(Memory):
        if name.startswith("_") or name == "open":
            continue
        twin = getattr(AsyncMemory, name)
        if isinstance(inspect.getattr_static(Memory, name), property):
            assert isinstance(inspect.getattr_static(AsyncMemory, name), property)
        elif name == "reembed_store":
            assert list(inspect.signature(twin).parameters) == list(
                inspect.signature(method).parameters
            )
        else:
            assert inspect.iscoroutinefunction(twin), name
            assert twin.__doc__, name
            if name != "close":
                assert inspect.signature(twin) == inspect.signature(method), name


def test_it_answers_as_memory_does(tmp_path: Path) -> None:
    embedder = HashingEmbedder(dim=64)
    items = [{"text": f"walk {i} to the mill", "speaker": "Ana"} for i in range(40)]

    async def work() -> list[Any]:
        async with AsyncMemory.open(tmp_path / "me.db", embedder=embedder) as memory:
            ids = await memory.add_many(items)
            one = await memory.add("tea at the mill", session="s1", key="k")
            assert await memory.add("tea at the mill", session="s1", key="k") == one == 41
            found = await memory.search("mill tea", k=5)
            context = await memory.recall("mill", token_budget=200, count_tokens=len)
            assert (await memory.forget(ids[3])).ids == (4,)
            changed = await memory.update(one, text="coffee at the mill")
            assert (await memory.check()).ok
            return [found, context.text, changed.text, (await memory.stats())["memories"]]

    found, text, changed, count = run(work())
    with Memory.open(tmp_path / "twin.db", embedder=embedder) as twin:
        twin.add_many(items)
        twin.add("tea at the mill", session="s1", key="k")
        expected = twin.search("mill tea", k=5)
        assert [(h.id, h.score) for h in found] == [(h.id, h.score) for h in expected]
        packed = twin.recall("mill", token_budget=200, count_tokens=len)
        assert len(text) == packed.tokens
    assert (changed, count) == ("coffee at the mill", 40)


def test_the_loop_goes_on_while_a_thread_works(tmp_path: Path) -> None:
    gate = Gate()

    async def work() -> int:
        async with AsyncMemory.open(tmp_path / "me.db", embedder=gate) as memory:
            adding = asyncio.create_task(memory.add("one"))
            await entered(gate)  # a blocked loop could not come back from here
            assert await memory.stats() is not None
            gate.open.set()
            return await adding

    assert run(work()) == 1


def test_a_cancelled_write_that_waits_for_a_thread_never_happens(tmp_path: Path) -> None:
    gate = Gate()

    async def work() -> None:
        async with AsyncMemory.open(tmp_path / "me.db", embedder=gate, threads=1) as memory:
            first = asyncio.create_task(memory.add("first"))
            await entered(gate)
            second = asyncio.create_task(memory.add("second"))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            gate.open.set()
            assert await first == 1
            assert [record.text for record in await memory.list()] == ["first"]

    run(work())


def test_a_cancelled_add_many_stops_and_leaves_nothing(tmp_path: Path) -> None:
    gate = Gate()

    async def work() -> None:
        async with AsyncMemory.open(tmp_path / "me.db", embedder=gate) as memory:
            adding = asyncio.create_task(memory.add_many([{"text": f"{i}"} for i in range(600)]))
            await entered(gate)
            adding.cancel()
            for _ in range(3):  # cancelling again must not tear the wait
                await asyncio.sleep(0)
                adding.cancel()
            assert not adding.done()
            gate.open.set()
            with pytest.raises(asyncio.CancelledError):
                await adding
            assert not gate.entered.acquire(blocking=False)  # the second batch never began
            assert (await memory.stats())["memories"] == 0
            assert (await memory.check()).ok

    run(work())


def test_a_cancelled_add_is_whole(tmp_path: Path) -> None:
    gate = Gate()

    async def work() -> None:
        async with AsyncMemory.open(tmp_path / "me.db", embedder=gate) as memory:
            adding = asyncio.create_task(memory.add("one", key="k"))
            await entered(gate)
            adding.cancel()
            await asyncio.sleep(0)
            gate.open.set()
            with pytest.raises(asyncio.CancelledError):
                await adding
            assert await memory.add("one", key="k") == 1
            assert len(await memory.list()) == 1
            assert (await memory.check()).ok

    run(work())


def test_a_cancelled_read_returns_at_once(tmp_path: Path) -> None:
    gate = Gate()
    with Memory.open(tmp_path / "me.db", embedder=HashingEmbedder(dim=32)) as memory:
        memory.add("tea")

    async def work() -> None:
        async with AsyncMemory.open(tmp_path / "me.db", embedder=gate) as memory:
            asking = asyncio.create_task(memory.search("tea"))
            await entered(gate)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking  # the thread still waits at the gate
            assert not gate.open.is_set()
            gate.open.set()

    run(work())


def test_closing_waits_for_the_calls_that_run(tmp_path: Path) -> None:
    gate = Gate()

    async def work() -> None:
        memory = await AsyncMemory.open(tmp_path / "me.db", embedder=gate)
        adding = asyncio.create_task(memory.add("one"))
        await entered(gate)
        closing = asyncio.create_task(memory.close())
        await asyncio.sleep(0)
        assert not closing.done()
        gate.open.set()
        await closing
        assert await adding == 1
        await memory.close()
        assert "closed" in repr(memory)
        with pytest.raises((StoreError, RuntimeError)):
            await memory.stats()

    run(work())


def test_progress_and_errors_pass_through(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []

    async def work() -> None:
        embedder = HashingEmbedder(dim=8)
        async with AsyncMemory.open(tmp_path / "me.db", embedder=embedder) as memory:
            await memory.add_many(
                [{"text": "a"}, {"text": "b"}], progress=lambda *step: steps.append(step)
            )
            with pytest.raises(DTypeError, match=r"^progress: expected a function, got int"):
                await memory.add_many([{"text": "c"}], progress=5)  # type: ignore[arg-type]
            assert await memory.add_many([{"text": "c"}], progress=lambda *_: False) == []
            with pytest.raises(CancelledError):
                await memory.export(tmp_path / "x.jsonl", progress=lambda *_: False)
            await memory.export(tmp_path / "x.jsonl")
            taken = await memory.import_(tmp_path / "x.jsonl", profile="p2")
            assert taken.memories == 2
            with pytest.raises(ArgumentError, match="k: expected an int >= 0"):
                await memory.search("tea", k=-1)
            assert await memory.backup(tmp_path / "b.db") > 0
        assert (
            await AsyncMemory.reembed_store(tmp_path / "b.db", embedder=HashingEmbedder(dim=16))
            == 4
        )
        with pytest.raises(ArgumentError, match="threads: expected an int >= 1, got 0"):
            await AsyncMemory.open(tmp_path / "b.db", threads=0)

    run(work())
    assert steps == [(0, 2), (2, 2)]


def test_many_tasks_at_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with AsyncMemory.open(tmp_path / "me.db", embedder=HashingEmbedder(dim=16)) as memory:
            ids = await asyncio.gather(*(memory.add(f"memory {i}") for i in range(60)))
            assert sorted(ids) == list(range(1, 61))
            found = await asyncio.gather(*(memory.search(f"memory {i}", k=1) for i in range(20)))
            assert all(len(hits) == 1 for hits in found)
            assert (await memory.check()).ok

    run(work())

"""Many threads, many processes, and processes that die."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import MemoryNotFoundError, StoreError, StoreLockedError
from riemem.memory import Memory

EMBEDDER = HashingEmbedder(dim=16)


def test_sixteen_threads_on_one_memory(tmp_path: Path) -> None:
    with Memory.open(
        tmp_path / "me.db", embedder=EMBEDDER, timeout=60, durability="normal"
    ) as memory:

        def work(number: int) -> tuple[int, int]:
            rng, added, forgotten, mine = random.Random(number), 0, 0, []
            for step in range(25):
                action = rng.random()
                if action < 0.5 or not mine:
                    text = f"thread {number} step {step}"
                    mine.append((memory.add(text, session=f"t{number}"), text))
                    added += 1
                elif action < 0.7:
                    for hit in memory.search(f"thread {number}", k=3):
                        assert hit.text.startswith("thread ")
                elif action < 0.9:
                    memory_id, text = rng.choice(mine)
                    assert memory.get(memory_id).text == text
                elif action < 0.97:
                    memory_id, _ = mine.pop(rng.randrange(len(mine)))
                    memory.update(memory_id, metadata={"step": step})
                else:
                    assert memory.forget(mine.pop()[0]).count == 1
                    forgotten += 1
            return added, forgotten

        with ThreadPoolExecutor(16) as pool:
            counts = list(pool.map(work, range(16)))
        expected = sum(added - gone for added, gone in counts)
        assert len(memory.list()) == memory.stats()["memories"] == expected
        assert len(memory.search("thread", k=10**6)) == expected
        assert memory.check().ok


def test_asyncio_to_thread(tmp_path: Path) -> None:
    async def use(memory: Memory) -> list[int]:
        return await asyncio.gather(
            *(asyncio.to_thread(memory.add, f"note {i}") for i in range(20))
        )

    with Memory.open(tmp_path / "me.db", embedder=EMBEDDER, timeout=60) as memory:
        assert sorted(asyncio.run(use(memory))) == list(range(1, 21))


def test_a_search_between_scoring_and_reading_never_shows_another_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from riemem.retrieval.hybrid import HybridChannel

    original = HybridChannel.search
    with Memory.open(tmp_path / "me.db", embedder=EMBEDDER) as memory:
        for text in ("tea", "tea and milk", "dogs"):
            memory.add(text)

        def paused(channel: HybridChannel, *args: object, **options: object) -> object:
            found = original(channel, *args, **options)  # type: ignore[arg-type]
            memory.forget(found[0][0])
            memory.add("somebody else's text")
            return found

        monkeypatch.setattr(HybridChannel, "search", paused)
        hits = memory.search("tea", k=2)
        assert [hit.text for hit in hits] == ["tea and milk"]


WRITER = """
import sys
from riemem.embed import HashingEmbedder
from riemem.memory import Memory
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Memory.open(path, embedder=HashingEmbedder(dim=16), timeout=60) as memory:
    print("ready", flush=True)
    sys.stdin.readline()
    for i in range(count):
        memory.add(f"{name} {i}", session=name)
        if i % 10 == 9:
            memory.update(memory.list(session=name)[-1].id, text=f"{name} {i} changed")
"""


def test_two_processes_write_while_others_read(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=EMBEDDER, timeout=60) as memory:
        children = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(path), name, "60"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in ("left", "right")
        ]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        seen = 0
        while any(child.poll() is None for child in children):
            hits = memory.search("left right changed", k=10**6)
            assert len(hits) >= seen  # nothing that was there goes away
            seen = len(hits)
            assert all(hit.text.split()[0] == hit.session for hit in hits)
        for child in children:
            child.communicate()
            assert child.returncode == 0
        for name in ("left", "right"):
            texts = [record.text for record in memory.list(session=name, order="id")]
            assert texts == [f"{name} {i}" + " changed" * (i % 10 == 9) for i in range(60)]
        assert len(memory.search("changed", k=10**6)) == 120
        assert memory.check().ok


def test_two_processes_may_make_the_store_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from riemem.store import Store; sys.stdin.readline(); "
        "Store.open(sys.argv[1], timeout=30).close()"
    )
    for round_ in range(3):
        path = str(tmp_path / f"{round_}.db")
        children = [
            subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE, text=True)
            for _ in range(3)
        ]
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in children:
            child.communicate()
        assert [child.returncode for child in children] == [0, 0, 0]
        with Memory.open(path, embedder=EMBEDDER) as memory:
            assert memory.check().ok


VICTIM = """
import random, sys
from riemem.embed import HashingEmbedder
from riemem.memory import Memory
path, seed = sys.argv[1], int(sys.argv[2])
rng = random.Random(seed)
with Memory.open(path, embedder=HashingEmbedder(dim=16)) as memory:
    mine = []
    for step in range(10_000):
        action = rng.random()
        if action < 0.7 or not mine:
            print("start add", f"{seed}.{step}", flush=True)
            long = "x" * rng.choice([0, 500_000])
            meta = {"name": f"{seed}.{step}", "long": long}
            mine.append(memory.add(f"{seed}.{step} text", metadata=meta))
        elif action < 0.9:
            i = rng.choice(mine)
            print("start update", i, f"{seed}.{step}", flush=True)
            memory.update(i, text=f"{seed}.{step} new", metadata={"name": f"{seed}.{step}"})
        else:
            i = mine.pop(rng.randrange(len(mine)))
            print("start forget", i, flush=True)
            memory.forget(i)
        print("done", mine[-1] if mine else 0, flush=True)
"""


def test_an_acknowledged_write_survives_kill_9_and_an_unfinished_one_leaves_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "me.db"
    rng = random.Random(0)
    truth: dict[int, str] = {}  # id -> name of the text that must be there
    for seed in range(10):
        child = subprocess.Popen(
            [sys.executable, "-c", VICTIM, str(path), str(seed)],
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert child.stdout is not None
        wanted, lines = rng.randint(1, 40), []
        for line in child.stdout:  # killed somewhere within a write
            lines.append(line.split())
            if len(lines) >= wanted:
                child.send_signal(signal.SIGKILL)
                break
        lines += [line.split() for line in child.stdout.read().splitlines() if line]
        child.stdout.close()
        assert child.wait() in (-signal.SIGKILL, 0)
        doubtful = replay(lines, truth)
        with Memory.open(path, embedder=EMBEDDER) as memory:
            there = {record.id: record.metadata["name"] for record in memory.list()}
            assert there in doubtful
            truth = there
            assert memory.check().ok
            texts = {record.id: record.text.split()[0] for record in memory.list()}
            assert texts == there
            assert {hit.id for hit in memory.search("text", k=10**6)} == set(there)


def replay(lines: list[list[str]], truth: dict[int, str]) -> list[dict[int, str]]:
    """What may be in the store: all that was acknowledged, and the last write or not."""
    state = dict(truth)
    before = state
    for line in lines:
        if line[0] == "start":
            before = dict(state)
            if line[1] == "add":
                pending = line[2]
            elif line[1] == "update":
                state[int(line[2])] = line[3]
            else:
                del state[int(line[2])]
            last = line[1]
        elif last == "add":
            state[int(line[1])] = pending
    if lines and lines[-1][0] == "start" and last == "add":
        new_id = max([*state, 0]) + 1
        # A forgotten id is never given again, so the new one may be higher.
        return [before, *({**state, i: pending} for i in range(new_id, new_id + 60))]
    return [before, state] if lines and lines[-1][0] == "start" else [state]


def test_a_busy_store_is_an_error_and_never_a_silent_nothing(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=EMBEDDER, timeout=0.05) as memory:
        first = memory.add("tea")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for use in (
            lambda: memory.add("x"),
            lambda: memory.update(first, text="x"),
            lambda: memory.forget(first),
        ):
            with pytest.raises(StoreLockedError, match=r"locked for more than 0\.05 s"):
                use()
        assert [hit.text for hit in memory.search("tea")] == ["tea"]
        with Memory.open(path, embedder=EMBEDDER, timeout=0.05) as second:
            assert second.get(first).text == "tea"
        other.execute("ROLLBACK")
        other.close()
        assert memory.add("milk") == first + 1


def test_an_update_that_races_with_another_is_made_on_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from riemem.store import writes

    original = writes.update
    with Memory.open(tmp_path / "me.db", embedder=EMBEDDER) as memory:
        i = memory.add("tea", metadata={"a": 1})
        raced = threading.Event()

        def slow(*arguments: object) -> bool:
            if not raced.is_set():
                raced.set()
                memory.update(i, metadata={"a": 2})
            return original(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(writes, "update", slow)
        record = memory.update(i, text="milk")
        assert (record.text, record.metadata) == ("milk", {"a": 2})

        def vanish(*arguments: object) -> bool:
            monkeypatch.setattr(writes, "update", original)
            memory.forget(i)
            return original(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(writes, "update", vanish)
        with pytest.raises(MemoryNotFoundError, match=f"there is no memory {i}"):
            memory.update(i, text="wine")


@pytest.mark.parametrize("replaced", [False, True])
def test_a_deleted_or_replaced_file_under_an_open_store_is_said(
    tmp_path: Path, replaced: bool
) -> None:
    path = tmp_path / "me.db"
    memory = Memory.open(path, embedder=EMBEDDER)
    memory.add("tea")
    os.rename(path, tmp_path / "moved.db")
    if replaced:
        Memory.open(path, embedder=EMBEDDER).close()
    for use in (lambda: memory.add("lost"), memory.list, lambda: memory.search("tea")):
        with pytest.raises(StoreError, match="was deleted or replaced while it was open"):
            use()
    memory.close()


def test_a_relative_path_survives_a_change_of_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with Memory.open("me.db", embedder=EMBEDDER) as memory:
        monkeypatch.chdir(tmp_path / "elsewhere")
        memory.add("tea")
        assert memory.stats()["file_bytes"] > 0
        assert memory.search("tea")[0].text == "tea"
    assert [f.name for f in tmp_path.iterdir() if f.is_file()] == ["me.db"]

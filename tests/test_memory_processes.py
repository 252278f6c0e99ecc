"""Four writers and four readers on one file: nothing lost, doubled or torn, waits that end.

RIEMEM_CONTENTION_SECONDS says for how long (4; the full run is 20).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import StoreLockedError
from riemem.memory import Memory

SECONDS = float(os.environ.get("RIEMEM_CONTENTION_SECONDS", "4"))
EMBEDDER = HashingEmbedder(dim=16)
TIMEOUT = 30.0

# Every text names its session and a number twice, so that a torn one cannot go unnoticed.
WRITER = """
import json, random, sys, time
from riemem.embed import HashingEmbedder
from riemem.memory import Memory

path, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
rng, mine, step = random.Random(name), {}, 0
with Memory.open(path, embedder=HashingEmbedder(dim=16), timeout=30, durability="normal") as memory:
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        step += 1
        text = f"{name} {step} {name} {step}"
        action = rng.random()
        if action < 0.6 or not mine:
            mine[memory.add(text, session=name, metadata={"n": step})] = text
        elif action < 0.75:
            items = [{"text": text, "session": name, "metadata": {"n": step}} for _ in range(3)]
            mine.update(dict.fromkeys(memory.add_many(items), text))
        elif action < 0.95:
            i = rng.choice(sorted(mine))
            memory.update(i, text=text, metadata={"n": step})
            mine[i] = text
        elif step % 3 == 0:
            i = rng.choice(sorted(mine))
            memory.forget(i, session=name)
            del mine[i]
print(json.dumps({str(i): text for i, text in mine.items()}))
"""

READER = """
import sys, time
from riemem.embed import HashingEmbedder
from riemem.memory import Memory

path, seconds = sys.argv[1], float(sys.argv[3])
with Memory.open(path, embedder=HashingEmbedder(dim=16), timeout=30, readonly=True) as memory:
    print("ready", flush=True)
    sys.stdin.readline()
    end, looks = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for found in (memory.search("w0 w1 w2 w3", k=50), memory.list(limit=50, order="-id")):
            for one in found:
                name, step, again, number = one.text.split()
                assert (name, step) == (again, number), one
                assert name == one.session and int(step) == one.metadata["n"], one
        ids = [record.id for record in memory.list(order="id")]
        assert len(ids) == len(set(ids))
        looks += 1
print(looks)
"""


def start(code: str, path: Path, name: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path), name, str(SECONDS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


@pytest.mark.timeout(max(300, 10 * SECONDS))
def test_four_writers_and_four_readers(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    Memory.open(path, embedder=EMBEDDER).close()
    writers = [start(WRITER, path, f"w{i}") for i in range(4)]
    readers = [start(READER, path, f"r{i}") for i in range(4)]
    ended = [child.communicate() for child in let_go([*writers, *readers])]
    for child, (_, complaint) in zip([*writers, *readers], ended, strict=True):
        assert child.returncode == 0, complaint
    expected: dict[int, str] = {}
    for said, _ in ended[:4]:
        written: dict[str, Any] = json.loads(said)
        assert written, "a writer was never let in"
        assert not expected.keys() & {int(i) for i in written}
        expected |= {int(i): text for i, text in written.items()}
    assert all(int(said) > 0 for said, _ in ended[4:])
    with Memory.open(path, embedder=EMBEDDER, timeout=TIMEOUT) as memory:
        assert {record.id: record.text for record in memory.list()} == expected
        assert {hit.id for hit in memory.search("w0", k=10**6)} == expected.keys()
        report = memory.check()
        assert report.ok, report.problems
        assert not memory.stats()["erasure_pending"]


def let_go(children: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    """Send all on their way before the first is waited for."""
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    return children


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE meta SET value = value WHERE key = 'revision'")
print("holding", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
"""


def test_a_process_that_holds_a_write_is_waited_for_and_blocks_no_reader(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with (
        Memory.open(path, embedder=EMBEDDER, timeout=0.2) as hasty,
        Memory.open(path, embedder=EMBEDDER, timeout=60) as patient,
    ):
        hasty.add("tea")
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holding\n"
        began = time.monotonic()
        with pytest.raises(StoreLockedError, match=r"more than 0\.2 s"):
            hasty.add("lost")
        assert time.monotonic() - began >= 0.2
        for memory in (hasty, patient):
            assert [hit.text for hit in memory.search("tea")] == ["tea"]
            assert memory.stats()["memories"] == 1
        assert Memory.open(path, embedder=EMBEDDER, timeout=0.2).list()[0].text == "tea"
        assert holder.stdin is not None
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert patient.add("milk") == 2
        holder.communicate()
        assert [record.text for record in hasty.list(order="id")] == ["tea", "milk"]

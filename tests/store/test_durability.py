"""An acknowledged write survives kill -9 at any instruction, an unacknowledged one leaves nothing.

RIEMEM_KILLS says how often the writer is killed (300; the long run is 10000).
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from riemem.embed import HashingEmbedder
from riemem.memory import Memory
from riemem.retrieval.token_rows import token_rows
from riemem.store.reads import stored_vectors
from riemem.store.token_vectors import token_rows_of

KILLS = int(os.environ.get("RIEMEM_KILLS", "300"))
DIM = 8
EMBEDDER = HashingEmbedder(dim=DIM)
MOST = 12  # memories kept, so that a forget rewrites a small file

# One process that has everything imported and forks a writer per round, because starting Python
# three hundred times would be all that is measured. It has no threads.
NURSERY = """
import json, os, random, sys
from riemem.embed import HashingEmbedder
from riemem.memory import Memory
from riemem.retrieval import corpus, loading, postings

corpus._LEAST_KEPT = corpus._LEAST_BETWEEN = 1  # searches keep segments of so few memories
corpus.PART_TEXTS = postings.PART_TEXTS = loading.REBUILT_ROWS = 4
HashingEmbedder.tokens_by_default = True  # a new store keeps them
path, acknowledgements = sys.argv[1], int(sys.argv[2])

def say(*words):
    os.write(acknowledgements, json.dumps(words).encode() + b"\\n")

def write(seed):
    rng = random.Random(seed)
    with Memory.open(path, embedder=HashingEmbedder(dim=8), timeout=30) as memory:
        mine = {record.id for record in memory.list()}
        say("opened")
        for step in range(100_000):
            name = f"{seed}.{step}"
            size = rng.choice([0, 10, 300, 20_000])
            text, metadata = f"{name} {size}", {"name": name, "long": "x" * size}
            action = rng.random()
            if rng.random() < 0.3:
                memory.search(name)
            if len(mine) >= 12 or (mine and action < 0.15):
                i = rng.choice(sorted(mine))
                say("forget", i)
                memory.forget(i)
                mine.discard(i)
            elif mine and action < 0.4:
                i = rng.choice(sorted(mine))
                say("update", i, text)
                memory.update(i, text=text, metadata=metadata)
            else:
                say("add", text, name)
                i = memory.add(text, metadata=metadata)
                mine.add(i)
                say("id", i)
                continue
            say("done")

with Memory.open(":memory:", embedder=HashingEmbedder(dim=8)) as memory:  # load all there is
    memory.add("x")
    memory.search("x")
    memory.update(1, text="y")
    memory.forget(1)
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        try:
            write(int(line))
        finally:
            os._exit(3)
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""


@dataclass
class Truth:
    """What must be in the store: id -> text, after the acknowledged operations."""

    state: dict[int, str] = field(default_factory=dict)
    pending: list[Any] | None = None

    def hear(self, words: list[Any]) -> None:
        if words[0] in ("add", "update", "forget"):
            self.pending = words
        elif words[0] == "id":
            assert self.pending is not None
            self.state[words[1]] = self.pending[1]
            self.pending = None
        elif words[0] == "done":
            self.state = self.with_pending(0)
            self.pending = None

    def with_pending(self, new_id: int) -> dict[int, str]:
        """The state if the write that was under way is there, too."""
        state, words = dict(self.state), self.pending
        if words is None:
            return state
        if words[0] == "add":
            state[new_id] = words[1]
        elif words[0] == "update":
            state[words[1]] = words[2]
        else:
            del state[words[1]]
        return state


def check(path: Path, truth: Truth, newest: int) -> int:
    """The store holds the acknowledged writes, and the one under way wholly or not at all."""
    with Memory.open(path, embedder=EMBEDDER, timeout=30) as memory:
        records = memory.list(order="id")
        there = {record.id: record.text for record in records}
        fresh = [i for i in there if i > newest and i not in truth.state]
        assert len(fresh) <= 1
        assert there in (truth.state, truth.with_pending(fresh[0] if fresh else 0))
        for record in records:
            name, size = record.text.split()
            assert record.metadata == {"name": name, "long": "x" * int(size)}
        report = memory.check()
        assert report.ok, report.problems
        if records:
            last = records[-1]
            vector = EMBEDDER.embed([last.text])
            assert (stored_vectors(memory._store, last.id) == vector).all()
            stats = memory.stats()
            assert not stats["erasure_pending"]
            tokens = stats["late_interaction"]
            assert (tokens["on"], tokens["memories"], tokens["missing"]) == (True, len(there), 0)
            with memory._store.reading() as connection:
                (rows,) = token_rows_of(connection, [last.id]).values()
            (own,) = EMBEDDER.embed_with_tokens([last.text])[1]
            assert rows == token_rows(last.text, own)
    truth.state, truth.pending = there, None
    return max([newest, *there])


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a process that is killed leaves both alike."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.timeout(max(300, KILLS))
def test_nothing_is_lost_and_nothing_half_done_when_the_writer_is_killed(
    quick_folder: Path,
) -> None:
    path = quick_folder / "me.db"
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    nursery = subprocess.Popen(
        [sys.executable, "-c", NURSERY, str(path), str(writing)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[writing],
        text=True,
        bufsize=1,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    os.close(writing)
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    rng = random.Random(0)
    truth, newest = Truth(), 0
    interrupted = {"add": 0, "update": 0, "forget": 0, None: 0}
    for seed in range(KILLS):
        nursery.stdin.write(f"{seed}\n")
        pid = int(nursery.stdout.readline())
        heard = b""
        # Some are killed while they open, with what the one before left in the log.
        if rng.random() < 0.8:
            while b"opened" not in heard:
                heard += drain(reading, 10.0)
        deadline = time.monotonic() + rng.uniform(0, 0.03)
        while (left := deadline - time.monotonic()) > 0:  # keep the pipe empty, or it would wait
            heard += drain(reading, left)
        os.kill(pid, signal.SIGKILL)
        status = int(nursery.stdout.readline())
        assert os.WIFSIGNALED(status), "the writer ended by itself"
        heard += drain(reading)
        for line in heard.splitlines():
            truth.hear(json.loads(line))
        interrupted[truth.pending[0] if truth.pending else None] += 1
        newest = check(path, truth, newest)
    nursery.stdin.close()
    assert nursery.wait() == 0
    nursery.stdout.close()
    os.close(reading)
    # The kills came everywhere; a run that never got beyond opening would prove nothing.
    if KILLS >= 300:
        assert min(interrupted.values()) > 0, interrupted


def drain(descriptor: int, wait: float = 0.0) -> bytes:
    heard = b""
    select.select([descriptor], [], [], wait)
    while True:
        try:
            part = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return heard
        if not part:
            return heard
        heard += part

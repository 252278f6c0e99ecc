"""The store against bare SQLite: add, add_many, open, forget, search under writes, recall.

    RIEMEM_BENCH_STORE=10000 pytest -s bench/bench_store.py
    RIEMEM_BENCH_STORE=100000 pytest -s bench/bench_store.py -k open

Nothing is embedded: the embedder hands out prepared vectors of 384 dimensions. The rows of bare
SQLite are the same bytes in one table with an integer key, on the same disk, in WAL mode with the
same page size and `synchronous = FULL`. What is printed beside a time is its ratio to that.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from riemem.embed import TokenVectors
from riemem.memory import Memory
from riemem.retrieval.dense import DenseChannel
from riemem.store.schema import PAGE_SIZE

N = int(os.environ.get("RIEMEM_BENCH_STORE", "10000"))
DIM = 384
WORDS = [
    *("harbour", "kettle", "photography", "bicycle", "lantern", "orchard", "violin", "passport"),
    *("thunder", "saffron", "marathon", "pottery", "glacier", "notebook", "sailing", "tango"),
    *("compass", "velvet", "meadow", "espresso"),
]


class Prepared:
    """Vectors around 300 centres, made beforehand."""

    identity, dim, max_tokens = "prepared", DIM, 10**9

    def __init__(self, count: int = 8192) -> None:
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(300, DIM))[rng.integers(0, 300, count)]
        rows += rng.normal(size=rows.shape)
        self.rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        self.next = 0

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return the next rows."""
        self.next += len(texts)
        return self.rows[np.arange(self.next - len(texts), self.next) % len(self.rows)]


class Worded(Prepared):
    """The same, and a vector for each word, of 2,000 made beforehand; a new store keeps those."""

    identity = "prepared-with-words"

    def embed_with_tokens(self, texts: Sequence[str]) -> tuple[np.ndarray, list[TokenVectors]]:
        """Return the next rows, and each word's."""
        return self.embed(texts), [self._words(text) for text in texts]

    def _words(self, text: str) -> TokenVectors:
        places = [word.span() for word in re.finditer(r"\w+", text)]
        starts, ends = np.array(places, np.int32).reshape(-1, 2).T
        own = [zlib.crc32(text[a:b].encode()) % 2000 for a, b in places]
        return TokenVectors(starts, ends, self.rows[own])


EMBEDDER = Prepared()
WORDED = Worded()


def items(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Turns of 12 words, 50 to a session, a minute apart."""
    made = []
    for i in range(start, start + count):
        words = [WORDS[(i * k + i // 7) % len(WORDS)] for k in range(1, 11)]
        minute = i % 60
        made.append(
            {
                "text": f"turn {i} {' '.join(words)}",
                "speaker": "Ana" if i % 2 else "Dave",
                "session": f"s{i // 50}",
                "when": f"2024-{1 + i // 3000 % 12:02d}-{1 + i // 60 % 28:02d}T10:{minute:02d}:00Z",
                "metadata": {"topic": WORDS[i % len(WORDS)]},
            }
        )
    return made


class Bare:
    """One table of SQLite with the same values."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, text TEXT, speaker TEXT, "
            "session TEXT, at TEXT, metadata TEXT, vector BLOB)"
        )

    def add(self, made: Sequence[dict[str, Any]]) -> None:
        """Insert in one transaction."""
        vectors = EMBEDDER.embed([""] * len(made))
        self.db.execute("BEGIN IMMEDIATE")
        self.db.executemany(
            "INSERT INTO t (text, speaker, session, at, metadata, vector) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            [
                (m["text"], m["speaker"], m["session"], m["when"], str(m["metadata"]), v.tobytes())
                for m, v in zip(made, vectors, strict=True)
            ],
        )
        self.db.execute("COMMIT")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store of N memories."""
    path = tmp_path_factory.mktemp("store") / "me.db"
    with Memory.open(path, embedder=EMBEDDER) as memory:
        memory.add_many(items(N))
    yield path
    shutil.rmtree(path.parent)


def times(call: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Median and best seconds of a call."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return float(np.median(took)), min(took)


def report(name: str, **figures: float | str) -> None:
    """Print one line."""
    shown = ", ".join(
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in figures.items()
    )
    print(f"\n{name}: {shown}")


def test_one_durable_add(tmp_path: Path) -> None:
    """In turn with the bare commit of the same row, so that the disk's moods hit both."""
    bare, ours, theirs = Bare(tmp_path / "bare.db"), [], []
    with Memory.open(tmp_path / "me.db", embedder=EMBEDDER) as memory:
        memory.add_many(items(1000))
        bare.add(items(1000))
        for item in items(150, start=1000):
            began = time.perf_counter()
            memory.add(**item)
            middle = time.perf_counter()
            bare.add([item])
            ours.append(middle - began)
            theirs.append(time.perf_counter() - middle)
        assert len(memory.list()) == 1150
    ratios = np.array(ours) / np.array(theirs)
    report(
        "add",
        ms=1e3 * float(np.median(ours)),
        bare_ms=1e3 * float(np.median(theirs)),
        ratio=float(np.median(ratios)),
    )


def test_add_many(tmp_path: Path) -> None:
    """N memories in one call, without embedding; wall and processor time."""
    made = items(N)
    best, best_cpu, best_bare = np.inf, np.inf, np.inf
    for i in range(3):
        with Memory.open(tmp_path / f"{i}.db", embedder=EMBEDDER) as memory:
            began, cpu = time.perf_counter(), time.process_time()
            ids = memory.add_many(made)
            best = min(best, time.perf_counter() - began)
            best_cpu = min(best_cpu, time.process_time() - cpu)
            assert len(ids) == N
        bare = Bare(tmp_path / f"bare{i}.db")
        began = time.perf_counter()
        bare.add(made)
        best_bare = min(best_bare, time.perf_counter() - began)
    report(
        "add_many",
        per_second=N / best,
        per_processor_second=N / best_cpu,
        bare_per_second=N / best_bare,
        ratio=best / best_bare,
    )


def processor(call: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Best seconds of the processor and of the wall."""
    took = []
    for _ in range(rounds):
        began, cpu = time.perf_counter(), time.process_time()
        call()
        took.append((time.process_time() - cpu, time.perf_counter() - began))
    cpus, walls = zip(*took, strict=True)
    return min(cpus), min(walls)


def test_open_to_the_first_search(tmp_path: Path) -> None:
    """The vectors alone, and all that `Memory.search` looks at; no two vectors are equal.

    Texts have 25 words as those of a conversation have them: the word of rank r as often as 1 / r.
    """
    path, embedder = tmp_path / "me.db", Prepared(N)
    rng = np.random.default_rng(1)
    shares = 1.0 / np.arange(1, 5001)
    drawn = rng.choice(5000, size=(N, 25), p=shares / shares.sum())
    names = np.array([f"{WORDS[i % len(WORDS)]}{i // len(WORDS):x}" for i in range(5000)])
    made = items(N)
    for item, words in zip(made, names[drawn].tolist(), strict=True):
        item["text"] = " ".join(words)
    began = time.perf_counter()
    with Memory.open(path, embedder=embedder) as memory:
        for start in range(0, N, 5000):
            memory.add_many(made[start : start + 5000])
        build = time.perf_counter() - began
        assert len(memory.search("harbour0", k=10)) == 10  # keeps what the next ones read

    def dense() -> None:
        with Memory.open(path, embedder=embedder) as memory:
            channel = DenseChannel(memory._store, "default", memory._embedder)
            assert len(channel.search("harbour0", 10)) == 10

    def whole() -> None:
        with Memory.open(path, embedder=embedder) as memory:
            assert len(memory.search("harbour0", k=10)) == 10

    def bare() -> None:
        db = sqlite3.connect(path)
        assert len(db.execute("SELECT memory_id, vector FROM vectors").fetchall()) == N
        db.close()

    for name, call in (("bare read", bare), ("dense", dense), ("whole", whole)):
        cpu, wall = processor(call, 5)
        report(f"open, {name}", memories=str(N), processor_s=cpu, wall_s=wall)
    report("open, made in", memories=str(N), wall_s=build)


@pytest.fixture(scope="module")
def worded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of N memories and the vectors of their words."""
    path = tmp_path_factory.mktemp("worded") / "me.db"
    with Memory.open(path, embedder=WORDED) as memory:
        memory.add_many(items(N))
    return path


@pytest.mark.parametrize("late", [False, True])
def test_recall_and_search(request: pytest.FixtureRequest, late: bool) -> None:
    """Without embedding and without a language model's tokenizer."""
    path = request.getfixturevalue("worded" if late else "filled")
    with Memory.open(path, embedder=WORDED if late else EMBEDDER) as memory:
        queries = [f"What about {a} and {b}?" for a in WORDS for b in WORDS[:5]]
        context = memory.recall(queries[0], token_budget=1000, count_tokens=len)
        assert ("late" in context.hits[0].channels) == late
        recalls = timed(
            lambda query: memory.recall(
                query, token_budget=1000, count_tokens=lambda text: len(text) // 4
            ),
            queries,
        )
        searches = timed(lambda query: memory.search(query, k=10), queries)
    kind = "late interaction" if late else "no tokens kept"
    report(f"recall, {kind}", memories=str(N), **recalls)
    report(f"search, {kind}", memories=str(N), **searches)


def timed(ask: Callable[[str], object], queries: list[str]) -> dict[str, float]:
    """Median and best by the clock on the wall, and the median of the thread's processor time."""
    wall, cpu = [], []
    for query in queries:
        began, worked = time.perf_counter(), time.thread_time()
        ask(query)
        cpu.append(time.thread_time() - worked)
        wall.append(time.perf_counter() - began)
    return {
        "p50_ms": 1e3 * float(np.median(wall)),
        "best_ms": 1e3 * min(wall),
        "processor_p50_ms": 1e3 * float(np.median(cpu)),
    }


WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
import bench_store
from riemem.memory import Memory
with Memory.open(sys.argv[1], embedder=bench_store.EMBEDDER, timeout=60) as memory:
    for i, item in enumerate(bench_store.items(10**5, start=10**6)):
        memory.add(**item)
        if i == 0:  # what is loaded once is loaded by then
            print("ready", flush=True)
"""


def test_search_under_write_load(filled: Path, tmp_path: Path) -> None:
    """Another process adds all the time; each search takes its memories over."""
    path = tmp_path / "me.db"
    shutil.copy(filled, path)
    with Memory.open(path, embedder=EMBEDDER) as memory:
        memory.search("harbour")
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(Path(__file__).parent)],
            stdout=subprocess.PIPE,
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        before = memory.stats()["memories"]
        began, took = time.perf_counter(), []
        for i in range(30):
            start = time.perf_counter()
            assert len(memory.search(f"{WORDS[i % 20]}", k=10)) == 10
            took.append(time.perf_counter() - start)
        seconds = time.perf_counter() - began
        added = memory.stats()["memories"] - before
        writer.kill()
        writer.wait()
        writer.stdout.close()
    report(
        "search under writes",
        p50_ms=1e3 * float(np.median(took)),
        worst_ms=1e3 * max(took),
        writes_per_second=added / seconds,
    )


def test_forget(filled: Path, tmp_path: Path) -> None:
    """One memory of N: the rows, the words, and the rewriting of the file; against VACUUM alone."""
    path = tmp_path / "me.db"
    shutil.copy(filled, path)
    with Memory.open(path, embedder=EMBEDDER) as memory:
        took = times(lambda: memory.forget(memory.list(limit=1, order="-id")[0].id), 3)[1]
        assert memory.stats()["memories"] == N - 3
    bare = sqlite3.connect(path, isolation_level=None)
    vacuum = times(lambda: bare.execute("VACUUM"), 3)[1]
    bare.close()
    report("forget", seconds=took, vacuum_s=vacuum, ratio=took / vacuum)

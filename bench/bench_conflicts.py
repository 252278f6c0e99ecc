"""Time of reading and comparing claims when a memory is added: ``python bench/bench_conflicts.py``.

Processor time of the one step, in a store of 10,000 memories: sentences that come with the package,
from 200 speakers over ten years, and the same from four speakers, who contradict themselves all
the time.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import numpy as np
from riemem.memory import Memory
from riemem.store import claims

MEMORIES, ADDED = 10_000, 300


class Anything:
    """Vectors that mean nothing, at no cost."""

    identity, dim, max_tokens = "anything", 384, 10**9

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        row = np.zeros((1, 384), np.float32)
        row[0, 0] = 1.0
        return np.repeat(row, len(texts), axis=0)

    def windows(self, text: str) -> list[str]:
        return [text]


def measure(speakers: int) -> dict[str, float]:
    source = resources.files("riemem.evaluation").joinpath("consistency_pairs.json")
    texts = [text for row in json.loads(source.read_text("utf-8")) for text in row["texts"]]
    rng = random.Random(0)

    def item(year: int) -> dict[str, str]:
        day = f"{year}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
        who = f"Speaker{rng.randrange(speakers)}"
        return {"text": rng.choice(texts), "speaker": who, "when": f"{day}T10:00:00Z"}

    costs: list[float] = []
    record = claims.record

    def timed(*given: object) -> int:
        start = time.thread_time()
        found = record(*given)  # type: ignore[arg-type]
        costs.append(1e3 * (time.thread_time() - start))
        return found

    with (
        tempfile.TemporaryDirectory() as folder,
        Memory.open(Path(folder) / "me.db", embedder=Anything(), durability="normal") as memory,
    ):
        memory.add_many(item(2014 + i % 10) for i in range(MEMORIES))
        claims.record = timed
        try:
            for _ in range(ADDED):
                memory.add(**item(2025))  # type: ignore[arg-type]
        finally:
            claims.record = record
        start = time.thread_time()
        report = memory.check_conflicts()
        whole = time.thread_time() - start
    low, middle, high, most = np.percentile(costs, [0, 50, 95, 100])
    return {"min": low, "median": middle, "p95": high, "max": most, "whole": whole,
            "claims": report.claims, "conflicts": len(report.conflicts)}  # fmt: skip


def main() -> None:
    print("| speakers | claims | conflicts | min | median | 95 % | max | whole check, s |")
    print("|---|---|---|---|---|---|---|---|")
    for speakers in (200, 4):
        row = measure(speakers)
        print(
            f"| {speakers} | {row['claims']} | {row['conflicts']} | {row['min']:.2f} | "
            f"{row['median']:.2f} | {row['p95']:.2f} | {row['max']:.2f} | {row['whole']:.1f} |"
        )


if __name__ == "__main__":
    main()

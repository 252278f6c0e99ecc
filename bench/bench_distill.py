"""Distillation: time in and outside the model, memory against its estimate, and all within 6 GB.

    python bench/bench_distill.py time        512-token windows, float32 and bfloat16; share outside
    python bench/bench_distill.py memory [float32]   estimate against measured peak, resident
    python bench/bench_distill.py together    encoder + distiller + an index of 1,000 memories

Each in a process of its own: an allocator keeps what another test has freed.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from typing import Any

import numpy as np

WORDS = (  # noqa: SIM905
    "the harbour was full of boats and Ana did not see Tim on 7 May because she bought 3 tickets "
    "for a concert in Porto where they had photography lessons with a telescope"
).split()


def text_of(words: int, seed: int = 0) -> str:
    """Return so many words in random order, with sentence ends."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice(WORDS, words)
    return " ".join(word + "." if n % 12 == 11 else word for n, word in enumerate(chosen))


def measure_time() -> None:
    """Print seconds of one window, and of everything that is not the model."""
    from riemem.distill import Distiller, load_language_model
    from riemem.distill.fisher import token_scores

    text = text_of(440)
    print(f"{'dtype':10} {'tokens':>6} {'s/window':>9} {'cpu s':>7}")
    for dtype in ("float32", "bfloat16"):
        model = load_language_model(None, dtype=dtype)
        token_scores(model, text)
        wall, cpu = time.perf_counter(), time.process_time()
        found = token_scores(model, text)
        print(
            f"{dtype:10} {len(found.sensitivity):6d} {time.perf_counter() - wall:9.2f} "
            f"{time.process_time() - cpu:7.2f}"
        )

    class Kept:
        rows: dict[tuple[int, str], bytes]

        def __init__(self) -> None:
            self.rows = {}

        def get(self, memory_id: int, key: str) -> bytes | None:
            return self.rows.get((memory_id, key))

        def put(self, memory_id: int, key: str, value: bytes) -> None:
            self.rows[memory_id, key] = value

    turns = [
        {"id": n, "text": text_of(25, n), "speaker": "Ana", "score": 1.0 / (n + 1),
         "session": str(n // 5), "when": f"2023-05-{1 + n // 5:02d}T10:00:00+00:00"}
        for n in range(30)
    ]  # fmt: skip
    distiller = Distiller(score="sensitivity", cache=Kept())
    cpu = time.process_time()
    distiller.distill(turns, token_budget=400, query="What did Ana buy?")
    first = time.process_time() - cpu
    cpu = time.process_time()
    found = distiller.distill(turns, token_budget=400, query="What did Ana buy?")
    rest = time.process_time() - cpu
    print(
        f"30 turns, {found.report.original_tokens} tokens: {first:.2f} cpu s with the model, "
        f"{rest:.3f} without ({rest / (first - rest):.1%} of the model's)"
    )


def _peak(queue: Any, dtype: str, tokens: int, chunk: int, checkpoint: bool, trim: bool) -> None:
    from riemem.distill import load_language_model
    from riemem.distill.fisher import _one_pass
    from riemem.vram import PassPlan, VramBudget, pass_bytes

    model = load_language_model(None, dtype=dtype)
    ids = (model.encode(text_of(2 * tokens)).ids * 2)[:tokens]
    plan = PassPlan(tokens, chunk, checkpoint, 0)
    budget = VramBudget(10**12)
    rises = []
    with model.evaluating() as module:
        _one_pass(model, module, ids[:16], [], PassPlan(16, 16, False, 0), "warm-up")
        for _ in range(2):
            budget.trim()
            with open("/proc/self/clear_refs", "w", encoding="ascii") as mark:
                mark.write("5")  # the high-water mark of the process begins anew
            with budget.measure() as seen:
                give_back = budget.trim if trim else None
                _one_pass(model, module, ids, [], plan, "window 1", give_back)
            rises.append(seen.rise_bytes)
    estimate = pass_bytes(model.spec, tokens, model.dtype, chunk_rows=chunk, checkpoint=checkpoint)
    queue.put((estimate, *rises, seen.before_bytes))


def measure_memory() -> None:
    """Print the estimate of one pass beside the rise of resident memory (Linux)."""
    context = multiprocessing.get_context("spawn")
    print(
        f"{'dtype':9} {'tokens':>6} {'rows':>5} {'again':>5} {'estimate MiB':>12} {'first':>6} "
        f"{'second':>6} {'ratio':>10} {'process':>7} {'not given back':>14}"
    )
    for dtype, tokens, chunk, checkpoint in (
        ("bfloat16", 128, 64, False), ("bfloat16", 256, 128, False), ("bfloat16", 512, 512, False),
        ("bfloat16", 512, 128, False), ("bfloat16", 512, 128, True), ("bfloat16", 1024, 128, False),
        ("bfloat16", 1024, 128, True), ("float32", 256, 128, False), ("float32", 512, 128, False),
        ("float32", 512, 128, True), ("float32", 1024, 128, True),
    ):  # fmt: skip
        if dtype not in (sys.argv[2:] or [dtype]):
            continue
        found = []
        for trim in (True, False):
            queue = context.Queue()
            arguments = (queue, dtype, tokens, chunk, checkpoint, trim)
            worker = context.Process(target=_peak, args=arguments)
            worker.start()
            found.append(queue.get())
            worker.join()
        (estimate, first, second, before), kept = found
        print(
            f"{dtype:9} {tokens:6d} {chunk:5d} {checkpoint!s:>5} {estimate / 2**20:12.0f} "
            f"{first / 2**20:6.0f} {second / 2**20:6.0f} {estimate / first:5.2f} "
            f"{estimate / second:4.2f} {(before + estimate) / (before + second):7.2f} "
            f"{kept[2] / 2**20:14.0f}",
            flush=True,
        )


def measure_together() -> None:
    """Print the resident memory of everything at work, step by step."""
    import riemem
    from riemem.distill import Distiller
    from riemem.vram import VramBudget, pass_bytes

    budget = VramBudget(6 * 10**9)
    print(
        f"{'step':34} {'resident MiB':>12} {'peak MiB':>9} {'expected':>9} {'of 6 GB':>8} "
        f"{'cpu s':>7}"
    )

    def step(name: str, work: Any, expected: int = 0) -> None:
        budget.trim()
        with open("/proc/self/clear_refs", "w", encoding="ascii") as mark:
            mark.write("5")
        began = time.process_time()
        with budget.measure() as seen:
            work()
        shown = f"{(seen.before_bytes + expected) / 2**20:.0f}" if expected else ""
        print(
            f"{name:34} {seen.after_bytes / 2**20:12.0f} {seen.peak_bytes / 2**20:9.0f} {shown:>9} "
            f"{seen.peak_bytes / budget.limit_bytes:8.0%} {time.process_time() - began:7.2f}",
            flush=True,
        )

    memory = riemem.Memory.open(":memory:")
    items = [
        {"text": text_of(20, n), "speaker": "Ana", "when": f"2023-05-01T10:{n % 60:02d}:00Z"}
        for n in range(1000)
    ]
    distiller = Distiller(vram=budget)
    spec, dtype = distiller.model.spec, distiller.model.dtype
    whole = text_of(440)
    tokens = len(distiller.model.encode(whole).ids)
    step("encoder, 1,000 memories", lambda: memory.add_many(items))
    step("search", lambda: memory.search("Who bought tickets?"))
    step("recall, distilled to 250 tokens", lambda: memory.recall(
        "Who bought tickets?", token_budget=250, compressor=distiller))  # fmt: skip
    step(
        f"a text of {tokens} tokens, distilled",
        lambda: distiller.distill(whole, token_budget=250),
        pass_bytes(spec, min(tokens, 512), dtype),
    )
    step("the recall again, from the cache", lambda: memory.recall(
        "Who bought tickets?", token_budget=250, compressor=distiller))  # fmt: skip
    memory.close()


if __name__ == "__main__":
    {
        "time": measure_time,
        "memory": measure_memory,
        "together": measure_together,
    }[sys.argv[1] if len(sys.argv) > 1 else "time"]()

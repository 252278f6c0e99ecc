"""Distillation: time in and outside the model, memory against its estimate, and all within 6 GB.

    python bench/bench_distill.py time        512-token windows, float32 and bfloat16; share outside
    python bench/bench_distill.py memory      estimate against measured peak of resident memory
    python bench/bench_distill.py alone       the same once the allocator gave its free memory back
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


def _peak(queue: Any, tokens: int, chunk: int, checkpoint: bool) -> None:
    from riemem.distill import load_language_model
    from riemem.distill.fisher import _one_pass
    from riemem.vram import PassPlan, VramBudget, pass_bytes

    model = load_language_model(None)
    ids = (model.encode(text_of(2 * tokens)).ids * 2)[:tokens]
    with model.evaluating() as module:
        _one_pass(model, module, ids[:16], [], PassPlan(16, 16, False, 0), "warm-up")
        plan = PassPlan(tokens, chunk, checkpoint, 0)
        with VramBudget(10**12).measure() as seen:
            _one_pass(model, module, ids, [], plan, "window 1")
    estimate = pass_bytes(model.spec, tokens, model.dtype, chunk_rows=chunk, checkpoint=checkpoint)
    queue.put((estimate, seen.rise_bytes, seen.before_bytes))


def measure_memory() -> None:
    """Print the estimate of one pass beside the rise of resident memory."""
    context = multiprocessing.get_context("spawn")
    print(
        f"{'tokens':>6} {'rows':>5} {'again':>5} {'estimate MiB':>12} {'measured':>9} {'ratio':>6} "
        f"{'of process':>10}"
    )
    for tokens, chunk, checkpoint in (
        (512, 512, False), (512, 128, False), (512, 128, True),
        (1024, 1024, False), (1024, 128, False), (1024, 128, True),
    ):  # fmt: skip
        queue = context.Queue()
        worker = context.Process(target=_peak, args=(queue, tokens, chunk, checkpoint))
        worker.start()
        estimate, measured, before = queue.get()
        worker.join()
        print(
            f"{tokens:6d} {chunk:5d} {checkpoint!s:>5} {estimate / 2**20:12.0f} "
            f"{measured / 2**20:9.0f} {estimate / max(measured, 1):6.2f} "
            f"{(before + estimate) / (before + measured):10.2f}"
        )


def measure_alone() -> None:
    """Print the rise of passes that cannot reuse what the allocator kept (glibc alone)."""
    import ctypes

    from riemem.distill import load_language_model
    from riemem.distill.fisher import _one_pass
    from riemem.vram import PassPlan, VramBudget, pass_bytes

    give_back = ctypes.CDLL("libc.so.6").malloc_trim
    model = load_language_model(None)
    spec = model.spec
    head = 2 * spec.vocabulary * spec.hidden * (4 if model.dtype == "float32" else 2)
    ids = model.encode(text_of(1024)).ids * 2
    print(f"{'tokens':>6} {'again':>5} {'estimate MiB':>12} {'measured':>9} {'ratio':>6} with head")
    with model.evaluating() as module:
        _one_pass(model, module, ids[:16], [], PassPlan(16, 16, False, 0), "warm-up")
        for tokens, checkpoint in ((256, False), (512, True), (512, False)):
            give_back(0)
            with VramBudget(10**12).measure() as seen:
                plan = PassPlan(tokens, 128, checkpoint, 0)
                _one_pass(model, module, ids[:tokens], [], plan, "window 1")
            estimate = pass_bytes(spec, tokens, model.dtype, chunk_rows=128, checkpoint=checkpoint)
            print(
                f"{tokens:6d} {checkpoint!s:>5} {estimate / 2**20:12.0f} "
                f"{seen.rise_bytes / 2**20:9.0f} {estimate / seen.rise_bytes:6.2f} "
                f"{(estimate + head) / seen.rise_bytes:9.2f}"
            )


def measure_together() -> None:
    """Print the resident memory of everything at work, step by step."""
    import riemem
    from riemem.distill import Distiller
    from riemem.vram import VramBudget

    budget = VramBudget(6 * 10**9)
    print(f"{'step':34} {'resident MiB':>12} {'peak MiB':>9} {'of 6 GB':>8} {'cpu s':>7}")

    def step(name: str, work: Any) -> None:
        began = time.process_time()
        with budget.measure() as seen:
            work()
        print(
            f"{name:34} {seen.after_bytes / 2**20:12.0f} {seen.peak_bytes / 2**20:9.0f} "
            f"{seen.peak_bytes / budget.limit_bytes:8.0%} {time.process_time() - began:7.2f}",
            flush=True,
        )

    memory = riemem.Memory.open(":memory:")
    items = [
        {"text": text_of(20, n), "speaker": "Ana", "when": f"2023-05-01T10:{n % 60:02d}:00Z"}
        for n in range(1000)
    ]
    distiller = Distiller(vram=budget)
    step("encoder, 1,000 memories", lambda: memory.add_many(items))
    step("search", lambda: memory.search("Who bought tickets?"))
    step("recall, distilled to 250 tokens", lambda: memory.recall(
        "Who bought tickets?", token_budget=250, compressor=distiller))  # fmt: skip
    step("the same again, from the cache", lambda: memory.recall(
        "Who bought tickets?", token_budget=250, compressor=distiller))  # fmt: skip
    memory.close()


if __name__ == "__main__":
    {
        "time": measure_time,
        "memory": measure_memory,
        "alone": measure_alone,
        "together": measure_together,
    }[sys.argv[1] if len(sys.argv) > 1 else "time"]()

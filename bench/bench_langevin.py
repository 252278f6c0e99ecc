"""Steps of the dynamics on the ball, against the same in numpy.

    OMP_NUM_THREADS=1 python bench/bench_langevin.py

Processor time of one thread, the smallest of some rounds taken in turn; the positions are compared
to the bit before anything is timed. The last line is a maintenance of a year.
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np
from in_turn import best_of
from riemem import _backend, reference

NONE = np.zeros(0)


def kernel(n: int, steps: int) -> np.ndarray:
    position = np.zeros((n, 8))
    _backend.core.langevin(
        position,
        np.zeros(n),
        np.full(n, 0.1),
        np.arange(n),
        np.zeros(n, np.int64),
        np.full(n, steps),
        np.zeros(n + 1, np.int64),
        np.zeros(0, np.int64),
        NONE,
        NONE,
        temperature=0.01,
        dt=1.0,
        drift=1.0,
        slope=0.0,
        most=1.0,
        decay=1.0,
        seed=0,
    )
    return position


def numpy(n: int, steps: int) -> np.ndarray:
    return reference.langevin(
        np.zeros((n, 8)), np.full(n, 0.1), np.arange(n), steps=steps, temperature=0.01, dt=1.0
    )


def main() -> None:
    _backend.set_num_threads(1)
    print("| memories | steps | kernel ns/step | numpy ns/step | kernel / numpy |")
    print("|---|---|---|---|---|")
    for n, steps in ((1000, 30), (10_000, 30), (100_000, 5)):
        np.testing.assert_array_equal(kernel(n, steps), numpy(n, steps))
        ways = {way.__name__: partial(way, n, steps) for way in (kernel, numpy)}
        ns = [seconds / (n * steps) * 1e9 for seconds in best_of(ways, 5).values()]
        print(f"| {n} | {steps} | {ns[0]:.0f} | {ns[1]:.0f} | {ns[0] / ns[1]:.3f} |", flush=True)
    start = time.thread_time()
    kernel(10_000, 365)
    print(f"\na year of 10,000 memories: {time.thread_time() - start:.2f} s")


if __name__ == "__main__":
    main()

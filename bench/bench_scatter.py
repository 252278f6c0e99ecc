"""Rank-b update of the float64 scatter matrix against numpy's matrix product.

    RIEMEM_NUM_THREADS=1 OMP_NUM_THREADS=1 RIEMEM_BENCH=384x32 pytest bench/bench_scatter.py

RIEMEM_BENCH is d x b, default 384x32. The smallest time counts: what else a shared machine does
only ever adds. The answer is asserted before it is timed.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from riemem import _backend

D, B = (int(part) for part in os.environ.get("RIEMEM_BENCH", "384x32").split("x"))
ROUNDS = max(50, 2 * 10**9 // (D * D * B))
TARGET_MS = {(384, 32): 0.15, (1536, 32): 2.5}


class Problem:
    """Unit rows, a shift, and the sums of other rows to which they are added."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        rows = rng.standard_normal((B, D))
        self.rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        self.shift = 0.01 * rng.standard_normal(D)
        self.total, self.scatter = np.zeros(D), np.zeros((D, D))
        z = self.rows.astype(np.float64) - self.shift
        self.answer = np.tril(z.T @ z)

    def kernel(self, sign: float, isa: str) -> None:
        _backend.core.scatter_add(self.rows, self.shift, sign, self.total, self.scatter, isa)

    def product(self, sign: float) -> None:
        """numpy: the whole product, both triangles."""
        z = self.rows.astype(np.float64) - self.shift
        self.total += sign * z.sum(axis=0)
        self.scatter += sign * (z.T @ z)


def measure(benchmark, name, add):
    problem = Problem()
    _backend.set_num_threads(int(os.environ.get("RIEMEM_NUM_THREADS", "1")))
    add(problem, 1.0)
    np.testing.assert_allclose(np.tril(problem.scatter), problem.answer, atol=1e-13)
    signs = iter([-1.0, 1.0] * ROUNDS)
    benchmark.group = f"d={D} b={B}"
    benchmark.pedantic(lambda: add(problem, next(signs)), rounds=ROUNDS, warmup_rounds=3)
    best = benchmark.stats.stats.min * 1e3
    target = f", target {TARGET_MS[D, B]} ms" if (D, B) in TARGET_MS else ""
    print(f"\n{name}: best of {ROUNDS}: {best:.3f} ms{target}")


@pytest.mark.parametrize("isa", _backend.core.available_isas())
def test_riemem(benchmark, isa):
    measure(benchmark, f"riemem {isa}", lambda problem, sign: problem.kernel(sign, isa))


def test_numpy(benchmark):
    measure(benchmark, "numpy", Problem.product)

"""Exact fused cosine + Riemannian top-10 against its peers, one problem size per process.

    RIEMEM_BENCH=10000x384x1 pytest bench/bench_fused_topk.py

Several sizes in one process disturb each other's caches and allocators, so there is only one.
Every contender asserts its answer once before it is timed. At the end the ratio of each to the
best peer (the exact search that does *cosine only*) is printed. The interleaved ratio at the end
takes both in turn, so that a noisy neighbour hits both.

Environment
-----------
RIEMEM_BENCH : NxdxB, default 10000x384x1.
RIEMEM_NUM_THREADS, OMP_NUM_THREADS : set both; 1 gives the single-thread numbers.
"""

from __future__ import annotations

import os
import statistics
import time

import numpy as np
import pytest
from riemem import FisherMetric, _backend, reference
from riemem._fused import NORMS, Options, prepare_points, prepare_queries

K = 10
N, D, B = (int(part) for part in os.environ.get("RIEMEM_BENCH", "10000x384x1").split("x"))
OPTIONS = Options(cosine_weight=0.5, form="inner", norm="minmax")
THREADS = int(os.environ.get("RIEMEM_NUM_THREADS", "1"))
MEDIANS: dict[str, float] = {}
FUNCTIONS: dict[str, object] = {}


class Problem:
    """Unit rows with a decaying spectrum, queries near some of them, and the true answer."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        spectrum = np.geomspace(1.0, 0.05, D).astype(np.float32)
        self.rows = rng.standard_normal((N, D), dtype=np.float32) * spectrum
        self.rows += 0.5 * spectrum
        self.rows /= np.linalg.norm(self.rows, axis=1, keepdims=True)
        noise = rng.standard_normal((B, D), dtype=np.float32) * (0.3 / np.sqrt(D))
        queries = self.rows[rng.integers(0, N, B)] + noise
        self.queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
        self.metric = FisherMetric.fit(self.rows[: min(N, 20_000)], covariance="paper")
        self.points = prepare_points(self.rows, self.metric, OPTIONS)
        self.prepared = prepare_queries(self.queries, self.metric, OPTIONS)
        self.w, self.offsets = (
            x.astype(np.float32) for x in self.metric.query_weights(self.queries)
        )
        self.answer = self.truth()

    def truth(self) -> np.ndarray:
        """Ids by float64 matrix products; near-ties are settled by the canonical order."""
        w, offsets = self.metric.query_weights(self.queries)
        answer = np.empty((B, K), np.int64)
        for b in range(B):
            pair = np.stack([self.queries[b].astype(np.float64), w[b]])
            cos, rie = pair @ self.rows.T.astype(np.float64) if N <= 20_000 else self.blocks(pair)
            fused = 0.5 * reference.normalise(cos[None], "minmax")[0]
            fused += 0.5 * reference.normalise(rie[None] + offsets[b], "minmax")[0]
            answer[b] = np.argsort(-fused, kind="stable")[:K]
        return answer

    def blocks(self, pair: np.ndarray) -> np.ndarray:
        """The same product without a float64 copy of all rows."""
        out = np.empty((2, N))
        for start in range(0, N, 10_000):
            part = self.rows[start : start + 10_000]
            out[:, start : start + 10_000] = pair @ part.T.astype(np.float64)
        return out

    def kernel(self, isa: str) -> np.ndarray:
        """Ours: the kernel alone, with what an index has prepared."""
        q = self.prepared
        indices, *_ = self.points.kernel.topk(
            q.q, q.w, q.offsets, q.bias, OPTIONS.cosine_weight, NORMS.index(OPTIONS.norm), None, K,
            isa,
        )  # fmt: skip
        return indices

    def weights_and_kernel(self) -> np.ndarray:
        """Ours from the queries on: fold the metric into weights, then the kernel."""
        self.prepared = prepare_queries(self.queries, self.metric, OPTIONS)
        return self.kernel("auto")

    def two_products(self) -> np.ndarray:
        """numpy: two float32 matrix products, min-max, argpartition, sort."""
        cos = self.queries @ self.rows.T
        rie = self.w @ self.rows.T + self.offsets[:, None]
        for x in (cos, rie):
            low = x.min(axis=1, keepdims=True)
            x -= low
            x /= x.max(axis=1, keepdims=True)
        fused = cos
        fused += rie
        best = np.argpartition(-fused, K - 1, axis=1)[:, :K]
        order = np.argsort(-np.take_along_axis(fused, best, axis=1), axis=1, kind="stable")
        return np.take_along_axis(best, order, axis=1)

    def paper(self) -> np.ndarray:
        """The paper's Algorithm 1 (repaired): project every row for every query, O(N d r)."""
        m = self.metric
        diagonal = np.diag(m.covariance_matrix()) + m.ridge_value
        core = m.eigenvalues + m.ridge_value
        rie = reference.paper_scores(self.queries, self.rows, m.mean, diagonal, m.basis, core)
        cos = self.queries.astype(np.float64) @ self.rows.T
        fused = 0.5 * reference.normalise(cos, "minmax") + 0.5 * reference.normalise(rie, "minmax")
        return np.argsort(-fused, axis=1, kind="stable")[:, :K]


@pytest.fixture(scope="module")
def problem() -> Problem:
    _backend.set_num_threads(THREADS)
    return Problem()


def measure(benchmark, name, function, check):
    check(function())
    benchmark.group = f"N={N} d={D} B={B} threads={THREADS}"
    rounds = 3 if name == "paper" else max(5, min(200, 2 * 10**9 // (N * D * B)))
    benchmark.pedantic(function, rounds=rounds, warmup_rounds=1)
    MEDIANS[name] = benchmark.stats.stats.median
    FUNCTIONS[name] = function


def same_ids(problem):
    return lambda ids: np.testing.assert_array_equal(ids, problem.answer)


def nearly_same_ids(problem):
    """For float32 peers, whose rounding may swap near-ties."""

    def check(ids):
        common = [len(set(a) & set(b)) for a, b in zip(ids, problem.answer, strict=True)]
        assert np.mean(common) >= K - 0.5

    return check


@pytest.mark.parametrize("isa", _backend.core.available_isas())
def test_riemem(benchmark, problem, isa):
    measure(benchmark, f"riemem {isa}", lambda: problem.kernel(isa), same_ids(problem))


def test_riemem_from_queries(benchmark, problem):
    measure(benchmark, "riemem + weights", problem.weights_and_kernel, same_ids(problem))


def test_numpy_two_products(benchmark, problem):
    measure(benchmark, "numpy", problem.two_products, nearly_same_ids(problem))


def test_faiss_cosine_only(benchmark, problem):
    faiss = pytest.importorskip("faiss")
    # The default of 128000 makes batches go through a path that is five times slower.
    faiss.cvar.distance_compute_blas_threshold = 20
    faiss.omp_set_num_threads(THREADS)
    index = faiss.IndexFlatIP(D)
    index.add(problem.rows)
    cosines = problem.queries @ problem.rows.T
    expected = np.argsort(-cosines, axis=1, kind="stable")[:, :K]

    def check(ids):
        common = [len(set(a) & set(b)) for a, b in zip(ids, expected, strict=True)]
        assert np.mean(common) >= K - 0.5

    measure(benchmark, "faiss (cosine only)", lambda: index.search(problem.queries, K)[1], check)


@pytest.mark.skipif(N * B > 2_000_000, reason="minutes at this size")
def test_paper_evaluation(benchmark, problem):
    measure(benchmark, "paper", problem.paper, same_ids(problem))


def test_ratios(capsys):
    """Print milliseconds per query and the ratio to faiss, and take the main ratio in turns."""
    peer = MEDIANS.get("faiss (cosine only)", MEDIANS.get("numpy"))
    if peer is None:
        pytest.skip("no peer was measured")
    with capsys.disabled():
        print(f"\nN={N} d={D} B={B} k={K} threads={THREADS}")
        print(f"{'contender':<22}{'ms/query':>12}{'ratio':>8}")
        for name, median in sorted(MEDIANS.items(), key=lambda item: item[1]):
            print(f"{name:<22}{1e3 * median / B:>12.4f}{median / peer:>8.2f}")
        ours, theirs = FUNCTIONS.get("riemem + weights"), FUNCTIONS.get("faiss (cosine only)")
        if ours is not None and theirs is not None:
            print(f"interleaved ratio: {interleaved(ours, theirs):.3f}")


def interleaved(ours, theirs) -> float:
    """Median over pairs of our time over theirs, each pair measured back to back."""
    ratios = []
    for _ in range(max(5, min(100, 10**9 // (N * D * B)))):
        start = time.perf_counter()
        ours()
        middle = time.perf_counter()
        theirs()
        ratios.append((middle - start) / (time.perf_counter() - middle))
    return statistics.median(ratios)

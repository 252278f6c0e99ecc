"""What one added memory costs the next search: every step of the refresh by itself.

    RIEMEM_NUM_THREADS=1 OMP_NUM_THREADS=1 RIEMEM_BENCH=10000x384 python bench/bench_refresh.py

RIEMEM_BENCH is N x d, default 10000x384. Processor time of the calling thread, best of several:
with one thread that is the time on an idle machine. Set RIEMEM_BENCH_WALL=1 for wall time.

Steps: the rank-1 update; the covariance; its triangular whitening (Cholesky factor and its
inverse: all that a search with covariance="full" needs); the length of every row in the new metric
(the forms "cosine" and "mahalanobis" need it); then the basis, which only those ask for who look at
it: by warm Rayleigh-Ritz steps with a residual check (at rank 32 here: a basis of more than d / 4
columns is decomposed at once), and by the full decomposition.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
from riemem import FisherMetric, IncrementalSVD, RiemannianIndex, _backend

N, D = (int(part) for part in os.environ.get("RIEMEM_BENCH", "10000x384").split("x"))
ROUNDS = 3 if D > 1000 else 7
CLOCK = time.perf_counter if os.environ.get("RIEMEM_BENCH_WALL") else time.thread_time


def data(n: int, seed: int) -> np.ndarray:
    """Unit rows with the spectrum of sentence embeddings: 95 % of the variance in d / 3."""
    rng = np.random.default_rng(seed)
    spectrum = np.exp(-3.0 * np.arange(D) / D)
    rows = rng.standard_normal((n, D)) * spectrum + 0.3 * spectrum
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def best(step: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    """Least time of one step in milliseconds."""
    least = np.inf
    for _ in range(ROUNDS):
        before()
        start = CLOCK()
        step()
        least = min(least, CLOCK() - start)
    return 1e3 * least


def main() -> None:
    """Print the table."""
    _backend.set_num_threads(int(os.environ.get("RIEMEM_NUM_THREADS", "1")))
    rows, more = data(N, 0), data(200, 1)
    feed = iter(more)
    metric = FisherMetric.fit(rows).refresh()

    def change() -> None:
        metric.update(next(feed))

    def warm() -> None:
        metric._current()

    print(f"N = {N}, d = {D}, rank {metric.rank}, {_backend.build_info()['isa']}")
    print(f"rank-1 update of the sums          {best(change):9.3f} ms")
    print(f"covariance and triangular whitening{best(warm, change):9.3f} ms")
    state = metric._current()
    lengths = _backend.core.quadratic_rows(rows, state.mean, state.whitening)
    np.testing.assert_allclose(lengths[:50], metric.mahalanobis(rows[:50]) ** 2, rtol=1e-10)
    dense = np.ascontiguousarray(state.whitening + state.whitening.T)
    for name, matrix in (("triangular", state.whitening), ("dense", dense)):
        took = best(lambda m=matrix: _backend.core.quadratic_rows(rows, state.mean, m))
        print(f"lengths of all rows, {name:10s}    {took:9.3f} ms")

    for name, tail in (("no gap", 1.0), ("a gap ", 1e-3)):
        scale = np.where(np.arange(D) < 32, 1.0, tail).astype(np.float32)
        gapped = FisherMetric.fit(rows * scale, max_rank=32).refresh()
        refined = set()

        def fresh(gapped: FisherMetric = gapped, scale: np.ndarray = scale) -> None:
            gapped.update(next(feed) * scale)
            gapped._current()

        def refine(gapped: FisherMetric = gapped, refined: set[str] = refined) -> None:
            refined.add("refused" if gapped._current()._refine() is None else "kept")

        took = best(refine, fresh)
        print(f"basis by warm Rayleigh-Ritz, {name}{took:9.3f} ms ({', '.join(refined)})")
    full = best(lambda: gapped._current()._decompose(), fresh)
    print(f"basis by the full decomposition    {full:9.3f} ms")

    index = RiemannianIndex(D)
    index.add(rows)
    top = index.search(rows[:1], 1)
    assert top.indices.tolist() == [[0]]
    extra = iter(data(200, 2))
    query = more[:1]
    alone = best(lambda: index.search(query))
    after = best(lambda: index.search(query), lambda: index.add(next(extra)))
    print(f"search                             {alone:9.3f} ms")
    print(f"search after one add               {after:9.3f} ms")

    svd = IncrementalSVD(D, max_rank=64).partial_fit(rows[:512])
    batch = iter(np.array_split(data(32 * ROUNDS, 3), ROUNDS))
    took = best(lambda: svd.partial_fit(next(batch)))
    print(f"IncrementalSVD, 32 rows, rank 64   {took:9.3f} ms")


if __name__ == "__main__":
    main()

"""Streaming max-member assignment against numpy, a faiss loop and the arithmetic floor.

    python bench/bench_max_member.py [--n 10000] [--dim 384] [--atoms 400] [--peers]

One size per process. Times are CPU seconds of one thread, the best of three. The floor is a matrix
product of half as many multiplications as N x N: what the rule costs when nothing is skipped.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import riemem
from riemem.clustering import LargeAtomWarning, MaxMemberClusters
from riemem.reference import max_member


def stream(n: int, dim: int, atoms: int, noise: float, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(atoms, dim))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    rows = centres[generator.integers(atoms, size=n)] + noise * generator.normal(size=(n, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def best(function: Callable[[], object], rounds: int = 3) -> float:
    times = []
    for _ in range(rounds):
        start = time.thread_time()
        function()
        times.append(time.thread_time() - start)
    return min(times)


def ours(rows: np.ndarray, threshold: float, storage: str = "float32", batch: int | None = None):
    clusters = MaxMemberClusters(rows.shape[1], threshold=threshold, storage=storage)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LargeAtomWarning)
        for start in range(0, len(rows), batch or len(rows)):
            clusters.assign(rows[start : start + (batch or len(rows))])
    return clusters


def numpy_loop(rows: np.ndarray, threshold: float) -> np.ndarray:
    labels = np.zeros(len(rows), np.int64)
    sums = np.zeros_like(rows)
    count = 0
    for i, row in enumerate(rows):
        if i:
            near = int(np.argmax(members := rows[:i] @ row))
            units = sums[:count] / np.linalg.norm(sums[:count], axis=1, keepdims=True)
            centre = int(np.argmax(central := units @ row))
            joined = labels[near] if members[near] >= central[centre] else centre
            if max(members[near], central[centre]) > threshold:
                labels[i] = joined
                sums[joined] += row
                continue
        labels[i] = count
        sums[count] = row
        count += 1
    return labels


def faiss_loop(rows: np.ndarray, threshold: float) -> None:
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(rows.shape[1])
    for i in range(len(rows)):
        if i:
            index.search(rows[i : i + 1], 1)
        index.add(rows[i : i + 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--atoms", type=int, default=400)
    parser.add_argument("--peers", action="store_true", help="numpy and faiss loops as well: slow")
    given = parser.parse_args()
    riemem.set_num_threads(1)

    small = stream(400, given.dim, 20, 0.03)
    labels, scores, _ = max_member(small, 0.7)
    for storage in ("float32", "int8"):
        clusters = MaxMemberClusters(given.dim, threshold=0.7, storage=storage)
        got = clusters.assign(small)
        assert (got.labels == labels).all()
        assert np.array_equal(got.scores, scores, equal_nan=True)

    half = stream(given.n // 2, given.dim, given.atoms, 0.03)
    floor = 2 * best(lambda: half @ half.T)
    print(f"N {given.n}, d {given.dim}; floor (matrix product) {1e3 * floor:.0f} ms")
    print(f"{'stream':<26}{'atoms':>7}{'float32':>10}{'x floor':>9}{'int8':>10}{'x floor':>9}")
    for name, noise, threshold in (
        ("tight groups", 0.02, 0.8),
        ("loose groups", 0.03, 0.7),
        ("groups that overlap", 0.045, 0.45),
    ):
        rows = stream(given.n, given.dim, given.atoms, noise)
        clusters = ours(rows, threshold)
        single = best(lambda r=rows, t=threshold: ours(r, t))
        coded = best(lambda r=rows, t=threshold: ours(r, t, "int8"))
        print(
            f"{name:<26}{clusters.atom_count:>7}{1e3 * single:>7.0f} ms{single / floor:>9.2f}"
            f"{1e3 * coded:>7.0f} ms{coded / floor:>9.2f}"
        )
    if given.peers:
        rows = stream(given.n, given.dim, given.atoms, 0.045)
        assert len(np.unique(numpy_loop(rows[:500], 0.45))) == ours(rows[:500], 0.45).atom_count
        for name, run in (("numpy loop", numpy_loop), ("faiss add and search", faiss_loop)):
            took = best(lambda f=run: f(rows, 0.45), 1)
            print(f"{name:<26}{'':>7}{1e3 * took:>7.0f} ms{took / floor:>9.2f}")


if __name__ == "__main__":
    main()

"""Late interaction on binary rows, against numpy and faiss.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python bench/bench_max_sim.py 8x384x100x1700

Sizes are m x d x n x T: rows of the question, dimensions, texts, rows of all texts together.
Processor time of one thread, the smallest of some rounds taken in turn; what each gives is compared
to the last bit with sums of whole numbers before anything is timed. numpy expands the bits to +-1,
multiplies float32 matrices and takes the largest per text; "kept" has the +-1 already, in 32 times
the memory. faiss takes Hamming distances to the signs of the question: another, coarser answer, of
which only the time is of interest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from in_turn import best_of
from riemem import _backend

try:
    import faiss
except ImportError:
    faiss = None

core = _backend.core


class Problem:
    def __init__(self, m: int, d: int, n: int, t: int) -> None:
        rng = np.random.default_rng(0)
        self.question = rng.integers(-127, 128, (m, d)).astype(np.int8)
        self.rows = rng.integers(0, 256, (t, d // 8)).astype(np.uint8)
        self.counts = (1 + rng.multinomial(t - n, np.full(n, 1 / n))).astype(np.int64)
        self.begin = np.cumsum(self.counts) - self.counts
        self.kept = self.expanded()
        self.signs = np.packbits(self.question > 0, axis=1, bitorder="little")

    def expanded(self) -> np.ndarray:
        bits = np.unpackbits(self.rows, axis=1, bitorder="little")
        return 2.0 * bits.astype(np.float32) - 1.0

    def truth(self) -> np.ndarray:
        dots = self.question.astype(np.int64) @ self.kept.astype(np.int64).T
        return np.maximum.reduceat(dots, self.begin, axis=1)

    def kernel(self, isa: str) -> np.ndarray:
        return core.max_sim(self.question, self.rows, self.counts, isa)

    def product(self, rows: np.ndarray) -> np.ndarray:
        dots = self.question.astype(np.float32) @ rows.T
        return np.maximum.reduceat(dots, self.begin, axis=1)

    def hamming(self) -> np.ndarray:
        m, t, width = len(self.signs), *self.rows.shape
        out = np.empty((m, t), np.int32)
        pointers = (faiss.swig_ptr(x) for x in (self.signs, self.rows))
        faiss.hammings(*pointers, m, t, width, faiss.swig_ptr(out))
        return np.minimum.reduceat(out, self.begin, axis=1)


def measure(m: int, d: int, n: int, t: int, rounds: int = 300) -> None:
    problem = Problem(m, d, n, t)
    ways: dict[str, Callable[[], np.ndarray]] = {
        isa: lambda isa=isa: problem.kernel(isa) for isa in reversed(core.available_isas())
    }
    ways["numpy"] = lambda: problem.product(problem.expanded())
    ways["numpy, kept"] = lambda: problem.product(problem.kept)
    truth = problem.truth()
    for way in ways.values():
        np.testing.assert_array_equal(way(), truth)
    if faiss is not None:
        ways["faiss, signs"] = problem.hamming
        differ = (problem.question[:, None] > 0) != (problem.kept > 0)
        np.testing.assert_array_equal(
            problem.hamming(), np.minimum.reduceat(differ.sum(axis=2), problem.begin, axis=1)
        )
    size = f"{m}, {d}, {n}, {t}"
    report(size, best_of(ways, rounds), m * t)
    rows, matrix = problem.question.astype(np.float32), core.rotate(np.eye(d))
    turns: dict[str, Callable[[], np.ndarray]] = {
        f"rotate, {isa}": lambda isa=isa: core.rotate(rows, isa)
        for isa in reversed(core.available_isas())
    }
    turns["rotate, numpy"] = lambda: rows.astype(np.float64) @ matrix
    for turn in turns.values():
        np.testing.assert_allclose(turn(), rows.astype(np.float64) @ matrix, atol=1e-10)
    report(size, best_of(turns, rounds), m)


def report(size: str, best: dict[str, float], pairs: int) -> None:
    own = next(iter(best.values()))
    for name, seconds in best.items():
        print(
            f"| {size} | {name} | {seconds * 1e6:.1f} | {seconds * 1e9 / pairs:.1f} "
            f"| {seconds / own:.1f} |",
            flush=True,
        )


def main() -> None:
    _backend.set_num_threads(1)
    if faiss is not None:
        faiss.omp_set_num_threads(1)
    print("| m, d, n, T | by | microseconds | ns per pair | x first |")
    print("|---|---|---|---|---|")
    for size in sys.argv[1:] or ["8x384x100x1700"]:
        measure(*(int(part) for part in size.split("x")))


if __name__ == "__main__":
    main()

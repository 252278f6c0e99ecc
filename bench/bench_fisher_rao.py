"""Exact top-10 with a variance per memory, against numpy doing the same in float32.

    OMP_NUM_THREADS=1 python bench/bench_fisher_rao.py 10000x384x1 100000x384x64

Sizes are N x d x B. Processor time of one thread, the smallest of some rounds taken in turn; the
ids are compared with the float64 reference (with numpy's float32 ids where the reference would take
minutes) before anything is timed. numpy multiplies matrices: q^2 P' - 2 q (P h)' + h' P h, with
what depends on the rows alone made beforehand.
"""

from __future__ import annotations

import sys

import numpy as np
from in_turn import best_of
from riemem import _backend, reference
from riemem._uncertain import precision_of, prepare_uncertain, uncertain_topk
from riemem.fisher_rao import TEMPERATURE, access_ramp, signal_variance

K = 10


class Numpy:
    """The expanded distance: three matrix products, then a partial sort."""

    def __init__(self, rows: np.ndarray, precision: np.ndarray, ramp: np.ndarray) -> None:
        self.rows, self.precision, self.ramp = rows, precision, ramp.astype(np.float32)
        self.weighted = precision * rows
        self.own = (self.weighted * rows).sum(axis=1)

    def topk(self, queries: np.ndarray) -> np.ndarray:
        distance = (queries * queries) @ self.precision.T
        distance -= 2.0 * (queries @ self.weighted.T)
        distance += self.own
        cosine = queries @ self.rows.T
        score = (1.0 - self.ramp) * (0.5 * (cosine + 1.0))
        score += self.ramp * np.exp(distance / np.float32(-TEMPERATURE))
        best = np.argpartition(-score, K - 1, axis=1)[:, :K]
        order = np.argsort(-np.take_along_axis(score, best, 1), axis=1, kind="stable")
        return np.take_along_axis(best, order, 1)


def unit(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    rows = rng.standard_normal((n, d), dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def measure(n: int, d: int, b: int, rounds: int = 7) -> list[str]:
    rng = np.random.default_rng(0)
    rows, queries = unit(rng, n, d), unit(rng, b, d)
    variances, ramp = signal_variance(rows), access_ramp(rng.integers(0, 15, n))
    precision = precision_of(variances)
    points = prepare_uncertain(rows, precision, ramp)
    peer = Numpy(rows, precision, ramp)
    found = uncertain_topk(points, queries, TEMPERATURE, None, K)
    if n * d * b <= 10**8:
        truth = reference.fisher_rao_scores(queries, rows, variances, ramp=ramp)
        np.testing.assert_array_equal(found.indices, reference.top_k(truth, K)[0])
    same = float((found.indices == peer.topk(queries)).mean())
    isas = _backend.core.available_isas()[::-1]
    ways = {
        isa: (lambda i=isa: uncertain_topk(points, queries, TEMPERATURE, None, K, i))
        for isa in isas
    }
    ways["numpy"] = lambda: peer.topk(queries)
    best = best_of(ways, rounds)
    cells = [f"{best[name] / b * 1e3:.4f}" for name in ways]
    ratio = best[isas[0]] / best["numpy"]
    cells += [f"{ratio:.2f}", f"{found.exact_rows / b:.0f}", f"{same:.3f}"]
    return [f"{n}, {d}", str(b), *cells]


def main(sizes: list[str]) -> None:
    _backend.set_num_threads(1)
    isas = _backend.core.available_isas()[::-1]
    head = ["N, d", "B", *(f"{isa} ms/query" for isa in isas), "numpy", f"{isas[0]} / numpy"]
    head += ["float64 rows", "numpy's ids right"]
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for size in sizes:
        n, d, b = (int(part) for part in size.split("x"))
        print("| " + " | ".join(measure(n, d, b)) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["10000x384x1", "100000x384x1", "10000x384x64", "100000x384x64"])

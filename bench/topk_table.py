"""Print the table of exact fused top-10 against its peers, one size per process.

    python bench/topk_table.py [--threads 1] [--sizes 1000x384x1,100000x384x64] [--rounds 15]
                               [--clock wall|cpu]

Every peer does cosine alone (one dot product per row); ours fuses cosine with the Riemannian score
(two). "ours" is the search of prepared queries, "call" the whole Python call, which also folds the
metric into one vector per query. Ours alternates with the peers in one process of one problem size,
and the answer is checked against float64 before anything is timed. "x raw read" is ours over one
read of the bytes that the scan reads: the floor for a single query. The processor clock of the
calling thread is fairer than the wall clock where the machine is shared; it needs one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

SIZES = [
    *("1000x384x1", "10000x384x1", "10000x1536x1", "100000x384x1", "100000x1536x1"),
    *("1000000x384x1", "1000x384x64", "10000x384x64", "10000x1536x64", "100000x384x64"),
    *("1000000x384x64", "100000x384x256"),
]
K = 10


def embedding_like(n: int, d: int, seed: int) -> Any:
    """Unit rows with a spectrum that falls like i^-1/2 and a common mean, made in parts."""
    import numpy as np

    rng = np.random.default_rng(seed)
    spectrum = (np.arange(1, d + 1) ** -0.5).astype(np.float32)
    rows = np.empty((n, d), np.float32)
    for start in range(0, n, 50_000):
        part = rng.standard_normal((min(50_000, n - start), d), dtype=np.float32) * spectrum
        part += 0.5 * spectrum
        part /= np.linalg.norm(part, axis=1, keepdims=True)
        rows[start : start + 50_000] = part
    return rows


def peers(rows: Any, queries: Any, threads: int) -> dict[str, Callable[[], Any]]:
    import faiss
    import numpy as np
    import torch

    faiss.omp_set_num_threads(threads)
    faiss.cvar.distance_compute_blas_threshold = 20
    torch.set_num_threads(threads)
    flat = faiss.IndexFlatIP(rows.shape[1])
    flat.add(rows)
    tensor, batch = torch.from_numpy(rows), torch.from_numpy(queries)

    def by_numpy() -> Any:
        scores = queries @ rows.T
        best = np.argpartition(scores, -K, axis=1)[:, -K:]
        return np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, 1)), 1)

    found: dict[str, Callable[[], Any]] = {
        "faiss": lambda: flat.search(queries, K)[1],
        "torch": lambda: torch.topk(batch @ tensor.T, K).indices.numpy(),
        "numpy": by_numpy,
    }
    if rows.size <= 100_000 * 400:  # usearch copies the rows and is the slowest by far
        from usearch.index import search as usearch_exact

        found["usearch"] = lambda: usearch_exact(
            rows, queries, K, "ip", exact=True, threads=threads
        ).keys.reshape(-1, K)
    return found


def measure(
    size: str, threads: int, rounds: int, clock: Callable[[], float], scan: str | None
) -> dict[str, Any]:
    import numpy as np
    import riemem
    from riemem._fused import Options, prepare_queries, top_rows

    n, d, b = map(int, size.split("x"))
    riemem.set_num_threads(threads)
    rows = embedding_like(n, d, 0)
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((b, d), dtype=np.float32) * (0.3 / np.sqrt(d))
    queries = rows[rng.integers(0, n, b)] + noise.astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    index = riemem.RiemannianIndex(
        d, storage="float32+int8", cosine_weight=0.5, form="inner", norm="minmax"
    )
    index.add(rows)
    if scan is not None:
        riemem.index.fastest_scan = lambda _: scan
    index.refresh()

    truth = (
        riemem.reference.fused_topk(
            queries[:1], index.vectors(), index.metric, k=K, cosine_weight=0.5, form="inner"
        )[0]
        if n <= 20_000
        else None
    )
    ours = index.search(queries, K)
    if truth is not None:
        np.testing.assert_array_equal(ours.indices[:1], truth)

    bytes_read = np.full(n * d // 8, 1, np.int64)  # written, or it would be one page of zeros
    snapshot = index._current()
    prepared = prepare_queries(queries, snapshot.metric, Options(0.5, "inner", "minmax"))
    runs: dict[str, Callable[[], Any]] = {
        "ours": lambda: top_rows(snapshot.points, prepared, None, K, "auto"),
        "call": lambda: index.search(queries, K),
    }
    others = peers(rows, queries, threads)
    cosine = np.argsort(-(queries[:1] @ rows.T), kind="stable")[0, :K]
    for name, run in others.items():
        assert set(run()[0].tolist()) == set(cosine.tolist()), name
    runs |= others
    runs["raw"] = lambda: bytes_read.max()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = clock()
            run()
            times[name].append(clock() - start)
    ms = {name: float(np.median(t)) * 1e3 for name, t in times.items()}
    per_query = {name: value / b for name, value in ms.items() if name != "raw"}
    return {
        "size": size,
        "ms": per_query,
        "raw_ms": ms["raw"],
        "exact_rows": ours.exact_rows / b,
        "R_faiss": per_query["ours"] / per_query["faiss"],
        "R_best": per_query["ours"]
        / min(v for k, v in per_query.items() if k not in ("ours", "call")),
        "R_floor": ms["ours"] / ms["raw"] if b == 1 else None,
    }


def scaling(size: str, rounds: int) -> str:
    """Ours alone with one and with two threads in turn: peers' threads spin and would disturb."""
    import numpy as np
    import riemem

    n, d, b = map(int, size.split("x"))
    rows = embedding_like(n, d, 0)
    index = riemem.RiemannianIndex(d, storage="float32+int8", cosine_weight=0.5, form="inner")
    index.add(rows)
    index.refresh()
    times: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for threads, taken in times.items():
            riemem.set_num_threads(threads)
            start = time.perf_counter()
            index.search(rows[:b], K)
            taken.append(time.perf_counter() - start)
    one, two = (float(np.median(taken)) * 1e3 for taken in times.values())
    return f"{size}: one thread {one:.2f} ms, two {two:.2f} ms, {one / two:.2f} times as fast"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--scan", choices=["float32", "int8"], help="default: by the number of rows"
    )
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument(
        "--scaling", metavar="NxDxB", help="ours with one and two threads, no table"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.scaling:
        print(scaling(arguments.scaling, arguments.rounds))
        return
    if arguments.one:
        clock = time.perf_counter if arguments.clock == "wall" else time.thread_time
        print(
            json.dumps(
                measure(arguments.one, arguments.threads, arguments.rounds, clock, arguments.scan)
            )
        )
        return
    import faiss
    import numpy
    import riemem
    import torch

    info = riemem.build_info()
    machine = platform.processor() or platform.machine()
    print(f"{machine}, {info['isa']}, {arguments.threads} thread(s), {arguments.clock} clock")
    print(
        f"riemem {info['version']} ({info['compiler']}), faiss {faiss.__version__}, "
        f"torch {torch.__version__}, numpy {numpy.__version__}; load {os.getloadavg()[0]:.1f}\n"
    )
    print(
        "| N, d | B | ours ms/query | call | faiss | torch | numpy | usearch "
        "| R faiss | R best peer | x raw read | float64 rows |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    environment = os.environ | {
        "OMP_NUM_THREADS": str(arguments.threads),
        "OPENBLAS_NUM_THREADS": str(arguments.threads),
    }
    for size in arguments.sizes.split(","):
        command = [sys.executable, __file__, "--one", size]
        command += ["--threads", str(arguments.threads), "--rounds", str(arguments.rounds)]
        command += ["--clock", arguments.clock]
        command += ["--scan", arguments.scan] if arguments.scan else []
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"| {size} | failed: {done.stderr.strip().splitlines()[-1]} |")
            continue
        row = json.loads(done.stdout)
        n, d, b = size.split("x")
        cells = [
            f"{n}, {d}",
            b,
            *(
                f"{row['ms'].get(k, float('nan')):.4f}"
                for k in ("ours", "call", "faiss", "torch", "numpy", "usearch")
            ),
        ]
        cells += [f"{row['R_faiss']:.2f}", f"{row['R_best']:.2f}"]
        cells += ["" if row["R_floor"] is None else f"{row['R_floor']:.2f}"]
        cells += [f"{row['exact_rows']:.0f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

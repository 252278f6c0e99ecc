"""Time per row of the int8 copy on every instruction set of this machine, one thread.

    python bench/bench_quantize.py

The least of several rounds of processor time counts: what else a shared machine does only ever
adds. That all write the same bytes is asserted before they are timed.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from riemem import _backend

D, ROWS, PART, ROUNDS = 384, 20_000, 512, 7


def copies(rows: np.ndarray[Any, Any], isa: str) -> tuple[list[Any], float]:
    """The copy of the rows in parts too small for a second thread, and the seconds it took."""
    core = _backend.core
    tiles = -(-len(rows) // core.int8_tile_rows) * core.int8_tile_bytes(D)
    out = [np.full(tiles, 128, np.uint8), *np.zeros((2, len(rows)), np.float32)]
    start = time.thread_time()
    for first in range(0, len(rows), PART):
        core.quantize_int8(rows[first : first + PART], first, *out, isa)
    return out, time.thread_time() - start


def main() -> None:
    """Print the table."""
    rows = np.random.default_rng(0).standard_normal((ROWS, D)).astype(np.float32)
    expected, _ = copies(rows, "scalar")
    for isa in _backend.core.available_isas():
        seconds = []
        for _ in range(ROUNDS):
            found, took = copies(rows, isa)
            assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
            seconds.append(took)
        print(f"{isa:8} {1e6 * min(seconds) / ROWS:5.2f} us per row")


if __name__ == "__main__":
    main()

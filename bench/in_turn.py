"""How long each of several ways takes, timed in turn so that all meet the same machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


def best_of(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The smallest processor time of the thread, in seconds, of some rounds."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.thread_time()
            way()
            best[name] = min(best[name], time.thread_time() - start)
    return best

"""The numeric steps between gradients and units: the compiled kernels, and torch on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from riemem._backend import core

__all__ = ["NEVER", "fill_gaps", "largest_size", "pool_tokens", "row_norms", "smooth"]

NEVER = int(np.iinfo(np.int64).max)
_POOLS = {"sum": 0, "mean": 1, "max": 2}


def row_norms(gradient: Any, embedding: Any) -> NDArray[np.float64]:
    """Return ``||g_i * h_i||_2`` of every row of two torch tensors, (n, d) each.

    On the CPU by the compiled kernel; elsewhere on the tensors' own device, and only the norms
    are copied.
    """
    g, h = gradient.detach().float(), embedding.detach().float()
    if g.device.type == "cpu":
        return core.token_sensitivity(g.contiguous().numpy(), h.contiguous().numpy())
    return np.asarray((g * h).double().square().sum(-1).sqrt().cpu().numpy(), np.float64)


def smooth(scores: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Return the mean over a centred window of odd width; the edges are replicated."""
    return core.token_smooth(scores, width) if width > 1 else scores


def pool_tokens(
    scores: NDArray[np.float64], unit_of: NDArray[np.int64], units: int, how: str
) -> NDArray[np.float64]:
    """Return per unit the sum, mean or maximum over its tokens; 0 for a unit without one."""
    return core.token_pool(scores, unit_of, units, _POOLS[how])


def fill_gaps(entry: NDArray[np.int64], segments: NDArray[np.int64], gap: int) -> NDArray[np.int64]:
    """Let the units of a gap of at most `gap` enter as soon as both sides have.

    ``filled_j = min(entry_j, min over a < j < b, b - a - 1 <= gap of max(entry_a, entry_b))``,
    a and b in one segment. The sets stay nested.
    """
    return core.fill_gaps(entry, segments, gap) if gap else entry


def largest_size(
    entry: NDArray[np.int64], costs: NDArray[np.float64], steps: int, budget: float
) -> int:
    """Return how many steps cost no more than the budget together, by the estimated costs."""
    return core.largest_size(entry, costs, steps, budget)

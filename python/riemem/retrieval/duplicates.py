"""Leaving out what says the same as a better hit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from riemem.retrieval.channel import ChannelHits
from riemem.retrieval.dense import Rows

__all__ = ["without_near_duplicates"]


def without_near_duplicates(
    found: ChannelHits, vectors: Mapping[int, Rows], threshold: float, k: int
) -> ChannelHits:
    """Return the k best hits of which no two have a cosine above `threshold`.

    Parameters
    ----------
    found : ChannelHits
    vectors : mapping of int to (c, d) float32 ndarray
        Unit vectors of each memory. Two memories are compared by their nearest vectors; one
        without vectors is never a duplicate.
    threshold : float
        In (-1, 1]; 1.0 leaves out only what is equal to rounding.
    k : int
    """
    kept: list[tuple[int, float]] = []
    rows: list[Rows] = []
    for memory_id, score in found:
        if len(kept) >= k:
            break
        own = vectors.get(memory_id)
        limit = min(threshold, 1.0 - 1e-6)
        if own is not None and any(float(np.max(own @ other.T)) > limit for other in rows):
            continue
        kept.append((memory_id, score))
        if own is not None and own.size:
            rows.append(own)
    return ChannelHits(kept, scoring=found.scoring, notes=found.notes, details=found.details)

"""The neighbours channel: an answer often stands beside the words of its question."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from riemem.errors import ArgumentError
from riemem.retrieval.corpus import REACH, CorpusView, Floats

__all__ = ["neighbour_scores"]


def neighbour_scores(base: Floats, view: CorpusView, kernel: Mapping[int, float]) -> Floats:
    """Return ``sum over d of kernel[d] * base[the row d turns later in the session]``.

    Parameters
    ----------
    base : (n,) float64 ndarray
        Scores of the rows by themselves; 0 for rows that may lend nothing.
    view : CorpusView
    kernel : mapping of int to float
        Weights by distance in turns; negative distances are earlier turns.

    Raises
    ------
    ArgumentError
        A distance is 0 or beyond :data:`riemem.retrieval.corpus.REACH`.
    """
    total = np.zeros(len(view))
    extended = np.append(base, 0.0)  # row n: no such neighbour
    for distance, weight in sorted(kernel.items()):
        if distance == 0 or abs(distance) > REACH:
            raise ArgumentError(f"kernel: expected distances within {REACH}, got {distance}")
        rows = view.after[distance - 1] if distance > 0 else view.before[-distance - 1]
        total += weight * extended[rows]
    return total

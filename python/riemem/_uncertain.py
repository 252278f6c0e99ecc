"""Rows with a precision per dimension, as the kernel `fisher_rao` holds and scores them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from riemem import _backend
from riemem._arrays import F32, F64, Bool, raise_if_bad_row
from riemem._fused import TopK

_SCORING = "fisher-rao"


@dataclass(frozen=True)
class UncertainPoints:
    """Rows with their precisions, as the kernel holds them; made by :func:`prepare_uncertain`."""

    count: int
    dim: int
    kernel: Any  # None when there are no rows


def prepare_uncertain(rows: F32, precision: F32, ramp: F64 | None) -> UncertainPoints:
    """Give the kernel rows, precisions and ramps that are known to fit each other.

    Raises
    ------
    NotFiniteError
        A row holds NaN or an infinity.
    """
    if rows.shape[0] == 0:
        return UncertainPoints(0, rows.shape[1], None)
    norms, bad = _backend.core.row_stats(rows)
    raise_if_bad_row(bad, "points")
    kernel = _backend.core.FisherRaoPoints(rows, precision, _inverse(norms), ramp)
    return UncertainPoints(rows.shape[0], rows.shape[1], kernel)


def uncertain_scores(
    points: UncertainPoints, queries: F32, temperature: float, mask: Bool | None, isa: str = "auto"
) -> F64:
    """Return all scores, shape (B, N): -inf outside the mask, NaN for a zero query."""
    if points.kernel is None:
        return np.empty((queries.shape[0], 0))
    norms, _ = _backend.core.row_stats(queries)
    found: F64 = points.kernel.scores(queries, _inverse(norms), temperature, mask, isa)
    found[norms == 0.0] = np.nan
    return found


def uncertain_topk(
    points: UncertainPoints,
    queries: F32,
    temperature: float,
    mask: Bool | None,
    k: int,
    isa: str = "auto",
) -> TopK:
    """Return the k best rows of each query, exactly."""
    batch = queries.shape[0]
    if points.kernel is None or batch == 0 or k == 0:
        zero = (queries == 0.0).all(axis=1)
        shape = (batch, 0)
        return TopK(
            np.empty(shape, np.int64), np.empty(shape), np.zeros(batch, np.int64), zero, _SCORING
        )
    norms, _ = _backend.core.row_stats(queries)
    empty = norms == 0.0
    indices, best, counts, exact = points.kernel.topk(
        queries, _inverse(norms), temperature, mask, min(k, points.count), isa
    )
    indices[empty], best[empty], counts[empty] = -1, np.nan, 0
    width = int(counts.max(initial=0))
    indices, best = np.ascontiguousarray(indices[:, :width]), np.ascontiguousarray(best[:, :width])
    return TopK(indices, best, counts, empty, _SCORING, exact)


def precision_of(variances: F32) -> F32:
    """The inverse of variances, rounded once to float32."""
    with np.errstate(over="ignore"):
        precision: F32 = (1.0 / variances.astype(np.float64)).astype(np.float32)
    return precision


def _inverse(norms: F64) -> F64:
    return np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0.0)

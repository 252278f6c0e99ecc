"""From a metric, a form and arrays to the plain numbers that the kernel takes, and back.

The kernel wants two vectors and two constants per query and three constants per row; what depends
on the rows alone is prepared once by whoever searches them again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from riemem import _backend
from riemem._arrays import (
    F32,
    F64,
    I64,
    Bool,
    as_choice,
    as_number,
    like,
    raise_if_bad_row,
)
from riemem._rows import RowsView
from riemem.metric import FisherMetric

FORMS = ("inner", "cosine", "mahalanobis")
NORMS = ("none", "minmax", "zscore")

_UNBOUNDED = (-np.inf, np.inf)
_ROWS = 4096  # rows widened to float64 together: bounds the workspace


class TopK(tuple[Any, Any]):
    """The k best rows of each query; unpacks as ``indices, scores``.

    Attributes
    ----------
    indices : (B, k) int64
        Row numbers (or ids of an index), best first; ties go to the lower one.
    scores : (B, k) float64
        Larger is nearer.
    counts : (B,) int64
        How many entries of each row are hits. Only with per-query masks or zero queries can a row
        be short; the rest of it then holds -1 and NaN.
    empty : (B,) bool
        True for queries that are the zero vector: they have no direction and no hits.
    scoring : str
        "fused", or in words why the plain cosine was used instead.
    exact_rows : int
        Rows that were evaluated in float64 to certify the answer, over all queries; -1 from a GPU,
        where counting them would mean to wait.

    Examples
    --------
    >>> from riemem.scoring import search
    >>> indices, scores = search([[1.0, 0.0]], [[0.0, 1.0], [2.0, 0.0]], None, k=1)
    >>> indices.tolist(), scores.tolist()
    ([[1]], [[1.0]])
    """

    counts: Any
    empty: Any
    scoring: str
    exact_rows: int

    def __new__(
        cls,
        indices: Any,
        scores: Any,
        counts: Any,
        empty: Any,
        scoring: str,
        exact_rows: int = 0,
    ) -> TopK:
        self = super().__new__(cls, (indices, scores))
        self.counts, self.empty, self.scoring = counts, empty, scoring
        self.exact_rows = exact_rows
        return self

    def __getnewargs__(self) -> tuple[Any, Any, Any, Any, str, int]:
        return (self[0], self[1], self.counts, self.empty, self.scoring, self.exact_rows)

    @property
    def indices(self) -> Any:
        """Row numbers or ids, best first, shape (B, k)."""
        return self[0]

    @property
    def scores(self) -> Any:
        """The scores that belong to :attr:`indices`, shape (B, k)."""
        return self[1]

    def __repr__(self) -> str:
        return f"TopK(indices={self[0]!r}, scores={self[1]!r}, scoring={self.scoring!r})"


@dataclass(frozen=True)
class Options:
    """How two scores become one; made by :func:`as_options`, which checks the values."""

    cosine_weight: float
    form: str
    norm: str


class Constants(NamedTuple):
    """What depends on each row alone."""

    inv_norms: F64
    scale: F64 | None
    bias: F64 | None


@dataclass(frozen=True)
class Points:
    """Rows with the constants that depend on them alone (see :func:`prepare_points`)."""

    count: int
    inv_norms: F64
    scale: F64 | None
    bias: F64 | None
    kernel: Any  # the same, as the kernel holds it; None when there are no rows

    @property
    def constants(self) -> Constants:
        """The three of them."""
        return Constants(self.inv_norms, self.scale, self.bias)

    @property
    def constants_nbytes(self) -> int:
        """Bytes held beside the rows."""
        return sum(a.nbytes for a in (self.inv_norms, self.scale, self.bias) if a is not None)


@dataclass(frozen=True)
class Queries:
    """What the kernel takes for each query; `bounds` are the limits of the exact scores."""

    q: F64
    w: F64
    offsets: F64
    bias: F64
    empty: Bool
    options: Options
    bounds: tuple[float, float]
    scoring: str


def as_options(cosine_weight: object, form: object, norm: object) -> Options:
    """Check the three options of a score."""
    return Options(
        as_number(cosine_weight, "cosine_weight", low=0.0, high=1.0),
        as_choice(form, "form", FORMS),
        as_choice(norm, "norm", NORMS),
    )


def why_cosine(metric: FisherMetric | None) -> str | None:
    """Say why a metric cannot be used, or return None when it can."""
    if metric is None:
        return "cosine: no metric"
    if metric.n_samples < metric.min_samples:
        return f"cosine: {metric.n_samples} samples < min_samples {metric.min_samples}"
    return None


def prepare_points(
    rows: F32 | RowsView,
    metric: FisherMetric | None,
    options: Options,
    *,
    isa: str = "auto",
    scan: str = "float32",
    known: Constants | None = None,
) -> Points:
    """Compute the per-row constants, O(N d) and O(N d^2) where the form needs lengths.

    `known` are those that were computed before, of the same rows, metric and options.

    Raises
    ------
    NotFiniteError
        A row holds NaN or an infinity.
    """
    if not isinstance(rows, RowsView):
        rows = RowsView(rows.shape[0], rows.shape[1], None, rows=rows)
    n = rows.count
    if n == 0:
        return Points(0, np.zeros(0), None, None, None)
    if known is not None:
        return Points(n, *known, rows.kernel(*known, scan))
    plain = why_cosine(metric) is not None or options.cosine_weight == 1.0
    state = None
    if metric is not None and not plain and options.form != "inner":
        state = metric._current()
    norms, squared = np.empty(n), np.empty(n if state is not None else 0)
    # Rows that are put together from halves come in parts, to bound the workspace.
    step = n if rows.rows is not None else _ROWS
    for start in range(0, n, step):
        part = rows.get(start, start + step)
        norms[start : start + step], bad = _backend.core.row_stats(part, isa)
        raise_if_bad_row(bad if bad < 0 else start + bad, "points")
        if state is not None:
            squared[start : start + step] = _backend.core.quadratic_rows(
                part, state.mean, state.whitening, isa
            )
    inv_norms = _inverse(norms, norms > 0.0)
    scale = bias = None
    if state is not None and options.form == "mahalanobis":
        bias = -squared
    elif state is not None:
        scale = _inverse(np.sqrt(squared), squared > state.at_mean)
    return Points(n, inv_norms, scale, bias, rows.kernel(inv_norms, scale, bias, scan))


def prepare_queries(rows: F32, metric: FisherMetric | None, options: Options) -> Queries:
    """Fold metric and form into two vectors and two constants per query, O(B d^2)."""
    q = rows.astype(np.float64)
    norms = np.sqrt((q * q).sum(axis=1))
    empty = norms == 0.0
    bias = np.zeros(q.shape[0])
    reason = why_cosine(metric)
    if metric is None or reason is not None or options.cosine_weight == 1.0:
        w, offsets = np.zeros_like(q), np.zeros(q.shape[0])
        if reason is not None:
            options = Options(1.0, options.form, "none")
    else:
        w, offsets, squared = metric._weights(q)
        if options.form == "mahalanobis":  # -(d_q + d_h - 2 inner); doubling is exact
            w, offsets, bias = 2.0 * w, 2.0 * offsets, -squared
        elif options.form == "cosine":
            inverse = _inverse(np.sqrt(squared), squared > metric._current().at_mean)
            w, offsets = w * inverse[:, None], offsets * inverse
    q *= _inverse(norms, ~empty)[:, None]
    if empty.any():
        w[empty], offsets[empty], bias[empty] = 0.0, 0.0, 0.0
    return Queries(q, w, offsets, bias, empty, options, score_bounds(options), reason or "fused")


def _inverse(values: F64, usable: Bool) -> F64:
    if usable.all():
        return 1.0 / values
    return np.where(usable, 1.0 / np.where(usable, values, 1.0), 0.0)


def score_bounds(options: Options) -> tuple[float, float]:
    """Limits of the exact score that rounding may overstep by a last bit."""
    if options.norm != "none":
        return _UNBOUNDED
    if options.cosine_weight == 1.0 or options.form == "cosine":
        return (-1.0, 1.0)
    if options.form == "mahalanobis" and options.cosine_weight == 0.0:
        return (-np.inf, 0.0)
    return _UNBOUNDED


def _kernel_arguments(queries: Queries, mask: Bool | None) -> dict[str, Any]:
    """The arguments that both kernels take."""
    return {
        "q": queries.q,
        "w": queries.w,
        "offsets": queries.offsets,
        "query_bias": queries.bias,
        "cosine_weight": queries.options.cosine_weight,
        "norm": NORMS.index(queries.options.norm),
        "mask": mask,
    }


def score_rows(points: Points, queries: Queries, mask: Bool | None, isa: str, out: Any) -> None:
    """Fill `out`, shape (B, N): -inf outside the mask, NaN for a zero query."""
    points.kernel.scores(**_kernel_arguments(queries, mask), isa=isa, out=out)
    low, high = queries.bounds
    if queries.bounds != _UNBOUNDED:
        np.clip(out, low, high, out=out, where=out != -np.inf)
    out[queries.empty] = np.nan


def approximate_rows(points: Points, queries: Queries) -> tuple[F64, float]:
    """Scores of all rows for one query without norm, and how far each can be off at most."""
    found: tuple[F64, float] = points.kernel.approximate(**_one_query(queries))
    _limit(found[0], queries.bounds)  # brings none further from its score
    return found


def score_some(points: Points, queries: Queries, rows: I64) -> F64:
    """Score the rows at some positions for one query without norm: the bits of score_rows."""
    scores: F64 = points.kernel.some(**_one_query(queries), rows=rows)
    _limit(scores, queries.bounds)
    if queries.empty[0]:
        scores[:] = np.nan
    return scores


def _limit(scores: F64, bounds: tuple[float, float]) -> None:
    """Move scores that are over a limit to it, as np.clip does in three times as long."""
    if bounds == (-1.0, 1.0):
        np.maximum(scores, -1.0, out=scores)
        np.minimum(scores, 1.0, out=scores)
    elif bounds != _UNBOUNDED:
        np.clip(scores, *bounds, out=scores)


def _one_query(queries: Queries) -> dict[str, Any]:
    return {
        "q": queries.q,
        "w": queries.w,
        "offsets": queries.offsets,
        "query_bias": queries.bias,
        "cosine_weight": queries.options.cosine_weight,
    }


def top_rows(
    points: Points, queries: Queries, mask: Bool | None, k: int, isa: str, keys: I64 | None = None
) -> tuple[I64, F64, I64, int]:
    """Exact k best rows: indices and scores (B, width), counts (B,), rows evaluated in float64.

    Equal scores are ordered by row, or by `keys[row]` where given. The kernel orders by the raw
    score and the row; a score that rounding pushed over its bound and a foreign key are repaired
    here, and only a tie that reaches over the edge of the answer needs all scores of that query.
    """
    total = points.count
    k = min(k, total)
    repair = keys is not None or queries.bounds != _UNBOUNDED
    asked = min(k + 1, total) if repair else k
    indices, best, counts, exact_rows = points.kernel.topk(
        **_kernel_arguments(queries, mask), k=asked, isa=isa
    )
    indices[queries.empty], best[queries.empty], counts[queries.empty] = -1, np.nan, 0
    if repair:
        for b in range(queries.q.shape[0]):
            _repair(points, queries, mask, k, isa, keys, b, indices[b], best[b], int(counts[b]))
        indices, best = indices[:, :k], best[:, :k]
        counts = np.minimum(counts, k)
    width = int(counts.max(initial=0))
    indices, best = np.ascontiguousarray(indices[:, :width]), np.ascontiguousarray(best[:, :width])
    return indices, best, counts, exact_rows


def _repair(
    points: Points,
    queries: Queries,
    mask: Bool | None,
    k: int,
    isa: str,
    keys: I64 | None,
    b: int,
    indices: I64,
    best: F64,
    count: int,
) -> None:
    """Put one query's answer, held in `indices` and `best`, into the total order."""
    low, high = queries.bounds
    raw = best[:count]
    clipped = np.clip(raw, low, high)
    moved = not np.array_equal(clipped, raw)
    if keys is None and not moved and (count == 0 or clipped[-1] != low):
        return
    rows = indices[:count]
    if count > k > 0 and clipped[k] == clipped[k - 1]:
        one = replace(
            queries,
            q=queries.q[b : b + 1],
            w=queries.w[b : b + 1],
            offsets=queries.offsets[b : b + 1],
            bias=queries.bias[b : b + 1],
            empty=queries.empty[b : b + 1],
        )
        everything = np.empty((1, points.count))
        own = mask[b : b + 1] if mask is not None and mask.ndim == 2 else mask
        score_rows(points, one, own, isa, everything)
        rows = np.flatnonzero(everything[0] >= clipped[k - 1]).astype(np.int64)
        clipped = everything[0][rows]
    order = np.lexsort((rows if keys is None else keys[rows], -clipped))[:count]
    indices[:count], best[:count] = rows[order], clipped[order]


def topk(
    points: Points,
    queries: Queries,
    mask: Bool | None,
    k: int,
    isa: str = "auto",
    keys: I64 | None = None,
    ordered: bool = True,
) -> TopK:
    """Search prepared points; `keys` are the ids to return and to break ties by.

    `ordered` says that they grow with the row, so that ties need no second look.
    """
    batch = queries.q.shape[0]
    if k == 0 or batch == 0 or points.count == 0:
        passing = points.count if mask is None else int(mask.sum(axis=-1).max(initial=0))
        shape = (batch, 0 if batch and queries.empty.all() else min(k, passing))
        indices, best = np.empty(shape, np.int64), np.empty(shape)
        return TopK(indices, best, np.zeros(batch, np.int64), queries.empty, queries.scoring)
    indices, best, counts, exact_rows = top_rows(
        points, queries, mask, k, isa, None if ordered else keys
    )
    if keys is not None:
        indices = np.where(indices >= 0, keys[indices], -1)
    return TopK(indices, best, counts, queries.empty, queries.scoring, exact_rows)


def convert(found: TopK, template: object) -> TopK:
    """Return the answer in the caller's kind of array."""
    to = like(template)
    return TopK(
        to(found.indices),
        to(found.scores),
        to(found.counts),
        to(found.empty),
        found.scoring,
        found.exact_rows,
    )


def row_norms(rows: F32) -> tuple[F64, int]:
    """Lengths of rows, 0 for zero vectors alone; the first row with NaN or an infinity, or -1."""
    return (np.zeros(0), -1) if rows.shape[0] == 0 else _backend.core.row_stats(rows)


def unit_rows(rows: F32, out: F32 | None = None, norms: F64 | None = None) -> tuple[F32, Bool, int]:
    """L2-normalise rows through float64, into `out` if it is given.

    Parameters
    ----------
    rows : ndarray of float32, shape (N, d)
    out : ndarray of float32, shape (N, d), optional
    norms : ndarray of float64, shape (N,), optional
        Those of :func:`row_norms`, if they are known and all rows are finite.

    Returns
    -------
    unit : ndarray of float32, shape (N, d)
        Zero rows stay zero.
    zero : ndarray of bool, shape (N,)
        Which rows those are.
    bad : int
        First row with NaN or an infinity, or -1.
    """
    if rows.shape[0] == 0:
        return np.ascontiguousarray(rows), np.zeros(0, bool), -1
    bad = -1
    if norms is None:
        norms, bad = _backend.core.row_stats(rows)
    zero = norms == 0.0
    unit = np.empty(rows.shape, np.float32) if out is None else out
    if bad < 0:
        _backend.core.unit_rows(rows, norms, unit)
    return unit, zero, bad

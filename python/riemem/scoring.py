"""Fused cosine and Riemannian scores of arrays: the k best, or all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from riemem import _backend
from riemem._arrays import F32, as_count, as_mask, as_rows, like, require_finite
from riemem._device import is_device
from riemem._fused import (
    FORMS,
    NORMS,
    TopK,
    as_options,
    convert,
    prepare_points,
    prepare_queries,
    score_rows,
    topk,
)
from riemem._fused_device import device_scores, device_search
from riemem.errors import ArgumentError, BackendUnavailableError, DTypeError, ShapeError
from riemem.metric import FisherMetric
from riemem.presets import presets

__all__ = ["FORMS", "NORMS", "TopK", "scores", "search"]

_DEFAULT = presets["default"]


def as_isa(backend: object) -> str:
    """Check a backend's name against what this build and this machine can run."""
    if not isinstance(backend, str):
        raise DTypeError(f"backend: expected a name, got {backend!r}")
    available = _backend.core.available_isas()
    if backend != "auto" and backend not in available:
        raise BackendUnavailableError(
            f"backend: expected one of auto, {', '.join(available)}, got {backend!r}"
        )
    return backend


def as_metric(metric: object, dim: int) -> FisherMetric | None:
    """Check that the metric is one, and of the right dimension."""
    if metric is None:
        return None
    if not isinstance(metric, FisherMetric):
        raise DTypeError(f"metric: expected a FisherMetric or None, got {type(metric).__name__}")
    if metric.dim != dim:
        raise ShapeError(f"metric: expected dimension {dim}, got {metric.dim}")
    return metric


def as_queries(queries: object, dim: int) -> F32:
    """Return queries as finite float32 rows; a vector is a batch of one."""
    rows = as_rows(queries, "queries", dim=dim, letter="B", one_row=True)
    require_finite(rows, "queries")
    return rows


def search(
    queries: object,
    points: object,
    metric: FisherMetric | None,
    k: int = 10,
    *,
    cosine_weight: float = _DEFAULT.cosine_weight,
    form: str = _DEFAULT.form,
    norm: str = _DEFAULT.norm,
    mask: object = None,
    backend: str = "auto",
) -> TopK:
    """Find the k rows with the largest fused score, exactly.

    ``score = a norm(cosine) + (1 - a) norm(riemannian)`` with ``a = cosine_weight``.

    Parameters
    ----------
    queries : array_like, shape (B, d) or (d,)
        Any real dtype. A zero vector gets no hits and is flagged in ``.empty``.
    points : array_like, shape (N, d)
        Any real dtype and strides; computed with as float32. Not normalised; a zero row has
        cosine 0.
    metric : FisherMetric or None
        Without one, or while it stands on fewer than ``metric.min_samples`` rows, the score is the
        plain cosine in [-1, 1] and ``.scoring`` says so.
    k : int
        How many rows, >= 0; fewer come back when fewer pass.
    cosine_weight : float
        Weight of the cosine, in [0, 1].
    form : {"inner", "cosine", "mahalanobis"}
        ``(q - mean)' Sigma^-1 (h - mean)``; the same over both Mahalanobis lengths (0 at the
        mean); or the negative squared distance.
    norm : {"minmax", "zscore", "none"}
        Scaling of both scores per query, over the rows that pass the mask; constant becomes 0.
    mask : array_like of bool, shape (N,) or (B, N), optional
        Rows that may be returned.
    backend : str
        "auto", or an instruction set of ``riemem.build_info()["available_isas"]``.

    Returns
    -------
    TopK
        ``indices`` and ``scores``, shape (B, min(k, rows that pass)); torch tensors when `queries`
        is one, else numpy arrays. Float32 arrays of torch or cupy on one GPU are searched there, on
        the library's current stream and without waiting for it, and the answer is of the same
        library, of shape (B, min(k, N)); docs/cuda.md says what else differs.

    Raises
    ------
    ShapeError, DTypeError, DeviceError, ArgumentError
        The argument it names does not fit.
    NotFiniteError
        A query or a point holds NaN or an infinity; the row is named.
    BackendUnavailableError
        No such backend here.

    Notes
    -----
    O(N d) per query after O(d^2); form "cosine" and "mahalanobis" add O(N d^2) per call, which
    :class:`riemem.RiemannianIndex` does once. Scores are evaluated in float64 in one fixed order:
    the answer does not depend on batch, threads or instruction set. CoreMem (arXiv 2606.18406),
    Equation 2.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32)
    >>> metric = FisherMetric.fit(points)
    >>> search(points[7], points, metric, k=3).indices[0, 0].item()
    7
    """
    isa = as_isa(backend)
    options = as_options(cosine_weight, form, norm)
    count = as_count(k, "k")
    if is_device(queries) or is_device(points):
        known = as_metric(metric, getattr(metric, "dim", 0))
        return device_search(queries, points, known, count, options, mask)
    rows = as_rows(points, "points", dim=None if metric is None else getattr(metric, "dim", None))
    metric = as_metric(metric, rows.shape[1])
    asked = as_queries(queries, rows.shape[1])
    passes = as_mask(mask, rows.shape[0], asked.shape[0])
    found = topk(
        prepare_points(rows, metric, options, isa=isa),
        prepare_queries(asked, metric, options),
        passes,
        count,
        isa,
    )
    return convert(found, queries)


def scores(
    queries: object,
    points: object,
    metric: FisherMetric | None,
    *,
    cosine_weight: float = _DEFAULT.cosine_weight,
    form: str = _DEFAULT.form,
    norm: str = _DEFAULT.norm,
    mask: object = None,
    backend: str = "auto",
    out: Any = None,
) -> Any:
    """Return the fused score of every row for every query.

    Parameters
    ----------
    queries, points, metric, cosine_weight, form, norm, mask, backend
        As for :func:`search`.
    out : ndarray of float32 or float64, shape (B, N), optional
        Writable array to fill; any strides. Returned itself.

    Returns
    -------
    ndarray of float64, shape (B, N)
        ``-inf`` for rows that do not pass the mask, NaN in the row of a zero query. A torch tensor
        when `queries` is one and `out` is not given.

    Raises
    ------
    ShapeError, DTypeError, DeviceError, ArgumentError, NotFiniteError, BackendUnavailableError
        As for :func:`search`; also when `out` cannot be filled in place.

    Examples
    --------
    >>> scores([[1.0, 0.0]], [[0.0, 1.0], [2.0, 0.0]], None).tolist()
    [[0.0, 1.0]]
    """
    isa = as_isa(backend)
    options = as_options(cosine_weight, form, norm)
    if is_device(queries) or is_device(points):
        known = as_metric(metric, getattr(metric, "dim", 0))
        return device_scores(queries, points, known, options, mask, out)
    rows = as_rows(points, "points", dim=None if metric is None else getattr(metric, "dim", None))
    metric = as_metric(metric, rows.shape[1])
    asked = as_queries(queries, rows.shape[1])
    passes = as_mask(mask, rows.shape[0], asked.shape[0])
    shape = (asked.shape[0], rows.shape[0])
    target = np.empty(shape) if out is None else _as_out(out, shape, (queries, points, mask))
    direct = target if target.flags.c_contiguous and target.flags.aligned else np.empty(shape)
    if direct.size:
        prepared = prepare_points(rows, metric, options, isa=isa)
        score_rows(prepared, prepare_queries(asked, metric, options), passes, isa, direct)
    if direct is not target:
        target[...] = direct
    return like(queries)(target) if out is None else out


def _as_out(out: Any, shape: tuple[int, int], inputs: tuple[object, ...]) -> Any:
    if not isinstance(out, np.ndarray):
        raise DTypeError(f"out: expected a numpy array, got {type(out).__name__}")
    if out.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise DTypeError(f"out: expected dtype float32 or float64, got {out.dtype}")
    if out.shape != shape:
        raise ShapeError(f"out: expected shape {shape}, got {out.shape}")
    if not out.flags.writeable:
        raise ArgumentError("out: expected a writable array, got a read-only one")
    if any(isinstance(x, np.ndarray) and np.may_share_memory(out, x) for x in inputs):
        raise ArgumentError("out: expected memory of its own, got memory of an input")
    return out

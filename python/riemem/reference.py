"""The float64 truth: every kernel's formula in plain numpy, written for clarity and not for speed.

The functions here follow the definitions (dense covariance, triangular factor, one difference per
row) and share no shortcut with :class:`riemem.FisherMetric` or with the compiled kernels, so that
agreement between them means something. They trust their arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from riemem._reference_uncertain import (
    fisher_rao_distance,
    fisher_rao_scores,
    langevin,
    langevin_noise,
    portable_exp,
    portable_log,
    portable_sine_cosine,
)

__all__ = [
    "Gaussian",
    "GaussianLike",
    "canonical_dot",
    "cosine_scores",
    "fisher_rao_distance",
    "fisher_rao_scores",
    "fit",
    "fused_scores",
    "fused_topk",
    "kernel_scores",
    "langevin",
    "langevin_noise",
    "max_member",
    "normalise",
    "paper_scores",
    "portable_exp",
    "portable_log",
    "portable_sine_cosine",
    "riemannian_scores",
    "select_rank",
    "sigma",
    "top_k",
    "weights",
    "woodbury_factor",
    "woodbury_inverse",
]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

LANES = 8
RANK_SLACK = 1e-12  # equal eigenvalues must not make the rank depend on the last bit of a sum
ZERO_TRACE = 1e-28  # a variance below this share of |mean|^2 is the rounding of equal rows


class GaussianLike(Protocol):
    """What the scores need to know about a metric."""

    @property
    def mean(self) -> F64: ...
    @property
    def n_samples(self) -> int: ...
    @property
    def min_samples(self) -> int: ...
    def sigma(self) -> F64: ...


@dataclass(frozen=True)
class Gaussian:
    """A mean and a dense covariance, fitted straight from the data by :func:`fit`."""

    mean: F64
    matrix: F64
    n_samples: int
    rank: int = 0
    ridge_value: float = 0.0
    min_samples: int = 1

    def sigma(self) -> F64:
        """Return the dense covariance, shape (d, d)."""
        return self.matrix


def canonical_dot(rows: Any, vectors: Any) -> F64:
    """Dot products in the one summation order that every kernel reproduces bit for bit.

    Lane j of eight adds ``x[8t+j] * y[8t+j]`` for t = 0, 1, ... (a rounded product, then a rounded
    sum, zero padded); the lanes are joined as ``((l0+l4)+(l2+l6)) + ((l1+l5)+(l3+l7))``.

    Parameters
    ----------
    rows : array_like, shape (N, d)
    vectors : array_like, shape (B, d) or (d,)

    Returns
    -------
    ndarray of float64, shape (B, N) or (N,)

    Examples
    --------
    >>> canonical_dot([[1.0, 2.0], [3.0, 4.0]], [10.0, 1.0]).tolist()
    [12.0, 34.0]
    """
    x = np.asarray(rows, dtype=np.float64)
    y = np.asarray(vectors, dtype=np.float64)
    if y.ndim == 1:
        one: F64 = canonical_dot(x, y[None])[0]
        return one
    steps = -(-x.shape[1] // LANES)
    pad = ((0, 0), (0, steps * LANES - x.shape[1]))
    x = np.pad(x, pad).reshape(x.shape[0], steps, LANES)
    y = np.pad(y, pad).reshape(y.shape[0], steps, LANES)
    out = np.empty((y.shape[0], x.shape[0]))
    for b in range(y.shape[0]):
        lanes = np.zeros((x.shape[0], LANES))
        for t in range(steps):
            lanes += x[:, t] * y[b, t]
        even = (lanes[:, 0] + lanes[:, 4]) + (lanes[:, 2] + lanes[:, 6])
        odd = (lanes[:, 1] + lanes[:, 5]) + (lanes[:, 3] + lanes[:, 7])
        out[b] = even + odd
    return out


def select_rank(eigenvalues: F64, energy: float, max_rank: int | None) -> int:
    """Smallest r whose leading eigenvalues hold `energy` of the sum, at most `max_rank`."""
    total = np.cumsum(eigenvalues)
    if total.size == 0 or total[-1] <= 0.0:
        return 0
    rank = int(np.searchsorted(total, energy * total[-1] * (1.0 - RANK_SLACK))) + 1
    return min(rank, total.size, max_rank if max_rank is not None else total.size)


def sigma(
    cov: F64, covariance: str, *, ridge_value: float, rank: int, basis_of: F64 | None = None
) -> F64:
    """Dense model covariance built from the sample covariance.

    ``"full"``: ``C + ridge_value I``. ``"low_rank"``: ``V l V' + (ridge_value + mean residual
    variance) I``. ``"paper"``: ``diag(var) + ridge_value I + V diag(l + ridge_value) V'``, which
    counts the variance twice inside the subspace, as printed.

    Parameters
    ----------
    cov : ndarray of float64, shape (d, d)
        Biased sample covariance.
    covariance : {"full", "low_rank", "paper"}
    ridge_value : float
        The absolute ridge.
    rank : int
        Number of leading eigenvectors in the low-rank part.
    basis_of : ndarray of float64, shape (N, d), optional
        Centred data from which to take the eigenvectors (by SVD) instead of from `cov`.

    Notes
    -----
    O(d^3). CoreMem (arXiv 2606.18406), section 3.2, with V where the paper prints U.

    Examples
    --------
    >>> sigma(np.diag([3.0, 1.0]), "full", ridge_value=0.5, rank=1).tolist()
    [[3.5, 0.0], [0.0, 1.5]]
    """
    d = cov.shape[0]
    identity = np.eye(d)
    if covariance == "full":
        return cov + ridge_value * identity
    if basis_of is not None:
        _, singular, vt = np.linalg.svd(basis_of, full_matrices=True)
        values = np.zeros(d)
        values[: singular.size] = singular**2 / basis_of.shape[0]
        vectors = vt.T
    else:
        ascending, vectors = np.linalg.eigh(cov)
        values, vectors = ascending[::-1], vectors[:, ::-1]
    v, top = vectors[:, :rank], values[:rank]
    if covariance == "low_rank":
        residual = max((np.trace(cov) - top.sum()) / (d - rank), 0.0) if rank < d else 0.0
        low_rank: F64 = (v * top) @ v.T + (ridge_value + residual) * identity
        return low_rank
    diagonal = np.diag(np.diag(cov)) + ridge_value * identity
    printed: F64 = diagonal + (v * (top + ridge_value)) @ v.T
    return printed


def fit(
    data: Any,
    covariance: str = "full",
    *,
    ridge: float = 10.0,
    energy: float = 0.95,
    max_rank: int | None = None,
    min_samples: int = 1,
) -> Gaussian:
    """Fit mean and dense covariance by the definition: centre, SVD, assemble.

    Examples
    --------
    >>> fit([[2.0, 1.0], [4.0, 3.0], [6.0, 5.0]]).mean.tolist()
    [4.0, 3.0]
    """
    x = np.asarray(data, dtype=np.float64)
    mean = x[0] + (x - x[0]).mean(axis=0)
    centred = x - mean
    cov = centred.T @ centred / x.shape[0]
    d = x.shape[1]
    if np.trace(cov) <= ZERO_TRACE * float(mean @ mean):
        return Gaussian(mean, np.eye(d), x.shape[0], 0, 1.0, min_samples)
    singular = np.linalg.svd(centred, compute_uv=False)
    rank = select_rank(singular**2 / x.shape[0], energy, max_rank)
    ridge_value = ridge * float(np.trace(cov)) / d
    dense = sigma(cov, covariance, ridge_value=ridge_value, rank=rank, basis_of=centred)
    return Gaussian(mean, dense, x.shape[0], rank, ridge_value, min_samples)


def woodbury_inverse(diagonal: F64, basis: F64, core: F64) -> F64:
    """Inverse of ``diag(diagonal) + V diag(core) V'`` by Equation 1 of the paper, O(d^2 r).

    ``D^-1 - P P'`` with ``P = D^-1 V L^-T``, ``L L' = diag(core)^-1 + V' D^-1 V``.

    Parameters
    ----------
    diagonal : ndarray of float64, shape (d,)
    basis : ndarray of float64, shape (d, r)
    core : ndarray of float64, shape (r,)

    Examples
    --------
    >>> inverse = woodbury_inverse(np.ones(2), np.array([[1.0], [0.0]]), np.array([3.0]))
    >>> inverse.round(12).tolist()
    [[0.25, 0.0], [0.0, 1.0]]
    """
    p = woodbury_factor(diagonal, basis, core)
    inverse: F64 = np.diag(1.0 / diagonal) - p @ p.T
    return inverse


def woodbury_factor(diagonal: F64, basis: F64, core: F64) -> F64:
    """The factor ``P = D^-1 V L^-T`` of :func:`woodbury_inverse`, shape (d, r)."""
    scaled = basis / diagonal[:, None]
    lower = np.linalg.cholesky(np.diag(1.0 / core) + basis.T @ scaled)
    return np.linalg.solve(lower, scaled.T).T


def weights(queries: Any, metric: GaussianLike) -> tuple[F64, F64]:
    """``w = Sigma^-1 (q - mean)`` by a direct solve, and ``-w . mean``: shapes (B, d), (B,)."""
    q = np.atleast_2d(np.asarray(queries, dtype=np.float64))
    w: F64 = np.linalg.solve(metric.sigma(), (q - metric.mean).T).T.astype(np.float64)
    return w, -canonical_dot(w, metric.mean)


def _whitener(dense: F64) -> F64:
    """Return G^-1 with G G' = Sigma, so that |G^-1 x|^2 = x' Sigma^-1 x and is never negative."""
    return np.linalg.solve(np.linalg.cholesky(dense), np.eye(dense.shape[0]))


def _apply(inverse_factor: F64, x: F64) -> F64:
    """Whiten row by row: one product per row, so equal rows give equal bits wherever they stand."""
    out: F64 = np.matmul(inverse_factor, x[:, :, None])[:, :, 0]
    return out


def riemannian_scores(queries: Any, points: Any, metric: GaussianLike, form: str) -> F64:
    """Raw Riemannian similarities by definition, shape (B, N).

    ``"inner"``: ``(q - mean)' Sigma^-1 (h - mean)``. ``"cosine"``: the same divided by the
    Mahalanobis lengths of both, 0 where either is at the mean. ``"mahalanobis"``: the negative
    squared distance between q and h.

    Examples
    --------
    >>> unit = Gaussian(np.zeros(2), np.eye(2), 10)
    >>> riemannian_scores([[1.0, 0.0]], [[3.0, 4.0]], unit, "cosine").round(12).tolist()
    [[0.6]]
    """
    q = np.atleast_2d(np.asarray(queries, dtype=np.float64))
    h = np.asarray(points, dtype=np.float64)
    dense, mean = metric.sigma(), metric.mean
    factor = _whitener(dense)
    if form == "mahalanobis":
        rows = [-(_apply(factor, h - one) ** 2).sum(axis=1) for one in q]
        return np.stack(rows) if rows else np.empty((0, h.shape[0]))
    inner = canonical_dot(_apply(factor, h - mean), _apply(factor, q - mean))
    if form == "inner":
        return inner
    at_mean = ZERO_TRACE * float(mean @ mean) / float(np.linalg.eigvalsh(dense)[0])
    scale = []
    for x in (q, h):
        squared = (_apply(factor, x - mean) ** 2).sum(axis=1)
        away = squared > at_mean
        scale.append(np.where(away, 1.0 / np.sqrt(np.where(away, squared, 1.0)), 0.0))
    return inner * scale[0][:, None] * scale[1][None, :]


def cosine_scores(queries: Any, points: Any) -> F64:
    """Cosine similarity, shape (B, N); 0 where a row is the zero vector."""
    scaled = []
    for x in (queries, points):
        array = np.atleast_2d(np.asarray(x, dtype=np.float64))
        largest = np.abs(array).max(axis=1, keepdims=True, initial=0.0)
        array = array / np.where(largest > 0, largest, 1.0)  # no overflow, no underflow
        length = np.sqrt((array**2).sum(axis=1, keepdims=True))
        scaled.append(array / np.where(length > 0, length, 1.0))
    return np.clip(canonical_dot(scaled[1], scaled[0]), -1.0, 1.0)


def normalise(values: F64, norm: str, mask: NDArray[np.bool_] | None = None) -> F64:
    """Scale each row of scores; extremes and moments are taken over what passes the mask.

    ``"minmax"``: to [0, 1]. ``"zscore"``: zero mean, unit variance (1/N). ``"none"``: as it is.
    Constant rows become 0.

    Examples
    --------
    >>> normalise(np.array([[1.0, 2.0, 3.0]]), "minmax").tolist()
    [[0.0, 0.5, 1.0]]
    """
    if norm == "none":
        return values
    out = np.zeros_like(values)
    for b, row in enumerate(values):
        keep = np.ones(row.size, bool) if mask is None else (mask if mask.ndim == 1 else mask[b])
        seen = row[keep]
        if seen.size == 0 or seen.max() == seen.min():
            continue
        if norm == "minmax":
            out[b] = (row - seen.min()) / (seen.max() - seen.min())
        else:
            out[b] = (row - seen.mean()) / seen.std()
    return out


def fused_scores(
    queries: Any,
    points: Any,
    metric: GaussianLike | None,
    *,
    cosine_weight: float,
    form: str,
    norm: str = "minmax",
    mask: NDArray[np.bool_] | None = None,
) -> F64:
    """``a norm(cosine) + (1 - a) norm(riemannian)``, shape (B, N), by definition.

    Rows that do not pass the mask score ``-inf``; a zero query scores NaN everywhere; below
    ``metric.min_samples``, or without a metric, the score is the plain cosine.

    Notes
    -----
    O(B N d^2). CoreMem (arXiv 2606.18406), Equation 2.

    Examples
    --------
    >>> unit = Gaussian(np.zeros(2), np.eye(2), 10)
    >>> fused_scores([[1.0, 0.0]], np.eye(2), unit, cosine_weight=0.5, form="inner").tolist()
    [[1.0, 0.0]]
    """
    q = np.atleast_2d(np.asarray(queries, dtype=np.float64))
    out = cosine_scores(q, points)
    if metric is not None and metric.n_samples >= metric.min_samples:
        rie = riemannian_scores(q, points, metric, form)
        out = cosine_weight * normalise(out, norm, mask) + (1.0 - cosine_weight) * normalise(
            rie, norm, mask
        )
    if mask is not None:
        out = np.where(np.broadcast_to(mask, out.shape), out, -np.inf)
    out[~q.any(axis=1)] = np.nan
    return out


def top_k(values: F64, k: int, mask: NDArray[np.bool_] | None = None) -> tuple[I64, F64]:
    """Indices and scores of the k largest per row; ties to the lower index, NaN never chosen.

    Short rows are filled with -1 and NaN; the width is the largest number of hits, at most k.

    Examples
    --------
    >>> top_k(np.array([[5.0, 7.0, 5.0, 7.0, 1.0]]), 3)[0].tolist()
    [[1, 3, 0]]
    """
    allowed = ~np.isnan(values)
    if mask is not None:
        allowed &= np.broadcast_to(mask, values.shape)
    width = min(k, int(allowed.sum(axis=1).max(initial=0)))
    indices = np.full((values.shape[0], width), -1, dtype=np.int64)
    best = np.full((values.shape[0], width), np.nan)
    for b, row in enumerate(values):
        candidates = np.flatnonzero(allowed[b])
        order = candidates[np.argsort(-row[candidates], kind="stable")][:width]
        indices[b, : order.size] = order
        best[b, : order.size] = row[order]
    return indices, best


def fused_topk(
    queries: Any,
    points: Any,
    metric: GaussianLike | None,
    k: int = 10,
    *,
    cosine_weight: float,
    form: str,
    norm: str = "minmax",
    mask: NDArray[np.bool_] | None = None,
) -> tuple[I64, F64]:
    """The k best rows of :func:`fused_scores`: indices (B, k) and scores (B, k).

    Examples
    --------
    >>> unit = Gaussian(np.zeros(2), np.eye(2), 10)
    >>> fused_topk([[1.0, 0.0]], np.eye(2), unit, 1, cosine_weight=1.0, form="inner")[0].tolist()
    [[0]]
    """
    values = fused_scores(
        queries, points, metric, cosine_weight=cosine_weight, form=form, norm=norm, mask=mask
    )
    return top_k(values, k, mask)


def kernel_scores(
    rows: Any,
    inv_norms: F64,
    row_scale: F64 | None,
    row_bias: F64 | None,
    q: F64,
    w: F64,
    offsets: F64,
    query_bias: F64,
    cosine_weight: float,
    norm: str,
    mask: NDArray[np.bool_] | None = None,
) -> F64:
    """What the compiled kernel computes from its own arguments, in its own order, shape (B, N).

    ``cos = (q . h) inv_norm`` and ``rie = scale (w . h + offset) + bias + query_bias``, both with
    :func:`canonical_dot`: with ``norm`` "none" or "minmax" the result is equal bit for bit.
    """
    cos = canonical_dot(rows, q) * inv_norms
    rie = canonical_dot(rows, w) + offsets[:, None]
    if row_scale is not None:
        rie = row_scale * rie
    if row_bias is not None:
        rie = rie + row_bias
    rie = rie + query_bias[:, None]
    return cosine_weight * normalise(cos, norm, mask) + (1.0 - cosine_weight) * normalise(
        rie, norm, mask
    )


def paper_scores(queries: Any, points: Any, mean: F64, diagonal: F64, basis: F64, core: F64) -> F64:
    """The paper's evaluation: project every row for every query, O(B N d r), shape (B, N).

    ``rie = q_c' D^-1 h_c - (q_c' P)(h_c' P)'`` with the repaired P of :func:`woodbury_factor`.
    Kept only as the twin that the benchmark compares with.
    """
    q = np.atleast_2d(np.asarray(queries, dtype=np.float64)) - mean
    h = np.asarray(points, dtype=np.float64) - mean
    p = woodbury_factor(diagonal, basis, core)
    out = np.empty((q.shape[0], h.shape[0]))
    for b, one in enumerate(q):
        out[b] = h @ (one / diagonal) - (h @ p) @ (p.T @ one)
    return out


def _cosines(rows: F64, square_rows: F64, vector: F64, square: float) -> F64:
    """Canonical cosines in [-1, 1]; 0 with a vector that has no direction."""
    product = square_rows * square
    with np.errstate(divide="ignore", invalid="ignore"):
        values = canonical_dot(rows, vector) / np.sqrt(product)
    clipped: F64 = np.clip(np.where(product > 0.0, values, 0.0), -1.0, 1.0)
    return clipped


def max_member(
    data: Any, threshold: float, route: str = "max_member"
) -> tuple[I64, F64, NDArray[np.bool_]]:
    """Assign a stream of rows to atoms by the max-member rule, one row after the other.

    ``best(x, a) = max(cos(x, centroid_a), max_m cos(x, m))`` over the members m of atom a. The
    largest best wins (ties: higher centroid cosine, then the older atom); the row joins that atom
    when best > threshold, else it opens one. ``"nearest_fallback"`` looks at the atom of the
    nearest centroid alone, ``"centroid"`` at centroids alone.

    Parameters
    ----------
    data : array_like, shape (N, d)
        Float32 rows that are not zero.
    threshold : float
    route : {"max_member", "nearest_fallback", "centroid"}

    Returns
    -------
    labels : ndarray of int64, shape (N,)
        Atoms, numbered as they were opened.
    scores : ndarray of float64, shape (N,)
        The winner's best, also where it did not suffice; NaN for the first row.
    created : ndarray of bool, shape (N,)
        True where the row opened an atom.

    Notes
    -----
    O(N^2 d). RSM-full (arXiv 2609.04915), section 2. ``cos(x, y) = x.y / sqrt(|x|^2 |y|^2)`` with
    canonical sums is exactly 1 for equal rows.

    Examples
    --------
    >>> labels, scores, created = max_member([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], 0.7)
    >>> labels.tolist(), created.tolist()
    ([0, 1, 1], [True, True, False])
    """
    x = np.asarray(data, dtype=np.float32).astype(np.float64)
    squares = np.array([float(canonical_dot(row[None], row)[0]) for row in x])
    labels: I64 = np.full(x.shape[0], -1, np.int64)
    scores = np.full(x.shape[0], np.nan)
    sums: list[F64] = []
    for i, row in enumerate(x):
        best = np.empty(0)
        if sums:
            centres = np.array(sums)
            lengths = np.array([float(canonical_dot(c[None], c)[0]) for c in centres])
            central = _cosines(centres, lengths, row, squares[i])
            best = central.copy()
            members = _cosines(x[:i], squares[:i], row, squares[i])
            if route == "max_member":
                np.maximum.at(best, labels[:i], members)
            elif route == "nearest_fallback":
                nearest = int(np.argmax(central))
                best[:] = -np.inf
                own = members[labels[:i] == nearest]
                best[nearest] = max(central[nearest], own.max())
        if best.size:
            tied = np.flatnonzero(best == best.max())
            winner = int(tied[np.argmax(central[tied])])
            scores[i] = best[winner]
        if best.size and scores[i] > threshold:
            labels[i] = winner
            sums[winner] = sums[winner] + row * (1.0 / np.sqrt(squares[i]))
        else:
            labels[i] = len(sums)
            sums.append(row * (1.0 / np.sqrt(squares[i])))
    created = np.zeros(x.shape[0], bool)
    created[np.unique(labels, return_index=True)[1]] = True
    return labels, scores, created

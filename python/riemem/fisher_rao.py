"""Memories as diagonal Gaussians: similarity with a variance per dimension, and their distance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from riemem._arrays import (
    F32,
    F64,
    Bool,
    as_count,
    as_mask,
    as_number,
    as_rows,
    like,
    require_finite,
    to_numpy,
)
from riemem._device import is_device
from riemem._fused import TopK, convert
from riemem._uncertain import (
    UncertainPoints,
    precision_of,
    prepare_uncertain,
    uncertain_scores,
    uncertain_topk,
)
from riemem._uncertain_device import device_uncertain_scores, device_uncertain_topk
from riemem.errors import ArgumentError, DTypeError, NotFiniteError, ShapeError
from riemem.presets import presets
from riemem.scoring import as_isa, as_queries

__all__ = [
    "FULL_AT",
    "MAX_VARIANCE",
    "MIN_VARIANCE",
    "TEMPERATURE",
    "access_ramp",
    "confirmed_variance",
    "fisher_rao_distance",
    "fisher_rao_scores",
    "fisher_rao_search",
    "signal_variance",
]

#: SLM-V3's constants: temperature, limits of a variance, accesses at which the ramp is full.
TEMPERATURE = presets["slm-v3"].temperature
FULL_AT = presets["slm-v3"].full_at
MIN_VARIANCE, MAX_VARIANCE = 0.05, 2.0


def fisher_rao_scores(
    queries: object,
    points: object,
    variances: object,
    *,
    temperature: float = TEMPERATURE,
    ramp: object = None,
    mask: object = None,
    backend: str = "auto",
) -> Any:
    """Return the similarity of every query to every point, given a variance per dimension.

    ``(1 - ramp_i) (cos + 1) / 2 + ramp_i exp(-sum_k (q_k - h_ik)^2 / variance_ik / temperature)``

    Parameters
    ----------
    queries : array_like, shape (B, d) or (d,)
        Computed with as float32. A zero vector gets NaN.
    points : array_like, shape (N, d)
        A zero row has cosine 0.
    variances : array_like, shape (N, d) or (d,)
        Finite and positive; variances, not standard deviations. Their inverses are used rounded
        to float32 and must fit into it.
    temperature : float
        Positive. A score below 5e-324 is 0, and equal scores are ranked by row: with large
        distances ask for a higher temperature.
    ramp : array_like, shape (N,), optional
        How far each point has left the cosine behind, in [0, 1]; see :func:`access_ramp`. 1 where
        it is not given.
    mask : array_like of bool, shape (N,) or (B, N), optional
        Rows outside get ``-inf``.
    backend : str
        As for :func:`riemem.search`.

    Returns
    -------
    ndarray of float64, shape (B, N)
        In [0, 1] up to rounding. A torch tensor when `queries` is one. Float32 arrays of torch or
        cupy on one GPU are scored there, on the library's current stream and without waiting for
        it; what would be refused by its row here is left out there (docs/cuda.md).

    Raises
    ------
    ShapeError, DTypeError, DeviceError, NotFiniteError, BackendUnavailableError
    ArgumentError
        A variance is zero or negative, or a ramp outside [0, 1]; the row is named.

    Notes
    -----
    O(B N d), evaluated in float64 in one fixed order: the same bits for any batch, number of
    threads and instruction set. SLM-V3 (arXiv 2603.14588), section 5.2. The exponent has no
    normalising determinant, so it is no likelihood: a point with small variances is near to
    less. docs/uncertainty.md says what follows.

    Examples
    --------
    >>> fisher_rao_scores([[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], [1.0, 1.0]).round(3).tolist()
    [[1.0, 0.875]]
    """
    isa = as_isa(backend)
    heat = as_number(temperature, "temperature", low=0.0, open_low=True)
    if any(is_device(value) for value in (queries, points, variances)):
        return device_uncertain_scores(queries, points, variances, heat, ramp, mask)
    prepared, asked, passes = _prepare(queries, points, variances, ramp, mask)
    return like(queries)(uncertain_scores(prepared, asked, heat, passes, isa))


def fisher_rao_search(
    queries: object,
    points: object,
    variances: object,
    k: int = 10,
    *,
    temperature: float = TEMPERATURE,
    ramp: object = None,
    mask: object = None,
    backend: str = "auto",
) -> TopK:
    """Find the k points with the largest :func:`fisher_rao_scores`, exactly.

    Parameters
    ----------
    queries, points, variances, temperature, ramp, mask, backend
        As for :func:`fisher_rao_scores`.
    k : int
        How many, >= 0; fewer come back when fewer pass.

    Returns
    -------
    TopK
        Ties go to the lower row. ``.scoring`` is "fisher-rao". Arrays on a GPU are searched there,
        and the answer has min(k, N) columns, as that of :func:`riemem.search`.

    Raises
    ------
    As :func:`fisher_rao_scores`.

    Notes
    -----
    One float32 pass over rows and precisions finds the rows that can be among the best (the error
    is bounded: the distance is a sum of terms that are not negative), float64 decides.

    Examples
    --------
    >>> fisher_rao_search([1.0, 0.0], [[0.0, 1.0], [1.0, 0.0]], [1.0, 1.0], k=1).indices.tolist()
    [[1]]
    """
    isa = as_isa(backend)
    heat = as_number(temperature, "temperature", low=0.0, open_low=True)
    count = as_count(k, "k")
    if any(is_device(value) for value in (queries, points, variances)):
        return device_uncertain_topk(queries, points, variances, count, heat, ramp, mask)
    prepared, asked, passes = _prepare(queries, points, variances, ramp, mask)
    return convert(uncertain_topk(prepared, asked, heat, passes, count, isa), queries)


def fisher_rao_distance(
    mean_a: object, std_a: object, mean_b: object, std_b: object
) -> NDArray[np.float64]:
    """Return the Fisher-Rao distance of diagonal Gaussians: the length of the geodesic.

    ``sqrt(sum_k d_k^2)``, ``d_k = sqrt2 arccosh(1 + ((m1 - m2)^2 + 2 (s1 - s2)^2) / (4 s1 s2))``

    Parameters
    ----------
    mean_a, mean_b : array_like, shape (..., d)
        Broadcast against each other.
    std_a, std_b : array_like, shape (..., d)
        Standard deviations, positive and finite; of the shape of their means, or (d,).

    Returns
    -------
    ndarray of float64, shape (...)

    Raises
    ------
    ShapeError, DTypeError, NotFiniteError
    ArgumentError
        A standard deviation is zero or negative.

    Notes
    -----
    O(d) per pair. Each dimension is a hyperbolic half plane of curvature -1/2. Evaluated as
    ``2 sqrt2 arcsinh(hypot(m1 - m2, sqrt2 (s1 - s2)) / sqrt(8 s1 s2))``, which keeps its digits
    where the Gaussians nearly coincide. The formula that SLM-V3 (arXiv 2603.14588) prints as
    Equation 3 violates the triangle inequality; docs/uncertainty.md has the example.

    Examples
    --------
    >>> float(fisher_rao_distance([0.0], [1.0], [0.0], [1.0]))
    0.0
    """
    m1, m2 = _real(mean_a, "mean_a"), _real(mean_b, "mean_b")
    s1, s2 = _real(std_a, "std_a"), _real(std_b, "std_b")
    for name, std in (("std_a", s1), ("std_b", s2)):
        if not (std > 0.0).all():
            raise ArgumentError(f"{name}: expected positive numbers, got {std.min()}")
    try:
        shape = np.broadcast_shapes(m1.shape, s1.shape, m2.shape, s2.shape)
    except ValueError as error:
        raise ShapeError(
            f"mean_a, std_a, mean_b, std_b: expected shapes that broadcast, got {m1.shape}, "
            f"{s1.shape}, {m2.shape}, {s2.shape}"
        ) from error
    if not shape or {m1.shape[-1], s1.shape[-1], m2.shape[-1], s2.shape[-1]} != {shape[-1]}:
        raise ShapeError(
            f"mean_a, std_a, mean_b, std_b: expected the same last dimension, got {m1.shape}, "
            f"{s1.shape}, {m2.shape}, {s2.shape}"
        )
    apart = np.hypot(m1 / 2.0 - m2 / 2.0, np.sqrt(2.0) * (s1 / 2.0 - s2 / 2.0))
    # The product of the roots, because that of two small deviations may vanish.
    with np.errstate(over="ignore"):
        ratio = apart / np.sqrt(2.0) / (np.sqrt(s1) * np.sqrt(s2))
    per_dimension = np.arcsinh(ratio)
    far = np.flatnonzero(np.isinf(ratio))
    if far.size:  # there arcsinh(x) is log(2 x)
        parts = (np.broadcast_to(x, ratio.shape).flat[far] for x in (apart, s1, s2))
        over, one, other = (np.log(part) for part in parts)
        per_dimension.flat[far] = over + np.log(2.0) / 2.0 - (one + other) / 2.0
    return np.asarray(np.sqrt(8.0) * np.sqrt((per_dimension * per_dimension).sum(axis=-1)))


def signal_variance(points: object) -> NDArray[np.float32]:
    """Return SLM-V3's variance of embeddings: the stronger a coordinate, the surer.

    ``clip(2.0 - 1.95 |e_k| / max_j |e_j|, 0.05, 2.0)``

    Parameters
    ----------
    points : array_like, shape (N, d)
        A zero row gets the largest variance everywhere.

    Returns
    -------
    ndarray of float32, shape (N, d)

    Raises
    ------
    ShapeError, DTypeError, DeviceError, NotFiniteError

    Notes
    -----
    SLM-V3 (arXiv 2603.14588), section 5.2: a function of the embedding alone, so it holds nothing
    that the embedding does not.

    Examples
    --------
    >>> signal_variance([[1.0, 0.0, -0.5]]).round(3).tolist()
    [[0.05000000074505806, 2.0, 1.024999976158142]]
    """
    rows = as_rows(points, "points")
    require_finite(rows, "points")
    size = np.abs(rows)
    most = size.max(axis=1, keepdims=True)
    share = np.divide(size, most, out=np.zeros_like(size), where=most > 0.0)
    spread = np.float32(MAX_VARIANCE - MIN_VARIANCE)
    variance: F32 = np.clip(np.float32(MAX_VARIANCE) - spread * share, MIN_VARIANCE, MAX_VARIANCE)
    return variance


def access_ramp(accesses: object, *, full_at: int = FULL_AT) -> NDArray[np.float64]:
    """Return how far the cosine has been left behind: ``min(accesses / full_at, 1)``.

    Parameters
    ----------
    accesses : array_like of int, shape (N,)
        Not negative.
    full_at : int
        Accesses at which the ramp is 1; at least 1.

    Returns
    -------
    ndarray of float64, shape (N,)

    Raises
    ------
    ArgumentError, DTypeError, ShapeError

    Examples
    --------
    >>> access_ramp([0, 5, 20]).tolist()
    [0.0, 0.5, 1.0]
    """
    counts = to_numpy(accesses, "accesses")
    if counts.dtype.kind not in "iu" and counts.size:
        raise DTypeError(f"accesses: expected integers, got dtype {counts.dtype}")
    if counts.ndim != 1:
        raise ShapeError(f"accesses: expected shape (N,), got {counts.shape}")
    if counts.size and counts.min() < 0:
        raise ArgumentError(f"accesses: expected no negative number, got {counts.min()}")
    return np.minimum(counts / as_count(full_at, "full_at", minimum=1), 1.0)


def confirmed_variance(variances: object, observed: object) -> NDArray[np.float32]:
    """Return variances after an observation: ``1 / new = 1 / old + 1 / observed``, clipped.

    Parameters
    ----------
    variances, observed : array_like, shape (N, d) or (d,)
        Positive and finite.

    Returns
    -------
    ndarray of float32, shape (N, d)
        Within [0.05, 2].

    Raises
    ------
    ShapeError, DTypeError, DeviceError, NotFiniteError
    ArgumentError
        A variance is zero or negative.

    Notes
    -----
    The posterior variance of a Gaussian mean. To be called when a memory proved useful, not when
    it was merely returned: a search must not make its own answers surer.

    Examples
    --------
    >>> confirmed_variance([[1.0, 2.0]], [[1.0, 2.0]]).tolist()
    [[0.5, 1.0]]
    """
    old = _positive_rows(variances, "variances", None)
    new = _positive_rows(observed, "observed", old.shape[1])
    if new.shape[0] not in (1, old.shape[0]) and old.shape[0] != 1:
        raise ShapeError(f"observed: expected shape {old.shape}, got {new.shape}")
    precision = 1.0 / old.astype(np.float64) + 1.0 / new.astype(np.float64)
    return np.clip(1.0 / precision, MIN_VARIANCE, MAX_VARIANCE).astype(np.float32)


def _prepare(
    queries: object, points: object, variances: object, ramp: object, mask: object
) -> tuple[UncertainPoints, F32, Bool | None]:
    rows = as_rows(points, "points")
    n, d = rows.shape
    variance = _positive_rows(variances, "variances", d)
    if variance.shape[0] != n:
        if variance.shape[0] != 1 or to_numpy(variances, "variances").ndim != 1:
            raise ShapeError(
                f"variances: expected shape ({n}, {d}) or ({d},), got {variance.shape}"
            )
        variance = np.ascontiguousarray(np.broadcast_to(variance, (n, d)))
    precision = precision_of(variance)
    if not np.isfinite(precision).all():
        row = int(np.argmin(np.isfinite(precision).all(axis=1)))
        raise ArgumentError(
            f"variances: expected numbers whose inverse fits into float32, got "
            f"{variance[row].min()} in row {row}"
        )
    asked = as_queries(queries, d)
    passes = as_mask(mask, n, asked.shape[0])
    return prepare_uncertain(rows, precision, _as_ramp(ramp, n)), asked, passes


def _positive_rows(value: object, name: str, dim: int | None) -> F32:
    rows = as_rows(value, name, dim=dim, one_row=True)
    require_finite(rows, name)
    if not (rows > 0.0).all():
        row = int(np.argmin((rows > 0.0).all(axis=1)))
        raise ArgumentError(
            f"{name}: expected positive numbers, got {rows[row].min()} in row {row}"
        )
    return rows


def _as_ramp(value: object, n: int) -> F64 | None:
    if value is None:
        return None
    ramp = _real(value, "ramp")
    if ramp.shape != (n,):
        raise ShapeError(f"ramp: expected shape ({n},), got {ramp.shape}")
    if n and (ramp.min() < 0.0 or ramp.max() > 1.0):
        row = int(np.argmax((ramp < 0.0) | (ramp > 1.0)))
        raise ArgumentError(f"ramp: expected numbers in [0, 1], got {ramp[row]} in row {row}")
    return np.ascontiguousarray(ramp)


def _real(value: object, name: str) -> F64:
    array = to_numpy(value, name)
    if array.dtype.kind not in "fiu":
        raise DTypeError(f"{name}: expected real numbers, got dtype {array.dtype}")
    wide = array.astype(np.float64)
    if not np.isfinite(wide).all():
        raise NotFiniteError(f"{name}: expected finite numbers, got NaN or an infinity")
    return wide

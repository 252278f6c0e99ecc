"""Part of :mod:`riemem.reference`: diagonal Gaussians, and dynamics on the Poincare ball.

``portable_exp`` and its kin are the kernels' own elementary functions, operation for operation:
numpy's come from the machine's libm, and no two of those agree in the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

LN2_HIGH = float.fromhex("0x1.62e42feep-1")
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
LOG2_E = float.fromhex("0x1.71547652b82fep0")
HALF_PI = float.fromhex("0x1.921fb54442d18p0")
SQRT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")
EDGE = 1.0 - 1e-9

_EXP = [1.0 / f for f in (6227020800.0, 479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0)]
_EXP += [1.0 / f for f in (5040.0, 720.0, 120.0, 24.0, 6.0)] + [0.5, 1.0, 1.0]
_SINE = [-1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0]
_SINE += [-1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0]
_COSINE = [1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0]
_COSINE += [1.0 / 40320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def _horner(coefficients: list[float], x: F64) -> F64:
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


def portable_exp(x: Any) -> F64:
    """exp(x) for x <= 0, the same bits on every machine.

    Examples
    --------
    >>> portable_exp([0.0, -1000.0]).tolist()
    [1.0, 0.0]
    """
    values = np.maximum(np.asarray(x, dtype=np.float64), -746.0)
    n = np.floor(values * LOG2_E + 0.5)
    r = (values - n * LN2_HIGH) - n * LN2_LOW
    found = np.ldexp(_horner(_EXP, r), n.astype(np.int64))
    return np.where(np.asarray(x, dtype=np.float64) < -746.0, 0.0, found)


def portable_log(x: Any) -> F64:
    """log(x) of positive normal numbers, the same bits on every machine.

    Examples
    --------
    >>> portable_log([1.0]).tolist()
    [0.0]
    """
    m, exponent = np.frexp(np.asarray(x, dtype=np.float64))
    low = m < SQRT_HALF
    m = np.where(low, m * 2.0, m)
    n = (exponent - low).astype(np.float64)
    z = (m - 1.0) / (m + 1.0)
    w = z * z
    p = _horner([1.0 / k for k in range(21, 2, -2)], w) * w
    twice = z + z
    return n * LN2_HIGH + (twice + (twice * p + n * LN2_LOW))


def portable_sine_cosine(u: Any) -> tuple[F64, F64]:
    """Sine and cosine of the angles 2 pi u, 0 <= u < 1, the same bits on every machine.

    Examples
    --------
    >>> [float(v) for v in portable_sine_cosine(0.25)]
    [1.0, -0.0]
    """
    quarters = 4.0 * np.asarray(u, dtype=np.float64)
    n = np.floor(quarters + 0.5)
    x = (quarters - n) * HALF_PI
    w = x * x
    s = x + x * (w * _horner(_SINE, w))
    c = 1.0 + _horner(_COSINE, w) * w
    turn = n.astype(np.int64) & 3
    sine = np.choose(turn, [s, c, -s, -c])
    cosine = np.choose(turn, [c, -s, -c, s])
    return sine, cosine


def fisher_rao_scores(
    queries: Any,
    points: Any,
    variances: Any,
    *,
    temperature: float = 15.0,
    ramp: Any = None,
) -> F64:
    """Similarity of queries to points with a variance per dimension; see the kernel's contract.

    ``(1 - ramp) (cos + 1) / 2 + ramp exp(-sum_k (q_k - h_k)^2 p_k / temperature)``, p = 1 /
    variance rounded to float32.

    Parameters
    ----------
    queries : array_like of float32, shape (B, d)
    points, variances : array_like of float32, shape (N, d)
    temperature : float
    ramp : array_like, shape (N,), optional
        1 where it is not given.

    Returns
    -------
    ndarray of float64, shape (B, N)

    Examples
    --------
    >>> fisher_rao_scores([[1.0, 0.0]], [[1.0, 0.0]], [[1.0, 1.0]]).tolist()
    [[1.0]]
    """
    q = np.asarray(queries, dtype=np.float32).astype(np.float64)
    h = np.asarray(points, dtype=np.float32).astype(np.float64)
    variance = np.asarray(variances, dtype=np.float32).astype(np.float64)
    p = (1.0 / variance).astype(np.float32).astype(np.float64)
    out = np.empty((q.shape[0], h.shape[0]))
    for b, query in enumerate(q):
        difference = query - h
        out[b] = portable_exp(-(_canonical_sum((difference * difference) * p) / temperature))
        if ramp is not None:
            alpha = np.asarray(ramp, dtype=np.float64)
            cosine = (_canonical_sum(query * h) * _inverse_norms(h)) * _inverse_norms(query[None])
            out[b] = (1.0 - alpha) * (0.5 * (cosine + 1.0)) + alpha * out[b]
    return out


def _canonical_sum(terms: F64) -> F64:
    """The sum of each row in the order of :func:`riemem.reference.canonical_dot`."""
    steps = -(-terms.shape[1] // 8)
    padded = np.pad(terms, ((0, 0), (0, steps * 8 - terms.shape[1])))
    lanes = np.zeros((terms.shape[0], 8))
    for t in range(steps):
        lanes += padded[:, 8 * t : 8 * t + 8]
    total: F64 = ((lanes[:, 0] + lanes[:, 4]) + (lanes[:, 2] + lanes[:, 6])) + (
        (lanes[:, 1] + lanes[:, 5]) + (lanes[:, 3] + lanes[:, 7])
    )
    return total


def _inverse_norms(rows: F64) -> F64:
    norms = np.sqrt(_canonical_sum(rows * rows))
    return np.where(norms > 0.0, 1.0 / np.where(norms > 0.0, norms, 1.0), 0.0)


def fisher_rao_distance(mean_a: Any, std_a: Any, mean_b: Any, std_b: Any) -> F64:
    """Geodesic distance of diagonal Gaussians, straight from the closed form.

    ``sqrt(sum_k 2 arccosh(1 + ((m1 - m2)^2 + 2 (s1 - s2)^2) / (4 s1 s2))^2)``, over the last axis.

    Examples
    --------
    >>> round(float(fisher_rao_distance([0.0], [1.0], [0.0], [2.718281828459045])), 12)
    1.414213562373
    """
    m1, s1 = np.asarray(mean_a, np.float64), np.asarray(std_a, np.float64)
    m2, s2 = np.asarray(mean_b, np.float64), np.asarray(std_b, np.float64)
    inner = 1.0 + ((m1 - m2) ** 2 + 2.0 * (s1 - s2) ** 2) / (4.0 * s1 * s2)
    return np.asarray(np.sqrt((2.0 * np.arccosh(inner) ** 2).sum(axis=-1)))


def _mixed(x: U64) -> U64:
    x = (x ^ (x >> np.uint64(30))) * _MIX[0]
    x = (x ^ (x >> np.uint64(27))) * _MIX[1]
    return x ^ (x >> np.uint64(31))


def langevin_noise(seed: int, ids: Any, step: int, dim: int) -> F64:
    """The noise of points at a step: standard normal numbers, a function of (seed, id, step).

    Returns
    -------
    ndarray of float64, shape (N, dim)

    Examples
    --------
    >>> langevin_noise(0, [1, 2], 0, 3).shape
    (2, 3)
    """
    with np.errstate(over="ignore"):
        start = np.array([seed & (2**64 - 1)], np.uint64)
        key = _mixed(start + _GOLDEN)
        key = _mixed(key ^ (np.asarray(ids, np.int64).astype(np.uint64) + _GOLDEN))
        counter = _mixed(key ^ (np.array([step], np.int64).astype(np.uint64) + _GOLDEN))
        out = np.empty((counter.size, dim))
        for j in range(0, dim, 2):
            draws = []
            for _ in range(2):
                counter = counter + _GOLDEN
                draws.append(_mixed(counter) >> np.uint64(11))
            u = (draws[0] + np.uint64(1)).astype(np.float64) * 2.0**-53
            v = draws[1].astype(np.float64) * 2.0**-53
            radius = np.sqrt(-2.0 * portable_log(u))
            sine, cosine = portable_sine_cosine(v)
            out[:, j] = radius * cosine
            if j + 1 < dim:
                out[:, j + 1] = radius * sine
    return out


def langevin(
    positions: Any,
    stiffness: Any,
    ids: Any,
    *,
    steps: int,
    temperature: float,
    dt: float,
    drift: float = 1.0,
    seed: int = 0,
    first: int = 0,
) -> F64:
    """Move points in the Poincare ball by Euler-Maruyama steps, under constant stiffnesses.

    The stochastic equation and its potential ``stiffness / 2 * rho^2`` are those of the kernel
    `langevin`; `drift` 1 is the corrected drift, 1/2 the printed one.

    Returns
    -------
    ndarray of float64, shape (N, d)

    Examples
    --------
    >>> langevin([[0.5, 0.0]], [1.0], [1], steps=0, temperature=1.0, dt=0.1).tolist()
    [[0.5, 0.0]]
    """
    x = np.array(positions, dtype=np.float64)
    a = np.asarray(stiffness, dtype=np.float64)
    d = x.shape[1]
    outward = drift * temperature * (float(d) - 2.0)
    spread = np.sqrt(2.0 * temperature * dt)
    for n in range(first, first + steps):
        r = _length(x)
        inside = np.where(r < 1e-4, 0.5, r)
        ratio = portable_log((1.0 + inside) / (1.0 - inside)) / inside
        ratio = np.where(r < 1e-4, 2.0 * (1.0 + r * r / 3.0), ratio)
        scale = (1.0 - r * r) * 0.5
        pull = (outward - a * ratio) * (scale * dt)
        noise = langevin_noise(seed, ids, n, d)
        x = (x + pull[:, None] * x) + (spread * scale)[:, None] * noise
        out = _length(x)
        x = np.where((out > EDGE)[:, None], x * (EDGE / np.maximum(out, EDGE))[:, None], x)
    return x


def _length(x: F64) -> F64:
    total = np.zeros(x.shape[0])
    for j in range(x.shape[1]):
        total = total + x[:, j] * x[:, j]
    return np.sqrt(total)

"""What :class:`riemem.FisherMetric` is made of: exact running moments, and their factorisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from riemem import reference
from riemem._arrays import F64
from riemem.errors import ArgumentError, NotFiniteError

COVARIANCES = ("full", "low_rank", "paper")

_BLOCK = 4  # vectors per matrix product, always padded to this: bits do not depend on the batch
_ROWS = 4096  # rows centred together: bounds the workspace
_FOREIGN = 1e-9  # share of the old scatter by which a removal may go negative through rounding


@dataclass(frozen=True)
class Moments:
    """Count, shifted sum and shifted scatter of rows in float64; every change makes a new one.

    The shift (the first batch's mean) is fixed, so nothing cancels when the rows lie far from 0.
    """

    n: int
    shift: F64
    total: F64
    scatter: F64

    @staticmethod
    def empty(dim: int) -> Moments:
        """Return the moments of no rows."""
        return Moments(0, np.zeros(dim), np.zeros(dim), np.zeros((dim, dim)))

    def added(self, rows: F64, sign: int = 1) -> Moments:
        """Return the moments with `rows` added (sign 1) or taken away (sign -1)."""
        if rows.shape[0] == 0:
            return self
        n = self.n + sign * rows.shape[0]
        if n == 0:
            return Moments.empty(self.shift.size)
        with np.errstate(over="ignore", invalid="ignore"):
            shift = self.shift
            if self.n == 0:  # written so that equal rows give exact zeros
                shift = rows[0] + (rows - rows[0]).mean(axis=0)
            total, scatter = self.total.copy(), self.scatter.copy()
            for start in range(0, rows.shape[0], _ROWS):
                z = rows[start : start + _ROWS] - shift
                total += sign * z.sum(axis=0)
                scatter += sign * (z.T @ z)
        if not np.isfinite(scatter).all():
            raise NotFiniteError("X: expected values whose squares fit into float64, got larger")
        return Moments(n, shift, total, scatter)

    def removed(self, rows: F64) -> Moments:
        """Return the moments without `rows`, or raise when they cannot have been among them."""
        if rows.shape[0] > self.n:
            raise ArgumentError(
                f"X: expected at most the {self.n} rows that were added, got {rows.shape[0]}"
            )
        slack = _FOREIGN * max(float(np.trace(self.scatter)), float(np.finfo(np.float64).tiny))
        if rows.shape[0] == self.n:
            z = rows - self.shift
            rest = np.abs(self.scatter - z.T @ z).max(initial=0.0)
            fits = bool(rest <= slack)
            left = Moments.empty(self.shift.size)
        else:
            left = self.added(rows, -1)
            fits = left._positive(slack)
        if not fits:
            raise ArgumentError("X: expected rows that were added before, got rows that were not")
        return left

    def _positive(self, slack: float) -> bool:
        centred = self.scatter - np.outer(self.total, self.total) / self.n
        if self.n == 1:
            return bool(np.abs(centred).max() <= slack)
        try:
            np.linalg.cholesky(centred + slack * np.eye(self.shift.size))
        except np.linalg.LinAlgError:
            return False
        return True

    def mean(self) -> F64:
        """Mean of the rows; zeros when there are none."""
        return self.shift + self.total / max(self.n, 1)

    def covariance(self) -> F64:
        """Biased covariance of the rows; zeros when there are none."""
        offset = self.total / max(self.n, 1)
        cov = self.scatter / max(self.n, 1) - np.outer(offset, offset)
        return (cov + cov.T) / 2.0


@dataclass(frozen=True)
class Factors:
    """Everything derived from the moments; replaced as a whole, so readers see one state."""

    mean: F64
    basis: F64
    eigenvalues: F64
    ridge_value: float
    discarded_energy: float
    condition_number: float
    degenerate: bool
    precision: F64
    whitening: F64
    at_mean: float  # squared Mahalanobis length below which a vector counts as the mean itself


def factorise(
    moments: Moments, *, covariance: str, ridge: float, energy: float, max_rank: int | None
) -> Factors:
    """Choose the rank, build the model covariance's spectrum and invert it, O(d^3)."""
    mean, cov = moments.mean(), moments.covariance()
    d = mean.size
    trace = float(np.trace(cov))
    degenerate = trace <= reference.ZERO_TRACE * float(mean @ mean)
    values, vectors = (np.zeros(d), np.eye(d)) if degenerate else _eigenpairs(cov)
    ridge_value = 1.0 if degenerate else ridge * trace / d
    rank = 0 if degenerate else reference.select_rank(values, energy, max_rank)
    rest = float(values[rank:].sum())
    if covariance == "paper" and not degenerate:
        spectrum, precision, whitening = _paper(
            np.diag(cov) + ridge_value, vectors[:, :rank], values[:rank] + ridge_value
        )
    else:
        spectrum = values + ridge_value
        if covariance == "low_rank" and rank < d:
            spectrum = np.full(d, ridge_value + rest / (d - rank))
            spectrum[:rank] += values[:rank]
        _require_invertible(spectrum)
        whitening = vectors / np.sqrt(spectrum)
        precision = (vectors / spectrum) @ vectors.T
    return Factors(
        mean=_frozen(mean),
        basis=_frozen(vectors[:, :rank].copy()),
        eigenvalues=_frozen(values[:rank].copy()),
        ridge_value=ridge_value,
        discarded_energy=0.0 if degenerate else rest / float(values.sum()),
        condition_number=float(spectrum.max() / spectrum.min()),
        degenerate=degenerate,
        precision=_frozen((precision + precision.T) / 2.0),
        whitening=_frozen(np.ascontiguousarray(whitening)),
        at_mean=reference.ZERO_TRACE * float(mean @ mean) / float(spectrum.min()),
    )


def _paper(diagonal: F64, basis: F64, core: F64) -> tuple[F64, F64, F64]:
    """Spectrum, inverse and whitening of ``diag(diagonal) + V diag(core) V'``.

    The inverse is Equation 1 with ``K = core^-1 + V' D^-1 V`` by Cholesky. With the thin SVD
    ``D^-1/2 V core^1/2 = A t B'`` a square root of the inverse is
    ``D^-1/2 (I - A (1 - (1 + t^2)^-1/2) A')``: no digits cancel.
    """
    _require_invertible(diagonal)
    scaled = basis / diagonal[:, None]
    lower = np.linalg.cholesky(np.diag(1.0 / core) + basis.T @ scaled)
    p = np.linalg.solve(lower, scaled.T).T
    precision: F64 = np.diag(1.0 / diagonal) - p @ p.T
    root = 1.0 / np.sqrt(diagonal)
    a, t, _ = np.linalg.svd(root[:, None] * basis * np.sqrt(core), full_matrices=False)
    inner = np.eye(diagonal.size) - (a * (1.0 - 1.0 / np.sqrt(1.0 + t**2))) @ a.T
    dense = np.diag(diagonal) + (basis * core) @ basis.T
    spectrum = np.linalg.eigvalsh(dense).astype(np.float64)
    return spectrum, precision, root[:, None] * inner


def _eigenpairs(cov: F64) -> tuple[F64, F64]:
    """Eigenvalues descending and >= 0, eigenvectors with their largest component positive."""
    ascending, vectors = np.linalg.eigh(cov)
    values, vectors = np.maximum(ascending[::-1], 0.0), vectors[:, ::-1]
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
    return values, vectors * signs


def _require_invertible(spectrum: F64) -> None:
    if spectrum.min() <= spectrum.size * np.finfo(np.float64).eps * spectrum.max():
        raise ArgumentError(
            "ridge: expected a value that makes the covariance invertible, got one that leaves it "
            "singular"
        )


def _frozen(array: F64) -> F64:
    array.flags.writeable = False
    return array


def blocked_product(rows: F64, symmetric: F64) -> F64:
    """Rows times a symmetric matrix, always in products of one shape."""
    count, d = rows.shape
    padded = np.zeros((-(-count // _BLOCK), _BLOCK, d))
    padded.reshape(-1, d)[:count] = rows
    out: F64 = np.matmul(padded, symmetric).reshape(-1, d)[:count]
    return out


def row_dots(x: F64, y: F64) -> F64:
    """One dot product per row, each computed by itself."""
    out: F64 = np.matmul(x[:, None, :], y[:, :, None])[:, 0, 0]
    return out

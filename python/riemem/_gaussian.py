"""What :class:`riemem.FisherMetric` is made of: exact running moments, and their factorisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from riemem import _backend, reference
from riemem._arrays import F32, F64
from riemem.errors import ArgumentError, NotFiniteError

COVARIANCES = ("full", "low_rank", "paper")

_ROWS = 4096  # rows centred together: bounds the workspace
_FOREIGN = 1e-9  # share of the old scatter by which a removal may go negative through rounding
_TAME = 1e100  # rows of float32 about a shift below this cannot overflow when squared
_LEAF = 64  # triangles up to this size are inverted directly
_SPARE = 16  # columns beyond the rank that a warm basis carries, so that the rank may grow
_WARM_SHARE = 4  # a warm basis of more than d / 4 columns is no cheaper than decomposing
_STEPS = 2  # multiplications with the covariance before the residual is looked at
_RESIDUAL = 1e-6  # share of the largest eigenvalue that a warm eigenpair may be off
_TINY = float(np.finfo(np.float64).tiny)
_TOO_LARGE = "X: expected values whose squares fit into float64, got larger"
_SINGULAR = (
    "ridge: expected a value that makes the covariance invertible, got one that leaves it singular"
)


class Moments:
    """Count, shifted sum and shifted scatter of rows in float64.

    The shift (the first batch's mean) is fixed, so nothing cancels when the rows lie far from 0.
    Only the lower triangle of `scatter` means anything. The arrays change in place, except while
    :meth:`share` has given them to somebody else: then the next change copies them first.
    """

    def __init__(self, n: int, shift: F64, total: F64, scatter: F64) -> None:
        self.n, self.shift, self.total, self.scatter = n, shift, total, scatter
        self._shared = False
        self._tame = bool(np.abs(shift).max(initial=0.0) < _TAME)

    @staticmethod
    def empty(dim: int) -> Moments:
        """Return the moments of no rows."""
        return Moments(0, np.zeros(dim), np.zeros(dim), np.zeros((dim, dim)))

    @property
    def dim(self) -> int:
        """Number of columns."""
        return int(self.shift.size)

    def host(self) -> Moments:
        """Return itself: it is in host memory."""
        return self

    def share(self) -> Moments:
        """Return the same moments for a second owner, O(1)."""
        twin = Moments(self.n, self.shift, self.total, self.scatter)
        self._shared = twin._shared = True
        return twin

    def _own(self) -> None:
        if self._shared:
            self.total, self.scatter = self.total.copy(), self.scatter.copy()
            self._shared = False

    def add(self, rows: F32 | F64, sign: int = 1) -> None:
        """Add C-ordered finite rows (sign 1) or take them away (sign -1); on an error nothing."""
        if rows.shape[0] == 0:
            return
        if self.n + sign * rows.shape[0] == 0:
            self._become(Moments.empty(self.shift.size))
            return
        if self.n == 0:
            shift = _first_shift(rows)
            self._become(Moments(0, shift, np.zeros_like(shift), np.zeros_like(self.scatter)))
        self._check_squares(rows)
        self._own()
        _backend.core.scatter_add(rows, self.shift, float(sign), self.total, self.scatter)
        self.n += sign * rows.shape[0]

    def _become(self, other: Moments) -> None:
        self.__dict__.update(other.__dict__)

    def _check_squares(self, rows: F32 | F64) -> None:
        """Refuse rows whose squares do not fit into float64, before anything is changed."""
        if self._tame and rows.dtype == np.float32:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.diagonal(self.scatter).copy()
            for start in range(0, rows.shape[0], _ROWS):
                z = rows[start : start + _ROWS] - self.shift
                squares += (z * z).sum(axis=0)
        if not np.isfinite(squares).all():  # and no other element is larger than these
            raise NotFiniteError(_TOO_LARGE)

    def remove(self, rows: F32 | F64) -> None:
        """Take rows away, or raise when they cannot have been among these; nothing changes then."""
        if rows.shape[0] > self.n:
            raise ArgumentError(
                f"X: expected at most the {self.n} rows that were added, got {rows.shape[0]}"
            )
        left = self.share()
        everything = rows.shape[0] == self.n
        left.n += everything  # so that the sums are taken down to nothing and can be looked at
        left.add(rows, -1)
        left.n -= everything
        if not left.fits_into(self):
            raise ArgumentError("X: expected rows that were added before, got rows that were not")
        self._become(Moments.empty(self.dim) if everything else left)

    def fits_into(self, before: Moments) -> bool:
        """Say whether these can be what is left of others after a removal."""
        slack = _FOREIGN * max(float(np.trace(before.scatter)), _TINY)
        if self.n == 0:
            return bool(np.abs(np.tril(self.scatter)).max(initial=0.0) <= slack)
        centred = self.n * self.covariance()
        if self.n == 1:
            return bool(np.abs(centred).max() <= slack)
        try:
            np.linalg.cholesky(centred + slack * np.eye(self.shift.size))
        except np.linalg.LinAlgError:
            return False
        return True

    def merge(self, other: Moments) -> None:
        """Add the rows that another set of moments stands on."""
        if other.n == 0:
            return
        if self.n == 0:
            self._become(other.share())
            return
        step = other.shift - self.shift  # every row of the other lies this much further out
        with np.errstate(over="ignore", invalid="ignore"):
            total = self.total + (other.total + other.n * step)
            cross = np.outer(other.total, step)
            moved = other.scatter + (cross + cross.T) + other.n * np.outer(step, step)
            scatter = self.scatter + moved
        if not np.isfinite(np.tril(scatter)).all():
            raise NotFiniteError("other: expected sums that fit into float64, got larger")
        self._become(Moments(self.n + other.n, self.shift, total, scatter))

    def mean(self) -> F64:
        """Mean of the rows; zeros when there are none."""
        return self.shift + self.total / max(self.n, 1)

    def covariance(self) -> F64:
        """Biased covariance of the rows, both triangles; zeros when there are none."""
        return _backend.core.scatter_covariance(self.total, self.scatter, float(max(self.n, 1)))

    def full_scatter(self) -> F64:
        """A copy of the scatter matrix with both triangles."""
        lower = np.tril(self.scatter)
        return lower + np.tril(lower, -1).T


def _first_shift(rows: F32 | F64) -> F64:
    """The mean of the first batch, written so that equal rows give exact zeros."""
    first = rows[0].astype(np.float64)
    total = np.zeros_like(first)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, rows.shape[0], _ROWS):
            total += (rows[start : start + _ROWS] - first).sum(axis=0)
        shift: F64 = first + total / rows.shape[0]
        fits = np.isfinite(shift @ shift)
    if not fits:
        raise NotFiniteError(_TOO_LARGE)
    return shift


@dataclass(frozen=True)
class Spectrum:
    """Leading eigenpairs of C, and how far they reach.

    `condition_number` is None when the rest of the spectrum was not computed.
    """

    basis: F64
    eigenvalues: F64
    discarded_energy: float
    condition_number: float | None
    warm: F64  # the basis with spare columns, for the next time
    residual: float  # of a warm one, as a share of the largest eigenvalue


class Factors:
    """Everything derived from one state of the moments; only ever completed, never changed."""

    def __init__(
        self,
        moments: Moments,
        *,
        covariance: str,
        ridge: float,
        energy: float,
        max_rank: int | None,
        warm: F64 | None = None,
    ) -> None:
        self._model, self._energy, self._max_rank = covariance, energy, max_rank
        self._warm = warm
        self._leading: Spectrum | None = None
        self._whole: Spectrum | None = None
        mean = moments.mean()
        self._cov = moments.covariance()
        trace = float(np.trace(self._cov))
        d = mean.size
        self.mean = _frozen(mean)
        self.degenerate = trace <= reference.ZERO_TRACE * float(mean @ mean)
        self.ridge_value = 1.0 if self.degenerate else ridge * trace / d
        self.whitening = _frozen(np.ascontiguousarray(self._whiten(trace)))
        self.whitening_transposed = _frozen(np.ascontiguousarray(self.whitening.T))
        # Squared Mahalanobis length below which a vector counts as the mean itself.
        largest = min(float((self.whitening**2).sum()), 1.0 / max(self.ridge_value, _TINY))
        self.at_mean = reference.ZERO_TRACE * float(mean @ mean) * largest

    def whiten(self, centred: F64) -> F64:
        """``(q - mean) W`` of centred queries; a row's bits do not depend on the others."""
        nonzero = "all" if self._model == "paper" else "upper"
        return _backend.core.rows_times(np.ascontiguousarray(centred), self.whitening, nonzero)

    def weigh(self, white: F64) -> F64:
        """``Sigma^-1 (q - mean)`` of whitened queries, likewise."""
        nonzero = "all" if self._model == "paper" else "lower"
        return _backend.core.rows_times(white, self.whitening_transposed, nonzero)

    def _whiten(self, trace: float) -> F64:
        """Matrix W with ``W W' = Sigma^-1``: upper triangular unless the model is "paper"."""
        d = self.mean.size
        if self.degenerate:
            return np.eye(d)
        if self._model == "full":
            if self.ridge_value <= d * np.finfo(np.float64).eps * (trace + self.ridge_value):
                self.whole()  # the ridge alone does not make Sigma invertible: look at it
            return _inverse_root(self._cov + self.ridge_value * np.eye(d))
        values, basis = self.whole().eigenvalues, self.whole().basis
        if self._model == "paper":
            return _paper(np.diag(self._cov) + self.ridge_value, basis, values + self.ridge_value)
        if values.size == d:
            return _inverse_root((basis * (values + self.ridge_value)) @ basis.T)
        rest = max(trace - float(values.sum()), 0.0)
        tail = self.ridge_value + rest / (d - values.size)
        return _inverse_root((basis * values) @ basis.T + tail * np.eye(d))

    def whole(self) -> Spectrum:
        """The spectrum by a full decomposition, O(d^3), once."""
        found = self._whole
        if found is None:
            found = self._whole = self._decompose()
        return found

    def leading(self) -> Spectrum:
        """The leading eigenpairs: refined from those of an earlier state where that is enough."""
        found = self._whole or self._leading
        if found is None:
            found = self._refine() if self._warm is not None else None
            if found is None:
                return self.whole()
            self._leading = found
        return found

    def _decompose(self) -> Spectrum:
        d = self.mean.size
        values, vectors = (np.zeros(d), np.eye(d)) if self.degenerate else _eigenpairs(self._cov)
        rank = 0
        if not self.degenerate:
            rank = reference.select_rank(values, self._energy, self._max_rank)
        rest = float(values[rank:].sum())
        spectrum = values + self.ridge_value
        if self._model == "low_rank" and rank < d:
            spectrum = np.full(d, self.ridge_value + rest / (d - rank))
            spectrum[:rank] += values[:rank]
        elif self._model == "paper" and not self.degenerate:
            diagonal = np.diag(self._cov) + self.ridge_value
            _require_invertible(diagonal)
            basis = vectors[:, :rank]
            dense = np.diag(diagonal) + (basis * (values[:rank] + self.ridge_value)) @ basis.T
            spectrum = np.asarray(np.linalg.eigvalsh(dense), np.float64)
        _require_invertible(spectrum)
        return Spectrum(
            basis=_frozen(vectors[:, :rank].copy()),
            eigenvalues=_frozen(values[:rank].copy()),
            discarded_energy=0.0 if self.degenerate else rest / float(values.sum()),
            condition_number=float(spectrum.max() / spectrum.min()),
            warm=vectors[:, : rank + _SPARE].copy(),
            residual=0.0,
        )

    def _refine(self) -> Spectrum | None:
        """Rayleigh-Ritz in the space of an earlier basis; None where the residual is too large."""
        trace, d = float(np.trace(self._cov)), self.mean.size
        if self.degenerate or self._warm is None or self._warm.shape[1] > d // _WARM_SHARE:
            return None
        space = self._warm
        for _ in range(_STEPS):
            space = np.asarray(np.linalg.qr(self._cov @ space)[0], np.float64)
        image = self._cov @ space
        small = space.T @ image
        ascending, turn = np.linalg.eigh((small + small.T) / 2.0)
        values, turn = ascending[::-1], turn[:, ::-1]
        missing = np.maximum(np.append(values, trace - values.sum()), 0.0)
        rank = reference.select_rank(missing, self._energy, self._max_rank)
        if rank > space.shape[1] - _SPARE // 2:
            return None
        vectors = _signed(space @ turn)
        off = self._cov @ vectors[:, :rank] - vectors[:, :rank] * values[:rank]
        residual = float(np.sqrt((off * off).sum(axis=0)).max(initial=0.0)) / float(values[0])
        if not residual <= _RESIDUAL:
            return None
        return Spectrum(
            basis=_frozen(vectors[:, :rank].copy()),
            eigenvalues=_frozen(values[:rank].copy()),
            discarded_energy=max(0.0, 1.0 - float(values[:rank].sum()) / trace),
            condition_number=None,
            warm=vectors,
            residual=residual,
        )


def _inverse_root(sigma: F64) -> F64:
    """Upper triangular W with ``W W' = sigma^-1``, from the Cholesky factor of sigma."""
    try:
        lower = np.asarray(np.linalg.cholesky(sigma), np.float64)
    except np.linalg.LinAlgError as error:
        raise ArgumentError(_SINGULAR) from error
    return _inverse_lower(lower).T


def _inverse_lower(lower: F64) -> F64:
    """Inverse of a lower triangular matrix, by halves: matrix products do the work."""
    d = lower.shape[0]
    if d <= _LEAF:
        return np.tril(np.linalg.inv(lower))
    half = d // 2
    first, last = _inverse_lower(lower[:half, :half]), _inverse_lower(lower[half:, half:])
    out = np.zeros((d, d))
    out[:half, :half], out[half:, half:] = first, last
    out[half:, :half] = -(last @ lower[half:, :half]) @ first
    return out


def _paper(diagonal: F64, basis: F64, core: F64) -> F64:
    """Root of the inverse of ``diag(diagonal) + V diag(core) V'``.

    With the thin SVD ``D^-1/2 V core^1/2 = A t B'`` it is
    ``D^-1/2 (I - A (1 - (1 + t^2)^-1/2) A')``: Equation 1 without digits that cancel.
    """
    root = 1.0 / np.sqrt(diagonal)
    a, t, _ = np.linalg.svd(root[:, None] * basis * np.sqrt(core), full_matrices=False)
    inner: F64 = np.eye(diagonal.size) - (a * (1.0 - 1.0 / np.sqrt(1.0 + t**2))) @ a.T
    return root[:, None] * inner


def _eigenpairs(cov: F64) -> tuple[F64, F64]:
    """Eigenvalues descending and >= 0, eigenvectors with their largest component positive."""
    ascending, vectors = np.linalg.eigh(cov)
    return np.maximum(ascending[::-1], 0.0), _signed(vectors[:, ::-1])


def _signed(vectors: F64) -> F64:
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
    return vectors * signs


def _require_invertible(spectrum: F64) -> None:
    if spectrum.min() <= spectrum.size * np.finfo(np.float64).eps * spectrum.max():
        raise ArgumentError(_SINGULAR)


def _frozen(array: F64) -> F64:
    array.flags.writeable = False
    return array


def row_dots(x: F64, y: F64) -> F64:
    """One dot product per row, each computed by itself."""
    out: F64 = np.matmul(x[:, None, :], y[:, :, None])[:, 0, 0]
    return out

"""The leading singular vectors of a stream of rows, for d or N too large for a d x d matrix.

The state is a basis V and singular values s with ``X' X = V diag(s)^2 V' + lost``, where `lost` is
positive semidefinite and its trace is known: what the truncations threw away.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from riemem import _backend
from riemem._arrays import F64, as_count, as_number, as_rows64
from riemem._device import is_device
from riemem._subspace_device import DeviceBasis, DeviceRows64, device_basis
from riemem.errors import DowndateError, NotFiniteError

__all__ = ["IncrementalSVD"]

_SPARE = 32  # directions held beyond the rank, so that a batch does not decide for the next ones
_EPS = float(np.finfo(np.float64).eps)
_EXACT = 1e-12  # share of the energy below which what was lost is rounding
_SLACK = 1e-9  # share by which a removed row may stick out of the subspace through rounding


class IncrementalSVD:
    """Low-rank singular value decomposition that follows a stream of rows (not centred).

    After every batch the rank is the smallest whose singular values hold `energy` of the energy
    of all rows seen (the sum of squares, each batch weighted by `forgetting` per later batch).

    Parameters
    ----------
    dim : int
        Number of columns d.
    energy : float
        Share of the energy that the basis must hold, in (0, 1].
    max_rank : int, optional
        Upper limit of the rank; the energy may then be missed, which `discarded_energy` says.
    forgetting : float
        Factor in (0, 1] on everything seen before, per batch; 1 forgets nothing.

    Raises
    ------
    ArgumentError, DTypeError
        An option out of its range.

    Notes
    -----
    Brand's update (2006): the part of a batch outside the subspace is orthogonalised twice, the
    dense core is decomposed (one-sided Jacobi when small, LAPACK above), and the new basis is
    brought back to orthonormality. A batch of b rows costs O(d (r + b)^2); with b < d nothing of
    size d x d is ever made. Up to 32 directions beyond the rank are held, so small batches lose
    little. With `lost` the energy outside the held directions, the true singular values t obey
    ``s_i^2 <= t_i^2 <= s_i^2 + lost`` when nothing is forgotten.

    Examples
    --------
    >>> svd = IncrementalSVD(3).partial_fit([[3.0, 0.0, 0.0]]).partial_fit([[0.0, 4.0, 0.0]])
    >>> svd.rank, svd.singular_values.round(12).tolist(), svd.n_seen
    (2, [4.0, 3.0], 2)
    """

    def __init__(
        self,
        dim: int,
        *,
        energy: float = 0.95,
        max_rank: int | None = None,
        forgetting: float = 1.0,
    ) -> None:
        self._dim = as_count(dim, "dim", minimum=1)
        self._energy = as_number(energy, "energy", low=0.0, high=1.0, open_low=True)
        self._max_rank = None if max_rank is None else as_count(max_rank, "max_rank", minimum=1)
        self._forgetting = as_number(forgetting, "forgetting", low=0.0, high=1.0, open_low=True)
        self._values: F64 = np.zeros(0)  # all held directions, descending
        self._vectors: F64 = np.zeros((self._dim, 0))
        self._total = 0.0  # energy of all rows, weighted
        self._there: DeviceBasis | None = None  # in the place of _vectors once rows came from a GPU
        self._copied: F64 | None = None  # of it, for whoever reads it
        self._placed: DeviceBasis | None = None  # the leading ones, for `transform` on a device
        self._lost = 0.0  # of which outside the held directions
        self._rank = 0
        self._seen = 0
        self._forgot = False

    def partial_fit(self, X: object) -> IncrementalSVD:
        """Take in a batch of rows; returns itself.

        Parameters
        ----------
        X : array_like, shape (N, d) or (d,)
            Any real dtype and strides, any number of rows. Rows of torch or cupy on a GPU (float32,
            bfloat16, float64) take the basis there, where it stays; the call waits for the small
            core, from which the rank follows.

        Raises
        ------
        ShapeError, DTypeError, NotFiniteError
            The rows do not fit or are not finite; nothing is changed then.
        DeviceError
            The rows are not where the basis is.

        Examples
        --------
        >>> IncrementalSVD(2).partial_fit([[0.0, 2.0]]).basis.tolist()
        [[0.0], [1.0]]
        """
        if is_device(X) or self._there is not None:
            return self._fit_there(X)
        rows = as_rows64(X, "X", dim=self._dim, one_row=True)
        if rows.shape[0] == 0:
            return self
        old = self._forgetting
        total = old * old * self._total + _energy_of(rows)
        _require_finite_energy(total)
        core, space = _enlarge(self._vectors, old * self._values, rows)
        values, turn = _right_svd(core)
        self._took(rows.shape[0], total)
        self._keep(values, space @ turn)
        return self

    def _took(self, count: int, total: float) -> None:
        """Note that rows were taken in; `total` is the energy of all, the older ones weighted."""
        old = self._forgetting
        self._forgot = self._forgot or (old < 1.0 and self._seen > 0)
        self._total, self._lost = total, old * old * self._lost
        self._seen += count

    def _fit_there(self, X: object) -> IncrementalSVD:
        rows, there = device_basis(X, self._vectors, self._there)
        if rows.count == 0:
            return self
        old, energy = self._forgetting, rows.energy()
        total = old * old * self._total + energy
        _require_finite_energy(total)
        core, space = there.enlarge(old * self._values, rows, energy, _right_svd)
        values, turn = _right_svd(core)
        rank, count = self._cut(values, total)
        fresh = space.turned(turn[:, :count])
        self._took(rows.count, total)
        self._hold(values, rank, count)
        self._there = fresh
        return self

    def downdate(self, X: object) -> IncrementalSVD:
        """Take away rows that were taken in before; returns itself.

        Only while the state is exact: with nothing forgotten and nothing of the energy lost to
        truncation, ``V diag(s)^2 V' - X' X`` is again of this form.

        Raises
        ------
        DowndateError
            The state is truncated, or the rows were not among those taken in; the message names
            the exact alternative. Nothing is changed then.
        ShapeError, DTypeError, NotFiniteError
            As :meth:`partial_fit`.

        Examples
        --------
        >>> svd = IncrementalSVD(2).partial_fit([[3.0, 0.0], [0.0, 4.0]]).downdate([[0.0, 4.0]])
        >>> svd.singular_values.round(12).tolist()
        [3.0]
        """
        taken = there = None
        if is_device(X) or self._there is not None:
            taken, there = device_basis(X, self._vectors, self._there)
            count = taken.count
        else:
            rows = as_rows64(X, "X", dim=self._dim, one_row=True)
            count = rows.shape[0]
        if count == 0:
            return self
        if self._forgot:
            raise DowndateError(
                "X: expected a decomposition that forgets nothing, got one with forgetting "
                f"{self._forgetting:g}; riemem.FisherMetric.downdate takes rows away exactly"
            )
        if self._lost > _EXACT * self._total:
            raise DowndateError(
                "X: expected a decomposition without truncation, got one that lost "
                f"{self._lost / self._total:.2g} of the energy; "
                "riemem.FisherMetric.downdate takes rows away exactly"
            )
        if taken is not None and there is not None:
            energy, inside = taken.energy(), there.inside(taken)
        else:
            energy = _energy_of(rows)
            inside = rows @ self._vectors
        outside = energy - float((inside * inside).sum())
        core = None
        if count <= self._seen and outside <= _SLACK * max(energy, self._total):
            core = _backend.core.downdate_core(self._values, inside, _SLACK)
        if core is None:
            raise DowndateError(
                "X: expected rows that were taken in before, got rows that were not; "
                "riemem.FisherMetric.downdate checks and takes rows away exactly"
            )
        values, turn = _right_svd(core)
        seen = self._seen - count
        values = values if seen else values[:0]
        total = max(self._total - energy, 0.0) if seen else 0.0
        if there is not None:
            rank, held = self._cut(values, total)
            fresh = there.turned(turn[:, :held])
            self._seen, self._total, self._there = seen, total, fresh
            self._hold(values, rank, held)
            return self
        self._seen, self._total = seen, total
        self._keep(values, self._vectors @ turn)
        return self

    def _cut(self, values: F64, total: float) -> tuple[int, int]:
        """The rank by energy, and how many directions are held: not too far beyond it."""
        squares = values * values
        noise = _EPS * self._dim * values[0] if values.size else 0.0
        real = int((values > noise).sum())
        held = np.cumsum(squares[:real])
        wanted = self._energy * total * (1.0 - _EXACT)
        rank = min(int(np.searchsorted(held, wanted)) + 1, real)
        if self._max_rank is not None:
            rank = min(rank, self._max_rank)
        return rank, min(real, rank + _SPARE)

    def _hold(self, values: F64, rank: int, count: int) -> None:
        squares = values * values
        self._rank = rank
        self._lost += float(squares[count:].sum())
        self._values = _frozen(values[:count].copy())
        self._copied = self._placed = None

    def _keep(self, values: F64, vectors: F64) -> None:
        """Choose the rank by energy, and drop what lies too far beyond it."""
        rank, count = self._cut(values, self._total)
        self._hold(values, rank, count)
        basis = vectors[:, :count]
        # One Newton step towards orthonormality: rounding does not pile up over the batches.
        basis = basis @ (1.5 * np.eye(count) - 0.5 * (basis.T @ basis))
        largest = np.abs(basis).argmax(axis=0) if count else np.zeros(0, np.int64)
        signs = np.where(basis[largest, np.arange(count)] < 0, -1.0, 1.0)
        self._vectors = _frozen(np.ascontiguousarray(basis * signs))

    @property
    def dim(self) -> int:
        """Number of columns d."""
        return self._dim

    @property
    def rank(self) -> int:
        """Number of leading directions that hold the energy; 0 when all rows were zero."""
        return self._rank

    @property
    def basis(self) -> F64:
        """Leading right singular vectors as columns, shape (d, rank); largest entry positive.

        Of a decomposition on a GPU it is copied to host memory, once for each state.
        """
        if self._there is not None and self._copied is None:
            self._copied = _frozen(self._there.get())
        vectors = self._vectors if self._copied is None else self._copied
        return vectors[:, : self._rank]

    @property
    def singular_values(self) -> F64:
        """Leading singular values, descending, shape (rank,)."""
        return self._values[: self._rank]

    @property
    def n_seen(self) -> int:
        """Number of rows taken in and not taken away."""
        return self._seen

    @property
    def total_energy(self) -> float:
        """Sum of squares of all rows, weighted by what was forgotten."""
        return self._total

    @property
    def lost_energy(self) -> float:
        """The part of `total_energy` that truncation has thrown away for good."""
        return self._lost

    @property
    def discarded_energy(self) -> float:
        """Share of the energy outside `basis`, in [0, 1]."""
        if self._total == 0.0:
            return 0.0
        inside = float((self.singular_values**2).sum())
        return min(max(1.0 - inside / self._total, 0.0), 1.0)

    def transform(self, X: object) -> Any:
        """Coordinates of rows in the basis, shape (N, rank), as float64.

        Rows on a GPU give an array of their library there; the first after a change waits.

        Examples
        --------
        >>> IncrementalSVD(2).partial_fit([[0.0, 2.0]]).transform([5.0, 7.0]).tolist()
        [[7.0]]
        """
        if is_device(X):
            given = DeviceRows64(X, self._dim)
            placed = self._placed
            if placed is None or (placed.library, placed.place) != (given.library, given.place):
                placed = self._placed = DeviceBasis.put(self.basis, given.library, given.place)
            return placed.coordinates(given)
        out: F64 = as_rows64(X, "X", dim=self._dim, one_row=True) @ self.basis
        return out

    def __repr__(self) -> str:
        return f"IncrementalSVD(dim={self._dim}, rank={self._rank}, n_seen={self._seen})"


def _require_finite_energy(total: float) -> None:
    if not np.isfinite(total):
        raise NotFiniteError("X: expected sums of squares that fit into float64, got larger")


def _energy_of(rows: F64) -> float:
    with np.errstate(over="ignore"):
        energy = float((rows * rows).sum())
    if not np.isfinite(energy):
        raise NotFiniteError("X: expected values whose squares fit into float64, got larger")
    return energy


def _enlarge(vectors: F64, values: F64, rows: F64) -> tuple[F64, F64]:
    """Core and space with ``[diag(values) vectors'; rows] = Z core space'``, Z orthonormal."""
    inside = rows @ vectors
    outside = rows - inside @ vectors.T
    again = outside @ vectors  # what the first pass left behind through rounding
    inside, outside = inside + again, outside - again @ vectors.T
    q, t = np.linalg.qr(outside.T)
    values_t, turn = _right_svd(np.ascontiguousarray(t.T))
    # Directions of rounding alone are not orthogonal to the subspace, and carry nothing.
    scale = float(np.sqrt((rows * rows).sum()))
    new = (q @ turn)[:, values_t > 8.0 * _EPS * max(rows.shape) * scale]
    new = new[:, : rows.shape[1] - values.size]
    new = new - vectors @ (vectors.T @ new)
    new = np.linalg.qr(new)[0]
    r, b = values.size, new.shape[1]
    core = np.zeros((r + rows.shape[0], r + b))
    core[:r, :r] = np.diag(values)
    core[r:, :r], core[r:, r:] = inside, rows @ new
    return core, np.hstack([vectors, new])


def _right_svd(core: F64) -> tuple[F64, F64]:
    """Singular values (k,) and right singular vectors as columns (n, k)."""
    if core.shape[0] > 2 * core.shape[1]:
        core = np.asarray(np.linalg.qr(core, mode="r"), np.float64)
    if max(core.shape) <= _backend.core.small_svd_limit:
        _, values, vt = _backend.core.small_svd(np.ascontiguousarray(core))
    else:
        _, values, vt = np.linalg.svd(core, full_matrices=False)
    return values, vt.T


def _frozen(array: F64) -> F64:
    array.flags.writeable = False
    return array

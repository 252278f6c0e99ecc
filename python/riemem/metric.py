"""The metric learnt from the memories: a Gaussian kept exactly alive, and its inverse covariance.

Three sums (count, shifted sum, shifted scatter) in float64 hold everything. Rows may be added and
taken away in any order and any mix; the factorisation is redone at the first use after a change,
and the eigenvectors only when somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from riemem import reference
from riemem._arrays import (
    F32,
    F64,
    as_choice,
    as_count,
    as_number,
    as_rows,
    as_rows64,
    require_finite,
    to_numpy,
)
from riemem._device import View, is_device
from riemem._gaussian import (
    COVARIANCES,
    Factors,
    Moments,
    Spectrum,
    row_dots,
)
from riemem._gaussian_device import DeviceMoments, device_moments, moment_rows
from riemem.errors import ArgumentError, DTypeError, ShapeError

__all__ = ["COVARIANCES", "FisherMetric"]


class FisherMetric:
    """Mahalanobis metric of a set of rows: ``d^2(x, y) = (x - y)' Sigma^-1 (x - y)``.

    With C the biased covariance, ``(l, V)`` its eigenpairs, ``ridge_value = ridge * trace(C) / d``:

    - ``"full"``: ``Sigma = C + ridge_value I``. The whole spectrum is used, whatever `rank` says.
    - ``"low_rank"``: ``V l V' + (ridge_value + mean residual variance) I``.
    - ``"paper"``: ``diag(var) + ridge_value I + V diag(l + ridge_value) V'``, inverted by Woodbury.

    Normally made by :meth:`fit`; the constructor makes an empty metric to be filled by
    :meth:`update`. Rows are used as they are: nothing is normalised.

    Parameters
    ----------
    dim : int
        Number of columns d.
    covariance : {"full", "low_rank", "paper"}
        The model of Sigma.
    ridge : float
        Multiplier of the mean variance, >= 0.
    energy : float
        Share of the variance that the leading eigenvectors must hold, in (0, 1].
    max_rank : int, optional
        Upper limit of the rank.
    min_samples : int
        Below this many rows, :func:`riemem.search` uses the plain cosine.

    Raises
    ------
    ArgumentError
        An option out of its range.

    Notes
    -----
    When all rows are equal (or there are none) there is no geometry to learn: ``degenerate`` is
    true and Sigma is the identity. Source: CoreMem (arXiv 2606.18406), section 3.2. Updating b rows
    costs O(b d^2), the first use afterwards O(d^3): a Cholesky factor, or for "low_rank" and
    "paper" an eigendecomposition. Reading from several threads is safe; changing a metric while
    others read it is not.

    Examples
    --------
    >>> metric = FisherMetric.fit([[2.0, 1.0], [4.0, 3.0], [6.0, 5.0]], ridge=0.5)
    >>> metric.mean.tolist(), metric.rank, metric.n_samples
    ([4.0, 3.0], 1, 3)
    """

    def __init__(
        self,
        dim: int,
        *,
        covariance: str = "full",
        ridge: float = 10.0,
        energy: float = 0.95,
        max_rank: int | None = None,
        min_samples: int = 32,
    ) -> None:
        self._dim = as_count(dim, "dim", minimum=1)
        self._covariance = as_choice(covariance, "covariance", COVARIANCES)
        self._ridge = as_number(ridge, "ridge", low=0.0)
        self._energy = as_number(energy, "energy", low=0.0, high=1.0, open_low=True)
        self._max_rank = None if max_rank is None else as_count(max_rank, "max_rank", minimum=1)
        self._min_samples = as_count(min_samples, "min_samples")
        self._moments: Moments | DeviceMoments = Moments.empty(self._dim)
        self._factors: Factors | None = None
        self._warm: F64 | None = None  # eigenvectors of an earlier state

    @classmethod
    def fit(
        cls,
        X: object,
        *,
        covariance: str = "full",
        ridge: float = 10.0,
        energy: float = 0.95,
        max_rank: int | None = None,
        min_samples: int = 32,
    ) -> FisherMetric:
        """Learn the metric of the rows of `X`, in float64.

        Parameters
        ----------
        X : array_like, shape (N, d)
            Any real dtype and strides; N >= 1. On a GPU as for :meth:`update`; `fit` waits.
        covariance, ridge, energy, max_rank, min_samples
            See :class:`FisherMetric`.

        Raises
        ------
        ShapeError
            Not two-dimensional, or no rows.
        DTypeError, NotFiniteError
            Not numbers, or not finite.
        ArgumentError
            An option out of range, or ``ridge=0`` with a singular covariance.

        Examples
        --------
        >>> FisherMetric.fit([[1.0, 0.0], [-1.0, 0.0]], ridge=1.0).ridge_value
        0.5
        """
        there = is_device(X)
        rows = moment_rows(X, None)[1] if there else _as_moment_rows(X)
        given = rows.owner if isinstance(rows, View) else rows  # a DLPack capsule is read once
        if rows.shape[0] == 0:
            raise ShapeError(f"X: expected at least one row, got shape {rows.shape}")
        metric = cls(
            rows.shape[1],
            covariance=covariance,
            ridge=ridge,
            energy=energy,
            max_rank=max_rank,
            min_samples=min_samples,
        )
        metric.update(given)
        metric._current()
        return metric

    # -- the moments -------------------------------------------------------------------------

    def update(self, X: object) -> FisherMetric:
        """Add rows, exactly; returns the metric itself.

        Rows on a GPU (torch or cupy; float32, bfloat16 or float64) take the sums there: adding is
        queued on the library's current stream, copies nothing and waits for nothing, and the sums
        are the same bits. A batch with NaN or an infinity is left out, which the next question
        that reads the sums says by a NotFiniteError.

        Raises
        ------
        ShapeError, DTypeError, NotFiniteError
            As :meth:`fit`; nothing is added then.
        DeviceError
            The rows are not where the sums are.

        Examples
        --------
        >>> FisherMetric(2).update([[1.0, 2.0]]).update([[3.0, 4.0]]).mean.tolist()
        [2.0, 3.0]
        """
        placed = self._on_device(X)
        if placed is not None:
            placed[0].add(placed[1])
        else:
            self._moments.add(_as_moment_rows(X, self._dim))
        self._changed()
        return self

    def downdate(self, X: object) -> FisherMetric:
        """Take away rows that were added before, exactly; returns the metric itself.

        Raises
        ------
        ArgumentError
            More rows than there are, or rows that cannot have been added, because without them
            the scatter would not be positive semidefinite. The metric is unchanged then. For rows
            on a GPU the next question that reads the sums, or the next change, says so.

        Notes
        -----
        O(b d^2) and an O(d^3 / 3) check.

        Examples
        --------
        >>> FisherMetric.fit([[1.0, 2.0], [3.0, 4.0]]).downdate([[1.0, 2.0]]).mean.tolist()
        [3.0, 4.0]
        """
        placed = self._on_device(X)
        if placed is not None:
            placed[0].remove(placed[1])
        else:
            self._moments.remove(_as_moment_rows(X, self._dim))
        self._changed()
        return self

    def merge(self, other: FisherMetric) -> FisherMetric:
        """Add the rows that another metric stands on, from its sums alone; returns itself.

        Parameters
        ----------
        other : FisherMetric
            Of the same dimension; its options do not matter and it is not changed.

        Raises
        ------
        DTypeError, ShapeError
            Not a metric, or one of another dimension.

        Notes
        -----
        O(d^2): metrics of parts of the data, learnt apart, give the metric of all of it.

        Examples
        --------
        >>> FisherMetric.fit([[1.0], [2.0]]).merge(FisherMetric.fit([[6.0]])).mean.tolist()
        [3.0]
        """
        if not isinstance(other, FisherMetric):
            raise DTypeError(f"other: expected a FisherMetric, got {type(other).__name__}")
        if other._dim != self._dim:
            raise ShapeError(f"other: expected dimension {self._dim}, got {other._dim}")
        self._moments.merge(other._moments.host())
        self._changed()
        return self

    def refresh(self) -> FisherMetric:
        """Factorise now, eigenvectors included, instead of at the next use; returns itself.

        Examples
        --------
        >>> FisherMetric(2).update([[1.0, 2.0], [3.0, 5.0]]).refresh().rank
        1
        """
        self._spectrum()
        return self

    def _remove_known(self, rows: F32 | F64) -> None:
        """Downdate without the check, for a caller that knows that the rows were added."""
        self._moments.add(rows if rows.flags.c_contiguous else rows.copy(), -1)
        self._changed()

    def _emptied(self) -> FisherMetric:
        """Return a metric with the same options and no rows."""
        twin = self.copy()
        twin._moments = Moments.empty(self._dim)
        twin._changed()
        return twin

    def _on_device(self, X: object) -> tuple[DeviceMoments, Any] | None:
        """The sums where rows on a device take them, and the rows; None in host memory."""
        if not is_device(X) and isinstance(self._moments, Moments):
            return None
        self._moments, rows = device_moments(self._moments, X)
        return self._moments, rows

    def _changed(self) -> None:
        self._factors = None

    # -- what was learnt ---------------------------------------------------------------------

    @property
    def dim(self) -> int:
        """Number of columns d."""
        return self._dim

    @property
    def covariance(self) -> str:
        """The model of Sigma: "full", "low_rank" or "paper"."""
        return self._covariance

    @property
    def ridge(self) -> float:
        """The ridge as a multiple of the mean variance."""
        return self._ridge

    @property
    def energy(self) -> float:
        """The share of the variance asked of the leading eigenvectors."""
        return self._energy

    @property
    def max_rank(self) -> int | None:
        """The upper limit of the rank, or None."""
        return self._max_rank

    @property
    def min_samples(self) -> int:
        """Below this many rows, search uses the plain cosine."""
        return self._min_samples

    @property
    def n_samples(self) -> int:
        """Number of rows the metric stands on."""
        return self._moments.n

    @property
    def mean(self) -> F64:
        """Mean of the rows, shape (d,)."""
        return self._current().mean

    @property
    def basis(self) -> F64:
        """Leading eigenvectors as columns, shape (d, rank); largest component positive."""
        return self._spectrum().basis

    @property
    def eigenvalues(self) -> F64:
        """Leading eigenvalues of C, descending, shape (rank,)."""
        return self._spectrum().eigenvalues

    @property
    def rank(self) -> int:
        """Number of leading eigenvectors that hold the energy (0 when degenerate)."""
        return self._spectrum().eigenvalues.size

    @property
    def ridge_value(self) -> float:
        """The absolute ridge, ``ridge * trace(C) / d`` (1 when degenerate)."""
        return self._current().ridge_value

    @property
    def discarded_energy(self) -> float:
        """Share of the variance outside the leading eigenvectors."""
        return self._spectrum().discarded_energy

    @property
    def condition_number(self) -> float:
        """Largest over smallest eigenvalue of the Sigma in use."""
        return self._current().whole().condition_number or 1.0

    @property
    def degenerate(self) -> bool:
        """True when the rows do not vary, so that Sigma is the identity."""
        return self._current().degenerate

    def covariance_matrix(self) -> F64:
        """Biased sample covariance C, shape (d, d) (zeros when there are no rows)."""
        return self._moments.covariance()

    def sigma(self) -> F64:
        """Dense Sigma of the model, shape (d, d); for looking at, no search needs it."""
        state = self._current()
        if state.degenerate:
            return np.eye(self._dim)
        return reference.sigma(
            self.covariance_matrix(),
            self._covariance,
            ridge_value=state.ridge_value,
            rank=state.whole().eigenvalues.size if self._covariance != "full" else 0,
        )

    # -- using it ----------------------------------------------------------------------------

    def query_weights(self, Q: object) -> tuple[F64, F64]:
        """Fold the whole metric into one vector per query: ``w = Sigma^-1 (q - mean)``.

        Then ``(q - mean)' Sigma^-1 (h - mean) = w . h + offset`` for every row h.

        Parameters
        ----------
        Q : array_like, shape (B, d) or (d,)

        Returns
        -------
        W : ndarray of float64, shape (B, d)
        offsets : ndarray of float64, shape (B,)
            ``-W . mean``.

        Notes
        -----
        O(B d^2), no matter how many rows are searched. A query's weights do not depend on the
        other queries of the batch.

        Examples
        --------
        >>> metric = FisherMetric.fit([[1.0, 0.0], [-1.0, 0.0]], ridge=6.0)
        >>> W, offsets = metric.query_weights([[3.0, 0.0]])
        >>> W.tolist()
        [[0.75, 0.0]]
        """
        queries = as_rows64(Q, "Q", dim=self._dim, letter="B", one_row=True)
        w, offsets, _ = self._weights(queries)
        return w, offsets

    def _weights(self, queries: F64) -> tuple[F64, F64, F64]:
        """Weights, offsets and squared Mahalanobis lengths of float64 queries."""
        state = self._current()
        centred = queries - state.mean
        white = state.whiten(centred)
        w = state.weigh(white)
        offsets = -np.matmul(w[:, None, :], state.mean[:, None])[:, 0, 0]
        return w, offsets, row_dots(white, white)

    def whitening(self) -> F64:
        """Matrix L with ``L L' = Sigma^-1``, shape (d, d), so that whitened rows are isotropic.

        Upper triangular for "full" and "low_rank".
        """
        return self._current().whitening

    def whiten(self, X: object) -> F64:
        """Return ``(X - mean) @ whitening()``: its rows' squared lengths are Mahalanobis's.

        Examples
        --------
        >>> metric = FisherMetric.fit([[1.0, 0.0], [-1.0, 0.0]], ridge=1.0)
        >>> (metric.whiten([[3.0, 0.0]]) ** 2).sum().round(12).item()
        6.0
        """
        rows = as_rows64(X, "X", dim=self._dim, one_row=True)
        state = self._current()
        out: F64 = (rows - state.mean) @ state.whitening
        return out

    def mahalanobis(self, X: object, Y: object = None) -> F64:
        """Row by row distance of X to Y, or to the mean; never negative, exactly 0 for equal rows.

        Parameters
        ----------
        X : array_like, shape (N, d) or (d,)
        Y : array_like, shape (N, d), (1, d) or (d,), optional

        Returns
        -------
        ndarray of float64, shape (N,)
            Distances, not squared.

        Examples
        --------
        >>> FisherMetric(2).mahalanobis([[3.0, 4.0]]).tolist()
        [5.0]
        """
        rows = as_rows64(X, "X", dim=self._dim, one_row=True)
        state = self._current()
        others = state.mean[None]
        if Y is not None:
            others = as_rows64(Y, "Y", dim=self._dim, one_row=True)
        if others.shape[0] not in (1, rows.shape[0]):
            raise ShapeError(
                f"Y: expected shape ({rows.shape[0]}, {self._dim}) or (1, {self._dim}), "
                f"got {others.shape}"
            )
        # The difference is whitened, not the rows: no digits cancel and no square is negative.
        out: F64 = np.linalg.norm((rows - others) @ state.whitening, axis=1)
        return out

    def distance(self, X: object, Y: object) -> F64:
        """Distance of every row of X to every row of Y, shape (N, M), O(N M d^2).

        Examples
        --------
        >>> FisherMetric(1).distance([[0.0], [3.0]], [[1.0], [3.0]]).tolist()
        [[1.0, 3.0], [2.0, 0.0]]
        """
        rows = as_rows64(X, "X", dim=self._dim, one_row=True)
        others = as_rows64(Y, "Y", dim=self._dim, letter="M", one_row=True)
        out = np.empty((rows.shape[0], others.shape[0]))
        for column, other in enumerate(others):
            out[:, column] = self.mahalanobis(rows, other)
        return out

    # -- copies ------------------------------------------------------------------------------

    def copy(self) -> FisherMetric:
        """Return an independent metric; the arrays are shared until one of the two changes."""
        twin = object.__new__(FisherMetric)
        twin.__dict__.update(self.__dict__)
        twin._moments = self._moments.share()
        return twin

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to rebuild the metric: options, count and the three sums.

        Examples
        --------
        >>> sorted(FisherMetric(2).to_dict())[:4]
        ['covariance', 'dim', 'energy', 'max_rank']
        """
        return {
            "dim": self._dim,
            "covariance": self._covariance,
            "ridge": self._ridge,
            "energy": self._energy,
            "max_rank": self._max_rank,
            "min_samples": self._min_samples,
            "n_samples": self._moments.n,
            "shift": self._moments.shift.copy(),
            "sum": self._moments.total.copy(),
            "scatter": self._moments.full_scatter(),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> FisherMetric:
        """Rebuild a metric from :meth:`to_dict`, to the bit.

        Raises
        ------
        ArgumentError
            A key is missing.
        ShapeError, DTypeError, NotFiniteError
            An array does not belong to the dimension, or is not finite.

        Examples
        --------
        >>> FisherMetric.from_dict(FisherMetric(2).update([1.0, 2.0]).to_dict()).mean.tolist()
        [1.0, 2.0]
        """
        names = ("covariance", "ridge", "energy", "max_rank", "min_samples")
        missing = {"dim", "n_samples", "shift", "sum", "scatter", *names} - set(state)
        if missing:
            raise ArgumentError(f"state: expected the keys of to_dict(), missing {sorted(missing)}")
        metric = cls(state["dim"], **{name: state[name] for name in names})
        d = metric._dim
        count = as_count(state["n_samples"], "state['n_samples']")
        arrays = []
        for name in ("shift", "sum", "scatter"):
            array = as_rows64(state[name], f"state[{name!r}]", dim=d, letter="1", one_row=True)
            if array.shape[0] != (d if name == "scatter" else 1):
                raise ShapeError(f"state[{name!r}]: expected dimension {d}, got {array.shape}")
            arrays.append(array.copy())
        metric._moments = Moments(count, arrays[0][0], arrays[1][0], arrays[2])
        return metric

    def __repr__(self) -> str:
        return (
            f"FisherMetric(dim={self._dim}, covariance={self._covariance!r}, "
            f"ridge={self._ridge:g}, n_samples={self.n_samples})"
        )

    def _current(self) -> Factors:
        factors = self._factors
        if factors is None:
            factors = Factors(
                self._moments.host(),
                covariance=self._covariance,
                ridge=self._ridge,
                energy=self._energy,
                max_rank=self._max_rank,
                warm=self._warm,
            )
            self._factors = factors
        return factors

    def _spectrum(self) -> Spectrum:
        found = self._current().leading()
        self._warm = found.warm
        return found


def _as_moment_rows(X: object, dim: int | None = None) -> F32 | F64:
    """Finite rows in C order: float32 as they are, everything else as float64."""
    one_row = dim is not None
    if to_numpy(X, "X").dtype != np.float32:
        return as_rows64(X, "X", dim=dim, one_row=one_row)
    rows = np.ascontiguousarray(as_rows(X, "X", dim=dim, one_row=one_row))
    require_finite(rows, "X")
    return rows

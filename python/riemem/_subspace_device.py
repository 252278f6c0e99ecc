"""What of :class:`riemem.IncrementalSVD` grows with d, on a GPU: the basis and its turns.

The small dense core is decomposed by the processor, because the rank follows from its singular
values; so a batch is waited for, and no more than (r + b)^2 numbers come back. Products with the
basis and its step towards orthonormality are our kernels, the QR factors those of torch or cupy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from riemem._arrays import F64, raise_if_bad_row
from riemem._backend import cuda_module
from riemem._device import (
    KINDS,
    Home,
    Library,
    is_device,
    rows_span,
    span,
)
from riemem._gaussian_device import LIMIT, moment_rows
from riemem.errors import DeviceError

__all__ = ["DeviceBasis", "DeviceRows64", "device_basis"]

_EPS = float(np.finfo(np.float64).eps)

RightSvd = Callable[[F64], tuple[F64, F64]]


class DeviceRows64:
    """Rows of a caller as float64 on their device, and the sum of their squares.

    Raises
    ------
    NotFiniteError
        A row with NaN, an infinity, or values whose squares do not fit; reading that waits.
    """

    def __init__(self, X: object, dim: int) -> None:
        self.library, view = moment_rows(X, dim)
        self.place, self.count = view.device, view.shape[0]
        self._view, self._dim = view, dim
        with self.library.working(self.place):
            wide = self.library.cast(view.owner, "float64")
            self.array = self.library.shaped(wide, view.shape)

    def energy(self) -> float:
        """The sum of squares."""
        library = self.library
        with library.working(self.place) as stream:
            norms = library.empty((self.count,), "float64", self.place)
            bad = library.empty((1,), "int64", self.place)
            cuda_module().row_norms(
                rows_span(self._view), KINDS[self._view.kind], self.count, self._dim,
                self._view.strides[0], span(library, norms), span(library, bad), stream, LIMIT,
            )  # fmt: skip
            lengths, row = library.get(norms), int(library.get(bad)[0])
        raise_if_bad_row(row if row < self.count else -1, "X")
        return float(lengths @ lengths)


class DeviceBasis:
    """Orthonormal columns (d, r) on a device; a step makes a new one and changes nothing."""

    def __init__(self, home: Home, dim: int, count: int, array: Any) -> None:
        self.home, self.library, self.place = home, home.library, home.device
        self.dim, self.count, self.array = dim, count, array

    @staticmethod
    def put(vectors: F64, library: Library, place: int) -> DeviceBasis:
        """Copy a basis to a device."""
        home = Home(library, place)
        with home.working():
            array = library.put(vectors, place)
        return DeviceBasis(home, vectors.shape[0], vectors.shape[1], array)

    def get(self) -> F64:
        """Copy to host memory; waits."""
        with self.home.working():
            found: F64 = self.library.get(self.array)
        return found

    def _times(self, left: Any, right: Any, shape: tuple[int, int, int], stream: int) -> Any:
        """The product of (l, m) and (m, n) arrays; `shape` is (l, m, n)."""
        lines, depth, columns = shape
        out = self.library.empty((lines, columns), "float64", self.place)
        if lines and columns:
            cuda_module().svd_rotate(
                span(self.library, left), lines, depth, span(self.library, right), columns,
                span(self.library, out), stream,
            )  # fmt: skip
        return out

    def coordinates(self, rows: DeviceRows64) -> Any:
        """Rows in the basis, shape (N, r), on the device."""
        with self.home.working() as stream:
            return self._times(rows.array, self.array, (rows.count, self.dim, self.count), stream)

    def inside(self, rows: DeviceRows64) -> F64:
        """The same in host memory; waits."""
        with self.home.working():
            found: F64 = self.library.get(self.coordinates(rows))
        return found

    def enlarge(
        self, values: F64, rows: DeviceRows64, energy: float, right_svd: RightSvd
    ) -> tuple[F64, DeviceBasis]:
        """Core and space, as ``_enlarge`` of :mod:`riemem.subspace` makes them."""
        library, d, r, b = self.library, self.dim, self.count, rows.count
        with self.home.working() as stream:
            outside, inside = rows.array, np.zeros((b, r))
            flat = library.turned(self.array) if r else None
            for _ in range(2 if r else 0):  # the second takes what rounding left behind
                part = self._times(outside, self.array, (b, d, r), stream)
                outside = library.minus(outside, self._times(part, flat, (b, r, d), stream))
                inside = inside + library.get(part)
            q, t = library.qr(library.turned(outside))
            lengths, turn = right_svd(np.ascontiguousarray(library.get(t).T))
            # Directions of rounding alone are not orthogonal to the subspace, and carry nothing.
            real = lengths > 8.0 * _EPS * max(b, d) * np.sqrt(energy)
            turn = turn[:, real][:, : d - r]
            count = turn.shape[1]
            space, along = self.array, np.zeros((b, 0))
            if count:
                own = self._times(
                    q, library.put(turn, self.place), (d, turn.shape[0], count), stream
                )
                if r:
                    left = self._times(flat, own, (r, d, count), stream)
                    own = library.minus(own, self._times(self.array, left, (d, r, count), stream))
                own = library.qr(own)[0]
                along = library.get(self._times(rows.array, own, (b, d, count), stream))
                space = library.beside(self.array, own) if r else own
        core = np.zeros((r + b, r + count))
        core[:r, :r] = np.diag(values)
        core[r:, :r], core[r:, r:] = inside, along
        return core, DeviceBasis(self.home, d, r + count, space)

    def turned(self, turn: F64) -> DeviceBasis:
        """This basis times `turn`, orthonormal again and with the largest entries positive."""
        library, d, k = self.library, self.dim, turn.shape[1]
        with self.home.working() as stream:
            own = self._times(self.array, library.put(turn, self.place), (d, self.count, k), stream)
            if k:
                step = library.empty((k, k), "float64", self.place)
                cuda_module().svd_newton_step(span(library, own), d, k, span(library, step), stream)
                own = library.oriented(self._times(own, step, (d, k, k), stream))
        return DeviceBasis(self.home, d, k, own)


def device_basis(
    X: object, here: F64, there: DeviceBasis | None
) -> tuple[DeviceRows64, DeviceBasis]:
    """The rows X and the basis on their device, which the basis follows from the host.

    Raises
    ------
    DeviceError
        The basis is on a device, and X is in host memory or elsewhere.
    """
    if not is_device(X):
        assert there is not None
        raise DeviceError(
            f"X: expected an array on device {there.place}, where the basis is, got one in host "
            "memory"
        )
    rows = DeviceRows64(X, here.shape[0] if there is None else there.dim)
    if there is None:
        return rows, DeviceBasis.put(here, rows.library, rows.place)
    if there.library is not rows.library or there.place != rows.place:
        raise DeviceError(
            f"X: expected an array of {there.library.name} on device {there.place}, where the "
            f"basis is, got one of {rows.library.name} on device {rows.place}"
        )
    return rows, there

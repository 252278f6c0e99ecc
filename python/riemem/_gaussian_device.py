"""The running moments of rows that lie on a GPU: kept there, and looked at when somebody asks.

Adding rows is queued on the library's current stream and waits for nothing. What the processor
finds by looking at the rows (NaN, rows that were never added) is therefore found later, at the next
question that reads the sums; the faulty batch has then left no trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from riemem._arrays import F64, raise_if_bad_row
from riemem._backend import cuda_module
from riemem._device import (
    KINDS,
    Home,
    Library,
    View,
    as_device_rows,
    is_device,
    library_of,
    rows_span,
    span,
)
from riemem._gaussian import Moments
from riemem.errors import ArgumentError, DeviceError

__all__ = ["LIMIT", "DeviceMoments", "device_moments", "moment_rows"]

_KINDS = ("float32", "bfloat16", "float64")
LIMIT = 1e150  # rows this long count as infinite: their squares would not fit for long
_MOST_WAITING = 4096  # batches, each of which keeps a little memory until it is looked at
_SUMS = ("shift", "total", "scatter")


@dataclass(frozen=True)
class _Batch:
    """Rows that nobody has looked at yet: how many, and the lowest that is bad."""

    count: int
    bad: Any


@dataclass(frozen=True)
class _Removal(_Batch):
    """Rows taken away, and the sums as they were before."""

    before: dict[str, Any]


def moment_rows(X: object, dim: int | None) -> tuple[Library, View]:
    """Rows on a device as sums over them are taken: here, and of an incremental SVD."""
    library, array = library_of(X, "X")
    one_row = dim is not None
    return library, as_device_rows(array, "X", library, dim=dim, one_row=one_row, kinds=_KINDS)


def device_moments(moments: Moments | DeviceMoments, X: object) -> tuple[DeviceMoments, Any]:
    """The moments on the device of X, which they move to from the host, and X as an array there.

    Raises
    ------
    DeviceError
        X is in host memory or elsewhere, and they are on a device.
    """
    if isinstance(moments, DeviceMoments) and not is_device(X):
        raise DeviceError(
            f"X: expected an array on device {moments.place}, where the metric's sums are, got one "
            "in host memory; FisherMetric.from_dict(metric.to_dict()) brings them back"
        )
    library, rows = moment_rows(X, moments.dim)
    if isinstance(moments, Moments):
        return DeviceMoments(library, rows.device, moments), rows.owner
    if moments.library is not library or moments.place != rows.device:
        raise DeviceError(
            f"X: expected an array of {moments.library.name} on device {moments.place}, where the "
            f"metric's sums are, got one of {library.name} on device {rows.device}"
        )
    return moments, rows.owner


class DeviceMoments:
    """:class:`riemem._gaussian.Moments` on a device, with the same bits; reading them waits."""

    def __init__(self, library: Library, device: int, start: Moments) -> None:
        self.library, self.place = library, device
        self._home = Home(library, device)
        self._move(start)

    def _move(self, start: Moments) -> None:
        library, place = self.library, self.place
        with self._home.working():
            self._sums = {
                name: library.put(getattr(start, name), place)
                if start.n
                else library.full(getattr(start, name).shape, "float64", 0.0, place)
                for name in _SUMS
            }
        self._host: Moments | None = start.share()  # None while batches wait to be looked at
        self._n = start.n  # rows of the batches that were looked at
        self._shifted = start.n > 0
        self._added: list[_Batch] = []
        self._removed: _Removal | None = None
        self.dim = start.dim

    def add(self, X: object, sign: int = 1) -> None:
        """Queue the addition of rows (sign 1), or their removal (sign -1)."""
        library, rows = moment_rows(X, self.dim)
        count = rows.shape[0]
        if count == 0:
            return
        if self._removed is not None or len(self._added) >= _MOST_WAITING:
            self.host()  # nothing is built on a removal that may have to be undone
        module = cuda_module()
        with self._home.working() as stream:
            bad, norms = (library.empty((size,), kind, self.place) for size, kind in (
                (1, "int64"), (count, "float64")))  # fmt: skip
            before = None
            if sign < 0:
                before = {name: library.copy(array) for name, array in self._sums.items()}
            found = span(library, bad)
            shift, total, scatter = (span(library, self._sums[name]) for name in _SUMS)
            given = rows_span(rows), KINDS[rows.kind], count, self.dim, rows.strides[0]
            module.row_norms(*given, span(library, norms), found, stream, LIMIT)
            if not self._shifted:
                module.scatter_shift(*given, found, shift, stream)
            module.scatter_add(*given, shift, float(sign), total, scatter, found, stream)
        self._host, self._shifted = None, True
        if before is None:
            self._added.append(_Batch(count, bad))
        else:
            self._removed = _Removal(count, bad, before)

    def remove(self, X: object) -> None:
        """Queue a removal; whether the rows can have been there is found at the next question."""
        self.add(X, -1)

    def host(self) -> Moments:
        """Wait for what is queued, and return the moments in host memory.

        Raises
        ------
        NotFiniteError
            A batch held NaN, an infinity, or values whose squares do not fit: it left no trace.
        ArgumentError
            Rows were taken away that cannot have been added: they are still there.
        """
        if self._host is not None:
            return self._host
        with self._home.working():
            rows = [self._bad_row(batch) for batch in self._added]
            count = self._n + sum(
                batch.count for batch, row in zip(self._added, rows, strict=True) if row < 0
            )
            sums, removal, foreign = self._sums, self._removed, None
            if removal is not None:
                rows.append(self._bad_row(removal))
                if rows[-1] < 0:
                    foreign = self._foreign(removal, count)
                    count -= 0 if foreign else removal.count
                if foreign:
                    library = self.library
                    sums = {name: library.copy(array) for name, array in removal.before.items()}
            found = self._read(sums, count) if count else Moments.empty(self.dim)
        if count:
            self._sums, self._host, self._n = sums, found, count
            self._added, self._removed = [], None
        else:
            self._move(found)
        raise_if_bad_row(max(rows, default=-1), "X: rows given to the device were not used")
        if foreign:
            raise ArgumentError(foreign)
        return found

    def _bad_row(self, batch: _Batch) -> int:
        row = int(self.library.get(batch.bad)[0])
        return row if 0 <= row < batch.count else -1

    def _foreign(self, removal: _Removal, count: int) -> str | None:
        """Say why rows cannot have been among those that were added, if so."""
        if removal.count > count:
            return f"X: expected at most the {count} rows that were added, got {removal.count}"
        before = self._read(removal.before, count)
        if self._read(self._sums, count - removal.count).fits_into(before):
            return None
        return "X: expected rows that were added before, got rows that were not"

    def _read(self, sums: dict[str, Any], count: int) -> Moments:
        shift, total, scatter = (self.library.get(sums[name]) for name in _SUMS)
        return Moments(count, shift, total, scatter)

    def share(self) -> DeviceMoments:
        """Return the same moments for a second owner."""
        twin = object.__new__(DeviceMoments)
        twin.__dict__.update(self.__dict__)
        with self._home.working():
            twin._sums = {name: self.library.copy(array) for name, array in self._sums.items()}
        twin._added = list(self._added)
        twin._host = None if self._host is None else self._host.share()
        return twin

    def merge(self, other: Moments) -> None:
        """Add the rows that another set of moments stands on."""
        joined = self.host().share()
        joined.merge(other)
        self._move(joined)

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.host().n

    @property
    def shift(self) -> F64:
        """What the sums are about, shape (d,)."""
        return self.host().shift

    @property
    def total(self) -> F64:
        """Shifted sum of the rows, shape (d,)."""
        return self.host().total

    def mean(self) -> F64:
        """Mean of the rows; zeros when there are none."""
        return self.host().mean()

    def covariance(self) -> F64:
        """Biased covariance of the rows, both triangles."""
        return self.host().covariance()

    def full_scatter(self) -> F64:
        """A copy of the scatter matrix with both triangles."""
        return self.host().full_scatter()

"""A living set of unit vectors with its metric: add, remove, filter, search, from any thread."""

from __future__ import annotations

import threading
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from riemem._arrays import (
    F32,
    F64,
    I64,
    LAST_ID,
    Bool,
    as_choice,
    as_count,
    as_ids,
    as_integers,
    as_mask,
    as_rows,
    raise_if_bad_row,
    require_finite,
    to_numpy,
)
from riemem._device import as_device, is_device
from riemem._fused import (
    Constants,
    Options,
    Points,
    Queries,
    TopK,
    approximate_rows,
    as_options,
    convert,
    prepare_points,
    prepare_queries,
    row_norms,
    score_rows,
    score_some,
    topk,
    unit_rows,
    why_cosine,
)
from riemem._gaussian import Moments
from riemem._index_device import DeviceRows, to_host
from riemem._index_device import State as DeviceState
from riemem._rows import STORAGES, RowStore, RowsView, fastest_scan, make_rows
from riemem.errors import ArgumentError, MemoryNotFoundError, ShapeError, ZeroVectorError
from riemem.index_file import State, read, write
from riemem.metric import FisherMetric
from riemem.presets import presets

__all__ = ["RiemannianIndex"]

_DEFAULT = presets["default"]
_ROWS = 4096  # rows normalised or put into the metric together: bounds the workspace


@dataclass(frozen=True)
class _Snapshot:
    """One immutable state: nothing a search holds is ever written to again."""

    version: int
    points: Points
    ids: I64
    metric: FisherMetric
    ordered: bool  # ids grow with the row
    rows: RowsView
    store: RowStore  # whose rows these are


@dataclass(frozen=True)
class Learnt:
    """What an index made of its rows: to be adopted by one with the same rows and options.

    Attributes
    ----------
    rows : int
        Of how many first rows the sums are: always so many whole steps of learning, so that going
        on from there gives the bits of learning all rows.
    moments : Moments
    count : int
        Of how many rows the constants are.
    constants : Constants
    whitening : int
        Checksum of the metric's whitening, of which the constants are made: another library of
        linear algebra has other last bits.
    """

    rows: int
    moments: Moments
    count: int
    constants: Constants
    whitening: int


@dataclass(frozen=True)
class Asked:
    """One query against one state of an index; made by :meth:`RiemannianIndex.ask`.

    Scores are unscaled, as with ``norm="none"``, and NaN for a zero query.
    """

    _snapshot: _Snapshot
    _queries: Queries

    @property
    def ids(self) -> I64:
        """Ids of all rows: the same object until the index changes, and not to be written to."""
        return self._snapshot.ids

    def all(self) -> F64:
        """Score every row, shape (N,)."""
        found = np.empty((1, self.ids.size))
        if found.size:
            score_rows(self._snapshot.points, self._queries, None, "auto", found)
        scores: F64 = found[0]
        return scores

    def approximate(self) -> tuple[F64, float]:
        """Score every row nearly: the scores, shape (N,), and how far off each can be at most.

        For a zero query nothing is known, and the bound is infinite.
        """
        if self.ids.size == 0 or self._queries.empty[0]:
            return np.zeros(self.ids.size), float("inf") if self.ids.size else 0.0
        return approximate_rows(self._snapshot.points, self._queries)

    def some(self, rows: I64) -> F64:
        """Score the rows at some positions in `ids`: the same bits as :meth:`all`."""
        if rows.size == 0:
            return np.empty(0)
        return score_some(self._snapshot.points, self._queries, rows)

    def vectors(self, positions: I64) -> F32:
        """Return the unit rows at some positions in `ids`, shape (M, d)."""
        return self._snapshot.rows.take(positions)

    def best(self, k: int, mask: Bool | None = None) -> tuple[I64, F64]:
        """Return positions and scores of the k best rows; ties go to the lower position."""
        found = topk(self._snapshot.points, self._queries, mask, k)
        count = int(found.counts[0])
        return found.indices[0, :count], found.scores[0, :count]


class RiemannianIndex:
    """Unit vectors, their metric, and exact search over both.

    Rows are L2-normalised when added (norm in float64), queries when asked. The metric follows
    every add and remove exactly and is factorised at the first search after a change; while fewer
    than `min_samples` rows are held, the score is the plain cosine and ``TopK.scoring`` says so.

    Parameters
    ----------
    dim : int
        Number of columns d.
    covariance, ridge, energy, max_rank, min_samples
        See :class:`riemem.FisherMetric`.
    cosine_weight, form, norm
        See :func:`riemem.search`.
    storage : {"float32", "float32+int8", "bf16", "int8"}
        How rows are held, and what a search reads of them. "float32+int8" adds one byte per
        dimension and reads that; "bf16" splits each float32 into two halves and reads the first;
        "int8" keeps the float32 rows in a memory-mapped temporary file and only the bytes in
        memory. Ids and scores are the same bits with each.
    directory : path-like, optional
        Where "int8" keeps its file; by default the system's folder for temporary files.
    device : str, optional
        ``"cuda"`` or ``"cuda:N"``: searches run there, on a copy of the rows, and return what they
        would return here. Queries on that device are answered on it, host queries in host memory.
    vram : VramBudget, optional
        With a device: asked before memory is taken there.

    Raises
    ------
    ArgumentError, DTypeError
        An option out of its range.
    BackendUnavailableError
        The device cannot be used; the message says why.

    Notes
    -----
    Adding and removing rows costs O(d) and O(N d) and, at the next search, O(d^3 + N d^2). All
    methods may be called from several threads: a search works on the state it began with.

    Examples
    --------
    >>> index = RiemannianIndex(2)
    >>> index.add([[3.0, 0.0], [0.0, 5.0]]).tolist()
    [0, 1]
    >>> index.search([[0.1, 1.0]], k=1).indices.tolist()
    [[1]]
    """

    def __init__(
        self,
        dim: int,
        *,
        covariance: str = _DEFAULT.covariance,
        ridge: float = _DEFAULT.ridge,
        energy: float = _DEFAULT.energy,
        cosine_weight: float = _DEFAULT.cosine_weight,
        form: str = _DEFAULT.form,
        norm: str = _DEFAULT.norm,
        storage: str = "float32",
        min_samples: int = 32,
        max_rank: int | None = None,
        directory: object = None,
        device: object = None,
        vram: Any = None,
    ) -> None:
        self._storage = as_choice(storage, "storage", STORAGES)
        self._options = as_options(cosine_weight, form, norm)
        self._metric = FisherMetric(
            dim,
            covariance=covariance,
            ridge=ridge,
            energy=energy,
            max_rank=max_rank,
            min_samples=min_samples,
        )
        self._dim = self._metric.dim
        self._n = 0
        self._rows = make_rows(self._storage, self._dim, directory)
        self._device: DeviceRows | None = None
        number = as_device(device)
        if number is not None:
            self._device = DeviceRows(number, self._dim, self._storage, vram)
        self._ids: I64 = np.empty(0, np.int64)
        self._known: dict[int, int] = {}  # id -> row, of the first rows: see _known_ids
        self._next_id = 0
        self._learnt = 0  # rows [0, learnt) are in the metric, the rest is waiting
        self._exact_rows = 0  # rows evaluated in float64 by all searches so far
        self._steps: tuple[int, Moments] | None = None  # rows and sums after whole steps from 0
        self._adopted: Learnt | None = None
        self._removals = 0  # rows taken out of the metric since it was last built afresh
        self._version = 0
        self._lock = threading.Lock()  # the state above
        self._refreshing = threading.Lock()  # one thread factorises, the others wait for it
        self._snapshot: _Snapshot | None = None

    def add(self, X: object, ids: object = None) -> I64:
        """Add rows; either all of them or, on an error, none.

        Parameters
        ----------
        X : array_like, shape (N, d) or (d,)
            Any real dtype and strides.
        ids : array_like of int, shape (N,), optional
            Unique, >= 0 and not in use. By default counted up from the largest id ever used.

        Returns
        -------
        ndarray of int64, shape (N,)
            The ids.

        Raises
        ------
        ZeroVectorError, NotFiniteError
            A row without direction, or with NaN or an infinity; the row is named.
        ShapeError, DTypeError, DeviceError, ArgumentError
            The argument it names does not fit.

        Examples
        --------
        >>> RiemannianIndex(2).add([[1.0, 0.0]], ids=[42]).tolist()
        [42]
        """
        if self._device is not None and is_device(X):
            X = to_host(X, "X")
        rows = as_rows(X, "X", dim=self._dim, one_row=True)
        norms, bad = row_norms(rows)
        raise_if_bad_row(bad, "X")
        if not norms.all():
            raise ZeroVectorError(
                "X: expected vectors with a direction, got the zero vector in row "
                f"{int(np.argmin(norms))}"
            )
        count = rows.shape[0]
        given = None if ids is None else as_ids(ids, count)
        with self._lock:
            fresh = self._claim(given, count)
            end = self._n + count
            self._make_room(end)
            # Beyond the rows that any snapshot can see, so searches are not disturbed.
            for start in range(0, count, _ROWS):
                part, lengths = rows[start : start + _ROWS], norms[start : start + _ROWS]
                unit = self._rows.space(self._n + start, part.shape[0])
                self._rows.write(self._n + start, unit_rows(part, unit, lengths)[0])
            self._ids[self._n : end] = fresh
            if count:
                self._next_id = max(self._next_id, int(fresh.max()) + 1)
                self._version += 1
            self._n = end
        return fresh

    def reserve(self, n: int) -> None:
        """Make room for `n` rows in all, so that adding them in parts copies nothing.

        Without it the room doubles when it runs out, and while rows move to the larger room both
        are held.

        Parameters
        ----------
        n : int
            Rows, those already held included; less than :attr:`__len__` changes nothing.

        Raises
        ------
        ArgumentError, DTypeError
            Not an integer >= 0.
        MemoryError, StoreError
            There is no room; nothing is changed.

        Examples
        --------
        >>> index = RiemannianIndex(2)
        >>> index.reserve(1000)
        >>> index.add([[1.0, 0.0]]).tolist()
        [0]
        """
        needed = as_count(n, "n")
        with self._lock:
            self._make_room(needed)

    def _make_room(self, needed: int) -> None:
        if self._device is not None:
            self._device.reserve(needed)
        self._rows.reserve(self._n, needed)
        if self._rows.capacity > self._ids.size:
            ids = np.empty(self._rows.capacity, np.int64)
            ids[: self._n] = self._ids[: self._n]
            self._ids = ids

    def _claim(self, given: I64 | None, count: int) -> I64:
        if given is None:
            if self._next_id > LAST_ID - count + 1:
                raise ArgumentError("ids: expected to be given, because the largest id is in use")
            fresh = np.arange(self._next_id, self._next_id + count, dtype=np.int64)
        else:
            fresh = given
            # Ids that go on counting cannot be in use: nothing need be looked up.
            if count and int(given.min()) < self._next_id:
                known = self._known_ids()
                used = next((i for i in given.tolist() if i in known), None)
            else:
                used = None
            if used is not None:
                raise ArgumentError(f"ids: expected ids that are not in use, got {used}")
        return fresh

    def _known_ids(self) -> dict[int, int]:
        """The row of each id, completed when it is asked for; call it under the lock."""
        start = len(self._known)
        ids = self._ids[start : self._n].tolist()
        self._known.update(zip(ids, range(start, self._n), strict=True))
        return self._known

    def remove(self, ids: object) -> None:
        """Remove rows by id and take them out of the metric exactly; all or none.

        Parameters
        ----------
        ids : int or array_like of int
            Ids in use; naming one twice is the same as once.

        Raises
        ------
        MemoryNotFoundError
            An id is not in use; nothing is changed.
        DTypeError
            Not integers.

        Examples
        --------
        >>> index = RiemannianIndex(2)
        >>> _ = index.add([[1.0, 0.0], [0.0, 1.0]])
        >>> index.remove([0])
        >>> index.ids.tolist()
        [1]
        """
        wanted = sorted(set(as_integers(ids, "ids").reshape(-1).tolist()))
        if not wanted:
            return
        with self._lock:
            known = self._known_ids()
            missing = [i for i in wanted if i not in known]
            if missing:
                raise MemoryNotFoundError(f"ids: expected ids in use, got {missing[0]}")
            gone = np.array(sorted(known[i] for i in wanted))
            keep = np.ones(self._n, bool)
            keep[gone] = False
            kept = self._rows.kept(self._n, keep)  # snapshots keep the old store
            self._steps = self._adopted = None
            learnt = gone[gone < self._learnt]
            for start in range(0, learnt.size, _ROWS):
                part = self._rows.take(self._n, learnt[start : start + _ROWS])
                self._metric._remove_known(part)
            self._rows, self._ids = kept, self._ids[: self._n][keep]
            self._n -= gone.size
            self._learnt -= learnt.size
            self._removals += learnt.size
            self._known = {}
            self._version += 1

    def search(self, Q: object, k: int = 10, filter: object = None) -> TopK:
        """Find the k best rows for each query; the answer's indices are ids.

        Parameters
        ----------
        Q : array_like, shape (B, d) or (d,)
            L2-normalised here; a zero vector gets no hits and is flagged in ``.empty``.
        k : int
            How many, >= 0; fewer come back when fewer pass.
        filter : array_like, optional
            bool of shape (N,) or (B, N), in the order of :attr:`ids`; or integers, the ids that
            may be returned (an id that is not in use matches nothing).

        Returns
        -------
        TopK
            Ties go to the lower id.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NotFiniteError, ArgumentError
            The argument it names does not fit.

        Examples
        --------
        >>> index = RiemannianIndex(2)
        >>> _ = index.add([[1.0, 0.0], [0.0, 1.0]])
        >>> index.search([1.0, 0.1], k=2, filter=[1]).indices.tolist()
        [[1]]
        """
        count = as_count(k, "k")
        if self._device is not None:
            return self._search_device(self._device, Q, count, filter)
        rows = as_rows(Q, "Q", dim=self._dim, letter="B", one_row=True)
        require_finite(rows, "Q")
        snapshot = self._current()
        mask = _as_filter(filter, snapshot.ids, rows.shape[0])
        queries = prepare_queries(unit_rows(rows)[0], snapshot.metric, self._options)
        found = topk(
            snapshot.points,
            queries,
            mask,
            count,
            keys=snapshot.ids,
            ordered=snapshot.ordered,
        )
        with self._lock:
            self._exact_rows += found.exact_rows
        return convert(found, Q)

    def _search_device(self, device: DeviceRows, Q: object, k: int, filter: object) -> TopK:
        snapshot = self._current()
        if not is_device(Q):
            Q_rows = as_rows(Q, "Q", dim=self._dim, letter="B", one_row=True)
            batch = Q_rows.shape[0]
        else:
            shape = getattr(Q, "shape", (1,))
            batch = 1 if len(shape) == 1 else int(shape[0])
        mask = None if is_device(filter) else _as_filter(filter, snapshot.ids, batch)
        state = DeviceState(
            snapshot.version,
            snapshot.points,
            snapshot.ids,
            snapshot.metric,
            snapshot.rows,
            snapshot.store,
        )
        return device.find(state, Q, k, filter, mask, self._options)

    def ask(self, q: object, *, cosine_weight: float | None = None) -> Asked:
        """Prepare one query against the present state, to ask for all, some or the best scores.

        Parameters
        ----------
        q : array_like, shape (d,)
            L2-normalised here.
        cosine_weight : float, optional
            Instead of the index's own; 1.0 gives the plain cosine.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NotFiniteError, ArgumentError
            The argument it names does not fit.

        Examples
        --------
        >>> index = RiemannianIndex(2)
        >>> _ = index.add([[1.0, 0.0], [0.0, 1.0]], ids=[4, 9])
        >>> asked = index.ask([0.0, 2.0])
        >>> asked.ids.tolist(), asked.all().tolist()
        ([4, 9], [0.0, 1.0])
        """
        rows = as_rows(q, "q", dim=self._dim, letter="B", one_row=True)
        if rows.shape[0] != 1:
            raise ShapeError(f"q: expected shape ({self._dim},), got {rows.shape}")
        unit, _, bad = unit_rows(rows)
        raise_if_bad_row(bad, "q")
        options = Options(self._options.cosine_weight, self._options.form, "none")
        if cosine_weight is not None:
            options = as_options(cosine_weight, options.form, "none")
        snapshot = self._current()
        queries = prepare_queries(unit, snapshot.metric, options)
        return Asked(snapshot, queries)

    def refresh(self) -> None:
        """Bring the metric up to date now instead of at the next search."""
        self._current()

    def save(self, path: object) -> None:
        """Write the index to a file, which it replaces as a whole or not at all.

        Parameters
        ----------
        path : path-like
            The file; it is written under a temporary name beside it, brought to the disk, renamed.

        Raises
        ------
        StoreError
            The file cannot be written (a full disk, for one); an old file is as it was.
        DTypeError
            Not a path.

        Notes
        -----
        The state of one moment is written, whatever other threads do meanwhile. Format:
        docs/index-format.md.

        Examples
        --------
        >>> import tempfile
        >>> index = RiemannianIndex(2)
        >>> _ = index.add([[1.0, 0.0], [0.0, 1.0]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     index.save(f"{folder}/two.index")
        ...     len(RiemannianIndex.load(f"{folder}/two.index"))
        2
        """
        with self._lock:
            self._learn()
            metric = self._metric.copy()
            options = {
                "dim": self._dim,
                "covariance": metric.covariance,
                "ridge": metric.ridge,
                "energy": metric.energy,
                "max_rank": metric.max_rank,
                "min_samples": metric.min_samples,
                "cosine_weight": self._options.cosine_weight,
                "form": self._options.form,
                "norm": self._options.norm,
                "storage": self._storage,
            }
            rows, ids = self._rows.view(self._n), self._ids[: self._n]
            state = State(options, rows, ids, metric, self._next_id, self._removals)
        write(path, state)

    @classmethod
    def load(
        cls,
        path: object,
        *,
        mmap: bool = False,
        directory: object = None,
        device: object = None,
        vram: Any = None,
    ) -> RiemannianIndex:
        """Read an index that :meth:`save` wrote; it goes on as the saved one would have.

        Parameters
        ----------
        path : path-like
            The file. All of it is checked.
        mmap : bool
            Leave the float32 rows in the mapped file until the index first grows. The file may be
            replaced meanwhile, by :meth:`save` too, but not cut short.
        directory, device, vram
            As for the constructor; a file does not say where it was searched.

        Raises
        ------
        InputFileError
            There is no such file, or it cannot be opened.
        StoreCorruptError
            The file is truncated, altered, or of another kind.
        SchemaVersionError
            The file was written by a newer version.
        DTypeError, ArgumentError
            The argument it names does not fit.

        Examples
        --------
        See :meth:`save`.
        """
        state = read(path)
        index = cls(**state.options, directory=directory, device=device, vram=vram)
        count = state.rows.count
        if mmap:
            index._rows.adopt(state.rows.get(0, count))
        else:
            index._rows.reserve(0, count)
            for start in range(0, count, _ROWS):
                index._rows.write(start, state.rows.get(start, min(start + _ROWS, count)))
        index._ids, index._metric = state.ids, state.metric
        index._n = index._learnt = count
        index._next_id, index._removals = state.next_id, state.removals
        index._version = 1
        return index

    def _current(self) -> _Snapshot:
        snapshot = self._snapshot
        if snapshot is not None and snapshot.version == self._version:
            return snapshot
        with self._refreshing:
            snapshot = self._snapshot
            with self._lock:
                if snapshot is not None and snapshot.version == self._version:
                    return snapshot
                self._learn()
                version, metric = self._version, self._metric.copy()
                rows, ids = self._rows.view(self._n), self._ids[: self._n]
                store = self._rows
                adopted, self._adopted = self._adopted, None
            known = None
            if adopted is not None and adopted.count == rows.count:
                known = adopted.constants if adopted.whitening == _print_of(metric) else None
            scan = fastest_scan(rows.count)
            points = prepare_points(rows, metric, self._options, scan=scan, known=known)
            ordered = bool((np.diff(ids) > 0).all())
            snapshot = _Snapshot(version, points, ids, metric, ordered, rows, store)
            self._snapshot = snapshot
            return snapshot

    def _learn(self) -> None:
        """Put the waiting rows into the metric; after many removals build it afresh."""
        if self._removals > self._n:  # as cheap as the removals were, and free of their rounding
            self._metric = self._metric._emptied()
            self._learnt = self._removals = 0
        for start in range(self._learnt, self._n, _ROWS):
            end = min(start + _ROWS, self._n)
            self._metric.update(self._rows.view(self._n).get(start, end))
            if end - start == _ROWS and start == (self._steps[0] if self._steps else 0):
                self._steps = end, self._metric._moments.host().share()
        self._learnt = self._n

    def _state(self) -> Learnt | None:
        """What :meth:`_adopt` takes, or None if an index built afresh would differ in a last bit.

        That is so after a removal, and while there are fewer rows than one step.
        """
        snapshot = self._current()
        with self._lock:
            if self._steps is None or snapshot.version != self._version:
                return None
            rows, moments = self._steps
        points, whitening = snapshot.points, _print_of(snapshot.metric)
        return Learnt(rows, moments, snapshot.ids.size, points.constants, whitening)

    def _adopt(self, learnt: Learnt) -> None:
        """Take over what was learnt from the first of these rows, and from all if they are all.

        Only for an index that has learnt nothing yet; the rows must be the ones it was made of.
        """
        with self._lock:
            if self._learnt or self._removals or learnt.rows > self._n:
                return
            self._metric._moments = learnt.moments.share()
            self._metric._changed()
            self._steps, self._learnt = (learnt.rows, learnt.moments), learnt.rows
            self._adopted = learnt

    @property
    def dim(self) -> int:
        """Number of columns d."""
        return self._dim

    @property
    def min_samples(self) -> int:
        """Rows below which the score is the plain cosine."""
        return self._metric.min_samples

    @property
    def metric(self) -> FisherMetric:
        """A copy of the metric as of now."""
        return self._current().metric.copy()

    @property
    def ids(self) -> I64:
        """The ids in the order in which they were added, shape (N,)."""
        with self._lock:
            return self._ids[: self._n].copy()

    def vectors(self) -> F32:
        """The unit rows in the order of :attr:`ids`, shape (N, d), read-only.

        The array keeps its memory and its values whatever happens to the index.
        """
        with self._lock:
            view = self._rows.vectors(self._n).view()
        view.flags.writeable = False
        return view

    @property
    def nbytes(self) -> int:
        """Bytes of memory in arrays: rows and ids with spare room, constants per row, metric."""
        with self._lock:
            held = self._rows.nbytes + self._ids.nbytes + 8 * self._dim * (self._dim + 2)
            snapshot = self._snapshot
        if snapshot is not None:
            held += snapshot.points.constants_nbytes + 8 * self._dim * (2 * self._dim + 1)
        return held

    def __len__(self) -> int:
        return self._n

    def stats(self) -> dict[str, Any]:
        """Describe the index: size, metric, and which score is in use.

        Examples
        --------
        >>> RiemannianIndex(2).stats()["scoring"]
        'cosine: 0 samples < min_samples 32'
        """
        snapshot = self._current()
        metric, points = snapshot.metric, snapshot.points
        return {
            "n": len(snapshot.ids),
            "dim": self._dim,
            "covariance": metric.covariance,
            "rank": metric.rank,
            "ridge_value": metric.ridge_value,
            "condition_number": metric.condition_number,
            "scoring": why_cosine(metric) or "fused",
            "form": self._options.form,
            "cosine_weight": self._options.cosine_weight,
            "norm": self._options.norm,
            "storage": self._storage,
            "exact_rows": self._exact_rows,
            "unbounded_rows": points.kernel.unbounded_rows if points.kernel is not None else 0,
            "nbytes": self.nbytes,
            "device": "cpu" if self._device is None else f"cuda:{self._device.device}",
            "device_nbytes": 0 if self._device is None else self._device.nbytes,
        }


def _print_of(metric: FisherMetric) -> int:
    return zlib.crc32(np.ascontiguousarray(metric.whitening()))


def _as_filter(value: object, ids: I64, queries: int) -> Bool | None:
    if value is None:
        return None
    if isinstance(value, (set, frozenset)):
        value = list(value)
    array = to_numpy(value, "filter")
    if array.dtype == np.bool_:
        return as_mask(array, ids.size, queries, "filter")
    allowed = as_integers(array, "filter")
    if allowed.ndim != 1:
        raise ShapeError(f"filter: expected ids of shape (M,), got {allowed.shape}")
    return np.isin(ids, allowed)

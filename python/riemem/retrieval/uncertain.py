"""The dense score with uncertainty: a variance per memory and dimension, a ramp per memory.

A new memory is scored by its cosine, one that was used ten times by its variances, and confirmed
uses narrow them. One pass over the vectors gives both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from riemem._arrays import F32, F64
from riemem._uncertain import UncertainPoints, prepare_uncertain, uncertain_scores
from riemem.fisher_rao import MAX_VARIANCE, MIN_VARIANCE, access_ramp, signal_variance
from riemem.presets import Preset
from riemem.retrieval.channel import Ids
from riemem.retrieval.embedding import MAX_CHUNKS, unit
from riemem.store import Store
from riemem.store.precisions import gained
from riemem.store.uses import counts

__all__ = ["Uncertain"]


@dataclass(frozen=True)
class _State:
    keys: Ids  # the object that the index gave, which is another one after every change
    revision: int
    precision: F32  # of the vectors alone
    points: UncertainPoints


class Uncertain:
    """Variances and ramps of the vectors of one profile, kept up to date.

    Parameters
    ----------
    store : Store
    profile : str
    preset : Preset
        Of form "fisher-rao".

    Notes
    -----
    As many bytes as the vectors. O(N d) after a change of the vectors, and after each write that
    may have been a use.
    """

    def __init__(self, store: Store, profile: str, preset: Preset) -> None:
        self._store = store
        self._profile = profile
        self._preset = preset
        self._lock = threading.Lock()
        self._state: _State | None = None

    def scores(self, query: F32, keys: Ids, rows: Callable[[], F32]) -> npt.NDArray[np.float64]:
        """Score every vector: the cosine of a memory without uses, and in [-1, 1].

        Parameters
        ----------
        query : (d,) float32 ndarray
        keys : (N,) int64 ndarray
            Numbers of the vectors; ``keys // MAX_CHUNKS`` is the memory.
        rows : callable
            Returns the unit vectors of `keys`; called when they have changed.

        Returns
        -------
        (N,) float64 ndarray
            ``2 s - 1`` of :func:`riemem.fisher_rao_scores`, so that 0 says nothing.
        """
        points = self._follow(keys, rows)
        asked = unit(query).astype(np.float32)[None]
        found: F64 = 2.0 * uncertain_scores(points, asked, self._preset.temperature, None)[0] - 1.0
        return found

    def _follow(self, keys: Ids, rows: Callable[[], F32]) -> UncertainPoints:
        revision = self._store.revision()
        with self._lock:
            state = self._state
        if state is not None and state.keys is keys and state.revision == revision:
            return state.points
        vectors = rows()
        if state is not None and state.keys is keys:
            own = state.precision
        else:
            own = (1.0 / signal_variance(vectors).astype(np.float64)).astype(np.float32)
        owners = keys // MAX_CHUNKS
        used, times = counts(self._store, self._profile)
        taught, precisions = gained(self._store, self._profile, vectors.shape[1])
        ramp = access_ramp(_at(used, times, owners), full_at=self._preset.full_at)
        precision = own.copy()
        learnt = np.flatnonzero(np.isin(owners, taught))
        precision[learnt] += precisions[np.searchsorted(taught, owners[learnt])]
        np.clip(precision, 1.0 / MAX_VARIANCE, 1.0 / MIN_VARIANCE, out=precision)
        points = prepare_uncertain(np.ascontiguousarray(vectors), precision, ramp)
        with self._lock:
            self._state = _State(keys, revision, own, points)
        return points


def _at(ids: Ids, values: Ids, wanted: Ids) -> Ids:
    """The value of each wanted id, 0 for those that have none."""
    if ids.size == 0:
        return np.zeros(wanted.size, np.int64)
    place = np.minimum(np.searchsorted(ids, wanted), ids.size - 1)
    return np.where(ids[place] == wanted, values[place], 0)

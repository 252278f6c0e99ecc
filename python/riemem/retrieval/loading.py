"""An index of all vectors of a profile, read from the store as it is opened."""

from __future__ import annotations

import sqlite3

import numpy as np
import numpy.typing as npt

from riemem.index import Learnt, RiemannianIndex
from riemem.presets import Preset
from riemem.retrieval.embedding import MAX_CHUNKS
from riemem.retrieval.learnt import read_learnt
from riemem.store.reads import Vectors

__all__ = ["REBUILT_ROWS", "Loading", "Owners", "by_memory", "empty_index", "follows", "made_with"]

Ids = npt.NDArray[np.int64]

#: Up to this many vectors the index is built again from all of them, in the order of their ids,
#: after every change: the metric's sums then have the same last bits as in a store just opened,
#: and so have the scores. Above it the index is changed in place, equal to rounding.
REBUILT_ROWS = 8192


def made_with(preset: Preset) -> str:
    """The options that what is learnt depends on."""
    return f"{preset.covariance} {preset.ridge!r} {preset.form} {preset.cosine_weight!r}"


def empty_index(preset: Preset, dim: int) -> RiemannianIndex:
    """An index for the vectors of a store."""
    return RiemannianIndex(
        dim,
        covariance=preset.covariance,
        ridge=preset.ridge,
        energy=preset.energy,
        cosine_weight=preset.cosine_weight,
        form=preset.form,
        norm=preset.norm,
        storage="float32+int8",  # a scan of the small copy, certified by the exact rows
    )


class Loading:
    """An index in the making, from the vectors of many memories in the order of their ids."""

    def __init__(self, index: RiemannianIndex, profile: str, preset: Preset) -> None:
        self.index = index
        self.owners = Owners()
        self.many = False
        self._profile, self._made_with = profile, made_with(preset)
        self._learnt: list[tuple[int, Learnt]] = []
        self._last = -1

    def begin(self, connection: sqlite3.Connection, memories: int) -> None:
        """Make room, and read what an earlier index learnt."""
        self.many = memories > REBUILT_ROWS
        if self.many:
            self.index.reserve(memories)
            self._learnt = read_learnt(connection, self._profile, self._made_with)

    def take(self, part: Vectors) -> bool:
        """Add vectors; False when there are few, or they do not come in order."""
        keys = part.memory_ids * MAX_CHUNKS + part.chunks
        if not self.many or keys[0] <= self._last or not (np.diff(keys) > 0).all():
            return False
        self._last = int(keys[-1])
        self.index.add(part.rows, ids=keys)
        self.owners.wait(part.memory_ids, part.ids)
        return True

    def adopt(self) -> int:
        """Take over what was learnt of these rows; return of how many, -1 for none."""
        for key, learnt in self._learnt:
            if follows(self.index, key, learnt):
                self.index._adopt(learnt)
                return learnt.count
        return -1


def follows(index: RiemannianIndex, key: int, learnt: Learnt) -> bool:
    """Whether something was learnt of the first rows of an index, to the row with that key."""
    ids = index.ids
    return learnt.rows <= ids.size and ids[learnt.count - 1 : learnt.count].tolist() == [key]


class Owners:
    """Which memory has which stored vectors; put together when it is first needed."""

    def __init__(self) -> None:
        self._vectors_of: dict[int, tuple[int, ...]] = {}
        self._waiting: list[tuple[Ids, Ids]] = []

    def wait(self, memory_ids: Ids, vector_ids: Ids) -> None:
        """Add vectors, by memory and chunk."""
        self._waiting.append((memory_ids, vector_ids))

    def vectors_of(self) -> dict[int, tuple[int, ...]]:
        """Ids of the stored vectors of each memory."""
        if self._waiting:
            memory_ids, vector_ids = map(np.concatenate, zip(*self._waiting, strict=True))
            self._vectors_of.update(by_memory(memory_ids, vector_ids))
            self._waiting = []
        return self._vectors_of


def by_memory(memory_ids: Ids, vector_ids: Ids) -> dict[int, tuple[int, ...]]:
    found: dict[int, list[int]] = {}
    for memory_id, vector_id in zip(memory_ids.tolist(), vector_ids.tolist(), strict=True):
        found.setdefault(memory_id, []).append(vector_id)
    return {memory_id: tuple(ids) for memory_id, ids in found.items()}

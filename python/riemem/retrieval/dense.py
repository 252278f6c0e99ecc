"""The dense channel: the Riemannian index over the vectors of one profile, kept up to date."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from riemem.errors import StoreLockedError
from riemem.index import Asked, RiemannianIndex
from riemem.presets import Preset, presets
from riemem.retrieval import loading
from riemem.retrieval.channel import ChannelHits, Embedded, Ids
from riemem.retrieval.embedding import MAX_CHUNKS, TurnEmbedder, unit
from riemem.retrieval.learnt import learnt_segment
from riemem.retrieval.loading import Loading, Owners, by_memory, empty_index, made_with
from riemem.retrieval.uncertain import Uncertain
from riemem.store import Identity, Store
from riemem.store.reads import Changes, changes, every_vector
from riemem.store.segments import worth_keeping, write_segments

__all__ = ["DenseChannel"]

Rows = npt.NDArray[np.float32]

_ATTEMPTS = 20

#: Above so many vectors a search of all channels looks at the best of them only.
MANY = 16_384


@dataclass(frozen=True)
class VectorScores:
    """A score per stored vector; ``keys // MAX_CHUNKS`` is the memory's id."""

    keys: Ids
    scores: npt.NDArray[np.float64]
    scoring: str
    uncentred: bool  # plain cosines instead of whitened ones
    notes: tuple[str, ...]
    rows: Ids | None  # positions in `keys` of those scored; None: all
    more: Callable[[Ids], npt.NDArray[np.float64]]  # scores of other positions
    vectors: Callable[[Ids], Rows]  # the unit vectors at some positions
    again: Callable[[npt.NDArray[np.float64]], Asked]  # the same of another vector
    asked: Embedded  # the query
    off: float = 0.0  # how far a score of `scores` can be from that of `more`, at most


class DenseChannel:
    """Search by meaning in the memories of one profile.

    Parameters
    ----------
    store : Store
    profile : str
    embedder : TurnEmbedder
    preset : str or Preset
        Metric and score.

    Notes
    -----
    The vectors are read at the first search; afterwards each search asks the store for what was
    added, changed or forgotten since, by whichever process. A long memory has several vectors and
    counts with the best of them. O(N d) per search, plus O(N d^2 + d^3) after a change.
    """

    name = "dense"

    def __init__(
        self,
        store: Store,
        profile: str,
        embedder: TurnEmbedder,
        preset: str | Preset = "default",
    ) -> None:
        self._store = store
        self._profile = profile
        self._embedder = embedder
        self.preset = presets[preset] if isinstance(preset, str) else preset
        self._uncertain = Uncertain(store, profile, presets["slm-v3"])
        self._lock = threading.Lock()
        self._index: RiemannianIndex | None = None
        self._revision = -1
        self._followed: tuple[int, RiemannianIndex] | None = None  # the store's mark, and what then
        self._owners: Owners = Owners()
        self._kept = -1  # vectors whose lengths are in the store
        self._raw: tuple[Ids, Rows] | None = None  # what a small index is built from

    def __len__(self) -> int:
        """Memories in the index as of the last search."""
        return len(self._owners.vectors_of())

    def search(
        self, query: str, k: int, allowed: Ids | None = None, *, explain: bool = False
    ) -> ChannelHits:
        """Return the k best memories.

        Raises
        ------
        EmbedderMismatchError
            The store holds vectors of another embedder.
        ModelNotFoundError, ModelCorruptError
            The embedder's files are missing or damaged.
        """
        if self._store.identity() is None:
            return ChannelHits(scoring="no memories")
        index = self._follow()
        if len(index) == 0 or k == 0:
            return ChannelHits(scoring="no memories")
        embedded = self._embedder.embed_query(query)
        keys = None
        if allowed is not None:
            keys = index.ids
            keys = keys[np.isin(keys // MAX_CHUNKS, allowed)]
        pairs, scoring = self._best(index, embedded.vector, k, keys)
        details = {}
        if explain:
            details = _cosines(index, embedded.vector, [memory_id for memory_id, _ in pairs])
        label = f"{self.preset.name}: {self.preset.form}" if scoring == "fused" else scoring
        return ChannelHits(pairs, scoring=label, notes=embedded.notes, details=details)

    def scores(
        self,
        query: str,
        *,
        score: str = "whitened",
        allowed: Ids | None = None,
        few: int = MANY,
        best: int = 256,
        nearly: bool = False,
        tokens: bool = False,
        mark: int | None = None,
    ) -> VectorScores | None:
        """Score every vector, or of many the best, or return None when there are none.

        Parameters
        ----------
        query : str
        score : {"whitened", "cosine", "fisher-rao"}
            The preset's, the plain cosine, or that of
            :class:`riemem.retrieval.uncertain.Uncertain`, which always scores all.
        allowed : int64 ndarray, optional
            Memory ids; of many vectors only theirs are ranked.
        few : int
            Up to so many vectors all are scored.
        best : int
            Of more, so many of the best are.
        nearly : bool
            Where all are scored, do it faster and only nearly; `off` says how far off they are.
        tokens : bool
            Also ask the embedder for the vectors of the query's tokens.
        mark : int, optional
            Of the store, taken in this call; see :meth:`riemem.store.Store.mark`.

        Raises
        ------
        As :meth:`search`.
        """
        if self._index is None and self._store.identity() is None:
            return None
        index = self._follow(mark)
        if len(index) == 0:
            return None
        embedded = self._embedder.embed_query(query, tokens=tokens)
        cosine = score == "cosine"
        asked = index.ask(embedded.vector, cosine_weight=1.0 if cosine else None)
        if score == "fisher-rao":
            return self._uncertain_scores(index, embedded)
        plain = not cosine and len(index) < index.min_samples
        off = 0.0
        if asked.ids.size <= few:
            rows, values = None, np.empty(0)
            if nearly and not plain:
                values, off = asked.approximate()
            if not (nearly and np.isfinite(off)) or plain:
                values, off = asked.all(), 0.0
        else:
            mask = None if allowed is None else np.isin(asked.ids // MAX_CHUNKS, allowed)
            rows, values = asked.best(best, mask)
        label = "cosine" if cosine else f"whitened {self.preset.form}"
        if plain:
            label = f"cosine: {len(index)} samples < min_samples {index.min_samples}"
        notes = embedded.notes

        def again(vector: npt.NDArray[np.float64]) -> Asked:
            return index.ask(vector, cosine_weight=1.0 if cosine else None)

        return VectorScores(
            asked.ids,
            values,
            label,
            plain,
            notes,
            rows,
            asked.some,
            asked.vectors,
            again,
            embedded,
            off,
        )

    def _uncertain_scores(self, index: RiemannianIndex, embedded: Embedded) -> VectorScores:
        for _ in range(_ATTEMPTS):
            keys = index.ask(embedded.vector).ids
            rows = index.vectors()
            if np.array_equal(index.ids, keys) and len(rows) == keys.size:
                break  # all three of one state of the index
        else:
            raise StoreLockedError(f"{self._store.path}: changed during {_ATTEMPTS} searches")
        values = self._uncertain.scores(embedded.vector, keys, lambda: rows)

        def some(positions: Ids) -> npt.NDArray[np.float64]:
            found: npt.NDArray[np.float64] = values[positions]
            return found

        def vectors(positions: Ids) -> Rows:
            return rows[positions]

        notes = embedded.notes
        return VectorScores(
            keys, values, "fisher-rao", False, notes, None, some, vectors, index.ask, embedded
        )

    def cosines(self, query: str, memory_ids: list[int]) -> dict[int, dict[str, float]]:
        """The plain cosine of the best vector of each memory, and the number of that vector."""
        index = self._follow()
        return _cosines(index, self._embedder.embed_query(query).vector, memory_ids)

    def vectors_of(self, memory_ids: list[int]) -> dict[int, Rows]:
        """The unit vectors of those memories that have some."""
        index = self._follow()
        ids, rows = index.ids, index.vectors()
        owners = ids[: len(rows)] // MAX_CHUNKS
        asked = np.flatnonzero(np.isin(owners, np.array(memory_ids, np.int64)))
        found: dict[int, list[int]] = {}
        for row in asked.tolist():
            found.setdefault(int(owners[row]), []).append(row)
        return {memory_id: rows[own] for memory_id, own in found.items()}

    def _best(
        self,
        index: RiemannianIndex,
        vector: Rows,
        k: int,
        keys: Ids | None,
    ) -> tuple[list[tuple[int, float]], str]:
        """The k best distinct memories: more rows are asked for while chunks take up places."""
        rows = len(index)
        several = rows > len(self._owners.vectors_of())
        asked = min(rows, 2 * k + 16 if several else k)
        while True:
            top = index.search(vector, k=asked, filter=keys)
            best: dict[int, float] = {}
            count = int(np.reshape(top.counts, -1)[0])
            for key, score in zip(
                np.reshape(top.indices, -1)[:count].tolist(),
                np.reshape(top.scores, -1)[:count].tolist(),
                strict=True,
            ):
                best.setdefault(key // MAX_CHUNKS, score)
            if len(best) >= k or count < asked or asked >= rows:
                return list(best.items())[:k], top.scoring
            asked = min(rows, 2 * asked)

    def _follow(self, mark: int | None = None) -> RiemannianIndex:
        """Take over what happened in the store since the last time."""
        followed = self._followed
        if mark is not None and followed is not None and followed[0] == mark:
            return followed[1]
        index = self._take_over()
        if mark is not None:
            self._followed = (mark, index)
        return index

    def _take_over(self) -> RiemannianIndex:
        identity = self._embedder.identity()
        with self._lock:
            if self._index is not None and self._index.dim != identity.dim:
                self._index, self._revision = None, -1  # embedded again, with another dimension
            if self._index is None and self._load(identity):
                assert self._index is not None
                return self._index
            news = changes(self._store, self._profile, self._revision, identity)
            if self._index is None:
                self._index, self._owners = empty_index(self.preset, identity.dim), Owners()
                self._raw = (news.memory_ids[:0], news.vectors[:0])
            self._apply(news)
            self._revision = news.revision
            return self._index

    def _load(self, identity: Identity) -> bool:
        """Read the vectors of many memories in parts; False where there are few."""
        for order in ("vectors.id", "memory_id, chunk"):
            reader = Loading(empty_index(self.preset, identity.dim), self._profile, self.preset)
            revision = every_vector(
                self._store, self._profile, identity, reader.begin, reader.take, order=order
            )
            if not reader.many:
                return False
            if revision is not None:
                self._kept = reader.adopt()
                self._index, self._owners, self._raw = reader.index, reader.owners, None
                self._revision = revision
                return True
        return False

    def keep(self) -> None:
        """Write what was learnt from many vectors into the store, for whoever opens it next."""
        if not worth_keeping(self._store):  # in a forked process the lock may be held for ever
            return
        with self._lock:
            index = self._index
            if index is None or self._kept == len(index) or len(index) <= loading.REBUILT_ROWS:
                return
            learnt = index._state()
            if learnt is None:
                return
            ids = index.ids
            segment = learnt_segment(learnt, ids, ids // MAX_CHUNKS, made_with(self.preset))
            if write_segments(self._store, self._profile, "metric", [segment], self._revision):
                self._kept = len(index)

    def _apply(self, news: Changes) -> None:
        assert self._index is not None
        fresh = by_memory(news.memory_ids, news.vector_ids)
        if not news.touched and not news.forgotten:
            return
        known = self._owners.vectors_of()
        stale = {
            memory_id
            for memory_id in {*news.touched, *news.forgotten}
            if memory_id in known and known[memory_id] != fresh.get(memory_id, ())
        }
        added = {m for m in fresh if m in stale or m not in known}
        if not stale and not added:
            return
        take = np.isin(news.memory_ids, _array(added))
        keys, rows = _keys(news.memory_ids), news.vectors
        if not take.all():  # at the first load it is all of them, and worth not copying
            keys, rows = keys[take], rows[take]
        old = self._index.ids
        gone = np.isin(old // MAX_CHUNKS, _array(stale))
        if self._raw is not None and old.size + keys.size <= loading.REBUILT_ROWS:
            keep = ~np.isin(self._raw[0] // MAX_CHUNKS, _array(stale))
            all_keys = np.concatenate([self._raw[0][keep], keys])
            all_rows = np.concatenate([self._raw[1][keep], rows])
            order = np.argsort(all_keys, kind="stable")
            self._raw = (all_keys[order], all_rows[order])
            index = empty_index(self.preset, self._index.dim)
            index.add(self._raw[1], ids=self._raw[0])
            self._index = index  # searches in other threads end on the one they began with
        else:
            self._raw = None
            if gone.any():
                self._index.remove(old[gone])
            self._index.add(rows, ids=keys)
        for memory_id in stale:
            del known[memory_id]
        known.update({memory_id: fresh[memory_id] for memory_id in added})


def _array(ids: set[int]) -> Ids:
    return np.fromiter(ids, np.int64, len(ids))


def _keys(memory_ids: Ids) -> Ids:
    """Number the vectors so that their order is by memory, then chunk: memory * 4096 + chunk."""
    if memory_ids.size == 0:
        return memory_ids
    starts = np.flatnonzero(np.r_[True, memory_ids[1:] != memory_ids[:-1]])
    lengths = np.diff(np.r_[starts, memory_ids.size])
    chunk = np.arange(memory_ids.size) - np.repeat(starts, lengths)
    keys: Ids = memory_ids * MAX_CHUNKS + chunk
    return keys


def _cosines(
    index: RiemannianIndex, vector: Rows, memory_ids: list[int]
) -> dict[int, dict[str, float]]:
    query = unit(vector)
    ids, rows = index.ids, index.vectors()
    owners = ids[: len(rows)] // MAX_CHUNKS
    details = {}
    for memory_id in memory_ids:
        mine = np.flatnonzero(owners == memory_id)
        if mine.size:
            cosines = [float(unit(rows[row]) @ query) for row in mine]
            best = int(np.argmax(cosines))
            details[memory_id] = {"cosine": cosines[best], "chunk": float(best)}
    return details

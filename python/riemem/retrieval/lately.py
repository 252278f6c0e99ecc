"""What a search reads of single memories, kept of those that were found lately."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from riemem.retrieval.token_rows import ROW_BYTES
from riemem.store import Store
from riemem.store.reads import Shown, rows_by_id
from riemem.store.token_vectors import token_rows_of

__all__ = ["KeptLately", "shown_rows", "token_rows"]

T = TypeVar("T")


class KeptLately(Generic[T]):
    """What is read of the memories of one profile, once until they change.

    Parameters
    ----------
    store : Store
    read : callable
        ``read(store, ids) -> dict``, of those that exist.
    size : callable
        Of what was read of one memory.
    most : int
        How many are kept.
    largest : int
        Of what size at most.

    Notes
    -----
    :class:`riemem.retrieval.corpus.Corpus` follows the store and tells what changed, by whichever
    process. What is kept is of the moment of its last look; it is used within a reading of that
    same moment only, and the lock of readings keeps the next look out meanwhile.
    """

    def __init__(
        self,
        store: Store,
        read: Callable[[Store, Sequence[int]], dict[int, T]],
        size: Callable[[T], int],
        most: int,
        largest: int,
    ) -> None:
        self._store, self._read, self._size = store, read, size
        self._most, self._largest = most, largest
        self._known: dict[int, T] = {}

    def of(self, ids: Sequence[int], mark: int | None) -> dict[int, T]:
        """Return what there is of these memories, within a reading.

        `mark` is the store's as of the last look; see :meth:`riemem.store.Store.mark`.
        """
        if mark is None or self._store.mark() != mark:
            return self._read(self._store, ids)
        known = self._known
        missing = [i for i in ids if i not in known]
        if not missing:
            return {i: known[i] for i in ids}
        fresh = self._read(self._store, missing)
        found = {i: row for i in ids if (row := known.get(i) or fresh.get(i)) is not None}
        new = {i: row for i, row in fresh.items() if self._size(row) <= self._largest}
        if len(new) > self._most:
            return found
        for memory_id in list(itertools.islice(known, max(0, len(known) + len(new) - self._most))):
            known.pop(memory_id, None)  # those that were read first
        known.update(new)
        return found

    def drop(self, ids: Iterable[int]) -> None:
        """Forget what was read of memories that were changed or forgotten."""
        for memory_id in ids:
            self._known.pop(memory_id, None)

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()


def shown_rows(store: Store) -> KeptLately[Shown]:
    """What a search shows of memories: at most 4,096 of them, of 2,048 characters each."""
    return KeptLately(store, rows_by_id, lambda row: len(row[1]) + len(row[6]), 4096, 2048)


def token_rows(store: Store) -> KeptLately[bytes]:
    """The vectors of memories' tokens: at most 16,384 of them, of 2 KiB each."""

    def read(store: Store, ids: Sequence[int]) -> dict[int, bytes]:
        with store.reading() as connection:
            return token_rows_of(connection, ids)

    def size(rows: bytes) -> int:
        # What is damaged may be put right without a change of its memory.
        return len(rows) if len(rows) % ROW_BYTES == 0 else 2049

    return KeptLately(store, read, size, 16384, 2048)

"""What a search shows of memories, kept of those that were found lately."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from riemem.store import Store
from riemem.store.reads import Shown, rows_by_id

__all__ = ["ShownRows"]

#: How many are kept, and of how many characters each at most.
_MOST = 4096
_MOST_CHARACTERS = 2048


class ShownRows:
    """Rows of the memories of one profile, read once until they change.

    Parameters
    ----------
    store : Store

    Notes
    -----
    :class:`riemem.retrieval.corpus.Corpus` follows the store and tells what changed, by whichever
    process. What is kept is of the moment of its last look; it is used within a reading of that
    same moment only, and the lock of readings keeps the next look out meanwhile.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[int, Shown] = {}

    def of(self, ids: Sequence[int], mark: int | None) -> dict[int, Shown]:
        """Return the rows of those memories that exist, within a reading.

        `mark` is the store's as of the last look; see :meth:`riemem.store.Store.mark`.
        """
        if mark is None or self._store.mark() != mark:
            return rows_by_id(self._store, ids)
        known = self._known
        missing = [i for i in ids if i not in known]
        if not missing:
            return {i: known[i] for i in ids}
        fresh = rows_by_id(self._store, missing)
        found = {i: row for i in ids if (row := known.get(i) or fresh.get(i)) is not None}
        if len(known) + len(fresh) > _MOST:
            known.clear()
        known.update((i, row) for i, row in fresh.items() if _size(row) <= _MOST_CHARACTERS)
        return found

    def drop(self, ids: Iterable[int]) -> None:
        """Forget the rows of memories that were changed or forgotten."""
        for memory_id in ids:
            self._known.pop(memory_id, None)

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()


def _size(row: Shown) -> int:
    return len(row[1]) + len(row[6])

"""Sensitivities of memories' texts, kept so that a second recall needs no language model.

A row belongs to a memory and goes with it: with `forget` by the foreign key, with a change of its
text or speaker by a trigger. The key is a hash of the text, the model and the condition.
"""

from __future__ import annotations

import threading

from riemem.errors import StoreLockedError
from riemem.store.sqlite import Store, has_table

__all__ = ["StoredSensitivities"]


class StoredSensitivities:
    """A cache for :class:`riemem.distill.Distiller` in a store.

    Parameters
    ----------
    store : Store
        Opened read-only it is read and not written.

    Notes
    -----
    What is new is written by `flush` in one transaction. When another process holds the store for
    longer than the timeout, nothing is written; it will be computed again.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._new: dict[tuple[int, str], bytes] = {}
        self._lock = threading.Lock()

    def get(self, memory_id: int, key: str) -> bytes | None:
        """Return what is kept for the memory under `key`."""
        with self._lock:
            new = self._new.get((memory_id, key))
        if new is not None:
            return new
        with self._store.reading() as connection:
            if not has_table(connection, "sensitivities"):
                return None
            row = connection.execute(
                "SELECT value FROM sensitivities WHERE memory_id = ? AND key = ?",
                (memory_id, key),
            ).fetchone()
        return None if row is None else bytes(row[0])

    def put(self, memory_id: int, key: str, value: bytes) -> None:
        """Keep `value` until `flush` writes it."""
        with self._lock:
            self._new[memory_id, key] = value

    def flush(self) -> int:
        """Write what is new, except for memories that have gone since; return how many rows."""
        with self._lock:
            rows = [(key, value, number) for (number, key), value in self._new.items()]
            self._new.clear()
        if not rows or self._store.readonly:
            return 0
        try:
            with self._store.writing() as transaction:
                transaction.connection.executemany(
                    "INSERT OR REPLACE INTO sensitivities (memory_id, key, value) "
                    "SELECT id, ?, ? FROM memories WHERE id = ?",
                    rows,
                )
        except StoreLockedError:
            return 0
        return len(rows)

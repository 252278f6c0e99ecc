"""Everything that changes memories, each within one transaction of a :class:`Store`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from riemem.errors import MemoryNotFoundError, StoreError
from riemem.store.filters import Scope
from riemem.store.records import Draft
from riemem.store.sqlite import (
    Identity,
    Store,
    Transaction,
    get_meta,
    require_identity,
    set_meta,
    write_identity,
)
from riemem.store.times import format_instant, now_us

__all__ = ["Change", "Forgotten", "compact", "existing_keys", "forget", "insert"]
__all__ += ["replace_vectors", "resume_erasure", "update"]


@dataclass(frozen=True)
class Forgotten:
    """Receipt of a forget.

    Attributes
    ----------
    ids : tuple of int
        What was forgotten, ascending.
    count : int
    bytes : int
        Size of the texts, metadata and vectors that were erased.
    at : str
        When, ISO 8601 UTC.
    erased : bool
        True when no trace is left in the file and its log. False when another process was using
        the store at that moment: the memories are gone for every reader, their bytes go at the
        next forget, compact or open that finds the store free.
    """

    ids: tuple[int, ...]
    count: int
    bytes: int
    at: str
    erased: bool


@dataclass(frozen=True)
class Change:
    """New values of one memory; `blobs` None leaves its vectors as they are."""

    memory_id: int
    draft: Draft
    seen_revision: int
    blobs: Sequence[bytes] | None


def existing_keys(store: Store, drafts: Sequence[Draft]) -> dict[tuple[str, str], int]:
    """Return the ids of those drafts' (profile, key) pairs that are already in the store."""
    with store.reading() as connection:
        found = {}
        for item in drafts:
            if item.key is not None:
                row = connection.execute(
                    "SELECT id FROM memories WHERE profile = ? AND key = ?",
                    (item.profile, item.key),
                ).fetchone()
                if row is not None:
                    found[item.profile, item.key] = int(row[0])
        return found


def insert(
    store: Store,
    drafts: Sequence[Draft],
    blobs: Sequence[Sequence[bytes]],
    identity: Identity,
) -> list[int]:
    """Store memories with their vectors, all of them or none, and return their ids.

    A draft whose key is already there (or comes twice) gets the id of the first and writes nothing.

    Parameters
    ----------
    drafts : sequence of Draft
    blobs : sequence of sequences of bytes
        The chunks' vectors of each draft.
    identity : Identity
        Whose vectors they are.

    Raises
    ------
    EmbedderMismatchError, StoreLockedError, StoreReadOnlyError, StoreError
    """
    with store.writing() as transaction:
        connection = transaction.connection
        if require_identity(connection, identity, store.path) is None:
            write_identity(connection, identity)
        keys: dict[tuple[str, str], int] = {}
        ids, rows, vectors, labels = [], [], [], []
        now = now_us()
        row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'memories'")
        next_id = int((row.fetchone() or (0,))[0]) + 1
        for item, chunks in zip(drafts, blobs, strict=True):
            if item.key is not None:
                known = keys.get((item.profile, item.key)) or _id_of_key(transaction, item)
                if known is not None:
                    ids.append(known)
                    continue
                keys[item.profile, item.key] = next_id
            observed = now if item.observed_at is None else item.observed_at
            rows.append(
                (
                    *(next_id, item.profile, item.session, item.speaker, item.text, item.metadata),
                    *(item.key, observed, now, now, transaction.revision),
                )
            )
            vectors += [(next_id, chunk, blob) for chunk, blob in enumerate(chunks)]
            labels += [(next_id, key, value) for key, value in item.labels]
            ids.append(next_id)
            next_id += 1
        connection.executemany(
            "INSERT INTO memories (id, profile, session, speaker, text, metadata, key, "
            "observed_at, created_at, updated_at, revision) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
        _insert_vectors(transaction, vectors)
        _insert_labels(transaction, labels)
    return ids


def update(store: Store, change: Change, identity: Identity | None) -> bool:
    """Replace a memory's values; False (and nothing done) if it changed since it was read.

    Raises
    ------
    MemoryNotFoundError
        It was forgotten meanwhile.
    """
    item = change.draft
    with store.writing() as transaction:
        connection = transaction.connection
        row = connection.execute(
            "SELECT revision FROM memories WHERE id = ?", (change.memory_id,)
        ).fetchone()
        if row is None:
            raise MemoryNotFoundError(f"id: there is no memory {change.memory_id}")
        if int(row[0]) != change.seen_revision:
            return False
        connection.execute(
            "UPDATE memories SET session = ?, speaker = ?, text = ?, metadata = ?, "
            "observed_at = ?, updated_at = ?, revision = ? WHERE id = ?",
            (
                *(item.session, item.speaker, item.text, item.metadata, item.observed_at),
                *(now_us(), transaction.revision, change.memory_id),
            ),
        )
        connection.execute("DELETE FROM labels WHERE memory_id = ?", (change.memory_id,))
        _insert_labels(transaction, [(change.memory_id, k, v) for k, v in item.labels])
        if change.blobs is not None and identity is not None:
            require_identity(connection, identity, store.path)
            connection.execute("DELETE FROM vectors WHERE memory_id = ?", (change.memory_id,))
            _insert_vectors(
                transaction, [(change.memory_id, i, blob) for i, blob in enumerate(change.blobs)]
            )
        return True


def replace_vectors(
    store: Store,
    blobs: Mapping[int, Sequence[bytes]],
    identity: Identity,
    seen_revision: int,
) -> bool:
    """Replace the vectors of these memories; False if the store changed since they were read."""
    with store.writing() as transaction:
        connection = transaction.connection
        if transaction.revision != seen_revision + 1:
            # Nothing was changed; the number taken by this transaction marks no row.
            return False
        connection.executemany(
            "DELETE FROM vectors WHERE memory_id = ?", [(memory_id,) for memory_id in blobs]
        )
        _insert_vectors(
            transaction,
            [(m, chunk, blob) for m, chunks in blobs.items() for chunk, blob in enumerate(chunks)],
        )
        connection.executemany(
            "UPDATE memories SET revision = ? WHERE id = ?",
            [(transaction.revision, memory_id) for memory_id in blobs],
        )
        write_identity(connection, identity)
        return True


def forget(store: Store, where: Scope, ids: Sequence[int] | None = None) -> Forgotten:
    """Erase the memories of a scope, or some ids that must all lie in it.

    Rows, vectors, labels and words go in one transaction; then the file is rewritten and its log
    emptied, because a page may keep stale copies of rows that once lay in it. If the process dies
    in between, the next open does the rest.

    Raises
    ------
    MemoryNotFoundError
        An id is not in the scope; nothing was changed.
    """
    wanted = where if ids is None else where.only(ids)
    with store.writing() as transaction:
        connection = transaction.connection
        found = connection.execute(
            "SELECT id, length(CAST(text AS BLOB)) + length(CAST(metadata AS BLOB)) + coalesce("
            "(SELECT sum(length(vector)) FROM vectors WHERE memory_id = memories.id), 0) "
            f"FROM memories WHERE {wanted.where} ORDER BY id",
            wanted.parameters,
        ).fetchall()
        gone = [int(row[0]) for row in found]
        missing = [] if ids is None else [i for i in ids if i not in set(gone)]
        if missing:
            shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
            raise MemoryNotFoundError(
                f"ids: there is no memory {shown} in this scope; nothing was forgotten"
            )
        if gone:
            listed = (json.dumps(gone),)
            connection.execute(
                "DELETE FROM memories WHERE id IN (SELECT value FROM json_each(?))", listed
            )
            connection.execute(
                "INSERT INTO forgotten (id, revision) SELECT value, ? FROM json_each(?)",
                (transaction.revision, *listed),
            )
            # Deleting from the word index only marks; merging is what removes the words.
            connection.execute("INSERT INTO memories_fts (memories_fts) VALUES ('optimize')")
            set_meta(connection, "erasing", transaction.revision)
    at = format_instant(now_us())
    erased = resume_erasure(store) if gone else True
    return Forgotten(tuple(gone), len(gone), sum(int(row[1]) for row in found), at, erased)


def resume_erasure(store: Store) -> bool:
    """Do what a forget left to do, if anything; False when that is not possible now.

    The memories are forgotten by then; what is left is recorded in the file, said in the receipt
    and in the statistics, and done by the next forget, compact or open.
    """
    with store.reading() as connection:
        if get_meta(connection, "erasing") is None:
            return True
    try:
        return compact(store)
    except StoreError:
        return False


def compact(store: Store) -> bool:
    """Rewrite the file without free space and empty its log; False when others were reading."""
    with store.exclusive() as connection:
        pending = get_meta(connection, "erasing")
        connection.execute("INSERT INTO memories_fts (memories_fts) VALUES ('optimize')")
        connection.execute("VACUUM")
        busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if not busy and pending is not None:
            # Only what was pending before: another process may have forgotten more meanwhile.
            connection.execute("DELETE FROM meta WHERE key = 'erasing' AND value = ?", (pending,))
        return not busy


def _id_of_key(transaction: Transaction, item: Draft) -> int | None:
    row = transaction.connection.execute(
        "SELECT id FROM memories WHERE profile = ? AND key = ?", (item.profile, item.key)
    ).fetchone()
    return None if row is None else int(row[0])


def _insert_vectors(transaction: Transaction, rows: list[tuple[int, int, bytes]]) -> None:
    transaction.connection.executemany(
        "INSERT INTO vectors (memory_id, chunk, vector) VALUES (?, ?, ?)", rows
    )


def _insert_labels(transaction: Transaction, rows: list[tuple[int, str, str]]) -> None:
    transaction.connection.executemany(
        "INSERT INTO labels (memory_id, key, value) VALUES (?, ?, ?)", rows
    )

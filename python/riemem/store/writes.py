"""Everything that changes memories, each within one transaction of a :class:`Store`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from riemem.clustering import MaxMemberClusters
from riemem.errors import MemoryNotFoundError, StoreError
from riemem.store import atoms, awake, claims, feedback, trust
from riemem.store.filters import Scope
from riemem.store.records import Draft
from riemem.store.sqlite import (
    Identity,
    Store,
    Transaction,
    get_meta,
    read_identity,
    require_identity,
    set_meta,
    write_identity,
)
from riemem.store.times import format_instant, now_us
from riemem.store.token_vectors import Tokens, begin_with, of_embedder, write_rows

__all__ = ["Change", "Forgotten", "Origin", "already_there", "compact", "forget", "insert"]
__all__ += ["never_held_any", "replace_vectors", "resume_erasure", "update"]


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
    """New values of one memory; `blobs` None leaves its vectors as they are.

    `fields` names what changes, for the history.
    """

    memory_id: int
    draft: Draft
    seen_revision: int
    blobs: Sequence[bytes] | None
    fields: tuple[str, ...] = ()
    read_claims: bool = True
    tokens: Tokens | None = None


class Origin(NamedTuple):
    """What an imported memory was in the store it comes from."""

    id: int
    created_at: int
    updated_at: int


def already_there(
    store: Store, drafts: Sequence[Draft], *, skip_duplicates: bool = False
) -> dict[int, int]:
    """Return the positions of the drafts that need not be stored, with the ids of their memories.

    Parameters
    ----------
    drafts : sequence of Draft
    skip_duplicates : bool
        Beside those whose key is there, also those that repeat a memory in everything they say.
    """
    if not skip_duplicates and all(item.key is None for item in drafts):
        return {}
    with store.reading() as connection:
        return {
            position: found
            for position, item in enumerate(drafts)
            if (found := _known(connection, item, skip_duplicates)) is not None
        }


def insert(
    store: Store,
    drafts: Sequence[Draft],
    blobs: Sequence[Sequence[bytes]],
    identity: Identity,
    *,
    skip_duplicates: bool = False,
    origins: Sequence[Origin] | None = None,
    read_claims: bool = True,
    tokens: Tokens | None = None,
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
    skip_duplicates : bool
        The same for a draft that repeats a memory in everything it says.
    origins : sequence of Origin, optional
        Where the drafts come from, ids ascending; they keep their ids if this store never held a
        memory.
    read_claims : bool
        Read what they claim, and note what that conflicts with.
    tokens : Tokens, optional
        The vectors of their tokens, for a store that keeps them or begins to.

    Raises
    ------
    KeepsTokens
        It keeps them, and `tokens` is None; nothing was stored.
    EmbedderMismatchError, StoreLockedError, StoreReadOnlyError, StoreError
    """
    with store.writing() as transaction:
        connection = transaction.connection
        if require_identity(connection, identity, store.path) is None:
            write_identity(connection, identity)
            begin_with(connection, identity, tokens)
            of_embedder(connection, identity, tokens)
        same: dict[object, int] = {}  # what was given in this call so far
        ids, rows, vectors, labels, said, own = [], [], [], [], [], []
        now = now_us()
        row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'memories'")
        first_id = next_id = int((row.fetchone() or (0,))[0]) + 1
        keep = origins is not None and next_id == 1
        for i, (item, chunks) in enumerate(zip(drafts, blobs, strict=True)):
            if origins is not None and keep:
                next_id = origins[i].id
            if item.key is not None or skip_duplicates:
                what = item if item.key is None else (item.profile, item.key)
                known = same.get(what) or _known(connection, item, skip_duplicates)
                if known is not None:
                    ids.append(known)
                    continue
                same[what] = next_id
            observed = now if item.observed_at is None else item.observed_at
            created, updated = (now, now) if origins is None else origins[i][1:]
            rows.append(
                (
                    *(next_id, item.profile, item.session, item.speaker, item.text, item.metadata),
                    *(item.key, observed, created, updated, transaction.revision),
                )
            )
            vectors += [(next_id, chunk, blob) for chunk, blob in enumerate(chunks)]
            labels += [(next_id, key, value) for key, value in item.labels]
            said.append((next_id, item, observed))
            own.append(i)
            ids.append(next_id)
            next_id += 1
        connection.executemany(
            "INSERT INTO memories (id, profile, session, speaker, text, metadata, key, "
            "observed_at, created_at, updated_at, revision) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
        connection.execute(
            "INSERT INTO memories_fts (rowid, speaker, text, day) "
            "SELECT id, speaker, text, day FROM words WHERE id BETWEEN ? AND ?",
            (first_id, next_id - 1),
        )
        _insert_vectors(transaction, vectors)
        write_rows(
            transaction, [row[0] for row in rows], None if tokens is None else tokens.of(own)
        )
        firsts = {memory_id: blob for memory_id, chunk, blob in vectors if chunk == 0}
        _insert_labels(transaction, labels)
        trust.remember_origin(
            transaction, [(i, it.source, it.valid_from, it.valid_to) for i, it, _ in said]
        )
        if read_claims:
            claims.record(transaction, [_said(*new) for new in said])
        placed = atoms.place(
            store,
            transaction,
            [(new[0], new[1], blob) for new in rows if (blob := firsts.get(new[0])) is not None],
        )
    atoms.remember(store, transaction, placed)
    return ids


def update(store: Store, change: Change, identity: Identity | None) -> bool:
    """Replace a memory's values; False (and nothing done) if it changed since it was read.

    Raises
    ------
    MemoryNotFoundError
        It was forgotten meanwhile.
    KeepsTokens
        As :func:`insert`.
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
        placed: dict[str, MaxMemberClusters] = {}
        connection.execute("DELETE FROM labels WHERE memory_id = ?", (change.memory_id,))
        _insert_labels(transaction, [(change.memory_id, k, v) for k, v in item.labels])
        if change.blobs is not None and identity is not None:
            require_identity(connection, identity, store.path)
            connection.execute("DELETE FROM vectors WHERE memory_id = ?", (change.memory_id,))
            _insert_vectors(
                transaction, [(change.memory_id, i, blob) for i, blob in enumerate(change.blobs)]
            )
            write_rows(transaction, [change.memory_id], change.tokens)
            atoms.leave(connection, [change.memory_id])
            first = [(change.memory_id, item.profile, blob) for blob in change.blobs[:1]]
            placed = atoms.place(store, transaction, first)
        trust.log(connection, change.memory_id, "updated", fields=list(change.fields))
        if {"source", "valid_from", "valid_to"} & set(change.fields):
            trust.change_origin(
                transaction, change.memory_id, item.source, item.valid_from, item.valid_to
            )
        if {"text", "speaker", "when", "valid_from", "valid_to"} & set(change.fields):
            claims.drop(transaction, change.memory_id)
            if change.read_claims:
                observed = now_us() if item.observed_at is None else item.observed_at
                claims.record(transaction, [_said(change.memory_id, item, observed)])
    atoms.remember(store, transaction, placed)
    return True


def replace_vectors(
    store: Store,
    blobs: Mapping[int, Sequence[bytes]],
    identity: Identity,
    seen_revision: int,
    tokens: Tokens | None = None,
) -> bool:
    """Replace the vectors of these memories; False if the store changed since they were read.

    `tokens` are those of the memories, in the order of `blobs`; see :func:`insert`.
    """
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
        if read_identity(connection) is None:
            begin_with(connection, identity, tokens)
        write_identity(connection, identity)
        of_embedder(connection, identity, tokens)
        write_rows(transaction, list(blobs), tokens)
        # The triggers see what is deleted; a vector that was missing deletes nothing.
        connection.execute("DELETE FROM segments WHERE kind = 'metric'")
        atoms.leave(connection, list(blobs))
        placed = atoms.place_missing(store, transaction)
    atoms.remember(store, transaction, placed)
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
            "(SELECT sum(length(vector)) FROM vectors WHERE memory_id = memories.id), 0) + "
            "coalesce((SELECT length(data) FROM token_vectors WHERE memory_id = memories.id), 0) "
            f"FROM memories WHERE {wanted.where} ORDER BY id",
            wanted.parameters,
        ).fetchall()
        gone = [int(row[0]) for row in found]
        there = set(gone)
        missing = [] if ids is None else [i for i in ids if i not in there]
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
            atoms.release(store, connection, where.profile)
            feedback.release(connection, where.profile)
            awake.release(connection, where.profile)
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


def never_held_any(store: Store) -> bool:
    """Whether no memory was ever in this store, so that any id is free."""
    with store.reading() as connection:
        row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'memories'")
        return int((row.fetchone() or (0,))[0]) == 0


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


def _said(memory_id: int, item: Draft, observed: int) -> claims.Said:
    return claims.Said(
        *(memory_id, item.profile, item.text, item.speaker, observed),
        *(item.valid_from, item.valid_to),
    )


def _known(connection: sqlite3.Connection, item: Draft, skip_duplicates: bool) -> int | None:
    """The memory with the draft's key, or, if wanted and it has none, one that says the same."""
    if item.key is not None:
        sql = "SELECT id FROM memories WHERE profile = ? AND key = ?"
        values: tuple[object, ...] = (item.profile, item.key)
    elif skip_duplicates:
        sql = (
            "SELECT min(id) FROM memories WHERE profile = ? AND session IS ? AND speaker IS ? "
            "AND text = ? AND metadata = ?"
        )
        values = (item.profile, item.session, item.speaker, item.text, item.metadata)
        if item.observed_at is not None:
            sql, values = f"{sql} AND observed_at = ?", (*values, item.observed_at)
    else:
        return None
    row = connection.execute(sql, values).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def _insert_vectors(transaction: Transaction, rows: list[tuple[int, int, bytes]]) -> None:
    transaction.connection.executemany(
        "INSERT INTO vectors (memory_id, chunk, vector) VALUES (?, ?, ?)", rows
    )


def _insert_labels(transaction: Transaction, rows: list[tuple[int, str, str]]) -> None:
    transaction.connection.executemany(
        "INSERT INTO labels (memory_id, key, value) VALUES (?, ?, ?)", rows
    )

"""Everything that is read from a :class:`Store`, each call from one moment."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from riemem.errors import MemoryNotFoundError
from riemem.store.connect import IN_MEMORY
from riemem.store.filters import Scope
from riemem.store.records import Record
from riemem.store.sqlite import Identity, Store, get_meta, read_identity, require_identity
from riemem.store.times import format_instant
from riemem.store.token_vectors import late_interaction, token_rows_of
from riemem.store.vectors import decode, fetch_vectors

__all__ = [
    "ORDERS",
    "Changes",
    "Vectors",
    "changes",
    "every_vector",
    "find_ids",
    "find_one",
    "find_records",
    "revision_of",
]
__all__ += ["first_vectors", "population", "statistics", "stored_vectors", "token_rows_of"]

_read_json = json.JSONDecoder().raw_decode

_COLUMNS = "id, text, speaker, session, profile, observed_at, created_at, updated_at, metadata, key"

#: A row with those columns.
Row = tuple[Any, ...]

#: What a search shows of a memory: times in microseconds, metadata as JSON text.
_SHOWN = "id, text, speaker, session, observed_at, created_at, metadata"
Shown = tuple[int, str, "str | None", "str | None", int, int, str]

ORDERS = {
    "time": "observed_at, id",
    "-time": "observed_at DESC, id DESC",
    "id": "id",
    "-id": "id DESC",
}


#: Vectors read together: 384 numbers each, they fit the cache twice. Opening 100,000 took a tenth
#: more with twice or half as many (RIEMEM_BENCH_STORE=100000 pytest bench/bench_store.py -k open).
_PART = 512


class Vectors(NamedTuple):
    """Some vectors of a profile, one entry each; `rows` is written over by the next part."""

    memory_ids: npt.NDArray[np.int64]
    chunks: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    rows: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Changes:
    """What happened in a profile since a revision.

    Attributes
    ----------
    revision : int
        Ask from here next time.
    identity : Identity or None
        None while the store holds no vectors.
    forgotten : tuple of int
        Memory ids, of any profile.
    touched : tuple of int
        Memory ids of this profile that were added or changed, ascending.
    memory_ids, vector_ids : (n,) int64 ndarray
        One entry per vector of the touched memories, by memory and chunk.
    vectors : (n, dim) float32 ndarray
    """

    revision: int
    identity: Identity | None
    forgotten: tuple[int, ...]
    touched: tuple[int, ...]
    memory_ids: npt.NDArray[np.int64]
    vector_ids: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.float32]


def find_one(store: Store, where: Scope, memory_id: int) -> Record:
    """Return one memory of a scope.

    Raises
    ------
    MemoryNotFoundError
        There is none with this id in the scope.
    """
    return revision_of(store, where, memory_id)[0]


def revision_of(store: Store, where: Scope, memory_id: int) -> tuple[Record, int]:
    """Return one memory and the revision that wrote it.

    Raises
    ------
    MemoryNotFoundError
    """
    with store.reading() as connection:
        row = require_one(connection, where, memory_id, f"{_COLUMNS}, revision")
    return record_of(row), int(row[-1])


def require_one(
    connection: sqlite3.Connection, where: Scope, memory_id: int, columns: str
) -> tuple[Any, ...]:
    """Return columns of one memory of a scope.

    Raises
    ------
    MemoryNotFoundError
        There is none with this id in the scope.
    """
    row: tuple[Any, ...] | None = connection.execute(
        f"SELECT {columns} FROM memories WHERE id = ? AND {where.where}",
        (memory_id, *where.parameters),
    ).fetchone()
    if row is None:
        raise MemoryNotFoundError(f"id: there is no memory {memory_id} in this scope")
    return row


def find_records(
    store: Store, where: Scope, *, order: str = "time", limit: int | None = None, offset: int = 0
) -> list[Record]:
    """Return the memories of a scope in one of the :data:`ORDERS`."""
    with store.reading() as connection:
        rows = connection.execute(
            f"SELECT {_COLUMNS} FROM memories WHERE {where.where} ORDER BY {ORDERS[order]} "
            "LIMIT ? OFFSET ?",
            (*where.parameters, -1 if limit is None else limit, offset),
        ).fetchall()
    return [record_of(row) for row in rows]


def find_ids(store: Store, where: Scope) -> npt.NDArray[np.int64]:
    """Return the ids of a scope, ascending."""
    with store.reading() as connection:
        rows = connection.execute(
            f"SELECT id FROM memories WHERE {where.where} ORDER BY id", where.parameters
        ).fetchall()
    return np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows))


def rows_by_id(store: Store, ids: Iterable[int]) -> dict[int, Shown]:
    """Return what is shown of the memories with these ids that (still) exist."""
    with store.reading() as connection:
        rows = connection.execute(
            f"SELECT {_SHOWN} FROM memories WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        ).fetchall()
    return {row[0]: row for row in rows}


def changes(store: Store, profile: str, since: int, identity: Identity) -> Changes:
    """Return what was added, changed and forgotten after revision `since` (-1: everything).

    Raises
    ------
    EmbedderMismatchError
        The store's vectors are not of `identity`.
    """
    with store.reading() as connection:
        stored = require_identity(connection, identity, store.path)
        revision = int(get_meta(connection, "revision") or 0)
        rows: list[tuple[int, int, int, bytes]] = []
        touched: list[int] = []
        forgotten: list[int] = []
        if revision != since:
            # All of them are read as they lie in the file, a few by way of the index of revisions.
            tables = "vectors CROSS JOIN memories" if since < 0 else "memories JOIN vectors"
            rows = connection.execute(
                f"SELECT memory_id, chunk, vectors.id, vector FROM {tables} "
                "ON memory_id = memories.id WHERE profile = ? AND revision > ?",
                (profile, since),
            ).fetchall()
            touched = _column(
                connection,
                "SELECT id FROM memories WHERE profile = ? AND revision > ? ORDER BY id",
                (profile, since),
            )
            if since >= 0:
                forgotten = _column(
                    connection, "SELECT id FROM forgotten WHERE revision > ? ORDER BY id", (since,)
                )
    return Changes(
        revision, stored, tuple(forgotten), tuple(touched), *_in_order(rows, identity.dim)
    )


def every_vector(
    store: Store,
    profile: str,
    identity: Identity,
    begin: Callable[[sqlite3.Connection, int], None],
    take: Callable[[Vectors], bool],
    *,
    order: str = "vectors.id",
) -> int | None:
    """Hand over all vectors of a profile in parts; return the revision.

    Parameters
    ----------
    begin : callable
        Called first, with the connection and the number of memories.
    take : callable
        Takes a part; if it returns False, nothing more is read and the answer is None.
    order : {"vectors.id", "memory_id, chunk"}
        As they lie in the file, which is faster, and the order of memories where none was updated;
        or that order for certain.

    Raises
    ------
    EmbedderMismatchError
        The store's vectors are not of `identity`.

    Notes
    -----
    A part fits the processor's cache, so that what is done with it costs no second reading.
    """
    with store.reading() as connection:
        require_identity(connection, identity, store.path)
        revision = int(get_meta(connection, "revision") or 0)
        count, alone = population(connection, profile)
        begin(connection, count)
        joined = "" if alone else "JOIN memories ON memories.id = memory_id "
        cursor = connection.execute(
            f"SELECT memory_id, chunk, vectors.id, vector FROM vectors {joined}"
            f"WHERE {'?1 = ?1' if alone else 'profile = ?1'} ORDER BY {order}",
            (profile,),
        )
        for numbers, rows in fetch_vectors(cursor, identity.dim, _PART):
            if not take(Vectors(numbers[0], numbers[1], numbers[2], rows)):
                return None
    return revision


def population(connection: sqlite3.Connection, profile: str) -> tuple[int, bool]:
    """Return how many memories a profile has, and whether no other has any."""
    others = connection.execute(
        "SELECT 1 FROM memories WHERE profile < ?1 UNION ALL "
        "SELECT 1 FROM memories WHERE profile > ?1 LIMIT 1",
        (profile,),
    ).fetchone()
    # SQLite counts the rows of a table without looking at them.
    sql = "SELECT count(*) FROM memories"
    if others is None:
        return int(connection.execute(sql).fetchone()[0]), True
    found = connection.execute(f"{sql} WHERE profile = ?", (profile,)).fetchone()
    return int(found[0]), False


def _in_order(
    rows: list[tuple[int, int, int, bytes]], dim: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Memory ids, vector ids and vectors by memory, then chunk."""
    if not rows:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, dim), np.float32)
    memories, chunks, ids, blobs = zip(*rows, strict=True)
    memory_ids, vector_ids = np.array(memories, np.int64), np.array(ids, np.int64)
    vectors = decode(blobs, dim, ids)
    order = np.lexsort((np.array(chunks, np.int64), memory_ids))
    if (order[1:] > order[:-1]).all():
        return memory_ids, vector_ids, vectors
    return memory_ids[order], vector_ids[order], vectors[order]


def stored_vectors(store: Store, memory_id: int) -> npt.NDArray[np.float32]:
    """Return a memory's vectors, one row per chunk."""
    with store.reading() as connection:
        identity = read_identity(connection)
        blobs = _column(
            connection,
            "SELECT vector FROM vectors WHERE memory_id = ? ORDER BY chunk",
            (memory_id,),
        )
    return decode(blobs, identity.dim if identity else 0)


def first_vectors(
    store: Store, where: Scope
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the ids of a scope's memories, ascending, and the vector of each first window."""
    with store.reading() as connection:
        identity = read_identity(connection)
        rows = connection.execute(
            "SELECT memory_id, vector FROM vectors WHERE chunk = 0 AND memory_id IN "
            f"(SELECT id FROM memories WHERE {where.where}) ORDER BY memory_id",
            where.parameters,
        ).fetchall()
    ids = np.array([row[0] for row in rows], np.int64)
    return ids, decode([row[1] for row in rows], identity.dim if identity else 0)


def everything(store: Store) -> tuple[int, list[Record]]:
    """Return the revision and every memory of every profile, by id."""
    with store.reading() as connection:
        revision = int(get_meta(connection, "revision") or 0)
        rows = connection.execute(f"SELECT {_COLUMNS} FROM memories ORDER BY id").fetchall()
    return revision, [record_of(row) for row in rows]


def statistics(store: Store, where: Scope) -> dict[str, Any]:
    """Return counts of a scope and facts about the whole file."""
    with store.reading() as connection:
        count, sessions, speakers, first, last, size = connection.execute(
            "SELECT count(*), count(DISTINCT session), count(DISTINCT speaker), "
            "min(observed_at), max(observed_at), sum(length(CAST(text AS BLOB))) "
            f"FROM memories WHERE {where.where}",
            where.parameters,
        ).fetchone()
        profiles = connection.execute(
            "SELECT profile, count(*) FROM memories GROUP BY profile ORDER BY profile"
        ).fetchall()
        vectors = connection.execute("SELECT count(*) FROM vectors").fetchone()[0]
        identity = read_identity(connection)
        erasing = get_meta(connection, "erasing") is not None
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        late = late_interaction(connection)
    return {
        "path": store.path,
        "profile": where.profile,
        "memories": count,
        "sessions": sessions,
        "speakers": speakers,
        "text_bytes": size or 0,
        "first": None if first is None else format_instant(first),
        "last": None if last is None else format_instant(last),
        "profiles": dict(profiles),
        "total_memories": sum(number for _, number in profiles),
        "total_vectors": vectors,
        "embedder": identity.embedder if identity else None,
        "dim": identity.dim if identity else None,
        "rendering": identity.rendering if identity else None,
        "schema_version": version,
        "sqlite_version": sqlite3.sqlite_version,
        "file_bytes": _size(store.path),
        "log_bytes": _size(os.path.realpath(store.path) + "-wal"),
        "erasure_pending": erasing,
        "late_interaction": asdict(late),
    }


def _size(path: str) -> int:
    # stat, never open: see riemem.store.connect.
    try:
        return 0 if path == IN_MEMORY else os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _column(connection: sqlite3.Connection, sql: str, parameters: tuple[Any, ...]) -> list[Any]:
    return [row[0] for row in connection.execute(sql, parameters)]


def metadata_of(text: str) -> dict[str, Any]:
    """Return stored metadata."""
    if text == "{}":
        return {}
    found, end = _read_json(text)  # half of the time of json.loads, which looks for blanks
    if end != len(text):
        raise ValueError(f"metadata: expected one JSON object, got {text:.80}")
    return dict(found)


def record_of(row: Row) -> Record:
    """Return the memory that a row of the table holds."""
    created_at = format_instant(row[6])
    return Record(
        id=int(row[0]),
        text=row[1],
        speaker=row[2],
        session=row[3],
        profile=row[4],
        when=format_instant(row[5]),
        created_at=created_at,
        updated_at=created_at if row[7] == row[6] else format_instant(row[7]),
        metadata=metadata_of(row[8]),
        key=row[9],
    )

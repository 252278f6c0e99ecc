"""What confirmed uses taught about each dimension of a memory's vector.

Kept is the precision gained, the sum of 1 / variance of the queries that a memory answered, as
float32. Precisions only grow and a variance is clipped from below, so clipping at the end gives
what clipping after each use would.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from riemem.errors import StoreCorruptError
from riemem.fisher_rao import signal_variance
from riemem.store.sqlite import Store, has_table, read_identity

__all__ = ["check_precisions", "gained", "learn", "repair_precisions"]

Rows = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


def learn(connection: sqlite3.Connection, ids: Sequence[int], query: Rows) -> None:
    """Add a query's precision to memories that answered it."""
    known = {
        int(memory_id): np.frombuffer(blob, "<f4")
        for memory_id, blob in connection.execute(
            "SELECT memory_id, gained FROM precisions "
            "WHERE memory_id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        )
    }
    taught = (1.0 / signal_variance(query[None])[0].astype(np.float64)).astype("<f4")
    rows = []
    for memory_id in ids:
        before = known.get(memory_id)
        if before is not None and before.shape != taught.shape:
            raise StoreCorruptError(
                f"precisions: expected {taught.size} numbers for memory {memory_id}, got "
                f"{before.size}; nothing was changed; `riemem check --repair` forgets them"
            )
        total = taught if before is None else before + taught
        rows.append((memory_id, total.astype("<f4").tobytes()))
    connection.executemany(
        "INSERT INTO precisions (memory_id, gained, confirmed) VALUES (?, ?, 1) ON CONFLICT "
        "(memory_id) DO UPDATE SET gained = excluded.gained, confirmed = confirmed + 1",
        rows,
    )


def gained(store: Store, profile: str, dim: int) -> tuple[Ids, Rows]:
    """Return the memories that learnt something, ascending, and the precision each gained.

    Raises
    ------
    StoreCorruptError
        A row is of another dimension or holds something else than positive numbers.
    """
    with store.reading() as connection:
        found: list[tuple[int, bytes]] = []
        if has_table(connection, "precisions"):
            found = connection.execute(
                "SELECT memory_id, gained FROM precisions WHERE memory_id IN "
                "(SELECT id FROM memories WHERE profile = ?) ORDER BY memory_id",
                (profile,),
            ).fetchall()
    ids = np.array([row[0] for row in found], np.int64)
    rows = np.zeros((ids.size, dim), np.float32)
    for i, (memory_id, blob) in enumerate(found):
        if (problem := _problem(blob, dim)) is not None:
            raise StoreCorruptError(
                f"precisions: memory {memory_id}: {problem}; `riemem check --repair` forgets them"
            )
        rows[i] = np.frombuffer(blob, "<f4")
    return ids, rows


def check_precisions(connection: sqlite3.Connection) -> list[str]:
    """Return what is wrong with what was learnt."""
    return [f"precisions: memory {memory_id}: {problem}" for memory_id, problem in _bad(connection)]


def repair_precisions(connection: sqlite3.Connection) -> None:
    """Forget what cannot be read; those memories are as unsure as new ones."""
    connection.executemany(
        "DELETE FROM precisions WHERE memory_id = ?", [(m,) for m, _ in _bad(connection)]
    )


def _bad(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    identity = read_identity(connection)
    dim = identity.dim if identity else 0
    rows = connection.execute(
        "SELECT memory_id, gained, confirmed, (SELECT count(*) FROM uses u WHERE u.memory_id = "
        "precisions.memory_id AND u.kind = 'confirmed') FROM precisions ORDER BY memory_id"
    )
    bad = []
    for memory_id, blob, confirmed, seen in rows.fetchall():
        problem = _problem(blob, dim)
        if problem is None and not 1 <= confirmed <= seen:
            problem = f"learnt from {confirmed} uses, but {seen} are in its log"
        if problem is not None:
            bad.append((memory_id, problem))
    return bad


def _problem(blob: bytes, dim: int) -> str | None:
    if len(blob) != 4 * dim:
        return f"expected {4 * dim} bytes of precisions, got {len(blob)}"
    row = np.frombuffer(blob, "<f4")
    if not (np.isfinite(row).all() and (row > 0.0).all()):
        return "expected finite positive precisions"
    return None

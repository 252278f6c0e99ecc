"""The log of what happened to memories: that they were used, that it helped, how much they matter.

Rows are only added. Each memory's are numbered from 1; they go with the memory.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from riemem.errors import MemoryNotFoundError, StoreCorruptError
from riemem.lifecycle import Events
from riemem.store.filters import Scope
from riemem.store.precisions import learn
from riemem.store.sqlite import Store, Transaction, get_meta, has_table

__all__ = ["KINDS", "Log", "counts", "last_maintenance", "read_log", "record"]

KINDS = ("used", "confirmed", "importance")

Ids = npt.NDArray[np.int64]


class Log(NamedTuple):
    """The events of some memories, and how many each has."""

    events: Events
    counts: Ids


def record(
    store: Store,
    where: Scope,
    ids: Sequence[int],
    kind: str,
    at: int,
    *,
    importance: float | None = None,
    query: npt.NDArray[np.float32] | None = None,
) -> None:
    """Append an event to the log of some memories, all of which must be in the scope.

    Parameters
    ----------
    kind : {"used", "confirmed", "importance"}
    at : int
        Microseconds since 1970. What is reported after a maintenance that it lies before counts
        from that maintenance on.
    importance : float, optional
        Of kind "importance".
    query : (d,) float32 ndarray, optional
        Of kind "confirmed": what the memories learn from.

    Raises
    ------
    MemoryNotFoundError
        An id is not in the scope; nothing was recorded.
    """
    with store.writing() as transaction:
        connection = transaction.connection
        wanted = where.only(ids)
        rows = connection.execute(
            f"SELECT id FROM memories WHERE {wanted.where}", wanted.parameters
        ).fetchall()
        missing = sorted(set(ids) - {int(row[0]) for row in rows})
        if missing:
            raise MemoryNotFoundError(
                f"ids: there is no memory {', '.join(map(str, missing[:10]))} in this scope; "
                "nothing was recorded"
            )
        append(transaction, where.profile, ids, kind, at, importance=importance)
        if query is not None:
            learn(connection, ids, query)


def append(
    transaction: Transaction,
    profile: str,
    ids: Sequence[int],
    kind: str,
    at: int,
    *,
    importance: float | None = None,
) -> None:
    """Append an event to the log of memories of a profile, within a write."""
    connection = transaction.connection
    last = last_maintenance(connection, profile)
    counts_from = at if last is None else max(at, last)
    connection.executemany(
        "INSERT INTO uses (memory_id, number, at, counts_from, kind, importance) "
        "SELECT ?1, coalesce(max(number), 0) + 1, ?2, ?3, ?4, ?5 FROM uses WHERE memory_id = ?1",
        [(memory_id, at, counts_from, kind, importance) for memory_id in ids],
    )


def last_maintenance(connection: sqlite3.Connection, profile: str) -> int | None:
    """Return the instant of the profile's last maintenance, microseconds since 1970."""
    saved = get_meta(connection, f"lifecycle of {profile}")
    return None if saved is None else int(json.loads(saved)["now"])


def read_log(connection: sqlite3.Connection, profile: str, ids: Ids) -> Log:
    """Return the log of the profile's memories, whose ids are given ascending.

    Raises
    ------
    StoreCorruptError
        Events are missing in the middle of a log.
    """
    rows = connection.execute(
        "SELECT memory_id, number, counts_from, kind, importance FROM uses "
        "WHERE memory_id IN (SELECT id FROM memories WHERE profile = ?) "
        "ORDER BY memory_id, number",
        (profile,),
    ).fetchall()
    owner = np.array([row[0] for row in rows], np.int64)
    place = np.searchsorted(ids, owner)
    found = np.bincount(place, minlength=ids.size).astype(np.int64)
    begin = np.concatenate([[0], np.cumsum(found)]).astype(np.int64)
    number = np.array([row[1] for row in rows], np.int64)
    expected = np.arange(owner.size) - begin[place] + 1
    if (number != expected).any():
        at = int(np.argmax(number != expected))
        raise cut_log(int(owner[at]), f"number {expected[at]} is missing")
    importance = [np.nan if row[4] is None else float(row[4]) for row in rows]
    events = Events(
        begin,
        np.array([row[2] for row in rows], np.int64),
        np.array([row[3] == "confirmed" for row in rows], np.bool_),
        np.array(importance, np.float64),
    )
    return Log(events, found)


def cut_log(memory_id: int, what: str) -> StoreCorruptError:
    """The error of a log from which something was lost."""
    return StoreCorruptError(
        f"uses: the log of memory {memory_id} is cut: {what}. Nothing was changed; "
        "`riemem check --repair` goes on with what is left of it"
    )


def counts(store: Store, profile: str) -> tuple[Ids, Ids]:
    """Return the memories that were used, ascending, and how often each was."""
    with store.reading() as connection:
        rows: list[tuple[int, int]] = []
        if has_table(connection, "uses"):
            rows = connection.execute(
                "SELECT memory_id, count(*) FROM uses WHERE kind <> 'importance' AND memory_id IN "
                "(SELECT id FROM memories WHERE profile = ?) GROUP BY memory_id ORDER BY memory_id",
                (profile,),
            ).fetchall()
    pairs = np.array(rows, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def check_uses(connection: sqlite3.Connection) -> list[str]:
    """Return what is wrong with the logs."""
    rows = connection.execute(
        "SELECT memory_id, count(*), max(number), (SELECT uses FROM lifecycle l "
        "WHERE l.memory_id = uses.memory_id) FROM uses GROUP BY memory_id"
    ).fetchall()
    problems = [
        f"uses: the log of memory {memory_id} is cut: {max(last, seen or 0) - found} of "
        f"{max(last, seen or 0)} events are missing"
        for memory_id, found, last, seen in rows
        if max(last, seen or 0) != found
    ]
    gone = connection.execute(
        "SELECT memory_id, uses FROM lifecycle WHERE uses > 0 "
        "AND memory_id NOT IN (SELECT memory_id FROM uses) ORDER BY memory_id"
    ).fetchall()
    problems += [f"uses: the log of memory {m} is cut: all {n} events are missing" for m, n in gone]
    strange = connection.execute(
        f"SELECT count(*) FROM uses WHERE kind NOT IN {KINDS} "
        "OR (kind = 'importance') <> (importance IS NOT NULL) "
        "OR NOT coalesce(importance, 0) BETWEEN 0 AND 1"
    ).fetchone()[0]
    if strange:
        problems.append(f"uses: {strange} events are of no known kind")
    return problems


def repair_uses(connection: sqlite3.Connection) -> None:
    """Number what is left of the logs anew; memories whose log was cut live their lives again."""
    connection.execute(
        f"DELETE FROM uses WHERE kind NOT IN {KINDS} "
        "OR (kind = 'importance') <> (importance IS NOT NULL) "
        "OR NOT coalesce(importance, 0) BETWEEN 0 AND 1"
    )
    rows = connection.execute(
        "SELECT memory_id, number, row_number() OVER (PARTITION BY memory_id ORDER BY number) "
        "FROM uses ORDER BY memory_id, number"
    ).fetchall()
    connection.executemany(
        "UPDATE uses SET number = ? WHERE memory_id = ? AND number = ?",
        [(new, memory_id, old) for memory_id, old, new in rows if new != old],
    )
    connection.execute(
        "DELETE FROM lifecycle WHERE uses > "
        "(SELECT count(*) FROM uses WHERE uses.memory_id = lifecycle.memory_id)"
    )
    cut = sorted({memory_id for memory_id, old, new in rows if new != old})
    connection.executemany("DELETE FROM lifecycle WHERE memory_id = ?", [(m,) for m in cut])

"""Where a memory comes from, how far it is trusted, and what happened to it.

Trust is the mean of a Beta distribution: ``(1 + confirmed + accessed / 10) / (2 + confirmed +
contradicted + accessed / 10)``, which is 0.5 for a memory of which nothing is known. Counts are
changed by named events, each of which leaves a row in the append-only history.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from riemem.errors import ArgumentError, MemoryNotFoundError
from riemem.store.filters import Scope
from riemem.store.reads import require_one
from riemem.store.remembered import held_now, holding
from riemem.store.sqlite import Store, Transaction, has_table
from riemem.store.times import format_instant, now_us

__all__ = ["EVENTS", "PRIOR", "Event", "Trust", "count", "history", "log", "mark", "trust_of"]

#: Pseudo-counts of the prior: Beta(1, 1), every degree of trust equally likely.
PRIOR = (1.0, 1.0)

#: An access says little about truth: ten weigh as much as one confirmation.
ACCESS_WEIGHT = 0.1

EVENTS = ("confirmed", "contradicted")


@dataclass(frozen=True)
class Trust:
    """Provenance and trust of one memory.

    Attributes
    ----------
    source : str or None
        As given at add.
    valid_from, valid_to : str or None
        ISO 8601: when what it says holds, as given at add.
    confirmed, contradicted, accessed : int
        How often each event happened: uses that helped count among `confirmed`, other uses are
        accesses, and open contradictions count among `contradicted`.

    Examples
    --------
    >>> Trust(confirmed=1).mean, Trust().mean
    (0.6666666666666666, 0.5)
    """

    source: str | None = None
    valid_from: str | None = None
    valid_to: str | None = None
    confirmed: int = 0
    contradicted: int = 0
    accessed: int = 0

    @property
    def alpha(self) -> float:
        """First parameter of the Beta distribution."""
        return PRIOR[0] + self.confirmed + ACCESS_WEIGHT * self.accessed

    @property
    def beta(self) -> float:
        """Second parameter of the Beta distribution."""
        return PRIOR[1] + self.contradicted

    @property
    def mean(self) -> float:
        """Expected trust, between 0 and 1."""
        return self.alpha / (self.alpha + self.beta)

    @property
    def variance(self) -> float:
        """Variance of the Beta distribution."""
        total = self.alpha + self.beta
        return self.alpha * self.beta / (total * total * (total + 1.0))


@dataclass(frozen=True)
class Event:
    """One line of a memory's history: when (ISO 8601), what, and what about it."""

    at: str
    event: str
    detail: dict[str, Any]


def log(connection: sqlite3.Connection, memory_id: int, event: str, **detail: Any) -> None:
    """Append a line to a memory's history."""
    log_many(connection, [(memory_id, event, detail)])


def log_many(
    connection: sqlite3.Connection, lines: Iterable[tuple[int, str, Mapping[str, Any]]]
) -> None:
    """Append lines to the histories of memories: (memory, event, detail)."""
    now = now_us()
    connection.executemany(
        "INSERT INTO history (memory_id, at, event, detail) VALUES (?, ?, ?, ?)",
        [(i, now, event, json.dumps(d, separators=(",", ":"))) for i, event, d in lines],
    )


def remember_origin(
    transaction: Transaction, rows: Iterable[tuple[int, str | None, int | None, int | None]]
) -> None:
    """Keep (memory, source, valid from, valid to) of new memories that have any of them."""
    transaction.connection.executemany(
        "INSERT INTO provenance (memory_id, source, valid_from, valid_to) VALUES (?, ?, ?, ?)",
        [row for row in rows if any(value is not None for value in row[1:])],
    )


def change_origin(
    transaction: Transaction,
    memory_id: int,
    source: str | None,
    valid_from: int | None,
    valid_to: int | None,
) -> None:
    """Replace where a memory comes from and when it holds."""
    connection = transaction.connection
    connection.execute("INSERT OR IGNORE INTO provenance (memory_id) VALUES (?)", (memory_id,))
    connection.execute(
        "UPDATE provenance SET source = ?, valid_from = ?, valid_to = ? WHERE memory_id = ?",
        (source, valid_from, valid_to, memory_id),
    )


def count(connection: sqlite3.Connection, memory_id: int, event: str, step: int = 1) -> None:
    """Count an event of a memory, or with a step of -1 take one back."""
    connection.execute("INSERT OR IGNORE INTO provenance (memory_id) VALUES (?)", (memory_id,))
    connection.execute(
        f"UPDATE provenance SET {event} = max({event} + ?, 0) WHERE memory_id = ?",
        (step, memory_id),
    )


def mark(store: Store, where: Scope, ids: Sequence[int], event: str) -> None:
    """Record an event of some memories, all of which must be in the scope.

    Raises
    ------
    ArgumentError
        The event is none of :data:`EVENTS`.
    MemoryNotFoundError
        An id is not in the scope; nothing was recorded.
    """
    if event not in EVENTS:
        raise ArgumentError(f"event: expected one of {EVENTS}, got {event!r}")
    with store.writing() as transaction:
        connection = transaction.connection
        require_all(connection, where, ids)
        for memory_id in ids:
            count(connection, memory_id, event)
            log(connection, memory_id, event, by="user")


def require_all(connection: sqlite3.Connection, where: Scope, ids: Sequence[int]) -> None:
    """Raise MemoryNotFoundError unless every id is in the scope."""
    wanted = where.only(ids)
    known = {
        int(row[0])
        for row in connection.execute(
            f"SELECT id FROM memories WHERE {wanted.where}", wanted.parameters
        )
    }
    missing = [i for i in ids if i not in known]
    if missing:
        raise MemoryNotFoundError(f"ids: there is no memory {missing[0]} in this scope")


def trust_of(store: Store, ids: Sequence[int]) -> dict[int, Trust]:
    """Return provenance and trust of those memories of which anything is known."""
    with store.reading() as connection:
        held = holding(store)
        return read_trust(connection, ids, held) if held else {}


def read_trust(
    connection: sqlite3.Connection, ids: Sequence[int] | None, held: Container[str] | None = None
) -> dict[int, Trust]:
    """As :func:`trust_of`, within a reading; None: of every memory.

    `held` are the tables of which it is known that they hold anything.
    """
    if held is None:
        held = held_now(connection)
    narrowed = "" if ids is None else "WHERE memory_id IN (SELECT value FROM json_each(?))"
    given = () if ids is None else (json.dumps(list(ids)),)
    rows: list[tuple[Any, ...]] = []
    if "provenance" in held:
        rows = connection.execute(
            "SELECT memory_id, source, valid_from, valid_to, confirmed, contradicted "
            f"FROM provenance {narrowed}",
            given,
        ).fetchall()
    open_ones: dict[int, int] = {}
    for column in ("older", "newer") if "conflicts" in held else ():
        chosen = "" if ids is None else f"AND c.{column} IN (SELECT value FROM json_each(?))"
        for memory_id, number in connection.execute(
            f"SELECT c.{column}, count(*) FROM conflicts c JOIN decisions d ON d.id = c.decision "
            f"WHERE d.state = 'open' {chosen} GROUP BY c.{column}",
            given,
        ):
            open_ones[memory_id] = open_ones.get(memory_id, 0) + int(number)
    used = _uses(connection, narrowed, given) if "uses" in held else {}
    found = {}
    known = {int(row[0]): row for row in rows}
    for memory_id in sorted({*known, *open_ones, *used}):
        _, source, first, last, confirmed, contradicted = known.get(
            memory_id, (memory_id, None, None, None, 0, 0)
        )
        accessed, helped = used.get(memory_id, (0, 0))
        found[memory_id] = Trust(
            source,
            None if first is None else format_instant(first),
            None if last is None else format_instant(last),
            int(confirmed) + helped,
            int(contradicted) + open_ones.get(memory_id, 0),
            accessed,
        )
    return found


def _uses(
    connection: sqlite3.Connection, narrowed: str, given: tuple[str, ...]
) -> dict[int, tuple[int, int]]:
    """How often memories were used, and how often that helped; see riemem.store.uses."""
    return {
        int(memory_id): (int(used), int(helped))
        for memory_id, used, helped in connection.execute(
            "SELECT memory_id, sum(kind = 'used'), sum(kind = 'confirmed') FROM uses "
            f"{narrowed} GROUP BY memory_id",
            given,
        )
    }


def history(store: Store, where: Scope, memory_id: int) -> list[Event]:
    """Return what happened to a memory, oldest first; the first line is its arrival.

    Raises
    ------
    MemoryNotFoundError
    """
    with store.reading() as connection:
        row = require_one(connection, where, memory_id, "created_at")
        rows: list[tuple[Any, ...]] = []
        if has_table(connection, "history"):
            rows = connection.execute(
                "SELECT at, event, detail FROM history WHERE memory_id = ? ORDER BY id",
                (memory_id,),
            ).fetchall()
        if has_table(connection, "uses"):
            rows += connection.execute(
                "SELECT at, CASE kind WHEN 'confirmed' THEN 'use confirmed' ELSE kind END, "
                "CASE WHEN importance IS NULL THEN '{}' "
                "ELSE json_object('importance', importance) END "
                "FROM uses WHERE memory_id = ? ORDER BY number",
                (memory_id,),
            ).fetchall()
            rows.sort(key=lambda row: int(row[0]))
    first = Event(format_instant(int(row[0])), "added", {})
    return [first, *(Event(format_instant(at), what, json.loads(d)) for at, what, d in rows)]


def as_dict(trust: Trust) -> Mapping[str, Any]:
    """The counts with mean and variance, as plain values."""
    return {**vars(trust), "mean": trust.mean, "variance": trust.variance}

"""Looking at conflicts between memories, deciding them, and taking decisions back."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from riemem.errors import ArgumentError
from riemem.store.claims import decide, point_at
from riemem.store.edges import leads_to, set_mark
from riemem.store.sqlite import Store, has_table
from riemem.store.times import format_instant
from riemem.store.trust import count, log

__all__ = ["STATES", "Conflict", "find_conflicts", "resolve", "undo"]

#: Undecided; one memory supersedes the other; both may hold.
STATES = ("open", "superseded", "dismissed")

_SELECT = """SELECT k.id, k.kind, k.rule, k.kappa, d.state, d.keep, d.made_by, d.at,
    k.older, k.newer, a.subject, a.attribute, a.value, a.positive, b.value, b.positive,
    m.text, n.text, k.profile, d.parent
    FROM conflicts k JOIN decisions d ON d.id = k.decision
    JOIN claims a ON a.id = k.older_claim JOIN claims b ON b.id = k.newer_claim
    JOIN memories m ON m.id = k.older JOIN memories n ON n.id = k.newer"""


@dataclass(frozen=True)
class Conflict:
    """Two memories that cannot both hold.

    Attributes
    ----------
    id : int
    kind : {"contradiction", "change"}
    rule : str
        The rule that confirmed it, in words.
    kappa : float
        Share of the two claims that no assignment explains.
    state : {"open", "superseded", "dismissed"}
    keep : int or None
        The memory that supersedes the other.
    by : {"rule", "user"}
        Who decided, and `at` when (ISO 8601).
    older, newer : int
        The memories, by when they were said.
    subject, attribute : str
    older_value, newer_value : str
        What each says; "not ..." where it denies it.
    older_text, newer_text : str
    """

    id: int
    kind: str
    rule: str
    kappa: float
    state: str
    keep: int | None
    by: str
    at: str
    older: int
    newer: int
    subject: str
    attribute: str
    older_value: str
    newer_value: str
    older_text: str
    newer_text: str

    @property
    def superseded(self) -> int | None:
        """The memory that lost, or None."""
        if self.keep is None:
            return None
        return self.older if self.keep == self.newer else self.newer


def find_conflicts(
    store: Store, profile: str, *, state: str | None = None, memory_id: int | None = None
) -> list[Conflict]:
    """Return the conflicts of a profile, by number.

    Parameters
    ----------
    store : Store
    profile : str
    state : str, optional
        One of :data:`STATES`; by default all.
    memory_id : int, optional
        Only those that this memory has a part in.

    Raises
    ------
    ArgumentError
    """
    if state is not None and state not in STATES:
        raise ArgumentError(f"state: expected one of {STATES}, got {state!r}")
    where = "k.profile = ?"
    values: list[Any] = [profile]
    if state is not None:
        where += " AND d.state = ?"
        values.append(state)
    if memory_id is not None:
        where += " AND (k.older = ? OR k.newer = ?)"
        values += [memory_id, memory_id]
    with store.reading() as connection:
        if not has_table(connection, "conflicts"):
            return []
        rows = connection.execute(f"{_SELECT} WHERE {where} ORDER BY k.id", values).fetchall()
    return [_conflict(row) for row in rows]


def resolve(store: Store, profile: str, conflict: int, keep: int | None) -> Conflict:
    """Decide a conflict: `keep` supersedes the other memory, or, with None, both may hold.

    The one that is kept counts as confirmed, the other as contradicted. Nothing is deleted.

    Raises
    ------
    ArgumentError
        There is no such conflict, `keep` has no part in it, or memories would supersede each other
        in a circle; nothing was changed.
    """
    with store.writing() as transaction:
        connection = transaction.connection
        row = _one(connection, profile, conflict)
        now = _conflict(row)
        if keep is not None and keep not in (now.older, now.newer):
            raise ArgumentError(f"keep: expected {now.older} or {now.newer}, got {keep}")
        current = _current(connection, conflict)
        if keep is not None:
            other = now.older if keep == now.newer else now.newer
            _uncount(connection, now)
            point_at(transaction, conflict, _first(connection, conflict))  # its edge does not count
            if leads_to(connection, other, keep):
                raise ArgumentError(
                    f"keep: memory {other} already supersedes {keep} through other conflicts; "
                    "decide or undo those first, nothing was changed"
                )
            decided = decide(transaction, conflict, current, "superseded", keep, "user")
            count(connection, keep, "confirmed")
            count(connection, other, "contradicted")
            log(connection, keep, "kept", conflict=conflict, other=other, by="user")
            log(connection, other, "superseded", conflict=conflict, other=keep, by="user")
        else:
            _uncount(connection, now)
            decided = decide(transaction, conflict, current, "dismissed", None, "user")
            for memory_id in (now.older, now.newer):
                log(connection, memory_id, "dismissed", conflict=conflict, by="user")
        point_at(transaction, conflict, decided)
        set_mark(transaction)
        return _conflict(_one(connection, profile, conflict))


def undo(store: Store, profile: str, conflict: int) -> Conflict:
    """Take back the decision that counts; the one before it counts again.

    Raises
    ------
    ArgumentError
        There is no such conflict, nothing was decided, or the decision before it would close a
        circle by now.
    """
    with store.writing() as transaction:
        connection = transaction.connection
        row = _one(connection, profile, conflict)
        now, parent = _conflict(row), row[-1]
        if parent is None:
            raise ArgumentError(f"conflict: nothing was decided about conflict {conflict}")
        _uncount(connection, now)
        point_at(transaction, conflict, int(parent))
        set_mark(transaction)
        then = _conflict(_one(connection, profile, conflict))
        if then.superseded is not None:
            kept, lost = int(then.keep or 0), then.superseded
            if leads_to(connection, lost, kept):
                raise ArgumentError(
                    f"conflict: memory {lost} supersedes {kept} by now; undo that first"
                )
            if then.by == "user":
                count(connection, kept, "confirmed")
                count(connection, lost, "contradicted")
        for memory_id in (now.older, now.newer):
            log(connection, memory_id, "undone", conflict=conflict, state=then.state, by="user")
        return then


def _uncount(connection: sqlite3.Connection, now: Conflict) -> None:
    """Take back what the user's present decision did to trust."""
    if now.by == "user" and now.superseded is not None:
        count(connection, int(now.keep or 0), "confirmed", -1)
        count(connection, now.superseded, "contradicted", -1)


def _one(connection: sqlite3.Connection, profile: str, conflict: int) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = None
    if conflict < 2**63:  # the largest number that SQLite has
        row = connection.execute(
            f"{_SELECT} WHERE k.id = ? AND k.profile = ?", (conflict, profile)
        ).fetchone()
    if row is None:
        raise ArgumentError(f"conflict: there is no conflict {conflict} in this profile")
    return row


def _first(connection: sqlite3.Connection, conflict: int) -> int:
    """The decision with which every conflict begins: open."""
    row = connection.execute(
        "SELECT min(id) FROM decisions WHERE conflict = ?", (conflict,)
    ).fetchone()
    return int(row[0])


def _current(connection: sqlite3.Connection, conflict: int) -> int:
    row = connection.execute("SELECT decision FROM conflicts WHERE id = ?", (conflict,)).fetchone()
    return int(row[0])


def _conflict(row: tuple[Any, ...]) -> Conflict:
    def shown(value: str, positive: int) -> str:
        return value if positive else f"not {value}"

    number, kind, rule, kappa, state, keep, made_by, at, older, newer, subject, attribute = row[:12]
    return Conflict(
        *(number, kind, rule, kappa, state, keep, made_by, format_instant(at)),
        *(older, newer, subject, attribute, shown(row[12], row[13]), shown(row[14], row[15])),
        *(row[16], row[17]),
    )

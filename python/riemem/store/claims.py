"""What memories claim, kept beside them, and the conflicts that are found when one is written.

All of it happens in the transaction that writes the memory. A claim is compared with those of its
profile about the same attribute of the same entity that still stand, at most the newest 64, and at
most 4 conflicts are noted for it; :func:`riemem.consistency.examine` looks at the rest.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from riemem._consistency.claims import Claim, Confirmed, confirm
from riemem._consistency.rules import extract
from riemem._consistency.sheaf import ClaimSheaf, Entry
from riemem.store.edges import cycle_in, leads_to, set_mark
from riemem.store.sqlite import Transaction, has_table
from riemem.store.times import now_us
from riemem.store.trust import log_many

__all__ = ["MOST_SEEN", "Said", "Stored", "all_claims", "check_claims", "decide", "drop", "record"]

#: How many earlier claims about one attribute of one entity a new one is compared with.
MOST_SEEN = 64

#: How many conflicts one new claim can be found to have, the newest rivals first.
MOST_CONFLICTS = 4

_COLUMNS = "id, memory_id, subject, attribute, value, positive, single, first, last, change, said"
_STANDS = """NOT EXISTS (
    SELECT 1 FROM conflicts k JOIN decisions d ON d.id = k.decision
    WHERE k.older_claim = c.id AND d.state = 'superseded' AND d.keep = k.newer
) AND NOT EXISTS (
    SELECT 1 FROM conflicts k JOIN decisions d ON d.id = k.decision
    WHERE k.newer_claim = c.id AND d.state = 'superseded' AND d.keep = k.older
)"""


#: The names of subjects by profile and subject.
Names = dict[tuple[str, str], list[str]]


class Said(NamedTuple):
    """A memory as far as claims need it; times in microseconds."""

    memory_id: int
    profile: str
    text: str
    speaker: str | None
    said: int
    valid_from: int | None = None
    valid_to: int | None = None


class Stored(NamedTuple):
    """A claim in the store."""

    id: int
    memory_id: int
    claim: Claim
    said: int


def record(transaction: Transaction, memories: Iterable[Said]) -> int:
    """Store the claims of memories that this transaction has written, and what they conflict with.

    Returns
    -------
    int
        Number of conflicts found.
    """
    found = 0
    names: Names = {}
    for memory in memories:
        for claim in extract(memory.text, memory.speaker, memory.said):
            if claim.attribute == "name":
                names.clear()  # what is called what may be otherwise from here on
            found += _record_one(transaction, memory, _timed(claim, memory), names)
    if found:
        set_mark(transaction)
    return found


def _timed(claim: Claim, memory: Said) -> Claim:
    """The claim with the valid time that was given with the memory, where one was."""
    first = claim.first if memory.valid_from is None else memory.valid_from
    last = claim.last if memory.valid_to is None else memory.valid_to
    # A state that is said today, of a time that has ended before today.
    return claim._replace(first=min(first, last - 1), last=last)


def _record_one(transaction: Transaction, memory: Said, claim: Claim, names: Names) -> int:
    """Store a claim; `names` are the names of subjects as far as they were looked up."""
    connection = transaction.connection
    cursor = connection.execute(
        "INSERT INTO claims (memory_id, profile, subject, attribute, value, positive, single, "
        "first, last, change, said) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (memory.memory_id, memory.profile, *claim, memory.said),
    )
    new = Stored(int(cursor.lastrowid or 0), memory.memory_id, claim, memory.said)
    found = 0
    known = names.get((memory.profile, claim.subject))
    if known is None:
        known = _names_of(connection, memory.profile, claim.subject)
        names[memory.profile, claim.subject] = known
    for subject in known:
        for other in _rivals(connection, memory.profile, subject, new):
            if found >= MOST_CONFLICTS:
                return found
            named = other.claim._replace(subject=claim.subject)
            why = confirm(named, other.said, claim, new.said)
            if why is not None:
                found += _conflict(transaction, memory.profile, other, new, why)
    return found


def _rivals(
    connection: sqlite3.Connection, profile: str, subject: str, new: Stored
) -> list[Stored]:
    """Claims of other memories that still stand and may exclude the new one."""
    claim = new.claim
    about = (profile, subject, claim.attribute)
    columns = ", ".join(f"c.{name}" for name in _COLUMNS.split(", "))
    rows = connection.execute(
        f"SELECT {columns} FROM claims c WHERE c.profile = ? AND c.subject = ? AND c.attribute = ? "
        f"AND c.value = ? AND c.positive != ? AND c.memory_id != ? AND {_STANDS} "
        "ORDER BY c.id DESC LIMIT ?",
        (*about, claim.value, int(claim.positive), new.memory_id, MOST_SEEN),
    ).fetchall()
    if claim.single and claim.positive:
        rows += connection.execute(
            f"SELECT {columns} FROM (SELECT * FROM claims INDEXED BY claims_about WHERE "
            "profile = ? AND subject = ? AND attribute = ? ORDER BY said DESC, id DESC LIMIT ?) c "
            f"WHERE c.positive AND c.single AND c.memory_id != ? AND c.value != ? AND {_STANDS}",
            (*about, MOST_SEEN, new.memory_id, claim.value),
        ).fetchall()
    found = [_stored(row) for row in rows]
    return sorted(found, key=lambda other: (-other.said, -other.id))


def _names_of(connection: sqlite3.Connection, profile: str, subject: str) -> list[str]:
    """The subject and, where there is exactly one, the other name that somebody gave it."""
    names = [subject]
    for sql in (
        "SELECT DISTINCT value FROM claims WHERE profile = ? AND subject = ? "
        "AND attribute = 'name' AND positive LIMIT 2",
        "SELECT DISTINCT subject FROM claims WHERE profile = ? AND value = ? "
        "AND attribute = 'name' AND positive LIMIT 2",
    ):
        rows = connection.execute(sql, (profile, subject)).fetchall()
        if len(rows) == 1 and rows[0][0] not in names:
            names.append(rows[0][0])
    return names


def _conflict(
    transaction: Transaction, profile: str, other: Stored, new: Stored, why: Confirmed
) -> int:
    connection = transaction.connection
    older, newer = sorted((other, new), key=lambda s: (s.said, s.memory_id))
    kappa = _kappa(*_shape(older.claim, newer.claim))
    cursor = connection.execute(
        "INSERT OR IGNORE INTO conflicts (profile, kind, rule, kappa, older, newer, older_claim, "
        "newer_claim) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(profile, why.kind, why.rule, kappa, older.memory_id, newer.memory_id),
            *(older.id, newer.id),
        ),
    )
    if not cursor.rowcount:
        return 0
    conflict = int(cursor.lastrowid or 0)
    old, late = older.memory_id, newer.memory_id
    lines = [(old, why.kind, late), (late, why.kind, old)]
    decision = decide(transaction, conflict, None, "open", None, "rule")
    if why.kind == "change" and not leads_to(connection, old, late):
        decision = decide(transaction, conflict, decision, "superseded", late, "rule")
        lines.append((old, "superseded", late))
    point_at(transaction, conflict, decision)
    log_many(
        connection,
        [(i, event, {"conflict": conflict, "other": o, "by": "rule"}) for i, event, o in lines],
    )
    return 1


def _shape(a: Claim, b: Claim) -> tuple[Claim, Claim]:
    """The two claims without their words and dates: all that their kappa depends on."""
    ends = sorted({a.first, a.last, b.first, b.last})
    rank = {moment: i for i, moment in enumerate(ends)}
    other = "x" if b.subject == a.subject else "y"
    value = "1" if b.value == a.value else "2"
    return (
        Claim("x", "", "1", a.positive, a.single, rank[a.first], rank[a.last]),
        Claim(other, "", value, b.positive, b.single, rank[b.first], rank[b.last]),
    )


@lru_cache(maxsize=1024)
def _kappa(a: Claim, b: Claim) -> float:
    entries = [Entry(i, claim, claim.first, claim.last, i) for i, claim in enumerate((a, b))]
    return max(group.kappa for group in ClaimSheaf(entries, [(a.subject, b.subject)]).groups)


def decide(
    transaction: Transaction,
    conflict: int,
    parent: int | None,
    state: str,
    keep: int | None,
    made_by: str,
) -> int:
    """Append a decision about a conflict and return its number; see :func:`point_at`."""
    cursor = transaction.connection.execute(
        "INSERT INTO decisions (conflict, parent, state, keep, made_by, at) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (conflict, parent, state, keep, made_by, now_us()),
    )
    return int(cursor.lastrowid or 0)


def point_at(transaction: Transaction, conflict: int, decision: int) -> None:
    """Make a decision the one that counts; whoever does so calls :func:`set_mark` at the end."""
    transaction.connection.execute(
        "UPDATE conflicts SET decision = ? WHERE id = ?", (decision, conflict)
    )


def drop(transaction: Transaction, memory_id: int) -> None:
    """Remove the claims of a memory whose words change, and with them its conflicts."""
    transaction.connection.execute("DELETE FROM claims WHERE memory_id = ?", (memory_id,))
    set_mark(transaction)


def all_claims(connection: sqlite3.Connection, profile: str) -> list[Stored]:
    """Every claim of a profile, in order of arrival."""
    if not has_table(connection, "claims"):
        return []
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM claims WHERE profile = ? ORDER BY id", (profile,)
    )
    return [_stored(row) for row in rows]


def check_claims(connection: sqlite3.Connection) -> list[str]:
    """Return what is wrong with claims, conflicts and decisions, in words."""
    if not has_table(connection, "claims"):
        return []
    problems = []
    for what, sql in (
        ("conflicts: {} have no decision", "SELECT count(*) FROM conflicts WHERE decision IS NULL "
         "OR decision NOT IN (SELECT id FROM decisions WHERE conflict = conflicts.id)"),
        ("conflicts: {} are between claims of other memories", "SELECT count(*) FROM conflicts k "
         "JOIN claims a ON a.id = k.older_claim JOIN claims b ON b.id = k.newer_claim "
         "WHERE a.memory_id != k.older OR b.memory_id != k.newer"),
        ("claims: {} belong to a memory of another profile", "SELECT count(*) FROM claims c "
         "JOIN memories m ON m.id = c.memory_id WHERE m.profile != c.profile"),
        ("claims: {} end before they begin", "SELECT count(*) FROM claims WHERE first >= last"),
    ):  # fmt: skip
        number = int(connection.execute(sql).fetchone()[0])
        if number:
            problems.append(what.format(number))
    cycle = cycle_in(connection)
    if cycle:
        problems.append("supersedes: memories supersede each other in a circle: "
                        + " > ".join(map(str, cycle)))  # fmt: skip
    return problems


def _stored(row: tuple[int, ...]) -> Stored:
    number, memory_id, subject, attribute, value, positive, single, first, last, change, said = row
    claim = Claim(str(subject), str(attribute), str(value), bool(positive), bool(single), first,
                  last, bool(change))  # fmt: skip
    return Stored(int(number), int(memory_id), claim, int(said))


def repair_claims(transaction: Transaction) -> None:
    """Make claims, conflicts and decisions whole again; what was decided rightly stays.

    Claims that end before they begin or sit in another profile go, and with them their conflicts;
    a conflict without a decision is open again; of memories that supersede each other in a circle,
    the newest decision is taken back.
    """
    connection = transaction.connection
    connection.execute(
        "DELETE FROM claims WHERE first >= last OR memory_id NOT IN (SELECT id FROM memories) "
        "OR profile != (SELECT profile FROM memories WHERE id = claims.memory_id)"
    )
    connection.execute(
        "DELETE FROM conflicts WHERE older_claim NOT IN (SELECT id FROM claims WHERE memory_id = "
        "conflicts.older) OR newer_claim NOT IN (SELECT id FROM claims WHERE memory_id = "
        "conflicts.newer)"
    )
    undecided = connection.execute(
        "SELECT id FROM conflicts WHERE decision IS NULL OR decision NOT IN "
        "(SELECT id FROM decisions WHERE conflict = conflicts.id)"
    ).fetchall()
    for (conflict,) in undecided:
        opened = decide(transaction, int(conflict), None, "open", None, "rule")
        point_at(transaction, int(conflict), opened)
    while circle := cycle_in(connection):
        pairs = list(pairwise(circle))
        newest = max(
            (int(row[0]), int(row[1]))
            for newer, older in pairs
            for row in connection.execute(
                "SELECT k.decision, k.id FROM supersedes s JOIN conflicts k ON k.id = s.conflict "
                "WHERE s.newer = ? AND s.older = ?",
                (newer, older),
            )
        )
        opened = decide(transaction, newest[1], None, "open", None, "rule")
        point_at(transaction, newest[1], opened)
    set_mark(transaction)


def record_pairs(
    transaction: Transaction, profile: str, pairs: Iterable[tuple[Stored, Stored, Confirmed]]
) -> int:
    """Store conflicts between claims that are already there; those that are known are passed over.

    A claim gets at most 4 conflicts with older ones here, too.

    Returns
    -------
    int
        How many were new.
    """
    found = 0
    for a, b, why in pairs:
        there = transaction.connection.execute(
            "SELECT count(*) FROM claims WHERE id IN (?, ?)", (a.id, b.id)
        ).fetchone()[0]
        newer = max((a, b), key=lambda s: (s.said, s.memory_id))
        known = transaction.connection.execute(
            "SELECT count(*) FROM conflicts WHERE newer_claim = ?", (newer.id,)
        ).fetchone()[0]
        if there == 2 and known < MOST_CONFLICTS:
            found += _conflict(transaction, profile, a, b, why)
    if found:
        set_mark(transaction)
    return found

"""The atom of each memory, kept in the transaction that writes the memory.

A memory is placed by its first vector, in order of arrival; one whose text is changed leaves its
atom and arrives anew. What the file holds is the assignment alone: centroids are made from the
vectors, so forgetting a memory leaves no trace of it.
"""

from __future__ import annotations

import sqlite3
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from riemem._atoms.headers import describe
from riemem.clustering import LargeAtomWarning, MaxMemberClusters
from riemem.store.sqlite import Store, Transaction, get_meta, read_identity, set_meta
from riemem.store.vectors import decode

__all__ = [
    "THRESHOLD",
    "MemoryAtom",
    "atoms_of",
    "check_atoms",
    "ensure",
    "leave",
    "list_atoms",
    "place",
    "place_missing",
    "remember",
]

#: Of a new store: on dialogue embedded by MiniLM the largest atom stays below half of the turns.
THRESHOLD = 0.75


@dataclass
class _Held:
    """The clusters of a profile as of a revision."""

    revision: int
    clusters: MaxMemberClusters


@dataclass(frozen=True)
class MemoryAtom:
    """A group of memories: its number, a few words about it, its members in order of arrival."""

    id: int
    header: str
    ids: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.ids)


_held: weakref.WeakKeyDictionary[Store, dict[str, _Held]] = weakref.WeakKeyDictionary()


def place(
    store: Store, transaction: Transaction, rows: Iterable[tuple[int, str, bytes]]
) -> dict[str, MaxMemberClusters]:
    """Place memories that this transaction has written; (id, profile, first vector) of each.

    Returns
    -------
    dict
        What :func:`remember` takes once the transaction is committed.
    """
    by_profile: dict[str, list[tuple[int, bytes]]] = {}
    for memory_id, profile, blob in rows:
        by_profile.setdefault(profile, []).append((memory_id, blob))
    changed = {}
    for profile, fresh in by_profile.items():
        clusters = _current(store, transaction, profile)
        _assign(transaction.connection, clusters, fresh)
        changed[profile] = clusters
    return changed


def remember(
    store: Store, transaction: Transaction, changed: Mapping[str, MaxMemberClusters]
) -> None:
    """Keep the clusters for the next write; only after the transaction is committed."""
    held = _held.setdefault(store, {})
    for profile, clusters in changed.items():
        held[profile] = _Held(transaction.revision, clusters)


def leave(connection: sqlite3.Connection, memory_ids: Sequence[int]) -> None:
    """Take memories out of their atoms."""
    connection.executemany("DELETE FROM atoms WHERE memory_id = ?", [(m,) for m in memory_ids])


def place_missing(store: Store, transaction: Transaction) -> dict[str, MaxMemberClusters]:
    """Place every memory that has a vector and no atom, oldest first."""
    connection = transaction.connection
    missing = connection.execute(
        "SELECT m.id, m.profile, v.vector, m.revision FROM memories m "
        "JOIN vectors v ON v.memory_id = m.id AND v.chunk = 0 "
        "WHERE NOT EXISTS (SELECT 1 FROM atoms WHERE memory_id = m.id) "
        "ORDER BY m.id"
    ).fetchall()
    if not missing:
        return {}
    _held.pop(store, None)
    fresh = [row[:3] for row in missing if row[3] == transaction.revision]
    changed = place(store, transaction, fresh)
    for profile in {row[1] for row in missing} - changed.keys():
        changed[profile] = _current(store, transaction, profile)  # places the older ones
    return changed


def ensure(store: Store) -> None:
    """Place what is not placed yet, where the store may be written."""
    if store.readonly:
        return
    with store.reading() as connection:
        missing = connection.execute(
            "SELECT 1 FROM memories m JOIN vectors v ON v.memory_id = m.id AND v.chunk = 0 "
            "WHERE NOT EXISTS (SELECT 1 FROM atoms WHERE memory_id = m.id) LIMIT 1"
        ).fetchone()
    if missing is None:
        return
    with store.writing() as transaction:
        placed = place_missing(store, transaction)
    remember(store, transaction, placed)


def atoms_of(connection: sqlite3.Connection, memory_ids: Sequence[int]) -> dict[int, int]:
    """Return the atom of each of these memories that has one."""
    if not _exists(connection):
        return {}
    found = {}
    for memory_id in memory_ids:
        row = connection.execute(
            "SELECT atom FROM atoms WHERE memory_id = ?", (memory_id,)
        ).fetchone()
        if row is not None:
            found[int(memory_id)] = int(row[0])
    return found


def list_atoms(connection: sqlite3.Connection, profile: str) -> list[MemoryAtom]:
    """Return the atoms of a profile, largest first, ties by lower number."""
    if not _exists(connection):
        return []
    members: dict[int, list[int]] = {}
    texts: dict[int, list[str]] = {}
    for atom, memory_id, text in connection.execute(
        "SELECT a.atom, a.memory_id, m.text FROM atoms a JOIN memories m ON m.id = a.memory_id "
        "WHERE m.profile = ? ORDER BY a.arrival",
        (profile,),
    ):
        members.setdefault(int(atom), []).append(int(memory_id))
        texts.setdefault(int(atom), []).append(str(text))
    headers = describe(texts)
    found = [MemoryAtom(atom, headers[atom], tuple(ids)) for atom, ids in members.items()]
    return sorted(found, key=lambda atom: (-atom.size, atom.id))


def threshold_of(connection: sqlite3.Connection) -> float:
    """Return the threshold that this store's atoms are made with."""
    stored = get_meta(connection, "atom_threshold")
    return THRESHOLD if stored is None else float(stored)


def check_atoms(connection: sqlite3.Connection) -> list[str]:
    """Return what is wrong with the atoms, in words."""
    if not _exists(connection):
        return []
    problems = []
    # A profile from before there were atoms gets all of them with its next write.
    missing = connection.execute(
        "SELECT count(*) FROM memories m JOIN vectors v ON v.memory_id = m.id AND v.chunk = 0 "
        "WHERE NOT EXISTS (SELECT 1 FROM atoms WHERE memory_id = m.id) AND m.profile IN "
        "(SELECT o.profile FROM atoms a JOIN memories o ON o.id = a.memory_id)"
    ).fetchone()[0]
    if missing:
        problems.append(f"atoms: {missing} memories are in none")
    shared = connection.execute(
        "SELECT count(*) FROM (SELECT a.atom FROM atoms a JOIN memories m ON m.id = a.memory_id "
        "GROUP BY a.atom HAVING count(DISTINCT m.profile) > 1)"
    ).fetchone()[0]
    if shared:
        problems.append(f"atoms: {shared} hold memories of several profiles")
    return problems


def _exists(connection: sqlite3.Connection) -> bool:
    # A store of an older version that was opened read-only has no such table.
    found = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'atoms'"
    ).fetchone()
    return found is not None


def _assign(
    connection: sqlite3.Connection,
    clusters: MaxMemberClusters,
    fresh: Sequence[tuple[int, bytes]],
) -> None:
    rows = decode([blob for _, blob in fresh], clusters.dim)
    ids = np.array([memory_id for memory_id, _ in fresh], np.int64)
    next_atom = int(get_meta(connection, "next_atom") or 0)
    clusters.number_atoms_from(next_atom)
    clusters.discard(ids[np.isin(ids, clusters.ids)])  # they arrive anew
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LargeAtomWarning)
        got = clusters.assign(rows, ids=ids)
    arrival = int(connection.execute("SELECT coalesce(max(arrival), 0) FROM atoms").fetchone()[0])
    connection.executemany(
        "INSERT INTO atoms (memory_id, atom, arrival) VALUES (?, ?, ?)",
        [
            (int(memory_id), int(atom), arrival + 1 + i)
            for i, (memory_id, atom) in enumerate(zip(ids, got.labels, strict=True))
        ],
    )
    set_meta(connection, "next_atom", max(next_atom, int(got.labels.max()) + 1))


def _current(store: Store, transaction: Transaction, profile: str) -> MaxMemberClusters:
    """Return the clusters of a profile as they were before this transaction's new memories."""
    connection = transaction.connection
    held = _held.get(store, {}).pop(profile, None)
    identity = read_identity(connection)
    if identity is None:
        raise AssertionError("memories are placed after their identity is written")
    if held is not None and held.clusters.dim == identity.dim:
        kept = _followed(connection, held, transaction.revision, profile)
        if kept is not None:
            return kept
    threshold = threshold_of(connection)
    set_meta(connection, "atom_threshold", threshold)
    stored = connection.execute(
        "SELECT a.memory_id, a.atom, v.vector FROM atoms a "
        "JOIN memories m ON m.id = a.memory_id "
        "JOIN vectors v ON v.memory_id = a.memory_id AND v.chunk = 0 "
        "WHERE m.profile = ? ORDER BY a.arrival",
        (profile,),
    ).fetchall()
    ids = [int(row[0]) for row in stored]
    rows = decode([row[2] for row in stored], identity.dim, ids)
    labels = np.array([row[1] for row in stored], np.int64)
    clusters = MaxMemberClusters.from_labels(rows, labels, threshold=threshold, ids=ids)
    # Those from before there were atoms come first, in the order of their ids.
    missing = connection.execute(
        "SELECT m.id, v.vector FROM memories m "
        "JOIN vectors v ON v.memory_id = m.id AND v.chunk = 0 "
        "WHERE m.profile = ? AND m.revision < ? AND NOT EXISTS "
        "(SELECT 1 FROM atoms WHERE memory_id = m.id) ORDER BY m.id",
        (profile, transaction.revision),
    ).fetchall()
    if missing:
        _assign(connection, clusters, [(int(row[0]), row[1]) for row in missing])
    return clusters


def _followed(
    connection: sqlite3.Connection, held: _Held, revision: int, profile: str
) -> MaxMemberClusters | None:
    """Take over what was forgotten since; None when anything else has happened."""
    changed = connection.execute(
        "SELECT 1 FROM memories WHERE revision > ? AND revision < ? AND profile = ? LIMIT 1",
        (held.revision, revision, profile),
    ).fetchone()
    if changed is not None:
        return None
    gone = connection.execute(
        "SELECT id FROM forgotten WHERE revision > ?", (held.revision,)
    ).fetchall()
    known = set(held.clusters.ids.tolist())
    lost = [int(row[0]) for row in gone if int(row[0]) in known]
    if lost:
        held.clusters.discard(lost)
    return held.clusters

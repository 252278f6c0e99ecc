"""The atom of each memory: made when a profile is first asked for them, kept up to date from then.

The first ask places all memories of the profile in the order of their ids, as if each had been
placed when it came; a row of ``meta`` then says that the profile has atoms, and each later memory
is placed in its own transaction. A profile that is never asked pays nothing.

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
from riemem.errors import StoreCorruptError, StoreLockedError
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
    "release",
    "remember",
]

#: Of a new store: on dialogue embedded by MiniLM the largest atom stays below half of the turns.
THRESHOLD = 0.75

_MARK = "atoms of "  # and the profile: a row of `meta` for each profile that has atoms
_ON_DEMAND = "atoms_on_demand"  # the marks are complete; older stores have atoms and no marks
_UNPLACED = "NOT EXISTS (SELECT 1 FROM atoms WHERE memory_id = m.id)"
_MARKED = f"EXISTS (SELECT 1 FROM meta WHERE key = '{_MARK}' || m.profile)"
_ANY_REVISION = 2**62
_AT_ONCE = 500  # SQLite takes at least 999 parameters


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

    Those of profiles without atoms are passed over.

    Returns
    -------
    dict
        What :func:`remember` takes once the transaction is committed.
    """
    by_profile: dict[str, list[tuple[int, bytes]]] = {}
    for memory_id, profile, blob in rows:
        by_profile.setdefault(profile, []).append((memory_id, blob))
    changed = {}
    _take_over(transaction.connection)
    for profile, fresh in by_profile.items():
        if not _marked(transaction.connection, profile):
            continue
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
    _take_over(connection)
    connection.executemany("DELETE FROM atoms WHERE memory_id = ?", [(m,) for m in memory_ids])


def place_missing(store: Store, transaction: Transaction) -> dict[str, MaxMemberClusters]:
    """Place every memory that has a vector and no atom, in profiles with atoms, oldest first."""
    connection = transaction.connection
    _take_over(connection)
    missing = connection.execute(
        "SELECT m.id, m.profile, v.vector, m.revision FROM memories m "
        "JOIN vectors v ON v.memory_id = m.id AND v.chunk = 0 "
        f"WHERE {_UNPLACED} AND {_MARKED} ORDER BY m.id"
    ).fetchall()
    if not missing:
        return {}
    _held.pop(store, None)
    fresh = [row[:3] for row in missing if row[3] == transaction.revision]
    changed = place(store, transaction, fresh)
    for profile in {row[1] for row in missing} - changed.keys():
        changed[profile] = _current(store, transaction, profile)  # places the older ones
    return changed


def release(store: Store, connection: sqlite3.Connection, profile: str) -> None:
    """Take back that a profile has atoms once it holds no memory, and with that its name."""
    found = connection.execute("SELECT 1 FROM memories WHERE profile = ? LIMIT 1", (profile,))
    if found.fetchone() is None:
        set_meta(connection, _MARK + profile, None)
        _held.get(store, {}).pop(profile, None)


def ensure(store: Store, profile: str) -> None:
    """Make the atoms of a profile if it has none and the store can be written now."""
    if store.readonly:
        return
    with store.reading() as connection:
        if _covered(connection, profile):
            return
    made = {}
    try:
        with store.writing() as transaction:
            _take_over(transaction.connection)
            if _any_unplaced(transaction.connection, profile):  # nobody else was first
                made[profile] = _current(store, transaction, profile)
                set_meta(transaction.connection, _MARK + profile, 1)
                set_meta(transaction.connection, _ON_DEMAND, 1)
    except StoreLockedError:
        return  # a question need not wait for writers: it is answered as in a read-only store
    remember(store, transaction, made)


def atoms_of(store: Store, profile: str, memory_ids: Sequence[int]) -> dict[int, int]:
    """Return the atom of each of these memories of a profile that has one."""
    ensure(store, profile)
    with store.reading() as connection:
        if not _covered(connection, profile):
            placed = dict(_placed(store, connection, profile))
            return {i: placed[i] for i in memory_ids if i in placed}
        found: dict[int, int] = {}
        for start in range(0, len(memory_ids), _AT_ONCE):
            some = [int(memory_id) for memory_id in memory_ids[start : start + _AT_ONCE]]
            marks = ",".join("?" * len(some))
            rows = connection.execute(
                f"SELECT memory_id, atom FROM atoms WHERE memory_id IN ({marks})", some
            )
            found.update((int(memory_id), int(atom)) for memory_id, atom in rows)
    return found


def list_atoms(store: Store, profile: str) -> list[MemoryAtom]:
    """Return the atoms of a profile, largest first, ties by lower number."""
    ensure(store, profile)
    with store.reading() as connection:
        placed = _placed(store, connection, profile)
        text_of = dict(
            connection.execute("SELECT id, text FROM memories WHERE profile = ?", (profile,))
        )
    members: dict[int, list[int]] = {}
    texts: dict[int, list[str]] = {}
    for memory_id, atom in placed:
        members.setdefault(atom, []).append(memory_id)
        texts.setdefault(atom, []).append(str(text_of[memory_id]))
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
    kept = _MARKED
    if get_meta(connection, _ON_DEMAND) is None:
        kept += (
            " OR m.profile IN (SELECT o.profile FROM atoms a JOIN memories o ON o.id = a.memory_id)"
        )
    missing = connection.execute(
        "SELECT count(*) FROM memories m JOIN vectors v ON v.memory_id = m.id AND v.chunk = 0 "
        f"WHERE {_UNPLACED} AND ({kept})"
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


def _take_over(connection: sqlite3.Connection) -> None:
    """Mark, once, the profiles of a store from when every memory was placed as it came."""
    if get_meta(connection, "next_atom") is None or get_meta(connection, _ON_DEMAND) is not None:
        return
    connection.execute(
        f"INSERT OR IGNORE INTO meta (key, value) SELECT DISTINCT '{_MARK}' || m.profile, 1 "
        "FROM atoms a JOIN memories m ON m.id = a.memory_id"
    )
    set_meta(connection, _ON_DEMAND, 1)


def _marked(connection: sqlite3.Connection, profile: str) -> bool:
    return get_meta(connection, _MARK + profile) is not None


def _any_unplaced(connection: sqlite3.Connection, profile: str) -> bool:
    unplaced = f" AND {_UNPLACED}" if _exists(connection) else ""
    found = connection.execute(
        "SELECT 1 FROM memories m JOIN vectors v ON v.memory_id = m.id AND v.chunk = 0 "
        f"WHERE m.profile = ?{unplaced} LIMIT 1",
        (profile,),
    ).fetchone()
    return found is not None


def _covered(connection: sqlite3.Connection, profile: str) -> bool:
    """Whether the file says in which atom each memory of the profile is."""
    return _marked(connection, profile) or not _any_unplaced(connection, profile)


def _placed(
    store: Store, connection: sqlite3.Connection, profile: str
) -> Sequence[tuple[int, int]]:
    """Return (memory, atom) in order of arrival: as stored, or else as they would be stored."""
    if _covered(connection, profile):
        if not _exists(connection):
            return []
        return connection.execute(
            "SELECT a.memory_id, a.atom FROM atoms a JOIN memories m ON m.id = a.memory_id "
            "WHERE m.profile = ? ORDER BY a.arrival",
            (profile,),
        ).fetchall()
    revision = int(get_meta(connection, "revision") or 0)
    # What is held for a writer is what its file says; only a reader may hold what no file does.
    held = _held.get(store, {}).get(profile) if store.readonly else None
    if held is None or held.revision != revision:
        clusters, unplaced = _load(connection, profile, _ANY_REVISION)
        if unplaced:
            _grow(clusters, unplaced, int(get_meta(connection, "next_atom") or 0))
        held = _Held(revision, clusters)
        if store.readonly:
            _held.setdefault(store, {})[profile] = held
    return list(zip(held.clusters.ids.tolist(), held.clusters.labels.tolist(), strict=True))


def _grow(
    clusters: MaxMemberClusters, fresh: Sequence[tuple[int, bytes]], next_atom: int
) -> list[tuple[int, int]]:
    """Let memories arrive; the atom of each, new ones numbered from `next_atom`."""
    ids = [int(memory_id) for memory_id, _ in fresh]
    rows = decode([blob for _, blob in fresh], clusters.dim, ids)
    clusters.number_atoms_from(next_atom)
    here = np.array(ids, np.int64)
    clusters.discard(here[np.isin(here, clusters.ids)])  # they arrive anew
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LargeAtomWarning)
        labels = clusters.assign(rows, ids=here).labels
    return list(zip(ids, labels.tolist(), strict=True))


def _assign(
    connection: sqlite3.Connection,
    clusters: MaxMemberClusters,
    fresh: Sequence[tuple[int, bytes]],
) -> None:
    next_atom = int(get_meta(connection, "next_atom") or 0)
    placed = _grow(clusters, fresh, next_atom)
    arrival = int(connection.execute("SELECT coalesce(max(arrival), 0) FROM atoms").fetchone()[0])
    connection.executemany(
        "INSERT INTO atoms (memory_id, atom, arrival) VALUES (?, ?, ?)",
        [(memory_id, atom, arrival + 1 + i) for i, (memory_id, atom) in enumerate(placed)],
    )
    set_meta(connection, "next_atom", max(next_atom, 1 + max(atom for _, atom in placed)))


def _current(store: Store, transaction: Transaction, profile: str) -> MaxMemberClusters:
    """Return the clusters of a profile as they were before this transaction's new memories."""
    connection = transaction.connection
    held = _held.get(store, {}).pop(profile, None)
    if held is not None and held.clusters.dim == _dim(connection):
        kept = _followed(connection, held, transaction.revision, profile)
        if kept is not None:
            return kept
    clusters, unplaced = _load(connection, profile, transaction.revision)
    set_meta(connection, "atom_threshold", clusters.threshold)
    if unplaced:
        _assign(connection, clusters, unplaced)
    return clusters


def _load(
    connection: sqlite3.Connection, profile: str, before: int
) -> tuple[MaxMemberClusters, list[tuple[int, bytes]]]:
    """Return the clusters as stored, and what was written before a revision and is in none.

    The latter as (id, first vector), in the order of the ids.
    """
    dim = _dim(connection)
    made = _exists(connection)
    stored = []
    if made:
        stored = connection.execute(
            "SELECT a.memory_id, a.atom, v.vector FROM atoms a "
            "JOIN memories m ON m.id = a.memory_id "
            "JOIN vectors v ON v.memory_id = a.memory_id AND v.chunk = 0 "
            "WHERE m.profile = ? ORDER BY a.arrival",
            (profile,),
        ).fetchall()
    ids = [int(row[0]) for row in stored]
    rows = decode([row[2] for row in stored], dim, ids)
    labels = np.array([row[1] for row in stored], np.int64)
    threshold = threshold_of(connection)
    clusters = MaxMemberClusters.from_labels(rows, labels, threshold=threshold, ids=ids)
    unplaced = connection.execute(
        "SELECT m.id, v.vector FROM memories m "
        "JOIN vectors v ON v.memory_id = m.id AND v.chunk = 0 "
        f"WHERE m.profile = ? AND m.revision < ?{f' AND {_UNPLACED}' if made else ''} "
        "ORDER BY m.id",
        (profile, before),
    ).fetchall()
    return clusters, unplaced


def _dim(connection: sqlite3.Connection) -> int:
    identity = read_identity(connection)
    if identity is None:
        raise StoreCorruptError("meta: memories are there, but no embedder is recorded")
    return identity.dim


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

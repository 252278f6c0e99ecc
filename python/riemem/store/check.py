"""Proof that everything derived in a store agrees with the memories in it, and its repair."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from riemem.store.atoms import check_atoms, place_missing, remember
from riemem.store.awake import check_lives, relive, repair_lives
from riemem.store.claims import check_claims, repair_claims
from riemem.store.precisions import check_precisions, repair_precisions
from riemem.store.records import check_metadata, shown_ids
from riemem.store.segments import check_segments, drop_segments
from riemem.store.sqlite import Store, get_meta, has_table, read_identity
from riemem.store.token_vectors import check_token_vectors, late_interaction, repair_token_vectors
from riemem.store.uses import check_uses, repair_uses

__all__ = ["CheckReport", "check_store", "rebuild_derived"]


@dataclass
class CheckReport:
    """What `check` found.

    Attributes
    ----------
    problems : list of str
        Empty when all is well.
    repaired : list of str
        What was rebuilt, with ``repair=True``.
    counts : dict
        Memories, vectors, labels.
    skipped : list of str
        What could not be compared here, and why.
    unembedded : list of int
        Memories whose vectors are missing or wrong; only an embedder can make them again.
    """

    problems: list[str] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    unembedded: list[int] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True when nothing is wrong."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "ok": self.ok,
            "problems": list(self.problems),
            "repaired": list(self.repaired),
            "counts": dict(self.counts),
            "skipped": list(self.skipped),
        }


def check_store(store: Store) -> CheckReport:
    """Compare everything in the store with everything else, changing nothing.

    Raises
    ------
    StoreCorruptError
        The file is so damaged that SQLite cannot read it.
    """
    report = CheckReport()
    with store.reading() as connection:
        for row in connection.execute("PRAGMA integrity_check(20)"):
            if row[0] != "ok":
                report.problems.append(f"file: {row[0]}")
        for row in connection.execute("PRAGMA foreign_key_check"):
            report.problems.append(f"{row[0]}: row {row[1]} belongs to no memory")
        for table in ("memories", "vectors", "labels"):
            report.counts[table] = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        _check_vectors(connection, report)
        _check_labels(connection, report)
        report.problems += check_atoms(connection)
        report.problems += check_segments(connection)
        if has_table(connection, "uses"):
            report.problems += check_uses(connection)
            report.problems += check_lives(connection)
            report.problems += check_precisions(connection)
        report.problems += check_claims(connection)
        report.problems += check_token_vectors(connection)
        tokens = late_interaction(connection)
        if tokens.on:
            report.counts["token_vectors"] = tokens.memories
        newest = connection.execute("SELECT coalesce(max(revision), 0) FROM memories").fetchone()[0]
        if newest > int(get_meta(connection, "revision") or 0):
            report.problems.append("meta: the revision is behind the newest memory")
    if store.readonly:
        report.skipped.append("words: not compared with the texts, the store is open read-only")
    else:
        _check_words(store, report)
    return report


def rebuild_derived(store: Store, report: CheckReport) -> None:
    """Rebuild labels, words, indexes and the revision; note it in the report.

    Vectors are not rebuilt here; orphaned ones are removed.
    """
    with store.writing() as transaction:
        connection = transaction.connection
        connection.execute("DELETE FROM vectors WHERE memory_id NOT IN (SELECT id FROM memories)")
        connection.execute("DELETE FROM atoms WHERE memory_id NOT IN (SELECT id FROM memories)")
        placed = place_missing(store, transaction)
        repair_uses(connection)
        repair_lives(connection)
        repair_precisions(connection)
        repair_claims(transaction)
        repair_token_vectors(connection)
        connection.execute("DELETE FROM labels")
        for memory_id, metadata in connection.execute("SELECT id, metadata FROM memories"):
            _, labels = check_metadata(json.loads(metadata))
            connection.executemany(
                "INSERT INTO labels (memory_id, key, value) VALUES (?, ?, ?)",
                [(memory_id, key, value) for key, value in labels],
            )
        drop_segments(connection)  # whoever needs them makes them again
        connection.execute("INSERT INTO memories_fts (memories_fts) VALUES ('rebuild')")
        connection.execute(
            "UPDATE meta SET value = max(value, (SELECT coalesce(max(revision), 0) + 1 "
            "FROM memories)) WHERE key = 'revision'"
        )
        connection.execute("REINDEX")
    remember(store, transaction, placed)
    relive(store)
    report.repaired += ["labels", "words", "indexes", "atoms", "segments", "uses", "lifecycle"]
    report.repaired.append("claims")


def _check_vectors(connection: sqlite3.Connection, report: CheckReport) -> None:
    identity = read_identity(connection)
    bad: dict[str, list[int]] = {"size": [], "not finite": [], "not of length one": []}
    for memory_id, blob in connection.execute("SELECT memory_id, vector FROM vectors"):
        if identity is None or len(blob) != 4 * identity.dim:
            bad["size"].append(memory_id)
            continue
        row = np.frombuffer(blob, dtype="<f4").astype(np.float64)
        if not np.isfinite(row).all():
            bad["not finite"].append(memory_id)
        elif abs(float(row @ row) - 1.0) > 4e-3:
            bad["not of length one"].append(memory_id)
    missing = [
        row[0]
        for row in connection.execute(
            "SELECT id FROM memories WHERE NOT EXISTS "
            "(SELECT 1 FROM vectors WHERE memory_id = memories.id AND chunk = 0) ORDER BY id"
        )
    ]
    for what, ids in (*bad.items(), ("missing", missing)):
        if ids:
            report.problems.append(f"vectors: {what}: {shown_ids(ids)}")
            report.unembedded += ids
    report.unembedded = sorted(set(report.unembedded))
    if identity is None and report.counts["memories"]:
        report.problems.append("meta: memories are there, but no embedder is recorded")


def _check_labels(connection: sqlite3.Connection, report: CheckReport) -> None:
    wrong = []
    for memory_id, metadata in connection.execute("SELECT id, metadata FROM memories"):
        try:
            _, labels = check_metadata(json.loads(metadata))
        except ValueError:
            report.problems.append(f"memories: metadata of {memory_id} is not JSON")
            continue
        stored = connection.execute(
            "SELECT key, value FROM labels WHERE memory_id = ? ORDER BY key", (memory_id,)
        ).fetchall()
        if stored != sorted(labels):
            wrong.append(memory_id)
    if wrong:
        report.problems.append(f"labels: do not agree with the metadata of {shown_ids(wrong)}")


def _check_words(store: Store, report: CheckReport) -> None:
    with store.exclusive() as connection:
        # Waits for other writers, who may be changing the tables that the words are kept in.
        connection.execute("BEGIN IMMEDIATE")
        try:
            # The 1 asks to compare with the view as well, in versions that need to be asked.
            connection.execute(
                "INSERT INTO memories_fts (memories_fts, rank) VALUES ('integrity-check', 1)"
            )
        except sqlite3.DatabaseError as error:
            if "locked" in str(error) or "busy" in str(error):
                raise
            report.problems.append(f"words: do not agree with the texts ({error})")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

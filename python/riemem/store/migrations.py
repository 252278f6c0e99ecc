"""Named steps from one released schema to the next.

Each step, its record in the table ``migrations`` and the new ``user_version`` are committed
together: a store is of one version or of the next, never in between.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from riemem.errors import SchemaVersionError
from riemem.store.schema import (
    APPLICATION_ID,
    ATOMS,
    DOUBTS,
    SCHEMA_V1,
    SEGMENTS,
    SENSITIVITIES,
    TOKEN_VECTORS,
    USES,
    WORDS_BY_WRITER,
)
from riemem.store.times import now_us

__all__ = ["MIGRATIONS", "SCHEMA_VERSION", "Migration", "migrate", "refuse_newer"]


@dataclass(frozen=True)
class Migration:
    """One step: the version it leads to, its name, and its statements."""

    version: int
    name: str
    statements: tuple[str, ...]


#: In order; a released step is never edited, only followed by another.
MIGRATIONS: tuple[Migration, ...] = (
    Migration(1, "first release", SCHEMA_V1),
    Migration(2, "words are indexed by the writer", WORDS_BY_WRITER),
    Migration(3, "memories have atoms", ATOMS),
    Migration(4, "sensitivities are kept", SENSITIVITIES),
    Migration(5, "words and the metric are kept in segments", SEGMENTS),
    Migration(6, "uses, lifecycle and precisions", USES),
    Migration(7, "claims, conflicts, trust, history and feedback", DOUBTS),
    Migration(8, "vectors of tokens may be kept", TOKEN_VECTORS),
)

SCHEMA_VERSION = MIGRATIONS[-1].version


def refuse_newer(version: int, path: str, supported: int = SCHEMA_VERSION) -> None:
    """Raise when a store is of a newer schema than this code knows.

    Raises
    ------
    SchemaVersionError
        Naming both versions.

    Examples
    --------
    >>> refuse_newer(1, "me.db")
    """
    if version > supported:
        raise SchemaVersionError(
            f"{path}: the store has schema version {version}, this riemem knows versions up to "
            f"{supported}; it was left untouched. Update riemem to open it."
        )


def migrate(
    connection: sqlite3.Connection, path: str, steps: Sequence[Migration] = MIGRATIONS
) -> list[str]:
    """Bring a store to the newest schema and return the names of the steps taken.

    Parameters
    ----------
    connection : sqlite3.Connection
        In autocommit mode; no transaction open.
    path : str
        For the message.
    steps : sequence of Migration
        Ascending versions.

    Returns
    -------
    list of str
        Empty when there was nothing to do.

    Raises
    ------
    SchemaVersionError
        The store is newer than the last step.
    """
    taken: list[str] = []
    while _version(connection) != steps[-1].version:
        # Each round looks again under the write lock: another process may have been first.
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = _version(connection)
            refuse_newer(version, path, steps[-1].version)
            step = next((step for step in steps if step.version > version), None)
            if step is None:
                connection.execute("ROLLBACK")
                break
            for statement in step.statements:
                connection.execute(statement)
            connection.execute(
                "INSERT INTO migrations (version, name, applied_at) VALUES (?, ?, ?)",
                (step.version, step.name, now_us()),
            )
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {step.version}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        taken.append(step.name)
    return taken


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])

from __future__ import annotations

import sqlite3

import pytest
from riemem.errors import SchemaVersionError
from riemem.store.migrations import MIGRATIONS, SCHEMA_VERSION, Migration, migrate


def fresh() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None)


def version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def test_versions_ascend_without_gaps() -> None:
    assert [step.version for step in MIGRATIONS] == list(range(1, SCHEMA_VERSION + 1))
    assert len({step.name for step in MIGRATIONS}) == len(MIGRATIONS)


def test_a_store_is_brought_up_once() -> None:
    connection = fresh()
    assert migrate(connection, "me.db") == [step.name for step in MIGRATIONS]
    assert migrate(connection, "me.db") == []
    assert version(connection) == SCHEMA_VERSION


def test_a_later_step_is_taken_alone_and_recorded_with_its_change() -> None:
    connection = fresh()
    migrate(connection, "me.db")
    later = Migration(SCHEMA_VERSION + 1, "colours", ("CREATE TABLE colours (name TEXT) STRICT",))
    assert migrate(connection, "me.db", [*MIGRATIONS, later]) == ["colours"]
    assert version(connection) == SCHEMA_VERSION + 1
    recorded = connection.execute(
        "SELECT version, name FROM migrations ORDER BY version"
    ).fetchall()
    assert recorded[-1] == (SCHEMA_VERSION + 1, "colours")
    assert connection.execute("SELECT count(*) FROM colours").fetchone() == (0,)


def test_a_step_that_fails_leaves_the_version_before_it() -> None:
    connection = fresh()
    migrate(connection, "me.db")
    broken = Migration(
        SCHEMA_VERSION + 1,
        "broken",
        ("CREATE TABLE colours (name TEXT) STRICT", "CREATE TABLE colours (name TEXT) STRICT"),
    )
    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        migrate(connection, "me.db", [*MIGRATIONS, broken])
    assert version(connection) == SCHEMA_VERSION
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
    assert "colours" not in names
    assert not connection.in_transaction


def test_a_newer_store_is_left_alone() -> None:
    connection = fresh()
    connection.execute("PRAGMA user_version = 99")
    with pytest.raises(
        SchemaVersionError, match=r"^me\.db: the store has schema version 99, .* up to 1"
    ):
        migrate(connection, "me.db")
    assert version(connection) == 99
    assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)

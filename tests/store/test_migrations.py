from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import SchemaVersionError
from riemem.memory import Memory
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
    with pytest.raises(SchemaVersionError, match=rf"version 99, .* up to {SCHEMA_VERSION}"):
        migrate(connection, "me.db")
    assert version(connection) == 99
    assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


FIXTURES = Path(__file__).parent / "fixtures"
TEXTS = ["I moved to Porto", "The harbour was full of boats", "Tea, please"]


@pytest.mark.parametrize("version_", range(1, SCHEMA_VERSION))
def test_a_store_of_every_earlier_schema_opens(tmp_path: Path, version_: int) -> None:
    fixture = FIXTURES / f"schema_v{version_}.db"
    assert fixture.exists(), f"python tests/store/fixtures/make_fixture.py {version_}"
    path = tmp_path / "me.db"
    shutil.copy(fixture, path)
    embedder = HashingEmbedder(dim=8)
    with Memory.open(path, embedder=embedder, readonly=True) as memory:
        assert [record.text for record in memory.list(order="id")] == TEXTS
        assert memory.search("boats")[0].text == TEXTS[1]
    assert path.read_bytes() == fixture.read_bytes()  # reading brings nothing up to date
    with Memory.open(path, embedder=embedder) as memory:
        assert memory.stats()["schema_version"] == SCHEMA_VERSION
        assert [record.text for record in memory.list(order="id")] == TEXTS
        assert [record.key for record in memory.list(order="id")] == ["key1", "key2", "key3"]
        assert memory.search("boats")[0].text == TEXTS[1]
        assert [hit.id for hit in memory.search("tea", filters={"n": 3})] == [3]
        report = memory.check()
        assert report.ok, report.problems
        assert memory.add("new", key="key1") == 1
        assert memory.add("The kettle is new") == 4
        assert memory.update(2, text="The harbour was empty").text == "The harbour was empty"
        assert memory.forget(1).erased
        assert memory.search("kettle", k=1)[0].id == 4
        report = memory.check()
        assert report.ok, report.problems
    connection = sqlite3.connect(path)
    steps = connection.execute("SELECT version, name FROM migrations ORDER BY version").fetchall()
    connection.close()
    assert steps == [(step.version, step.name) for step in MIGRATIONS]


def test_a_process_with_an_older_riemem_does_not_write_to_what_a_newer_one_changed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=HashingEmbedder(dim=8)) as memory:
        memory.add("tea")
        other = sqlite3.connect(path)
        other.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        other.close()
        with pytest.raises(SchemaVersionError, match=f"schema version {SCHEMA_VERSION + 1}"):
            memory.add("milk")
        assert [record.text for record in memory.list()] == ["tea"]

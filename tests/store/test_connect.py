"""What may lie at a path, and that a refusal leaves it untouched."""

from __future__ import annotations

import hashlib
import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from riemem.errors import (
    ArgumentError,
    DTypeError,
    RiememError,
    SchemaVersionError,
    StoreCorruptError,
    StoreError,
    StoreLockedError,
    StoreReadOnlyError,
)
from riemem.store import Store
from riemem.store.connect import explain_errors
from riemem.store.migrations import MIGRATIONS, SCHEMA_VERSION
from riemem.store.schema import APPLICATION_ID


def fingerprint(folder: Path) -> dict[str, tuple[str, int]]:
    """Name, content and time of change of every file in a folder."""
    return {
        f.name: (hashlib.sha256(f.read_bytes()).hexdigest(), f.stat().st_mtime_ns)
        for f in folder.iterdir()
        if f.is_file()
    }


def make_store(path: Path) -> Path:
    Store.open(path).close()
    return path


def make_foreign(path: Path, *, log: bool = False) -> Path:
    connection = sqlite3.connect(path)
    if log:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE notes (text TEXT)")
    connection.execute("INSERT INTO notes VALUES ('somebody else')")
    connection.commit()
    connection.close()
    return path


def make_newer(path: Path) -> Path:
    make_store(path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    return path


def test_a_new_store_says_what_it_is(tmp_path: Path) -> None:
    path = make_store(tmp_path / "me.db")
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    assert connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION
    assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert connection.execute("SELECT name FROM migrations").fetchall() == [
        (step.name,) for step in MIGRATIONS
    ]
    strict = connection.execute("SELECT name, strict FROM pragma_table_list WHERE type = 'table'")
    tables = ("memories", "vectors", "labels", "forgotten", "meta", "migrations", "atoms")
    tables += ("uses", "lifecycle", "precisions")
    tables += ("segments", "token_vectors")
    tables += ("sensitivities", "claims", "conflicts", "decisions", "provenance", "history")
    assert {name: bool(flag) for name, flag in strict if "sqlite_" not in name} == dict.fromkeys(
        (*tables, "feedback"), True
    )
    connection.close()


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize(
    ("content", "start"),
    [
        (
            b"not a database at all, but long enough to be read as a header " * 20,
            "is damaged or not",
        ),
        (b"short", "is damaged or not a riemem store"),
        (b"SQLite format 3\0" + b"\xff" * 2000, "is damaged or not a riemem store"),
        (b"\0" * 4096, "is damaged or not a riemem store"),
    ],
)
def test_what_is_not_sqlite_is_refused_untouched(
    tmp_path: Path, content: bytes, start: str, readonly: bool
) -> None:
    path = tmp_path / "me.db"
    path.write_bytes(content)
    before = fingerprint(tmp_path)
    with pytest.raises(StoreCorruptError, match=rf"me\.db: {start}"):
        Store.open(path, readonly=readonly)
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("log", [False, True])
def test_somebody_elses_database_is_refused_untouched(
    tmp_path: Path, readonly: bool, log: bool
) -> None:
    path = make_foreign(tmp_path / "notes.db", log=log)
    before = fingerprint(tmp_path)
    with pytest.raises(StoreCorruptError, match="is an SQLite database but not a riemem store"):
        Store.open(path, readonly=readonly)
    assert fingerprint(tmp_path) == before


def test_somebody_elses_database_in_use_keeps_its_log(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    other = sqlite3.connect(path)
    other.execute("PRAGMA journal_mode = WAL")
    other.execute("CREATE TABLE notes (text TEXT)")
    other.commit()
    before = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    with pytest.raises(StoreCorruptError, match="not a riemem store"):
        Store.open(path)
    assert (path.read_bytes(), Path(f"{path}-wal").read_bytes()) == before
    other.execute("INSERT INTO notes VALUES ('still fine')")
    other.close()


@pytest.mark.parametrize("readonly", [False, True])
def test_a_newer_schema_is_refused_untouched(tmp_path: Path, readonly: bool) -> None:
    path = make_newer(tmp_path / "me.db")
    before = fingerprint(tmp_path)
    with pytest.raises(
        SchemaVersionError,
        match=rf"version {SCHEMA_VERSION + 1}, this riemem knows versions up to {SCHEMA_VERSION}",
    ):
        Store.open(path, readonly=readonly)
    assert fingerprint(tmp_path) == before


def test_an_empty_file_becomes_a_store_but_not_when_only_read(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    path.touch()
    with pytest.raises(StoreCorruptError, match="is empty, not a riemem store"):
        Store.open(path, readonly=True)
    assert path.stat().st_size == 0
    with Store.open(path) as store:
        assert store.revision() == 0


def test_a_creation_that_was_cut_off_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")  # a header, and no table yet
    connection.close()
    assert path.stat().st_size > 0
    with pytest.raises(StoreCorruptError, match="is empty, not a riemem store"):
        Store.open(path, readonly=True)
    with Store.open(path) as store:
        assert store.revision() == 0


def test_missing_store_and_missing_folder(tmp_path: Path) -> None:
    for arguments in ({"readonly": True}, {"create": False}):
        with pytest.raises(StoreError, match="there is no store"):
            Store.open(tmp_path / "me.db", **arguments)
    with pytest.raises(StoreError, match=r"the folder .*nowhere does not exist"):
        Store.open(tmp_path / "nowhere" / "me.db")
    assert list(tmp_path.iterdir()) == []


def test_directories_pipes_sockets_devices_and_loops_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(tmp_path)  # the path of a socket may only be short
        server.bind("socket")
        os.chdir(here)
        for name, start in (
            (".", "is a directory"),
            ("pipe", "is a FIFO"),
            ("socket", "is a socket"),
            ("loop", "cannot be opened"),
        ):
            with pytest.raises(StoreError, match=start):
                Store.open(tmp_path / name)
    with pytest.raises(StoreError, match="is a character device"):
        Store.open("/dev/null")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("", ArgumentError),
        ("a\0b", ArgumentError),
        (3, DTypeError),
        (None, DTypeError),
        (b"x", DTypeError),
    ],
)
def test_what_is_no_path(path: object, error: type[RiememError]) -> None:
    with pytest.raises(error, match=r"^path: expected"):
        Store.open(path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["with space.db", "emoji 🐢.db", "what?mode=ro.db", "100%25#x.db", "a&b=c.db"]
)
def test_any_name_is_taken_as_it_is(tmp_path: Path, name: str) -> None:
    with Store.open(tmp_path / name):
        pass
    assert [f.name for f in tmp_path.iterdir()] == [name]
    with Store.open(tmp_path / name, readonly=True) as store:
        assert store.revision() == 0


def test_a_link_to_a_store_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    path = make_store(tmp_path / "real" / "me.db")
    (tmp_path / "link.db").symlink_to(path)
    with Store.open(tmp_path / "link.db") as a, Store.open(path) as b:
        with a.writing():
            pass
        assert b.revision() == 1


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_store_marked_read_only_is_refused_for_writing_and_readable(
    tmp_path: Path, what: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = make_store(folder / "me.db")
    marked = path if what == "file" else folder
    mode = marked.stat().st_mode
    marked.chmod(mode & 0o555)
    before = fingerprint(folder)
    try:
        with pytest.raises(
            StoreReadOnlyError, match="is not writable; open the store with readonly"
        ):
            Store.open(path)
        with Store.open(path, readonly=True) as store:
            assert store.revision() == 0
            with (
                pytest.raises(StoreReadOnlyError, match="opened with readonly=True"),
                store.writing(),
            ):
                pass
        assert {name: h for name, (h, _) in fingerprint(folder).items() if name == "me.db"} == {
            "me.db": before["me.db"][0]
        }
    finally:
        marked.chmod(mode)


def test_read_only_sees_what_is_still_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with Store.open(path) as writer, Store.open(path, readonly=True) as reader:
        for number in (1, 2, 3):
            with writer.writing():
                pass
            assert reader.revision() == number


@pytest.mark.parametrize(
    ("timeout", "error"),
    [
        (-1, ArgumentError),
        (float("nan"), ArgumentError),
        (float("inf"), ArgumentError),
        ("5", DTypeError),
        (True, DTypeError),
        (None, DTypeError),
    ],
)
def test_what_is_no_timeout(tmp_path: Path, timeout: object, error: type[RiememError]) -> None:
    with pytest.raises(error, match=r"^timeout: expected"):
        Store.open(tmp_path / "me.db", timeout=timeout)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_durability(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"^durability: expected one of \['full', 'normal'\]"):
        Store.open(tmp_path / "me.db", durability="paranoid")
    for name, value in (("full", 2), ("normal", 1)):
        with (
            Store.open(tmp_path / "me.db", durability=name) as store,
            store.exclusive() as connection,
        ):
            assert connection.execute("PRAGMA synchronous").fetchone()[0] == value


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("database is locked", StoreLockedError),
        ("attempt to write a readonly database", StoreReadOnlyError),
        ("file is not a database", StoreCorruptError),
        ("database disk image is malformed", StoreCorruptError),
        ("database or disk is full", StoreError),
        ("disk I/O error", StoreError),
    ],
)
def test_errors_of_sqlite_get_types(text: str, error: type[StoreError]) -> None:
    with pytest.raises(StoreError, match=r"^me\.db: ") as caught, explain_errors("me.db", 1.0):
        raise sqlite3.OperationalError(text)
    assert type(caught.value) is error


def test_a_full_disk_keeps_the_old_content_and_nothing_of_the_new(tmp_path: Path) -> None:
    # The size of files is limited in a child, because the limit would hold for the test run too.
    code = """
import resource, signal, sys
from riemem.embed import HashingEmbedder
from riemem.errors import StoreError
from riemem.memory import Memory
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Memory.open(sys.argv[1], embedder=HashingEmbedder(dim=8)) as memory:
    memory.add("was there before")
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
    try:
        memory.add("x", metadata={"long": "x" * 1_000_000})
    except StoreError as error:
        print("refused:", error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    memory.add("there is room again")
    print([record.text for record in memory.list()], memory.check().ok)
"""
    path = str(tmp_path / "me.db")
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"refused: {path}: ")
    assert lines[1] == "['was there before', 'there is room again'] True"

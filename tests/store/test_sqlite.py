from __future__ import annotations

import gc
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import EmbedderMismatchError, StoreError, StoreLockedError
from riemem.memory import Memory
from riemem.store import Identity, Store
from riemem.store.sqlite import require_identity, write_identity

IDENTITY = Identity("model-a", 384, "name-said")


def write_and_fail(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO meta VALUES ('x', 1)")
    raise RuntimeError("half way")


def test_writes_count_up_and_an_exception_undoes_one(tmp_path: Path) -> None:
    with Store.open(tmp_path / "me.db") as store:
        with store.writing() as transaction:
            assert transaction.revision == 1
        with pytest.raises(RuntimeError, match="half way"), store.writing() as transaction:
            write_and_fail(transaction.connection)
        assert store.revision() == 1
        with store.reading() as connection:
            assert connection.execute("SELECT count(*) FROM meta WHERE key = 'x'").fetchone() == (
                0,
            )


def test_a_reader_sees_one_moment(tmp_path: Path) -> None:
    with Store.open(tmp_path / "me.db") as store:
        with store.reading() as connection:
            first = connection.execute("SELECT value FROM meta").fetchone()
            with store.writing():
                pass
            assert connection.execute("SELECT value FROM meta").fetchone() == first == (0,)
            assert store.revision() == 0  # within the same moment
        assert store.revision() == 1


def test_the_reading_connection_cannot_write(tmp_path: Path) -> None:
    with (
        Store.open(tmp_path / "me.db") as store,
        pytest.raises(StoreError, match="readonly"),
        store.reading() as connection,
    ):
        connection.execute("DELETE FROM meta")


def test_closed_is_closed(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "me.db")
    store.close()
    store.close()
    assert store.closed
    for use in (store.revision, store.identity, store.check_writable):
        with pytest.raises(StoreError, match="the store is closed"):
            use()


def test_a_store_that_is_dropped_closes_its_files(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "me.db")
    with store.writing():
        pass
    assert Path(f"{store.path}-wal").exists()
    del store
    gc.collect()
    assert os.listdir(tmp_path) == ["me.db"]


def test_another_embedder_is_named_with_the_command(tmp_path: Path) -> None:
    other = Identity("model-b", 768, "name-said")
    with Store.open(tmp_path / "me.db") as store:
        assert store.identity() is None
        with store.writing() as transaction:
            assert require_identity(transaction.connection, IDENTITY, store.path) is None
            write_identity(transaction.connection, IDENTITY)
        assert store.identity() == IDENTITY
        with store.reading() as connection:
            assert require_identity(connection, IDENTITY, store.path) == IDENTITY
        with pytest.raises(EmbedderMismatchError) as caught, store.reading() as connection:
            require_identity(connection, other, store.path)
        for part in ("model-a (384-d", "model-b (768-d", "`riemem reembed`"):
            assert part in str(caught.value)


def test_a_lock_of_another_process_is_waited_for_and_then_named(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with Store.open(path, timeout=0.1) as store:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        with (
            pytest.raises(StoreLockedError, match=r"kept the store locked for more than 0\.1 s"),
            store.writing(),
        ):
            pass
        assert store.revision() == 0  # reading goes on meanwhile
        with Store.open(path, timeout=60) as patient:
            release = threading.Timer(0.2, lambda: other.execute("ROLLBACK"))
            release.start()
            with patient.writing() as transaction:
                assert transaction.revision == 1
            release.join()
        other.close()


def test_a_thread_that_holds_the_store_is_waited_for_and_then_named(tmp_path: Path) -> None:
    with Store.open(tmp_path / "me.db", timeout=0.05) as store:
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with store.writing():
                held.set()
                done.wait(30)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(30)
        try:
            with pytest.raises(StoreLockedError, match="another thread"), store.writing():
                pass
            assert store.revision() == 0
        finally:
            done.set()
            thread.join()
        assert store.revision() == 1


def test_the_same_file_twice_in_one_process(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with Store.open(path) as a:
        with Store.open(path) as b:
            for number in range(1, 9):
                with (a if number % 2 else b).writing() as transaction:
                    assert transaction.revision == number
        with a.writing():  # closing b let go of nothing that a holds
            locked = subprocess.run(
                [
                    sys.executable,
                    "-c",
                    "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute("
                    "'BEGIN IMMEDIATE')",
                    str(path),
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            assert "database is locked" in locked.stderr


def test_looking_at_a_path_drops_no_lock_of_this_process(tmp_path: Path) -> None:
    # A second opening that looks at the header must not close a descriptor of its own.
    path = tmp_path / "me.db"
    take = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
    with Store.open(path) as store, store.writing():
        Store.open(path, readonly=True).close()
        Store.open(path).close()
        locked = subprocess.run(
            [sys.executable, "-c", take, str(path)], capture_output=True, text=True, check=False
        )
    assert "database is locked" in locked.stderr


def what_happens(use: Callable[[], object]) -> str:
    try:
        use()
    except StoreError as error:
        return "forked" if "open it in the child" in str(error) else str(error)
    return "no error"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork_the_child_is_told_to_open_it_itself(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=HashingEmbedder(dim=8)) as memory:
        memory.add("before the fork")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # no assertion may be raised from here on
            said = [
                what_happens(use)
                for use in (memory.list, lambda: memory.add("x"), lambda: memory.search("x"))
            ]
            memory.close()
            with Memory.open(path, embedder=HashingEmbedder(dim=8)) as own:
                said.append(own.list()[0].text)
                own.add("from the child")
            os.write(writing, "|".join(said).encode())
            os._exit(0)
        os.close(writing)
        assert os.waitpid(child, 0)[1] == 0
        assert os.read(reading, 10_000).decode() == "forked|forked|forked|before the fork"
        os.close(reading)
        assert [record.text for record in memory.list(order="id")] == [
            "before the fork",
            "from the child",
        ]
        memory.add("after the fork")
        assert memory.check().ok

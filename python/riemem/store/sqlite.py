"""The store: one SQLite file holding memories, their vectors, and what is derived from them.

The store knows texts and rows of numbers; what the numbers mean is the embedder's business. All
work on vectors is tied to an :class:`Identity`, which is written with the first vector and
compared inside every transaction after it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from riemem.errors import (
    ArgumentError,
    DTypeError,
    EmbedderMismatchError,
    StoreError,
    StoreLockedError,
    StoreReadOnlyError,
)
from riemem.store.connect import (
    DURABILITY,
    IN_MEMORY,
    Frozen,
    connect,
    explain_errors,
    inspect_path,
    open_reader,
    reopened,
    unchanged,
)
from riemem.store.filesystem import require_local
from riemem.store.migrations import SCHEMA_VERSION, refuse_newer

__all__ = ["Identity", "Store", "Transaction"]

_live: weakref.WeakSet[Store] = weakref.WeakSet()
# Connections that came into a child process by fork. Closing them there could remove files that
# the parent still uses, so they are kept, unused, until the child ends.
_inherited: list[sqlite3.Connection] = []


@dataclass(frozen=True)
class Identity:
    """Whose vectors a store holds: the embedder, its dimension, and how a turn was written out."""

    embedder: str
    dim: int
    rendering: str

    def __str__(self) -> str:
        return f"{self.embedder} ({self.dim}-d, rendering {self.rendering!r})"


@dataclass(frozen=True)
class Transaction:
    """A write in progress: the connection and the number that marks the rows it changes."""

    connection: sqlite3.Connection
    revision: int


class Store:
    """An open store. Made by :meth:`open`; safe to use from many threads and processes.

    Notes
    -----
    One connection writes and one reads, each behind its own lock, so that a search is not kept
    waiting by a write. Every write is one ``BEGIN IMMEDIATE`` transaction: it is there completely
    once the call returns, or not at all.
    """

    def __init__(
        self,
        path: str,
        connections: tuple[sqlite3.Connection, sqlite3.Connection],
        *,
        readonly: bool,
        timeout: float,
    ) -> None:
        self.path = path
        self.readonly = readonly
        self.timeout = timeout
        self._writer, self._reader = connections
        self._write_lock = threading.RLock()
        shared = self._writer is self._reader
        self._read_lock = self._write_lock if shared else threading.RLock()
        self._reading: int | None = None  # the thread whose read transaction is open
        self._pid = os.getpid()
        self._closed = False
        self._file = _file_at(path)
        self._log_path = path if path == IN_MEMORY else f"{os.path.realpath(path)}-wal"
        self._log = _file_at(self._log_path)
        self.known: dict[str, tuple[int, Any]] = {}  # see riemem.store.remembered
        self._finalizer = weakref.finalize(self, _close_connections, connections, self._pid)
        _live.add(self)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        readonly: bool = False,
        timeout: float = 5.0,
        durability: str = "full",
        create: bool = True,
    ) -> Store:
        """Open a store, making it if there is none.

        Parameters
        ----------
        path : str or path
            ``":memory:"`` keeps everything in this process and writes nothing.
        readonly : bool
            Nothing is written, not even beside the file where that can be avoided.
        timeout : float
            Seconds to wait for another process or thread before :class:`StoreLockedError`.
        durability : {"full", "normal"}
            "full" waits for the disk at each commit: an acknowledged write survives a power cut.
            "normal" survives the death of the process, but a power cut may undo the last commits.
        create : bool
            False raises :class:`StoreError` when there is no store.

        Raises
        ------
        StoreError, StoreCorruptError, SchemaVersionError, StoreReadOnlyError, StoreLockedError
            The file is left as it was.

        Examples
        --------
        >>> with Store.open(":memory:") as store:
        ...     store.revision()
        0
        """
        name = _check_path(path)
        seconds = _check_timeout(timeout)
        if durability not in DURABILITY:
            raise ArgumentError(
                f"durability: expected one of {sorted(DURABILITY)}, got {durability!r}"
            )
        if name == IN_MEMORY:
            if readonly:
                raise ArgumentError("readonly: a store in memory has nothing to read")
            new = True
        else:
            new = inspect_path(name, readonly=readonly, create=create)
            if not readonly:
                require_local(name)
        connections = connect(
            name, readonly=readonly, timeout=seconds, durability=durability, new=new
        )
        return cls(name, connections, readonly=readonly, timeout=seconds)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """True after :meth:`close`."""
        return self._closed

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        if os.getpid() != self._pid:
            self._closed = True
            return
        with self._write_lock, self._read_lock:
            if not self._closed:
                self._closed = True
                with explain_errors(self.path, self.timeout):
                    self._finalizer()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A read transaction: everything read inside is of one moment.

        Raises
        ------
        StoreError
            Closed, or opened before a fork.
        """
        if self._reading == threading.get_ident():  # inside another one of the same thread
            self._check_process()
            with explain_errors(self.path, self.timeout):
                yield self._reader
            return
        with self._holding(self._read_lock), explain_errors(self.path, self.timeout):
            if isinstance(self._reader, Frozen):
                self._follow()
            connection = self._reader
            if connection.in_transaction:  # inside a write to a store in memory
                yield connection
                return
            connection.execute("BEGIN")
            self._reading = threading.get_ident()
            try:
                if isinstance(connection, Frozen):
                    with unchanged(connection):
                        yield connection
                else:
                    yield connection
            finally:
                self._reading = None
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def mark(self) -> int | None:
        """A number that is another one once anybody has written; None where nobody can tell.

        While it stays the same, whatever was read after it was taken would be read again. Inside
        :meth:`reading` it is that of the moment which is read. A store in memory, or opened
        read-only, has none: its one connection does not notice what it does itself.
        """
        connection = self._reader
        if connection is self._writer:
            self._check_usable()
            return None
        if self._reading == threading.get_ident():
            return int(connection.execute("PRAGMA data_version").fetchone()[0])
        with self._holding(self._read_lock), explain_errors(self.path, self.timeout):
            return int(connection.execute("PRAGMA data_version").fetchone()[0])

    def _follow(self) -> None:
        """Open the file again where others wrote to it and no lock or log told of that."""
        fresh = reopened(self._reader, self.timeout)
        if fresh is not None:
            self._finalizer.detach()
            self._reader.close()
            self._writer = self._reader = fresh
            self._finalizer = weakref.finalize(self, _close_connections, (fresh, fresh), self._pid)

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A read transaction on a connection of its own, for reading at length.

        Searches and writes of this process go on meanwhile. A store in memory has one connection
        only, which is kept.
        """
        if self.path == IN_MEMORY:
            with self.reading() as connection:
                yield connection
            return
        self._check_usable()
        with explain_errors(self.path, self.timeout):
            connection = open_reader(self.path, self.timeout)
            try:
                connection.execute("BEGIN")
                with unchanged(connection):
                    yield connection
            finally:
                connection.close()

    @contextmanager
    def writing(self, *, advance: bool = True) -> Iterator[Transaction]:
        """A write transaction, committed at the end or undone by an exception.

        Parameters
        ----------
        advance : bool
            False for what no reader needs to hear of: the number stays that of the last write.

        Raises
        ------
        StoreReadOnlyError
            Opened read-only.
        StoreLockedError
            Another writer kept the store for longer than the timeout.
        """
        if self.readonly:
            self.check_writable()
        with self._holding(self._write_lock), explain_errors(self.path, self.timeout):
            connection = self._writer
            connection.execute("BEGIN IMMEDIATE")
            try:
                # A newer riemem may have changed the tables since this store was opened.
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                refuse_newer(int(version), self.path)
                sql = "SELECT value FROM meta WHERE key = 'revision'"
                if advance:
                    sql = "UPDATE meta SET value = value + 1 WHERE key = 'revision' RETURNING value"
                revision = int(connection.execute(sql).fetchone()[0])
                yield Transaction(connection, revision)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def exclusive(self) -> Iterator[sqlite3.Connection]:
        """The writing connection outside any transaction, with this process's readers waiting."""
        if self.readonly:
            self.check_writable()
        with (
            self._holding(self._write_lock),
            self._holding(self._read_lock),
            explain_errors(self.path, self.timeout),
        ):
            yield self._writer

    def revision(self) -> int:
        """The number of the last committed write."""
        with self.reading() as connection:
            return int(get_meta(connection, "revision") or 0)

    def identity(self) -> Identity | None:
        """Whose vectors the store holds, or None while it holds none."""
        with self.reading() as connection:
            return read_identity(connection)

    def check_writable(self) -> None:
        """Raise StoreReadOnlyError if opened read-only, StoreError if closed or forked."""
        self._check_usable()
        if self.readonly:
            raise StoreReadOnlyError(f"{self.path}: was opened with readonly=True")

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError(
                f"{self.path}: was opened before this process was forked; open it in the child"
            )

    def _check_usable(self) -> None:
        self._check_process()
        if self._closed:
            raise StoreError(f"{self.path}: the store is closed")
        # What is written to a deleted file is lost with it, and SQLite does not mind.
        if self._file != _file_at(self.path):
            raise StoreError(
                f"{self.path}: the file was deleted or replaced while it was open; "
                "close the store and open it again"
            )
        # Nobody but the last user removes the log. Who opens the store without it makes a new one,
        # and the two would overwrite each other.
        if self._log is not None and self._log != _file_at(self._log_path):
            raise StoreError(
                f"{self.path}: its log ({self._log_path}) was deleted, moved or replaced while "
                "it was open; put it back, or close the store and open it again"
            )

    @contextmanager
    def _holding(self, lock: threading.RLock) -> Iterator[None]:
        self._check_process()  # a lock that another thread held at the fork is never released
        if not lock.acquire(timeout=self.timeout):
            raise StoreLockedError(
                f"{self.path}: another thread kept the store busy for more than "
                f"{self.timeout:g} s; try again, or give a longer timeout="
            )
        try:
            self._check_usable()
            yield
        finally:
            lock.release()


def _file_at(path: str) -> tuple[int, int] | None:
    if path == IN_MEMORY:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def get_meta(connection: sqlite3.Connection, key: str) -> Any:
    """Return a value of the table ``meta``, or None."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else row[0]


def set_meta(connection: sqlite3.Connection, key: str, value: object) -> None:
    """Write a value of the table ``meta``; None removes it."""
    if value is None:
        connection.execute("DELETE FROM meta WHERE key = ?", (key,))
    else:
        connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Whether the store has a table: one of an older schema, opened read-only, may lack it."""
    if connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION:
        return True
    found = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)
    )
    return found.fetchone() is not None


def holds_any(connection: sqlite3.Connection, name: str) -> bool:
    """Whether the store has such a table, and in it a row.

    Many stores hold nothing in many of them; to know that takes a tenth of asking for some ids.
    """
    if not has_table(connection, name):
        return False
    return bool(connection.execute(f"SELECT EXISTS (SELECT 1 FROM {name})").fetchone()[0])


def read_identity(connection: sqlite3.Connection) -> Identity | None:
    """Return whose vectors the store holds, or None while it holds none."""
    found = dict(
        connection.execute(
            "SELECT key, value FROM meta WHERE key IN ('embedder', 'dim', 'rendering')"
        ).fetchall()
    )
    if "embedder" not in found:
        return None
    return Identity(str(found["embedder"]), int(found.get("dim") or 0), str(found.get("rendering")))


def write_identity(connection: sqlite3.Connection, identity: Identity) -> None:
    """Record whose vectors the store holds from now on."""
    set_meta(connection, "embedder", identity.embedder)
    set_meta(connection, "dim", identity.dim)
    set_meta(connection, "rendering", identity.rendering)


def require_identity(
    connection: sqlite3.Connection, identity: Identity, path: str
) -> Identity | None:
    """Return the stored identity (None while there is none); raise when it is another one.

    Raises
    ------
    EmbedderMismatchError
        Naming both and the command that embeds the store again.
    """
    stored = read_identity(connection)
    if stored is not None and stored != identity:
        raise EmbedderMismatchError(
            f"{path}: the store holds vectors of {stored}, the embedder given is {identity}. "
            "Open it with the first, or embed it again with `riemem reembed` "
            "(Memory.reembed_store)"
        )
    return stored


def _check_path(path: object) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise DTypeError(f"path: expected str or path, got {type(path).__name__}")
    name = os.fspath(path)
    if not isinstance(name, str):
        raise DTypeError(f"path: expected str or path, got {type(name).__name__}")
    if not name or "\0" in name:
        raise ArgumentError(f"path: expected the path of a store, got {name!r}")
    # Absolute, because the process may change its folder while the store is open.
    return name if name == IN_MEMORY else os.path.abspath(name)


def _check_timeout(timeout: object) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise DTypeError(f"timeout: expected seconds as a number, got {type(timeout).__name__}")
    if not 0 <= timeout <= 86_400:
        raise ArgumentError(f"timeout: expected 0 to 86400 seconds, got {timeout}")
    return float(timeout)


def _close_connections(
    connections: tuple[sqlite3.Connection, sqlite3.Connection], pid: int
) -> None:
    if os.getpid() != pid:
        _inherited.extend(connections)
        return
    writer, reader = connections
    # The last one to close folds the log into the file; the reader may not write, so it goes first.
    if reader is not writer:
        reader.close()
    writer.close()


def _after_fork_in_child() -> None:
    for store in list(_live):
        _inherited.extend((store._writer, store._reader))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

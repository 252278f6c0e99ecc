"""Opening the file: what it is, whether it is ours, and what an SQLite error means for the user.

Nothing here opens the file except SQLite itself. A plain ``open`` of the database would, on
closing, drop every POSIX lock that this process holds on it, also those of other connections.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from riemem.errors import (
    StoreCorruptError,
    StoreError,
    StoreLockedError,
    StoreReadOnlyError,
)
from riemem.store.migrations import migrate, refuse_newer
from riemem.store.schema import APPLICATION_ID, MIN_SQLITE, PAGE_SIZE

__all__ = ["DURABILITY", "IN_MEMORY", "connect", "explain_errors", "inspect_path"]
__all__ += ["Frozen", "open_reader", "reopened", "unchanged"]

IN_MEMORY = ":memory:"

#: Value of PRAGMA synchronous for each promise.
DURABILITY = {"full": "FULL", "normal": "NORMAL"}


def inspect_path(path: str, *, readonly: bool, create: bool) -> bool:
    """Look at the path without opening it and return whether the store must still be made.

    Raises
    ------
    StoreError
        A directory, FIFO, socket, device, loop of links, missing folder, or missing file that may
        not be created.
    StoreReadOnlyError
        A file or folder without any write permission, and `readonly` is false.
    StoreCorruptError
        An empty file, and `readonly` is true.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return _inspect_missing(path, readonly=readonly, create=create)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path!r}: cannot be opened: {error}") from error
    if not stat.S_ISREG(found.st_mode):
        kinds = {
            stat.S_IFDIR: "a directory",
            stat.S_IFIFO: "a FIFO",
            stat.S_IFSOCK: "a socket",
            stat.S_IFCHR: "a character device",
            stat.S_IFBLK: "a block device",
        }
        kind = kinds.get(stat.S_IFMT(found.st_mode), "no regular file")
        raise StoreError(f"{path}: is {kind}, expected the path of a store file")
    if readonly:
        if found.st_size == 0 and not _has_log(path):
            raise StoreCorruptError(f"{path}: is empty, not a riemem store")
        return False
    # SQLite needs to write beside the file too. Root may write anywhere; a file that was marked
    # as read-only is still meant to stay as it is.
    folder = os.path.dirname(os.path.realpath(path))
    for place in (path, folder):
        if not os.stat(place).st_mode & 0o222 or not os.access(place, os.W_OK):
            raise StoreReadOnlyError(
                f"{path}: {place} is not writable; open the store with readonly=True to read it"
            )
    return found.st_size == 0


def _inspect_missing(path: str, *, readonly: bool, create: bool) -> bool:
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise StoreError(f"{path}: the folder {folder} does not exist")
    if readonly or not create:
        raise StoreError(f"{path}: there is no store")
    if not os.stat(folder).st_mode & 0o222 or not os.access(folder, os.W_OK):
        raise StoreReadOnlyError(f"{path}: the folder {folder} is not writable")
    return True


def connect(
    path: str, *, readonly: bool, timeout: float, durability: str, new: bool
) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """Return a connection for writing and one for reading; the same one twice where one must do.

    With two, a search is never kept waiting by a write of the same process.

    Raises
    ------
    StoreError and its kinds
        See :func:`explain_errors`; the file is untouched then.
    """
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        wanted = ".".join(map(str, MIN_SQLITE))
        raise StoreError(f"SQLite {wanted} or newer is needed, got {sqlite3.sqlite_version}")
    with explain_errors(path, timeout):
        if path == IN_MEMORY:
            only = _configured(_open_named(path, timeout, uri=False), durability, False)
            migrate(only, path)
            return only, only
        if not new:
            new = _is_empty(path, timeout)
        if readonly:
            if new:
                raise StoreCorruptError(f"{path}: is empty, not a riemem store")
            only = _configured(_open_readonly(path, timeout), durability, True)
            return only, only
        writer = _configured(_open(path, "rwc" if new else "rw", timeout), durability, False)
        try:
            if new:
                writer.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            _switch_to_wal(writer, timeout)
            # Another process may have made something else here since the path was looked at.
            _check_identity(writer, path)
            migrate(writer, path)
            reader = _configured(_open(path, "rw", timeout), durability, True)
        except BaseException:
            writer.close()
            raise
        return writer, reader


@contextmanager
def explain_errors(path: str, timeout: float = 0.0) -> Iterator[None]:
    """Turn errors of sqlite3 into the package's own, naming the file and the way out.

    Raises
    ------
    StoreLockedError, StoreReadOnlyError, StoreCorruptError, StoreError
    """
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            raise StoreLockedError(
                f"{path}: another process kept the store locked for more than {timeout:g} s; "
                "try again, or give a longer timeout="
            ) from error
        if "readonly" in text or "read-only" in text:
            raise StoreReadOnlyError(f"{path}: the store is read-only ({text})") from error
        if "not a database" in text or "malformed" in text or "corrupt" in text:
            raise StoreCorruptError(
                f"{path}: is damaged or not a riemem store ({text}); it was left untouched"
            ) from error
        if "is full" in text:
            raise StoreError(f"{path}: the disk is full; nothing of this write was kept") from error
        raise StoreError(f"{path}: {text}") from error


def reopened(connection: sqlite3.Connection, timeout: float) -> sqlite3.Connection | None:
    """Return a connection to what the file is now, or None where this one still shows that."""
    if not (isinstance(connection, Frozen) and connection.changed()):
        return None
    _check_identity(fresh := open_reader(connection.path, timeout), connection.path)
    return fresh


def open_reader(path: str, timeout: float) -> sqlite3.Connection:
    """Return one more connection for reading a store that is open already."""
    return _configured(_open_readonly(path, timeout), "full", True)


def _open_named(name: str, timeout: float, *, uri: bool) -> sqlite3.Connection:
    # Autocommit: transactions are opened and closed by the store, in words.
    return sqlite3.connect(
        name, timeout=timeout, isolation_level=None, check_same_thread=False, uri=uri
    )


def _open(path: str, mode: str, timeout: float, extra: str = "") -> sqlite3.Connection:
    name = urllib.parse.quote(path)
    return _open_named(f"file:{name}?mode={mode}{extra}", timeout, uri=True)


def _open_readonly(path: str, timeout: float) -> sqlite3.Connection:
    connection = _open(path, "ro", timeout)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        # On read-only media SQLite cannot make the file that readers share. Without a log beside
        # the store nobody is writing, and it can be read as it lies.
        if _has_log(path) or "locked" in str(error):
            raise
        return _open_frozen(path, timeout)
    except BaseException:
        connection.close()
        raise
    return connection


class Frozen(sqlite3.Connection):
    """A connection that takes no locks and sees no log, for a store that nobody writes to.

    Whoever does write makes a log first and changes the file after that, so :meth:`changed` says
    whether what was read may be torn or old.
    """

    path: str
    _seen: object

    def changed(self) -> bool:
        """Whether anybody wrote to the store, or is about to, since it was opened."""
        return self._seen != _state(self.path)


def _state(path: str) -> tuple[object, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return (None, False)
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, _has_log(path))


def _open_frozen(path: str, timeout: float) -> Frozen:
    seen = _state(path)
    frozen = sqlite3.connect(
        f"file:{urllib.parse.quote(path)}?mode=ro&immutable=1",
        timeout=timeout, isolation_level=None, check_same_thread=False, uri=True, factory=Frozen,
    )  # fmt: skip
    frozen.path, frozen._seen = path, seen
    return frozen


@contextmanager
def unchanged(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold what is read inside to one state of the file, where no lock does that.

    Raises
    ------
    StoreLockedError
        Another process wrote meanwhile; what was read is not to be believed.
    """
    try:
        yield
    except (sqlite3.Error, StoreError) as error:
        if not (isinstance(connection, Frozen) and connection.changed()):
            raise
        cause: Exception | None = error
    else:
        if not (isinstance(connection, Frozen) and connection.changed()):
            return
        cause = None
    raise StoreLockedError(
        f"{connection.path}: another process wrote to the store while it was read; try again"
    ) from cause


def _configured(
    connection: sqlite3.Connection, durability: str, reading: bool
) -> sqlite3.Connection:
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        if reading:
            connection.execute("PRAGMA query_only = ON")
        else:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA synchronous = {DURABILITY[durability]}")
    except BaseException:
        connection.close()
        raise
    return connection


def _switch_to_wal(connection: sqlite3.Connection, timeout: float) -> None:
    # SQLite does not wait for this lock by itself, so two processes that make the same store at
    # the same moment would see "locked".
    deadline = time.monotonic() + timeout
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= deadline:
                raise
            time.sleep(0.005)
            continue
        if mode != "wal":
            raise StoreError(f"the file system does not support SQLite's WAL mode (got {mode!r})")
        return


def _is_empty(path: str, timeout: float) -> bool:
    """Refuse a stranger's file without leaving a trace; True for a database without any table."""
    # `immutable` reads the header and leaves no files beside the store; it does not see a log, so
    # it is used only where there is none. SQLite still shares its locks with the other
    # connections of this process. Since it takes no locks, what it reads while another process is
    # making the store may be torn, so a refusal is looked at again before it is believed.
    for _ in range(2):
        with suppress(sqlite3.Error, StoreCorruptError):
            return _probe(path, timeout)
        time.sleep(0.01)
    return _probe(path, timeout)


def _probe(path: str, timeout: float) -> bool:
    probe = _open(path, "ro", timeout, "" if _has_log(path) else "&immutable=1")
    try:
        return _check_identity(probe, path)
    finally:
        probe.close()


def _check_identity(connection: sqlite3.Connection, path: str) -> bool:
    connection.execute("BEGIN")  # one moment, one image of the first page
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    connection.execute("ROLLBACK")
    if tables == 0 and application == 0 and version == 0:
        return True
    if application != APPLICATION_ID:
        raise StoreCorruptError(
            f"{path}: is an SQLite database but not a riemem store; it was left untouched"
        )
    refuse_newer(version, path)
    return False


def _has_log(path: str) -> bool:
    try:
        return Path(f"{os.path.realpath(path)}-wal").stat().st_size > 0
    except OSError:
        return False

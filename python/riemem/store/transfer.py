"""A store and the files that memories leave it by and come from: exports and backups."""

from __future__ import annotations

import io
import os
import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from riemem.errors import ArgumentError, DTypeError, InputFileError, OutputFileError
from riemem.store.connect import IN_MEMORY
from riemem.store.exchange import Exported, Parcel, Progress, read_lines, write_lines
from riemem.store.files import check_target, explained, replacing, temporary_beside
from riemem.store.filters import Scope
from riemem.store.sqlite import Store

__all__ = ["back_up", "export_to", "parcel_from", "read_from"]

T = TypeVar("T")


def export_to(
    store: Store,
    where: Scope | None,
    target: Any,
    *,
    vectors: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write memories as JSON lines to a path, in one step at the end, or to an open file.

    Raises
    ------
    OutputFileError
        A path could not be written; what was there is as it was.
    CancelledError, ArgumentError, DTypeError
    """
    _check_progress(progress)
    if hasattr(target, "write"):
        write = _writer(target)
        return write_lines(store, where, write, vectors=vectors, progress=progress)
    path = check_target(target, "path", None if store.path == IN_MEMORY else store.path)
    with replacing(path) as file:
        return write_lines(store, where, file.write, vectors=vectors, progress=progress)


def parcel_from(source: Any, profile: str | None = None) -> Parcel:
    """Read and check an export from a path or an open file (text or bytes).

    Raises
    ------
    InputFileError
        No such file, or it cannot be read.
    SchemaVersionError, ArgumentError, DTypeError, TextError
        The message names the line.
    """
    return read_from(source, lambda lines, name: read_lines(lines, name, profile))


def read_from(source: Any, read: Callable[[Iterable[bytes], str], T]) -> T:
    """Call ``read(lines, name)`` with the lines of a path or of an open file (text or bytes).

    Raises
    ------
    InputFileError
        No such file, or it cannot be read.
    DTypeError
        Neither a path nor a file.
    """
    if hasattr(source, "read"):
        name = str(getattr(source, "name", "the file"))
        lines = (
            (line.encode("utf-8", "surrogatepass") for line in source)
            if isinstance(source, io.TextIOBase)
            else source
        )
        return read(lines, name)
    if not isinstance(source, (str, os.PathLike)):
        raise DTypeError(f"path: expected a path or an open file, got {type(source).__name__}")
    try:
        with open(source, "rb") as file:
            return read(file, os.fsdecode(source))
    except (OSError, ValueError) as error:
        no_name = isinstance(error, UnicodeEncodeError) or "null byte" in str(error)
        if isinstance(error, OSError) or no_name:
            why = getattr(error, "strerror", None) or str(error)
            shown = repr(source) if no_name else str(source)
            raise InputFileError(f"path: cannot read {shown}: {why}") from error
        raise


def back_up(store: Store, target: str | os.PathLike[str]) -> int:
    """Write a complete copy of the store to another path and return its size in bytes.

    The copy is of one moment, has no log and no free space, and takes the place of an older copy
    in one step. Others may read and write meanwhile.

    Raises
    ------
    ArgumentError
        The path is the store's own, or a store that somebody has open.
    OutputFileError
    """
    path = check_target(target, "path", None if store.path == IN_MEMORY else store.path)
    if os.path.exists(f"{path}-wal"):
        raise ArgumentError(f"path: {path} is a store that is open; expected another path")
    # One after the other: what SQLite's copy says about the disk gets its type from the store.
    with explained(path), temporary_beside(path) as temporary:
        with store.snapshot() as connection:
            if connection.in_transaction:
                connection.execute("ROLLBACK")  # the copy is a transaction of its own
            connection.execute("PRAGMA query_only = OFF")
            try:
                connection.execute("VACUUM INTO ?", (str(temporary),))
            except sqlite3.Error as error:
                why = "the disk is full" if "is full" in str(error) else str(error)
                raise OutputFileError(
                    f"path: {path} could not be written, and was left as it was: {why}"
                ) from error
        with open(temporary, "rb") as copy:
            os.fsync(copy.fileno())
        return temporary.stat().st_size


def _writer(target: Any) -> Callable[[bytes], object]:
    if isinstance(target, io.TextIOBase):
        return lambda data: target.write(data.decode("ascii"))
    write: Callable[[bytes], object] = target.write
    return write


def _check_progress(progress: object) -> None:
    if progress is not None and not callable(progress):
        raise DTypeError(f"progress: expected a function, got {type(progress).__name__}")

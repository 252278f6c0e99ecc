"""Files beside a store that are written as a whole: what was there before stays until then."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from riemem.errors import ArgumentError, DTypeError, OutputFileError

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has none, and keeps open files from being removed
    fcntl = None  # type: ignore[assignment]

__all__ = ["check_target", "replacing", "temporary_beside"]

_SUFFIX = ".riemem-part"


def _is_name(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:  # half of a character is in no name
        return False
    return True


def check_target(path: str | os.PathLike[str], name: str, store: str | None = None) -> Path:
    """Return where a file is to be written; links are followed.

    Parameters
    ----------
    path : str or path
    name : str
        The argument's name for messages.
    store : str, optional
        The path of an open store, which must not be overwritten.

    Raises
    ------
    DTypeError, ArgumentError
        No path, a directory, a missing folder, or a file of the store itself.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise DTypeError(f"{name}: expected a path, got {type(path).__name__}")
    text = os.fspath(path)
    if not isinstance(text, str):
        raise DTypeError(f"{name}: expected str or path, got {type(text).__name__}")
    if not text or "\0" in text or not _is_name(text):
        raise ArgumentError(f"{name}: expected the path of a file, got {text!r}")
    target = Path(os.path.realpath(text))
    if os.path.isdir(target):  # False where the system refuses to say
        raise ArgumentError(f"{name}: {text} is a directory, expected the path of a file")
    if not os.path.isdir(target.parent):
        raise ArgumentError(f"{name}: the folder {target.parent} does not exist")
    if store is not None:
        own = os.path.realpath(store)
        for file in (own, f"{own}-wal", f"{own}-shm", f"{own}-journal"):
            with contextlib.suppress(FileNotFoundError):
                if str(target) == file or (
                    os.path.exists(target) and os.path.samefile(target, file)
                ):
                    raise ArgumentError(f"{name}: {text} belongs to the store that is open")
    return target


@contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes the place of `target` at the end, in one step.

    It is made beside it, flushed to the disk and renamed, and so is the folder's entry. After an
    error, and after the death of the process, `target` is what it was; what a dead process left
    is removed by the next call.

    Raises
    ------
    OutputFileError
        It could not be written; "the disk is full" if that was the reason.
    """
    with explained(target):
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            with open(target, "wb") as device:  # a pipe or a device cannot be replaced
                yield device
            return
        with temporary_beside(target) as temporary, open(temporary, "r+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def temporary_beside(target: Path) -> Iterator[Path]:
    """An empty file in the same folder, which is renamed to `target` unless an exception comes.

    The caller brings what it wrote to the disk.
    """
    remove_stale(target)
    number, name = tempfile.mkstemp(
        prefix=f".{target.name[:100]}.", suffix=_SUFFIX, dir=target.parent
    )
    temporary = Path(name)
    try:
        if fcntl is not None:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)  # "somebody is writing this"
        if target.exists():
            os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
        yield temporary
        os.replace(temporary, target)
        sync_folder(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(number)


def remove_stale(target: Path) -> None:
    """Remove the unfinished files of processes that died while writing `target`."""
    if fcntl is None:
        return
    for path in target.parent.glob(f".{_quoted(target.name[:100])}.*{_SUFFIX}"):
        with contextlib.suppress(OSError):  # it is being written, or is gone already
            number = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(number)


def sync_folder(folder: Path) -> None:
    """Bring the folder's entries to the disk, where the system can."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextmanager
def explained(target: Path) -> Iterator[None]:
    """Give errors of the system a type and say what happened to the file.

    Raises
    ------
    OutputFileError
    """
    try:
        yield
    except OutputFileError:
        raise
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        why = "the disk is full" if full else error.strerror or str(error)
        raise OutputFileError(
            f"{target}: could not be written, and was left as it was: {why}"
        ) from error


def _quoted(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)

"""The file of a :class:`riemem.RiemannianIndex`: versioned, checksummed, mappable, all or nothing.

The layout is described in docs/index-format.md. Every byte of the file is covered by a digest, so
a file is either the one that was written or it is refused.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import mmap
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from riemem._arrays import F32, I64, LAST_ID
from riemem.errors import (
    DTypeError,
    InputFileError,
    RiememError,
    SchemaVersionError,
    StoreCorruptError,
    StoreError,
)
from riemem.metric import FisherMetric

__all__ = ["VERSION", "State", "read", "write"]

VERSION = 1
_MAGIC = b"\x89RIEMIX\n"  # not text, and spoilt by anything that rewrites line ends
_PREFIX = struct.Struct("<8sIIQ32s8x")  # magic, version, header bytes, file bytes, digest
_DIGEST_AT = slice(24, 56)
_ALIGN = 64
_CHUNK_ROWS = 4096
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_METRIC = ("shift", "sum", "scatter")


class Rows(Protocol):
    """Rows that can be read in parts."""

    @property
    def count(self) -> int: ...
    def get(self, start: int, stop: int) -> F32: ...


@dataclass(frozen=True)
class Mapped:
    """Rows inside a mapped file; the map lives as long as an array made of it."""

    rows: F32

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self.rows.shape[0])

    def get(self, start: int, stop: int) -> F32:
        """Rows [start, stop)."""
        return self.rows[start:stop]


@dataclass(frozen=True)
class State:
    """Everything an index is made of; what can be derived from it is not in the file."""

    options: Mapping[str, Any]  # arguments of the constructor
    rows: Rows
    ids: I64
    metric: FisherMetric
    next_id: int
    removals: int


def _path(path: object) -> Path:
    try:
        return Path(os.fsdecode(os.fspath(path)))  # type: ignore[call-overload]
    except TypeError as error:
        raise DTypeError(f"path: expected a path, got {type(path).__name__}") from error


# -- writing -----------------------------------------------------------------------------------


def write(path: object, state: State) -> None:
    """Write a file beside the old one, bring it to the disk, and put it in the old one's place.

    Raises
    ------
    StoreError
        The file cannot be written; the old one is untouched and nothing else is left behind.
    DTypeError
        Not a path.
    """
    target = _path(path)
    try:
        mode = None
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(target)
            mode = stat.S_IMODE(found.st_mode)
            if not stat.S_ISREG(found.st_mode):
                raise StoreError(f"path: expected a file, got something else at {target}")
        _replace(Path(os.path.realpath(target)), mode, state)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        number = getattr(error, "errno", None)
        reason = f"no space left ({error})" if number in _FULL else str(error)
        raise StoreError(f"path: cannot save the index at {target}: {reason}") from error


def _replace(target: Path, mode: int | None, state: State) -> None:
    temporary = _temporary(target)
    file = _open_alone(temporary)
    try:
        os.ftruncate(file, 0)
        _write_all(file, state)
        if mode is not None:
            os.fchmod(file, mode)
        os.fsync(file)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            os.unlink(temporary)
        raise
    finally:
        os.close(file)
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.saving")


def _open_alone(path: Path) -> int:
    """Create or take over the temporary file; a second writer waits for the first."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_still(path, file):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _is_still(path: Path, file: int) -> bool:
    """Say whether the path still names the open file."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(file))
    except FileNotFoundError:
        return False


def _sweep(path: Path) -> None:
    """Remove what a killed writer left, unless one is at work. Best effort: reading goes on."""
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, file):
                os.unlink(path)
        finally:
            os.close(file)


def _write_all(file: int, state: State) -> None:
    dim = state.metric.dim
    sums = state.metric.to_dict()
    shapes: dict[str, tuple[str, list[int]]] = {
        "rows": ("<f4", [state.rows.count, dim]),
        "ids": ("<i8", [state.rows.count]),
        "shift": ("<f8", [dim]),
        "sum": ("<f8", [dim]),
        "scatter": ("<f8", [dim, dim]),
    }
    sections = {
        name: {"dtype": dtype, "shape": shape, "offset": 0, "digest": "0" * 32}
        for name, (dtype, shape) in shapes.items()
    }
    header = {
        "options": dict(state.options),
        "next_id": state.next_id,
        "removals": state.removals,
        "sections": sections,
    }
    # Offsets need the header's size, which needs the offsets: room for 20 digits each.
    room = _padded(len(json.dumps(header)) + 20 * len(sections))
    offset = _PREFIX.size + room
    parts = {
        "ids": [state.ids.astype("<i8").tobytes()],
        **{name: [sums[name].astype("<f8").tobytes()] for name in _METRIC},
    }
    for name, section in sections.items():
        section["offset"] = offset
        pieces = _row_bytes(state.rows) if name == "rows" else iter(parts[name])
        offset, section["digest"] = _write_section(file, offset, pieces)
    text = json.dumps(header).encode().ljust(room)
    prefix = bytearray(_PREFIX.pack(_MAGIC, VERSION, room, offset, b""))
    prefix[_DIGEST_AT] = _header_digest(prefix, text)
    _pwrite(file, bytes(prefix) + text, 0)


def _row_bytes(rows: Rows) -> Iterator[bytes]:
    for start in range(0, rows.count, _CHUNK_ROWS):
        part = rows.get(start, min(start + _CHUNK_ROWS, rows.count))
        yield part.astype("<f4", copy=False).tobytes()


def _write_section(file: int, offset: int, pieces: Iterator[bytes]) -> tuple[int, str]:
    digest = hashlib.blake2b(digest_size=16)
    size = 0
    for piece in pieces:
        _pwrite(file, piece, offset + size)
        digest.update(piece)
        size += len(piece)
    padding = bytes(_padded(size) - size)
    _pwrite(file, padding, offset + size)
    digest.update(padding)
    return offset + size + len(padding), digest.hexdigest()


def _pwrite(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(file, view, offset)
        view, offset = view[done:], offset + done


def _padded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _header_digest(prefix: bytes | bytearray, text: bytes) -> bytes:
    bare = bytearray(prefix)
    bare[_DIGEST_AT] = bytes(32)
    return hashlib.blake2b(bytes(bare) + text, digest_size=32).digest()


# -- reading -----------------------------------------------------------------------------------


def read(path: object) -> State:
    """Check every byte of a file and return what it holds; the rows stay in the mapped file.

    Raises
    ------
    InputFileError
        There is no such file, or it cannot be opened.
    StoreCorruptError
        Truncated, altered, or not a file of this kind.
    SchemaVersionError
        Written by a newer version.
    DTypeError
        Not a path.
    """
    source = _path(path)
    try:
        file = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise InputFileError(f"path: cannot open the index at {source}: {error}") from error
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise StoreCorruptError(f"path: expected a file, got something else at {source}")
        if found.st_size < _PREFIX.size:
            raise _corrupt(source, f"it has {found.st_size} bytes")
        data = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise InputFileError(f"path: cannot read the index at {source}: {error}") from error
    finally:
        os.close(file)
    _sweep(_temporary(Path(os.path.realpath(source))))
    header, arrays = _parse(source, data)
    try:
        return _state(header, arrays)
    except (KeyError, TypeError, ValueError, RiememError) as error:
        raise _corrupt(source, f"its header makes no sense ({error})") from error


def _corrupt(source: Path, reason: str) -> StoreCorruptError:
    return StoreCorruptError(f"path: {source} is damaged or is not an index: {reason}")


def _parse(source: Path, data: mmap.mmap) -> tuple[dict[str, Any], dict[str, Any]]:
    magic, version, room, size, digest = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise _corrupt(source, "it begins otherwise")
    start = _PREFIX.size + room
    if size != len(data) or start > size:
        raise _corrupt(source, f"expected {size} bytes, got {len(data)}")
    text = data[_PREFIX.size : start]
    if _header_digest(data[: _PREFIX.size], text) != digest:
        raise _corrupt(source, "the checksum of its header is wrong")
    if version != VERSION:
        raise SchemaVersionError(
            f"path: {source} has version {version} of the index format; this riemem reads {VERSION}"
        )
    try:
        header = json.loads(text)
        arrays = {}
        for name in ("rows", "ids", *_METRIC):
            section = header["sections"][name]
            arrays[name] = np.frombuffer(
                data, section["dtype"], int(np.prod(section["shape"])), section["offset"]
            ).reshape(section["shape"])
            if section["offset"] != start:
                raise _corrupt(source, f"section {name} is not where it should be")
            start += _padded(arrays[name].nbytes)
            with memoryview(data) as view, view[section["offset"] : start] as part:
                if hashlib.blake2b(part, digest_size=16).hexdigest() != section["digest"]:
                    raise _corrupt(source, f"the checksum of its {name} is wrong")
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(source, f"its header makes no sense ({error})") from error
    if start != size:
        raise _corrupt(source, "there is something behind its sections")
    return header, arrays


def _state(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> State:
    options = dict(header["options"])
    ids = arrays["ids"].astype(np.int64)
    count, dim = arrays["rows"].shape
    next_id, removals = int(header["next_id"]), int(header["removals"])
    wanted = {name: options[name] for name in ("dim", "covariance", "ridge", "energy", "max_rank")}
    metric = FisherMetric.from_dict(
        {
            **wanted,
            "min_samples": options["min_samples"],
            "n_samples": count,
            **{name: arrays[name] for name in _METRIC},
        }
    )
    if dim != metric.dim or ids.shape != (count,) or np.unique(ids).size != count:
        raise ValueError("sizes that do not belong together")
    if count and not 0 <= int(ids.min()) <= int(ids.max()) < next_id <= LAST_ID + 1:
        raise ValueError("ids out of range")
    return State(options, Mapped(arrays["rows"]), ids, metric, next_id, removals)

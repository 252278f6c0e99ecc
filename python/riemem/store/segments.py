"""What follows from many memories together and is slow to make, kept in the store by ranges of ids.

A segment stands for all memories of a profile from one id to another. Triggers take it away in the
transaction that changes or forgets one of them; what a reader finds is therefore true, or, if the
file was damaged, told by its checksum. Whatever is missing is made again from the memories.
"""

from __future__ import annotations

import json
import sqlite3
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from riemem.errors import StoreError
from riemem.store.connect import IN_MEMORY
from riemem.store.sqlite import Store

__all__ = ["MAKER", "Segment", "check_segments", "drop_segments", "pack", "read_segments", "unpack"]
__all__ += ["worth_keeping", "write_segments"]

Array = npt.NDArray[Any]

#: Who made a segment; one of another maker is made again. Raise the number whenever words, columns,
#: dates or lengths would come out differently. Words depend on Python's table of characters, too.
MAKER = f"1, Unicode {unicodedata.unidata_version}"


@dataclass(frozen=True)
class Segment:
    """Something made of `count` memories with ids from `first` to `last`."""

    first: int
    last: int
    count: int
    data: bytes


def pack(arrays: Mapping[str, Array], names: Mapping[str, Sequence[str]]) -> bytes:
    """Return one-dimensional arrays and lists of strings as bytes.

    Examples
    --------
    >>> arrays, names = unpack(pack({"a": np.arange(3)}, {"b": ["x", "yz"]}))
    >>> arrays["a"].tolist(), names["b"]
    ([0, 1, 2], ['x', 'yz'])
    """
    plain = {
        name: array.astype(array.dtype.newbyteorder("<"), copy=False)
        for name, array in arrays.items()
    }
    shapes = [[name, array.dtype.str, array.size] for name, array in plain.items()]
    head = json.dumps([shapes, {k: list(v) for k, v in names.items()}], ensure_ascii=False)
    parts = [head.encode()]
    parts[0] = len(parts[0]).to_bytes(8, "little") + parts[0]
    for array in plain.values():
        parts[-1] += bytes(-len(parts[-1]) % 8)
        parts.append(array.tobytes())
    return b"".join(parts)


def unpack(data: bytes) -> tuple[dict[str, Array], dict[str, list[str]]]:
    """Return what :func:`pack` was given; the arrays are read-only and share the bytes."""
    place = 8 + int.from_bytes(data[:8], "little")
    shapes, names = json.loads(data[8:place])
    arrays: dict[str, Array] = {}
    for name, dtype, count in shapes:
        place += -place % 8
        arrays[name] = np.frombuffer(data, dtype, count, place)
        place += arrays[name].nbytes
    return arrays, names


def read_segments(connection: sqlite3.Connection, profile: str, kind: str) -> list[Segment]:
    """Return the segments of a profile that are whole and of our making, by first id."""
    if not _exists(connection):
        return []
    rows = connection.execute(
        "SELECT first, last, count, data, checksum FROM segments "
        "WHERE profile = ? AND kind = ? AND maker = ? ORDER BY first",
        (profile, kind, MAKER),
    )
    return [Segment(*row[:4]) for row in rows if zlib.crc32(row[3]) == row[4]]


def write_segments(
    store: Store,
    profile: str,
    kind: str,
    segments: Sequence[Segment],
    revision: int,
) -> bool:
    """Keep segments in place of those that overlap them; False when that was not possible now.

    Parameters
    ----------
    store : Store
    profile, kind : str
        Whose and what.
    segments : sequence of Segment
    revision : int
        What they were made from; if anything was written since, nothing is kept.

    Notes
    -----
    Not worth an error: a store that is busy, full or read-only goes on without.
    """
    if not segments or not worth_keeping(store):
        return False
    try:
        with store.writing(advance=False) as transaction:
            if transaction.revision != revision:
                return False
            connection = transaction.connection
            for segment in segments:
                connection.execute(
                    "DELETE FROM segments "
                    "WHERE profile = ? AND kind = ? AND first <= ? AND last >= ?",
                    (profile, kind, segment.last, segment.first),
                )
                connection.execute(
                    "INSERT INTO segments "
                    "(profile, kind, first, last, count, maker, checksum, data) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(profile, kind, segment.first, segment.last, segment.count, MAKER),
                        *(zlib.crc32(segment.data), segment.data),
                    ),
                )
    except StoreError:
        return False
    return True


def worth_keeping(store: Store) -> bool:
    """Whether segments written to this store would be found by anybody."""
    if store.path == IN_MEMORY or store.readonly or store.closed:
        return False
    try:
        store.check_writable()
    except StoreError:  # opened before a fork, or the file is gone
        return False
    return True


def drop_segments(connection: sqlite3.Connection) -> None:
    """Remove all of them, in the transaction that is open."""
    connection.execute("DELETE FROM segments")


def check_segments(connection: sqlite3.Connection) -> list[str]:
    """Say which segments are damaged, overlap, or do not hold the memories of their range."""
    if not _exists(connection):
        return []
    problems = []
    last_of: dict[tuple[str, str], int] = {}
    rows = connection.execute(
        "SELECT profile, kind, first, last, count, data, checksum, (SELECT count(*) FROM memories "
        "WHERE memories.profile = segments.profile AND id BETWEEN first AND last) "
        "FROM segments ORDER BY profile, kind, first"
    )
    for profile, kind, first, last, count, data, checksum, there in rows:
        name = f"segments: {kind} of memories {first} to {last}"
        if zlib.crc32(data) != checksum:
            problems.append(f"{name}: damaged")
        if count != there:
            problems.append(f"{name}: made of {count} memories, {there} are there")
        if first <= last_of.get((profile, kind), -1):
            problems.append(f"{name}: overlap the one before")
        last_of[profile, kind] = last
    return problems


def _exists(connection: sqlite3.Connection) -> bool:
    """Whether there is the table: a store of an older schema opened read-only has none."""
    sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'segments'"
    return connection.execute(sql).fetchone() is not None

"""The format in which memories leave a store and come back: JSON lines, as documented.

The first line says what the file is, each further one holds a memory, the last one says how many
there were, so that a file that was cut off is noticed. See docs/export-format.md.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, BinaryIO, cast

import numpy as np

from riemem.errors import (
    ArgumentError,
    CancelledError,
    DTypeError,
    RiememError,
    SchemaVersionError,
)
from riemem.store.filters import Scope
from riemem.store.records import Draft, check_integer, draft
from riemem.store.sqlite import Identity, Store, read_identity
from riemem.store.times import format_instant, now_us, parse_instant
from riemem.store.token_vectors import MOST_ROWS, Kept, kept_form, token_rows_of
from riemem.store.trust import read_trust

__all__ = ["FORMAT", "VERSION", "Exported", "Incoming", "Parcel"]
__all__ += ["json_objects", "no_constant", "read_lines", "write_lines"]

FORMAT = "riemem-export"
#: A file without token vectors is of version 1, which every riemem reads.
VERSION = 2

#: A text of 16 MiB may need six bytes a character, and its vectors have their own length.
_LONGEST_LINE = 1 << 28

_BATCH = 500
_FIELDS = {"id", "profile", "session", "speaker", "text", "when", "created_at", "updated_at"}
_FIELDS |= {"metadata", "key", "vectors", "tokens", "source", "valid_from", "valid_to"}
_REQUIRED = ("id", "profile", "text", "when", "created_at", "updated_at")

Progress = Callable[[int, int], Any]


@dataclass(frozen=True)
class Exported:
    """Receipt of an export.

    Attributes
    ----------
    memories, vectors : int
        How many were written.
    bytes : int
        Size of the file.
    at : str
        The moment whose state it holds, ISO 8601 UTC.
    """

    memories: int
    vectors: int
    bytes: int
    at: str


@dataclass(frozen=True)
class Incoming:
    """One memory of an export, checked."""

    id: int
    draft: Draft
    created_at: int
    updated_at: int
    blobs: tuple[bytes, ...] | None
    tokens: bytes | None = None


@dataclass(frozen=True)
class Parcel:
    """A whole export: its memories by id, and whose vectors come with them, if any do.

    `form` and `row_bytes` are of the vectors of their tokens, if those come with them.
    """

    memories: tuple[Incoming, ...]
    identity: Identity | None
    created_at: str | None = field(default=None)
    form: str | None = None
    row_bytes: int = 0


def write_lines(
    store: Store,
    where: Scope | None,
    write: Callable[[bytes], object],
    *,
    vectors: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write the memories of a scope (None: of every profile) as of one moment.

    Parameters
    ----------
    store : Store
    where : Scope or None
    write : callable
        Takes the bytes of one or more lines.
    vectors : bool
        Also the vectors, and those of the tokens that the store keeps, so that an import needs no
        embedder.
    progress : callable, optional
        ``progress(done, total)``; returning False stops.

    Raises
    ------
    CancelledError
        `progress` returned False.
    """
    condition, parameters = ("1", ()) if where is None else (where.where, where.parameters)
    count = stored = size = 0
    at = format_instant(now_us())

    def put(line: dict[str, Any]) -> None:
        nonlocal size
        data = json.dumps(line, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
        write(data)
        size += len(data)

    with store.snapshot() as connection:
        identity = read_identity(connection)
        total = int(
            connection.execute(
                f"SELECT count(*) FROM memories WHERE {condition}", parameters
            ).fetchone()[0]
        )
        kept = kept_form(connection) if vectors and identity is not None else None
        put(_header(identity if vectors else None, kept, total, at))
        rows = connection.execute(
            "SELECT id, profile, session, speaker, text, observed_at, created_at, updated_at, "
            f"metadata, key FROM memories WHERE {condition} ORDER BY id",
            parameters,
        )
        for row in rows:
            if progress is not None and count % _BATCH == 0 and progress(count, total) is False:
                raise CancelledError("export: stopped by progress; no file was written")
            line = dict(zip(("id", "profile", "session", "speaker", "text"), row[:5], strict=True))
            for name, moment in zip(("when", "created_at", "updated_at"), row[5:8], strict=True):
                line[name] = format_instant(moment)
            line |= {"metadata": json.loads(row[8]), "key": row[9]}
            known = read_trust(connection, row[:1]).get(row[0])
            if known is not None:
                origin = {"source": known.source, "valid_from": known.valid_from}
                origin["valid_to"] = known.valid_to
                line |= {name: value for name, value in origin.items() if value is not None}
            if vectors:
                blobs = connection.execute(
                    "SELECT vector FROM vectors WHERE memory_id = ? ORDER BY chunk", row[:1]
                ).fetchall()
                line["vectors"] = [base64.b64encode(blob[0]).decode("ascii") for blob in blobs]
                stored += len(blobs)
            if kept is not None:
                own = token_rows_of(connection, row[:1]).get(row[0])
                line["tokens"] = None if own is None else base64.b64encode(own).decode("ascii")
            put(line)
            count += 1
        put({"end": True, "memories": count})
    if progress is not None and progress(count, total) is False:
        raise CancelledError("export: stopped by progress; no file was written")
    return Exported(count, stored, size, at)


def _header(identity: Identity | None, kept: Kept | None, total: int, at: str) -> dict[str, Any]:
    version = 1 if kept is None else VERSION
    head: dict[str, Any] = {"format": FORMAT, "version": version, "at": at, "memories": total}
    if identity is not None:
        head["vectors"] = asdict(identity)
    if kept is not None:
        head["tokens"] = {"form": kept.form, "row_bytes": kept.row_bytes}
    return head


def read_lines(source: Iterable[bytes], name: str, profile: str | None = None) -> Parcel:
    """Read and check a whole export; nothing is stored here.

    Parameters
    ----------
    source : iterable of bytes
        A file opened in binary mode, or its lines.
    name : str
        Of the file, for messages.
    profile : str, optional
        All memories are put into this profile instead of their own.

    Raises
    ------
    SchemaVersionError
        Written by a newer riemem.
    ArgumentError, DTypeError, TextError
        Not an export, cut off, or a line that does not fit; the message names the line.
    """
    lines = json_objects(source, name)
    number, head = next(lines, (1, None))
    if head is None or head.get("format") != FORMAT:
        raise ArgumentError(
            f"{name}: line {number}: expected the first line of a riemem export "
            f'({{"format": "{FORMAT}", ...}})'
        )
    identity = _identity_of(head, f"{name}: line {number}: ")
    form, row_bytes = _tokens_of(head, identity, f"{name}: line {number}: ")
    found: dict[int, Incoming] = {}
    for number, line in lines:
        where = f"{name}: line {number}: "
        if line.get("end") is True:
            if line.get("memories") != len(found):
                raise ArgumentError(
                    f"{where}memories: expected {line.get('memories')} memories before this line, "
                    f"got {len(found)}; lines are missing or were added"
                )
            extra = next(lines, None)
            if extra is not None:
                raise ArgumentError(
                    f"{name}: line {extra[0]}: expected nothing after the last line"
                )
            memories = tuple(found[key] for key in sorted(found))
            return Parcel(memories, identity, head.get("at"), form, row_bytes)
        item = _incoming(line, where, identity, row_bytes, profile)
        if item.id in found:
            raise ArgumentError(f"{where}id: {item.id} comes a second time")
        found[item.id] = item
    raise ArgumentError(
        f'{name}: line {number + 1}: expected another memory or the last line ({{"end": true}}); '
        "the file was cut off"
    )


def json_objects(source: Iterable[bytes], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the object of each line of JSON lines that is not blank.

    Raises
    ------
    ArgumentError
        A line that is too long, not UTF-8, or not a JSON object; the message names it.

    Examples
    --------
    >>> list(json_objects([b'{"a": 1}\\n', b'\\n', b'{}\\n'], "x.jsonl"))
    [(1, {'a': 1}), (3, {})]
    """
    for number, raw in enumerate(_bounded(source, name), start=1):
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ArgumentError(
                f"{name}: line {number}: expected UTF-8 ({error.reason})"
            ) from error
        if not text.strip():
            continue
        try:
            line = json.loads(text, parse_constant=no_constant)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"{name}: line {number}: expected JSON ({error})") from error
        if not isinstance(line, dict):
            raise ArgumentError(
                f"{name}: line {number}: expected a JSON object, got {type(line).__name__}"
            )
        yield number, line


def _bounded(source: Iterable[bytes], name: str) -> Iterator[bytes]:
    if not hasattr(source, "readline"):
        yield from source
        return
    file, number = cast(BinaryIO, source), 0
    while line := file.readline(_LONGEST_LINE):
        number += 1
        if len(line) >= _LONGEST_LINE:
            raise ArgumentError(f"{name}: line {number}: longer than {_LONGEST_LINE} bytes")
        yield line


def no_constant(text: str) -> None:
    """Refuse NaN and infinities, which are no JSON; for ``json.loads(parse_constant=...)``."""
    raise ValueError(f"{text} is not JSON")


def _identity_of(head: dict[str, Any], where: str) -> Identity | None:
    version = head.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ArgumentError(f"{where}version: expected a number from 1 on, got {version!r}")
    if version > VERSION:
        raise SchemaVersionError(
            f"{where}the export has version {version}, this riemem reads versions up to {VERSION}. "
            "Update riemem to import it."
        )
    given = head.get("vectors")
    if given is None:
        return None
    try:
        dim = check_integer(given["dim"], f"{where}dim", 1)
        return Identity(str(given["embedder"]), dim, str(given["rendering"]))
    except (TypeError, KeyError) as error:
        if isinstance(error, RiememError):
            raise
        raise ArgumentError(
            f"{where}vectors: expected embedder, dim and rendering, got {given!r}"
        ) from error


def _tokens_of(
    head: dict[str, Any], identity: Identity | None, where: str
) -> tuple[str | None, int]:
    given = head.get("tokens")
    if given is None:
        return None, 0
    if not isinstance(given, dict) or not isinstance(given.get("form"), str) or identity is None:
        raise ArgumentError(
            f"{where}tokens: expected form and row_bytes beside vectors, got {given!r:.80}"
        )
    return given["form"], check_integer(given.get("row_bytes"), f"{where}row_bytes", 1)


def _incoming(
    line: dict[str, Any],
    where: str,
    identity: Identity | None,
    row_bytes: int,
    profile: str | None,
) -> Incoming:
    for key in line:
        if key not in _FIELDS:
            expected = ", ".join(sorted(_FIELDS))
            raise ArgumentError(f"{where}{key}: unknown field; expected {expected}")
    for key in _REQUIRED:
        if line.get(key) is None:
            raise ArgumentError(f"{where}{key}: missing")
    item = {name: line.get(name) for name in ("text", "speaker", "session", "when", "metadata")}
    item |= {name: line.get(name) for name in ("source", "valid_from", "valid_to")}
    item |= {"key": line.get("key"), "profile": line["profile"] if profile is None else profile}
    memory_id = check_integer(line["id"], f"{where}id", 1)
    if memory_id > 2**63 - 1:
        raise ArgumentError(f"{where}id: expected at most 2**63 - 1, got {memory_id}")
    blobs = None
    if identity is not None:
        blobs = _blobs(line.get("vectors"), identity.dim, where)
    elif line.get("vectors") is not None:
        raise ArgumentError(f"{where}vectors: the first line does not say whose they are")
    tokens = line.get("tokens")
    if tokens is not None and not row_bytes:
        raise ArgumentError(f"{where}tokens: the first line does not say what they are")
    return Incoming(
        memory_id,
        draft(item, "default", where),
        parse_instant(line["created_at"], f"{where}created_at"),
        parse_instant(line["updated_at"], f"{where}updated_at"),
        blobs,
        None if tokens is None else _token_rows(tokens, row_bytes, where),
    )


def _token_rows(given: object, row_bytes: int, where: str) -> bytes:
    rows = _base64(given, f"{where}tokens")
    if len(rows) % row_bytes or len(rows) > MOST_ROWS * row_bytes:
        raise ArgumentError(
            f"{where}tokens: expected at most {MOST_ROWS} rows of {row_bytes} bytes, "
            f"got {len(rows)} bytes"
        )
    return rows


def _base64(given: object, name: str) -> bytes:
    try:
        return base64.b64decode(cast(str, given), validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise ArgumentError(f"{name}: expected base64 ({error})") from error


def _blobs(given: object, dim: int, where: str) -> tuple[bytes, ...]:
    if not isinstance(given, list) or not given:
        raise DTypeError(f"{where}vectors: expected a list of base64 texts, got {given!r:.60}")
    blobs = []
    for i, text in enumerate(given):
        blob = _base64(text, f"{where}vectors[{i}]")
        if len(blob) != 4 * dim:
            raise ArgumentError(
                f"{where}vectors[{i}]: expected {4 * dim} bytes ({dim} float32 numbers), "
                f"got {len(blob)}"
            )
        row = np.frombuffer(blob, dtype="<f4").astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            length = float(row @ row)
        if not abs(length - 1.0) <= 4e-3:
            raise ArgumentError(f"{where}vectors[{i}]: expected length 1, got {length**0.5:.6g}")
        blobs.append(blob)
    return tuple(blobs)

"""One file per clustering: a header in JSON, the arrays, and a checksum over both."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from riemem.errors import StoreCorruptError

_MAGIC = b"RIEMATOM"
_VERSION = 1
_CHECKSUM = 32  # bytes of SHA-256
_MOST_HEADER = 1 << 20


def write_file(
    path: str | os.PathLike[str], facts: dict[str, Any], arrays: dict[str, NDArray[Any]]
) -> None:
    """Write facts and arrays; the old file, if any, stays whole until the new one is complete."""
    table = [
        {"name": name, "dtype": array.dtype.str, "shape": list(array.shape)}
        for name, array in arrays.items()
    ]
    header = json.dumps({"version": _VERSION, "facts": facts, "arrays": table}).encode()
    target = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            digest = hashlib.sha256()
            for part in (_MAGIC, len(header).to_bytes(8, "little"), header):
                file.write(part)
                digest.update(part)
            for array in arrays.values():
                data = np.ascontiguousarray(array).tobytes()
                file.write(data)
                digest.update(data)
            file.write(digest.digest())
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read what :func:`write_file` wrote.

    Raises
    ------
    StoreCorruptError
        Not such a file, or damaged.
    """
    data = Path(path).read_bytes()
    if data[: len(_MAGIC)] != _MAGIC:
        raise StoreCorruptError(f"{path}: not a saved clustering")
    body, checksum = data[:-_CHECKSUM], data[-_CHECKSUM:]
    if hashlib.sha256(body).digest() != checksum:
        raise StoreCorruptError(f"{path}: the saved clustering is damaged (checksum differs)")
    start = len(_MAGIC) + 8
    size = int.from_bytes(body[len(_MAGIC) : start], "little")
    if size > min(_MOST_HEADER, len(body) - start):
        raise StoreCorruptError(f"{path}: the saved clustering has an impossible header")
    try:
        header = json.loads(body[start : start + size])
        version = header["version"]
        arrays, at = {}, start + size
        for entry in header["arrays"]:
            dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
            length = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            arrays[entry["name"]] = np.frombuffer(body[at : at + length], dtype).reshape(shape)
            at += length
        facts = dict(header["facts"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorruptError(f"{path}: the saved clustering cannot be read: {error}") from error
    if version != _VERSION:
        raise StoreCorruptError(
            f"{path}: saved in format {version}, this version reads format {_VERSION}"
        )
    return facts, arrays

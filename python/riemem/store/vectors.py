"""Vectors as they lie in the file: float32, little endian, one blob per chunk of a memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from riemem import _backend
from riemem.errors import DTypeError, NotFiniteError, ShapeError, StoreCorruptError, ZeroVectorError

__all__ = ["check_rows", "decode", "encode", "fetch_vectors"]

Rows = npt.NDArray[np.float32]

_STORED = np.dtype("<f4")


def encode(rows: Rows) -> list[bytes]:
    """Return one blob per row.

    Examples
    --------
    >>> encode(np.array([[1.0, 0.0]], dtype=np.float32))
    [b'\\x00\\x00\\x80?\\x00\\x00\\x00\\x00']
    """
    data = np.ascontiguousarray(rows, dtype=_STORED)
    return [row.tobytes() for row in data]


def decode(blobs: Sequence[bytes], dim: int, ids: Sequence[int] | None = None) -> Rows:
    """Return the rows of the given blobs as a (n, dim) float32 array of its own memory.

    Raises
    ------
    StoreCorruptError
        A blob is not `dim` numbers long; `ids` (vector ids) name it.

    Examples
    --------
    >>> decode([b"\\x00\\x00\\x80?"], 1)
    array([[1.]], dtype=float32)
    """
    size = dim * _STORED.itemsize
    if not set(map(len, blobs)) <= {size}:
        position, blob = next((i, b) for i, b in enumerate(blobs) if len(b) != size)
        raise _wrong_size(ids[position] if ids is not None else position, len(blob), dim)
    # Joined into memory that may be written to, which is then theirs; copied once.
    data = np.frombuffer(bytearray().join(blobs), dtype=_STORED).reshape(len(blobs), dim)
    return data.astype(np.float32, copy=False)


def fetch_vectors(
    cursor: Iterator[tuple[Any, ...]], dim: int, part: int
) -> Iterator[tuple[npt.NDArray[np.int64], Rows]]:
    """Read a cursor over (memory id, chunk, vector id, vector) to its end, `part` rows at a time.

    Yields
    ------
    numbers : (3, n) int64 ndarray
    rows : (n, dim) float32 ndarray
        The same memory each time.

    Raises
    ------
    StoreCorruptError
        As :func:`decode`.

    Examples
    --------
    >>> stored = iter([(7, 0, 1, b"\\x00\\x00\\x80?"), (8, 0, 2, b"\\x00\\x00\\x00@")])
    >>> [(n.tolist(), rows.tolist()) for n, rows in fetch_vectors(stored, 1, 10)]
    [([[7, 8], [0, 0], [1, 2]], [[1.0], [2.0]])]
    """
    blobs = np.empty((part, dim * _STORED.itemsize), np.uint8)
    count = part
    while count == part:
        numbers = np.empty((3, part), np.int64)
        count, wrong = _backend.core.fetch(cursor, numbers, blobs)
        if wrong >= 0:
            raise _wrong_size(int(numbers[2, count]), wrong, dim)
        if count:
            rows = blobs[:count].view(_STORED).astype(np.float32, copy=False)
            yield numbers[:, :count], rows


def _wrong_size(which: int, size: int, dim: int) -> StoreCorruptError:
    return StoreCorruptError(
        f"vector {which} has {size} bytes, expected {dim * _STORED.itemsize} ({dim} float32 "
        "numbers); run `riemem check --repair`"
    )


def check_rows(rows: object, count: int, dim: int, source: str) -> Rows:
    """Return what an embedder gave as float32 unit rows, or say what is wrong with it.

    Parameters
    ----------
    rows : array_like
        Expected shape (count, dim), finite, no zero row.
    count, dim : int
        Number of texts embedded, dimension.
    source : str
        Who made them, for the message.

    Returns
    -------
    (count, dim) float32 ndarray
        Rows whose length is off by more than 1e-3 are scaled to length one.

    Raises
    ------
    DTypeError, ShapeError, NotFiniteError, ZeroVectorError

    Examples
    --------
    >>> check_rows([[3.0, 4.0]], 1, 2, "embedder")
    array([[0.6, 0.8]], dtype=float32)
    """
    data = np.asarray(rows)
    if data.dtype.kind not in "fiu":
        raise DTypeError(f"{source}: expected rows of real numbers, got dtype {data.dtype}")
    if data.shape != (count, dim):
        raise ShapeError(f"{source}: expected vectors of shape ({count}, {dim}), got {data.shape}")
    wide = data.astype(np.float64)
    scale = np.abs(wide).max(axis=1, initial=0.0)  # NaN where a row holds one
    if not np.isfinite(scale).all():
        bad = int(np.argmin(np.isfinite(scale)))
        raise NotFiniteError(f"{source}: vector {bad} holds NaN or an infinity")
    if not scale.all():
        zero = int(np.argmin(scale != 0.0))
        raise ZeroVectorError(f"{source}: vector {zero} is all zeros, it has no direction")
    # Divided by the largest entry first, so that squares neither overflow nor vanish.
    norms = scale * np.sqrt(np.square(wide / scale[:, None]).sum(axis=1))
    off = np.abs(norms - 1.0) > 1e-3
    if off.any():
        wide[off] /= norms[off, None]
    return wide.astype(np.float32)

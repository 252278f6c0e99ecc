from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from riemem.errors import (
    ArgumentError,
    DTypeError,
    NotFiniteError,
    ShapeError,
    StoreCorruptError,
    ZeroVectorError,
)
from riemem.store.vectors import check_rows, decode, encode, fetch_vectors


def test_blobs_are_little_endian_float32() -> None:
    rows = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    blobs = encode(rows)
    assert [struct.unpack("<5f", blob) for blob in blobs] == [tuple(row) for row in rows.tolist()]
    back = decode(blobs, 5)
    assert back.dtype == np.float32
    assert np.array_equal(back, rows)
    assert back.flags.writeable  # of its own memory
    assert decode([], 5).shape == (0, 5)


@pytest.mark.parametrize("view", [np.s_[::-1], np.s_[::2], np.s_[:, ::-1]])
def test_strided_rows_are_encoded_in_their_order(view: object) -> None:
    rows = np.arange(24, dtype=np.float64).reshape(6, 4)[view]  # type: ignore[index]
    assert np.array_equal(decode(encode(rows), rows.shape[1]), rows.astype(np.float32))


def test_a_blob_of_another_size_is_damage_and_is_named() -> None:
    with pytest.raises(StoreCorruptError, match=r"^vector 17 has 4 bytes, expected 8"):
        decode([b"\0" * 8, b"\0" * 4], 2, [16, 17])


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 9])
def test_a_cursor_is_read_in_parts(count: int) -> None:
    rows = np.random.default_rng(count).normal(size=(count, 3)).astype(np.float32)
    numbers = np.array([[7 * i, i % 2, 2**62 - i] for i in range(count)]).reshape(count, 3)
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a, b, c, d)")
    connection.executemany(
        "INSERT INTO t VALUES (?, ?, ?, ?)",
        [(*own, row) for own, row in zip(numbers.tolist(), encode(rows), strict=True)],
    )
    found = [
        (own.T.copy(), part.copy())
        for own, part in fetch_vectors(connection.execute("SELECT * FROM t"), 3, 4)
    ]
    connection.close()
    assert [len(own) for own, _ in found] == [4] * (count // 4) + [count % 4] * (count % 4 > 0)
    assert np.array_equal(np.concatenate([numbers[:0], *(own for own, _ in found)]), numbers)
    assert np.array_equal(np.concatenate([rows[:0], *(part for _, part in found)]), rows)


def test_what_a_cursor_may_not_hold_is_named() -> None:
    good = (1, 0, 5, b"\0" * 8)
    for size in (0, 4, 12):
        stored = iter([good, (2, 0, 17, b"\0" * size), good])
        with pytest.raises(StoreCorruptError, match=rf"^vector 17 has {size} bytes, expected 8"):
            list(fetch_vectors(stored, 2, 10))
    for odd in ((1, 0, b"\0" * 8), (1, 0, 5, "text"), [1, 0, 5, b"\0" * 8], (1, 0, 5, None)):
        with pytest.raises(ArgumentError, match=r"^tuples: expected integers and"):
            list(fetch_vectors(iter([good, odd]), 2, 10))  # type: ignore[list-item]
    with pytest.raises(TypeError):
        list(fetch_vectors(iter([good, ("one", 0, 5, b"\0" * 8)]), 2, 10))
    with pytest.raises(OverflowError):
        list(fetch_vectors(iter([good, (2**63, 0, 5, b"\0" * 8)]), 2, 10))

    def broken() -> Iterator[tuple[object, ...]]:
        yield good
        raise sqlite3.DatabaseError("disk I/O error")

    with pytest.raises(sqlite3.DatabaseError, match="disk I/O error"):
        list(fetch_vectors(broken(), 2, 10))


def test_rows_are_brought_to_length_one() -> None:
    rows = check_rows([[3e30, 4e30], [3e-30, 4e-30], [0.6, 0.8]], 3, 2, "embedder")
    assert np.allclose(rows, [[0.6, 0.8]] * 3, atol=1e-7)


@pytest.mark.parametrize(
    ("rows", "error", "start"),
    [
        (
            np.zeros((2, 3)),
            ShapeError,
            r"embedder: expected vectors of shape \(2, 4\), got \(2, 3\)",
        ),
        (np.zeros(4), ShapeError, "embedder: expected vectors"),
        ([["a"] * 4] * 2, DTypeError, "embedder: expected rows of real numbers"),
        (np.ones((2, 4)) * 1j, DTypeError, "embedder: expected rows of real numbers"),
        ([[1.0] * 4, [np.nan] * 4], NotFiniteError, "embedder: vector 1 holds NaN"),
        ([[1.0] * 4, [np.inf] * 4], NotFiniteError, "embedder: vector 1 holds NaN"),
        ([[0.0] * 4, [1.0] * 4], ZeroVectorError, "embedder: vector 0 is all zeros"),
    ],
)
def test_what_is_no_vector_is_refused(rows: object, error: type[Exception], start: str) -> None:
    with pytest.raises(error, match=rf"^{start}"):
        check_rows(rows, 2, 4, "embedder")

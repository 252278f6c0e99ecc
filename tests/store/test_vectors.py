from __future__ import annotations

import struct

import numpy as np
import pytest
from riemem.errors import DTypeError, NotFiniteError, ShapeError, StoreCorruptError, ZeroVectorError
from riemem.store.vectors import check_rows, decode, encode


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

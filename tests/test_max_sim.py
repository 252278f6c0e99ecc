"""The late interaction kernel and the fixed rotation: against numpy, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from riemem import _backend
from riemem.errors import ArgumentError, BackendUnavailableError

core = _backend.core
NONE = np.iinfo(np.int32).min


def in_numpy(question, rows, counts):
    signs = 2 * np.unpackbits(rows, axis=1, bitorder="little").astype(np.int64) - 1
    dots = question.astype(np.int64) @ signs.T
    out = np.full((len(question), len(counts)), NONE, np.int64)
    some = np.flatnonzero(counts)
    if len(some):
        begin = (np.cumsum(counts) - counts)[some]
        out[:, some] = np.maximum.reduceat(dots, begin, axis=1)
    return out


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(0, 20),
    st.integers(1, 90),
    st.lists(st.integers(0, 6), max_size=9),
)
def test_every_isa_gives_what_numpy_gives(seed, m, bytes_, counts):
    rng = np.random.default_rng(seed)
    question = rng.integers(-128, 128, (m, 8 * bytes_)).astype(np.int8)
    counts = np.array(counts, np.int64)
    rows = rng.integers(0, 256, (counts.sum(), bytes_)).astype(np.uint8)
    expected = in_numpy(question, rows, counts)
    for isa in core.available_isas():
        found = core.max_sim(question, rows, counts, isa)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, expected)


def test_a_row_that_agrees_everywhere_gets_the_sum_of_the_sizes():
    question = np.random.default_rng(0).integers(-127, 128, (1, core.max_sim_most_dims))
    question = question.astype(np.int8)
    same = np.packbits(question > 0, axis=1, bitorder="little")
    rows = np.frombuffer(same.tobytes() + (~same).tobytes(), np.uint8).reshape(2, -1)
    size = int(np.abs(question.astype(np.int64)).sum())
    found = core.max_sim(question, rows, np.array([1, 0, 1]))
    assert found.tolist() == [[size, NONE, -size]]
    assert core.max_sim(question, rows, np.array([2])).tolist() == [[size]]


def test_bad_memory_is_refused():
    question, rows = np.zeros((2, 16), np.int8), np.zeros((3, 2), np.uint8)
    counts = np.array([1, 2])
    with pytest.raises(ArgumentError, match=r"^question: expected a 2-d array"):
        core.max_sim(question[0], rows, counts)
    for d in (0, 12, core.max_sim_most_dims + 8):
        message = rf"^question: expected a multiple of 8 columns, 8 to 16384, got {d}$"
        with pytest.raises(ArgumentError, match=message):
            core.max_sim(np.zeros((2, d), np.int8), np.zeros((3, d // 8), np.uint8), counts)
    for wrong in (np.zeros((3, 3), np.uint8), rows[0]):
        with pytest.raises(ArgumentError, match=r"^rows: expected shape \(T, 2\)"):
            core.max_sim(question, wrong, counts)
    with pytest.raises(ArgumentError, match=r"^counts: expected a 1-d array"):
        core.max_sim(question, rows, counts[:, None])
    with pytest.raises(ArgumentError, match=r"^counts: expected no negative number, got -1"):
        core.max_sim(question, rows, np.array([4, -1]))
    most = np.iinfo(np.int64).max
    for wrong, got in (([1, 1], "2"), ([], "0"), ([1, 3], "more"), ([2, most, most], "more")):
        message = rf"^counts: expected the sum 3, the number of rows, got {got}$"
        with pytest.raises(ArgumentError, match=message):
            core.max_sim(question, rows, np.array(wrong, np.int64))
    with pytest.raises(BackendUnavailableError, match=r"^backend: "):
        core.max_sim(question, rows, counts, "none")


def test_other_dtypes_and_strides_are_refused():
    question, rows = np.zeros((2, 16), np.int8), np.zeros((3, 2), np.uint8)
    counts = np.array([1, 2])
    for arguments in (
        (question.astype(np.int16), rows, counts),
        (question, rows.astype(np.int8), counts),
        (question, rows, counts.astype(np.int32)),
        (np.zeros((2, 32), np.int8)[:, ::2], rows, counts),
        (question, np.zeros((2, 3), np.uint8).T, counts),
        (question, rows, np.zeros(4, np.int64)[::2]),
    ):
        with pytest.raises(TypeError):
            core.max_sim(*arguments)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 20), st.integers(1, 140))
def test_rotation_is_one_orthogonal_map_with_the_same_bits_on_every_isa(seed, n, d):
    rows = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    matrix = core.rotate(np.eye(d), "scalar")  # row i: where unit vector i goes
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(d), atol=1e-13)
    expected = core.rotate(rows, "scalar")
    assert expected.shape == (n, d)
    assert expected.dtype == np.float64
    np.testing.assert_allclose(expected, rows.astype(np.float64) @ matrix, atol=1e-12)
    for isa in core.available_isas():
        np.testing.assert_array_equal(core.rotate(rows, isa), expected)
        np.testing.assert_array_equal(core.rotate(rows.astype(np.float64), isa), expected)
    for i in range(n):  # alone as among others
        np.testing.assert_array_equal(core.rotate(rows[i : i + 1]), expected[i : i + 1])


def test_rotation_is_that_of_the_int8_copies():
    rows = np.random.default_rng(3).normal(size=(64, 96)).astype(np.float32)
    tiles = np.full(core.int8_tile_bytes(96), 128, np.uint8)
    scale, residual = np.zeros(64, np.float32), np.zeros(64, np.float32)
    core.quantize_int8(rows, 0, tiles, scale, residual)
    codes = tiles.reshape(24, 64, 4).transpose(1, 0, 2).reshape(64, 96).astype(np.float64) - 128
    rest = core.rotate(rows) - codes * scale[:, None].astype(np.float64)
    assert np.all(np.linalg.norm(rest, axis=1) <= residual)
    assert residual.max() < 0.02 * np.linalg.norm(rows, axis=1).max()


def test_more_dimensions_than_are_remembered_rotate_the_same_again():
    rows = [np.random.default_rng(d).normal(size=(2, d)) for d in range(1, 12)]
    first = [core.rotate(x) for x in rows]
    for x, expected in zip(rows, first, strict=True):
        np.testing.assert_array_equal(core.rotate(x), expected)


def test_rotation_refuses_what_is_no_matrix_of_floats():
    with pytest.raises(ArgumentError, match=r"^rows: expected a 2-d array"):
        core.rotate(np.zeros(8))
    for wrong in (np.zeros((2, 8), np.int8), np.zeros((2, 16))[:, ::2], np.zeros((8, 2)).T):
        with pytest.raises(TypeError):
            core.rotate(wrong)

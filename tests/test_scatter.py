"""The scatter kernel from Python: the same bits on each instruction set, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from riemem import _backend
from riemem.errors import ArgumentError

core = _backend.core


def sums(d):
    return np.zeros(d), np.zeros((d, d))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 80), st.integers(1, 140), st.sampled_from(["f4", "f8"])
)
def test_every_isa_gives_the_same_bits_and_the_truth(seed, d, n, dtype):
    rng = np.random.default_rng(seed)
    rows = (rng.normal(size=(n, d)) * np.geomspace(5.0, 0.1, d) + 3.0).astype(dtype)
    shift = rng.normal(size=d)
    expected = None
    for isa in core.available_isas():
        total, scatter = sums(d)
        core.scatter_add(rows, shift, 1.0, total, scatter, isa)
        z = rows.astype(np.float64) - shift
        np.testing.assert_allclose(total, z.sum(axis=0), rtol=1e-12, atol=1e-10)
        np.testing.assert_allclose(np.tril(scatter), np.tril(z.T @ z), rtol=1e-12, atol=1e-9)
        if expected is None:
            expected = total, np.tril(scatter)
        np.testing.assert_array_equal(total, expected[0])
        np.testing.assert_array_equal(np.tril(scatter), expected[1])


def test_what_was_added_is_taken_away_to_the_bit():
    rows = np.random.default_rng(0).normal(size=(64, 30)).astype(np.float32)
    total, scatter = sums(30)
    core.scatter_add(rows, np.zeros(30), 1.0, total, scatter)
    core.scatter_add(rows, np.zeros(30), -1.0, total, scatter)
    assert not total.any()
    assert not np.tril(scatter).any()


def test_the_covariance_reads_the_lower_triangle_alone():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(50, 7))
    total, scatter = sums(7)
    core.scatter_add(rows, np.ones(7), 1.0, total, scatter)
    scatter[np.triu_indices(7, 1)] = np.nan
    found = core.scatter_covariance(total, scatter, 50.0)
    np.testing.assert_allclose(found, np.cov(rows, rowvar=False, bias=True), atol=1e-13)
    np.testing.assert_array_equal(found, found.T)


def test_bad_memory_is_refused():
    rows = np.zeros((4, 6))
    total, scatter = sums(6)
    shift = np.zeros(6)
    with pytest.raises(ArgumentError, match=r"^sign: expected 1 or -1"):
        core.scatter_add(rows, shift, 2.0, total, scatter)
    with pytest.raises(ArgumentError, match=r"^shift: expected shape \(6,\)"):
        core.scatter_add(rows, np.zeros(5), 1.0, total, scatter)
    with pytest.raises(ArgumentError, match=r"^total: expected shape \(6,\)"):
        core.scatter_add(rows, shift, 1.0, np.zeros(7), scatter)
    with pytest.raises(ArgumentError, match=r"^scatter: expected shape \(6, 6\)"):
        core.scatter_add(rows, shift, 1.0, total, np.zeros((6, 5)))
    with pytest.raises(ArgumentError, match=r"^n: expected a positive number"):
        core.scatter_covariance(total, scatter, 0.0)
    with pytest.raises(TypeError):
        core.scatter_add(rows[:, ::2], shift[:3], 1.0, total[:3], np.zeros((3, 3)))
    scatter.flags.writeable = False
    with pytest.raises(ValueError, match="not writeable"):
        core.scatter_add(rows, shift, 1.0, total, scatter)

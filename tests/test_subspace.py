"""The low-rank stream against numpy's decomposition of all rows together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from riemem import IncrementalSVD, _backend
from riemem.errors import ArgumentError, DowndateError, DTypeError, NotFiniteError, ShapeError


def data(n=200, d=60, seed=0, fall=30.0):
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return (rng.normal(size=(n, d)) * np.geomspace(fall, 1.0, d)) @ turn


def stream(rows, batch, **options):
    svd = IncrementalSVD(rows.shape[1], **options)
    for start in range(0, rows.shape[0], batch):
        svd.partial_fit(rows[start : start + batch])
    return svd


def sines(a, b):
    """Sines of the angles between two subspaces of one dimension."""
    return np.linalg.norm(a - b @ (b.T @ a), ord=2)


# -- against numpy.linalg.svd ------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 7, 32, 200])
@pytest.mark.parametrize(("energy", "max_rank"), [(0.9, None), (0.6, None), (0.999, 5)])
def test_values_and_subspace_are_within_what_was_lost(batch, energy, max_rank):
    rows = data(d=120)
    svd = stream(rows, batch, energy=energy, max_rank=max_rank)
    _, values, vt = np.linalg.svd(rows, full_matrices=False)
    total = float((rows**2).sum())
    assert svd.n_seen == 200
    assert svd.total_energy == pytest.approx(total, rel=1e-12)
    r = svd.rank
    assert 0 < r <= (max_rank or 120)
    # X'X = V s^2 V' + lost, lost positive semidefinite: so the true values bracket ours.
    excess = values[:r] ** 2 - svd.singular_values**2
    assert (excess >= -1e-10 * total).all()
    assert (excess <= svd.lost_energy + 1e-10 * total).all()
    assert svd.lost_energy <= svd.discarded_energy * total + 1e-10 * total
    if max_rank is None:
        assert svd.discarded_energy <= 1.0 - energy + 1e-9
    # Davis-Kahan: the angle is at most |lost| over the gap.
    gap = svd.singular_values[-1] ** 2 - values[r] ** 2
    if gap > svd.lost_energy:
        assert sines(svd.basis, vt[:r].T) <= svd.lost_energy / gap + 1e-9
    np.testing.assert_allclose(svd.basis.T @ svd.basis, np.eye(r), atol=1e-13)


@pytest.mark.parametrize("shape", [(30, 300), (40, 40), (300, 20), (1, 5), (5, 1)])
@pytest.mark.parametrize("batch", [1, 9, 1000])
def test_without_truncation_it_is_the_decomposition(shape, batch):
    rows = data(*shape)
    svd = stream(rows, batch, energy=1.0)
    _, values, vt = np.linalg.svd(rows, full_matrices=False)
    k = min(shape)
    assert svd.rank == k
    np.testing.assert_allclose(svd.singular_values, values, rtol=1e-10)
    overlap = np.abs((svd.basis * vt.T).sum(axis=0))
    np.testing.assert_allclose(overlap, 1.0, atol=1e-8)
    assert svd.lost_energy == 0.0
    assert svd.discarded_energy == pytest.approx(0.0, abs=1e-12)


def test_a_low_rank_stream_is_held_exactly_whatever_the_batches():
    rows = data(300, 80)[:, :3] @ np.random.default_rng(3).normal(size=(3, 80))
    for batch in (1, 2, 50):
        svd = stream(rows, batch, energy=1.0)
        assert svd.rank == 3
        np.testing.assert_allclose(
            svd.singular_values, np.linalg.svd(rows, compute_uv=False)[:3], rtol=1e-10
        )


def test_c14_a_short_last_batch():
    rows = data(65, 32)
    short, even = stream(rows, 16, max_rank=4), stream(rows, 13, max_rank=4)
    assert short.n_seen == even.n_seen == 65
    assert short.rank == even.rank == 4
    np.testing.assert_allclose(short.singular_values**2, even.singular_values**2, rtol=0.02)
    assert sines(short.basis, even.basis) < 1e-3


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 12),
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.integers(1, 12),
)
def test_rank_deficient_and_repeated_rows(seed, d, batches, rank):
    rng = np.random.default_rng(seed)
    parts = [rng.integers(-2, 3, (b, rank)) @ rng.integers(-1, 2, (rank, d)) for b in batches]
    svd = IncrementalSVD(d, energy=1.0)
    for part in parts:
        svd.partial_fit(part)
    rows = np.concatenate(parts).astype(np.float64)
    values = np.linalg.svd(rows, compute_uv=False)
    np.testing.assert_allclose(
        svd.singular_values, values[: svd.rank], atol=1e-9 * max(values[0], 1.0)
    )
    assert (values[svd.rank :] <= 1e-7 * max(values[0], 1.0)).all()
    np.testing.assert_allclose(svd.basis.T @ svd.basis, np.eye(svd.rank), atol=1e-12)


def test_orthonormality_does_not_wear_off():
    rng = np.random.default_rng(2)
    svd = IncrementalSVD(40, max_rank=6)
    for _ in range(1500):
        svd.partial_fit(rng.normal(size=(1, 40)))
    np.testing.assert_allclose(svd.basis.T @ svd.basis, np.eye(6), atol=1e-13)


def test_the_sign_of_the_basis_is_fixed():
    rows = data()
    a, b = stream(rows, 10), stream(-rows, 10)
    np.testing.assert_allclose(a.basis, b.basis, atol=1e-10)
    assert (a.basis[np.abs(a.basis).argmax(axis=0), np.arange(a.rank)] > 0).all()


def test_transform_gives_the_coordinates():
    rows = data()
    svd = stream(rows, 20)
    np.testing.assert_allclose(svd.transform(rows), rows @ svd.basis)
    assert repr(svd) == f"IncrementalSVD(dim=60, rank={svd.rank}, n_seen=200)"


# -- forgetting --------------------------------------------------------------------------------


def test_forgetting_weights_the_past():
    rows = data(60, 20)
    svd = stream(rows, 20, energy=1.0, forgetting=0.5)
    weighted = np.concatenate([0.25 * rows[:20], 0.5 * rows[20:40], rows[40:]])
    np.testing.assert_allclose(
        svd.singular_values, np.linalg.svd(weighted, compute_uv=False), rtol=1e-10
    )
    assert svd.total_energy == pytest.approx(float((weighted**2).sum()))


def test_a_drifting_stream_is_followed():
    rng = np.random.default_rng(4)
    first, second = np.eye(30)[:3], np.eye(30)[10:13]
    svd = IncrementalSVD(30, max_rank=3, forgetting=0.8)
    for _ in range(30):
        svd.partial_fit(rng.normal(size=(8, 3)) @ first)
    for _ in range(30):
        svd.partial_fit(rng.normal(size=(8, 3)) @ second)
    assert sines(svd.basis, second.T) < 1e-3


# -- downdate ----------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(2, 25))
def test_downdate_is_as_if_the_rows_had_never_been(seed, n, d):
    rng = np.random.default_rng(seed)
    rows = data(n, d, seed)
    gone = rng.random(n) < 0.5
    svd = stream(rows, 7, energy=1.0).downdate(rows[gone])
    values = np.linalg.svd(rows[~gone], compute_uv=False)
    assert svd.n_seen == int((~gone).sum())
    assert svd.rank == min(values.size, d)
    np.testing.assert_allclose(svd.singular_values, values, rtol=1e-6, atol=1e-6)


def test_downdate_to_nothing_and_up_again():
    rows = data(10, 6)
    svd = stream(rows, 5, energy=1.0).downdate(rows)
    assert (svd.n_seen, svd.rank, svd.total_energy, svd.discarded_energy) == (0, 0, 0.0, 0.0)
    svd.partial_fit(rows)
    np.testing.assert_allclose(
        svd.singular_values, np.linalg.svd(rows, compute_uv=False), rtol=1e-12
    )


def test_downdate_is_refused_where_it_cannot_be_exact():
    rows = data(200, 120)
    truncated = stream(rows, 10, max_rank=2)
    before = truncated.singular_values.copy()
    with pytest.raises(DowndateError, match=r"lost .* riemem\.FisherMetric\.downdate takes"):
        truncated.downdate(rows[:3])
    np.testing.assert_array_equal(truncated.singular_values, before)
    fading = stream(rows[:, :8], 50, energy=1.0, forgetting=0.9)
    with pytest.raises(DowndateError, match=r"forgetting 0\.9; riemem\.FisherMetric\.downdate"):
        fading.downdate(rows[:1, :8])
    whole = stream(rows[:5], 5, energy=1.0)
    for foreign in (rows[7], 50.0 * rows[:1], data(6, 120)):
        with pytest.raises(DowndateError, match=r"^X: expected rows that were taken in before"):
            whole.downdate(foreign)
    assert whole.n_seen == 5
    assert issubclass(DowndateError, ArgumentError)


# -- the ends of the range, and refusals -------------------------------------------------------


def test_nothing_and_zeros():
    svd = IncrementalSVD(4)
    assert (svd.rank, svd.basis.shape, svd.n_seen, svd.discarded_energy) == (0, (4, 0), 0, 0.0)
    assert svd.partial_fit(np.zeros((0, 4))).n_seen == 0
    assert svd.partial_fit(np.zeros((3, 4))).rank == 0
    assert svd.n_seen == 3
    svd.partial_fit([[0.0, 2.0, 0.0, 0.0]])
    assert (svd.rank, svd.singular_values.tolist()) == (1, [2.0])
    assert (svd.dim, svd.lost_energy) == (4, 0.0)
    assert svd.downdate(np.zeros((0, 4))) is svd


@pytest.mark.parametrize("scale", [1e-140, 1e140])
def test_extreme_scales(scale):
    rows = data(30, 12)
    values = stream(scale * rows, 8, energy=1.0).singular_values
    np.testing.assert_allclose(values / scale, np.linalg.svd(rows, compute_uv=False), rtol=1e-10)


def test_bad_rows_change_nothing():
    rows = data(20, 5)
    svd = stream(rows, 20)
    before = svd.singular_values.copy()
    for bad, error, message in [
        ([[np.nan] * 5], NotFiniteError, "^X: expected finite"),
        ([[1e200] * 5], NotFiniteError, "^X: expected values whose squares fit"),
        (np.zeros((2, 4)), ShapeError, r"^X: expected shape \(N, 5\) or \(5,\), got \(2, 4\)"),
        ([["a"] * 5], DTypeError, "^X: expected real numbers"),
    ]:
        for method in (svd.partial_fit, svd.downdate):
            with pytest.raises(error, match=message):
                method(bad)
    np.testing.assert_array_equal(svd.singular_values, before)
    assert svd.n_seen == 20
    with pytest.raises(ValueError, match="read-only"):
        svd.basis[0, 0] = 1.0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"dim": 0}, ArgumentError),
        ({"dim": 2.5}, DTypeError),
        ({"energy": 0.0}, ArgumentError),
        ({"energy": 1.1}, ArgumentError),
        ({"max_rank": 0}, ArgumentError),
        ({"forgetting": 0.0}, ArgumentError),
        ({"forgetting": 1.5}, ArgumentError),
        ({"forgetting": "1"}, DTypeError),
    ],
)
def test_options_out_of_range(options, error):
    with pytest.raises(error, match=rf"^{next(iter(options))}: expected"):
        IncrementalSVD(**{"dim": 4, **options})


# -- the dense core ----------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 40))
def test_the_small_core_is_a_decomposition(seed, m, n):
    a = np.random.default_rng(seed).normal(size=(m, n)) * np.geomspace(1.0, 1e-9, n)
    u, s, vt = _backend.core.small_svd(a)
    np.testing.assert_allclose(u * s @ vt, a, atol=1e-13)
    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(u.T @ u, np.eye(min(m, n)), atol=1e-12)
    np.testing.assert_allclose(vt @ vt.T, np.eye(min(m, n)), atol=1e-12)

"""The metric: definition, degenerate inputs, exact life, and invariances."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from riemem import reference
from riemem.errors import ArgumentError, DTypeError, NotFiniteError, ShapeError
from riemem.metric import FisherMetric

COVARIANCES = ["full", "low_rank", "paper"]


def data(n=90, d=10, seed=0):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(d, d)) * np.geomspace(3.0, 0.1, d)
    return rng.normal(size=(n, d)) @ mixing.T + rng.normal(size=d)


# -- definition ------------------------------------------------------------------------------


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize(("ridge", "energy", "max_rank"), [(10.0, 0.95, None), (0.01, 0.6, 3)])
def test_fit_agrees_with_the_reference(covariance, ridge, energy, max_rank):
    rows = data()
    metric = FisherMetric.fit(
        rows, covariance=covariance, ridge=ridge, energy=energy, max_rank=max_rank
    )
    truth = reference.fit(rows, covariance, ridge=ridge, energy=energy, max_rank=max_rank)
    np.testing.assert_allclose(metric.mean, truth.mean, atol=1e-13)
    np.testing.assert_allclose(metric.sigma(), truth.matrix, atol=1e-11)
    assert metric.rank == truth.rank
    assert metric.ridge_value == pytest.approx(truth.ridge_value, rel=1e-12)
    assert metric.condition_number == pytest.approx(np.linalg.cond(truth.matrix), rel=1e-8)
    inverse = np.linalg.inv(truth.matrix)
    whitening = metric.whitening()
    tight = 1e-9 * np.abs(inverse).max()
    np.testing.assert_allclose(whitening @ whitening.T, inverse, atol=tight)
    queries = data(5, seed=3)
    w, offsets = metric.query_weights(queries)
    np.testing.assert_allclose(w, (queries - truth.mean) @ inverse, rtol=1e-8, atol=tight)
    np.testing.assert_allclose(offsets, -(w @ truth.mean), rtol=1e-9, atol=1e-12)


def test_attributes():
    rows = data()
    metric = FisherMetric.fit(rows, energy=0.9)
    values, vectors = np.linalg.eigh(np.cov(rows, rowvar=False, bias=True))
    values, vectors = values[::-1], vectors[:, ::-1]
    assert (metric.dim, metric.n_samples, metric.covariance) == (10, 90, "full")
    assert (metric.ridge, metric.energy, metric.max_rank, metric.min_samples) == (10, 0.9, None, 32)
    assert metric.basis.shape == (10, metric.rank)
    np.testing.assert_allclose(metric.eigenvalues, values[: metric.rank], rtol=1e-10)
    overlap = np.abs((metric.basis * vectors[:, : metric.rank]).sum(axis=0))
    np.testing.assert_allclose(overlap, 1.0, atol=1e-10)
    assert metric.discarded_energy == pytest.approx(values[metric.rank :].sum() / values.sum())
    assert metric.discarded_energy <= 0.1
    assert not metric.degenerate
    np.testing.assert_allclose(
        metric.covariance_matrix(), np.cov(rows, rowvar=False, bias=True), atol=1e-12
    )
    assert repr(metric) == "FisherMetric(dim=10, covariance='full', ridge=10, n_samples=90)"


def test_the_sign_of_the_basis_is_fixed():
    rows = data()
    for metric in (FisherMetric.fit(rows), FisherMetric.fit(-rows)):
        largest = np.abs(metric.basis).argmax(axis=0)
        assert (metric.basis[largest, np.arange(metric.rank)] > 0).all()


def test_what_is_returned_cannot_be_written():
    metric = FisherMetric.fit(data())
    for array in (metric.mean, metric.basis, metric.eigenvalues, metric.whitening()):
        with pytest.raises(ValueError, match=r"read-only"):
            array[0] = 0.0


def test_a_query_has_the_same_weights_in_any_batch():
    metric = FisherMetric.fit(data(400, 384), min_samples=1)
    queries = data(37, 384, seed=1)
    together, offsets = metric.query_weights(queries)
    for i in (0, 7, 8, 36):
        w, offset = metric.query_weights(queries[i])
        np.testing.assert_array_equal(w[0], together[i])
        assert offset[0] == offsets[i]
    for i, (w, _) in enumerate(map(metric.query_weights, (queries[:3], queries[3:6]))):
        np.testing.assert_array_equal(w, together[3 * i : 3 * i + 3])


def test_fit_does_not_depend_on_the_layout():
    rows = data().astype(np.float32)
    first = FisherMetric.fit(rows)
    for same in (np.asfortranarray(rows), rows[::-1][::-1], rows.astype(np.float64), rows.tolist()):
        np.testing.assert_array_equal(FisherMetric.fit(same).whitening(), first.whitening())


# -- the collected fault reports -------------------------------------------------------------


def test_c05_close_vectors_far_from_the_origin():
    identity = FisherMetric(768)
    a = np.full(768, 2.0, np.float32)
    b = np.full(768, 2.0005, np.float32)
    assert identity.mahalanobis(a, b)[0] == pytest.approx(0.0138554, abs=1e-6)
    assert identity.distance([a], [b])[0, 0] == pytest.approx(0.0138554, abs=1e-6)


def test_c07_perfectly_correlated_features():
    rows = np.array([[2.0, 1.0], [4.0, 3.0], [6.0, 5.0]])
    metric = FisherMetric.fit(rows, covariance="low_rank", ridge=0.01 / (8 / 3), max_rank=1)
    assert metric.ridge_value == pytest.approx(0.01)
    assert metric.eigenvalues.tolist() == pytest.approx([16 / 3])
    squared = metric.mahalanobis([*rows, [4.0, 5.0]]) ** 2
    assert squared == pytest.approx([1.497193, 0.0, 1.497193, 200.3743], rel=1e-5)


def test_c10_no_distance_is_negative_or_lost():
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(64, 4))
    rows = rng.normal(size=(500, 4)) @ factors.T * 3.0
    cov = np.cov(rows, rowvar=False, bias=True)
    metric = FisherMetric.fit(
        rows, covariance="low_rank", max_rank=4, ridge=1e-4 / (np.trace(cov) / 64)
    )
    assert metric.ridge_value == pytest.approx(1e-4)
    assert metric.mahalanobis(metric.mean)[0] == 0.0
    step = np.zeros(64)
    step[0] = 1e-6
    inverse = np.linalg.inv(metric.sigma())
    assert metric.mahalanobis(metric.mean + step)[0] ** 2 == pytest.approx(
        1e-12 * inverse[0, 0], rel=1e-6
    )
    assert (metric.distance(rows[:50], rows[:50]) >= 0.0).all()
    assert (np.diag(metric.distance(rows[:50], rows[:50])) == 0.0).all()


def test_c12_variances_far_from_zero():
    rows = np.array([[30000.25], [30000.5], [30000.75], [30001.0]], np.float32)
    assert FisherMetric.fit(rows).covariance_matrix()[0, 0] == 0.078125
    for value in (20001.0, 1.0):
        alone = FisherMetric.fit(np.full((1, 1), value, np.float32))
        assert alone.covariance_matrix()[0, 0] + 0.1 == 0.1


def test_c12_a_stream_of_far_rows_keeps_its_digits():
    rows = data(200, 4) + 1e8
    metric = FisherMetric.fit(rows[:1])
    for row in rows[1:]:
        metric.update(row)
    np.testing.assert_allclose(
        metric.covariance_matrix(), np.cov(rows, rowvar=False, bias=True), rtol=1e-7
    )


def test_c14_a_short_last_batch():
    rows = data(65, 32)
    metric = FisherMetric(32, max_rank=4)
    for start in range(0, 65, 16):
        metric.update(rows[start : start + 16])
    other = FisherMetric(32, max_rank=4)
    for start in range(0, 65, 13):
        other.update(rows[start : start + 13])
    assert metric.n_samples == other.n_samples == 65
    np.testing.assert_allclose(metric.eigenvalues, other.eigenvalues, rtol=1e-10)
    angles = np.linalg.svd(metric.basis.T @ other.basis, compute_uv=False)
    np.testing.assert_allclose(angles, 1.0, atol=1e-10)


# -- degenerate inputs -----------------------------------------------------------------------


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize(
    "rows",
    [np.full((1, 3), 0.3), np.full((40, 3), [0.1, -7.3, 1e5]), np.zeros((5, 3))],
    ids=["one", "equal", "zero"],
)
def test_rows_that_do_not_vary_give_the_identity(covariance, rows):
    metric = FisherMetric.fit(rows, covariance=covariance, ridge=0.0)
    assert metric.degenerate
    assert metric.rank == 0
    assert metric.basis.shape == (3, 0)
    assert metric.condition_number == 1.0
    np.testing.assert_array_equal(metric.sigma(), np.eye(3))
    np.testing.assert_array_equal(metric.mean, rows[0])
    assert metric.mahalanobis(rows[0] + [3.0, 0.0, 0.0])[0] == pytest.approx(3.0)
    w, offsets = metric.query_weights(rows[0])
    assert np.isfinite(w).all()
    assert np.isfinite(offsets).all()


def test_equal_rows_in_float32_from_a_stream_stay_degenerate():
    row = np.random.default_rng(0).normal(size=16).astype(np.float32)
    metric = FisherMetric(16)
    for _ in range(50):
        metric.update(row)
    assert metric.degenerate


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_dead_dimensions_and_fewer_rows_than_dimensions(covariance):
    rows = data(6, 12)
    rows[:, [2, 5, 11]] = 0.25
    metric = FisherMetric.fit(rows, covariance=covariance)
    assert metric.rank <= 5
    assert np.isfinite(metric.whitening()).all()
    assert (metric.mahalanobis(rows) > 0).all()


@pytest.mark.parametrize("covariance", ["full", "paper"])
def test_no_ridge_on_a_singular_covariance_is_refused(covariance):
    rows = data(6, 12)
    rows[:, 3] = 1.0
    with pytest.raises(ArgumentError, match=r"^ridge: expected a value that makes the covariance"):
        FisherMetric.fit(rows, covariance=covariance, ridge=0.0)


def test_no_ridge_is_fine_where_the_covariance_is_regular():
    rows = data(60, 5)
    metric = FisherMetric.fit(rows, ridge=0.0)
    np.testing.assert_allclose(metric.sigma(), np.cov(rows, rowvar=False, bias=True), atol=1e-12)
    low = FisherMetric.fit(rows, ridge=0.0, covariance="low_rank", max_rank=2)
    assert np.isfinite(low.whitening()).all()


def test_all_the_energy_means_every_direction_that_varies():
    rows = np.zeros((4, 5))
    rows[[0, 1, 2, 3], [0, 0, 1, 1]] = [1.0, -1.0, 2.0, -2.0]
    assert FisherMetric.fit(rows, energy=1.0).rank == 2
    assert FisherMetric.fit(rows, energy=1e-9).rank == 1


def test_an_empty_metric():
    metric = FisherMetric(3)
    assert metric.n_samples == 0
    assert metric.degenerate
    assert metric.mean.tolist() == [0.0, 0.0, 0.0]
    assert metric.mahalanobis([[3.0, 4.0, 0.0]]).tolist() == [5.0]


# -- life ------------------------------------------------------------------------------------


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_updates_and_downdates_in_any_order_are_exact(covariance):
    rows = data(300)
    rng = np.random.default_rng(5)
    metric = FisherMetric(10, covariance=covariance, ridge=0.1)
    held: list[int] = []
    waiting = list(rng.permutation(300))
    for _ in range(60):
        if held and rng.random() < 0.4:
            out = [held.pop(rng.integers(len(held))) for _ in range(min(len(held), 3))]
            metric.downdate(rows[out])
        else:
            new, waiting = waiting[:5], waiting[5:]
            metric.update(rows[new])
            held += new
        assert metric.n_samples == len(held)
    truth = reference.fit(rows[held], covariance, ridge=0.1)
    np.testing.assert_allclose(metric.mean, truth.mean, atol=1e-12)
    np.testing.assert_allclose(metric.sigma(), truth.matrix, atol=1e-11)


def test_five_thousand_random_changes_equal_a_fresh_fit():
    rng = np.random.default_rng(11)
    pool = data(3000, 24).astype(np.float32)
    pool /= np.linalg.norm(pool, axis=1, keepdims=True)
    metric = FisherMetric(24)
    held: list[int] = []
    free = list(range(3000))
    for step in range(5000):
        if held and (rng.random() < 0.45 or not free):
            row = held.pop(rng.integers(len(held)))
            metric._remove_known(pool[row][None])
            free.append(row)
        else:
            row = free.pop(rng.integers(len(free)))
            metric.update(pool[row])
            held.append(row)
        if step % 1000 == 0:
            metric.query_weights(pool[:1])
    fresh = FisherMetric.fit(pool[held])
    assert metric.n_samples == len(held) > 300
    np.testing.assert_allclose(
        metric.covariance_matrix(), fresh.covariance_matrix(), rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(metric.mean, fresh.mean, rtol=0, atol=1e-12)
    for expected, found in zip(
        fresh.query_weights(pool[:20]), metric.query_weights(pool[:20]), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(metric.mahalanobis(pool), fresh.mahalanobis(pool), rtol=1e-6)


def test_metrics_of_parts_merge_into_the_metric_of_all():
    rows = data(300) + 50.0
    whole = FisherMetric.fit(rows)
    merged = FisherMetric(10)
    for part in (rows[:3], rows[3:200], rows[200:]):
        other = FisherMetric.fit(part, ridge=1.0, covariance="paper")
        before = other.to_dict()
        assert merged.merge(other) is merged
        np.testing.assert_array_equal(other.to_dict()["scatter"], before["scatter"])
    assert merged.merge(FisherMetric(10)).n_samples == 300
    np.testing.assert_allclose(merged.mean, whole.mean, rtol=1e-14)
    np.testing.assert_allclose(merged.sigma(), whole.sigma(), rtol=1e-9, atol=1e-10)
    merged.downdate(rows[100:])
    np.testing.assert_allclose(
        merged.covariance_matrix(), FisherMetric.fit(rows[:100]).covariance_matrix(), atol=1e-10
    )
    first = FisherMetric.fit(rows[:5])
    FisherMetric(10).merge(first).update(rows)  # must not write into the sums it was given
    assert first.n_samples == 5
    np.testing.assert_array_equal(
        first.covariance_matrix(), FisherMetric.fit(rows[:5]).covariance_matrix()
    )
    with pytest.raises(ShapeError, match=r"^other: expected dimension 10, got 3"):
        merged.merge(FisherMetric(3))
    with pytest.raises(DTypeError, match=r"^other: expected a FisherMetric, got ndarray"):
        merged.merge(rows)
    with pytest.raises(NotFiniteError, match=r"^other: expected sums that fit"):
        FisherMetric.fit([[1e154]]).merge(FisherMetric.fit([[-1e154]]))
    with pytest.raises(NotFiniteError, match=r"^X: expected values whose squares fit"):
        FisherMetric.fit([[1e200], [1e200]])


def test_float32_rows_are_learnt_as_float64_ones_are():
    rows = data(200).astype(np.float32)
    wide = FisherMetric.fit(rows.astype(np.float64))
    for same in (rows, rows[::-1][::-1], np.asfortranarray(rows)):
        metric = FisherMetric(10).update(same)
        np.testing.assert_array_equal(metric.covariance_matrix(), wide.covariance_matrix())
        metric.downdate(same[:50]).update(same[:50])
        np.testing.assert_allclose(metric.covariance_matrix(), wide.covariance_matrix(), atol=1e-13)
    bad = rows.copy()
    bad[7, 3] = np.inf
    with pytest.raises(NotFiniteError, match=r"^X: expected finite values .* in row 7$"):
        FisherMetric(10).update(bad)


@pytest.mark.parametrize("covariance", ["full", "low_rank"])
def test_the_whitening_is_triangular(covariance):
    whitening = FisherMetric.fit(data(300, 150), covariance=covariance).whitening()
    assert not np.tril(whitening, -1).any()
    assert (np.diag(whitening) > 0).all()


def test_the_warm_basis_is_the_basis():
    rows = data(1500, 120)
    rows[:, 6:] *= 1e-4  # a gap behind the leading directions
    metric = FisherMetric.fit(rows[:1490], energy=0.9)
    assert metric.refresh() is metric
    metric.update(rows[1490:])
    spectrum = metric._spectrum()
    assert 0.0 < spectrum.residual <= 1e-6  # refined, not decomposed
    fresh = FisherMetric.fit(rows, energy=0.9)
    assert metric.rank == fresh.rank
    np.testing.assert_allclose(metric.eigenvalues, fresh.eigenvalues, rtol=1e-9)
    np.testing.assert_allclose(metric.basis, fresh.basis, atol=1e-6)
    assert metric.discarded_energy == pytest.approx(fresh.discarded_energy, abs=1e-9)
    assert metric.condition_number == pytest.approx(fresh.condition_number, rel=1e-9)
    # The scores do not know which it was.
    queries = data(3, 120, seed=5)
    np.testing.assert_allclose(
        metric.query_weights(queries)[0], fresh.query_weights(queries)[0], rtol=1e-8, atol=1e-12
    )


def test_a_basis_that_has_moved_is_decomposed_afresh():
    before, after = data(100, 120), 40.0 * data(200, 120, seed=8)
    metric = FisherMetric.fit(before, max_rank=5).refresh()
    metric.update(after)
    assert metric._spectrum().residual == 0.0
    fresh = FisherMetric.fit(np.vstack([before, after]), max_rank=5)
    assert metric.rank == fresh.rank
    np.testing.assert_allclose(np.abs((metric.basis * fresh.basis).sum(axis=0)), 1.0, atol=1e-9)


def test_a_change_shows_at_the_next_use():
    metric = FisherMetric.fit(data(50))
    before = metric.whitening()
    assert metric.update(data(50, seed=1)) is metric
    assert not np.allclose(metric.whitening(), before)
    metric.downdate(data(50, seed=1))
    np.testing.assert_allclose(metric.whitening() @ metric.whitening().T, before @ before.T)


def test_down_to_nothing_and_up_again():
    rows = data(7)
    metric = FisherMetric.fit(rows).downdate(rows)
    assert metric.n_samples == 0
    assert metric.degenerate
    np.testing.assert_array_equal(
        metric.update(rows).covariance_matrix(), FisherMetric.fit(rows).covariance_matrix()
    )


def test_rows_that_were_never_added_are_refused_and_change_nothing():
    rows = data(20)
    metric = FisherMetric.fit(rows)
    before = metric.to_dict()
    with pytest.raises(ArgumentError, match=r"^X: expected rows that were added before"):
        metric.downdate(rows[:1] * 50.0)
    with pytest.raises(
        ArgumentError, match=r"^X: expected at most the 20 rows that were added, got"
    ):
        metric.downdate(data(21))
    with pytest.raises(ArgumentError, match=r"^X: expected rows that were added before"):
        metric.downdate(data(20, seed=8))
    with pytest.raises(ArgumentError, match=r"^X: expected rows that were added before"):
        FisherMetric.fit(rows[:2]).downdate(rows[5])
    for name, value in metric.to_dict().items():
        np.testing.assert_array_equal(value, before[name])


def test_bad_rows_change_nothing():
    metric = FisherMetric.fit(data(20))
    before = metric.to_dict()
    bad = data(3)
    bad[2, 4] = np.nan
    with pytest.raises(NotFiniteError, match=r"^X: expected finite values .* in row 2$"):
        metric.update(bad)
    with pytest.raises(NotFiniteError, match=r"^X: expected values whose squares fit"):
        metric.update(np.full((1, 10), 1e200))
    with pytest.raises(ShapeError, match=r"^X: expected shape \(N, 10\) or \(10,\), got \(3, 4\)"):
        metric.update(np.zeros((3, 4)))
    for name, value in metric.to_dict().items():
        np.testing.assert_array_equal(value, before[name])


def test_a_copy_lives_its_own_life():
    metric = FisherMetric.fit(data(50))
    twin = metric.copy()
    twin.update(data(10, seed=2))
    assert (metric.n_samples, twin.n_samples) == (50, 60)
    np.testing.assert_array_equal(metric.whitening(), FisherMetric.fit(data(50)).whitening())


def test_to_dict_and_back_is_exact():
    metric = FisherMetric.fit(data(50), covariance="paper", max_rank=4, min_samples=7)
    twin = FisherMetric.from_dict(metric.to_dict())
    np.testing.assert_array_equal(twin.whitening(), metric.whitening())
    assert twin.min_samples == 7
    assert (twin.covariance, twin.max_rank, twin.n_samples) == ("paper", 4, 50)
    state = metric.to_dict()
    state["scatter"][:] = 0.0
    np.testing.assert_array_equal(twin.mean, metric.mean)


def test_from_dict_checks():
    state = FisherMetric.fit(data(50)).to_dict()
    with pytest.raises(ArgumentError, match=r"^state: expected the keys .* missing \['sum'\]"):
        FisherMetric.from_dict({k: v for k, v in state.items() if k != "sum"})
    with pytest.raises(ShapeError, match=r"^state\['shift'\]: expected"):
        FisherMetric.from_dict({**state, "shift": np.zeros(4)})
    with pytest.raises(NotFiniteError, match=r"^state\['scatter'\]: expected finite"):
        FisherMetric.from_dict({**state, "scatter": np.full((10, 10), np.nan)})


def test_many_threads_may_read_one_metric():
    rows = data(400, 48)
    metric = FisherMetric(48).update(rows)  # nothing factorised yet
    expected = FisherMetric.fit(rows).query_weights(rows[:9])[0]
    results = [None] * 8

    def read(i):
        results[i] = metric.query_weights(rows[:9])[0]

    threads = [threading.Thread(target=read, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        np.testing.assert_array_equal(result, expected)


# -- invariances -----------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12), st.floats(0.01, 20.0))
def test_the_full_metric_does_not_see_a_rotation(seed, d, ridge):
    rng = np.random.default_rng(seed)
    rows = data(40, d, seed)
    rotation, _ = np.linalg.qr(rng.normal(size=(d, d)))
    metric = FisherMetric.fit(rows, ridge=ridge)
    turned = FisherMetric.fit(rows @ rotation, ridge=ridge)
    np.testing.assert_allclose(
        turned.distance(rows[:4] @ rotation, rows @ rotation),
        metric.distance(rows[:4], rows),
        rtol=1e-7,
        atol=1e-9,
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(COVARIANCES))
def test_neither_the_order_of_the_rows_nor_an_offset_nor_the_scale_matters(seed, covariance):
    rng = np.random.default_rng(seed)
    rows = data(30, 6, seed)
    metric = FisherMetric.fit(rows, covariance=covariance)
    shuffled = FisherMetric.fit(rng.permutation(rows), covariance=covariance)
    moved = FisherMetric.fit(5.0 * rows - 3.0, covariance=covariance)
    expected = metric.mahalanobis(rows)
    np.testing.assert_allclose(shuffled.mahalanobis(rows), expected, rtol=1e-9)
    np.testing.assert_allclose(moved.mahalanobis(5.0 * rows - 3.0), expected, rtol=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(COVARIANCES))
def test_distances_obey_the_axioms(seed, covariance):
    rows = data(12, 5, seed)
    metric = FisherMetric.fit(rows, covariance=covariance)
    d = metric.distance(rows, rows)
    np.testing.assert_allclose(d, d.T, rtol=1e-12)
    assert (np.diag(d) == 0.0).all()
    assert (d[:, None, :] <= d[:, :, None] + d[None, :, :] + 1e-9).all()


# -- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"ridge": -1.0}, ArgumentError, r"^ridge: expected a finite number in \[0, inf\), got -1"),
        ({"ridge": np.nan}, ArgumentError, "^ridge: expected a finite number"),
        ({"ridge": "10"}, DTypeError, "^ridge: expected a number, got '10'"),
        ({"energy": 0.0}, ArgumentError, r"^energy: expected a finite number in \(0, 1\], got 0"),
        ({"energy": 1.5}, ArgumentError, "^energy: expected"),
        ({"max_rank": 0}, ArgumentError, "^max_rank: expected an integer >= 1, got 0"),
        ({"max_rank": True}, DTypeError, "^max_rank: expected an integer, got True"),
        ({"min_samples": -1}, ArgumentError, "^min_samples: expected an integer >= 0"),
        ({"covariance": "diag"}, ArgumentError, "^covariance: expected one of full, low_rank, pap"),
    ],
)
def test_options_out_of_range(options, error, message):
    with pytest.raises(error, match=message):
        FisherMetric.fit(data(40), **options)


def test_inputs_that_cannot_be_fitted():
    with pytest.raises(ShapeError, match=r"^X: expected at least one row, got shape \(0, 4\)"):
        FisherMetric.fit(np.zeros((0, 4)))
    with pytest.raises(ShapeError, match=r"^X: expected shape \(N, d\), got \(4,\)"):
        FisherMetric.fit(np.zeros(4))
    with pytest.raises(NotFiniteError, match=r"^X: expected finite values .* in row 1$"):
        FisherMetric.fit([[0.0], [np.inf]])
    with pytest.raises(DTypeError, match=r"^X: expected real numbers"):
        FisherMetric.fit([[True], [False]])
    with pytest.raises(ArgumentError, match=r"^dim: expected an integer >= 1, got 0"):
        FisherMetric(0)
    with pytest.raises(
        ShapeError, match=r"^Y: expected shape \(3, 10\) or \(1, 10\), got \(2, 10\)"
    ):
        FisherMetric(10).mahalanobis(np.zeros((3, 10)), np.zeros((2, 10)))

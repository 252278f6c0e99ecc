"""search and scores: equal to the reference, exact, total order, and honest about bad input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import riemem
from hypothesis import given, settings
from hypothesis import strategies as st
from riemem import _backend, reference
from riemem._fused import FORMS, NORMS, Options, prepare_points, prepare_queries
from riemem.metric import FisherMetric
from riemem.scoring import scores, search

ALL = list(itertools.product(FORMS, NORMS, (0.0, 0.4, 1.0)))
ISAS = _backend.core.available_isas()


def data(n=150, d=24, seed=0):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(d, d)) * np.geomspace(3.0, 0.1, d)
    return (rng.normal(size=(n, d)) @ mixing.T + rng.normal(size=d)).astype(np.float32)


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


# -- the truth -------------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "norm", "weight"), ALL)
@pytest.mark.parametrize("covariance", ["full", "low_rank", "paper"])
def test_scores_and_ids_equal_the_reference(covariance, form, norm, weight):
    points, queries = data(), data(7, seed=1)
    metric = FisherMetric.fit(points, covariance=covariance)
    truth = reference.fit(points, covariance)
    options = {"form": form, "norm": norm, "cosine_weight": weight}
    rng = np.random.default_rng(2)
    for mask in (None, rng.random(150) < 0.4, rng.random((7, 150)) < 0.4):
        expected = reference.fused_scores(queries, points, truth, mask=mask, **options)
        got = scores(queries, points, metric, mask=mask, **options)
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)
        top = search(queries, points, metric, 12, mask=mask, **options)
        ids, best = reference.fused_topk(queries, points, truth, 12, mask=mask, **options)
        np.testing.assert_array_equal(top.indices, ids)
        np.testing.assert_allclose(top.scores, best, rtol=1e-10, atol=1e-10)
        assert (top.counts == 12).all()
        assert not top.empty.any()
        assert top.scoring == "fused"


@pytest.mark.parametrize(("form", "norm", "weight"), ALL)
def test_the_kernel_gives_the_defined_bits(form, norm, weight):
    points, queries = data(300, 29), data(5, 29, seed=1)
    metric = FisherMetric.fit(points)
    options = Options(weight, form, norm)
    p, q = prepare_points(points, metric, options), prepare_queries(queries, metric, options)
    expected = reference.kernel_scores(
        points, p.inv_norms, p.scale, p.bias, q.q, q.w, q.offsets, q.bias, weight, norm
    )
    got = scores(queries, points, metric, form=form, norm=norm, cosine_weight=weight)
    low, high = q.bounds
    if norm == "zscore":  # its sums are blocked, not defined to the bit
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    else:
        np.testing.assert_array_equal(got, np.clip(expected, low, high))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 31, 64, 65])
def test_every_isa_gives_the_same_bits_on_odd_sizes(isa, d):
    for n in (1, 3, 17, 257, 700):
        points, queries = data(n, d, seed=n), data(5, d, seed=1)
        metric = FisherMetric.fit(points, min_samples=1)
        for form in FORMS:
            expected = search(queries, points, metric, 9, form=form, backend="scalar")
            got = search(queries, points, metric, 9, form=form, backend=isa)
            np.testing.assert_array_equal(got.indices, expected.indices)
            np.testing.assert_array_equal(got.scores, expected.scores)
            np.testing.assert_array_equal(
                scores(queries, points, metric, form=form, backend=isa),
                scores(queries, points, metric, form=form, backend="scalar"),
            )


def test_a_query_gets_the_same_bits_in_any_batch_and_on_any_number_of_threads():
    points, queries = data(2000, 160), data(37, 160, seed=1)
    metric = FisherMetric.fit(points)
    together = search(queries, points, metric, 10, cosine_weight=0.5)
    before = riemem.build_info()["num_threads"]
    try:
        for threads in (1, 2, 5):
            riemem.set_num_threads(threads)
            again = search(queries, points, metric, 10, cosine_weight=0.5)
            np.testing.assert_array_equal(again.indices, together.indices)
            np.testing.assert_array_equal(again.scores, together.scores)
    finally:
        riemem.set_num_threads(before)
    for i in (0, 5, 36):
        alone = search(queries[i], points, metric, 10, cosine_weight=0.5)
        np.testing.assert_array_equal(alone.indices[0], together.indices[i])
        np.testing.assert_array_equal(alone.scores[0], together.scores[i])


@pytest.mark.parametrize("k", [1, 3, 10, 149, 150, 151, 10**9, 10**30])
def test_search_is_the_head_of_scores(k):
    points, queries = data(), data(3, seed=1)
    metric = FisherMetric.fit(points)
    for form, norm in itertools.product(FORMS, NORMS):
        everything = scores(queries, points, metric, form=form, norm=norm, cosine_weight=0.2)
        ids, best = reference.top_k(everything, min(k, 150))
        top = search(queries, points, metric, k, form=form, norm=norm, cosine_weight=0.2)
        np.testing.assert_array_equal(top.indices, ids)
        np.testing.assert_array_equal(top.scores, best)


def test_cosine_against_faiss():
    faiss = pytest.importorskip("faiss")
    points, queries = data(500, 48), data(20, 48, seed=1)
    index = faiss.IndexFlatIP(48)
    index.add(unit(points))
    expected, ids = index.search(unit(queries), 10)
    top = search(queries, points, None, 10)
    np.testing.assert_array_equal(top.indices, ids)
    np.testing.assert_allclose(top.scores, expected, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e-42, 1e-30, 1e30, 3e38, "mixed"])
def test_hostile_magnitudes_stay_exact(scale):
    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, size=(3000, 40))
    queries = rng.uniform(-1, 1, size=(20, 40))
    if scale == "mixed":
        points *= np.geomspace(1e-18, 1e18, 3000)[:, None]
    else:
        points, queries = points * scale, queries * scale
    points, queries = points.astype(np.float32), queries.astype(np.float32)
    metric = FisherMetric.fit(points)
    for form, norm, weight in itertools.product(FORMS, ("none", "minmax"), (0.0, 0.5, 1.0)):
        options = {"form": form, "norm": norm, "cosine_weight": weight}
        for batch in (queries, queries[:1]):
            top = search(batch, points, metric, 20, **options)
            ids, best = reference.top_k(scores(batch, points, metric, **options), 20)
            np.testing.assert_array_equal(top.indices, ids)
            np.testing.assert_array_equal(top.scores, best)
    cosine = search(queries, points, metric, 20, cosine_weight=1.0, norm="none")
    ids, _ = reference.top_k(reference.cosine_scores(queries, points), 20)
    np.testing.assert_array_equal(cosine.indices, ids)


def test_nearly_equal_rows_stay_exact():
    rng = np.random.default_rng(0)
    points = np.repeat(rng.normal(size=(1, 40)).astype(np.float32), 2000, axis=0)
    bits = points.view(np.int32)
    bits += rng.integers(-2, 3, size=bits.shape, dtype=np.int32)
    points = points[rng.integers(0, 1500, size=2000)]  # and some that are exactly equal
    queries = rng.normal(size=(9, 40)).astype(np.float32)
    metric = FisherMetric.fit(rng.normal(size=(100, 40)))
    for form, norm, weight in itertools.product(FORMS, ("none", "minmax"), (0.0, 0.5, 1.0)):
        options = {"form": form, "norm": norm, "cosine_weight": weight}
        top = search(queries, points, metric, 30, **options)
        ids, best = reference.top_k(scores(queries, points, metric, **options), 30)
        np.testing.assert_array_equal(top.indices, ids)
        np.testing.assert_array_equal(top.scores, best)


# -- properties ------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 80),
    form=st.sampled_from(FORMS),
    norm=st.sampled_from(["none", "minmax"]),
    weight=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_permuting_the_rows_permutes_the_answer(seed, n, form, norm, weight):
    points, queries = data(n, 6, seed), data(3, 6, seed + 1)
    metric = FisherMetric.fit(data(60, 6, seed + 2))
    order = np.random.default_rng(seed).permutation(n)
    options = {"form": form, "norm": norm, "cosine_weight": weight}
    np.testing.assert_array_equal(
        scores(queries, points[order], metric, **options),
        scores(queries, points, metric, **options)[:, order],
    )
    straight = search(queries, points, metric, n, **options)
    shuffled = search(queries, points[order], metric, n, **options)
    np.testing.assert_array_equal(shuffled.scores, straight.scores)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    copies=st.lists(st.integers(0, 7), min_size=1, max_size=60),
    k=st.integers(1, 12),
    form=st.sampled_from(FORMS),
    norm=st.sampled_from(["none", "minmax"]),
    weight=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_c22_duplicates_tie_and_go_to_the_lower_row(seed, copies, k, form, norm, weight):
    distinct = data(8, 5, seed)
    points = distinct[copies]
    metric = FisherMetric.fit(data(60, 5, seed + 1))
    options = {"form": form, "norm": norm, "cosine_weight": weight}
    top = search(distinct[0], points, metric, k, **options)
    values = scores(distinct[0], points, metric, **options)[0]
    for a, b in itertools.combinations(range(len(copies)), 2):
        if copies[a] == copies[b]:
            assert values[a] == values[b]
    expected = sorted(range(len(copies)), key=lambda i: (-values[i], i))[:k]
    assert top.indices[0].tolist() == expected


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), form=st.sampled_from(FORMS), norm=st.sampled_from(NORMS))
def test_c24_weight_zero_and_one_give_the_pure_rankings(seed, form, norm):
    points, queries = data(50, 9, seed), data(2, 9, seed + 1)
    metric = FisherMetric.fit(points)
    riemannian = reference.riemannian_scores(queries, points, reference.fit(points), form)
    cosine = reference.cosine_scores(queries, points)
    for weight, pure in ((0.0, riemannian), (1.0, cosine)):
        top = search(queries, points, metric, 50, form=form, norm=norm, cosine_weight=weight)
        np.testing.assert_array_equal(top.indices, np.argsort(-pure, axis=1, kind="stable"))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), form=st.sampled_from(FORMS))
def test_rotating_everything_changes_nothing_under_the_full_metric(seed, form):
    points, queries = data(40, 7, seed), data(3, 7, seed + 1)
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(7, 7)))
    turned = [(x.astype(np.float64) @ rotation).astype(np.float32) for x in (queries, points)]
    metric, other = FisherMetric.fit(points), FisherMetric.fit(turned[1])
    np.testing.assert_allclose(
        scores(*turned, other, form=form, cosine_weight=0.3),
        scores(queries, points, metric, form=form, cosine_weight=0.3),
        atol=2e-4,
    )


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), norm=st.sampled_from(NORMS), form=st.sampled_from(FORMS))
def test_a_mask_is_the_same_as_searching_what_passes(seed, norm, form):
    points, queries = data(60, 6, seed), data(2, 6, seed + 1)
    metric = FisherMetric.fit(points)
    mask = np.random.default_rng(seed).random(60) < 0.3
    kept = np.flatnonzero(mask)
    options = {"form": form, "norm": norm, "cosine_weight": 0.5}
    masked = search(queries, points, metric, 8, mask=mask, **options)
    alone = search(queries, points[kept], metric, 8, **options)
    np.testing.assert_array_equal(masked.indices, kept[alone.indices])
    np.testing.assert_allclose(masked.scores, alone.scores, rtol=1e-12, atol=1e-12)
    whole = search(queries, points, metric, 8, **options)
    everything = search(queries, points, metric, 8, mask=np.ones(60, bool), **options)
    np.testing.assert_array_equal(everything.indices, whole.indices)
    np.testing.assert_array_equal(everything.scores, whole.scores)


def test_scores_keep_their_ranges():
    points = data()
    metric = FisherMetric.fit(points)
    for weight in (0.0, 0.1, 0.7, 1.0):
        values = scores(points, points, metric, norm="minmax", cosine_weight=weight)
        assert values.min() >= 0.0
        assert values.max() <= 1.0
        values = scores(points, points, metric, form="cosine", norm="none", cosine_weight=weight)
        assert values.min() >= -1.0
        assert values.max() <= 1.0
        assert np.diag(values) == pytest.approx(1.0)
    values = scores(points, points, metric, form="mahalanobis", norm="none", cosine_weight=0.0)
    assert values.max() <= 0.0
    np.testing.assert_allclose(
        values, -(metric.distance(points, points).T ** 2), rtol=1e-9, atol=1e-11
    )


def test_scores_at_their_bound_are_ordered_by_row_also_over_the_edge_of_k():
    rng = np.random.default_rng(0)
    base = rng.normal(size=5).astype(np.float32)
    points = np.concatenate([base[None] * f for f in rng.uniform(0.1, 9.0, 200)]).reshape(200, 5)
    points = np.concatenate([points, data(50, 5)]).astype(np.float32)
    values = scores(base, points, None)[0]
    assert values.max() <= 1.0
    for k in (1, 3, 50, 199):
        top = search(base, points, None, k)
        expected = np.lexsort((np.arange(250), -values))[:k]
        assert top.indices[0].tolist() == expected.tolist()
        np.testing.assert_array_equal(top.scores[0], values[expected])


# -- zero queries, constant scores, too few samples --------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_zero_query_is_flagged_and_leaves_the_others_alone(form):
    points = data()
    metric = FisherMetric.fit(points)
    queries = data(3, seed=1)
    queries[1] = 0.0
    top = search(queries, points, metric, 4, form=form)
    assert top.empty.tolist() == [False, True, False]
    assert top.counts.tolist() == [4, 0, 4]
    assert top.indices[1].tolist() == [-1] * 4
    assert np.isnan(top.scores[1]).all()
    alone = search(queries[[0, 2]], points, metric, 4, form=form)
    np.testing.assert_array_equal(top.indices[[0, 2]], alone.indices)
    np.testing.assert_array_equal(top.scores[[0, 2]], alone.scores)
    values = scores(queries, points, metric, form=form)
    assert np.isnan(values[1]).all()
    assert np.isfinite(values[[0, 2]]).all()
    only = search(np.zeros(24), points, metric, 4, form=form)
    assert only.indices.shape == (1, 0)


def test_a_query_at_the_mean_has_no_direction_there():
    points = np.concatenate([data(50, 4), -data(50, 4)])
    metric = FisherMetric.fit(points)
    query = metric.mean.astype(np.float32)
    if not query.any():
        query = np.full(4, 1e-30, np.float32)
    values = scores(query, points, metric, form="cosine", norm="none", cosine_weight=0.0)
    assert np.isfinite(values).all()
    at = FisherMetric.fit([[1.0, 1.0], [3.0, 1.0], [1.0, 3.0], [3.0, 3.0]], min_samples=1)
    assert scores([2, 2], points[:, :2], at, form="cosine", norm="none").tolist() == [[0.0] * 100]
    assert scores([5, 2], [[2, 2]], at, form="cosine", norm="none").tolist() == [[0.0]]


@pytest.mark.parametrize("norm", ["minmax", "zscore"])
def test_constant_scores_become_zero(norm):
    points = np.tile(data(1, 6), (40, 1))
    metric = FisherMetric.fit(points)
    assert metric.degenerate
    for form in FORMS:
        values = scores(data(2, 6, seed=1), points, metric, form=form, norm=norm)
        assert values.tolist() == [[0.0] * 40] * 2
        assert search(data(1, 6), points, metric, 3, form=form).indices.tolist() == [[0, 1, 2]]


def test_too_few_samples_fall_back_to_the_cosine_and_say_so():
    points = data(31)
    metric = FisherMetric.fit(points)
    top = search(points[:2], points, metric, 3, form="inner", cosine_weight=0.0)
    assert top.scoring == "cosine: 31 samples < min_samples 32"
    np.testing.assert_allclose(
        top.scores, -np.sort(-reference.cosine_scores(points[:2], points))[:, :3], atol=1e-12
    )
    assert search(points[:2], points, metric.update(points[:1]), 3).scoring == "fused"
    assert search(points[:2], points, None, 3).scoring == "cosine: no metric"


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("d", [1, 7, 8, 9, 384])
def test_rows_are_divided_by_their_lengths_as_float64_is(isa, d):
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(400, d)) * 10.0 ** rng.uniform(-44, 37, size=(400, 1))
    rows[100:200] *= 10.0 ** rng.uniform(-6, 0, size=(100, d))
    rows[200:300] = rng.integers(-8, 9, size=(100, d))
    rows = rows.astype(np.float32)
    rows[::5, 0] = [0.0, -0.0] * 40
    norms, _ = _backend.core.row_stats(rows)
    # Quotients half-way between two float32: some products with 1 / norm are rounded wrongly.
    halves = 1.0 + 2.0**-23 * rng.integers(0, 2**23, size=100) + 2.0**-24
    rows[300:] = (3.0 * halves[:, None]).astype(np.float32)
    norms[300:] = rows[300:, 0] / halves
    with np.errstate(under="ignore"):
        expected = rows / np.where(norms > 0.0, norms, 1.0)[:, None]
        expected = expected.astype(np.float32)
    out = np.empty_like(rows)
    _backend.core.unit_rows(rows, norms, out, isa)
    assert np.array_equal(out.view(np.uint32), expected.view(np.uint32))

"""Scores and distance of diagonal Gaussians: exact, a metric, and honest about bad input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import riemem
from hypothesis import given, settings
from hypothesis import strategies as st
from riemem import _backend, errors, reference
from riemem.fisher_rao import (
    MAX_VARIANCE,
    MIN_VARIANCE,
    access_ramp,
    confirmed_variance,
    fisher_rao_distance,
    fisher_rao_scores,
    fisher_rao_search,
    signal_variance,
)
from scipy.integrate import quad

ISAS = _backend.core.available_isas()


def problem(n, d, b, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    points = (rng.normal(size=(n, d)) * scale).astype(np.float32)
    points[n // 2] = points[0]
    variances = rng.uniform(0.05, 2.0, size=(n, d)).astype(np.float32)
    variances[n // 2] = variances[0]
    queries = (rng.normal(size=(b, d)) * scale).astype(np.float32)
    ramp = rng.random(n)
    ramp[n // 2] = ramp[0]
    return queries, points, variances, ramp


def best_of(values, k, mask=None):
    indices, scores = [], []
    for b, row in enumerate(values):
        rows = np.arange(row.size)
        if mask is not None:
            rows = rows[mask if mask.ndim == 1 else mask[b]]
        order = rows[np.lexsort((rows, -row[rows]))][:k]
        indices.append(order)
        scores.append(row[order])
    return np.array(indices), np.array(scores)


# -- the scores ------------------------------------------------------------------------------


def test_the_score_is_the_formula():
    queries, points, variances, ramp = problem(40, 13, 3)
    q, h, v = (a.astype(np.float64) for a in (queries, points, variances))
    weighted = ((q[:, None] - h) ** 2 / v).sum(axis=2)
    cosine = (q @ h.T) / np.linalg.norm(q, axis=1)[:, None] / np.linalg.norm(h, axis=1)
    expected = (1 - ramp) * (cosine + 1) / 2 + ramp * np.exp(-weighted / 7.0)
    found = fisher_rao_scores(queries, points, variances, temperature=7.0, ramp=ramp)
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-7)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("d", [1, 7, 8, 9, 16, 33, 100])
def test_every_isa_gives_the_bits_of_the_reference(isa, d):
    queries, points, variances, ramp = problem(300, d, 6, seed=d)
    for own in (None, ramp):
        expected = reference.fisher_rao_scores(queries, points, variances, ramp=own)
        found = fisher_rao_scores(queries, points, variances, ramp=own, backend=isa)
        np.testing.assert_array_equal(found, expected)
        top = fisher_rao_search(queries, points, variances, 10, ramp=own, backend=isa)
        indices, scores = best_of(expected, 10)
        np.testing.assert_array_equal(top.indices, indices)
        np.testing.assert_array_equal(top.scores, scores)


def test_batch_and_threads_change_nothing():
    queries, points, variances, ramp = problem(3000, 96, 21)
    whole = fisher_rao_search(queries, points, variances, 7, ramp=ramp)
    before = riemem.build_info()["num_threads"]
    try:
        riemem.set_num_threads(4)
        again = fisher_rao_search(queries, points, variances, 7, ramp=ramp)
    finally:
        riemem.set_num_threads(before)
    assert whole.exact_rows < 21 * 100  # the search looked closely at few rows
    for found in (again, whole):
        np.testing.assert_array_equal(found.indices, whole.indices)
        np.testing.assert_array_equal(found.scores, whole.scores)
    for b in range(21):
        one = fisher_rao_search(queries[b], points, variances, 7, ramp=ramp)
        np.testing.assert_array_equal(one.indices[0], whole.indices[b])
        np.testing.assert_array_equal(one.scores[0], whole.scores[b])


def test_ties_go_to_the_lower_row():
    points = np.ones((200, 5), np.float32)
    top = fisher_rao_search(points[:1] * 2, points, np.full(5, 0.5), 9)
    assert top.indices.tolist() == [list(range(9))]
    far = fisher_rao_search(points[:1] * 1e4, points, np.full(5, 0.05), 4)
    assert far.indices.tolist() == [[0, 1, 2, 3]]
    assert far.scores.tolist() == [[0.0] * 4]


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1e6, 1e12, 1e18])
def test_scales_that_float32_cannot_bound_are_as_exact(scale):
    queries, points, variances, ramp = problem(500, 24, 4, scale=scale)
    heat = float(np.float64(scale) ** 2 * 40)
    expected = reference.fisher_rao_scores(queries, points, variances, ramp=ramp, temperature=heat)
    top = fisher_rao_search(queries, points, variances, 5, ramp=ramp, temperature=heat)
    indices, scores = best_of(expected, 5)
    np.testing.assert_array_equal(top.indices, indices)
    np.testing.assert_array_equal(top.scores, scores)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 150),
    d=st.integers(1, 20),
    k=st.integers(0, 160),
    heat=st.sampled_from([1e-3, 0.3, 15.0, 1e4]),
    masked=st.sampled_from(["no", "one", "each"]),
    ramped=st.booleans(),
)
def test_the_search_is_the_sorted_reference(seed, n, d, k, heat, masked, ramped):
    queries, points, variances, ramp = problem(n, d, 3, seed)
    rng = np.random.default_rng(seed + 1)
    mask = None if masked == "no" else rng.random(n if masked == "one" else (3, n)) < 0.6
    own = ramp if ramped else None
    expected = reference.fisher_rao_scores(queries, points, variances, ramp=own, temperature=heat)
    top = fisher_rao_search(queries, points, variances, k, ramp=own, temperature=heat, mask=mask)
    for b in range(3):
        passes = mask if mask is None or mask.ndim == 1 else mask[b]
        indices, scores = best_of(expected[b : b + 1], k, passes)
        count = int(top.counts[b])
        assert top.indices[b, :count].tolist() == indices[0].tolist()
        assert top.scores[b, :count].tolist() == scores[0].tolist()


def test_a_zero_query_has_no_hits_and_a_zero_row_a_cosine_of_zero():
    points = np.eye(3, dtype=np.float32)
    points[2] = 0.0
    top = fisher_rao_search([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]], points, np.ones(3), 2)
    assert top.empty.tolist() == [True, False]
    assert top.counts.tolist() == [0, 2]
    assert top.indices.tolist() == [[-1, -1], [0, 2]]
    values = fisher_rao_scores([1.0, 0.0, 0.0], points, np.ones(3), ramp=[0.0, 0.0, 0.0])
    assert values.tolist() == [[1.0, 0.5, 0.5]]


def test_torch_tensors_come_back_as_torch_tensors():
    torch = pytest.importorskip("torch")
    queries, points, variances, _ = problem(20, 6, 2)
    top = fisher_rao_search(
        torch.from_numpy(queries), torch.from_numpy(points), torch.from_numpy(variances), 3
    )
    assert isinstance(top.indices, torch.Tensor)
    expected = fisher_rao_search(queries, points, variances, 3)
    assert top.indices.numpy().tolist() == expected.indices.tolist()


# -- what is stored and how it changes ---------------------------------------------------------


def test_the_printed_variance_is_reproduced():
    e = np.random.default_rng(0).normal(size=(5, 30)).astype(np.float32)
    share = np.abs(e) / np.abs(e).max(axis=1, keepdims=True)
    expected = np.clip(2.0 - 1.95 * share, 0.05, 2.0)
    np.testing.assert_allclose(signal_variance(e), expected, atol=1e-6)
    assert signal_variance(np.zeros((1, 4))).tolist() == [[2.0] * 4]


def test_no_access_is_the_cosine_and_ten_are_the_fisher_score():
    queries, points, variances, _ = problem(60, 12, 2)
    cosine = riemem.scores(queries, points, None)
    fresh = fisher_rao_scores(queries, points, variances, ramp=access_ramp(np.zeros(60, int)))
    np.testing.assert_allclose(fresh, (cosine + 1) / 2, atol=1e-12)
    old = fisher_rao_scores(queries, points, variances, ramp=access_ramp(np.full(60, 10)))
    np.testing.assert_array_equal(old, fisher_rao_scores(queries, points, variances))
    assert access_ramp([3], full_at=4).tolist() == [0.75]


def test_confirmed_use_adds_precisions_and_stays_in_its_limits():
    old = np.array([[2.0, 1.0, 0.05]], np.float32)
    new = confirmed_variance(old, [[2.0, 0.5, 0.05]])
    np.testing.assert_allclose(new, [[1.0, 1.0 / 3.0, 0.05]], rtol=1e-6)
    one_by_one = old
    for _ in range(50):
        one_by_one = confirmed_variance(one_by_one, [[1.0, 1.0, 1.0]])
        assert (one_by_one >= np.float32(MIN_VARIANCE)).all()
        assert (one_by_one <= np.float32(MAX_VARIANCE)).all()
    np.testing.assert_allclose(one_by_one, MIN_VARIANCE, rtol=1e-6)


def test_the_more_is_confirmed_the_narrower():
    """What the missing determinant does: precision without a cost pushes a memory away."""
    variance = np.full((1, 4), 2.0, np.float32)
    query, point = [[1.0, 0.5, 0.0, 0.0]], [[1.0, 0.0, 0.0, 0.0]]
    values = []
    for _ in range(5):
        values.append(fisher_rao_scores(query, point, variance)[0, 0])
        variance = confirmed_variance(variance, np.ones(4))
    assert values == sorted(values, reverse=True)


# -- the distance ------------------------------------------------------------------------------


def gaussians(rng, n, d, wide=2.0):
    return rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-wide, wide, size=(n, 1)), np.exp(
        rng.normal(size=(n, d)) * wide
    )


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_distance_is_a_metric_on_millions_of_triples(d):
    rng = np.random.default_rng(d)
    worst = np.inf
    for _ in range(4):
        n = 250_000
        p, q, r = (gaussians(rng, n, d) for _ in range(3))
        # Half of the middle points lie near the geodesic's ends, where the inequality is tight.
        q[0][: n // 2] = p[0][: n // 2] + 1e-3 * rng.normal(size=(n // 2, d))
        q[1][: n // 2] = p[1][: n // 2]
        pq, qr, pr = (fisher_rao_distance(*a, *b) for a, b in ((p, q), (q, r), (p, r)))
        worst = min(worst, float(((pq + qr) - pr).min()))
        assert ((pq + qr) - pr >= -1e-13 * (1.0 + pr)).all()
        np.testing.assert_array_equal(pq, fisher_rao_distance(*q, *p))
        assert (pq > 0.0).all()
        assert (fisher_rao_distance(*p, *p) == 0.0).all()
    assert worst < 1e-4  # some of them were nearly on the line


def test_the_printed_formula_is_no_metric():
    def printed(a, b):
        (m1, s1), (m2, s2) = a, b
        return np.sqrt((2 * np.log(s2 / s1)) ** 2 + (m1 - m2) ** 2 / (s1**2 + s2**2))

    p, q, r = (0.0, 1.0), (50.0, 30.0), (100.0, 1.0)
    assert printed(p, r) == pytest.approx(70.7, abs=0.05)
    assert printed(p, q) + printed(q, r) == pytest.approx(14.0, abs=0.05)
    right = [
        fisher_rao_distance([a[0]], [a[1]], [b[0]], [b[1]])[()] for a, b in ((p, r), (p, q), (q, r))
    ]
    assert right[0] <= right[1] + right[2]


def speed(path, t, h=1e-6):
    """Length element of a curve (mean, deviation) in the Fisher metric (dm^2 + 2 ds^2) / s^2."""
    _, s = path(t)
    (ma, sa), (mb, sb) = path(t - h), path(t + h)
    return np.sqrt(((mb - ma) / (2 * h)) ** 2 + 2 * ((sb - sa) / (2 * h)) ** 2) / s


@pytest.mark.parametrize(
    ("a", "b"),
    [((0.0, 1.0), (3.0, 1.0)), ((0.0, 1.0), (0.5, 4.0)), ((-2.0, 0.3), (5.0, 2.0))],
)
def test_the_distance_is_the_length_of_the_geodesic(a, b):
    # Geodesics are half ellipses around (c, 0): ((m - c) / sqrt2)^2 + s^2 = R^2.
    (m1, s1), (m2, s2) = a, b
    c = ((m1**2 - m2**2) / 2 + s1**2 - s2**2) / (m1 - m2)
    radius = np.sqrt((m1 - c) ** 2 / 2 + s1**2)
    angle1, angle2 = (np.arctan2(s, (m - c) / np.sqrt(2)) for m, s in (a, b))

    def geodesic(t):
        return c + np.sqrt(2) * radius * np.cos(t), radius * np.sin(t)

    low, high = sorted((angle1, angle2))
    length, _ = quad(lambda t: speed(geodesic, t), low, high, epsabs=1e-11)
    own = float(fisher_rao_distance([m1], [s1], [m2], [s2]))
    assert own == pytest.approx(length, rel=1e-8)

    def bent(t):  # the same ends, another way between them
        m, s = geodesic(t)
        return m, s * (1 + 0.2 * np.sin(np.pi * (t - low) / (high - low)))

    assert quad(lambda t: speed(bent, t), low, high)[0] > own


def test_the_distance_keeps_its_digits():
    m, s = np.array([0.3, -1.0]), np.array([0.7, 2.0])
    np.testing.assert_allclose(
        fisher_rao_distance(m, s, m + np.array([1.0, 2.0]), s + 0.5),
        reference.fisher_rao_distance(m, s, m + np.array([1.0, 2.0]), s + 0.5),
        rtol=1e-14,
    )
    # Nearly the same Gaussian: |dm| / s per dimension, where the closed form has lost everything.
    near = fisher_rao_distance([0.0], [2.0], [1e-12], [2.0])
    assert float(near) == pytest.approx(0.5e-12, rel=1e-9)
    tiny = fisher_rao_distance([0.0], [1e-300], [0.0], [np.e * 1e-300])
    assert float(tiny) == pytest.approx(np.sqrt(2), rel=1e-12)
    assert np.isfinite(fisher_rao_distance([1e300], [1e-300], [-1e300], [1e-300]))


def test_the_distance_broadcasts():
    rng = np.random.default_rng(0)
    m, s = gaussians(rng, 6, 3)
    every = fisher_rao_distance(m[:, None], s[:, None], m, s)
    assert every.shape == (6, 6)
    for i, j in itertools.product(range(6), repeat=2):
        assert every[i, j] == fisher_rao_distance(m[i], s[i], m[j], s[j])


# -- bad input -----------------------------------------------------------------------------------

GOOD = {"queries": np.ones((1, 3)), "points": np.ones((2, 3)), "variances": np.ones((2, 3))}


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"variances": [[1, 1, 1], [1, 0, 1]]}, errors.ArgumentError, "positive.*row 1"),
        ({"variances": [[1, 1, 1], [1, -1, 1]]}, errors.ArgumentError, "positive.*row 1"),
        ({"variances": [[1, np.inf, 1], [1, 1, 1]]}, errors.NotFiniteError, "variances.*row 0"),
        ({"variances": [[1, np.nan, 1], [1, 1, 1]]}, errors.NotFiniteError, "variances.*row 0"),
        ({"variances": np.ones((2, 4))}, errors.ShapeError, r"variances.*, 3\)"),
        ({"variances": np.ones((3, 3))}, errors.ShapeError, r"variances.*\(2, 3\)"),
        ({"variances": np.full((2, 3), 1e-42)}, errors.ArgumentError, "inverse fits"),
        ({"points": [[1, np.nan, 1], [1, 1, 1]]}, errors.NotFiniteError, "points.*row 0"),
        ({"queries": np.ones((1, 2))}, errors.ShapeError, "queries"),
        ({"queries": [[np.inf, 0, 0]]}, errors.NotFiniteError, "queries"),
        ({"temperature": 0.0}, errors.ArgumentError, "temperature"),
        ({"temperature": np.inf}, errors.ArgumentError, "temperature"),
        ({"temperature": "hot"}, errors.DTypeError, "temperature"),
        ({"ramp": [0.5]}, errors.ShapeError, "ramp"),
        ({"ramp": [0.5, 1.5]}, errors.ArgumentError, "ramp.*row 1"),
        ({"ramp": [0.5, np.nan]}, errors.NotFiniteError, "ramp"),
        ({"mask": [1, 0]}, errors.DTypeError, "mask"),
        ({"backend": "abacus"}, errors.BackendUnavailableError, "abacus"),
        ({"points": np.ones((2, 3), bool)}, errors.DTypeError, "points"),
    ],
)
def test_bad_input_is_named(changed, error, message):
    with pytest.raises(error, match=message):
        fisher_rao_scores(**(GOOD | changed))
    with pytest.raises(error, match=message):
        fisher_rao_search(**(GOOD | changed))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([0.0], [0.0], [0.0], [1.0]), errors.ArgumentError, "std_a"),
        (([0.0], [1.0], [0.0], [-1.0]), errors.ArgumentError, "std_b"),
        (([0.0], [1.0], [0.0], [np.inf]), errors.NotFiniteError, "std_b"),
        (([0.0, 1.0], [1.0], [0.0, 1.0], [1.0]), errors.ShapeError, "last dimension"),
        (([0.0, 1.0], [1.0, 1.0], [0.0, 1.0, 2.0], [1.0, 1.0, 1.0]), errors.ShapeError, "broadc"),
        ((["a"], [1.0], [0.0], [1.0]), errors.DTypeError, "mean_a"),
        ((0.0, 1.0, 0.0, 1.0), errors.ShapeError, "last dimension"),
    ],
)
def test_bad_gaussians_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        fisher_rao_distance(*arguments)


def test_bad_counts_are_named():
    for bad, error in (([-1], errors.ArgumentError), ([0.5], errors.DTypeError)):
        with pytest.raises(error, match="accesses"):
            access_ramp(bad)
    with pytest.raises(errors.ArgumentError, match="full_at"):
        access_ramp([1], full_at=0)
    with pytest.raises(errors.ArgumentError, match="observed"):
        confirmed_variance([[1.0]], [[0.0]])
    with pytest.raises(errors.ArgumentError, match="k:"):
        fisher_rao_search(np.ones(2), np.ones((3, 2)), np.ones(2), -1)


def test_nothing_asked_of_nothing():
    top = fisher_rao_search(np.ones((2, 3)), np.empty((0, 3)), np.empty((0, 3)), 5)
    assert top.indices.shape == (2, 0)
    assert fisher_rao_scores(np.ones((2, 3)), np.empty((0, 3)), np.empty((0, 3))).shape == (2, 0)


# -- the elementary functions --------------------------------------------------------------------


def test_the_portable_functions_are_within_two_last_places():
    rng = np.random.default_rng(0)
    x = -np.abs(rng.normal(size=50_000)) * 10.0 ** rng.uniform(-9, 2.8, size=50_000)
    expected = np.exp(x)
    assert (np.abs(reference.portable_exp(x) - expected) <= 2 * np.spacing(expected)).all()
    u = np.concatenate([rng.random(50_000) + 2.0**-53, 10.0 ** rng.uniform(-300, 300, 1000)])
    expected = np.log(u)
    assert (np.abs(reference.portable_log(u) - expected) <= 2 * np.spacing(np.abs(expected))).all()
    sine, cosine = reference.portable_sine_cosine(u[:50_000] % 1.0)
    np.testing.assert_allclose(sine, np.sin(2 * np.pi * (u[:50_000] % 1.0)), atol=1e-15)
    np.testing.assert_allclose(cosine, np.cos(2 * np.pi * (u[:50_000] % 1.0)), atol=1e-15)

"""The float64 truth against other people's code and against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from riemem import reference
from riemem.metric import FisherMetric


def data(n=80, d=12, seed=0):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(d, d)) * np.geomspace(3.0, 0.1, d)
    return rng.normal(size=(n, d)) @ mixing.T + rng.normal(size=d)


def paper_parts(rows, ridge=10.0, energy=0.95):
    centred = rows - rows.mean(axis=0)
    _, s, vt = np.linalg.svd(centred, full_matrices=False)
    values = s**2 / len(rows)
    rank = int(np.searchsorted(np.cumsum(values) / values.sum(), energy)) + 1
    ridge_value = ridge * values.sum() / rows.shape[1]
    return rows.var(axis=0) + ridge_value, vt[:rank].T, values[:rank] + ridge_value


def test_canonical_dot_in_the_written_order():
    rng = np.random.default_rng(3)
    x = rng.normal(size=21).astype(np.float32).astype(np.float64)
    y = rng.normal(size=21)
    lanes = [0.0] * 8
    for i in range(21):
        lanes[i % 8] += float(x[i]) * float(y[i])
    by_hand = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + (
        (lanes[1] + lanes[5]) + (lanes[3] + lanes[7])
    )
    assert reference.canonical_dot(x[None], y)[0] == by_hand
    assert reference.canonical_dot(x[None], y)[0] == pytest.approx(float(x @ y), rel=1e-14)


def test_canonical_dot_shapes():
    x, y = np.ones((5, 3)), np.ones((2, 3))
    assert reference.canonical_dot(x, y).shape == (2, 5)
    assert reference.canonical_dot(x, y[0]).shape == (5,)
    assert reference.canonical_dot(np.ones((0, 3)), y).shape == (2, 0)


@pytest.mark.parametrize("covariance", ["full", "low_rank", "paper"])
def test_sigma_is_the_definition(covariance):
    rows = data()
    fitted = reference.fit(rows, covariance, ridge=0.7, energy=0.8)
    cov = np.cov(rows, rowvar=False, bias=True)
    values, vectors = np.linalg.eigh(cov)
    values, vectors = values[::-1], vectors[:, ::-1]
    r = int(np.searchsorted(np.cumsum(values) / values.sum(), 0.8)) + 1
    ridge_value = 0.7 * np.trace(cov) / 12
    top = (vectors[:, :r] * values[:r]) @ vectors[:, :r].T
    expected = {
        "full": cov + ridge_value * np.eye(12),
        "low_rank": top + (ridge_value + values[r:].mean()) * np.eye(12),
        "paper": np.diag(np.diag(cov))
        + ridge_value * np.eye(12)
        + top
        + ridge_value * vectors[:, :r] @ vectors[:, :r].T,
    }[covariance]
    assert fitted.rank == r
    np.testing.assert_allclose(fitted.matrix, expected, atol=1e-12)


def test_mahalanobis_against_torch_low_rank_multivariate_normal():
    torch = pytest.importorskip("torch")
    rows = data()
    diagonal, basis, core = paper_parts(rows, ridge=0.5)
    normal = torch.distributions.LowRankMultivariateNormal(
        torch.tensor(rows.mean(axis=0)),
        torch.tensor(basis * np.sqrt(core)),
        torch.tensor(diagonal),
    )
    log_prob = normal.log_prob(torch.tensor(rows)).numpy()
    log_det = torch.logdet(normal.covariance_matrix).item()
    squared = -2.0 * log_prob - log_det - rows.shape[1] * np.log(2 * np.pi)
    fitted = reference.fit(rows, "paper", ridge=0.5)
    ours = -reference.riemannian_scores(fitted.mean, rows, fitted, "mahalanobis")[0]
    np.testing.assert_allclose(ours, squared, rtol=1e-9)
    metric = FisherMetric.fit(rows, covariance="paper", ridge=0.5)
    np.testing.assert_allclose(metric.mahalanobis(rows) ** 2, squared, rtol=1e-9)


def test_mahalanobis_against_scipy_and_scikit_learn():
    distance = pytest.importorskip("scipy.spatial.distance")
    covariance = pytest.importorskip("sklearn.covariance")
    rows = data()
    fitted = reference.fit(rows, "full", ridge=0.0)
    empirical = covariance.EmpiricalCovariance().fit(rows)
    ours = -reference.riemannian_scores(fitted.mean, rows, fitted, "mahalanobis")[0]
    np.testing.assert_allclose(ours, empirical.mahalanobis(rows), rtol=1e-8)
    pairs = distance.cdist(rows[:5], rows, "mahalanobis", VI=np.linalg.inv(fitted.matrix)) ** 2
    np.testing.assert_allclose(
        -reference.riemannian_scores(rows[:5], rows, fitted, "mahalanobis"), pairs, atol=1e-8
    )


def test_inner_and_cosine_against_numpy_linalg():
    rows, queries = data(), data(4, seed=9)
    fitted = reference.fit(rows, "low_rank")
    inverse = np.linalg.inv(fitted.matrix)
    q, h = queries - fitted.mean, rows - fitted.mean
    inner = q @ inverse @ h.T
    np.testing.assert_allclose(
        reference.riemannian_scores(queries, rows, fitted, "inner"), inner, rtol=1e-9, atol=1e-12
    )
    lengths = [np.sqrt(np.einsum("nd,de,ne->n", x, inverse, x)) for x in (q, h)]
    np.testing.assert_allclose(
        reference.riemannian_scores(queries, rows, fitted, "cosine"),
        inner / lengths[0][:, None] / lengths[1],
        rtol=1e-9,
        atol=1e-12,
    )


def test_cosine_against_faiss():
    faiss = pytest.importorskip("faiss")
    rows = data(200, 16).astype(np.float32)
    queries = data(5, 16, seed=4).astype(np.float32)
    unit_rows, unit_queries = rows.copy(), queries.copy()
    faiss.normalize_L2(unit_rows)
    faiss.normalize_L2(unit_queries)
    index = faiss.IndexFlatIP(16)
    index.add(unit_rows)
    scores, ids = index.search(unit_queries, 10)
    ours, best = reference.fused_topk(queries, rows, None, 10, cosine_weight=1.0, form="inner")
    np.testing.assert_array_equal(ours, ids)
    np.testing.assert_allclose(best, scores, atol=1e-6)


def test_weights_against_numpy_linalg():
    rows, queries = data(), data(3, seed=2)
    fitted = reference.fit(rows, "paper")
    w, offsets = reference.weights(queries, fitted)
    np.testing.assert_allclose(w, (queries - fitted.mean) @ np.linalg.inv(fitted.matrix), rtol=1e-9)
    np.testing.assert_allclose(offsets, -(w @ fitted.mean), rtol=1e-9, atol=1e-12)


def test_equation_1_is_the_exact_inverse_and_algorithm_1_as_printed_is_not():
    rows = data(590, 24)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    diagonal, basis, core = paper_parts(rows)
    dense = np.diag(diagonal) + (basis * core) @ basis.T
    inverse = np.linalg.inv(dense)
    scale = np.abs(inverse).max()
    np.testing.assert_allclose(
        reference.woodbury_inverse(diagonal, basis, core), inverse, atol=1e-13 * scale
    )
    literal = (basis / diagonal[:, None]) / core  # Algorithm 1, line 11: P = D^-1 V M^-1
    printed = np.diag(1.0 / diagonal) - literal @ literal.T
    assert np.linalg.eigvalsh(printed)[0] < 0.0  # not even an inner product
    queries = rows[:20] + 1e-3
    fitted = reference.fit(rows, "paper")
    right = reference.riemannian_scores(queries, rows, fitted, "inner")
    wrong = (queries - fitted.mean) @ printed @ (rows - fitted.mean).T
    assert (right.argmax(axis=1) == np.arange(20)).mean() > 0.8
    assert (wrong.argmax(axis=1) == np.arange(20)).mean() < 0.2


def test_the_papers_evaluation_gives_equation_1():
    rows, queries = data(), data(3, seed=5)
    diagonal, basis, core = paper_parts(rows)
    np.testing.assert_allclose(
        reference.paper_scores(queries, rows, rows.mean(axis=0), diagonal, basis, core),
        reference.riemannian_scores(queries, rows, reference.fit(rows, "paper"), "inner"),
        rtol=1e-9,
        atol=1e-11,
    )


def test_normalise_against_scikit_learn():
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    values = data(4, 30)
    np.testing.assert_allclose(
        reference.normalise(values, "minmax"),
        preprocessing.minmax_scale(values, axis=1),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        reference.normalise(values, "zscore"), preprocessing.scale(values, axis=1), atol=1e-12
    )
    assert reference.normalise(values, "none") is values


def test_normalise_takes_extremes_over_what_passes():
    values = np.array([[0.0, 1.0, 3.0, 9.0]])
    mask = np.array([False, True, True, False])
    assert reference.normalise(values, "minmax", mask)[0, 1:3].tolist() == [0.0, 1.0]
    assert reference.normalise(np.full((1, 4), 0.1), "zscore").tolist() == [[0.0] * 4]
    nothing = np.zeros(4, bool)
    assert reference.normalise(values, "minmax", nothing).tolist() == [[0.0] * 4]


def test_c03_cosine_of_huge_and_tiny_vectors():
    ones = np.ones((1, 128))
    for factor in (3e19, 1e-30):
        assert reference.cosine_scores(ones, ones * factor)[0, 0] == pytest.approx(1.0, abs=1e-12)
    assert reference.cosine_scores(ones, np.zeros((1, 128)))[0, 0] == 0.0


def test_c20_nan_is_never_chosen():
    indices, _ = reference.top_k(np.array([[0.2, np.nan, 0.9, 0.5]]), 2)
    assert indices.tolist() == [[2, 3]]


def test_c22_ties_go_to_the_lower_index():
    indices, best = reference.top_k(np.array([[5.0, 7.0, 5.0, 7.0, 1.0]]), 3)
    assert indices.tolist() == [[1, 3, 0]]
    assert best.tolist() == [[7.0, 7.0, 5.0]]


def test_short_rows_are_filled():
    mask = np.array([[True, True, True], [False, True, False]])
    indices, best = reference.top_k(np.array([[1.0, 2.0, 3.0]] * 2), 9, mask)
    assert indices.tolist() == [[2, 1, 0], [1, -1, -1]]
    assert np.isnan(best[1, 1:]).all()


def test_equal_rows_score_equally_wherever_they_stand():
    rows = np.concatenate([data(37, 13), data(1, 13, seed=8), data(20, 13, seed=6)])
    rows[[3, 50]] = rows[37]
    fitted = reference.fit(rows)
    for form in ("inner", "cosine", "mahalanobis"):
        values = reference.riemannian_scores(data(2, 13, seed=7), rows, fitted, form)
        assert (values[:, [3, 50]] == values[:, [37]]).all()


def test_without_enough_samples_the_score_is_the_cosine():
    rows = data(5, 3)
    fitted = reference.fit(rows, min_samples=6)
    options = {"cosine_weight": 0.0, "form": "inner"}
    np.testing.assert_array_equal(
        reference.fused_scores(rows, rows, fitted, **options), reference.cosine_scores(rows, rows)
    )
    assert np.isnan(reference.fused_scores(np.zeros((1, 3)), rows, fitted, **options)).all()

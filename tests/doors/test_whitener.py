"""Whitened rows in a plain index rank as riemem does: proved on faiss, forms and models alike."""

from __future__ import annotations

import numpy as np
import pytest
import riemem
from riemem.errors import ArgumentError

pytest.importorskip("faiss", reason="faiss-cpu is not installed: pip install 'riemem[test]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'riemem[sklearn]'"
)

import faiss
from riemem.adapters.sklearn import FisherWhitener
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.estimator_checks import check_estimator


def make(rows: int = 3000, dim: int = 48, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Anisotropic unit rows, as embeddings are: a common direction and a decaying spectrum."""
    rng = np.random.default_rng(seed)
    scale = 1.0 / np.sqrt(1 + np.arange(dim))
    mixing = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    points = (rng.normal(size=(rows, dim)) * scale + 0.6) @ mixing
    queries = points[:: rows // 20] + 0.2 * rng.normal(size=(20, dim)) * scale @ mixing
    return tuple(
        (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32) for x in (points, queries)
    )


@pytest.mark.parametrize("covariance", ["full", "low_rank", "paper"])
@pytest.mark.parametrize("form", ["cosine", "inner", "mahalanobis"])
def test_faiss_ranks_as_riemem(form: str, covariance: str) -> None:
    points, queries = make()
    whitener = FisherWhitener(form=form, covariance=covariance).fit(points)
    index = faiss.IndexFlatL2(48) if form == "mahalanobis" else faiss.IndexFlatIP(48)
    index.add(whitener.transform(points))
    _, theirs = index.search(whitener.transform(queries), 10)
    options = {"form": form, "cosine_weight": 0.0, "norm": "none"}
    ours = riemem.search(queries, points, whitener.metric_, k=10, **options)
    assert (theirs == ours.indices).all()
    # It is the metric that ranks: plain cosine gives other answers.
    plain = riemem.search(queries, points, None, k=10)
    assert (plain.indices != ours.indices).any()


def test_the_default_search_is_cosine_after_whitening() -> None:
    points, queries = make(seed=1)
    whitener = FisherWhitener().fit(points)
    index = faiss.IndexFlatIP(48)
    index.add(whitener.transform(points))
    _, theirs = index.search(whitener.transform(queries), 10)
    metric = riemem.FisherMetric.fit(points)
    assert (theirs == riemem.search(queries, points, metric, k=10).indices).all()
    # the same by hand, without scikit-learn
    white = metric.whiten(points)
    unit = white / np.linalg.norm(white, axis=1, keepdims=True)
    assert np.abs(unit - whitener.transform(points)).max() < 1e-6


def test_metric_whiten_alone_serves_two_forms() -> None:
    points, queries = make(seed=2)
    metric = riemem.FisherMetric.fit(points)
    white, asked = (metric.whiten(x).astype(np.float32) for x in (points, queries))
    for form, index in (("inner", faiss.IndexFlatIP(48)), ("mahalanobis", faiss.IndexFlatL2(48))):
        index.add(white)
        options = {"form": form, "cosine_weight": 0.0, "norm": "none"}
        ours = riemem.search(queries, points, metric, k=10, **options)
        assert (index.search(asked, 10)[1] == ours.indices).all()


def test_partial_fit_is_exact() -> None:
    points, _ = make(rows=600)
    whole = FisherWhitener(form="inner").fit(points).transform(points)
    parts = FisherWhitener(form="inner")
    for start in range(0, 600, 150):
        parts.partial_fit(points[start : start + 150])
    assert np.allclose(parts.transform(points), whole, atol=1e-6)


def test_it_is_an_estimator() -> None:
    points, queries = make(rows=500)
    whitener = FisherWhitener(form="inner", ridge=1.0, max_rank=5)
    twin = clone(whitener)
    assert twin.get_params() == whitener.get_params()
    assert twin.set_params(ridge=2.0).ridge == 2.0
    pipe = make_pipeline(FisherWhitener(form="inner"), Normalizer())
    z = pipe.fit_transform(points)
    nearest = NearestNeighbors(n_neighbors=5, metric="cosine").fit(z)
    found = nearest.kneighbors(pipe.transform(queries), return_distance=False)
    metric = riemem.FisherMetric.fit(points)
    assert (found == riemem.search(queries, points, metric, k=5).indices).all()
    assert FisherWhitener().fit(points).n_features_in_ == 48
    assert FisherWhitener().fit_transform(points).dtype == np.float32
    assert FisherWhitener().fit_transform(points.astype(np.float64)).dtype == np.float64


def test_it_passes_the_checks_of_scikit_learn() -> None:
    for form in ("cosine", "inner", "mahalanobis"):
        failed = [
            (report["check_name"], report["exception"])
            for report in check_estimator(FisherWhitener(form=form), on_fail=None, on_skip=None)
            if report["status"] == "failed"
        ]
        assert failed == []


def test_bad_input() -> None:
    points, _ = make(rows=100)
    with pytest.raises(ArgumentError, match="form: expected one of"):
        FisherWhitener(form="dot").fit(points)
    with pytest.raises(NotFittedError):
        FisherWhitener().transform(points)
    with pytest.raises(ValueError, match="NaN"):
        FisherWhitener().fit(np.full((4, 3), np.nan))
    with pytest.raises(ValueError, match="5 features, but FisherWhitener is expecting 48"):
        FisherWhitener().fit(points).transform(points[:, :5])
    zero = FisherWhitener().fit(np.ones((5, 3))).transform(np.ones((1, 3)))
    assert zero.tolist() == [[0.0, 0.0, 0.0]]  # the mean has no direction

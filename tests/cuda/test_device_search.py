"""`search` and `scores` on arrays of a device: the kernels run on the SIMT shim."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import riemem
from riemem import _backend
from riemem.errors import (
    ArgumentError,
    BackendUnavailableError,
    CudaError,
    DeviceError,
    DTypeError,
    ShapeError,
)

sys.path.insert(0, str(Path(__file__).parent))
from host_library import HostArray, Interface, bfloat16, exact, on

FORMS = ["inner", "cosine", "mahalanobis"]


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    points = rng.normal(size=(150, 12)).astype(np.float32)
    queries = rng.normal(size=(3, 12)).astype(np.float32)
    return points, queries, riemem.FisherMetric.fit(points)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("norm", ["none", "minmax", "zscore"])
def test_search_agrees_with_the_reference(library, data, form, norm):
    points, queries, metric = data
    options = {"cosine_weight": 0.3, "form": form, "norm": norm}
    found = riemem.search(on(queries), on(points), metric, 7, **options)
    indices, scores = riemem.reference.fused_topk(queries, points, metric, 7, **options)
    assert found.indices.array.tolist() == indices.tolist()
    np.testing.assert_allclose(found.scores.array, scores, rtol=1e-9, atol=1e-12)
    assert found.counts.array.tolist() == [7, 7, 7]
    assert found.empty.array.tolist() == [False] * 3
    assert (found.scoring, found.exact_rows) == ("fused", -1)
    assert library.reads == 0


@pytest.mark.parametrize("form", FORMS)
def test_all_scores_agree_with_the_reference(library, data, form):
    points, queries, metric = data
    options = {"cosine_weight": 0.3, "form": form, "norm": "minmax"}
    expected = riemem.reference.fused_scores(queries, points, metric, **options)
    found = riemem.scores(on(queries), on(points), metric, **options)
    np.testing.assert_allclose(found.array, expected, rtol=1e-9, atol=1e-12)
    out = library.empty((3, 150), "float32", 0)
    assert riemem.scores(on(queries), on(points), metric, **options, out=out) is out
    np.testing.assert_allclose(out.array, expected, rtol=1e-5, atol=1e-6)


def test_without_a_metric_the_score_is_the_cosine(library, data):
    points, queries, _ = data
    found = riemem.search(on(queries[0]), on(points), None, 4)
    plain = riemem.search(queries[0], points, None, 4)
    assert found.indices.array.tolist() == plain.indices.tolist()
    np.testing.assert_allclose(found.scores.array, plain.scores, rtol=1e-14)
    assert found.scoring == plain.scoring


def test_copies_of_a_query_tie_at_one(library):
    direction = np.random.default_rng(0).normal(size=33)
    lengths = np.linspace(0.1, 9.0, 60)
    points = np.outer(lengths, direction).astype(np.float32)
    found = riemem.search(on(direction.astype(np.float32)), on(points), None, 5)
    plain = riemem.search(direction.astype(np.float32), points, None, 5)
    assert found.scores.array.max() <= 1.0
    np.testing.assert_allclose(found.scores.array, plain.scores, rtol=1e-14)


def test_masks_of_both_shapes(library, data):
    points, queries, metric = data
    rng = np.random.default_rng(1)
    for mask in (rng.random(150) < 0.2, rng.random((3, 150)) < 0.1):
        found = riemem.search(on(queries), on(points), metric, 40, mask=on(mask))
        plain = riemem.search(queries, points, metric, 40, mask=mask)
        width = plain.indices.shape[1]
        assert found.indices.array.shape == (3, 40)
        assert found.indices.array[:, :width].tolist() == plain.indices.tolist()
        assert found.counts.array.tolist() == plain.counts.tolist()
        assert np.isnan(found.scores.array[found.indices.array < 0]).all()


def test_rows_and_queries_that_are_not_finite_have_no_hits(library, data):
    points, queries, metric = data
    points, queries = points.copy(), queries.copy()
    points[3, 2], points[77, 0] = np.nan, np.inf
    queries[1, 5], queries[2] = np.nan, 0.0
    found = riemem.search(on(queries), on(points), metric, 150)
    assert found.empty.array.tolist() == [False, True, True]
    assert found.counts.array.tolist() == [148, 0, 0]
    assert not {3, 77} & set(found.indices.array[0].tolist())


def test_more_than_there_is_nothing_and_nobody(library, data):
    points, queries, metric = data
    assert riemem.search(on(queries), on(points), metric, 999).indices.array.shape == (3, 150)
    assert riemem.search(on(queries), on(points), metric, 0).indices.array.shape == (3, 0)
    assert riemem.search(on(queries[:0]), on(points), metric, 5).indices.array.shape == (0, 5)
    none = riemem.search(on(queries), on(points[:0]), metric, 5)
    assert none.indices.array.shape == (3, 0)
    assert none.counts.array.tolist() == [0, 0, 0]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("norm", ["none", "minmax", "zscore"])
@pytest.mark.parametrize("batch", [1, 3, 18])
def test_bfloat16_rows_are_searched_as_they_are(library, data, form, norm, batch):
    points, _, metric = data
    narrow = bfloat16(points)
    queries = np.random.default_rng(batch).normal(size=(batch, 12)).astype(np.float32)
    options = {"cosine_weight": 0.3, "form": form, "norm": norm}
    found = riemem.search(on(queries), narrow, metric, 7, **options)
    plain = riemem.search(on(queries), on(exact(narrow)), metric, 7, **options)
    assert found.indices.array.tolist() == plain.indices.array.tolist()
    assert found.scores.array.tobytes() == plain.scores.array.tobytes()
    indices, _ = riemem.reference.fused_topk(queries, exact(narrow), metric, 7, **options)
    assert found.indices.array.tolist() == indices.tolist()
    everything = riemem.scores(on(queries), narrow, metric, **options)
    expected = riemem.scores(on(queries), on(exact(narrow)), metric, **options)
    assert everything.array.tobytes() == expected.array.tobytes()


def test_bfloat16_queries_and_rows_that_lie_apart(library, data):
    points, queries, metric = data
    wide = np.zeros((150, 21), np.float32)
    wide[:, :12] = points
    narrow, asked = bfloat16(wide), bfloat16(queries)
    narrow.array = narrow.array[:, :12]
    rows = exact(bfloat16(points))
    for given in (asked, HostArray(asked.array[0], bfloat16=True)):
        found = riemem.search(given, narrow, metric, 6)
        plain = riemem.search(on(exact(given)), on(rows), metric, 6)
        assert found.indices.array.tolist() == plain.indices.array.tolist()
        assert found.scores.array.tobytes() == plain.scores.array.tobytes()
    narrow.array = narrow.array.copy()
    narrow.array[5, 3], narrow.array[9, 0] = 0x7FC0, 0xFF80  # NaN, -infinity
    found = riemem.search(asked, narrow, metric, 150)
    assert found.counts.array.tolist() == [148] * 3
    with pytest.raises(DTypeError, match="points: expected float32 or bfloat16"):
        riemem.search(asked, on(points.astype(np.float16)), metric, 6)


def test_rows_may_lie_apart_and_belong_to_anybody(library, data):
    points, queries, metric = data
    plain = riemem.search(queries, points, metric, 6)
    wide = np.zeros((150, 20), np.float32)
    wide[:, :12] = points
    apart = riemem.search(on(queries), HostArray(wide[:, :12]), metric, 6)
    assert apart.indices.array.tolist() == plain.indices.tolist()
    foreign = riemem.search(Interface(queries), Interface(points), metric, 6)
    assert foreign.indices.array.tolist() == plain.indices.tolist()


def test_nothing_is_waited_for(library, shim, data):
    points, queries, metric = data
    plain = riemem.search(queries, points, metric, 6)
    riemem.search(on(queries), on(points), metric, 6)  # the metric is there by now
    puts = library.puts
    shim.shim_defer(True)
    found = riemem.search(on(queries), on(points), metric, 6)
    assert (found.counts.array == -1).all()  # as the memory was filled
    assert (library.reads, library.puts) == (0, puts)
    shim.synchronize(0)
    assert found.indices.array.tolist() == plain.indices.tolist()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda q, p: (q.array, p), DeviceError, "queries: .* host memory"),
        (lambda q, p: (q, p.array), DeviceError, "points: .* host memory"),
        (lambda q, p: (q, on(p.array, 1)), DeviceError, "points: .* device 0, got device 1"),
        (lambda q, p: (q, on(p.array.astype(np.float64))), DTypeError, "points: .*float64"),
        (lambda q, p: (on(q.array.astype(np.int32)), p), DTypeError, "queries: .*int32"),
        (
            lambda q, p: (q, HostArray(np.repeat(p.array, 2, 1)[:, ::2])),
            ArgumentError,
            "contiguous",
        ),
        (lambda q, p: (q, HostArray(p.array[::-1])), ArgumentError, "contiguous first"),
        (lambda q, p: (on(q.array[:, :5]), p), ShapeError, r"queries: expected shape \(B, 12\)"),
        (lambda q, p: (q, on(p.array[None])), ShapeError, r"points: expected shape \(N, 12\)"),
        (lambda q, p: (Interface(q.array, mask=1), p), DTypeError, "masked"),
        (lambda q, p: (Interface(q.array, typestr=">f4"), p), DTypeError, "little-endian"),
    ],
)
def test_what_does_not_fit_is_named(library, data, change, error, words):
    points, queries, metric = data
    with pytest.raises(error, match=words):
        riemem.search(*change(on(queries), on(points)), metric, 3)


def test_masks_and_outputs_that_do_not_fit_are_named(library, data):
    points, queries, metric = data
    asked, rows = on(queries), on(points)
    with pytest.raises(DeviceError, match=r"mask: .* host memory"):
        riemem.search(asked, rows, metric, 3, mask=np.ones(150, bool))
    with pytest.raises(DTypeError, match="mask: expected bool"):
        riemem.search(asked, rows, metric, 3, mask=on(np.ones(150, np.uint8)))
    with pytest.raises(ShapeError, match="mask"):
        riemem.search(asked, rows, metric, 3, mask=on(np.ones(151, bool)))
    with pytest.raises(DeviceError, match="out"):
        riemem.scores(asked, rows, metric, out=np.empty((3, 150)))
    with pytest.raises(ShapeError, match="out"):
        riemem.scores(asked, rows, metric, out=on(np.empty((3, 151))))
    with pytest.raises(DTypeError, match="out"):
        riemem.scores(asked, rows, metric, out=on(np.empty((3, 150), np.float16)))
    with pytest.raises(ArgumentError, match="out"):
        riemem.scores(asked, rows, metric, out=HostArray(np.empty((150, 3)).T))


def test_a_consumed_capsule_is_named(shim):
    torch = pytest.importorskip("torch", reason="a DLPack capsule comes from torch")
    from riemem._device import library_of

    capsule = torch.utils.dlpack.to_dlpack(torch.ones(2, 3))
    assert library_of(capsule, "points")[1].shape == (2, 3)
    with pytest.raises(ArgumentError, match=r"points: .* once more"):
        library_of(capsule, "points")


@pytest.mark.parametrize("launch", range(9))
def test_a_failed_launch_is_a_cuda_error(library, shim, data, launch):
    points, queries, metric = data
    shim.shim_fail_launch(launch, 719)
    with pytest.raises(CudaError, match=r"cudaErrorLaunchFailure \(719\)") as caught:
        riemem.search(on(queries), on(points), metric, 3)
    assert (caught.value.code, caught.value.name) == (719, "cudaErrorLaunchFailure")


def test_a_full_device_is_a_cuda_error(library, data):
    points, queries, metric = data
    library.limit = 2000
    with pytest.raises(CudaError, match=r"cudaErrorMemoryAllocation \(2\)") as caught:
        riemem.search(on(queries), on(points), metric, 3)
    assert (caught.value.code, caught.value.name) == (2, "cudaErrorMemoryAllocation")
    library.limit = None
    assert riemem.search(on(queries), on(points), metric, 3).indices.array.shape == (3, 3)


def test_a_driver_that_is_missing_or_old_is_said(shim, library, data):
    points, queries, metric = data
    shim.shim_fail_device(35, 0)
    assert riemem.build_info()["cuda_reason"] == "no NVIDIA driver was found"
    assert riemem.build_info()["cuda"] is False
    with pytest.raises(BackendUnavailableError, match="no NVIDIA driver"):
        riemem.search(on(queries), on(points), metric, 3)
    old = "the NVIDIA driver is older than this build: it supports CUDA 12.4, the kernels need 13.0"
    shim.shim_fail_device(35, 12040)
    assert riemem.build_info()["cuda_reason"] == old
    with pytest.raises(BackendUnavailableError, match=f"CUDA cannot be used: {old}"):
        riemem.search(on(queries), on(points), metric, 3)
    for call in (
        lambda: riemem.RiemannianIndex(4, device="cuda"),
        lambda: riemem.FisherMetric(12).update(on(points)),
        lambda: riemem.MaxMemberClusters(12, threshold=0.5).assign(on(points)),
        lambda: riemem.IncrementalSVD(12).partial_fit(on(points)),
        lambda: riemem.fisher_rao_scores(on(queries), on(points), on(points)),
    ):
        with pytest.raises(BackendUnavailableError, match="older than this build"):
            call()
    shim.shim_fail_device(999, 13000)
    assert riemem.build_info()["cuda_reason"] == "cudaErrorUnknown (999)"
    shim.shim_fail_device(100)
    with pytest.raises(BackendUnavailableError, match="no CUDA device was found"):
        riemem.RiemannianIndex(4, device="cuda")
    shim.shim_fail_device(0)
    assert riemem.build_info()["cuda"] is True


@pytest.mark.parametrize("what", ["search", "metric", "clusters", "svd"])
def test_a_forked_child_cannot_go_on(library, data, what):
    points, queries, metric = data
    there = riemem.FisherMetric(12).update(on(points))
    clusters = riemem.MaxMemberClusters(12, threshold=0.5)
    clusters.assign(on(points[:9]))
    svd = riemem.IncrementalSVD(12).partial_fit(on(points))
    calls = {
        "search": lambda: riemem.search(on(queries), on(points), metric, 3),
        "metric": lambda: there.mean,
        "clusters": lambda: clusters.stats(),
        "svd": lambda: svd.basis,
    }
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            calls[what]()
        except CudaError as error:
            os._exit(0 if (error.code, error.name) == (3, "cudaErrorInitializationError") else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    calls[what]()


def test_a_build_without_kernels_says_so(monkeypatch):
    monkeypatch.setattr(_backend, "_load_cuda", lambda: None)
    monkeypatch.setattr(_backend, "_cuda_process", None)
    assert riemem.build_info()["cuda_reason"] == "built without CUDA kernels"
    with pytest.raises(BackendUnavailableError, match="built without CUDA kernels"):
        riemem.RiemannianIndex(4, device="cuda")
    with pytest.raises(ArgumentError, match="device: expected 'cpu', 'cuda'"):
        riemem.RiemannianIndex(4, device="rocm")
    assert riemem.RiemannianIndex(4, device="cpu").stats()["device"] == "cpu"

"""The kernels on a real GPU, with torch: skipped, and counted, where there is none.

With RIEMEM_NEEDS_GPU in the environment a missing GPU is a failure: bench/device_check.py sets it.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import riemem
from riemem import _backend
from riemem._backend import core
from riemem.distill import kernels
from riemem.errors import CudaError, DeviceError, NotFiniteError, ZeroVectorError

pytestmark = pytest.mark.cuda


@pytest.fixture
def torch():
    absent = pytest.fail if os.environ.get("RIEMEM_NEEDS_GPU") else pytest.skip
    reason = _backend.cuda_reason()
    if reason:
        absent(f"no GPU for the kernels: {reason}")
    module = pytest.importorskip("torch", reason="device arrays come from torch")
    if not module.cuda.is_available():
        absent("this torch was built without CUDA")
    return module


@pytest.mark.parametrize("norm", ["none", "minmax", "zscore"])
@pytest.mark.parametrize("form", ["inner", "cosine", "mahalanobis"])
def test_search_agrees_with_the_reference(torch, form, norm):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(1500, 96)).astype(np.float32)
    queries = rng.normal(size=(19, 96)).astype(np.float32)
    metric = riemem.FisherMetric.fit(points)
    options = {"cosine_weight": 0.4, "form": form, "norm": norm}
    expected = riemem.reference.fused_topk(queries, points, metric, 10, **options)
    on = (torch.from_numpy(queries).cuda(), torch.from_numpy(points).cuda())
    found = riemem.search(*on, metric, 10, **options)
    assert found.indices.is_cuda
    assert found.indices.cpu().tolist() == expected[0].tolist()
    np.testing.assert_allclose(found.scores.cpu().numpy(), expected[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("storage", ["float32", "float32+int8", "bf16"])
@pytest.mark.parametrize("batch", [1, 4, 40])
def test_an_index_gives_the_bits_of_the_processor(torch, storage, batch):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(5000, 384)).astype(np.float32)
    queries = rng.normal(size=(batch, 384)).astype(np.float32)
    answers = []
    for device in ("cpu", "cuda"):
        index = riemem.RiemannianIndex(384, storage=storage, device=device, cosine_weight=0.3)
        index.add(rows)
        index.remove(index.ids[::9])
        answers.append(index.search(queries, 10))
    assert answers[0].indices.tolist() == answers[1].indices.tolist()
    assert answers[0].scores.tobytes() == answers[1].scores.tobytes()


def test_work_follows_the_current_stream(torch):
    points = torch.zeros(4000, 64, device="cuda")
    queries = torch.randn(2, 64, device="cuda")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        points.copy_(torch.randn(4000, 64, device="cuda"))
        found = riemem.search(queries, points, None, 5)
    torch.cuda.synchronize()
    expected = riemem.search(queries.cpu(), points.cpu(), None, 5)
    assert found.indices.cpu().tolist() == expected.indices.tolist()


def test_arrays_on_different_devices_are_refused(torch):
    points = torch.randn(10, 4, device="cuda")
    with pytest.raises(DeviceError):
        riemem.search(torch.randn(1, 4), points, None, 2)
    with pytest.raises(DeviceError):
        riemem.search(points[:1], points.cpu(), None, 2)


def rows_of(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def every_kernel(torch, n, d):
    """Small problems through each public function, beside the processor: what differs is named."""
    rows, queries = rows_of(n, d), rows_of(5, d, 1)
    rows[1::3] = 2.0 * rows[: len(rows[1::3])]  # so that atoms have several members
    there, asked = torch.from_numpy(rows).cuda(), torch.from_numpy(queries).cuda()
    metric = riemem.FisherMetric.fit(rows)
    on_device = riemem.FisherMetric.fit(there).update(there[: n // 2]).downdate(there[: n // 2])
    for name in ("shift", "sum", "scatter"):
        one, other = metric.to_dict()[name], on_device.to_dict()[name]
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9, err_msg=name)
    twin = riemem.FisherMetric(d).update(there)
    assert twin.covariance_matrix().tobytes() == metric.covariance_matrix().tobytes()

    for batch in (asked[:1], asked):
        for given in (there, there.bfloat16()):
            found = riemem.search(batch, given, metric, 7)
            plain = riemem.search(batch.cpu(), given.cpu(), metric, 7)
            assert found.indices.cpu().tolist() == plain.indices.tolist()
    variances, ramp = np.abs(rows_of(n, d, 2)) + 0.1, np.linspace(0.0, 1.0, n)
    spread, slope = torch.from_numpy(variances).cuda(), torch.from_numpy(ramp).cuda()
    found = riemem.fisher_rao_search(asked, there, spread, 7, ramp=slope)
    plain = riemem.fisher_rao_search(queries, rows, variances, 7, ramp=ramp)
    assert found.indices.cpu().tolist() == plain.indices.tolist()
    assert found.scores.cpu().numpy().tobytes() == plain.scores.tobytes()
    scores = riemem.fisher_rao_scores(asked, there, spread, ramp=slope)
    plain = riemem.fisher_rao_scores(queries, rows, variances, ramp=ramp)
    assert scores.cpu().numpy().tobytes() == plain.tobytes()

    for route in ("max_member", "nearest_fallback", "centroid"):
        here = riemem.MaxMemberClusters(d, threshold=0.95, route=route)
        moved = riemem.MaxMemberClusters(d, threshold=0.95, route=route)
        few = min(n, 60)
        plain, found = here.assign(rows[:few]), moved.assign(there[:few])
        assert found.labels.is_cuda
        assert found.labels.cpu().tolist() == plain.labels.tolist()
        assert found.scores.cpu().numpy().tobytes() == plain.scores.tobytes()
        assert moved.nearest(asked)[0].cpu().tolist() == here.nearest(queries)[0].tolist()
        assert moved.vectors().tobytes() == here.vectors().tobytes()

    norms = kernels.row_norms(there, there.flip(0).contiguous())
    plain = core.token_sensitivity(rows, rows[::-1].copy())
    assert norms.cpu().numpy().tobytes() == plain.tobytes()
    assert kernels.smooth(norms, 5).cpu().numpy().tobytes() == kernels.smooth(plain, 5).tobytes()
    owner = np.arange(n) // 3
    pooled = kernels.pool_tokens(norms, torch.from_numpy(owner).cuda(), n, "mean")
    assert pooled.cpu().numpy().tobytes() == kernels.pool_tokens(plain, owner, n, "mean").tobytes()
    filled = kernels.fill_gaps(torch.from_numpy(owner).cuda(), torch.from_numpy(owner).cuda(), 2)
    assert filled.cpu().tolist() == kernels.fill_gaps(owner, owner, 2).tolist()

    svd, stays = riemem.IncrementalSVD(d, max_rank=4), riemem.IncrementalSVD(d, max_rank=4)
    for begin in range(0, n, max(n // 3, 1)):
        svd.partial_fit(rows[begin : begin + n // 3])
        stays.partial_fit(there[begin : begin + n // 3])
    np.testing.assert_allclose(svd.singular_values, stays.singular_values, rtol=1e-8)
    turned = stays.transform(there).cpu().numpy()
    np.testing.assert_allclose(turned, rows.astype(np.float64) @ stays.basis, atol=1e-10)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (33, 7), (257, 24), (2000, 384)])
def test_every_public_function_agrees_with_the_processor(torch, n, d):
    every_kernel(torch, n, d)


def test_every_kernel_once_for_a_sanitizer(torch):
    every_kernel(torch, 70, 11)


def test_faults_are_named_when_somebody_asks(torch):
    rows = torch.randn(20, 8, device="cuda")
    bad = rows.clone()
    bad[4, 1] = float("nan")
    metric = riemem.FisherMetric(8).update(rows).update(bad)
    with pytest.raises(NotFiniteError, match="row 4"):
        _ = metric.mean
    assert metric.n_samples == 20
    bad[4] = 0.0
    clusters = riemem.MaxMemberClusters(8, threshold=0.9)
    clusters.assign(rows)
    clusters.assign(bad)
    with pytest.raises(ZeroVectorError, match="row 4"):
        clusters.stats()
    assert len(clusters) == 20


def test_a_full_device_leaves_everything_as_it_was(torch):
    index = riemem.RiemannianIndex(64, device="cuda")
    index.add(rows_of(1000, 64))
    expected = index.search(rows_of(2, 64, 1), 5)
    free, total = torch.cuda.mem_get_info()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (8 << 20)) / total)
    try:
        with pytest.raises(CudaError, match="cudaErrorMemoryAllocation") as caught:
            index.reserve(1_000_000)
        assert caught.value.code == 2
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert free > 0
    assert index.search(rows_of(2, 64, 1), 5).indices.tolist() == expected.indices.tolist()


def test_cupy_arrays_give_cupy_arrays(torch):
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    rows = rows_of(200, 16)
    there = cupy.asarray(rows)
    with cupy.cuda.Stream():
        found = riemem.search(there[:3], there, None, 4)
        assert isinstance(found.indices, cupy.ndarray)
        assert found.indices.get().tolist() == riemem.search(rows[:3], rows, None, 4)[0].tolist()
        scores = riemem.fisher_rao_scores(there[:3], there, cupy.abs(there) + 0.1)
        assert isinstance(scores, cupy.ndarray)
        metric = riemem.FisherMetric(16).update(there)
        plain = riemem.FisherMetric(16).update(rows)
        assert metric.covariance_matrix().tobytes() == plain.covariance_matrix().tobytes()
        svd = riemem.IncrementalSVD(16).partial_fit(there)
        assert svd.rank == riemem.IncrementalSVD(16).partial_fit(rows).rank
        labels = riemem.MaxMemberClusters(16, threshold=0.5).assign(there[:40]).labels
        assert isinstance(labels, cupy.ndarray)
        plain = riemem.MaxMemberClusters(16, threshold=0.5).assign(rows[:40]).labels
        assert labels.get().tolist() == plain.tolist()
    with pytest.raises(DeviceError, match="of torch"):
        riemem.search(torch.from_numpy(rows[:1]).cuda(), there, None, 4)

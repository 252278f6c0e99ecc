"""The kernels on a real GPU, with torch: skipped, and counted, where there is none."""

from __future__ import annotations

import numpy as np
import pytest
import riemem
from riemem import _backend
from riemem.errors import DeviceError

pytestmark = pytest.mark.cuda


@pytest.fixture
def torch():
    reason = _backend.cuda_reason()
    if reason:
        pytest.skip(f"no GPU for the kernels: {reason}")
    module = pytest.importorskip("torch", reason="device arrays come from torch")
    if not module.cuda.is_available():
        pytest.skip("this torch was built without CUDA")
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

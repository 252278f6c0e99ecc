"""What is asked of torch and cupy, and bench/device_check.py: all but the GPU itself.

Kernels run on the SIMT shim, on torch's CPU tensors and on numpy arrays that pass for cupy's.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import riemem
from riemem import _device
from riemem.errors import ArgumentError, DeviceError, DTypeError

torch = pytest.importorskip("torch", reason="the paths of torch need it")
sys.path.insert(0, str(Path(__file__).parent))
from cpu_torch import CpuTorch, FakeCupy, FakeCupyArray  # noqa: E402
from test_gpu import every_kernel  # noqa: E402

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def cpu_torch(shim, monkeypatch):
    library = CpuTorch()
    monkeypatch.setattr(_device, "LIBRARIES", [library])
    return library


@pytest.fixture
def fake_cupy(shim, monkeypatch):
    library = FakeCupy()
    monkeypatch.setattr(_device, "LIBRARIES", [library])
    return library


def bench(name):
    spec = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_torch_in_torch_out(cpu_torch):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 9)).astype(np.float32)
    there = torch.from_numpy(rows)
    for given, exact in ((there, rows), (there.bfloat16(), there.bfloat16().float().numpy())):
        found = riemem.search(given[:3], given, None, 5)
        plain = riemem.search(exact[:3], exact, None, 5)
        assert found.indices.tolist() == plain[0].tolist()
        assert [x.dtype for x in (*found, found.counts, found.empty)] == [
            torch.int64, torch.float64, torch.int64, torch.bool,
        ]  # fmt: skip
    twin = riemem.FisherMetric(9).update(there.bfloat16()).update(there.double())
    plain = riemem.FisherMetric(9).update(there.bfloat16().float().numpy())
    assert twin.mean.tobytes() == plain.update(rows.astype(np.float64)).mean.tobytes()
    scores = riemem.fisher_rao_scores(there[:2], there, there.abs() + 0.1, mask=there[:, 0] > 0)
    assert torch.is_tensor(scores)
    assert (scores[0] == -torch.inf).tolist() == (rows[:, 0] <= 0).tolist()
    svd = riemem.IncrementalSVD(9, energy=1.0).partial_fit(there[:40]).partial_fit(there[40])
    values = np.linalg.svd(rows[:41].astype(np.float64), compute_uv=False)
    np.testing.assert_allclose(svd.singular_values, values, rtol=1e-9)
    assert (np.abs(svd.basis).max(axis=0) == svd.basis.max(axis=0)).all()
    assert svd.transform(there.requires_grad_(True)).shape == (60, svd.rank)
    labels = riemem.MaxMemberClusters(9, threshold=0.5).assign(there).labels
    assert torch.is_tensor(labels)
    with pytest.raises(DTypeError, match="layout"):
        riemem.search(torch.eye(9).to_sparse(), there, None, 2)
    with pytest.raises(DTypeError, match="complex64"):
        riemem.search(there[:2].to(torch.complex64), there, None, 2)


def test_a_dlpack_capsule_is_read_once(cpu_torch):
    rows = torch.from_numpy(np.random.default_rng(3).normal(size=(50, 6)).astype(np.float32))
    capsule = torch.utils.dlpack.to_dlpack
    plain = riemem.search(rows[:2], rows, None, 4)
    calls = (
        lambda one: riemem.search(rows[:2], one, None, 4).indices,
        lambda one: riemem.search(one, rows, None, 4).indices[:2],
        lambda one: riemem.FisherMetric(6).update(one).n_samples,
        lambda one: riemem.FisherMetric.fit(one).n_samples,
        lambda one: riemem.fisher_rao_scores(rows[:1], one, rows.abs() + 1.0),
        lambda one: riemem.fisher_rao_scores(rows[:1], rows, one),
        lambda one: riemem.MaxMemberClusters(6, threshold=0.9).assign(one).labels,
        lambda one: riemem.IncrementalSVD(6).partial_fit(one).rank,
        lambda one: riemem.RiemannianIndex(6, device="cuda").add(one),
    )
    for call in calls:
        one = capsule(rows.abs() + 0.5)
        call(one)
        with pytest.raises(ArgumentError, match=r"(X|queries|points|variances): .*once more"):
            call(one)
    assert riemem.search(rows[:2], capsule(rows), None, 4)[0].tolist() == plain[0].tolist()


def test_an_index_in_torch(cpu_torch):
    rows = np.random.default_rng(1).normal(size=(90, 12)).astype(np.float32)
    for storage in ("float32", "float32+int8", "bf16"):
        here = riemem.RiemannianIndex(12, storage=storage)
        index = riemem.RiemannianIndex(12, storage=storage, device="cuda")
        here.add(rows)
        index.add(rows[:40])
        index.add(torch.from_numpy(rows[40:]))
        found = index.search(rows[:2], 5)
        assert found.scores.tobytes() == here.search(rows[:2], 5).scores.tobytes()
        assert index.search(torch.from_numpy(rows[:2]), 5).indices.tolist() == (
            found.indices.tolist()
        )


def test_cupy_in_cupy_out(fake_cupy):
    rows = np.random.default_rng(2).normal(size=(60, 9)).astype(np.float32)
    there = rows.view(FakeCupyArray)
    found = riemem.search(there[:3], there, None, 5, mask=(there[:, 0] > 0).view(FakeCupyArray))
    assert isinstance(found.indices, FakeCupyArray)
    plain = riemem.search(rows[:3], rows, None, 5, mask=rows[:, 0] > 0)
    assert found.indices.tolist() == plain.indices.tolist()
    assert riemem.FisherMetric(9).update(there).mean.tobytes() == (
        riemem.FisherMetric(9).update(rows).mean.tobytes()
    )
    svd = riemem.IncrementalSVD(9, energy=1.0).partial_fit(there[:40]).partial_fit(there[40:])
    values = np.linalg.svd(rows.astype(np.float64), compute_uv=False)
    np.testing.assert_allclose(svd.singular_values, values, rtol=1e-9)
    clusters = riemem.MaxMemberClusters(9, threshold=0.5)
    assert isinstance(clusters.assign(there).labels, FakeCupyArray)
    assert clusters.labels.tolist() == (
        riemem.MaxMemberClusters(9, threshold=0.5).assign(rows).labels.tolist()
    )
    kinds = pytest.importorskip("ml_dtypes", reason="cupy's bfloat16 is that of ml_dtypes")
    narrow = rows.astype(kinds.bfloat16).view(FakeCupyArray)
    exact = np.asarray(narrow.astype(np.float32))
    found = riemem.search(narrow[:3], narrow, None, 5)
    assert found.indices.tolist() == riemem.search(exact[:3], exact, None, 5).indices.tolist()
    assert riemem.FisherMetric(9).update(narrow).mean.tobytes() == (
        riemem.FisherMetric(9).update(exact).mean.tobytes()
    )
    here, index = riemem.RiemannianIndex(9), riemem.RiemannianIndex(9, device="cuda")
    here.add(exact)
    index.add(narrow)
    assert index.search(exact[:2], 5).scores.tobytes() == here.search(exact[:2], 5)[1].tobytes()
    odd = np.lib.stride_tricks.as_strided(np.zeros(10, np.float32), (3, 1), (6, 4))
    with pytest.raises(ArgumentError, match="strides of whole elements"):
        riemem.search(there[:1, :1], odd.view(FakeCupyArray), None, 1)


def test_arrays_of_two_libraries_are_refused(shim, monkeypatch):
    monkeypatch.setattr(_device, "LIBRARIES", [CpuTorch(), FakeCupy()])
    rows = np.ones((4, 3), np.float32)
    with pytest.raises(DeviceError, match="points: expected an array of torch, got one of cupy"):
        riemem.search(torch.ones(1, 3), rows.view(FakeCupyArray), None, 1)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (33, 7), (257, 24)])
def test_what_runs_on_a_gpu_runs_on_the_shim(cpu_torch, monkeypatch, n, d):
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)

    class Host(torch.Tensor):
        """What .cpu() gives: for this test not on the device."""

    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: self.clone().as_subclass(Host))
    monkeypatch.setattr(cpu_torch, "owns", lambda value: type(value) is torch.Tensor)
    every_kernel(torch, n, d)


class DryClock:
    """The clock of bench/device_measure.py without a device: everything is done once."""

    device = "cpu"

    def __init__(self):
        self.torch = torch

    def milliseconds(self, work, runs=1):
        work()
        return 1.5

    def wait(self):
        pass

    def free_bytes(self):
        return 8 << 20

    def allocated(self):
        return 1000

    def reset_peak(self):
        pass

    def peak(self):
        return 2000


def test_everything_that_a_device_check_measures(cpu_torch, tmp_path):
    pytest.importorskip("transformers", reason="the distiller's pass needs it")
    module, check = bench("device_measure"), bench("device_check")
    clock = DryClock()
    report = module.Report(tmp_path / "measured.json", lambda: 100.0)
    rate = module.bandwidth(clock)
    report.found.update(device="none", torch=torch.__version__, copy_bytes_per_s=rate)
    sizes = {
        "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 50,
    }  # fmt: skip
    report.rows("searches", module.searches(clock, rate, [(100, 8, (1, 5))]))
    report.rows("others", module.others(clock, rate, 16))
    report.rows("index_memory", module.index_memory(clock, 70, 8))
    report.rows("pass_memory", module.pass_memory(clock, sizes, (12,)))
    found = json.loads((tmp_path / "measured.json").read_text())
    for name in ("searches", "others", "index_memory", "pass_memory"):
        for row in found[name]:
            assert "failed" not in row, row
    assert len(found["searches"]) == 2
    assert len(found["others"]) == 7
    for row in found["searches"]:
        assert all(row[f"{storage}_same_bits"] for storage in module.STORAGES)
    assert max(row["largest_difference"] for row in found["others"]) < 1e-4
    assert all(row["finite"] for row in found["pass_memory"])
    text = check.markdown({"summary": {"tests": "exit code 0"}, "measured": found})
    assert "| 100 x 8 | 5 | 1.5 |" in text
    assert "FisherMetric.update" in text


def test_a_part_that_fails_takes_no_other_with_it(tmp_path):
    module = bench("device_measure")

    def parts():
        yield lambda: {"value": 1}
        yield lambda: 1 / 0
        yield lambda: (_ for _ in ()).throw(ModuleNotFoundError("no", name="cupy"))
        yield lambda: {"value": 2}

    left = iter([60.0] * 4 + [5.0])
    report = module.Report(tmp_path / "measured.json", lambda: next(left))
    report.rows("some", parts())
    found = json.loads((tmp_path / "measured.json").read_text())["some"]
    assert [row.get("value") for row in found] == [1, None, None, 2, None]
    assert found[1]["failed"].startswith("ZeroDivisionError")
    assert found[2] == {"skipped": "needs cupy: no"}
    assert found[4] == {"skipped": "no time left"}


def test_a_step_is_ended_with_all_that_it_started(tmp_path, monkeypatch):
    check = bench("device_check")
    assert check.run(["true"], 1.0, LOG=str(tmp_path / "log")) == {"skipped": "no time left"}
    monkeypatch.setattr(check, "LEAST_S", 0.0)
    # The grandchild keeps what the child was given for its output.
    script = (
        "import subprocess, sys, time; print('begun', flush=True); "
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); time.sleep(600)"
    )
    done = check.run([sys.executable, "-c", script], 1.0, LOG=str(tmp_path / "log"))
    assert done["code"] == 124
    assert done["output"].strip() in ("begun", "")
    told = check.run(
        [sys.executable, "-c", "import os; print(os.environ['X']); raise SystemExit(3)"],
        60, LOG=str(tmp_path / "log"), X="y",
    )  # fmt: skip
    assert (told["code"], told["output"].strip()) == (3, "y")


def test_the_check_says_what_it_lacks(tmp_path, monkeypatch):
    check = bench("device_check")
    monkeypatch.setattr(check, "NEEDED", ("numpy", "no_such_package"))
    monkeypatch.setattr(sys, "argv", ["device_check.py", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="device_check needs no_such_package"):
        check.main()
    monkeypatch.setattr(check, "NEEDED", ("numpy",))
    monkeypatch.setattr(check, "_DEVICE", "print('[false, \"2.0\"]')")
    assert check.main() == 1
    written = json.loads((tmp_path / "out" / "device_check.json").read_text())
    assert list(written["steps"]) == ["device"]
    assert "is_available() is False" in written["steps"]["device"]["output"]
    assert (tmp_path / "out" / "device_check.md").exists()

"""The steps between gradients and units on arrays of a device: the kernels run on the SIMT shim."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from riemem import _backend
from riemem.distill import kernels
from riemem.errors import ArgumentError, CudaError, DeviceError, DTypeError, ShapeError

sys.path.insert(0, str(Path(__file__).parent))
from host_library import HostArray, bfloat16, exact, on

torch = pytest.importorskip("torch", reason="token gradients come from torch")


def pair(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, d)).astype(np.float32) for _ in range(2)]


@pytest.mark.parametrize("n", [1, 31, 33, 70])
@pytest.mark.parametrize("d", [1, 9, 64])
def test_norms_and_their_smoothing_are_the_bits_of_the_processor(library, n, d):
    g, h = pair(n, d, n)
    plain = kernels.row_norms(torch.from_numpy(g), torch.from_numpy(h))
    found = kernels.row_norms(on(g), on(h))
    assert found.array.tobytes() == plain.tobytes()
    wide = np.linalg.norm(g.astype(np.float64) * h.astype(np.float64), axis=1)
    np.testing.assert_allclose(found.array, wide, rtol=1e-6)
    for width in (1, 3, 9):
        there = kernels.smooth(found, width)
        assert there.array.tobytes() == kernels.smooth(plain, width).tobytes()
    assert library.reads == 0


def test_narrow_gradients_and_rows_that_lie_apart(library):
    g, h = pair(20, 12)
    narrow = bfloat16(g)
    plain = kernels.row_norms(torch.from_numpy(exact(narrow)), torch.from_numpy(h))
    assert kernels.row_norms(narrow, on(h)).array.tobytes() == plain.tobytes()
    half = g.astype(np.float16)
    plain = kernels.row_norms(torch.from_numpy(half), torch.from_numpy(h))
    assert kernels.row_norms(on(half), on(h)).array.tobytes() == plain.tobytes()
    wide = np.zeros((20, 30), np.float32)
    wide[:, :12], wide[:, 15:27] = g, h
    apart = kernels.row_norms(HostArray(wide[:, :12]), HostArray(wide[:, 15:27]))
    plain = kernels.row_norms(torch.from_numpy(g), torch.from_numpy(h))
    assert apart.array.tobytes() == plain.tobytes()
    assert kernels.row_norms(on(g[:0]), on(h[:0])).array.shape == (0,)


@pytest.mark.parametrize("units", [1, 2, 40, 300])
def test_pooling_and_gaps_are_those_of_the_processor(library, units):
    rng = np.random.default_rng(units)
    scores, owner = rng.normal(size=3 * units), rng.integers(-1, units, size=3 * units)
    for how in ("sum", "mean", "max"):
        plain = kernels.pool_tokens(scores, owner, units, how)
        assert kernels.pool_tokens(on(scores), on(owner), units, how).array.tobytes() == (
            plain.tobytes()
        )
    entry = np.where(rng.random(units) < 0.3, kernels.NEVER, rng.integers(1, 50, size=units))
    lines = np.arange(units) // 11
    for gap in (0, 1, 2, 5):
        plain = kernels.fill_gaps(entry, lines, gap)
        assert kernels.fill_gaps(on(entry), on(lines), gap).array.tolist() == plain.tolist()


def test_nothing_is_waited_for(library, shim):
    g, h = pair(40, 16)
    plain = kernels.smooth(kernels.row_norms(torch.from_numpy(g), torch.from_numpy(h)), 5)
    shim.shim_defer(True)
    found = kernels.smooth(kernels.row_norms(on(g), on(h)), 5)
    assert np.isnan(found.array).all()  # as the memory was filled
    shim.synchronize(0)
    assert found.array.tobytes() == plain.tobytes()
    assert (library.reads, library.puts) == (0, 0)


def test_what_does_not_fit_is_named(library, shim):
    g, h = (on(array) for array in pair(6, 4))
    with pytest.raises(DeviceError, match=r"embedding: .* host memory"):
        kernels.row_norms(g, h.array)
    with pytest.raises(DeviceError, match=r"gradient: .* host memory"):
        kernels.row_norms(g.array, h)
    with pytest.raises(DeviceError, match=r"embedding: .* device 0, got device 1"):
        kernels.row_norms(g, on(h.array, 1))
    with pytest.raises(ShapeError, match="embedding"):
        kernels.row_norms(g, on(h.array[:-1]))
    with pytest.raises(DTypeError, match="gradient: expected float32 or bfloat16 or float16"):
        kernels.row_norms(on(g.array.astype(np.float64)), h)
    scores, owner = on(np.ones(6)), on(np.zeros(6, np.int64))
    with pytest.raises(DeviceError, match=r"unit_of: .* host memory"):
        kernels.pool_tokens(scores, owner.array, 2, "sum")
    with pytest.raises(DTypeError, match="unit_of: expected int64"):
        kernels.pool_tokens(scores, on(np.zeros(6, np.int32)), 2, "sum")
    with pytest.raises(ArgumentError, match="scores: expected contiguous"):
        kernels.smooth(HostArray(np.ones(12)[::2]), 3)
    with pytest.raises(ArgumentError, match="width: expected an odd number"):
        kernels.smooth(scores, 4)
    with pytest.raises(ShapeError, match=r"segments: expected shape \(6,\)"):
        kernels.fill_gaps(owner, on(np.zeros(5, np.int64)), 2)
    library.limit = 40
    with pytest.raises(CudaError, match=r"cudaErrorMemoryAllocation \(2\)"):
        kernels.row_norms(g, h)
    library.limit = None
    shim.shim_fail_launch(0, 719)
    with pytest.raises(CudaError, match="cudaErrorLaunchFailure"):
        kernels.row_norms(g, h)


def test_without_kernels_torch_gives_the_same_to_rounding(monkeypatch):
    monkeypatch.setattr(_backend, "_load_cuda", lambda: None)
    g, h = (torch.from_numpy(array) for array in pair(9, 7))

    class Elsewhere:
        """A tensor of a device that these kernels do not know."""

        def __init__(self, tensor):
            self.tensor = tensor
            self.device = torch.device("meta")

        def detach(self):
            return self.tensor

    found = kernels.row_norms(Elsewhere(g), Elsewhere(h))
    np.testing.assert_allclose(kernels.on_host(found), kernels.row_norms(g, h), rtol=1e-12)

"""`IncrementalSVD` on rows of a device: the kernels run on the SIMT shim."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import riemem
from riemem.errors import (
    ArgumentError,
    CudaError,
    DeviceError,
    DowndateError,
    DTypeError,
    NotFiniteError,
    ShapeError,
)

sys.path.insert(0, str(Path(__file__).parent))
from host_library import HostArray, Interface, bfloat16, exact, on


def rows_of(n, d, seed=0, rank=6):
    rng = np.random.default_rng(seed)
    shape = np.random.default_rng(99).normal(size=(rank, d)) * (0.6 ** np.arange(rank))[:, None]
    rows = rng.normal(size=(n, rank)) @ shape + 1e-3 * rng.normal(size=(n, d))
    return rows.astype(np.float32)


def agree(here, there):
    assert (here.rank, here.n_seen) == (there.rank, there.n_seen)
    np.testing.assert_allclose(here.singular_values, there.singular_values, rtol=1e-10)
    np.testing.assert_allclose(here.basis, there.basis, rtol=1e-7, atol=1e-9)
    assert there.total_energy == pytest.approx(here.total_energy, rel=1e-12)
    assert there.lost_energy == pytest.approx(here.lost_energy, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("d", [1, 5, 17, 40])
@pytest.mark.parametrize("options", [{}, {"energy": 1.0}, {"max_rank": 3, "forgetting": 0.9}])
def test_a_stream_gives_what_the_processor_gives(library, d, options):
    here, there = (riemem.IncrementalSVD(d, **options) for _ in range(2))
    for seed, n in enumerate((1, 3, 20, 9)):
        batch = rows_of(n, d, seed)
        here.partial_fit(batch)
        there.partial_fit(on(batch))
        agree(here, there)
    basis = there.basis
    np.testing.assert_allclose(basis.T @ basis, np.eye(there.rank), atol=1e-13)
    rows = rows_of(7, d, 8)
    np.testing.assert_allclose(
        there.transform(on(rows)).array, rows.astype(np.float64) @ basis, rtol=1e-12, atol=1e-12
    )


def test_singular_values_are_those_of_lapack(library):
    batches = [rows_of(n, 30, n) for n in (5, 40, 12)]
    svd = riemem.IncrementalSVD(30, energy=1.0)
    for batch in batches:
        svd.partial_fit(on(batch))
    whole = np.concatenate(batches).astype(np.float64)
    expected = np.linalg.svd(whole, compute_uv=False)
    np.testing.assert_allclose(svd.singular_values, expected[: svd.rank], rtol=1e-9)


def test_rows_are_taken_away_again(library):
    here, there = (riemem.IncrementalSVD(12, energy=1.0) for _ in range(2))
    first, second = rows_of(30, 12, 1), rows_of(8, 12, 2)
    for svd, turn in ((here, lambda x: x), (there, on)):
        svd.partial_fit(turn(first)).partial_fit(turn(second)).downdate(turn(second))
    agree(here, there)
    with pytest.raises(DowndateError, match="taken in before"):
        there.downdate(on(1e3 * rows_of(3, 12, 5, rank=12)))
    agree(here, there)
    there.downdate(on(first))
    assert (there.n_seen, there.rank, there.basis.shape) == (0, 0, (12, 0))
    agree(riemem.IncrementalSVD(12, energy=1.0).partial_fit(second), there.partial_fit(on(second)))


def test_a_basis_follows_its_rows_to_the_device_and_stays(library):
    batch, more = rows_of(20, 10, 1), rows_of(9, 10, 2)
    here = riemem.IncrementalSVD(10).partial_fit(batch).partial_fit(more)
    there = riemem.IncrementalSVD(10).partial_fit(batch).partial_fit(on(more))
    agree(here, there)
    with pytest.raises(DeviceError, match=r"X: expected an array on device 0"):
        there.partial_fit(more)
    with pytest.raises(DeviceError, match=r"X: .* device 0.* device 1"):
        there.partial_fit(on(more, 1))
    np.testing.assert_allclose(there.transform(more), here.transform(more), rtol=1e-7, atol=1e-9)
    apart = here.transform(on(more))
    np.testing.assert_allclose(apart.array, here.transform(more), rtol=1e-12, atol=1e-12)


def test_odd_rows_and_dtypes(library):
    batch = rows_of(20, 10, 1)
    plain = riemem.IncrementalSVD(10).partial_fit(batch)
    wide = np.zeros((20, 16), np.float32)
    wide[:, :10] = batch
    for given in (HostArray(wide[:, :10]), Interface(batch), on(batch.astype(np.float64))):
        agree(plain, riemem.IncrementalSVD(10).partial_fit(given))
    narrow = bfloat16(batch)
    agree(
        riemem.IncrementalSVD(10).partial_fit(exact(narrow)),
        riemem.IncrementalSVD(10).partial_fit(narrow),
    )
    one = riemem.IncrementalSVD(10).partial_fit(on(batch[0])).partial_fit(on(batch[1]))
    agree(riemem.IncrementalSVD(10).partial_fit(batch[0]).partial_fit(batch[1]), one)
    none = riemem.IncrementalSVD(10).partial_fit(on(batch[:0]))
    assert none.n_seen == 0
    assert none.partial_fit(batch).rank == plain.rank  # nothing had gone anywhere
    zero = riemem.IncrementalSVD(10).partial_fit(on(np.zeros((3, 10), np.float32)))
    assert (zero.rank, zero.n_seen) == (0, 3)


def test_errors_change_nothing(library, shim):
    batch = rows_of(20, 10, 1)
    plain = riemem.IncrementalSVD(10).partial_fit(batch)
    there = riemem.IncrementalSVD(10).partial_fit(on(batch))
    bad = batch.copy()
    bad[3, 1] = np.inf
    with pytest.raises(NotFiniteError, match=r"X: .*row 3"):
        there.partial_fit(on(bad))
    with pytest.raises(DTypeError, match="X: expected float32 or bfloat16 or float64"):
        there.partial_fit(on(batch.astype(np.int64)))
    with pytest.raises(ShapeError, match=r"X: expected shape \(N, 10\)"):
        there.partial_fit(on(batch[:, :4]))
    with pytest.raises(ArgumentError, match="contiguous first"):
        there.partial_fit(HostArray(batch[:, ::-1]))
    more = on(rows_of(9, 10, 4, rank=10))
    shim.shim_take_launches()
    riemem.IncrementalSVD(10).partial_fit(batch).partial_fit(more)
    for launch in range(shim.shim_take_launches()):
        shim.shim_fail_launch(launch, 719)
        with pytest.raises(CudaError, match=r"cudaErrorLaunchFailure \(719\)"):
            there.partial_fit(more)
    shim.shim_fail_launch(-1, 0)
    library.limit = 1500
    with pytest.raises(CudaError, match=r"cudaErrorMemoryAllocation \(2\)"):
        there.partial_fit(on(rows_of(60, 10, 5)))
    library.limit = None
    agree(plain, there)

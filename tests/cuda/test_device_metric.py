"""`FisherMetric` on rows of a device: the kernels run on the SIMT shim."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import riemem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from riemem.errors import (
    ArgumentError,
    CudaError,
    DeviceError,
    DTypeError,
    NotFiniteError,
    ShapeError,
)

sys.path.insert(0, str(Path(__file__).parent))
from host_library import HostArray, Interface, bfloat16, exact, on


def rows_of(n, d, seed=0, dtype=np.float32):
    return (np.random.default_rng(seed).normal(size=(n, d)) + 7.0).astype(dtype)


def same(here, there):
    one, other = here.to_dict(), there.to_dict()
    assert one["n_samples"] == other["n_samples"]
    for name in ("shift", "sum", "scatter"):
        assert one[name].tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("d", [1, 7, 33, 65])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_updates_and_downdates_are_the_bits_of_the_processor(library, d, dtype):
    here, there = riemem.FisherMetric(d), riemem.FisherMetric(d)
    batches = [rows_of(n, d, n, dtype) for n in (1, 31, 64, 130)]
    for batch in batches:
        here.update(batch)
        there.update(on(batch))
    assert library.reads == 0
    same(here, there)
    gone = np.concatenate(batches[1:3])
    here.downdate(gone)
    there.downdate(on(gone))
    same(here, there)
    here.update(batches[0])
    there.update(on(batches[0]))
    np.testing.assert_array_equal(here.whitening(), there.whitening())
    left = np.concatenate([batches[0], batches[3], batches[0]]).astype(np.float64)
    np.testing.assert_allclose(there.mean, left.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(
        there.covariance_matrix(), np.cov(left.T, bias=True).reshape(d, d), rtol=1e-9, atol=1e-12
    )


def test_bfloat16_rows_count_for_what_they_are(library):
    narrow = bfloat16(rows_of(90, 12))
    same(riemem.FisherMetric(12).update(exact(narrow)), riemem.FisherMetric(12).update(narrow))


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=1, max_size=8))
def test_any_mix_of_additions_and_removals(library, steps):
    batches = [rows_of(n, 5, n) for n in (3, 8, 17, 40)]
    here, there = riemem.FisherMetric(5), riemem.FisherMetric(5)
    held = [0, 0, 0, 0]
    for adds, which in steps:
        if adds or not held[which]:
            held[which] += 1
            here.update(batches[which])
            there.update(on(batches[which]))
        else:
            held[which] -= 1
            here.downdate(batches[which])
            there.downdate(on(batches[which]))
    assert there.n_samples == here.n_samples
    np.testing.assert_allclose(there.mean, here.mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        there.covariance_matrix(), here.covariance_matrix(), rtol=1e-8, atol=1e-8
    )


def test_fit_and_search_with_a_metric_of_the_device(library):
    points = rows_of(150, 12)
    queries = points[:3] + 0.1
    here, there = riemem.FisherMetric.fit(points), riemem.FisherMetric.fit(on(points))
    same(here, there)
    found = riemem.search(on(queries), on(points), there, 5)
    assert found.indices.array.tolist() == riemem.search(queries, points, here, 5).indices.tolist()
    with pytest.raises(ShapeError, match="at least one row"):
        riemem.FisherMetric.fit(on(points[:0]))


def test_sums_follow_the_rows_to_the_device_and_come_back_as_numbers(library):
    batch, more = rows_of(40, 6), rows_of(20, 6, 1)
    here = riemem.FisherMetric(6).update(batch).update(more)
    moved = riemem.FisherMetric(6).update(batch).update(on(more))
    same(here, moved)
    with pytest.raises(DeviceError, match=r"X: expected an array on device 0.*from_dict"):
        moved.update(more)
    with pytest.raises(DeviceError, match=r"X: .* device 0.* device 2"):
        moved.update(on(more, 2))
    back = riemem.FisherMetric.from_dict(moved.to_dict()).update(more)
    same(here.update(more), back)


def test_copies_and_merges(library):
    first, second = rows_of(40, 6), rows_of(20, 6, 1)
    there = riemem.FisherMetric(6).update(on(first))
    twin = there.copy()
    there.update(on(second))
    same(riemem.FisherMetric(6).update(first), twin)
    same(riemem.FisherMetric(6).update(first).update(second), there)
    apart = riemem.FisherMetric(6).update(second)
    joined = riemem.FisherMetric(6).update(first).merge(apart)
    same(joined, twin.merge(riemem.FisherMetric(6).update(on(second))))
    same(riemem.FisherMetric(6).merge(apart), riemem.FisherMetric(6).merge(apart.copy()))


def test_a_bad_batch_leaves_no_trace_and_is_named_at_the_next_question(library):
    good, bad = rows_of(40, 6), rows_of(9, 6, 1)
    bad[4, 2] = np.nan
    there = riemem.FisherMetric(6).update(on(good)).update(on(bad)).update(on(good))
    with pytest.raises(NotFiniteError, match=r"X: rows given to the device.*row 4"):
        _ = there.mean
    same(riemem.FisherMetric(6).update(good).update(good), there)
    there.downdate(on(bad))
    with pytest.raises(NotFiniteError, match="row 4"):
        there.update(on(good))
    assert there.n_samples == 80
    first = riemem.FisherMetric(6).update(on(bad))
    with pytest.raises(NotFiniteError, match="row 4"):
        _ = first.n_samples
    same(riemem.FisherMetric(6).update(good), first.update(on(good)))
    large = riemem.FisherMetric(6).update(on(np.full((2, 6), 1e160)))
    with pytest.raises(NotFiniteError, match="row 0"):
        _ = large.n_samples


def test_rows_that_were_never_added_are_put_back(library):
    good, foreign = rows_of(40, 6), 50.0 * rows_of(12, 6, 1)
    there = riemem.FisherMetric(6).update(on(good)).downdate(on(foreign))
    with pytest.raises(ArgumentError, match="X: expected rows that were added before"):
        there.update(on(good))
    same(riemem.FisherMetric(6).update(good), there)
    there.downdate(on(np.concatenate([good, good])))
    with pytest.raises(ArgumentError, match="at most the 40 rows"):
        _ = there.n_samples
    assert there.downdate(on(good)).n_samples == 0
    there.downdate(on(good[:1]))
    with pytest.raises(ArgumentError, match="at most the 0 rows"):
        _ = there.n_samples
    same(riemem.FisherMetric(6).update(foreign), there.update(on(foreign)))


def test_nothing_is_waited_for(library, shim):
    batch = rows_of(50, 9)
    there = riemem.FisherMetric(9).update(on(batch))
    shim.shim_defer(True)
    there.update(on(batch)).downdate(on(batch[:7]))
    assert (library.reads, library.puts) == (0, 0)
    shim.synchronize(0)
    same(riemem.FisherMetric(9).update(batch).update(batch).downdate(batch[:7]), there)


def test_odd_rows(library):
    wide = rows_of(30, 20)
    apart = HostArray(wide[:, 3:9])
    plain = riemem.FisherMetric(6).update(np.ascontiguousarray(wide[:, 3:9]))
    same(plain, riemem.FisherMetric(6).update(apart))
    same(plain, riemem.FisherMetric(6).update(Interface(np.ascontiguousarray(wide[:, 3:9]))))
    there = riemem.FisherMetric(6).update(on(wide[:0, :6])).update(on(wide[0, :6]))
    assert there.n_samples == 1
    with pytest.raises(ArgumentError, match="contiguous first"):
        there.update(HostArray(wide[:6, :6].T))
    with pytest.raises(DTypeError, match="X: expected float32 or bfloat16 or float64"):
        there.update(on(wide[:, :6].astype(np.int32)))
    with pytest.raises(ShapeError, match=r"X: expected shape \(N, 6\)"):
        there.update(on(wide))
    assert there.n_samples == 1


def test_a_full_device_changes_nothing(library):
    batch = rows_of(600, 6)
    there = riemem.FisherMetric(6).update(on(batch[:5]))
    library.limit = 1000
    with pytest.raises(CudaError, match=r"cudaErrorMemoryAllocation \(2\)"):
        there.update(on(batch))
    library.limit = None
    same(riemem.FisherMetric(6).update(batch[:5]), there)


def test_another_stream_waits_for_the_one_that_the_sums_are_on(library, shim):
    batches = [rows_of(20, 6, seed) for seed in range(3)]
    shim.shim_defer(True)
    there = riemem.FisherMetric(6).update(on(batches[0]))
    library.current = 64  # nothing that is queued here runs before its stream is synchronised
    there.update(on(batches[1]))
    library.current = 0
    there.update(on(batches[2]))
    library.current = 64
    plain = riemem.FisherMetric(6)
    for batch in batches:
        plain.update(batch)
    same(plain, there)


def test_batches_that_wait_to_be_looked_at_do_not_pile_up(library, monkeypatch):
    monkeypatch.setattr("riemem._gaussian_device._MOST_WAITING", 3)
    there = riemem.FisherMetric(4)
    for seed in range(8):
        there.update(on(rows_of(5, 4, seed)))
        assert len(there._moments._added) <= 3
    assert there.n_samples == 40

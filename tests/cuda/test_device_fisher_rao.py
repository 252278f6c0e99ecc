"""Memories with variances on arrays of a device: the kernels run on the SIMT shim."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import riemem
from riemem.errors import ArgumentError, CudaError, DeviceError, DTypeError, ShapeError

sys.path.insert(0, str(Path(__file__).parent))
from host_library import HostArray, Interface, on


def problem(n=70, d=11, batch=3, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, d)).astype(np.float32)
    queries = rng.normal(size=(batch, d)).astype(np.float32)
    variances = rng.uniform(0.1, 2.0, size=(n, d)).astype(np.float32)
    return queries, points, variances, rng.uniform(size=n)


def both(call, queries, points, variances, *arguments, **options):
    """The answer of the processor and that of the device for the same arrays."""
    there = {
        name: on(value) if isinstance(value, np.ndarray) else value
        for name, value in options.items()
    }
    here = call(queries, points, variances, *arguments, **options)
    return here, call(on(queries), on(points), on(variances), *arguments, **there)


@pytest.mark.parametrize(("n", "d", "batch"), [(1, 1, 1), (33, 7, 2), (100, 24, 17), (65, 9, 1)])
@pytest.mark.parametrize("ramped", [False, True])
def test_the_bits_of_the_processor_for_every_size(library, n, d, batch, ramped):
    queries, points, variances, ramp = problem(n, d, batch, n)
    options = {"ramp": ramp} if ramped else {}
    for spread in (variances, variances[0]):
        here, there = both(riemem.fisher_rao_scores, queries, points, spread, **options)
        assert here.tobytes() == there.array.tobytes()
        reference = riemem.reference.fisher_rao_scores(
            queries, points, np.broadcast_to(spread, points.shape), **options
        )
        np.testing.assert_allclose(there.array, reference, rtol=1e-6, atol=1e-12)
        here, there = both(riemem.fisher_rao_search, queries, points, spread, 6, **options)
        assert here.indices.tolist() == there.indices.array.tolist()
        assert here.scores.tobytes() == there.scores.array.tobytes()
        assert there.counts.array.tolist() == [min(6, n)] * batch
        assert (there.scoring, there.exact_rows) == ("fisher-rao", -1)
    assert library.reads == 0


def test_masks_of_both_shapes_and_rows_that_lie_apart(library):
    queries, points, variances, ramp = problem()
    rng = np.random.default_rng(1)
    for mask in (rng.random(70) < 0.3, rng.random((3, 70)) < 0.2):
        here, there = both(
            riemem.fisher_rao_search, queries, points, variances, 9, mask=mask, ramp=ramp
        )
        width = here.indices.shape[1]
        assert here.indices.tolist() == there.indices.array[:, :width].tolist()
        assert here.counts.tolist() == there.counts.array.tolist()
    wide = np.zeros((70, 30), np.float32)
    wide[:, :11], wide[:, 12:23] = points, variances
    apart = riemem.fisher_rao_scores(
        on(queries[0]), HostArray(wide[:, :11]), HostArray(wide[:, 12:23])
    )
    plain = riemem.fisher_rao_scores(queries[0], points, variances)
    assert apart.array.tobytes() == plain.tobytes()
    foreign = riemem.fisher_rao_scores(Interface(queries[0]), Interface(points), on(variances))
    assert foreign.array.tobytes() == plain.tobytes()


def test_what_the_processor_would_refuse_is_left_out(library):
    queries, points, variances, ramp = problem()
    plain = riemem.fisher_rao_scores(queries, points, variances, ramp=ramp)
    points[3, 2], points[9, 0] = np.nan, np.inf
    variances[20, 1], variances[21, 0], variances[22, 3] = 0.0, -1.0, np.nan
    variances[23, 0] = 1e-45  # its inverse does not fit into float32
    ramp[30], ramp[31] = 1.5, np.nan
    queries[1], queries[2, 4] = 0.0, np.nan
    out = [3, 9, 20, 21, 22, 23, 30, 31]
    kept = np.delete(np.arange(70), out)
    arrays = (on(queries), on(points), on(variances))
    found = riemem.fisher_rao_scores(*arrays, ramp=on(ramp)).array
    assert (found[0, out] == -np.inf).all()
    assert found[0, kept].tobytes() == plain[0, kept].tobytes()
    assert np.isnan(found[1:]).all()
    top = riemem.fisher_rao_search(*arrays, 70, ramp=on(ramp))
    assert top.empty.array.tolist() == [False, True, True]
    assert top.counts.array.tolist() == [62, 0, 0]
    assert not set(out) & set(top.indices.array[0].tolist())
    none = riemem.fisher_rao_search(arrays[0], arrays[1], on(np.zeros(11, np.float32)), 4)
    assert none.counts.array.tolist() == [0, 0, 0]


def test_nothing_to_look_at(library):
    queries, points, variances, _ = problem()
    for n, batch, k in ((0, 3, 4), (70, 0, 4), (70, 3, 0)):
        top = riemem.fisher_rao_search(on(queries[:batch]), on(points[:n]), on(variances[:n]), k)
        assert top.indices.array.shape == (batch, min(k, n))
        assert top.counts.array.tolist() == [0] * batch
    assert riemem.fisher_rao_scores(on(queries), on(points[:0]), on(variances[:0])).shape == (3, 0)
    assert riemem.fisher_rao_search(on(queries), on(points), on(variances), 99).scores.shape == (
        3,
        70,
    )


def test_nothing_is_waited_for(library, shim):
    queries, points, variances, _ = problem()
    plain = riemem.fisher_rao_search(queries, points, variances, 5)
    shim.shim_defer(True)
    found = riemem.fisher_rao_search(on(queries), on(points), on(variances), 5)
    assert (found.counts.array == -1).all()
    assert (library.reads, library.puts) == (0, 0)
    shim.synchronize(0)
    assert found.indices.array.tolist() == plain.indices.tolist()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda q, p, v: (q.array, p, v), DeviceError, "queries: .* host memory"),
        (lambda q, p, v: (q, p.array, v), DeviceError, "points: .* host memory"),
        (lambda q, p, v: (q, p, v.array), DeviceError, "variances: .* host memory"),
        (lambda q, p, v: (q, p, on(v.array, 1)), DeviceError, "variances: .* device 0, got dev"),
        (lambda q, p, v: (on(q.array, 2), p, v), DeviceError, "queries: .* device 0, got device 2"),
        (lambda q, p, v: (q, on(p.array.astype(np.float64)), v), DTypeError, "points: .*float64"),
        (lambda q, p, v: (q, p, on(v.array.astype(np.float16))), DTypeError, "variances: .*float"),
        (lambda q, p, v: (q, p, on(v.array[:-1])), ShapeError, r"variances: .*\(70, 11\)"),
        (lambda q, p, v: (on(q.array[:, 1:]), p, v), ShapeError, "queries: expected shape"),
        (lambda q, p, v: (q, HostArray(p.array.T.copy().T), v), ArgumentError, "contiguous first"),
    ],
)
def test_what_does_not_fit_is_named(library, change, error, words):
    queries, points, variances, _ = problem()
    with pytest.raises(error, match=words):
        riemem.fisher_rao_scores(*change(on(queries), on(points), on(variances)))


def test_ramps_and_masks_that_do_not_fit_are_named(library):
    queries, points, variances, ramp = problem()
    arrays = on(queries), on(points), on(variances)
    with pytest.raises(DeviceError, match=r"ramp: .* host memory"):
        riemem.fisher_rao_scores(*arrays, ramp=ramp)
    with pytest.raises(ShapeError, match="ramp"):
        riemem.fisher_rao_scores(*arrays, ramp=on(ramp[1:]))
    with pytest.raises(DTypeError, match="ramp: expected float64 or float32"):
        riemem.fisher_rao_scores(*arrays, ramp=on(np.zeros(70, np.int64)))
    with pytest.raises(DeviceError, match="mask"):
        riemem.fisher_rao_scores(*arrays, mask=np.ones(70, bool))
    small = riemem.fisher_rao_scores(*arrays, ramp=on(ramp.astype(np.float32)))
    wide = riemem.fisher_rao_scores(*arrays, ramp=on(ramp.astype(np.float32).astype(np.float64)))
    assert small.array.tobytes() == wide.array.tobytes()


@pytest.mark.parametrize("launch", range(8))
def test_a_failed_launch_or_a_full_device_is_a_cuda_error(library, shim, launch):
    queries, points, variances, ramp = problem()
    shim.shim_fail_launch(launch, 719)
    with pytest.raises(CudaError, match=r"cudaErrorLaunchFailure \(719\)"):
        riemem.fisher_rao_search(on(queries), on(points), on(variances), 4, ramp=on(ramp))
    library.limit = 600
    with pytest.raises(CudaError, match=r"cudaErrorMemoryAllocation \(2\)"):
        riemem.fisher_rao_search(on(queries), on(points), on(variances), 4)

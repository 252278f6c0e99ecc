"""`MaxMemberClusters` on rows of a device: the kernels run on the SIMT shim."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import riemem
from riemem.errors import (
    ArgumentError,
    CudaError,
    DTypeError,
    NotFiniteError,
    ShapeError,
    ZeroVectorError,
)

sys.path.insert(0, str(Path(__file__).parent))
from host_library import HostArray, Interface, bfloat16, exact, on

ROUTES = ["max_member", "nearest_fallback", "centroid"]


def stream(n, d=9, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d))
    for i in range(4, n):
        if i % 3:
            rows[i] = rows[rng.integers(i)] + 0.2 * rng.normal(size=d)
    rows[5] = rows[2]
    return (rows * rng.choice([1e-12, 0.3, 1.0, 50.0], size=(n, 1))).astype(np.float32)


def pair(route="max_member", threshold=0.8, d=9, storage="float32"):
    return [
        riemem.MaxMemberClusters(d, threshold=threshold, route=route, storage=storage)
        for _ in range(2)
    ]


def same(here, there):
    assert here.ids.tolist() == there.ids.tolist()
    assert here.labels.tolist() == there.labels.tolist()
    assert here.sizes.tolist() == there.sizes.tolist()
    assert here.vectors().tobytes() == there.vectors().tobytes()
    for one, other in zip(here.atoms(), there.atoms(), strict=True):
        assert one.centroid.tobytes() == other.centroid.tobytes()


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("threshold", [0.5, 0.9, 1.0])
def test_a_stream_is_assigned_as_on_the_processor(library, route, threshold):
    here, there = pair(route, threshold)
    rows = stream(49)
    for begin, end in ((0, 1), (1, 25), (25, 25), (25, 49)):
        plain = here.assign(rows[begin:end])
        found = there.assign(on(rows[begin:end]))
        assert found.labels.array.tolist() == plain.labels.tolist()
        assert found.scores.array.tobytes() == plain.scores.tobytes()
        assert found.created.array.tolist() == plain.created.tolist()
        assert (found.atom_count, found.warning) == (-1, None)
        assert math.isnan(found.largest_share)
    assert library.reads == 0
    same(here, there)
    slots, _ = riemem.reference.max_member(rows, threshold, route=route)[:2]
    assert there.labels.tolist() == list(slots)


@pytest.mark.parametrize("d", [3, 7, 8, 33])
@pytest.mark.parametrize("storage", ["float32", "int8"])
def test_odd_sizes_and_storages(library, d, storage):
    here, there = pair(d=d, storage=storage)
    rows = stream(40, d, d)
    plain, found = here.assign(rows), there.assign(on(rows))
    assert found.labels.array.tolist() == plain.labels.tolist()
    same(here, there)
    assert here.nearest(rows[:7])[0].tolist() == there.nearest(rows[:7])[0].tolist()


def test_host_and_device_take_turns(library):
    here, there = pair()
    rows = stream(64)
    for step in range(4):
        part = rows[step * 16 : step * 16 + 16]
        here.assign(part)
        there.assign(part if step % 2 else on(part))
        gone = here.ids[step :: 5 + step]
        here.remove(gone)
        assert there.remove(gone).removed == tuple(gone.tolist())
        same(here, there)
    here.number_atoms_from(500)
    there.number_atoms_from(500)
    more = stream(10, seed=9)
    ids = np.arange(1000, 1010)
    found = there.assign(on(more), ids=ids)
    assert found.labels.array.tolist() == here.assign(more, ids=ids).labels.tolist()
    with pytest.raises(ArgumentError, match="not in use, got 1003"):
        there.assign(on(more[:1]), ids=[1003])
    with pytest.raises(ArgumentError, match="not in use, got 1"):
        there.assign(on(more[:1]), ids=[1])
    same(here, there)


def test_the_nearest_atom_and_what_is_saved(library, tmp_path):
    here, there = pair()
    rows = stream(60)
    empty, nothing = there.nearest(on(rows[:2]))
    assert empty.array.tolist() == [-1, -1]
    assert np.isnan(nothing.array).all()
    here.assign(rows[:50])
    there.assign(on(rows[:50]))
    reads = library.reads
    plain, found = here.nearest(rows[50:]), there.nearest(on(rows[50:]))
    assert library.reads == reads
    assert found[0].array.tolist() == plain[0].tolist()
    assert found[1].array.tobytes() == plain[1].tobytes()
    bad = rows[50:].copy()
    bad[2] = 0.0
    assert there.nearest(on(bad))[0].array.tolist() == [-1] * 10
    assert there.nearest(on(bad[:0]))[0].array.tolist() == []
    there.save(tmp_path / "file")
    loaded = riemem.MaxMemberClusters.load(tmp_path / "file")
    loaded.assign(on(rows[50:]))
    here.assign(rows[50:])
    same(here, loaded)
    left, right = pair()
    left.assign(on(rows[:30]))
    right.assign(on(rows[30:]), ids=np.arange(30, 60))
    first, second = pair()
    first.assign(rows[:30])
    second.assign(rows[30:], ids=np.arange(30, 60))
    assert left.merge(right).atoms == first.merge(second).atoms
    same(first, left)


@pytest.mark.parametrize(("value", "error"), [(0.0, ZeroVectorError), (np.nan, NotFiniteError)])
def test_a_row_without_direction_stops_the_queue_and_is_named(library, value, error):
    here, there = pair()
    rows = stream(60)
    broken = rows[30:45].copy()
    broken[4] = value
    here.assign(rows[:30])
    there.assign(on(rows[:30]))
    there.assign(on(broken))
    late = there.assign(on(rows[45:]))
    assert late.labels.array.tolist() == [-1] * 15
    assert np.isnan(late.scores.array).all()
    assert not late.created.array.any()
    with pytest.raises(error, match=r"X: .*row 4 of rows given to the device"):
        there.stats()
    same(here, there)
    here.assign(rows[45:], ids=np.arange(45, 60))
    there.assign(on(rows[45:]), ids=np.arange(45, 60))
    same(here, there)


def test_bfloat16_rows_of_anybody_that_lie_apart(library):
    here, there = pair()
    rows = stream(40)
    narrow = bfloat16(rows)
    here.assign(exact(narrow))
    there.assign(narrow)
    wide = np.zeros((40, 15), np.float32)
    wide[:, :9] = rows
    for given in (HostArray(wide[:, :9]), Interface(rows), on(rows[0])):
        here.assign(rows if not isinstance(given, HostArray) or given.shape != (9,) else rows[0])
        there.assign(given)
    same(here, there)


def test_nothing_is_waited_for(library, shim):
    here, there = pair()
    rows = stream(40)
    here.assign(rows)
    there.assign(on(rows[:20]))
    shim.shim_defer(True)
    found = there.assign(on(rows[20:]))
    assert (found.labels.array == -1).all()  # as the memory was filled
    assert (library.reads, library.puts) == (0, 0)
    shim.synchronize(0)
    assert found.labels.array.tolist() == here.labels[20:].tolist()
    same(here, there)


def test_errors_leave_it_as_it_was(library, shim):
    here, there = pair()
    rows = stream(60)
    here.assign(rows[:20])
    there.assign(on(rows[:20]))
    library.limit = 2000
    with pytest.raises(CudaError, match=r"cudaErrorMemoryAllocation \(2\)"):
        there.assign(on(np.repeat(rows, 20, axis=0)))
    library.limit = None
    for launch in (0, 1, 2, 3, 9):
        shim.shim_fail_launch(launch, 719)
        with pytest.raises(CudaError, match=r"cudaErrorLaunchFailure \(719\)"):
            there.assign(on(rows[20:30]))
    shim.shim_fail_launch(-1, 0)
    with pytest.raises(DTypeError, match="X: expected float32 or bfloat16"):
        there.assign(on(rows.astype(np.float64)))
    with pytest.raises(ShapeError, match=r"X: expected shape \(N, 9\)"):
        there.assign(on(rows[:, :5]))
    with pytest.raises(ArgumentError, match="contiguous first"):
        there.assign(HostArray(rows[:, ::-1]))
    with pytest.raises(ShapeError, match="ids"):
        there.assign(on(rows[:3]), ids=[1, 2])
    same(here, there)
    here.assign(rows[20:])
    there.assign(on(rows[20:]))
    same(here, there)


def test_another_stream_waits_for_the_one_that_the_arrays_are_on(library, shim):
    here, there = pair()
    rows = stream(45)
    here.assign(rows)
    shim.shim_defer(True)
    for begin, current in ((0, 0), (15, 64), (30, 0)):
        library.current = current
        there.assign(on(rows[begin : begin + 15]))
    library.current = 64
    same(here, there)

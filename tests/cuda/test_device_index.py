"""`RiemannianIndex(device="cuda")`: the kernels run on the SIMT shim."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import riemem
from riemem.errors import CudaError, DeviceError, DTypeError, ShapeError, VramBudgetError

sys.path.insert(0, str(Path(__file__).parent))
from host_library import HostArray, bfloat16, exact

STORAGES = ["float32", "float32+int8", "bf16", "int8"]


def pair(storage="float32", dim=12, **options):
    """An index here and one on the device, to be treated alike."""
    made = [
        riemem.RiemannianIndex(dim, storage=storage, min_samples=8, **options, device=device)
        for device in (None, "cuda")
    ]
    return made[0], made[1]


def both(indexes, call):
    return [call(index) for index in indexes]


def equal(host, device):
    assert host.indices.tolist() == device.indices.tolist()
    assert host.scores.tobytes() == device.scores.tobytes()
    assert host.counts.tolist() == device.counts.tolist()
    assert host.empty.tolist() == device.empty.tolist()
    assert host.scoring == device.scoring


@pytest.mark.parametrize("storage", STORAGES)
def test_a_life_on_the_device_gives_the_same_bits(library, storage):
    rng = np.random.default_rng(5)
    indexes = pair(storage, cosine_weight=0.4)
    for step in range(4):
        rows = rng.normal(size=(50, 12)).astype(np.float32)
        rows[7] = rows[3]
        both(indexes, lambda index, rows=rows: index.add(rows))
        queries = rng.normal(size=(3, 12)).astype(np.float32)
        queries[1] = 0.0
        equal(*both(indexes, lambda index, q=queries: index.search(q, 9)))
        gone = indexes[0].ids[step :: 7 + step]
        both(indexes, lambda index, gone=gone: index.remove(gone))
        equal(*both(indexes, lambda index, q=queries: index.search(q[0], 4)))
    assert indexes[1].stats()["device"] == "cuda:0"
    assert indexes[1].stats()["device_nbytes"] > 0


@pytest.mark.parametrize("form", ["inner", "cosine", "mahalanobis"])
@pytest.mark.parametrize("norm", ["none", "minmax", "zscore"])
def test_every_form_and_norm(library, form, norm):
    rng = np.random.default_rng(6)
    indexes = pair(form=form, norm=norm, cosine_weight=0.5)
    rows, queries = rng.normal(size=(90, 12)), rng.normal(size=(2, 12))
    both(indexes, lambda index: index.add(rows))
    equal(*both(indexes, lambda index: index.search(queries, 11)))


def test_ids_that_do_not_grow_break_ties(library):
    indexes = pair(cosine_weight=1.0, norm="none")
    rows = np.tile(np.random.default_rng(7).normal(size=(4, 12)), (20, 1))
    ids = np.random.default_rng(8).permutation(80) * 10**12
    both(indexes, lambda index: index.add(rows, ids=ids))
    equal(*both(indexes, lambda index: index.search(rows[:2], 30)))


def test_filters(library):
    rng = np.random.default_rng(9)
    indexes = pair()
    rows, queries = rng.normal(size=(120, 12)), rng.normal(size=(2, 12)).astype(np.float32)
    both(indexes, lambda index: index.add(rows))
    mask = rng.random(120) < 0.3
    for filter in (mask, rng.random((2, 120)) < 0.1, [3, 77, 5], np.zeros(120, bool)):
        equal(*both(indexes, lambda index, f=filter: index.search(queries, 8, f)))
    found = indexes[1].search(HostArray(queries), 8, HostArray(mask))
    assert found.indices.array.tolist() == indexes[0].search(queries, 8, mask).indices.tolist()
    found = indexes[1].search(HostArray(queries), 8, [3, 77, 5])
    assert found.counts.array.tolist() == [3, 3]
    with pytest.raises(ShapeError, match="filter"):
        indexes[1].search(HostArray(queries), 8, HostArray(mask[:-1]))
    with pytest.raises(DTypeError, match="filter: expected bool"):
        indexes[1].search(HostArray(queries), 8, HostArray(np.arange(3)))


def test_queries_on_the_device_are_answered_there(library):
    rng = np.random.default_rng(10)
    indexes = pair(cosine_weight=0.2)
    rows = rng.normal(size=(100, 12)).astype(np.float32)
    both(indexes, lambda index: index.add(rows))
    queries = rng.normal(size=(4, 12)).astype(np.float32)
    queries[2] = 0.0
    indexes[1].search(HostArray(queries), 1)
    before = library.reads
    found = indexes[1].search(HostArray(queries), 6)
    assert library.reads == before
    plain = indexes[0].search(queries, 6)
    assert found.indices.array.tolist() == plain.indices.tolist()
    np.testing.assert_allclose(found.scores.array, plain.scores, rtol=1e-9, atol=1e-12)
    assert found.empty.array.tolist() == plain.empty.tolist()
    with pytest.raises(DeviceError, match=r"Q: .*device 0, got device 3"):
        indexes[1].search(HostArray(queries, 3), 6)


def test_rows_may_come_from_the_device(library):
    rows = np.random.default_rng(11).normal(size=(40, 12)).astype(np.float32)
    here, there = pair()
    here.add(rows)
    there.add(HostArray(rows))
    equal(here.search(rows[:2], 5), there.search(rows[:2], 5))
    with pytest.raises(DeviceError, match="X"):
        here.add(FakeInterface(rows))
    here, there = pair()
    narrow = bfloat16(rows)
    here.add(exact(narrow))
    there.add(narrow)
    equal(here.search(rows[:2], 5), there.search(rows[:2], 5))
    found = there.search(bfloat16(rows[:2]), 5)
    assert found.indices.array.tolist() == here.search(exact(bfloat16(rows[:2])), 5)[0].tolist()


class FakeInterface:
    def __init__(self, rows):
        self.__cuda_array_interface__ = rows.__array_interface__


def test_nothing_at_all(library):
    here, there = pair()
    query = np.ones((2, 12), np.float32)
    equal(here.search(query, 5), there.search(query, 5))
    assert there.search(HostArray(query), 5).indices.array.shape == (2, 0)
    both((here, there), lambda index: index.add(np.eye(12)))
    equal(here.search(query, 0), there.search(query, 0))
    equal(here.search(query, 99), there.search(query, 99))
    equal(here.search(query[:0], 3), there.search(query[:0], 3))


def test_a_full_device_leaves_the_index_as_it_was(library):
    here, there = pair()
    rows = np.random.default_rng(12).normal(size=(500, 12))
    both((here, there), lambda index: index.add(rows[:60]))
    library.limit = 10_000
    with pytest.raises(CudaError, match=r"cudaErrorMemoryAllocation \(2\)") as caught:
        there.add(rows)
    assert (caught.value.code, caught.value.name) == (2, "cudaErrorMemoryAllocation")
    assert len(there) == 60
    with pytest.raises(CudaError):
        there.search(rows[:100], 5)  # no room for the workspace
    library.limit = None
    equal(here.search(rows[:3], 5), there.search(rows[:3], 5))
    both((here, there), lambda index: index.add(rows))
    equal(here.search(rows[:3], 5), there.search(rows[:3], 5))


def test_a_launch_that_fails_leaves_the_index_as_it_was(library, shim):
    here, there = pair()
    rows = np.random.default_rng(13).normal(size=(80, 12))
    both((here, there), lambda index: index.add(rows))
    for launch in range(6):
        shim.shim_fail_launch(launch, 719)
        with pytest.raises(CudaError, match="719"):
            there.search(rows[:2], 5)
    shim.shim_fail_launch(-1, 0)
    equal(here.search(rows[:2], 5), there.search(rows[:2], 5))


class Card:
    """A device of 2 GiB of which a part is taken: what a budget asks."""

    def __init__(self, total, used):
        self.total, self.used = total, used

    def free_bytes(self):
        return self.total - self.used

    def used_bytes(self):
        return self.used

    def overhead_bytes(self):
        return 0


def test_a_budget_is_asked_before_memory_is_taken(library):
    card = Card(2 << 30, (2 << 30) - 40_000)
    budget = riemem.VramBudget(2 << 30, headroom=0.0, memory=card)
    index = riemem.RiemannianIndex(12, device="cuda", vram=budget)
    rows = np.random.default_rng(14).normal(size=(2000, 12))
    index.add(rows[:100])
    with pytest.raises(VramBudgetError) as caught:
        index.add(rows)
    assert caught.value.required_bytes > caught.value.free_bytes == 40_000
    assert len(index) == 100
    assert index.search(rows[:1], 1).indices.tolist() == [[0]]


def test_a_small_card_or_a_slice_holds_what_its_budget_allows(library):
    # The budget is more than the device has: what is free decides, and nothing is taken before.
    card = Card(2 << 30, (2 << 30) - 150_000)
    budget = riemem.VramBudget(80 << 30, headroom=0.0, memory=card)
    index = riemem.RiemannianIndex(12, device="cuda", vram=budget)
    rows = np.random.default_rng(16).normal(size=(1000, 12))
    index.reserve(1000)
    assert index.stats()["device_nbytes"] <= 150_000
    index.add(rows)
    with pytest.raises(VramBudgetError) as caught:
        index.reserve(100_000)
    assert (caught.value.budget_bytes, caught.value.free_bytes) == (80 << 30, 150_000)
    assert index.stats()["device_nbytes"] <= 150_000
    assert index.search(rows[3:4], 1).indices.tolist() == [[3]]


def test_an_index_is_saved_here_and_loaded_there(library, tmp_path):
    here, there = pair("bf16")
    rows = np.random.default_rng(15).normal(size=(70, 12))
    both((here, there), lambda index: index.add(rows))
    there.save(tmp_path / "file")
    loaded = riemem.RiemannianIndex.load(tmp_path / "file", device="cuda")
    assert loaded.stats()["device"] == "cuda:0"
    equal(here.search(rows[:2], 5), loaded.search(rows[:2], 5))

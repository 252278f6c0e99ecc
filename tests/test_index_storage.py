"""Every storage gives the bits of float32 storage, whatever the rows look like."""

from __future__ import annotations

import mmap
import threading
from typing import Any

import numpy as np
import pytest
import riemem
from hypothesis import given, settings
from hypothesis import strategies as st
from riemem import RiemannianIndex, _backend, _rows
from riemem.errors import ArgumentError, StoreError

STORAGES = ("float32", "float32+int8", "bf16", "int8")


def spectrum_rows(n: int, d: int, decay: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) * np.arange(1, d + 1.0) ** -decay).astype(np.float32)


def answers(rows: np.ndarray, queries: np.ndarray, k: int, **options: Any) -> list[Any]:
    found = []
    for storage in STORAGES:
        index = RiemannianIndex(rows.shape[1], storage=storage, **options)
        for part in np.array_split(rows, 3):  # tiles are filled in several steps
            if len(part):
                index.add(part)
        found.append(index.search(queries, k))
    return found


def assert_same(found: list[Any]) -> None:
    for other in found[1:]:
        np.testing.assert_array_equal(other.indices, found[0].indices)
        np.testing.assert_array_equal(other.scores, found[0].scores)


def shaped(kind: str, n: int, d: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind.startswith("spectrum"):
        return spectrum_rows(n, d, float(kind.split()[1]), seed)
    rows = rng.normal(size=(n, d)).astype(np.float32)
    if kind == "duplicates":
        return rows[rng.integers(0, max(1, n // 10), n)]
    if kind == "near duplicates":
        base = rows[rng.integers(0, max(1, n // 10), n)]
        return base + 1e-6 * rows
    if kind == "outlier dimension":
        rows[:, rng.integers(d)] *= 1e6
        return rows
    if kind == "outlier dimension, offset":
        rows[:, 0] += 1e6
        return rows
    if kind == "huge row":
        rows[n // 2] *= 1e30
        return rows
    if kind == "all equal":
        return np.repeat(rows[:1], n, axis=0)
    if kind == "tiny norms":
        return rows * np.float32(1e-25)
    assert kind == "denormal"
    return rows * np.float32(1e-41)


KINDS = (
    "spectrum 0.5",
    "spectrum 1",
    "spectrum 2",
    "duplicates",
    "near duplicates",
    "outlier dimension",
    "outlier dimension, offset",
    "huge row",
    "all equal",
    "tiny norms",
    "denormal",
)


@settings(max_examples=60)
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 700),
    d=st.sampled_from([1, 2, 3, 7, 16, 33, 64, 70, 129]),
    batch=st.integers(1, 9),
    k=st.integers(1, 12),
    form=st.sampled_from(["inner", "cosine", "mahalanobis"]),
    norm=st.sampled_from(["none", "minmax", "zscore"]),
    weight=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 2**16),
)
def test_storages_agree_bit_for_bit(
    kind: str, n: int, d: int, batch: int, k: int, form: str, norm: str, weight: float, seed: int
) -> None:
    rows = shaped(kind, n, d, seed)
    rows = rows[np.linalg.norm(rows.astype(np.float64), axis=1) > 0]
    if not len(rows):
        return
    queries = np.random.default_rng(seed + 1).normal(size=(batch, d))
    queries[0] = rows[len(rows) // 2]
    assert_same(answers(rows, queries, k, form=form, norm=norm, cosine_weight=weight))


def test_ids_equal_brute_force_in_float64() -> None:
    rows = spectrum_rows(5000, 96, 0.5, 3)
    queries = rows[::700] + 0.01
    for storage in STORAGES:
        index = RiemannianIndex(96, storage=storage)
        index.add(rows)
        found = index.search(queries, 10)
        unit = index.vectors()
        want = riemem.reference.fused_topk(
            queries / np.linalg.norm(queries, axis=1, keepdims=True),
            unit,
            index.metric,
            k=10,
            cosine_weight=0.0,
            form="cosine",
            norm="minmax",
        )
        np.testing.assert_array_equal(found.indices, want[0])


@pytest.mark.parametrize("storage", STORAGES)
def test_removal_and_growth_equal_a_fresh_index(storage: str) -> None:
    rows = spectrum_rows(900, 40, 0.5, 8)
    index = RiemannianIndex(40, storage=storage)
    index.add(rows[:500])
    index.search(rows[:2], 3)
    index.remove(np.arange(0, 500, 3))
    index.add(rows[500:])
    index.remove([501, 899])
    fresh = RiemannianIndex(40, storage=storage)
    fresh.add(index.vectors(), ids=index.ids)
    np.testing.assert_array_equal(index.vectors(), fresh.vectors())
    got, want = index.search(rows[:20], 10), fresh.search(rows[:20], 10)
    np.testing.assert_array_equal(got.indices, want.indices)
    np.testing.assert_allclose(got.scores, want.scores, rtol=0, atol=1e-9)


def test_few_rows_are_evaluated_exactly_and_counted() -> None:
    rows = spectrum_rows(20000, 64, 0.5, 1)
    index = RiemannianIndex(64, storage="float32+int8")
    index.add(rows)
    found = index.search(rows[:10], 10)
    assert 10 * 10 <= found.exact_rows < 10 * 400
    assert index.stats()["exact_rows"] == found.exact_rows
    assert index.stats()["unbounded_rows"] == 0


def test_equal_rows_are_evaluated_once() -> None:
    rng = np.random.default_rng(0)
    distinct = rng.normal(size=(40, 32))
    index = RiemannianIndex(32, storage="float32+int8")
    index.add(distinct[rng.integers(0, 40, 8000)])
    found = index.search(distinct[:4], 10)
    assert found.exact_rows <= 4 * 40


def test_an_outlier_dimension_costs_no_exactness_and_little_work() -> None:
    rows = spectrum_rows(20000, 64, 0.0, 2)
    rows[:, 17] *= 1e6
    index = RiemannianIndex(64, storage="float32+int8", form="inner")
    index.add(rows)
    plain = RiemannianIndex(64, form="inner")
    plain.add(rows)
    assert_same([plain.search(rows[:5], 10), index.search(rows[:5], 10)])


def test_out_of_memory_while_growing_leaves_the_index_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = spectrum_rows(300, 16, 0.5, 5)
    for storage in STORAGES:
        index = RiemannianIndex(16, storage=storage)
        index.add(rows[:200])
        before = index.search(rows[:3], 5)
        real, asked = np.empty, []

        def empty(shape: Any, *args: Any, _real: Any = real, _asked: Any = asked) -> Any:
            _asked.append(shape)
            if len(_asked) == 2:  # the second of several arrays that have to grow together
                raise MemoryError("no room")
            return _real(shape, *args)

        with monkeypatch.context() as patch:
            patch.setattr(_rows.np, "empty", empty)
            with pytest.raises(MemoryError, match="no room"):
                index.add(rows)
        assert len(index) == 200
        after = index.search(rows[:3], 5)
        np.testing.assert_array_equal(before.indices, after.indices)
        np.testing.assert_array_equal(before.scores, after.scores)
        assert index.add(rows).tolist() == list(range(200, 500))


def test_a_full_disk_is_an_error_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    index = RiemannianIndex(8, storage="int8")
    index.add(np.eye(8))
    monkeypatch.setattr(_rows.os, "posix_fallocate", full, raising=False)
    with pytest.raises(StoreError, match=r"^directory: cannot keep .* rows .*no space left"):
        index.add(np.random.default_rng(0).normal(size=(100, 8)))
    assert len(index) == 8
    assert index.search(np.eye(8)[3], 1).indices.tolist() == [[3]]


def test_int8_storage_keeps_rows_out_of_memory() -> None:
    rows = spectrum_rows(4096, 384, 0.5, 4)
    index = RiemannianIndex(384, storage="int8")
    index.add(rows)
    index.search(rows[:1], 1)
    metric_bytes = 8 * 384 * (3 * 384 + 3)
    assert (index.nbytes - metric_bytes) / rows.size <= 1.15
    both = RiemannianIndex(384, storage="float32+int8")
    both.add(rows)
    assert (both.nbytes - metric_bytes) / rows.size <= 5.15


@pytest.mark.parametrize("storage", STORAGES)
def test_reserved_room_is_used_and_changes_no_answer(storage: str) -> None:
    rows = spectrum_rows(600, 24, 0.5, 9)
    index, plain = RiemannianIndex(24, storage=storage), RiemannianIndex(24, storage=storage)
    index.reserve(600)
    index.reserve(3)  # less than there is: nothing
    held = index.nbytes
    for part in np.array_split(rows, 7):
        index.add(part)
        plain.add(part)
    assert index.nbytes == held
    assert_same([plain.search(rows[:5], 4), index.search(rows[:5], 4)])
    with pytest.raises(ArgumentError, match=r"^n: expected"):
        index.reserve(-1)


def test_directory_is_checked(tmp_path: Any) -> None:
    RiemannianIndex(4, storage="int8", directory=tmp_path).add(np.eye(4))
    assert list(tmp_path.iterdir()) == []  # the file has no name
    with pytest.raises(ArgumentError, match=r"^directory: expected an existing folder"):
        RiemannianIndex(4, storage="int8", directory=tmp_path / "absent")
    with pytest.raises(ArgumentError, match=r"^directory: expected None unless"):
        RiemannianIndex(4, directory=tmp_path)


def test_searches_while_another_thread_adds() -> None:
    rows = spectrum_rows(3000, 32, 0.5, 6)
    index = RiemannianIndex(32, storage="float32+int8", cosine_weight=1.0, norm="none")
    index.add(rows[:100])
    unit = rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    query = rows[5]
    exact = unit.astype(np.float32).astype(np.float64) @ (
        query / np.linalg.norm(query.astype(np.float64))
    )
    wrong: list[Any] = []
    done = threading.Event()

    def search() -> None:
        while not done.is_set():
            found = index.search(query, 5)
            if np.abs(found.scores[0] - exact[found.indices[0]]).max() > 1e-6:
                wrong.append(found)

    readers = [threading.Thread(target=search) for _ in range(2)]
    for reader in readers:
        reader.start()
    for start in range(100, 3000, 50):
        index.add(rows[start : start + 50])
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong


def _virtual(size: int) -> np.ndarray:
    """Zeros that take memory only where they are written."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    return np.frombuffer(mmap.mmap(-1, size, flags=flags), np.uint8)


@pytest.mark.skipif(not hasattr(mmap, "MAP_ANONYMOUS"), reason="needs anonymous memory maps")
def test_offsets_beyond_2_to_the_32_elements() -> None:
    d, n = 4096, 1_050_000  # n * d = 4.3e9 elements
    assert n * d > 2**32
    rows = _virtual(n * d * 4).view(np.float32).reshape(n, d)
    tiles = _virtual(-(-n // 64) * _backend.core.int8_tile_bytes(d))
    planted = [2**31 // (4 * d), 2**31 // d, 2**32 // d, n - 1]
    rng = np.random.default_rng(0)
    inv_norms, scale = np.zeros(n), np.zeros(n, np.float32)
    residual = np.zeros(n, np.float32)
    query = rng.normal(size=d)
    query /= np.linalg.norm(query)
    for distance, row in enumerate(planted):
        vector = query + 0.001 * (distance + 1) * rng.normal(size=d)
        rows[row] = vector / np.linalg.norm(vector)
        inv_norms[row] = 1.0
        one = rows[row : row + 1]
        tile_scale, tile_residual = np.zeros(n, np.float32), np.zeros(n, np.float32)
        _backend.core.quantize_int8(one, row, tiles, tile_scale, tile_residual)
        scale[row], residual[row] = tile_scale[row], tile_residual[row]
    q, zero = query[None], np.zeros(1)
    points = _backend.core.Points.int8(rows, inv_norms, None, None, None, tiles, scale, residual)
    indices, _, counts, _ = points.topk(q, np.zeros((1, d)), zero, zero, 1.0, 0, None, 4)
    assert counts.tolist() == [4]
    assert indices[0].tolist() == planted
    mask = np.zeros(n, bool)
    mask[planted] = True  # blocks that no row passes are not read
    points = _backend.core.Points.float32(rows, inv_norms, None, None, None)
    indices = points.topk(q, np.zeros((1, d)), zero, zero, 1.0, 0, mask, 4)[0]
    assert indices[0].tolist() == planted

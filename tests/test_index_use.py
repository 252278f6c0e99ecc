"""The index in use: collected fault reports, bad input, threads and processes."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from riemem import reference
from riemem.errors import (
    ArgumentError,
    DTypeError,
    NotFiniteError,
    ShapeError,
    ZeroVectorError,
)
from riemem.index import RiemannianIndex
from riemem.metric import FisherMetric


def data(n=100, d=12, seed=0):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(d, d)) * np.geomspace(3.0, 0.1, d)
    return (rng.normal(size=(n, d)) @ mixing.T + rng.normal(size=d)).astype(np.float32)


def unit(rows):
    rows = np.asarray(rows, np.float64)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def filled(rows=None, ids=None, **options):
    rows = data() if rows is None else rows
    index = RiemannianIndex(rows.shape[1], **options)
    index.add(rows, ids)
    return index


# -- the collected fault reports ---------------------------------------------------------------


def test_c01_zero_vectors_are_refused_and_nothing_is_added():
    index = RiemannianIndex(3)
    with pytest.raises(ZeroVectorError, match=r"^X: expected vectors .* zero vector in row 1$"):
        index.add([[1, 0, 0], [0, 0, 0], [0.9, 0.1, 0]])
    assert len(index) == 0
    index.add([[1, 0, 0], [0.9, 0.1, 0]], ids=[1, 3])
    top = index.search([1, 0, 0], k=2)
    assert top.indices.tolist() == [[1, 3]]
    assert top.scores[0] == pytest.approx([1.0, 0.993884], abs=1e-6)


def test_c03_huge_and_tiny_vectors_are_normalised():
    index = RiemannianIndex(128)
    for value in (3e19, 3e38, 1e-30, 1e-45):
        index.add(np.full(128, value, np.float32))
    np.testing.assert_allclose(index.vectors(), 128**-0.5, rtol=1e-6)
    assert index.search(np.ones(128), 4).scores[0] == pytest.approx([1.0] * 4, abs=1e-6)
    assert index.search(np.full(128, 3e38), 1).scores[0, 0] == pytest.approx(1.0, abs=1e-6)


def test_c20_bad_rows_are_named_and_nothing_is_added():
    index = filled()
    rows = data(5, seed=1)
    rows[3, 2] = np.nan
    with pytest.raises(NotFiniteError, match=r"^X: expected finite values .* in row 3$"):
        index.add(rows)
    assert len(index) == 100
    assert index.add(data(1)).tolist() == [100]
    with pytest.raises(NotFiniteError, match=r"^Q: expected finite values .* in row 3$"):
        index.search(rows)


def test_c30_c32_c34_c37_layouts_and_types():
    whole = np.random.default_rng(0).integers(1, 50, size=(80, 12)).astype(np.float32)
    expected = unit(whole)
    for rows in (
        whole[::-1][::-1],
        np.asfortranarray(whole),
        whole.astype(np.float64),
        whole.astype(np.float16),
        whole.astype(np.int32),
        whole.tolist(),
    ):
        index = filled(np.asarray(rows)) if not isinstance(rows, list) else RiemannianIndex(12)
        if isinstance(rows, list):
            index.add(rows)
        np.testing.assert_array_equal(index.vectors(), expected)
    np.testing.assert_array_equal(filled(whole[::-1]).vectors(), expected[::-1])
    np.testing.assert_array_equal(filled(whole[:, ::-1]).vectors(), expected[:, ::-1])
    np.testing.assert_array_equal(filled(whole[::2]).vectors(), expected[::2])
    top = filled(whole, cosine_weight=1.0, norm="none").search(whole[7].tolist(), 1)
    assert top.indices.tolist() == [[7]]
    assert top.scores[0, 0] >= 0.999999


def test_c41_vectors_outlive_growth_removal_and_the_index():
    rows = data()
    index = filled(rows)
    view = index.vectors()
    index.add(data(5000, seed=1))
    index.remove(np.arange(50))
    np.testing.assert_array_equal(view, unit(rows))
    del index
    gc.collect()
    junk = [np.full((1000, 12), 7.0, np.float32) for _ in range(200)]
    np.testing.assert_array_equal(view, unit(rows))
    assert len(junk) == 200
    with pytest.raises(ValueError, match=r"read-only"):
        view[0, 0] = 1.0


def test_the_callers_array_is_copied():
    rows = data()
    index = filled(rows)
    before = index.search(rows[:3], 5)
    rows[:] = 1.0
    np.testing.assert_array_equal(index.search(data()[:3], 5).scores, before.scores)


def test_c43_shapes():
    index = filled()
    for bad in ([], 3.0, np.zeros((2, 11)), np.zeros((1, 2, 12))):
        with pytest.raises(ShapeError, match=r"^X: expected shape \(N, 12\) or \(12,\), got \("):
            index.add(bad)
        with pytest.raises(ShapeError, match=r"^Q: expected shape \(B, 12\) or \(12,\), got \("):
            index.search(bad)
    assert index.search(data(1).tolist()).indices.shape == (1, 10)
    assert index.search(data(1)[0].tolist()).indices.shape == (1, 10)


def test_zero_queries_are_flagged():
    index = filled()
    queries = data(3, seed=1)
    queries[0] = 0.0
    top = index.search(queries, 2)
    assert top.empty.tolist() == [True, False, False]
    assert top.indices[0].tolist() == [-1, -1]
    assert top.counts.tolist() == [0, 2, 2]


def test_ids_that_do_not_fit():
    index = filled()
    two = data(2, seed=1)
    for ids, error, message in (
        ([5, 200], ArgumentError, r"^ids: expected ids that are not in use, got 5"),
        ([200, 200], ArgumentError, r"^ids: expected unique ids, got 200 more than once"),
        ([-1, 200], ArgumentError, r"^ids: expected integers in \[0, 2\^63\), got -1"),
        ([200], ShapeError, r"^ids: expected shape \(2,\), got \(1,\)"),
        (["a", "b"], DTypeError, r"^ids: expected integers, got dtype"),
        ([True, False], DTypeError, r"^ids: expected integers, got dtype bool"),
    ):
        with pytest.raises(error, match=message):
            index.add(two, ids=ids)
    assert len(index) == 100
    assert index.add(two).tolist() == [100, 101]


def test_options_out_of_range():
    with pytest.raises(ArgumentError, match=r"^storage: expected one of float32, float32\+int8"):
        RiemannianIndex(4, storage="float16")
    with pytest.raises(ArgumentError, match=r"^form: expected one of inner, cosine, mahalanobis"):
        RiemannianIndex(4, form="dot")
    with pytest.raises(ArgumentError, match=r"^ridge: expected a finite number"):
        RiemannianIndex(4, ridge=-2)
    with pytest.raises(ArgumentError, match=r"^dim: expected an integer >= 1, got 0"):
        RiemannianIndex(0)


def test_stats_and_nbytes():
    rows = data(1000)
    index = filled(rows)
    stats = index.stats()
    metric = FisherMetric.fit(unit(rows))
    assert stats["n"] == 1000
    assert stats["dim"] == index.dim == 12
    assert stats["rank"] == metric.rank
    assert stats["ridge_value"] == pytest.approx(metric.ridge_value)
    assert stats["condition_number"] == pytest.approx(metric.condition_number)
    assert (stats["scoring"], stats["storage"]) == ("fused", "float32")
    assert stats["nbytes"] == index.nbytes
    assert 1000 * (12 * 4 + 8 + 16) <= index.nbytes <= 1000 * (12 * 4 + 8 + 16) * 2 + 10_000


def test_torch_in_torch_out():
    torch = pytest.importorskip("torch")
    rows = data()
    index = RiemannianIndex(12)
    index.add(torch.from_numpy(rows))
    top = index.search(torch.from_numpy(rows[:4]), 3)
    assert isinstance(top.scores, torch.Tensor)
    np.testing.assert_array_equal(top.indices.numpy(), filled(rows).search(rows[:4], 3).indices)


# -- threads and processes ---------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_c45_readers_and_a_writer(weight):
    rows = data(1500, 16)
    index = RiemannianIndex(16, cosine_weight=weight, norm="none")
    added = 0
    done = threading.Event()
    failures: list[object] = []
    answers: list[list[tuple[int, object]]] = [[] for _ in range(4)]

    def read(which):
        rng = np.random.default_rng(which)
        while not done.is_set():
            before = added
            query = int(rng.integers(1500))
            top = index.search(rows[query], 5)
            after = len(index)
            hits = top.indices[0]
            if len(hits) < min(5, before) or (hits >= after).any() or (hits < 0).any():
                failures.append((before, after, hits))
            answers[which].append((query, top))

    readers = [threading.Thread(target=read, args=(i,)) for i in range(4)]
    for thread in readers:
        thread.start()
    for i, row in enumerate(rows):
        if index.add(row).tolist() != [i]:
            failures.append(i)
        added = i + 1
    done.set()
    for thread in readers:
        thread.join()
    assert not failures
    assert sum(map(len, answers)) > 0
    cosines = reference.cosine_scores(unit(rows), unit(rows))
    for query, top in (pair for some in answers for pair in some):
        if weight == 1.0 or top.scoring != "fused":
            np.testing.assert_allclose(top.scores[0], cosines[query, top.indices[0]], atol=1e-6)
    np.testing.assert_array_equal(
        index.search(rows[:50], 5).indices,
        filled(rows, cosine_weight=weight, norm="none").search(rows[:50], 5).indices,
    )


def test_writers_in_several_threads_lose_nothing():
    rows = data(400)
    index = RiemannianIndex(12)
    returned: list[list[int]] = [[] for _ in range(4)]

    def write(which):
        for row in rows[which::4]:
            returned[which] += index.add(row).tolist()
            if len(returned[which]) % 10 == 0:
                index.remove(returned[which].pop(0))

    threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = [i for some in returned for i in some]
    assert sorted(index.ids.tolist()) == sorted(kept)
    assert index.metric.n_samples == len(kept)
    for which, ids in enumerate(returned):
        stored = dict(zip(index.ids.tolist(), index.vectors(), strict=True))
        allowed = {row.tobytes() for row in unit(rows[which::4])}
        assert all(stored[i].tobytes() in allowed for i in ids)


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_c47_a_forked_child_can_search():
    script = """
        import os, signal, sys
        import numpy as np
        import riemem
        riemem.set_num_threads(2)
        rows = np.random.default_rng(0).normal(size=(20000, 64)).astype(np.float32)
        index = riemem.RiemannianIndex(64)
        index.add(rows)
        expected = index.search(rows[:3], 5)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            top = index.search(rows[:3], 5)
            os._exit(0 if np.array_equal(top.indices, expected.indices) else 3)
        _, status = os.waitpid(child, 0)
        sys.exit(os.waitstatus_to_exitcode(status))
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr

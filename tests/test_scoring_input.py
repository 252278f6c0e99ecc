"""search and scores: layouts, types, bad input, outputs, threads, and the collected reports."""

from __future__ import annotations

import pickle
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from riemem import _backend
from riemem._fused import Options, prepare_points, prepare_queries
from riemem.errors import (
    ArgumentError,
    BackendUnavailableError,
    DTypeError,
    NotFiniteError,
    ShapeError,
)
from riemem.metric import FisherMetric
from riemem.scoring import TopK, scores, search


def data(n=150, d=24, seed=0):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(d, d)) * np.geomspace(3.0, 0.1, d)
    return (rng.normal(size=(n, d)) @ mixing.T + rng.normal(size=d)).astype(np.float32)


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


# -- the collected fault reports -------------------------------------------------------------


def test_c01_a_zero_row_among_the_points_has_cosine_zero():
    points = [[1, 0, 0], [0, 0, 0], [0.9, 0.1, 0]]
    top = search([1, 0, 0], points, None, 3)
    assert top.indices.tolist() == [[0, 2, 1]]
    assert top.scores[0] == pytest.approx([1.0, 0.993884, 0.0], abs=1e-6)


def test_c03_norms_neither_overflow_nor_vanish():
    ones = np.ones(128, np.float32)
    for value in (3e19, 3e38, 1e-30, 1e-45):
        assert scores(ones, [np.full(128, value, np.float32)], None)[0, 0] == pytest.approx(
            1.0, abs=1e-6
        )
        assert scores(np.full(128, value, np.float32), [ones], None)[0, 0] == pytest.approx(
            1.0, abs=1e-6
        )


def test_c17_k_beyond_the_rows_and_an_empty_set():
    points = data(3, 4)
    metric = FisherMetric.fit(data(50, 4))
    assert search(points[0], points, metric, 6).indices.shape == (1, 3)
    top = search(points[0], points, metric, 6, mask=[True, False, True])
    assert sorted(top.indices[0].tolist()) == [0, 2]
    assert np.isfinite(top.scores).all()
    assert search(points, points, metric, 0).indices.shape == (3, 0)
    empty = search(points, np.zeros((0, 4)), metric, 6)
    assert empty.indices.shape == empty.scores.shape == (3, 0)
    assert empty.counts.tolist() == [0, 0, 0]
    assert scores(points, np.zeros((0, 4)), metric).shape == (3, 0)
    nothing = search(np.zeros((0, 4)), points, metric, 2)
    assert nothing.indices.shape == (0, 2)
    none_pass = search(points, points, metric, 2, mask=[False] * 3)
    assert none_pass.indices.shape == (3, 0)
    with pytest.raises(ValueError, match=r"^k: expected an integer >= 0, got -1"):
        search(points, points, metric, -1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_c20_bad_values_are_named_and_never_chosen(bad):
    points, queries = data(), data(4, seed=1)
    points[77, 3] = bad
    with pytest.raises(NotFiniteError, match=r"^points: expected finite values .* in row 77$"):
        search(queries, points, None)
    queries[2, 0] = bad
    for call in (search, scores):
        with pytest.raises(NotFiniteError, match=r"^queries: expected finite values .* row 2$"):
            call(queries, data(), None)


def test_c26_half_precision_rows_keep_distinct_scores():
    rng = np.random.default_rng(0)
    axis = np.zeros(16)
    axis[0] = 1.0
    rows = rng.normal(size=(200_000, 16)) + 5.6 * axis
    rows = rows.astype(np.float16)
    cosines = rows[:, 0] / np.linalg.norm(rows.astype(np.float64), axis=1)
    targets = [0.81234, 0.81255, 0.81249]
    chosen = [int(np.abs(cosines - target).argmin()) for target in targets]
    assert cosines[chosen] == pytest.approx(targets, abs=1e-5)
    assert len(set(cosines[chosen].astype(np.float16).tolist())) == 1
    top = search(axis.astype(np.float16), rows[chosen], None, 3)
    assert top.indices[0].tolist() == [1, 2, 0]
    assert top.scores[0] == pytest.approx(sorted(targets, reverse=True), abs=1e-5)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[::2],
        lambda x: x[::-1],
        lambda x: x[:, ::-1],
        lambda x: x[:, 3:20],
        np.asfortranarray,
        lambda x: x[::3, ::2],
    ],
    ids=["c30-step", "c32-rows", "c32-columns", "slice", "c37-fortran", "both"],
)
def test_layouts_do_not_matter(view):
    points = view(data())
    queries = view(data(9, seed=1))
    metric = FisherMetric.fit(points)
    straight = search(queries.copy(), points.copy(), metric.copy(), 5)
    seen = search(queries, points, metric, 5)
    np.testing.assert_array_equal(seen.indices, straight.indices)
    np.testing.assert_array_equal(seen.scores, straight.scores)


@pytest.mark.parametrize("dtype", ["f2", "f8", "i4", "u1", "list"])
def test_c34_types_are_converted_to_the_same_answer(dtype):
    points = np.random.default_rng(0).integers(0, 100, size=(60, 8))
    as_type = points.tolist() if dtype == "list" else points.astype(dtype)
    metric = FisherMetric.fit(as_type)
    top = search(as_type[4], as_type, metric, 3)
    expected = search(points[4].astype(np.float32), points.astype(np.float32), metric, 3)
    np.testing.assert_array_equal(top.indices, expected.indices)
    assert top.indices[0, 0] == 4
    assert scores(as_type[4], as_type, None)[0, 4] >= 0.999999


def test_inputs_are_left_alone():
    points, queries = data(), data(4, seed=1)
    points.flags.writeable = queries.flags.writeable = False
    before = points.copy(), queries.copy()
    search(queries, points, FisherMetric.fit(points))
    np.testing.assert_array_equal(points, before[0])
    np.testing.assert_array_equal(queries, before[1])


# -- masks, TopK, out --------------------------------------------------------------------------


def test_rows_of_a_batch_may_be_short():
    points = data(5, 4)
    mask = np.array([[True, True, True, False, False], [False, False, False, True, False]])
    top = search(points[:2], points, FisherMetric.fit(data(50, 4)), 4, mask=mask)
    assert top.indices.shape == (2, 3)
    assert top.counts.tolist() == [3, 1]
    assert top.indices[1].tolist() == [3, -1, -1]
    assert np.isnan(top.scores[1, 1:]).all()
    values = scores(points[:2], points, None, mask=mask)
    assert (np.isneginf(values) == ~mask).all()


def test_topk_is_a_pair_with_attributes():
    top = search(data(2), data(), None, 3)
    indices, best = top
    assert indices is top.indices
    assert best is top.scores
    assert len(top) == 2
    assert isinstance(top, tuple)
    assert (top.indices.dtype, top.scores.dtype, top.counts.dtype) == (
        np.int64,
        np.float64,
        np.int64,
    )
    again = pickle.loads(pickle.dumps(top))
    assert isinstance(again, TopK)
    np.testing.assert_array_equal(again.indices, top.indices)
    assert again.scoring == top.scoring
    assert repr(top).startswith("TopK(indices=array(")


def test_the_callers_k_results_can_be_written():
    top = search(data(2), data(), None, 3)
    top.scores[0, 0] = 5.0
    assert top.scores[0, 0] == 5.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_c39_out_is_filled_in_place(dtype):
    points, queries = data(), data(4, seed=1)
    metric = FisherMetric.fit(points)
    expected = scores(queries, points, metric, norm="none")
    for out in (
        np.full((4, 150), np.nan, dtype),
        np.full((8, 300), np.nan, dtype)[::2, ::2],
        np.full((150, 4), np.nan, dtype).T,
    ):
        assert scores(queries, points, metric, norm="none", out=out) is out
        np.testing.assert_array_equal(out, expected.astype(dtype))


def test_c39_what_cannot_be_filled_is_refused():
    points = data(24)
    fixed = np.zeros((2, 24))
    fixed.flags.writeable = False
    for out, error, message in (
        (np.zeros((2, 24), np.int64), DTypeError, r"^out: expected dtype float32 or float64, got"),
        (np.zeros((2, 24), ">f8"), DTypeError, r"^out: expected dtype float32 or float64, got >f8"),
        (np.zeros((24, 2)), ShapeError, r"^out: expected shape \(2, 24\), got \(24, 2\)"),
        ([[0.0] * 24] * 2, DTypeError, r"^out: expected a numpy array, got list"),
        (fixed, ArgumentError, r"^out: expected a writable array, got a read-only one"),
        (points[:2], ArgumentError, r"^out: expected memory of its own, got memory of an input"),
    ):
        with pytest.raises(error, match=message):
            scores(points[:2], points, None, out=out)


def test_torch_in_torch_out():
    torch = pytest.importorskip("torch")
    points, queries = data(), data(4, seed=1)
    metric = FisherMetric.fit(torch.from_numpy(points))
    expected = search(queries, points, metric, 5)
    top = search(torch.from_numpy(queries), torch.from_numpy(points), metric, 5)
    assert isinstance(top.indices, torch.Tensor)
    assert top.indices.dtype == torch.int64
    np.testing.assert_array_equal(top.indices.numpy(), expected.indices)
    np.testing.assert_array_equal(top.scores.numpy(), expected.scores)
    mask = torch.zeros(150, dtype=torch.bool)
    mask[3] = True
    assert search(queries[0], points, metric, 5, mask=mask).indices.tolist() == [[3]]
    values = scores(torch.from_numpy(queries), points, metric)
    assert values.dtype == torch.float64


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queries", "got"),
    [
        ([], r"\(0,\)"),
        (0.5, r"\(\)"),
        ([[0.1] * 23], r"\(1, 23\)"),
        (np.zeros((1, 1, 24)), r"\(1, 1"),
    ],
)
def test_c43_queries_of_another_shape(queries, got):
    with pytest.raises(
        ShapeError, match=rf"^queries: expected shape \(B, 24\) or \(24,\), got {got}"
    ):
        search(queries, data(), None)


def test_c43_a_nested_list_is_a_batch_of_one():
    points = data()
    top = search([points[3].tolist()], points, None, 1)
    assert top.indices.tolist() == [[3]]
    with pytest.raises(ShapeError, match=r"^queries: expected rows of equal length"):
        search([[0.1] * 24, [0.1]], points, None)


def test_points_must_fit_the_metric():
    metric = FisherMetric.fit(data())
    with pytest.raises(ShapeError, match=r"^points: expected shape \(N, 24\), got \(150, 8\)"):
        search(data(1, 8), data(150, 8), metric)
    with pytest.raises(ShapeError, match=r"^points: expected shape \(N, d\), got \(24,\)"):
        search(data(1), data(1)[0], None)
    with pytest.raises(DTypeError, match=r"^metric: expected a FisherMetric or None, got str"):
        search(data(1), data(), "full")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"k": 1.5}, DTypeError, r"^k: expected an integer, got 1.5"),
        ({"k": True}, DTypeError, r"^k: expected an integer, got True"),
        ({"k": "3"}, DTypeError, r"^k: expected an integer, got '3'"),
        ({"cosine_weight": 1.5}, ArgumentError, r"^cosine_weight: expected a finite number in"),
        ({"cosine_weight": np.nan}, ArgumentError, r"^cosine_weight: expected a finite number in"),
        ({"form": "l2"}, ArgumentError, r"^form: expected one of inner, cosine, mahalanobis"),
        ({"norm": "softmax"}, ArgumentError, r"^norm: expected one of none, minmax, zscore"),
        ({"backend": "cuda"}, BackendUnavailableError, r"^backend: expected one of auto, .*'cuda'"),
        ({"backend": "sse9"}, BackendUnavailableError, r"^backend: expected one of auto"),
        ({"backend": None}, DTypeError, r"^backend: expected a name, got None"),
        ({"mask": np.ones(3, bool)}, ShapeError, r"^mask: expected shape \(150,\) or \(1, 150\)"),
        ({"mask": np.ones(150)}, DTypeError, r"^mask: expected dtype bool, got float64"),
    ],
)
def test_options_out_of_range(options, error, message):
    with pytest.raises(error, match=message):
        search(data(1), data(), None, **options)


# -- threads -----------------------------------------------------------------------------------


def test_searches_from_many_threads_agree():
    points, queries = data(3000, 96), data(8, 96, seed=1)
    metric = FisherMetric.fit(points)
    expected = search(queries, points, metric, 10)
    failures = []

    def ask():
        for _ in range(5):
            top = search(queries, points, metric, 10)
            if not np.array_equal(top.indices, expected.indices):
                failures.append(top)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("kernel", ["topk", "scores", "quadratic_rows", "rows_times", "row_stats"])
def test_c49_the_kernels_release_the_interpreter_lock(kernel):
    points, queries = data(20_000, 64), data(4, 64, seed=1)
    metric = FisherMetric.fit(points[:500])
    options = Options(0.5, "inner", "zscore")
    p, q = prepare_points(points, metric, options), prepare_queries(queries, metric, options)
    shared = (q.q, q.w, q.offsets, q.bias, 0.5, 2, None)
    function, *arguments = {
        "topk": (p.kernel.topk, *shared, 10, "auto"),
        "scores": (p.kernel.scores, *shared, "auto", np.empty((4, 20_000))),
        "quadratic_rows": (_backend.core.quadratic_rows, points, metric.mean, metric.whitening()),
        "rows_times": (_backend.core.rows_times, points.astype(np.float64), metric.whitening()),
        "row_stats": (_backend.core.row_stats, points),
    }[kernel]

    def seen_at_work():
        started, finished = threading.Event(), threading.Event()

        def work():
            started.set()
            function(*arguments)
            finished.set()

        thread = threading.Thread(target=work)
        thread.start()
        started.wait()
        at_work = not finished.is_set()
        thread.join()
        return at_work

    # No thread is ever asked to give the lock away, so this one can get on before `finished` is
    # set only if the kernel gives it away by itself. It may still wake too late: try again.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    try:
        assert any(seen_at_work() for _ in range(50))
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("kind", ["array", "strided", "list", "torch"])
def test_c51_calls_keep_no_references_and_no_memory(kind):
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("needs /proc")
    points = data(40, 8)
    queries = data(2, 8, seed=1)
    if kind == "strided":
        points = points[:, ::-1]
    elif kind == "list":
        points, queries = points.tolist(), queries.tolist()
    elif kind == "torch":
        torch = pytest.importorskip("torch")
        points, queries = torch.from_numpy(points), torch.from_numpy(queries)
    metric = FisherMetric.fit(points)

    def ask(times):
        for _ in range(times):
            search(queries, points, metric, 3)
            scores(queries, points, metric)

    ask(500)
    counts = [sys.getrefcount(x) for x in (points, queries, metric)]
    before = int(statm.read_text().split()[1])
    ask(2000)
    assert int(statm.read_text().split()[1]) - before < 512  # pages of 4 KiB
    assert [sys.getrefcount(x) for x in (points, queries, metric)] == counts

"""The living index: exact after any history, total order by id, safe from any thread."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from riemem import reference
from riemem._fused import FORMS
from riemem.errors import (
    ArgumentError,
    DTypeError,
    MemoryNotFoundError,
    ShapeError,
)
from riemem.index import RiemannianIndex
from riemem.metric import FisherMetric
from riemem.scoring import search


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


# -- equal to search on arrays -----------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("covariance", ["full", "low_rank", "paper"])
@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_it_is_search_on_unit_rows(form, covariance, weight):
    rows, queries = data(), data(5, seed=1)
    index = filled(rows, covariance=covariance, form=form, cosine_weight=weight)
    metric = FisherMetric.fit(unit(rows), covariance=covariance)
    np.testing.assert_array_equal(index.vectors(), unit(rows))
    expected = search(unit(queries), unit(rows), metric, 7, form=form, cosine_weight=weight)
    top = index.search(queries, 7)
    np.testing.assert_array_equal(top.indices, expected.indices)
    np.testing.assert_array_equal(top.scores, expected.scores)
    truth = reference.fit(unit(rows), covariance)
    ids, best = reference.fused_topk(
        unit(queries), unit(rows), truth, 7, form=form, cosine_weight=weight
    )
    np.testing.assert_array_equal(top.indices, ids)
    np.testing.assert_allclose(top.scores, best, rtol=1e-9, atol=1e-10)


def test_defaults_are_the_default_preset():
    rows = data()
    top = filled(rows).search(rows[:4], 3)
    metric = FisherMetric.fit(unit(rows))
    np.testing.assert_array_equal(top.scores, search(unit(rows[:4]), unit(rows), metric, 3).scores)
    assert top.indices[:, 0].tolist() == [0, 1, 2, 3]


def test_few_rows_are_searched_by_cosine_which_is_said():
    rows = data(40)
    index = filled(rows[:31])
    top = index.search(rows[5], 2)
    assert top.scoring == "cosine: 31 samples < min_samples 32"
    assert top.indices[0, 0] == 5
    assert top.scores[0, 0] == pytest.approx(1.0, abs=1e-6)
    assert index.stats()["scoring"] == top.scoring
    index.add(rows[31:])
    assert index.search(rows[5], 2).scoring == "fused"
    assert filled(rows[:1], min_samples=1).search(rows[0], 1).scoring == "fused"


def test_an_empty_index():
    index = RiemannianIndex(4)
    assert len(index) == 0
    top = index.search(np.ones((3, 4)), 5)
    assert top.indices.shape == (3, 0)
    assert top.scoring == "cosine: 0 samples < min_samples 32"
    assert index.add(np.zeros((0, 4))).tolist() == []
    assert index.vectors().shape == (0, 4)
    assert index.ids.tolist() == []
    assert index.stats()["n"] == 0


@pytest.mark.parametrize("form", FORMS)
def test_one_row_and_equal_rows_under_the_fused_score(form):
    row = data(1)
    for rows in (row, np.tile(row, (50, 1))):
        index = filled(rows, min_samples=1, form=form)
        top = index.search(data(2, seed=1), 3)
        assert top.indices.tolist() == [list(range(min(3, len(rows))))] * 2
        assert (top.scores == 0.0).all()


# -- life ----------------------------------------------------------------------------------------


def test_ids_count_up_and_are_never_used_again():
    rows = data(10)
    index = RiemannianIndex(12)
    assert index.add(rows[:3]).tolist() == [0, 1, 2]
    index.remove([2])
    assert index.add(rows[3]).tolist() == [3]
    assert index.add(rows[4:6], ids=[100, 7]).tolist() == [100, 7]
    assert index.add(rows[6:7]).tolist() == [101]
    assert index.ids.tolist() == [0, 1, 3, 100, 7, 101]
    assert index.add(rows[8], ids=2).tolist() == [2]  # asked for by name
    index.remove(2)
    assert index.add(rows[8], ids=[2**63 - 1]).tolist() == [2**63 - 1]
    with pytest.raises(ArgumentError, match=r"^ids: expected to be given, because the largest"):
        index.add(rows[9])


def test_removed_rows_are_gone_from_the_answer_and_from_the_metric():
    rows = data()
    index = filled(rows)
    index.search(rows[0])
    gone = [3, 50, 99, 0]
    index.remove(gone)
    kept = np.setdiff1d(np.arange(100), gone)
    assert index.ids.tolist() == kept.tolist()
    np.testing.assert_array_equal(index.vectors(), unit(rows)[kept])
    afresh = filled(rows[kept], ids=kept)
    top, expected = index.search(rows, 10), afresh.search(rows, 10)
    np.testing.assert_array_equal(top.indices, expected.indices)
    np.testing.assert_allclose(top.scores, expected.scores, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(index.metric.sigma(), afresh.metric.sigma(), atol=1e-14)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(-8, 12), min_size=1, max_size=25))
def test_any_history_answers_as_one_built_afresh(seed, steps):
    rng = np.random.default_rng(seed)
    rows = data(300, 5, seed)
    index = RiemannianIndex(5, min_samples=4, ridge=0.5)
    held: dict[int, int] = {}
    used = 0
    for step in steps:
        if step >= 0:
            for i in index.add(rows[used : used + step]).tolist():
                held[i] = used
                used += 1
        else:
            out = rng.permutation(list(held)).astype(int)[:-step].tolist()
            index.remove(out)
            for i in out:
                del held[i]
        if rng.random() < 0.5:
            index.refresh()
    assert index.ids.tolist() == list(held)
    assert len(index) == len(held)
    if held:
        afresh = filled(rows[list(held.values())], list(held), min_samples=4, ridge=0.5)
        top, expected = index.search(rows[:3], 6), afresh.search(rows[:3], 6)
        np.testing.assert_array_equal(top.indices, expected.indices)
        np.testing.assert_allclose(top.scores, expected.scores, rtol=1e-8, atol=1e-9)
        assert top.scoring == expected.scoring


def test_down_to_nothing_and_up_again():
    rows = data()
    index = filled(rows)
    index.search(rows[0])
    index.remove(index.ids)
    assert len(index) == 0
    assert index.search(rows[0]).indices.shape == (1, 0)
    ids = index.add(rows)
    assert ids.tolist() == list(range(100, 200))
    np.testing.assert_array_equal(
        index.search(rows, 5).indices - 100, filled(rows).search(rows, 5).indices
    )


def test_unknown_ids_are_refused_and_nothing_is_removed():
    index = filled()
    with pytest.raises(MemoryNotFoundError, match=r"^ids: expected ids in use, got 100"):
        index.remove([3, 100])
    assert len(index) == 100
    assert index.ids[3] == 3
    with pytest.raises(DTypeError, match=r"^ids: expected integers, got dtype float64"):
        index.remove([1.0])
    index.remove([])
    index.remove([5, 5])
    assert len(index) == 99


# -- order and filter ------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["none", "minmax"])
@pytest.mark.parametrize("form", FORMS)
def test_c22_ties_go_to_the_lower_id_whatever_the_order_of_adding(form, norm):
    base = data(6)
    rows = base[[0, 1, 0, 2, 0, 3, 0, 1, 0, 4, 5]]
    ids = np.array([50, 9, 7, 30, 60, 2, 1, 8, 40, 3, 90])
    rows = np.concatenate([rows, data(40, seed=4)])
    ids = np.concatenate([ids, np.arange(1000, 960, -1)])
    index = filled(rows, ids, form=form, norm=norm, cosine_weight=0.3)
    order = np.argsort(ids)
    for k in range(1, 12):
        expected = filled(rows[order], ids[order], form=form, norm=norm, cosine_weight=0.3).search(
            base[:2], k
        )
        top = index.search(base[:2], k)
        np.testing.assert_array_equal(top.indices, expected.indices)
    assert index.search(base[0], 3).indices.tolist() == [[1, 7, 40]]


def test_filter_by_mask_and_by_ids_agree():
    rows = data()
    ids = np.arange(100) * 3
    index = filled(rows, ids)
    allowed = ids[[4, 8, 77, 99]]
    mask = np.isin(ids, allowed)
    by_mask = index.search(rows[:3], 10, filter=mask)
    assert by_mask.indices.shape == (3, 4)
    assert set(by_mask.indices.ravel().tolist()) == set(allowed.tolist())
    for same in (allowed, allowed.tolist(), set(allowed.tolist()), [*allowed.tolist(), 1, 10**9]):
        by_ids = index.search(rows[:3], 10, filter=same)
        np.testing.assert_array_equal(by_ids.indices, by_mask.indices)
        np.testing.assert_array_equal(by_ids.scores, by_mask.scores)
    per_query = index.search(rows[:2], 3, filter=np.stack([mask, ~mask]))
    assert set(per_query.indices[0].tolist()) <= set(allowed.tolist())
    assert not set(per_query.indices[1].tolist()) & set(allowed.tolist())


def test_c17_a_filter_that_leaves_less_than_k():
    index = filled(data(3), min_samples=1)
    assert index.search(data(1), 6).indices.shape == (1, 3)
    assert index.search(data(1), 6, filter=[0, 2]).indices.shape == (1, 2)
    assert index.search(data(1), 6, filter=[]).indices.shape == (1, 0)
    assert index.search(data(1), 6, filter=[99]).indices.shape == (1, 0)
    assert index.search(data(1), 0).indices.shape == (1, 0)
    with pytest.raises(ValueError, match=r"^k: expected an integer >= 0, got -3"):
        index.search(data(1), -3)


def test_filters_that_do_not_fit():
    index = filled()
    with pytest.raises(ShapeError, match=r"^filter: expected shape \(100,\) or \(1, 100\), got"):
        index.search(data(1), filter=np.ones(99, bool))
    with pytest.raises(DTypeError, match=r"^filter: expected integers, got dtype float64"):
        index.search(data(1), filter=[0.5])
    with pytest.raises(ShapeError, match=r"^filter: expected ids of shape \(M,\), got \(1, 2\)"):
        index.search(data(1), filter=[[1, 2]])


# -- life among threads ------------------------------------------------------------------------


def test_a_search_among_adds_answers_for_one_moment():
    rows, query = data(260, 8), data(1, 8, seed=5)
    index = RiemannianIndex(8)
    index.add(rows[:40])
    found, errors = [], []
    done = threading.Event()

    def read():
        try:
            while not done.is_set():
                found.append(index.search(query, 1000))
        except BaseException as error:
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for row in rows[40:]:
        index.add(row)
    done.set()
    for reader in readers:
        reader.join()
    found.append(index.search(query, 1000))
    assert not errors
    sizes = {top.indices.shape[1]: top for top in found}
    assert max(sizes) == 260
    for n, top in sizes.items():  # every answer is the one of a prefix, to the last score
        assert sorted(top.indices[0].tolist()) == list(range(n))
        expected = filled(rows[:n]).search(query, 1000)
        np.testing.assert_array_equal(top.indices, expected.indices)
        np.testing.assert_allclose(top.scores, expected.scores, rtol=1e-9, atol=1e-10)


def test_five_thousand_random_changes_answer_as_one_built_afresh():
    rng = np.random.default_rng(3)
    rows = data(2500, 8)
    index = RiemannianIndex(8, cosine_weight=0.0, norm="none")
    held: list[int] = []
    used = changes = 0
    while changes < 5000:
        if used < 2500 and (len(held) < 60 or rng.random() < 0.52):
            count = int(rng.integers(1, 30))
            held += index.add(rows[used : used + count]).tolist()
            changes += min(count, 2500 - used)
            used = min(used + count, 2500)
        else:
            gone = rng.choice(
                held, size=min(len(held) - 40, int(rng.integers(1, 30))), replace=False
            )
            index.remove(gone)
            held = sorted(set(held) - set(gone.tolist()))
            changes += gone.size
        if used == 2500 and len(held) < 80:
            break
        if rng.random() < 0.1:
            index.search(rows[:1])
    fresh = filled(rows[held], ids=held, cosine_weight=0.0, norm="none")
    top, expected = index.search(rows[:30], 20), fresh.search(rows[:30], 20)
    np.testing.assert_array_equal(top.indices, expected.indices)
    np.testing.assert_allclose(top.scores, expected.scores, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        index.metric.covariance_matrix(), fresh.metric.covariance_matrix(), rtol=0, atol=1e-12
    )

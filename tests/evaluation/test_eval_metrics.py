"""Metrics against hand-made values, set definitions and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from riemem.errors import ArgumentError, ShapeError
from riemem.evaluation.metrics import (
    HIT_SIZES,
    NAMES,
    average,
    gold_ranks,
    hubness_skewness,
    paired_bootstrap,
    question_metrics,
)


def test_values_worked_out_by_hand():
    ranking = [7, 3, 9, 1, 0, 2, 4, 5, 6, 8, 10, 11]
    assert gold_ranks(ranking, [9, 11, 99]) == [3.0, 12.0, math.inf]
    values = question_metrics([3.0, 12.0, math.inf])
    assert values == {
        "hit@1": 0.0,
        "hit@5": 1.0,
        "hit@10": 1.0,
        "hit@20": 1.0,
        "hit@50": 1.0,
        "recall@10": pytest.approx(1 / 3),
        "all@10": 0.0,
        "mrr": pytest.approx(1 / 3),
    }
    assert question_metrics([10.0])["all@10"] == 1.0
    assert question_metrics([11.0])["recall@10"] == 0.0


def test_right_answer_that_was_not_returned():
    values = question_metrics(gold_ranks([], [4]))
    assert set(values.values()) == {0.0}
    with pytest.raises(ArgumentError, match=r"^ranks: expected at least one"):
        question_metrics([])


@given(st.permutations(list(range(30))), st.sets(st.integers(0, 40), min_size=1, max_size=6))
def test_same_as_the_definitions_on_sets(ranking, gold):
    values = question_metrics(gold_ranks(ranking, sorted(gold)))
    for k in HIT_SIZES:
        assert values[f"hit@{k}"] == float(bool(gold & set(ranking[:k])))
    assert values["recall@10"] == pytest.approx(len(gold & set(ranking[:10])) / len(gold))
    assert values["all@10"] == float(gold <= set(ranking[:10]))
    first = next((i for i, row in enumerate(ranking, 1) if row in gold), None)
    assert values["mrr"] == (0.0 if first is None else pytest.approx(1 / first))


@given(st.lists(st.lists(st.integers(0, 19), max_size=14, unique=True), min_size=1, max_size=12))
def test_hubness_is_the_skewness_of_scipy(rankings):
    stats = pytest.importorskip("scipy.stats")
    counts = np.zeros(20)
    for ranking in rankings:
        for row in ranking[:10]:
            counts[row] += 1
    expected = stats.skew(counts) if np.ptp(counts) else 0.0
    assert hubness_skewness(rankings, 20) == pytest.approx(expected, abs=1e-12)


def test_average():
    rows = [question_metrics([1.0]), question_metrics([4.0, 20.0])]
    result = average(rows)
    assert list(result) == list(NAMES)
    assert (result["hit@1"], result["recall@10"], result["mrr"]) == (0.5, 0.75, 0.625)


def test_bootstrap_interval_is_that_of_the_normal_law_for_many_questions():
    difference = np.random.default_rng(3).normal(0.1, 0.5, size=2000)
    found = paired_bootstrap(difference)
    half = 1.96 * difference.std() / math.sqrt(2000)
    assert found["mean"] == pytest.approx(difference.mean())
    assert found["low"] == pytest.approx(difference.mean() - half, abs=0.1 * half)
    assert found["high"] == pytest.approx(difference.mean() + half, abs=0.1 * half)


def test_bootstrap_is_seeded_and_refuses_nothing():
    difference = np.array([1.0, 0.0, -1.0, 1.0])
    assert paired_bootstrap(difference) == paired_bootstrap(difference)
    assert paired_bootstrap(difference, seed=1) != paired_bootstrap(-difference, seed=1)
    zero = paired_bootstrap(np.zeros(7))
    assert zero == {"mean": 0.0, "low": 0.0, "high": 0.0}
    for bad in (np.zeros(0), np.zeros((2, 2))):
        with pytest.raises(ShapeError, match=r"^difference: expected shape"):
            paired_bootstrap(bad)

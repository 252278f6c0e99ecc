"""What narrowing leaves out is never among the best, however the near scores err."""

from __future__ import annotations

from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from riemem.retrieval import certain
from riemem.retrieval.beside import beside
from riemem.retrieval.certain import Case, ExactScores, NearBest
from riemem.retrieval.embedding import MAX_CHUNKS
from riemem.retrieval.fusion import Ranking, added_up, fuse
from riemem.retrieval.vector_rows import VectorRows

RANKING = Ranking(
    "mine",
    {"dense": 3.5, "lexical": 5.0, "likeness": 4.5, "substance": 2.0, "questions": -0.5},
    kernel={-1: 0.4, 2: -0.3, 3: 0.2},
    answers=0.5,
)


class View(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.ids)


class Alike:
    """A likeness whose scores are known."""

    def __init__(self, exact, off, errors):
        self.exact, self.off, self.errors = exact, off, errors

    def nearly(self):
        return self.exact + self.off * self.errors, self.off

    def some(self, rows):
        return self.exact[rows]


def a_case(n, seed, ranking, off, single):
    """Rows in sessions, some hidden, and the exact score of every vector; errors at their worst."""
    rng = np.random.default_rng(seed)
    sessions = np.sort(rng.integers(0, 4, n)).astype(np.int32)
    cache = {}
    view = View(
        ids=rng.permutation(n) + 1,
        alive=rng.random(n) < 0.9,
        beside=beside(np.arange(n), sessions, n),
        questions=(rng.random(n) < 0.3).astype(float),
        cached=lambda name, make: cache.setdefault(name, make()),
        nothing=lambda: cache.setdefault("nothing", np.zeros(n)),
    )
    chunks = np.where(rng.random(n) < 0.1, 0, 1 if single else rng.integers(1, 3, n))
    owners = np.sort(np.repeat(view.ids, chunks))
    first = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
    chunk = np.arange(owners.size) - np.repeat(first, np.diff(np.r_[first, owners.size]))
    keys = owners * MAX_CHUNKS + chunk
    own = VectorRows(keys, view)
    steps = rng.integers(0, 6, keys.size) / 5.0  # many ties
    channels = {
        "lexical": rng.integers(0, 3, n) / 2.0,
        "substance": rng.random(n),
        "questions": view.questions,
    }
    near = steps + off * rng.choice([-1.0, 1.0], keys.size)
    asked = []

    def more(positions):
        asked.extend(positions.tolist())
        return steps[positions]

    found = SimpleNamespace(keys=keys, rows=None, more=more, off=off)
    passes = view.alive & (rng.random(n) < 0.9)
    exact = {**channels, "dense": own.spread(steps).copy()}
    channels["dense"] = own.spread(near).copy()
    case = Case(ranking, "fact", view, passes, channels, found, lambda keys, view: own)
    return case, exact, asked


@pytest.mark.parametrize("again", [False, True])
@given(
    st.integers(1, 60),
    st.integers(0, 2**32 - 1),
    st.integers(1, 12),
    st.sampled_from([0.0, 0.01, 0.1, 0.5]),
    st.booleans(),
)
def test_the_best_are_among_the_candidates(again, n, seed, k, off, single):
    case, channels, asked = a_case(n, seed, RANKING, off, single)
    rng = np.random.default_rng(seed + 1)
    exact = ExactScores(case)
    with mock.patch.object(certain, "_FEW", -1000 if again else 1000):
        near = NearBest(case, exact)
        bare = near.candidates(min(k, 3))
        exact.fill_around(bare)
        _holds_the_best(bare, RANKING.without_likeness, case, channels, min(k, 3))
        alike = Alike(rng.integers(0, 4, n) / 3.0, off / 2, rng.choice([-1.0, 1.0], n))
        rows = near.candidates(k, alike)
        exact.fill_around(rows)
    _holds_the_best(rows, RANKING, case, {**channels, "likeness": alike.exact}, k)
    assert len(asked) == len(set(asked))  # none is scored twice


def _holds_the_best(rows, ranking, case, channels, k):
    """Every row that can be among the k best is there, with the bits that all rows would give."""
    want = fuse(ranking, channels, case.view, case.passes, "fact")
    edge = np.sort(want.scores)[-k:][0] if want.rows.size else 0.0
    best = want.rows[want.scores >= edge].tolist()
    assert set(best) <= set(rows.tolist())
    assert case.passes[rows].all()
    assert (np.diff(rows) > 0).all()
    got = fuse(ranking, case.channels, case.view, case.passes, "fact", rows)
    scores = dict(zip(want.rows.tolist(), want.scores.tolist(), strict=True))
    assert got.scores.tolist() == [scores[row] for row in rows.tolist()]


def test_what_no_row_lends_is_not_scored():
    only = Ranking("only", {"dense": 1.0})
    case, channels, asked = a_case(40, 3, only, 0.01, single=True)
    exact = ExactScores(case)
    exact.fill_around(np.array([3, 7]))
    assert len(asked) <= 2
    asked.clear()
    case, channels, asked = a_case(40, 3, RANKING, 0.01, single=True)
    exact = ExactScores(case)
    exact.fill(np.array([20]))
    exact.fill_around(np.array([20]))
    side = [case.view.beside.before[0], case.view.beside.after[1], case.view.beside.after[2]]
    around = {20, *(int(own[20]) for own in side)} - {40}
    for row in range(40):
        assert case.channels["dense"][row] == channels["dense"][row] or row not in around
    assert len(asked) <= len(around)


def test_the_quick_sums_are_those_of_fuse_whatever_the_weights():
    case, channels, _ = a_case(50, 5, RANKING, 0.0, single=True)
    channels["likeness"] = case.view.nothing()
    for i in range(20):  # more than are remembered for one state of the memories
        weights = {**RANKING.weights, "substance": 1.0 + i % 12, "questions": 0.5 * i}
        ranking = Ranking("mine", weights, kernel=RANKING.kernel, answers=0.1 * i)
        sums = added_up(ranking, channels, case.view, case.passes, "fact")
        full = fuse(ranking, channels, case.view, case.passes, "fact")
        assert sums[full.rows] == pytest.approx(full.scores, abs=1e-12)

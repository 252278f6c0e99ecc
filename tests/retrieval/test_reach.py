"""Rows within reach and the vectors of rows are those that plain loops find."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from riemem.retrieval.beside import beside
from riemem.retrieval.embedding import MAX_CHUNKS
from riemem.retrieval.narrowing import with_neighbours
from riemem.retrieval.neighbours import Lenders, lent
from riemem.retrieval.vector_rows import VectorRows


@given(st.integers(1, 12), st.data())
def test_the_rows_within_reach_are_the_union_of_all_sides(n, data):
    sessions = data.draw(st.lists(st.sampled_from([-1, 0, 1, 4]), min_size=n, max_size=n))
    said = data.draw(st.permutations(range(n)))
    turns = {s: [i for i in said if sessions[i] == s] for s in (0, 1, 4)}
    order = [i for own in turns.values() for i in own]
    found = beside(np.array(order, np.int64), np.array([sessions[i] for i in order], np.int32), n)

    def turn_at(i, distance):
        """The row so many turns later; n, one place past the rows, is the one that is not there."""
        own = turns.get(sessions[i], [])
        at = own.index(i) + distance if own else -1
        return own[at] if 0 <= at < len(own) else n

    before = [[turn_at(i, -d) for i in range(n)] for d in (1, 2, 3)]
    after = [[turn_at(i, d) for i in range(n)] for d in (1, 2, 3)]
    assert [own.tolist() for own in found.before] == before
    assert [own.tolist() for own in found.after] == after
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, n - 1)))), np.int64)

    class View(SimpleNamespace):
        def __len__(self) -> int:
            return n

    asks = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=n, max_size=n)))
    cache = {}
    view = View(
        beside=found, questions=asks, cached=lambda name, make: cache.setdefault(name, make())
    )
    own = own_rows = rows.tolist()
    expected = {*own, *(side[i] for side in (*before, *after) for i in own)} - {n}
    together = with_neighbours(rows, view)
    assert together.dtype == np.int64
    assert together.tolist() == sorted(expected)

    base = np.linspace(-1.0, 1.0, n)
    padded = [*base.tolist(), 0.0]
    with_none = np.array(padded)
    sums = [0.5 * padded[before[0][i]] + 0.25 * padded[after[1][i]] for i in range(n)]
    assert lent(with_none, view, {-1: 0.5, 2: 0.25}).tolist() == pytest.approx(sums, abs=1e-15)
    asked = [*(base * asks).tolist(), 0.0]
    sums = [own + 0.3 * asked[before[0][i]] for i, own in enumerate(sums)]
    assert lent(with_none, view, {-1: 0.5, 2: 0.25}, 0.3).tolist() == pytest.approx(sums, abs=1e-15)

    passes = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), np.bool_)
    lends = [*passes.tolist(), False]
    some = [
        0.5 * (padded[before[0][i]] if lends[before[0][i]] else 0.0)
        + 0.25 * (padded[after[1][i]] if lends[after[1][i]] else 0.0)
        for i in rows.tolist()
    ]
    lenders = Lenders(view, passes, {2: 0.25, -1: 0.5}, rows)
    assert lenders.scores([(1.0, base)], {-1: 0.5, 2: 0.25}).tolist() == some
    lenders = Lenders(view, passes, [3, 2, -1], rows)
    assert lenders.scores([(1.0, base)], {-1: 0.5, 2: 0.25}).tolist() == some
    asked = [*(base * asks).tolist(), 0.0]
    before_it = [0.3 * asked[before[0][i]] if lends[before[0][i]] else 0.0 for i in own_rows]
    assert lenders.scores([(1.0, base)], {-1: 0.3}, asks).tolist() == before_it


@given(st.integers(1, 12), st.integers(1, 3), st.data())
def test_vectors_of_rows_are_those_whose_memory_is_there(n, most, data):
    ids = np.array(data.draw(st.permutations(range(1, n + 1))), np.int64)
    alive = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), np.bool_)
    chunks = data.draw(st.dictionaries(st.integers(1, n + 2), st.integers(1, most)))
    keys = np.array(
        [i * MAX_CHUNKS + c for i in sorted(chunks) for c in range(chunks[i])], np.int64
    )
    scores = np.linspace(-1.0, 1.0, keys.size)[::-1].copy()

    class View(SimpleNamespace):
        def __len__(self) -> int:
            return n

    own = VectorRows(keys, View(ids=ids, alive=alive))
    mine = [
        [p for p, key in enumerate(keys.tolist()) if alive[row] and key // MAX_CHUNKS == ids[row]]
        for row in range(n)
    ]
    assert own.single == all(count == 1 for count in chunks.values())
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, n - 1)))), np.int64)
    positions, counts = own.positions(rows)
    assert positions.tolist() == [p for row in rows.tolist() for p in mine[row]]
    assert counts.tolist() == [len(mine[row]) for row in rows.tolist()]
    best = [max(scores[p] for p in mine[row]) if mine[row] else 0.0 for row in range(n)]
    assert own.spread(scores).tolist() == best
    if positions.size:
        found = own.best(scores[positions], counts).tolist()
        assert found == [best[row] for row in rows.tolist() if mine[row]]

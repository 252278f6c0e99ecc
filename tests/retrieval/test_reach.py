"""Rows within reach and the vectors of rows are those that plain loops find."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from riemem.retrieval.embedding import MAX_CHUNKS
from riemem.retrieval.narrowing import with_neighbours
from riemem.retrieval.neighbours import lent, neighbour_scores
from riemem.retrieval.vector_rows import VectorRows


@given(st.integers(1, 12), st.data())
def test_the_rows_within_reach_are_the_union_of_all_sides(n, data):
    # n, one place past the rows, is the neighbour that is not there.
    side = st.lists(st.integers(0, n), min_size=n, max_size=n)
    before = tuple(np.array(data.draw(side), np.int32) for _ in range(3))
    after = tuple(np.array(data.draw(side), np.int32) for _ in range(3))
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, n - 1)))), np.int64)

    class View(SimpleNamespace):
        def __len__(self) -> int:
            return n

    view = View(before=before, after=after)
    expected = np.unique(np.concatenate([rows, *(own[rows] for own in (*before, *after))]))
    found = with_neighbours(rows, view)
    assert found.dtype == np.int64
    assert found.tolist() == expected[expected < n].tolist()

    base = np.linspace(-1.0, 1.0, n)
    padded = [*base.tolist(), 0.0]
    sums = [0.5 * padded[before[0][i]] + 0.25 * padded[after[1][i]] for i in range(n)]
    assert lent(base, view, {-1: 0.5, 2: 0.25}).tolist() == sums

    passes = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), np.bool_)
    lends = [*passes.tolist(), False]
    some = [
        0.5 * (padded[before[0][i]] if lends[before[0][i]] else 0.0)
        + 0.25 * (padded[after[1][i]] if lends[after[1][i]] else 0.0)
        for i in rows.tolist()
    ]
    found = neighbour_scores([(1.0, base)], view, passes, {-1: 0.5, 2: 0.25}, rows)
    assert found.tolist() == some


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

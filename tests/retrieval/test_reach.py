"""Rows within reach, found by marks, are those that sorting finds."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from riemem.retrieval.hybrid import _with_neighbours
from riemem.retrieval.neighbours import lent


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
    found = _with_neighbours(rows, view)
    assert found.dtype == np.int64
    assert found.tolist() == expected[expected < n].tolist()

    base = np.linspace(-1.0, 1.0, n)
    padded = [*base.tolist(), 0.0]
    sums = [0.5 * padded[before[0][i]] + 0.25 * padded[after[1][i]] for i in range(n)]
    assert lent(base, view, {-1: 0.5, 2: 0.25}).tolist() == sums

"""One query against an index: all scores, nearly all scores, and the scores of a few rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from riemem import RiemannianIndex, build_info
from riemem._fused import FORMS, score_some
from riemem._rows import STORAGES

ISAS = build_info()["available_isas"]


def filled(n: int, dim: int, storage: str, form: str, weight: float, seed: int) -> RiemannianIndex:
    rng = np.random.default_rng(seed)
    index = RiemannianIndex(dim, storage=storage, form=form, cosine_weight=weight)
    rows = rng.normal(size=(n, dim)) * np.exp(rng.normal(size=dim)) + rng.normal(size=dim)
    rows[n // 2] = rows[0]
    index.add(rows)
    return index


@pytest.mark.parametrize("storage", STORAGES)
@settings(max_examples=25, deadline=None)
@given(
    n=st.sampled_from([1, 40, 64, 65, 300, 700]),
    dim=st.sampled_from([1, 3, 8, 65]),
    form=st.sampled_from(FORMS),
    weight=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 1000),
)
def test_near_scores_are_within_their_bound_and_a_few_are_the_same_bits(
    storage: str, n: int, dim: int, form: str, weight: float, seed: int
) -> None:
    index = filled(n, dim, storage, form, weight, seed)
    rng = np.random.default_rng(seed + 1)
    asked = index.ask(rng.normal(size=dim))
    exact = asked.all()
    near, off = asked.approximate()
    assert near.shape == (n,)
    assert np.abs(near - exact).max() <= off
    if form == "cosine" or weight == 1.0:
        assert off < (1e-4 if storage == "float32" else 1.0) * max(1.0, np.abs(exact).max() * 10)
    rows = rng.integers(0, n, size=9)
    assert asked.some(rows).tolist() == exact[rows].tolist()
    assert asked.vectors(rows).tolist() == index.vectors()[rows].tolist()


@pytest.mark.parametrize("isa", ISAS)
def test_a_few_rows_have_the_same_bits_on_every_instruction_set(isa: str) -> None:
    index = filled(130, 37, "float32+int8", "cosine", 0.2, 5)
    asked = index.ask(np.ones(37))
    rows = np.arange(0, 130, 7)
    found = asked._snapshot.points.kernel.some(
        asked._queries.q,
        asked._queries.w,
        asked._queries.offsets,
        asked._queries.bias,
        0.2,
        rows,
        isa,
    )
    expected = score_some(asked._snapshot.points, asked._queries, rows)
    assert np.clip(found, -1.0, 1.0).tolist() == expected.tolist()


def test_a_zero_query_and_no_rows() -> None:
    index = filled(50, 4, "float32", "cosine", 0.0, 0)
    asked = index.ask(np.zeros(4))
    assert asked.approximate()[1] == np.inf
    assert np.isnan(asked.some(np.array([1, 2]))).all()
    assert asked.some(np.empty(0, np.int64)).size == 0
    assert RiemannianIndex(4).ask(np.ones(4)).approximate()[0].size == 0


def test_a_query_stays_on_the_state_it_was_asked_of() -> None:
    index = filled(100, 8, "float32+int8", "cosine", 0.0, 1)
    asked = index.ask(np.ones(8))
    before = asked.all()
    index.remove(list(range(0, 50)))
    index.add(np.eye(8)[:3])
    rows = np.arange(100)
    assert asked.some(rows).tolist() == before.tolist()


def test_rows_that_are_not_there_are_refused() -> None:
    asked = filled(50, 4, "float32", "cosine", 0.0, 0).ask(np.ones(4))
    for wrong in (50, -1):
        with pytest.raises(ValueError, match="row numbers below 50"):
            asked.some(np.array([wrong]))

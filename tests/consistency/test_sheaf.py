"""The sheaf: ranks, agreement and kappa against numpy and scipy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from riemem.consistency import (
    CellularSheaf,
    Claim,
    ClaimSheaf,
    Csr,
    Entry,
    excludes,
    published_score,
    rank,
)
from riemem.errors import ArgumentError, NotFiniteError, ShapeError


def as_scipy(matrix: Csr) -> scipy.sparse.csr_matrix:
    return scipy.sparse.csr_matrix((matrix.data, matrix.indices, matrix.indptr), matrix.shape)


def random_sheaf(seed: int) -> CellularSheaf:
    rng = np.random.default_rng(seed)
    dims = rng.integers(0, 4, size=rng.integers(2, 7)).tolist()
    sheaf = CellularSheaf(dims)
    for u, v in itertools.combinations(range(len(dims)), 2):
        if rng.random() < 0.6:
            m = int(rng.integers(0, 4))
            maps = [rng.integers(-2, 3, size=(m, dims[w])).astype(float) for w in (u, v)]
            if rng.random() < 0.3:
                maps = [np.outer(np.ones(m), rng.normal(size=dims[w])) for w in (u, v)]
            sheaf.add_edge(u, v, *maps)
    return sheaf


@pytest.mark.parametrize("seed", range(60))
def test_cohomology_is_that_of_a_dense_rank(seed: int) -> None:
    sheaf = random_sheaf(seed)
    for observed in ((), (0,), (0, 1)):
        delta = sheaf.coboundary(observed)
        dense = delta.dense()
        assert np.array_equal(dense, as_scipy(delta).toarray())
        expected = int(np.linalg.matrix_rank(dense)) if dense.size else 0
        found = sheaf.cohomology(observed)
        assert found.rank == expected
        assert (found.c1, found.c0) == dense.shape
        assert found.h0 == dense.shape[1] - expected
        assert found.h1 == dense.shape[0] - expected
        x = np.random.default_rng(seed).normal(size=dense.shape[1])
        assert np.allclose(delta.dot(x), as_scipy(delta) @ x, atol=1e-12)


def test_h1_of_the_constant_sheaf_counts_the_cycles_of_the_graph() -> None:
    for n in (3, 4, 5):
        sheaf = CellularSheaf([1] * n)
        for u, v in itertools.combinations(range(n), 2):
            sheaf.add_edge(u, v, [[1.0]], [[1.0]])
        found = sheaf.cohomology()
        assert (found.h0, found.h1) == (1, n * (n - 1) // 2 - (n - 1))


def test_a_twisted_cycle_has_no_global_section() -> None:
    sheaf = CellularSheaf([1, 1, 1])
    for u, v, sign in ((0, 1, 1.0), (1, 2, 1.0), (0, 2, -1.0)):
        sheaf.add_edge(u, v, [[1.0]], [[sign]])
    found = sheaf.cohomology()
    assert (found.h0, found.h1, found.rank) == (0, 0, 3)


def test_bad_edges_are_refused() -> None:
    sheaf = CellularSheaf([2, 1])
    with pytest.raises(ArgumentError, match="two vertices below 2, got 0 and 0"):
        sheaf.add_edge(0, 0, [[1.0, 0.0]], [[1.0, 0.0]])
    with pytest.raises(ShapeError, match=r"at_u: expected \(m, 2\), got \(1, 1\)"):
        sheaf.add_edge(0, 1, [[1.0]], [[1.0]])
    with pytest.raises(ShapeError, match="as many rows in both, got 2 and 1"):
        sheaf.add_edge(0, 1, np.eye(2), [[1.0]])
    with pytest.raises(NotFiniteError, match="at_v"):
        sheaf.add_edge(0, 1, [[1.0, 0.0]], [[np.nan]])
    with pytest.raises(ArgumentError, match="dims"):
        CellularSheaf([-1])


CLAIMS = st.builds(
    Claim,
    subject=st.sampled_from(["dave", "dave's boss", "ann"]),
    attribute=st.sampled_from(["residence", "port"]),
    value=st.sampled_from(["red", "blue", "green"]),
    positive=st.booleans(),
    single=st.just(True),
    first=st.integers(0, 4),
    last=st.integers(5, 8),
)


@given(st.lists(CLAIMS, max_size=9), st.booleans())
def test_claims_agree_exactly_when_the_system_can_be_solved(
    said: list[Claim], linked: bool
) -> None:
    entries = [Entry(i, claim, claim.first, claim.last, i) for i, claim in enumerate(said)]
    same = [("dave's boss", "ann")] if linked else []
    sheaf = ClaimSheaf(entries, same)
    delta, rhs = sheaf.coboundary()
    dense = as_scipy(delta).toarray()
    rank_of = int(np.linalg.matrix_rank(dense)) if dense.size else 0
    found = sheaf.cohomology
    assert (found.rank, found.c1, found.c0) == (rank_of, *dense.shape)
    assert rank(delta) == rank_of
    augmented = np.column_stack([dense, rhs]) if dense.size else np.zeros((0, 1))
    solvable = (int(np.linalg.matrix_rank(augmented)) if augmented.size else 0) == rank_of
    assert (not sheaf.obstructed) == solvable
    # kappa is 0 exactly then, and otherwise the residual of least squares over the norms.
    for group in sheaf.groups:
        own = ClaimSheaf([e for e in entries if e.claim.attribute == group.attribute and (
            e.claim.subject == group.subject or (linked and {e.claim.subject, group.subject}
                                                 <= {"dave's boss", "ann"}))], same)  # fmt: skip
        d, r = own.coboundary()
        full = d.dense()
        x = np.linalg.lstsq(full, r, rcond=None)[0]
        assert (group.kappa == 0.0) == (not group.candidates)
        if group.candidates and not linked:
            # Components that agree count in the norms, too.
            expected = float(np.sum((full @ x - r) ** 2) / (r @ r + x @ x + 1e-12))
            assert group.kappa == pytest.approx(expected, rel=1e-9)
    # Without second names, the candidates are the pairs that exclude each other at some moment.
    if not linked:
        pairs = {
            (i, j)
            for (i, a), (j, b) in itertools.combinations(enumerate(said), 2)
            if excludes(a, b) and max(a.first, b.first) < min(a.last, b.last)
        }
        assert {p for g in sheaf.groups for p in g.candidates} == pairs


def test_only_two_names_together_show_the_contradiction() -> None:
    said = [
        Claim("dave's sister", "residence", "porto", single=True),
        Claim("anna", "residence", "berlin", single=True),
    ]
    entries = [Entry(i, claim, 0, 9, i) for i, claim in enumerate(said)]
    assert ClaimSheaf(entries).obstructed == []
    (group,) = ClaimSheaf(entries, [("dave's sister", "anna")]).obstructed
    assert group.candidates == [(0, 1)]
    assert 0.0 < group.kappa < 1.0


def test_a_heavier_claim_leaves_less_unexplained_when_it_is_one_of_many() -> None:
    def kappa(weight: float) -> float:
        said = [Claim("x", "port", "80", single=True)] * 5 + [Claim("x", "port", "81", single=True)]
        entries = [Entry(i, c, 0, 9, i, weight if i == 5 else 1.0) for i, c in enumerate(said)]
        return ClaimSheaf(entries).groups[0].kappa

    assert kappa(0.1) < kappa(1.0) < kappa(3.0)


def test_ten_thousand_claims_about_one_entity_are_bounded_and_said_so() -> None:
    said = [Claim("x", "age", str(i), single=True, first=i) for i in range(10_000)]
    entries = [Entry(i, c, c.first, c.last, i) for i, c in enumerate(said)]
    (group,) = ClaimSheaf(entries).groups
    assert (group.size, group.compared) == (10_000, 64)
    assert len(group.candidates) == 64 * 63 // 2
    assert group.candidates[0][0] == 10_000 - 64


@given(st.integers(0, 2**31))
def test_the_published_score_of_unit_vectors_is_one_less_the_cosine(seed: int) -> None:
    a, b = np.random.default_rng(seed).normal(size=(2, 16))
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    assert published_score(a, b) == pytest.approx(1.0 - a @ b, abs=1e-9)


def test_the_published_score_refuses_what_is_no_pair() -> None:
    with pytest.raises(ShapeError):
        published_score([1.0], [1.0, 0.0])
    with pytest.raises(NotFiniteError):
        published_score([np.inf], [1.0])

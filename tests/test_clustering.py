"""The stream of atoms: the rule, its edges, and what must not depend on how it is run."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import riemem
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from riemem import reference
from riemem.clustering import (
    LargeAtomWarning,
    MaxMemberClusters,
    calibrate_threshold,
)
from riemem.errors import (
    ArgumentError,
    DTypeError,
    MemoryNotFoundError,
    NotFiniteError,
    ShapeError,
    ZeroVectorError,
)

ROUTES = ("max_member", "nearest_fallback", "centroid")


def blobs(n, d, k, noise, seed):
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(k, d))
    rows = centres[generator.integers(k, size=n)] + noise * generator.normal(size=(n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def angles(*degrees):
    turned = np.radians(degrees)
    return np.stack([np.cos(turned), np.sin(turned)], axis=1)


def quiet(clusters, rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LargeAtomWarning)
        return clusters.assign(rows)


def loop_in_python(rows, threshold):
    """The rule with nothing but lists and math: an oracle that shares no code with us."""
    atoms: list[list[list[float]]] = []
    labels = []
    for row in rows.astype(np.float64):
        length = math.sqrt(math.fsum(x * x for x in row))
        unit = [x / length for x in row]
        bests = []
        for members in atoms:
            total = [math.fsum(column) for column in zip(*members, strict=True)]
            size = math.sqrt(math.fsum(x * x for x in total))
            central = math.fsum(a * b for a, b in zip(unit, total, strict=True)) / size
            near = max(math.fsum(a * b for a, b in zip(unit, m, strict=True)) for m in members)
            bests.append(max(central, near))
        if bests and max(bests) > threshold:
            winner = bests.index(max(bests))
            atoms[winner].append(unit)
        else:
            winner = len(atoms)
            atoms.append([unit])
        labels.append(winner)
    return labels


@pytest.mark.parametrize("threshold", [0.3, 0.6, 0.8])
def test_labels_are_those_of_the_plain_rule(threshold):
    rows = blobs(120, 12, 9, 0.45, 4)
    got = quiet(MaxMemberClusters(12, threshold=threshold), rows)
    assert got.labels.tolist() == loop_in_python(rows, threshold)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("storage", ["float32", "int8"])
def test_bits_are_those_of_the_reference(route, storage):
    rows = blobs(650, 20, 40, 0.4, 7)
    rows[30] = rows[10]
    labels, scores, created = reference.max_member(rows, 0.75, route)
    got = quiet(MaxMemberClusters(20, threshold=0.75, route=route, storage=storage), rows)
    assert_array_equal(got.labels, labels)
    assert_array_equal(got.scores, scores)
    assert_array_equal(got.created, created)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 60),
    d=st.integers(1, 9),
    seed=st.integers(0, 2**16),
    threshold=st.floats(-0.99, 1.0),
    cut=st.integers(0, 60),
    route=st.sampled_from(ROUTES),
)
def test_batches_do_not_matter(n, d, seed, threshold, cut, route):
    rows = blobs(n, d, 4, 0.3, seed)
    whole = quiet(MaxMemberClusters(d, threshold=threshold, route=route), rows)
    parts = MaxMemberClusters(d, threshold=threshold, route=route)
    singles = MaxMemberClusters(d, threshold=threshold, route=route)
    cut = min(cut, n)
    labels = [quiet(parts, rows[:cut]).labels, quiet(parts, rows[cut:]).labels]
    assert_array_equal(np.concatenate(labels), whole.labels)
    assert [int(quiet(singles, row).labels[0]) for row in rows] == whole.labels.tolist()
    assert_array_equal(singles._state.view("sums"), parts._state.view("sums"))


def test_threads_do_not_matter():
    rows = blobs(3000, 16, 2000, 0.5, 1)
    before = riemem.build_info()["num_threads"]
    answers = []
    for threads in (1, 3):
        riemem.set_num_threads(threads)
        answers.append(quiet(MaxMemberClusters(16, threshold=0.5), rows))
    riemem.set_num_threads(before)
    assert_array_equal(answers[0].labels, answers[1].labels)
    assert_array_equal(answers[0].scores, answers[1].scores)


@pytest.mark.parametrize(("noise", "threshold"), [(0.02, 0.8), (0.03, 0.7), (0.045, 0.45)])
def test_codes_of_full_width_change_no_bit(noise, threshold):
    """Tight, loose and overlapping groups in 384 dimensions: pruned, and scored from codes."""
    rows = blobs(900, 384, 40, noise * math.sqrt(384), 5)
    plain = MaxMemberClusters(384, threshold=threshold)
    single = [quiet(plain, row) for row in rows]
    labels = np.concatenate([got.labels for got in single])
    scores = np.concatenate([got.scores for got in single])
    before = riemem.build_info()["num_threads"]
    for threads, step in ((1, 900), (3, 900), (1, 77)):
        riemem.set_num_threads(threads)
        clusters = MaxMemberClusters(384, threshold=threshold, storage="int8")
        got = [quiet(clusters, rows[i : i + step]) for i in range(0, 900, step)]
        assert_array_equal(np.concatenate([part.labels for part in got]), labels)
        assert_array_equal(np.concatenate([part.scores for part in got]), scores)
    riemem.set_num_threads(before)


class TestTheThresholdIsStrict:
    @pytest.mark.parametrize("route", ROUTES)
    @pytest.mark.parametrize("storage", ["float32", "int8"])
    def test_equal_rows_have_cosine_exactly_one(self, route, storage):
        clusters = MaxMemberClusters(9, threshold=0.999, route=route, storage=storage)
        got = quiet(clusters, np.tile(np.arange(1.0, 10.0), (700, 1)))
        assert set(got.labels.tolist()) == {0}
        if route == "centroid":  # a sum of equal rows is rounded
            assert got.scores[1:].min() >= 1.0 - 1e-12
            return
        assert set(got.scores[1:].tolist()) == {1.0}

    def test_nothing_is_above_one(self):
        got = MaxMemberClusters(8, threshold=1.0).assign(np.ones((300, 8)))
        assert got.labels.tolist() == list(range(300))
        assert got.created.all()

    @pytest.mark.parametrize("route", ROUTES)
    def test_a_cosine_on_the_threshold_does_not_join(self, route):
        rows = np.array([[1.0, 0.0], [1.0, 1.0]], np.float32)
        value = 1.0 / math.sqrt(2.0)  # as it is computed: 1 / sqrt(1 * 2)
        at = MaxMemberClusters(2, threshold=value, route=route).assign(rows)
        below = quiet(MaxMemberClusters(2, threshold=np.nextafter(value, 0), route=route), rows)
        assert at.scores[1] == value
        assert at.labels.tolist() == [0, 1]
        assert below.labels.tolist() == [0, 0]


class TestDegenerateStreams:
    def test_one(self):
        got = MaxMemberClusters(3, threshold=0.5).assign([[1.0, 2.0, 3.0]])
        assert got.labels.tolist() == [0]
        assert got.created.tolist() == [True]
        assert np.isnan(got.scores).all()
        assert (got.atom_count, got.largest_share) == (1, 1.0)

    def test_none(self):
        clusters = MaxMemberClusters(3, threshold=0.5)
        got = clusters.assign(np.empty((0, 3), np.float32))
        assert got.labels.shape == got.scores.shape == got.created.shape == (0,)
        assert (clusters.atom_count, clusters.largest_share, len(clusters)) == (0, 0.0, 0)
        assert clusters.atoms() == []
        assert clusters.retrieve([1.0, 0.0, 0.0]) == []
        assert clusters.nearest([1.0, 0.0, 0.0])[0].tolist() == [-1]

    def test_two_near_rows_end_at_once(self):
        got = MaxMemberClusters(2, threshold=0.4).assign(angles(0, 25.84))
        assert got.labels.tolist() == [0, 0]

    def test_opposites_share_an_atom_without_a_centroid(self):
        clusters = MaxMemberClusters(2, threshold=-0.5)
        clusters.assign([[1.0, 0.0], [0.0, 1.0]])
        lone = MaxMemberClusters(1, threshold=-0.999)
        got = lone.assign([[1.0], [-1.0]])
        assert got.labels.tolist() == [0, 1]
        assert got.scores[1] == -1.0


def test_chains_join_what_is_far_apart_and_order_matters():
    chain = MaxMemberClusters(2, threshold=0.9).assign(angles(0, 20, 40, 60, 80))
    assert chain.labels.tolist() == [0, 0, 0, 0, 0]
    other = MaxMemberClusters(2, threshold=0.9).assign(angles(0, 40, 80, 19.9, 60.1))
    assert other.labels.tolist() == [0, 1, 2, 0, 2]


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.9, 0.99])
def test_every_member_is_in_exactly_one_atom(threshold):
    clusters = MaxMemberClusters(10, threshold=threshold)
    quiet(clusters, blobs(500, 10, 500, 1.0, 2))
    members = np.concatenate([atom.members for atom in clusters.atoms()])
    assert sorted(members.tolist()) == list(range(500))
    assert clusters.sizes.sum() == 500
    assert [atom.size for atom in clusters.atoms()] == clusters.sizes.tolist()


def test_length_does_not_matter_not_even_an_extreme_one():
    rows = blobs(200, 6, 10, 0.3, 3).astype(np.float64)
    plain = quiet(MaxMemberClusters(6, threshold=0.8), rows.astype(np.float32))
    powers = 2.0 ** np.random.default_rng(0).integers(-90, 90, size=(200, 1))
    scaled = quiet(MaxMemberClusters(6, threshold=0.8), rows.astype(np.float32) * powers)
    assert_array_equal(plain.labels, scaled.labels)
    assert_array_equal(plain.scores, scaled.scores)
    huge = MaxMemberClusters(128, threshold=0.9).assign(
        np.stack([np.full(128, 3e19), np.ones(128)]).astype(np.float32)
    )
    assert huge.labels.tolist() == [0, 0]
    assert huge.scores[1] == pytest.approx(1.0, abs=1e-12)


class TestBadInput:
    @pytest.mark.parametrize("threshold", [-1.0, -1.5, 1.0001, math.nan, math.inf])
    def test_threshold_out_of_range(self, threshold):
        with pytest.raises(ArgumentError, match="threshold"):
            MaxMemberClusters(4, threshold=threshold)

    @pytest.mark.parametrize("threshold", ["0.5", None, True])
    def test_threshold_of_another_type(self, threshold):
        with pytest.raises(DTypeError, match="threshold"):
            MaxMemberClusters(4, threshold=threshold)

    def test_options(self):
        with pytest.raises(ArgumentError, match="route"):
            MaxMemberClusters(4, threshold=0.5, route="nearest")
        with pytest.raises(ArgumentError, match="storage"):
            MaxMemberClusters(4, threshold=0.5, storage="bf16")
        with pytest.raises(ArgumentError, match="dim"):
            MaxMemberClusters(0, threshold=0.5)

    def test_rows(self):
        clusters = MaxMemberClusters(2, threshold=0.5)
        clusters.assign([[1.0, 0.0]])
        with pytest.raises(ZeroVectorError, match="row 1"):
            clusters.assign([[1.0, 0.0], [0.0, 0.0]])
        with pytest.raises(NotFiniteError, match="row 1"):
            clusters.assign([[1.0, 0.0], [math.nan, 0.0]])
        with pytest.raises(ShapeError, match=r"\(N, 2\)"):
            clusters.assign([[1.0, 0.0, 0.0]])
        with pytest.raises(DTypeError):
            clusters.assign([["a", "b"]])
        assert len(clusters) == 1

    def test_ids(self):
        clusters = MaxMemberClusters(2, threshold=0.5)
        clusters.assign([[1.0, 0.0]], ids=[7])
        for ids, error in [([7], ArgumentError), ([1, 2], ShapeError), ([0.5], DTypeError)]:
            with pytest.raises(error, match="ids"):
                clusters.assign([[1.0, 0.0]], ids=ids)
        assert clusters.assign([[1.0, 0.0]]).labels.tolist() == [0]
        assert clusters.ids.tolist() == [7, 8]


class TestRemove:
    def test_what_remains_is_as_if_it_had_never_joined(self):
        rows = blobs(300, 8, 12, 0.3, 9)
        clusters = MaxMemberClusters(8, threshold=0.9)
        quiet(clusters, rows)
        labels = clusters.labels
        gone = np.random.default_rng(1).permutation(300)[:120]
        clusters.remove(gone)
        kept = np.setdiff1d(np.arange(300), gone)
        assert_array_equal(clusters.ids, kept)
        assert_array_equal(clusters.labels, labels[kept])
        for atom in clusters.atoms():
            unit = rows[atom.members].astype(np.float64)
            total = (unit / np.linalg.norm(unit, axis=1, keepdims=True)).sum(axis=0)
            assert_allclose(atom.centroid, total / np.linalg.norm(total), atol=1e-14)

    def test_the_stream_goes_on_as_after_the_remaining_rows(self):
        rows = blobs(260, 8, 12, 0.3, 9)
        one, two = (MaxMemberClusters(8, threshold=0.9) for _ in range(2))
        quiet(one, rows[:200])
        first = np.flatnonzero(one.labels == one.labels[5])
        one.remove(first)  # a whole atom: the others never knew it
        quiet(two, np.delete(rows[:200], first, axis=0))
        more_one, more_two = quiet(one, rows[200:]), quiet(two, rows[200:])
        assert_array_equal(more_one.scores, more_two.scores)
        assert_array_equal(one._state.view("sums"), two._state.view("sums"))

    def test_an_emptied_atom_is_gone_and_its_number_is_not_used_again(self):
        clusters = MaxMemberClusters(3, threshold=0.9)
        clusters.assign(np.eye(3))
        receipt = clusters.remove([1])
        assert receipt.removed == (1,)
        assert receipt.vanished == (1,)
        assert clusters.labels.tolist() == [0, 2]
        again = clusters.assign([0.0, 1.0, 0.0])
        assert again.labels.tolist() == [3]
        assert again.created.tolist() == [True]

    def test_an_atom_that_falls_apart_says_so(self):
        clusters = MaxMemberClusters(2, threshold=0.9)
        clusters.assign(angles(0, 20, 40, 60, 80))
        assert clusters.components(0) == ((0, 1, 2, 3, 4),)
        receipt = clusters.remove([2])
        assert receipt.fragments == {0: ((0, 1), (3, 4))}
        assert clusters.labels.tolist() == [0, 0, 0, 0]

    def test_a_member_that_holds_nothing_together(self):
        clusters = MaxMemberClusters(2, threshold=0.9)
        clusters.assign(angles(0, 10, 20))
        assert clusters.remove(1).fragments == {}

    def test_components_agree_with_scipy(self):
        from scipy.sparse.csgraph import connected_components

        rows = blobs(150, 6, 8, 0.5, 3)
        clusters = MaxMemberClusters(6, threshold=0.8)
        quiet(clusters, rows)
        clusters.remove(np.arange(0, 150, 3))
        for atom in clusters.atoms():
            unit = rows[atom.members].astype(np.float64)
            unit /= np.linalg.norm(unit, axis=1, keepdims=True)
            count, groups = connected_components(unit @ unit.T > 0.8)
            own = {tuple(atom.members[groups == g].tolist()) for g in range(count)}
            assert set(clusters.components(atom.id)) == own

    def test_unknown_ids_change_nothing(self):
        clusters = MaxMemberClusters(2, threshold=0.9)
        clusters.assign(np.eye(2))
        with pytest.raises(MemoryNotFoundError, match="7"):
            clusters.remove([0, 7])
        assert len(clusters) == 2
        assert clusters.remove([]).removed == ()


class TestMerge:
    def test_atoms_join_as_chunks_would(self):
        left = MaxMemberClusters(3, threshold=0.9)
        left.assign(np.eye(3)[:2], ids=[0, 1])
        right = MaxMemberClusters(3, threshold=0.9)
        right.assign([[0.0, 0.1, 1.0], [0.05, 1.0, 0.0], [0.1, 1.0, 0.1]], ids=[10, 11, 12])
        got = left.merge(right)
        assert got.atoms == {0: 2, 1: 1}
        assert got.created == (2,)
        assert dict(zip(left.ids.tolist(), left.labels.tolist(), strict=True)) == {
            0: 0, 1: 1, 10: 2, 11: 1, 12: 1,
        }  # fmt: skip
        assert len(right) == 3

    def test_far_streams_add_up(self):
        rows = blobs(200, 8, 10, 0.2, 5)
        one = MaxMemberClusters(8, threshold=0.95)
        quiet(one, rows[:100])
        two = MaxMemberClusters(8, threshold=0.95)
        two.assign(-rows[100:], ids=np.arange(100, 200))
        atoms = one.atom_count + two.atom_count
        near = one.nearest(-rows[100:])[1].max()
        report = one.merge(two)
        if near <= 0.95:
            assert one.atom_count == atoms
            assert len(report.created) == two.atom_count
        assert len(one) == 200

    def test_refusals(self):
        one = MaxMemberClusters(2, threshold=0.9)
        one.assign(np.eye(2))
        with pytest.raises(ArgumentError, match="got 0"):
            one.merge(one)
        with pytest.raises(ArgumentError, match="dimension 2"):
            one.merge(MaxMemberClusters(3, threshold=0.9))

    def test_empty_ones(self):
        one, two = MaxMemberClusters(2, threshold=0.9), MaxMemberClusters(2, threshold=0.9)
        assert one.merge(two).atoms == {}
        two.assign(np.eye(2))
        assert one.merge(two).created == (0, 1)
        assert one.labels.tolist() == [0, 1]


class TestLargestShare:
    def test_the_warning_comes_once(self):
        clusters = MaxMemberClusters(4, threshold=0.1)
        rows = blobs(80, 4, 1, 0.1, 0)
        with pytest.warns(LargeAtomWarning, match="100%"):
            got = clusters.assign(rows)
        assert got.warning is not None
        assert got.largest_share == clusters.stats()["largest_share"] == 1.0
        assert clusters.assign(rows).warning is not None  # and no second warning is raised

    def test_few_members_say_nothing(self):
        assert MaxMemberClusters(4, threshold=0.1).assign(blobs(49, 4, 1, 0.1, 0)).warning is None


class TestCalibration:
    def test_against_scipy(self):
        from scipy.spatial.distance import pdist

        rows = blobs(40, 7, 5, 0.6, 1)
        expected = np.quantile(1.0 - pdist(rows.astype(np.float64), "cosine"), 0.7)
        assert calibrate_threshold(rows) == pytest.approx(expected, abs=1e-12)

    def test_a_sample_is_seeded(self):
        rows = blobs(400, 7, 5, 0.6, 1)
        assert calibrate_threshold(rows, seed=3) == calibrate_threshold(rows, seed=3)
        assert calibrate_threshold(rows, seed=3) != calibrate_threshold(rows, seed=4)

    def test_the_ends_are_thresholds(self):
        MaxMemberClusters(2, threshold=calibrate_threshold([[1.0, 0.0], [-1.0, 0.0]]))
        assert calibrate_threshold(np.ones((9, 3))) == pytest.approx(1.0, abs=1e-15)

    def test_refusals(self):
        with pytest.raises(ArgumentError, match="at least 2 rows"):
            calibrate_threshold([[1.0, 0.0]])
        with pytest.raises(ArgumentError, match="at least 2 rows"):
            calibrate_threshold(np.empty((0, 3)))
        with pytest.raises(ArgumentError, match="quantile"):
            calibrate_threshold(np.eye(3), quantile=1.1)
        with pytest.raises(ArgumentError, match="sample"):
            calibrate_threshold(np.eye(3), sample=1)
        with pytest.raises(ZeroVectorError):
            calibrate_threshold(np.zeros((3, 3)))
        with pytest.raises(NotFiniteError):
            calibrate_threshold([[1.0, math.nan], [1.0, 0.0]])

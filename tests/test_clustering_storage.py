"""Smaller forms of atoms, retrieval by atoms, and the file."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from riemem.clustering import MaxMemberClusters, grassmann_merge
from riemem.errors import ArgumentError, ShapeError, StoreCorruptError, ZeroVectorError


@pytest.fixture
def clusters():
    generator = np.random.default_rng(5)
    centres = generator.normal(size=(12, 24))
    rows = centres[generator.integers(12, size=240)] + 0.25 * generator.normal(size=(240, 24))
    made = MaxMemberClusters(24, threshold=0.7)
    made.assign(rows)
    return made


def unit(clusters):
    rows = clusters.vectors().astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class TestForms:
    @pytest.mark.parametrize("form", ["float32", "int8", "basis", "summary", "pq"])
    def test_reported_error_is_that_of_the_reconstruction(self, clusters, form):
        made = clusters.compress(form, rank=2, subspaces=6)
        lost = np.linalg.norm(unit(clusters) - made.reconstruct(), axis=1)
        assert made.mean_error == pytest.approx(lost.mean(), abs=1e-15)
        assert made.max_error == pytest.approx(lost.max(), abs=1e-15)
        assert made.nbytes == sum(part.nbytes for part in made.parts.values())

    def test_bytes(self, clusters):
        n, d, m = 240, 24, clusters.atom_count
        assert clusters.compress("float32").nbytes == 4 * n * d
        assert clusters.compress("int8").nbytes == n * d + 4 * n
        two = clusters.compress("basis", rank=2)
        kept = int(np.minimum(clusters.sizes, 2).sum())
        pairs = int((clusters.sizes * np.minimum(clusters.sizes, 2)).sum())
        assert two.nbytes == 4 * kept * d + 4 * pairs + 4 * m
        small = clusters.compress("basis", rank=2, bases="int8")
        assert small.nbytes == kept * (d + 4) + 4 * pairs + 4 * m

    def test_errors_are_small_and_fall_with_the_rank(self, clusters):
        assert clusters.compress("float32").max_error < 1e-7
        assert clusters.compress("int8").max_error < np.sqrt(24) / 254
        errors = [clusters.compress("basis", rank=k).mean_error for k in (1, 2, 4, 8, 24)]
        assert errors == sorted(errors, reverse=True)
        assert errors[-1] < 1e-6
        codes = [clusters.compress("pq", subspaces=s).mean_error for s in (2, 6, 12)]
        assert codes == sorted(codes, reverse=True)

    def test_a_basis_loses_what_the_svd_says(self, clusters):
        made = clusters.compress("basis", rank=3)
        lost = ((unit(clusters) - made.reconstruct()) ** 2).sum()
        tails = 0.0
        for atom in clusters.atoms():
            rows = unit(clusters)[atom.members]
            tails += (np.linalg.svd(rows, compute_uv=False)[3:] ** 2).sum()
        assert lost == pytest.approx(tails, rel=1e-5)

    def test_adaptive_ranks_hold_the_energy(self, clusters):
        made = clusters.compress("basis", energy=0.95)
        for rank, atom in zip(made.ranks, clusters.atoms(), strict=True):
            squares = np.linalg.svd(unit(clusters)[atom.members], compute_uv=False) ** 2
            assert squares[:rank].sum() >= 0.95 * squares.sum() * (1 - 1e-9)
            assert squares[: rank - 1].sum() < 0.95 * squares.sum()

    def test_a_summary_knows_the_mean_of_its_atom(self, clusters):
        made = clusters.compress("summary", rank=24)
        for atom in clusters.atoms():
            mean = unit(clusters)[atom.members].mean(axis=0)
            assert_allclose(made.reconstruct()[atom.members[0]], mean, atol=1e-6)

    def test_the_codebook_is_seeded(self, clusters):
        one, two = (clusters.compress("pq", subspaces=6, seed=3) for _ in range(2))
        assert_array_equal(one.parts["codes"], two.parts["codes"])

    @pytest.mark.parametrize("form", ["float32", "int8", "basis", "summary", "pq"])
    def test_nothing(self, form):
        made = MaxMemberClusters(8, threshold=0.5).compress(form, subspaces=2)
        assert made.reconstruct().shape == (0, 8)
        assert (made.mean_error, made.max_error) == (0.0, 0.0)

    def test_refusals(self, clusters):
        with pytest.raises(ArgumentError, match="form"):
            clusters.compress("zip")
        with pytest.raises(ArgumentError, match="rank"):
            clusters.compress("basis", rank=0)
        with pytest.raises(ArgumentError, match="subspaces"):
            clusters.compress("pq", subspaces=25)
        with pytest.raises(ArgumentError, match="energy"):
            clusters.compress("basis", energy=0.0)


class TestGrassmannMerge:
    def test_weights_per_vector_give_the_svd_of_both(self):
        generator = np.random.default_rng(0)
        parts = [generator.normal(size=(30, 10)) * np.linspace(3, 0.1, 10) for _ in range(2)]
        bases, weights = [], []
        for rows in parts:
            _, values, right = np.linalg.svd(rows, full_matrices=False)
            bases.append(right)
            weights.append(values**2)
        merged = grassmann_merge(bases, weights, 4)
        _, _, together = np.linalg.svd(np.concatenate(parts), full_matrices=False)
        assert_allclose(np.abs(merged @ together[:4].T), np.eye(4), atol=1e-8)

    def test_projectors_average(self):
        generator = np.random.default_rng(1)
        bases = [np.linalg.qr(generator.normal(size=(9, 3)))[0].T for _ in range(3)]
        weights = [1.0, 2.0, 3.0]
        merged = grassmann_merge(bases, weights, 3)
        average = sum(w * b.T @ b for w, b in zip(weights, bases, strict=True))
        best = np.linalg.eigvalsh(average)[-3:].sum()
        assert np.trace(merged @ average @ merged.T) == pytest.approx(best, abs=1e-10)

    def test_rank_is_at_most_what_is_there(self):
        assert grassmann_merge([np.eye(5)[:2]], [1.0], 4).shape == (2, 5)


class TestRetrieve:
    def test_scores_are_what_they_say(self, clusters):
        query = np.random.default_rng(2).normal(size=24)
        q = query / np.linalg.norm(query)
        central = {a.id: a.centroid @ q for a in clusters.atoms()}
        best = {a.id: (unit(clusters)[a.members] @ q).max() for a in clusters.atoms()}
        for by, scores in (("centroid", central), ("best_member", best)):
            hits = clusters.retrieve(query, atoms=4, by=by)
            wanted = sorted(scores, key=lambda a: (-scores[a], a))[:4]
            assert [hit.atom for hit in hits] == wanted
            for hit in hits:
                assert hit.score == pytest.approx(scores[hit.atom], abs=1e-7)
                values = unit(clusters)[hit.members] @ q
                assert_allclose(hit.scores, values, atol=1e-7)
                assert (np.diff(hit.scores) <= 0).all()

    def test_first_basis_vector(self, clusters):
        query = np.random.default_rng(3).normal(size=24)
        hits = clusters.retrieve(query, atoms=99, by="basis1")
        assert len(hits) == clusters.atom_count
        for hit in hits:
            rows = unit(clusters)[hit.members]
            _, vectors = np.linalg.eigh(rows.T @ rows)
            along = vectors[:, -1] @ query / np.linalg.norm(query)
            assert abs(hit.score) == pytest.approx(abs(along), abs=1e-8)
        assert hits[0].score >= hits[-1].score

    def test_the_whole_space_is_the_cosine(self, clusters):
        query = np.random.default_rng(4).normal(size=24)
        plain = clusters.retrieve(query, atoms=1)[0]
        inside = clusters.retrieve(query, atoms=1, within="subspace", rank=24)[0]
        if plain.members.size >= 24:
            assert_allclose(np.sort(plain.scores), np.sort(inside.scores), atol=1e-8)
        flat = clusters.retrieve(query, atoms=1, within="subspace", rank=1)[0]
        assert set(flat.members.tolist()) == set(plain.members.tolist())

    def test_refusals(self, clusters):
        with pytest.raises(ArgumentError, match="by"):
            clusters.retrieve(np.ones(24), by="magic")
        with pytest.raises(ArgumentError, match="within"):
            clusters.retrieve(np.ones(24), within="magic")
        with pytest.raises(ZeroVectorError, match="query"):
            clusters.retrieve(np.zeros(24))
        with pytest.raises(ShapeError, match="query"):
            clusters.retrieve(np.ones(3))


class TestFile:
    def test_it_goes_on_as_the_saved_one_would(self, clusters, tmp_path):
        path = tmp_path / "atoms.bin"
        clusters.remove([3, 4, 5])
        clusters.save(path)
        again = MaxMemberClusters.load(path)
        assert again.stats() | {"nbytes": 0} == clusters.stats() | {"nbytes": 0}
        assert_array_equal(again.ids, clusters.ids)
        assert_array_equal(again.labels, clusters.labels)
        assert_array_equal(again._state.view("sums"), clusters._state.view("sums"))
        more = np.random.default_rng(8).normal(size=(40, 24))
        one, two = again.assign(more), clusters.assign(more)
        assert_array_equal(one.labels, two.labels)
        assert_array_equal(one.scores, two.scores)
        assert_array_equal(again.ids, clusters.ids)

    def test_int8_and_empty(self, tmp_path):
        made = MaxMemberClusters(5, threshold=0.1, storage="int8", route="centroid")
        made.save(tmp_path / "a")
        again = MaxMemberClusters.load(tmp_path / "a")
        assert (len(again), again.route, again.stats()["storage"]) == (0, "centroid", "int8")

    def test_every_damage_is_noticed(self, clusters, tmp_path):
        path = tmp_path / "atoms.bin"
        clusters.save(path)
        whole = path.read_bytes()
        for damage in (b"", whole[:-1], whole[:100], b"x" + whole[1:]):
            path.write_bytes(damage)
            with pytest.raises(StoreCorruptError):
                MaxMemberClusters.load(path)
        for at in range(0, len(whole), 997):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(StoreCorruptError):
                MaxMemberClusters.load(path)

    def test_a_failed_save_leaves_the_old_file(self, clusters, tmp_path, monkeypatch):
        path = tmp_path / "atoms.bin"
        clusters.save(path)
        before = path.read_bytes()

        def fails(_):
            raise OSError("disk full")

        monkeypatch.setattr("riemem._atoms.files.os.fsync", fails)
        with pytest.raises(OSError, match="disk full"):
            clusters.save(path)
        assert path.read_bytes() == before
        assert [p.name for p in tmp_path.iterdir()] == ["atoms.bin"]

    def test_no_file(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            MaxMemberClusters.load(tmp_path / "none")

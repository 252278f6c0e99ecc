"""The packing evaluation: loaders, baselines, the made-up trajectory, and its numbers."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from riemem.embed import HashingEmbedder
from riemem.errors import ArgumentError, BudgetTooSmallError, InputFileError
from riemem.evaluation.clustering_baselines import CLUSTERINGS, cluster, dp_means, online_kmeans
from riemem.evaluation.packing_eval import run_packing, run_streams
from riemem.evaluation.packing_sizes import LineCounter, LineSizes
from riemem.evaluation.packing_streams import PackQuestion, Stream, StreamTurn, load_streams
from riemem.evaluation.trajectory import make_trajectory
from riemem.memory import Memory
from riemem.packing import fill, pack_grouped, pack_turns


def words(line):
    return len(line.split())


@pytest.fixture
def realmem_file(tmp_path):
    def turn(speaker, content, **more):
        return {"speaker": speaker, "content": content, "is_query": False} | more

    dialogues = [
        {
            "session_uuid": name,
            "current_time": f"2025-01-0{i + 1} (Monday)",
            "dialogue_turns": [turn("User", text), turn("Assistant", f"noted {text}")],
        }
        for i, (name, text) in enumerate([("a", "red kite"), ("b", "tax form"), ("c", "old bread")])
    ]
    dialogues[2]["dialogue_turns"] += [
        turn("User", "where is the red kite?", is_query=True, query_id="q1"),
        turn("Assistant", "there", memory_session_uuids=["a", "z"]),
        turn("User", "and what now?", is_query=True, query_id="q2"),
        turn("Assistant", "nothing", memory_session_uuids=["c"]),
    ]
    path = tmp_path / "realmem.json"
    path.write_text(json.dumps({"_metadata": {"person_name": "P"}, "dialogues": dialogues}))
    return path


def blobs(seed=0):
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(6, 16))
    rows = centres[generator.integers(6, size=90)] + 0.2 * generator.normal(size=(90, 16))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def dp_means_row_by_row(rows, threshold, passes):
    """Kulis and Jordan's loop in so many words; the first pass moves a mean at each row."""
    wide, penalty = rows.astype(np.float64), 2.0 - 2.0 * threshold
    means, members = [], []
    for turn in range(passes):
        labels = []
        for row in wide:
            distances = [((row - mean) ** 2).sum() for mean in means]
            if not means or min(distances) > penalty:
                labels.append(len(means))
                means.append(row)
                members.append([row])
                continue
            nearest = int(np.argmin(distances))
            labels.append(nearest)
            if turn == 0:
                members[nearest].append(row)
                means[nearest] = np.mean(members[nearest], axis=0)
        names, labels = np.unique(labels, return_inverse=True)
        means = [wide[labels == c].mean(axis=0) for c in range(names.size)]
    return labels


class TestBaselines:
    @pytest.mark.parametrize("name", CLUSTERINGS)
    def test_clear_groups_are_found_by_all(self, name):
        rows = blobs()
        labels = cluster(rows, name, 0.75)
        assert labels.shape == (90,)
        assert cluster(rows[:0], name, 0.75).shape == (0,)
        if name == "online_kmeans":  # its centres are the first rows, whatever they are
            return
        for label in np.unique(labels):
            own = rows[labels == label]
            assert (own @ own.T).min() > 0.5

    def test_dp_means_at_rest_is_a_fixed_point(self):
        rows = blobs(1)
        labels = dp_means(rows, 0.6, passes=50)
        means = np.array([rows[labels == c].mean(axis=0) for c in range(labels.max() + 1)])
        distance = ((rows[:, None] - means[None]) ** 2).sum(axis=2)
        assert (distance.argmin(axis=1) == labels).all()
        assert distance.min(axis=1).max() <= 0.8 + 1e-6

    @pytest.mark.parametrize("threshold", [-0.9, 0.3, 0.6, 0.9])
    def test_dp_means_is_the_loop_it_stands_for(self, threshold):
        rows = blobs(3)[:, :6]
        rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        for passes in (1, 2, 5):
            expected = dp_means_row_by_row(rows, threshold, passes)
            assert (dp_means(rows, threshold, passes=passes) == expected).all()

    def test_dp_means_at_the_largest_threshold(self):
        rows = blobs(4)[:30]
        assert set(dp_means(rows, 1.0).tolist()) == set(range(30))
        assert dp_means(rows[:1], 1.0).tolist() == [0]

    def test_kmeans_makes_as_many_as_it_is_told(self):
        assert set(online_kmeans(blobs(2), 7).tolist()) == set(range(7))
        assert online_kmeans(blobs(2)[:3], 7).tolist() == [0, 1, 2]


class TestStreams:
    def test_realmem_asks_about_earlier_sessions_only(self, realmem_file):
        kind, digest, (stream,) = load_streams(realmem_file)
        assert kind == "realmem"
        assert len(digest) == 64
        assert [t.session for t in stream.turns] == ["a", "a", "b", "b", *"cccccc"]
        assert stream.turns[0].when == "2025-01-01T00:00:00+00:00"
        (question,) = stream.questions  # the second one's gold is its own session
        assert (question.text, question.gold, question.visible) == (
            "where is the red kite?",
            ("a",),
            4,
        )

    def test_malformed_files(self, tmp_path):
        path = tmp_path / "x.json"
        with pytest.raises(InputFileError):
            load_streams(path)
        for text in ("{", '{"dialogues": [{"session_uuid": "a"}]}', "[]", '{"a": 1}'):
            path.write_text(text)
            with pytest.raises(ArgumentError):
                load_streams(path)

    def test_a_trajectory_is_seeded_and_its_questions_have_one_answer(self):
        one, two = (
            make_trajectory(200, questions=20, seed=5),
            make_trajectory(200, questions=20, seed=5),
        )
        assert one == two
        assert one != make_trajectory(200, questions=20, seed=6)
        assert len(one.questions) == 20
        for question in one.questions:
            text = one.turns[int(question.gold[0])].text
            number = text.rsplit(" ", 1)[1]
            assert number[:-1].isdigit()
            thing = question.text.split(" ")[1]
            assert f"The {thing} number was" in text


def test_lines_are_counted_once():
    asked = []

    def count(line):
        asked.append(line)
        return words(line)

    counter = LineCounter(count)
    assert counter("a b\nc") == counter("a b\nc") == 4
    assert asked == ["a b", "c"]
    assert counter("") == 0


def test_rows_are_what_they_say(realmem_file):
    report = run_packing(
        realmem_file,
        embedder=HashingEmbedder(dim=32),
        budgets=(12, 1000),
        thresholds=(0.7,),
        quantiles=(0.9,),
        orders=1,
        clusterings=("max_member", "centroid"),
        count_tokens=words,
    )
    by_name = {(row["name"], row["budget"]): row for row in report.rows}
    assert by_name["flat", 1000]["share"] == 1.0
    for row in report.rows:
        assert 0.0 <= row["share"] <= 1.0
        assert row["tokens"] <= row["budget"]
        assert row["difference"]["low"] <= row["difference"]["mean"] <= row["difference"]["high"]
    assert report.data["questions"] == 1
    assert "grouped, max_member q0.9" in report.to_text()
    assert report.data["ranking"] == "default"
    assert {entry["gold_pairs"] for entry in report.streams} == {None}  # sessions, not turns
    assert json.loads(json.dumps(report.to_dict()))["rows"]


@pytest.mark.parametrize("budget", [200, 900])
def test_what_is_measured_is_what_recall_packs(budget):
    """Flat and grouped, share and tokens, against a memory that is asked the same questions."""
    stream = make_trajectory(90, questions=5, tasks=3, seed=2)
    long = " and so it went on" * 30  # length is taken off
    turns = [
        replace(turn, text=turn.text + long, embedded=turn.embedded + long) if i % 3 else turn
        for i, turn in enumerate(stream.turns)
    ]
    stream = replace(stream, turns=tuple(turns))
    report = run_streams(
        [stream],
        {},
        embedder=HashingEmbedder(dim=64),
        budgets=(budget,),
        thresholds=(),
        quantiles=(),
        orders=1,
        clusterings=("max_member",),
        count_tokens=words,
    )
    found = {row["name"]: row for row in report.rows}
    with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as memory:
        memory.add_many(turn.item() for turn in stream.turns)
        for layout, name in (("flat", "flat"), ("grouped", "grouped, max_member")):
            shares, tokens = [], []
            for question in stream.questions:
                made = memory.recall(
                    question.text,
                    token_budget=budget,
                    count_tokens=LineCounter(words),
                    layout=layout,
                )
                inside = {str(hit.id - 1) for hit in made.hits}
                shares.append(np.mean([gold in inside for gold in question.gold]))
                tokens.append(made.tokens)
            assert found[name]["share"] == pytest.approx(np.mean(shares))
            assert found[name]["tokens"] == pytest.approx(np.mean(tokens))


def test_files_of_one_format_are_taken_together(realmem_file, tmp_path):
    options = {
        "embedder": HashingEmbedder(dim=32),
        "budgets": (12,),
        "thresholds": (0.7,),
        "quantiles": (),
        "orders": 3,
        "clusterings": ("online_kmeans", "dp_means"),
        "count_tokens": words,
    }
    one = run_packing(realmem_file, **options)
    two = run_packing([realmem_file, realmem_file], **options)
    assert two.data["questions"] == 2 * one.data["questions"]
    assert two.data["sha256"] == f"{one.data['sha256']}, {one.data['sha256']}"
    assert [row["share"] for row in two.rows] == [row["share"] for row in one.rows]
    assert {entry["choice"] for entry in two.chosen} <= {"flat", "grouped, max_member 0.70"}
    assert "grouped, dp_means, shuffled" in {row["name"] for row in two.rows}
    other = tmp_path / "locomo.json"
    talk = {"speaker_a": "A", "speaker_b": "B", "session_1": []}
    talk["session_1"] = [{"speaker": "A", "dia_id": "D1:1", "text": "hello"}]
    asked = [{"question": "who?", "answer": "A", "category": 4, "evidence": ["D1:1"]}]
    other.write_text(json.dumps([{"sample_id": "x", "qa": asked, "conversation": talk}]))
    with pytest.raises(ArgumentError, match=r"path: expected files of one format.*realmem"):
        run_packing([realmem_file, other], **options)
    with pytest.raises(ArgumentError, match="no file"):
        run_packing([], **options)


def test_evidence_pairs_in_one_atom_are_counted():
    """Two of three evidence turns share an atom: 1 of 3 pairs; of all 6 pairs one does."""
    texts = ["red kite", "red kite", "tax form", "old bread"]
    turns = tuple(
        StreamTurn(i, text, "Ana", "s", None, str(i), text) for i, text in enumerate(texts)
    )
    stream = Stream("made up", turns, (PackQuestion("red kite?", ("0", "1", "2"), 4),))
    report = run_streams(
        [stream],
        {},
        embedder=HashingEmbedder(dim=64),
        budgets=(100,),
        thresholds=(0.9,),
        quantiles=(),
        orders=1,
        clusterings=(),
        count_tokens=words,
    )
    entry = next(e for e in report.streams if e["name"] == "grouped, max_member 0.90")
    assert (entry["gold_pairs"], entry["all_pairs"]) == (pytest.approx(1 / 3), pytest.approx(1 / 6))
    with pytest.raises(ArgumentError, match="ranking"):
        run_streams([stream], {}, ranking="magic")


@given(
    st.lists(st.text(alphabet="ab \n", max_size=12), min_size=1, max_size=12),
    st.lists(st.integers(0, 3), min_size=12, max_size=12),
    st.integers(0, 60),
    st.integers(0, 2**32 - 1),
)
def test_sizes_are_those_of_the_packers_texts(texts, atoms, budget, seed):
    """What is counted without writing is what the packer's own texts count, and as much fits."""
    generator = np.random.default_rng(seed)
    scores = generator.permutation(len(texts)).tolist()
    turns = [
        StreamTurn(i, text, "Ana", f"s{i % 3}", f"2024-05-0{1 + i % 3}T10:00:00+00:00", "",
                   "", score=float(scores[i]))
        for i, text in enumerate(texts)
    ]  # fmt: skip
    counter = LineCounter(words)
    sizes = LineSizes(turns, counter)
    ranked = sizes.distinct([turn.id for turn in sorted(turns, key=lambda turn: -turn.score)])
    owner = dict(enumerate(atoms[: len(texts)]))
    names = {atom: f"number {atom}" for atom in range(4)}
    adds = [sizes.adds[row] for row in ranked]
    for layout in ("flat", "grouped"):
        try:
            if layout == "flat":
                packed = pack_turns(turns, token_budget=budget, count_tokens=counter)
                assert sizes.flat([t.id for t in packed.turns]) == packed.tokens
                _, _, tokens = fill(ranked, budget, lambda own, more: sizes.flat(own + more), adds)
                assert tokens == packed.tokens
                continue
            packed = pack_grouped(
                turns, owner, token_budget=budget, count_tokens=counter, headers=names
            )
        except BudgetTooSmallError:
            continue
        assert sizes.grouped([t.id for t in packed.turns], owner, names) == packed.tokens
        assert packed.tokens == counter(packed.text)


def test_one_stream_is_left_out_at_a_time():
    streams = [make_trajectory(60, questions=4, tasks=3, seed=seed) for seed in (0, 1)]
    report = run_streams(
        streams,
        {"file": "made up"},
        embedder=HashingEmbedder(dim=32),
        budgets=(200,),
        thresholds=(0.6, 0.95),
        quantiles=(),
        orders=2,
        clusterings=("max_member",),
        limit=3,
        count_tokens=words,
    )
    assert [entry["stream"] for entry in report.chosen] == ["trajectory-0", "trajectory-1"]
    assert report.data["questions"] == 6
    assert any("reversed" in row["name"] for row in report.rows)
    with pytest.raises(ArgumentError, match="clusterings"):
        run_streams(streams, {}, clusterings=("magic",))
    with pytest.raises(ArgumentError, match="orders"):
        run_streams(streams, {}, orders=4)

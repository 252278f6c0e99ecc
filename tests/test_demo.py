"""The demo's conversation is what it says, and its run finds what it should."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from riemem import demo
from riemem.cli import cli
from riemem.embed import HashingEmbedder, MiniLMEmbedder, render_turn


@pytest.fixture(scope="module")
def conversation() -> demo.Conversation:
    return demo.load()


def test_the_conversation_is_a_year_of_two_people(conversation: demo.Conversation) -> None:
    turns = conversation.turns
    assert len(turns) >= 120
    assert len({turn.session for turn in turns}) >= 8
    assert set(Counter(turn.speaker for turn in turns)) == {"Mara", "Tomas"}
    instants = [datetime.fromisoformat(turn.when) for turn in turns]
    assert all(moment.tzinfo is not None for moment in instants)
    assert instants == sorted(instants)
    assert (instants[-1] - instants[0]).days >= 350
    assert len({turn.text for turn in turns}) == len(turns)
    assert [turn.position for turn in turns] == list(range(len(turns)))


def test_it_holds_dates_numbers_negations_and_a_changed_preference(
    conversation: demo.Conversation,
) -> None:
    texts = [turn.text for turn in conversation.turns]
    assert sum(any(c.isdigit() for c in text) for text in texts) >= 12
    assert sum("n't" in text or "never" in text or " not " in text for text in texts) >= 15
    coffee = next(i for i, text in enumerate(texts) if "three strong cups" in text)
    given_up = next(i for i, text in enumerate(texts) if "given up coffee" in text)
    assert coffee < given_up


def test_evidence_points_at_turns_that_hold_the_answer(conversation: demo.Conversation) -> None:
    answers = ["hazelnuts", "tea", "65", "14 September", "two", "tripping", "dark green", "Trieste"]
    assert len(conversation.questions) == len(answers)
    for question, answer in zip(conversation.questions, answers, strict=True):
        assert question.evidence
        assert answer in conversation.turns[question.evidence[0]].text


def test_cosine_scores_are_those_of_numpy(conversation: demo.Conversation) -> None:
    embedder = HashingEmbedder(dim=128)
    report = demo.run(embedder, k=7)
    rows = embedder.embed([render_turn(t.text, speaker=t.speaker) for t in conversation.turns])
    queries = embedder.embed([question.text for question in conversation.questions])
    expected = queries.astype(np.float64) @ rows.astype(np.float64).T
    for answer, scores in zip(report.answers, expected, strict=True):
        order = np.argsort(-scores, kind="stable")[:7]
        assert [hit.position for hit in answer.cosine] == order.tolist()
        np.testing.assert_allclose([hit.score for hit in answer.cosine], scores[order], atol=1e-6)


def test_a_run_is_repeatable_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first = demo.run(HashingEmbedder(dim=64), k=5, token_budget=250)
    second = demo.run(HashingEmbedder(dim=64), k=5, token_budget=250)
    assert first == second
    assert first.to_text() == second.to_text()
    assert list(tmp_path.iterdir()) == []
    assert all(answer.tokens <= 250 for answer in first.answers)
    assert all(len(answer.fused) == len(answer.cosine) == 5 for answer in first.answers)


@pytest.mark.parametrize("width", [80, 100])
def test_the_text_fits_the_columns_and_marks_the_evidence(width: int) -> None:
    report = demo.run(HashingEmbedder(dim=256), k=5)
    lines = report.to_text(width).splitlines()
    assert max(map(len, lines)) <= width
    for answer in report.answers:
        assert any(line.endswith(answer.question) for line in lines)
        assert any(f"context: {answer.tokens} of 300 tokens" in line for line in lines)
    marks = sum(line.count(" * ") for line in lines if not line.startswith("   |"))
    assert marks == sum(
        hit.evidence for answer in report.answers for hit in (*answer.cosine, *answer.fused)
    )


def test_the_command_prints_the_report_and_its_json() -> None:
    environment = {"RIEMEM_EMBEDDER": "hashing"}
    report = demo.run(HashingEmbedder(), k=3, token_budget=200)
    words = ["demo", "-k", "3", "--budget", "200"]
    plain = CliRunner().invoke(cli, words, env=environment)
    assert (plain.exit_code, plain.stderr) == (0, "")
    assert plain.stdout.startswith(report.title)
    document = CliRunner().invoke(cli, [*words, "--json"], env=environment)
    assert json.loads(document.stdout) == json.loads(json.dumps(report.to_dict()))


@pytest.mark.model
def test_with_the_real_model_the_evidence_is_found(minilm: MiniLMEmbedder) -> None:
    report = demo.run(minilm, k=5)
    assert report.found("fused") >= 7
    assert report.found("cosine") >= 4
    assert all(answer.tokens <= 300 for answer in report.answers)

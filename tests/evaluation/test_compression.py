"""The compression evaluation on a conversation made up here."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import ArgumentError, CancelledError, InputFileError
from riemem.evaluation.compression import METHODS, run_compression
from riemem.evaluation.compression_report import CompressionReport
from riemem.evaluation.likelihood import AnswerPrediction, divergence, predict_answer, spearman

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent.parent / "distill"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from conftest_model import make_model
    from riemem.distill import load_language_model

    return load_language_model(make_model(tmp_path_factory.mktemp("tiny") / "lm"), dtype="float32")


@pytest.fixture
def file(tmp_path):
    turns = [
        {"speaker": speaker, "dia_id": f"D1:{n}", "text": text}
        for n, (speaker, text) in enumerate(
            [
                ("Dave", "I have taken up photography, it is really great fun."),
                ("Maya", "That is not what I expected! Where do you go for it?"),
                ("Dave", "Mostly to the old harbour, at 6 in the morning, with Tim."),
                ("Maya", "I bought 3 telescopes on Monday because of the comet."),
            ],
            start=1,
        )
    ]
    data = [
        {
            "sample_id": "made-up",
            "conversation": {
                "speaker_a": "Dave", "speaker_b": "Maya", "session_1": turns,
                "session_1_date_time": "1:56 pm on 8 May, 2023",
            },
            "qa": [
                {"question": "What has Dave taken up?", "answer": "Photography",
                 "evidence": ["D1:1"], "category": 4},
                {"question": "What did Maya buy?", "answer": "telescopes",
                 "evidence": ["D1:4"], "category": 1},
                {"question": "When?", "answer": "May", "evidence": ["D1:4"], "category": 2},
            ],
        }
    ]  # fmt: skip
    path = tmp_path / "made.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_rows_and_what_is_in_them(file, model, tmp_path) -> None:
    seen = []
    report = run_compression(
        file, budgets=(40,), ratios=(0.5,), embedder=HashingEmbedder(dim=32), model=model,
        methods=("turns", "random", "self-information", "sensitivity"), likelihood=1, sentences=1,
        cache=tmp_path / "cache", progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert report.data["questions"] == 2
    assert [row["method"] for row in report.rows[:4]] == [
        "turns", "random", "self-information", "sensitivity",
    ]  # fmt: skip
    for row in report.rows:
        assert row["n"] == 2
        assert row["over"] == 0
        assert 0.0 <= row["answer_words"] <= 1.0
        assert np.isfinite(row["delta_nll"])
        assert row["kl"] >= -1e-6
        assert row["speakers"] == 1.0
    assert report.rows[0]["difference"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert seen[-1] == (16, 16)
    assert report.sentences["contexts"] == 1
    assert (tmp_path / "cache" / "sensitivities.json").exists()
    assert "budget 40" in report.to_text()
    assert report.to_text().count(" spk. ") == len({row["budget"] for row in report.rows})
    assert all("speakers" in run for run in report.measured)
    assert json.loads(json.dumps(report.to_dict()))["rows"][0]["method"] == "turns"
    again = run_compression(
        file, budgets=(40,), ratios=(), embedder=HashingEmbedder(dim=32), model=model,
        methods=("turns", "sensitivity"), cache=tmp_path / "cache",
    )  # fmt: skip
    assert again.rows[1]["answer_words"] == report.rows[3]["answer_words"]


def test_every_method_has_a_share_of_speakers(file, model) -> None:
    report = run_compression(
        file, budgets=(40,), ratios=(), embedder=HashingEmbedder(dim=32), model=model
    )
    assert [row["method"] for row in report.rows] == [name for name, *_ in METHODS]
    assert [row["speakers"] for row in report.rows] == [1.0] * len(METHODS)


def test_labels_that_are_dropped_show_in_the_rows(file, model, monkeypatch) -> None:
    """A writer of texts that leaves every label out is caught by the reading of the text."""
    from riemem.evaluation import compression

    class Dropping(compression.Distiller):
        def distill(self, *args, **options):
            made = super().distill(*args, **options)
            lines = [re.sub("^(Dave|Maya): ", "", line) for line in made.text.split("\n")]
            return replace(made, text="\n".join(lines))

    monkeypatch.setattr(compression, "Distiller", Dropping)
    monkeypatch.setattr(compression, "parse", lambda text: [])
    report = run_compression(
        file, budgets=(80,), ratios=(), embedder=HashingEmbedder(dim=32), model=model,
        methods=("turns", "words"),
    )  # fmt: skip
    assert [row["speakers"] for row in report.rows] == [0.0, 0.0]


def test_only_questions_that_need_no_pass(file, model, tmp_path) -> None:
    options = {
        "budgets": (40,), "ratios": (), "embedder": HashingEmbedder(dim=32), "model": model,
        "methods": ("turns", "words", "sensitivity 1.5x"), "cache": tmp_path / "cache",
    }  # fmt: skip
    with pytest.raises(ArgumentError, match="cached_only"):
        run_compression(file, cached_only=True, **options)
    everything = run_compression(file, **options)
    again = run_compression(file, cached_only=True, **options)
    assert again.data["questions"] == everything.data["questions"] == 2
    for one, two in zip(everything.rows, again.rows, strict=True):
        assert one["answer_words"] == two["answer_words"]


def test_methods_are_chosen_on_the_other_conversations() -> None:
    """In A and B words win, in C turns: C is measured with words, A and B with what is best."""
    values = {"A": (0.2, 0.9), "B": (0.4, 0.8), "C": (1.0, 0.5)}
    report = CompressionReport({"compared with": "turns"})
    for name, pair in values.items():
        for method, value in zip(("turns", "words"), pair, strict=True):
            report.conversations.append(
                {"budget": "250", "method": method, "conversation": name, "answer_words": value}
            )
    report.choose(["250"])
    assert [(e["conversation"], e["method"]) for e in report.chosen] == [
        ("A", "turns"), ("B", "words"), ("C", "words"),
    ]  # fmt: skip
    assert report.chosen[2]["answer_words"] == {"250": 0.5}
    assert report.chosen[2]["base"] == {"250": 1.0}
    assert "C          words" in report.to_text()


def test_arguments(file, model, tmp_path) -> None:
    with pytest.raises(ArgumentError, match="methods"):
        run_compression(file, methods=("nonsense",))
    with pytest.raises(ArgumentError, match="budgets"):
        run_compression(file, budgets=(0,))
    with pytest.raises(ArgumentError, match="ratios"):
        run_compression(file, ratios=(1.5,))
    with pytest.raises(InputFileError):
        run_compression(tmp_path / "none.json")
    with pytest.raises(CancelledError):
        run_compression(
            file, budgets=(40,), ratios=(), embedder=HashingEmbedder(dim=32), model=model,
            methods=("turns",), progress=lambda done, total: False,
        )  # fmt: skip


def test_likelihood_of_an_answer_is_that_of_its_tokens(model) -> None:
    torch = pytest.importorskip("torch")
    found = predict_answer(model, "Dave likes tea.", "What does Dave like?", "tea")
    text = "Dave likes tea.\n\nQuestion: What does Dave like?\nAnswer: tea"
    ids = torch.tensor([model.encode(text).ids])
    with torch.no_grad():
        logs = torch.log_softmax(model.model(input_ids=ids).logits[0].float(), -1)
    expected = -np.mean([float(logs[-5 + n, ids[0, -4 + n]]) for n in range(4)])
    assert found.nll == pytest.approx(expected, rel=1e-4)
    assert divergence(found, found) == pytest.approx(0.0, abs=1e-6)
    other = predict_answer(model, "Maya sings.", "What does Dave like?", "tea")
    assert divergence(found, other) > 0.0


def test_divergence_by_hand() -> None:
    p = AnswerPrediction(0.0, np.log(np.array([[0.5, 0.5]], np.float32)))
    q = AnswerPrediction(0.0, np.log(np.array([[0.25, 0.75]], np.float32)))
    assert divergence(p, q) == pytest.approx(0.5 * np.log(2) + 0.5 * np.log(2 / 3), rel=1e-6)


def test_spearman_is_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.integers(0, 6, 30).astype(float), rng.normal(size=30)
        assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert spearman(np.ones(5), np.arange(5.0)) == 0.0

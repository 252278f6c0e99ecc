"""The whole evaluation on a small file whose right answers were worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from riemem.errors import ArgumentError, CancelledError, InputFileError
from riemem.evaluation import run_locomo
from riemem.evaluation.metrics import NAMES
from riemem.presets import Preset, presets


class Axes:
    """Each turn its own axis; a question points at the turn, with a bit of the next ones."""

    identity = "axes"
    dim = 8
    max_tokens = 100
    words = ("greyhound", "Trondheim", "pottery", "cello", "passport", "mushrooms")

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def embed(self, texts):
        self.calls.append(list(texts))
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            place = next(i for i, word in enumerate(self.words) if word in text)
            row[place] = 1.0
            if text in self.words:  # a question: falling weights on the turns that follow
                for step in range(1, 6):
                    row[(place + step) % 6] = 0.9**step
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def windows(self, text):
        return [text]


def by_name(rows):
    return {row["name"]: row for row in rows}


def test_rows_worked_out_by_hand(talk, write):
    path = write("talk.json", talk)
    report = run_locomo(path, embedder=Axes())
    rows = by_name(report.rows)
    assert list(rows)[:3] == ["cosine", "centred-cosine", "bm25"]
    assert list(rows)[-1] == "default"
    assert set(rows) >= {"cosine", "centred-cosine", "bm25"} | set(presets) - {"cosine"}
    # Ranks of the evidence by cosine: [1], [1, 3], [1], and [5] for "mushrooms" -> row 3.
    cosine = rows["cosine"]
    assert cosine["n"] == 4
    assert [cosine[name] for name in ("hit@1", "hit@5", "hit@10")] == [0.75, 1.0, 1.0]
    assert (cosine["recall@10"], cosine["all@10"]) == (1.0, 1.0)
    assert cosine["mrr"] == pytest.approx((1 + 1 + 1 + 1 / 5) / 4)
    assert cosine["hubness"] == 0.0  # six turns: all are among the first ten of every question
    assert cosine["categories"]["3"]["n"] == 1
    assert cosine["categories"]["3"]["hit@1"] == 0.0
    assert cosine["categories"]["1"]["hit@1"] == 1.0
    assert set(cosine["categories"]) == {"1", "2", "3", "4"}
    # BM25 finds the one turn with the word, and nothing else: "passport" half, "mushrooms" not.
    bm25 = rows["bm25"]
    assert [bm25[name] for name in ("hit@1", "hit@50", "all@10")] == [0.75, 0.75, 0.5]
    assert bm25["recall@10"] == pytest.approx((1 + 0.5 + 1 + 0) / 4)
    assert bm25["difference_to_cosine"]["hit@50"]["mean"] == pytest.approx(-0.25)


def test_small_conversation_says_that_the_metric_was_not_used(talk, write):
    report = run_locomo(write("talk.json", talk), embedder=Axes())
    rows = by_name(report.rows)
    assert any("coremem-pure on talk-1: cosine" in note for note in report.notes)
    for name in NAMES:
        assert rows["coremem-pure"][name] == rows["cosine"][name]
        zero = {"mean": 0.0, "low": 0.0, "high": 0.0}
        assert rows["coremem-pure"]["difference_to_cosine"][name] == zero


def test_json_form(talk, write):
    path = write("talk.json", talk)
    report = run_locomo(path, embedder=Axes(), rendering="text")
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert data["data"]["file"] == "talk.json"
    assert len(data["data"]["sha256"]) == 64
    assert (data["data"]["conversations"], data["data"]["turns"]) == (1, 6)
    assert data["data"]["questions"] == 4
    assert (data["rendering"], data["embedder"]) == ("text", "axes")
    assert (data["audit"], data["audit_rows"]) == (None, [])
    for row in data["rows"]:
        assert {"name", "n", *NAMES, "hubness", "categories", "difference_to_cosine",
                "evidence"} == set(row)  # fmt: skip


def test_audit_gives_second_rows(talk, audit, write):
    report = run_locomo(write("talk.json", talk), audit=write("audit.json", audit), embedder=Axes())
    assert (report.audit["corrected"], report.audit["dropped"]) == (2, 1)
    rows = by_name(report.audit_rows)
    assert rows["cosine"]["n"] == 4
    assert rows["cosine"]["hit@1"] == 1.0  # all four citations are right now
    assert set(rows["cosine"]["categories"]) == {"1", "3", "4"}
    assert by_name(report.rows)["cosine"]["hit@1"] == 0.75
    text = report.to_text()
    assert "2 questions with corrected evidence, 1 with other errors left out" in text


def test_audit_that_leaves_nothing(talk, write):
    entries = [{"sample_id": "talk-1", "qa_index": i, "error_type": "AMBIGUOUS"} for i in range(6)]
    with pytest.raises(ArgumentError, match=r"^audit: expected some question to remain"):
        run_locomo(write("talk.json", talk), audit=write("a.json", entries), embedder=Axes())


def test_text_table(talk, write):
    report = run_locomo(write("talk.json", talk), embedder=Axes())
    text = report.to_text()
    assert max(len(line) for line in text.splitlines() if not line.startswith("note")) <= 100
    assert f"sha256 {report.data['sha256']}" in text
    assert "rendering  name-said" in text
    assert "4 of categories 1-4 with evidence, 1 conversations, 6 turns" in text
    line = next(line for line in text.splitlines() if line.startswith("cosine "))
    assert line.split()[:4] == ["cosine", "4", "0.750", "1.000"]


def test_rendering_reaches_the_embedder(talk, write):
    model = Axes()
    run_locomo(write("talk.json", talk), embedder=model, rendering="name-text")
    texts = [text for call in model.calls for text in call]
    assert "Ana: Pixel chewed my passport [shares a torn booklet]" in texts
    assert "pottery" not in texts  # the adversarial question is not asked


def test_large_conversation_uses_the_metric(write, hashing_embedder):
    nouns = ["kettle", "ladder", "violin", "anchor", "candle", "saddle", "turnip", "walnut"]
    colours = ["red", "blue", "green", "grey", "white"]
    said = [f"the {colour} {noun} stands there" for colour in colours for noun in nouns]
    turns = [
        {"speaker": "Ana", "text": text, "dia_id": f"D1:{i}"} for i, text in enumerate(said, 1)
    ]
    qa = [
        {"question": text, "answer": "", "evidence": [f"D1:{i}"], "category": 4}
        for i, text in enumerate(said, 1)
    ]
    path = write("big.json", [{"sample_id": "big", "conversation": {"session_1": turns}, "qa": qa}])
    report = run_locomo(path, embedder=hashing_embedder, rendering="text")
    assert report.notes == []
    names = ("cosine", "bm25", "whitened-cosine", "only dense", "only lexical")
    for row in (row for row in report.rows if row["name"] in names):
        assert row["hit@1"] == 1.0, row["name"]  # every question is a turn, word for word


def test_chosen_presets(talk, write):
    path = write("talk.json", talk)
    report = run_locomo(path, embedder=Axes(), presets=["default", "coremem-pure"])
    names = [row["name"] for row in report.rows]
    assert names == ["cosine", "centred-cosine", "bm25", "coremem-pure", "default"]
    mine = Preset("mine", "full", 2.0, 0.95, "inner", 0.3, "minmax", "here")
    report = run_locomo(path, embedder=Axes(), presets={"mine": mine})
    assert report.rows[-1]["name"] == "mine"
    with pytest.raises(ArgumentError, match=r"^presets: expected names out of .*'nope'"):
        run_locomo(path, embedder=Axes(), presets=["nope"])


def test_progress_and_cancelling(talk, write):
    path, steps = write("talk.json", talk), []
    run_locomo(path, embedder=Axes(), progress=lambda *step: steps.append(step))
    assert steps[0] == (0, 11)
    assert steps[-1] == (11, 11)
    assert steps == sorted(steps)
    with pytest.raises(CancelledError):
        run_locomo(path, embedder=Axes(), progress=lambda done, _: done < 6)


def test_vectors_are_kept_in_the_cache_folder(talk, write, tmp_path):
    path, model = write("talk.json", talk), Axes()
    first = run_locomo(path, embedder=model, cache=tmp_path / "kept")
    calls = len(model.calls)
    again = run_locomo(path, embedder=model, cache=tmp_path / "kept")
    assert len(model.calls) == calls
    assert again.to_dict() == first.to_dict()
    run_locomo(path, embedder=model, cache=tmp_path / "kept", rendering="text")
    assert len(model.calls) == calls + 1  # other turns, the same questions


def test_bad_arguments(talk, write, tmp_path):
    path = write("talk.json", talk)
    with pytest.raises(ArgumentError, match=r"^rendering: expected one of name-said"):
        run_locomo(path, embedder=Axes(), rendering="loud")
    with pytest.raises(InputFileError, match=r"^audit: no such file"):
        run_locomo(path, audit=tmp_path / "none.json", embedder=Axes())

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import ArgumentError, CancelledError, InputFileError
from riemem.evaluation.hybrid import evidence_inside
from riemem.evaluation.realmem import _measure, load_realmem, run_realmem
from riemem.retrieval.fusion import rankings


def turn(text: str, *, query: bool = False, used: list[str] | None = None) -> dict[str, Any]:
    if used is not None:
        return {"speaker": "Assistant", "content": text, "memory_session_uuids": used}
    return {"speaker": "User", "content": text, "is_query": query}


def persona() -> dict[str, Any]:
    talks = ["The red kite flew over the harbour.", "My dentist is called Molar.", "I like figs."]
    dialogues = [
        {
            "session_uuid": f"u{i}",
            "current_time": f"2025-0{i + 1}-03 (Monday)",
            "dialogue_turns": [turn(text), turn("I see.", used=[])],
        }
        for i, text in enumerate(talks)
    ]
    dialogues.append(
        {
            "session_uuid": "u3",
            "current_time": "2025-09-03 (Wednesday)",
            "dialogue_turns": [
                turn("Who is my dentist called Molar?", query=True),
                turn("Molar.", used=["u1", "u3", "u9"]),
                turn("And nothing?", query=True),
                turn("Nothing.", used=[]),
                turn("Where did the red kite fly?", query=True),
                turn("Over the harbour.", used=["u0"]),
            ],
        }
    )
    return {"_metadata": {"person_name": "Ana"}, "dialogues": dialogues}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ana.json"
    path.write_text(json.dumps(persona()))
    return path


def test_gold_sessions_are_the_earlier_ones(file: Path) -> None:
    read = load_realmem(file)
    assert read.name == "Ana"
    assert [(q.text, q.session, q.gold) for q in read.questions] == [
        ("Who is my dentist called Molar?", 3, ("u1",)),
        ("Where did the red kite fly?", 3, ("u0",)),
    ]
    assert read.sessions[0][0] == {
        "text": "The red kite flew over the harbour.",
        "speaker": "User",
        "session": "u0",
        "when": "2025-01-03T00:00:00Z",
    }
    assert len(read.sha256) == 64


def test_an_embedder_without_tokens_has_no_such_row(file: Path) -> None:
    class Plain:
        identity, dim, max_tokens = "plain-hashing", 32, 512

        def embed(self, texts: Any) -> Any:
            return HashingEmbedder(dim=32).embed(texts)

        def windows(self, text: str) -> Any:
            return HashingEmbedder(dim=32).windows(text)

    names = [row["name"] for row in run_realmem([file], embedder=Plain()).rows]
    assert names[-1] == "default"


class Worth(HashingEmbedder):
    """Its tokens are worth keeping."""

    tokens_by_default = True


def test_a_report_has_every_method_and_its_intervals(file: Path) -> None:
    report = run_realmem([file], embedder=Worth(dim=32))
    names = [row["name"] for row in report.rows]
    assert names[:3] == ["cosine", "bm25", "whitened cosine"]
    assert names[-4:] == ["without brevity", "half", "slm-v3", "default"]
    weights = rankings["late-interaction"].weights
    assert {f"without {name}" for name in (*weights, "neighbours", "answers")} < set(names)
    assert {f"only {name}" for name in ("names", "temporal", "entities", "profile")} < set(names)
    for row in report.rows:
        assert row["n"] == 2
        assert row["recall@10"] == row["hit@10"] == row["inside 2000"] == 1.0
        assert row["hit@1"] <= row["mrr"] <= row["hit@5"]
        assert row["minus_cosine"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert json.loads(json.dumps(report.to_dict()))["data"][0]["questions"] == 2
    assert "sha256" in report.to_text()
    assert max(map(len, report.to_text().splitlines())) <= 100


def test_the_measure_of_one_question() -> None:
    values = _measure([2, 0, 1], ["b", "z"], ["a", "b", "c"], [10, 10, 600])
    assert values["recall@5"] == values["recall@10"] == 0.5
    assert (values["hit@10"], values["all@10"]) == (1.0, 0.0)
    assert (values["hit@1"], values["hit@5"], values["mrr"]) == (0.0, 1.0, 1 / 3)
    assert values["inside 500"] == 0.5
    assert evidence_inside([2, 0, 1], [1], [10, 10, 600], 605) == 0.0


def test_cancelling_and_the_cache(file: Path, tmp_path: Path) -> None:
    with pytest.raises(CancelledError):
        run_realmem([file], embedder=HashingEmbedder(dim=8), progress=lambda done, total: False)
    first = run_realmem([file], embedder=HashingEmbedder(dim=8), cache=tmp_path / "c")
    again = run_realmem([file], embedder=HashingEmbedder(dim=8), cache=tmp_path / "c")
    assert first == again


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("dialogues"), "'dialogues' is missing"),
        (lambda d: d["dialogues"][0].pop("session_uuid"), r"dialogues\[0\]: 'session_uuid'"),
        (lambda d: d["dialogues"][0].update(dialogue_turns=3), "expected list, got a number"),
        (lambda d: d["dialogues"][1]["dialogue_turns"][0].pop("content"), "'content' is missing"),
        (lambda d: d["dialogues"].pop(), "expected questions that need earlier sessions"),
    ],
)
def test_a_malformed_file_is_named_with_its_place(file: Path, change: Any, message: str) -> None:
    data = persona()
    change(data)
    file.write_text(json.dumps(data))
    with pytest.raises(ArgumentError, match=message):
        load_realmem(file)


def test_no_files_and_missing_files(tmp_path: Path) -> None:
    for paths in ([], "one.json"):
        with pytest.raises(ArgumentError, match="paths: expected"):
            run_realmem(paths)
    with pytest.raises(InputFileError):
        run_realmem([tmp_path / "none.json"])

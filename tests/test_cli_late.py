"""The command late-interaction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from riemem._cli.app import cli
from riemem.embed import HashingEmbedder
from riemem.memory import Memory


@pytest.fixture
def run(tmp_path: Path) -> Any:
    store = str(tmp_path / "me.db")

    def call(*args: str, code: int = 0) -> Any:
        given = [*args, "--store", store, "--embedder", "hashing"]
        result = CliRunner().invoke(cli, given)
        assert result.exit_code == code, result.output
        return result

    call("add", "the red kite", "tax form due")
    return call


def test_on_status_off(run: Any) -> None:
    off = {"on": False, "memories": 0, "missing": 2, "bytes": 0, "form": None}
    assert json.loads(run("late-interaction", "status", "--json").stdout) == {
        "late_interaction": off
    }
    assert run("late-interaction", "status").stdout == "off\n"
    text = "on: 2 of 2 memories have vectors of tokens, 320 bytes\n"
    assert run("late-interaction", "on").stdout == text
    assert run("late-interaction", "status").stdout == text
    run("add", "a lighthouse")
    found = json.loads(run("late-interaction", "on", "--json").stdout)["late_interaction"]
    assert (found["on"], found["memories"], found["missing"]) == (True, 3, 0)
    assert found["form"] == "rotated-signs512-v1"
    assert json.loads(run("stats", "--json").stdout)["stats"]["late_interaction"] == found
    assert json.loads(run("check", "--json").stdout)["check"]["counts"]["token_vectors"] == 3
    erased = json.loads(run("late-interaction", "off", "--json").stdout)["late_interaction"]
    assert erased == off | {"missing": 3, "erased": True}
    assert run("late-interaction", "off").stdout == "off\n"


def test_bytes_that_could_not_be_erased_yet_are_said(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("late-interaction", "on")
    monkeypatch.setattr("riemem.store.writes.resume_erasure", lambda store: False)
    assert "another process is reading" in run("late-interaction", "off").stdout
    monkeypatch.undo()
    with Memory.open(tmp_path / "me.db", embedder=HashingEmbedder()) as memory:
        assert not memory.stats()["erasure_pending"]


def test_what_it_does_not_know(run: Any, tmp_path: Path) -> None:
    run("late-interaction", "perhaps", code=2)
    run("late-interaction", code=2)
    away = ["late-interaction", "on", "--store", str(tmp_path / "none.db")]
    assert CliRunner().invoke(cli, away).exit_code == 3
    assert not (tmp_path / "none.db").exists()


def test_a_store_that_does_not_exist_yet_can_be_told(tmp_path: Path) -> None:
    store = ["--store", str(tmp_path / "new.db"), "--embedder", "hashing:64"]
    found = CliRunner().invoke(cli, ["late-interaction", "off", *store])
    assert (found.exit_code, found.stdout) == (0, "off\n")
    assert CliRunner().invoke(cli, ["add", "the red kite", *store]).exit_code == 0
    status = CliRunner().invoke(cli, ["late-interaction", "status", *store])
    assert status.stdout == "off\n"

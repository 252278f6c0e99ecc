"""export, import, backup and compact, against what the library itself answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from riemem.cli import cli
from riemem.embed import HashingEmbedder
from riemem.memory import Memory

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def call(*words: str, store: str = "me.db", text: bytes | None = None) -> Result:
        environment = {"RIEMEM_STORE": str(tmp_path / store), "RIEMEM_EMBEDDER": "hashing"}
        return CliRunner().invoke(cli, list(words), input=text, env=environment)

    return call


@pytest.fixture
def filled(run: Run) -> Run:
    assert run("add", "tea", "milk", "--session", "s1", "--meta", "n=1").exit_code == 0
    assert run("add", "elsewhere", "--profile", "p2").exit_code == 0
    assert run("forget", "1").exit_code == 0
    return run


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return json.loads(result.stdout)


def failure(result: Result, code: int) -> Any:
    assert (result.exit_code, result.stdout) == (code, "")
    return json.loads(result.stderr)["error"]


def test_there_and_back(filled: Run, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    result = filled("export", str(file), "--all-profiles", "--vectors")
    size = file.stat().st_size
    assert (result.exit_code, result.stdout) == (0, f"exported 2 memories, {size} bytes\n")
    result = filled("import", str(file), store="new.db")
    assert (result.exit_code, result.stdout) == (0, "imported 2 memories, ids kept\n")
    with (
        Memory.open(tmp_path / "me.db", embedder=HashingEmbedder()) as old,
        Memory.open(tmp_path / "new.db", embedder=HashingEmbedder()) as new,
    ):
        for profile in ("default", "p2"):
            assert old.list(profile=profile) == new.list(profile=profile) != []


def test_one_json_document(filled: Run, tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    exported = document(filled("export", str(file), "--session", "s1", "--json"))
    assert exported["file"] == str(file)
    assert exported["exported"]["memories"] == 1
    imported = document(filled("import", str(file), "--into", "p3", "--json"))["imported"]
    assert imported == {
        "memories": 1, "skipped": 0, "ids": {"2": 4}, "ids_kept": False, "embedded": 1,
        "dry_run": False,
    }  # fmt: skip
    again = document(filled("import", str(file), "--skip-duplicates", "--json"))["imported"]
    assert (again["memories"], again["skipped"]) == (0, 1)
    backup = document(filled("backup", str(tmp_path / "b.db"), "--json"))["backup"]
    assert backup == {"file": str(tmp_path / "b.db"), "bytes": (tmp_path / "b.db").stat().st_size}
    compacted = document(filled("compact", "--json"))["compacted"]
    assert compacted["complete"] is True
    assert compacted["bytes_after"] <= compacted["bytes_before"]


def test_standard_output_and_input(filled: Run, tmp_path: Path) -> None:
    result = filled("export", "-")
    assert result.exit_code == 0
    assert result.stderr.startswith("exported 1 memory, ")
    assert json.loads(result.stdout.splitlines()[1])["text"] == "milk"
    taken = filled("import", "-", store="new.db", text=result.stdout.encode())
    assert taken.stdout == "imported 1 memory, ids kept, 1 embedded\n"
    assert failure(filled("export", "-", "--json"), 2)["type"] == "UsageError"


def test_a_dry_run_makes_no_store(filled: Run, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    filled("export", str(file))
    result = filled("import", str(file), "--dry-run", store="new.db")
    assert result.stdout == "would import 1 memory, ids kept, 1 to embed\n"
    assert not (tmp_path / "new.db").exists()
    result = filled("import", str(file), "--dry-run")
    assert result.stdout == "would import 1 memory, with new ids, 1 to embed\n"
    assert len(document(filled("list", "--json"))["memories"]) == 1


def test_failures_have_their_codes(filled: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"format": "riemem-export", "version": 1}\n{"id": 1}\n')
    error = failure(filled("import", str(bad), "--json"), 1)
    assert error["message"] == f"{bad}: line 2: profile: missing"
    assert failure(filled("import", str(tmp_path / "no"), "--json"), 1)["type"] == "InputFileError"
    error = failure(filled("export", str(tmp_path / "me.db"), "--json"), 1)
    assert "belongs to the store" in error["message"]
    assert failure(filled("export", str(bad), "--json", store="no.db"), 3)["hint"]
    for words in (["export", str(bad), "--all-profiles", "--session", "s1"], ["export"]):
        assert filled(*words).exit_code == 2
    bad.write_text('{"format": "riemem-export", "version": 9}\n')
    assert failure(filled("import", str(bad), "--json"), 3)["type"] == "SchemaVersionError"

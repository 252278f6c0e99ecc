"""``riemem doctor``: what it looks at, what it calls wrong, and the remedy it names."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
import riemem
from click.testing import CliRunner
from riemem import doctor, models
from riemem.cli import cli
from riemem.doctor import SECTIONS, Finding, examine
from riemem.embed import HashingEmbedder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "me.db"
    with riemem.Memory.open(path, embedder=HashingEmbedder(dim=16)) as memory:
        memory.add("the gauge stood at 3.42 m")
        memory.add("tea at four", profile="other")
    path.chmod(0o600)
    return path


def by_name(section: list[Finding]) -> dict[str, Finding]:
    return {one.name: one for one in section}


def test_every_issue_line_has_a_section(store: Path) -> None:
    found = examine(store)
    assert list(found.sections) == list(SECTIONS)
    assert {"build", "sqlite", "models", "devices", "budget", "store", "privacy"} <= set(SECTIONS)
    build = by_name(found.sections["build"])
    assert build["riemem"].value == riemem.__version__
    assert str(build["instruction set"].value).startswith(riemem.build_info()["isa"])
    assert by_name(found.sections["sqlite"])["version"].value.startswith(sqlite3.sqlite_version)
    assert set(by_name(found.sections["models"])) == {"folder", *models.SOURCES}
    assert found.sections["privacy"][0].value.startswith("none")


def test_what_is_wrong_or_missing_has_a_remedy(tmp_path: Path) -> None:
    for one in chain.from_iterable(examine(tmp_path / "none.db").sections.values()):
        assert bool(one.remedy) == (one.status != "ok"), one


def test_a_healthy_store_is_described_and_left_as_it_was(store: Path) -> None:
    before = store.read_bytes()
    found = by_name(examine(store).sections["store"])
    assert found["memories"].value == "2 in 2 profiles"
    assert found["embedder"].value.startswith("hashing")
    assert {one.status for one in found.values()} == {"ok"}
    assert store.read_bytes() == before


def test_a_store_that_disagrees_with_itself_is_a_problem(store: Path) -> None:
    connection = sqlite3.connect(store)
    with connection:
        connection.execute("DELETE FROM vectors")
    connection.close()
    found = examine(store)
    assert not found.ok
    assert found.problems[0].remedy == "riemem check --repair"
    result = CliRunner().invoke(cli, ["doctor", "--store", str(store)])
    assert result.exit_code == 3
    assert "  ! health" in result.output
    assert result.output.splitlines()[-1].endswith("must be put right")


@pytest.mark.parametrize("content", [b"these are my notes\n" * 100, b""])
def test_a_file_that_is_no_store(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    health = by_name(examine(path).sections["store"])["health"]
    assert health.status == "problem"
    assert "backup" in health.remedy
    assert path.read_bytes() == content


@pytest.mark.skipif(os.name != "posix", reason="mode bits")
def test_a_store_that_others_may_read_is_noted(store: Path) -> None:
    store.chmod(0o644)
    found = by_name(examine(store).sections["store"])["permissions"]
    assert (found.status, found.value) == ("note", "644: other users may read it")
    assert f"chmod 600 {store}" in found.remedy


def test_a_slower_instruction_set_is_noted() -> None:
    if riemem.build_info()["available_isas"] == ["scalar"]:
        pytest.skip("nothing faster is here")
    code = "from riemem.doctor import examine; print(*examine().sections['build'], sep='\\n')"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ, RIEMEM_ISA="scalar", RIEMEM_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "unset RIEMEM_ISA" in shown


def test_an_old_sqlite_and_a_missing_feature_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 31, 1))
    monkeypatch.setitem(doctor._FEATURES, "time travel", "SELECT travel('1985')")
    found = by_name(examine().sections["sqlite"])
    assert found["version"].status == found["time travel"].status == "problem"
    assert "no such function" in found["time travel"].value


def test_models_that_are_missing_or_damaged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RIEMEM_CACHE", str(tmp_path))
    (tmp_path / "models" / "minilm").mkdir(parents=True)
    found = examine()
    shown = by_name(found.sections["models"])
    assert (shown["minilm"].status, shown["minilm"].remedy) == (
        "problem",
        "riemem models pull minilm",
    )
    assert shown["smollm2-135m"].status == "note"
    assert found.sections["budget"][0].status == "note"


@pytest.mark.model
def test_too_little_memory_for_the_language_model(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        models.find("smollm2-135m")
    except riemem.ModelNotFoundError:
        pytest.skip("riemem models pull smollm2-135m")
    monkeypatch.setattr(doctor.CpuMemory, "free_bytes", lambda self: 50_000_000)
    (found,) = examine().sections["budget"]
    assert (found.status, found.name) == ("problem", "distilling")
    assert "50.0 MB are free" in found.value or "0.1 GB are free" in found.value


def test_the_command_prints_one_line_a_finding_or_one_document(store: Path) -> None:
    text = CliRunner().invoke(cli, ["doctor", "--store", str(store)]).output
    assert text.splitlines()[0] == "build"
    assert "    instruction set  " in text
    result = CliRunner().invoke(cli, ["doctor", "--store", str(store), "--json"])
    found = json.loads(result.stdout)["doctor"]
    assert set(found) == {"ok", "problems", "sections"}
    assert found["sections"]["build"][0] == {
        "name": "riemem",
        "value": riemem.__version__,
        "status": "ok",
        "remedy": "",
    }


def test_a_text_of_the_store_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[31m.db"
    shown = CliRunner().invoke(cli, ["doctor", "--store", str(path)]).output
    assert "\x1b" not in shown
    assert "\\x1b[31m.db" in shown

"""``riemem distill``, ``riemem plot sensitivity`` and ``riemem eval compression``."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from riemem.cli import cli

TEXT = "Tim did not buy 3 apples in Rome.\nAna: I moved to Porto in May 2023 & like <it>.\n"


def run(*argv: str, input_: str | None = None):
    return CliRunner().invoke(cli, list(argv), input=input_)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


def test_distilled_text_and_its_report(file) -> None:
    made = run("distill", file, "--budget", "12", "--score", "truncate", "--json")
    assert made.exit_code == 0, made.stderr
    document = json.loads(made.stdout)
    assert document["tokens"] <= 12
    assert document["text"] == "".join(TEXT[a:b] for _, a, b in document["spans"])
    assert document["report"]["kept_kinds"]["negations"][1] == 1


def test_standard_input_and_show(file) -> None:
    shown = run("distill", "-", "--budget", "14", "--score", "truncate", "--show", input_=TEXT)
    assert shown.exit_code == 0, shown.stderr
    assert "[-" in shown.stdout
    assert "words; negations 1 of 1" in shown.stdout
    whole = run("distill", "-", "--budget", "500", input_=TEXT)
    assert whole.stdout.rstrip("\n") == TEXT.rstrip("\n")


def test_what_goes_wrong_has_its_exit_code(file, tmp_path) -> None:
    assert run("distill", file, "--budget", "0", "--score", "random").exit_code == 1
    assert run("distill", file, "--budget", "-1").exit_code == 2
    assert run("distill", file, "--budget", "many").exit_code == 2
    assert run("distill", file).exit_code == 2
    assert run("distill", str(tmp_path / "none"), "--budget", "5").exit_code == 1
    assert run("distill", file, "--budget", "5", "--preset", "x").exit_code == 1
    (tmp_path / "bad").write_bytes(b"\xff\xfe")
    assert run("distill", str(tmp_path / "bad"), "--budget", "5").exit_code == 1
    nowhere = run("distill", file, "--budget", "5", "--model", str(tmp_path / "no-model"))
    assert nowhere.exit_code == 3


@pytest.mark.model
def test_the_picture_holds_the_text(file, tmp_path, smollm_path) -> None:
    page = tmp_path / "out.html"
    made = run("plot", "sensitivity", file, "-o", str(page), "--model", str(smollm_path))
    assert made.exit_code == 0, made.stderr
    text = page.read_text(encoding="utf-8")
    assert "&lt;it&gt;" in text
    assert "<it>" not in text
    assert text.count("<span") == len(TEXT.split())

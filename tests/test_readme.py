"""The documentation does what it says: code blocks run, commands parse, links and pins hold."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from riemem import embed
from riemem.cli import cli
from riemem.embed import HashingEmbedder, MiniLMEmbedder

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[list[str]]:
    """Return the words of every ``riemem`` command in a page's shell blocks."""
    found = []
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            words: list[str] = []
            for word in [*shlex.split(line, comments=True), "&&"]:
                if word in ("&&", "|", ">"):
                    if words[:1] == ["riemem"]:
                        found.append(words[1:])
                    words = []
                else:
                    words.append(word)
    return found


PYTHON = blocks(README, "python")


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_a_code_block_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embed, "MiniLMEmbedder", HashingEmbedder)
    exec(compile(PYTHON[number], f"README block {number}", "exec"), {"__name__": "readme"})


@pytest.mark.model
@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_a_code_block_runs_with_the_real_model(
    number: int, minilm: MiniLMEmbedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embed, "MiniLMEmbedder", lambda: minilm)
    exec(compile(PYTHON[number], f"README block {number}", "exec"), {"__name__": "readme"})


def test_the_arrays_block_finds_the_rows_it_was_made_of(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(PYTHON[0], "README arrays", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out.startswith("[0 1 2]")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_shown_parses(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "turns.jsonl").touch()
    for name in ("locomo10.json", "locomo_dev.json", "audit_dev.json"):
        (tmp_path / name).touch()
    for words in commands(page):
        command: click.Command = cli
        context = click.Context(cli, info_name="riemem")
        rest = list(words)
        while isinstance(command, click.Group) and rest:
            name, found, rest = command.resolve_command(context, rest)
            assert found is not None, words
            command = found
            if not isinstance(command, click.Group):
                command.make_context(name, rest, parent=context)
        assert not isinstance(command, click.Group), words


def test_the_readme_shows_commands() -> None:
    assert len(commands(README)) >= 8


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_local_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_two_commands_are_pinned_and_complete() -> None:
    first, second = blocks(README, "sh")[:2]
    for command in (first, second):
        assert "-c constraints.txt" in command
        assert "riemem models pull" in command
        assert len(command.splitlines()) == 1
    assert first.rstrip().endswith("riemem demo")
    assert second.rstrip().endswith("pytest")


def test_constraints_pin_every_requirement_for_every_python() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins: dict[str, list[str]] = {}
    for line in lines:
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(
            r'([a-z0-9-]+)==[0-9a-z.]+(?: ; (python_version (?:>=|<) "3\.11"))?', line
        )
        assert match, line
        pins.setdefault(match[1], []).append(match[2] or "")
    assert "torch==2.13.0" in lines
    for name, markers in pins.items():
        assert len(markers) == len(set(markers)), name
        assert len(markers) == 1 or "" not in markers, name
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    adapters = ("mcp", "langchain", "langgraph", "llama-index", "sklearn")
    for extra in ("dependencies", "text", "test", *adapters):
        listed = re.search(rf"^{extra} = \[(.*?)\]", project, re.MULTILINE | re.DOTALL)
        assert listed
        for requirement in re.findall(r'"([A-Za-z0-9-]+)', listed[1]):
            markers = pins[requirement]
            assert markers == [""] or len(markers) == 2, requirement


def test_the_licence_is_the_one_named() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert 'license = { text = "Apache-2.0" }' in (ROOT / "pyproject.toml").read_text(
        encoding="utf-8"
    )


def test_the_changelog_names_the_version_in_fixed_sections() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "([^"]+)"', project, re.MULTILINE)
    assert version
    assert re.search(rf"^## {re.escape(version[1])}\b", text, re.MULTILINE)
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= {"Added", "Changed", "Fixed"}

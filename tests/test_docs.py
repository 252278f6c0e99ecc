"""The documentation is whole: names and commands are in it, pages are made, its code runs."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest
import riemem
from riemem import embed
from riemem.cli import cli
from riemem.embed import HashingEmbedder

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WRITTEN = sorted(path for path in DOCS.glob("*.md"))
RUN = ("quick-starts.md", "how-to.md")


def tool(name: str) -> ModuleType:
    path = DOCS / "tools" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


def test_the_reference_is_that_of_the_docstrings() -> None:
    make = tool("make_reference")
    made = make.pages()
    found = {path.name: path.read_text("utf-8") for path in (DOCS / "reference").glob("*.md")}
    stale = sorted(name for name in made.keys() | found.keys() if made.get(name) != found.get(name))
    assert stale == [], f"docs/reference is out of date: run `{make.COMMAND}` and commit it"


def test_every_public_name_is_in_the_reference() -> None:
    text = "\n".join(path.read_text("utf-8") for path in (DOCS / "reference").glob("*.md"))
    headings = set(re.findall(r"^## (\w+)$", text, re.MULTILINE))
    modules = {path.stem for path in (DOCS / "reference").glob("*.md")}
    missing = sorted(set(riemem.__all__) - headings - modules)
    assert missing == [], (
        f"public names without a place in docs/reference: {missing}. Give them a docstring, then "
        "run `python docs/tools/make_reference.py` and commit docs/reference"
    )


def test_every_public_method_is_in_the_reference() -> None:
    text = "\n".join(path.read_text("utf-8") for path in (DOCS / "reference").glob("*.md"))
    headings = set(re.findall(r"^### (\w+\.\w+)$", text, re.MULTILINE))
    for owner in (riemem.Memory, riemem.FisherMetric, riemem.MaxMemberClusters):
        names = {name for name in dir(owner) if not name.startswith("_")}
        missing = sorted(name for name in names if f"{owner.__name__}.{name}" not in headings)
        assert missing == [], f"{owner.__name__}: run `python docs/tools/make_reference.py`"


def leaves(command: click.Command, name: str = "") -> list[str]:
    if isinstance(command, click.Group):
        return [
            leaf
            for part, child in command.commands.items()
            for leaf in leaves(child, f"{name} {part}".strip())
        ]
    return [name]


def test_every_command_is_in_the_documentation() -> None:
    text = (DOCS / "cli.md").read_text("utf-8")
    missing = [name for name in leaves(cli) if f"## riemem {name}\n" not in text]
    assert missing == [], f"give each a section `## riemem NAME` in docs/cli.md: {missing}"


def test_every_page_is_in_the_table_of_contents() -> None:
    text = (DOCS / "README.md").read_text("utf-8")
    missing = [path.name for path in WRITTEN if path.name != "README.md" and path.name not in text]
    assert missing == [], f"link these pages from docs/README.md: {missing}"


def links(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text))
    return [target for target in found if "://" not in target]


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*WRITTEN, ROOT / "README.md"], ids=lambda page: page.name)
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    for target in links(page):
        file, _, anchor = target.partition("#")
        place = page.parent / file if file else page
        assert place.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(place), f"{page.name} links to {target}"


def test_links_of_the_reference_lead_somewhere() -> None:
    for page in (DOCS / "reference").glob("*.md"):
        for target in re.findall(r"\]\((\w+\.md)(#\w+)?\)", page.read_text("utf-8")):
            file, anchor = target
            assert (page.parent / file).exists(), (page.name, target)
            assert not anchor or anchor[1:] in anchors(page.parent / file), (page.name, target)


def test_each_concept_has_a_picture_that_a_command_makes() -> None:
    text = (DOCS / "concepts.md").read_text("utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    shown = [re.findall(r"\]\(pictures/(\w+)\.png\)", section) for section in sections]
    assert [len(names) for names in shown] == [1] * len(sections)
    source = (DOCS / "tools" / "make_pictures.py").read_text("utf-8")
    made = set(re.findall(r'^    "(\w+)": \(\1,', source, re.MULTILINE))
    assert {name for names in shown for name in names} == made
    assert {path.stem for path in (DOCS / "pictures").glob("*.png")} == made


def code_blocks() -> list[tuple[str, str]]:
    found = []
    for name in RUN:
        texts = re.findall(
            r"^```python\n(.*?)^```", (DOCS / name).read_text("utf-8"), re.MULTILINE | re.DOTALL
        )
        found += [(f"{name}[{number}]", text) for number, text in enumerate(texts)]
    return found


@pytest.mark.parametrize(("name", "code"), code_blocks(), ids=[name for name, _ in code_blocks()])
def test_a_code_block_runs(
    name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embed, "MiniLMEmbedder", HashingEmbedder)
    exec(compile(code, name, "exec"), {"__name__": "docs"})


def test_the_blocks_say_what_they_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embed, "MiniLMEmbedder", HashingEmbedder)
    for name, code in code_blocks():
        exec(compile(code, name, "exec"), {"__name__": "docs"})
    shown = capsys.readouterr().out
    for line in ("1 True\n", "True 1\n", "the cat sat on the mat\n", "Boiler serviced, 135 euros"):
        assert line in shown
    budgets = re.findall(r"^(60|120|240) (\d+) (\d+) (\d+)$", shown, re.MULTILINE)
    assert [int(budget) for budget, *_ in budgets] == [60, 120, 240]
    assert all(int(tokens) <= int(budget) for budget, tokens, *_ in budgets)

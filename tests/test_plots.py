"""Pictures of a store: the numbers behind them, the files they become, and hostile texts."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import riemem
from click.testing import CliRunner
from riemem.cli import cli
from riemem.embed import HashingEmbedder
from riemem.errors import ArgumentError, BackendUnavailableError

pytest.importorskip("matplotlib", reason="pictures need riemem[plot]")

from riemem import plots
from riemem.plots.atoms import grown
from riemem.plots.picture import cut

HOSTILE = [
    "</text></svg><script>alert(1)</script>",
    "<img src=https://example.org/x.png onerror=alert(2)>",
    "$\\frac{broken$ and $$ and \\x",
    "_hidden & \"quoted\" 'too' ]]> <!-- -->",
    "\x1b[31mred\x1b[0m\u202egnp.exe\u2028next",
    "日本語 🐕 العربية",
    "long " * 4000,
]
WORDS = ("tax", "form", "kite", "sky", "river", "gauge", "dog", "stone", "bridge", "tea")


def sentence(generator: np.random.Generator, topic: int) -> str:
    own = WORDS[topic * 3 : topic * 3 + 4]
    return " ".join(generator.choice(own, 5)) + " " + str(generator.choice(WORDS))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plots") / "me.db"
    generator = np.random.default_rng(7)
    items = [
        {
            "text": sentence(generator, i % 3),
            "speaker": ("Ann", "Bo")[i % 2],
            "session": f"s{i // 20}",
            "when": f"2024-{1 + i // 10:02d}-{1 + i % 10:02d}T12:00:00Z",
        }
        for i in range(100)
    ]
    with riemem.Memory.open(path, embedder=HashingEmbedder(dim=32)) as memory:
        memory.add_many(items)
    return path


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plots") / "bad.db"
    with riemem.Memory.open(path, embedder=HashingEmbedder(dim=32)) as memory:
        memory.add_many(
            {
                "text": f"{text} {i}",
                "speaker": text[:200],
                "session": text[:200],
                "when": f"2024-01-0{1 + i}T00:00:00Z",
            }
            for i in range(4)
            for text in HOSTILE
        )
    return path


def opened(path: Path) -> riemem.Memory:
    return riemem.Memory.open(path, embedder=HashingEmbedder(dim=32))


def draw(memory: riemem.Memory, kind: str) -> plots.Picture:
    make = {
        "map": plots.memory_map,
        "timeline": plots.timeline,
        "spectrum": plots.spectrum,
        "atoms": plots.atom_growth,
    }
    return make[kind](memory)


KINDS = ("map", "timeline", "spectrum", "atoms")


def test_vectors_are_those_of_the_first_window_by_id(store: Path) -> None:
    embedder = HashingEmbedder(dim=32)
    with opened(store) as memory:
        ids, rows = memory.vectors()
        (record,) = memory.list(filters={"ids": [17]})
        few, _ = memory.vectors(session="s1")
    assert ids.tolist() == list(range(1, 101))
    assert few.tolist() == list(range(21, 41))
    expected = embedder.embed([f'{record.speaker} said, "{record.text}"'])[0]
    np.testing.assert_allclose(rows[16], expected, atol=1e-6)


def test_the_map_shows_the_principal_components_and_the_hubs(store: Path) -> None:
    with opened(store) as memory:
        picture = plots.memory_map(memory, colour="session")
        _, rows = memory.vectors()
    centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    singular = np.linalg.svd(centred, compute_uv=False)
    shares = singular**2 / (singular**2).sum()
    np.testing.assert_allclose(picture.summary["shares"], shares[:2], rtol=1e-6)
    # Counts of occurrence by brute force, whitened cosine in numpy.
    covariance = centred.T @ centred / len(rows)
    sigma = covariance + 10.0 * np.trace(covariance) / 32 * np.eye(32)
    white = centred @ np.linalg.cholesky(np.linalg.inv(sigma))
    white /= np.linalg.norm(white, axis=1, keepdims=True)
    scores = white @ white.T
    np.fill_diagonal(scores, -np.inf)
    counts = np.bincount(np.argsort(-scores, axis=1, kind="stable")[:, :10].ravel(), minlength=100)
    limit = counts.mean() + 3 * counts.std()
    expected = {int(i) + 1: int(counts[i]) for i in np.flatnonzero(counts > limit)}
    assert {hub["id"]: hub["count"] for hub in picture.summary["hubs"]} == expected
    skewness = ((counts - counts.mean()) ** 3).mean() / counts.std() ** 3
    assert picture.summary["skewness"] == pytest.approx(skewness, abs=0.05)


def test_the_spectrum_is_that_of_the_covariance(store: Path) -> None:
    with opened(store) as memory:
        summary = plots.spectrum(memory).summary
        _, rows = memory.vectors()
    values = np.sort(np.linalg.eigvalsh(np.cov(rows.T.astype(np.float64), bias=True)))[::-1]
    assert summary["largest"] == pytest.approx(values[0])
    assert summary["ridge_value"] == pytest.approx(10.0 * values.mean())
    assert summary["rank"] == int((np.cumsum(values) / values.sum() < 0.95).sum()) + 1
    ridge = summary["ridge_value"]
    assert summary["condition_number"] == pytest.approx((values[0] + ridge) / (values[-1] + ridge))


def test_the_time_line_counts_by_a_bin_that_fits(store: Path) -> None:
    with opened(store) as memory:
        picture = plots.timeline(memory, colour="speaker")
    assert picture.summary["bin"] == "week"
    assert picture.summary["groups"] == ["Ann", "Bo"]
    assert picture.rows == (
        ("Ann", 50, "2024-01-01", "2024-10-09"),
        ("Bo", 50, "2024-01-02", "2024-10-10"),
    )
    heights = [bar.get_height() for bar in picture.figure.axes[0].patches]
    assert sum(heights) == 100


def test_growth_counts_atoms_as_they_open() -> None:
    assert grown([[1, 4], [2, 3], [5]]) == [1, 2, 2, 2, 3]
    assert grown([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_files(store: Path, tmp_path: Path, kind: str) -> None:
    with opened(store) as memory:
        picture = draw(memory, kind)
        again = draw(memory, kind)
    assert picture.save(tmp_path / "a.svg").read_text("utf-8") == again.svg()
    png = picture.save(tmp_path / "a.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    page = picture.save(tmp_path / "a.HTML").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert picture.title in page
    with pytest.raises(ArgumentError, match=r"\.png, \.svg, \.html"):
        picture.save(tmp_path / "a.pdf")
    with pytest.raises(ArgumentError, match="does not exist"):
        picture.save(tmp_path / "none" / "a.png")


class Reader(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_texts_are_shown_and_do_nothing(hostile: Path, kind: str) -> None:
    with opened(hostile) as memory:
        picture = draw(memory, kind)
        picture.png()
        page = picture.page()
    reader = Reader()
    reader.feed(page)
    assert not reader.tags & {"script", "img", "iframe", "link", "object", "foreignobject", "a"}
    assert not [name for name, _ in reader.attributes if name.startswith("on")]
    for name, value in reader.attributes:
        if name in ("src", "href", "xlink:href", "style", "clip-path"):
            assert "//" not in (value or ""), (name, value)
    assert "default-src 'none'" in page
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202a-\u202e\u2066-\u2069]", page)
    root = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    assert root.tag.endswith("svg")
    if kind in ("map", "timeline"):
        titles = "".join(node.text or "" for node in root.iter() if node.tag.endswith("}title"))
        assert "<script>alert(1)</script>" in titles
        assert "\\x1b[31m" in titles


def test_each_mark_has_its_own_text(store: Path) -> None:
    with opened(store) as memory:
        root = ElementTree.fromstring(plots.memory_map(memory).svg())
        records = {record.id: record for record in memory.list()}
    group = root.find(".//*[@id='memories']")
    assert group is not None
    titles = [node.text or "" for node in group.iter() if node.tag.endswith("}title")]
    assert [int(title[1:].split()[0]) for title in titles] == list(range(1, 101))
    assert all(records[i + 1].text in title for i, title in enumerate(titles))


def test_too_little_to_draw(tmp_path: Path) -> None:
    with opened(tmp_path / "few.db") as memory:
        for kind in ("map", "timeline", "spectrum"):
            with pytest.raises(ArgumentError, match="expected at least"):
                draw(memory, kind)
        assert draw(memory, "atoms").summary["atoms"] == 0
        memory.add_many([{"text": "the same"}] * 4)
        for kind in ("map", "spectrum"):
            with pytest.raises(ArgumentError, match="differ"):
                draw(memory, kind)
        for kind in ("timeline", "atoms"):
            assert draw(memory, kind).png()
        with pytest.raises(ArgumentError, match="colour"):
            plots.timeline(memory, colour="mood")


def test_a_limit_keeps_the_newest(store: Path) -> None:
    with opened(store) as memory:
        picture = plots.memory_map(memory, limit=40)
    assert (picture.summary["memories"], picture.summary["left_out"]) == (40, 60)
    assert picture.tips["memories"][0].startswith("#61 ")


def test_without_matplotlib(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with (
        opened(store) as memory,
        pytest.raises(BackendUnavailableError, match=r"riemem\[plot\]"),
    ):
        plots.spectrum(memory)


@pytest.mark.parametrize("kind", KINDS)
def test_the_commands(store: Path, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "picture.html"
    words = ["plot", kind, "-o", str(target), "--store", str(store), "--embedder", "hashing:32"]
    result = CliRunner().invoke(cli, [*words, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["plot"] == str(target)
    assert "<svg" in target.read_text("utf-8")
    assert CliRunner().invoke(cli, [*words[:3], str(tmp_path / "x.gif"), *words[4:]]).exit_code == 1


def test_cut() -> None:
    assert cut("a\tb\n\x00\u202ec") == "a b \\x00\\u202ec"
    assert cut("x" * 100, 10) == "x" * 9 + "…"

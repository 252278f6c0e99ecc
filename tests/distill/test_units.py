"""Cutting text: nothing lost, no character broken, words whole."""

# ruff: noqa: RUF001  the characters are meant

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from riemem.distill.units import cluster_ends, joined_spans, split_units

regex = pytest.importorskip("regex")

ALPHABET = (
    "aZ0.,!?-: \n\t\r'é\u0301\u200d\u0915\u094d\u0937会议は。！ไทย👨👩🏽🇩🇪🐢ع한ᄀ\u00a0\u2028⟶`|"
)
TEXTS = st.one_of(
    st.text(alphabet=ALPHABET, max_size=60),
    st.text(
        alphabet=st.characters(exclude_categories=("Cs",)),
        max_size=40,
    ),
)


def put_together(text: str, kept: list[bool]) -> str:
    units = split_units(text)
    return "".join(text[a:b] for a, b in joined_spans(text, units, kept))


@settings(max_examples=2000)
@given(TEXTS, st.sampled_from([1, 2, 3]))
def test_units_and_gaps_are_the_text(text: str, run: int) -> None:
    units = split_units(text, run=run)
    at = 0
    for unit in units:
        assert unit.gap == at
        assert unit.gap <= unit.start < unit.end
        assert not text[unit.gap : unit.start].strip()
        at = unit.end
    assert not text[at:].strip()


@settings(max_examples=2000)
@given(TEXTS)
@example("\u094d\U0001f3fd\u0915")  # a virama, a mark, the letter it belongs to
def test_no_cluster_is_cut(text: str) -> None:
    # the oracle is another library's reading of Unicode's rules; where ours takes clusters
    # together that is allowed, cutting one is not
    if any(unicodedata.category(char) == "Cn" for char in text):
        return
    ends = {found.end() for found in regex.finditer(r"\X", text)}
    assert set(cluster_ends(text)) <= ends
    for unit in split_units(text, run=1):
        assert unit.end in ends or text[unit.end : unit.end + 1].isspace()
        assert unit.start == 0 or unit.start in ends or text[unit.start - 1].isspace()


@settings(max_examples=2000)
@given(TEXTS, st.randoms(use_true_random=False))
def test_joining_never_invents_or_repeats(text: str, random) -> None:
    units = split_units(text)
    kept = [random.random() < 0.5 for _ in units]
    spans = joined_spans(text, units, kept)
    assert all(a < b for a, b in spans)
    assert all(one[1] <= two[0] for one, two in pairwise(spans))
    out = "".join(text[a:b] for a, b in spans)
    words = [text[u.start : u.end] for u, k in zip(units, kept, strict=True) if k]
    rest = out
    for word in words:
        assert word in rest
        rest = rest[rest.index(word) + len(word) :]
    assert len(out.split()) <= len(text.split())


@settings(max_examples=500)
@given(TEXTS)
def test_everything_and_nothing(text: str) -> None:
    units = split_units(text)
    assert put_together(text, [False] * len(units)) == ""
    assert (
        put_together(text, [True] * len(units))
        == text[(units[0].start if units else 0) : (units[-1].end if units else 0)]
    )


@settings(max_examples=500)
@given(st.lists(st.from_regex(r"[A-Za-z0-9_.-]{1,12}", fullmatch=True), min_size=1, max_size=20))
def test_words_with_blanks_stay_words(words: list[str]) -> None:
    text = " ".join(words)
    units = split_units(text)
    assert [text[u.start : u.end] for u in units] == words
    kept = [number % 3 == 0 for number in range(len(words))]
    assert put_together(text, kept).split() == words[::3]


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("Plate KX-4471-B, ref 00921", ["Plate", "KX-4471-B,", "ref", "00921"]),
        ("p ⟶ q", ["p", "⟶", "q"]),
        ("会议改到周四下午三点", ["会议", "改到", "周四", "下午", "三点"]),
        ("我用Python和Java写", ["我用", "Python和", "Java写"]),
        ("👨‍👩‍👧 trip", ["👨‍👩‍👧", "trip"]),
        ("हिन्दी", ["हिन्दी"]),
        ("🐢🐢", ["🐢", "🐢"]),
        ("see `a b c` now", ["see", "`a b c`", "now"]),
        ("x\n```\nif a:\n    b\n```\ny", ["x", "```", "if a:", "b", "```", "y"]),
        ("| a | b |\n| 1 | 2 |", ["| a | b |", "| 1 | 2 |"]),
        ("https://a.example/b?c=1,2#d", ["https://a.example/b?c=1,2#d"]),
        ("", []),
        (" \n ", []),
        ("\ufeffhi", ["\ufeffhi"]),
    ],
)
def test_known_pieces(text: str, units: list[str]) -> None:
    assert [text[u.start : u.end] for u in split_units(text)] == units


def test_sentences_and_lines() -> None:
    text = "One two. Three!\nFour"
    assert [(u.sentence, u.line) for u in split_units(text)] == [(0, 0), (0, 0), (1, 0), (2, 1)]


def test_a_long_word_is_one_unit() -> None:
    assert [u.end for u in split_units("x" * 20_000)] == [20_000]


def test_long_text_without_blanks_is_cut_without_loss() -> None:
    text = "会" * 2000
    assert len(split_units(text)) == 1000
    assert put_together(text, [True] * 1000) == text

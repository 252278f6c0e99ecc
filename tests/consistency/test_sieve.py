"""What is passed over without being tried could not have matched."""

from __future__ import annotations

import json
import re
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from riemem._consistency import lexicon, rules, text

#: Every word that the patterns are made of, and what stands between words.
_PATTERNS = [e.pattern.pattern for e in rules._RULES]
_PATTERNS += [p.pattern for p in (lexicon.CHANGE, lexicon.DOUBT, lexicon.FILLERS)]
_PATTERNS += [pattern for pattern, _ in text._CONTRACTIONS]
VOCABULARY = sorted(
    {word for pattern in _PATTERNS for word in re.findall(r"[a-z]+", pattern)}
    | {"one", "twenty", "half", "march", "it's", "can't", "i'm", "don't", "onen't", "cannot", "8"}
    | {"i", "we", "it", "the cat", "my dog", "porto", "12", "5 pm", "10:30", "3rd", "1,000", "4k"}
)
TEXTS = st.lists(
    st.tuples(st.sampled_from(VOCABULARY), st.sampled_from([" ", " ", " ", ", ", ". ", "? ", "'"])),
    max_size=14,
).map(lambda parts: "".join(map("".join, parts)))


class Everything(frozenset[str]):
    """A set of words in which all words are found: with it nothing is passed over."""

    def isdisjoint(self, other: object) -> bool:
        return False

    def union(self, *others: object) -> Everything:
        return self

    def __contains__(self, word: object) -> bool:
        return True


def all_tried(said: str, patch: pytest.MonkeyPatch) -> list[rules.Claim]:
    """What the rules claim when every pattern is tried on every clause."""
    with patch.context() as p:
        for name in ("_CONTRACTED", "_NUMBER_NAMES", "_MONTH_NAMES"):
            p.setattr(text, name, Everything())
        p.setattr(text, "_DIGIT", re.compile(""))
        p.setattr(text, "frozenset", lambda words: Everything(), raising=False)
        for name in ("CHANGE_WORDS", "CORRECTION_WORDS", "DOUBT_WORDS", "FILLER_WORDS"):
            p.setattr(rules, name, Everything())
        p.setattr(rules, "_BEFORE_NOUN", Everything())
        p.setattr(rules, "may_claim", lambda said: True)
        p.setattr(rules, "asked_by", lambda words: (1 << len(rules._RULES)) - 1)
        return rules.extract(said, "Dave", 7)


def labelled() -> list[str]:
    """Both texts of every labelled pair."""
    found: list[str] = []

    def walk(value: object) -> None:
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict | list):
            for item in value.values() if isinstance(value, dict) else value:
                walk(item)

    walk(json.loads((files("riemem.evaluation") / "consistency_pairs.json").read_text("utf-8")))
    return found


def test_the_labelled_texts_are_read_alike() -> None:
    patch = pytest.MonkeyPatch()
    texts = labelled()
    assert len(texts) > 300
    claims = [rules.extract(said, "Dave", 7) for said in texts]
    assert sum(map(len, claims)) > 200
    assert claims == [all_tried(said, patch) for said in texts]


@settings(max_examples=300)
@given(TEXTS)
def test_texts_of_the_rules_own_words_are_read_alike(said: str) -> None:
    assert rules.extract(said, "Dave", 7) == all_tried(said, pytest.MonkeyPatch())


@settings(max_examples=100)
@given(st.text(max_size=120) | st.text("aimsw'.,?1 \n\u2019\u2014k:no", max_size=60))
def test_any_text_is_read_alike(said: str) -> None:
    assert rules.extract(said, "Dave", 7) == all_tried(said, pytest.MonkeyPatch())


@pytest.mark.parametrize("number", range(len(rules._RULES)))
def test_what_matches_a_rule_has_one_of_its_words(number: int) -> None:
    entry = rules._RULES[number]

    @settings(max_examples=8, database=None)
    @given(st.from_regex(entry.pattern, fullmatch=True))
    def check(clause: str) -> None:
        assert rules.asked_by(frozenset(text.words_of(clause))) >> number & 1

    check()


@pytest.mark.parametrize(
    ("pattern", "telling"),
    [
        (lexicon.CHANGE, lexicon.CHANGE_WORDS),
        (lexicon.CORRECTION, lexicon.CORRECTION_WORDS),
        (lexicon.DOUBT, lexicon.DOUBT_WORDS),
        (lexicon.FILLERS, lexicon.FILLER_WORDS),
    ],
    ids=["change", "correction", "doubt", "fillers"],
)
def test_what_matches_a_word_list_has_one_of_its_telling_words(
    pattern: re.Pattern[str], telling: frozenset[str]
) -> None:
    inside = pattern.pattern.removeprefix(r"\b(?:").removesuffix(r")\b")
    inside = inside.replace("(?:every|each)", "every|each")
    for phrase in re.sub(r"\(\?:[^)]*\)", "", inside).replace(" ?", "").split("|"):
        assert telling & set(text.words_of(re.sub(r"\\w\+|\.\*", "", phrase))), phrase

    @settings(max_examples=150, database=None)
    @given(st.from_regex(pattern, fullmatch=True))
    def check(found: str) -> None:
        assert not telling.isdisjoint(text.words_of(found))

    check()


def test_sentences_end_where_they_did() -> None:
    # As it was written first, without a common beginning.
    plain = re.compile(r"(?<!\bmr)(?<!\bmrs)(?<!\bdr)(?<!\bst)[.!;]+(?=\s|$)|[\n\u2014]+|(\?)")
    clause = re.compile(
        r",? (?:and|but|so|because|although|though|while|then)"
        r"(?= (?:i|we|it|he|she|they|my|our|the)\b)"
        r"|, (?=(?:i|we|it|he|she|they|my|our|the|from now on)\b)"
        r"| and (?=(?:joined|started|am|is|are)\b)"
    )

    @given(
        st.lists(
            st.sampled_from(["mr", "mrs", "st", "dr", ".", "!", ";", "?", "\n", "\u2014", " ",
                             ", ", "and", "but", "the", "i", "is", "x", " and ", " i", ","]),
            max_size=30,
        ).map("".join)
    )  # fmt: skip
    def check(said: str) -> None:
        ends = [(m.span(), m[1] is not None) for m in plain.finditer(said)]
        assert ends == [(m.span(), m[0] == "?") for m in text._SENTENCE.finditer(said)]
        assert clause.split(said) == text._CLAUSE.split(said)

    check()

"""The promises of distillation on random dialogues, with scores that need no language model."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from riemem.distill import Distiller, Protection, distill, presets
from riemem.distill.protect import is_negation
from riemem.errors import ArgumentError, BudgetTooSmallError, DTypeError, TextError
from riemem.packing import parse


def words(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


@dataclass
class Turn:
    id: int
    text: str
    speaker: str | None
    session: str | None
    when: str | None
    score: float


VOCABULARY = [
    "I",
    "he",
    "she",
    "not",
    "never",
    "don't",
    "no",
    "the",
    "a",
    "went",
    "to",
    "saw",
    "likes",
    "Paris",
    "Ana",
    "7",
    "May",
    "2023",
    "43",
    "yesterday",
    "because",
    "but",
    "photography",
    "really",
    "so",
    "much,",
    "today.",
    "yes!",
    "why?",
    "会议改到",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "KX-4471-B,",
    "https://x.example/a?b=1",
    "naïve",
    "e\u0301t\xe9",
    "without",
    "only",
    "3.14",
    "\n",
]


@st.composite
def dialogues(draw: st.DrawFn) -> list[Turn]:
    seed = draw(st.integers(0, 2**32))
    source = random.Random(seed)
    turns = []
    day = 1
    for number in range(source.randint(1, 8)):
        day += source.random() < 0.4
        text = " ".join(source.choice(VOCABULARY) for _ in range(source.randint(1, 25)))
        if not text.strip():
            text = "ok"
        turns.append(
            Turn(
                id=100 - number,
                text=text,
                speaker=source.choice(["Ana", "Tim", None, 'O"Neil: x']),
                session=f"s{day}",
                when=f"2023-05-{day:02d}T10:{number:02d}:00+00:00",
                score=source.random(),
            )
        )
    return turns


SOURCES = st.sampled_from(
    [{"score": "random"}, {"score": "words"}, {"score": "truncate"}, {"score": "turns"},
     {"score": "random", "mode": "hierarchical"},
     {"score": "random", "mode": "hierarchical", "middle_keep": 0.5},
     {"score": "random", "gap": 0, "novelty": 0.3}, {"score": "random", "headers": False}]
)  # fmt: skip


@settings(max_examples=1500)
@given(dialogues(), st.integers(0, 150), SOURCES)
def test_every_promise_on_random_dialogues(turns, budget, source) -> None:
    distiller = Distiller(count_tokens=words, **source)
    try:
        found = distiller.distill(turns, token_budget=budget, query="What does Ana like?")
    except BudgetTooSmallError:
        assert budget < 60
        return
    whole = distiller.distill(turns, token_budget=10**9)
    assert found.tokens == words(found.text) <= budget
    assert len(found.text) <= len(whole.text)
    assert (
        found.text
        == distiller.distill(turns, token_budget=budget, query="What does Ana like?").text
    )
    assert found.kept_ratio == found.tokens / whole.tokens
    by_id = {turn.id: turn for turn in turns}
    texts: dict[int, str] = {}
    for number, start, end in found.spans:
        assert 0 <= start < end <= len(by_id[number].text)
        texts[number] = texts.get(number, "") + by_id[number].text[start:end]
    parsed = parse(found.text)
    assert sorted(turn.text for turn in parsed) == sorted(texts.values())
    assert [t.text for t in parsed] == [texts[t.id] for t in reversed(turns) if t.id in texts] or (
        [t.text for t in parsed] == [texts[t.id] for t in turns if t.id in texts]
    )
    for number, text in texts.items():
        whole_words = by_id[number].text.split()
        rest = iter(whole_words)
        for word in text.split():
            if word.isascii():
                assert word in rest, (word, whole_words)
    # a date stands once for each session group
    days = re.findall(r"^# (\S+)", found.text, re.M)
    assert len(days) == len(set(days))
    # what is neither kept nor reported as removed is white space
    for turn in turns:
        covered = [False] * len(turn.text)
        for number, start, end in found.spans:
            if number == turn.id:
                covered[start:end] = [True] * (end - start)
        for gone in found.removed:
            if gone.id == turn.id:
                assert gone.text == turn.text[gone.start : gone.end]
                covered[gone.start : gone.end] = [True] * (gone.end - gone.start)
        assert all(hit or char.isspace() for hit, char in zip(covered, turn.text, strict=True))


@settings(max_examples=1500)
@given(dialogues(), st.integers(5, 120), SOURCES)
def test_a_negation_stays_with_its_sentence(turns, budget, source) -> None:
    try:
        found = Distiller(count_tokens=words, **source).distill(turns, token_budget=budget)
    except BudgetTooSmallError:
        return
    for turn in turns:
        spans = [(a, b) for number, a, b in found.spans if number == turn.id]
        at = 0
        for sentence in re.split(r"(?<=[.!?])\s+|\n", turn.text):
            start = turn.text.index(sentence, at)
            at = start + len(sentence)
            kept = [(a, b) for a, b in spans if a < at and b > start and
                    turn.text[max(a, start):min(b, at)].strip()]  # fmt: skip
            if not kept:
                continue
            for word in re.finditer(r"\S+", sentence):
                if word.group().isascii() and is_negation(word.group()):
                    a, b = start + word.start(), start + word.end()
                    assert any(s <= a and b <= e for s, e in kept), (sentence, found.text)


@settings(max_examples=400)
@given(dialogues(), st.integers(0, 2**16), st.integers(5, 150))
def test_untouchable_slices_survive_byte_for_byte(turns, seed, budget) -> None:
    source = random.Random(seed)
    turn = source.choice(turns)
    start = source.randrange(len(turn.text))
    end = source.randint(start + 1, len(turn.text))
    try:
        found = distill(
            turns, token_budget=budget, keep=[(turn.id, start, end)], score="random",
            count_tokens=words,
        )  # fmt: skip
    except BudgetTooSmallError:
        return
    inside = turn.text[start:end]
    if inside.strip():
        assert any(
            number == turn.id and a <= start + len(inside) - len(inside.lstrip())
            and b >= start + len(inside.rstrip())
            for number, a, b in found.spans
        )  # fmt: skip


@settings(max_examples=1000)
@given(st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=80), st.integers(0, 40))
def test_any_text_within_any_budget(text: str, budget: int) -> None:
    def count(value: str) -> int:
        return len(value.encode())

    try:
        found = distill(text, token_budget=budget, score="random", count_tokens=count)
    except BudgetTooSmallError:
        assert text.strip()
        return
    assert count(found.text) == found.tokens <= budget
    assert found.text == "".join(text[a:b] for _, a, b in found.spans)
    if count(text) <= budget:
        assert found.text == text


@settings(max_examples=200)
@given(dialogues(), st.integers(20, 100), st.integers(0, 10**6))
def test_a_counter_that_is_not_monotone_is_obeyed(turns, budget, seed) -> None:
    def odd(text: str) -> int:
        return words(text) + (hash((len(text), seed)) % 7)

    try:
        found = distill(turns, token_budget=budget, score="random", count_tokens=odd)
    except BudgetTooSmallError:
        return
    assert odd(found.text) == found.tokens <= budget


@pytest.mark.parametrize("budget", range(3, 6))
def test_the_opposite_is_never_said(budget: int) -> None:
    for seed in range(50):
        try:
            text = distill("He does not eat nuts.", token_budget=budget, score="random",
                           seed=seed, count_tokens=words).text  # fmt: skip
        except BudgetTooSmallError:
            continue
        assert "not eat" in text


def test_numbers_and_codes_are_whole_or_absent() -> None:
    text = "Plate KX-4471-B, ref 00921"
    for seed in range(100):
        try:
            out = distill(text, token_budget=9, score="random", seed=seed, count_tokens=len).text
        except BudgetTooSmallError:
            continue
        assert set(out.split()) <= set(text.split())


def test_a_date_is_one_piece() -> None:
    text = "We went to the lake on 7 May 2023 with all of our friends and had lunch"
    for seed in range(60):
        out = distill(text, token_budget=6, score="random", seed=seed, gap=0, count_tokens=words)
        assert ("7 May 2023" in out.text) == ("May" in out.text) == ("2023" in out.text)


def test_labels_stay_with_their_lines() -> None:
    text = "Dave: I like the mountains in winter\nMaya Lee: I prefer a beach in summer"
    for seed in range(60):
        out = distill(text, token_budget=9, score="random", seed=seed, count_tokens=words).text
        for line in out.split("\n"):
            assert line.startswith(("Dave: ", "Maya Lee: "))
            assert len(line.split(": ")[1]) > 0


@pytest.mark.parametrize("rule", ["sentence", "always"])
def test_numbers_are_protected_as_configured(rule: str) -> None:
    text = "It was a long and windy day. She paid 45 euros for the ticket and left."
    for seed in range(40):
        out = distill(text, token_budget=6, score="random", seed=seed, gap=0, count_tokens=words,
                      protect=Protection(numbers=rule)).text  # fmt: skip
        if rule == "always" or "She" in out or "ticket" in out or "paid" in out:
            assert "45" in out


def test_patterns_are_untouchable() -> None:
    text = "The number is +49 30 1234 5678 and that is all there is to say about it"
    found = distill(text, token_budget=9, score="random", count_tokens=words,
                    protect=Protection(patterns=(r"\+[\d ]+\d",)))  # fmt: skip
    assert "+49 30 1234 5678" in found.text
    with pytest.raises(BudgetTooSmallError, match="untouchable"):
        distill(text, token_budget=3, score="random", count_tokens=words,
                protect=Protection(patterns=(r"\+[\d ]+\d",)))  # fmt: skip


@pytest.mark.parametrize(
    "text", ["hello", "who?", ".", "5", "", "\n\n\n", "🐢🐢🐢", "\ufeff", "x" * 99]
)
def test_short_and_odd_texts_come_back_when_they_fit(text: str) -> None:
    assert distill(text, token_budget=100, count_tokens=len).text == text


def test_only_blanks_that_do_not_fit_leave_nothing() -> None:
    found = distill("\n" * 50, token_budget=3, count_tokens=len)
    assert (found.text, found.tokens, found.spans) == ("", 0, ())


def test_one_word_that_is_too_long_is_an_error() -> None:
    with pytest.raises(BudgetTooSmallError):
        distill("x" * 20_000, token_budget=50, score="random", count_tokens=len)
    out = distill("x" * 20_000 + " is long", token_budget=50, score="random", count_tokens=len)
    assert out.text == "is long"


def test_budgets_that_are_wrong() -> None:
    with pytest.raises(ArgumentError):
        distill("a b", token_budget=-5, count_tokens=len)
    with pytest.raises(BudgetTooSmallError):
        distill("a b", token_budget=0, count_tokens=len, score="random")
    with pytest.raises(DTypeError):
        distill("a b", token_budget=1.5, count_tokens=len)  # type: ignore[arg-type]
    assert distill("", token_budget=0, count_tokens=len).text == ""
    assert distill([], token_budget=0, count_tokens=len).text == ""


def test_wrong_input_is_named() -> None:
    with pytest.raises(DTypeError, match="text_or_turns"):
        distill(5, token_budget=5, count_tokens=len)
    with pytest.raises(DTypeError, match=r"text_or_turns\[1\]"):
        distill(["a", 3], token_budget=5, count_tokens=len)
    with pytest.raises(TextError):
        distill("hi \ud83d", token_budget=5, count_tokens=len)
    with pytest.raises(ArgumentError, match="twice"):
        distill([{"id": 1, "text": "a"}, {"id": 1, "text": "b"}], token_budget=5, count_tokens=len)
    with pytest.raises(ArgumentError, match="keep"):
        distill("abc", token_budget=5, keep=[(0, 9)], count_tokens=len)
    for option in ({"mode": "x"}, {"score": "x"}, {"smooth": 2}, {"gap": -1}, {"novelty": 2},
                   {"nonsense": 1}, {"preset": "x"}):  # fmt: skip
        with pytest.raises(ArgumentError, match=next(iter(option))):
            Distiller(**option)  # type: ignore[arg-type]


def test_what_the_counter_raises_is_passed_on() -> None:
    class Broken(Exception):
        pass

    def count(text: str) -> int:
        raise Broken

    with pytest.raises(Broken):
        distill("a b c", token_budget=2, count_tokens=count)


def test_the_report_adds_up() -> None:
    found = distill("Tim did not buy 3 apples in Rome. It rained.", token_budget=7,
                    score="random", count_tokens=words)  # fmt: skip
    report = found.report
    assert report.original_tokens == 12
    assert report.units == 10
    assert report.kept_kinds["negations"] in {(1, 1), (0, 1)}
    assert report.kept_kinds["numbers"][1] == 1
    assert 0 < report.counter_calls < 60
    assert report.model == ""


def test_few_counts_on_a_long_text() -> None:
    calls = 0

    def count(text: str) -> int:
        nonlocal calls
        calls += 1
        return len(text.split())

    text = " ".join(f"w{n}" for n in range(5000))
    found = distill(text, token_budget=1234, score="random", count_tokens=count, gap=0)
    assert found.tokens == 1234
    assert calls <= 40


def test_the_paper_is_there_by_name() -> None:
    options, protection = presets["coremem"]
    assert (options.mode, options.smooth, options.decay_floor) == ("hierarchical", 5, 0.6)
    assert (protection.connector, protection.number, protection.structure) == (1.2, 1.4, 1.5)

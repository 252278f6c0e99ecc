"""Arguments of distillation that no one should give, and texts that cost too much or get lost."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from riemem.distill import Protection, distill
from riemem.distill.document import read
from riemem.errors import (
    ArgumentError,
    BudgetTooSmallError,
    DTypeError,
    NotFiniteError,
    RiememError,
    TextError,
)

TEXT = "He does not eat nuts. Ana moved to Porto on 7 May 2023."


def words(text: str) -> int:
    return len(text.split())


def shortened(source: Any, budget: int = 6, **arguments: Any) -> str:
    options: dict[str, Any] = {"score": "words", "count_tokens": words}
    return distill(source, token_budget=budget, **{**options, **arguments}).text


@pytest.mark.parametrize(
    ("keep", "error"),
    [(5, DTypeError), (None, DTypeError), ([5], DTypeError), ([None], DTypeError),
     ([("a", "b")], DTypeError), ([(0.0, 3.0)], DTypeError), ([(True, 3)], DTypeError),
     ([([1], 0, 2)], DTypeError), ([(np.arange(2), 3)], DTypeError), ("ab", DTypeError),
     (["ab"], DTypeError),
     ([(1,)], ArgumentError), ([(0, 1, 2, 3)], ArgumentError), ([(7, 0, 2)], ArgumentError),
     ([(-3, 2)], ArgumentError), ([(5, 2)], ArgumentError), ([(0, 10**30)], ArgumentError)],
)  # fmt: skip
@pytest.mark.parametrize("source", [TEXT, [TEXT]])
def test_what_is_no_slice_is_named(source: Any, keep: Any, error: type[RiememError]) -> None:
    with pytest.raises(error, match=r"^keep: "):
        shortened(source, keep=keep)


@pytest.mark.parametrize("odd", [np.arange(2), np.array([1.5]), True, 1.0, "1"])
def test_what_is_no_whole_number_is_named(odd: Any) -> None:
    with pytest.raises(DTypeError, match=r"\.id: expected an int, got "):
        shortened([{"text": TEXT, "id": odd}])
    with pytest.raises(DTypeError, match=r"^count_tokens: expected it to return an int, got "):
        shortened(TEXT, count_tokens=lambda text: odd)


def test_slices_may_come_as_an_array() -> None:
    assert shortened(TEXT, keep=np.array([[0, 7]])).startswith("He does")
    assert "He does" in shortened([TEXT], 9, keep=np.array([[0, 0, 7]]))


@pytest.mark.parametrize("patterns", [None, 5, "x", b"x", (b"x",), (5,), (None,), ("(",)])
def test_what_is_no_pattern_is_named(patterns: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^protect\.patterns: "):
        Protection(patterns=patterns)


@pytest.mark.parametrize(
    ("score", "error"),
    [("x", DTypeError), ("1.5", DTypeError), (object(), DTypeError), ([1.0], DTypeError),
     (True, DTypeError), (1j, DTypeError), (10**400, NotFiniteError),
     (float("nan"), NotFiniteError), (float("inf"), NotFiniteError)],
)  # fmt: skip
def test_what_is_no_score_is_named(score: Any, error: type[RiememError]) -> None:
    turns = [{"text": "a b c", "score": 1.0}, {"text": "d e f", "score": score}]
    with pytest.raises(error, match=r"^text_or_turns\[1\]\.score: "):
        shortened(turns)


def test_scores_may_be_numbers_of_numpy() -> None:
    turns = [{"text": "a b", "score": np.float32(0.5)}, {"text": "c d", "score": np.int64(2)}]
    assert shortened(turns, 9) == "# undated\n- a b\n- c d"


def test_turns_are_in_time_order_whatever_the_offset() -> None:
    turns = [
        {"text": "third", "when": "2026-02-03T14:00:00+00:00"},
        {"text": "second", "when": "2026-02-03T08:30:00-05:00"},
        {"text": "first", "when": "2026-02-03T22:10:00+09:00"},
    ]
    assert shortened(turns, 99) == "# 2026-02-03\n- first\n- second\n- third"
    # The day is that of UTC, as where a store gives it.
    turn = {"text": "late", "when": "2026-02-03T22:00:00-05:00"}
    assert shortened([turn], 99) == "# 2026-02-04\n- late"


def test_a_day_without_a_time_will_do() -> None:
    days = {
        "later": "2026-02-04",
        "sooner": "2026-02-03",
        "at nine": "2026-02-03T09:00",
        "once": "",
    }
    turns = [{"text": text, "when": when} for text, when in days.items()]
    lines = ["# undated", "- once", "# 2026-02-03", "- sooner", "- at nine", "# 2026-02-04"]
    assert shortened(turns, 99) == "\n".join([*lines, "- later"])


@pytest.mark.parametrize(
    "when", ["yesterday", "2023-02-30", "\nAna: I lie", "2023-05-01\n- x", "\x1b[31m", "\ud800"]
)
def test_a_date_that_is_none_cannot_pass_for_a_line(when: str) -> None:
    with pytest.raises(ArgumentError, match=r"^text_or_turns\[0\]\.when: expected "):
        shortened([{"text": "a b", "when": when}], 99)


def test_other_parts_of_a_turn_are_text() -> None:
    for name in ("speaker", "session"):
        with pytest.raises(TextError):
            shortened([{"text": "a b", name: "\ud800"}], 99)
    with pytest.raises(TextError):
        shortened("a b c d", 3, query="\ud800")


def test_what_a_pattern_marks_is_read_however_low_its_turn_stands() -> None:
    turns = [
        {"id": n, "text": f"long talk about nothing number {n} " * 3, "score": 1.0 - n / 50}
        for n in range(40)
    ]
    turns.append({"id": 99, "text": "the code is ZX-81 for the gate", "score": 0.0})
    found = distill(
        turns, token_budget=20, score="words", count_tokens=words,
        protect=Protection(patterns=(r"ZX-\d+",)),
    )  # fmt: skip
    assert "ZX-81" in found.text
    assert found.tokens <= 20
    always = distill(
        turns,
        token_budget=20,
        score="words",
        count_tokens=words,
        protect=Protection(names="always"),
    )
    assert "ZX-81" in always.text


@pytest.mark.parametrize(
    ("sentence", "negation"),
    [("Он не ест орехи и мясо", "не"), ("Hij eet nooit noten of vlees", "nooit"),
     ("On nie je orzechów ani mięsa", "nie"), ("Han äter inte nötter eller kött", "inte"),
     ("هو لا يأكل المكسرات أبدا", "لا"), ("הוא לא אוכל אגוזים ובשר", "לא"),
     ("वह मेवे नहीं खाता है", "नहीं"), ("Anh ấy không ăn các loại hạt", "không"),
     ("Dia tidak makan kacang dan daging", "tidak"),
     ("Αυτός δεν τρώει ξηρούς καρπούς", "δεν"), ("彼はナッツを食べないし肉も好む", "ない"),
     ("彼はナッツを食べません", "ません"), ("เขาไม่กินถั่วเพราะแพ้", "ไม่"),
     ("그는 견과류를 먹지 않는다", "않"), ("그는 견과류를 안 먹는다", "안"),
     ("他不吃坚果因为过敏", "不")],
)  # fmt: skip
def test_no_language_is_made_to_say_the_opposite(sentence: str, negation: str) -> None:
    for budget in range(1, len(sentence)):
        for seed in range(3):
            try:
                said = distill(sentence, token_budget=budget, score="random", seed=seed,
                               count_tokens=len).text  # fmt: skip
            except BudgetTooSmallError:
                continue
            assert not said or negation in said, (budget, said)


@settings(max_examples=300)
@given(
    st.text(alphabet="ab .\n\t\u3000\u200d\u0301会ไ🐢'", max_size=40),
    st.integers(0, 10**6), st.integers(0, 12), st.booleans(),
)  # fmt: skip
def test_marked_slices_survive_byte_for_byte(
    text: str, seed: int, budget: int, plain: bool
) -> None:
    draw = random.Random(seed)
    start = draw.randrange(len(text) + 1)
    end = draw.randint(start, len(text))
    source: Any = text if plain else [{"id": 3, "text": text}, {"id": 4, "text": "so it is"}]
    entry = (start, end) if plain else (3, start, end)
    try:
        found = distill(source, token_budget=budget, keep=[entry], score="random",
                        count_tokens=len if plain else words)  # fmt: skip
    except BudgetTooSmallError:
        return
    kept = {(i, at) for i, a, b in found.spans for at in range(a, b)}
    assert {(0 if plain else 3, at) for at in range(start, end)} <= kept


def test_a_long_sentence_full_of_negations_takes_seconds_and_no_minutes() -> None:
    # Speech that was written down without full stops; the bound of every word is the same set.
    draw = random.Random(0)
    said = [
        draw.choice(["not", "we", "went", "to", "the", "river", "Ana", "7"]) for _ in range(600)
    ]
    protection = Protection()
    document = read(" ".join(said), protection)
    from riemem.distill.select import _Closure

    closure = _Closure(document, protection)
    steps = {tuple(closure.of([unit])) for unit in range(len(document.units))}
    negations = {n for n, word in enumerate(said) if word == "not"}
    assert all(negations <= set(step) for step in steps)
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text.split())

    for mode in ("token", "hierarchical"):
        with pytest.raises(BudgetTooSmallError):
            distill("not " * 150, token_budget=10, score="words", mode=mode, count_tokens=count)
    assert len(counted) < 100  # every step is the whole sentence, and that is tried once


def test_a_long_line_asks_for_the_worth_of_a_word_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from riemem.distill import order

    asked = 0
    plain = order._Greedy._worth

    def counted(self: Any, group: int) -> float:
        nonlocal asked
        asked += 1
        return plain(self, group)

    monkeypatch.setattr(order._Greedy, "_worth", counted)
    text = " ".join(f"w{n}" for n in range(3000))
    assert words(shortened(text, 1000)) == 1000
    assert asked < 10 * 3000

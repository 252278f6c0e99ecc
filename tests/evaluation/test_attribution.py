"""Under whose name kept words stand, against texts whose shares are counted by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from riemem.distill import Distiller
from riemem.errors import BudgetTooSmallError
from riemem.evaluation.attribution import read_speakers, speaker_attribution

SAID = {
    7: ("I have taken up photography", "Maya"),
    8: ("Tim bought three telescopes", "Dave"),
    9: ("It rained", None),
}
# "taken up photography" (3 words), "bought three telescopes" (3), "It rained" (2)
SPANS = [(7, 7, 27), (8, 4, 27), (9, 0, 9)]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("# 2023-05-08\nMaya: taken up photography\nDave: bought three telescopes\n- It rained", 8),
        # the labels of both, of the second, of the third are gone
        ("taken up photography\nbought three telescopes\nIt rained", 2),
        ("Maya: taken up photography\nbought three telescopes\n- It rained", 5),
        ("Maya: taken up photography bought three telescopes It rained", 3),
        ("Maya: taken up photography\nDave: bought three telescopes\nIt rained", 6),
        # exchanged; given to one who is not there; a header ends what holds
        ("Dave: taken up photography\nMaya: bought three telescopes\n- It rained", 2),
        ("Zoë van Dyk: taken up photography\nDave: bought three telescopes\n- It rained", 5),
        ("Maya: taken up photography\n# 2023\nbought three telescopes\nIt rained", 5),
        # other ways to say who speaks
        ("Maya said taken up photography\nDave says: bought three telescopes\n- It rained", 8),
        # words that are not there are not right
        ("Maya: photography\nDave: bought three telescopes\n- It rained", 5),
        ("", 0),
    ],
)  # fmt: skip
def test_shares_counted_by_hand(text: str, right: int) -> None:
    assert speaker_attribution(text, SPANS, SAID) == right / 8


def test_nothing_kept_has_no_share() -> None:
    assert math.isnan(speaker_attribution("Maya: ", [], SAID))
    assert math.isnan(speaker_attribution("Maya: ", [(7, 1, 2)], SAID))


def test_a_name_inside_a_line_is_no_label() -> None:
    said = {1: ("Dave: no, Dave said yes\nDave: maybe", "Maya"), 2: ("so", "Dave")}
    text = "Maya: Dave: no, Dave said yes\n  Dave: maybe\nDave: so"
    assert speaker_attribution(text, [(1, 0, 35), (2, 0, 2)], said) == 1.0


def test_a_word_is_not_found_in_a_label() -> None:
    said = {1: ("Ana", "Maya"), 2: ("Maya came", "Ana")}
    spans = [(1, 0, 3), (2, 0, 9)]
    assert speaker_attribution("Maya: Ana\nAna: Maya came", spans, said) == 1.0
    assert speaker_attribution("Ana: Ana\nAna: Maya came", spans, said) == pytest.approx(2 / 3)


def test_what_holds_from_where() -> None:
    text = '"Dr: X": tea\nmaya: no\n- so\nNote\n## day'
    assert read_speakers(text, ["Dr: X", "maya"]) == (
        "         tea\n      no\n  so\nNote\n      ",
        [(0, "Dr: X"), (13, "maya"), (22, None), (32, None)],
    )
    assert read_speakers(text)[1] == [(22, None), (32, None)]


SCORES = ("turns", "truncate", "random", "words")
NAMES = st.sampled_from(["Maya", "Dave", "Dr: X", "-", "maya b.", "李", None])
TEXTS = st.text(st.sampled_from("ab N.,'-#:\n\r\u2028漢"), min_size=1, max_size=40).filter(
    str.strip
)


@given(st.lists(st.tuples(NAMES, TEXTS), min_size=1, max_size=6), st.integers(8, 60),
       st.sampled_from(SCORES))  # fmt: skip
def test_whatever_is_said_our_labels_are_right(turns, budget, score) -> None:
    """Read with code that shares nothing with the writer of the labels."""
    rows = [
        {"id": n, "speaker": name, "text": text, "session": "s", "score": 1.0 - n / 10,
         "when": "2024-05-01T10:00:00+00:00"}
        for n, (name, text) in enumerate(turns)
    ]  # fmt: skip
    try:
        made = Distiller(score=score, count_tokens=len).distill(rows, token_budget=budget)
    except BudgetTooSmallError:
        return
    said = {n: (text, name) for n, (name, text) in enumerate(turns)}
    share = speaker_attribution(made.text, made.spans, said)
    assert math.isnan(share) or share == 1.0
    others = {n: (text, "someone else") for n, (_, text) in enumerate(turns)}
    assert math.isnan(share) or speaker_attribution(made.text, made.spans, others) == 0.0

"""The rows about use and sleep: every question is answered, and what is asleep is not found."""

from __future__ import annotations

import functools

from riemem.embed import HashingEmbedder
from riemem.evaluation.hybrid import remember
from riemem.evaluation.lives import rank_lives
from riemem.evaluation.locomo import Conversation, Question, Turn


def conversation() -> Conversation:
    said = [("1:00 pm on 1 January, 2023", 1), ("1:00 pm on 1 June, 2023", 2)]
    turns = [
        Turn((session, i), "Ana", f"{word} {session}", None, when)
        for when, session in said
        for i, word in enumerate(("kite", "harbour", "tea", "moon", "salt"))
    ]
    questions = [
        Question(i, text, 4, gold)
        for i, (text, gold) in enumerate(
            [("Which kite?", (0,)), ("What harbour?", (1,)), ("Which tea?", (7,)), ("Salt?", (4,))]
        )
    ]
    return Conversation("c", tuple(turns), tuple(questions))


def test_every_question_has_a_list_and_the_old_session_sleeps() -> None:
    own = conversation()
    found = rank_lives(own, functools.partial(remember, own, HashingEmbedder(dim=64)))
    assert set(found) == {
        "taught fisher-rao",
        "taught slm-v3",
        "asleep half-life",
        "asleep langevin",
        "asleep half-life, taught",
        "asleep langevin, taught",
    }
    for name, lists in found.items():
        assert len(lists) == 4
        if name.startswith("taught"):
            assert all(sorted(rows) == list(range(10)) for rows in lists)
    # Five months: without a use nothing of the first session is awake.
    assert all(set(rows) == {5, 6, 7, 8, 9} for rows in found["asleep half-life"])
    # Questions 0 and 2 are asked after 1 and 3 were answered by rows 1 and 4, and the other way.
    taught = [set(rows) for rows in found["asleep half-life, taught"]]
    assert taught == [{1, 4, 5, 6, 7, 8, 9}, {0, 5, 6, 7, 8, 9}] * 2

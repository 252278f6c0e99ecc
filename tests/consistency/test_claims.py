"""What is read as a claim, and what is not."""

from __future__ import annotations

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from riemem.consistency import Claim, confirm, excludes, extract

DAY = 86_400_000_000


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("I live in Porto.", ["dave: residence = porto"]),
        ("I don't live in Porto any more.", ["dave: residence != porto"]),
        ("My dog's name is Rex.", ["dave's dog: name = rex"]),
        ("My dog is called Rex.", ["dave's dog: name = rex"]),
        ("My birthday is on 14 March.", ["dave: birthday = 03-14"]),
        ("I was born on March 14th.", ["dave: birthday = 03-14"]),
        ("The meeting is at half past nine.", ["meeting: be clock = 09:30"]),
        ("The server listens on port 8080.", ["server: port = 8080"]),
        ("The port of the server is 8080.", ["server: port = 8080"]),
        ("We migrated the API to GraphQL.", ["api: interface = graphql"]),
        ("I have two cats.", ["dave: number of cat = 2", "dave: has = cat", "dave: has = pet"]),
        ("I quit smoking.", ["dave: does != smoke"]),
        ("I hate olives.", ["dave: likes != olives"]),
        ("The build passes on Linux.", ["build: passing / failing on linux = passing"]),
        ("I\u2019m not allergic to nuts", ["dave: allergic to != nuts"]),
    ],
)
def test_what_is_claimed(text: str, claims: list[str]) -> None:
    assert [claim.words for claim in extract(text, "Dave", 5)] == claims


@pytest.mark.parametrize(
    "text",
    [
        "Do you live in Porto?",
        "I might move to Oslo next year.",
        "If I get the job I will live in Zurich.",
        "I would like to have a dog.",
        "He lives in Porto.",
        "Wow, that sounds great!",
        "",
        "   \n ",
        "\u0000\ud7ff\U0001f600",
        "我住在波尔图。",
    ],
)
def test_what_makes_no_claim(text: str) -> None:
    assert extract(text, "Dave", 5) == []


def test_words_of_change_are_noticed() -> None:
    assert extract("I moved to Berlin.", "Dave")[0].change
    assert not extract("I live in Berlin.", "Dave")[0].change
    # What is so once and for all changes only by a correction.
    assert not extract("I graduated in 2012.", "Dave")[0].change
    assert extract("Actually, I graduated in 2012.", "Dave")[0].change


@given(st.text(max_size=200), st.none() | st.text(min_size=1, max_size=20))
def test_any_text_can_be_read(text: str, speaker: str | None) -> None:
    claims = extract(text, speaker, 7)
    assert claims == extract(text, speaker, 7)
    assert len(claims) <= 32
    assert all(c.subject and c.attribute and c.value and c.first < c.last for c in claims)


def test_a_long_text_is_read_in_bounded_time() -> None:
    # The cost of each rule is linear in its clause: counted in steps of the regular expressions it
    # would need a clock, so the length that is read is what is bounded.
    rng = random.Random(1)
    words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(1, 9))) for _ in range(300)]
    text = " ".join(rng.choices([*words, "is", "not", "my", "in", "of", "has"], k=200_000))
    assert len(extract(text, "Dave")) <= 32
    assert extract("I live in Porto. " + text, "Dave")[0].value == "porto"
    assert extract("x " * 5000 + ". I live in Porto.", "Dave") == []


def test_confirmation_looks_at_the_time() -> None:
    porto = Claim("dave", "residence", "porto", single=True, first=0)
    berlin = Claim("dave", "residence", "berlin", single=True, first=1)
    assert confirm(porto, 0, berlin, 1).kind == "contradiction"
    assert confirm(porto, 0, berlin._replace(change=True), 1).kind == "change"
    assert confirm(porto._replace(change=True), 0, berlin, 1).kind == "contradiction"
    assert confirm(porto, 0, berlin, 15 * DAY).kind == "change"
    assert confirm(porto._replace(last=1), 0, berlin, 1) is None
    born = Claim("dave", "birthplace", "porto", single=True)
    assert confirm(born, 0, born._replace(value="lyon"), 900 * DAY).kind == "contradiction"
    assert confirm(born, 0, born._replace(value="lyon", change=True), 9).kind == "change"


@given(
    st.builds(Claim, st.sampled_from("xy"), st.sampled_from("ab"), st.sampled_from("123"),
              st.booleans(), st.booleans()),
    st.builds(Claim, st.sampled_from("xy"), st.sampled_from("ab"), st.sampled_from("123"),
              st.booleans(), st.booleans()),
)  # fmt: skip
def test_excluding_is_symmetric_and_never_of_oneself(a: Claim, b: Claim) -> None:
    assert excludes(a, b) == excludes(b, a)
    assert excludes(a, a) == ""

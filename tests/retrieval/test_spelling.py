"""Misspelt words and names: found by the words that one slip makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from riemem.embed import HashingEmbedder
from riemem.memory import Memory
from riemem.retrieval.postings import Postings
from riemem.retrieval.spelling import slips


def distance(a: str, b: str) -> int:
    """Damerau's distance with adjacent transpositions, by the textbook's table."""
    table = [
        [max(i, j) if 0 in (i, j) else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)
    ]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            table[i][j] = min(
                table[i - 1][j] + 1,
                table[i][j - 1] + 1,
                table[i - 1][j - 1] + (a[i - 1] != b[j - 1]),
            )
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                table[i][j] = min(table[i][j], table[i - 2][j - 2] + 1)
    return table[-1][-1]


@given(st.text("abcd", min_size=4, max_size=6), st.text("abcd", min_size=3, max_size=7))
def test_slips_are_the_words_at_distance_one(word: str, other: str) -> None:
    assert (other in slips(word)) == (distance(word, other) == 1)


@pytest.mark.parametrize("word", ["tea", "2023", "a1b2", "東京塔", "x" * 41, "", "naive\u0301"])
def test_what_has_no_slips(word: str) -> None:
    assert slips(word) == set()


def test_other_alphabets() -> None:
    assert "москва" in slips("масква")
    assert "αθηνα" in slips("αθνηα")


def test_a_word_that_is_in_no_text_stands_for_those_like_it() -> None:
    postings = Postings()
    postings.add(["Melanie paints", "a red boat", "Melania sings, Melanie listens", "harbour"])
    right, _ = postings.view().bm25("melania")
    assert (right > 0).tolist() == [False, False, True, False]  # it is there: nothing else is meant
    wrong, bound = postings.view().bm25("harbur")
    assert (wrong > 0).tolist() == [False, False, False, True]
    assert 0 < wrong.max() <= bound
    several, bound = postings.view().bm25("melani")
    assert (several > 0).tolist() == [True, False, True, False]
    assert several.max() <= bound
    nothing, bound = postings.view().bm25("zzzzzz")
    assert (nothing.tolist(), bound) == ([0.0] * 4, 0.0)


def test_a_misspelt_question_finds_the_memory() -> None:
    with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as memory:
        memory.add("I adopted a greyhound", speaker="Melanie")
        memory.add_many([{"text": f"something else {i}", "speaker": "Dave"} for i in range(40)])
        found = memory.search("Which greyhuond did Melaine adopt?", k=1, ranking="lexical")
        assert found[0].id == 1
        assert found[0].score > 0


def test_what_is_forgotten_is_like_nothing() -> None:
    postings = Postings()
    postings.add(["greyhound", "boat"])
    postings.remove([0])
    scores, bound = postings.view().bm25("greyhuond")
    assert (scores.tolist(), bound) == ([0.0, 0.0], 0.0)

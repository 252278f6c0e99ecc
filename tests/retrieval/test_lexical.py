from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from riemem.embed import HashingEmbedder
from riemem.errors import ArgumentError
from riemem.memory import Memory
from riemem.retrieval.lexical import LexicalChannel, LexicalIndex, match_expression

TEXTS = [
    "I took up photography last spring",
    "the pre-edit version of ubuntu 20.04",
    "I don't eat nuts",
    "会议改到周四下午三点",
    "She photographs birds and birds only",
    "हिन्दी में बात",
]


def ids(index: LexicalIndex, query: str, k: int = 10) -> list[int]:
    return [i for i, _ in index.search(query, k)]


@pytest.fixture(scope="module")
def index() -> LexicalIndex:
    return LexicalIndex(TEXTS)


@pytest.mark.parametrize(
    ("query", "plain"),
    [
        ("pre-edit", "pre edit"),
        ("don't", "don t"),
        ("ubuntu 20.04", "ubuntu 20 04"),
        ('" OR NEAR( *', "OR NEAR"),
        ("text:photography", "text photography"),
        ("photo* AND -birds", "photo AND birds"),
        ("{photography}^2", "photography 2"),
    ],
)
def test_punctuation_is_only_punctuation(index: LexicalIndex, query: str, plain: str) -> None:
    assert index.search(query, 10) == index.search(plain, 10)


def test_words_are_stemmed_and_any_of_them_is_enough(index: LexicalIndex) -> None:
    assert ids(index, "photographing") == [4]
    assert ids(index, "bird zebra") == [4]
    assert sorted(ids(index, "springs and versions")) == [0, 1, 4]
    assert ids(index, "हिन्दी") == [5]


@pytest.mark.parametrize("query", ["", "?!", "🐢", '"', "\0", "—", "zebra"])
def test_nothing_to_find_finds_nothing(index: LexicalIndex, query: str) -> None:
    assert index.search(query, 10) == []


@given(st.text())
def test_no_text_is_an_error(index: LexicalIndex, query: str) -> None:
    assert len(index.search(query, 10)) <= len(TEXTS)


def test_a_very_long_query_is_searched_with_its_first_words(index: LexicalIndex) -> None:
    assert ids(index, "birds " + " ".join(f"w{i}" for i in range(20_000))) == [4]
    assert match_expression("a " * 50_000) == '"a"'


def test_scores_are_bm25(index: LexicalIndex) -> None:
    # By hand for one word: idf * f * (k1 + 1) / (f + k1 * (1 - b + b * length / mean length)).
    texts = ["tea tea milk", "tea", "milk and sugar here", "sugar", "salt", "pepper"]
    lengths = np.array([3, 1, 4, 1, 1, 1])
    counts = np.array([2, 1, 0, 0, 0, 0])
    idf = np.log((6 - 2 + 0.5) / (2 + 0.5))
    expected = idf * counts * 2.2 / (counts + 1.2 * (0.25 + 0.75 * lengths / lengths.mean()))
    found = LexicalIndex(texts).search("tea", 10)
    order = np.argsort(-expected)[:2].tolist()
    assert [i for i, _ in found] == order
    assert [score for _, score in found] == pytest.approx(expected[order], rel=1e-9)


def test_ties_go_to_the_lower_position_and_the_filter_comes_first() -> None:
    with LexicalIndex(["tea"] * 50) as index:
        assert ids(index, "tea", 3) == [0, 1, 2]
        allowed = np.array([48, 7, 31])
        assert [i for i, _ in index.search("tea", 2, allowed)] == [7, 31]
        assert index.search("tea", 0) == []
        with pytest.raises(ArgumentError, match=r"^k: expected an int >= 0, got -1"):
            index.search("tea", -1)


def test_a_tokenizer_may_be_named_but_not_injected() -> None:
    assert [i for i, _ in LexicalIndex(["teas"], tokenize="unicode61").search("tea", 5)] == []
    with pytest.raises(ArgumentError, match=r"^tokenize: "):
        LexicalIndex(["tea"], tokenize="porter'); DROP TABLE x; --")


def test_the_channel_follows_the_store() -> None:
    with Memory.open(":memory:", embedder=HashingEmbedder(dim=16)) as memory:
        a = memory.add("I moved to Porto", speaker="Maya", when="2024-05-01T10:00:00Z")
        b = memory.add("Porto is lovely\0 in spring", speaker="Ben", when="2024-06-01T10:00:00Z")
        memory.add("Porto", profile="other")
        channel = LexicalChannel(memory._store)

        def found(query: str, **arguments: object) -> list[int]:
            return sorted(i for i, _ in channel.search(query, 10, **arguments))  # type: ignore[arg-type]

        assert found("porto") == [a, b]
        assert found("Maya") == [a]
        assert found("June 2024") == [a, b]
        assert found("june") == [b]
        assert found("spring") == [b]  # behind the NUL
        assert found("porto", allowed=np.array([b, 3])) == [b]
        memory.update(b, text="Lisbon is lovely", when="1969-07-20T20:17:40Z")
        assert found("porto") == [a]
        assert found("lisbon") == found("July 1969") == [b]
        memory.forget(b)
        assert found("lisbon") == []
        assert channel.search("porto", 10).scoring == "bm25"
        assert memory.check().ok

"""The rows of a text's tokens against a plain projection, and what they leave out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from riemem.errors import ArgumentError, ShapeError
from riemem.retrieval.token_rows import DIMS, MOST_ROWS, read_rows, signs, token_rows
from riemem.retrieval.words import STOP_WORDS, word_places


@dataclass
class Tokens:
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]
    vectors: NDArray[np.float32]


def tokens_of(text: str, places: list[tuple[int, int]], dim: int = 384, seed: int = 0) -> Tokens:
    vectors = np.random.default_rng(seed).standard_normal((len(places), dim))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    starts, ends = np.array(places, np.int32).reshape(-1, 2).T
    return Tokens(starts, ends, vectors.astype(np.float32))


def every_run(text: str) -> Tokens:
    return tokens_of(text, [(i, i + 1) for i, c in enumerate(text) if not c.isspace()])


def test_rows_are_the_projected_unit_vectors() -> None:
    text = "red kites over Cardiff"
    tokens = tokens_of(text, [(0, 3), (4, 8), (8, 9), (10, 14), (15, 22)])
    rows = read_rows(token_rows(text, tokens))
    plain = tokens.vectors.astype(np.float64) @ signs(384)
    plain /= np.linalg.norm(plain, axis=1, keepdims=True)
    assert rows.shape == (5, DIMS)
    assert np.abs(rows - 127 * plain).max() <= 0.5
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    assert np.abs(norms - 127).max() < 4


def test_products_of_rows_are_nearly_those_of_the_vectors() -> None:
    text = "abcd"
    errors = []
    for seed in range(50):
        tokens = tokens_of(text, [(0, 2), (2, 4)], seed=seed)
        a, b = read_rows(token_rows(text, tokens)).astype(np.float64) / 127
        errors.append(a @ b - float(tokens.vectors[0] @ tokens.vectors[1]))
    assert np.abs(np.mean(errors)) < 0.06
    assert np.std(errors) < 1.5 / np.sqrt(DIMS)


def test_the_signs_are_the_bits_of_sha_256() -> None:
    first = hashlib.sha256(b"riemem token signs 384 64 0").digest()
    expected = [1.0 if first[i // 8] >> (7 - i % 8) & 1 else -1.0 for i in range(64)]
    assert signs(384, 64)[0].tolist() == expected
    assert abs(signs(384).mean()) < 0.02
    assert not signs(384).flags.writeable


@pytest.mark.parametrize(
    ("text", "places", "kept"),
    [
        ("What is the dog's name?", [(0, 4), (5, 7), (12, 15), (15, 16), (16, 17)], [2]),
        ("unbelievable!", [(0, 2), (2, 12), (12, 13)], [0, 1]),  # both pieces of one word
        (" sea sand", [(0, 4), (4, 9)], [0, 1]),  # a token with the space before it
        ("THE Sea", [(0, 3), (4, 7)], [1]),
        ("... !?", [(0, 3), (4, 6)], []),
        ("東京へ行った", [(0, 2), (2, 3), (3, 6)], [0, 1, 2]),
        ("Zoë said", [(0, 3), (4, 8)], [0, 1]),
    ],
)
def test_tokens_count_by_the_word_that_they_lie_in(
    text: str, places: list[tuple[int, int]], kept: list[int]
) -> None:
    tokens = tokens_of(text, places)
    alone = Tokens(tokens.starts[kept], tokens.ends[kept], tokens.vectors[kept])
    rows = read_rows(token_rows(text, tokens))
    assert len(rows) == len(kept)
    assert rows.tobytes() == token_rows(text, alone)


def test_more_words_can_be_left_out() -> None:
    text = "Zoë's boat"
    tokens = tokens_of(text, [(0, 3), (3, 4), (4, 5), (6, 10)])
    assert len(read_rows(token_rows(text, tokens, without={"zoe"}))) == 1


def test_short_vectors_are_kept_as_they_are() -> None:
    text = "a1 b2"
    tokens = tokens_of(text, [(0, 2), (3, 5)], dim=5)
    rows = read_rows(token_rows(text, tokens))
    assert np.array_equal(rows[:, :5], np.rint(127 * tokens.vectors.astype(np.float64)))
    assert not rows[:, 5:].any()


def test_rows_that_are_rounded_come_back() -> None:
    text = "one two six"
    places = [(0, 3), (4, 7), (8, 11)]
    rows = read_rows(token_rows(text, tokens_of(text, places)))
    starts, ends = np.array(places, np.int32).T
    again = Tokens(starts, ends, rows)  # type: ignore[arg-type]
    assert token_rows(text, again) == rows.tobytes()


def test_a_vector_of_no_length_is_a_row_of_nothing() -> None:
    tokens = Tokens(np.zeros(1, np.int32), np.full(1, 3, np.int32), np.zeros((1, 384), np.float32))
    assert token_rows("sea", tokens) == bytes(DIMS)


def test_at_most_so_many_rows() -> None:
    text = "abc " * 400
    tokens = tokens_of(text, [(4 * i, 4 * i + 3) for i in range(400)], dim=8)
    assert len(read_rows(token_rows(text, tokens))) == MOST_ROWS


def test_what_does_not_fit_is_named() -> None:
    tokens = tokens_of("sea", [(0, 3)])
    with pytest.raises(ShapeError, match=r"tokens: expected a vector for each of 2 starts"):
        token_rows("sea", Tokens(np.zeros(2, np.int32), tokens.ends, tokens.vectors))
    with pytest.raises(ArgumentError, match="data: expected rows of 64 bytes, got 65 bytes"):
        read_rows(bytes(65))


@given(st.text(max_size=60))
def test_no_token_of_a_word_that_says_nothing_is_kept(text: str) -> None:
    tokens = every_run(text)
    telling = {
        i
        for start, end, word in word_places(text)
        if word not in STOP_WORDS
        for i in range(start, end)
    }
    kept = sum(int(i) in telling for i in tokens.starts)
    assert len(read_rows(token_rows(text, tokens))) == min(kept, MOST_ROWS)

"""The rows of a text's tokens against plain arithmetic, and what they leave out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from riemem import _core as core
from riemem.errors import ArgumentError, ShapeError
from riemem.retrieval.token_rows import (
    DIMS,
    MOST_ROWS,
    ROW_BYTES,
    UNIT,
    read_rows,
    rounded,
    token_rows,
    told_rows,
)
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


def signs(data: bytes) -> NDArray[np.float64]:
    """The rows as +1 and -1, bit by bit."""
    rows = [
        [1.0 if byte >> bit & 1 else -1.0 for byte in row for bit in range(8)]
        for row in read_rows(data).tolist()
    ]
    return np.array(rows).reshape(-1, DIMS)


@pytest.mark.parametrize("dim", [5, 64, 384, 512, 768])
def test_rows_are_the_signs_of_the_rotated_vectors(dim: int) -> None:
    text = "red kites over Cardiff"
    tokens = tokens_of(text, [(0, 3), (4, 8), (8, 9), (10, 14), (15, 22)], dim)
    wide = np.zeros((5, max(dim, DIMS)))
    wide[:, :dim] = tokens.vectors
    plain = core.rotate(wide)[:, :DIMS]
    plain /= np.linalg.norm(plain, axis=1, keepdims=True)
    rows = told_rows(text, tokens)
    assert rows.shape == (5, DIMS)
    near = np.clip(127 / 4 * np.sqrt(DIMS) * plain, -127, 127)
    assert np.abs(rows - near).max() <= 0.5 + 1e-6
    assert np.array_equal(signs(token_rows(text, tokens)), np.where(rows >= 0, 1.0, -1.0))


def test_a_product_with_signs_is_nearly_the_cosine() -> None:
    rng = np.random.default_rng(0)
    errors = []
    for cosine in (-0.5, 0.0, 0.4, 0.8, 1.0):
        a, b = rng.standard_normal((2, 500, 384))
        a /= np.linalg.norm(a, axis=1, keepdims=True)
        b -= np.einsum("ij,ij->i", a, b)[:, None] * a
        b /= np.linalg.norm(b, axis=1, keepdims=True)
        other = cosine * a + np.sqrt(1 - cosine**2) * b
        found = np.einsum("ij,ij->i", rounded(a), np.where(rounded(other) >= 0, 1.0, -1.0)) / UNIT
        errors.append(found - cosine)
        assert abs(errors[-1].mean()) < 0.006
    assert np.std(errors) < 0.75 / np.sqrt(DIMS)


def test_a_dimension_that_dwarfs_the_others_is_spread() -> None:
    # What signs of the numbers as they are would not see: encoders with such a dimension exist.
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((400, 384)) * 0.05
    vectors[:, 7] = 3.0 * rng.choice([-1.0, 1.0], 400)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    a, b = vectors[:200], vectors[200:]
    found = np.einsum("ij,ij->i", rounded(a), np.where(rounded(b) >= 0, 1.0, -1.0)) / UNIT
    assert np.abs(found - np.einsum("ij,ij->i", a, b)).mean() < 0.05


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


def test_rows_that_are_rounded_come_back() -> None:
    text = "one two six"
    places = [(0, 3), (4, 7), (8, 11)]
    tokens = tokens_of(text, places)
    rows = told_rows(text, tokens)
    again = Tokens(tokens.starts, tokens.ends, rows)  # type: ignore[arg-type]
    assert told_rows(text, again) is not rows
    assert np.array_equal(told_rows(text, again), rows)
    assert token_rows(text, again) == token_rows(text, tokens)


def test_a_vector_of_no_length_has_no_row() -> None:
    tokens = tokens_of("sea boat", [(0, 3), (4, 8)])
    tokens.vectors[0] = 0.0
    alone = Tokens(tokens.starts[1:], tokens.ends[1:], tokens.vectors[1:])
    assert token_rows("sea boat", tokens) == token_rows("sea boat", alone)
    assert len(token_rows("sea boat", alone)) == ROW_BYTES


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

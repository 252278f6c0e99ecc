"""The vectors of tokens beside those of texts: their places, windows, and MiniLM's by hand."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from riemem._token_vectors import join_windows, token_vectors
from riemem.embed import HashingEmbedder, MiniLMEmbedder, TokenEmbedder, TokenVectors
from riemem.errors import NotFiniteError

TEXTS = ['Léa said, "I missed two tickets 🔑"', "short", "", "long walks " * 300, "tea"]


def at(*places: tuple[int, int]) -> TokenVectors:
    starts, ends = np.array(places, np.int32).reshape(-1, 2).T
    return TokenVectors(starts, ends, np.eye(8, dtype=np.float32)[: len(places)])


def test_what_a_tokenizer_added_and_what_lies_before_the_text_is_left_out() -> None:
    states = np.array([[9, 9], [9, 9], [3, 4], [0, 2], [9, 9]], np.float32)
    places = [(0, 0), (-6, -1), (-1, 3), (3, 5), (0, 0)]
    found = token_vectors(states, places, [1, 0, 0, 0, 1])
    assert found.starts.tolist() == [0, 3]
    assert found.ends.tolist() == [3, 5]
    assert found.starts.dtype == found.ends.dtype == np.int32
    np.testing.assert_array_equal(found.vectors, np.array([[0.6, 0.8], [0, 1]], np.float32))


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_a_token_without_a_direction_is_an_error(bad: float) -> None:
    with pytest.raises(NotFiniteError, match="token without a direction"):
        token_vectors(np.full((1, 3), bad, np.float32), [(0, 1)], [0])


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.integers(0, 3))
def test_of_a_token_in_two_windows_the_first_counts(sizes: list[int], overlap: int) -> None:
    # Tokens of one character each; every window repeats the end of the one before it.
    windows, end = [], 0
    for size in sizes:
        begin = max(0, end - overlap)
        end = max(end, begin) + size
        windows.append((begin, at(*[(i, i + 1) for i in range(end - begin)])))
    joined = join_windows(windows)
    assert joined.starts.tolist() == list(range(end))
    assert joined.ends.tolist() == list(range(1, end + 1))
    assert joined.vectors.shape == (end, 8)


def test_windows_without_tokens() -> None:
    joined = join_windows([(0, at()), (4, at((0, 2)))])
    assert (joined.starts.tolist(), joined.ends.tolist()) == ([4], [6])
    assert join_windows([(0, at())]).vectors.shape == (0, 8)


def test_the_words_of_the_hashing_embedder() -> None:
    embedder = HashingEmbedder(dim=64)
    assert isinstance(embedder, TokenEmbedder)
    texts = ["a red kite", "Kite?", "", "!"]
    rows, tokens = embedder.embed_with_tokens(texts)
    np.testing.assert_array_equal(rows, embedder.embed(texts))
    assert tokens[0].starts.tolist() == [0, 2, 6]
    assert tokens[0].ends.tolist() == [1, 5, 10]
    np.testing.assert_array_equal(tokens[0].vectors[2], tokens[1].vectors[0])
    np.testing.assert_allclose(np.linalg.norm(tokens[0].vectors, axis=1), 1.0, atol=1e-6)
    assert [found.vectors.shape for found in tokens[2:]] == [(0, 64), (0, 64)]


@pytest.mark.model
class TestMiniLM:
    def test_the_states_are_those_of_transformers(self, minilm: MiniLMEmbedder) -> None:
        torch = pytest.importorskip("torch")
        transformers = pytest.importorskip("transformers")
        assert isinstance(minilm, TokenEmbedder)
        model = transformers.BertModel.from_pretrained(
            minilm.files.folder, attn_implementation="eager"
        ).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(minilm.files.folder)
        rows, tokens = minilm.embed_with_tokens(TEXTS)
        np.testing.assert_array_equal(rows, minilm.embed(TEXTS))
        for text, found in zip(TEXTS, tokens, strict=True):
            encoded = tokenizer(
                text,
                truncation=True,
                max_length=256,
                return_offsets_mapping=True,
                return_tensors="pt",
            )
            offsets = encoded.pop("offset_mapping")[0].numpy()[1:-1]
            with torch.no_grad():
                states = model(**encoded).last_hidden_state[0, 1:-1]
            unit = torch.nn.functional.normalize(states).numpy()
            np.testing.assert_array_equal(np.stack([found.starts, found.ends], 1), offsets)
            np.testing.assert_allclose(found.vectors, unit, atol=2e-6)

    def test_places_are_characters_of_the_text(self, minilm: MiniLMEmbedder) -> None:
        (tokens,) = minilm.embed_with_tokens(TEXTS[:1])[1]
        pieces = [TEXTS[0][a:b] for a, b in zip(tokens.starts, tokens.ends, strict=True)]
        assert "".join(pieces) == re.sub(r"\s", "", TEXTS[0])
        assert "tickets" in pieces

    def test_alone_or_in_a_batch(self, minilm: MiniLMEmbedder) -> None:
        tokens = minilm.embed_with_tokens(TEXTS)[1]
        for text, found in zip(TEXTS, tokens, strict=True):
            (alone,) = minilm.embed_with_tokens([text])[1]
            np.testing.assert_array_equal(alone.starts, found.starts)
            # As for the text's vector; a token is one of many that are averaged there.
            np.testing.assert_allclose(alone.vectors, found.vectors, atol=2e-6)
        rows, none = minilm.embed_with_tokens([])
        assert rows.shape == (0, 384)
        assert none == []

"""Vectors and tokens of benchmark texts are the same from the cache as from the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from riemem.embed import HashingEmbedder, TokenVectors
from riemem.errors import CancelledError
from riemem.evaluation.embedded import embed_texts, read_tokens, write_tokens
from riemem.evaluation.hybrid import KnownVectors, variants
from riemem.retrieval.fusion import rankings
from riemem.retrieval.token_rows import DIMS, FORM, token_rows

GROUPS = [
    ['Ana said, "the red boat"', "Is it a boat?", "the", "", "Zoë's sea-side house"],
    [],
    ["one more text"],
]


class Silent(HashingEmbedder):
    """Knows nothing: what it is asked for was not in the cache."""

    def embed(self, texts: Any) -> Any:
        raise AssertionError(texts)


@pytest.mark.parametrize("dim", [32, 200])
def test_tokens_come_out_of_the_cache_as_they_went_in(tmp_path: Path, dim: int) -> None:
    model = HashingEmbedder(dim=dim)
    first: dict[str, TokenVectors] = {}
    rows = embed_texts(model, GROUPS, None, tmp_path, first)
    again: dict[str, TokenVectors] = {}
    kept = embed_texts(Silent(dim=dim), GROUPS, None, tmp_path, again)
    assert [part.tolist() for part in rows] == [part.tolist() for part in kept]
    assert list(first) == list(again) == [text for group in GROUPS for text in group]
    for text, own in again.items():
        whole = model.embed_with_tokens([text])[1][0]
        assert token_rows(text, own) == token_rows(text, first[text]) == token_rows(text, whole)
        assert own.vectors.shape == (len(own.starts), DIMS)


def test_vectors_without_tokens_are_completed(tmp_path: Path) -> None:
    model = HashingEmbedder(dim=32)
    plain = embed_texts(model, GROUPS, None, tmp_path)
    assert not list(tmp_path.glob(f"*{FORM}*"))
    found: dict[str, TokenVectors] = {}
    both = embed_texts(model, GROUPS, None, tmp_path, found)
    assert [part.tolist() for part in plain] == [part.tolist() for part in both]
    assert len(found) == 6
    assert len(list(tmp_path.glob(f"*{FORM}*"))) == len(GROUPS)


def test_no_tokens_are_read_back_as_none(tmp_path: Path) -> None:
    file = tmp_path / "none.npz"
    write_tokens(file, [])
    assert read_tokens(file) == []


def test_progress_can_stop_it() -> None:
    with pytest.raises(CancelledError):
        embed_texts(HashingEmbedder(dim=32), GROUPS, lambda done, total: done < 5, None)


def test_known_tokens_are_given_and_others_made() -> None:
    model = HashingEmbedder(dim=32)
    tokens: dict[str, TokenVectors] = {}
    (rows,) = embed_texts(model, [["a red boat"]], None, None, tokens)
    known = KnownVectors(model, {"a red boat": rows[0]}, tokens)
    vectors, found = known.embed_with_tokens(["a red boat", "blue sea"])
    assert np.array_equal(vectors, model.embed(["a red boat", "blue sea"]))
    assert found[0] is tokens["a red boat"]
    assert found[1].ends.tolist() == [4, 8]


def test_the_ranking_by_tokens_is_measured_where_there_are_some() -> None:
    assert "without late" not in variants()
    assert variants()["default"] is rankings["default"]
    both = variants(late=True)
    assert both["default"] is rankings["late-interaction"]
    assert both["without late"] is rankings["default"]

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from riemem.embed import HashingEmbedder, render_turn
from riemem.errors import DTypeError, ShapeError, TextError
from riemem.retrieval.embedding import TurnEmbedder
from riemem.store.vectors import decode


class Plain:
    """The least that is accepted: no windows, no max_tokens."""

    identity, dim = "plain", 3

    def embed(self, texts: Sequence[str]) -> Any:
        return [[len(text), 1, 0] for text in texts]


def test_turns_are_rendered_by_the_one_documented_function() -> None:
    embedder = HashingEmbedder(dim=16)
    turns = TurnEmbedder(embedder)
    blobs = turns.embed_turns([("I moved", "Maya", None), ("I moved", None, None)])
    assert blobs is not None
    rows = decode([chunks[0] for chunks in blobs], 16)
    expected = embedder.embed([render_turn("I moved", speaker="Maya"), render_turn("I moved")])
    assert np.allclose(rows, expected, atol=1e-7)
    assert turns.identity().rendering == "name-said"


def test_an_embedder_without_windows_will_do_and_is_normalised() -> None:
    blobs = TurnEmbedder(Plain()).embed_turns([("abc", None, None)])
    assert blobs is not None
    assert decode(blobs[0], 3)[0] == pytest.approx(np.array([3, 1, 0]) / np.sqrt(10), abs=1e-7)


@pytest.mark.parametrize("spec", [object(), 3, ["minilm"], HashingEmbedder.embed])
def test_what_cannot_embed_is_refused_at_once(spec: object) -> None:
    with pytest.raises(DTypeError, match=r"^embedder: expected a name, a folder or an object"):
        TurnEmbedder(spec)


def test_wrong_shapes_and_too_many_windows_are_refused() -> None:
    class Wrong(Plain):
        dim = 4

    class Shredder(Plain):
        def windows(self, text: str) -> list[str]:
            return ["x"] * 5000

    with pytest.raises(ShapeError, match=r"^embedder: expected vectors of shape \(1, 4\)"):
        TurnEmbedder(Wrong()).embed_turns([("abc", None, None)])
    with pytest.raises(TextError, match=r"^text: expected at most 4096 windows"):
        TurnEmbedder(Shredder()).embed_turns([("abc", None, None)])


def test_progress_counts_turns_and_may_stop() -> None:
    seen: list[tuple[int, int]] = []
    turns = [(f"text {i}", None, None) for i in range(600)]
    embedder = TurnEmbedder(HashingEmbedder(dim=4))
    assert len(embedder.embed_turns(turns, lambda *a: seen.append(a)) or []) == 600
    assert seen == [(0, 600), (256, 600), (512, 600), (600, 600)]
    assert embedder.embed_turns(turns, lambda done, total: done < 512) is None


def test_a_query_longer_than_the_window_says_so() -> None:
    class Short(HashingEmbedder):
        def windows(self, text: str) -> Any:
            return [text[i : i + 10] for i in range(0, len(text), 10)]

    embedded = TurnEmbedder(Short(dim=4)).embed_query("a rather long query")
    assert embedded.notes == (
        "dense: the query is longer than the embedder's window; only its first 10 of 19 "
        "characters were used",
    )
    assert TurnEmbedder(Short(dim=4)).embed_query("short").notes == ()

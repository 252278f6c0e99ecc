"""Search with a variance per memory: what use changes, and what stays the cosine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from riemem.embed import HashingEmbedder
from riemem.fisher_rao import (
    access_ramp,
    confirmed_variance,
    fisher_rao_scores,
    signal_variance,
)
from riemem.memory import Memory

DIM = 32
WORDS = ["kite", "harbour", "tea", "moon", "salt", "boat", "hill", "blue", "letter", "piano"]


def texts(n: int) -> list[str]:
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, 4)) + f" {i}" for i in range(n)]


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory.open(":memory:", embedder=HashingEmbedder(dim=DIM)) as opened:
        opened.add_many({"text": text} for text in texts(60))
        yield opened


def unit(rows: np.ndarray) -> np.ndarray:
    wide = rows.astype(np.float64)
    return (wide / np.linalg.norm(wide, axis=1, keepdims=True)).astype(np.float32)


def vectors(queries: list[str]) -> np.ndarray:
    return unit(HashingEmbedder(dim=DIM).embed(queries))


def stored(memory: Memory) -> np.ndarray:
    found = memory._channel("default").dense.vectors_of(list(range(1, len(memory.list()) + 1)))
    return np.concatenate([found[i] for i in sorted(found)])


def found(memory: Memory, query: str) -> dict[int, float]:
    hits = memory.search(query, k=60, ranking="fisher-rao")
    assert hits.scoring == "fisher-rao: fisher-rao"
    return {hit.id: hit.score for hit in hits}


def test_without_uses_it_is_the_cosine(memory: Memory) -> None:
    for query in ("kite on the hill", "salt", "blue letter"):
        plain = {hit.id: hit.score for hit in memory.search(query, k=60, ranking="cosine")}
        cosines = (vectors([query]).astype(np.float64) @ stored(memory).astype(np.float64).T)[0]
        scores = found(memory, query)
        np.testing.assert_allclose([scores[i + 1] for i in range(60)], cosines, atol=1e-6)
        assert list(scores)[:5] == list(plain)[:5]


def test_uses_and_what_they_taught_enter_the_score(memory: Memory) -> None:
    memory.used(range(1, 21), at="2024-01-01T00:00:00Z")
    for _ in range(12):
        memory.used(7, helped=True, query="the old piano")
    memory.used([8, 9], helped=True, query="moon and salt")
    rows = stored(memory)
    variances = signal_variance(rows)
    embedder = HashingEmbedder(dim=DIM)
    for row, query, times in ((6, "the old piano", 12), (7, "moon and salt", 1)):
        for _ in range(times):
            taught = signal_variance(embedder.embed([query]))
            variances[row : row + 1] = confirmed_variance(variances[row : row + 1], taught)
    variances[8:9] = confirmed_variance(variances[8:9], signal_variance(embedder.embed([query])))
    uses = np.zeros(60, np.int64)
    uses[:20] = 1
    uses[6] += 12
    uses[7:9] += 1
    for query in ("kite", "the old piano", "salt in the tea"):
        expected = fisher_rao_scores(vectors([query]), rows, variances, ramp=access_ramp(uses))[0]
        scores = found(memory, query)
        np.testing.assert_allclose(
            [scores[i + 1] for i in range(60)], 2.0 * expected - 1.0, atol=1e-5
        )


def test_it_follows_what_happens(memory: Memory) -> None:
    before = found(memory, "kite")
    added = memory.add("kite kite kite")
    assert found(memory, "kite")[added] > max(before.values()) - 1.0
    memory.used(3)
    moved = found(memory, "kite")
    assert moved[3] != before[3]
    assert moved[4] == before[4]
    memory.forget(3)
    assert 3 not in found(memory, "kite")
    memory.update(4, text="something else entirely")
    assert found(memory, "kite")[4] != before[4]


def test_another_process_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=HashingEmbedder(dim=DIM)) as one:
        one.add_many({"text": text} for text in texts(30))
        before = found(one, "kite")
        with Memory.open(path, embedder=HashingEmbedder(dim=DIM)) as other:
            other.used(5, helped=True, query="kite")
        after = found(one, "kite")
        assert after[5] != before[5]
        with Memory.open(path, embedder=HashingEmbedder(dim=DIM), readonly=True) as reader:
            assert found(reader, "kite") == after


def test_the_same_question_gives_the_same_bits(memory: Memory) -> None:
    memory.used([1, 2], helped=True, query="tea")
    assert found(memory, "tea") == found(memory, "tea")


def test_slm_v3_without_uses_ranks_the_dense_channel_like_the_cosine(memory: Memory) -> None:
    hits = memory.search("kite on the hill", k=60, ranking="slm-v3", explain=True)
    by_score = sorted(hits, key=lambda hit: (-hit.channels["dense.score"], hit.id))
    cosine = memory.search("kite on the hill", k=60, ranking="cosine", explain=True)
    near = sorted(cosine, key=lambda hit: (-hit.channels["cosine"], hit.id))
    assert [hit.id for hit in by_score][:10] == [hit.id for hit in near][:10]

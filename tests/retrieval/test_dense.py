from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import EmbedderMismatchError
from riemem.memory import Memory
from riemem.retrieval import loading
from riemem.retrieval.dense import DenseChannel
from riemem.retrieval.embedding import TurnEmbedder

DIM = 32
WORDS = ["tea", "dog", "boat", "key", "moon", "salt", "fern", "coal", "harp", "nail"]


class Cutting(HashingEmbedder):
    """Splits every five words, so that memories have several vectors."""

    def windows(self, text: str) -> Any:
        words = text.split()
        return [" ".join(words[i : i + 5]) for i in range(0, len(words), 5)]


def text(rng: random.Random, length: int = 4) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(length))


def fresh(memory: Memory, embedder: Any, preset: str = "default") -> DenseChannel:
    return DenseChannel(memory._store, "default", TurnEmbedder(embedder), preset)


def cosines(embedder: HashingEmbedder, query: str, texts: list[str]) -> np.ndarray:
    rows = embedder.embed([query, *texts]).astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows[1:] @ rows[0]


def test_below_32_memories_the_score_is_the_plain_cosine_and_says_so() -> None:
    embedder, rng = HashingEmbedder(dim=DIM), random.Random(0)
    with Memory.open(":memory:", embedder=embedder) as memory:
        texts = [f"{text(rng)} {i}" for i in range(31)]
        memory.add_many([{"text": t} for t in texts])
        found = fresh(memory, embedder).search("dog boat", 31)
        assert found.scoring.startswith("cosine: 31 samples < min_samples 32")
        expected = cosines(embedder, "dog boat", texts)
        order = np.argsort(-expected, kind="stable")
        assert [i - 1 for i, _ in found] == order.tolist()
        assert [score for _, score in found] == pytest.approx(expected[order], abs=1e-6)
        memory.add("one more")
        assert fresh(memory, embedder).search("dog", 3).scoring == "default: cosine"


def test_the_filter_comes_before_the_best_are_taken() -> None:
    embedder, rng = HashingEmbedder(dim=DIM), random.Random(1)
    with Memory.open(":memory:", embedder=embedder) as memory:
        memory.add_many([{"text": f"{text(rng)} {i}"} for i in range(300)])
        channel = fresh(memory, embedder, "cosine")
        everything = [i for i, _ in channel.search("moon salt", 300)]
        allowed = np.array(sorted(everything[150:160]))
        assert [i for i, _ in channel.search("moon salt", 5, allowed)] == everything[150:155]
        assert channel.search("moon", 5, np.array([], dtype=np.int64)) == []
        assert channel.search("moon", 5, np.array([10**6])) == []


@pytest.mark.parametrize("limit", [8192, 0])
def test_any_sequence_of_changes_equals_a_channel_made_afresh(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(loading, "REBUILT_ROWS", limit)
    embedder, rng = Cutting(dim=DIM), random.Random(2)
    with Memory.open(":memory:", embedder=embedder) as memory:
        living = fresh(memory, embedder)
        alive: list[int] = []
        for step in range(60):
            action = rng.random()
            if action < 0.6 or len(alive) < 5:
                alive += memory.add_many(
                    [{"text": text(rng, rng.randint(1, 14))} for _ in range(rng.randint(1, 9))]
                )
            elif action < 0.8:
                memory.update(rng.choice(alive), text=text(rng, rng.randint(1, 14)))
            elif action < 0.9:
                memory.update(rng.choice(alive), metadata={"step": step})
            else:
                gone = rng.sample(alive, min(3, len(alive)))
                memory.forget(gone)
                alive = [i for i in alive if i not in gone]
            query = text(rng, 2)
            ours = living.search(query, 10)
            theirs = fresh(memory, embedder).search(query, 10)
            if limit:
                assert ours == theirs  # bit for bit
            else:
                assert [i for i, _ in ours] == [i for i, _ in theirs]
                assert [s for _, s in ours] == pytest.approx([s for _, s in theirs], abs=1e-9)
            assert len(living) == len(alive)


def test_a_memory_with_many_chunks_comes_once_and_takes_no_places() -> None:
    embedder = Cutting(dim=DIM)
    with Memory.open(":memory:", embedder=embedder) as memory:
        long = memory.add("boat boat boat boat boat " * 40 + "spare key under blue pot")
        others = memory.add_many([{"text": f"boat {word}"} for word in WORDS])
        channel = fresh(memory, embedder)
        found = [i for i, _ in channel.search("boat boat boat boat boat", 11)]
        assert found[0] == long
        assert sorted(found) == sorted([long, *others])
        found_key = channel.search("spare key under blue pot", 3, explain=True)
        assert found_key[0][0] == long
        assert found_key.details[long]["chunk"] == 40
        assert found_key.details[long]["cosine"] == pytest.approx(1.0, abs=1e-6)


def test_equal_scores_go_to_the_lower_id_also_after_an_update() -> None:
    embedder = HashingEmbedder(dim=DIM)
    with Memory.open(":memory:", embedder=embedder) as memory:
        ids = memory.add_many([{"text": "tea"}] * 40 + [{"text": "dog"}] * 5)
        channel = fresh(memory, embedder)
        assert [i for i, _ in channel.search("tea", 3)] == ids[:3]
        memory.update(ids[1], text="moon")
        memory.update(ids[1], text="tea")
        assert [i for i, _ in channel.search("tea", 3)] == ids[:3]
        assert [i for i, _ in fresh(memory, embedder).search("tea", 3)] == ids[:3]


def test_another_opening_of_the_file_is_followed(tmp_path: Path) -> None:
    embedder = HashingEmbedder(dim=DIM)
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=embedder) as a, Memory.open(path, embedder=embedder) as b:
        first = a.add("tea with milk")
        assert [hit.id for hit in b.search("milk", k=5)] == [first]
        second = b.add("milk only")
        assert {hit.id for hit in a.search("milk", k=5)} == {first, second}
        b.update(first, text="dogs")
        assert a.search("dogs", k=1)[0].text == "dogs"
        b.forget(first)
        assert [hit.id for hit in a.search("dogs", k=5)] == [second]


def test_vectors_of_another_embedder_stop_the_next_search(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    small, large = HashingEmbedder(dim=16), HashingEmbedder(dim=24)
    with Memory.open(path, embedder=small) as memory:
        memory.add_many([{"text": word} for word in WORDS])
        assert memory.search("tea", k=1)[0].text == "tea"
        assert Memory.reembed_store(path, embedder=large) == len(WORDS)
        with pytest.raises(EmbedderMismatchError, match=r"hashing-v1:24.*hashing-v1:16"):
            memory.search("tea")
        with pytest.raises(EmbedderMismatchError, match="riemem reembed"):
            memory.add("new")
        assert len(memory.list()) == len(WORDS)
    with Memory.open(path, embedder=large) as memory:
        assert memory.search("moon", k=1)[0].text == "moon"
        assert memory.check().ok


def test_an_empty_store_needs_no_embedder() -> None:
    class Never:
        dim, max_tokens = 4, 4

        @property
        def identity(self) -> str:
            raise AssertionError("not needed")

        embed = windows = None

    with Memory.open(":memory:", embedder=Never()) as memory:
        assert memory.search("tea") == []
        assert memory.list() == []

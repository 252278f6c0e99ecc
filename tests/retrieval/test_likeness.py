"""Likeness, answers and brevity: what each adds, worked out by hand on small memories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from riemem.embed import HashingEmbedder
from riemem.errors import ArgumentError
from riemem.memory import Memory
from riemem.retrieval import hybrid
from riemem.retrieval.brevity import worth
from riemem.retrieval.fusion import Ranking, rankings
from riemem.retrieval.likeness import centre_of, likeness_weights

_LINE = "tea dog boat key moon salt fern coal harp nail oak rain sand wolf yarn"
WORDS = _LINE.split()


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as opened:
        yield opened


def test_likeness_is_the_score_of_the_centre_of_the_best(memory: Memory) -> None:
    ids = memory.add_many(
        [{"text": f"{WORDS[i % 15]} {WORDS[(i * 7 + 3) % 15]} {i}"} for i in range(60)]
    )
    first = Ranking("first", {"dense": 3.0, "lexical": 2.0})
    both = replace(first, weights={**first.weights, "likeness": 4.0}, likeness=(3, 1.5))
    query = "the boat and the moon"
    before = memory.search(query, k=60, ranking=first)
    after = memory.search(query, k=60, ranking=both, explain=True)
    best = before[:3]
    weights = np.exp([(hit.score - best[0].score) / 1.5 for hit in best])
    weights /= weights.sum()
    rows = HashingEmbedder(dim=64).embed([memory.get(i).text for i in ids]).astype(np.float64)
    place = {memory_id: i for i, memory_id in enumerate(ids)}
    centre = sum(w * rows[place[hit.id]] for w, hit in zip(weights, best, strict=True))
    # The whitened cosine by numpy: covariance with a ridge of ten times its mean eigenvalue.
    cov = np.cov(rows.T, bias=True)
    root = np.linalg.cholesky(np.linalg.inv(cov + 10.0 * np.trace(cov) / 64 * np.eye(64)))
    about = (rows - rows.mean(axis=0)) @ root
    own = (centre / np.linalg.norm(centre) - rows.mean(axis=0)) @ root
    scores = about @ own / np.linalg.norm(about, axis=1) / np.linalg.norm(own)
    scores *= np.linalg.norm(centre)
    was = {hit.id: hit.score for hit in before}
    for hit in after:
        assert hit.channels["likeness.score"] == pytest.approx(scores[place[hit.id]], abs=1e-5)
        assert hit.channels["likeness"] == pytest.approx(4.0 * hit.channels["likeness.score"])
        assert hit.score == pytest.approx(was[hit.id] + hit.channels["likeness"])


def test_likeness_finds_what_shares_no_word_with_the_question(memory: Memory) -> None:
    memory.add_many(
        [{"text": "boat sails harbour"}, {"text": "sails harbour rope"}]
        + [{"text": f"{word} {i}"} for i, word in enumerate(WORDS * 3) if word != "boat"]
    )
    plain = Ranking("plain", {"lexical": 1.0, "dense": 1.0})
    alike = replace(plain, weights={**plain.weights, "likeness": 3.0}, likeness=(1, 1.0))
    rank = {}
    for ranking in (plain, alike):
        found = [hit.text for hit in memory.search("boat", k=44, ranking=ranking)]
        rank[ranking.weights.get("likeness", 0)] = found.index("sails harbour rope")
    assert rank[3.0] <= 4 < rank[0]


def test_likeness_needs_the_others_and_a_scope_lends_nothing(memory: Memory) -> None:
    memory.add_many([{"text": f"{w} {i}", "speaker": "Ana"} for i, w in enumerate(WORDS * 3)])
    other = memory.add_many([{"text": f"boat {w}", "speaker": "Bo"} for w in WORDS])
    alone = memory.search("boat", ranking=Ranking("alone", {"likeness": 1.0}))
    assert [hit.score for hit in alone] == [0.0] * 10
    scoped = memory.search("boat", k=60, filters={"speaker": "Ana"})
    for memory_id in other:
        memory.update(memory_id, text=f"changed {memory_id}")
    again = memory.search("boat", k=60, filters={"speaker": "Ana"})
    # The others still are part of the metric and of the rarity of words, not of the likeness.
    assert {hit.id for hit in scoped[:3]} == {hit.id for hit in again[:3]} == {3, 18, 33}
    assert all(hit.speaker == "Ana" for hit in scoped)


def test_of_many_only_what_is_scored_gets_likeness(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.add_many([{"text": f"{WORDS[i % 15]} {WORDS[(i * i) % 15]} {i}"} for i in range(400)])
    channel = memory._channel("default")
    full = channel.search("the boat and 77", 10, explain=True)
    monkeypatch.setattr(hybrid, "MANY", 50)
    found = channel.search("the boat and 77", 10, explain=True)
    assert [i for i, _ in found] == [i for i, _ in full]
    for i, score in found:
        assert score == pytest.approx(dict(full)[i], abs=1e-9)
        assert found.details[i]["likeness"] == pytest.approx(full.details[i]["likeness"], abs=1e-9)


def test_below_the_metric_likeness_is_centred_and_one_memory_has_none(memory: Memory) -> None:
    memory.add("boat")
    assert memory.search("boat", explain=True)[0].channels["likeness"] == 0.0
    memory.add_many([{"text": word} for word in WORDS])
    hits = memory.search("boat", k=16, explain=True)
    assert sum(hit.channels["likeness.score"] for hit in hits) == pytest.approx(0.0, abs=1e-9)


def test_an_answer_gets_credit_from_the_question_before_it(memory: Memory) -> None:
    talk = ["Where is the boat?", "Over there", "The boat is far", "Over here"]
    for i, text in enumerate(talk):
        memory.add(text, session="s", when=f"2024-01-01T10:0{i}:00Z")
    ranking = Ranking("x", {"dense": 2.0, "lexical": 3.0}, answers=0.5)
    hits = {h.id: h.channels for h in memory.search("boat", ranking=ranking)}
    base = {i: own["dense"] + own["lexical"] for i, own in hits.items()}
    assert hits[2]["answers"] == pytest.approx(0.5 * base[1])
    assert [hits[i]["answers"] for i in (1, 3, 4)] == [0.0, 0.0, 0.0]


@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=20),
    st.integers(1, 30),
    st.floats(0.01, 100),
)
def test_weights_are_a_distribution_over_the_best(
    scores: list[float], top: int, spread: float
) -> None:
    values = np.array(scores)
    best, weights = likeness_weights(values, np.arange(values.size)[::-1], top, spread)
    assert best.size == min(top, values.size)
    assert weights.sum() == pytest.approx(1.0)
    assert (np.diff(weights) <= 0).all()
    assert values[best].tolist() == sorted(scores, reverse=True)[: best.size]


def test_centres_of_nothing_and_of_opposites() -> None:
    one = np.array([[1.0, 0.0]], np.float32)
    assert centre_of({}, [1], np.array([1.0])) is None
    assert centre_of({1: one, 2: -one}, [1, 2], np.array([0.5, 0.5])) is None
    several = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    found = centre_of({7: several}, [7], np.array([1.0]))
    assert found == pytest.approx(np.sqrt([0.5, 0.5]))


# -- filling a budget ------------------------------------------------------------------------


def test_worth_counts_bytes_beyond_what_is_free() -> None:
    assert worth(1.5, "x" * 10_000, 0.0, 1) == 1.5
    assert worth(1.5, "x" * 400, 2.0, 400) == worth(1.5, "", 2.0, 400) == 1.5
    assert worth(1.5, "é" * 400, 2.0, 400) == pytest.approx(1.5 - 2.0 * np.log(2.0))


def test_short_turns_come_before_a_long_one_that_is_little_better(memory: Memory) -> None:
    long = "boat " + "and then more of the same went on " * 40
    memory.add(long, session="a")
    for i in range(6):
        memory.add(f"boat number {i}", session="b")

    def packed(weight: float) -> list[str]:
        ranking = Ranking("x", {"lexical": 1.0, "substance": 1.0}, brevity=(weight, 100))
        context = memory.recall("boat", token_budget=len(long) + 60, ranking=ranking, **counting)
        return [hit.text for hit in context.hits]

    counting: dict[str, Any] = {"count_tokens": len}
    assert long in packed(0.0)
    assert long not in packed(3.0)
    assert len(packed(3.0)) == 6
    whole = memory.recall("boat", token_budget=3000, **counting)
    assert sorted(hit.id for hit in whole.hits) == list(range(1, 8))
    grouped = memory.recall("boat", token_budget=len(long) + 60, layout="grouped", **counting)
    assert grouped.tokens <= len(long) + 60


def test_recall_takes_the_options_of_search(memory: Memory) -> None:
    memory.add_many([{"text": "the moon is full"}, {"text": "the moon is full "}])
    memory.add_many([{"text": f"moon {word}"} for word in WORDS])
    options: dict[str, Any] = {"token_budget": 500, "count_tokens": len}
    context = memory.recall("full moon", near_duplicates=0.95, **options)
    assert sum(hit.text.startswith("the moon is full") for hit in context.hits) == 1

    class ByLength:
        def scores(self, query: str, texts: Any) -> list[float]:
            return [40.0 * (text == "moon harp") - 20.0 for text in texts]

    least = len("# 2000-01-01\n- moon harp") + 1
    small = memory.recall(
        "full moon", token_budget=least, count_tokens=len, reranker=ByLength(), ranking="lexical"
    )
    assert [hit.text for hit in small.hits] == ["moon harp"]
    with pytest.raises(ArgumentError, match=r"^ranking: "):
        memory.recall("moon", ranking="magic", **options)


@pytest.mark.parametrize(
    "bad",
    [
        {"likeness": (0, 1.0)},
        {"likeness": (3, 0.0)},
        {"brevity": (-1.0, 100)},
        {"brevity": (1.0, 0)},
        {"answers": float("nan")},
    ],
)
def test_options_out_of_range(bad: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        replace(rankings["default"], **bad)

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest
from riemem.retrieval import postings as module
from riemem.retrieval.postings import Postings

WORDS = ["tea", "dog", "boat", "key", "moon", "salt", "fern", "coal", "harp", "nail"]


def naive(texts: list[str], query: list[str], k1: float, b: float) -> list[float]:
    bags = [Counter(text.split()) for text in texts]
    mean = sum(sum(bag.values()) for bag in bags) / len(bags)
    scores = []
    for bag in bags:
        total = 0.0
        for word in query:
            n = sum(word in other for other in bags)
            idf = math.log(1 + (len(bags) - n + 0.5) / (n + 0.5))
            f = bag[word]
            damped = f + k1 * (1 - b + b * sum(bag.values()) / mean)
            total += idf * f * (k1 + 1) / damped if f else 0.0
        scores.append(total)
    return scores


def text(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 9)))


@pytest.mark.parametrize(("k1", "b"), [(0.8, 0.4), (1.2, 0.75), (2.0, 0.0)])
def test_scores_are_the_formula(k1: float, b: float) -> None:
    rng = random.Random(0)
    texts = [text(rng) for _ in range(40)]
    postings = Postings()
    postings.add(texts)
    scores, bound = postings.view().bm25("tea moon nail", k1=k1, b=b)
    assert scores == pytest.approx(naive(texts, ["tea", "moon", "nail"], k1, b))
    assert 0 < scores.max() <= bound


def test_scores_are_those_of_another_library() -> None:
    bm25s = pytest.importorskip("bm25s")
    rng = random.Random(1)
    texts = [text(rng) for _ in range(60)]
    postings = Postings()
    postings.add(texts)
    theirs = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    theirs.index([t.split() for t in texts], show_progress=False)
    expected = theirs.get_scores(["dog", "harp"]).astype(float) * (1.2 + 1.0)
    ours = postings.view().bm25("dog harp", k1=1.2, b=0.75)[0]
    assert ours == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("most", [4, 2048])
def test_any_sequence_of_changes_equals_an_index_made_afresh(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(module, "PART_TEXTS", most)
    rng = random.Random(2)
    living, texts = Postings(), {}
    for _ in range(60):
        added = [text(rng) for _ in range(rng.randint(0, 4))]
        first = len(living)
        living.add(added)
        texts.update({first + i: t for i, t in enumerate(added)})
        if texts and rng.random() < 0.4:
            gone = rng.sample(sorted(texts), k=min(len(texts), rng.randint(1, 3)))
            living.remove(gone)
            living.remove(gone)
            for i in gone:
                del texts[i]
        if not texts:
            continue
        other = Postings()
        other.add(list(texts.values()))
        query = " ".join(rng.sample(WORDS, 3))
        mine, bound = living.view().bm25(query)
        theirs, their_bound = other.view().bm25(query)
        assert bound == their_bound
        assert mine[sorted(texts)].tolist() == theirs.tolist()


def test_a_view_does_not_change() -> None:
    postings = Postings()
    postings.add(["tea and dogs", "boats"])
    view = postings.view()
    before = view.bm25("tea elephants")[0].tolist()
    postings.add(["tea tea elephants"])
    postings.remove([0])
    assert view.bm25("tea elephants")[0].tolist() == before
    assert postings.view().bm25("elephants")[0][2] > 0


def test_nothing_held_and_nothing_asked() -> None:
    postings = Postings()
    assert postings.view().bm25("tea") == (pytest.approx(np.zeros(0)), 0.0)
    postings.add(["🙂", ""])
    scores, bound = postings.view().bm25("tea")
    assert (scores.tolist(), bound) == ([0.0, 0.0], 0.0)
    assert postings.view().bm25("🙂")[1] == 0.0


def test_each_choice_of_constants_scores_as_if_it_were_the_only_one() -> None:
    texts = ["red kite", "a red red bicycle in the long rain of may", "tea", "kite and red tea"]
    postings = Postings()
    postings.add(texts)
    view = postings.view()
    for i in range(12):  # more than are remembered, and each of them twice
        k1, b = 0.5 + i % 6, 0.1 * (i % 6)
        fresh = Postings()
        fresh.add(texts)
        want, bound = fresh.view().bm25("red tea", k1=k1, b=b)
        scores, own = view.bm25("red tea", k1=k1, b=b)
        assert (scores.tolist(), own) == (want.tolist(), bound)
    assert len(set(view.bm25("red", k1=2.0, b=0.9)[0].tolist())) == 4

"""The channels opening and first_person: what they give, counted by other means."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from riemem.embed import HashingEmbedder
from riemem.memory import Memory
from riemem.retrieval.fusion import Ranking
from riemem.retrieval.postings import Postings

_PRIORS = Ranking("priors", {"lexical": 1.0, "opening": 1.0, "first_person": 1.0})
_MINE = re.compile(r"\b(i|me|my|mine|we|us|our|ours)\b")
_YOURS = re.compile(r"\b(you|your|yours)\b")
_WORDS = ["I", "me", "My", "mine", "we", "us", "OUR", "ours", "you", "Your", "yours", "boat", "tea"]


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory.open(":memory:", embedder=HashingEmbedder(dim=48)) as opened:
        yield opened


def shares(memory: Memory, channel: str) -> dict[int, float]:
    return {h.id: h.channels[channel] for h in memory.search("boat", k=50, ranking=_PRIORS)}


def test_the_first_turn_of_each_session_opens_it(memory: Memory) -> None:
    late = memory.add("late", session="s", when="2023-01-02T00:00:00Z")
    early = memory.add("early", session="s", when="2023-01-01T00:00:00Z")
    other = memory.add("other", session="t", when="2023-01-03T00:00:00Z")
    alone = memory.add("alone")
    assert shares(memory, "opening") == {early: 1.0, other: 1.0, alone: 1.0, late: 0.0}
    memory.forget(early)
    assert shares(memory, "opening") == {late: 1.0, other: 1.0, alone: 1.0}


def test_who_speaks_of_themselves_and_who_of_the_other(memory: Memory) -> None:
    mine = memory.add("I'm off to the museum with my kids, we love it")  # i, my, we
    yours = memory.add("You really are! Your drive is yours")  # you, your, yours
    both = memory.add("I like you")
    neither = memory.add("Kyoto in spring")
    foreign = memory.add("昨日京都へ行きました")
    assert shares(memory, "first_person") == {
        mine: pytest.approx(3 / 4),
        yours: pytest.approx(-3 / 4),
        both: 0.0,
        neither: 0.0,
        foreign: 0.0,
    }


@given(st.lists(st.lists(st.sampled_from(_WORDS), max_size=8).map(" ".join), max_size=12))
def test_it_is_the_count_of_a_pattern_however_the_texts_came(texts: list[str]) -> None:
    mine = np.array([len(_MINE.findall(text.lower())) for text in texts], float)
    yours = np.array([len(_YOURS.findall(text.lower())) for text in texts], float)
    expected = (mine - yours) / (mine + yours + 1.0)
    together, apart = Postings(), Postings()
    together.add(texts)
    for text in texts:
        apart.add([text])
    for postings in (together, apart):
        assert postings.view().first_person().tolist() == expected.tolist()


def test_they_put_news_before_small_talk_and_find_nothing_alone(memory: Memory) -> None:
    talk = memory.add("That boat sounds great, good for you", session="s")
    news = memory.add("I bought a boat with my savings", session="t")
    found = memory.search("Who has a boat?", ranking=_PRIORS)
    assert [hit.id for hit in found] == [news, talk]
    assert found[0].channels["first_person"] == pytest.approx(2 / 3)
    nothing = memory.search("zeppelin", ranking=Ranking("words", {"lexical": 1.0}))
    assert {hit.channels.get("lexical", 0.0) for hit in nothing} <= {0.0}

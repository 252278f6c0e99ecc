"""Dates at the edges, in queries and in memories: the plain result or a typed error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import RiememError
from riemem.memory import Memory
from riemem.retrieval.fusion import Ranking, rankings

TIME = Ranking("time", {"temporal": 1.0})


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory.open(":memory:", embedder=HashingEmbedder(dim=32)) as opened:
        yield opened


@pytest.mark.parametrize("name", sorted(rankings))
@pytest.mark.parametrize(
    "query",
    [
        "What was on 30 February 2023?",
        "in the year 0",
        "0000-01-01",
        "9999-12-31 and the day after",
        "yesterday",
        "99999999999999999999 days ago",
        "\u0661\u0662 May 2023",
        "31 April, 29 February 2023, 2023-13-45",
    ],
)
def test_no_date_of_a_query_is_an_error(memory: Memory, query: str, name: str) -> None:
    memory.add("30 February was never, nor the year 0", when="2023-03-01T00:00:00Z")
    memory.add("yesterday in 9999", when="9999-12-31T23:59:59Z")
    memory.add("a day ago in the year 1", when="0001-01-01T00:00:00Z")
    assert len(memory.search(query, ranking=name)) == 3
    assert memory.recall(query, token_budget=500, count_tokens=len, ranking=name).tokens <= 500


def test_yesterday_without_a_day_is_named_and_with_one_is_found(memory: Memory) -> None:
    memory.add("tea", when="2023-03-25T12:00:00Z")
    memory.add("boat", when="2023-01-01T12:00:00Z")
    without = memory.search("yesterday", ranking=TIME)
    assert any("'yesterday'" in note for note in without.skipped)
    assert memory.search("yesterday", ranking=TIME, at="2023-03-26T12:00:00Z")[0].text == "tea"


def test_days_are_those_of_utc_also_when_clocks_change(memory: Memory) -> None:
    # 00:30 in Lisbon's summer and 23:30 of the day before in UTC; and the hour that comes twice.
    early = memory.add("tea", when="2023-03-27T00:30:00+01:00")
    twice = [
        memory.add("boat", when=when)
        for when in ("2023-10-29T01:30:00+01:00", "2023-10-29T01:30:00+00:00")
    ]
    found = {hit.id: hit.score for hit in memory.search("on 26 March 2023", ranking=TIME)}
    assert found[early] == 1.0
    found = {hit.id: hit.score for hit in memory.search("on 29 October 2023", ranking=TIME)}
    assert [found[i] for i in twice] == [1.0, 1.0]
    assert memory.get(twice[0]).when < memory.get(twice[1]).when


@pytest.mark.parametrize(
    "when", ["2023-02-30T00:00:00Z", "0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "yesterday"]
)
def test_dates_that_are_none_are_refused_with_a_typed_error(memory: Memory, when: str) -> None:
    for call in (
        lambda: memory.add("tea", when=when),
        lambda: memory.add("tea", valid_from=when),
        lambda: memory.search("tea", at=when),
        lambda: memory.search("tea", filters={"since": when}),
    ):
        with pytest.raises(RiememError):
            call()
    assert memory.stats()["memories"] == 0

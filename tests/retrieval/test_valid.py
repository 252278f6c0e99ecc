"""The third date of a memory: from when to when it holds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from riemem.embed import HashingEmbedder
from riemem.memory import Memory
from riemem.retrieval.fusion import Ranking

TIME = Ranking("time", {"temporal": 1.0})


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory.open(":memory:", embedder=HashingEmbedder(dim=32)) as opened:
        yield opened


def scores(memory: Memory, query: str) -> dict[int, float]:
    return {hit.id: hit.score for hit in memory.search(query, ranking=TIME)}


def test_a_memory_is_near_to_the_time_for_which_it_holds(memory: Memory) -> None:
    said = {"when": "2024-06-01T00:00:00Z"}
    between = memory.add(
        "The lease", valid_from="2021-03-01T00:00:00Z", valid_to="2021-09-01T00:00:00Z", **said
    )
    since = memory.add("The job", valid_from="2022-01-01T00:00:00Z", **said)
    until = memory.add("The old name", valid_to="2020-01-01T00:00:00Z", **said)
    plain = memory.add("A walk", **said)
    found = scores(memory, "What was it in May 2021?")
    assert found[between] == 1.0
    assert [found[plain], found[until]] == pytest.approx([0.0, 0.0], abs=1e-9)
    # One day before and one day after: the end does not belong to it.
    assert scores(memory, "on 28 February 2021")[between] == pytest.approx(np.exp(-1 / 1800))
    assert scores(memory, "on 31 August 2021")[between] == 1.0
    assert scores(memory, "on 1 September 2021")[between] == pytest.approx(np.exp(-1 / 1800))
    assert scores(memory, "in July 2023")[since] == 1.0
    assert scores(memory, "in 1850-01-01")[until] == 1.0
    assert scores(memory, "in 9999-12-31")[since] == 1.0


def test_only_the_living_of_the_profile_count(memory: Memory) -> None:
    span = {"valid_from": "2021-03-01T00:00:00Z", "valid_to": "2021-09-01T00:00:00Z"}
    gone = memory.add("The lease", when="2024-06-01T00:00:00Z", **span)
    memory.add("Another", when="2024-06-01T00:00:00Z", profile="other", **span)
    kept = memory.add("A walk", when="2024-06-01T00:00:00Z")
    assert scores(memory, "in May 2021")[gone] == 1.0
    memory.forget(gone)
    assert scores(memory, "in May 2021") == {kept: pytest.approx(0.0, abs=1e-9)}
    later = memory.add("Again", when="2024-06-01T00:00:00Z", **span)
    assert scores(memory, "in May 2021")[later] == 1.0

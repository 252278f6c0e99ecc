"""Dates at the edges, in queries and in memories: the plain result or a typed error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import RiememError
from riemem.memory import Memory
from riemem.retrieval.dates import find_dates
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


@pytest.mark.parametrize(
    ("text", "day"),
    [("5 Augu\u017ft 2023", "2023-08-05"), ("Augu\u017ft 5, 2023", "2023-08-05"),
     ("la\u017ft Friday", "2023-05-26"), ("NEXT FR\u0130DAY", "2023-06-02"),
     ("on Fr\u0131day", "2023-05-26"), ("Apr\u0130L 3 2023", "2023-04-03"),
     ("ye\u017fterday", "2023-05-31"), ("\u017fix days ago", "2023-05-26"),
     ("2 wee\u212as ago", "2023-05-15"), ("\u017fummer 2023", "2023-06-01"),
     ("la\u017ft \u017fummer", "2022-06-01"), ("the pa\u017ft two wee\u212as", "2023-05-15")],
)  # fmt: skip
def test_letters_that_count_as_ascii_where_case_does_not(
    memory: Memory, text: str, day: str
) -> None:
    # One such memory made every search after it fail.
    memory.add(f"We met {text}", when="2023-06-01T00:00:00Z")
    memory.add("Tea", when="2023-06-01T00:00:00Z")
    for name in sorted(rankings):
        assert len(memory.search("When did we meet?", ranking=name)) >= 1
        memory.search(f"Who was met {text}?", at="2023-06-01T00:00:00Z", ranking=name)
    spans, unresolved = find_dates(text, date(2023, 6, 1))
    assert date.fromordinal(spans[0].first).isoformat() == day
    assert unresolved == []


def test_no_name_of_a_month_follows_the_locale(tmp_path: Path) -> None:
    made = shutil.which("localedef") and subprocess.run(
        ["localedef", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")],
        capture_output=True, check=False,
    )  # fmt: skip
    if not made or not (tmp_path / "de_DE.UTF-8").is_dir():
        pytest.skip("no German locale can be made here")
    code = """
import locale, sys
from datetime import date
locale.setlocale(locale.LC_ALL, sys.argv[1])
assert format(date(2023, 5, 5), "%B") != "May"
from riemem.retrieval.dates import find_dates
from riemem.retrieval.lines import Turn, words_of
print(find_dates("in October 2023, last Tuesday", date(2023, 5, 5)))
print(words_of(Turn("tea", None, date(2023, 5, 5), None)))
"""
    found = [
        subprocess.run(
            [sys.executable, "-c", code.replace("assert", "#") if name == "C" else code, name],
            env={**os.environ, "LOCPATH": str(tmp_path)}, text=True, check=True,
            stdout=subprocess.PIPE,
        ).stdout
        for name in ("C", "de_DE.UTF-8")
    ]  # fmt: skip
    assert found[0] == found[1] != ""

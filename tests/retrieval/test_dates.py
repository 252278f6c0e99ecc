from __future__ import annotations

import sys
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from riemem.errors import BackendUnavailableError
from riemem.retrieval.dates import Span, asks_for_time, find_dates, mentions_time

SAID = date(2023, 10, 19)  # a Thursday


def days(text: str, said: date | None = SAID) -> list[tuple[str, str]]:
    return [
        (date.fromordinal(first).isoformat(), date.fromordinal(last).isoformat())
        for first, last in find_dates(text, said)[0]
    ]


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("yesterday", "2023-10-18", "2023-10-18"),
        ("the day before yesterday", "2023-10-17", "2023-10-17"),
        ("last night", "2023-10-18", "2023-10-18"),
        ("tomorrow", "2023-10-20", "2023-10-20"),
        ("three days ago", "2023-10-16", "2023-10-16"),
        ("2 weeks ago", "2023-10-02", "2023-10-08"),
        ("last Friday", "2023-10-13", "2023-10-13"),
        ("last Thursday", "2023-10-12", "2023-10-12"),
        ("this Thursday", "2023-10-19", "2023-10-19"),
        ("next Thursday", "2023-10-26", "2023-10-26"),
        ("on Monday", "2023-10-16", "2023-10-16"),
        ("last weekend", "2023-10-14", "2023-10-15"),
        ("last month", "2023-09-01", "2023-09-30"),
        ("last year", "2022-01-01", "2022-12-31"),
        ("last August", "2023-08-01", "2023-08-31"),
        ("last December", "2022-12-01", "2022-12-31"),
        ("next summer", "2024-06-01", "2024-08-31"),
        ("winter 2022", "2022-12-01", "2023-02-28"),
        ("the past three months", "2023-07-01", "2023-10-19"),
        ("in a couple of months", "2023-12-01", "2023-12-31"),
        ("2023-10-05", "2023-10-05", "2023-10-05"),
        ("16 August, 2023", "2023-08-16", "2023-08-16"),
        ("16th of August 2023", "2023-08-16", "2023-08-16"),
        ("Aug 16, 2023", "2023-08-16", "2023-08-16"),
        ("August 2023", "2023-08-01", "2023-08-31"),
        ("May 5", "2023-05-05", "2023-05-05"),
        ("in January", "2024-01-01", "2024-01-31"),
        ("since 2016", "2016-01-01", "2016-12-31"),
        ("29 February 2024", "2024-02-29", "2024-02-29"),
    ],
)
def test_a_phrase_is_these_days(text: str, first: str, last: str) -> None:
    assert days(f"We met {text}.") == [(first, last)]


@pytest.mark.parametrize(
    "text",
    [
        "30 February 2023",
        "February 30",
        "0000-01-01",
        "2023-13-01",
        "32 May 2020",
        "9999 years ago",
        "in 9999 years",
        "I may go",
        "we march on",
        "room 2500",
        "",
        "🙂",
    ],
)
def test_what_is_no_date_is_none(text: str) -> None:
    assert days(text) == []


def test_the_ends_of_the_calendar() -> None:
    assert days("9999-12-31") == [("9999-12-31", "9999-12-31")]
    for said in (date.min, date.max):
        for phrase in ("yesterday", "tomorrow", "last year", "next winter", "next week", "in May"):
            find_dates(phrase, said)
    assert days("yesterday", date.min) == []
    assert days("tomorrow", date.max) == []


def test_without_a_day_relative_phrases_are_named_and_months_mean_any_year() -> None:
    assert find_dates("What happened yesterday or last week?") == ([], ["yesterday", "last week"])
    spans, unresolved = find_dates("in October", None, years=(2021, 2023))
    assert [date.fromordinal(span.first).isoformat() for span in spans] == [
        "2021-10-01",
        "2022-10-01",
        "2023-10-01",
    ]
    assert unresolved == []


def test_the_absence_of_the_library_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dateutil", None)
    with pytest.raises(BackendUnavailableError, match="python-dateutil"):
        find_dates("yesterday", SAID)


@settings(max_examples=150, deadline=None)
@given(
    st.text(max_size=60)
    | st.from_regex(r"(in|last|next|on) \d{0,4} ?(weeks? ago|May|Friday|\d{4}-\d\d-\d\d)"),
    st.dates() | st.none(),
)
def test_no_text_raises_and_spans_are_in_order(text: str, said: date | None) -> None:
    spans, _ = find_dates(text, said)
    assert spans == sorted(set(spans))
    for span in spans:
        assert isinstance(span, Span)
        assert 1 <= span.first <= span.last <= date.max.toordinal()


def test_what_asks_and_what_mentions() -> None:
    assert asks_for_time("How long has Dave had it?")
    assert asks_for_time("In which month did it rain?")
    assert not asks_for_time("Where is the henhouse?")
    assert mentions_time("since Tuesday")
    assert not mentions_time("we met at noon")

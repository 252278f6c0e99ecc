from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from riemem.errors import ArgumentError, DTypeError
from riemem.store.times import day_of, format_instant, now_us, parse_instant


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2026-02-03T22:10:00+09:00", "2026-02-03T13:10:00+00:00"),
        ("2026-02-03T08:30:00-05:00", "2026-02-03T13:30:00+00:00"),
        ("2026-02-03T14:00:00Z", "2026-02-03T14:00:00+00:00"),
        ("2026-02-03 14:00z", "2026-02-03T14:00:00+00:00"),
        ("2026-02-03T14:00:00.25+0000", "2026-02-03T14:00:00.250000+00:00"),
        ("2026-02-03T14:00:00,123456789Z", "2026-02-03T14:00:00.123456+00:00"),
        ("2024-02-29T00:00:00+05:30", "2024-02-28T18:30:00+00:00"),
        ("2026-02-03T14:00:00+02", "2026-02-03T12:00:00+00:00"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+00:00"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999+00:00"),
    ],
)
def test_offsets_are_taken_into_account(text: str, same: str) -> None:
    assert format_instant(parse_instant(text)) == same


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-02-03",
        "2026-02-30T10:00:00Z",
        "2026-13-01T10:00:00Z",
        "2026-02-03T24:00:00Z",
        "2026-02-03T10:00:60Z",
        "2026-02-03T10:00:00",
        "2026-02-03T10:00:00+25:00",
        "2026-02-03T10:00:00+01:75",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "10000-01-01T00:00:00Z",
        "\uff12\uff10\uff12\uff16-02-03T10:00:00Z",
        "2026-02-03T10:00:00Z; DROP TABLE memories",
    ],
)
def test_what_is_no_instant_is_refused_by_name_with_an_example(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"^since: expected .*") as caught:
        parse_instant(text, "since")
    message = str(caught.value)
    assert "'2023-10-19T14:02:00+00:00'" in message or "years 1 to 9999" in message


def test_a_naive_datetime_is_refused_and_an_aware_one_taken() -> None:
    with pytest.raises(ArgumentError, match=r"^when: expected an offset"):
        parse_instant(datetime(2026, 2, 3, 10))
    zone = timezone(timedelta(hours=9))
    assert parse_instant(datetime(2026, 2, 3, 22, 10, tzinfo=zone)) == parse_instant(
        "2026-02-03T13:10:00Z"
    )


@pytest.mark.parametrize("value", [5, 1.5, True, b"2026-02-03T10:00:00Z", ["x"], object()])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(DTypeError, match=r"^when: expected ISO 8601"):
        parse_instant(value)  # type: ignore[arg-type]


@given(
    st.datetimes(
        timezones=st.timezones(), min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)
    )
)
def test_datetimes_survive_to_the_microsecond(moment: datetime) -> None:
    us = parse_instant(moment)
    assert datetime.fromisoformat(format_instant(us)) == moment
    assert parse_instant(format_instant(us)) == us


@given(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
def test_microseconds_survive_text(us: int) -> None:
    assert parse_instant(format_instant(us)) == us
    assert format_instant(us).startswith(day_of(us))


def test_now_is_between_two_looks_at_the_clock() -> None:
    before = datetime.now(timezone.utc)
    now = datetime.fromisoformat(format_instant(now_us()))
    assert before <= now <= datetime.now(timezone.utc)

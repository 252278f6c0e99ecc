"""Instants: ISO 8601 with an offset outside, integer microseconds since 1970 (UTC) inside."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import lru_cache

from riemem.errors import ArgumentError, DTypeError

__all__ = ["day_of", "format_instant", "now_us", "parse_instant"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_PLAIN_EPOCH = datetime(1970, 1, 1)  # without a zone, text is made in half the time
_MICROSECOND = timedelta(microseconds=1)
# The first and the last microsecond of the years 1 to 9999, UTC.
_FIRST = (datetime.min.replace(tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND
_LAST = (datetime.max.replace(tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND
_EXAMPLE = "'2023-10-19T14:02:00+00:00'"

# Written out rather than left to datetime.fromisoformat, which accepts other strings in each
# Python version (3.10 knows no 'Z' and only 3 or 6 digits of a second).
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ]"
    r"(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?"
    r"(?:([Zz])|([+-])(\d\d):?(\d\d)?(?::?(\d\d))?)?",
    re.ASCII,
)


# The one form that every Python version reads, and reads alike.
_PLAIN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:[0-5]\d", re.ASCII)


def now_us() -> int:
    """Return the clock's time as microseconds since 1970, UTC.

    Examples
    --------
    >>> now_us() > 1_600_000_000_000_000
    True
    """
    return time.time_ns() // 1000


def parse_instant(value: str | datetime, name: str = "when") -> int:
    """Return an instant as integer microseconds since 1970, UTC.

    Parameters
    ----------
    value : str or datetime
        ISO 8601 with an offset or ``Z``, or a datetime that knows its time zone. Digits of a
        second beyond the sixth are cut off.
    name : str
        The argument's name for the message.

    Returns
    -------
    int

    Raises
    ------
    ArgumentError
        The text is not ISO 8601, names no offset, or is no possible date.
    DTypeError
        The value is neither text nor a datetime.

    Examples
    --------
    >>> parse_instant("1970-01-01T01:00:00+01:00")
    0
    >>> parse_instant("1970-01-01T00:00:00.5Z")
    500000
    """
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, str):
        moment = _from_text(value, name)
    else:
        raise DTypeError(
            f"{name}: expected ISO 8601 text such as {_EXAMPLE} or a datetime with a time zone, "
            f"got {type(value).__name__}"
        )
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise ArgumentError(
            f"{name}: expected an offset or 'Z' as in {_EXAMPLE}, got {_shown(value)}, "
            "which could mean any time zone"
        )
    since = moment - _EPOCH
    microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if not _FIRST <= microseconds <= _LAST:  # an offset can push year 1 or 9999 over the edge
        raise ArgumentError(
            f"{name}: expected an instant in the years 1 to 9999 UTC, got {_shown(value)}"
        )
    return microseconds


@lru_cache(maxsize=8192)
def format_instant(microseconds: int) -> str:
    """Return microseconds since 1970 as ISO 8601 text in UTC.

    Examples
    --------
    >>> format_instant(0)
    '1970-01-01T00:00:00+00:00'
    """
    return f"{(_PLAIN_EPOCH + timedelta(microseconds=microseconds)).isoformat()}+00:00"


def day_of(microseconds: int) -> str:
    """Return the UTC date of an instant as ``YYYY-MM-DD``.

    Examples
    --------
    >>> day_of(86_400_000_000)
    '1970-01-02'
    """
    return format_instant(microseconds)[:10]


def _from_text(value: str, name: str) -> datetime:
    if _PLAIN.fullmatch(value):
        with suppress(ValueError):  # the message is made below
            return datetime.fromisoformat(value)
    match = _ISO.fullmatch(value.strip())
    if match is None:
        raise ArgumentError(f"{name}: expected ISO 8601 such as {_EXAMPLE}, got {_shown(value)}")
    year, month, day, hour, minute, second, fraction, zulu, sign, oh, om, os = match.groups()
    zone: timezone | None = None
    try:
        if zulu:
            zone = timezone.utc
        elif sign:
            if int(om or 0) > 59 or int(os or 0) > 59:
                raise ValueError("minutes and seconds of an offset go to 59")
            offset = timedelta(hours=int(oh), minutes=int(om or 0), seconds=int(os or 0))
            zone = timezone(-offset if sign == "-" else offset)
        return datetime(
            int(year),
            int(month),
            int(day),
            int(hour),
            int(minute),
            int(second or 0),
            int(fraction.ljust(6, "0")[:6]) if fraction else 0,
            tzinfo=zone,
        )
    except ValueError as error:
        raise ArgumentError(
            f"{name}: expected a date and time that exist, such as {_EXAMPLE}, "
            f"got {_shown(value)} ({error})"
        ) from error


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."

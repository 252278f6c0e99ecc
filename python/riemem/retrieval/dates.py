"""Dates in a text: absolute ones, and relative ones resolved against the day it was said.

Calendar arithmetic is python-dateutil's (BSD-3-Clause and Apache-2.0, small, no model, no
network); only the English phrases are recognised here. A date that does not exist is no date.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterator
from datetime import MAXYEAR, date, timedelta
from typing import Any, NamedTuple

from riemem.errors import BackendUnavailableError
from riemem.store.schema import MONTHS

__all__ = ["Span", "asks_for_time", "find_dates", "mentions_time", "require_calendar"]

#: A question may name a month without a year; it then means each of these at most.
_MOST_YEARS = 200


class Span(NamedTuple):
    """Days from `first` to `last`, both inclusive, as proleptic ordinals (day 1 is 0001-01-01)."""

    first: int
    last: int


# Written out: the names in `calendar` follow the locale of the process.
_MONTHS = {name.lower(): i for i, name in enumerate(MONTHS, 1)}
_MONTHS |= {name[:3]: i for name, i in _MONTHS.items()}
_MONTHS["sept"] = 9
_DAYS = {
    f"{name}day": i
    for i, name in enumerate(("mon", "tues", "wednes", "thurs", "fri", "satur", "sun"))
}
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_DIGITS = "one two three four five six seven eight nine ten"
_NUMBERS = {word: i for i, word in enumerate(_DIGITS.split(), 1)}
_NUMBERS |= {"a": 1, "an": 1, "a couple of": 2, "couple of": 2, "a few": 3, "few": 3, "several": 4}

_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DAY = "|".join(_DAYS)
_SEASON = "|".join(_SEASONS)
_COUNT = r"\d{1,4}|" + "|".join(sorted(_NUMBERS, key=len, reverse=True))
_UNIT = r"day|week|weekend|month|year"

_ABSOLUTE = re.compile(
    r"\b(?P<iso>\d{4}-\d{1,2}-\d{1,2})\b"
    rf"|\b(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<m1>{_MONTH})\b\.?(?:,? (?P<y1>\d{{4}})\b)?"
    rf"|\b(?P<m2>{_MONTH})\b\.? (?P<d2>\d{{1,2}})(?:st|nd|rd|th)?\b(?!:)(?:,? (?P<y2>\d{{4}})\b)?"
    rf"|\b(?P<m3>{_MONTH})\b\.?(?: of)?,? (?P<y3>\d{{4}})\b"
    rf"|\b(?:in|of|since|during|until|by|from|early|late|mid|through) (?P<m4>{_MONTH})\b"
    r"(?!\.? \d{1,2}(?:st|nd|rd|th)?\b(?!:))(?:,? (?P<y4>\d{4})\b)?"
    rf"|\b(?P<s5>{_SEASON})(?: of)?,? (?P<y5>\d{{4}})\b"
    r"|\b(?P<y6>(?:19|20)\d\d)\b(?!-)",
    re.IGNORECASE,
)
_RELATIVE = re.compile(
    r"\b(?P<word>the day before yesterday|the day after tomorrow|yesterday|last night|today|tonight"
    r"|this morning|this afternoon|this evening|tomorrow)\b"
    rf"|\b(?P<ago>{_COUNT}) (?P<ago_unit>{_UNIT})s? (?:ago|back|earlier)\b"
    rf"|\bin (?P<ahead>{_COUNT}) (?P<ahead_unit>{_UNIT})s?\b"
    rf"|\b(?:the )?(?:past|last) (?P<past>{_COUNT}) (?P<past_unit>{_UNIT})s\b"
    rf"|\b(?P<which>last|past|this past|this|next|coming) "
    rf"(?P<what>{_UNIT}|{_DAY}|{_MONTH}|{_SEASON})\b"
    rf"|\bon (?P<weekday>{_DAY})\b",
    re.IGNORECASE,
)
_SAME_LETTER = str.maketrans("\u017f\u0131\u0130\u212a", "siIK")
_TIME_WORD = re.compile(
    rf"\b(?:yesterday|today|tonight|tomorrow|ago|last|next|recently|since|weeks?|weekends?|months?"
    rf"|years?|few days|(?:{_DAY})s?|january|february|march|april|may|june|july|august|september"
    rf"|october|november|december|{_SEASON}|\d{{4}})\b",
    re.IGNORECASE,
)
_WHEN = re.compile(
    r"\bwhen\b|^\s*how long\b|\b(?:what|which) (?:date|day|week|month|year|time)\b"
    r"|\b(?:wann|quand|cuándo|quando|wanneer)\b|когда|什么时候|何时|いつ|언제|เมื่อไ",
    re.IGNORECASE,
)


def mentions_time(text: str) -> bool:
    """Tell whether a text has a word of time, such as "last" or "Friday".

    Examples
    --------
    >>> mentions_time("We met last Friday"), mentions_time("We met")
    (True, False)
    """
    return _TIME_WORD.search(text) is not None


def asks_for_time(query: str) -> bool:
    """Tell whether a question asks when something was.

    Examples
    --------
    >>> asks_for_time("When did Dave move?"), asks_for_time("Where did Dave move?")
    (True, False)
    """
    return _WHEN.search(query) is not None


def require_calendar() -> Any:
    """Return dateutil's relativedelta module.

    Raises
    ------
    BackendUnavailableError
        python-dateutil is not installed.
    """
    try:
        from dateutil import relativedelta
    except ImportError as error:
        raise BackendUnavailableError(
            "temporal: dates need the package python-dateutil (pip install 'riemem[text]')"
        ) from error
    return relativedelta


def find_dates(
    text: str, said: date | None = None, *, years: tuple[int, int] | None = None
) -> tuple[list[Span], list[str]]:
    """Return the days a text speaks of.

    Parameters
    ----------
    text : str
    said : date, optional
        The day it was said. Without it relative expressions are not resolved.
    years : pair of int, optional
        Years that a month without a year may mean; by default the year of its occurrence nearest
        to `said`, or none.

    Returns
    -------
    spans : list of Span
        Each once, ascending.
    unresolved : list of str
        Relative expressions for which `said` was missing.

    Raises
    ------
    BackendUnavailableError
        python-dateutil is not installed.

    Examples
    --------
    >>> spans, _ = find_dates("We met last Friday", date(2023, 10, 19))
    >>> [date.fromordinal(s.first).isoformat() for s in spans]
    ['2023-10-13']
    >>> find_dates("30 February 2023, or yesterday")
    ([], ['yesterday'])
    """
    calendar_ = require_calendar()
    spans: set[Span] = set()
    unresolved: list[str] = []
    for match in _ABSOLUTE.finditer(text):
        spans.update(_absolute(match, said, years))
    for match in _RELATIVE.finditer(text):
        if match["ahead"] and said is None:
            continue  # "in two weeks" of a plan, not of a question
        if said is None:
            if match["weekday"] is None:
                unresolved.append(match[0])
            continue
        span = _attempt(lambda found=match: _relative(found, said, calendar_))  # type: ignore[misc]
        if span is not None:
            spans.add(span)
    return sorted(spans), unresolved


def _attempt(make: Callable[[], Span | None]) -> Span | None:
    try:
        return make()
    except (ValueError, OverflowError):  # 30 February, year 0, the year 10000
        return None


def _absolute(
    match: re.Match[str], said: date | None, years: tuple[int, int] | None
) -> Iterator[Span]:
    if match["iso"]:
        year, month, day = map(int, match["iso"].split("-"))
        found = [_attempt(lambda: _day(year, month, day))]
    elif match["s5"]:
        found = [_attempt(lambda: _season(_plain(match["s5"]).lower(), int(match["y5"])))]
    elif match["y6"]:
        found = [_attempt(lambda: _year(int(match["y6"])))]
    else:
        name = _plain(match["m1"] or match["m2"] or match["m3"] or match["m4"])
        if name.islower() and name in ("may", "march", "mar", "sun", "dec", "jan"):
            return  # words, unless written as a name
        month = _MONTHS[name.lower()]
        number = match["d1"] or match["d2"]
        year_text = match["y1"] or match["y2"] or match["y3"] or match["y4"]
        if year_text:
            which = range(int(year_text), int(year_text) + 1)
        elif years is not None:
            which = range(years[0], min(years[1], years[0] + _MOST_YEARS) + 1)
        elif said is not None:
            near = min((-1, 0, 1), key=lambda y: abs((y * 12 + month) - said.month))
            which = range(said.year + near, said.year + near + 1)
        else:
            return
        found = [
            _attempt(
                lambda y=year: _day(y, month, int(number)) if number else _month(y, month)  # type: ignore[misc]
            )
            for year in which
        ]
    yield from (span for span in found if span is not None)


def _relative(match: re.Match[str], said: date, calendar_: Any) -> Span | None:
    delta = calendar_.relativedelta
    if match["word"]:
        shift = {
            "the day before yesterday": -2,
            "yesterday": -1,
            "last night": -1,
            "tomorrow": 1,
            "the day after tomorrow": 2,
        }.get(_plain(match["word"]).lower(), 0)
        return _one(said + timedelta(days=shift))
    if match["weekday"]:
        weekday = calendar_.weekday(_DAYS[_plain(match["weekday"]).lower()], -1)
        return _one(said + delta(weekday=weekday))
    if match["ago"]:
        return _unit(said, match["ago_unit"], -_number(match["ago"]), delta)
    if match["ahead"]:
        return _unit(said, match["ahead_unit"], _number(match["ahead"]), delta)
    if match["past"]:
        first = _unit(said, match["past_unit"], -_number(match["past"]), delta)
        return None if first is None else Span(first.first, said.toordinal())
    return _named(said, _plain(match["which"]).lower(), _plain(match["what"]).lower(), calendar_)


def _named(said: date, which: str, what: str, calendar_: Any) -> Span | None:
    """ "last week", "this Friday", "next May": the nearest such one on that side."""
    delta = calendar_.relativedelta
    side = 0 if which == "this" else 1 if which in ("next", "coming") else -1
    if what in _DAYS:
        count = -1 if side < 0 else 1
        moved = said + timedelta(days=side)
        return _one(moved + delta(weekday=calendar_.weekday(_DAYS[what], count)))
    if what in _SEASONS or what in _MONTHS:
        month = _SEASONS.get(what, _MONTHS.get(what, 0))
        year = said.year
        if side < 0 and month >= said.month:
            year -= 1
        elif side > 0 and month <= said.month:
            year += 1
        return _season(what, year) if what in _SEASONS else _month(year, month)
    return _unit(said, what, side, delta)


def _unit(said: date, unit: str, count: int, delta: Any) -> Span | None:
    unit = _plain(unit).lower()
    if unit == "day":
        return _one(said + timedelta(days=count))
    if unit in ("week", "weekend"):
        monday = said - timedelta(days=said.weekday()) + timedelta(weeks=count)
        if unit == "weekend":
            return Span(monday.toordinal() + 5, monday.toordinal() + 6)
        return Span(monday.toordinal(), monday.toordinal() + 6)
    moved = said + (delta(months=count) if unit == "month" else delta(years=count))
    return _month(moved.year, moved.month) if unit == "month" else _year(moved.year)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else _NUMBERS[_plain(text).lower()]


def _plain(text: str) -> str:
    """Put the ASCII letter for those that `re` takes for it where case is ignored."""
    return text if text.isascii() else text.translate(_SAME_LETTER)


def _one(day: date) -> Span:
    return Span(day.toordinal(), day.toordinal())


def _day(year: int, month: int, day: int) -> Span:
    return _one(date(year, month, day))


def _month(year: int, month: int) -> Span:
    last = calendar.monthrange(year, month)[1]
    return Span(date(year, month, 1).toordinal(), date(year, month, last).toordinal())


def _season(name: str, year: int) -> Span:
    first = date(year, _SEASONS[name], 1)
    end = date(year + (first.month == 12), (first.month + 2) % 12 or 12, 1)
    last = calendar.monthrange(end.year, end.month)[1]
    return Span(first.toordinal(), end.replace(day=last).toordinal())


def _year(year: int) -> Span:
    if not 1 <= year <= MAXYEAR:
        raise ValueError(f"year {year} is out of range")
    return Span(date(year, 1, 1).toordinal(), date(year, 12, 31).toordinal())

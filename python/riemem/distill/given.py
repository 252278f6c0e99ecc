"""What a caller gives beside texts: dates, scores and slices, checked and in one form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from riemem._arrays import whole_number
from riemem.errors import ArgumentError, DTypeError, NotFiniteError
from riemem.store.times import format_instant, parse_instant

__all__ = ["instant_of", "listed", "score_of", "slices_of"]

_DAY = re.compile(r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?))?", re.ASCII)


def instant_of(when: str | None, where: str) -> str | None:
    """Return a date in the form in which texts of dates are in time order: of UTC, as stored.

    A day alone stays one; a time without an offset is taken as UTC.

    Raises
    ------
    ArgumentError
        Neither ISO 8601 nor a day, or none that exists.

    Examples
    --------
    >>> instant_of("2026-02-03T22:10:00+09:00", "when"), instant_of("2026-02-03", "when")
    ('2026-02-03T13:10:00+00:00', '2026-02-03')
    """
    if not when:
        return None
    plain = _DAY.fullmatch(when)
    if plain is None:
        return format_instant(parse_instant(when, where))
    day, time = plain[1], plain[2] or "00:00"
    known = format_instant(parse_instant(f"{day}T{time}Z", where))
    return day if plain[2] is None else known


def score_of(score: object, where: str) -> float | None:
    """Return a score as a float; None stays None.

    Raises
    ------
    DTypeError
        Not a number.
    NotFiniteError
        NaN or infinite.

    Examples
    --------
    >>> score_of(2, "score")
    2.0
    """
    if score is None:
        return None
    if isinstance(score, (bool, str, bytes)):
        raise DTypeError(f"{where}: expected a number or None, got {type(score).__name__}")
    try:
        value = float(score)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise DTypeError(
            f"{where}: expected a number or None, got {type(score).__name__}"
        ) from error
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise NotFiniteError(f"{where}: expected a finite number, got {value}")
    return value


def slices_of(keep: object, *, plain: bool) -> tuple[tuple[int, int, int], ...]:
    """Return untouchable slices as ``(id, start, end)``; those of a plain text have the id 0.

    Raises
    ------
    DTypeError
        Not slices, or not of whole numbers.
    ArgumentError
        Not two numbers for a text or three for turns.

    Examples
    --------
    >>> slices_of([(3, 7)], plain=True)
    ((0, 3, 7),)
    """
    expected = "keep: expected (start, end) of a text or (id, start, end) of a turn"
    if isinstance(keep, (str, bytes)) or not isinstance(keep, Iterable):
        raise DTypeError(f"{expected}, several of them, got {type(keep).__name__}")
    slices = []
    for entry in keep:
        if isinstance(entry, (str, bytes)) or not isinstance(entry, Iterable):
            raise DTypeError(f"{expected}, got {type(entry).__name__}")
        values: list[int] = []
        for value in entry:
            number = whole_number(value)
            if number is None:
                raise DTypeError(f"{expected}, of ints, got {type(value).__name__}")
            values.append(number)
        if plain and len(values) == 2:
            values.insert(0, 0)
        if len(values) != 3:
            raise ArgumentError(f"{expected}, got {tuple(values)}")
        slices.append((values[0], values[1], values[2]))
    return tuple(slices)


def listed(source: object) -> object:
    """Return turns as a list, so that an iterator can be read twice.

    Examples
    --------
    >>> listed(text for text in ("a", "b"))
    ['a', 'b']
    """
    if isinstance(source, Iterable) and not isinstance(source, (bytes, dict)):
        return list(source)
    return source

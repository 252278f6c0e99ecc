"""What all readers of foreign files share: one memory after the other, and what was left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from riemem.errors import ArgumentError, DTypeError, TextError
from riemem.store.exchange import Incoming, Parcel, no_constant
from riemem.store.records import draft
from riemem.store.times import now_us, parse_instant

__all__ = ["Foreign", "Reading", "Skipped", "first_of", "plain_text", "whole_json"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_NUMBER = re.compile(r"\d{9,16}(?:\.\d+)?", re.ASCII)
#: Seconds since 1970 stay below this until the year 5138; milliseconds are above it since 1973.
_MILLISECONDS_FROM = 1e11


@dataclass(frozen=True)
class Skipped:
    """A part of a file that was not taken: where it stands, and why."""

    where: str
    reason: str


@dataclass(frozen=True)
class Foreign:
    """What a foreign file holds: memories as a parcel, what was skipped, and remarks."""

    parcel: Parcel
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]


class Reading:
    """Collects the memories of one file.

    Parameters
    ----------
    source : str
        What wrote it.
    profile : str
        The memories go into it.
    """

    def __init__(self, source: str, profile: str) -> None:
        self.source = source
        self._profile = profile
        self._memories: list[Incoming] = []
        self._skipped: list[Skipped] = []
        self._notes: list[str] = []
        self._counted: dict[str, int] = {}

    def take(
        self, where: str, item: Mapping[str, Any], *, created: object = None, updated: object = None
    ) -> None:
        """Add a memory, given as the arguments of ``Memory.add``, or skip it and say why."""
        try:
            moment = self.instant(item.get("when"), "when")
            made = draft({**item, "when": moment}, self._profile)
            now = now_us()
            stored = made.observed_at
            if stored is None or created != item.get("when"):
                stored = self._stamp(created, "created_at", now)
            changed = self._stamp(updated, "updated_at", stored)
        except (ArgumentError, DTypeError, TextError) as error:
            self.skip(where, str(error))
            return
        if made.observed_at is None:
            self.count("memories without a date, given the time of the import")
        self._memories.append(Incoming(len(self._memories) + 1, made, stored, changed, None))

    def skip(self, where: str, reason: str) -> None:
        """Note that a part of the file was left out."""
        self._skipped.append(Skipped(where, reason))

    def note(self, remark: str) -> None:
        """Add a remark about the file as a whole."""
        self._notes.append(remark)

    def count(self, what: str) -> None:
        """Count something that is told once, with its number."""
        self._counted[what] = self._counted.get(what, 0) + 1

    def instant(self, value: object, name: str) -> datetime | None:
        """Return an instant of any common form, or None where there is none.

        ISO 8601 (without an offset: UTC, which is counted), a day, or seconds or milliseconds
        since 1970 as a number or text.

        Raises
        ------
        ArgumentError
            Something else.
        """
        if value is None or value == "":
            return None
        if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
            value = float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            seconds = value / 1000 if abs(value) >= _MILLISECONDS_FROM else value
            try:
                return _EPOCH + timedelta(seconds=seconds)
            except (OverflowError, ValueError) as error:
                raise ArgumentError(f"{name}: expected a date, got {value!r}") from error
        if not isinstance(value, str):
            raise ArgumentError(f"{name}: expected a date, got {type(value).__name__}")
        text = value.strip()
        if _DAY.fullmatch(text):
            self.count("days without a time, taken as their first moment, UTC")
            text += "T00:00:00Z"
        try:
            return _moment(text, name)
        except ArgumentError as error:
            try:
                found = _moment(f"{text}Z", name)
            except ArgumentError:
                raise error from None
        self.count("instants without an offset, read as UTC")
        return found

    def _stamp(self, value: object, name: str, default: int) -> int:
        moment = self.instant(value, name)
        return default if moment is None else parse_instant(moment, name)

    def finish(self) -> Foreign:
        """Return everything that was collected."""
        counted = [f"{what}: {number}" for what, number in self._counted.items()]
        return Foreign(
            Parcel(tuple(self._memories), None),
            tuple(self._skipped),
            (*self._notes, *counted),
        )


def _moment(text: str, name: str) -> datetime:
    return _EPOCH + timedelta(microseconds=parse_instant(text, name))


def whole_json(lines: Iterable[bytes], name: str) -> tuple[bytes, Any]:
    """Return a file that is one JSON document, as bytes and as a value.

    Raises
    ------
    ArgumentError
        Not UTF-8, not JSON, or cut off.
    """
    data = b"".join(lines)
    try:
        return data, json.loads(data.decode("utf-8-sig"), parse_constant=no_constant)
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{name}: expected UTF-8 ({error.reason})") from error
    except RecursionError as error:
        raise ArgumentError(f"{name}: expected JSON, nested less deeply") from error
    except ValueError as error:
        raise ArgumentError(
            f"{name}: expected one JSON document ({error}); was the file cut off?"
        ) from error


def first_of(item: Mapping[str, Any], names: Iterable[str]) -> tuple[str | None, Any]:
    """Return the first of some fields that an item has, and its value."""
    for name in names:
        if item.get(name) is not None:
            return name, item[name]
    return None, None


def plain_text(value: object) -> str | None:
    """Return the text of a message: a text, or a list of parts of which some are texts.

    Examples
    --------
    >>> plain_text([{"type": "text", "text": "see"}, {"type": "image_url"}, "this"])
    'see\\nthis'
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        inner = first_of(value, ("text", "content", "parts"))[1]
        return None if inner is None else plain_text(inner)
    if isinstance(value, list):
        parts = [part for part in map(plain_text, value) if part]
        return "\n".join(parts) or None
    return None

"""One memory: the record that comes out, and the rules for what may go in."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from riemem._arrays import whole_number
from riemem.errors import ArgumentError, DTypeError, TextError
from riemem.store.times import format_instant, parse_instant

__all__ = [
    "MAX_METADATA_BYTES",
    "MAX_NAME_BYTES",
    "MAX_TEXT_BYTES",
    "Draft",
    "Record",
    "canonical",
    "check_flag",
    "check_integer",
    "check_metadata",
    "check_name",
    "check_text",
    "check_valid_time",
    "check_weight",
    "draft",
    "shown_ids",
]

MAX_TEXT_BYTES = 16 * 2**20
MAX_METADATA_BYTES = 2**20
MAX_NAME_BYTES = 1024

# Made once: json.dumps makes a new one at each call with options of its own.
_AS_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_AS_CANONICAL = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))
_KNOWN: tuple[str, ...] = ("text", "speaker", "session", "when", "metadata", "profile", "key")
_KNOWN += ("source", "valid_from", "valid_to")
_SHOWN = 10


@dataclass(frozen=True)
class Record:
    """A stored memory.

    Attributes
    ----------
    id : int
    text : str
    speaker, session : str or None
    profile : str
    when, created_at, updated_at : str
        ISO 8601, UTC: when it was said, stored, and last changed.
    metadata : dict
    key : str or None
        The idempotency key given at add.
    """

    id: int
    text: str
    speaker: str | None
    session: str | None
    profile: str
    when: str
    created_at: str
    updated_at: str
    metadata: dict[str, Any]
    key: str | None = None


class Draft(NamedTuple):
    """A checked memory that is not stored yet; times in microseconds, metadata as JSON text."""

    text: str
    speaker: str | None = None
    session: str | None = None
    profile: str = "default"
    observed_at: int | None = None
    metadata: str = "{}"
    labels: tuple[tuple[str, str], ...] = ()
    key: str | None = None
    source: str | None = None
    valid_from: int | None = None
    valid_to: int | None = None

    @property
    def when(self) -> str | None:
        """The instant as ISO 8601, or None for "now"."""
        return None if self.observed_at is None else format_instant(self.observed_at)


def check_text(value: object, name: str = "text", limit: int = MAX_TEXT_BYTES) -> str:
    """Return a text that can be stored and read back byte for byte.

    Raises
    ------
    DTypeError
        Not a str.
    TextError
        Empty, blank, with a lone surrogate (half of a UTF-16 pair), or longer than `limit` bytes.

    Examples
    --------
    >>> check_text("tea")
    'tea'
    """
    if not isinstance(value, str):
        raise DTypeError(f"{name}: expected str, got {type(value).__name__}")
    if not value.strip():
        raise TextError(f"{name}: expected something to remember, got {_brief(value)}")
    size = _utf8_size(value, name)
    if size > limit:
        raise TextError(f"{name}: expected at most {limit} bytes of UTF-8, got {size}")
    return str(value)


def check_name(value: object, name: str) -> str:
    """Return a profile, session, speaker or key: a text that is not blank, at most 1024 bytes.

    Raises
    ------
    DTypeError, ArgumentError, TextError

    Examples
    --------
    >>> check_name("Dave", "speaker")
    'Dave'
    """
    if not isinstance(value, str):
        raise DTypeError(f"{name}: expected str, got {type(value).__name__}")
    if not value.strip():
        raise ArgumentError(f"{name}: expected a name, got {_brief(value)}")
    size = _utf8_size(value, name)
    if size > MAX_NAME_BYTES:
        raise ArgumentError(f"{name}: expected at most {MAX_NAME_BYTES} bytes, got {size}")
    return str(value)


def shown_ids(ids: Sequence[int]) -> str:
    """Return memory ids as a report writes them: the first ten, and how many more there are.

    Examples
    --------
    >>> shown_ids([3, 5]), shown_ids(range(12))
    ('memories 3, 5', 'memories 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more')
    """
    shown = ", ".join(map(str, ids[:_SHOWN]))
    return f"memories {shown}" + (f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else "")


def check_integer(value: object, name: str, minimum: int) -> int:
    """Return an int that is at least `minimum`; bool and float are refused.

    Raises
    ------
    DTypeError, ArgumentError

    Examples
    --------
    >>> check_integer(3, "k", 0)
    3
    """
    number = whole_number(value)
    if number is None:
        raise DTypeError(f"{name}: expected an int, got {type(value).__name__} {_brief(value)}")
    if number < minimum:
        raise ArgumentError(f"{name}: expected an int >= {minimum}, got {number}")
    return number


def check_flag(value: object, name: str) -> bool:
    """Return a bool; nothing else will do.

    Raises
    ------
    DTypeError

    Examples
    --------
    >>> check_flag(True, "adaptive")
    True
    """
    if not isinstance(value, bool):
        raise DTypeError(f"{name}: expected bool, got {type(value).__name__} {_brief(value)}")
    return value


def check_weight(value: object, name: str) -> float:
    """Return a finite number as a float.

    Raises
    ------
    DTypeError, ArgumentError

    Examples
    --------
    >>> check_weight(2, "trust")
    2.0
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DTypeError(f"{name}: expected a number, got {type(value).__name__} {_brief(value)}")
    if not math.isfinite(value):
        raise ArgumentError(f"{name}: expected a finite number, got {value}")
    return float(value)


def check_metadata(
    value: object, name: str = "metadata"
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return metadata as JSON text and as canonical (key, value) pairs for filters.

    Parameters
    ----------
    value : mapping of str to JSON values, or None
        Nested lists and mappings are fine; a tuple becomes a list. NaN and infinities are not JSON.

    Returns
    -------
    text : str
    labels : tuple of (key, canonical value)

    Raises
    ------
    DTypeError, ArgumentError, TextError

    Examples
    --------
    >>> check_metadata({"topic": "tea", "n": 2.0})
    ('{"topic":"tea","n":2.0}', (('topic', '"tea"'), ('n', '2')))
    """
    if value is None:
        return "{}", ()
    if not isinstance(value, Mapping):
        raise DTypeError(f"{name}: expected a mapping with str keys, got {type(value).__name__}")
    try:
        plain = _plain(value, name)
        text = _AS_JSON.encode(plain)
        labels = tuple((key, canonical(item)) for key, item in plain.items())
    except RecursionError as error:
        raise ArgumentError(f"{name}: nested too deeply (or inside itself)") from error
    except ValueError as error:
        if isinstance(error, (ArgumentError, TextError)):
            raise
        raise ArgumentError(f"{name}: {error}") from error
    size = _utf8_size(text, name)
    if size > MAX_METADATA_BYTES:
        raise ArgumentError(f"{name}: expected at most {MAX_METADATA_BYTES} bytes, got {size}")
    return text, labels


def canonical(value: object) -> str:
    """Return a JSON value as the one text that all equal values share (1 and 1.0 are equal).

    Examples
    --------
    >>> canonical(1.0), canonical(True), canonical({"b": 1, "a": [2.5]})
    ('1', 'true', '{"a":[2.5],"b":1}')
    """
    return _AS_CANONICAL.encode(value if isinstance(value, str) else _whole_floats(value))


def draft(item: Mapping[str, Any], profile: str, where: str = "") -> Draft:
    """Check one memory's arguments and return it as a :class:`Draft`.

    Parameters
    ----------
    item : mapping
        ``text`` and, if wanted, ``speaker``, ``session``, ``when``, ``metadata``, ``profile``,
        ``key``, ``source``, ``valid_from``, ``valid_to``.
    profile : str
        Used when the item names none.
    where : str
        Put before the argument's name in messages, for example ``"items[3]."``.

    Raises
    ------
    ArgumentError, DTypeError, TextError

    Examples
    --------
    >>> draft({"text": "hi", "when": "1970-01-01T00:00:00Z"}, "default").observed_at
    0
    """
    unknown = [key for key in item if key not in _KNOWN]
    if unknown:
        raise ArgumentError(
            f"{where}{unknown[0]!s}: unknown argument; expected {', '.join(_KNOWN)}"
        )
    if "text" not in item:
        raise ArgumentError(f"{where}text: missing")
    names: list[str | None] = []
    for name in ("speaker", "session", "profile", "key", "source"):
        given = item.get(name)
        names.append(None if given is None else check_name(given, where + name))
    speaker, session, own_profile, key, source = names
    valid_from, valid_to = check_valid_time(item.get("valid_from"), item.get("valid_to"), where)
    when: str | datetime | None = item.get("when")
    metadata, labels = check_metadata(item.get("metadata"), where + "metadata")
    return Draft(
        text=check_text(item["text"], where + "text"),
        speaker=speaker,
        session=session,
        profile=own_profile or profile,
        observed_at=None if when is None else parse_instant(when, where + "when"),
        metadata=metadata,
        labels=labels,
        key=key,
        source=source,
        valid_from=valid_from,
        valid_to=valid_to,
    )


def check_valid_time(first: object, last: object, where: str = "") -> tuple[int | None, int | None]:
    """Return a valid time in microseconds; either end may be missing.

    Raises
    ------
    ArgumentError
        It ends before it begins, or in the same instant.
    DTypeError

    Examples
    --------
    >>> check_valid_time("1970-01-01T00:00:00Z", None)
    (0, None)
    """
    ends: list[int | None] = []
    for name, given in (("valid_from", first), ("valid_to", last)):
        if given is not None and not isinstance(given, (str, datetime)):
            raise DTypeError(
                f"{where}{name}: expected ISO 8601 text or a datetime, got {type(given).__name__}"
            )
        ends.append(None if given is None else parse_instant(given, where + name))
    if ends[0] is not None and ends[1] is not None and ends[0] >= ends[1]:
        raise ArgumentError(
            f"{where}valid_to: expected an instant after valid_from "
            f"({format_instant(ends[0])}), got {format_instant(ends[1])}"
        )
    return ends[0], ends[1]


def _plain(value: object, name: str) -> Any:
    """Copy of a JSON value made of exactly the types that come back from the store."""
    if isinstance(value, str):
        _utf8_size(value, name)
        return str(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ArgumentError(f"{name}: {value} is not JSON; expected a finite number")
        return float(value)
    if isinstance(value, Mapping):
        plain = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise DTypeError(f"{name}: expected str keys, got {type(key).__name__} {key!r}")
            _utf8_size(key, name)
            # Most values are short words or numbers, and need no message with their name.
            simple = type(item) is int or (type(item) is str and item.isascii())
            plain[str(key)] = item if simple else _plain(item, f"{name}[{key!r}]")
        return plain
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [_plain(item, f"{name}[{i}]") for i, item in enumerate(value)]
    raise DTypeError(f"{name}: {type(value).__name__} is not JSON")


def _whole_floats(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole_floats(item) for item in value]
    return value


def _utf8_size(value: str, name: str) -> int:
    if value.isascii():
        return len(value)
    try:
        return len(value.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise TextError(
            f"{name}: lone surrogate U+{ord(value[error.start]):04X} at position {error.start} "
            "is not text; it was probably cut from a UTF-16 pair"
        ) from error


def _brief(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."

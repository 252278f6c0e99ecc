"""Which memories a call is about: profile, session, time, speaker, ids and metadata, as SQL."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from riemem._arrays import as_choice
from riemem.errors import ArgumentError, DTypeError
from riemem.lifecycle import STATES
from riemem.store.records import canonical, check_integer, check_metadata, check_name
from riemem.store.times import parse_instant

__all__ = ["Scope", "check_id", "check_ids", "scope"]

#: Values of one filter; SQLite allows 32,766 parameters in a statement.
MAX_VALUES = 5000


@dataclass(frozen=True)
class Scope:
    """A condition on the table ``memories`` and its parameters.

    Attributes
    ----------
    profile : str
    where : str
        SQL, always holding the profile.
    parameters : tuple
    narrowed : bool
        True when it asks for more than the profile.
    by_state : bool
        True when it names states of the lifecycle.
    """

    profile: str
    where: str
    parameters: tuple[Any, ...]
    narrowed: bool
    by_state: bool = False

    def only(self, ids: Iterable[int]) -> Scope:
        """The same scope, further limited to some ids."""
        return Scope(
            self.profile,
            f"{self.where} AND id IN (SELECT value FROM json_each(?))",
            (*self.parameters, json.dumps(list(ids))),
            True,
            self.by_state,
        )


def scope(
    profile: str,
    *,
    session: str | None = None,
    filters: Mapping[str, Any] | None = None,
    at: str | datetime | None = None,
) -> Scope:
    """Check the scoping arguments of a call and return them as a :class:`Scope`.

    Parameters
    ----------
    profile : str
    session : str, optional
    filters : mapping, optional
        ``speaker``, ``session`` (a value, None for "none given", or a list: any of), ``since`` and
        ``until`` (instants, both inclusive), ``ids`` (iterable of int), ``metadata`` (a mapping);
        ``lifecycle`` (a state or a list: any of);
        any other key is a metadata key. A metadata value must be equal; a list means any of its
        values, or the list itself.
    at : str or datetime, optional
        Only what was observed at or before this instant.

    Raises
    ------
    ArgumentError, DTypeError

    Examples
    --------
    >>> scope("default", filters={"topic": "tea"}).narrowed
    True
    """
    parts = ["profile = ?"]
    parameters: list[Any] = [check_name(profile, "profile")]
    if session is not None:
        parts.append("session = ?")
        parameters.append(check_name(session, "session"))
    if filters is not None:
        if not isinstance(filters, Mapping):
            raise DTypeError(f"filters: expected a mapping, got {type(filters).__name__}")
        for key, value in filters.items():
            if not isinstance(key, str):
                raise DTypeError(f"filters: expected str keys, got {type(key).__name__} {key!r}")
            sql, values = _condition(key, value)
            parts.append(sql)
            parameters.extend(values)
    if at is not None:
        parts.append("observed_at <= ?")
        parameters.append(parse_instant(at, "at"))
    by_state = filters is not None and "lifecycle" in filters
    return Scope(profile, " AND ".join(parts), tuple(parameters), len(parts) > 1, by_state)


def check_ids(ids: object, name: str = "ids") -> list[int]:
    """Return one id or an iterable of ids as a list without repetitions, in the given order.

    Raises
    ------
    DTypeError, ArgumentError

    Examples
    --------
    >>> check_ids([3, 1, 3])
    [3, 1]
    """
    if isinstance(ids, (str, bytes, Mapping)):
        raise DTypeError(f"{name}: expected an int or an iterable of ints, got {ids!r:.60}")
    if isinstance(ids, Iterable):
        found = [check_id(item, f"{name}[{i}]") for i, item in enumerate(ids)]
    else:
        found = [check_id(ids, name)]
    return list(dict.fromkeys(found))


def check_id(value: object, name: str = "id") -> int:
    """Return one id as an int that SQLite can hold.

    Raises
    ------
    DTypeError, ArgumentError

    Examples
    --------
    >>> check_id(7)
    7
    """
    number = check_integer(value, name, -(2**63))
    if number >= 2**63:
        raise ArgumentError(f"{name}: expected an id below 2**63, got {number}")
    return number


def _condition(key: str, value: Any) -> tuple[str, list[Any]]:
    if key in ("speaker", "session"):
        return _name_condition(key, value)
    if key in ("since", "until"):
        sign = ">=" if key == "since" else "<="
        return f"observed_at {sign} ?", [parse_instant(value, f"filters[{key!r}]")]
    if key == "ids":
        ids = check_ids(value, "filters['ids']")
        return "id IN (SELECT value FROM json_each(?))", [json.dumps(ids)]
    if key == "lifecycle":
        return _state_condition(value)
    if key == "metadata":
        if not isinstance(value, Mapping):
            raise DTypeError(f"filters['metadata']: expected a mapping, got {type(value).__name__}")
        pairs = [_label_condition(k, v) for k, v in value.items()]
        parameters = [item for _, values in pairs for item in values]
        return " AND ".join(sql for sql, _ in pairs) or "1", parameters
    return _label_condition(key, value)


def _name_condition(column: str, value: Any) -> tuple[str, list[Any]]:
    several = isinstance(value, (list, tuple, set, frozenset))
    names = list(value) if several else [value]
    checked = [check_name(n, f"filters[{column!r}]") for n in names if n is not None]
    sql = f"{column} IN ({_marks(checked, column)})"
    if any(n is None for n in names):
        sql = f"({sql} OR {column} IS NULL)"
    return sql, checked


def _state_condition(value: Any) -> tuple[str, list[Any]]:
    several = isinstance(value, (list, tuple, set, frozenset))
    wanted = sorted(
        {as_choice(v, "filters['lifecycle']", STATES) for v in value}
        if several
        else {as_choice(value, "filters['lifecycle']", STATES)}
    )
    sql = f"id IN (SELECT memory_id FROM lifecycle WHERE state IN ({_marks(wanted, 'lifecycle')}))"
    if STATES[0] in wanted:  # what no maintenance has looked at yet
        sql = f"({sql} OR id NOT IN (SELECT memory_id FROM lifecycle))"
    return sql, list(wanted)


def _label_condition(key: str, value: Any) -> tuple[str, list[Any]]:
    name = f"filters[{key!r}]"
    if isinstance(value, (set, frozenset)):
        value = list(value)
    text, _ = check_metadata({key: value}, name)
    plain = json.loads(text)[key]
    wanted = [canonical(plain)]
    if isinstance(plain, list):
        wanted += [canonical(item) for item in plain]
    sql = f"id IN (SELECT memory_id FROM labels WHERE key = ? AND value IN ({_marks(wanted, key)}))"
    return sql, [key, *wanted]


def _marks(values: Sequence[str], key: str) -> str:
    if len(values) > MAX_VALUES:
        raise ArgumentError(
            f"filters[{key!r}]: expected at most {MAX_VALUES} values, got {len(values)}"
        )
    return ", ".join("?" * len(values))

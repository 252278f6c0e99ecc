"""What was read from a store, for as long as nobody writes to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from riemem.store.sqlite import Store, holds_any

__all__ = ["held_now", "holding", "remembered"]

T = TypeVar("T")

#: Tables of what is known of memories besides themselves; many stores hold nothing in them.
_NOTES = ("provenance", "conflicts", "uses")


def remembered(
    store: Store, name: str, read: Callable[[sqlite3.Connection], T], mark: int | None
) -> T:
    """Return what `read` returns now, or returned when the store was as it is.

    Parameters
    ----------
    store : Store
    name : str
        The same name must always come with the same function.
    read : callable
        Reads from the connection and nothing else; what it returns is shared and not changed.
    mark : int or None
        Of :meth:`riemem.store.Store.mark`, taken by the same call of the user; None reads always.

    Examples
    --------
    >>> with Store.open(":memory:") as store:
    ...     remembered(store, "one", lambda connection: 1, store.mark())
    1
    """
    known: tuple[int, T] | None = store.known.get(name)
    if known is not None and known[0] == mark:
        return known[1]
    with store.reading() as connection:
        value = read(connection)
    if mark is not None:
        store.known[name] = (mark, value)
    return value


def holding(store: Store) -> frozenset[str]:
    """Return which tables of notes on memories hold anything, within a reading or by itself."""
    return remembered(store, "holding", held_now, store.mark())


def held_now(connection: sqlite3.Connection) -> frozenset[str]:
    """The same, within a reading, of a store of which nothing is remembered."""
    return frozenset(name for name in _NOTES if holds_any(connection, name))

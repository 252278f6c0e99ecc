"""Which answers were useful, and the weights of the channels that follow from that.

The file holds the events alone: weights are computed from them in order, so they can be replayed,
and once a memory is forgotten they are what they would be had nobody ever judged it.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from riemem.errors import ArgumentError
from riemem.store.sqlite import Store, get_meta, has_table, set_meta
from riemem.store.times import format_instant, now_us

__all__ = ["BOUNDS", "RATE", "Feedback", "add", "events", "fold", "reset", "weights"]

#: A channel's weight is multiplied by at least and at most this much.
BOUNDS = (0.5, 2.0)

#: How far one event moves a weight: at most by the factor exp(RATE).
RATE = 0.1

_RESET = "feedback reset of "


@dataclass(frozen=True)
class Feedback:
    """One judgement: the query, the memory, whether it was useful, and the shares it had.

    Attributes
    ----------
    id : int
    query : str
    memory_id : int
    useful : bool
    shares : dict
        By channel: the share of the memory's score less the mean share of the hits beside it,
        divided by the largest such difference; between -1 and 1.
    at : str
        ISO 8601.
    """

    id: int
    query: str
    memory_id: int
    useful: bool
    shares: dict[str, float]
    at: str


def add(
    store: Store,
    profile: str,
    memory_id: int,
    query: str,
    useful: bool,
    shares: Mapping[str, float],
) -> None:
    """Append a judgement.

    Raises
    ------
    ArgumentError
        A share is not a number between -1 and 1.
    """
    wrong = [v for v in shares.values() if not (math.isfinite(v) and -1.0 <= v <= 1.0)]
    if wrong:
        raise ArgumentError(f"shares: expected numbers between -1 and 1, got {wrong[0]}")
    with store.writing() as transaction:
        transaction.connection.execute(
            "INSERT INTO feedback (profile, memory_id, query, useful, shares, at) "
            "SELECT profile, id, ?, ?, ?, ? FROM memories WHERE id = ? AND profile = ?",
            (query, int(useful), json.dumps(dict(shares)), now_us(), memory_id, profile),
        )


def events(store: Store, profile: str) -> list[Feedback]:
    """Return the judgements of a profile since the last reset, oldest first."""
    with store.reading() as connection:
        return _events(connection, profile)


def _events(connection: sqlite3.Connection, profile: str) -> list[Feedback]:
    if not has_table(connection, "feedback"):
        return []
    since = int(get_meta(connection, _RESET + profile) or 0)
    rows = connection.execute(
        "SELECT id, query, memory_id, useful, shares, at FROM feedback "
        "WHERE profile = ? AND id > ? ORDER BY id",
        (profile, since),
    )
    return [
        Feedback(
            int(row[0]),
            row[1],
            int(row[2]),
            bool(row[3]),
            json.loads(row[4]),
            format_instant(row[5]),
        )
        for row in rows
    ]


def fold(judged: Iterable[Feedback], rate: float = RATE) -> dict[str, float]:
    """Return the factor of each channel after some judgements, each within :data:`BOUNDS`.

    ``factor_c = clip(factor_c * exp(rate * s * share_c))`` with s = 1 for a useful answer and -1
    for one that was not: an exponentiated gradient step towards what told them apart.

    Notes
    -----
    Ours, after Kivinen and Warmuth (1997). Clipped after each step, so the order counts.

    Examples
    --------
    >>> fold([Feedback(1, "q", 1, True, {"lexical": 1.0, "dense": -1.0}, "")])
    {'dense': 0.9048374180359595, 'lexical': 1.1051709180756477}
    """
    low, high = BOUNDS
    factors: dict[str, float] = {}
    for event in judged:
        sign = 1.0 if event.useful else -1.0
        for name, share in event.shares.items():
            moved = factors.get(name, 1.0) * math.exp(rate * sign * share)
            factors[name] = min(max(moved, low), high)
    return dict(sorted(factors.items()))


def weights(store: Store, profile: str) -> dict[str, float]:
    """Return the factors of a profile's channels; one that is not named has the factor 1."""
    return fold(events(store, profile))


def reset(store: Store, profile: str) -> int:
    """Begin anew: judgements so far no longer count; return how many that were.

    They stay in the file until their memories are forgotten.
    """
    with store.writing() as transaction:
        counted = len(_events(transaction.connection, profile))
        newest = transaction.connection.execute(
            "SELECT coalesce(max(id), 0) FROM feedback WHERE profile = ?", (profile,)
        ).fetchone()[0]
        set_meta(transaction.connection, _RESET + profile, int(newest))
    return counted


def release(connection: sqlite3.Connection, profile: str) -> None:
    """Take back the last reset of a profile once it holds no memory, and with that its name."""
    held = connection.execute("SELECT 1 FROM memories WHERE profile = ? LIMIT 1", (profile,))
    if held.fetchone() is None:
        set_meta(connection, _RESET + profile, None)


def replay(store: Store, profile: str, until: int | None = None) -> list[dict[str, float]]:
    """Return the factors after each judgement, in order, up to and including number `until`."""
    judged = [e for e in events(store, profile) if until is None or e.id <= until]
    return [fold(judged[: i + 1]) for i in range(len(judged))]

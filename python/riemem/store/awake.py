"""Keeping memories awake or letting them fall asleep: the maintenance of one profile.

What is stored per memory (state, step, strength, position) follows from the policy, the memory's
time, its log of uses and the instant of the last maintenance; ``maintain(replay=True)`` makes it
anew from those and finds the same.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from riemem.errors import (
    ArgumentError,
    CancelledError,
    DTypeError,
    StoreCorruptError,
    StoreLockedError,
)
from riemem.lifecycle import DIM, STATES, Lives, Policy, advance, distance, policy_named
from riemem.store.filters import Scope
from riemem.store.reads import find_ids, require_one
from riemem.store.remembered import remembered
from riemem.store.sqlite import Store, get_meta, has_table, set_meta
from riemem.store.times import format_instant, now_us
from riemem.store.uses import Log, cut_log, read_log

__all__ = ["Asleep", "Life", "Maintained", "life_of", "maintain", "states"]

Ids = npt.NDArray[np.int64]
Progress = Callable[[int, int], object]

_ATTEMPTS = 20


@dataclass(frozen=True)
class Maintained:
    """What a maintenance did.

    Attributes
    ----------
    now : str
        The instant up to which memories were brought, ISO 8601.
    policy : str
        Its kind.
    counts : dict
        Memories by state.
    changed : tuple of (int, str, str)
        Memory, state before, state now.
    """

    now: str
    policy: str
    counts: dict[str, int]
    changed: tuple[tuple[int, str, str], ...]

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        changed = [{"id": i, "from": a, "to": b} for i, a, b in self.changed]
        return {"now": self.now, "policy": self.policy, "counts": self.counts, "changed": changed}


@dataclass(frozen=True)
class Life:
    """How awake one memory is, as of the last maintenance.

    Attributes
    ----------
    state : {"active", "warm", "cold", "archived"}
    strength : float
        Decaying sum of its uses; 1 at birth.
    distance : float
        Hyperbolic distance from the centre; 0 with the policy "half-life".
    uses, confirmed : int
        Uses in its log, and how many of them helped.
    importance : float
    as_of : str or None
        Instant of the last maintenance; None if there was none.
    """

    state: str
    strength: float
    distance: float
    uses: int
    confirmed: int
    importance: float
    as_of: str | None


class _Loaded(NamedTuple):
    revision: int
    saved: dict[str, Any] | None
    lives: Lives
    states: list[str | None]
    seen: Ids
    log: Log


def maintain(
    store: Store,
    profile: str,
    now: int | None,
    *,
    policy: str | Policy | None = None,
    seed: int = 0,
    replay: bool = False,
    progress: Progress | None = None,
) -> Maintained:
    """Bring the memories of a profile to an instant, or to the clock's; none is ever removed.

    Raises
    ------
    ArgumentError
        `now` lies before the last maintenance, and it is no replay.
    StoreCorruptError
        A log is cut, or a stored position is damaged.
    CancelledError
        Nothing was changed.
    StoreReadOnlyError, StoreLockedError
    """
    store.check_writable()
    for _ in range(_ATTEMPTS):
        with store.snapshot() as connection:
            loaded = _load(connection, profile)
        # Only now, so that a process which was done meanwhile is no clock that went backwards.
        moment = now_us() if now is None else now
        rule = _policy(loaded.saved, policy, seed)
        fresh = replay or loaded.saved is None or rule.as_dict() != loaded.saved["policy"]
        if not fresh and loaded.saved is not None and moment < loaded.saved["now"]:
            raise ArgumentError(
                f"now: expected an instant not before the last maintenance, "
                f"{format_instant(loaded.saved['now'])}, got {format_instant(moment)}; if the "
                "clock was wrong then, replay=True begins again from the log"
            )
        lives = Lives.new(loaded.lives.ids, loaded.lives.born) if fresh else loaded.lives
        if not fresh:
            _check_seen(loaded)
        done = advance(rule, lives, loaded.log.events, moment, progress)
        if done is None:
            raise CancelledError("maintain: cancelled; nothing was changed")
        moved, new = done
        before = [state or STATES[0] for state in loaded.states]
        changed = tuple(
            (int(i), a, b) for i, a, b in zip(lives.ids, before, new, strict=True) if a != b
        )
        report = Maintained(
            format_instant(moment), rule.kind, {s: new.count(s) for s in STATES}, changed
        )
        saved = {"now": moment, "policy": rule.as_dict()}
        rows = _rows(loaded, moved, new)
        if (not rows and saved == loaded.saved) or _write(store, profile, loaded, saved, rows):
            return report
    raise StoreLockedError(
        f"{store.path}: the store was changed by others during each of {_ATTEMPTS} attempts"
    )


def _policy(saved: dict[str, Any] | None, policy: object, seed: int) -> Policy:
    if policy is not None:
        return policy_named(policy, seed=seed)
    return policy_named("langevin") if saved is None else Policy.from_dict(saved["policy"])


def _load(connection: sqlite3.Connection, profile: str) -> _Loaded:
    saved = get_meta(connection, f"lifecycle of {profile}")
    rows = connection.execute(
        "SELECT id, observed_at, state, step, strength, position, uses FROM memories "
        "LEFT JOIN lifecycle ON memory_id = id WHERE profile = ? ORDER BY id",
        (profile,),
    ).fetchall()
    ids = np.array([row[0] for row in rows], np.int64)
    lives = Lives.new(ids, np.array([row[1] for row in rows], np.int64))
    for i, (memory_id, _, state, step, strength, position, _) in enumerate(rows):
        if state is None:
            continue
        if (problem := _problem(state, strength, position)) is not None:
            raise StoreCorruptError(
                f"lifecycle: memory {memory_id}: {problem}; nothing was changed; "
                "`riemem check --repair` makes it anew"
            )
        lives.step[i], lives.strength[i] = step, strength
        lives.position[i] = np.frombuffer(position, "<f8")
    return _Loaded(
        int(get_meta(connection, "revision") or 0),
        None if saved is None else json.loads(saved),
        lives,
        [row[2] for row in rows],
        np.array([row[6] or 0 for row in rows], np.int64),
        read_log(connection, profile, ids),
    )


def _check_seen(loaded: _Loaded) -> None:
    short = np.flatnonzero(loaded.log.counts < loaded.seen)
    if short.size:
        at = int(short[0])
        raise cut_log(
            int(loaded.lives.ids[at]),
            f"{loaded.seen[at]} events were counted, {loaded.log.counts[at]} are left",
        )


def _rows(loaded: _Loaded, moved: Lives, new: list[str]) -> list[tuple[Any, ...]]:
    """What has to be written: memories whose stored row is another one."""
    old = loaded.lives
    same = (
        (old.step == moved.step)
        & (old.strength == moved.strength)
        & (old.position == moved.position).all(axis=1)
        & (loaded.seen == loaded.log.counts)
        & np.array([a == b for a, b in zip(loaded.states, new, strict=True)], np.bool_)
    )
    return [
        (
            int(moved.ids[i]),
            new[i],
            int(moved.step[i]),
            float(moved.strength[i]),
            moved.position[i].astype("<f8").tobytes(),
            int(loaded.log.counts[i]),
        )
        for i in np.flatnonzero(~same).tolist()
    ]


def _write(
    store: Store,
    profile: str,
    loaded: _Loaded,
    saved: dict[str, Any],
    rows: list[tuple[Any, ...]],
) -> bool:
    with store.writing() as transaction:
        if transaction.revision != loaded.revision + 1:
            return False  # others wrote meanwhile; the number taken here marks no row
        transaction.connection.executemany(
            "INSERT OR REPLACE INTO lifecycle (memory_id, state, step, strength, position, uses) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            rows,
        )
        text = json.dumps(saved, separators=(",", ":"))
        set_meta(transaction.connection, f"lifecycle of {profile}", text)
    return True


def life_of(store: Store, where: Scope, memory_id: int) -> Life:
    """Return how awake a memory of the scope is.

    Raises
    ------
    MemoryNotFoundError
    """
    with store.reading() as connection:
        require_one(connection, where, memory_id, "1")
        if not has_table(connection, "lifecycle"):
            return Life(STATES[0], 1.0, 0.0, 0, 0, 0.0, None)
        row = connection.execute(
            "SELECT state, strength, position FROM lifecycle WHERE memory_id = ?", (memory_id,)
        ).fetchone()
        uses = connection.execute(
            "SELECT kind, importance FROM uses WHERE memory_id = ? ORDER BY counts_from, number",
            (memory_id,),
        ).fetchall()
        saved = get_meta(connection, f"lifecycle of {where.profile}")
    kinds = [kind for kind, _ in uses]
    importances = [value for kind, value in uses if kind == "importance"]
    away = 0.0 if row is None else float(distance(np.frombuffer(row[2], "<f8")[None])[0])
    return Life(
        STATES[0] if row is None else row[0],
        1.0 if row is None else row[1],
        away,
        len(uses) - len(importances),
        kinds.count("confirmed"),
        importances[-1] if importances else 0.0,
        None if saved is None else format_instant(json.loads(saved)["now"]),
    )


def states(store: Store, where: Scope) -> dict[str, int]:
    """Return how many memories of a scope are in each state."""
    with store.reading() as connection:
        known: dict[str, int] = {}
        if has_table(connection, "lifecycle"):
            known = dict(
                connection.execute(
                    "SELECT state, count(*) FROM lifecycle WHERE memory_id IN "
                    f"(SELECT id FROM memories WHERE {where.where}) GROUP BY state",
                    where.parameters,
                ).fetchall()
            )
        total = connection.execute(
            f"SELECT count(*) FROM memories WHERE {where.where}", where.parameters
        ).fetchone()[0]
    rest = total - sum(known.values())
    return {s: known.get(s, 0) + (rest if s == STATES[0] else 0) for s in STATES}


def release(connection: sqlite3.Connection, profile: str) -> None:
    """Forget a profile's last maintenance once it holds no memory, and with that its name."""
    found = connection.execute("SELECT 1 FROM memories WHERE profile = ? LIMIT 1", (profile,))
    if found.fetchone() is None:
        set_meta(connection, f"lifecycle of {profile}", None)


class Asleep:
    """The archived memories of a store's profiles, remembered until the store changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[int, Ids | None, int]] = {}
        self._lock = threading.Lock()

    def allowed(
        self, where: Scope, archived: bool, mark: int | None = None
    ) -> tuple[Ids | None, tuple[str, ...]]:
        """Return the ids of a scope that a search may return, and a note on what it leaves out.

        No ids (None) mean all of the profile's. Archived memories are among them when `archived`
        says so, or when the scope names states. `mark` is that of the store in this call.

        Raises
        ------
        DTypeError
        """
        if not isinstance(archived, bool):
            raise DTypeError(f"archived: expected True or False, got {archived!r}")
        ids = find_ids(self._store, where) if where.narrowed else None
        if archived or where.by_state:
            return ids, ()
        awake, count = self._of(where.profile, mark)
        if awake is None:
            return ids, ()
        noun = "memory is" if count == 1 else "memories are"
        note = f"{count} {noun} archived and not asked; archived=True (--archived) asks them too"
        return awake if ids is None else np.intersect1d(ids, awake, assume_unique=True), (note,)

    def any(self, mark: int | None = None) -> bool:
        """Whether any memory of the store is archived."""
        return remembered(self._store, "archived", _any_archived, mark)

    def awake(self, profile: str) -> Ids | None:
        """Return the ids of the profile's memories that are not archived; None: all of them."""
        return self._of(profile)[0]

    def _of(self, profile: str, mark: int | None = None) -> tuple[Ids | None, int]:
        """Return what :meth:`awake` returns, and how many memories are archived."""
        if not self.any(mark):
            return None, 0
        with self._lock:
            known = self._known.get(profile)
        with self._store.reading() as connection:
            revision = int(get_meta(connection, "revision") or 0)
            if known is not None and known[0] == revision:
                return known[1:]
            rows = connection.execute(
                "SELECT id, id IN (SELECT memory_id FROM lifecycle WHERE state = 'archived') "
                "FROM memories WHERE profile = ? ORDER BY id",
                (profile,),
            ).fetchall()
        table = np.array(rows, np.int64).reshape(-1, 2)
        count = int(table[:, 1].sum())
        ids = table[table[:, 1] == 0, 0] if count else None
        with self._lock:
            self._known[profile] = (revision, ids, count)
        return ids, count


def _any_archived(connection: sqlite3.Connection) -> bool:
    if not has_table(connection, "lifecycle"):
        return False
    found = connection.execute("SELECT 1 FROM lifecycle WHERE state = 'archived' LIMIT 1")
    return found.fetchone() is not None


def check_lives(connection: sqlite3.Connection) -> list[str]:
    """Return what is wrong with the stored states and positions."""
    rows = connection.execute(
        "SELECT memory_id, state, strength, position FROM lifecycle ORDER BY memory_id"
    )
    return [
        f"lifecycle: memory {memory_id}: {problem}"
        for memory_id, state, strength, position in rows
        if (problem := _problem(state, strength, position)) is not None
    ]


def repair_lives(connection: sqlite3.Connection) -> None:
    """Take away the rows that are damaged; the next maintenance makes them from the log."""
    rows = connection.execute("SELECT memory_id, state, strength, position FROM lifecycle")
    bad = [(row[0],) for row in rows.fetchall() if _problem(*row[1:]) is not None]
    connection.executemany("DELETE FROM lifecycle WHERE memory_id = ?", bad)


def relive(store: Store) -> None:
    """Bring memories without a stored state to the last maintenance of their profile."""
    with store.reading() as connection:
        profiles = [
            (key.removeprefix("lifecycle of "), int(json.loads(value)["now"]))
            for key, value in connection.execute(
                "SELECT key, value FROM meta WHERE key GLOB 'lifecycle of *'"
            )
        ]
    for profile, now in profiles:
        maintain(store, profile, now)


def _problem(state: str, strength: float, position: bytes) -> str | None:
    if state not in STATES:
        return f"expected one of {STATES}, got {state!r}"
    if len(position) != 8 * DIM:
        return f"expected {8 * DIM} bytes of position, got {len(position)}"
    point = np.frombuffer(position, "<f8")
    if not (np.isfinite(point).all() and float(point @ point) < 1.0):
        return "expected a point inside the ball"
    return None if np.isfinite(strength) and strength >= 0.0 else "expected a strength >= 0"

"""How awake memories are: Langevin dynamics on the Poincare ball, or plain exponential decay.

Pure functions of (policy, births, events, instant): nothing here reads a clock or a store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from riemem import _backend
from riemem._arrays import as_choice, as_count, as_number
from riemem.errors import ArgumentError, DTypeError

__all__ = ["DIM", "KINDS", "STATES", "Events", "Lives", "Policy", "advance", "policy_named"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

#: From awake to asleep.
STATES = ("active", "warm", "cold", "archived")
#: Dimensions of a point in the ball; as in SLM-V3.
DIM = 8
KINDS = ("langevin", "half-life")

DAY_US = 86_400_000_000


@dataclass(frozen=True)
class Policy:
    """How memories fall asleep.

    Attributes
    ----------
    kind : {"langevin", "half-life"}
    half_life_days : float
        Of the strength of a use.
    used, confirmed : float
        Strength that a use adds, and a use that was confirmed to have helped. Birth adds 1.
    importance : float
        Half-life: what an importance of 1 adds to the strength for good. Langevin: to the
        stiffness, in units of the temperature.
    limits : tuple of 3 floats
        Half-life: the least strength of an active, a warm and a cold memory. Langevin: the
        greatest hyperbolic distance from the centre of each.
    temperature, stiffness, slope, most : float
        Langevin: per day; stiffness is that of a memory without strength, slope what a strength
        of 1 adds, most the largest; all in units of the temperature.
    step_days : float
        Langevin: length of a step.
    seed : int
        Langevin: of the noise.
    """

    kind: str = "langevin"
    half_life_days: float = 30.0
    used: float = 0.5
    confirmed: float = 1.0
    importance: float = 20.0
    limits: tuple[float, float, float] = (0.75, 1.05, 2.0)
    temperature: float = 0.01
    stiffness: float = 2.0
    slope: float = 26.0
    most: float = 80.0
    step_days: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        as_choice(self.kind, "kind", KINDS)
        for name in ("half_life_days", "temperature", "stiffness", "most", "step_days"):
            as_number(getattr(self, name), name, low=0.0, open_low=True)
        for name in ("used", "confirmed", "importance", "slope"):
            as_number(getattr(self, name), name, low=0.0)
        as_count(self.seed, "seed")
        first, second, third = (
            as_number(limit, "limits", low=0.0, open_low=True) for limit in self.limits
        )
        if not (first < second < third or first > second > third):
            raise ArgumentError(f"limits: expected three in order, got {self.limits}")
        if self.most * self.temperature * self.step_days > 1.0:
            raise ArgumentError(
                "most: expected most * temperature * step_days <= 1, or a step overshoots the "
                f"centre; got {self.most * self.temperature * self.step_days:g}"
            )

    @property
    def step_us(self) -> int:
        """Length of a step in microseconds."""
        return max(round(self.step_days * DAY_US), 1)

    def as_dict(self) -> dict[str, Any]:
        """The settings as plain values."""
        return asdict(self) | {"limits": list(self.limits)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Policy:
        """The policy of :meth:`as_dict`.

        Raises
        ------
        ArgumentError, DTypeError
        """
        known = {field.name for field in fields(cls)}
        if set(values) != known:
            raise ArgumentError(f"policy: expected {sorted(known)}, got {sorted(values)}")
        return cls(**(values | {"limits": tuple(values["limits"])}))


_POLICIES = {
    "langevin": Policy(),
    "half-life": Policy(kind="half-life", importance=0.5, limits=(0.5, 0.25, 0.0625)),
}


def policy_named(policy: object, *, seed: int = 0) -> Policy:
    """Return a policy given by name or as such.

    Raises
    ------
    ArgumentError, DTypeError

    Examples
    --------
    >>> policy_named("half-life").half_life_days
    30.0
    """
    if isinstance(policy, Policy):
        return policy
    if not isinstance(policy, str):
        raise DTypeError(f"policy: expected a name or a Policy, got {type(policy).__name__}")
    return replace(_POLICIES[as_choice(policy, "policy", KINDS)], seed=as_count(seed, "seed"))


@dataclass(frozen=True)
class Events:
    """What happened to memories, in order of memory, then number.

    Attributes
    ----------
    begin : (N + 1,) int64 ndarray
        Events of memory i are ``begin[i]`` to ``begin[i + 1]``.
    at : (E,) int64 ndarray
        From when each counts, microseconds since 1970.
    confirmed : (E,) bool ndarray
    importance : (E,) float64 ndarray
        A new importance in [0, 1]; NaN for a use.
    """

    begin: I64
    at: I64
    confirmed: NDArray[np.bool_]
    importance: F64


@dataclass(frozen=True)
class Lives:
    """Where memories are.

    Attributes
    ----------
    ids, born : (N,) int64 ndarrays
        Born in microseconds since 1970.
    step : (N,) int64 ndarray
        Steps taken, counted from 1970; -1 for a memory that was never looked at.
    strength : (N,) float64 ndarray
    position : (N, DIM) float64 ndarray
    """

    ids: I64
    born: I64
    step: I64
    strength: F64
    position: F64

    @classmethod
    def new(cls, ids: I64, born: I64) -> Lives:
        """Memories that were never looked at."""
        n = ids.size
        return cls(ids, born, np.full(n, _NEVER), np.zeros(n), np.zeros((n, DIM)))


_NEVER = np.iinfo(np.int64).min
_CHUNK = 4096  # memories between two looks at the progress


def advance(
    policy: Policy,
    lives: Lives,
    events: Events,
    now: int,
    progress: Callable[[int, int], object] | None = None,
) -> tuple[Lives, list[str]] | None:
    """Return where memories are at an instant, and their states.

    Parameters
    ----------
    policy : Policy
    lives : Lives
        As of an earlier instant, or new.
    events : Events
        All of them; those that were counted before are passed over.
    now : int
        Microseconds since 1970.
    progress : callable, optional
        ``progress(done, total)`` in memories; returning False stops.

    Returns
    -------
    (Lives, list of str), or None when `progress` stopped it

    Notes
    -----
    O(N steps DIM). To a later instant in one call or in several is the same, to the bit.
    """
    if policy.kind == "half-life":
        strength = _decayed(policy, lives, events, now)
        moved = replace(lives, step=np.full(lives.ids.size, now // policy.step_us))
        moved = replace(moved, strength=strength, position=np.zeros_like(lives.position))
        return moved, _states_of_strength(policy, strength)
    target = now // policy.step_us
    birth = lives.born // policy.step_us
    first = np.where(lives.step == _NEVER, birth, lives.step)
    moved = Lives(
        lives.ids,
        lives.born,
        np.maximum(first, target),
        np.where(lives.step == _NEVER, 1.0, lives.strength),
        np.array(lives.position, order="C"),
    )
    for start in range(0, lives.ids.size, _CHUNK):
        if progress is not None and progress(start, lives.ids.size) is False:
            return None
        _move(policy, moved, events, first, birth, slice(start, start + _CHUNK))
    if progress is not None and progress(lives.ids.size, lives.ids.size) is False:
        return None
    return moved, _states_of_distance(policy, distance(moved.position))


def distance(position: F64) -> F64:
    """Hyperbolic distance of points in the ball from its centre, ``2 artanh |x|``."""
    found: F64 = 2.0 * np.arctanh(np.sqrt((position * position).sum(axis=1)))
    return found


def _move(
    policy: Policy, moved: Lives, events: Events, first: I64, birth: I64, part: slice
) -> None:
    begin, end = events.begin[:-1][part], events.begin[1:][part]
    steps = np.maximum(moved.step[part] - first[part], 0)
    own = slice(int(begin[0]), int(end[-1])) if begin.size else slice(0, 0)
    owner = np.repeat(np.arange(begin.size), end - begin)
    at = np.maximum(events.at[own] // policy.step_us, birth[part][owner])
    importance = events.importance[own]
    base = _base_before(policy, at, importance, owner, first[part])
    ahead = at >= first[part][owner]
    order = np.lexsort((at[ahead], owner[ahead]))
    counts = np.bincount(owner[ahead], minlength=begin.size)
    gain = np.where(events.confirmed[own], policy.confirmed, policy.used)
    gain = np.where(np.isnan(importance), gain, 0.0)
    heat = policy.temperature
    strength = np.array(moved.strength[part])
    position = np.array(moved.position[part], order="C")
    _backend.core.langevin(
        position,
        strength,
        base,
        np.ascontiguousarray(moved.ids[part]),
        np.ascontiguousarray(first[part]),
        np.ascontiguousarray(steps),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        at[ahead][order],
        gain[ahead][order],
        _base(policy, importance)[ahead][order],
        temperature=heat,
        dt=policy.step_days,
        drift=1.0,
        slope=policy.slope * heat,
        most=policy.most * heat,
        decay=2.0 ** -(policy.step_days / policy.half_life_days),
        seed=policy.seed,
    )
    moved.strength[part], moved.position[part] = strength, position


def _base(policy: Policy, importance: F64) -> F64:
    """The stiffness without strength; NaN where the importance is."""
    return (policy.stiffness + policy.importance * importance) * policy.temperature


def _base_before(policy: Policy, at: I64, importance: F64, owner: I64, first: I64) -> F64:
    """The base that the events before the first step left."""
    base = np.full(first.size, policy.stiffness * policy.temperature)
    known = np.flatnonzero((at < first[owner]) & ~np.isnan(importance))
    # In order of time, then number: of several the last one stays.
    known = known[np.argsort(at[known], kind="stable")]
    base[owner[known]] = _base(policy, importance[known])
    return base


def _decayed(policy: Policy, lives: Lives, events: Events, now: int) -> F64:
    half = policy.half_life_days * DAY_US
    age = np.maximum(now - lives.born, 0)
    strength = 2.0 ** -(age / half)
    owner = np.repeat(np.arange(lives.ids.size), np.diff(events.begin))
    past = events.at <= now
    uses = past & np.isnan(events.importance)
    gain = np.where(events.confirmed, policy.confirmed, policy.used)
    weight = gain * 2.0 ** -(np.maximum(now - events.at, 0) / half)
    strength += np.bincount(owner[uses], weights=weight[uses], minlength=lives.ids.size)
    importance = np.zeros(lives.ids.size)
    known = np.flatnonzero(past & ~uses)
    known = known[np.argsort(events.at[known], kind="stable")]
    importance[owner[known]] = events.importance[known]
    total: F64 = strength + policy.importance * importance
    return total


def _states_of_strength(policy: Policy, strength: F64) -> list[str]:
    limits = np.array(policy.limits)
    return [STATES[i] for i in (strength[:, None] < limits).sum(axis=1).tolist()]


def _states_of_distance(policy: Policy, away: F64) -> list[str]:
    limits = np.array(policy.limits)
    return [STATES[i] for i in (away[:, None] > limits).sum(axis=1).tolist()]

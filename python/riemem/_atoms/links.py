"""Which members of an atom hold together by the rule that brought them in."""

from __future__ import annotations

import numpy as np

from riemem import reference
from riemem._arrays import F32, F64, I64, Bool
from riemem._atoms.state import AtomState

_FRONTIER = 256  # members compared at once: bounds the workspace


def components(state: AtomState, slot: int, threshold: float, route: str) -> list[I64]:
    """Return the rows of an atom as groups that links hold together, oldest first.

    Two members are linked when their cosine exceeds the threshold. Where centroids alone decide
    (route "centroid"), those that exceed it with the centroid are one group, each other is alone.
    """
    rows = state.members_of(slot)
    if route == "centroid":
        central = _linked_to_centre(state, slot, rows, threshold)
        alone = [rows[i : i + 1] for i in np.flatnonzero(~central)]
        groups = [rows[central], *alone] if central.any() else alone
        return sorted(groups, key=lambda group: int(group[0]))
    unit = state.unit_rows(rows).astype(np.float32)
    group: I64 = np.full(rows.size, -1, np.int64)
    count = 0
    for start in range(rows.size):
        if group[start] >= 0:
            continue
        frontier = np.array([start])
        group[start] = count
        while frontier.size:
            found: Bool = np.zeros(rows.size, bool)
            for at in range(0, frontier.size, _FRONTIER):
                part = frontier[at : at + _FRONTIER]
                found |= _linked(state, rows, unit, part, group < 0, threshold)
            frontier = np.flatnonzero(found)
            group[frontier] = count
        count += 1
    return [rows[group == g] for g in range(count)]


def _linked_to_centre(state: AtomState, slot: int, rows: I64, threshold: float) -> Bool:
    total = state.view("sums")[slot, : state.dim]
    length = float(state.view("sum_squares")[slot])
    members = state.view("rows")[rows]
    values = exact_cosines(members, state.view("squares")[rows], total, length)
    linked: Bool = values > threshold
    return linked


def _linked(
    state: AtomState, rows: I64, unit: F32, part: I64, open_: Bool, threshold: float
) -> Bool:
    """Say which open members exceed the threshold with any of `part`, exactly."""
    others = np.flatnonzero(open_)
    found: Bool = np.zeros(rows.size, bool)
    if others.size == 0:
        return found
    near = unit[part] @ unit[others].T
    # Any order of summation in float32, both vectors rounded.
    slack = 1.01 * (state.dim + 8) * 2.0**-24
    sure = (near > threshold + slack).any(axis=0)
    found[others[sure]] = True
    doubtful = (np.abs(near - threshold) <= slack) & ~sure
    squares = state.view("squares")
    members = state.view("rows")
    for j in np.flatnonzero(doubtful.any(axis=0)):
        partners = rows[part[doubtful[:, j]]]
        row = rows[others[j]]
        values = exact_cosines(
            members[partners], squares[partners], members[row].astype(np.float64), squares[row]
        )
        found[others[j]] = bool((values > threshold).any())
    return found


def exact_cosines(rows: F32, squares: F64, vector: F64, square: float) -> F64:
    """Return canonical cosines of rows with a vector: the bits that the kernel decides by."""
    product = squares * square
    dots = reference.canonical_dot(rows, vector)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(product > 0.0, dots / np.sqrt(product), 0.0)
    clipped: F64 = np.clip(values, -1.0, 1.0)
    return clipped

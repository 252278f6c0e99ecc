"""Retrieval by atoms: the best atoms for a query, and the members ranked inside each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from riemem._arrays import F64, I64
from riemem._atoms.state import AtomState
from riemem._atoms.storage import leading_basis

ATOM_SCORES = ("centroid", "best_member", "basis1")
MEMBER_SCORES = ("cosine", "subspace")


@dataclass(frozen=True)
class AtomHit:
    """An atom found for a query: its id and score, its members' ids best first, their scores."""

    atom: int
    score: float
    members: I64
    scores: F64


def retrieve(
    state: AtomState, query: F64, atoms: int, by: str, within: str, rank: int
) -> list[AtomHit]:
    """Return the `atoms` best atoms of a unit query; ties go to the older atom and lower row."""
    slots = state.view("atom")
    scores = atom_scores(state, query, by)
    order = np.lexsort((np.arange(scores.size), -scores))[:atoms]
    hits = []
    for slot in order:
        rows = np.flatnonzero(slots == slot)
        values = member_scores(state, query, rows, within, rank)
        inside = np.lexsort((state.ids[rows], -values))
        hits.append(
            AtomHit(
                int(state.atom_ids[slot]),
                float(scores[slot]),
                state.ids[rows][inside],
                values[inside],
            )
        )
    return hits


def atom_scores(state: AtomState, query: F64, by: str) -> F64:
    """Score every atom: by its centroid, its best member, or its first basis vector."""
    if by == "centroid":
        values: F64 = state.unit_centres() @ query
        return values
    if by == "best_member":
        values = np.full(state.atom_count, -np.inf)
        np.maximum.at(values, state.view("atom"), state.unit_rows() @ query)
        return values
    values = np.empty(state.atom_count)
    for slot in range(state.atom_count):
        rows = state.unit_rows(state.members_of(slot))
        values[slot] = float(leading_basis(rows, 1)[0] @ query)
    return values


def member_scores(state: AtomState, query: F64, rows: I64, within: str, rank: int) -> F64:
    """Score members by cosine, or inside the span of the atom's first `rank` basis vectors.

    The second, ``sum_j (q . v_j)(h . v_j)``, is the paper's Algorithm E, which it reports as no
    improvement; it is here to be compared with.
    """
    members = state.unit_rows(rows)
    if within == "cosine":
        values: F64 = members @ query
        return values
    basis = leading_basis(members, rank)
    return (members @ basis.T) @ (basis @ query)

"""A memory that was superseded comes after the one that supersedes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from riemem.retrieval.corpus import CorpusView, Ids, Mask
from riemem.retrieval.fusion import Fused
from riemem.store import Store
from riemem.store.edges import edges_mark, superseding

__all__ = ["Edges", "follow_edges", "put_in_order", "with_superseding"]


class Edges(NamedTuple):
    """The supersedes edges of a profile as of one decision: newer over older."""

    mark: int
    pairs: Sequence[tuple[int, int]]


def follow_edges(store: Store, profile: str, known: Edges | None) -> Edges:
    """Return the edges as they are now; those that are known if nothing was decided since."""
    with store.reading() as connection:
        mark = edges_mark(connection)
        if known is not None and known.mark == mark:
            return known
        return Edges(mark, superseding(connection, profile))


def put_in_order(joined: Fused, edges: Edges, view: CorpusView, passes: Mask) -> Fused:
    """Let each memory that supersedes another take its place, and the other follow it.

    Whatever the older one answers, the newer one answers: it gets the older one's score where that
    is higher, and the older one a score just below it. Nothing is left out, and each edge moves the
    rest by one place at most. Where the newer one may not be returned (another session, said later
    than ``at``) the older one keeps its place.

    Parameters
    ----------
    joined : Fused
    edges : Edges
        Without circles.
    view : CorpusView
    passes : (n,) bool ndarray

    Returns
    -------
    Fused
        With a share "superseded"; with rows of newer memories that were not scored before.

    Notes
    -----
    O(edges) per round, as many rounds as the longest chain is long.
    """
    newer_rows, older_rows, row_of = _edge_rows(edges, view)
    inside = np.zeros(len(view), np.bool_)
    inside[joined.rows] = True
    if not (inside[older_rows] & passes[newer_rows]).any():
        return joined
    place = {row: i for i, row in enumerate(joined.rows.tolist())}
    pairs = []
    added: list[int] = []
    # Backwards from what was found: a newer memory that was not scored may itself be superseded.
    waiting = list(edges.pairs)
    while True:
        later = []
        for newer, older in waiting:
            above, under = row_of.get(newer), row_of.get(older)
            if above is None or under is None or not passes[above]:
                continue
            if under not in place:
                later.append((newer, older))
                continue
            if above not in place:
                place[above] = len(place)
                added.append(above)
            pairs.append((place[above], place[under]))
        if not added or len(later) == len(waiting):
            break
        waiting = later
    if not pairs:
        return joined
    rows, before, shares = joined.rows, joined.scores, dict(joined.shares)
    if added:
        rows = np.concatenate([rows, np.array(added, np.int64)])
        before = np.concatenate([before, np.full(len(added), -np.inf)])
        shares = {name: np.append(share, np.zeros(len(added))) for name, share in shares.items()}
    settled = before.tolist()
    _settle(settled, pairs)
    now = np.array(settled)
    shares["superseded"] = now - np.where(np.isfinite(before), before, 0.0)
    return Fused(rows, now, shares)


def with_superseding(rows: Ids, edges: Edges, view: CorpusView, passes: Mask) -> Ids:
    """The rows and those that supersede others, and may come up to their places; ascending."""
    if not edges.pairs:
        return rows
    newer_rows, _, _ = _edge_rows(edges, view)
    within = np.zeros(len(view), np.bool_)
    within[rows] = True
    within[newer_rows] |= passes[newer_rows]
    together: Ids = np.flatnonzero(within)
    return together


def _edge_rows(edges: Edges, view: CorpusView) -> tuple[Ids, Ids, dict[int, int]]:
    """The rows of both ends of each edge that has both: the newer ones, the older ones, by id.

    Looked up once for each state of the edges and the memories.
    """

    def look_up() -> tuple[Ids, Ids, dict[int, int]]:
        row_of = _rows_of(sorted({i for pair in edges.pairs for i in pair}), view)
        known = [(row_of[n], row_of[o]) for n, o in edges.pairs if n in row_of and o in row_of]
        ends: Ids = np.array(known, np.int64).reshape(-1, 2)
        return ends[:, 0], ends[:, 1], row_of

    found: tuple[Ids, Ids, dict[int, int]] = view.cached(f"edges {edges.mark}", look_up)
    return found


def _rows_of(ids: list[int], view: CorpusView) -> dict[int, int]:
    """The living rows of those memories that have one, O(len(ids) log n) after the first time."""

    def in_order() -> tuple[Ids, Ids]:
        rows: Ids = np.flatnonzero(view.alive)
        rows = rows[np.argsort(view.ids[rows], kind="stable")]
        return rows, view.ids[rows]

    rows, known = view.cached("rows_by_id", in_order)
    at = np.searchsorted(known, ids)
    return {
        i: int(rows[place])
        for i, place in zip(ids, at.tolist(), strict=True)
        if place < known.size and known[place] == i
    }


def _settle(now: list[float], pairs: Sequence[tuple[int, int]]) -> None:
    """Raise the newer ones to what they supersede, then put the older ones just below."""
    for _ in range(len(pairs) + 1):
        raised = False
        for newer, older in pairs:
            if now[newer] < now[older]:
                now[newer] = now[older]
                raised = True
        if not raised:
            break
    for _ in range(len(pairs) + 1):
        lowered = False
        for newer, older in pairs:
            below = math.nextafter(now[newer], -math.inf)
            if now[older] > below:
                now[older] = below
                lowered = True
        if not lowered:
            break

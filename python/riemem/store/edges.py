"""Which memory supersedes which: the edges that decisions about conflicts make."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from riemem.store.remembered import holding
from riemem.store.sqlite import Store, Transaction, get_meta, has_table, set_meta

__all__ = ["cycle_in", "edges_mark", "leads_to", "set_mark", "superseders", "superseding"]

#: Changes with each decision about a conflict, so that readers know when to look again.
MARK = "conflicts_revision"


def set_mark(transaction: Transaction) -> None:
    """Let readers look again at what supersedes what."""
    set_meta(transaction.connection, MARK, transaction.revision)


def leads_to(connection: sqlite3.Connection, start: int, goal: int) -> bool:
    """Whether `start` supersedes `goal`, directly or through others."""
    seen, front = {start}, [start]
    while front:
        if goal in seen:
            return True
        following: list[int] = []
        for memory_id in front:
            following += [
                int(row[0])
                for row in connection.execute(
                    "SELECT c.older FROM conflicts c JOIN decisions d ON d.id = c.decision "
                    "WHERE c.newer = ? AND d.state = 'superseded' AND d.keep = c.newer "
                    "UNION SELECT c.newer FROM conflicts c JOIN decisions d ON d.id = c.decision "
                    "WHERE c.older = ? AND d.state = 'superseded' AND d.keep = c.older",
                    (memory_id, memory_id),
                )
            ]
        front = [i for i in dict.fromkeys(following) if i not in seen]
        seen.update(front)
    return goal in seen


def superseding(connection: sqlite3.Connection, profile: str) -> list[tuple[int, int]]:
    """The edges (newer memory, the memory it supersedes) of a profile, ascending."""
    if not has_table(connection, "conflicts"):
        return []
    return [
        (int(newer), int(older))
        for newer, older in connection.execute(
            "SELECT DISTINCT newer, older FROM supersedes WHERE profile = ? ORDER BY 1, 2",
            (profile,),
        )
    ]


def superseders(store: Store, ids: Iterable[int]) -> dict[int, list[int]]:
    """Return which memories supersede each of these, ascending; those that stand are left out."""
    found: dict[int, list[int]] = {}
    with store.reading() as connection:
        if "conflicts" not in holding(store):
            return {}
        for older, newer in connection.execute(
            "SELECT DISTINCT older, newer FROM supersedes "
            "WHERE older IN (SELECT value FROM json_each(?)) ORDER BY 1, 2",
            (json.dumps(list(ids)),),
        ):
            found.setdefault(int(older), []).append(int(newer))
    return found


def edges_mark(connection: sqlite3.Connection) -> int:
    """A number that changes whenever a decision was made."""
    return int(get_meta(connection, MARK) or 0)


def cycle_in(connection: sqlite3.Connection) -> list[int]:
    """Memories that supersede each other in a circle, first and last the same; empty if none."""
    edges: dict[int, list[int]] = {}
    for newer, older in connection.execute("SELECT DISTINCT newer, older FROM supersedes"):
        edges.setdefault(int(newer), []).append(int(older))
    done: set[int] = set()
    for start in sorted(edges):
        path: list[int] = []
        stack = [(start, iter(edges.get(start, ())))] if start not in done else []
        path = [start]
        while stack:
            node, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                done.add(node)
                stack.pop()
                path.pop()
            elif following in path:
                return [*path[path.index(following) :], following]
            elif following not in done:
                stack.append((following, iter(edges.get(following, ()))))
                path.append(following)
    return []

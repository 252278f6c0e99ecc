"""Bridges: the memories that link the entities of a question, for answers in two places."""

from __future__ import annotations

from collections import deque

import numpy as np

from riemem.retrieval.corpus import CorpusView, Floats, Mask
from riemem.retrieval.entities import EntityGraph, entity_graph

__all__ = ["bridge_scores"]

#: Edges of the longest link that is followed: entity, memory, entity, memory, entity.
_LONGEST = 4
#: What everybody names links nothing, beyond the query's own entities.
_MOST_NAMED = 64


def bridge_scores(query: str, view: CorpusView, passes: Mask) -> Floats:
    """1 for memories on a shortest link between two of the query's entities, else 0; shape (n,).

    Notes
    -----
    SLM-V3 (arXiv 2603.14588), section 4.2: a Steiner tree over the entity graph, here by the
    usual approximation: shortest paths from each entity to the tree so far.
    """
    scores = np.zeros(len(view))
    graph = entity_graph(view)
    named = graph.named_in(query)
    if len(named) < 2:
        return scores
    by_entity, by_row = view.cached("entity adjacency", lambda: _adjacency(graph))
    tree = {named[0]}
    for target in named[1:]:
        path = _shortest(tree, target, by_entity, by_row, passes, set(named))
        for row, entity in path:
            scores[row] = 1.0
            tree.add(entity)
        tree.add(target)
    return scores


def _adjacency(graph: EntityGraph) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    by_entity: dict[int, list[int]] = {}
    by_row: dict[int, list[int]] = {}
    for row, entity in zip(graph.rows.tolist(), graph.entities.tolist(), strict=True):
        by_entity.setdefault(entity, []).append(row)
        by_row.setdefault(row, []).append(entity)
    return by_entity, by_row


def _shortest(
    tree: set[int],
    target: int,
    by_entity: dict[int, list[int]],
    by_row: dict[int, list[int]],
    passes: Mask,
    named: set[int],
) -> list[tuple[int, int]]:
    """The (memory, entity) steps from the target back to the tree; empty when there are none."""
    if target in tree:
        return []
    came: dict[int, tuple[int, int]] = {}  # entity -> the memory and the entity before it
    queue = deque((entity, 0) for entity in sorted(tree))
    seen = set(tree)
    while queue:
        entity, length = queue.popleft()
        rows = by_entity.get(entity, [])
        if length >= _LONGEST or (len(rows) > _MOST_NAMED and entity not in named):
            continue
        for row in rows:
            if not passes[row]:
                continue
            for other in by_row[row]:
                if other in seen:
                    continue
                seen.add(other)
                came[other] = (row, entity)
                if other == target:
                    return _walk(came, target, tree)
                queue.append((other, length + 2))
    return []


def _walk(came: dict[int, tuple[int, int]], target: int, tree: set[int]) -> list[tuple[int, int]]:
    steps = []
    entity = target
    while entity not in tree:
        row, before = came[entity]
        steps.append((row, entity))
        entity = before
    return steps

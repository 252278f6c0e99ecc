"""Proof that what the channels keep in a store is what they would make again."""

from __future__ import annotations

import sqlite3

import numpy as np

from riemem.errors import BackendUnavailableError, RiememError
from riemem.index import Learnt, RiemannianIndex
from riemem.presets import presets
from riemem.retrieval.embedding import MAX_CHUNKS
from riemem.retrieval.learnt import read_learnt
from riemem.retrieval.lines import lines_of, turn_of, words_of
from riemem.retrieval.loading import empty_index, follows, made_with
from riemem.retrieval.postings import Postings
from riemem.retrieval.segments import COLUMNS, dates_segment, words_segment
from riemem.retrieval.spoken import spoken_of
from riemem.store import Store
from riemem.store.reads import Vectors, every_vector
from riemem.store.segments import Segment, read_segments

__all__ = ["check_contents"]

_CLOSE = 1e-9


def check_contents(store: Store) -> list[str]:
    """Make every segment again and say which differ.

    Notes
    -----
    Words and dates byte by byte; sums and lengths to a relative 1e-9, because the last bits depend
    on the library of linear algebra. About 0.2 ms per memory.
    """
    problems: list[str] = []
    with store.reading() as connection:
        profiles = [row[0] for row in connection.execute("SELECT DISTINCT profile FROM memories")]
        for profile in profiles:
            for kind in ("words", "dates"):
                for segment in read_segments(connection, profile, kind):
                    if not _as_made_again(connection, profile, kind, segment):
                        name = f"segments: {kind} of memories {segment.first} to {segment.last}"
                        problems.append(f"{name}: do not agree with the texts")
    for profile in profiles:
        problems += _check_learnt(store, profile)
    return problems


def _as_made_again(
    connection: sqlite3.Connection, profile: str, kind: str, segment: Segment
) -> bool:
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM memories WHERE profile = ? AND id BETWEEN ? AND ? ORDER BY id",
        (profile, segment.first, segment.last),
    ).fetchall()
    if not rows:
        return False
    turns = [turn_of(row) for row in rows]
    if kind == "words":
        words = Postings().make([words_of(turn) for turn in turns])
        return words_segment(lines_of(rows, turns, words)) == segment
    try:
        spoken = spoken_of(turns)
    except BackendUnavailableError:
        return True  # no calendar here: nothing to compare with, and nobody who reads it
    return dates_segment(np.array([row[0] for row in rows], np.int64), spoken) == segment


def _check_learnt(store: Store, profile: str) -> list[str]:
    identity = store.identity()
    preset = presets["default"]
    with store.reading() as connection:
        kept = read_learnt(connection, profile, made_with(preset))
    if not kept or identity is None:
        return []
    index = empty_index(preset, identity.dim)

    def take(part: Vectors) -> bool:
        index.add(part.rows, ids=part.memory_ids * MAX_CHUNKS + part.chunks)
        return True

    try:
        every_vector(
            store,
            profile,
            identity,
            lambda connection, memories: None,
            take,
            order="memory_id, chunk",
        )
    except RiememError:
        return []  # a damaged vector, which is told by itself
    return [
        f"segments: metric of profile {profile!r}: does not agree with the vectors"
        for key, learnt in kept
        if not _agrees(index, key, learnt)
    ]


def _agrees(index: RiemannianIndex, key: int, learnt: Learnt) -> bool:
    """Whether an index of the same rows learns the same."""
    if not follows(index, key, learnt):
        return False
    part = empty_index(presets["default"], index.dim)
    part.add(index.vectors()[: learnt.count], ids=index.ids[: learnt.count])
    again = part._state()
    if again is None or again.rows != learnt.rows or again.moments.n != learnt.moments.n:
        return False
    lower = np.tril_indices(index.dim)
    pairs = [
        (again.moments.shift, learnt.moments.shift),
        (again.moments.total, learnt.moments.total),
        (again.moments.scatter[lower], learnt.moments.scatter[lower]),
    ]
    for ours, theirs in zip(again.constants, learnt.constants, strict=True):
        if (ours is None) != (theirs is None):
            return False
        if ours is not None and theirs is not None:
            pairs.append((ours, theirs))
    return all(
        a.shape == b.shape and bool(np.abs(a - b).max(initial=0.0) <= _CLOSE * np.abs(a).max())
        for a, b in pairs
    )

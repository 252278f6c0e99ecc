"""What a search found, as far as it is wanted: hits are made for those that are shown."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

from riemem.retrieval.channel import ChannelHits, Ids
from riemem.retrieval.fusion import Ranking
from riemem.retrieval.hits import SearchResult, make_result
from riemem.retrieval.hybrid import HybridChannel
from riemem.retrieval.refine import Refinement, refined
from riemem.store import Store
from riemem.store.edges import superseders
from riemem.store.reads import Shown
from riemem.store.times import format_instant
from riemem.store.trust import Trust, trust_of

__all__ = ["FoundTurn", "Looked", "Question", "look_up"]


@dataclass(frozen=True)
class Question:
    """What is looked for, checked; see :meth:`riemem.memory.Memory.search`."""

    text: str
    k: int
    ranking: Ranking
    refinement: Refinement
    at: date | None = None
    explain: bool = False
    mark: int | None = None  # of the store, taken in this call


class FoundTurn(NamedTuple):
    """Of a memory that was found, what is needed to pack it."""

    id: int
    text: str
    speaker: str | None
    session: str | None
    when: str
    score: float


@dataclass(frozen=True)
class Looked:
    """What was found, and what the store says of it.

    Attributes
    ----------
    found : ChannelHits
    rows : mapping of int to tuple
        By id, the rows of the memories that are still there.
    trusted : mapping of int to Trust
    superseded : mapping of int to sequence of int
    explain : bool
    notes : tuple of str
        What the scope leaves out, and what the ranking cannot do here.
    brevity : (float, int)
        That of the ranking.
    """

    found: ChannelHits
    rows: Mapping[int, Shown] = field(default_factory=dict)
    trusted: Mapping[int, Trust] = field(default_factory=dict)
    superseded: Mapping[int, Sequence[int]] = field(default_factory=dict)
    explain: bool = False
    notes: tuple[str, ...] = ()
    brevity: tuple[float, int] = (0.0, 1)

    def turns(self) -> list[FoundTurn]:
        """Return what packing needs, best first."""
        rows, make = self.rows, tuple.__new__  # which FoundTurn itself calls by way of a function
        return [
            make(FoundTurn, (memory_id, row[1], row[2], row[3], format_instant(row[4]), score))
            for memory_id, score in self.found
            if (row := rows.get(memory_id)) is not None
        ]

    def hits(self, ids: Collection[int] | None = None) -> SearchResult:
        """Return the hits, best first; of those with some ids only, where they are given."""
        found = self.found
        if ids is not None:
            wanted = [(memory_id, score) for memory_id, score in found if memory_id in ids]
            found = ChannelHits(
                wanted, scoring=found.scoring, notes=found.notes, details=found.details
            )
        result = make_result(
            found,
            self.rows,
            explain=self.explain,
            trusted=self.trusted,
            superseded=self.superseded,
        )
        result.skipped += self.notes
        return result


def look_up(store: Store, channel: HybridChannel, asked: Question, allowed: Ids | None) -> Looked:
    """Search, and read from the store what was found.

    `allowed` are the only memories that may be found; None: all of the profile's.
    """
    most = asked.refinement.asked(asked.k)
    found = channel.search(
        asked.text,
        most,
        allowed,
        explain=asked.explain,
        ranking=asked.ranking,
        at=asked.at,
        mark=asked.mark,
    )
    ids = [memory_id for memory_id, _ in found]
    with store.reading():  # the texts and what is said of them, of one moment
        rows = channel.shown(ids, asked.mark)
        trusted, superseded = trust_of(store, ids), superseders(store, ids)
    if asked.refinement.active:
        texts = {memory_id: row[1] for memory_id, row in rows.items()}
        found = refined(found, asked.refinement, asked.text, texts, channel.dense, asked.k)
    brevity = asked.ranking.brevity
    return Looked(found, rows, trusted, superseded, asked.explain, brevity=brevity)

"""What a search returns, and the check of what it is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from riemem.errors import ArgumentError, DTypeError
from riemem.retrieval.channel import ChannelHits, Shares
from riemem.store.reads import Shown, metadata_of
from riemem.store.records import check_text
from riemem.store.times import format_instant
from riemem.store.trust import Trust

__all__ = ["Hit", "SearchResult", "check_query", "make_result"]


@dataclass(frozen=True)
class Hit:
    """A memory that was found.

    Attributes
    ----------
    id : int
    text : str
    score : float
        Larger is nearer.
    speaker, session : str or None
    when, created_at : str
        ISO 8601, UTC: when it was said, and when it was stored.
    metadata : dict
    channels : dict
        What each channel that ran added to the score; the values add up to it. With
        ``explain=True`` more: ``"dense.score"`` and so on are the channels' own scores before
        weighting, ``"cosine"`` is the plain cosine of the best chunk, ``"chunk"`` its number.
    why : str
        With ``explain=True``: the channels in words, the largest first; otherwise empty.
    source : str or None
        Where the memory comes from, as given at add.
    trust : float
        Between 0 and 1; 0.5 for a memory of which nothing is known. See
        :class:`riemem.store.trust.Trust`.
    superseded_by : tuple of int
        Memories that say that it is no longer so.
    """

    id: int
    text: str
    score: float
    speaker: str | None
    session: str | None
    when: str
    created_at: str
    metadata: dict[str, Any]
    channels: dict[str, float]
    why: str = ""
    source: str | None = None
    trust: float = 0.5
    superseded_by: tuple[int, ...] = ()


class SearchResult(list[Hit]):
    """The hits, best first, ties by lower id.

    Attributes
    ----------
    scoring : str
        In words, how the score was made; for example that too few memories are there for a metric.
    skipped : tuple of str
        What could not run or not be done as asked; empty when all went well.

    Examples
    --------
    >>> SearchResult(scoring="nothing to rank")
    []
    """

    def __init__(
        self, hits: Iterable[Hit] = (), *, scoring: str = "", skipped: tuple[str, ...] = ()
    ) -> None:
        super().__init__(hits)
        self.scoring = scoring
        self.skipped = skipped


def check_query(query: object) -> str:
    """Return the query if it is a text with something in it.

    Raises
    ------
    DTypeError, ArgumentError, TextError

    Examples
    --------
    >>> check_query("tea?")
    'tea?'
    """
    if not isinstance(query, str):
        raise DTypeError(f"query: expected str, got {type(query).__name__}")
    if not query.strip():
        raise ArgumentError(f"query: expected something to look for, got {query[:20]!r}")
    return check_text(query, "query")


def make_result(
    found: ChannelHits,
    rows: Mapping[int, Shown],
    *,
    explain: bool,
    trusted: Mapping[int, Trust],
    superseded: Mapping[int, Sequence[int]],
) -> SearchResult:
    """Join a channel's hits with the memories; one that was forgotten meanwhile is left out."""
    there = [(memory_id, score) for memory_id, score in found if memory_id in rows]
    details = found.details
    if isinstance(details, Shares):
        shares = details.of([memory_id for memory_id, _ in there])
    else:
        shares = [dict(details.get(memory_id, {})) for memory_id, _ in there]
    hits = []
    unknown = Trust().mean
    for (memory_id, score), own in zip(there, shares, strict=True):
        _, text, speaker, session, observed_at, created_at, metadata = rows[memory_id]
        trust = trusted.get(memory_id)
        hit = object.__new__(Hit)
        # As its __init__ does, which sets one field after the other in four times as long.
        hit.__dict__.update(
            id=memory_id,
            text=text,
            score=score,
            speaker=speaker,
            session=session,
            when=format_instant(observed_at),
            created_at=format_instant(created_at),
            metadata=metadata_of(metadata),
            channels=own,
            why=_in_words(own) if explain else "",
            source=None if trust is None else trust.source,
            trust=unknown if trust is None else trust.mean,
            superseded_by=tuple(superseded.get(memory_id, ())),
        )
        hits.append(hit)
    return SearchResult(hits, scoring=found.scoring, skipped=found.notes)


def _in_words(channels: Mapping[str, float]) -> str:
    """What raised the hit and what lowered it, the strongest first."""
    shares = {
        name: value
        for name, value in channels.items()
        if "." not in name and name not in ("cosine", "chunk") and abs(value) >= 5e-7
    }
    order = sorted(shares, key=lambda name: (-abs(shares[name]), name))
    return ", ".join(f"{name} {shares[name]:+.3g}" for name in order) or "nothing but its id"

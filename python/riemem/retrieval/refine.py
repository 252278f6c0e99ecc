"""What is done with the hits after the channels: leaving out duplicates, reranking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from riemem.errors import ArgumentError, DTypeError
from riemem.retrieval.channel import ChannelHits
from riemem.retrieval.dense import DenseChannel
from riemem.retrieval.duplicates import without_near_duplicates
from riemem.retrieval.rerank import Reranker, check_reranker, rerank

__all__ = ["Refinement", "refined"]

#: Hits that a reranker sees.
RERANKED = 50
#: Weight of the reranker.
ALPHA = 0.5


@dataclass(frozen=True)
class Refinement:
    """What was asked for; made by :meth:`of`, which checks it."""

    near_duplicates: float | None
    reranker: Reranker | None

    @classmethod
    def of(cls, near_duplicates: object, reranker: object) -> Refinement:
        """Check the two options.

        Raises
        ------
        DTypeError, ArgumentError, ModelNotFoundError
        """
        threshold: float | None = None
        if near_duplicates is not None:
            if isinstance(near_duplicates, bool) or not isinstance(near_duplicates, (int, float)):
                raise DTypeError(
                    "near_duplicates: expected a number or None, got "
                    f"{type(near_duplicates).__name__}"
                )
            if not -1.0 < near_duplicates <= 1.0:
                raise ArgumentError(
                    f"near_duplicates: expected a cosine in (-1, 1], got {near_duplicates}"
                )
            threshold = float(near_duplicates)
        return cls(threshold, check_reranker(reranker))

    @property
    def active(self) -> bool:
        """Whether anything was asked for."""
        return self.near_duplicates is not None or self.reranker is not None

    def asked(self, k: int) -> int:
        """How many hits to take from the channels to end with k."""
        wanted = k if self.reranker is None else max(k, RERANKED)
        return wanted if self.near_duplicates is None else 4 * wanted + 16


def refined(
    found: ChannelHits,
    refinement: Refinement,
    query: str,
    texts: Mapping[int, str],
    dense: DenseChannel,
    k: int,
) -> ChannelHits:
    """Return at most k hits, without duplicates and reranked where that was asked for."""
    if refinement.near_duplicates is not None:
        wanted = k if refinement.reranker is None else max(k, RERANKED)
        vectors = dense.vectors_of([memory_id for memory_id, _ in found])
        found = without_near_duplicates(found, vectors, refinement.near_duplicates, wanted)
    if refinement.reranker is not None:
        left = {memory_id: texts[memory_id] for memory_id, _ in found if memory_id in texts}
        found = rerank(found, left, refinement.reranker, query, ALPHA)
    return ChannelHits(found[:k], scoring=found.scoring, notes=found.notes, details=found.details)

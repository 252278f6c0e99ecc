"""What every way of finding memories looks like from outside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from riemem._token_vectors import TokenVectors

__all__ = ["Channel", "ChannelHits", "Shares"]

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class ChannelHits(list[tuple[int, float]]):
    """What a channel found: (memory id, score) pairs, best first, ties by lower id.

    Attributes
    ----------
    scoring : str
        In words, how the scores were made.
    notes : tuple of str
        What could not be done as asked, for example a query cut to the model's window.
    details : mapping of int to dict
        With ``explain=True``: more numbers per memory id.

    Examples
    --------
    >>> ChannelHits([(3, 0.5)], scoring="bm25").scoring
    'bm25'
    """

    def __init__(
        self,
        pairs: Iterable[tuple[int, float]] = (),
        *,
        scoring: str,
        notes: tuple[str, ...] = (),
        details: Mapping[int, dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(pairs)
        self.scoring = scoring
        self.notes = notes
        self.details = {} if details is None else details


class Shares(Mapping[int, dict[str, float]]):
    """What each channel gave the memories that were found, made for those that are asked for.

    Parameters
    ----------
    ids : sequence of int
    shares : mapping of str to (m,) float64 ndarray
    at : (n,) int64 ndarray
        Where the memories stand in the shares.

    Examples
    --------
    >>> dict(Shares([7], {"dense": np.array([0.25, 0.5])}, np.array([1])))
    {7: {'dense': 0.5}}
    """

    def __init__(self, ids: Sequence[int], shares: Mapping[str, Floats], at: Ids) -> None:
        self._place = dict(zip(ids, at.tolist(), strict=True))
        self._shares = shares

    def __getitem__(self, memory_id: int) -> dict[str, float]:
        place = self._place[memory_id]
        return {name: share.item(place) for name, share in self._shares.items()}

    def of(self, ids: Sequence[int]) -> list[dict[str, float]]:
        """Return those of several memories, each of which must be there."""
        places = [self._place[memory_id] for memory_id in ids]
        if not places or not self._shares:
            return [{} for _ in places]
        table = np.array([share[places] for share in self._shares.values()])
        return [dict(zip(self._shares, own, strict=True)) for own in table.T.tolist()]

    def __iter__(self) -> Iterator[int]:
        return iter(self._place)

    def __len__(self) -> int:
        return len(self._place)


class Channel(Protocol):
    """One way of finding memories of one profile."""

    @property
    def name(self) -> str:
        """The key under which its scores appear in ``Hit.channels``."""

    def search(
        self, query: str, k: int, allowed: Ids | None = None, *, explain: bool = False
    ) -> ChannelHits:
        """Return at most `k` memories, best first.

        Parameters
        ----------
        query : str
        k : int
        allowed : int64 ndarray, optional
            The only memory ids that may be returned; applied before the k best are taken.
        explain : bool
            Fill ``details``.
        """


@dataclass(frozen=True)
class Embedded:
    """A query as a vector, what had to be left out of it, and if asked for, its tokens."""

    vector: npt.NDArray[np.float32]
    notes: tuple[str, ...] = field(default=())
    tokens: TokenVectors | None = None

"""How channels are joined: their weights and what else belongs to a ranking, and the presets."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from types import MappingProxyType
from typing import Any

from riemem.errors import ArgumentError
from riemem.retrieval.query_type import SLM_V3_MULTIPLIERS

__all__ = ["CHANNELS", "Ranking", "as_ranking", "rankings", "weights_for"]

#: Every channel that gives a score of its own; "neighbours" and "answers" are made from "dense"
#: and "lexical", "likeness" from what all others found, and "late" of the best after that.
CHANNELS = (
    "dense",
    "lexical",
    "likeness",
    "late",
    "names",
    "temporal",
    "time_words",
    "substance",
    "opening",
    "first_person",
    "questions",
    "entities",
    "profile",
    "trust",
)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and bool(abs(value) <= sys.float_info.max)  # type: ignore[operator]


@dataclass(frozen=True)
class Ranking:
    """One complete way of joining the channels.

    Attributes
    ----------
    name : str
    weights : mapping of str to float
        By channel (see :data:`CHANNELS`); one that is not named does not run.
    method : {"sum", "minmax", "rrf"}
        What is added up: scores as they are; scores scaled to [0, 1] over the rows that pass; or
        ``1 / (rrf_k + rank)`` of the rows that a channel found.
    kernel : mapping of int to float
        Credit from neighbouring turns, of the weighted sum of "dense" and "lexical".
    answers : float
        More of the same from the turn before, where that one is a question.
    likeness : (int, float)
        How many of the best without it the channel "likeness" looks at, and the spread of their
        weights (see :mod:`riemem.retrieval.likeness`).
    late : (int, float)
        With a weight for the channel "late" this ranking only puts in order, and before all others,
        so many of the best of `first`; and what a word beside a turn counts there (see
        :mod:`riemem.retrieval.late`).
    first : Ranking or None
        What finds those; None: this ranking without the channel, or the default if it has no other.
    brevity : (float, int)
        How much a turn's length counts against it where a token budget is filled, and up to how
        many tokens it does not (see :func:`riemem.packing.worth`).
    dense : {"whitened", "cosine", "fisher-rao"}
        Score of the dense channel.
    k1, b : float
        Constants of BM25.
    rrf_k : float
    multipliers : mapping
        By kind of question (see :func:`riemem.retrieval.query_type.query_kind`), then channel.
    scenes : float
        A turn within reach of a found one gets this share of its score; 0 turns it off.
    bridges : bool
        For multi-hop questions, what links the query's entities gets a vote of its own.
    superseded : bool
        A memory that supersedes another takes its place where that is higher, and the other comes
        after it.
    source : str
        Where the constants come from.
    """

    name: str
    weights: Mapping[str, float]
    method: str = "sum"
    kernel: Mapping[int, float] = field(default_factory=dict)
    answers: float = 0.0
    likeness: tuple[int, float] = (8, 2.0)
    late: tuple[int, float] = (100, 0.9)
    first: Ranking | None = None
    brevity: tuple[float, int] = (0.0, 1)
    dense: str = "whitened"
    k1: float = 0.8
    b: float = 0.4
    rrf_k: float = 60.0
    multipliers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    scenes: float = 0.0
    bridges: bool = False
    superseded: bool = True
    source: str = ""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.weights) - set(CHANNELS))
        if unknown:
            raise ArgumentError(f"weights: expected channels out of {CHANNELS}, got {unknown[0]!r}")
        if not self.weights:
            raise ArgumentError("weights: expected at least one channel, got none")
        for option, value, known in (
            ("method", self.method, ("sum", "minmax", "rrf")),
            ("dense", self.dense, ("whitened", "cosine", "fisher-rao")),
        ):
            if value not in known:
                raise ArgumentError(f"{option}: expected one of {known}, got {value!r}")
        for option in ("likeness", "late", "brevity"):
            pair = getattr(self, option)
            if not isinstance(pair, (tuple, list)) or list(map(_is_number, pair)) != [True, True]:
                raise ArgumentError(f"{option}: expected two finite numbers, got {pair!r:.80}")
        numbers = [*self.weights.values(), *self.kernel.values(), self.rrf_k, self.scenes]
        numbers.append(self.answers)
        if not all(map(_is_number, numbers)):
            raise ArgumentError(f"weights: expected finite numbers, got {numbers}")
        if self.likeness[0] < 1 or self.likeness[1] <= 0.0:
            raise ArgumentError(f"likeness: expected a count and a spread > 0, got {self.likeness}")
        if not isinstance(self.late[0], int) or self.late[0] < 1 or not 0.0 <= self.late[1] <= 1.0:
            raise ArgumentError(f"late: expected a count and a share, got {self.late}")
        if self.first is not None:
            self._check_first(self.first)
        if self.brevity[0] < 0.0 or self.brevity[1] < 1:
            raise ArgumentError(
                f"brevity: expected a weight >= 0 and at least 1 token, got {self.brevity}"
            )

    def _check_first(self, first: Ranking) -> None:
        if not isinstance(first, Ranking) or "late" not in self.weights or "late" in first.weights:
            raise ArgumentError(
                "first: expected a ranking without the channel 'late' for one with it, got "
                f"{getattr(first, 'name', first)!r}"
            )
        for option in ("dense", "k1", "b", "likeness"):
            own, other = getattr(self, option), getattr(first, option)
            if own != other:
                raise ArgumentError(f"first: expected its {option} to be {own!r}, got {other!r}")
        if "likeness" in self.weights and "likeness" not in first.weights:
            raise ArgumentError("first: expected a weight for 'likeness', which starts from it")
        if not self._lenders() <= first._lenders():
            raise ArgumentError(
                f"first: expected a kernel with {sorted(self._lenders())}, got "
                f"{sorted(first._lenders())}"
            )

    def _lenders(self) -> set[int]:
        return {*self.kernel, *([-1] if self.answers else [])}

    @cached_property
    def finder(self) -> Ranking:
        """What finds the memories: this ranking, or what comes before the channel "late"."""
        if "late" not in self.weights or self.first is not None:
            return self.first or self
        own = {name: weight for name, weight in self.weights.items() if name != "late"}
        return replace(self, weights=own) if own else _DEFAULT

    def changed(self, **changes: Any) -> Ranking:
        """This ranking with other values, and with the same ones in what finds its memories.

        But for "name", "weights" and "first", which are its own.
        """
        below = {k: v for k, v in changes.items() if k not in ("name", "weights", "first")}
        if self.first is not None and "first" not in changes:
            changes = {**changes, "first": self.first.changed(**below)}
        return replace(self, **changes)

    def reweighed(self, change: Callable[[str, float], float | None], **more: float) -> Ranking:
        """This ranking with other weights, and what finds its memories, too.

        Parameters
        ----------
        change : callable
            ``(channel, weight) -> weight``, or None for a channel that is left out.
        **more : float
            Added to a channel's weight, or the weight of one that had none.

        Examples
        --------
        >>> own = Ranking("own", {"dense": 1.0, "lexical": 2.0})
        >>> own.reweighed(lambda name, w: None if name == "dense" else 3 * w, trust=0.5).weights
        {'lexical': 6.0, 'trust': 0.5}
        """
        weights = {name: change(name, weight) for name, weight in self.weights.items()}
        own = {name: weight for name, weight in weights.items() if weight is not None}
        own |= {name: own.get(name, 0.0) + weight for name, weight in more.items()}
        first = None if self.first is None else self.first.reweighed(change, **more)
        if own == dict(self.weights) and first is self.first:
            return self
        return replace(self, weights=own, first=first)

    def without(self, channel: str) -> Ranking:
        """This ranking without a channel, which does not help to find its memories either."""
        if channel == "late":
            return self.finder
        return self.reweighed(lambda name, weight: None if name == channel else weight)

    @cached_property
    def without_likeness(self) -> Ranking:
        """This ranking with what the channel "likeness" starts from: all others."""
        own = {name: weight for name, weight in self.weights.items() if name != "likeness"}
        return replace(self, weights=own) if 0 < len(own) < len(self.weights) else self


def weights_for(ranking: Ranking, kind: str) -> Mapping[str, float]:
    """The ranking's weights for a kind of question."""
    multipliers = ranking.multipliers.get(kind)
    if not multipliers:
        return ranking.weights
    return {name: w * multipliers.get(name, 1.0) for name, w in ranking.weights.items()}


_DEFAULT = Ranking(
    "default",
    {
        "dense": 3.5,
        "lexical": 5.1,
        "likeness": 4.5,
        "names": 1.8,
        "temporal": 2.9,
        "time_words": 1.8,
        "substance": 2.7,
        "opening": 0.84,
        "first_person": 0.42,
    },
    kernel={-1: 0.31, 1: 0.28, -2: 0.35, 2: 0.24, -3: 0.21},
    answers=0.3,
    brevity=(3.0, 300),
    source="riemem: bench/fit_fusion.py and fit_brevity.py, leaving one conversation out",
)

_RANKINGS = (
    _DEFAULT,
    Ranking(
        "late-interaction",
        {
            "dense": 1.7,
            "lexical": 2.1,
            "likeness": 2.9,
            "late": 8.7,
            "names": 1.8,
            "temporal": 3.0,
            "time_words": 1.6,
            "substance": 1.9,
            "opening": 0.65,
            "first_person": 0.32,
        },
        kernel={-1: 0.3, 1: 0.25, -2: 0.3, 2: 0.05, -3: 0.38},
        answers=0.7,
        brevity=(3.0, 300),
        first=_DEFAULT,
        source="riemem: bench/fit_fusion.py --late, as the default, whose brevity it has",
    ),
    Ranking(
        "slm-v3",
        {"dense": 1.2, "lexical": 1.0, "entities": 1.3, "temporal": 1.0},
        method="rrf",
        dense="fisher-rao",
        k1=1.2,
        b=0.75,
        multipliers=SLM_V3_MULTIPLIERS,
        scenes=0.5,
        bridges=True,
        source="SLM-V3 (arXiv 2603.14588), section 4",
    ),
    Ranking(
        "half",
        {"dense": 0.5, "lexical": 0.5},
        method="minmax",
        source="whitened cosine and BM25, min-max scaled, half and half",
    ),
    Ranking("dense", {"dense": 1.0}, source="whitened cosine alone"),
    Ranking("cosine", {"dense": 1.0}, dense="cosine", source="plain cosine alone"),
    Ranking(
        "fisher-rao",
        {"dense": 1.0},
        dense="fisher-rao",
        source="SLM-V3, section 5.2, alone: the cosine where nothing was used",
    ),
    Ranking("lexical", {"lexical": 1.0}, source="BM25 alone"),
)

rankings: Mapping[str, Ranking] = MappingProxyType({r.name: r for r in _RANKINGS})
"""Every ranking by name; the mapping cannot be changed."""


def as_ranking(value: object) -> Ranking:
    """Return a ranking given by name or as such.

    Raises
    ------
    ArgumentError

    Examples
    --------
    >>> as_ranking("slm-v3").rrf_k
    60.0
    """
    if isinstance(value, Ranking):
        return value
    if isinstance(value, str) and value in rankings:
        return rankings[value]
    raise ArgumentError(f"ranking: expected one of {sorted(rankings)}, got {value!r}")

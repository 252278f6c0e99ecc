"""Joining the channels: weighted sums, min-max sums and reciprocal ranks, by preset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from riemem.errors import ArgumentError
from riemem.retrieval.corpus import CorpusView, Floats, Ids, Mask
from riemem.retrieval.neighbours import Lenders, lent
from riemem.retrieval.query_type import SLM_V3_MULTIPLIERS

__all__ = ["CHANNELS", "Fused", "Ranking", "added_up", "as_ranking", "fuse", "min_max", "rankings"]
__all__ += ["weights_for", "with_late"]

#: Every channel that gives a score of its own; "neighbours" and "answers" are made from "dense"
#: and "lexical", "likeness" from what all others found, and "late" after that.
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

#: Those that say the same of a memory whatever the query is.
_STANDING = ("substance", "opening", "first_person", "questions")
#: Rankings of one state of the memories for which their sum is remembered.
_MOST_STANDING = 8


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
        How many of the best without it the channel "late" compares word by word, and what a word
        beside a turn counts there (see :mod:`riemem.retrieval.late`).
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
        numbers = [*self.weights.values(), *self.kernel.values(), self.rrf_k, self.scenes]
        numbers += [self.answers, *self.likeness, *self.late, *self.brevity]
        if not np.isfinite(numbers).all():
            raise ArgumentError(f"weights: expected finite numbers, got {numbers}")
        if self.likeness[0] < 1 or self.likeness[1] <= 0.0:
            raise ArgumentError(f"likeness: expected a count and a spread > 0, got {self.likeness}")
        if self.late[0] < 1 or not 0.0 <= self.late[1] <= 1.0:
            raise ArgumentError(f"late: expected a count and a share, got {self.late}")
        if self.brevity[0] < 0.0 or self.brevity[1] < 1:
            raise ArgumentError(
                f"brevity: expected a weight >= 0 and at least 1 token, got {self.brevity}"
            )

    @cached_property
    def without_likeness(self) -> Ranking:
        """This ranking with what the channel "likeness" starts from: all others."""
        own = {name: weight for name, weight in self.weights.items() if name != "likeness"}
        return replace(self, weights=own) if 0 < len(own) < len(self.weights) else self


@dataclass(frozen=True)
class Fused:
    """The joined score of some rows, and each channel's share; the shares add up to the score."""

    rows: Ids
    scores: Floats
    shares: Mapping[str, Floats]


def fuse(
    ranking: Ranking,
    channels: Mapping[str, Floats],
    view: CorpusView,
    passes: Mask,
    kind: str,
    rows: Ids | None = None,
) -> Fused:
    """Join the scores of the channels.

    Parameters
    ----------
    ranking : Ranking
    channels : mapping of str to (n,) float64 ndarray
        Larger is better, 0 says nothing. A channel that could not run is missing: it gives
        nothing to anybody, so nobody loses by it.
    view : CorpusView
    passes : (n,) bool ndarray
        Rows that may be returned. Others lend nothing to their neighbours and do not count for
        scales and ranks.
    kind : str
        Kind of the question.
    rows : (m,) int64 ndarray, optional
        Rows to score, all of which pass; by default all that pass.

    Returns
    -------
    Fused
    """
    if rows is None:
        rows = np.flatnonzero(passes)
    weights = weights_for(ranking, kind)
    shares: dict[str, Floats] = {}
    base: list[tuple[float, Floats]] = []
    for name in CHANNELS:
        if name not in weights or name not in channels or name == "late":
            continue
        scaled = _scaled(ranking, channels[name], view.ids, passes)
        shares[name] = weights[name] * scaled[rows]
        if name in ("dense", "lexical"):
            base.append((weights[name], scaled))
    turn_before = {-1: ranking.answers} if ranking.answers else {}
    if ranking.kernel or turn_before:
        lenders = Lenders(view, passes, {**ranking.kernel, **turn_before}, rows)
    if ranking.kernel:
        shares["neighbours"] = lenders.scores(base, ranking.kernel)
    if turn_before:
        shares["answers"] = lenders.scores(base, turn_before, factor=view.questions)
    first = Fused(rows, sum(shares.values(), np.zeros(rows.size)), shares)
    return with_late(first, ranking, channels, view, passes, kind)


def with_late(
    first: Fused,
    ranking: Ranking,
    channels: Mapping[str, Floats],
    view: CorpusView,
    passes: Mask,
    kind: str,
) -> Fused:
    """Add the channel "late", where there is one, to what :func:`fuse` gave without it."""
    weights = weights_for(ranking, kind)
    if "late" not in weights or "late" not in channels:
        return first
    share = weights["late"] * _scaled(ranking, channels["late"], view.ids, passes)[first.rows]
    return Fused(first.rows, first.scores + share, {**first.shares, "late": share})


def added_up(
    ranking: Ranking, channels: Mapping[str, Floats], view: CorpusView, passes: Mask, kind: str
) -> Floats:
    """The joined scores of all rows to rounding, faster than :func:`fuse`; shape (n,).

    For rankings of method "sum". Rows that do not pass have a meaningless score.
    """
    weights = weights_for(ranking, kind)
    total = _standing(weights, channels, view).copy()
    base = np.zeros(len(view) + 1)  # the last for neighbours that are not there
    own, nothing = base[:-1], view.nothing()
    for name, scores in channels.items():
        if name in weights and name not in _STANDING and scores is not nothing:
            into = own if name in ("dense", "lexical") else total
            into += weights[name] * scores
    total += own
    if ranking.kernel or ranking.answers:
        own[~passes] = 0.0
        total += lent(base, view, ranking.kernel, ranking.answers)
    return total


def _standing(
    weights: Mapping[str, float], channels: Mapping[str, Floats], view: CorpusView
) -> Floats:
    """What the channels that do not look at the query add to each row; not to be written to.

    Added up once for each state of the memories and each choice of weights.
    """
    own = tuple((name, weights[name]) for name in _STANDING if name in channels and name in weights)
    known: dict[object, Floats] = view.cached("standing", dict)
    found = known.get(own)
    if found is None:
        if len(known) >= _MOST_STANDING:
            known.clear()
        found = known[own] = sum((w * channels[name] for name, w in own), np.zeros(len(view)))
    return found


def weights_for(ranking: Ranking, kind: str) -> Mapping[str, float]:
    """The ranking's weights for a kind of question."""
    multipliers = ranking.multipliers.get(kind)
    if not multipliers:
        return ranking.weights
    return {name: w * multipliers.get(name, 1.0) for name, w in ranking.weights.items()}


def _scaled(ranking: Ranking, scores: Floats, ids: Ids, passes: Mask) -> Floats:
    if ranking.method == "minmax":
        return min_max(scores, passes)
    if ranking.method == "rrf":
        return _reciprocal_ranks(scores, ids, passes, ranking.rrf_k)
    return scores


def min_max(scores: Floats, passes: Mask) -> Floats:
    """Scale to [0, 1] over the rows that pass; 0 where they are all equal."""
    own = scores[passes]
    if own.size == 0:
        return np.zeros_like(scores)
    low, high = own.min(), own.max()
    return (scores - low) / (high - low) if high > low else np.zeros_like(scores)


def _reciprocal_ranks(scores: Floats, ids: Ids, passes: Mask, k: float) -> Floats:
    # A channel finds what it has a positive score for: rank 3 of nothing is no evidence.
    rows = np.flatnonzero(passes & (scores > 0.0))
    order = rows[np.lexsort((ids[rows], -scores[rows]))]
    votes = np.zeros_like(scores)
    votes[order] = 1.0 / (k + np.arange(1, order.size + 1))
    return votes


_RANKINGS = (
    Ranking(
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
    ),
    Ranking(
        "late-interaction",
        {
            "dense": 2.4,
            "lexical": 3.2,
            "likeness": 3.0,
            "late": 8.0,
            "names": 1.6,
            "temporal": 2.8,
            "time_words": 1.6,
            "substance": 1.8,
            "opening": 0.59,
            "first_person": 0.3,
        },
        kernel={-1: 0.3, 1: 0.29, -2: 0.32, 2: 0.15, -3: 0.26},
        answers=0.48,
        brevity=(2.0, 200),
        source="riemem: bench/fit_fusion.py --late and fit_brevity.py --late, as the default",
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

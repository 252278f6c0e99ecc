"""The search that Memory uses: all channels of one profile, joined by a ranking."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from riemem.errors import BackendUnavailableError
from riemem.retrieval.bridges import bridge_scores
from riemem.retrieval.channel import ChannelHits, Ids
from riemem.retrieval.corpus import Corpus, CorpusView, Floats, Mask
from riemem.retrieval.dense import DenseChannel
from riemem.retrieval.embedding import MAX_CHUNKS, TurnEmbedder
from riemem.retrieval.entities import entity_scores
from riemem.retrieval.fusion import Fused, Ranking, as_ranking, fuse
from riemem.retrieval.names import speaker_scores
from riemem.retrieval.profile import profile_scores
from riemem.retrieval.query_type import query_kind
from riemem.retrieval.scenes import scene_gains
from riemem.retrieval.temporal import temporal_scores, time_word_scores
from riemem.store import Store

__all__ = ["Gathered", "HybridChannel"]


@dataclass(frozen=True)
class Gathered:
    """What the channels gave for one query, before it is joined.

    Attributes
    ----------
    view : CorpusView
    channels : mapping of str to (n,) float64 ndarray
        Those that ran.
    notes : tuple of str
        What could not run or not be done as asked.
    kind : str
        Kind of the question.
    scoring : str
        How the dense score was made.
    """

    view: CorpusView
    channels: Mapping[str, Floats]
    notes: tuple[str, ...]
    kind: str
    scoring: str


class HybridChannel:
    """Search by meaning, words, names and dates in the memories of one profile.

    Parameters
    ----------
    store : Store
    profile : str
    embedder : TurnEmbedder

    Notes
    -----
    The score is the ranking's sum over the channels; ties go to the lower id. O(N d) per search
    for the dense scores, O(N) for the rest.
    """

    name = "hybrid"

    def __init__(self, store: Store, profile: str, embedder: TurnEmbedder) -> None:
        self._corpus = Corpus(store, profile)
        self.dense = DenseChannel(store, profile, embedder)
        self._lock = threading.Lock()
        self._rows: tuple[Ids, CorpusView, Ids, bool] | None = None

    def search(
        self,
        query: str,
        k: int,
        allowed: Ids | None = None,
        *,
        explain: bool = False,
        ranking: str | Ranking = "default",
        at: date | None = None,
    ) -> ChannelHits:
        """Return the k best memories.

        Parameters
        ----------
        query : str
        k : int
        allowed : int64 ndarray, optional
            The only memory ids that may be returned, or lend anything to others.
        explain : bool
            More numbers in ``details``.
        ranking : str or Ranking
        at : date, optional
            The day of the question.

        Raises
        ------
        ArgumentError
            The ranking is not known.
        EmbedderMismatchError, ModelNotFoundError, ModelCorruptError
        """
        rule = as_ranking(ranking)
        gathered = self.gather(query, rule, at=at)
        view = gathered.view
        passes = view.alive
        if allowed is not None:
            passes = passes & np.isin(view.ids, allowed)
        if k <= 0 or not passes.any():
            return ChannelHits(scoring="no memories", notes=gathered.notes)
        joined = self.join(query, rule, gathered, passes)
        best = top(joined.scores, view.ids, passes, k)
        details = {
            int(view.ids[row]): {name: float(share[row]) for name, share in joined.shares.items()}
            for row in best.tolist()
        }
        if explain:
            self._explain(query, gathered, best, details)
        return ChannelHits(
            ((int(view.ids[row]), float(joined.scores[row])) for row in best.tolist()),
            scoring=f"{rule.name}: {gathered.scoring}",
            notes=gathered.notes,
            details=details,
        )

    def gather(self, query: str, ranking: Ranking, at: date | None = None) -> Gathered:
        """Ask every channel that the ranking has a weight for."""
        wanted = ranking.weights
        channels: dict[str, Floats] = {}
        notes: list[str] = []
        scoring = "no dense scores"
        # The vectors first: a memory that is added in between has words before it has a vector,
        # which costs it its place, and never a vector without a text.
        found = None
        if "dense" in wanted:
            found = self.dense.scores(query, cosine=ranking.dense == "cosine")
        view = self._corpus.follow()
        if found is not None:
            channels["dense"] = self._aligned(found.keys, found.scores, view)
            if found.uncentred:
                # Plain cosines of sentences are mostly above 0. Less their mean, a memory without
                # neighbours loses nothing by it.
                channels["dense"] = _centred(channels["dense"], view.alive)
            notes += found.notes
            scoring = found.scoring
        if "lexical" in wanted:
            raw, bound = view.postings.bm25(query, k1=ranking.k1, b=ranking.b)
            if bound > 0.0:
                channels["lexical"] = raw / bound
            elif not any(c.isalnum() for c in query):
                notes.append("lexical: the query has no words")
        for name, score in (
            ("names", speaker_scores),
            ("time_words", time_word_scores),
            ("entities", entity_scores),
            ("profile", profile_scores),
        ):
            if name in wanted:
                channels[name] = score(query, view)
        if "temporal" in wanted:
            try:
                temporal = temporal_scores(query, view, at)
            except BackendUnavailableError as error:
                notes.append(str(error))
            else:
                channels["temporal"] = temporal.scores
                notes += temporal.notes
        if "substance" in wanted:
            channels["substance"] = view.substance
        if "questions" in wanted:
            channels["questions"] = view.questions
        return Gathered(view, channels, tuple(notes), query_kind(query), scoring)

    @staticmethod
    def join(query: str, ranking: Ranking, gathered: Gathered, passes: Mask) -> Fused:
        """Join what was gathered; see :func:`riemem.retrieval.fusion.fuse`."""
        view = gathered.view
        fused = fuse(ranking, gathered.channels, view, passes, gathered.kind)
        scores, shares = fused.scores, dict(fused.shares)
        if ranking.bridges and gathered.kind == "multi-hop":
            shares["bridges"] = bridge_scores(query, view, passes) / (ranking.rrf_k + 1.0)
            scores = scores + shares["bridges"]
        if ranking.scenes > 0.0:
            shares["scenes"] = scene_gains(scores, view, passes, ranking.scenes)
            scores = scores + shares["scenes"]
        return Fused(scores, shares)

    def _aligned(self, keys: Ids, scores: Floats, view: CorpusView) -> Floats:
        """Vector scores as scores of rows: the best of a memory's, 0 for one without a vector."""
        rows, single = self._rows_of(keys, view)
        values = np.zeros(len(view) + 1)  # the last for vectors of memories not in the view
        if single:
            values[rows] = scores
        else:
            values[rows] = -np.inf
            np.maximum.at(values, rows, scores)
        return values[:-1]

    def _rows_of(self, keys: Ids, view: CorpusView) -> tuple[Ids, bool]:
        with self._lock:
            known = self._rows
        if known is not None and known[0] is keys and known[1] is view:
            return known[2], known[3]
        living = np.flatnonzero(view.alive)
        order = living[np.argsort(view.ids[living], kind="stable")]
        ids = view.ids[order]
        owners = keys // MAX_CHUNKS
        place = np.searchsorted(ids, owners)
        inside = np.minimum(place, max(ids.size - 1, 0))
        hit = (ids[inside] == owners) if ids.size else np.zeros(owners.size, np.bool_)
        rows = np.where(hit, order[inside] if ids.size else 0, len(view)).astype(np.int64)
        single = np.unique(owners).size == owners.size
        with self._lock:
            self._rows = (keys, view, rows, single)
        return rows, single

    def _explain(
        self, query: str, gathered: Gathered, best: Ids, details: dict[int, dict[str, Any]]
    ) -> None:
        ids = gathered.view.ids[best].tolist()
        cosines = self.dense.cosines(query, ids) if "dense" in gathered.channels else {}
        for row, memory_id in zip(best.tolist(), ids, strict=True):
            own = details[memory_id]
            for name, scores in gathered.channels.items():
                own[f"{name}.score"] = float(scores[row])
            own.update(cosines.get(memory_id, {}))


def _centred(scores: Floats, alive: Mask) -> Floats:
    # fsum: the same last bit in whatever order the rows came.
    return scores - math.fsum(scores[alive]) / int(alive.sum()) if alive.any() else scores


def top(scores: Floats, ids: Ids, passes: Mask, k: int) -> Ids:
    """The rows of the k best that pass, best first, ties by lower id."""
    rows = np.flatnonzero(passes)
    if k < rows.size:
        own = scores[rows]
        edge = own[np.argpartition(-own, k - 1)[k - 1]]
        rows = rows[own >= edge]
    best: Ids = rows[np.lexsort((ids[rows], -scores[rows]))][:k]
    return best

"""The search that Memory uses: all channels of one profile, joined by a ranking."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from riemem.errors import BackendUnavailableError
from riemem.retrieval.bridges import bridge_scores
from riemem.retrieval.certain import Case, best_of_many, nearly_best
from riemem.retrieval.channel import ChannelHits, Ids, Shares
from riemem.retrieval.corpus import Corpus, CorpusView, Floats, Mask
from riemem.retrieval.demotion import Edges, follow_edges, put_in_order
from riemem.retrieval.dense import MANY, DenseChannel
from riemem.retrieval.embedding import TurnEmbedder
from riemem.retrieval.entities import entity_scores
from riemem.retrieval.fusion import Fused, Ranking, as_ranking, fuse
from riemem.retrieval.late import compare, in_new_order
from riemem.retrieval.names import speaker_scores
from riemem.retrieval.narrowing import adds_up, top
from riemem.retrieval.opening import first_person_scores, opening_scores
from riemem.retrieval.profile import profile_scores
from riemem.retrieval.query_type import query_kind
from riemem.retrieval.scenes import scene_gains
from riemem.retrieval.temporal import temporal_scores, time_word_scores
from riemem.retrieval.valid import valid_times
from riemem.retrieval.vector_rows import VectorRows
from riemem.store import Store
from riemem.store.reads import Shown
from riemem.store.trust import Trust, read_trust

#: Where more are asked for, all are scored.
_MOST_OF_MANY = 1000

_NO_EDGES = Edges(-1, ())

__all__ = ["Gathered", "HybridChannel"]


@dataclass(frozen=True)
class Gathered:
    """What the channels gave for one query, before it is joined.

    Attributes
    ----------
    view : CorpusView
    passes : (n,) bool ndarray
        The rows that may be returned.
    channels : mapping of str to (n,) float64 ndarray
        Those that ran.
    notes : tuple of str
        What could not run or not be done as asked.
    kind : str
        Kind of the question.
    scoring : str
        How the dense score was made.
    rows : (m,) int64 ndarray or None
        Where there are many memories, or their scores are nearly known: the rows that can be among
        the best. Only they and what lends to them are sure to have an exact dense score.
    edges : Edges
        What supersedes what; none for a ranking that does not ask.
    found : (Fused, (c,) int64 ndarray) or None
        What the ranking's finder gives, and the positions of those that were compared word by
        word; None where none was.
    """

    view: CorpusView
    passes: Mask
    channels: Mapping[str, Floats]
    notes: tuple[str, ...]
    kind: str
    scoring: str
    rows: Ids | None = None
    edges: Edges = _NO_EDGES
    found: tuple[Fused, Ids] | None = None


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
        self._store, self._profile = store, profile
        self._corpus = Corpus(store, profile)
        self.dense = DenseChannel(store, profile, embedder)
        self._embedder = embedder
        self._lock = threading.Lock()
        self._rows: VectorRows | None = None
        self._edges: tuple[int | None, Edges | None] = (None, None)

    def search(
        self,
        query: str,
        k: int,
        allowed: Ids | None = None,
        *,
        explain: bool = False,
        ranking: str | Ranking = "default",
        at: date | None = None,
        mark: int | None = None,
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
        mark : int, optional
            Of the store, taken in this call; see :meth:`riemem.store.Store.mark`.

        Raises
        ------
        ArgumentError
            The ranking is not known.
        EmbedderMismatchError, ModelNotFoundError, ModelCorruptError
        """
        rule = as_ranking(ranking)
        gathered = self.gather(query, rule, at=at, allowed=allowed, k=k, narrow=True, mark=mark)
        passes = gathered.passes
        if k <= 0 or not passes.any():
            return ChannelHits(scoring="no memories", notes=gathered.notes)
        joined = self.in_order(gathered, self.join(query, rule, gathered))
        ids = gathered.view.ids[joined.rows]
        best = top(joined.scores, ids, k)
        found, scores = ids[best].tolist(), joined.scores[best].tolist()
        shares: Mapping[int, dict[str, Any]] = Shares(found, joined.shares, best)
        if explain:
            shares = self._explained(query, gathered, joined.rows[best], shares)
        return ChannelHits(
            zip(found, scores, strict=True),
            scoring=f"{rule.name}: {gathered.scoring}",
            notes=gathered.notes,
            details=shares,
        )

    def gather(
        self,
        query: str,
        ranking: Ranking,
        *,
        at: date | None = None,
        allowed: Ids | None = None,
        k: int = 10,
        narrow: bool = False,
        mark: int | None = None,
    ) -> Gathered:
        """Ask every channel that the ranking has a weight for.

        With `narrow` only rows that can be among the k best are sure to have their dense score.
        """
        finder = ranking.finder
        wanted = {**ranking.weights, **finder.weights}
        late = "late" in wanted
        asked_for = k
        if late:  # it puts those in another order
            k = max(k, ranking.late[0])
        channels: dict[str, Floats] = {}
        notes: list[str] = []
        scoring = "no dense scores"
        # The vectors first: a memory that is added in between has words before it has a vector,
        # which costs it its place, and never a vector without a text.
        found = None
        few = MANY if k <= _MOST_OF_MANY else sys.maxsize
        if "dense" in wanted:
            found = self.dense.scores(
                query,
                score=ranking.dense,
                allowed=allowed,
                few=few,
                best=max(2 * k, 256),
                nearly=narrow and adds_up(ranking) and adds_up(finder),
                tokens=late,
                mark=mark,
            )
        view = self._corpus.follow(mark)
        edges = self._follow_edges(ranking, mark)
        passes = view.alive
        if allowed is not None:
            passes = passes & np.isin(view.ids, allowed)
        if found is not None:
            channels["dense"] = self._rows_of(found.keys, view).spread(found.scores, found.rows)
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
                temporal = temporal_scores(
                    query,
                    view,
                    at,
                    lambda: view.cached("valid", lambda: valid_times(self._store, view)),
                )
            except BackendUnavailableError as error:
                notes.append(str(error))
            else:
                channels["temporal"] = temporal.scores
                notes += temporal.notes
        if "substance" in wanted:
            channels["substance"] = view.substance
        if "opening" in wanted:
            channels["opening"] = opening_scores(view)
        if "first_person" in wanted:
            channels["first_person"] = first_person_scores(view)
        if "questions" in wanted:
            channels["questions"] = view.questions
        if "trust" in wanted:
            channels["trust"] = self._trust(view)
        kind = query_kind(query)
        rows = None
        if found is not None:
            case = Case(finder, kind, view, passes, channels, found, self._rows_of)
            if found.off > 0.0:
                rows = nearly_best(case, k, edges)
            elif found.rows is not None and finder.method == "sum":
                rows = best_of_many(case, k)
            if found.off == 0.0 and finder.without_likeness is not finder:
                channels["likeness"] = case.alike(rows).scores(rows)
                if found.uncentred:
                    channels["likeness"] = _centred(channels["likeness"], view.alive)
        compared = None
        if late and passes.any():
            asked = self._embedder.embed_query(query, tokens=True) if found is None else found.asked
            first = fuse(finder, channels, view, passes, kind, rows)
            best, lacking = compare(
                *(query, asked.tokens, first, ranking.late, view, channels),
                lambda ids: self._tokens(ids, mark),
            )
            notes += lacking
            if best is not None and narrow and asked_for <= best.size and not edges.pairs:
                # What was not compared comes after these, so it is not wanted.
                first = Fused(first.rows[best], first.scores[best], {})
                best = np.arange(best.size)
            if best is not None:
                compared = (first, best)
        return Gathered(view, passes, channels, tuple(notes), kind, scoring, rows, edges, compared)

    def shown(self, ids: Sequence[int], mark: int | None) -> dict[int, Shown]:
        """Return what is shown of memories that exist, within a reading.

        `mark` is that of the search that found them.
        """
        return self._corpus.shown.of(ids, mark)

    def _tokens(self, ids: list[int], mark: int | None) -> dict[int, bytes]:
        with self._store.reading():
            return self._corpus.tokens.of(ids, mark)

    def keep(self) -> None:
        """Write what is slow to make into the store, for whoever opens it next."""
        self._corpus.keep()
        self.dense.keep()

    @staticmethod
    def join(query: str, ranking: Ranking, gathered: Gathered) -> Fused:
        """Join what was gathered; see :func:`riemem.retrieval.fusion.fuse`."""
        view, passes = gathered.view, gathered.passes
        channels, kind = gathered.channels, gathered.kind
        if gathered.found is None:
            fused = fuse(ranking.finder, channels, view, passes, kind, gathered.rows)
        else:
            fused = in_new_order(*gathered.found, ranking, channels, view, passes, kind)
        rows, scores, shares = fused.rows, fused.scores, dict(fused.shares)
        if ranking.bridges and gathered.kind == "multi-hop":
            bridges = bridge_scores(query, view, passes)[rows]
            shares["bridges"] = bridges / (ranking.rrf_k + 1.0)
            scores = scores + shares["bridges"]
        if ranking.scenes > 0.0:
            everywhere = np.zeros(len(view))
            everywhere[rows] = scores
            shares["scenes"] = scene_gains(everywhere, view, passes, ranking.scenes)[rows]
            scores = scores + shares["scenes"]
        return Fused(rows, scores, shares)

    @staticmethod
    def in_order(gathered: Gathered, joined: Fused) -> Fused:
        """Put what was superseded after what supersedes it, where the ranking wants that."""
        edges = gathered.edges
        return (
            put_in_order(joined, edges, gathered.view, gathered.passes) if edges.pairs else joined
        )

    def _follow_edges(self, ranking: Ranking, mark: int | None) -> Edges:
        if not ranking.superseded:
            return _NO_EDGES
        before, edges = self._edges
        if mark is None or before != mark:
            edges = follow_edges(self._store, self._profile, edges)
            self._edges = (mark, edges)
        return _NO_EDGES if edges is None else edges

    def _trust(self, view: CorpusView) -> Floats:
        """Expected trust of each row, less that of a memory of which nothing is known."""
        with self._store.reading() as connection:
            known = read_trust(connection, None)
        usual = Trust().mean
        return np.array(
            [known[i].mean - usual if i in known else 0.0 for i in view.ids.tolist()], np.float64
        )

    def _rows_of(self, keys: Ids, view: CorpusView) -> VectorRows:
        with self._lock:
            known = self._rows
        if known is None or known.keys is not keys or known.view is not view:
            known = VectorRows(keys, view)
            with self._lock:
                self._rows = known
        return known

    def _explained(
        self, query: str, gathered: Gathered, best: Ids, shares: Mapping[int, dict[str, Any]]
    ) -> dict[int, dict[str, Any]]:
        ids = gathered.view.ids[best].tolist()
        cosines = self.dense.cosines(query, ids) if "dense" in gathered.channels else {}
        details = dict(shares)
        for row, memory_id in zip(best.tolist(), ids, strict=True):
            own = details[memory_id]
            for name, scores in gathered.channels.items():
                own[f"{name}.score"] = float(scores[row])
            own.update(cosines.get(memory_id, {}))
        return details


def _centred(scores: Floats, alive: Mask) -> Floats:
    # fsum: the same last bit in whatever order the rows came.
    return scores - math.fsum(scores[alive]) / int(alive.sum()) if alive.any() else scores

"""The search that Memory uses: all channels of one profile, joined by a ranking."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np

from riemem.errors import BackendUnavailableError
from riemem.retrieval.bridges import bridge_scores
from riemem.retrieval.channel import ChannelHits, Ids
from riemem.retrieval.corpus import Corpus, CorpusView, Floats, Mask
from riemem.retrieval.dates import require_calendar
from riemem.retrieval.demotion import Edges, follow_edges, put_in_order
from riemem.retrieval.dense import MANY, DenseChannel, VectorScores
from riemem.retrieval.embedding import MAX_CHUNKS, TurnEmbedder
from riemem.retrieval.entities import entity_scores
from riemem.retrieval.fusion import Fused, Ranking, added_up, as_ranking, fuse, weights_for
from riemem.retrieval.likeness import Likeness
from riemem.retrieval.names import speaker_scores
from riemem.retrieval.profile import profile_scores
from riemem.retrieval.query_type import query_kind
from riemem.retrieval.scenes import scene_gains
from riemem.retrieval.temporal import temporal_scores, time_word_scores
from riemem.retrieval.valid import valid_times
from riemem.store import Store
from riemem.store.trust import Trust, read_trust

#: Of many memories: how many of each channel are looked at, and of how many of those the
#: neighbours.
_ALONE = 512
_OPENED = 64
#: Where more are asked for, all are scored.
_MOST_OF_MANY = 1000

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
        Where there are many memories: the rows that can be among the best. Only they and their
        neighbours are sure to have a dense score.
    """

    view: CorpusView
    passes: Mask
    channels: Mapping[str, Floats]
    notes: tuple[str, ...]
    kind: str
    scoring: str
    rows: Ids | None = None


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
        self._lock = threading.Lock()
        self._rows: tuple[Ids, CorpusView, Ids, bool] | None = None
        self._edges: Edges | None = None
        self._newer: tuple[object, CorpusView, Ids] | None = None

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
        gathered = self.gather(query, rule, at=at, allowed=allowed, k=k, narrow=True)
        passes = gathered.passes
        if k <= 0 or not passes.any():
            return ChannelHits(scoring="no memories", notes=gathered.notes)
        joined = self.in_order(rule, gathered, self.join(query, rule, gathered))
        ids = gathered.view.ids[joined.rows]
        best = top(joined.scores, ids, k)
        found, scores = ids[best].tolist(), joined.scores[best].tolist()
        details: dict[int, dict[str, Any]] = {memory_id: {} for memory_id in found}
        for name, share in joined.shares.items():
            for own, value in zip(details.values(), share[best].tolist(), strict=True):
                own[name] = value
        if explain:
            self._explain(query, gathered, joined.rows[best], details)
        return ChannelHits(
            zip(found, scores, strict=True),
            scoring=f"{rule.name}: {gathered.scoring}",
            notes=gathered.notes,
            details=details,
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
    ) -> Gathered:
        """Ask every channel that the ranking has a weight for.

        With `narrow` only rows that can be among the k best are sure to have their dense score.
        """
        wanted = ranking.weights
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
                nearly=narrow and _adds_up(ranking),
            )
        view = self._corpus.follow()
        passes = view.alive
        if allowed is not None:
            passes = passes & np.isin(view.ids, allowed)
        if found is not None:
            channels["dense"] = self._aligned(found, view)
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
        if "questions" in wanted:
            channels["questions"] = view.questions
        if "trust" in wanted:
            channels["trust"] = self._trust(view)
        kind = query_kind(query)
        rows = None
        # What "likeness" starts from is found without it.
        own = {name: w for name, w in wanted.items() if name != "likeness"}
        likens = 0 < len(own) < len(wanted)
        bare = replace(ranking, weights=own) if likens else ranking
        if found is not None and found.rows is not None and ranking.method == "sum":
            rows_of, _ = self._rows_of(found.keys, view)
            best = rows_of[found.rows]
            rows = _promising(ranking, channels, passes, best[best < len(view)], k)
            self._fill(found, channels["dense"], view, rows)
            plain = replace(bare, kernel={}, answers=0.0)
            alone = fuse(plain, channels, view, passes, kind, rows)
            first = rows[top(alone.scores, view.ids[rows], max(k, _OPENED))]
            opened = _with_neighbours(first, view)
            self._fill(found, channels["dense"], view, _with_neighbours(opened, view), rows)
            rows = opened[passes[opened]]
        elif found is not None and found.off > 0.0:
            most = ranking.likeness[0] if likens else k
            rows = _near_best(bare, channels, view, passes, kind, most, {"dense": found.off})
            if not likens:
                rows = np.union1d(rows, self._superseding(ranking, view, passes))
            self._fill(found, channels["dense"], view, _with_neighbours(rows, view))
        if found is not None and likens:
            first_pass = fuse(bare, channels, view, passes, kind, rows)
            alike = Likeness.of(
                first_pass, view, ranking.likeness, self.dense, found, self._rows_of
            )
            if found.off == 0.0:
                channels["likeness"] = alike.scores(rows)
                if found.uncentred:
                    channels["likeness"] = _centred(channels["likeness"], view.alive)
            else:
                channels["likeness"], off = alike.nearly()
                errors = {"dense": found.off, "likeness": off}
                rows = _near_best(ranking, channels, view, passes, kind, k, errors)
                rows = np.union1d(rows, self._superseding(ranking, view, passes))
                self._fill(found, channels["dense"], view, _with_neighbours(rows, view))
                channels["likeness"][rows] = alike.scores(rows)[rows]
        return Gathered(view, passes, channels, tuple(notes), kind, scoring, rows)

    def keep(self) -> None:
        """Write what is slow to make into the store, for whoever opens it next."""
        self._corpus.keep()
        self.dense.keep()

    @staticmethod
    def join(query: str, ranking: Ranking, gathered: Gathered) -> Fused:
        """Join what was gathered; see :func:`riemem.retrieval.fusion.fuse`."""
        view, passes = gathered.view, gathered.passes
        fused = fuse(ranking, gathered.channels, view, passes, gathered.kind, gathered.rows)
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

    def in_order(self, ranking: Ranking, gathered: Gathered, joined: Fused) -> Fused:
        """Put what was superseded after what supersedes it, where the ranking wants that."""
        edges = self._follow_edges(ranking)
        return (
            put_in_order(joined, edges, gathered.view, gathered.passes) if edges.pairs else joined
        )

    def _follow_edges(self, ranking: Ranking) -> Edges:
        if not ranking.superseded:
            return Edges(-1, ())
        self._edges = edges = follow_edges(self._store, self._profile, self._edges)
        return edges

    def _superseding(self, ranking: Ranking, view: CorpusView, passes: Mask) -> Ids:
        """The rows that supersede others, and may come up to their places."""
        pairs = self._follow_edges(ranking).pairs
        if not pairs:
            return np.empty(0, np.int64)
        known = self._newer
        if known is None or known[0] is not pairs or known[1] is not view:
            newer = np.array([pair[0] for pair in pairs], np.int64)
            self._newer = known = (pairs, view, np.flatnonzero(np.isin(view.ids, newer)))
        rows: Ids = known[2][passes[known[2]]]
        return rows

    def _trust(self, view: CorpusView) -> Floats:
        """Expected trust of each row, less that of a memory of which nothing is known."""
        with self._store.reading() as connection:
            known = read_trust(connection, None)
        usual = Trust().mean
        return np.array(
            [known[i].mean - usual if i in known else 0.0 for i in view.ids.tolist()], np.float64
        )

    def _fill(
        self,
        found: VectorScores,
        dense: Floats,
        view: CorpusView,
        rows: Ids,
        done: Ids | None = None,
    ) -> None:
        """Give rows their dense score that were not among the best, and not done before."""
        own, _ = self._rows_of(found.keys, view)
        wanted = np.zeros(len(view) + 1, np.bool_)
        wanted[rows] = True
        wanted[-1] = False
        if found.rows is not None:
            wanted[own[found.rows]] = False
        if done is not None:
            wanted[done] = False
        positions = np.flatnonzero(wanted[own])
        if positions.size:
            values = np.full(len(view), -np.inf)
            np.maximum.at(values, own[positions], found.more(positions))
            np.copyto(dense, values, where=values > -np.inf)

    def _aligned(self, found: VectorScores, view: CorpusView) -> Floats:
        """Vector scores as scores of rows: the best of a memory's, 0 for one without a vector."""
        rows, single = self._rows_of(found.keys, view)
        scores = found.scores
        if found.rows is not None:
            rows = rows[found.rows]
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
        single = bool((np.diff(np.sort(owners, kind="stable")) > 0).all())
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


def unavailable() -> list[str]:
    """Return which channels cannot run on this machine, and why.

    Examples
    --------
    >>> unavailable()
    []
    """
    try:
        require_calendar()
    except BackendUnavailableError as error:
        return [str(error)]
    return []


def _centred(scores: Floats, alive: Mask) -> Floats:
    # fsum: the same last bit in whatever order the rows came.
    return scores - math.fsum(scores[alive]) / int(alive.sum()) if alive.any() else scores


def _adds_up(ranking: Ranking) -> bool:
    """Whether an error of a dense score changes no other row but its neighbours."""
    return ranking.method == "sum" and not ranking.bridges and ranking.scenes == 0.0


def _near_best(
    ranking: Ranking,
    channels: Mapping[str, Floats],
    view: CorpusView,
    passes: Mask,
    kind: str,
    k: int,
    off: Mapping[str, float],
) -> Ids:
    """Rows that can be among the k best while channels are off by so much; the others are not."""
    rows = np.flatnonzero(passes)
    if not 0 < k < rows.size:
        return rows
    near = added_up(ranking, channels, view, passes, kind)[rows]
    weights = weights_for(ranking, kind)
    lent = 1.0 + sum(map(abs, ranking.kernel.values())) + abs(ranking.answers)
    reach = off.get("dense", 0.0) * abs(weights.get("dense", 0.0)) * lent
    reach += off.get("likeness", 0.0) * abs(weights.get("likeness", 0.0))
    # No channel exceeds 1, and another order of adding up changes far less than 1e-12 of that.
    reach += 1e-12 * lent * sum(map(abs, weights.values()))
    # A row that is further below the k-th than both can be off is out.
    edge = near[np.argpartition(-near, k - 1)[k - 1]]
    found: Ids = rows[near >= edge - 2.0 * reach]
    return found


def _promising(
    ranking: Ranking, channels: Mapping[str, Floats], passes: Mask, found: Ids, k: int
) -> Ids:
    """Of many rows those that a channel with weight puts first; ascending.

    `found` are the best of the dense channel. Names, kinds of words and length choose between
    rows that mean or say something of the query, and find none by themselves.
    """
    rows = [found]
    for name in ("lexical", "temporal", "entities", "profile"):
        if name not in ranking.weights or name not in channels:
            continue
        scores = channels[name]
        own = np.flatnonzero(scores > 0.0)
        if name == "temporal" and own.size:  # of equally near days those with the query's words
            scores = scores + 0.1 * channels.get("lexical", 0.0)
        most = max(2 * k, _ALONE)
        if own.size > most:
            own = own[np.argpartition(-scores[own], most - 1)[:most]]
        rows.append(own)
    together: Ids = np.unique(np.concatenate(rows))
    promising: Ids = together[passes[together]]
    return promising


def _with_neighbours(rows: Ids, view: CorpusView) -> Ids:
    """The rows and everything within reach of them in their sessions; ascending."""
    within = np.zeros(len(view) + 1, np.bool_)  # the last for neighbours that are not there
    within[rows] = True
    for side in (*view.before, *view.after):
        within[np.minimum(side[rows], len(view))] = True
    together: Ids = np.flatnonzero(within[:-1])
    return together


def top(scores: Floats, ids: Ids, k: int) -> Ids:
    """The positions of the k best, best first, ties by lower id."""
    positions = np.arange(scores.size)
    if 0 < k < scores.size:
        edge = scores[np.argpartition(-scores, k - 1)[k - 1]]
        positions = np.flatnonzero(scores >= edge)
    best: Ids = positions[np.lexsort((ids[positions], -scores[positions]))][:k]
    return best

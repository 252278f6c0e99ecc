"""How much of the evidence gets into a token budget, for each clustering and layout."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache as remembered
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._atoms.headers import words_of
from ..embed import Embedder, load_embedder
from ..errors import ArgumentError
from ..models import token_counter
from ..retrieval.fusion import Ranking, as_ranking
from .clustering_baselines import CLUSTERINGS
from .embedded import Progress, embed_texts
from .hybrid import KnownVectors
from .metrics import spread
from .packing_measure import ORDERS, Plan, measure
from .packing_report import PackingReport, entries_of, leave_one_out, rows_of
from .packing_sizes import LineCounter
from .packing_streams import Stream, load_streams

__all__ = [
    "BUDGETS",
    "CLUSTERINGS",
    "THRESHOLDS",
    "PackingReport",
    "run_packing",
    "run_streams",
    "stream_vectors",
]

BUDGETS = (500, 1000, 2000, 4000)
THRESHOLDS = (0.60, 0.65, 0.70, 0.75, 0.80, 0.85, 0.90)
QUANTILES = (0.70, 0.98)

F32 = NDArray[np.float32]


def run_packing(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    embedder: Embedder | str | None = None,
    budgets: Sequence[int] = BUDGETS,
    thresholds: Sequence[float] = THRESHOLDS,
    quantiles: Sequence[float] = QUANTILES,
    clusterings: Sequence[str] = CLUSTERINGS,
    orders: int = len(ORDERS),
    ranking: str | Ranking = "default",
    limit: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    count_tokens: Callable[[str], int] | None = None,
    progress: Progress | None = None,
) -> PackingReport:
    """Measure packing on files in LoCoMo's or RealMem's format.

    Hits are ranked as a memory ranks them, length taken off as :meth:`riemem.Memory.recall` does,
    and put into each budget flat, or grouped by the atoms of each clustering, or chosen by atoms
    as RSM-full prints it (the five best by centroid, members by rank).

    Parameters
    ----------
    path : str or path, or a sequence of them
        Questions of several files, all of one format, are taken together.
    embedder : Embedder, str or None
    budgets : sequence of int
        Tokens.
    thresholds : sequence of float
        Of max-member clustering.
    quantiles : sequence of float
        More thresholds: these quantiles of pairwise cosines.
    clusterings : sequence of str
        Names of :data:`CLUSTERINGS`, run at the store's own threshold.
    orders : int
        How many stream orders those see: as it came, reversed, shuffled.
    ranking : str or Ranking
        A key of :data:`riemem.retrieval.fusion.rankings`, or one made by hand.
    limit : int, optional
        At most so many questions per stream, evenly spaced.
    cache : path, optional
        See :func:`run_locomo`.
    count_tokens : callable, optional
        By default the local SmolLM2 tokenizer, line by line.
    progress : callable, optional
        ``progress(done, total)`` in texts and questions; returning False cancels.

    Raises
    ------
    InputFileError, ArgumentError, CancelledError, ModelNotFoundError
    """
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    loaded = [load_streams(one) for one in paths]
    kinds = {kind for kind, _, _ in loaded}
    if len(kinds) != 1:
        raise ArgumentError(f"path: expected files of one format, got {sorted(kinds) or 'no file'}")
    data = {
        "file": ", ".join(Path(one).name for one in paths),
        "sha256": ", ".join(digest for _, digest, _ in loaded),
        "format": kinds.pop(),
    }
    streams = [stream for _, _, own in loaded for stream in own]
    return run_streams(
        streams,
        data,
        embedder=embedder,
        budgets=budgets,
        thresholds=thresholds,
        quantiles=quantiles,
        clusterings=clusterings,
        orders=orders,
        ranking=ranking,
        limit=limit,
        cache=cache,
        count_tokens=count_tokens,
        progress=progress,
    )


def run_streams(
    streams: Sequence[Stream],
    data: Mapping[str, Any],
    *,
    embedder: Embedder | str | None = None,
    budgets: Sequence[int] = BUDGETS,
    thresholds: Sequence[float] = THRESHOLDS,
    quantiles: Sequence[float] = QUANTILES,
    clusterings: Sequence[str] = CLUSTERINGS,
    orders: int = len(ORDERS),
    ranking: str | Ranking = "default",
    limit: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    count_tokens: Callable[[str], int] | None = None,
    progress: Progress | None = None,
) -> PackingReport:
    """Measure packing on streams at hand; see :func:`run_packing`."""
    unknown = [name for name in clusterings if name not in CLUSTERINGS]
    if unknown:
        raise ArgumentError(f"clusterings: expected names of {CLUSTERINGS}, got {unknown[0]!r}")
    if not 1 <= orders <= len(ORDERS):
        raise ArgumentError(f"orders: expected 1 to {len(ORDERS)}, got {orders}")
    rule = as_ranking(ranking)
    model = load_embedder(embedder)
    counter, label = (count_tokens, "caller") if count_tokens else token_counter()
    chosen_streams = [_limited(stream, limit) for stream in streams]
    # All questions, so that a cache does not depend on the limit.
    embedded = stream_vectors(streams, model, cache=cache, progress=progress)
    plan = Plan(
        tuple(budgets),
        tuple(thresholds),
        tuple(quantiles),
        tuple(clusterings),
        orders,
        rule,
        LineCounter(counter),
        remembered(words_of),
    )
    measured = [
        measure(stream, rows, known, plan, progress)
        for stream, (rows, known) in zip(chosen_streams, embedded, strict=True)
    ]
    facts = {
        **data,
        "streams": len(streams),
        "turns": sum(len(s.turns) for s in streams),
        "questions": sum(len(s.questions) for s in chosen_streams),
        "ranking": rule.name,
    }
    report = PackingReport(facts, model.identity, f"{label}, line by line")
    report.rows = rows_of(measured, plan.budgets)
    report.streams = [
        entry
        for stream, one in zip(streams, measured, strict=True)
        for entry in entries_of(stream.name, one)
    ]
    report.chosen = leave_one_out([s.name for s in streams], measured)
    return report


def _limited(stream: Stream, limit: int | None) -> Stream:
    if limit is None or len(stream.questions) <= limit:
        return stream
    kept = spread(len(stream.questions), limit)
    return replace(stream, questions=tuple(stream.questions[i] for i in kept))


def stream_vectors(
    streams: Sequence[Stream],
    model: Embedder,
    *,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> list[tuple[F32, KnownVectors]]:
    """Return for each stream a row per turn, and an embedder that knows turns and questions.

    A turn that does not fit into the embedder has several windows, all of which are known; its
    row is that of the first, by which a store clusters it.
    """
    windows = []
    for stream in streams:
        texts = [turn.embedded for turn in stream.turns] + [q.text for q in stream.questions]
        windows.append(list(dict.fromkeys(w for text in texts for w in model.windows(text))))
    vectors = embed_texts(model, windows, progress, None if cache is None else Path(cache))
    found = []
    for stream, texts, rows in zip(streams, windows, vectors, strict=True):
        known = KnownVectors(model, dict(zip(texts, rows, strict=True)))
        firsts = [known.windows(turn.embedded)[0] for turn in stream.turns]
        found.append((known.embed(firsts), known))
    return found

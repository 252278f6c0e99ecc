"""Retrieval on LoCoMo: every score on the same vectors, question by question."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import models
from ..embed import RENDERINGS, Embedder, TokenVectors, load_embedder
from ..errors import ArgumentError
from ..fisher_rao import fisher_rao_search, signal_variance
from ..metric import FisherMetric
from ..presets import Preset
from ..presets import presets as all_presets
from ..retrieval.lexical import LexicalIndex
from ..scoring import TopK, search
from .embedded import Progress, embed_texts, tokens_for
from .hybrid import (
    BUDGETS,
    KnownVectors,
    default_ranking,
    evidence_inside,
    in_recall,
    rank_all,
    remember,
    turn_tokens,
    variants,
)
from .latency import measure_latency
from .lives import rank_lives
from .locomo import CATEGORIES, Benchmark, Conversation, apply_audit, load_locomo
from .metrics import (
    NAMES,
    average,
    gold_ranks,
    hubness_skewness,
    paired_bootstrap,
    question_metrics,
)
from .report import Report

Rankings = dict[str, list[list[int]]]


def run_locomo(
    path: str | os.PathLike[str],
    *,
    audit: str | os.PathLike[str] | None = None,
    rendering: str = "name-said",
    embedder: Embedder | str | None = None,
    progress: Progress | None = None,
    presets: Sequence[str] | Mapping[str, Preset] | None = None,
    cache: str | os.PathLike[str] | None = None,
    lives: bool = False,
    recall: bool = False,
    latency: Sequence[int] | None = None,
) -> Report:
    """Measure retrieval on a LoCoMo file: cosine, centred cosine, BM25, every preset, the search.

    The search is measured with every channel alone, the default without each, and every ranking.

    One memory per turn and one index per conversation; the evidence turns of a question are the
    right answers. Ties go to the earlier turn. The metric is fitted on the conversation's own
    turns, as a memory would.

    Parameters
    ----------
    path : str or path
        A file in LoCoMo's format; only categories 1 to 4 are asked.
    audit : str or path, optional
        Known annotation errors: wrong citations are corrected, other errors dropped, and the
        result reported beside the plain one.
    rendering : str
        A key of :data:`riemem.embed.RENDERINGS`: how a turn is written for the embedder. BM25
        reads the same string.
    embedder : Embedder, str or None
        As :func:`riemem.embed.load_embedder`.
    progress : callable, optional
        Called as ``progress(done, total)`` with texts embedded; returning False cancels.
    presets : sequence of names or mapping, optional
        Which presets to measure; by default all of :data:`riemem.presets`, and the search.
    cache : path, optional
        A folder where vectors are kept between runs, under a hash of embedder and texts.
    lives : bool
        Also what use teaches and what falling asleep costs; see
        :func:`riemem.evaluation.lives.rank_lives`.
    recall : bool
        Also measure the evidence in the texts that ``Memory.recall`` packs, dates counted.
    latency : sequence of int, optional
        Also measure the time of a search at these numbers of memories; see
        :func:`riemem.evaluation.latency.measure_latency`.

    Returns
    -------
    Report

    Raises
    ------
    InputFileError, ArgumentError
        A file is missing or malformed, or `rendering` or a preset is not known.
    CancelledError
        `progress` returned False.
    ModelNotFoundError
        The embedder's files are not on this machine.
    """
    if rendering not in RENDERINGS:
        raise ArgumentError(
            f"rendering: expected one of {', '.join(RENDERINGS)}, got {rendering!r}"
        )
    chosen = _chosen_presets(presets)
    benchmark = load_locomo(path)
    audited, changes = (None, None) if audit is None else apply_audit(benchmark, audit)
    model = load_embedder(embedder)
    texts = _texts(benchmark, rendering)
    tokens = tokens_for(model) if presets is None else None
    vectors = embed_texts(
        model, texts, progress, Path(cache) if cache is not None else None, tokens
    )
    notes: list[str] = []
    rankings = [
        _rank(conversation, texts[2 * i], vectors[2 * i], vectors[2 * i + 1], chosen, notes)
        for i, conversation in enumerate(benchmark.conversations)
    ]
    known = {
        text: row
        for group, rows in zip(texts, vectors, strict=True)
        for text, row in zip(group, rows, strict=True)
    }
    packed: list[list[float]] = []
    if presets is None:
        for conversation, ranking in zip(benchmark.conversations, rankings, strict=True):
            embedder = KnownVectors(model, known, tokens or {})
            make = functools.partial(remember, conversation, embedder, rendering)
            with make() as memory:
                asked = [question.text for question in conversation.questions]
                said = [turn.text for turn in conversation.turns]
                ranking |= rank_all(memory, asked, variants(late=bool(tokens)), said)
                if recall:
                    packed += [in_recall(memory, q.text, q.gold) for q in conversation.answerable]
            if lives:
                ranking |= rank_lives(conversation, make, default_ranking(late=bool(tokens)))
    count, counter = models.token_counter()
    sizes = [turn_tokens(conversation, count) for conversation in benchmark.conversations]
    return Report(
        data={
            "file": benchmark.file,
            "sha256": benchmark.sha256,
            "conversations": len(benchmark.conversations),
            "turns": sum(len(c.turns) for c in benchmark.conversations),
            "questions": benchmark.n_questions,
        },
        rendering=rendering,
        embedder=model.identity,
        rows=_rows(benchmark, benchmark, rankings, sizes),
        audit=None if changes is None else dict(vars(changes)),
        audit_rows=[] if audited is None else _rows(audited, benchmark, rankings, sizes),
        notes=notes,
        counter=counter,
        recall=dict(zip(map(str, BUDGETS), np.mean(packed, axis=0).tolist(), strict=True))
        if packed
        else {},
        latency=[]
        if latency is None
        else measure_latency(benchmark, known, RENDERINGS[rendering], latency, tokens=tokens),
    )


def _chosen_presets(chosen: Sequence[str] | Mapping[str, Preset] | None) -> dict[str, Preset]:
    """The presets to measure, the default last; plain cosine has a row of its own already."""
    if isinstance(chosen, Mapping):
        found = dict(chosen)
    else:
        # Left to itself, the row "default" is the search that users get, not its dense part.
        names = [n for n in all_presets if n != "default"] if chosen is None else list(chosen)
        unknown = [name for name in names if name not in all_presets]
        if unknown:
            raise ArgumentError(
                f"presets: expected names out of {', '.join(all_presets)}, got {unknown[0]!r}"
            )
        found = {name: all_presets[name] for name in names}
    found.pop("cosine", None)
    # The ranking of this name is a row as well.
    found = {"slm-v3, dense at full ramp" if n == "slm-v3" else n: p for n, p in found.items()}
    return dict(sorted(found.items(), key=lambda item: item[0] == "default"))


def _texts(benchmark: Benchmark, rendering: str) -> list[list[str]]:
    """For each conversation its rendered turns, then its questions."""
    render = RENDERINGS[rendering]
    texts = []
    for conversation in benchmark.conversations:
        texts.append(
            [
                render(turn.text, speaker=turn.speaker, when=turn.when, caption=turn.caption)
                for turn in conversation.turns
            ]
        )
        texts.append([question.text for question in conversation.questions])
    return texts


def embed_benchmark(
    model: Embedder,
    benchmark: Benchmark,
    *,
    rendering: str = "name-said",
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    tokens: dict[str, TokenVectors] | None = None,
) -> dict[str, NDArray[np.float32]]:
    """Return the vector of every rendered turn and question by its text.

    What is compared of their tokens is put into `tokens`, where that is given.
    """
    texts = _texts(benchmark, rendering)
    vectors = embed_texts(model, texts, progress, None if cache is None else Path(cache), tokens)
    return {
        text: row
        for group, rows in zip(texts, vectors, strict=True)
        for text, row in zip(group, rows, strict=True)
    }


def _rank(
    conversation: Conversation,
    texts: Sequence[str],
    rows: NDArray[np.float32],
    queries: NDArray[np.float32],
    presets: Mapping[str, Preset],
    notes: list[str],
) -> Rankings:
    """Rank all turns for every question by every method; a method's list may be short."""
    rankings: Rankings = {}
    if not conversation.questions:
        return {name: [] for name in ("cosine", "centred-cosine", "bm25", *presets)}

    def dense(name: str, found: TopK) -> None:
        rankings[name] = [
            row[:n].tolist() for row, n in zip(found.indices, found.counts, strict=True)
        ]
        if found.scoring not in ("fused", "fisher-rao") and name not in (
            "cosine",
            "centred-cosine",
        ):
            notes.append(f"{name} on {conversation.name}: {found.scoring}")

    k = len(rows)
    dense("cosine", search(queries, rows, None, k, cosine_weight=1.0, norm="none"))
    mean = rows.mean(axis=0, dtype=np.float64)
    around_q, around_h = (queries - mean).astype(np.float32), (rows - mean).astype(np.float32)
    dense("centred-cosine", search(around_q, around_h, None, k, cosine_weight=1.0, norm="none"))
    with LexicalIndex(texts) as index:
        rankings["bm25"] = [
            [row for row, _ in index.search(question.text, k)]
            for question in conversation.questions
        ]
    metrics: dict[tuple[str, float, float], FisherMetric] = {}
    for name, preset in presets.items():
        if preset.form == "fisher-rao":  # at full ramp: as if each had been accessed often
            heat = preset.temperature
            dense(
                name, fisher_rao_search(queries, rows, signal_variance(rows), k, temperature=heat)
            )
            continue
        key = (preset.covariance, preset.ridge, preset.energy)
        if key not in metrics:
            metrics[key] = FisherMetric.fit(
                rows, covariance=preset.covariance, ridge=preset.ridge, energy=preset.energy
            )
        options: dict[str, Any] = {"cosine_weight": preset.cosine_weight, "form": preset.form}
        dense(name, search(queries, rows, metrics[key], k, norm=preset.norm, **options))
    return rankings


def _rows(
    asked: Benchmark,
    ranked: Benchmark,
    rankings: Sequence[Rankings],
    tokens: Sequence[Sequence[int]],
) -> list[dict[str, Any]]:
    """One row per method over the questions of `asked`; `ranked` is what `rankings` followed."""
    values: dict[str, list[dict[str, float]]] = {name: [] for name in rankings[0]}
    hubness: dict[str, list[float]] = {name: [] for name in rankings[0]}
    evidence: dict[str, list[list[float]]] = {name: [] for name in rankings[0]}
    categories: list[int] = []
    for part, whole, ranking, sizes in zip(
        asked.conversations, ranked.conversations, rankings, tokens, strict=True
    ):
        place = {question.index: i for i, question in enumerate(whole.questions)}
        questions = part.answerable
        categories += [question.category for question in questions]
        for name, lists in ranking.items():
            own = [lists[place[question.index]] for question in questions]
            values[name] += [
                question_metrics(gold_ranks(list_, question.gold))
                for list_, question in zip(own, questions, strict=True)
            ]
            evidence[name] += [
                [evidence_inside(list_, question.gold, sizes, budget) for budget in BUDGETS]
                for list_, question in zip(own, questions, strict=True)
            ]
            if own:
                hubness[name].append(hubness_skewness(own, len(part.turns)))
    if not categories:
        raise ArgumentError("audit: expected some question to remain, but all were left out")
    return [
        {
            "name": name,
            "n": len(categories),
            **average(values[name]),
            "hubness": float(np.mean(hubness[name])),
            "evidence": dict(
                zip(map(str, BUDGETS), np.mean(evidence[name], axis=0).tolist(), strict=True)
            ),
            "categories": {
                str(category): {"n": len(chosen), **average(chosen)}
                for category in CATEGORIES
                if (
                    chosen := [
                        v for v, c in zip(values[name], categories, strict=True) if c == category
                    ]
                )
            },
            "difference_to_cosine": {
                metric: paired_bootstrap(
                    np.array(
                        [
                            mine[metric] - theirs[metric]
                            for mine, theirs in zip(values[name], values["cosine"], strict=True)
                        ]
                    )
                )
                for metric in NAMES
            },
        }
        for name in values
    ]

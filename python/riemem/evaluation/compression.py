"""How much of what answers a question survives distillation into a token budget.

Contexts come from the memory's own search. For each question and budget the same retrieved turns
are cut by every method to the same final size: whole turns by rank, truncation, chance,
self-information, and sensitivity with the options of each preset. What is compared is in the text:
words of the gold answer that the evidence turns hold, words of the evidence turns, numbers, dates,
names and negations, and under whose name the kept words stand; and, on a sample, what the local
language model makes of it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..distill import Distillation, Distiller
from ..distill.language_model import LanguageModel, load_language_model
from ..distill.options import presets
from ..distill.protect import core
from ..distill.scores import SensitivityCache, cache_key
from ..distill.words import FUNCTION_WORDS
from ..embed import load_embedder
from ..errors import ArgumentError, BudgetTooSmallError, CancelledError
from ..models import token_counter
from ..packing import Packing, pack_turns, parse
from .attribution import speaker_attribution
from .compression_cache import ModelCache
from .compression_report import CompressionReport
from .hybrid import KnownVectors, remember
from .likelihood import spearman
from .locomo import Conversation, load_locomo
from .metrics import spread
from .retrieval import embed_benchmark

__all__ = ["BUDGETS", "METHODS", "RATIOS", "CompressionReport", "run_compression"]

BUDGETS = (250, 500, 1000)
RATIOS = (0.25, 0.5, 0.75)
_RATIO_CONTEXT = 1000
_CATEGORIES = (1, 4)
_WORD = re.compile(r"\w+")

#: Name, options, and how many times the budget is read.
METHODS: tuple[tuple[str, dict[str, Any], float], ...] = (
    ("turns", {"score": "turns"}, 1.0),
    ("truncate", {"score": "truncate"}, 2.0),
    ("random", {"score": "random"}, 2.0),
    ("words 1.5x", {"score": "words"}, 1.5),
    ("words", {"score": "words"}, 2.0),
    ("words 3x", {"score": "words"}, 3.0),
    ("self-information", {"score": "self_information"}, 2.0),
    ("coremem", {"preset": "coremem"}, 2.0),
    ("coremem-token", {"preset": "coremem-token"}, 2.0),
    ("S question", {"score": "sensitivity", "condition": "question"}, 2.0),
    ("S both", {"score": "sensitivity", "condition": "both"}, 2.0),
    ("S alone", {"score": "sensitivity", "decay": "none", "novelty": 1.0}, 2.0),
    ("sensitivity 1.5x", {"score": "sensitivity"}, 1.5),
    ("sensitivity", {"score": "sensitivity"}, 2.0),
    ("sensitivity 3x", {"score": "sensitivity"}, 3.0),
)

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class _Asked:
    """A question, what its answer and evidence say, and what was found for it."""

    conversation: str
    question: str
    answer: str
    answer_words: frozenset[str]
    evidence_words: frozenset[str]
    hits: tuple[Any, ...]


def run_compression(
    path: str | os.PathLike[str],
    *,
    budgets: Sequence[int] = BUDGETS,
    ratios: Sequence[float] = RATIOS,
    methods: Sequence[str] | None = None,
    embedder: Any = None,
    model: str | os.PathLike[str] | LanguageModel | None = None,
    limit: int | None = 20,
    likelihood: int = 0,
    sentences: int = 0,
    cache: str | os.PathLike[str] | None = None,
    cached_only: bool = False,
    seconds: float | None = None,
    save: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> CompressionReport:
    """Measure distillation on a LoCoMo file, categories 1 and 4.

    Parameters
    ----------
    path : str or path
        A file in LoCoMo's format.
    budgets : sequence of int
        Final tokens; each method reads 1 to 3 times as much retrieved text.
    ratios : sequence of float
        Shares of a context of 1000 tokens, the same for all methods.
    methods : sequence of str, optional
        Names out of `METHODS`; all by default.
    embedder, model
        As for :class:`riemem.Memory` and :class:`riemem.Distiller`.
    limit : int, optional
        Most questions per conversation, evenly spaced; None: all.
    likelihood : int
        Questions, the first that are asked, for which the local model is asked about the answer.
    sentences : int
        Contexts, of the first questions, for which each sentence is left out in turn.
    cache : path, optional
        Folder that keeps vectors and all that the model said for the next run.
    cached_only : bool
        Ask only questions of which the cache holds every sensitivity: a paired comparison on a
        sample where computing the rest would take too long. Only methods that read turn by turn.
    seconds : float, optional
        Ask no further question once so much time has passed.
    save : path, optional
        JSON file for the report so far, written after every question.
    progress : callable, optional
        ``progress(done, total)``; returning False cancels.

    Notes
    -----
    Conversations take turns, and in each the order of the questions is such that every beginning
    is spread over it. So a run that ends early is a smaller sample and not another one; the
    report says of how many questions each figure is.

    Raises
    ------
    InputFileError, ArgumentError
        The file or an argument cannot be used.
    CancelledError
        `progress` returned False.
    ModelNotFoundError
        A model is not on this machine.
    """
    chosen = _chosen_methods(methods)
    for budget in budgets:
        if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
            raise ArgumentError(f"budgets: expected ints >= 1, got {budget!r}")
    for share in ratios:
        if not 0.0 < share < 1.0:
            raise ArgumentError(f"ratios: expected shares between 0 and 1, got {share!r}")
    benchmark = load_locomo(path)
    answers = _answers(path)
    count, label = token_counter()
    language = load_language_model(model)
    store = ModelCache(cache)
    encoder = load_embedder(embedder)
    known = KnownVectors(encoder, embed_benchmark(encoder, benchmark, cache=cache))
    asked = _in_turn(
        [
            _ask(conversation, answers[number], known, limit)
            for number, conversation in enumerate(benchmark.conversations)
        ]
    )
    if cached_only:
        asked = [
            item for item in asked if _is_cached(item, budgets, chosen, language, count, store)
        ]
        if not asked:
            raise ArgumentError("cached_only: the cache holds all sensitivities of no question")
    settings: list[tuple[str, int, float | None]] = [(str(b), b, None) for b in budgets]
    settings += [(f"{r:.0%} of {_RATIO_CONTEXT}", 0, r) for r in ratios]
    total = len(asked) * len(settings) * len(chosen)
    report = CompressionReport(
        {
            "file": benchmark.file,
            "sha256": benchmark.sha256,
            "questions": 0,
            "sample": f"{'all' if limit is None else f'at most {limit}'} per conversation"
            + (", those with cached sensitivities" if cached_only else ""),
            "of": len(asked),
            "tokens by": label,
            "language model": language.identity,
        }
    )
    began = time.monotonic()
    done = 0
    for place, item in enumerate(asked):
        if place and seconds is not None and time.monotonic() - began > seconds:
            break
        for name, budget, ratio in settings:
            same: dict[str, tuple[dict[str, float], str]] = {}  # a ratio reads one context
            for method, options, times in chosen:
                key = f"{options} {times if ratio is None else ''}"
                if key not in same:
                    same[key] = _one(item, budget, ratio, times, options, language, count, store)
                kept, made = dict(same[key][0]), same[key][1]
                if place < likelihood:
                    full = _context(item, _RATIO_CONTEXT, count).text
                    kept |= store.answer(language, full, made, item.question, item.answer)
                report.add(name, method, item.conversation, kept)
                done += 1
                if progress is not None and progress(done, total) is False:
                    store.save()
                    raise CancelledError("progress returned False; nothing was reported")
        if place < sentences:
            report.add_sentences(_leave_one_out(item, language, count, store))
        store.save()
        report.data["questions"] = place + 1
        if save is not None:
            report.finish([str(budget) for budget in budgets])
            Path(save).write_text(json.dumps(report.to_dict()), encoding="utf-8")
    report.finish([str(budget) for budget in budgets])
    return report


def _in_turn(conversations: Sequence[Sequence[_Asked]]) -> list[_Asked]:
    """Return the questions, one of each conversation at a time, every beginning spread out."""
    ordered = [[found[place] for place in _spreading(len(found))] for found in conversations]
    longest = max((len(found) for found in ordered), default=0)
    return [found[turn] for turn in range(longest) for found in ordered if turn < len(found)]


def _spreading(size: int) -> list[int]:
    """Return 0 to size - 1 by the number that their binary digits give from behind.

    Examples
    --------
    >>> _spreading(8)
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    digits = max(size - 1, 1).bit_length()
    return sorted(range(size), key=lambda place: int(f"{place:0{digits}b}"[::-1], 2))


def _chosen_methods(
    names: Sequence[str] | None,
) -> list[tuple[str, dict[str, Any], float]]:
    known = {name: entry for entry in METHODS for name in (entry[0],)}
    if names is None:
        return list(METHODS)
    for name in names:
        if name not in known:
            raise ArgumentError(f"methods: expected some of {', '.join(known)}, got {name!r}")
    return [known[name] for name in names]


def _answers(path: str | os.PathLike[str]) -> list[list[str]]:
    """Return the gold answers in the order of the file; the loader has checked its form."""
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    return [[str(qa.get("answer", "")) for qa in item["qa"]] for item in data]


def _ask(
    conversation: Conversation, answers: Sequence[str], embedder: Any, limit: int | None
) -> list[_Asked]:
    questions = [q for q in conversation.answerable if q.category in _CATEGORIES]
    if limit is not None:
        questions = [questions[place] for place in spread(len(questions), limit)]
    result = []
    with remember(conversation, embedder) as memory:
        for question in questions:
            evidence = " ".join(conversation.turns[row].text for row in question.gold)
            held = frozenset(_WORD.findall(evidence.lower()))
            answer = answers[question.index]
            words = {w for w in _WORD.findall(answer.lower()) if w not in FUNCTION_WORDS}
            result.append(
                _Asked(
                    conversation.name,
                    question.text,
                    answer,
                    frozenset(words & held),
                    frozenset(w for w in held if w not in FUNCTION_WORDS),
                    tuple(memory.search(question.text, k=150)),
                )
            )
    return result


def _is_cached(
    item: _Asked,
    budgets: Sequence[int],
    chosen: Sequence[tuple[str, dict[str, Any], float]],
    language: LanguageModel,
    count: Callable[[str], int],
    cache: SensitivityCache,
) -> bool:
    """Return whether the methods that read turn by turn need no pass for this question."""
    for _, changes, times in chosen:
        named = {key: value for key, value in changes.items() if key != "preset"}
        base = presets[changes.get("preset", "default")][0]
        if replace(base, **named).score not in ("sensitivity", "self_information"):
            continue
        for budget in budgets:
            packed = _context(item, round(budget * times), count)
            keys = [(t.id, cache_key(language, f"{t.speaker}: {t.text}")) for t in packed.turns]
            if packed.tokens > budget and any(cache.get(*key) is None for key in keys):
                return False
    return True


def _context(item: _Asked, size: int, count: Callable[[str], int]) -> Packing:
    return pack_turns(item.hits, token_budget=size, count_tokens=count)


def _one(
    item: _Asked,
    budget: int,
    ratio: float | None,
    times: float,
    options: Mapping[str, Any],
    language: LanguageModel,
    count: Callable[[str], int],
    cache: SensitivityCache,
) -> tuple[dict[str, float], str]:
    """Return the measures of one method on one question, and its text."""
    size = _RATIO_CONTEXT if ratio is not None else round(budget * times)
    packed = _context(item, size, count)
    limit = budget if ratio is None else int(packed.tokens * ratio)
    began = time.perf_counter()
    distiller = Distiller(
        language, count_tokens=count, cache=cache, **{**options, "oversample": 1e6}
    )
    try:
        made: Distillation | None = distiller.distill(
            packed.turns, token_budget=limit, query=item.question
        )
    except BudgetTooSmallError:
        made = None
    seconds = time.perf_counter() - began
    text = made.text if made is not None else ""
    measures = _measures(item, text, made)
    measures["tokens"] = float(count(text))
    measures["over"] = max(measures["tokens"] - limit, 0.0)
    measures["seconds"] = seconds
    return measures, text


def _measures(item: _Asked, text: str, made: Distillation | None) -> dict[str, float]:
    said = " ".join(turn.text for turn in parse(text)) if text else ""
    have = frozenset(_WORD.findall(said.lower()))
    nan = float("nan")
    answer, evidence = item.answer_words, item.evidence_words
    result = {
        "answer_words": len(answer & have) / len(answer) if answer else nan,
        "all_answer_words": float(answer <= have) if answer else nan,
        "evidence_words": len(evidence & have) / len(evidence) if evidence else nan,
    }
    for name in ("numbers", "dates", "names", "negations"):
        kept, of = made.report.kept_kinds[name] if made is not None else (0, 0)
        result[name] = kept / of if of else nan
    by_id = {hit.id: (hit.text, hit.speaker) for hit in item.hits}
    result["speakers"] = nan if made is None else speaker_attribution(text, made.spans, by_id)
    return result


def _leave_one_out(
    item: _Asked,
    language: LanguageModel,
    count: Callable[[str], int],
    cache: ModelCache,
) -> float | None:
    """Return the rank correlation of sentences' sensitivity with what their loss does."""
    packed = _context(item, BUDGETS[0], count)
    document, scores = Distiller(
        language, count_tokens=count, cache=cache, score="sensitivity", decay="none"
    ).sensitivities(packed.turns)
    whole = document.whole()
    truth, guess = [], []
    for sentence in np.unique(document.sentence_of):
        inside = document.sentence_of == sentence
        words = [core(document.word(int(u))) for u in np.flatnonzero(inside)]
        if not any(words):
            continue
        without = cache.answer(
            language, whole, document.render(~inside), item.question, item.answer
        )
        truth.append(without["delta_nll"])
        guess.append(float(scores[inside].mean()))
    return spearman(np.array(guess), np.array(truth)) if len(truth) > 2 else None

"""How much of what answers a question survives distillation into a token budget.

Contexts come from the memory's own search. For each question and budget the same retrieved turns
are cut by every method to the same final size: whole turns by rank, truncation, chance,
self-information, and sensitivity with the options of each preset. What is compared is in the text:
words of the gold answer that the evidence turns hold, words of the evidence turns, numbers, dates,
names and negations; and, on a sample, what the local language model makes of it.
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
from .compression_report import CompressionReport
from .hybrid import KnownVectors, remember
from .likelihood import AnswerPrediction, divergence, predict_answer, spearman
from .locomo import Conversation, load_locomo
from .metrics import paired_bootstrap, spread
from .retrieval import embed_benchmark

__all__ = ["BUDGETS", "METHODS", "RATIOS", "CompressionReport", "run_compression"]

BUDGETS = (250, 500, 1000)
RATIOS = (0.25, 0.5, 0.75)
_RATIO_CONTEXT = 1000
_CATEGORIES = (1, 4)
_SAVED_EVERY = 100  # sensitivities
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


class _FileCache:
    """Sensitivities in memory, and in a file between runs."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._known: dict[str, bytes] = {}
        self._fresh = 0
        self._path = None if folder is None else Path(folder) / "sensitivities.json"
        if self._path is not None and self._path.exists():
            stored = json.loads(self._path.read_text(encoding="utf-8"))
            self._known = {key: bytes.fromhex(value) for key, value in stored.items()}

    def get(self, memory_id: int, key: str) -> bytes | None:
        return self._known.get(key)

    def put(self, memory_id: int, key: str, value: bytes) -> None:
        self._known[key] = value
        self._fresh += 1
        if self._fresh % _SAVED_EVERY == 0:
            self.save()

    def save(self) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({key: value.hex() for key, value in self._known.items()})
            self._path.write_text(text, encoding="utf-8")


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
        Questions, evenly spaced, for which the local model is asked about the answer.
    sentences : int
        Contexts, evenly spaced, for which each sentence is left out in turn.
    cache : path, optional
        Folder that keeps sensitivities and vectors for the next run.
    cached_only : bool
        Ask only questions of which the cache holds every sensitivity: a paired comparison on a
        sample where computing the rest would take too long. Only methods that read turn by turn.
    progress : callable, optional
        ``progress(done, total)``; returning False cancels.

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
    store = _FileCache(cache)
    encoder = load_embedder(embedder)
    known = KnownVectors(encoder, embed_benchmark(encoder, benchmark, cache=cache))
    asked: list[_Asked] = []
    for number, conversation in enumerate(benchmark.conversations):
        asked += _ask(conversation, answers[number], known, limit)
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
            "questions": len(asked),
            "sample": f"{'all' if limit is None else f'at most {limit}'} per conversation"
            + (", those with cached sensitivities" if cached_only else ""),
            "tokens by": label,
            "language model": language.identity,
        }
    )
    done = 0
    predicted = set(spread(len(asked), likelihood))
    for name, budget, ratio in settings:
        runs: dict[str, list[dict[str, float]]] = {method: [] for method, _, _ in chosen}
        for place, item in enumerate(asked):
            full: AnswerPrediction | None = None
            for method, options, times in chosen:
                kept, made = _one(item, budget, ratio, times, options, language, count, store)
                if place in predicted:
                    if full is None:
                        text = _context(item, _RATIO_CONTEXT, count).text
                        full = predict_answer(language, text, item.question, item.answer)
                    found = predict_answer(language, made, item.question, item.answer)
                    kept["nll"] = found.nll
                    kept["delta_nll"] = found.nll - full.nll
                    kept["kl"] = divergence(full, found)
                runs[method].append(kept)
                done += 1
                if progress is not None and progress(done, total) is False:
                    raise CancelledError("progress returned False; nothing was reported")
        _add_rows(report, name, runs, asked)
        store.save()
    report.choose([str(budget) for budget in budgets])
    if sentences:
        some = [asked[place] for place in spread(len(asked), sentences)]
        report.sentences = _leave_one_out(some, language, count, store)
    return report


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
    return result


def _add_rows(
    report: CompressionReport,
    budget: str,
    runs: Mapping[str, list[dict[str, float]]],
    asked: Sequence[_Asked],
) -> None:
    base = "turns" if "turns" in runs else next(iter(runs))
    report.data["compared with"] = base
    reference = np.array([run["answer_words"] for run in runs[base]])
    for method, results in runs.items():
        row: dict[str, Any] = {"budget": budget, "method": method, "n": len(results)}
        for name in results[0]:
            values = np.array([run[name] for run in results if name in run])
            values = values[np.isfinite(values)]
            row[name] = float(values.mean()) if values.size else float("nan")
        row["over"] = int(max(run["over"] for run in results))
        mine = np.array([run["answer_words"] for run in results])
        difference = (mine - reference)[np.isfinite(mine - reference)]
        row["difference"] = (
            paired_bootstrap(difference)
            if difference.size
            else {"mean": float("nan"), "low": float("nan"), "high": float("nan")}
        )
        report.rows.append(row)
        for name in dict.fromkeys(item.conversation for item in asked):
            own = np.array([v for v, item in zip(mine, asked, strict=True)
                            if item.conversation == name and np.isfinite(v)])  # fmt: skip
            report.conversations.append(
                {
                    "budget": budget,
                    "method": method,
                    "conversation": name,
                    "answer_words": float(own.mean()) if own.size else float("nan"),
                }
            )


def _leave_one_out(
    asked: Sequence[_Asked],
    language: LanguageModel,
    count: Callable[[str], int],
    cache: SensitivityCache,
) -> dict[str, Any]:
    """Compare each sentence's mean sensitivity with what its loss costs the answer."""
    correlations = []
    for item in asked:
        packed = _context(item, BUDGETS[0], count)
        document, scores = Distiller(
            language, count_tokens=count, cache=cache, score="sensitivity", decay="none"
        ).sensitivities(packed.turns)
        full = predict_answer(language, document.whole(), item.question, item.answer)
        truth, guess = [], []
        for sentence in np.unique(document.sentence_of):
            inside = document.sentence_of == sentence
            words = [core(document.word(int(u))) for u in np.flatnonzero(inside)]
            if not any(words):
                continue
            without = predict_answer(language, document.render(~inside), item.question, item.answer)
            truth.append(without.nll - full.nll)
            guess.append(float(scores[inside].mean()))
        if len(truth) > 2:
            correlations.append(spearman(np.array(guess), np.array(truth)))
    return {
        "contexts": len(correlations),
        "spearman of sentence sensitivity with the rise of the answer's NLL": (
            round(float(np.mean(correlations)), 3) if correlations else float("nan")
        ),
    }

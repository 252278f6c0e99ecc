"""Where the scores of units come from; everything after them is the same for all."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from riemem._tokenizer import require
from riemem.errors import BackendUnavailableError, ModelNotFoundError
from riemem.vram import VramBudget

from .document import Document, Piece
from .fisher import TokenScores, token_scores
from .kernels import pool_tokens, smooth
from .language_model import LanguageModel
from .protect import core
from .words import FUNCTION_WORDS

__all__ = ["SensitivityCache", "UnitScores", "estimated_costs", "language_model_scores"]

_Floats = NDArray[np.float64]
_NO_MEMORY = -1  # a pass over several turns belongs to none of them


class SensitivityCache(Protocol):
    """Where sensitivities of single texts are kept between calls, such as a store.

    One with an attribute ``keeps_questions`` that is true is also given, under the id -1, the
    passes over all turns together: those of a question, which a store would keep for nothing.
    """

    def get(self, memory_id: int, key: str) -> bytes | None:
        """Return what was kept for the memory under `key`."""

    def put(self, memory_id: int, key: str, value: bytes) -> None:
        """Keep `value`; it belongs to the memory and goes with it."""


@dataclass(frozen=True)
class UnitScores:
    """Score and cost in tokens of every unit, and how many passes of the model they took."""

    scores: _Floats
    costs: _Floats
    windows: int = 0
    cached: int = 0
    estimated_bytes: int = 0

    def with_scores(self, scores: _Floats) -> UnitScores:
        """Return the same with other scores."""
        return replace(self, scores=scores)


def rendered(piece: Piece) -> tuple[str, int]:
    """Return what the language model reads of a piece, and where its text begins in that.

    Examples
    --------
    >>> rendered(Piece(1, "I moved", speaker="Maya"))
    ('Maya: I moved', 6)
    """
    if piece.speaker is None:
        return piece.text, 0
    return f"{piece.speaker}: {piece.text}", len(piece.speaker) + 2


def cache_key(model: LanguageModel, text: str, question: str | None = None) -> str:
    """Return the key of a text's sensitivities under condition "none", or "question".

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> len(cache_key(SimpleNamespace(identity="m"), "text"))
    64
    """
    what = "none" if question is None else f"question {len(question)} {question}"
    return hashlib.sha256(f"{what}\n{model.identity}\n{text}".encode()).hexdigest()


def pack(scores: TokenScores) -> bytes:
    """Return token scores as bytes: number of tokens, ends, sensitivity, surprisal."""
    n = np.array([len(scores.sensitivity)], "<i4").tobytes()
    return b"".join(
        (
            n,
            scores.offsets.astype("<i4").tobytes(),
            scores.sensitivity.astype("<f8").tobytes(),
            scores.surprisal.astype("<f8").tobytes(),
        )
    )


def unpack(blob: bytes) -> TokenScores | None:
    """Return what `pack` was given, or None when the bytes are not of its making."""
    if len(blob) < 4:
        return None
    n = int(np.frombuffer(blob, "<i4", 1)[0])
    if len(blob) != 4 + n * 24:
        return None
    offsets = np.frombuffer(blob, "<i4", 2 * n, 4).reshape(n, 2).astype(np.int64)
    values = np.frombuffer(blob, "<f8", 2 * n, 4 + 8 * n)
    return TokenScores(offsets, values[:n].copy(), values[n:].copy(), 0)


def estimated_costs(document: Document) -> _Floats:
    """Return rough costs for scores that come without tokens: four bytes to a token.

    Examples
    --------
    >>> from riemem.distill.document import read
    >>> from riemem.distill.protect import Protection
    >>> estimated_costs(read("a considerable cost", Protection())).tolist()
    [1.0, 3.0, 1.0]
    """
    return np.array(
        [
            max(1, len(document.word(u).encode("utf-8", "replace")) // 4)
            for u in range(len(document.units))
        ],
        np.float64,
    )


def word_scores(document: Document, count: Callable[[str], int]) -> UnitScores:
    """Return the score 1 for every unit, and what each costs by the caller's counter.

    Examples
    --------
    >>> from riemem.distill.document import read
    >>> from riemem.distill.protect import Protection
    >>> found = word_scores(read("a considerable cost", Protection()), len)
    >>> found.scores.tolist(), found.costs.tolist()
    ([1.0, 1.0, 1.0], [2.0, 13.0, 5.0])
    """
    words = [document.word(unit) for unit in range(len(document.units))]
    known = {word: max(count(f" {word}"), 1) for word in dict.fromkeys(words)}
    return UnitScores(np.ones(len(words)), np.array([known[word] for word in words], np.float64))


def default_score(document: Document, load: Callable[[], object]) -> str:
    """Return the score that "auto" stands for, where nothing else asks for the model.

    Parameters
    ----------
    document : Document
        Turns that came with scores are read without a model: beside relevance its part is not
        measurable (docs/distillation.md).
    load : callable
        Gives the model, or raises that it is not here; one that is damaged raises.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> found = SimpleNamespace(plain=False, pieces=[Piece(1, "I moved", score=0.5)])
    >>> default_score(found, lambda: None)
    'words'
    """
    if not document.plain and all(piece.score is not None for piece in document.pieces):
        return "words"
    try:
        require("torch", "transformers", "safetensors")
        load()
    except (BackendUnavailableError, ModelNotFoundError):
        return "words"
    return "sensitivity"


def random_scores(document: Document, seed: int) -> UnitScores:
    """Return scores that depend on the seed and the unit's number alone."""
    values = np.random.default_rng(seed).random(len(document.units))
    return UnitScores(values, estimated_costs(document))


def order_scores(document: Document) -> UnitScores:
    """Return scores that fall from the first unit to the last: what truncation keeps."""
    size = len(document.units)
    return UnitScores(np.arange(size, 0, -1, dtype=np.float64), np.ones(size))


def recency(document: Document) -> _Floats:
    """Return per unit how late its line or turn stands: 0 for the first, 1 for the last."""
    owner = document.line_of if document.plain else document.piece_of
    return owner / max(int(owner[-1]), 1)


def relevance(document: Document, query: str | None) -> _Floats:
    """Return per unit how relevant its piece is: 1 for the best down to 0 for the last.

    By the scores the pieces came with; without scores, by the words they share with the query,
    rarer ones counting more; without a query, 1 for all.
    """
    if not document.units:
        return np.zeros(0)
    given = [piece.score for piece in document.pieces]
    if not document.plain and all(score is not None for score in given) and len(given) > 1:
        owner, strength = document.piece_of, [float(s) for s in given if s is not None]
    elif query:
        owner = document.line_of if document.plain else document.piece_of
        strength = _overlap(document, owner, query)
    else:
        return np.ones(len(document.units))
    order = sorted(range(len(strength)), key=lambda i: (-strength[i], i))
    value = np.ones(len(strength))
    for place, number in enumerate(order):
        value[number] = 1.0 - place / max(len(strength) - 1, 1)
    return value[owner]


def _overlap(document: Document, owner: NDArray[np.int64], query: str) -> list[float]:
    asked = query_words(query)
    blocks = int(owner[-1]) + 1
    words: list[set[str]] = [set() for _ in range(blocks)]
    for unit, block in enumerate(owner.tolist()):
        words[block].add(core(document.word(unit)))
    result = [0.0] * blocks
    for word in sorted(asked):
        holders = [b for b in range(blocks) if word in words[b]]
        weight = math.log(1.0 + blocks / (1.0 + len(holders)))
        for block in holders:
            result[block] += weight
    return result


def query_words(query: str) -> frozenset[str]:
    """Return the content words of a question.

    Examples
    --------
    >>> sorted(query_words("What is Dave's hobby?"))
    ["dave's", 'hobby']
    """
    found = {core(word) for word in re.split(r"\s+", query)}
    return frozenset(word for word in found if word and word not in FUNCTION_WORDS)


def language_model_scores(
    document: Document,
    model: LanguageModel,
    *,
    condition: str,
    query: str | None,
    context: str,
    what: str,
    pool: str,
    width: int,
    vram: VramBudget | None,
    cache: SensitivityCache | None,
) -> UnitScores:
    """Return the units' scores from one pass of a language model (two for "both").

    Parameters
    ----------
    condition : {"none", "question", "both"}
        Whose loss; "both" multiplies the two.
    context : {"turn", "document"}
        Each piece alone, which can be kept for other calls, or all of them as one text.
    what : {"sensitivity", "surprisal"}
        Which of the pass's results.
    pool : {"mean", "sum", "max"}
        From tokens to units.
    width : int
        Tokens that are averaged before; 0 or 1 for none.
    """
    parts: list[_Floats] = []
    windows = hits = 0
    estimate = 0
    costs = np.zeros(len(document.units))
    if condition in ("none", "both") or what == "surprisal":
        scores, costs, windows, hits, estimate = _passes(
            document, model, None, context, what, pool, width, vram, cache
        )
        parts.append(scores)
    if condition in ("question", "both") and query and what == "sensitivity":
        scores, costs, more, _, other = _passes(
            document, model, query, "document", what, pool, width, vram, cache
        )
        parts.append(scores)
        windows += more
        estimate = max(estimate, other)
    if len(parts) == 1:
        return UnitScores(parts[0], costs, windows, hits, estimate)
    return UnitScores(_standardised_product(parts), costs, windows, hits, estimate)


def _standardised_product(parts: list[_Floats]) -> _Floats:
    """Return exp of the mean of the standardised logarithms."""
    total = np.zeros_like(parts[0])
    for scores in parts:
        logs = np.log(np.maximum(scores, 1e-12))
        total += (logs - logs.mean()) / max(float(logs.std()), 1e-12)
    return np.exp(total / len(parts))


def _passes(
    document: Document,
    model: LanguageModel,
    question: str | None,
    context: str,
    what: str,
    pool: str,
    width: int,
    vram: VramBudget | None,
    cache: SensitivityCache | None,
) -> tuple[_Floats, _Floats, int, int, int]:
    size = len(document.units)
    lines = [rendered(piece) for piece in document.pieces]
    ends = [
        np.array([u.end for u in document.units[a:b]], np.int64)
        for a, b in zip(document.first_unit, document.first_unit[1:], strict=False)
    ]
    values, owners = [], []
    windows = hits = estimate = 0
    if context == "document":
        text = "\n".join(line for line, _ in lines)
        keep = cache if getattr(cache, "keeps_questions", False) else None
        found, fresh = _one_text(model, text, _NO_MEMORY, question, vram, keep)
        windows, estimate, hits = found.windows, found.estimated_bytes, int(not fresh)
        owner = np.full(len(found.sensitivity), -1, np.int64)
        at = 0
        for number, (line, shift) in enumerate(lines):
            _assign(owner, found.offsets, at + shift, at + len(line), ends[number],
                    document.first_unit[number])  # fmt: skip
            at += len(line) + 1
        values.append(smooth(getattr(found, what), width))
        owners.append(owner)
    else:
        for number, (line, shift) in enumerate(lines):
            if not ends[number].size:
                continue
            found, fresh = _one_text(model, line, document.pieces[number].id, None, vram, cache)
            windows += found.windows
            estimate = max(estimate, found.estimated_bytes)
            hits += not fresh
            owner = np.full(len(found.sensitivity), -1, np.int64)
            _assign(owner, found.offsets, shift, len(line), ends[number],
                    document.first_unit[number])  # fmt: skip
            values.append(smooth(getattr(found, what), width))
            owners.append(owner)
    if not values:
        return np.zeros(size), np.ones(size), windows, hits, estimate
    value, owner = np.concatenate(values), np.concatenate(owners)
    costs = np.bincount(owner[owner >= 0], minlength=size)[:size].astype(np.float64)
    pooled = pool_tokens(value, owner, size, pool)
    return pooled, np.maximum(costs, 1.0), windows, hits, estimate


def _one_text(
    model: LanguageModel,
    text: str,
    memory_id: int,
    question: str | None,
    vram: VramBudget | None,
    cache: SensitivityCache | None,
) -> tuple[TokenScores, bool]:
    """Return the scores of a text, and whether a pass was needed for them."""
    key = "" if cache is None else cache_key(model, text, question)
    blob = None if cache is None else cache.get(memory_id, key)
    found = None if blob is None else unpack(blob)
    if found is not None:
        return found, False
    found = token_scores(model, text, question=question, vram=vram)
    if cache is not None:
        cache.put(memory_id, key, pack(found))
    return found, True


def _assign(
    owner: NDArray[np.int64],
    offsets: NDArray[np.int64],
    start: int,
    end: int,
    ends: NDArray[np.int64],
    first: int,
) -> None:
    """Give every token that ends within a piece to the unit in which its last character lies."""
    last = offsets[:, 1]
    inside = np.flatnonzero((last > start) & (last <= end) & (offsets[:, 1] > offsets[:, 0]))
    unit = np.searchsorted(ends, last[inside] - start, side="left")
    valid = unit < ends.size
    owner[inside[valid]] = unit[valid] + first

"""Fisher-guided discrete token distillation: a text or turns inside a hard token budget."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from riemem._tokenizer import encodable
from riemem.errors import ArgumentError, BudgetTooSmallError
from riemem.models import token_counter
from riemem.packing import check_budget, checked_counter
from riemem.vram import VramBudget

from .document import Document, Piece, read, refuse_blanks
from .fisher import WINDOW
from .given import listed, slices_of
from .headers import opening_costs
from .language_model import LanguageModel, load_language_model
from .options import Options, presets
from .protect import Protection, core
from .result import Distillation, make_distillation
from .scores import (
    SensitivityCache,
    UnitScores,
    default_score,
    language_model_scores,
    order_scores,
    query_words,
    random_scores,
    recency,
    relevance,
    word_scores,
)
from .select import (
    Selection,
    hierarchical_steps,
    select,
    token_steps,
    turn_steps,
    untouchable_units,
)

__all__ = ["Distiller", "distill"]


class Distiller:
    """Makes texts fit, keeping whole words by what they are worth.

    Parameters
    ----------
    model : str, path or LanguageModel, optional
        A known name, a folder or a Hugging Face id on this machine; None: SmolLM2-135M. Loaded at
        the first use, and shared with other distillers.
    preset : str
        Where the options begin; see `riemem.distill.presets`.
    protect : Protection, optional
        What must not be lost; None: the preset's.
    vram : VramBudget, optional
        Holds the model's passes inside a memory budget.
    count_tokens : callable, optional
        ``str -> int`` for the budget; None: the tokenizer of SmolLM2.
    cache : SensitivityCache, optional
        Keeps sensitivities of single turns (condition "none").
    dtype : str
        Of the model: "auto", "float32", "bfloat16" or "float16".
    **options
        Fields of :class:`riemem.distill.Options`: mode, score, condition, ...

    Raises
    ------
    ArgumentError
        An unknown preset or option, or a value that cannot be used.

    Notes
    -----
    Thread-safe: the model is used by one thread at a time.

    Examples
    --------
    >>> shorter = Distiller(score="truncate", count_tokens=lambda text: len(text.split()))
    >>> shorter.distill("one two three four", token_budget=2).text
    'one two'
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | LanguageModel | None = None,
        *,
        preset: str = "default",
        protect: Protection | None = None,
        vram: VramBudget | None = None,
        count_tokens: Callable[[str], int] | None = None,
        cache: SensitivityCache | None = None,
        dtype: str = "auto",
        **options: Any,
    ) -> None:
        if preset not in presets:
            raise ArgumentError(f"preset: expected one of {', '.join(presets)}, got {preset!r}")
        base, protection = presets[preset]
        unknown = sorted(set(options) - set(asdict(base)))
        if unknown:
            raise ArgumentError(
                f"{unknown[0]}: not an option of Distiller; there are {', '.join(asdict(base))}"
            )
        if protect is not None and not isinstance(protect, Protection):
            raise ArgumentError(f"protect: expected a Protection, got {type(protect).__name__}")
        if vram is not None and not isinstance(vram, VramBudget):
            raise ArgumentError(f"vram: expected a VramBudget, got {type(vram).__name__}")
        self.options = Options(**{**asdict(base), **options})
        self.protect = protection if protect is None else protect
        self.vram = vram
        self.cache = cache
        self._model_spec = model
        self._dtype = dtype
        self._model: LanguageModel | None = model if isinstance(model, LanguageModel) else None
        self._count = None if count_tokens is None else checked_counter(count_tokens)

    def __repr__(self) -> str:
        return f"Distiller(mode={self.options.mode!r}, score={self.options.score!r})"

    @property
    def model(self) -> LanguageModel:
        """The language model; its weights are read at its first pass."""
        if self._model is None:
            device = None if self.vram is None else self.vram.device
            model = load_language_model(self._model_spec, dtype=self._dtype, device=device)
            if self.vram is not None and self._dtype == "auto" and not model.loaded:
                others = [d for d in ("float32", "bfloat16") if d != model.dtype]
                plan = self.vram.choose(model.spec, tokens=WINDOW, dtypes=(model.dtype, *others))
                model = load_language_model(self._model_spec, dtype=plan.dtype, device=device)
            self._model = model
        return self._model

    def distill(
        self,
        text_or_turns: object,
        *,
        token_budget: int,
        query: str | None = None,
        keep: Iterable[Sequence[int]] = (),
        count_tokens: Callable[[str], int] | None = None,
        cache: SensitivityCache | None = None,
    ) -> Distillation:
        """Return the text that keeps most inside the budget.

        Parameters
        ----------
        text_or_turns : str or sequence
            A text; or turns: strings, mappings or objects with ``text`` and, where known,
            ``id``, ``speaker``, ``session``, ``when`` (ISO 8601, or a day), ``score``. Turns are
            written as :mod:`riemem.packing` writes them: dates once per session, in time order.
        token_budget : int
            Most tokens of the result, names and dates included.
        query : str, optional
            The question that the text is to answer.
        keep : iterable
            Untouchable slices: ``(start, end)`` of a text, ``(id, start, end)`` of turns.
        count_tokens, cache
            For this call; None: the distiller's own.

        Raises
        ------
        ArgumentError
            A negative budget, a slice outside its text, two turns with one id, a ``when`` that
            is no date.
        BudgetTooSmallError
            Nothing of the text fits, or the untouchable slices do not.
        DTypeError, TextError
            Input of the wrong type, or text that is not Unicode.
        ModelNotFoundError, ModelCorruptError
            The language model cannot be had.
        NotFiniteError
            The model gave NaN, and the message names the window; or a turn's score is no number.
        VramBudgetError
            The pass does not fit into the memory budget.
        """
        budget = check_budget(token_budget)
        count, label = self._counter(count_tokens)
        if query is not None:
            if not isinstance(query, str):
                raise ArgumentError(f"query: expected a str or None, got {type(query).__name__}")
            encodable(query, "query")
        source = text_or_turns if isinstance(text_or_turns, str) else listed(text_or_turns)
        slices = slices_of(keep, plain=isinstance(source, str))
        document = read(source, self.protect, keep=slices)
        slices = tuple(entry for entry in slices if entry[1] < entry[2])
        whole = document.whole()
        original = count(whole)
        if original > budget:
            refuse_blanks(document, slices)
        if original <= budget or not document.units:
            fits = original <= budget
            kept = np.full(len(document.units), fits, np.bool_)
            text = whole if fits else ""  # white space alone: there is nothing to choose from
            chosen = Selection(kept, text, original if fits else count(""), 1)
            return make_distillation(
                document, chosen, original=original, label=label, options=self.options,
                complete=fits,
            )  # fmt: skip
        if budget == 0:
            raise BudgetTooSmallError("token_budget: 0 tokens hold nothing of the text")
        if self.options.score == "auto":
            made = self._with_score(self._decided(document))
            return made.distill(source, token_budget=budget, query=query, keep=slices,
                                count_tokens=count_tokens, cache=cache)  # fmt: skip
        left_out = self._left_out(document, budget, count)
        if left_out:
            ids = {piece.id for piece in left_out}
            source = [piece for piece in document.pieces if piece.id not in ids]
            document = read(source, self.protect, keep=slices)
        store = self.cache if cache is None else cache
        try:
            chosen, found = self._within(document, query, budget, count, store)
        except BudgetTooSmallError:
            # A word of two Chinese characters may be too much where one is not.
            if all(document.word(unit).isascii() for unit in range(len(document.units))):
                raise
            document = read(source, self.protect, keep=slices, run=1)
            chosen, found = self._within(document, query, budget, count, store)
        return make_distillation(
            document, chosen, original=original, label=label, options=self.options, found=found,
            model=self.model.identity if self._uses_model else "", left_out=left_out,
        )  # fmt: skip

    def sensitivities(
        self, text_or_turns: object, query: str | None = None
    ) -> tuple[Document, NDArray[np.float64]]:
        """Return the units of a text and the score of each, with multipliers and decay.

        Parameters
        ----------
        text_or_turns, query
            As for :meth:`distill`. The score "auto" is "sensitivity" here.
        """
        made = self if self.options.score != "auto" else self._with_score("sensitivity")
        document = read(text_or_turns, self.protect)
        count, _ = made._counter(None)
        return document, made._unit_scores(document, query, made.cache, count).scores

    def _decided(self, document: Document) -> str:
        """Return what the score "auto" is for a document."""
        given = self._model_spec is not None or self.vram is not None
        if given or self.options.condition != "none":
            return "sensitivity"
        return default_score(document, lambda: self.model)

    def _with_score(self, score: str) -> Distiller:
        made = copy.copy(self)
        made.options = replace(self.options, score=score)
        return made

    @property
    def _uses_model(self) -> bool:
        return self.options.score in ("sensitivity", "self_information")

    def _counter(
        self, count_tokens: Callable[[str], int] | None
    ) -> tuple[Callable[[str], int], str]:
        if count_tokens is not None:
            return checked_counter(count_tokens), "caller"
        if self._count is not None:
            return self._count, "caller"
        return token_counter()

    def _left_out(
        self, document: Document, budget: int, count: Callable[[str], int]
    ) -> list[Piece]:
        """Return the turns beyond `oversample` times the budget, those that scored least.

        None of them holds anything that is to be kept in any case.
        """
        pieces = document.pieces
        if document.plain or self.options.score == "turns" or len(pieces) < 2:
            return []
        if any(piece.score is None for piece in pieces):
            return []
        ranked = sorted(pieces, key=lambda piece: (-float(piece.score or 0.0), piece.id))
        limit = self.options.oversample * budget
        low, high = 1, len(ranked) + 1
        while high - low > 1:
            middle = (low + high) // 2
            chosen = sorted(ranked[:middle], key=lambda piece: piece.key)
            if count(Document(chosen, False).whole()) <= limit:
                low = middle
            else:
                high = middle
        always = (document.kinds & self.protect.binding("always")) != 0
        needed = set(document.piece_of[document.untouchable | always].tolist())
        ids = {pieces[number].id for number in needed}
        return [piece for piece in ranked[low:] if piece.id not in ids]

    def _within(
        self,
        document: Document,
        query: str | None,
        budget: int,
        count: Callable[[str], int],
        cache: SensitivityCache | None,
    ) -> tuple[Selection, UnitScores]:
        found = self._unit_scores(document, query, cache, count)
        options = self.options
        if options.score == "turns":
            steps = turn_steps(document, self.protect, found.scores)
        elif options.mode == "hierarchical":
            steps = hierarchical_steps(
                document, self.protect, found.scores, middle_keep=options.middle_keep
            )
        else:
            plain = options.score == "truncate"  # in the order of the text, whatever it costs
            steps = token_steps(
                document,
                self.protect,
                found.scores,
                found.costs,
                opening_costs(document, count, headers=options.headers and not plain),
                novelty=1.0 if plain else options.novelty,
                density=options.density,
            )
        selection = select(
            document, steps, budget=budget, count=count, costs=found.costs,
            must=untouchable_units(document, self.protect),
            gap=0 if options.score in ("turns", "truncate") else options.gap,
        )  # fmt: skip
        return selection, found

    def _unit_scores(
        self,
        document: Document,
        query: str | None,
        cache: SensitivityCache | None,
        count: Callable[[str], int],
    ) -> UnitScores:
        options = self.options
        if options.score == "truncate":
            return order_scores(document)
        if options.score == "turns":
            return UnitScores(relevance(document, query), order_scores(document).costs)
        if options.score == "random":
            found = random_scores(document, options.seed)
        elif options.score == "words":
            found = word_scores(document, count)
        else:
            found = language_model_scores(
                document,
                self.model,
                condition=options.condition if query else "none",
                query=query,
                context=options.context,
                what="sensitivity" if options.score == "sensitivity" else "surprisal",
                pool=options.pool,
                width=options.smooth,
                vram=self.vram,
                cache=cache,
            )
        return found.with_scores(self._weighted(document, found.scores, query))

    def _weighted(
        self, document: Document, scores: NDArray[np.float64], query: str | None
    ) -> NDArray[np.float64]:
        """Return scores with multipliers, decay and the question's words."""
        options = self.options
        if not scores.size:
            return scores
        factor = np.array([self.protect.multiplier(kind) for kind in document.kinds.tolist()])
        result = np.power(scores, options.power) * factor
        if options.decay != "none":
            weight = relevance(document, query) if options.decay == "rank" else recency(document)
            floor = options.decay_floor
            result = result * (floor + (1.0 - floor) * weight)
        if query and options.query_boost != 1.0:
            asked = query_words(query)
            hit = [core(document.word(unit)) in asked for unit in range(len(document.units))]
            result = np.where(hit, result * options.query_boost, result)
        return np.asarray(result, np.float64)


def distill(
    text_or_turns: object,
    *,
    token_budget: int,
    query: str | None = None,
    count_tokens: Callable[[str], int] | None = None,
    keep: Iterable[Sequence[int]] = (),
    model: str | os.PathLike[str] | LanguageModel | None = None,
    **options: Any,
) -> Distillation:
    """Distil once: ``Distiller(model, **options).distill(...)``.

    Examples
    --------
    >>> distill("one two three", token_budget=1, score="truncate",
    ...         count_tokens=lambda text: len(text.split())).text
    'one'
    """
    return Distiller(model, count_tokens=count_tokens, **options).distill(
        text_or_turns, token_budget=token_budget, query=query, keep=keep
    )

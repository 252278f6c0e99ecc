"""Answering a question from a memory, in three modes that differ in which model may see what.

Mode A has no language model anywhere, and is what :class:`riemem.Memory` does by itself. Mode B
lets a model on this machine distil the context and write the answer. Mode C hands question and
context to a function of the user's, whatever that does with them; nothing is handed out in any
other way. Finding memories is the same, and local, in all three.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from riemem.distill import Distiller
from riemem.distill.language_model import LanguageModel, load_language_model
from riemem.errors import ArgumentError, DTypeError
from riemem.memory import Context, Memory
from riemem.store.records import check_integer

__all__ = ["Answer", "Mode", "answer", "modes"]

_QUESTION = "{context}\n\nQuestion: {question}\nAnswer:"


@dataclass(frozen=True)
class Mode:
    """One of the three modes.

    Attributes
    ----------
    name : {"A", "B", "C"}
    summary : str
    language_model : str
        Which one takes part.
    leaves_machine : str
        Which data leave the machine.
    """

    name: str
    summary: str
    language_model: str
    leaves_machine: str


_MODES = (
    Mode("A", "no language model: the answer is what was said", "none", "none"),
    Mode("B", "a local model distils and answers", "on this machine", "none"),
    Mode(
        "C",
        "your function answers",
        "yours, for the final answer only",
        "what your function does with the question and the recalled context; none unless you "
        "give one",
    ),
)

modes: Mapping[str, Mode] = MappingProxyType({mode.name: mode for mode in _MODES})
"""The modes by name; the mapping cannot be changed."""


@dataclass(frozen=True)
class Answer:
    """An answer and what it was made from.

    Attributes
    ----------
    text : str
        Empty where nothing was found.
    mode : str
    context : Context
        What was recalled.
    handed_out : str
        The prompt that was given to the user's function, to the letter; empty in modes A and B.
    """

    text: str
    mode: str
    context: Context
    handed_out: str = ""


def answer(
    memory: Memory,
    question: str,
    *,
    mode: str = "A",
    token_budget: int = 500,
    answerer: Callable[[str], str] | None = None,
    model: str | os.PathLike[str] | LanguageModel | None = None,
    distil: bool = False,
    max_tokens: int = 48,
    **scope: Any,
) -> Answer:
    """Answer a question from a memory.

    Parameters
    ----------
    memory : Memory
    question : str
    mode : {"A", "B", "C"}
        "A": the best hit, as it was said. "B": a local model continues "context, Question: ...,
        Answer:", the likeliest word each time. "C": what `answerer` returns for that prompt.
    token_budget : int
        Most tokens of the context, as for :meth:`riemem.Memory.recall`.
    answerer : callable, optional
        ``str -> str``; for mode "C" and no other, and called once.
    model : str, path or LanguageModel, optional
        For mode "B": by default SmolLM2-135M from the cache.
    distil : bool
        Mode "B": let the model shorten the memories to the budget, rather than leave some out.
    max_tokens : int
        Mode "B": most tokens of the answer, which ends with its first line.
    **scope
        ``profile``, ``session``, ``filters``, ``at``: as for :meth:`riemem.Memory.recall`.

    Returns
    -------
    Answer

    Raises
    ------
    ArgumentError
        An unknown mode; mode "C" without an `answerer`; an `answerer` or a `model` in another mode.
    DTypeError
        `answerer` returned something else than a str.
    ModelNotFoundError
        Mode "B", and the model is not on this machine.

    Examples
    --------
    >>> from riemem.embed import HashingEmbedder
    >>> with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as memory:
    ...     _ = memory.add("I moved to Porto", speaker="Maya", when="2024-05-01T10:00:00Z")
    ...     found = answer(memory, "Where did Maya move?")
    >>> found.text
    'Maya, 2024-05-01: I moved to Porto'
    """
    if mode not in modes:
        raise ArgumentError(f"mode: expected one of {', '.join(modes)}, got {mode!r}")
    if (mode == "C") != (answerer is not None):
        what = "expected a function for mode 'C'" if mode == "C" else f"not used in mode {mode!r}"
        raise ArgumentError(f"answerer: {what}")
    if answerer is not None and not callable(answerer):
        raise DTypeError(f"answerer: expected a function, got {type(answerer).__name__}")
    if mode != "B" and (model is not None or distil):
        raise ArgumentError(f"model, distil: not used in mode {mode!r}")
    most = check_integer(max_tokens, "max_tokens", 1)
    local = load_language_model(model) if mode == "B" else None
    compressor = Distiller(local) if distil else None
    context = memory.recall(question, token_budget=token_budget, compressor=compressor, **scope)
    if not context.hits:
        return Answer("", mode, context)
    prompt = _QUESTION.format(context=context.text, question=question)
    if answerer is not None:
        text = answerer(prompt)
        if not isinstance(text, str):
            raise DTypeError(f"answerer: expected it to return str, got {type(text).__name__}")
        return Answer(text, mode, context, prompt)
    if local is not None:
        return Answer(local.continued(prompt, most), mode, context)
    return Answer(_as_said(memory, question, scope), mode, context)


def _as_said(memory: Memory, question: str, scope: Mapping[str, Any]) -> str:
    best = memory.search(question, k=1, **scope)
    if not best:
        return ""
    hit = best[0]
    who = f"{hit.speaker}, " if hit.speaker else ""
    return f"{who}{hit.when[:10]}: {hit.text}"

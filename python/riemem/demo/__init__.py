"""The conversation behind ``riemem demo``, and the run that stores it and asks its questions."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Container, Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from riemem.embed import Embedder, load_embedder, render_turn
from riemem.index import RiemannianIndex
from riemem.memory import Memory
from riemem.presets import presets

__all__ = ["Answer", "Conversation", "Question", "Ranked", "Report", "Turn", "load", "run"]


@dataclass(frozen=True)
class Turn:
    """One thing that was said; `position` counts from 0 over the whole conversation."""

    position: int
    session: str
    when: str
    speaker: str
    text: str


@dataclass(frozen=True)
class Question:
    """A question, and the positions of the turns that answer it."""

    text: str
    evidence: tuple[int, ...]


@dataclass(frozen=True)
class Conversation:
    """The turns in the order they were said, and the questions about them."""

    title: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]

    def items(self) -> list[dict[str, str]]:
        """Return the turns as :meth:`riemem.Memory.add_many` takes them."""
        return [
            {"text": turn.text, "speaker": turn.speaker, "session": turn.session, "when": turn.when}
            for turn in self.turns
        ]


@dataclass(frozen=True)
class Ranked:
    """A turn at its place in a ranking."""

    position: int
    score: float
    speaker: str
    text: str
    evidence: bool


@dataclass(frozen=True)
class Answer:
    """What both rankings found for one question, and the context recalled for it.

    Attributes
    ----------
    question : str
    evidence : tuple of int
        Positions of the turns that answer it.
    cosine, fused : tuple of Ranked
        The first turns by plain cosine, and by the score that `Memory.search` uses.
    context : str
    tokens, token_budget : int
    memories : int
        How many memories the context holds.
    scoring, counter : str
        How the fused score was made, and what counted the tokens.
    """

    question: str
    evidence: tuple[int, ...]
    cosine: tuple[Ranked, ...]
    fused: tuple[Ranked, ...]
    context: str
    tokens: int
    token_budget: int
    memories: int
    scoring: str
    counter: str


@dataclass(frozen=True)
class Report:
    """A whole run; the same embedder gives the same report.

    Attributes
    ----------
    title, embedder, scoring, counter : str
        The conversation, the embedder's identity, how the fused score was made, and what counted
        the tokens.
    turns, sessions : int
    first_day, last_day : str
    answers : tuple of Answer
    """

    title: str
    embedder: str
    scoring: str
    counter: str
    turns: int
    sessions: int
    first_day: str
    last_day: str
    answers: tuple[Answer, ...]

    def found(self, ranking: str) -> int:
        """Return how many questions have evidence among the hits of ``"cosine"`` or ``"fused"``."""
        return sum(any(hit.evidence for hit in getattr(answer, ranking)) for answer in self.answers)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain lists, mappings, numbers and strings."""
        found = {ranking: self.found(ranking) for ranking in ("cosine", "fused")}
        return {**asdict(self), "found": found}

    def to_text(self, width: int = 100) -> str:
        """Return the report for a reader, at most `width` columns wide (80 or more)."""
        from ._text import render

        return render(self, max(width, 80))


def load() -> Conversation:
    """Return the conversation that comes with the package.

    Examples
    --------
    >>> conversation = load()
    >>> len(conversation.turns), len(conversation.questions)
    (135, 8)
    """
    raw = json.loads(files(__name__).joinpath("conversation.json").read_text(encoding="utf-8"))
    turns: list[Turn] = []
    places: dict[str, int] = {}
    for session in raw["sessions"]:
        for number, turn in enumerate(session["turns"], start=1):
            places[f"{session['session']}:{number}"] = len(turns)
            turns.append(
                Turn(len(turns), session["session"], session["when"], turn["speaker"], turn["text"])
            )
    questions = tuple(
        Question(item["question"], tuple(places[place] for place in item["evidence"]))
        for item in raw["questions"]
    )
    return Conversation(raw["title"], tuple(turns), questions)


def run(
    embedder: str | Embedder | None = None,
    *,
    k: int = 5,
    token_budget: int = 300,
    progress: Callable[..., object] | None = None,
) -> Report:
    """Store the conversation in a temporary file, ask its questions, and report what was found.

    Parameters
    ----------
    embedder : str, Embedder or None
        As :func:`riemem.embed.load_embedder` takes it; None is MiniLM.
    k : int
        Hits to show per question.
    token_budget : int
        Tokens of each recalled context.
    progress : callable, optional
        Passed to `Memory.add_many`.

    Returns
    -------
    Report

    Raises
    ------
    ModelNotFoundError
        The embedder's files are not on this machine.

    Examples
    --------
    >>> from riemem.embed import HashingEmbedder
    >>> report = run(HashingEmbedder(dim=128), k=3)
    >>> len(report.answers), max(answer.tokens for answer in report.answers) <= 300
    (8, True)
    """
    conversation, chosen = load(), load_embedder(embedder)
    with (
        tempfile.TemporaryDirectory(prefix="riemem-demo-") as folder,
        Memory.open(Path(folder) / "demo.db", embedder=chosen) as memory,
    ):
        ids = memory.add_many(conversation.items(), progress=progress)
        positions = {memory_id: position for position, memory_id in enumerate(ids)}
        by_cosine = _cosine_rankings(conversation, chosen, k)
        answers = tuple(
            _answer(memory, conversation, positions, question, cosine, k, token_budget)
            for question, cosine in zip(conversation.questions, by_cosine, strict=True)
        )
    return _report(conversation, chosen, answers)


def _cosine_rankings(
    conversation: Conversation, embedder: Embedder, k: int
) -> list[tuple[Ranked, ...]]:
    """Rank the turns by plain cosine of the same vectors that the store holds."""
    evidence = [set(question.evidence) for question in conversation.questions]
    index = RiemannianIndex(
        embedder.dim, cosine_weight=presets["cosine"].cosine_weight, norm=presets["cosine"].norm
    )
    index.add(embedder.embed([render_turn(t.text, speaker=t.speaker) for t in conversation.turns]))
    found = index.search(embedder.embed([question.text for question in conversation.questions]), k)
    return [
        tuple(
            _ranked(conversation, int(position), float(score), answers)
            for position, score in zip(positions, scores, strict=True)
        )
        for positions, scores, answers in zip(found.indices, found.scores, evidence, strict=True)
    ]


def _ranked(
    conversation: Conversation, position: int, score: float, evidence: Container[int]
) -> Ranked:
    turn = conversation.turns[position]
    return Ranked(position, score, turn.speaker, turn.text, position in evidence)


def _answer(
    memory: Memory,
    conversation: Conversation,
    positions: Mapping[int, int],
    question: Question,
    cosine: tuple[Ranked, ...],
    k: int,
    token_budget: int,
) -> Answer:
    hits = memory.search(question.text, k=k)
    context = memory.recall(question.text, token_budget=token_budget)
    return Answer(
        question=question.text,
        evidence=question.evidence,
        cosine=cosine,
        fused=tuple(
            _ranked(conversation, positions[hit.id], hit.score, question.evidence) for hit in hits
        ),
        context=context.text,
        tokens=context.tokens,
        token_budget=token_budget,
        memories=len(context.hits),
        scoring=hits.scoring,
        counter=context.token_counter,
    )


def _report(conversation: Conversation, embedder: Embedder, answers: tuple[Answer, ...]) -> Report:
    first, last = conversation.turns[0], conversation.turns[-1]
    preset = presets["default"]
    return Report(
        title=conversation.title,
        embedder=embedder.identity,
        scoring=f"{answers[0].scoring} (covariance {preset.covariance}, ridge {preset.ridge:g}, "
        f"form {preset.form}, cosine weight {preset.cosine_weight:g})",
        counter=answers[0].counter,
        turns=len(conversation.turns),
        sessions=len({turn.session for turn in conversation.turns}),
        first_day=first.when[:10],
        last_day=last.when[:10],
        answers=answers,
    )

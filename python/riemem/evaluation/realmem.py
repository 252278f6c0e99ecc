"""Retrieval on RealMem: at each question the memory holds what was said in earlier sessions.

The data (Apache-2.0) is no part of riemem.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import models
from ..embed import Embedder, load_embedder
from ..errors import ArgumentError
from ..memory import Memory
from ..retrieval.embedding import DEFAULT_RENDERING, TurnEmbedder
from ..retrieval.fusion import Ranking, rankings
from ..store import Store
from .embedded import Progress, embed_texts, tokens_for
from .hybrid import BUDGETS, KnownVectors, rank_all, variants
from .locomo import _get, _kind, _read_json
from .metrics import paired_bootstrap, shown_interval

__all__ = ["Persona", "RealMemReport", "load_realmem", "run_realmem"]

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_RANKS = ("hit@1", "hit@5", "hit@10", "recall@5", "recall@10", "all@10", "mrr")
_INSIDE = tuple(f"inside {b}" for b in BUDGETS)
METRICS = _RANKS + _INSIDE


@dataclass(frozen=True)
class Asked:
    """A question, the session it stands in, and the earlier sessions that its answer needs."""

    text: str
    session: int
    gold: tuple[str, ...]


@dataclass(frozen=True)
class Persona:
    """The sessions of one person, in order, as items for ``Memory.add_many``; the questions."""

    name: str
    file: str
    sha256: str
    sessions: tuple[tuple[dict[str, Any], ...], ...]
    questions: tuple[Asked, ...]


@dataclass(frozen=True)
class RealMemReport:
    """The result; see :meth:`to_text`.

    Attributes
    ----------
    data : list of dict
        One per file: ``file``, ``sha256``, ``sessions``, ``turns``, ``questions``.
    embedder, rendering, counter : str
    rows : list of dict
        One per method: ``name``, ``n``, the metrics, ``minus_cosine`` and ``minus_bm25``, each a
        paired bootstrap of recall@10.
    """

    data: list[dict[str, Any]]
    embedder: str
    rendering: str
    counter: str
    rows: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON types."""
        return dict(vars(self))

    def to_text(self) -> str:
        """Return the report as a table that fits into 100 columns."""
        lines = [
            f"file       {d['file']}  {d['sessions']} sessions, {d['turns']} turns, "
            f"{d['questions']} questions\n           sha256 {d['sha256']}"
            for d in self.data
        ]
        lines += [
            f"rendering  {self.rendering}; tokens of {self.counter}",
            f"embedder   {self.embedder}",
            "",
            f"{'gold sessions':22}{'n':>5}" + "".join(f"{name:>10}" for name in _RANKS),
        ]
        for row in self.rows:
            values = "".join(f"{row[name]:10.3f}" for name in _RANKS)
            lines.append(f"{row['name']:22}{row['n']:5d}{values}")
        lines += ["", f"{'inside tokens':22}" + "".join(f"{budget:>10}" for budget in BUDGETS)]
        for row in self.rows:
            lines.append(f"{row['name']:22}" + "".join(f"{row[name]:10.3f}" for name in _INSIDE))
        lines += ["", f"{'recall@10':22}{'minus cosine (95 %)':>28}{'minus bm25 (95 %)':>28}"]
        for row in self.rows:
            shown = "".join(
                f"{shown_interval(row[key]):>28}" for key in ("minus_cosine", "minus_bm25")
            )
            lines.append(f"{row['name']:22}{shown}")
        return "\n".join(lines)


def load_realmem(path: str | os.PathLike[str]) -> Persona:
    """Read one persona in RealMem's published format.

    Parameters
    ----------
    path : str or path
        A JSON object ``{_metadata, dialogues}``.

    Returns
    -------
    Persona
        Questions whose answer needs no earlier session are left out.

    Raises
    ------
    InputFileError, ArgumentError
        The file cannot be opened, or is not of this format; the message says where.
    """
    data, sha256 = _read_json(path, "path")
    dialogues = _get(data, "dialogues", list, "path")
    metadata = _get(data, "_metadata", dict, "path")
    sessions: list[tuple[dict[str, Any], ...]] = []
    questions: list[Asked] = []
    earlier: set[str] = set()
    for i, dialogue in enumerate(dialogues):
        where = f"path: dialogues[{i}]"
        session = _get(dialogue, "session_uuid", str, where)
        when = _DAY.match(_get(dialogue, "current_time", str, where))
        turns = _get(dialogue, "dialogue_turns", list, where)
        items = []
        for j, turn in enumerate(turns):
            place = f"{where}.dialogue_turns[{j}]"
            text = _get(turn, "content", str, place)
            speaker = _get(turn, "speaker", str, place)
            if text.strip():
                day = when[0] if when else "1970-01-01"
                item = {"text": text, "speaker": speaker, "session": session}
                items.append({**item, "when": f"{day}T00:00:00Z"})
            if turn.get("is_query") and j + 1 < len(turns):
                used = _get(turns[j + 1], "memory_session_uuids", list, place + " (answer)")
                gold = tuple(sorted({str(u) for u in used} & earlier))
                if gold and text.strip():
                    questions.append(Asked(text, i, gold))
        earlier.add(session)
        sessions.append(tuple(items))
    if not questions:
        raise ArgumentError(
            f"path: expected questions that need earlier sessions, got none in {_kind(data)}"
        )
    name = str(metadata.get("person_name", Path(path).stem))
    return Persona(name, Path(path).name, sha256, tuple(sessions), tuple(questions))


def run_realmem(
    paths: Sequence[str | os.PathLike[str]],
    *,
    embedder: Embedder | str | None = None,
    progress: Progress | None = None,
    cache: str | os.PathLike[str] | None = None,
    methods: Mapping[str, Ranking] | None = None,
) -> RealMemReport:
    """Measure how many of the sessions that an answer needs are found.

    The sessions are added one by one; a question is asked when the sessions before its own are
    there, so neither words nor metric know the future. A session counts with its best turn.

    Parameters
    ----------
    paths : sequence of str or path
        One file per persona.
    embedder : Embedder, str or None
        As :func:`riemem.embed.load_embedder`.
    progress : callable, optional
        ``progress(done, total)`` with texts embedded; returning False cancels.
    cache : path, optional
        A folder where vectors are kept between runs.
    methods : mapping of str to Ranking, optional
        Must hold "cosine" and "bm25", which the others are compared with.

    Raises
    ------
    InputFileError, ArgumentError, CancelledError, ModelNotFoundError
    """
    if isinstance(paths, (str, bytes, os.PathLike)) or not paths:
        raise ArgumentError(f"paths: expected one file or more in a sequence, got {paths!r}")
    personas = [load_realmem(path) for path in paths]
    model = load_embedder(embedder)
    turns = TurnEmbedder(model)
    texts = [_texts(persona, turns, model) for persona in personas]
    tokens = tokens_for(model)
    chosen = _methods(late=tokens is not None) if methods is None else methods
    vectors = embed_texts(model, texts, progress, None if cache is None else Path(cache), tokens)
    count, counter = models.token_counter()
    values: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    for persona, group, rows in zip(personas, texts, vectors, strict=True):
        known = KnownVectors(model, dict(zip(group, rows, strict=True)), tokens or {})
        for name, own in _ask(persona, known, chosen, count).items():
            values[name] += own
    report = RealMemReport([_about(p) for p in personas], model.identity, turns.rendering, counter)
    for name, own in values.items():
        row: dict[str, Any] = {"name": name, "n": len(own)}
        row |= {metric: float(np.mean([v[metric] for v in own])) for metric in METRICS}
        for base in ("cosine", "bm25"):
            difference = [
                a["recall@10"] - b["recall@10"] for a, b in zip(own, values[base], strict=True)
            ]
            row[f"minus_{base}"] = paired_bootstrap(np.array(difference))
        report.rows.append(row)
    return report


def _methods(*, late: bool) -> dict[str, Ranking]:
    found = {
        "cosine": rankings["cosine"],
        "bm25": rankings["lexical"],
        "whitened cosine": rankings["dense"],
    }
    # "only dense" and "only lexical" are the two before under other names.
    same = ("only dense", "only lexical")
    return found | {n: rule for n, rule in variants(late=late).items() if n not in same}


def _about(persona: Persona) -> dict[str, Any]:
    return {
        "file": persona.file,
        "sha256": persona.sha256,
        "sessions": len(persona.sessions),
        "turns": sum(map(len, persona.sessions)),
        "questions": len(persona.questions),
    }


def _texts(persona: Persona, turns: TurnEmbedder, model: Embedder) -> list[str]:
    """Every window of every turn and question, each once."""
    rendered = [
        turns.render((item["text"], item["speaker"], item["when"]))
        for session in persona.sessions
        for item in session
    ]
    rendered += [question.text for question in persona.questions]
    return list(dict.fromkeys(w for text in rendered for w in model.windows(text)))


def _ask(
    persona: Persona,
    embedder: KnownVectors,
    chosen: Mapping[str, Ranking],
    count: Callable[[str], int],
) -> dict[str, list[dict[str, float]]]:
    values: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    session_of: list[str] = []
    tokens: list[int] = []
    texts: list[str] = []
    waiting: list[dict[str, Any]] = []
    by_session: dict[int, list[Asked]] = {}
    for question in persona.questions:
        by_session.setdefault(question.session, []).append(question)
    store = Store.open(":memory:")
    with Memory(store, TurnEmbedder(embedder, DEFAULT_RENDERING), "default") as memory:
        for i, session in enumerate(persona.sessions):
            asked = by_session.get(i, [])
            if asked:
                memory.add_many(waiting)
                session_of += [item["session"] for item in waiting]
                texts += [item["text"] for item in waiting]
                tokens += [count(f"{item['speaker']}: {item['text']}\n") for item in waiting]
                waiting = []
                questions = [question.text for question in asked]
                found = rank_all(memory, questions, chosen, texts)
                for name, lists in found.items():
                    values[name] += [
                        _measure(rows, question.gold, session_of, tokens)
                        for rows, question in zip(lists, asked, strict=True)
                    ]
            waiting += session
    return values


def _measure(
    rows: Sequence[int], gold: Sequence[str], session_of: Sequence[str], tokens: Sequence[int]
) -> dict[str, float]:
    order = list(dict.fromkeys(session_of[row] for row in rows))
    ranks = [order.index(g) + 1 if g in order else np.inf for g in gold]
    values = {
        "hit@1": float(min(ranks) <= 1),
        "hit@5": float(min(ranks) <= 5),
        "hit@10": float(min(ranks) <= 10),
        "recall@5": sum(rank <= 5 for rank in ranks) / len(ranks),
        "recall@10": sum(rank <= 10 for rank in ranks) / len(ranks),
        "all@10": float(max(ranks) <= 10),
        "mrr": 1.0 / min(ranks),
    }
    for budget in BUDGETS:
        left, reached = budget, set()
        for row in getattr(rows, "packing", rows):
            if tokens[row] <= left:
                left -= tokens[row]
                reached.add(session_of[row])
        values[f"inside {budget}"] = sum(g in reached for g in gold) / len(gold)
    return values

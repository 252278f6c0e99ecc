"""Each layer of the search turned off, one at a time, and what that changes on LoCoMo."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import models
from ..embed import Embedder, load_embedder
from ..memory import Memory
from ..retrieval.fusion import CHANNELS, Ranking, rankings
from ..store import feedback
from .embedded import tokens_for
from .hybrid import (
    KnownVectors,
    default_ranking,
    evidence_inside,
    rank_all,
    remember,
    turn_tokens,
)
from .lives import rank_lives
from .locomo import Conversation, Question, load_locomo
from .metrics import gold_ranks, paired_bootstrap, question_metrics, shown_interval
from .retrieval import embed_benchmark

__all__ = ["Ablation", "layers", "run_ablation"]

TRUST = 2.0
#: Rows after uses and maintenances (:func:`riemem.evaluation.lives.rank_lives`), by base.
LIVES = {
    "asleep half-life": "default",
    "asleep langevin": "default",
    "asleep half-life, taught": "default",
    "asleep langevin, taught": "default",
    "taught slm-v3": "slm-v3",
}
_COLUMNS = ("hit@1", "hit@10", "recall@10", "mrr")
_BUDGET = 1000
_SHOWN = 10

Make = Callable[[], Memory]


@dataclass(frozen=True)
class Ablation:
    """The table: rows per layer, each compared with its base.

    Attributes
    ----------
    data : dict
        ``file``, ``sha256``, ``questions``, ``conversations``, ``conflicts`` that the rules found,
        ``superseded``.
    rows : list of dict
        ``name``, ``base``, the metrics, ``evidence`` inside 1000 tokens, and ``difference``:
        mean and 95 % interval of hit@10 less that of the base.
    notes : list of str
    """

    data: dict[str, Any]
    rows: list[dict[str, Any]]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return {"data": self.data, "rows": self.rows, "notes": self.notes}

    def to_text(self) -> str:
        """The report as a table that fits into 100 columns."""
        data = self.data
        lines = [
            f"file       {data['file']}  sha256 {data['sha256']}",
            f"questions  {data['questions']} of {data['conversations']} conversations",
            f"conflicts  {data['conflicts']} found by the rules, {data['superseded']} memories "
            "superseded",
            "",
            f"{'':31}"
            + "".join(f" {column:>{_wide(column)}}" for column in (*_COLUMNS, "evidence"))
            + "  hit@10 less the base's",
        ]
        for row in self.rows:
            found = row["difference"]
            values = "".join(f" {row[c]:{_wide(c)}.3f}" for c in (*_COLUMNS, "evidence"))
            changed = shown_interval(found)
            if row["name"] == row["base"]:
                changed = "(the base)"
            lines.append(f"{row['name']:31}{values}  {changed}")
        return "\n".join([*lines, "", *(f"note: {note}" for note in self.notes)])


def _wide(column: str) -> int:
    return max(len(column), 5)


def layers(*, late: bool = False) -> dict[str, tuple[str, Ranking]]:
    """Return (base, ranking) of each row that is a ranking.

    With `late` the default is that of a store that keeps token vectors.

    Examples
    --------
    >>> list(layers())[:3]
    ['default', 'without dense', 'without lexical']
    """
    found: dict[str, tuple[str, Ranking]] = {}
    default, paper = default_ranking(late=late), rankings["slm-v3"]
    found["default"] = ("default", default)
    for name in CHANNELS:
        if name in default.weights:
            found[f"without {name}"] = ("default", default.without(name))
    found["without neighbours"] = ("default", default.changed(kernel={}))
    found["without supersedes"] = ("default", default.changed(superseded=False))
    found[f"with trust, weight {TRUST:g}"] = (
        "default",
        default.reweighed(lambda _, weight: weight, trust=TRUST),
    )
    found["slm-v3"] = ("slm-v3", paper)
    for name in paper.weights:
        rest = {key: value for key, value in paper.weights.items() if key != name}
        found[f"slm-v3 without {name}"] = ("slm-v3", replace(paper, weights=rest))
    for what, change in (
        ("weights by kind", {"multipliers": {}}),
        ("scenes", {"scenes": 0.0}),
        ("bridges", {"bridges": False}),
        ("supersedes", {"superseded": False}),
    ):
        changed: dict[str, Any] = dict(change)
        found[f"slm-v3 without {what}"] = ("slm-v3", replace(paper, **changed))
    return found


def run_ablation(
    path: str | os.PathLike[str],
    *,
    embedder: Embedder | str | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Ablation:
    """Measure the search with each layer off on a LoCoMo file.

    Parameters
    ----------
    path : str or path
    embedder : Embedder, str or None
        As :func:`riemem.embed.load_embedder`.
    cache : path, optional
        A folder where vectors are kept between runs.
    progress : callable, optional

    Returns
    -------
    Ablation

    Notes
    -----
    One memory per conversation, told in the order of the turns. The row "with feedback" parts each
    conversation's questions into halves: what was judged about one half weighs the channels for
    the other. Of the ten memories that a question found, those that answer it are judged useful,
    and the first one, if it does not, is judged not useful. The rows "asleep" and "taught" are the
    lifecycle and the variances that use teaches, made in the same way.
    """
    benchmark = load_locomo(path)
    model = load_embedder(embedder)
    tokens = tokens_for(model)
    late = tokens is not None
    known = embed_benchmark(model, benchmark, cache=cache, progress=progress, tokens=tokens)
    count, _ = models.token_counter()
    chosen, default = layers(late=late), default_ranking(late=late)
    taught = "with feedback"
    values: dict[str, list[dict[str, float]]] = {name: [] for name in (*chosen, taught, *LIVES)}
    conflicts = superseded = 0
    for conversation in benchmark.conversations:
        make = functools.partial(remember, conversation, KnownVectors(model, known, tokens or {}))
        questions = conversation.questions
        with make() as memory:
            found = memory.conflicts()
            conflicts += len(found)
            superseded += len({conflict.superseded for conflict in found} - {None})
            ranked = rank_all(
                memory, [q.text for q in questions], {n: r for n, (_, r) in chosen.items()}
            )
        ranked[taught] = _with_feedback(questions, make, default)
        lives = rank_lives(conversation, make, default)
        ranked |= {name: lives[name] for name in LIVES}
        _measure(values, ranked, conversation, turn_tokens(conversation, count))
    names = list(chosen)
    own = [taught, *(name for name, base in LIVES.items() if base == "default")]
    place = names.index("slm-v3")
    names[place:place] = own
    names += [name for name in LIVES if name not in own]
    bases = {name: base for name, (base, _) in chosen.items()} | {taught: "default"} | LIVES
    return Ablation(
        {
            "file": benchmark.file,
            "sha256": benchmark.sha256,
            "questions": benchmark.n_questions,
            "conversations": len(benchmark.conversations),
            "conflicts": conflicts,
            "superseded": superseded,
        },
        [_row(name, bases[name], values) for name in names],
        [
            "asleep: after a maintenance at the end; what it archived cannot be found",
            "taught: the turns that answer the other half of the questions were confirmed before",
            "trust differs only where a contradiction is open",
        ],
    )


def _with_feedback(questions: Sequence[Question], make: Make, default: Ranking) -> list[list[int]]:
    """Rank each half of the questions with the weights that judging the other half gave."""
    ranked: list[list[int]] = [[] for _ in questions]
    for half in (0, 1):
        with make() as memory:
            for question in questions[1 - half :: 2]:
                gold = {row + 1 for row in question.gold}
                hits = memory.search(question.text, k=_SHOWN)
                for hit in hits:
                    if hit.id in gold:
                        memory.feedback(question.text, hit.id, useful=True)
                if hits and hits[0].id not in gold:
                    memory.feedback(question.text, hits[0].id, useful=False)
            factors = feedback.weights(memory._store, memory.profile)
            known = _weighed(default, factors)
            asked = range(half, len(questions), 2)
            own = rank_all(
                memory,
                [questions[i].text for i in asked],
                {"taught": known},
            )
            for i, rows in zip(asked, own["taught"], strict=True):
                ranked[i] = rows
    return ranked


def _weighed(ranking: Ranking, factors: Mapping[str, float]) -> Ranking:
    return ranking.reweighed(lambda name, weight: weight * factors.get(name, 1.0))


def _measure(
    values: Mapping[str, list[dict[str, float]]],
    ranked: Mapping[str, list[list[int]]],
    conversation: Conversation,
    tokens: Sequence[int],
) -> None:
    for name, lists in ranked.items():
        for rows, question in zip(lists, conversation.questions, strict=True):
            if not question.gold:
                continue
            own = dict(question_metrics(gold_ranks(rows, question.gold)))
            own["evidence"] = evidence_inside(rows, question.gold, tokens, _BUDGET)
            values[name].append(own)


def _row(name: str, base: str, values: Mapping[str, list[dict[str, float]]]) -> dict[str, Any]:
    own, other = values[name], values[base]
    row: dict[str, Any] = {"name": name, "base": base, "n": len(own)}
    for column in (*_COLUMNS, "evidence"):
        row[column] = float(np.mean([value[column] for value in own]))
    row["difference"] = paired_bootstrap(
        np.array([a["hit@10"] - b["hit@10"] for a, b in zip(own, other, strict=True)])
    )
    return row

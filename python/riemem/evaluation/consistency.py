"""Finding contradictions: our rules, thresholds on the cosine, and the published score."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import numpy as np

from .._consistency.claims import DAY, confirm
from .._consistency.linear import published_score
from .._consistency.rules import extract
from ..embed import Embedder
from ..errors import ArgumentError

HALVES = ("reporting", "development", "all")

#: The published code flags a pair about one entity when its cosine is below this.
PUBLISHED_COSINE = 0.78

_START = 1_700_000_000_000_000


@dataclass(frozen=True)
class Pair:
    """Two texts with what is true of them.

    Attributes
    ----------
    category : str
        contradiction, change, paraphrase, compatible or negation.
    label : {"contradiction", "change", "none"}
    domain : str
    days : int
        Between them.
    speakers, texts : pair of str
    """

    category: str
    label: str
    domain: str
    days: int
    speakers: tuple[str, str]
    texts: tuple[str, str]

    @property
    def reporting(self) -> bool:
        """Whether the pair is of the half that no rule was made with: by a hash of the texts."""
        return hashlib.sha256("\n".join(self.texts).encode()).digest()[0] % 2 == 1


@dataclass(frozen=True)
class ConsistencyEvaluation:
    """Precision and recall of each method.

    Attributes
    ----------
    half : str
    pairs : dict
        Number of pairs by category.
    rows : list of dict
        ``name``, ``task`` ("conflict" or "contradiction"), ``precision``, ``recall``, ``f1``,
        ``flagged``, and ``by_category``, the share flagged of each.
    notes : list of str
    """

    half: str
    pairs: dict[str, int]
    rows: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return dict(vars(self))

    def to_text(self) -> str:
        """The report as tables that fit into 100 columns."""
        lines = [f"pairs      {self.half}: " + ", ".join(f"{n} {c}" for c, n in self.pairs.items())]
        for task, what in (
            ("conflict", "conflict (contradiction or change) against none"),
            ("contradiction", "contradiction against change and none"),
        ):
            lines += ["", f"{what:<49} {'precision':>9} {'recall':>7} {'F1':>6} {'flagged':>8}"]
            for row in self.rows:
                if row["task"] == task:
                    lines.append(
                        f"{row['name']:<49} {row['precision']:9.3f} {row['recall']:7.3f} "
                        f"{row['f1']:6.3f} {row['flagged']:8d}"
                    )
        lines += ["", f"{'share flagged as a conflict':<37} " + " ".join(
            f"{name:>13}" for name in self.pairs)]  # fmt: skip
        for row in self.rows:
            if row["task"] == "conflict":
                shares = " ".join(f"{row['by_category'][name]:13.3f}" for name in self.pairs)
                lines.append(f"{row['name'][:37]:<37} {shares}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def load_pairs(half: str = "all") -> list[Pair]:
    """Return the labelled pairs of a half: "reporting", "development" or "all".

    Raises
    ------
    ArgumentError

    Examples
    --------
    >>> len(load_pairs()) >= 300
    True
    """
    if half not in HALVES:
        raise ArgumentError(f"half: expected one of {HALVES}, got {half!r}")
    source = resources.files(__package__).joinpath("consistency_pairs.json")
    pairs = [
        Pair(
            row["category"],
            row["label"],
            row["domain"],
            row["days"],
            (row["speakers"][0], row["speakers"][1]),
            (row["texts"][0], row["texts"][1]),
        )
        for row in json.loads(source.read_text(encoding="utf-8"))
    ]
    return [pair for pair in pairs if half == "all" or pair.reporting == (half == "reporting")]


def judge(pair: Pair) -> str:
    """Return what the rules say of a pair: "contradiction", "change" or "none".

    Examples
    --------
    >>> judge(Pair("", "", "", 0, ("A", "A"), ("I like tea.", "I don't like tea.")))
    'contradiction'
    """
    first, second = _START, _START + pair.days * DAY + 60_000_000
    earlier = extract(pair.texts[0], pair.speakers[0], first)
    for claim in extract(pair.texts[1], pair.speakers[1], second):
        for other in earlier:
            found = confirm(other, first, claim, second)
            if found is not None:
                return found.kind
    return "none"


def run_consistency(
    *,
    half: str = "reporting",
    embedder: Embedder | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> ConsistencyEvaluation:
    """Measure precision and recall on the labelled pairs.

    Parameters
    ----------
    half : str
        "reporting", "development" or "all".
    embedder : Embedder, optional
        For the cosines; without it only the rules are measured.
    progress : callable, optional
        ``progress(done, total)``.

    Returns
    -------
    ConsistencyEvaluation

    Notes
    -----
    Every pair is about one entity in the published code's sense, so that method flags a pair when
    the cosine of its texts is below 0.78 (kappa above 0.22). The other thresholds are the best for
    F1 on the development half, for either side of the threshold.
    """
    pairs = load_pairs(half)
    rows = []
    verdicts = [judge(pair) for pair in pairs]
    if progress is not None:
        progress(0, 1)
    for task in ("conflict", "contradiction"):
        wanted = ("contradiction", "change") if task == "conflict" else ("contradiction",)
        flags = [verdict in wanted for verdict in verdicts]
        rows.append(_row("claims and rules", task, pairs, flags))
    notes = []
    if embedder is None:
        notes.append("no embedder was given: no cosines")
    else:
        rows += _cosine_rows(pairs, embedder)
        notes.append(f"embedder {embedder.identity}")
    if progress is not None:
        progress(1, 1)
    counts: dict[str, int] = {}
    for pair in pairs:
        counts[pair.category] = counts.get(pair.category, 0) + 1
    return ConsistencyEvaluation(half, counts, rows, notes)


def _cosine_rows(pairs: Sequence[Pair], embedder: Embedder) -> list[dict[str, Any]]:
    scores = kappas(pairs, embedder)
    development = load_pairs("development")
    known = kappas(development, embedder)
    rows = []
    for task in ("conflict", "contradiction"):
        truth = np.array([_positive(pair, task) for pair in development])
        for side, name in ((1.0, "below"), (-1.0, "above")):
            cut = _best_cut(side * known, truth)
            label = f"cosine {name} {1.0 - side * cut:.3f} (best on development)"
            rows.append(_row(label, task, pairs, (side * scores >= cut).tolist()))
        label = f"published score: cosine below {PUBLISHED_COSINE}"
        rows.append(_row(label, task, pairs, (scores > 1.0 - PUBLISHED_COSINE).tolist()))
        rows.append(_row("every pair", task, pairs, [True] * len(pairs)))
    return rows


def kappas(pairs: Sequence[Pair], embedder: Embedder) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The published score of each pair's texts."""
    vectors = embedder.embed([text for pair in pairs for text in pair.texts])
    return np.array([published_score(a, b) for a, b in zip(vectors[::2], vectors[1::2],
                                                          strict=True)])  # fmt: skip


def _best_cut(scores: np.ndarray[Any, Any], truth: np.ndarray[Any, Any]) -> float:
    """The lowest score to flag, best for F1; ties to the higher cut."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(truth[order])
    f1 = 2.0 * hits / (np.arange(1, scores.size + 1) + truth.sum())
    return float(scores[order[int(np.argmax(f1))]])


def _positive(pair: Pair, task: str) -> bool:
    return pair.label == "contradiction" or (task == "conflict" and pair.label == "change")


def _row(name: str, task: str, pairs: Sequence[Pair], flags: Sequence[bool]) -> dict[str, Any]:
    truth = [_positive(pair, task) for pair in pairs]
    right = sum(t and f for t, f in zip(truth, flags, strict=True))
    precision = right / sum(flags) if any(flags) else 0.0
    recall = right / sum(truth) if any(truth) else 0.0
    by: dict[str, list[bool]] = {}
    for pair, flag in zip(pairs, flags, strict=True):
        by.setdefault(pair.category, []).append(flag)
    return {
        "name": name,
        "task": task,
        "precision": precision,
        "recall": recall,
        "f1": 2.0 * precision * recall / (precision + recall) if precision + recall else 0.0,
        "flagged": int(sum(flags)),
        "by_category": {category: sum(own) / len(own) for category, own in by.items()},
    }

"""How much of the evidence gets into a token budget, for each clustering and layout."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..clustering import calibrate_threshold
from ..embed import Embedder, load_embedder
from ..errors import ArgumentError, BudgetTooSmallError
from ..metric import FisherMetric
from ..models import token_counter
from ..packing import Packing, pack_grouped, pack_turns
from ..presets import presets
from ..retrieval.lexical import LexicalIndex
from ..scoring import scores as point_scores
from .clustering_baselines import CLUSTERINGS, cluster
from .metrics import paired_bootstrap
from .packing_streams import PackQuestion, Stream, StreamTurn, load_streams
from .retrieval import Progress, _embed

__all__ = ["BUDGETS", "LAYOUTS", "LineCounter", "PackingReport", "run_packing", "run_streams"]

BUDGETS = (500, 1000, 2000, 4000)
QUANTILES = (0.90, 0.95, 0.98)
LAYOUTS = ("grouped", "atoms")
ORDERS = ("as it came", "reversed", "shuffled")
FLAT = "flat"

# Hits tried for a budget: a turn of dialogue takes 38 tokens on average, so budgets get filled.
_TOKENS_PER_HIT = 25
_TOP_ATOMS = 5
_CALIBRATION = 500  # rows that a threshold is a quantile of

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


class LineCounter:
    """Counts a text line by line and remembers lines; a line break counts one token.

    Parameters
    ----------
    count : callable
        ``str -> int`` for one line.

    Examples
    --------
    >>> LineCounter(len)("ab\\nc")
    4
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._known: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        if not text:
            return 0
        lines = text.split("\n")
        total = len(lines) - 1
        for line in lines:
            if line not in self._known:
                self._known[line] = self._count(line)
            total += self._known[line]
        return total


@dataclass
class PackingReport:
    """Rows of the evaluation, with what they were made from.

    Attributes
    ----------
    data : dict
        File, SHA-256, format, counts.
    embedder, counter : str
    rows : list of dict
        Per layout, clustering, threshold and budget: ``share`` (of gold groups in the text),
        ``tokens`` (mean), ``difference`` to flat with a paired bootstrap interval, ``atoms`` and
        ``largest_share`` (means).
    chosen : list of dict
        Leaving one stream out: what was chosen on the others, and its share on the one left out.
    """

    data: dict[str, Any]
    embedder: str
    counter: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    chosen: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return dict(vars(self))

    def to_text(self) -> str:
        """Return tables for a terminal."""
        budgets = sorted({row["budget"] for row in self.rows})
        lines = [
            ", ".join(f"{k} {v}" for k, v in self.data.items()),
            f"embedder {self.embedder}; tokens by {self.counter}",
            "share of the evidence inside the text (difference to flat, 95 % interval; tokens)",
            "",
        ]
        named: dict[str, dict[int, dict[str, Any]]] = {}
        for row in self.rows:
            named.setdefault(row["name"], {})[row["budget"]] = row
        width = max((len(name) for name in named), default=0)
        lines.append(" " * width + "".join(f"{budget:>36}" for budget in budgets))
        for name, cells in named.items():
            line = f"{name:<{width}}"
            for budget in budgets:
                row = cells[budget]
                text = f"{row['share']:.3f}"
                if row["layout"] != FLAT:
                    d = row["difference"]
                    text += f" ({d['mean']:+.3f} {d['low']:+.3f}..{d['high']:+.3f})"
                line += f"{text + format(row['tokens'], '6.0f'):>36}"
            first = cells[budgets[0]]
            if first.get("atoms"):
                line += f"  {first['atoms']:.0f} atoms, largest {first['largest_share']:.0%}"
            lines.append(line)
        if self.chosen:
            lines += ["", "chosen on the other streams, measured on the one left out:"]
            for entry in self.chosen:
                lines.append(
                    f"  {entry['stream']}: {entry['choice']}: {entry['share']:.3f} "
                    f"(flat {entry['flat']:.3f})"
                )
        return "\n".join(lines)


def run_packing(
    path: str | os.PathLike[str],
    *,
    embedder: Embedder | str | None = None,
    budgets: Sequence[int] = BUDGETS,
    quantiles: Sequence[float] = QUANTILES,
    clusterings: Sequence[str] = CLUSTERINGS,
    orders: int = len(ORDERS),
    limit: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    count_tokens: Callable[[str], int] | None = None,
    progress: Progress | None = None,
) -> PackingReport:
    """Measure packing on a file in LoCoMo's or RealMem's format.

    Hits are ranked by half whitened cosine, half BM25 (min-max), and put into each budget flat, or
    grouped by the atoms of each clustering, or chosen by atoms as RSM-full prints it (the five
    best by centroid, members by rank).

    Parameters
    ----------
    path : str or path
    embedder : Embedder, str or None
    budgets : sequence of int
        Tokens.
    quantiles : sequence of float
        Thresholds are these quantiles of pairwise cosines; other clusterings than max-member and
        other orders than the given one are run at the first of them that leaves the largest atom
        below half of the turns (the last one if none does).
    clusterings : sequence of str
        Names of :data:`CLUSTERINGS`.
    orders : int
        How many stream orders: as it came, reversed, shuffled.
    limit : int, optional
        At most so many questions per stream, evenly spaced.
    cache, progress
        See :func:`run_locomo`.
    count_tokens : callable, optional
        By default the local SmolLM2 tokenizer, line by line.

    Raises
    ------
    InputFileError, ArgumentError, CancelledError, ModelNotFoundError
    """
    kind, digest, streams = load_streams(path)
    data = {"file": Path(path).name, "sha256": digest, "format": kind}
    return run_streams(
        streams,
        data,
        embedder=embedder,
        budgets=budgets,
        quantiles=quantiles,
        clusterings=clusterings,
        orders=orders,
        limit=limit,
        cache=cache,
        count_tokens=count_tokens,
        progress=progress,
    )


def run_streams(
    streams: Sequence[Stream],
    data: Mapping[str, Any],
    *,
    embedder: Embedder | str | None = None,
    budgets: Sequence[int] = BUDGETS,
    quantiles: Sequence[float] = QUANTILES,
    clusterings: Sequence[str] = CLUSTERINGS,
    orders: int = len(ORDERS),
    limit: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    count_tokens: Callable[[str], int] | None = None,
    progress: Progress | None = None,
) -> PackingReport:
    """Measure packing on streams at hand; see :func:`run_packing`."""
    unknown = [name for name in clusterings if name not in CLUSTERINGS]
    if unknown:
        raise ArgumentError(f"clusterings: expected names of {CLUSTERINGS}, got {unknown[0]!r}")
    if not 1 <= orders <= len(ORDERS):
        raise ArgumentError(f"orders: expected 1 to {len(ORDERS)}, got {orders}")
    model = load_embedder(embedder)
    counter, label = (count_tokens, "caller") if count_tokens else token_counter()
    texts: list[list[str]] = []
    chosen_streams = [_limited(stream, limit) for stream in streams]
    for stream in streams:  # all questions, so that a cache does not depend on the limit
        texts.append([turn.embedded for turn in stream.turns])
        texts.append([question.text for question in stream.questions])
    vectors = _embed(model, texts, progress, None if cache is None else Path(cache))
    plan = _Plan(tuple(budgets), tuple(quantiles), tuple(clusterings), orders, LineCounter(counter))
    measured: list[_Measured] = []
    for i, (whole, stream) in enumerate(zip(streams, chosen_streams, strict=True)):
        asked = {question: row for row, question in enumerate(whole.questions)}
        rows = vectors[2 * i + 1][[asked[question] for question in stream.questions]]
        measured.append(_measure(stream, vectors[2 * i], rows, plan))
    facts = {
        **data,
        "streams": len(streams),
        "turns": sum(len(s.turns) for s in streams),
        "questions": sum(len(s.questions) for s in chosen_streams),
    }
    report = PackingReport(facts, model.identity, f"{label}, line by line")
    report.rows = _rows(measured, plan)
    report.chosen = _leave_one_out(streams, measured, plan)
    return report


@dataclass(frozen=True)
class _Plan:
    budgets: tuple[int, ...]
    quantiles: tuple[float, ...]
    clusterings: tuple[str, ...]
    orders: int
    count: LineCounter


@dataclass
class _Measured:
    """Per configuration name: share and tokens (questions, budgets), and facts of the atoms."""

    shares: dict[str, list[list[float]]] = field(default_factory=dict)
    tokens: dict[str, list[list[float]]] = field(default_factory=dict)
    atoms: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    layout: dict[str, str] = field(default_factory=dict)


def _limited(stream: Stream, limit: int | None) -> Stream:
    if limit is None or len(stream.questions) <= limit:
        return stream
    kept = np.linspace(0, len(stream.questions) - 1, limit).round().astype(int)
    return replace(stream, questions=tuple(stream.questions[i] for i in np.unique(kept)))


def _measure(stream: Stream, rows: F32, questions: F32, plan: _Plan) -> _Measured:
    out = _Measured()
    by_visible: dict[int, list[int]] = {}
    for i, question in enumerate(stream.questions):
        by_visible.setdefault(question.visible, []).append(i)
    for visible, asked in sorted(by_visible.items()):
        known = rows[:visible]
        labelled = _labels(known, plan)
        for name, labels in labelled.items():
            sizes = np.bincount(labels)
            fact = (int((sizes > 0).sum()), float(sizes.max() / labels.size))
            out.atoms.setdefault(name, []).append(fact)
        metric = FisherMetric.fit(known, ridge=presets["default"].ridge)
        words = LexicalIndex([turn.embedded for turn in stream.turns[:visible]])
        for i in asked:
            ranked = _rank(questions[i], known, metric, words, stream.questions[i].text)
            _pack_all(stream, stream.questions[i], ranked, known, labelled, plan, out)
    return out


def _labels(rows: F32, plan: _Plan) -> dict[str, I64]:
    """Name of clustering, quantile and order -> labels."""
    found: dict[str, I64] = {}
    if rows.shape[0] < 2:
        return {"max_member": np.zeros(rows.shape[0], np.int64)}
    usable = None
    last = ("", 0.0)
    for quantile in plan.quantiles:
        threshold = calibrate_threshold(rows, quantile=quantile, sample=_CALIBRATION)
        name = f"max_member q{quantile:g}"
        found[name] = cluster(rows, "max_member", threshold)
        last = (f"q{quantile:g}", threshold)
        share = np.bincount(found[name]).max() / rows.shape[0]
        if usable is None and share < 0.5:
            usable = last
    label, threshold = usable or last
    for kind in plan.clusterings:
        for order in range(plan.orders):
            if kind == "max_member" and order == 0:
                continue
            turned = _order(rows.shape[0], order)
            labels = np.empty(rows.shape[0], np.int64)
            labels[turned] = cluster(rows[turned], kind, threshold)
            suffix = "" if order == 0 else f", {ORDERS[order]}"
            found[f"{kind} middle{suffix}"] = labels
    found["max_member middle"] = found[f"max_member {label}"]
    return found


def _order(n: int, order: int) -> I64:
    if order == 0:
        return np.arange(n)
    if order == 1:
        return np.arange(n)[::-1]
    return np.random.default_rng(0).permutation(n)


def _rank(
    query: F32, rows: F32, metric: FisherMetric, words: LexicalIndex, text: str
) -> dict[str, F64]:
    preset = presets["default"]
    dense = np.asarray(
        point_scores(query[None], rows, metric, cosine_weight=0.0, form=preset.form, norm="none")
    )[0]
    lexical = np.zeros(rows.shape[0])
    for row, score in words.search(text, rows.shape[0]):
        lexical[row] = score
    cosine = rows.astype(np.float64) @ query.astype(np.float64)
    return {"hits": 0.5 * _minmax(dense) + 0.5 * _minmax(lexical), "cosine": cosine}


def _hits(budget: int) -> int:
    return budget // _TOKENS_PER_HIT


def _minmax(values: F64) -> F64:
    spread = values.max() - values.min()
    scaled: F64 = (values - values.min()) / spread if spread > 0 else np.zeros_like(values)
    return scaled


def _scored(stream: Stream, scores: F64, rows: I64) -> list[StreamTurn]:
    return [replace(stream.turns[int(i)], score=float(scores[i])) for i in rows]


def _pack_all(
    stream: Stream,
    question: PackQuestion,
    ranked: dict[str, F64],
    rows: F32,
    labelled: dict[str, I64],
    plan: _Plan,
    out: _Measured,
) -> None:
    best = {
        kind: np.lexsort((np.arange(scores.size), -scores))[: _hits(max(plan.budgets))]
        for kind, scores in ranked.items()
    }
    hits = _scored(stream, ranked["hits"], best["hits"])
    plain = _scored(stream, ranked["cosine"], best["cosine"])

    def note(name: str, layout: str, make: Callable[[int], Packing]) -> None:
        shares, tokens = [], []
        for budget in plan.budgets:
            try:
                packed = make(budget)
            except BudgetTooSmallError:
                packed = Packing("", 0)
            reached = {turn.group for turn in packed.turns}
            shares.append(sum(g in reached for g in question.gold) / len(question.gold))
            tokens.append(float(packed.tokens))
        out.shares.setdefault(name, []).append(shares)
        out.tokens.setdefault(name, []).append(tokens)
        out.layout[name] = layout

    note(
        FLAT, FLAT, lambda b: pack_turns(hits[: _hits(b)], token_budget=b, count_tokens=plan.count)
    )
    note(
        "flat, cosine alone",
        "plain",
        lambda b: pack_turns(plain[: _hits(b)], token_budget=b, count_tokens=plan.count),
    )
    for name, labels in labelled.items():
        atoms = {int(i): int(labels[i]) for i in best["hits"]}

        def grouped(b: int, atoms: dict[int, int] = atoms) -> Packing:
            return pack_grouped(hits[: _hits(b)], atoms, token_budget=b, count_tokens=plan.count)

        note(f"grouped, {name}", "grouped", grouped)
        if "reversed" in name or "shuffled" in name:
            continue
        turns, owner = _by_atoms(stream, ranked, rows, labels)

        def by_atoms(
            b: int, turns: list[StreamTurn] = turns, owner: dict[int, int] = owner
        ) -> Packing:
            return pack_grouped(
                turns[: _hits(b)], owner, token_budget=b, count_tokens=plan.count, select="atoms"
            )

        note(f"atoms, {name}", "atoms", by_atoms)


def _by_atoms(
    stream: Stream, ranked: dict[str, F64], rows: F32, labels: I64
) -> tuple[list[StreamTurn], dict[int, int]]:
    """The printed rule: the best atoms by centroid, all their members, ranked inside."""
    count = int(labels.max()) + 1
    sums = np.zeros((count, rows.shape[1]))
    np.add.at(sums, labels, rows.astype(np.float64))
    # cos(q, centroid) = sum of the members' cosines / |sum|
    along = np.bincount(labels, weights=ranked["cosine"], minlength=count)
    norms = np.linalg.norm(sums, axis=1)
    central = np.where(norms > 0, along / np.maximum(norms, 1e-300), -np.inf)
    top = np.lexsort((np.arange(count), -central))[:_TOP_ATOMS]
    turns, owner = [], {}
    for place, atom in enumerate(top):
        members = np.flatnonzero(labels == atom)
        inside = members[np.lexsort((members, -ranked["hits"][members]))]
        for j, row in enumerate(inside):
            turns.append(replace(stream.turns[int(row)], score=-place - j / (len(inside) + 1)))
            owner[int(row)] = int(atom)
    return turns, owner


def _rows(measured: Sequence[_Measured], plan: _Plan) -> list[dict[str, Any]]:
    rows = []
    names = list(dict.fromkeys(name for one in measured for name in one.shares))
    flat = np.concatenate([np.array(one.shares[FLAT]) for one in measured if one.shares])
    for name in names:
        if not all(name in one.shares for one in measured):
            continue  # a stream too short to be clustered
        shares = np.concatenate([np.array(one.shares[name]) for one in measured])
        tokens = np.concatenate([np.array(one.tokens[name]) for one in measured])
        facts = [f for one in measured for f in one.atoms.get(name.split(", ", 1)[-1], [])]
        for b, budget in enumerate(plan.budgets):
            rows.append(
                {
                    "name": name,
                    "layout": measured[0].layout[name],
                    "budget": budget,
                    "share": float(shares[:, b].mean()),
                    "tokens": float(tokens[:, b].mean()),
                    "difference": paired_bootstrap(shares[:, b] - flat[:, b]),
                    "atoms": float(np.mean([f[0] for f in facts])) if facts else None,
                    "largest_share": float(np.mean([f[1] for f in facts])) if facts else None,
                }
            )
    return rows


def _leave_one_out(
    streams: Sequence[Stream], measured: Sequence[_Measured], plan: _Plan
) -> list[dict[str, Any]]:
    """Choose layout and threshold on all streams but one, by the mean share over the budgets."""
    del plan
    if len(measured) < 2:
        return []
    candidates = [
        name
        for name in measured[0].shares
        if name == FLAT or (name.split(", ")[-1].startswith("max_member q"))
    ]
    means = np.array([[np.mean(one.shares[name]) for name in candidates] for one in measured])
    out = []
    for i, stream in enumerate(streams):
        others = np.delete(means, i, axis=0).mean(axis=0)
        best = int(np.argmax(others))
        out.append(
            {
                "stream": stream.name,
                "choice": candidates[best],
                "share": float(means[i, best]),
                "flat": float(means[i, candidates.index(FLAT)]),
            }
        )
    return out

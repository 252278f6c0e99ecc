"""The result of the compression evaluation, as JSON and as tables to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .metrics import paired_bootstrap, shown_interval

__all__ = ["CompressionReport"]

_KINDS = ("numbers", "dates", "names", "negations")
_SHARES = ("all_answer_words", "evidence_words", *_KINDS, "speakers")


@dataclass
class CompressionReport:
    """Rows of the evaluation, with what they were made from.

    Attributes
    ----------
    data : dict
        File, SHA-256, questions asked and "of" how many, embedder, model, counter.
    measured : list of dict
        Per question, budget and method what the rows are the means of.
    rows : list of dict
        Per budget and method: ``answer_words``, ``all_answer_words``, ``evidence_words``,
        ``numbers``, ``dates``, ``names``, ``negations`` (shares; the last four of what the method
        read, which for whole turns is what it kept), ``speakers`` (share of the kept words that
        stand under the name of who said them, see
        :func:`~riemem.evaluation.attribution.speaker_attribution`), ``tokens``,
        ``over`` (most tokens beyond the budget), ``seconds``, ``difference`` of the
        answer words to "turns" (or the first method) with a paired bootstrap interval; on the
        sample ``nll``, ``delta_nll``, ``kl``, and ``nll_difference`` to "turns" with its
        interval, of ``n_nll`` questions.
    conversations : list of dict
        Answer words of every conversation.
    chosen : list of dict
        Leaving one conversation out: the method with the most answer words over the budgets on
        the others, what it keeps on the one left out, and what whole turns (or the first method)
        keep there.
    sentences : dict
        Spearman of a sentence's sensitivity with what leaving it out does to the answer's NLL:
        ``contexts``, ``spearman`` of each, ``mean`` with its interval.
    """

    data: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    conversations: list[dict[str, Any]] = field(default_factory=list)
    chosen: list[dict[str, Any]] = field(default_factory=list)
    sentences: dict[str, Any] = field(default_factory=dict)
    measured: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return dict(vars(self))

    def add(
        self, budget: str, method: str, conversation: str, measures: Mapping[str, float]
    ) -> None:
        """Add what one method kept for one question."""
        self.measured.append(
            {"budget": budget, "method": method, "conversation": conversation, **measures}
        )

    def add_sentences(self, correlation: float | None) -> None:
        """Add the rank correlation of one context; None where it had too few sentences."""
        if correlation is not None:
            self.sentences.setdefault("spearman", []).append(correlation)

    def finish(self, budgets: Sequence[str]) -> None:
        """Make the tables out of all that was added; `budgets` decide what is chosen."""
        self.rows, self.conversations, self.chosen = [], [], []
        runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for entry in self.measured:
            runs.setdefault(entry["budget"], {}).setdefault(entry["method"], []).append(entry)
        for methods in runs.values():
            base = "turns" if "turns" in methods else next(iter(methods))
            self.data["compared with"] = base
            for found in methods.values():
                self.rows.append(_row(found, methods[base]))
                self.conversations += _by_conversation(found)
        self.choose(budgets)
        each = self.sentences.get("spearman", [])
        if each:
            self.sentences = {
                "contexts": len(each), "spearman": each, **paired_bootstrap(np.array(each)),
            }  # fmt: skip

    def choose(self, budgets: Sequence[str]) -> None:
        """Fill in `chosen`, over these budgets."""
        cells = {
            (entry["conversation"], entry["method"], entry["budget"]): entry["answer_words"]
            for entry in self.conversations
        }
        streams = [
            stream
            for stream in dict.fromkeys(key[0] for key in cells)
            if any(np.isfinite(value) for key, value in cells.items() if key[0] == stream)
        ]
        methods = list(dict.fromkeys(key[1] for key in cells))
        if len(streams) < 2 or not budgets:
            return
        values = np.array(
            [[[cells[s, m, b] for b in budgets] for m in methods] for s in streams], np.float64
        )
        base = methods.index(self.data["compared with"])
        for i, stream in enumerate(streams):
            others = np.nanmean(np.delete(values, i, axis=0), axis=(0, 2))
            best = int(np.nanargmax(others))
            self.chosen.append(
                {
                    "conversation": stream,
                    "method": methods[best],
                    "answer_words": dict(zip(budgets, values[i, best].tolist(), strict=True)),
                    "base": dict(zip(budgets, values[i, base].tolist(), strict=True)),
                }
            )

    def to_text(self) -> str:
        """Return tables for a terminal."""
        lines = [f"{key}: {value}" for key, value in self.data.items()]
        head = (
            f"{'':17} {'answer':>7} {'all':>6} {'evid.':>6} {'num.':>6} {'dates':>6} {'names':>6}"
            f" {'neg.':>6} {'spk.':>6} {'tokens':>7} {'over':>4} {'s':>6}"
            f"  minus {self.data.get('compared with', 'the first')}"
        )
        asked = f"{'':17} {'n':>4} {'dNLL':>6} {'KL':>6}  minus {self.data.get('compared with')}"
        for budget in dict.fromkeys(row["budget"] for row in self.rows):
            lines += ["", f"budget {budget}", head]
            rows = [row for row in self.rows if row["budget"] == budget]
            lines += [_line(row) for row in rows]
            if any("nll" in row for row in rows):
                lines += ["", f"budget {budget}, the model's view of the answer", asked]
                lines += [_model_line(row) for row in rows if "nll" in row]
        if self.chosen:
            lines += ["", "answer words, method chosen on the other conversations (base):"]
            for entry in self.chosen:
                shown = "  ".join(
                    f"{b}: {value:.3f} ({entry['base'][b]:.3f})"
                    for b, value in entry["answer_words"].items()
                )
                lines.append(f"  {entry['conversation']:10} {entry['method']:17} {shown}")
        if self.sentences:
            lines += [
                "",
                "sentences: Spearman of sensitivity with the rise of the answer's NLL when one is "
                f"left out, {self.sentences['contexts']} contexts: "
                + shown_interval(self.sentences),
            ]
        return "\n".join(lines)


def _row(found: Sequence[Mapping[str, Any]], base: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the means of one method at one budget, and its differences to the base."""
    row: dict[str, Any] = {name: found[0][name] for name in ("budget", "method")}
    row["n"] = len(found)
    for name in found[0]:
        if name not in ("budget", "method", "conversation", "over"):
            values = _finite(np.array([run.get(name, np.nan) for run in found]))
            row[name] = float(values.mean()) if values.size else float("nan")
    row["over"] = int(max(run["over"] for run in found))
    row["difference"] = _difference(found, base, "answer_words")
    if "nll" in row:
        row["n_nll"] = sum("nll" in run for run in found)
        row["nll_difference"] = _difference(found, base, "nll")
    return row


def _difference(
    found: Sequence[Mapping[str, Any]], base: Sequence[Mapping[str, Any]], name: str
) -> dict[str, float]:
    one, two = (np.array([run.get(name, np.nan) for run in runs]) for runs in (found, base))
    values = _finite(one - two)
    if not values.size:
        return dict.fromkeys(("mean", "low", "high"), float("nan"))
    return paired_bootstrap(values)


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[np.isfinite(values)]


def _by_conversation(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    result = []
    for name in dict.fromkeys(run["conversation"] for run in found):
        own = _finite(np.array([r["answer_words"] for r in found if r["conversation"] == name]))
        entry = {key: found[0][key] for key in ("budget", "method")}
        entry |= {"conversation": name}
        result.append({**entry, "answer_words": float(own.mean()) if own.size else float("nan")})
    return result


def _line(row: Mapping[str, Any]) -> str:
    shares = "".join(f" {row[name]:6.3f}" for name in _SHARES)
    difference = row["difference"]
    interval = shown_interval(difference)
    return (
        f"{row['method']:17} {row['answer_words']:7.3f}{shares} {row['tokens']:7.1f}"
        f" {row['over']:4d} {row['seconds']:6.2f}  {interval}"
    )


def _model_line(row: Mapping[str, Any]) -> str:
    return (
        f"{row['method']:17} {row['n_nll']:4d} {row['delta_nll']:+6.2f} {row['kl']:6.2f}"
        f"  {shown_interval(row['nll_difference'])}"
    )

"""The result of the compression evaluation, as JSON and as tables to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .metrics import shown_interval

__all__ = ["CompressionReport"]


@dataclass
class CompressionReport:
    """Rows of the evaluation, with what they were made from.

    Attributes
    ----------
    data : dict
        File, SHA-256, questions, embedder, model, counter.
    rows : list of dict
        Per budget and method: ``answer_words``, ``all_answer_words``, ``evidence_words``,
        ``numbers``, ``dates``, ``names``, ``negations`` (shares; the last four of what the method
        read, which for whole turns is what it kept), ``tokens``, ``over`` (most tokens
        beyond the budget), ``seconds``, ``difference`` of the answer words to "turns" (or the
        first method) with a paired bootstrap interval; on the sample ``nll``, ``delta_nll``,
        ``kl``.
    conversations : list of dict
        Answer words of every conversation.
    chosen : list of dict
        Leaving one conversation out: the method with the most answer words over the budgets on
        the others, what it keeps on the one left out, and what whole turns (or the first method)
        keep there.
    sentences : dict
        Spearman of a sentence's sensitivity with what leaving it out does to the answer's NLL.
    """

    data: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    conversations: list[dict[str, Any]] = field(default_factory=list)
    chosen: list[dict[str, Any]] = field(default_factory=list)
    sentences: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return dict(vars(self))

    def choose(self, budgets: Sequence[str]) -> None:
        """Fill in `chosen`, over these budgets."""
        cells = {
            (entry["conversation"], entry["method"], entry["budget"]): entry["answer_words"]
            for entry in self.conversations
        }
        streams = list(dict.fromkeys(key[0] for key in cells))
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
            f" {'neg.':>6} {'tokens':>7} {'over':>4} {'dNLL':>6} {'KL':>6} {'s':>6}"
            f"  minus {self.data.get('compared with', 'the first')}"
        )
        for budget in dict.fromkeys(row["budget"] for row in self.rows):
            lines += ["", f"budget {budget}", head]
            lines += [_line(row) for row in self.rows if row["budget"] == budget]
        if self.chosen:
            lines += ["", "answer words, method chosen on the other conversations (base):"]
            for entry in self.chosen:
                shown = "  ".join(
                    f"{b}: {value:.3f} ({entry['base'][b]:.3f})"
                    for b, value in entry["answer_words"].items()
                )
                lines.append(f"  {entry['conversation']:10} {entry['method']:17} {shown}")
        if self.sentences:
            lines += ["", ", ".join(f"{k} {v}" for k, v in self.sentences.items())]
        return "\n".join(lines)


def _line(row: Mapping[str, Any]) -> str:
    shares = "".join(
        f" {row[name]:6.3f}"
        for name in ("all_answer_words", "evidence_words", "numbers", "dates", "names", "negations")
    )
    difference = row["difference"]
    interval = shown_interval(difference)
    model = "".join(
        f" {row[name]:6.2f}" if row.get(name) is not None else f" {'':6}"
        for name in ("delta_nll", "kl")
    )
    return (
        f"{row['method']:17} {row['answer_words']:7.3f}{shares} {row['tokens']:7.1f}"
        f" {row['over']:4d}{model} {row['seconds']:6.2f}  {interval}"
    )

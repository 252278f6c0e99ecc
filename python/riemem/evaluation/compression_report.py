"""The result of the compression evaluation, as JSON and as tables to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
    sentences : dict
        Spearman of a sentence's sensitivity with what leaving it out does to the answer's NLL.
    """

    data: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    conversations: list[dict[str, Any]] = field(default_factory=list)
    sentences: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return dict(vars(self))

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
        if self.sentences:
            lines += ["", ", ".join(f"{k} {v}" for k, v in self.sentences.items())]
        return "\n".join(lines)


def _line(row: Mapping[str, Any]) -> str:
    shares = "".join(
        f" {row[name]:6.3f}"
        for name in ("all_answer_words", "evidence_words", "numbers", "dates", "names", "negations")
    )
    difference = row["difference"]
    interval = f"{difference['mean']:+.3f} [{difference['low']:+.3f}, {difference['high']:+.3f}]"
    model = "".join(
        f" {row[name]:6.2f}" if row.get(name) is not None else f" {'':6}"
        for name in ("delta_nll", "kl")
    )
    return (
        f"{row['method']:17} {row['answer_words']:7.3f}{shares} {row['tokens']:7.1f}"
        f" {row['over']:4d}{model} {row['seconds']:6.2f}  {interval}"
    )

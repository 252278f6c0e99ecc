"""The result of the packing evaluation, as JSON and as tables to read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["FLAT", "PackingReport"]

FLAT = "flat"


@dataclass
class PackingReport:
    """Rows of the evaluation, with what they were made from.

    Attributes
    ----------
    data : dict
        File, SHA-256, format, counts, ranking.
    embedder, counter : str
    rows : list of dict
        Per layout, clustering, threshold and budget: ``share`` (of gold groups in the text),
        ``tokens`` (mean), ``difference`` to flat with a paired bootstrap interval, ``atoms`` and
        ``largest_share`` (means).
    streams : list of dict
        Per stream and name: ``share`` (mean over questions and budgets); for a clustering also
        ``gold_pairs``, the share of pairs of evidence turns of one question that are in one atom,
        and ``all_pairs``, the same share of all pairs of turns (None without such pairs).
    chosen : list of dict
        Leaving one stream out: what was chosen on the others, and its share on the one left out.
    """

    data: dict[str, Any]
    embedder: str
    counter: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    streams: list[dict[str, Any]] = field(default_factory=list)
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

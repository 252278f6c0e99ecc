"""The result of the packing evaluation, as JSON and as tables to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .metrics import paired_bootstrap

__all__ = ["FLAT", "Measured", "PackingReport", "entries_of", "leave_one_out", "rows_of"]

FLAT = "flat"


@dataclass
class Measured:
    """Per configuration name: share and tokens (questions, budgets), and facts of the atoms.

    `atoms` has (number, share of the largest) for every state of the stream that was asked,
    `pairs` (gold pairs in one atom, gold pairs, share of all pairs in one atom) per question.
    """

    shares: dict[str, list[list[float]]] = field(default_factory=dict)
    tokens: dict[str, list[list[float]]] = field(default_factory=dict)
    atoms: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    pairs: dict[str, list[tuple[int, int, float]]] = field(default_factory=dict)
    layout: dict[str, str] = field(default_factory=dict)


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


def _clustering_of(name: str) -> str:
    return name.split(", ", 1)[-1]


def rows_of(measured: Sequence[Measured], budgets: Sequence[int]) -> list[dict[str, Any]]:
    """Return one row per name and budget, over the questions of all streams."""
    rows = []
    names = list(dict.fromkeys(name for one in measured for name in one.shares))
    flat = np.concatenate([np.array(one.shares[FLAT]) for one in measured if one.shares])
    for name in names:
        if not all(name in one.shares for one in measured):
            continue  # a stream too short to be clustered
        shares = np.concatenate([np.array(one.shares[name]) for one in measured])
        tokens = np.concatenate([np.array(one.tokens[name]) for one in measured])
        facts = [f for one in measured for f in one.atoms.get(_clustering_of(name), [])]
        for b, budget in enumerate(budgets):
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


def entries_of(stream: str, one: Measured) -> list[dict[str, Any]]:
    """Return one entry per name for a stream."""
    entries = []
    for name, shares in one.shares.items():
        entry: dict[str, Any] = {"stream": stream, "name": name}
        entry["share"] = float(np.mean(shares))
        pairs = one.pairs.get(_clustering_of(name), [])
        entry["gold_pairs"] = sum(p[0] for p in pairs) / sum(p[1] for p in pairs) if pairs else None
        entry["all_pairs"] = float(np.mean([p[2] for p in pairs])) if pairs else None
        facts = one.atoms.get(_clustering_of(name), [])
        entry["largest_share"] = float(np.mean([f[1] for f in facts])) if facts else None
        entries.append(entry)
    return entries


def leave_one_out(streams: Sequence[str], measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """Choose layout and threshold on all streams but one, by the mean share over the budgets.

    Other orders of a stream are not candidates: nobody can choose how memories arrive.
    """
    if len(measured) < 2:
        return []
    grouped = "grouped, max_member "
    candidates = [n for n in measured[0].shares if n == FLAT or n.startswith(grouped)]
    means = np.array([[np.mean(one.shares[name]) for name in candidates] for one in measured])
    out = []
    for i, stream in enumerate(streams):
        others = np.delete(means, i, axis=0).mean(axis=0)
        best = int(np.argmax(others))
        out.append(
            {
                "stream": stream,
                "choice": candidates[best],
                "share": float(means[i, best]),
                "flat": float(means[i, candidates.index(FLAT)]),
            }
        )
    return out

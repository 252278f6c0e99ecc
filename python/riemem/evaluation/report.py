"""The result of an evaluation, as JSON and as a table to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .latency import latency_text
from .locomo import CATEGORIES
from .metrics import NAMES, shown_interval

_COLUMNS = (*NAMES, "hubness")
_COMPARED = ("hit@10", "recall@10")


@dataclass(frozen=True)
class Report:
    """Rows of metrics with everything that is needed to read them rightly.

    Attributes
    ----------
    data : dict
        ``file``, ``sha256``, ``conversations``, ``turns``, ``questions``.
    rendering, embedder : str
        How a turn was written for the embedder, and the embedder's identity.
    rows : list of dict
        One per method: ``name``, ``n``, the metrics, ``hubness``, ``categories`` and
        ``difference_to_cosine``; ``evidence`` is the share inside 500, 1000 and 2000 tokens.
    audit : dict or None
        ``file``, ``sha256``, ``corrected``, ``dropped``, where an audit was given.
    audit_rows : list of dict
        The same rows on the audited questions; empty without an audit.
    notes : list of str
        What was done otherwise than asked, and why.
    counter : str
        Whose tokens the budgets of ``evidence`` are counted in; turns by rank, without headers.
    recall : dict
        Share of the evidence in the texts of ``Memory.recall`` per budget; empty if not asked for.
    latency : list of dict
        Rows of :func:`riemem.evaluation.latency.measure_latency`; empty if not asked for.
    """

    data: dict[str, Any]
    rendering: str
    embedder: str
    rows: list[dict[str, Any]]
    audit: dict[str, Any] | None = None
    audit_rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counter: str = ""
    recall: dict[str, float] = field(default_factory=dict)
    latency: list[dict[str, float]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON types."""
        return {
            "data": self.data,
            "rendering": self.rendering,
            "embedder": self.embedder,
            "rows": self.rows,
            "audit": self.audit,
            "audit_rows": self.audit_rows,
            "notes": self.notes,
            "counter": self.counter,
            "recall": self.recall,
            "latency": self.latency,
        }

    def to_text(self) -> str:
        """Return the report as tables that fit into 100 columns."""
        data = self.data
        lines = [
            f"file       {data['file']}  sha256 {data['sha256']}",
            f"questions  {data['questions']} of categories 1-4 with evidence, "
            f"{data['conversations']} conversations, {data['turns']} turns",
            f"rendering  {self.rendering}",
            f"embedder   {self.embedder}",
            f"tokens     {self.counter}, of turns without headers",
            "",
            *_tables(self.rows),
        ]
        if self.audit is not None:
            lines += [
                "",
                f"audit      {self.audit['file']}  sha256 {self.audit['sha256']}",
                f"           {self.audit['corrected']} questions with corrected evidence, "
                f"{self.audit['dropped']} with other errors left out",
                "",
                *_tables(self.audit_rows),
            ]
        if self.recall:
            shares = "  ".join(f"{budget} {share:.3f}" for budget, share in self.recall.items())
            lines += ["", f"default, evidence in the texts of recall, dates counted: {shares}"]
        if self.latency:
            lines += ["", "search without embedding", latency_text(self.latency)]
        if self.notes:
            lines += ["", *(f"note: {note}" for note in self.notes)]
        return "\n".join(lines)


def _tables(rows: Sequence[dict[str, Any]]) -> list[str]:
    width = max(len("evidence inside tokens"), *(len(row["name"]) for row in rows))
    head = f"{'':{width}} {'n':>5}" + "".join(f" {name:>6}" for name in _COLUMNS)
    lines = [head]
    for row in rows:
        values = "".join(f" {row[name]:{max(6, len(name))}.3f}" for name in _COLUMNS)
        lines.append(f"{row['name']:{width}} {row['n']:5d}{values}")
    present = [key for key in map(str, CATEGORIES) if key in rows[0]["categories"]]
    titles = [f"{key} {CATEGORIES[int(key)]}" for key in present]
    lines += ["", f"{'hit@10 by category':{width}}  " + "".join(f" {t:>13}" for t in titles)]
    counts = "".join(f" {rows[0]['categories'][key]['n']:13d}" for key in present)
    lines.append(f"{'n':{width}}  {counts}")
    for row in rows:
        values = "".join(f" {row['categories'][key]['hit@10']:13.3f}" for key in present)
        lines.append(f"{row['name']:{width}}  {values}")
    budgets = list(rows[0]["evidence"])
    titles = [f"{budget:>9}" for budget in budgets]
    lines += ["", f"{'evidence inside tokens':{width}}  " + "".join(f" {t}" for t in titles)]
    for row in rows:
        values = "".join(f" {row['evidence'][budget]:9.3f}" for budget in budgets)
        lines.append(f"{row['name']:{width}}  {values}")
    titles = [f"{name} (95 % interval)" for name in _COMPARED]
    lines += ["", f"{'minus cosine':{width}}  " + "".join(f" {t:>26}" for t in titles)]
    for row in rows:
        values = "".join(f" {_interval(row, name):>26}" for name in _COMPARED)
        lines.append(f"{row['name']:{width}}  {values}")
    return [line.rstrip() for line in lines]


def _interval(row: dict[str, Any], name: str) -> str:
    return shown_interval(row["difference_to_cosine"][name])

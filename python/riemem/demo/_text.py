"""The report of a demo run, laid out for a terminal."""

from __future__ import annotations

import textwrap
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import Answer, Ranked, Report

_INDENT = "   "


def render(report: Report, width: int) -> str:
    """Return the whole report as lines of at most `width` columns."""
    lines = [
        report.title,
        f"{report.turns} turns in {report.sessions} sessions, "
        f"{report.first_day} to {report.last_day}",
        "",
        f"embedder  {report.embedder}",
        *textwrap.wrap(f"fused     {report.scoring}", width, subsequent_indent=" " * 10),
        f"tokens    counted by {report.counter}",
        "*         a turn that answers the question",
    ]
    for number, answer in enumerate(report.answers, start=1):
        lines += ["", *_answer(number, answer, width)]
    asked, shown = len(report.answers), max(len(answer.fused) for answer in report.answers)
    lines += [
        "",
        f"answered among the first {shown}: cosine {report.found('cosine')} of {asked}, "
        f"fused {report.found('fused')} of {asked}",
    ]
    return "\n".join(lines)


def _answer(number: int, answer: Answer, width: int) -> list[str]:
    column = (width - 2 * len(_INDENT)) // 2
    lines = [f"{number}. {answer.question}", "", _row("cosine", "fused", column)]
    for left, right in zip_longest(answer.cosine, answer.fused):
        lines.append(_row(_hit(left, column), _hit(right, column), column))
    memories = "memory" if answer.memories == 1 else "memories"
    lines += [
        "",
        f"{_INDENT}context: {answer.tokens} of {answer.token_budget} tokens, "
        f"{answer.memories} {memories}",
    ]
    for line in answer.context.splitlines():
        lines += textwrap.wrap(
            line,
            width,
            initial_indent=f"{_INDENT}| ",
            subsequent_indent=f"{_INDENT}|   ",
        ) or [f"{_INDENT}|"]
    return lines


def _row(left: str, right: str, column: int) -> str:
    return f"{_INDENT}{left:<{column}}{_INDENT}{right}".rstrip()


def _hit(hit: Ranked | None, column: int) -> str:
    if hit is None:
        return ""
    mark = "*" if hit.evidence else " "
    line = f"{hit.score:6.3f} {mark} {hit.speaker}: {hit.text}"
    return line if len(line) <= column else line[: column - 1].rstrip() + "…"

"""What a distillation gives back, and how it is read off the kept units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .document import Document, Piece, Span
from .options import Options
from .protect import Kind
from .scores import UnitScores
from .select import Selection

__all__ = ["Distillation", "Removed", "Report", "make_distillation"]

_NAMED = {
    "negations": Kind.NEGATION,
    "numbers": Kind.NUMBER,
    "dates": Kind.DATE,
    "names": Kind.NAME,
}


@dataclass(frozen=True)
class Removed:
    """A slice that was dropped, and of which kind its words are."""

    id: int
    start: int
    end: int
    text: str
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """What was done.

    Attributes
    ----------
    original_tokens : int
        Of the whole input by the caller's counter.
    units, kept_units : int
        Words of the input and of the result.
    kept_kinds : dict
        For negations, numbers, dates and names: (kept, of how many that were read).
    windows, cached : int
        Passes of the language model, and texts whose scores were at hand.
    unread : int
        Turns that were left out before the model read anything (option `oversample`).
    counter_calls : int
        How often the caller's counter was asked about a text that might be the result.
    model : str
        Identity of the language model; empty when none was used.
    estimated_bytes : int
        Largest estimate for a pass; 0 without a memory budget.
    score : str
        What decided ("auto" where the whole text fitted, so that nothing had to).
    options : dict
        The options in force.
    """

    original_tokens: int
    units: int
    kept_units: int
    kept_kinds: dict[str, tuple[int, int]]
    windows: int = 0
    cached: int = 0
    unread: int = 0
    counter_calls: int = 0
    model: str = ""
    estimated_bytes: int = 0
    score: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Distillation:
    """A distilled text.

    Attributes
    ----------
    text : str
        Never more than the budget by the caller's counter.
    tokens : int
        Of `text`, by that counter.
    kept_ratio : float
        `tokens` / tokens of the input; 1 for an empty input.
    spans : tuple of Span
        Kept slices ``(memory id, start, end)`` in the order of the text.
    removed : tuple of Removed
        Dropped slices in the same order, then the turns that were not read.
    report : Report
        What was done.
    token_counter : str
        What counted.
    """

    text: str
    tokens: int
    kept_ratio: float
    spans: tuple[Span, ...]
    removed: tuple[Removed, ...]
    report: Report
    token_counter: str = "caller"


def make_distillation(
    document: Document,
    selection: Selection,
    *,
    original: int,
    label: str,
    options: Options,
    found: UnitScores | None = None,
    model: str = "",
    left_out: Sequence[Piece] = (),
    complete: bool = False,
) -> Distillation:
    """Return the result for the units that were kept.

    Parameters
    ----------
    document, selection
        What was read, and what of it is kept.
    original : int
        Tokens of the whole input.
    label : str
        What counted.
    options, found, model
        For the report.
    left_out : sequence of Piece
        Turns that are no part of the document.
    complete : bool
        The text is the input as it was, white space at its ends included.
    """
    kept = selection.kept
    if complete:
        parts = [[(0, len(piece.text))] if piece.text else [] for piece in document.pieces]
    else:
        parts = document.spans(kept)
    spans: list[Span] = []
    removed: list[Removed] = []
    for number, (piece, slices) in enumerate(zip(document.pieces, parts, strict=True)):
        at = 0
        for start, end in [*slices, (len(piece.text), len(piece.text))]:
            gone = piece.text[at:start]
            if gone.strip():
                kinds = _kinds_between(document, number, at, start)
                removed.append(Removed(piece.id, at, start, gone, kinds))
            if start < end:
                spans.append(Span(piece.id, start, end))
            at = end
    removed += [
        Removed(piece.id, 0, len(piece.text), piece.text)
        for piece in left_out
        if piece.text.strip()
    ]
    report = Report(
        original_tokens=original,
        units=len(document.units) + sum(len(piece.text.split()) for piece in left_out),
        kept_units=int(kept.sum()),
        kept_kinds=_kept_kinds(document, kept),
        windows=found.windows if found else 0,
        cached=found.cached if found else 0,
        unread=len(left_out),
        counter_calls=selection.calls,
        model=model,
        estimated_bytes=found.estimated_bytes if found else 0,
        score=options.score,
        options=asdict(options),
    )
    ratio = selection.tokens / original if original else 1.0
    return Distillation(
        selection.text, selection.tokens, ratio, tuple(spans), tuple(removed), report, label
    )


def _kinds_between(document: Document, piece: int, start: int, end: int) -> tuple[str, ...]:
    first, last = document.first_unit[piece], document.first_unit[piece + 1]
    kinds = 0
    for number in range(first, last):
        if start <= document.units[number].start < end:
            kinds |= int(document.kinds[number])
    return tuple(name for name, flag in _NAMED.items() if kinds & flag)


def _kept_kinds(document: Document, kept: NDArray[np.bool_]) -> dict[str, tuple[int, int]]:
    result = {}
    for name, flag in _NAMED.items():
        of = (document.kinds & int(flag)) != 0
        result[name] = (int((of & kept).sum()), int(of.sum()))
    return result

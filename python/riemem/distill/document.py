"""What is distilled: one text or several turns, cut into units, and put together again."""

# ruff: noqa: RUF001  the characters are meant

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from riemem._arrays import whole_number
from riemem._tokenizer import encodable
from riemem.errors import ArgumentError, BudgetTooSmallError, DTypeError
from riemem.packing import format_turns

from .given import instant_of, score_of, slices_of
from .protect import Kind, Protection, classify, groups_of
from .units import Unit, joined_spans, split_units

__all__ = ["Document", "Piece", "Span", "read", "refuse_blanks"]

_LABEL_WORDS = 4


class Span(NamedTuple):
    """Characters `start` to `end` of the text of memory `id` (0 for a plain text)."""

    id: int
    start: int
    end: int


@dataclass(frozen=True)
class Piece:
    """One text with what is known about it; what `format_turns` needs."""

    id: int
    text: str
    speaker: str | None = None
    session: str | None = None
    when: str | None = None
    score: float | None = None
    key: int = 0


@dataclass
class Document:
    """Units of all pieces, numbered through.

    Attributes
    ----------
    pieces : list of Piece
        In the order of the output.
    plain : bool
        One text without headers, put together from its own slices alone.
    units : list of Unit
        Offsets are within the unit's piece.
    piece_of, sentence_of, line_of, group_of, kinds : (U,) int64
        Of every unit; sentences, lines and groups are numbered through the document.
    untouchable : (U,) bool
        Units that must be kept.
    """

    pieces: list[Piece]
    plain: bool
    units: list[Unit] = field(default_factory=list)
    piece_of: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    sentence_of: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    line_of: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    group_of: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    kinds: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    untouchable: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    first_unit: list[int] = field(default_factory=list)

    def whole(self) -> str:
        """Return everything, as it would be written without a budget."""
        return self.pieces[0].text if self.plain else format_turns(_ordered(self.pieces))

    def word(self, number: int) -> str:
        """Return the text of a unit."""
        unit = self.units[number]
        return self.pieces[int(self.piece_of[number])].text[unit.start : unit.end]

    def spans(self, kept: NDArray[np.bool_]) -> list[list[tuple[int, int]]]:
        """Return the kept slices of every piece."""
        result = []
        for number, piece in enumerate(self.pieces):
            first, last = self.first_unit[number], self.first_unit[number + 1]
            mask = kept[first:last]
            if mask.all() and last > first:
                result.append(
                    [(0, len(piece.text))]
                    if not self.plain
                    else joined_spans(piece.text, self.units[first:last], mask.tolist())
                )
            elif mask.any():
                result.append(joined_spans(piece.text, self.units[first:last], mask.tolist()))
            else:
                result.append([])
        return result

    def render(self, kept: NDArray[np.bool_]) -> str:
        """Return the text of the kept units, with speakers and dates where there are turns."""
        spans = self.spans(kept)
        texts = [
            "".join(piece.text[a:b] for a, b in parts)
            for piece, parts in zip(self.pieces, spans, strict=True)
        ]
        if self.plain:
            return texts[0]
        return format_turns(
            _ordered(
                [
                    replace(piece, text=text)
                    for piece, text, parts in zip(self.pieces, texts, spans, strict=True)
                    if parts
                ]
            )
        )


@dataclass(frozen=True)
class _Row:
    id: int
    text: str
    speaker: str | None
    session: str | None
    when: str | None
    score: float


def _ordered(pieces: Iterable[Piece]) -> list[_Row]:
    return [
        _Row(piece.key, piece.text, piece.speaker, piece.session, piece.when, 0.0)
        for piece in pieces
    ]


def read(
    source: object,
    protection: Protection,
    *,
    keep: Iterable[Sequence[int]] = (),
    run: int = 2,
) -> Document:
    """Check and cut what the caller gave.

    Parameters
    ----------
    source : str or sequence
        A text, or turns: strings, mappings, or objects with a ``text``.
    protection : Protection
        Decides on groups and patterns.
    keep : iterable
        Untouchable ``(start, end)`` of a text, ``(id, start, end)`` of turns.
    run : int
        See :func:`riemem.distill.units.split_units`.

    Raises
    ------
    DTypeError
        `source` is neither text nor turns, or a span is not of whole numbers.
    TextError
        A text is not valid Unicode.
    ArgumentError
        Two turns with one id, a ``when`` that is no date, or a span outside its text.
    NotFiniteError
        A score is NaN or infinite.
    """
    plain = isinstance(source, str)
    pieces = [Piece(0, encodable(source))] if isinstance(source, str) else _turns(source)
    document = Document(pieces, plain)
    untouchable = _untouchable(document, protection, keep)
    _cut(document, protection, untouchable, run)
    return document


def refuse_blanks(document: Document, slices: Iterable[Sequence[int]]) -> None:
    """Raise where a slice is to be kept of a turn that has no word: words are what is kept."""
    blank = {piece.id for piece in document.pieces if not piece.text.strip()}
    for memory_id, start, end in slices:
        if memory_id in blank:
            raise BudgetTooSmallError(
                f"token_budget: not everything fits, and of {(memory_id, start, end)}, white "
                "space without a word, nothing can be kept"
            )


def _turns(source: object) -> list[Piece]:
    if isinstance(source, (bytes, Mapping)) or not isinstance(source, Iterable):
        raise DTypeError(
            f"text_or_turns: expected a str or a sequence of turns, got {type(source).__name__}"
        )
    pieces = [_piece(item, place) for place, item in enumerate(source)]
    seen: set[int] = set()
    for piece in pieces:
        if piece.id in seen:
            raise ArgumentError(f"text_or_turns: the id {piece.id} occurs twice")
        seen.add(piece.id)
    in_time = sorted(pieces, key=lambda piece: (_sortable(piece.when), piece.id))
    return [replace(piece, key=place) for place, piece in enumerate(in_time)]


def _sortable(when: str | None) -> str:
    if when is None:
        return ""
    return when if "." in when else f"{when[:19]}.000000{when[19:]}"


def _piece(item: object, place: int) -> Piece:
    where = f"text_or_turns[{place}]"
    if isinstance(item, str):
        return Piece(place, encodable(item, where))
    values: dict[str, Any] = {}
    for name in ("id", "text", "speaker", "session", "when", "score"):
        values[name] = item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
    if not isinstance(values["text"], str):
        raise DTypeError(f"{where}: expected a turn with a text, got {type(item).__name__}")
    for name in ("speaker", "session", "when"):
        if values[name] is not None and not isinstance(values[name], str):
            raise DTypeError(
                f"{where}.{name}: expected str or None, got {type(values[name]).__name__}"
            )
    number = place if values["id"] is None else whole_number(values["id"])
    if number is None:
        raise DTypeError(f"{where}.id: expected an int, got {type(values['id']).__name__}")
    speaker, session = (
        None if values[name] is None else encodable(values[name], f"{where}.{name}")
        for name in ("speaker", "session")
    )
    return Piece(
        id=number,
        text=encodable(values["text"], where),
        speaker=speaker,
        session=session,
        when=instant_of(values["when"], f"{where}.when"),
        score=score_of(values["score"], f"{where}.score"),
    )


def _untouchable(
    document: Document, protection: Protection, keep: Iterable[Sequence[int]]
) -> list[list[tuple[int, int]]]:
    spans: list[list[tuple[int, int]]] = [[] for _ in document.pieces]
    place = {piece.id: number for number, piece in enumerate(document.pieces)}
    for memory_id, start, end in slices_of(keep, plain=document.plain):
        if memory_id not in place:
            raise ArgumentError(f"keep: {(memory_id, start, end)} is of no turn that was given")
        number = place[memory_id]
        if not 0 <= start <= end <= len(document.pieces[number].text):
            raise ArgumentError(f"keep: {(memory_id, start, end)} lies outside its text")
        if start < end:
            spans[number].append((start, end))
    for pattern in protection.patterns:
        for number, piece in enumerate(document.pieces):
            spans[number] += [
                found.span() for found in re.finditer(pattern, piece.text) if found.group()
            ]
    return [
        [_with_a_word(piece.text, *span) for span in own]
        for piece, own in zip(document.pieces, spans, strict=True)
    ]


def _with_a_word(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a slice of white space grown to the next word, or the last: units are words."""
    if text[start:end].strip():
        return start, end
    after = len(text) - len(text[end:].lstrip())
    if after < len(text):
        return start, after + 1
    return max(len(text[:start].rstrip()) - 1, 0), end


def _merged(
    units: list[Unit], spans: list[tuple[int, int]], size: int
) -> tuple[list[Unit], list[bool]]:
    """Make one unit of all that an untouchable span touches, white space at its ends included."""
    merged: list[Unit] = []
    marks: list[bool] = []
    union: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((start, end))
    todo = list(union)
    for unit in units:
        while todo and todo[0][1] <= unit.start and (not merged or todo[0][1] <= unit.gap):
            todo.pop(0)
        touching = [s for s in union if s[0] < unit.end and s[1] > unit.start]
        if not touching:
            merged.append(unit)
            marks.append(False)
            continue
        start = min(unit.start, touching[0][0])
        end = max(unit.end, touching[-1][1])
        if merged and (start <= merged[-1].end or touching[0][0] < merged[-1].end):
            last = merged[-1]
            merged[-1] = replace(last, end=max(end, last.end))
            marks[-1] = True
        else:
            merged.append(replace(unit, gap=merged[-1].end if merged else 0, start=start, end=end))
            marks.append(True)
    # Units that now begin inside the one before are part of it.
    result: list[Unit] = []
    kept: list[bool] = []
    for unit, mark in zip(merged, marks, strict=True):
        if result and unit.start < result[-1].end:
            result[-1] = replace(result[-1], end=max(unit.end, result[-1].end))
            kept[-1] = kept[-1] or mark
        else:
            gap = result[-1].end if result else 0
            result.append(replace(unit, gap=gap))
            kept.append(mark)
    return result, kept


def _cut(
    document: Document,
    protection: Protection,
    untouchable: list[list[tuple[int, int]]],
    run: int,
) -> None:
    piece_of, sentences, lines, groups, kinds, marks = [], [], [], [], [], []
    sentence = line = group = 0
    for number, piece in enumerate(document.pieces):
        document.first_unit.append(len(document.units))
        units = split_units(piece.text, run=run)
        mark = [False] * len(units)
        if untouchable[number]:
            units, mark = _merged(units, untouchable[number], len(piece.text))
        if not units:
            continue
        kind = classify(piece.text, units)
        if document.plain and protection.speakers:
            _mark_labels(piece.text, units, kind)
        document.units += units
        piece_of += [number] * len(units)
        sentences += [sentence + unit.sentence for unit in units]
        lines += [line + unit.line for unit in units]
        groups += [group + g for g in groups_of(piece.text, units, kind)]
        kinds += kind
        marks += mark
        sentence, line, group = sentences[-1] + 1, lines[-1] + 1, groups[-1] + 1
    document.first_unit.append(len(document.units))
    document.piece_of = np.array(piece_of, np.int64)
    document.sentence_of = np.array(sentences, np.int64)
    document.line_of = np.array(lines, np.int64)
    document.group_of = np.array(groups, np.int64)
    document.kinds = np.array(kinds, np.int64)
    document.untouchable = np.array(marks, np.bool_)


def _mark_labels(text: str, units: Sequence[Unit], kinds: list[int]) -> None:
    """Mark ``Name:`` at the beginning of a line: up to four words, the last with a colon."""
    at = 0
    while at < len(units):
        end = at
        while end < len(units) and units[end].line == units[at].line:
            end += 1
        for stop in range(at, min(at + _LABEL_WORDS, end - 1)):
            word = text[units[stop].start : units[stop].end]
            if word[-1] in ":：" and len(word) > 1 and word[0].isalnum():
                for number in range(at, stop + 1):
                    kinds[number] |= Kind.LABEL
                break
            if not word[0].isupper() or not word[-1].isalnum():
                break
        at = end

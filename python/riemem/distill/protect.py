"""What must not be lost: negations, numbers, dates and names, and what goes with them.

Protection works in three ways. A *group* is a run of neighbouring units kept or dropped together
(``7 May 2023``, ``not eat``). A *dependency* says that a unit may only be kept together with
others (every word of a sentence with the sentence's negations). A *multiplier* raises a score.
"""

# ruff: noqa: RUF001  the characters are meant

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from riemem.errors import ArgumentError

from .units import Unit
from .words import (
    CONNECTORS,
    FUNCTION_WORDS,
    MONTHS,
    NEGATION_CHARACTERS,
    NEGATIONS,
    RELATIVE_DAYS,
    TIME_NOUNS,
    WEEKDAYS,
    WRITTEN_NEGATIONS,
)

__all__ = ["Kind", "Protection", "classify", "core", "groups_of"]

_RULES = ("off", "sentence", "always")
_EDGES = " \t\n\"'“”‘’«»()[]{}<>.,;:!?…*_~`。，！？；：、"
_WRITTEN = re.compile("|".join(WRITTEN_NEGATIONS))
_HEAD_WORDS = 3  # a negation takes the words up to the first content word along, at most so many
_DATE_FILLERS = frozenset({"of", "the", "in", "on", "last", "next", "this", "ago", "past", "every"})


class Kind(enum.IntFlag):
    """What a unit is; several may hold at once."""

    PLAIN = 0
    NEGATION = 1
    NUMBER = 2
    DATE = 4
    NAME = 8
    CONNECTOR = 16
    FUNCTION = 32
    ENDS_SENTENCE = 64
    STRUCTURE = 128
    LABEL = 256


@dataclass(frozen=True)
class Protection:
    """Rules and multipliers that keep what a score alone would lose.

    Parameters
    ----------
    negations, numbers, dates, names : {"off", "sentence", "always"}
        "sentence": when any word of a sentence is kept, so are those of this kind in it.
        "always": they are kept before anything else. "off": they only have their multiplier.
    speakers : bool
        In plain text, ``Name:`` at the beginning of a line is kept with any word of that line.
        In turns it always is.
    connector, number, name, sentence_end, structure, function_word : float
        Multipliers; of those that hold for a unit the one farthest from 1 counts.
    patterns : sequence of str
        Regular expressions; what they match is untouchable: kept byte for byte.

    Raises
    ------
    ArgumentError
        An unknown rule, a multiplier that is not a number >= 0, or a pattern that is no regular
        expression.

    Examples
    --------
    >>> Protection(numbers="sentence").numbers
    'sentence'
    """

    negations: str = "sentence"
    numbers: str = "off"
    dates: str = "off"
    names: str = "off"
    speakers: bool = True
    connector: float = 1.0
    number: float = 2.0
    name: float = 1.0
    sentence_end: float = 1.0
    structure: float = 1.0
    function_word: float = 0.1
    patterns: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        for name in ("negations", "numbers", "dates", "names"):
            if getattr(self, name) not in _RULES:
                raise ArgumentError(
                    f"protect.{name}: expected one of {', '.join(_RULES)}, "
                    f"got {getattr(self, name)!r}"
                )
        for name in (
            "connector", "number", "name", "sentence_end", "structure", "function_word"
        ):  # fmt: skip
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                raise ArgumentError(f"protect.{name}: expected a number >= 0, got {value!r}")
        if isinstance(self.patterns, (str, bytes)) or not isinstance(self.patterns, Sequence):
            raise ArgumentError(
                f"protect.patterns: expected several patterns, got {type(self.patterns).__name__}"
            )
        for pattern in self.patterns:
            try:
                made = re.compile(pattern).pattern
            except (re.error, TypeError) as error:
                raise ArgumentError(f"protect.patterns: {pattern!r}: {error}") from error
            if not isinstance(made, str):
                raise ArgumentError(f"protect.patterns: {pattern!r}: expected a pattern for text")

    def multiplier(self, kind: int) -> float:
        """Return the factor for a unit of this kind."""
        factors = [
            value
            for flag, value in (
                (Kind.CONNECTOR, self.connector),
                (Kind.NUMBER, self.number),
                (Kind.DATE, self.number),
                (Kind.NAME, self.name),
                (Kind.ENDS_SENTENCE, self.sentence_end),
                (Kind.STRUCTURE, self.structure),
            )
            if kind & flag
        ]
        if factors:
            return max(factors)
        return self.function_word if kind & Kind.FUNCTION else 1.0

    def binding(self, rule: str) -> int:
        """Return the kinds whose rule is `rule`, as one flag."""
        kinds = 0
        for name, kind in (
            ("negations", Kind.NEGATION),
            ("numbers", Kind.NUMBER),
            ("dates", Kind.DATE),
            ("names", Kind.NAME),
        ):
            if getattr(self, name) == rule:
                kinds |= kind
        return kinds


def core(word: str) -> str:
    """Return a word in lower case without the punctuation around it.

    Examples
    --------
    >>> core('"Don\\u2019t!')
    "don't"
    """
    return word.strip(_EDGES).replace("’", "'").lower()


def is_negation(word: str) -> bool:
    """Return whether a unit's text turns its sentence round.

    Examples
    --------
    >>> [is_negation(w) for w in ("didn't", "nothing,", "note")]
    [True, True, False]
    """
    plain = core(word)
    if plain in NEGATIONS or plain.endswith("n't"):
        return True
    if not plain.isascii():
        return any(char in NEGATION_CHARACTERS for char in plain)
    return any(part in NEGATIONS for part in re.split(r"[\-–—/…]+|\.{2,}", plain))


def classify(text: str, units: Sequence[Unit]) -> list[int]:
    """Return the kind of every unit, as the sum of its flags.

    Examples
    --------
    >>> from riemem.distill.units import split_units
    >>> text = "He met Ana on 7 May"
    >>> [Kind(k).name for k in classify(text, split_units(text))]
    ['FUNCTION', 'PLAIN', 'NAME', 'FUNCTION', 'NUMBER|DATE', 'DATE']
    """
    kinds = []
    for number, unit in enumerate(units):
        word = text[unit.start : unit.end]
        opens = number == 0 or units[number - 1].sentence != unit.sentence
        kinds.append(_kind(word, opens))
    if not text.isascii():
        _mark_written_negations(text, units, kinds)
    _mark_dates([core(text[u.start : u.end]) for u in units], units, kinds)
    return kinds


def _mark_written_negations(text: str, units: Sequence[Unit], kinds: list[int]) -> None:
    """Mark every unit that holds a part of a negation: units may end in the middle of a word."""
    at = 0
    for found in _WRITTEN.finditer(text):
        while at < len(units) and units[at].end <= found.start():
            at += 1
        part = at
        while part < len(units) and units[part].start < found.end():
            kinds[part] |= Kind.NEGATION
            part += 1


def _kind(word: str, opens: bool) -> int:
    plain = core(word)
    kind = 0
    if is_negation(word):
        kind |= Kind.NEGATION
    if any(char.isnumeric() for char in word):
        kind |= Kind.NUMBER
    if plain in CONNECTORS:
        kind |= Kind.CONNECTOR
    if plain in FUNCTION_WORDS or not any(char.isalnum() for char in word):
        kind |= Kind.FUNCTION
    elif not opens and any(char.isupper() for char in word):
        kind |= Kind.NAME
    if word[-1] in ".?!。？！":
        kind |= Kind.ENDS_SENTENCE
    if word[-1] in ":：":
        kind |= Kind.STRUCTURE
    return int(kind)


def _mark_dates(words: Sequence[str], units: Sequence[Unit], kinds: list[int]) -> None:
    """Mark weekdays, months with their day and year, ISO dates, and "two weeks ago"."""
    for at, word in enumerate(words):
        if word in WEEKDAYS or word in RELATIVE_DAYS or re.fullmatch(r"\d{4}-\d{2}-\d{2}.*", word):
            kinds[at] |= Kind.DATE
        elif word in MONTHS and ((word != "may" and word != "march") or _near_number(at, kinds)):
            kinds[at] |= Kind.DATE
            for side in (at - 2, at - 1, at + 1, at + 2):
                if 0 <= side < len(words) and kinds[side] & Kind.NUMBER:
                    kinds[side] |= Kind.DATE
        elif word in TIME_NOUNS and at and words[at - 1] in ("last", "next", "this", "past"):
            kinds[at] |= Kind.DATE
            kinds[at - 1] |= Kind.DATE
        elif word == "ago" and at:
            kinds[at] |= Kind.DATE
            kinds[at - 1] |= Kind.DATE
            if at > 1:
                kinds[at - 2] |= Kind.DATE
    for at in range(1, len(words)):
        if kinds[at] & Kind.DATE and words[at - 1] in ("last", "next", "this", "past"):
            kinds[at - 1] |= Kind.DATE
    for at, kind in enumerate(kinds):
        if kind & Kind.DATE:  # "May" and "last" carry grammar elsewhere
            kinds[at] = kind & ~int(Kind.FUNCTION)


def _near_number(at: int, kinds: Sequence[int]) -> bool:
    return any(kinds[side] & Kind.NUMBER for side in (at - 1, at + 1) if 0 <= side < len(kinds))


def groups_of(text: str, units: Sequence[Unit], kinds: Sequence[int]) -> list[int]:
    """Return for every unit the number of its group: neighbours that are kept together.

    A negation goes with the words up to the first one that has content, a date is one piece.

    Examples
    --------
    >>> from riemem.distill.units import split_units
    >>> text = "He does not eat nuts"
    >>> units = split_units(text)
    >>> groups_of(text, units, classify(text, units))
    [0, 1, 2, 2, 3]
    """
    joined = [False] * len(units)  # with the unit before
    for at, kind in enumerate(kinds):
        if kind & Kind.NEGATION:
            for after in range(at + 1, min(at + 1 + _HEAD_WORDS, len(units))):
                if units[after].sentence != units[at].sentence:
                    break
                joined[after] = True
                if not kinds[after] & Kind.FUNCTION:
                    break
        if at and kind & Kind.DATE and kinds[at - 1] & Kind.DATE:
            joined[at] |= units[at].sentence == units[at - 1].sentence
    group, groups = -1, []
    for together in joined:
        group += not together
        groups.append(group)
    return groups

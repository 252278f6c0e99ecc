"""The names channel: a question about Dave prefers what Dave said."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from riemem.retrieval.corpus import CorpusView, Floats
from riemem.retrieval.words import STOP_WORDS, raw_words

__all__ = ["NOT_NAMES", "WORD_NAMES", "named_speakers", "named_words", "speaker_scores"]

#: Roles, not names: a question that has such a word does not mean the speaker of that name.
_ROLES = "user assistant system human ai bot agent model speaker me i you"
NOT_NAMES = frozenset(_ROLES.split())

_WORDS = """
    will may mark bill rose hope grace faith joy april june august autumn summer dawn eve pat rob
    sue jack drew art chance chase christian cliff daisy dean dale frank gene grant guy heather
    holly iris ivy jade jasmine jean jewel lance lily mercy miles nick olive pearl penny ray ruby
    sandy sky skip stone stormy sunny violet wade ward willow wren
"""

#: Names that are words too; they count only where they are written as names.
WORD_NAMES = frozenset(_WORDS.split())

_TOKEN = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
_MONTH_NAMES = frozenset(("may", "april", "june", "august"))
_PREPOSITIONS = "in on of since during until by from early late mid last next this"
_BEFORE_MONTH = frozenset(_PREPOSITIONS.split())


def named_speakers(query: str, names: Sequence[str]) -> list[int]:
    """Return the positions of the names that a query mentions, ascending.

    A full name or its first word counts, also with a genitive, in any case. Names that are words
    as well ("Will", "May") must be capitalised, must not open the sentence before another name or
    a pronoun ("Will Dave come?"), and must not be a month ("in May", "May 5").

    Examples
    --------
    >>> named_speakers("What is Dave's job?", ["Dave", "Maya"])
    [0]
    >>> named_speakers("Will Maya come in May?", ["Will", "Maya", "May"])
    [1]
    >>> named_speakers("Has Will moved?", ["Will"])
    [0]
    """
    return _Known(names).named_in(query)


class _Known:
    """Names, by their first words."""

    def __init__(self, names: Sequence[str]) -> None:
        self._by_word: dict[str, list[int]] = {}
        self._whole: list[tuple[str, int]] = []  # scripts without spaces: looked for as they are
        for number, name in enumerate(names):
            words = [word.casefold() for word in _TOKEN.findall(name)]
            if words and words[0] not in NOT_NAMES:
                self._by_word.setdefault(words[0], []).append(number)
                if not name.isascii() and len(words) == 1 and len(name) > 1:
                    self._whole.append((name, number))

    def named_in(self, query: str) -> list[int]:
        """Positions of the names that a query mentions, ascending."""
        found = {number for name, number in self._whole if name in query}
        tokens = [match[0] for match in _TOKEN.finditer(query[:20_000])]
        plain = [_genitive(token).casefold() for token in tokens]
        for place, word in enumerate(plain):
            if word in self._by_word and _is_name(tokens, plain, place):
                found.update(self._by_word[word])
        return sorted(found)


def speaker_scores(query: str, view: CorpusView) -> Floats:
    """1 for what a speaker said whom the query names, else 0; shape (n,)."""
    numbers = _named_in(query, view)
    if not numbers:
        return view.nothing()
    named = np.zeros(len(view.speaker_names) + 1)  # the last for rows without a speaker
    named[numbers] = 1.0
    return named[view.speakers]


def named_words(query: str, view: CorpusView) -> set[str]:
    """The words of the names of the speakers whom the query names."""
    names = view.speaker_names
    return {word for number in _named_in(query, view) for word in raw_words(names[number])}


def _named_in(query: str, view: CorpusView) -> list[int]:
    known = view.cached("speakers", lambda: _Known(view.speaker_names))
    return known.named_in(query)


def _genitive(token: str) -> str:
    for end in ("'s", "\u2019s"):
        if token.endswith(end):
            return token[: -len(end)]
    return token


def _is_name(tokens: Sequence[str], plain: Sequence[str], place: int) -> bool:
    word = plain[place]
    if word in STOP_WORDS and word not in WORD_NAMES:
        return False
    if word not in WORD_NAMES:
        return True
    if not tokens[place][:1].isupper():
        return False
    following = tokens[place + 1] if place + 1 < len(tokens) else ""
    if word in _MONTH_NAMES and (
        following[:1].isdigit() or (place and plain[place - 1] in _BEFORE_MONTH)
    ):
        return False
    return not (
        place == 0
        and (following[:1].isupper() or following.casefold() in STOP_WORDS)
        and tokens[place] == _genitive(tokens[place])
    )

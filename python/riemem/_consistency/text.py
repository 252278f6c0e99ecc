"""Plain English made plainer: clauses without contractions, numbers as digits, times as numbers."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Clause", "clauses", "content", "lemma", "made_plain", "number_of", "words_of"]

#: So much of a text is read; what comes later makes no claims.
MOST_CHARACTERS = 4000

_DIGITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
_DIGITS += " fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_NUMBERS = {word: i for i, word in enumerate(_DIGITS.split())}
_NUMBERS |= {word: 10 * i for i, word in enumerate(_TENS.split(), 2)}
_NUMBERS |= {"hundred": 100, "thousand": 1000, "dozen": 12, "decade": 10}

_CONTRACTIONS = (
    (r"\bcan(?:not|'t)\b", "can not"),
    (r"\bwon't\b", "will not"),
    (r"\bshan't\b", "shall not"),
    (r"n't\b", " not"),
    (r"\bi'm\b", "i am"),
    (r"'re\b", " are"),
    (r"'ve\b", " have"),
    (r"'ll\b", " will"),
    (r"\b(i|you|he|she|we|they)'d\b", r"\1 would"),
    (r"\b(it|he|she|that|there|here|what|who)'s (been|got|gone|become|moved)\b", r"\1 has \2"),
    (r"\b(it|he|she|that|there|here|what|who)'s\b", r"\1 is"),
    (r"\bhave got\b(?! (?:a job|married|promoted|divorced|engaged))", "have"),
    (r"\bhas got\b(?! (?:a job|married|promoted|divorced|engaged))", "has"),
    (r"\bfavorite\b", "favourite"),
    (r"\bcolor\b", "colour"),
    (r"\b(?:mum|mom|mummy|mommy)\b", "mother"),
    (r"\bdad\b", "father"),
    (r"\bkids?\b", "children"),
    (r"\b(?:apartment|flat)\b", "flat"),
    (r"\bpostgres\b", "postgresql"),
)
_COMPILED = tuple((re.compile(pattern), new) for pattern, new in _CONTRACTIONS)
#: Without an apostrophe, a contraction has one of these words.
_CONTRACTED_WORDS = """
    cannot got favorite color mum mom mummy mommy dad kid kids apartment flat postgres
"""
_CONTRACTED = frozenset(_CONTRACTED_WORDS.split())

_MONTHS = "january february march april may june july august september october november december"
_MONTH_OF = {name: i for i, name in enumerate(_MONTHS.split(), 1)}
_MONTH = "|".join(_MONTH_OF)
_MONTH_NAMES = frozenset(_MONTH_OF)
_NUMBER_NAMES = frozenset(_NUMBERS)
_DATE = re.compile(
    rf"\b(?:(?:the )?(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? ({_MONTH})"
    rf"|({_MONTH}) (?:the )?(\d{{1,2}})(?:st|nd|rd|th)?)\b(?:,? (\d{{4}})\b)?"
)
_CLOCK = re.compile(r"\b(\d{1,2})(?::(\d\d))? ?(am|pm|a\.m\.|p\.m\.|o'clock)(?![a-z])")
_HALF = re.compile(r"\bhalf past (\d{1,2})\b")
_PLAIN_CLOCK = re.compile(r"\b(at|from|until|till|to|by|around|about) (\d{1,2}):(\d\d)\b")
_DIGIT = re.compile(r"\d")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_KILO = re.compile(r"\b(\d+(?:\.\d+)?)k\b")
_WORD_NUMBER = re.compile(
    rf"\b(?:({_TENS.replace(' ', '|')})-({_DIGITS.replace(' ', '|')})|({'|'.join(_NUMBERS)}))\b"
)
# Both begin with one set of characters, which is what the engine of `re` can look for quickly.
_SENTENCE = re.compile(
    r"[.!;?\n\u2014](?:(?<=\?)|(?<=[\n\u2014])[\n\u2014]*"
    r"|(?<=[.!;])(?<!\bmr.)(?<!\bmrs.)(?<!\bdr.)(?<!\bst.)[.!;]*(?=\s|$))"
)
_JOINED = r"(?:and|but|so|because|although|though|while|then)"
_JOINED += r"(?= (?:i|we|it|he|she|they|my|our|the)\b)"
_CLAUSE = re.compile(
    rf"[, ](?:(?<=,) (?:{_JOINED}|(?=(?:i|we|it|he|she|they|my|our|the|from now on)\b))"
    rf"|(?<= )(?:{_JOINED}|and (?=(?:joined|started|am|is|are)\b)))"
)
words_of = re.compile(r"\w+").findall


class Clause(NamedTuple):
    """A clause in lower case, without contractions; `asked` where its sentence is a question."""

    text: str
    asked: bool
    first: bool


def clauses(text: str) -> list[Clause]:
    """Split a text into clauses, each made plainer.

    Examples
    --------
    >>> [clause.text for clause in clauses("I don't smoke, but my sister does. Do you?")]
    ['i do not smoke', 'my sister does', 'do you']
    """
    plain = made_plain(text)
    words = frozenset(words_of(plain))
    found: list[Clause] = []
    start = 0
    for match in _SENTENCE.finditer(plain):
        found += _parts(plain[start : match.start()], match[0] == "?", words)
        start = match.end()
    return found + _parts(plain[start:], False, words)


def made_plain(text: str) -> str:
    """The part of a text that is read, in lower case, with one kind of apostrophe."""
    return text[:MOST_CHARACTERS].replace("\u2019", "'").lower()


def _parts(sentence: str, asked: bool, words: frozenset[str]) -> list[Clause]:
    """The clauses of a sentence; `words` are those of the whole text, to pass over what is idle."""
    sentence = " ".join(sentence.split()).strip(" ,:-\"'")
    if not sentence:
        return []
    if "'" in sentence or not _CONTRACTED.isdisjoint(words):
        for pattern, new in _COMPILED:
            sentence = pattern.sub(new, sentence)
        words = words.union(words_of(sentence))
    counted = not _NUMBER_NAMES.isdisjoint(words)
    if counted or _DIGIT.search(sentence):
        sentence = _times(sentence, words)
        sentence = _KILO.sub(lambda m: f"{float(m[1]) * 1000:g}", _THOUSANDS.sub("", sentence))
        if counted:
            sentence = _WORD_NUMBER.sub(_as_digits, sentence)
    parts = [part.strip(" ,:-\"'") for part in _CLAUSE.split(sentence) if part]
    return [Clause(part, asked, i == 0) for i, part in enumerate(parts) if part]


def _times(sentence: str, words: frozenset[str]) -> str:
    """Dates as ``@03-14`` or ``@2023-03-14``, times of day as ``@09:30``."""

    def date(match: re.Match[str]) -> str:
        day, month = match[1] or match[4], match[2] or match[3]
        number = f"{_MONTH_OF[month]:02d}-{int(day):02d}"
        return f"@{match[5]}-{number}" if match[5] else f"@{number}"

    def clock(match: re.Match[str]) -> str:
        hour = int(match[1]) % 12 + (12 if match[3].startswith("p") else 0)
        return f"@{hour:02d}:{match[2] or '00'}"

    if not _NUMBER_NAMES.isdisjoint(words):
        sentence = _WORD_NUMBER.sub(_as_digits, sentence)
    if "half" in words:
        sentence = _HALF.sub(r"\1:30 am", sentence)
    if not _MONTH_NAMES.isdisjoint(words):
        sentence = _DATE.sub(date, sentence)
    sentence = _CLOCK.sub(clock, sentence)
    if ":" not in sentence:
        return sentence
    return _PLAIN_CLOCK.sub(lambda m: f"{m[1]} @{int(m[2]):02d}:{m[3]}", sentence)


def _as_digits(match: re.Match[str]) -> str:
    if match[1]:
        return str(_NUMBERS[match[1]] + _NUMBERS[match[2]])
    return str(_NUMBERS[match[3]])


def number_of(text: str) -> float | None:
    """Return the number that a text is, or None.

    Examples
    --------
    >>> number_of("40000"), number_of("many")
    (40000.0, None)
    """
    try:
        return float(text)
    except ValueError:
        return None


_EMPTY = "a an the some any my our his her their this that these those of all about around only"
_EMPTY += " roughly approximately exactly almost nearly"
_SKIPPED = frozenset(_EMPTY.split())


def content(phrase: str) -> str:
    """Return a phrase without articles and the like, one space between words.

    Examples
    --------
    >>> content("the old harbour of  porto,")
    'old harbour porto'
    """
    words = [word.strip(" ,:()\"'") for word in phrase.split()]
    return " ".join(word for word in words if word and word not in _SKIPPED)


_IRREGULAR = {"has": "have", "does": "do", "goes": "go", "is": "be", "are": "be", "am": "be"}


def lemma(verb: str) -> str:
    """Return the plain form of a verb in the present, a noun in the singular.

    Examples
    --------
    >>> lemma("supports"), lemma("watches"), lemma("has"), lemma("cities"), lemma("passes")
    ('support', 'watch', 'have', 'city', 'pass')
    """
    if verb in _IRREGULAR:
        return _IRREGULAR[verb]
    if len(verb) > 4 and verb.endswith("ies"):
        return verb[:-3] + "y"
    if verb.endswith(("ches", "shes", "sses", "xes", "zes")):
        return verb[:-2]
    if len(verb) > 3 and verb.endswith("s") and not verb.endswith(("ss", "us", "is")):
        return verb[:-1]
    return verb

"""Reading claims from a text by rules: no model, English only, silent where it is not sure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from riemem._consistency import people, things
from riemem._consistency.claims import Claim
from riemem._consistency.grammar import Context, Entry
from riemem._consistency.lexicon import (
    CHANGE,
    CHANGE_WORDS,
    CORRECTION,
    CORRECTION_WORDS,
    DOUBT,
    DOUBT_WORDS,
    FILLER_WORDS,
    FILLERS,
)
from riemem._consistency.text import clauses, made_plain, words_of

__all__ = ["MOST_CLAIMS", "extract"]

#: Of one memory.
MOST_CLAIMS = 32

_LONGEST_VALUE = 80

#: The first that matches the whole clause and finds something in it is the only one.
_RULES = (*people.RULES, *things.RULES)

#: For each word, bits of the rules that ask for it; and those of the rules that ask for none.
_ASKED: dict[str, int] = {}
for _i, _entry in enumerate(_RULES):
    for _word in _entry.words:
        _ASKED[_word] = _ASKED.get(_word, 0) | 1 << _i
_ALWAYS = sum(1 << i for i, entry in enumerate(_RULES) if not entry.words)

#: A text with none of these, no apostrophe and no word that ends in s makes no claim.
_TELLING = frozenset({"i", "we", "cannot", *_ASKED})
_ENDS_IN_S = re.compile(r"s\b")

_LEAD = re.compile(r"(?:and|but|so|then|because|that|in fact|actually),? ")
_NOUN = re.compile(r"\b((?:the|our|my) [a-z]+)$")
_BEFORE_NOUN = frozenset({"the", "our", "my"})


def extract(text: str, speaker: str | None = None, said: int = 0) -> list[Claim]:
    """Return the claims of a text, each once, in order.

    Parameters
    ----------
    text : str
    speaker : str, optional
        Who "I" is; without it "I" and "my" are the same nameless person in every text.
    said : int
        When, microseconds since 1970: a state is valid from then on.

    Returns
    -------
    list of Claim
        Empty where no rule fits: questions, wishes, plans and conditions make no claims.

    Notes
    -----
    Rules of ours. O(length) for the first 4000 characters, at most 32 claims. A set of words says
    which rules can match at all, so that most texts are not looked at twice.

    Examples
    --------
    >>> [claim.words for claim in extract("I live in Porto and I don't smoke.", "Dave")]
    ['dave: residence = porto', 'dave: does != smoke']
    """
    if not may_claim(text):
        return []
    who = (speaker or "").strip().lower() or "i"
    found: dict[Claim, None] = {}
    thing = ""
    changed = corrected = False
    for clause in clauses(text):
        if clause.asked:
            continue
        line = clause.text
        words = frozenset(words_of(line))
        changed = _has(line, words, CHANGE, CHANGE_WORDS) or (changed and not clause.first)
        corrected = _has(line, words, CORRECTION, CORRECTION_WORDS) or (
            corrected and not clause.first
        )
        if thing and line.startswith("it "):
            line = f"{thing} {line[3:]}"
            words = words.union(words_of(thing))
        if _has(line, words, DOUBT, DOUBT_WORDS):
            thing = ""
            continue
        context = Context(who, said, changed, corrected)
        for claim in _read(line, words, context):
            if claim.value and len(claim.value) <= _LONGEST_VALUE and len(claim.subject) <= 80:
                found.setdefault(claim)
        noun = None if _BEFORE_NOUN.isdisjoint(words) else _NOUN.search(line)
        thing = noun[1] if noun else thing
        if len(found) >= MOST_CLAIMS:
            break
    return list(found)[:MOST_CLAIMS]


def may_claim(text: str) -> bool:
    """Tell whether any rule can match: False is certain, and cheap.

    Every rule but one asks for words of its own (:meth:`~riemem._consistency.grammar.Rules.on`);
    that one, "x does y", asks for "i", "we", or a word that ends in s. What is made plainer makes
    such words only of "cannot" and of what has an apostrophe.
    """
    plain = made_plain(text)
    return (
        "'" in plain
        or _ENDS_IN_S.search(plain) is not None
        or not _TELLING.isdisjoint(words_of(plain))
    )


def _has(
    line: str, words: frozenset[str], pattern: re.Pattern[str], telling: frozenset[str]
) -> bool:
    """Whether a pattern is found, each of whose alternatives has one of the telling words."""
    return not telling.isdisjoint(words) and pattern.search(line) is not None


def _read(line: str, words: frozenset[str], context: Context) -> Iterator[Claim]:
    plain = line if FILLER_WORDS.isdisjoint(words) else FILLERS.sub("", line)
    plain = " ".join(plain.split()).strip(" ,")
    lead = _LEAD.match(plain)
    plain = plain[lead.end() :] if lead else plain
    for entry in _among(asked_by(words)):
        match = entry.pattern.fullmatch(plain)
        if match is None:
            continue
        found = list(entry.rule(match, context))
        if found:
            yield from found
            return


def asked_by(words: frozenset[str]) -> int:
    """Bits of the rules that can match a clause with these words."""
    bits = _ALWAYS
    for word in words & _ASKED.keys():
        bits |= _ASKED[word]
    return bits


@lru_cache(maxsize=4096)
def _among(bits: int) -> tuple[Entry, ...]:
    return tuple(entry for i, entry in enumerate(_RULES) if bits >> i & 1)

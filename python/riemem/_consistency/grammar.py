"""What rules are written with: the clause's context, subjects, and the claims that are made."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from riemem._consistency.claims import ALWAYS, Claim
from riemem._consistency.lexicon import ATTRIBUTES, RELATIONS

__all__ = ["NOT", "Context", "Rules", "S", "always", "attribute_of", "said", "state", "subject_of"]

#: A negation, as the group "no"; and a subject of one to six words, as the group "s".
NOT = r"(?P<no> not| never| no longer)?"
S = r"(?P<s>(?:[^\s,]+ ){0,5}?[^\s,]+)"


class Context(NamedTuple):
    """What a clause is read with: who said it, when, and whether words of change are near."""

    speaker: str
    said: int
    change: bool
    correction: bool


Rule = Callable[[re.Match[str], Context], Iterator[Claim]]


class Entry(NamedTuple):
    """A pattern, what it claims, and words of which each clause that matches it has one."""

    pattern: re.Pattern[str]
    rule: Rule
    words: frozenset[str]


class Rules(list[Entry]):
    """Patterns and what they claim, in the order in which they are tried."""

    def on(self, words: str, pattern: str) -> Callable[[Rule], Rule]:
        """Add a function for clauses that match a pattern as a whole.

        Of `words` each such clause has one, as a whole word; "" where that cannot be said. It is
        what keeps most patterns from being tried at all.
        """

        def add(function: Rule) -> Rule:
            self.append(Entry(re.compile(pattern), function, frozenset(words.split())))
            return function

        return add


_PRONOUNS_WORDS = """
    you he she they it this that these those there who what which
"""
_PRONOUNS = frozenset(_PRONOUNS_WORDS.split())


def subject_of(phrase: str, context: Context) -> str | None:
    """The thing a noun phrase means, or None when that is not known."""
    words = phrase.strip(" ,").split()
    if not words or len(words) > 6:
        return None
    if words == ["i"]:
        return context.speaker
    if words[0] in _PRONOUNS or words[0] in ("his", "her", "their", "your", "its"):
        return None
    if words[0] == "my":
        rest = _name(words[1:])
        return f"{context.speaker}'s {rest}" if rest else None
    return _name(words) or None


def _name(words: list[str]) -> str:
    kept = [w for w in words if w not in ("the", "a", "an", "our", "new", "old", "own", "latest")]
    return " ".join(kept)


def attribute_of(subject: str, context: Context) -> tuple[str, str] | None:
    """Owner and attribute of "x's birthday", "the port of the server", "retry limit"."""
    owner, _, noun = subject.rpartition("'s ")
    if owner and is_attribute(noun):
        return owner, noun
    match = re.fullmatch(r"(.+) of (?:the |our )?(.+)", subject)
    if match and is_attribute(match[1]):
        return match[2], match[1]
    if not owner and is_attribute(subject):
        return "we", subject
    return None


def is_attribute(noun: str) -> bool:
    return noun in ATTRIBUTES or RELATIONS.match(noun) is not None


def said(match: re.Match[str]) -> bool:
    """Whether the clause affirms."""
    return match.groupdict().get("no") is None


def state(context: Context, subject: str | None, *claim: object, single: bool) -> Iterator[Claim]:
    """A claim that holds from when it was said: attribute, value, yes or no."""
    attribute, value, positive = claim
    if subject is not None and value:
        yield Claim(
            subject,
            str(attribute),
            str(value),
            bool(positive),
            single,
            context.said,
            ALWAYS[1],
            context.change,
        )


def always(context: Context, subject: str | None, *claim: object) -> Iterator[Claim]:
    """A claim that holds once and for all."""
    attribute, value, positive = claim
    if subject is not None and value:
        what = (subject, str(attribute), str(value), bool(positive))
        yield Claim(*what, True, change=context.correction)

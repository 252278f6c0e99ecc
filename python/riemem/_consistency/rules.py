"""Reading claims from a text by rules: no model, English only, silent where it is not sure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from riemem._consistency import people, things
from riemem._consistency.claims import Claim
from riemem._consistency.grammar import Context
from riemem._consistency.lexicon import CHANGE, CORRECTION, DOUBT, FILLERS
from riemem._consistency.text import clauses

__all__ = ["MOST_CLAIMS", "extract"]

#: Of one memory.
MOST_CLAIMS = 32

_LONGEST_VALUE = 80

#: The first that matches the whole clause and finds something in it is the only one.
_RULES = (*people.RULES, *things.RULES)


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
    Rules of ours. O(length) for the first 4000 characters, at most 32 claims.

    Examples
    --------
    >>> [claim.words for claim in extract("I live in Porto and I don't smoke.", "Dave")]
    ['dave: residence = porto', 'dave: does != smoke']
    """
    who = (speaker or "").strip().lower() or "i"
    found: dict[Claim, None] = {}
    thing = ""
    changed = corrected = False
    for clause in clauses(text):
        if clause.asked:
            continue
        changed = CHANGE.search(clause.text) is not None or (changed and not clause.first)
        corrected = CORRECTION.search(clause.text) is not None or (corrected and not clause.first)
        line = clause.text
        if thing and line.startswith("it "):
            line = f"{thing} {line[3:]}"
        if DOUBT.search(line):
            thing = ""
            continue
        context = Context(who, said, changed, corrected)
        for claim in _read(line, context):
            if claim.value and len(claim.value) <= _LONGEST_VALUE and len(claim.subject) <= 80:
                found.setdefault(claim)
        noun = re.search(r"\b((?:the|our|my) [a-z]+)$", line)
        thing = noun[1] if noun else thing
        if len(found) >= MOST_CLAIMS:
            break
    return list(found)[:MOST_CLAIMS]


def _read(line: str, context: Context) -> Iterator[Claim]:
    plain = re.sub(r"\s+", " ", FILLERS.sub("", line)).strip(" ,")
    plain = re.sub(r"^(?:and|but|so|then|because|that|in fact|actually),? ", "", plain)
    for pattern, rule in _RULES:
        match = pattern.fullmatch(plain)
        if match is None:
            continue
        found = list(rule(match, context))
        if found:
            yield from found
            return

"""Reading claims from a text by rules: no model, English only, silent where it is not sure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from riemem._consistency.claims import ALWAYS, DAY, Claim
from riemem._consistency.lexicon import (
    ATTRIBUTES,
    CHANGE,
    CORRECTION,
    DIETS,
    DOUBT,
    EXCLUSIVE,
    FILLERS,
    IMMUTABLE,
    JOBS,
    KINDS,
    LIKES,
    ONCE,
    POLES,
    RELATIONS,
    SAME_JOB,
)
from riemem._consistency.text import clauses, content, lemma, number_of

__all__ = ["MOST_CLAIMS", "extract"]

#: Of one memory.
MOST_CLAIMS = 32

_LONGEST_VALUE = 80


class _Context(NamedTuple):
    """What a clause is read with: who said it, when, and whether words of change are near."""

    speaker: str
    said: int
    change: bool
    correction: bool


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
        context = _Context(who, said, changed, corrected)
        for claim in _read(line, context):
            if claim.value and len(claim.value) <= _LONGEST_VALUE and len(claim.subject) <= 80:
                found.setdefault(claim)
        noun = re.search(r"\b((?:the|our|my) [a-z]+)$", line)
        thing = noun[1] if noun else thing
        if len(found) >= MOST_CLAIMS:
            break
    return list(found)[:MOST_CLAIMS]


# -- subjects --------------------------------------------------------------------------------------

_PRONOUNS_WORDS = """
    you he she they it this that these those there who what which
"""
_PRONOUNS = frozenset(_PRONOUNS_WORDS.split())


def _subject(phrase: str, context: _Context) -> str | None:
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


def _split(subject: str, context: _Context) -> tuple[str, str] | None:
    """Owner and attribute of "x's birthday", "the port of the server", "retry limit"."""
    owner, _, noun = subject.rpartition("'s ")
    if owner and _is_attribute(noun):
        return owner, noun
    match = re.fullmatch(r"(.+) of (?:the |our )?(.+)", subject)
    if match and _is_attribute(match[1]):
        return match[2], match[1]
    if not owner and _is_attribute(subject):
        return "we", subject
    return None


def _is_attribute(noun: str) -> bool:
    return noun in ATTRIBUTES or RELATIONS.match(noun) is not None


# -- clauses ---------------------------------------------------------------------------------------

_NOT = r"(?P<no> not| never| no longer)?"
_S = r"(?P<s>(?:[^\s,]+ ){0,5}?[^\s,]+)"

Rule = Callable[[re.Match[str], _Context], Iterator[Claim]]
_RULES: list[tuple[re.Pattern[str], Rule]] = []


def _rule(pattern: str) -> Callable[[Rule], Rule]:
    def add(function: Rule) -> Rule:
        _RULES.append((re.compile(pattern), function))
        return function

    return add


def _read(line: str, context: _Context) -> Iterator[Claim]:
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


def _said(match: re.Match[str]) -> bool:
    return match.groupdict().get("no") is None


def _state(context: _Context, subject: str | None, *claim: object, single: bool) -> Iterator[Claim]:
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


def _always(context: _Context, subject: str | None, *claim: object) -> Iterator[Claim]:
    attribute, value, positive = claim
    if subject is not None and value:
        what = (subject, str(attribute), str(value), bool(positive))
        yield Claim(*what, True, change=context.correction)


_TIME = r"@[\d:-]+|mondays?|tuesdays?|wednesdays?|thursdays?|fridays?|saturdays?|sundays?"
_MOVED = r"(?:has been |have been |was |were |had to be )?"
_MOVED += r"(?:moved|rescheduled|postponed|brought forward) (?:to|until)"
_EVENT = r"leaves?|starts?|begins?|closes?|opens?|ends?|expires?|arrives?"


@_rule(rf"{_S} (?P<verb>(?:is|are|was|were)(?P<no> not)?(?: scheduled| planned| due)? "
       rf"(?:at|on|for|in)?|{_MOVED}|(?:{_EVENT}) (?:at|on|in)) ?(?P<v>{_TIME})")  # fmt: skip
@_rule(rf"(?:i|we) (?:had to |have )?(?:move|moved|rescheduled|postponed) (?P<s>.+) "
       rf"(?P<verb>to|until) (?P<v>{_TIME})")  # fmt: skip
@_rule(rf"{_S} (?P<verb>(?:{_EVENT}) (?:in|at)) (?P<v>(?:[a-z]+ )?\d+)(?: o'clock)?")
def _event(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    verb = lemma(match["verb"].split()[0])
    verb = verb if re.fullmatch(_EVENT, verb) else "be"
    verb = "be" if verb in ("start", "begin") else verb
    value = match["v"].rstrip("s")
    if re.fullmatch(r"\d\d?", value) and match["verb"].endswith("at"):
        value = f"@{int(value):02d}:00"
    if value.startswith("@"):
        value = value[1:]
        unit = "clock" if ":" in value else "date"
        value = value if ":" in value else value[-5:]
    else:
        unit = "weekday" if value.endswith("day") else "date"
    subject = _subject(match["s"], context)
    split = None if subject is None else _split(subject, context)
    if split is not None:
        subject, noun = split
        attribute = noun if noun in IMMUTABLE else f"{noun} {unit}"
    else:
        attribute = f"{verb} {unit}"
    yield from _state(context, subject, attribute, value, _said(match), single=True)


@_rule(rf"{_S} (?:have|has) (?:lived|been living) in (?P<v>.+?)(?: since .+| for .+)?")
@_rule(rf"{_S}(?: am| are| is)?(?: do| does)?{_NOT} (?:live|lives|living) (?:in|on|at) (?P<v>.+)")
@_rule(rf"{_S}(?: am| are| is){_NOT} based in (?P<v>.+)")
@_rule(r"(?P<s>i|we|[^ ]+|my [^ ]+) (?:have |has )?(?:moved|relocated) to (?P<v>.+)")
def _residence(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    value = content(re.split(r" (?:with|since|because|for|when|after|in) ", match["v"])[0])
    if value and not value.endswith("floor"):
        subject = _subject(match["s"], context)
        yield from _state(context, subject, "residence", value, _said(match), single=True)


@_rule(r"my home is in (?P<v>.+)")
def _home(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    value = content(match["v"])
    yield from _state(context, context.speaker, "residence", value, True, single=True)


@_rule(rf"{_S} (?:was|were){_NOT} born (?P<how>in|on|at) (?P<v>.+)")
def _born(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    value = content(match["v"].split(",")[0])
    attribute = "birthplace"
    if value.startswith("@"):
        attribute = "birthday"
        value = value.split()[0][-5:]
    elif re.fullmatch(r"\d{4}", value):
        attribute = "birth year"
    yield from _always(context, _subject(match["s"], context), attribute, value, _said(match))


@_rule(rf"{_S}(?: am| is| do| does| have| has)?{_NOT} (?:work|works|working|worked|employed)"
       r" (?:at|for|by) (?P<v>.+)")  # fmt: skip
@_rule(rf"{_S} (?:have |has )?joined (?P<v>.+)")
def _employer(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    if re.search(r"(?<!have )(?<!has )\bworked\b", match[0]):
        return
    parts = re.split(r" (since|for|as|in) ", match["v"])
    subject = _subject(match["s"], context)
    value = content(parts[0])
    yield from _state(context, subject, "employer", value, _said(match), single=True)
    if len(parts) > 2 and parts[1] == "since" and re.fullmatch(r"\d{4}", parts[2]):
        yield from _always(context, subject, f"at {value} since", parts[2], True)


@_rule(rf"{_S} (?:have |has )?(?:left|quit) (?P<v>[a-z]+)")
def _left(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    subject = _subject(match["s"], context)
    value = match["v"]
    if value.endswith("ing"):
        stem = _stem(value)
        yield from _state(context, subject, "does", stem, False, single=False)
    else:
        yield from _state(context, subject, "employer", value, False, single=True)


@_rule(rf"{_S} (?:have |has )?(?:stopped|gave up|given up) (?P<v>[a-z]+)(?P<rest>.*)")
def _stopped(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    value = match["v"]
    verb = _stem(value) if value.endswith("ing") else f"play {value}"
    doing = f"{verb} {content(match['rest'])}".strip()
    subject = _subject(match["s"], context)
    yield from _state(context, subject, "does", doing, False, single=False)


@_rule(rf"{_S}(?: do| does)?{_NOT} (?:work|works) as an? (?P<v>.+)")
def _occupation(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    last = content(match["v"]).split()[-1]
    value = SAME_JOB.get(last, last)
    subject = _subject(match["s"], context)
    yield from _state(context, subject, "occupation", value, _said(match), single=True)


@_rule(rf"{_S} (?:became|turned|have become|has become) an? (?P<v>.+)")
def _became(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    yield from _is_something(_subject(match["s"], context), content(match["v"]), True, context)


@_rule(rf"{_S} (?:is|are|was|were){_NOT} (?:called|named) (?P<v>[^ ]+(?: [^ ]+)?)")
def _called(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    value = content(match["v"])
    subject = _subject(match["s"], context)
    yield from _state(context, subject, "name", value, _said(match), single=True)


@_rule(r"(?:i |we )?(?:(?P<lead>do not|never) )?"
       rf"(?P<v>{'|'.join(sorted(LIKES, key=len, reverse=True))})s? (?P<o>.+)")  # fmt: skip
def _likes(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    if not match[0].startswith(("i ", "we ")):
        return
    subject = context.speaker if match[0].startswith("i ") else "we"
    value = content(re.split(r" (?:on|in|with|when|because|even|since) ", match["o"])[0])
    positive = LIKES[match["v"]] != (match["lead"] is not None)
    yield from _state(context, subject, "likes", value, positive, single=False)


@_rule(rf"{_S} (?:can(?P<no> not)?|(?:do|does)(?P<no2> not) know how to|knows? how to"
       r"|(?:have |has )?(?:learned|learnt) (?:how )?to) (?P<v>.+)")  # fmt: skip
def _can(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    verb = match["v"].split()[0]
    value = verb if verb in ("swim", "drive", "cook", "dance", "ski", "sing", "talk", "speak",
                             "knit", "read") else content(match["v"])  # fmt: skip
    positive = match["no"] is None and match["no2"] is None
    yield from _state(context, _subject(match["s"], context), "can", value, positive, single=False)


@_rule(rf"{_S} (?:have|has)(?P<no> never| not)? (?:been to|visited|seen) (?P<v>.+)")
@_rule(rf"{_S} visited (?P<v>.+)")
def _been(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    place = content(re.split(r" (?:in|on|with|twice|yet|for|last) ?", match["v"])[0])
    subject = _subject(match["s"], context)
    positive = _said(match)
    if subject and place:
        # Once there, always been there; never been there, only until it was said.
        first, last = (context.said, ALWAYS[1]) if positive else (ALWAYS[0], context.said + 1)
        yield Claim(subject, "has been to", place, positive, False, first, last, context.change)
        if positive and re.search(r"\b(?:in|since) (?:19|20)\d\d\b", match["v"]):
            yield Claim(subject, "has been to", place, True, False, ALWAYS[0], ALWAYS[1])


@_rule(rf"{_S} (?P<aux>(?:do|does) not |no longer )?(?:have|has|own|owns)(?P<no> no| not any)?"
       r" (?P<v>.+)")  # fmt: skip
def _has(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    subject = _subject(match["s"], context)
    positive = match["aux"] is None and match["no"] is None
    phrase = content(re.split(r",| (?:from|with|of|at|in|since|for|called|named) ", match["v"])[0])
    words = phrase.split()
    if not words or words[0] in ("to", "never", "been", "not") or words[0].endswith("ed"):
        return
    number = number_of(words[0])
    noun = " ".join([*words[1:-1], lemma(words[-1])] if number is not None else
                    [*words[:-1], lemma(words[-1])])  # fmt: skip
    if number is not None and positive:
        yield from _state(context, subject, f"number of {noun}", words[0], True, single=True)
    if number != 0:
        yield from _state(context, subject, "has", noun, positive, single=False)
        kind = KINDS.get(noun.split()[-1])
        if kind and positive:
            yield from _state(context, subject, "has", kind, True, single=False)


@_rule(rf"{_S} (?:is|are|am){_NOT} allergic to (?P<v>.+)")
def _allergic(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    subject = _subject(match["s"], context)
    value = content(match["v"])
    yield from _state(context, subject, "allergic to", value, _said(match), single=False)


@_rule(rf"{_S} (?:(?:do|does)(?P<no> not) )?(?:speaks?|(?:am|is|are) fluent in) (?:any |fluent )?"
       r"(?P<v>[a-z]+)")  # fmt: skip
def _speaks(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    subject = _subject(match["s"], context)
    yield from _state(context, subject, "speaks", match["v"], _said(match), single=False)


@_rule(rf"{_S} (?:is|are|runs?|was|were|has been|have been){_NOT} "
       r"(?:written|rewritten|implemented|based|run|runs)? ?(?:in|on) (?P<v>[a-z+#]+)")  # fmt: skip
@_rule(rf"{_S} (?:(?:do|does)(?P<no> not) )?(?:uses?|needs|runs on) (?P<v>[a-z+#]+)")
@_rule(r"(?:i|we) (?:migrated|moved|switched|ported) (?P<s>.+) to (?P<v>[a-z+#]+)")
def _technology(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    kind = EXCLUSIVE.get(match["v"])
    if kind is not None:
        value = "rest" if match["v"] == "restful" else match["v"]
        subject = _subject(match["s"], context)
        yield from _state(context, subject, kind, value, _said(match), single=True)


@_rule(rf"{_S} (?:listens on|uses) port (?P<v>\d+)")
def _port(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    subject = _subject(match["s"], context)
    yield from _state(context, subject, "port", match["v"], True, single=True)


@_rule(r"(?:i|we) (?:raised|lowered|increased|reduced|changed) (?P<s>.+) (?:from .+ )?to (?P<v>.+)")
@_rule(rf"{_S} (?:went up|went down|rose|fell|changed) (?:from .+ )?to (?P<v>.+)")
@_rule(rf"{_S} (?:is|are|was|am)(?P<no> not)? (?:set to|down to|up to)? ?(?P<v>-?\d[^,]*)")
@_rule(r"(?:i|we) (?:pay|pays) (?P<v>\d[^,]*?) (?:of |in )?(?P<s>rent)(?: .+)?")
def _amount(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    subject = _subject(match["s"], context)
    words = content(match["v"]).split()
    number = re.match(r"-?\d+(?:[.:]\d+)*", words[0]) if words else None
    if subject is None or not words:
        return
    if number is None:
        named = _split(subject, context)
        if named is not None:  # "I changed my bank to N26"
            yield from _state(context, *named, " ".join(words), True, single=True)
        return
    unit = " ".join([words[0][number.end() :], *words[1:]]).strip()
    unit = re.sub(r" ?(?:(?:a|per) )?(?:month|year|minute)s?$|^euros?|^dollars?", "", unit).strip()
    split = _split(subject, context)
    owner, attribute = split or (subject, "amount")
    if match["s"] == "rent":
        owner = context.speaker
    if split is None and unit:
        attribute = f"amount in {' '.join(map(lemma, unit.split()))}"
    yield from _state(context, owner, attribute, number[0], _said(match), single=True)


_PLACE = r"in|at|on|under|near|behind|next to|above"


@_rule(rf"{_S} (?:is|are|am){_NOT} (?P<v>(?:{_PLACE}) .+)")
def _place(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    pole = POLES.get(match["v"])
    subject = _subject(match["s"], context)
    if pole:
        yield from _state(context, subject, pole, match["v"], _said(match), single=True)
        return
    value = content(re.sub(rf"^(?:{_PLACE}) ", "", match["v"]))
    if not value.startswith("@"):
        yield from _state(context, subject, "place", value, _said(match), single=True)


@_rule(rf"{_S} (?P<v>works|passes|fails|won|lost)(?P<rest> .+)?")
@_rule(rf"{_S} (?:do|does)(?P<no> not) (?P<v>work|pass|fail)(?P<rest> .+)?")
def _outcome(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    rest = content(match["rest"] or "")
    word = {"work": "working", "pass": "passing", "fail": "failing"}.get(
        lemma(match["v"]), match["v"]
    )
    if word == "working" and rest:
        return
    subject = _subject(match["s"], context)
    attribute = f"{POLES[word]} {rest}".strip()
    if word in ("won", "lost"):
        if subject:
            near = (context.said - DAY, context.said + DAY)
            yield Claim(subject, attribute, word, True, True, *near, context.change)
        return
    yield from _state(context, subject, attribute, word, _said(match), single=True)


@_rule(rf"{_S} (?:is|are|am|was|were|has been|have been|tested|looks|stays){_NOT} (?P<v>.+)")
def _copula(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    past = re.search(r" (?:was|were)(?: not| never)? ", f" {match[0]} ") is not None
    subject = _subject(match["s"], context)
    if subject is None:
        return
    if past:
        once = re.fullmatch(r"(built|founded|stolen|released) in (\w+)", match["v"])
        if once:
            yield from _always(context, subject, once[1], once[2], _said(match))
        return
    yield from _is_something(subject, match["v"], _said(match), context)


def _is_something(
    subject: str | None, phrase: str, positive: bool, context: _Context
) -> Iterator[Claim]:
    """Claims of "x is ...": a pole, a job, an attribute's value, or a plain yes or no."""
    if subject is None:
        return
    value = content(phrase)
    split = _split(subject, context)
    if split:
        yield from _state(context, split[0], split[1], value, positive, single=True)
        return
    head, _, tail = phrase.strip().partition(" in ")
    if head not in POLES:
        head, _, tail = value.partition(" in ")
    if head in DIETS:
        for food in DIETS[head] if positive else ():
            yield from _state(context, subject, "does", f"eat {food}", False, single=False)
    if head in POLES:
        axis = f"{POLES[head]} {tail}".strip()
        yield from _state(context, subject, axis, head, positive, single=True)
        return
    age = re.fullmatch(r"(\d+)(?: years? old)?", value)
    if age:
        yield from _state(context, subject, "age", age[1], positive, single=True)
        return
    words = value.split()
    boss = re.fullmatch(r"(?:my|our) ([a-z]+)", phrase)
    if boss and boss[1] in ATTRIBUTES:
        owner = context.speaker if phrase.startswith("my ") else "we"
        yield from _state(context, owner, boss[1], subject, positive, single=True)
        return
    if words and words[-1] in JOBS:
        job = SAME_JOB.get(words[-1], words[-1])
        yield from _state(context, subject, "occupation", job, positive, single=True)
        return
    yield from _state(context, subject, "is", value, positive, single=False)


@_rule(rf"{_S} (?:sold|traded in|gave away) (?:my|the|our) (?P<v>[a-z]+)(?: .+)?")
def _parted(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    subject = _subject(match["s"], context)
    yield from _state(context, subject, "has", match["v"], False, single=False)
    yield from _state(context, subject, "does", f"drive {match['v']}", False, single=False)


@_rule(rf"{_S} plays? for (?P<v>.+)")
def _plays_for(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    subject = _subject(match["s"], context)
    yield from _state(context, subject, "plays for", content(match["v"]), True, single=True)


@_rule(rf"{_S} runs? on (?P<v>[a-z]+)")
def _runs_on(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    if match["v"] in POLES:
        subject = _subject(match["s"], context)
        yield from _state(context, subject, POLES[match["v"]], match["v"], True, single=True)


@_rule(rf"{_S} (?P<once>graduated|got married|died) in (?P<v>\w+)")
def _once(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    if ONCE.match(match["once"]):
        subject = _subject(match["s"], context)
        yield from _always(context, subject, match["once"], match["v"], True)


@_rule(rf"{_S} (?P<aux>(?:do|does) not|never|no longer) (?P<v>[a-z-]+(?: .+)?)")
def _denied(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    words = content(match["v"]).split()
    if words and not words[0].endswith("ed"):
        value = " ".join([lemma(words[0]), *words[1:]])
        yield from _state(
            context, _subject(match["s"], context), "does", value, False, single=False
        )


@_rule(r"(?P<s>i|we|(?:my|our|the) [a-z]+(?: [a-z]+)??|[a-z]+) (?P<v>[a-z]+(?: .+)?)")
def _does(match: re.Match[str], context: _Context) -> Iterator[Claim]:
    words = content(match["v"]).split()
    subject = _subject(match["s"], context)
    if not words or subject is None:
        return
    verb = words[0]
    plural = match["s"] in ("i", "we") or match["s"].endswith("s")
    present = verb.endswith("s") or plural
    if not present or verb.endswith(("ed", "ing")) or verb in _AUXILIARIES:
        return
    value = " ".join([lemma(verb), *words[1:]])
    numbers = [i for i, word in enumerate(words) if number_of(word) is not None]
    if len(numbers) == 1:  # "I owe my brother 200 dollars": one amount at a time
        place = numbers[0]
        rest = " ".join([lemma(verb), *words[1:place], "#", *map(lemma, words[place + 1 :])])
        yield from _state(context, subject, f"does {rest}", words[place], True, single=True)
        value = value.replace(f"{words[place]} ", "")
    yield from _state(context, subject, "does", value, True, single=False)
    kind = KINDS.get(lemma(value.split()[-1])) if len(value.split()) == 2 else None
    if kind:
        also = f"{lemma(verb)} {kind}"
        yield from _state(context, subject, "does", also, True, single=False)


_AUXILIARIES_WORDS = """
    am is are was were do did will would can could have had has not be been got went said
"""
_AUXILIARIES = frozenset(_AUXILIARIES_WORDS.split())


def _stem(gerund: str) -> str:
    """The plain form of "smoking", "running", "drinking"."""
    stem = gerund[:-3]
    if len(stem) > 2 and stem[-1] == stem[-2] and stem[-1] not in "ls":
        return stem[:-1]
    return stem + "e" if re.search(r"(?:ok|iv|ak|us|ik|at|ar)$", stem) else stem

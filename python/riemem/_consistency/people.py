"""Rules about people: where they live and work, what they like, have and can; and about dates."""

from __future__ import annotations

import re
from collections.abc import Iterator

from riemem._consistency.claims import ALWAYS, Claim
from riemem._consistency.grammar import (
    NOT,
    Context,
    Rules,
    S,
    always,
    attribute_of,
    said,
    state,
    subject_of,
)
from riemem._consistency.lexicon import (
    IMMUTABLE,
    KINDS,
    LIKES,
    SAME_JOB,
)
from riemem._consistency.text import content, lemma, number_of

__all__ = ["RULES"]

RULES = Rules()

_TIME = r"@[\d:-]+|mondays?|tuesdays?|wednesdays?|thursdays?|fridays?|saturdays?|sundays?"
_MOVED = r"(?:has been |have been |was |were |had to be )?"
_MOVED += r"(?:moved|rescheduled|postponed|brought forward) (?:to|until)"
_EVENT = r"leaves?|starts?|begins?|closes?|opens?|ends?|expires?|arrives?"
_EVENT_WORDS = " ".join(f"{word[:-2]} {word[:-2]}s" for word in _EVENT.split("|"))
_LIKING = " ".join(f"{phrase.split()[-1]} {phrase.split()[-1]}s" for phrase in LIKES)


@RULES.on(
    f"is are was were moved rescheduled postponed brought {_EVENT_WORDS}",
    rf"{S} (?P<verb>(?:is|are|was|were)(?P<no> not)?(?: scheduled| planned| due)? "
    rf"(?:at|on|for|in)?|{_MOVED}|(?:{_EVENT}) (?:at|on|in)) ?(?P<v>{_TIME})",
)
@RULES.on(
    "move moved rescheduled postponed",
    rf"(?:i|we) (?:had to |have )?(?:move|moved|rescheduled|postponed) (?P<s>.+) "
    rf"(?P<verb>to|until) (?P<v>{_TIME})",
)
@RULES.on(
    _EVENT_WORDS, rf"{S} (?P<verb>(?:{_EVENT}) (?:in|at)) (?P<v>(?:[a-z]+ )?\d+)(?: o'clock)?"
)
def _event(match: re.Match[str], context: Context) -> Iterator[Claim]:
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
    subject = subject_of(match["s"], context)
    split = None if subject is None else attribute_of(subject, context)
    if split is not None:
        subject, noun = split
        attribute = noun if noun in IMMUTABLE else f"{noun} {unit}"
    else:
        attribute = f"{verb} {unit}"
    yield from state(context, subject, attribute, value, said(match), single=True)


@RULES.on(
    "lived living", rf"{S} (?:have|has) (?:lived|been living) in (?P<v>.+?)(?: since .+| for .+)?"
)
@RULES.on(
    "live lives living",
    rf"{S}(?: am| are| is)?(?: do| does)?{NOT} (?:live|lives|living) (?:in|on|at) (?P<v>.+)",
)
@RULES.on("based", rf"{S}(?: am| are| is){NOT} based in (?P<v>.+)")
@RULES.on(
    "moved relocated", r"(?P<s>i|we|[^ ]+|my [^ ]+) (?:have |has )?(?:moved|relocated) to (?P<v>.+)"
)
def _residence(match: re.Match[str], context: Context) -> Iterator[Claim]:
    value = content(re.split(r" (?:with|since|because|for|when|after|in) ", match["v"])[0])
    if value and not value.endswith("floor"):
        subject = subject_of(match["s"], context)
        yield from state(context, subject, "residence", value, said(match), single=True)


@RULES.on("home", r"my home is in (?P<v>.+)")
def _home(match: re.Match[str], context: Context) -> Iterator[Claim]:
    value = content(match["v"])
    yield from state(context, context.speaker, "residence", value, True, single=True)


@RULES.on("born", rf"{S} (?:was|were){NOT} born (?P<how>in|on|at) (?P<v>.+)")
def _born(match: re.Match[str], context: Context) -> Iterator[Claim]:
    value = content(match["v"].split(",")[0])
    attribute = "birthplace"
    if value.startswith("@"):
        attribute = "birthday"
        value = value.split()[0][-5:]
    elif re.fullmatch(r"\d{4}", value):
        attribute = "birth year"
    yield from always(context, subject_of(match["s"], context), attribute, value, said(match))


@RULES.on(
    "work works working worked employed",
    rf"{S}(?: am| is| do| does| have| has)?{NOT} (?:work|works|working|worked|employed)"
    r" (?:at|for|by) (?P<v>.+)",
)
@RULES.on("joined", rf"{S} (?:have |has )?joined (?P<v>.+)")
def _employer(match: re.Match[str], context: Context) -> Iterator[Claim]:
    if re.search(r"(?<!have )(?<!has )\bworked\b", match[0]):
        return
    parts = re.split(r" (since|for|as|in) ", match["v"])
    subject = subject_of(match["s"], context)
    value = content(parts[0])
    yield from state(context, subject, "employer", value, said(match), single=True)
    if len(parts) > 2 and parts[1] == "since" and re.fullmatch(r"\d{4}", parts[2]):
        yield from always(context, subject, f"at {value} since", parts[2], True)


@RULES.on("left quit", rf"{S} (?:have |has )?(?:left|quit) (?P<v>[a-z]+)")
def _left(match: re.Match[str], context: Context) -> Iterator[Claim]:
    subject = subject_of(match["s"], context)
    value = match["v"]
    if value.endswith("ing"):
        stem = _stem(value)
        yield from state(context, subject, "does", stem, False, single=False)
    else:
        yield from state(context, subject, "employer", value, False, single=True)


@RULES.on(
    "stopped gave given",
    rf"{S} (?:have |has )?(?:stopped|gave up|given up) (?P<v>[a-z]+)(?P<rest>.*)",
)
def _stopped(match: re.Match[str], context: Context) -> Iterator[Claim]:
    value = match["v"]
    verb = _stem(value) if value.endswith("ing") else f"play {value}"
    doing = f"{verb} {content(match['rest'])}".strip()
    subject = subject_of(match["s"], context)
    yield from state(context, subject, "does", doing, False, single=False)


@RULES.on("work works", rf"{S}(?: do| does)?{NOT} (?:work|works) as an? (?P<v>.+)")
def _occupation(match: re.Match[str], context: Context) -> Iterator[Claim]:
    last = content(match["v"]).split()[-1]
    value = SAME_JOB.get(last, last)
    subject = subject_of(match["s"], context)
    yield from state(context, subject, "occupation", value, said(match), single=True)


@RULES.on("called named", rf"{S} (?:is|are|was|were){NOT} (?:called|named) (?P<v>[^ ]+(?: [^ ]+)?)")
def _called(match: re.Match[str], context: Context) -> Iterator[Claim]:
    value = content(match["v"])
    subject = subject_of(match["s"], context)
    yield from state(context, subject, "name", value, said(match), single=True)


@RULES.on(
    _LIKING,
    r"(?:i |we )?(?:(?P<lead>do not|never) )?"
    rf"(?P<v>{'|'.join(sorted(LIKES, key=len, reverse=True))})s? (?P<o>.+)",
)
def _likes(match: re.Match[str], context: Context) -> Iterator[Claim]:
    if not match[0].startswith(("i ", "we ")):
        return
    subject = context.speaker if match[0].startswith("i ") else "we"
    value = content(re.split(r" (?:on|in|with|when|because|even|since) ", match["o"])[0])
    positive = LIKES[match["v"]] != (match["lead"] is not None)
    yield from state(context, subject, "likes", value, positive, single=False)


@RULES.on(
    "can know knows learned learnt",
    rf"{S} (?:can(?P<no> not)?|(?:do|does)(?P<no2> not) know how to|knows? how to"
    r"|(?:have |has )?(?:learned|learnt) (?:how )?to) (?P<v>.+)",
)
def _can(match: re.Match[str], context: Context) -> Iterator[Claim]:
    verb = match["v"].split()[0]
    value = verb if verb in ("swim", "drive", "cook", "dance", "ski", "sing", "talk", "speak",
                             "knit", "read") else content(match["v"])  # fmt: skip
    positive = match["no"] is None and match["no2"] is None
    yield from state(context, subject_of(match["s"], context), "can", value, positive, single=False)


@RULES.on(
    "been visited seen", rf"{S} (?:have|has)(?P<no> never| not)? (?:been to|visited|seen) (?P<v>.+)"
)
@RULES.on("visited", rf"{S} visited (?P<v>.+)")
def _been(match: re.Match[str], context: Context) -> Iterator[Claim]:
    place = content(re.split(r" (?:in|on|with|twice|yet|for|last) ?", match["v"])[0])
    subject = subject_of(match["s"], context)
    positive = said(match)
    if subject and place:
        # Once there, always been there; never been there, only until it was said.
        first, last = (context.said, ALWAYS[1]) if positive else (ALWAYS[0], context.said + 1)
        yield Claim(subject, "has been to", place, positive, False, first, last, context.change)
        if positive and re.search(r"\b(?:in|since) (?:19|20)\d\d\b", match["v"]):
            yield Claim(subject, "has been to", place, True, False, ALWAYS[0], ALWAYS[1])


@RULES.on(
    "have has own owns",
    rf"{S} (?P<aux>(?:do|does) not |no longer )?(?:have|has|own|owns)(?P<no> no| not any)?"
    r" (?P<v>.+)",
)
def _has(match: re.Match[str], context: Context) -> Iterator[Claim]:
    subject = subject_of(match["s"], context)
    positive = match["aux"] is None and match["no"] is None
    phrase = content(re.split(r",| (?:from|with|of|at|in|since|for|called|named) ", match["v"])[0])
    words = phrase.split()
    if not words or words[0] in ("to", "never", "been", "not") or words[0].endswith("ed"):
        return
    number = number_of(words[0])
    noun = " ".join([*words[1:-1], lemma(words[-1])] if number is not None else
                    [*words[:-1], lemma(words[-1])])  # fmt: skip
    if number is not None and positive:
        yield from state(context, subject, f"number of {noun}", words[0], True, single=True)
    if number != 0:
        yield from state(context, subject, "has", noun, positive, single=False)
        kind = KINDS.get(noun.split()[-1])
        if kind and positive:
            yield from state(context, subject, "has", kind, True, single=False)


@RULES.on("allergic", rf"{S} (?:is|are|am){NOT} allergic to (?P<v>.+)")
def _allergic(match: re.Match[str], context: Context) -> Iterator[Claim]:
    subject = subject_of(match["s"], context)
    value = content(match["v"])
    yield from state(context, subject, "allergic to", value, said(match), single=False)


@RULES.on(
    "speak speaks fluent",
    rf"{S} (?:(?:do|does)(?P<no> not) )?(?:speaks?|(?:am|is|are) fluent in) (?:any |fluent )?"
    r"(?P<v>[a-z]+)",
)
def _speaks(match: re.Match[str], context: Context) -> Iterator[Claim]:
    subject = subject_of(match["s"], context)
    yield from state(context, subject, "speaks", match["v"], said(match), single=False)


def _stem(gerund: str) -> str:
    """The plain form of "smoking", "running", "drinking"."""
    stem = gerund[:-3]
    if len(stem) > 2 and stem[-1] == stem[-2] and stem[-1] not in "ls":
        return stem[:-1]
    return stem + "e" if re.search(r"(?:ok|iv|ak|us|ik|at|ar)$", stem) else stem

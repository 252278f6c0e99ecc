"""Rules about things: what they are, where, how much, how they work; and about habits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from riemem._consistency.claims import DAY, Claim
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
    ATTRIBUTES,
    DIETS,
    EXCLUSIVE,
    JOBS,
    KINDS,
    ONCE,
    POLES,
    SAME_JOB,
)
from riemem._consistency.text import content, lemma, number_of

__all__ = ["RULES"]

RULES = Rules()


@RULES.on("became turned become", rf"{S} (?:became|turned|have become|has become) an? (?P<v>.+)")
def _became(match: re.Match[str], context: Context) -> Iterator[Claim]:
    yield from is_something(subject_of(match["s"], context), content(match["v"]), True, context)


@RULES.on(
    "is are run runs was were been",
    rf"{S} (?:is|are|runs?|was|were|has been|have been){NOT} "
    r"(?:written|rewritten|implemented|based|run|runs)? ?(?:in|on) (?P<v>[a-z+#]+)",
)
@RULES.on(
    "use uses needs runs",
    rf"{S} (?:(?:do|does)(?P<no> not) )?(?:uses?|needs|runs on) (?P<v>[a-z+#]+)",
)
@RULES.on(
    "migrated moved switched ported",
    r"(?:i|we) (?:migrated|moved|switched|ported) (?P<s>.+) to (?P<v>[a-z+#]+)",
)
def _technology(match: re.Match[str], context: Context) -> Iterator[Claim]:
    kind = EXCLUSIVE.get(match["v"])
    if kind is not None:
        value = "rest" if match["v"] == "restful" else match["v"]
        subject = subject_of(match["s"], context)
        yield from state(context, subject, kind, value, said(match), single=True)


@RULES.on("port", rf"{S} (?:listens on|uses) port (?P<v>\d+)")
def _port(match: re.Match[str], context: Context) -> Iterator[Claim]:
    subject = subject_of(match["s"], context)
    yield from state(context, subject, "port", match["v"], True, single=True)


@RULES.on(
    "raised lowered increased reduced changed",
    r"(?:i|we) (?:raised|lowered|increased|reduced|changed) (?P<s>.+) (?:from .+ )?to (?P<v>.+)",
)
@RULES.on(
    "went rose fell changed",
    rf"{S} (?:went up|went down|rose|fell|changed) (?:from .+ )?to (?P<v>.+)",
)
@RULES.on(
    "is are was am",
    rf"{S} (?:is|are|was|am)(?P<no> not)? (?:set to|down to|up to)? ?(?P<v>-?\d[^,]*)",
)
@RULES.on("pay pays", r"(?:i|we) (?:pay|pays) (?P<v>\d[^,]*?) (?:of |in )?(?P<s>rent)(?: .+)?")
def _amount(match: re.Match[str], context: Context) -> Iterator[Claim]:
    subject = subject_of(match["s"], context)
    words = content(match["v"]).split()
    number = re.match(r"-?\d+(?:[.:]\d+)*", words[0]) if words else None
    if subject is None or not words:
        return
    if number is None:
        named = attribute_of(subject, context)
        if named is not None:  # "I changed my bank to N26"
            yield from state(context, *named, " ".join(words), True, single=True)
        return
    unit = " ".join([words[0][number.end() :], *words[1:]]).strip()
    unit = re.sub(r" ?(?:(?:a|per) )?(?:month|year|minute)s?$|^euros?|^dollars?", "", unit).strip()
    split = attribute_of(subject, context)
    owner, attribute = split or (subject, "amount")
    if match["s"] == "rent":
        owner = context.speaker
    if split is None and unit:
        attribute = f"amount in {' '.join(map(lemma, unit.split()))}"
    yield from state(context, owner, attribute, number[0], said(match), single=True)


_PLACE = r"in|at|on|under|near|behind|next to|above"


@RULES.on("is are am", rf"{S} (?:is|are|am){NOT} (?P<v>(?:{_PLACE}) .+)")
def _place(match: re.Match[str], context: Context) -> Iterator[Claim]:
    pole = POLES.get(match["v"])
    subject = subject_of(match["s"], context)
    if pole:
        yield from state(context, subject, pole, match["v"], said(match), single=True)
        return
    value = content(re.sub(rf"^(?:{_PLACE}) ", "", match["v"]))
    if not value.startswith("@"):
        yield from state(context, subject, "place", value, said(match), single=True)


@RULES.on("works passes fails won lost", rf"{S} (?P<v>works|passes|fails|won|lost)(?P<rest> .+)?")
@RULES.on("work pass fail", rf"{S} (?:do|does)(?P<no> not) (?P<v>work|pass|fail)(?P<rest> .+)?")
def _outcome(match: re.Match[str], context: Context) -> Iterator[Claim]:
    rest = content(match["rest"] or "")
    word = {"work": "working", "pass": "passing", "fail": "failing"}.get(
        lemma(match["v"]), match["v"]
    )
    if word == "working" and rest:
        return
    subject = subject_of(match["s"], context)
    attribute = f"{POLES[word]} {rest}".strip()
    if word in ("won", "lost"):
        if subject:
            near = (context.said - DAY, context.said + DAY)
            yield Claim(subject, attribute, word, True, True, *near, context.change)
        return
    yield from state(context, subject, attribute, word, said(match), single=True)


@RULES.on(
    "is are am was were been tested looks stays",
    rf"{S} (?:is|are|am|was|were|has been|have been|tested|looks|stays){NOT} (?P<v>.+)",
)
def _copula(match: re.Match[str], context: Context) -> Iterator[Claim]:
    past = re.search(r" (?:was|were)(?: not| never)? ", f" {match[0]} ") is not None
    subject = subject_of(match["s"], context)
    if subject is None:
        return
    if past:
        once = re.fullmatch(r"(built|founded|stolen|released) in (\w+)", match["v"])
        if once:
            yield from always(context, subject, once[1], once[2], said(match))
        return
    yield from is_something(subject, match["v"], said(match), context)


def is_something(
    subject: str | None, phrase: str, positive: bool, context: Context
) -> Iterator[Claim]:
    """Claims of "x is ...": a pole, a job, an attribute's value, or a plain yes or no."""
    if subject is None:
        return
    value = content(phrase)
    split = attribute_of(subject, context)
    if split:
        yield from state(context, split[0], split[1], value, positive, single=True)
        return
    head, _, tail = phrase.strip().partition(" in ")
    if head not in POLES:
        head, _, tail = value.partition(" in ")
    if head in DIETS:
        for food in DIETS[head] if positive else ():
            yield from state(context, subject, "does", f"eat {food}", False, single=False)
    if head in POLES:
        axis = f"{POLES[head]} {tail}".strip()
        yield from state(context, subject, axis, head, positive, single=True)
        return
    age = re.fullmatch(r"(\d+)(?: years? old)?", value)
    if age:
        yield from state(context, subject, "age", age[1], positive, single=True)
        return
    words = value.split()
    boss = re.fullmatch(r"(?:my|our) ([a-z]+)", phrase)
    if boss and boss[1] in ATTRIBUTES:
        owner = context.speaker if phrase.startswith("my ") else "we"
        yield from state(context, owner, boss[1], subject, positive, single=True)
        return
    if words and words[-1] in JOBS:
        job = SAME_JOB.get(words[-1], words[-1])
        yield from state(context, subject, "occupation", job, positive, single=True)
        return
    yield from state(context, subject, "is", value, positive, single=False)


@RULES.on(
    "sold traded gave", rf"{S} (?:sold|traded in|gave away) (?:my|the|our) (?P<v>[a-z]+)(?: .+)?"
)
def _parted(match: re.Match[str], context: Context) -> Iterator[Claim]:
    subject = subject_of(match["s"], context)
    yield from state(context, subject, "has", match["v"], False, single=False)
    yield from state(context, subject, "does", f"drive {match['v']}", False, single=False)


@RULES.on("play plays", rf"{S} plays? for (?P<v>.+)")
def _plays_for(match: re.Match[str], context: Context) -> Iterator[Claim]:
    subject = subject_of(match["s"], context)
    yield from state(context, subject, "plays for", content(match["v"]), True, single=True)


@RULES.on("run runs", rf"{S} runs? on (?P<v>[a-z]+)")
def _runs_on(match: re.Match[str], context: Context) -> Iterator[Claim]:
    if match["v"] in POLES:
        subject = subject_of(match["s"], context)
        yield from state(context, subject, POLES[match["v"]], match["v"], True, single=True)


@RULES.on("graduated married died", rf"{S} (?P<once>graduated|got married|died) in (?P<v>\w+)")
def _once(match: re.Match[str], context: Context) -> Iterator[Claim]:
    if ONCE.match(match["once"]):
        subject = subject_of(match["s"], context)
        yield from always(context, subject, match["once"], match["v"], True)


@RULES.on(
    "not never longer", rf"{S} (?P<aux>(?:do|does) not|never|no longer) (?P<v>[a-z-]+(?: .+)?)"
)
def _denied(match: re.Match[str], context: Context) -> Iterator[Claim]:
    words = content(match["v"]).split()
    if words and not words[0].endswith("ed"):
        value = " ".join([lemma(words[0]), *words[1:]])
        yield from state(
            context, subject_of(match["s"], context), "does", value, False, single=False
        )


@RULES.on("", r"(?P<s>i|we|(?:my|our|the) [a-z]+(?: [a-z]+)??|[a-z]+) (?P<v>[a-z]+(?: .+)?)")
def _does(match: re.Match[str], context: Context) -> Iterator[Claim]:
    words = content(match["v"]).split()
    subject = subject_of(match["s"], context)
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
        yield from state(context, subject, f"does {rest}", words[place], True, single=True)
        value = value.replace(f"{words[place]} ", "")
    yield from state(context, subject, "does", value, True, single=False)
    kind = KINDS.get(lemma(value.split()[-1])) if len(value.split()) == 2 else None
    if kind:
        also = f"{lemma(verb)} {kind}"
        yield from state(context, subject, "does", also, True, single=False)


_AUXILIARIES_WORDS = """
    am is are was were do did will would can could have had has not be been got went said
"""
_AUXILIARIES = frozenset(_AUXILIARIES_WORDS.split())

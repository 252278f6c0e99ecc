"""The word lists behind the rules: changes, doubts, poles that exclude each other, attributes."""

from __future__ import annotations

import re

__all__ = [
    "ATTRIBUTES",
    "CHANGE",
    "CHANGE_WORDS",
    "CORRECTION",
    "CORRECTION_WORDS",
    "DIETS",
    "DOUBT",
    "DOUBT_WORDS",
    "EXCLUSIVE",
    "FILLERS",
    "FILLER_WORDS",
    "IMMUTABLE",
    "JOBS",
    "KINDS",
    "LIKES",
    "ONCE",
    "POLES",
    "RELATIONS",
    "SAME_JOB",
]

#: Said of a state that was different before.
CHANGE = re.compile(
    r"\b(?:now|nowadays|these days|any ?more|any longer|no longer|from now on|used to|moved|"
    r"switched|changed|new|finally|quit|stopped|gave up|given up|started|became|become|turned|"
    r"again|not .* after all|after all|rescheduled|postponed|cancelled|canceled|left|sold|traded|"
    r"bought|adopted|died|broke up|promoted|retrained|migrated|rewritten|raised|lowered|went up|"
    r"went down|repainted|repaired|fixed|learned|learnt|passed|graduated|paid off|got|actually|"
    r"correction|instead|just came back|since then|as of|replaced|down to|up to|recently|lately)\b"
)

#: Said to take back what was said before; of what never changes only this makes a change.
CORRECTION = re.compile(r"\b(?:actually|correction|i was wrong|i meant|i misspoke|sorry)\b")

#: Said of what is not so, or not known to be so.
DOUBT = re.compile(
    r"\b(?:might|maybe|perhaps|possibly|probably|if|unless|whether|would|could|should|wish|hope|"
    r"hoping|imagine|dream|plan to|planning|thinking (?:of|about)|want to|wants to|wanted to|"
    r"considering|pretend|as if|i think|i guess|not sure|going to|will|suppose|or|supposed to|"
    r"someday|one day)\b"
)

#: Taken out before a clause is read.
FILLERS = re.compile(
    r"\b(?:now|nowadays|these days|any ?more|any longer|finally|already|still|just|really|actually|"
    r"currently|at the moment|right now|also|too|as well|at all|after all|from now on|of course|"
    r"honestly|very|quite|so|anyway|by the way|again|back|absolutely|every single day|"
    r"(?:every|each) (?:day|morning|evening|night|week|weekend|month|year)|"
    r"last (?:week|month|year)|"
    r"this (?:week|month|year)|well|oh|yes|yeah|no,|at home|latest|plenty of|a lot of|because of .*"
    r"|and it (?:is|has been) \w+|for years|by profession|in my spare time)\b"
)


def _set(*words: str) -> frozenset[str]:
    return frozenset(" ".join(words).split())


#: One word of each alternative of the patterns above: without any there is nothing to find.
CHANGE_WORDS = _set(
    "now nowadays days more anymore longer used moved switched changed new finally quit stopped",
    "gave given started became become turned again all rescheduled postponed cancelled canceled",
    "left sold traded bought adopted died broke promoted retrained migrated rewritten raised",
    "lowered went repainted repaired fixed learned learnt passed graduated paid got actually",
    "correction instead came since as replaced down up recently lately",
)
CORRECTION_WORDS = _set("actually correction wrong meant misspoke sorry")
DOUBT_WORDS = _set(
    "might maybe perhaps possibly probably if unless whether would could should wish hope hoping",
    "imagine dream plan planning thinking want wants wanted considering pretend think guess sure",
    "going will suppose or supposed someday one",
)
FILLER_WORDS = _set(
    "now nowadays days more anymore longer finally already still just really actually currently",
    "moment also too well all course honestly very quite so anyway way again back absolutely every",
    "each last this oh yes yeah no home latest plenty lot because it years profession spare",
)

#: Poles of one thing: at most one holds at a time. Each word belongs to one axis.
POLES: dict[str, str] = {}

_AXES = """
open closed shut
enabled disabled
running stopped paused halted on_hold
broken working fixed repaired out_of_order
passing failing
red green blue yellow black white grey gray brown orange purple pink
positive negative
married single divorced engaged widowed
alive dead
empty full
electric diesel petrol hybrid
healthy sick ill
late on_time early
sold_out available
tiny huge
vegan omnivorous
won lost
"""
for _line in _AXES.split("\n"):
    for _word in _line.split():
        POLES[_word.replace("_", " ")] = " / ".join(_line.split()[:2]).replace("_", " ")
POLES["gray"] = POLES["grey"]

#: Values of which a thing uses one at a time.
EXCLUSIVE: dict[str, str] = {}
_CLASSES = {
    "interface": "rest restful graphql soap grpc",
    "database": "postgresql mysql sqlite oracle mongodb mariadb",
    "language": "python rust java go golang typescript javascript ruby php kotlin swift c++ c#",
}
for _name, _words in _CLASSES.items():
    for _word in _words.split():
        EXCLUSIVE[_word] = _name

#: Nouns of which one has one: "the port of the server", "my birthday".
_ATTRIBUTES_WORDS = """
    name surname birthday age height weight size colour email address number salary rent
    budget manager boss bank employer job profession occupation hometown nationality religion
    password username port timeout version deadline price cost limit capacity temperature
    title subject nickname wife husband partner spouse girlfriend boyfriend fiance fiancee
    mother father
"""
ATTRIBUTES = frozenset(_ATTRIBUTES_WORDS.split())

#: Of those the ones that stay as they are.
IMMUTABLE = frozenset(
    ["birthplace", "birthday", "birth year", "native language", "blood type", "mother", "father"]
)

#: Words before a noun that make it another attribute rather than another thing.
RELATIONS = re.compile(
    r"^(?:(?:favourite|native|blood|phone|mobile|work|private|last|first|middle|best|personal|"
    r"home|postal|default|retry|rate|account|maiden|new|latest) )+[a-z]+(?: time)?$|^personal best$"
)

_JOBS_WORDS = """
    nurse teacher doctor physician developer programmer engineer lawyer student intern baker
    chef cook waiter waitress artist writer journalist photographer pilot architect accountant
    manager lead director ceo cto designer scientist researcher professor dentist pharmacist
    plumber electrician carpenter mechanic driver farmer gardener librarian musician singer
    actor actress dancer coach trainer translator consultant analyst clerk cashier
    receptionist secretary firefighter policeman policewoman soldier veterinarian vet
    psychologist therapist
"""
JOBS = frozenset(_JOBS_WORDS.split())

#: The same job under another name.
SAME_JOB = {"physician": "doctor", "programmer": "developer", "vet": "veterinarian"}

#: What is said of the member is said of the kind as well: who plays the violin plays an instrument.
KINDS: dict[str, str] = {}
_KINDS = {
    "instrument": "violin piano guitar drum bass cello flute trumpet saxophone clarinet harp viola",
    "pet": "dog cat parrot hamster rabbit kitten puppy goldfish budgie turtle",
    "alcohol": "beer wine whisky whiskey vodka gin rum champagne cider",
    "meat": "beef pork chicken lamb steak ham bacon sausage turkey",
    "dairy": "cheese milk butter yoghurt yogurt cream",
}
for _name, _words in _KINDS.items():
    for _word in _words.split():
        KINDS[_word] = _name

#: What a diet rules out.
DIETS = {"vegan": ("meat", "dairy", "fish"), "vegetarian": ("meat", "fish")}

#: Liking and its opposite.
LIKES: dict[str, bool] = {
    "like": True,
    "love": True,
    "adore": True,
    "enjoy": True,
    "can stand": True,
    "hate": False,
    "dislike": False,
    "can not stand": False,
    "detest": False,
    "loathe": False,
    "have come to love": True,
    "have come to like": True,
}

#: What is done once: a second date contradicts the first, however much later it is said.
ONCE = re.compile(
    r"^(?:(?:was|were|been) (?:born|built|founded|stolen|released)|graduated|died|"
    r"(?:got|were|was) married)\b"
)

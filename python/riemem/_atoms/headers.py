"""A few words that say what an atom is about."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from .._packed_text import one_line
from ..errors import DTypeError

OTHER = "other"  # the header of turns that stand alone

_WORD = re.compile(r"[^\W\d_][\w'\u2019-]{2,}")
# Words that say nothing about a subject.
_SMALL_WORDS = """
about after again all also although always and any anything are aren't because been before being
but came can can't come could couldn't did didn't does doesn't doing don't down each even ever
every few for from get gets getting give going gone gonna good got great had hadn't has hasn't
have haven't having her here hers him his how i'd i'll i'm i've into isn't it's its just keep
know last let like look looking lot lots made make makes making many maybe me mine more most
much must my need never new not now off oh okay one only other our out over really same say see
seen she should since some something sounds still such sure take taking talk tell than thank
thanks that that's the their them then there there's these they they're thing things think this
those though through time too try trying two until use used very wanna want was wasn't way we'll
we're well went were weren't what what's when where which while who why will with won't wow
would yeah year years yes yet you you'll you're you've your
"""
_EMPTY = frozenset(_SMALL_WORDS.split())


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text that can say what it is about.

    Examples
    --------
    >>> sorted(words_of("The red kite, it is red"))
    ['kite', 'red']
    """
    found = {word.casefold() for word in _WORD.findall(text)}
    return frozenset(found - _EMPTY)


def describe(
    texts: Mapping[int, Sequence[str]],
    *,
    most: int = 3,
    smallest: int = 1,
    words: Callable[[str], Collection[str]] = words_of,
    overall: Counter[str] | None = None,
) -> dict[int, str]:
    """Return for each atom up to `most` words that many of its texts have and few others.

    ``weight = (texts of the atom with the word) * log(1 + texts / texts with the word)``; ties go
    to the longer word, then to the alphabet. An atom without such words is a "topic".

    Parameters
    ----------
    texts : mapping of int to sequence of str
    most : int
    smallest : int
        Atoms with fewer texts count, but get no words.
    words : callable
        What :func:`words_of` returns, for whoever has it already.
    overall : Counter, optional
        In how many of all the texts each word is, for whoever has counted.

    Examples
    --------
    >>> describe({1: ["the red kite", "a kite flies"], 2: ["old bread"]})
    {1: 'kite flies red', 2: 'bread old'}
    """
    total = sum(len(own) for own in texts.values())
    if overall is None:
        overall = Counter(word for own in texts.values() for text in own for word in words(text))
    counts = {
        atom: Counter(word for text in own for word in words(text))
        for atom, own in texts.items()
        if len(own) >= smallest
    }
    named = {}
    for atom, found in counts.items():
        weight = {word: n * math.log1p(total / overall[word]) for word, n in found.items()}
        best = sorted(weight, key=lambda word: (-weight[word], -len(word), word))[:most]
        named[atom] = " ".join(best) or "topic"
    return named


def distinct(names: Mapping[int, str], atoms: Iterable[int]) -> dict[int, str]:
    """Return one header for each atom: one line each, no two alike, none that of lone turns.

    The first atom keeps its name; one that comes later with the same (or without one) is numbered.

    Parameters
    ----------
    names : mapping of int to str
        An atom without one is a "topic".
    atoms : iterable of int

    Raises
    ------
    DTypeError
        A name is no text.

    Examples
    --------
    >>> distinct({1: "tea", 2: "tea\\n", 3: "Other"}, [1, 2, 3, 4])
    {1: 'tea', 2: 'tea (2)', 3: 'Other (2)', 4: 'topic'}
    """
    found: dict[int, str] = {}
    taken = {OTHER}
    for atom in atoms:
        name = names.get(atom, "topic")
        if not isinstance(name, str):
            raise DTypeError(
                f"headers: expected a str for each atom, got {type(name).__name__} for {atom}"
            )
        line, number = one_line(name), 1
        while line.casefold() in taken:
            number += 1
            line = one_line(name, 70) + f" ({number})"
        taken.add(line.casefold())
        found[atom] = line
    return found

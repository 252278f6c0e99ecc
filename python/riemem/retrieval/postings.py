"""An inverted index over texts, with BM25, that follows additions and removals exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from riemem.retrieval.spelling import slips
from riemem.retrieval.words import FIRST_PERSON, SECOND_PERSON, Stemmer, query_words, raw_words

__all__ = ["PART_TEXTS", "Part", "Postings", "PostingsView", "in_order", "merged"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

#: Texts, and how often each holds a word or several taken as one.
Entries = tuple[Ints, "Ints | Floats"]

#: Choices of k1 and b for which the part of the lengths is remembered.
_MOST_DAMPINGS = 4
#: Most texts in one part.
PART_TEXTS = 2048


@dataclass(frozen=True, eq=False)
class Part:
    """The words of consecutive texts, by word: texts[starts[w]:starts[w + 1]], times[same].

    Attributes
    ----------
    words : list of str
        Stems, in the order of their first occurrence.
    starts : (words + 1,) int32 ndarray
    texts : int32 ndarray
        Numbers within the part, ascending for each word.
    times : int32 ndarray
        How often the word occurs in the text.
    lengths : (texts,) int32 ndarray
        Words of each text.
    """

    words: Sequence[str]
    starts: Ints
    texts: Ints
    times: Ints
    lengths: Ints
    number: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "number", dict(zip(self.words, range(len(self.words)), strict=True))
        )

    def __len__(self) -> int:
        return self.lengths.size

    @cached_property
    def first_person(self) -> Floats:
        """``(i - y) / (i + y + 1)`` of each text, i and y = words of the first and second person.

        Counted once: a part never changes.
        """
        mine, yours = (self._count(stems) for stems in (FIRST_PERSON, SECOND_PERSON))
        return (mine - yours) / (mine + yours + 1.0)

    def _count(self, stems: Iterable[str]) -> Floats:
        """How many of these words each text holds."""
        total = np.zeros(len(self))
        for word in map(self.number.get, stems):
            if word is not None:
                own = slice(self.starts[word], self.starts[word + 1])
                total[self.texts[own]] += self.times[own]  # a text comes once for each word
        return total


@dataclass(frozen=True)
class PostingsView:
    """One state of a :class:`Postings`; searches in other threads end on the one they began with.

    Attributes
    ----------
    parts : tuple of Part
    numbers : tuple of int32 ndarrays
        The texts of each part's entries, numbered over all parts.
    lengths : (n,) int32 ndarray
        Words of each text.
    alive : (n,) bool ndarray
    words : set of str
        Every word of the parts, and maybe some that came later.
    """

    parts: tuple[Part, ...]
    numbers: tuple[Ints, ...]
    lengths: Ints
    alive: npt.NDArray[np.bool_]
    n_alive: int
    total_length: int
    stem: Stemmer
    words: Set[str]
    _dampings: dict[tuple[float, float], Floats] = field(default_factory=dict)

    def bm25(self, query: str, *, k1: float = 0.8, b: float = 0.4) -> tuple[Floats, float]:
        """Score every text.

        ``sum over words w of idf(w) f (k1 + 1) / (f + k1 (1 - b + b length / mean length))``,
        ``idf(w) = log(1 + (n - n_w + 0.5) / (n_w + 0.5))``, f = times that w occurs in the text.
        For a word that is in no text those stand that differ from it by one letter, as one word.

        Parameters
        ----------
        query : str
        k1, b : float

        Returns
        -------
        scores : (n,) float64 ndarray
            0 where no word is shared.
        bound : float
            The largest score that any text can have; 0 when no word of the query is known.

        Notes
        -----
        O(texts that hold a word of the query). Robertson and Zaragoza, 2009.
        """
        found: list[Entries] = []
        most: list[float] = []  # what a text can gain by each of them
        bound = 0.0
        for stem in dict.fromkeys(self.stem(query_words(query))) if self.n_alive else ():
            own = self._holding(stem)
            held = self._living(own)
            if held == 0:
                own = self._holding_like(stem)
                held = self._living(own)
            if held == 0:
                continue
            idf = float(np.log1p((self.n_alive - held + 0.5) / (held + 0.5)))
            bound += idf * (k1 + 1.0)
            found += own
            most += [idf * (k1 + 1.0)] * len(own)
        if not found:
            return np.zeros(self.lengths.size), bound
        texts = np.concatenate([entries[0] for entries in found])
        times = np.concatenate([entries[1] for entries in found])
        gains = np.repeat(most, [entries[0].size for entries in found])
        damped = times + self._damping(k1, b)[texts]
        scores = np.bincount(texts, gains * times / damped, self.lengths.size)
        return scores.astype(np.float64, copy=False), bound

    def _damping(self, k1: float, b: float) -> Floats:
        """What the length of each text adds to how often it holds a word; made once for a state."""
        found = self._dampings.get((k1, b))
        if found is None:
            mean = max(1.0, self.total_length / self.n_alive)
            found = k1 * (1.0 - b + (b / mean) * self.lengths.astype(np.float64))
            if len(self._dampings) >= _MOST_DAMPINGS:
                self._dampings.clear()
            self._dampings[k1, b] = found
        return found

    def first_person(self) -> Floats:
        """How much each text speaks of its speaker; see :attr:`Part.first_person`; shape (n,)."""
        return np.concatenate([np.empty(0), *(part.first_person for part in self.parts)])

    def _living(self, found: Sequence[Entries]) -> int:
        if self.n_alive == self.alive.size:
            return sum([texts.size for texts, _ in found])
        return sum([int(np.count_nonzero(self.alive[texts])) for texts, _ in found])

    def _holding_like(self, stem: str) -> list[Entries]:
        """The same for all words that one slip of the pen makes of this one, as one word."""
        like = sorted(slips(stem) & self.words)
        found = [entries for word in like for entries in self._holding(word)]
        if not found:
            return []
        texts, place = np.unique(np.concatenate([own[0] for own in found]), return_inverse=True)
        times = np.bincount(place, np.concatenate([own[1] for own in found]))
        return [(texts, times.astype(np.float64, copy=False))]

    def _holding(self, stem: str) -> list[Entries]:
        """The texts that hold a word, removed ones included, and how often each does; by part."""
        found: list[Entries] = []
        for part, numbers in zip(self.parts, self.numbers, strict=True):
            word = part.number.get(stem)
            if word is not None:
                own = slice(part.starts[word], part.starts[word + 1])
                found.append((numbers[own], part.times[own]))
        return found


class Postings:
    """Texts numbered in the order of their arrival; a removed one keeps its number.

    Not safe to change from several threads at once; views are safe to read.

    Notes
    -----
    Texts are kept in parts, of which small ones are merged as they come, so that adding a text
    costs O(log) mergers of its words.

    Examples
    --------
    >>> postings = Postings()
    >>> postings.add(["a red bicycle", "tax forms", "red tape and red ink"])
    >>> scores, bound = postings.view().bm25("red bicycles")
    >>> [int(i) for i in scores.argsort()[::-1]], bool(scores.max() <= bound)
    ([0, 2, 1], True)
    """

    def __init__(self) -> None:
        self._stem = Stemmer()
        self._parts: list[Part] = []
        self._firsts: list[int] = []  # number of the first text of each part
        self._numbers: list[Ints] = []  # a part's texts, numbered over all parts
        self._lengths: Ints = np.empty(0, np.int32)
        self._alive: npt.NDArray[np.bool_] = np.empty(0, np.bool_)
        self._words: set[str] = set()  # of all parts; it only grows, so views may share it

    def __len__(self) -> int:
        return self._lengths.size

    def add(self, texts: Sequence[str]) -> None:
        """Append texts."""
        self.adopt(
            [
                self.make(texts[start : start + PART_TEXTS])
                for start in range(0, len(texts), PART_TEXTS)
            ]
        )

    def adopt(self, parts: Sequence[Part]) -> None:
        """Append the texts of parts made before."""
        if not parts:
            return
        for part in parts:
            self._words.update(part.words)
            self._firsts.append(self._firsts[-1] + len(self._parts[-1]) if self._parts else 0)
            self._parts.append(part)
            while len(self._parts) > 1 and self._mergeable(*self._parts[-2:]):
                last = self._parts.pop()
                self._firsts.pop()
                self._parts[-1] = merged(self._parts[-1], last)
            del self._numbers[len(self._parts) - 1 :]
            self._numbers.append(self._parts[-1].texts + np.int32(self._firsts[-1]))
        self._lengths = np.concatenate([self._lengths, *(part.lengths for part in parts)])
        self._alive = np.concatenate([self._alive, np.ones(sum(map(len, parts)), np.bool_)])

    @staticmethod
    def _mergeable(before: Part, last: Part) -> bool:
        return len(before) < 2 * len(last) and len(before) + len(last) <= PART_TEXTS

    def remove(self, numbers: Iterable[int]) -> None:
        """Take texts out, as if they had never been there; twice is the same as once."""
        self._alive = self._alive.copy()
        self._alive[list(numbers)] = False

    def part_of(self, first: int, last: int) -> Part:
        """Return a part of the texts from number `first` to before `last`, all of them living."""
        inside = [
            _cut(part, first - start, last - start)
            for part, start in zip(self._parts, self._firsts, strict=True)
            if start < last and first < start + len(part)
        ]
        while len(inside) > 1:
            last_one = inside.pop()
            inside[-1] = merged(inside[-1], last_one)
        return inside[0]

    def view(self) -> PostingsView:
        """Return the present state."""
        return PostingsView(
            tuple(self._parts),
            tuple(self._numbers),
            self._lengths,
            self._alive,
            int(np.count_nonzero(self._alive)),
            int(self._lengths[self._alive].sum(dtype=np.int64)),
            self._stem,
            self._words,
        )

    def make(self, texts: Sequence[str]) -> Part:
        """Return a part of texts without appending it."""
        bags = [Counter(raw_words(text)) for text in texts]
        raw = list(dict.fromkeys(word for bag in bags for word in bag))
        known: dict[str, int] = {}
        number = {
            word: known.setdefault(stem, len(known))
            for word, stem in zip(raw, self._stem(raw), strict=True)
        }
        flat: list[int] = []
        times: list[int] = []
        sizes, lengths = [], []
        for bag in bags:
            own: dict[int, int] = {}
            for word, count in bag.items():
                key = number[word]
                own[key] = own.get(key, 0) + count
            flat += own
            times += own.values()
            sizes.append(len(own))
            lengths.append(sum(own.values()))
        holders = np.repeat(np.arange(len(texts), dtype=np.int32), sizes)
        return _by_word(
            list(known),
            np.array(flat, np.int32),
            holders,
            np.array(times, np.int32),
            np.array(lengths, np.int32),
        )


def _by_word(words: list[str], flat: Ints, holders: Ints, times: Ints, lengths: Ints) -> Part:
    """Sort entries (word, text, times), given by text, by word."""
    order = np.argsort(flat, kind="stable")
    starts = np.zeros(len(words) + 1, np.int32)
    np.cumsum(np.bincount(flat, minlength=len(words)), out=starts[1:])
    return Part(words, starts, holders[order], times[order], lengths)


def merged(a: Part, b: Part) -> Part:
    """The texts of `a`, then those of `b`."""
    known = dict(a.number)
    number = np.array([known.setdefault(word, len(known)) for word in b.words], np.int32)
    flat = np.concatenate([_words_of_entries(a), number[_words_of_entries(b)]])
    return _by_word(
        list(known),
        flat.astype(np.int32),
        np.concatenate([a.texts, b.texts + np.int32(len(a))]),
        np.concatenate([a.times, b.times]),
        np.concatenate([a.lengths, b.lengths]),
    )


def _words_of_entries(part: Part) -> Ints:
    return np.repeat(np.arange(len(part.words), dtype=np.int32), np.diff(part.starts))


def _cut(part: Part, first: int, last: int) -> Part:
    """The texts from `first` to before `last` of a part, and only their words."""
    if first <= 0 and last >= len(part):
        return part
    first, last = max(first, 0), min(last, len(part))
    keep = (part.texts >= first) & (part.texts < last)
    own = _words_of_entries(part)[keep]
    used, flat = np.unique(own, return_inverse=True)
    return _by_word(
        [part.words[word] for word in used],
        flat.astype(np.int32),
        part.texts[keep] - np.int32(first),
        part.times[keep],
        part.lengths[first:last],
    )


def in_order(part: Part) -> Part:
    """The same with its words sorted: parts of the same texts are then equal."""
    order = sorted(range(len(part.words)), key=part.words.__getitem__)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    words = [part.words[word] for word in order]
    flat = rank[_words_of_entries(part)]
    return _by_word(words, flat, part.texts, part.times, part.lengths)

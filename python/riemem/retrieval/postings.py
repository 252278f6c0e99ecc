"""An inverted index over texts, with BM25, that follows additions and removals exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from riemem.retrieval.words import Stemmer, query_words, raw_words

__all__ = ["Postings", "PostingsView"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

#: Texts that were added since the last merge are kept apart until they hold this many words ...
_FRESH_WORDS = 20_000
#: ... or this share of all words.
_FRESH_SHARE = 0.125


@dataclass(frozen=True)
class _Part:
    """The words of a range of texts, by word: texts[starts[w]:starts[w + 1]], times[same]."""

    starts: npt.NDArray[np.int64]
    texts: Ints
    times: Ints


@dataclass(frozen=True)
class PostingsView:
    """One state of a :class:`Postings`; searches in other threads end on the one they began with.

    Attributes
    ----------
    lengths : (n,) int32 ndarray
        Words of each text.
    alive : (n,) bool ndarray
    """

    parts: tuple[_Part, ...]
    counts: Ints  # of living texts that hold the word
    lengths: Ints
    alive: npt.NDArray[np.bool_]
    n_alive: int
    total_length: int
    words: dict[str, int]
    stem: Stemmer

    def bm25(self, query: str, *, k1: float = 0.8, b: float = 0.4) -> tuple[Floats, float]:
        """Score every text.

        ``sum over words w of idf(w) f (k1 + 1) / (f + k1 (1 - b + b length / mean length))``,
        ``idf(w) = log(1 + (n - n_w + 0.5) / (n_w + 0.5))``, f = times that w occurs in the text.

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
        scores = np.zeros(self.lengths.size)
        bound = 0.0
        if self.n_alive == 0:
            return scores, bound
        mean = max(1.0, self.total_length / self.n_alive)
        for stem in dict.fromkeys(self.stem(query_words(query))):
            word = self.words.get(stem, self.counts.size)
            held = int(self.counts[word]) if word < self.counts.size else 0
            if held == 0:
                continue
            idf = float(np.log1p((self.n_alive - held + 0.5) / (held + 0.5)))
            bound += idf * (k1 + 1.0)
            for part in self.parts:
                if word + 1 >= part.starts.size:
                    continue
                own = slice(part.starts[word], part.starts[word + 1])
                texts, times = part.texts[own], part.times[own].astype(np.float64)
                damped = times + k1 * (1.0 - b + (b / mean) * self.lengths[texts])
                scores[texts] += idf * (k1 + 1.0) * times / damped
        return scores, bound


class Postings:
    """Texts numbered in the order of their arrival; a removed one keeps its number.

    Not safe to change from several threads at once; views are safe to read.

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
        self._words: dict[str, int] = {}
        self._starts: npt.NDArray[np.int64] = np.zeros(1, np.int64)  # by text
        self._flat: Ints = np.empty(0, np.int32)  # word numbers, ascending within a text
        self._times: Ints = np.empty(0, np.int32)
        self._lengths: Ints = np.empty(0, np.int32)
        self._alive: npt.NDArray[np.bool_] = np.empty(0, np.bool_)
        self._counts: Ints = np.empty(0, np.int32)
        self._merged = 0  # texts in the large part
        self._large: _Part | None = None

    def __len__(self) -> int:
        return self._lengths.size

    def add(self, texts: Sequence[str]) -> None:
        """Append texts."""
        bags = [Counter(raw_words(text)) for text in texts]
        raw = list(dict.fromkeys(word for bag in bags for word in bag))
        number = {
            word: self._words.setdefault(stem, len(self._words))
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
            keys = sorted(own)
            flat += keys
            times += [own[key] for key in keys]
            sizes.append(len(keys))
            lengths.append(sum(own.values()))
        ends = self._starts[-1] + np.cumsum(np.array(sizes, np.int64))
        fresh = np.array(flat, np.int32)
        self._starts = np.concatenate([self._starts, ends])
        self._flat = np.concatenate([self._flat, fresh])
        self._times = np.concatenate([self._times, np.array(times, np.int32)])
        self._lengths = np.concatenate([self._lengths, np.array(lengths, np.int32)])
        self._alive = np.concatenate([self._alive, np.ones(len(texts), np.bool_)])
        counts = np.zeros(len(self._words), np.int32)
        counts[: self._counts.size] = self._counts
        self._counts = counts + np.bincount(fresh, minlength=counts.size).astype(np.int32)

    def remove(self, numbers: Iterable[int]) -> None:
        """Take texts out, as if they had never been there; twice is the same as once."""
        alive, counts = self._alive.copy(), self._counts.copy()
        for number in numbers:
            if alive[number]:
                alive[number] = False
                counts[self._flat[self._starts[number] : self._starts[number + 1]]] -= 1
        self._alive, self._counts = alive, counts

    def view(self) -> PostingsView:
        """Return the present state."""
        n = self._lengths.size
        start = self._starts[self._merged]
        fresh = self._flat.size - int(start)
        if self._large is None or fresh > max(_FRESH_WORDS, _FRESH_SHARE * self._flat.size):
            self._large, self._merged = self._part(0, n), n
        parts = [self._large]
        if self._merged < n:
            parts.append(self._part(self._merged, n))
        return PostingsView(
            tuple(parts),
            self._counts,
            self._lengths,
            self._alive,
            int(np.count_nonzero(self._alive)),
            int(self._lengths[self._alive].sum(dtype=np.int64)),
            self._words,
            self._stem,
        )

    def _part(self, first: int, last: int) -> _Part:
        own = slice(self._starts[first], self._starts[last])
        words = self._flat[own]
        order = np.argsort(words, kind="stable")
        texts = np.repeat(
            np.arange(first, last, dtype=np.int32), np.diff(self._starts[first : last + 1])
        )
        starts = np.searchsorted(words[order], np.arange(len(self._words) + 1))
        return _Part(starts.astype(np.int64), texts[order], self._times[own][order])

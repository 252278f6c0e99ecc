"""When the memories' texts speak of: the days they name and whether they have a word of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

import numpy as np
import numpy.typing as npt

from riemem.retrieval.dates import Span, find_dates, mentions_time

__all__ = ["Said", "Spoken", "spoken_of"]

Ints = npt.NDArray[np.int32]


class Said(Protocol):
    """A text and the day on which it was said."""

    @property
    def text(self) -> str: ...

    @property
    def said(self) -> date: ...


@dataclass(frozen=True)
class Spoken:
    """What the texts of the first rows of a corpus speak of.

    Attributes
    ----------
    mentions : (n,) bool ndarray
        Whether the text has a word of time.
    rows, first, last : (m,) int32 ndarrays
        Row, first day and last day of everything that is named, by row.
    """

    mentions: npt.NDArray[np.bool_]
    rows: Ints
    first: Ints
    last: Ints

    def __len__(self) -> int:
        return self.mentions.size

    @staticmethod
    def nothing(n: int = 0) -> Spoken:
        """Of n rows that speak of nothing."""
        none = np.empty(0, np.int32)
        return Spoken(np.zeros(n, np.bool_), none, none, none)

    def then(self, *others: Spoken) -> Spoken:
        """These rows, then those of others."""
        parts = (self, *others)
        ends = np.cumsum([len(part) for part in parts], dtype=np.int32)
        return Spoken(
            np.concatenate([part.mentions for part in parts]),
            np.concatenate(
                [part.rows + (end - len(part)) for part, end in zip(parts, ends, strict=True)],
                dtype=np.int32,
            ),
            np.concatenate([part.first for part in parts]),
            np.concatenate([part.last for part in parts]),
        )

    def cut(self, start: int, end: int) -> Spoken:
        """The rows from `start` to before `end`, numbered from 0."""
        if start == 0 and end >= len(self):
            return self
        own = slice(*np.searchsorted(self.rows, (start, end)).tolist())
        return Spoken(
            self.mentions[start:end],
            self.rows[own] - np.int32(start),
            self.first[own],
            self.last[own],
        )

    def put(self, rows: npt.NDArray[np.int64], other: Spoken) -> Spoken:
        """The same, and of some rows, of which nothing was known, what another says."""
        mentions = self.mentions.copy()
        mentions[rows] = other.mentions
        numbers = np.concatenate([self.rows, rows[other.rows].astype(np.int32)])
        order = np.argsort(numbers, kind="stable")
        first = np.concatenate([self.first, other.first])[order]
        return Spoken(
            mentions, numbers[order], first, np.concatenate([self.last, other.last])[order]
        )

    def without(self, row: int) -> Spoken:
        """The same, with nothing known of one row."""
        mentions = self.mentions.copy()
        mentions[row] = False
        keep = self.rows != row
        return Spoken(mentions, self.rows[keep], self.first[keep], self.last[keep])


def spoken_of(turns: Sequence[Said]) -> Spoken:
    """Find what texts speak of.

    Raises
    ------
    BackendUnavailableError
        python-dateutil is not installed.
    """
    found = [_days(turn) for turn in turns]
    flat = [(row, *span) for row, spans in enumerate(found) for span in spans]
    rows, first, last = np.array(flat, np.int32).reshape(-1, 3).T
    mentions = np.array([mentions_time(turn.text) for turn in turns], np.bool_)
    return Spoken(mentions, rows, first, last)


def _days(turn: Said) -> list[Span]:
    # A span of a year or more says little about when; the day it was said says more.
    spans, _ = find_dates(turn.text, turn.said)
    return [span for span in spans if span.last - span.first < 100]

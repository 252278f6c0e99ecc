"""What the channels keep of consecutive memories: columns and words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from riemem.retrieval.embedding import caption_of
from riemem.retrieval.postings import Part
from riemem.store.schema import MONTHS

__all__ = ["NOTHING", "Lines", "Turn", "day_of", "lines_of", "named", "turn_of", "words_of"]

Ints = npt.NDArray[np.int32]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")


class Turn(NamedTuple):
    """One memory as text: what was said, by whom, on which day (UTC), with which picture."""

    text: str
    speaker: str | None
    said: date
    caption: str | None


NOTHING = Turn("", None, date.min, None)


@dataclass(frozen=True, eq=False)
class Lines:
    """Columns and words of consecutive memories.

    Attributes
    ----------
    ids, observed : (n,) int64 ndarrays
    speakers, sessions : (n,) int32 ndarrays
        Positions in the names, -1 for none.
    speaker_names, session_names : sequences of str
    days : (n,) int32 ndarray
        Proleptic ordinals of the days on which things were said (UTC).
    sizes : (n,) int32 ndarray
        Characters of text and caption.
    asks : (n,) bool ndarray
        Whether the text ends with a question mark.
    words : Part
    """

    ids: npt.NDArray[np.int64]
    observed: npt.NDArray[np.int64]
    speakers: Ints
    speaker_names: Sequence[str]
    sessions: Ints
    session_names: Sequence[str]
    days: Ints
    sizes: Ints
    asks: npt.NDArray[Any]
    words: Part

    def __len__(self) -> int:
        return self.ids.size


def lines_of(rows: Sequence[tuple[Any, ...]], turns: Sequence[Turn], words: Part) -> Lines:
    """Make the lines of memories.

    Parameters
    ----------
    rows : sequence of tuples
        Id, text, speaker, session, observed_at, metadata.
    turns : sequence of Turn
        The same memories.
    words : Part
        Those of :func:`words_of`.
    """
    speakers: dict[str, int] = {}
    sessions: dict[str, int] = {}
    return Lines(
        np.array([row[0] for row in rows], np.int64),
        np.array([row[4] for row in rows], np.int64),
        np.array([_number(speakers, row[2]) for row in rows], np.int32),
        list(speakers),
        np.array([_number(sessions, row[3]) for row in rows], np.int32),
        list(sessions),
        np.array([turn.said.toordinal() for turn in turns], np.int32),
        np.array([len(turn.text) + len(turn.caption or "") for turn in turns], np.int32),
        np.array([turn.text.rstrip().endswith(_QUESTION_MARKS) for turn in turns], np.bool_),
        words,
    )


def turn_of(row: tuple[Any, ...]) -> Turn:
    """The turn of a row as :func:`lines_of` takes them."""
    return Turn(row[1], row[2], day_of(row[4]), caption_of(row[5]))


def words_of(turn: Turn) -> str:
    """The text whose words are indexed: speaker, text, caption, and the date in words."""
    day = turn.said
    parts = (turn.speaker, turn.text, turn.caption, f"{day.day} {MONTHS[day.month - 1]} {day.year}")
    return " ".join(part for part in parts if part)


def named(numbers: Ints, names: Sequence[str]) -> tuple[Ints, list[str]]:
    """The same names, as positions in a list of those that occur, in the order they come."""
    own: dict[int, int] = {-1: -1}
    positions = [own.setdefault(number, len(own) - 1) for number in numbers.tolist()]
    return np.array(positions, np.int32), [names[number] for number in own if number >= 0]


def day_of(microseconds: int) -> date:
    """The UTC day of an instant."""
    return (_EPOCH + timedelta(microseconds=microseconds)).date()


def _number(numbers: dict[str, int], name: str | None) -> int:
    return -1 if name is None else numbers.setdefault(name, len(numbers))

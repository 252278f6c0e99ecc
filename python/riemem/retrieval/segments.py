"""The words and dates of a corpus as segments of the store, and back."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from riemem.retrieval.lines import Lines
from riemem.retrieval.postings import Part, in_order
from riemem.retrieval.spoken import Spoken
from riemem.store.reads import population
from riemem.store.segments import Segment, pack, read_segments, unpack

__all__ = ["COLUMNS", "Piece", "apart", "dates_segment", "read_pieces", "words_segment"]

#: What is read of a memory.
COLUMNS = "id, text, speaker, session, observed_at, metadata"


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive memories of a profile: from a segment, or, where there is none, as rows."""

    lines: Lines | None
    spoken: Spoken | None = None
    rows: Sequence[tuple[Any, ...]] = ()

    def __len__(self) -> int:
        return len(self.rows if self.lines is None else self.lines)


def read_pieces(connection: sqlite3.Connection, profile: str) -> list[Piece]:
    """Read all memories of a profile, in the order of their ids."""
    words = [_lines(found) for found in read_segments(connection, profile, "words")]
    dates = {
        (found.first, found.last): Spoken(**unpack(found.data)[0])
        for found in read_segments(connection, profile, "dates")
    }
    there, alone = population(connection, profile)
    if there == sum(map(len, words)):
        return [Piece(own, dates.get((int(own.ids[0]), int(own.ids[-1])))) for own in words]
    (largest,) = connection.execute("SELECT max(id) FROM memories").fetchone()
    end = 1 + (largest or 0)
    pieces = []
    after = -1
    for lines in words:
        first, last = int(lines.ids[0]), int(lines.ids[-1])
        pieces += _between(connection, profile, after, first, alone)
        pieces.append(Piece(lines, dates.get((first, last))))
        after = last
    pieces += _between(connection, profile, after, end, alone)
    if sum(map(len, pieces)) != there:  # memories came in by another way than ours
        return _between(connection, profile, -1, end, alone)
    return pieces


def _between(
    connection: sqlite3.Connection, profile: str, after: int, before: int, alone: bool
) -> list[Piece]:
    if before - after <= 1:
        return []
    # By id, unless another profile has most of them: an index would visit the whole profile.
    by_id = "NOT INDEXED" if alone else ""
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM memories {by_id} "
        "WHERE profile = ? AND id > ? AND id < ? ORDER BY id",
        (profile, after, before),
    ).fetchall()
    return [Piece(None, rows=rows)] if rows else []


Ranges = list[tuple[int, int]]


def apart(kept: Ranges, new: Ranges) -> Ranges:
    """The ranges that overlap none of the new ones."""
    return [own for own in kept if all(own[1] <= n[0] or own[0] >= n[1] for n in new)]


def words_segment(lines: Lines) -> Segment:
    """Put lines into the form that the store keeps."""
    words = in_order(lines.words)
    data = pack(
        {
            "ids": lines.ids,
            "observed": lines.observed,
            "speakers": lines.speakers,
            "sessions": lines.sessions,
            "days": lines.days,
            "sizes": lines.sizes,
            "asks": lines.asks.astype(np.bool_),
            "lengths": words.lengths,
            "starts": words.starts,
            "texts": words.texts.astype(np.uint16),
            "times": words.times,
        },
        {
            "speaker_names": lines.speaker_names,
            "session_names": lines.session_names,
            "words": words.words,
        },
    )
    return Segment(int(lines.ids[0]), int(lines.ids[-1]), lines.ids.size, data)


def dates_segment(ids: npt.NDArray[np.int64], spoken: Spoken) -> Segment:
    """Put what texts speak of into the form that the store keeps."""
    arrays = {"mentions": spoken.mentions, "rows": spoken.rows}
    arrays |= {"first": spoken.first, "last": spoken.last}
    return Segment(int(ids[0]), int(ids[-1]), ids.size, pack(arrays, {}))


def _lines(segment: Segment) -> Lines:
    arrays, names = unpack(segment.data)
    words = Part(
        names["words"],
        arrays["starts"],
        arrays["texts"].astype(np.int32),
        arrays["times"],
        arrays["lengths"],
    )
    return Lines(
        arrays["ids"],
        arrays["observed"],
        arrays["speakers"],
        names["speaker_names"],
        arrays["sessions"],
        names["session_names"],
        arrays["days"],
        arrays["sizes"],
        arrays["asks"],
        words,
    )

"""What the channels know of one profile's memories, besides their vectors; kept up to date."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from riemem.retrieval.embedding import caption_of
from riemem.retrieval.postings import Postings, PostingsView
from riemem.store import Store
from riemem.store.sqlite import get_meta

__all__ = ["REACH", "Corpus", "CorpusView", "Turn"]

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

#: How far neighbours are known, in turns.
REACH = 3

# Rows of forgotten and changed memories are kept, hidden, until they outnumber the others.
_MOST_HIDDEN = 1024

_T = TypeVar("_T")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Turn(NamedTuple):
    """One memory as text: what was said, by whom, on which day (UTC), with which picture."""

    text: str
    speaker: str | None
    said: date
    caption: str | None


@dataclass(frozen=True)
class CorpusView:
    """One state of a :class:`Corpus`. Rows are in no order that means anything.

    Attributes
    ----------
    ids : (n,) int64 ndarray
        Memory ids; unique among the living rows.
    alive : (n,) bool ndarray
    speakers : (n,) int32 ndarray
        Numbers of the speakers in `speaker_names`; -1 for none.
    days : (n,) int32 ndarray
        Proleptic ordinals of the days on which things were said (UTC).
    substance : (n,) float64 ndarray
        ``L / (L + 20)``, L = characters of text and caption.
    questions : (n,) float64 ndarray
        1 where the text ends with a question mark.
    before, after : tuples of (n,) int32 ndarrays
        The row 1, 2, ... turns earlier and later in the session; n where there is none.
    """

    version: int
    ids: Ids
    alive: Mask
    speakers: npt.NDArray[np.int32]
    speaker_names: tuple[str, ...]
    days: npt.NDArray[np.int32]
    substance: Floats
    questions: Floats
    before: tuple[npt.NDArray[np.int32], ...]
    after: tuple[npt.NDArray[np.int32], ...]
    postings: PostingsView
    _derived: _Derived
    _cache: dict[str, Any]

    def __len__(self) -> int:
        """Rows, hidden ones included."""
        return self.ids.size

    def column(self, name: str, derive: Callable[[Turn], Any]) -> Sequence[Any]:
        """Return a value per row, derived from its text once and remembered while rows are added.

        Parameters
        ----------
        name : str
            The same name must always come with the same function.
        derive : callable
        """
        return self._derived.column(name, derive, len(self))

    def cached(self, name: str, make: Callable[[], _T]) -> _T:
        """Return what `make` returned the first time it was asked of this state."""
        found: _T | None = self._cache.get(name)
        if found is None:
            found = self._cache[name] = make()
        return found


class _Derived:
    """The texts of the rows and what was derived from each; shared by the states of a corpus."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._columns: dict[str, list[Any]] = {}
        self._lock = threading.Lock()

    def column(self, name: str, derive: Callable[[Turn], Any], n: int) -> Sequence[Any]:
        with self._lock:
            values = self._columns.setdefault(name, [])
            values += [derive(turn) for turn in self.turns[len(values) : n]]
            return values[:n]

    def erase(self, row: int) -> None:
        """Leave nothing of a forgotten text in memory."""
        with self._lock:
            self.turns[row] = Turn("", None, date.min, None)
            for name, values in self._columns.items():
                if row < len(values):
                    values[row] = type(values[row])()
                    assert not values[row], name


class Corpus:
    """Follows the memories of one profile in a store.

    Parameters
    ----------
    store : Store
    profile : str

    Notes
    -----
    Everything is read at the first call of :meth:`follow`; afterwards only what was added, changed
    or forgotten since, by whichever process. O(n) per change, plus the words of what changed.
    """

    def __init__(self, store: Store, profile: str) -> None:
        self._store = store
        self._profile = profile
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._revision = -1
        self._version = 0
        self._derived = _Derived()
        self._ids: Ids = np.empty(0, np.int64)
        self._alive: Mask = np.empty(0, np.bool_)
        self._observed: Ids = np.empty(0, np.int64)
        self._speakers: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self._sessions: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self._days: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self._substance: Floats = np.empty(0)
        self._questions: Floats = np.empty(0)
        self._speaker_numbers: dict[str, int] = {}
        self._session_numbers: dict[str, int] = {}
        self._row_of: dict[int, int] = {}
        self._postings = Postings()
        self._view: CorpusView | None = None

    def follow(self) -> CorpusView:
        """Take over what happened in the store and return the present state."""
        with self._lock:
            revision, rows, forgotten = self._news()
            if revision != self._revision or self._view is None:
                hidden = self._ids.size - len(self._row_of)
                if hidden > max(_MOST_HIDDEN, len(self._row_of)):
                    self._clear()
                    revision, rows, forgotten = self._news()
                changed = self._apply(rows, forgotten)
                self._revision = revision
                if changed or self._view is None:
                    self._version += 1
                    self._view = self._make_view()
            return self._view

    def _news(self) -> tuple[int, list[tuple[Any, ...]], list[int]]:
        with self._store.reading() as connection:
            revision = int(get_meta(connection, "revision") or 0)
            if revision == self._revision:
                return revision, [], []
            rows = connection.execute(
                "SELECT id, text, speaker, session, observed_at, metadata FROM memories "
                "WHERE profile = ? AND revision > ? ORDER BY id",
                (self._profile, self._revision),
            ).fetchall()
            forgotten: list[int] = []
            if self._revision >= 0:
                forgotten = [
                    int(row[0])
                    for row in connection.execute(
                        "SELECT id FROM forgotten WHERE revision > ?", (self._revision,)
                    )
                ]
        return revision, rows, forgotten

    def _apply(self, rows: Sequence[tuple[Any, ...]], forgotten: Sequence[int]) -> bool:
        gone = [
            self._row_of.pop(i) for i in [*forgotten, *(r[0] for r in rows)] if i in self._row_of
        ]
        if gone:
            self._alive = self._alive.copy()
            self._alive[gone] = False
            self._postings.remove(gone)
            for row in gone:
                self._derived.erase(row)
        if rows:
            self._append(rows)
        return bool(gone or rows)

    def _append(self, rows: Sequence[tuple[Any, ...]]) -> None:
        first = self._ids.size
        turns = [Turn(row[1], row[2], day_of(row[4]), caption_of(row[5])) for row in rows]
        self._derived.turns += turns
        self._row_of.update({row[0]: first + i for i, row in enumerate(rows)})
        n = len(rows)
        speakers, sessions = self._speaker_numbers, self._session_numbers
        sizes = np.array([len(t.text) + len(t.caption or "") for t in turns], np.float64)
        asks = [t.text.rstrip().endswith(("?", "\uff1f", "\u061f")) for t in turns]

        def join(old: Any, values: Any) -> Any:
            return np.concatenate([old, np.asarray(values, dtype=old.dtype)])

        self._ids = join(self._ids, [row[0] for row in rows])
        self._alive = join(self._alive, np.ones(n))
        self._observed = join(self._observed, [row[4] for row in rows])
        self._speakers = join(self._speakers, [_number(speakers, row[2]) for row in rows])
        self._sessions = join(self._sessions, [_number(sessions, row[3]) for row in rows])
        self._days = join(self._days, [t.said.toordinal() for t in turns])
        self._substance = join(self._substance, sizes / (sizes + 20.0))
        self._questions = join(self._questions, asks)
        self._postings.add([words_of(turn) for turn in turns])

    def _make_view(self) -> CorpusView:
        before, after = self._neighbours()
        return CorpusView(
            self._version,
            self._ids,
            self._alive,
            self._speakers,
            tuple(self._speaker_numbers),
            self._days,
            self._substance,
            self._questions,
            before,
            after,
            self._postings.view(),
            self._derived,
            {},
        )

    def _neighbours(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        n = self._ids.size
        rows = np.flatnonzero(self._alive & (self._sessions >= 0))
        order = rows[np.lexsort((self._ids[rows], self._observed[rows], self._sessions[rows]))]
        session = self._sessions[order]
        before, after = [], []
        for distance in range(1, REACH + 1):
            earlier, later = np.full(n, n, np.int32), np.full(n, n, np.int32)
            same = session[distance:] == session[:-distance]
            left, right = order[:-distance][same], order[distance:][same]
            earlier[right], later[left] = left, right
            before.append(earlier)
            after.append(later)
        return tuple(before), tuple(after)


def day_of(microseconds: int) -> date:
    """The UTC day of an instant."""
    return (_EPOCH + timedelta(microseconds=microseconds)).date()


def words_of(turn: Turn) -> str:
    """The text whose words are indexed: speaker, text, caption, and the date in words."""
    day = turn.said
    parts = (turn.speaker, turn.text, turn.caption, f"{day.day} {day:%B} {day.year}")
    return " ".join(part for part in parts if part)


def _number(numbers: dict[str, int], name: str | None) -> int:
    return -1 if name is None else numbers.setdefault(name, len(numbers))

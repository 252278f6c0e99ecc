"""What the channels know of one profile's memories, besides their vectors; kept up to date."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from riemem.retrieval.beside import Beside, beside
from riemem.retrieval.derived import Derived
from riemem.retrieval.lately import shown_rows, token_rows
from riemem.retrieval.lines import Lines, Turn, day_of, lines_of, named, turn_of, words_of
from riemem.retrieval.postings import PART_TEXTS, Postings, PostingsView
from riemem.retrieval.segments import COLUMNS, apart, dates_segment, read_pieces, words_segment
from riemem.retrieval.spoken import Spoken
from riemem.store import Store
from riemem.store.segments import worth_keeping, write_segments
from riemem.store.sqlite import get_meta

__all__ = ["Corpus", "CorpusView", "Turn", "day_of"]

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

# Rows of forgotten and changed memories are kept, hidden, until they outnumber the others.
_MOST_HIDDEN = 1024

# Memories behind the last segment that are worth one of their own, and between two segments.
_LEAST_KEPT = 256
_LEAST_BETWEEN = 32

_T = TypeVar("_T")


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
    beside : Beside
        The neighbours of each row in its session.
    """

    version: int
    ids: Ids
    alive: Mask
    speakers: npt.NDArray[np.int32]
    speaker_names: tuple[str, ...]
    days: npt.NDArray[np.int32]
    substance: Floats
    questions: Floats
    beside: Beside
    postings: PostingsView
    _derived: Derived
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

    def spoken(self) -> Spoken:
        """Return what the rows' texts speak of, found once and remembered while rows are added."""
        return self._derived.spoken_of(len(self))

    def nothing(self) -> Floats:
        """Return a 0 for each row: the same array each time, which cannot be written to."""

        def zeros() -> Floats:
            found: Floats = np.zeros(len(self))
            found.flags.writeable = False
            return found

        return self.cached("nothing", zeros)

    def cached(self, name: str, make: Callable[[], _T]) -> _T:
        """Return what `make` returned the first time it was asked of this state."""
        found: _T | None = self._cache.get(name)
        if found is None:
            found = self._cache[name] = make()
        return found


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
        self.shown, self.tokens = shown_rows(store), token_rows(store)
        self._clear()

    def _clear(self) -> None:
        self._revision = -1
        self._version = 0
        self.shown.clear()
        self.tokens.clear()
        self._derived = Derived(self._read_turns)
        self._ids: Ids = np.empty(0, np.int64)
        self._alive: Mask = np.empty(0, np.bool_)
        self._observed: Ids = np.empty(0, np.int64)
        self._speakers: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self._sessions: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self._days: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self._sizes: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self._questions: Floats = np.empty(0)
        self._speaker_numbers: dict[str, int] = {}
        self._session_numbers: dict[str, int] = {}
        self._row_of: dict[int, int] = {}  # of the rows before _named: see _living
        self._named = 0
        self._postings = Postings()
        self._view: CorpusView | None = None
        self._followed: tuple[int, CorpusView] | None = None
        self._kept: dict[str, list[tuple[int, int]]] = {"words": [], "dates": []}

    def follow(self, mark: int | None = None) -> CorpusView:
        """Take over what happened in the store and return the present state.

        `mark` is that of the store in this call; see :meth:`riemem.store.Store.mark`.
        """
        followed = self._followed
        if mark is not None and followed is not None and followed[0] == mark:
            return followed[1]
        with self._lock:
            if self._revision >= 0:
                living = int(np.count_nonzero(self._alive))
                if self._ids.size - living > max(_MOST_HIDDEN, living):
                    self._clear()
            if self._revision < 0:
                self._load()
                self._keep()
            else:
                self._take_over()
            if self._view is None:
                self._version += 1
                self._view = self._make_view()
            if mark is not None:
                self._followed = (mark, self._view)
            return self._view

    def keep(self) -> None:
        """Write what was made of many memories into the store, for whoever opens it next."""
        if not worth_keeping(self._store):  # in a forked process the lock may be held for ever
            return
        with self._lock:
            if self._revision >= 0:
                self._keep()

    def _load(self) -> None:
        """Read the store: from its segments, and from the memories that are in none of them."""
        self._clear()
        with self._store.reading() as connection:
            revision = int(get_meta(connection, "revision") or 0)
            pieces = read_pieces(connection, self._profile)
        lines: list[Lines] = []
        turns: list[Turn | None] = []
        spoken: list[Spoken | int] = []
        start = 0
        for piece in pieces:
            own = (start, start + len(piece))
            start = own[1]
            spoken.append(len(piece) if piece.spoken is None else piece.spoken)
            if piece.lines is None:
                made = [turn_of(row) for row in piece.rows]
                turns += made
                lines += self._lines_of(piece.rows, made)
                continue
            lines.append(piece.lines)
            turns += [None] * len(piece)
            self._kept["words"].append(own)
            if piece.spoken is not None:
                self._kept["dates"].append(own)
        self._append(lines, turns, spoken)
        self._revision = revision

    def _take_over(self) -> None:
        with self._store.reading() as connection:
            revision = int(get_meta(connection, "revision") or 0)
            if revision == self._revision:
                return
            rows = connection.execute(
                f"SELECT {COLUMNS} FROM memories WHERE profile = ? AND revision > ? ORDER BY id",
                (self._profile, self._revision),
            ).fetchall()
            forgotten = [
                int(row[0])
                for row in connection.execute(
                    "SELECT id FROM forgotten WHERE revision > ?", (self._revision,)
                )
            ]
        if self._apply(rows, forgotten):
            self._view = None
        self._revision = revision
        if self._behind() >= PART_TEXTS:
            self._keep()

    def _read_turns(self, ids: list[int]) -> dict[int, Turn]:
        with self._store.reading() as connection:
            rows = connection.execute(
                f"SELECT {COLUMNS} FROM memories WHERE id IN (SELECT value FROM json_each(?))",
                (json.dumps(ids),),
            ).fetchall()
        return {row[0]: turn_of(row) for row in rows}

    def _behind(self) -> int:
        """Rows behind the last that is in a segment of the store."""
        kept = self._kept["words"]
        return self._ids.size - (kept[-1][1] if kept else 0)

    def _keep(self) -> None:
        if not worth_keeping(self._store):
            return
        new = self._ranges()
        segments = [words_segment(self._lines(start, end)) for start, end in new]
        if write_segments(self._store, self._profile, "words", segments, self._revision):
            self._kept["words"] = sorted([*apart(self._kept["words"], new), *new])
            self._kept["dates"] = apart(self._kept["dates"], new)
        known = self._derived.known
        new = [
            own
            for own in self._kept["words"]
            if own not in self._kept["dates"] and known[slice(*own)].all()
        ]
        segments = [
            dates_segment(self._ids[start:end], self._derived.spoken_of(end).cut(start, end))
            for start, end in new
        ]
        if write_segments(self._store, self._profile, "dates", segments, self._revision):
            self._kept["dates"] = sorted([*self._kept["dates"], *new])

    def _ranges(self) -> list[tuple[int, int]]:
        """Ranges of rows to make segments of: those between segments, and behind the last.

        Only rows that are in the order of their ids and not hidden: others wait until the store is
        opened again.
        """
        kept = list(self._kept["words"])
        if kept and kept[-1][1] - kept[-1][0] < PART_TEXTS // 2 and self._behind() >= _LEAST_KEPT:
            kept.pop()  # a short one is made again with what came after it
        found = []
        for after, before in zip(
            [0, *(own[1] for own in kept)], [*(own[0] for own in kept), self._ids.size], strict=True
        ):
            least = _LEAST_KEPT if before == self._ids.size else _LEAST_BETWEEN
            fine = self._alive[after:before].copy()
            fine[1:] &= np.diff(self._ids[after:before]) > 0
            if after:
                fine[:1] &= self._ids[after:before][:1] > self._ids[:after].max()
            end = before if fine.all() else after + int(np.argmin(fine))
            if end - after >= least:
                found += [(at, min(at + PART_TEXTS, end)) for at in range(after, end, PART_TEXTS)]
        return found

    def _lines(self, start: int, end: int) -> Lines:
        own = slice(start, end)
        return Lines(
            self._ids[own],
            self._observed[own],
            *named(self._speakers[own], list(self._speaker_numbers)),
            *named(self._sessions[own], list(self._session_numbers)),
            self._days[own],
            self._sizes[own],
            self._questions[own],
            self._postings.part_of(start, end),
        )

    def _apply(self, rows: Sequence[tuple[Any, ...]], forgotten: Sequence[int]) -> bool:
        row_of = self._living()
        changed = [*forgotten, *(row[0] for row in rows)]
        self.shown.drop(changed)
        self.tokens.drop(changed)
        gone = [row_of.pop(i) for i in changed if i in row_of]
        if gone:
            self._alive = self._alive.copy()
            self._alive[gone] = False
            self._postings.remove(gone)
            for kind, kept in self._kept.items():  # gone from the store, too
                self._kept[kind] = apart(kept, [(row, row + 1) for row in gone])
            for row in gone:
                self._derived.erase(row)
        turns = [turn_of(row) for row in rows]
        self._append(self._lines_of(rows, turns), turns, [len(rows)])
        return bool(gone or rows)

    def _living(self) -> dict[int, int]:
        """The row of each memory, completed when it is asked for: opening needs none."""
        ids = self._ids[self._named :].tolist()  # all alive: nothing is hidden before it is named
        self._row_of.update(zip(ids, range(self._named, self._ids.size), strict=True))
        self._named = self._ids.size
        return self._row_of

    def _lines_of(self, rows: Sequence[tuple[Any, ...]], turns: Sequence[Turn]) -> list[Lines]:
        parts = [slice(at, at + PART_TEXTS) for at in range(0, len(rows), PART_TEXTS)]
        return [
            lines_of(
                rows[own], turns[own], self._postings.make([words_of(turn) for turn in turns[own]])
            )
            for own in parts
        ]

    def _append(
        self,
        new: Sequence[Lines],
        turns: Sequence[Turn | None],
        spoken: Sequence[Spoken | int],
    ) -> None:
        """Add the lines of consecutive memories, in parts, and the other two of all of them."""

        def join(old: Any, values: Sequence[Any]) -> Any:
            return np.concatenate([old, *(own.astype(old.dtype, copy=False) for own in values)])

        before = self._ids.size
        self._ids = join(self._ids, [lines.ids for lines in new])
        self._derived.append(self._ids[before:], turns, spoken)
        self._alive = join(self._alive, [np.ones(len(lines), np.bool_) for lines in new])
        self._observed = join(self._observed, [lines.observed for lines in new])
        self._speakers = join(
            self._speakers,
            [_numbers(self._speaker_numbers, own.speaker_names)[own.speakers] for own in new],
        )
        self._sessions = join(
            self._sessions,
            [_numbers(self._session_numbers, own.session_names)[own.sessions] for own in new],
        )
        self._days = join(self._days, [lines.days for lines in new])
        self._sizes = join(self._sizes, [lines.sizes for lines in new])
        self._questions = join(self._questions, [lines.asks for lines in new])
        self._postings.adopt([lines.words for lines in new])

    def _make_view(self) -> CorpusView:
        return CorpusView(
            self._version,
            self._ids,
            self._alive,
            self._speakers,
            tuple(self._speaker_numbers),
            self._days,
            self._sizes / (self._sizes + 20.0),
            self._questions,
            self._beside(),
            self._postings.view(),
            self._derived,
            {},
        )

    def _beside(self) -> Beside:
        rows = np.flatnonzero(self._alive & (self._sessions >= 0))
        order = rows[np.lexsort((self._ids[rows], self._observed[rows], self._sessions[rows]))]
        return beside(order, self._sessions[order], self._ids.size)


def _numbers(numbers: dict[str, int], names: Sequence[str]) -> npt.NDArray[np.int32]:
    """The number of each name, and at the end -1 for none."""
    return np.array([*(numbers.setdefault(n, len(numbers)) for n in names), -1], np.int32)

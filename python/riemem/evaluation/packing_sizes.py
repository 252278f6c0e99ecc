"""What the packer's texts would count, without writing them.

A counter that counts line by line makes the size of a packed text a sum: of its lines, and one
for each break. The sizes here are those of the texts of :func:`riemem.packing.pack_turns` and
:func:`riemem.packing.pack_grouped`, which tests hold them equal to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from .._packed_text import TurnWriter, one_line
from .packing_streams import StreamTurn

__all__ = ["LineCounter", "LineSizes"]


class LineCounter:
    """Counts a text line by line and remembers lines; a line break counts one token.

    Parameters
    ----------
    count : callable
        ``str -> int`` for one line.

    Examples
    --------
    >>> LineCounter(len)("ab\\nc")
    4
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._known: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        if not text:
            return 0
        known, lines = self._known, text.split("\n")
        for line in lines:
            if line not in known:
                known[line] = self._count(line)
        return len(lines) - 1 + sum([known[line] for line in lines])


class LineSizes:
    """Sizes of packed choices out of some turns.

    Parameters
    ----------
    turns : sequence of StreamTurn
        All that can be packed; their ids are 0, 1, 2, ...
    count : LineCounter

    Examples
    --------
    >>> turn = StreamTurn(0, "I moved", "Maya", None, "2024-05-01T10:00:00+00:00", "", "")
    >>> LineSizes([turn], LineCounter(lambda line: len(line.split()))).flat([0])
    6
    """

    def __init__(self, turns: Sequence[StreamTurn], count: LineCounter) -> None:
        writer = TurnWriter(turns)
        keys: dict[tuple[str, str | None], int] = {}
        self._count = count
        self._place: list[int] = []
        self._key: list[int] = []
        self._opening: list[int] = []
        self._said: list[int] = []
        self.adds: list[int] = []
        said: dict[tuple[str | None, str], int] = {}
        for turn in turns:
            self._said.append(said.setdefault((turn.speaker, turn.text), len(said)))
            place, key, opening, line = writer.form(turn)
            self._place.append(place)
            self._key.append(keys.setdefault(key, len(keys)))
            self._opening.append(count(opening) + 1)
            self.adds.append(count(line) + 1)
        self._headers: dict[str, int] = {}

    def distinct(self, rows: Sequence[int]) -> list[int]:
        """Return the rows without those that say what an earlier one says."""
        first: dict[int, int] = {}
        for row in rows:
            first.setdefault(self._said[row], row)
        return list(first.values())

    def flat(self, rows: Sequence[int]) -> int:
        """Return the size of turns in time order."""
        return max(self._block(rows) - 1, 0)

    def grouped(
        self, rows: Sequence[int], owner: Mapping[int, int], headers: Mapping[int, str]
    ) -> int:
        """Return the size of turns under the headers of their atoms."""
        members: dict[int, list[int]] = {}
        for row in rows:
            members.setdefault(owner[row], []).append(row)
        total, lone = 0, []
        for atom, own in members.items():
            if len(own) == 1:
                lone += own
            else:
                total += self._header(headers.get(atom, "topic")) + self._block(own)
        if lone:
            total += self._block(lone) + (self._header("other") if total else 0)
        return max(total - 1, 0)

    def _block(self, rows: Iterable[int]) -> int:
        """Lines of a block, each with the break after it."""
        key, opening, adds, total, opened = self._key, self._opening, self.adds, 0, -1
        for row in sorted(rows, key=self._place.__getitem__):
            if key[row] != opened:
                opened = key[row]
                total += opening[row]
            total += adds[row]
        return total

    def _header(self, header: str) -> int:
        if header not in self._headers:
            self._headers[header] = self._count(f"## {one_line(header)}") + 1
        return self._headers[header]

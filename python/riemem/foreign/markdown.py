"""A chat saved as Markdown: turns under headings, after bold names, or after times in brackets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from riemem.errors import ArgumentError
from riemem.foreign.reading import Reading

__all__ = ["read_markdown"]

_HEADING = re.compile(r"(#{1,6})\s+(.+?)\s*#*")
_BOLD = re.compile(r"\*\*([^*]{1,80}?)(?::\*\*|\*\*(\s*[(\[][^)\]]{1,40}[)\]])?:)(?:\s+(.*)|)")
_TIMED = re.compile(r"\[([^\]]{5,40})\]\s*([^:\[\]]{1,60}):(?:\s+(.*)|)")
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})(.*)")
_RULE = re.compile(r"\s{0,3}(?:-\s*){3,}|\s{0,3}(?:\*\s*){3,}|\s{0,3}(?:_\s*){3,}")
_DATE = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ,]\s*(\d\d?:\d\d(?::\d\d(?:\.\d+)?)?)\s*(Z|UTC|[+-]\d\d:?\d\d)?)?"
)
_CLOCK = re.compile(r"(?<![\d:])\d\d?:\d\d(?::\d\d)?(?![\d:])")
#: Names under which exporters file the two sides of a chat.
_ROLES = {"user", "human", "you", "me", "prompt", "question", "assistant", "ai", "bot", "model"}
_ROLES |= {"system", "tool", "response", "answer", "chatgpt", "gpt", "claude", "gemini", "copilot"}
_ROLES |= {"llama", "mistral"}


@dataclass
class _Turn:
    line: int
    speaker: str | None
    when: str | None
    session: str | None
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Label:
    """What a line that opens a turn says."""

    speaker: str
    when: str | None
    rest: str = ""


def read_markdown(lines: Iterable[bytes], name: str, reading: Reading) -> None:
    """Read the turns of one or several chats.

    Raises
    ------
    ArgumentError
        Not UTF-8, no turn at all, or cut off inside a code block.
    """
    try:
        text = b"".join(lines).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{name}: expected UTF-8 ({error.reason})") from error
    reader = _Reader(text.splitlines(), reading)
    reader.read()
    if reader.fence_line:
        raise ArgumentError(
            f"{name}: line {reader.fence_line}: the code block that begins here never ends; was "
            "the file cut off?"
        )
    if not reader.turns:
        raise ArgumentError(
            f"{name}: expected turns such as '## User', '**Dave:** text' or '[2024-05-01 10:00] "
            "Dave: text', found none"
        )
    spoken = Counter(turn.speaker for turn in reader.turns)
    shown = ", ".join(f"{speaker} {count}" for speaker, count in spoken.most_common(20))
    reading.note(f"turns by speaker: {shown}")
    for turn in reader.turns:
        item: dict[str, Any] = {"speaker": turn.speaker, "session": turn.session}
        item |= {"when": turn.when, "text": _body(turn.lines)}
        reading.take(f"line {turn.line}", item)


class _Reader:
    """Walks over the lines once; which style of turns the file has is settled before."""

    def __init__(self, lines: list[str], reading: Reading) -> None:
        self._lines = lines
        self._reading = reading
        self._fence = ""
        self.fence_line = 0
        self._session: str | None = None
        self._day: str | None = None
        self._now: str | None = None  # a turn without a time has that of the turn before
        self._stray: list[int] = []
        self.turns: list[_Turn] = []
        self._start = self._front_matter()
        headings = any(self._heading_label(line) for _, line in self._outside())
        self._label = self._heading_label if headings else self._line_label

    def read(self) -> None:
        """Fill `turns`."""
        for number, line in enumerate(self._lines[self._start :], start=self._start + 1):
            if not self._enter_or_leave_fence(number, line) and self._structure(number, line):
                continue
            if self.turns:
                self.turns[-1].lines.append(line)
            elif line.strip() and not _RULE.fullmatch(line):
                self._stray.append(number)
        if self._stray and self.turns:
            first, last = self._stray[0], self._stray[-1]
            where = f"line {first}" if first == last else f"lines {first}-{last}"
            self._reading.skip(where, "stands before the first turn")

    def _structure(self, number: int, line: str) -> bool:
        """Whether a line outside code blocks is no text: it opens a turn, a day or a chat."""
        label = self._label(line)
        if label is not None:
            self._now = label.when or self._now
            opened = _Turn(number, label.speaker, self._now, self._session)
            if label.rest:
                opened.lines.append(label.rest)
            self.turns.append(opened)
            return True
        heading = _HEADING.fullmatch(line)
        if heading is None:
            return False
        day = _DATE.fullmatch(heading[2])
        if day is not None:
            self._day = self._now = _iso(day)
            return True
        if not self.turns or (heading[1] == "#" and self._a_turn_follows(number)):
            self._session = heading[2][:200]
            return True
        return False

    def _a_turn_follows(self, number: int) -> bool:
        for line in self._lines[number:]:
            if line.strip() and not _RULE.fullmatch(line):
                heading = _HEADING.fullmatch(line)
                dated = heading is not None and _DATE.fullmatch(heading[2]) is not None
                return dated or self._label(line) is not None
        return False

    def _enter_or_leave_fence(self, number: int, line: str) -> bool:
        """Whether the line is part of a code block, its first and last one included."""
        found = _FENCE.fullmatch(line)
        if not self._fence:
            if found is None or (found[1][0] == "`" and "`" in found[2]):
                return False
            self._fence, self.fence_line = found[1], number
        elif found is not None and found[1].startswith(self._fence) and not found[2].strip():
            self._fence, self.fence_line = "", 0
        return True

    def _outside(self) -> Iterable[tuple[int, str]]:
        """The lines outside code blocks."""
        for number, line in enumerate(self._lines[self._start :], start=self._start + 1):
            if not self._enter_or_leave_fence(number, line):
                yield number, line
        self._fence, self.fence_line = "", 0

    def _front_matter(self) -> int:
        """Read a block between lines of --- at the beginning; returns where the rest begins."""
        if not self._lines or self._lines[0].strip() != "---":
            return 0
        for number, line in enumerate(self._lines[1:], start=1):
            if line.strip() in ("---", "..."):
                return number + 1
            key, _, value = line.partition(":")
            value = value.strip().strip("'\"")
            if key.strip().lower() == "title" and value:
                self._session = value[:200]
            elif key.strip().lower() in ("date", "created", "created_at"):
                day = _DATE.match(value)
                self._day = self._now = _iso(day) if day else self._day
        return 0

    def _heading_label(self, line: str) -> _Label | None:
        heading = _HEADING.fullmatch(line)
        if heading is None:
            return None
        title = heading[2].replace("**", "").strip()
        marked = title.endswith(":") or re.search(r"\bsaid:?$", title) is not None
        name, when = self._name_and_time(title)
        if not name or not (marked or when or name.lower() in _ROLES):
            return None
        return _Label(name, when)

    def _line_label(self, line: str) -> _Label | None:
        bold = _BOLD.fullmatch(line)
        if bold is not None:
            name, when = self._name_and_time(f"{bold[1]}{bold[2] or ''}")
            return _Label(name, when, bold[3] or "") if name else None
        timed = _TIMED.fullmatch(line)
        if timed is not None:
            _, when = self._name_and_time(timed[1])
            if when is not None:
                return _Label(timed[2].strip(), when, timed[3] or "")
        return None

    def _name_and_time(self, title: str) -> tuple[str, str | None]:
        """Split "Dave (2024-05-01 10:00)", in any order and with any brackets and dashes."""
        when = None
        found = _DATE.search(title)
        if found is not None:
            when = _iso(found)
        elif self._day is not None:
            found = _CLOCK.search(title)
            when = f"{self._day[:10]}T{found[0].zfill(5)}" if found else None
        if found is not None:
            title = f"{title[: found.start()]} {title[found.end() :]}"
        name = re.sub(r"[(\[][\s,]*[)\]]", " ", title).strip()  # brackets that held the time
        name = re.sub(r"\s+said:?$", "", name)
        name = re.sub(r"^[^\w]+|[^\w.)]+$", "", name)
        return (name if len(name) <= 60 else ""), when


def _iso(found: re.Match[str]) -> str:
    day, clock, offset = found.groups()
    if clock is None:
        return day
    offset = "Z" if offset == "UTC" else offset or ""
    return f"{day}T{clock.zfill(5) if len(clock) < 5 else clock}{offset}"


def _body(lines: list[str]) -> str:
    """The lines of a turn without blank lines and rules around them."""
    first, last = 0, len(lines)
    while first < last and not lines[first].strip():
        first += 1
    while last > first and (not lines[last - 1].strip() or _RULE.fullmatch(lines[last - 1])):
        last -= 1
    return "\n".join(lines[first:last])

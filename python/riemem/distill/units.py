"""Cutting a text into the pieces that are kept or dropped whole.

A *unit* is a run of characters without white space, so a word never loses a part, and a URL, a
code or a number stays as it is. In scripts that write no spaces a unit is a short run of grapheme
clusters. The white space before a unit is its *gap*: text is only ever put together from slices of
the source, so no character is broken, repeated or invented.
"""

# ruff: noqa: RUF001  the characters are meant

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Unit", "cluster_ends", "joined_spans", "split_units"]

_CHUNK = re.compile(r"\S+")
# Scripts without spaces, their punctuation, and pictures: these may be cut between clusters.
_DENSE = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u2600-\u27bf\u2e80-\u312f\u31a0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef\U0001f000-\U0001faff"
    "\U00020000-\U0003ffff]"
)
_KATAKANA = re.compile("[\u30a0-\u30ff\u31f0-\u31ff\uff66-\uff9f]")
_CLOSING = frozenset("、。，．！？；：）】」』〉》〕〗…‥～・%％,.!?;:)]}'\"”’»")
_SENTENCE_END = re.compile(r"[.!?…。！？｡．]['\")\]}”’»」』）]*$")
_FENCE = re.compile(r"^[ \t]*(```|~~~)")
_TABLE_ROW = re.compile(r"^[ \t]*\|.*\|[ \t]*$")
_INLINE_CODE = re.compile(r"`[^`\n]+`")
_ZWJ = "\u200d"


@dataclass(frozen=True)
class Unit:
    """One piece of a text: ``text[start:end]``, after the white space ``text[gap:start]``.

    Attributes
    ----------
    gap, start, end : int
        Character offsets; `gap` is the end of the unit before.
    sentence : int
        Number of its sentence within the text.
    line : int
        Number of its line within the text.
    """

    gap: int
    start: int
    end: int
    sentence: int
    line: int


def cluster_ends(text: str, start: int = 0, end: int | None = None) -> Iterator[int]:
    """Yield the end of each grapheme cluster of ``text[start:end]``.

    Where Unicode's own rules need tables that Python does not have, neighbouring clusters are
    taken together: a cluster is never cut, but two may come as one.

    Examples
    --------
    >>> list(cluster_ends("e\\u0301a"))
    [2, 3]
    """
    stop = len(text) if end is None else end
    flags = 0
    linked = False  # a virama, and nothing but marks since: the next letter belongs to it
    for at in range(start, stop):
        char = text[at]
        if _is_flag(char):
            flags += 1
        linked = unicodedata.combining(char) == 9 or (linked and _marks(char))
        following = text[at + 1] if at + 1 < stop else ""
        if following and (_joins(char, following, flags) or (linked and following.isalpha())):
            continue
        if not _is_flag(char) or (following and not _is_flag(following)):
            flags = 0
        yield at + 1


def _is_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _joins(char: str, following: str, flags: int) -> bool:
    if char == "\r" and following == "\n":
        return True
    if char < "\x80" and following < "\x80":
        return False
    kind = unicodedata.category(char)
    if kind in ("Cc", "Zl", "Zp"):
        return False
    after = unicodedata.category(following)
    if after in ("Cc", "Zl", "Zp"):
        return False
    if _marks(following):
        return True
    if char == _ZWJ or (kind in ("Cf", "Cn") and char != "\u200b"):
        return True  # prepended marks, tags, and whatever a newer Unicode may have added
    if _is_flag(char) and _is_flag(following):
        return flags % 2 == 1
    return _is_jamo(char) and _is_jamo(following)


def _marks(char: str) -> bool:
    return unicodedata.category(char) in ("Mn", "Me", "Mc") or _extends(char)


def _extends(char: str) -> bool:
    return (
        char in "\u200c\u200d\u0e33\u0eb3\uff9e\uff9f"
        or "\U0001f3fb" <= char <= "\U0001f3ff"
        or "\U000e0020" <= char <= "\U000e007f"
        or unicodedata.category(char) == "Cn"
    )


def _is_jamo(char: str) -> bool:
    return (
        "\u1100" <= char <= "\u11ff" or "\ua960" <= char <= "\ua97c" or "\uac00" <= char <= "\ud7fb"
    )


def split_units(text: str, *, run: int = 2) -> list[Unit]:
    """Cut a text into units.

    Parameters
    ----------
    text : str
        Any Unicode.
    run : int
        Grapheme clusters in one unit of a script without spaces.

    Returns
    -------
    list of Unit
        In order. Their texts and gaps, and the white space after the last, are the whole text.

    Notes
    -----
    The lines of a fenced code block, the rows of a table and code between back-ticks are one unit
    each. A Latin word inside Chinese takes the character after it along, so that two words cannot
    run together when what stood between them is dropped.

    Examples
    --------
    >>> [unit.end - unit.start for unit in split_units("He is 43, see https://a.b/c?d=1")]
    [2, 2, 3, 3, 17]
    """
    pieces = list(_pieces(text, run))
    units: list[Unit] = []
    sentence = line = previous_end = 0
    for start, end in pieces:
        between = text[previous_end:start]
        if units:
            broken = _breaks(between)
            line += broken
            ended = _SENTENCE_END.search(text, units[-1].start, units[-1].end)
            sentence += bool(broken or ended)
        units.append(Unit(previous_end, start, end, sentence, line))
        previous_end = end
    return units


def _breaks(gap: str) -> bool:
    return len(gap.splitlines()) > 1 or (bool(gap) and len(f"{gap}x".splitlines()) > 1)


def _pieces(text: str, run: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of every unit."""
    whole = sorted(_whole_spans(text))
    at = 0
    for chunk in _chunks(text):
        start, end = chunk
        if end <= at:
            continue
        start = max(start, at)
        while whole and whole[0][1] <= start:
            whole.pop(0)
        if whole and whole[0][0] < end:
            end = max(end, whole[0][1])
            while whole and whole[0][0] < end:  # a span that ends inside a word takes all of it
                end = max(end, whole.pop(0)[1])
            end = _word_end(text, end)
            yield start, end
        elif _DENSE.search(text, start, end):
            yield from _dense_pieces(text, start, end, run)
        else:
            yield start, end
        at = end


def _word_end(text: str, at: int) -> int:
    found = _CHUNK.match(text, at) if at < len(text) else None
    return found.end() if found else at


def _chunks(text: str) -> Iterator[tuple[int, int]]:
    """Yield runs without white space; a mark after a blank belongs with that blank."""
    for found in _CHUNK.finditer(text):
        yield found.span()


def _whole_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield code and table rows, without the white space around them."""
    if "`" not in text and "~~~" not in text and "|" not in text:
        return
    at, fenced = 0, False
    for line in text.splitlines(keepends=True):
        fence = bool(_FENCE.match(line))
        if fence or fenced or _TABLE_ROW.match(line.rstrip("\r\n")):
            body = line.strip()
            if body:
                start = at + line.index(body[0])
                yield start, start + len(body)
        else:
            for code in _INLINE_CODE.finditer(line):
                yield at + code.start(), at + code.end()
        fenced ^= fence
        at += len(line)


def _dense_pieces(text: str, start: int, end: int, run: int) -> Iterator[tuple[int, int]]:
    piece, size, kind = start, 0, ""
    previous = start
    for stop in cluster_ends(text, start, end):
        now = _cluster_kind(text, previous, stop)
        full = (
            size > 0
            and now != "closing"
            and kind != "word"  # a word takes the next cluster along
            and not (now == kind == "katakana")
            and not (now == kind == "dense" and size < run)
        )
        if full and now == "word" and kind == "word":
            full = False
        if full:
            yield piece, previous
            piece, size, kind = previous, 0, ""
        if kind == "word" and now != "word":
            kind, size = "taken", run
        elif now != "closing":
            kind = now
            size += 1
        else:
            kind, size = kind or "closing", max(size, 1)
        previous = stop
    if piece < end:
        yield piece, end


def _cluster_kind(text: str, start: int, end: int) -> str:
    char = text[start]
    if char in _CLOSING:
        return "closing"
    if _KATAKANA.match(char):
        return "katakana"
    if "\u2600" <= char <= "\u27bf" or "\U0001f000" <= char <= "\U0001faff":
        return "picture"
    if _DENSE.match(char) and not ("\uff10" <= char <= "\uff5a"):
        return "dense"
    return "word"


def joined_spans(text: str, units: Sequence[Unit], kept: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the source spans whose concatenation is the text of the kept units.

    Between two kept units stands the white space of the source: a line break if one was between
    them, else the last blank; nothing where the source has nothing.

    Examples
    --------
    >>> text = "one  two\\nthree four"
    >>> spans = joined_spans(text, split_units(text), [True, False, False, True])
    >>> "".join(text[a:b] for a, b in spans)
    'one\\nfour'
    """
    spans: list[tuple[int, int]] = []
    last = -1
    for number, unit in enumerate(units):
        if not kept[number]:
            continue
        if last < 0:
            spans.append((unit.start, unit.end))
        elif last == number - 1:
            spans[-1] = (spans[-1][0], unit.end)
        else:
            gap = _separator(text, units, last, number)
            if gap is not None and gap[1] == unit.start:
                spans.append((gap[0], unit.end))
            else:
                if gap is not None:
                    spans.append(gap)
                spans.append((unit.start, unit.end))
        last = number
    return spans


def _separator(text: str, units: Sequence[Unit], last: int, number: int) -> tuple[int, int] | None:
    blank = None
    for between in range(number, last, -1):
        gap = units[between].gap, units[between].start
        if gap[0] == gap[1]:
            continue
        if units[between].line != units[between - 1].line:
            return gap
        blank = blank or gap
    return blank

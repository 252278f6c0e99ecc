"""Cutting a long text into overlapping windows on token boundaries."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

OVERLAP_TOKENS = 32
MAX_WINDOWS = 64

_ZERO_WIDTH_JOINER = "\u200d"


class Windows(list[str]):
    """The windows of a text: a list of str that also says where they lie and what was left out.

    Attributes
    ----------
    spans : list of (int, int)
        Start and end of each window in the text, in characters.
    truncated : bool
        The text was too long: what follows the last window is in none.

    Examples
    --------
    >>> Windows(["ab"], spans=[(0, 2)], truncated=False).truncated
    False
    """

    def __init__(
        self, texts: Iterable[str], *, spans: list[tuple[int, int]], truncated: bool
    ) -> None:
        super().__init__(texts)
        self.spans = spans
        self.truncated = truncated


def split(text: str, tokenizer: Any, limit: int) -> Windows:
    """Cut `text` into windows of at most `limit` tokens that overlap by about 32.

    Cuts fall between words where there is such a place among the last tokens of a window, else
    between two tokens, and never inside a combined character. Every character lies in at least
    one window, unless there would be more than 64 of them: then the rest is left out and
    ``truncated`` says so.

    Parameters
    ----------
    text : str
        Valid Unicode.
    tokenizer : tokenizers.Tokenizer
        Gives tokens with character offsets.
    limit : int
        Most tokens of one window, control tokens not counted.

    Returns
    -------
    Windows

    Notes
    -----
    One tokenization of the whole text and one of each window: O(len(text)).
    """
    offsets = tokenizer.encode(text, add_special_tokens=False).offsets
    if len(offsets) <= limit:
        return Windows([text], spans=[(0, len(text))], truncated=False)
    starts = [start for start, _ in offsets]
    overlap = min(OVERLAP_TOKENS, limit // 4)
    spans: list[tuple[int, int]] = []
    first, begin = 0, 0
    while len(spans) < MAX_WINDOWS:
        stop = min(first + limit, len(starts))
        end = _fit(text, tokenizer, limit, starts, begin, first, stop, overlap)
        spans.append((begin, end))
        if end == len(text):
            break
        # The next window starts a little before this one ended, but later than this one did.
        after = bisect_left(starts, end)
        low = max(first + 1, after - 2 * overlap)
        first = _boundary(text, starts, low, max(low, after - overlap))
        begin = max(min(starts[first], end), begin + 1)
    pieces = [text[begin:end] for begin, end in spans]
    return Windows(pieces, spans=spans, truncated=spans[-1][1] < len(text))


def _fit(
    text: str,
    tokenizer: Any,
    limit: int,
    starts: list[int],
    begin: int,
    first: int,
    stop: int,
    overlap: int,
) -> int:
    """Return the end of the window that starts at `begin`, so that it has `limit` tokens at most.

    Tokens are counted again on the cut piece: a word cut in two can have more than it had.
    """
    while True:
        if stop >= len(starts):
            end = len(text)
        else:
            stop = _boundary(text, starts, max(first + 1, stop - overlap), stop)
            end = starts[stop]
        count = len(tokenizer.encode(text[begin:end], add_special_tokens=False).ids)
        if count <= limit or stop <= first + 1:
            return end
        stop = max(first + 1, stop - (count - limit))


def _boundary(text: str, starts: list[int], low: int, high: int) -> int:
    """Return the last token in [low, high] that starts a word, else a character, else `high`."""
    character = -1
    for i in range(high, low - 1, -1):
        at = starts[i]
        if not _is_safe(text, at):
            continue
        if text[at - 1 : at].isspace():
            return i
        if character < 0:
            character = i
    return character if character >= 0 else high


def _is_safe(text: str, at: int) -> bool:
    """Whether cutting before ``text[at]`` leaves every combined character whole."""
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if _ZERO_WIDTH_JOINER in (before, after) or unicodedata.category(after).startswith("M"):
        return False
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\u1160" <= after <= "\u11ff":
        return False  # skin tones; Korean vowels and finals that join the letter before them
    if before == "\r" and after == "\n":
        return False
    if _is_flag_letter(before) and _is_flag_letter(after):
        run = 0
        while run < at and _is_flag_letter(text[at - 1 - run]):
            run += 1
        return run % 2 == 0
    return True


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"

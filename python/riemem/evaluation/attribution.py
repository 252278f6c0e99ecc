"""Under whose name kept words stand in a distilled text, read again from the text alone."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["read_speakers", "speaker_attribution"]

# A name that nobody has told us: one to four words, the first with a capital.
_ANY_NAME = r"[^\W\d_a-z][\w.'’-]*(?: [\w.'’-]+){0,3}"  # noqa: RUF001  both apostrophes are meant


def read_speakers(text: str, names: Iterable[str] = ()) -> tuple[str, list[tuple[int, str | None]]]:
    """Return a text with its labels and headers blanked, and from where on which speaker holds.

    A label stands at the beginning of a line that is not indented: ``Name:``, ``Name said`` or
    ``Name says``, or ``-`` for nobody. It holds until the next one, or until a line that begins
    with ``#``, after which nobody speaks. A line without a label goes on with the one before.

    Parameters
    ----------
    text : str
        What a reader sees.
    names : iterable of str
        Speakers that may occur, as they are or as JSON strings. Of other names only
        ``Name:`` is a label, up to four words that begin with a capital.

    Returns
    -------
    tuple
        The text, as long as before, and ``(position, speaker)`` in rising order.

    Notes
    -----
    Ours. Nothing of :mod:`riemem.packing` is used, so that what writes the labels is not what
    checks them. O(n) for n characters.

    Examples
    --------
    >>> read_speakers("# 2024-05-01\\nMaya: I moved")
    ('            \\n      I moved', [(0, None), (13, 'Maya')])
    """
    known = {form: name for name in names for form in (name, json.dumps(name))}
    told = "|".join(re.escape(form) for form in sorted(known, key=len, reverse=True))
    spoken = f"(?P<told>{told})(?::| sa(?:id|ys)\\b[:,]?)|" if told else ""
    opening = re.compile(
        rf"^(?:(?P<header>#.*)|(?P<nobody>- )|{spoken}(?P<other>{_ANY_NAME}):)", re.MULTILINE
    )
    holds: list[tuple[int, str | None]] = []
    parts, at = [], 0
    for found in opening.finditer(text):
        group = found.groupdict()
        form = group.get("told")
        holds.append((found.start(), group["other"] if form is None else known[form]))
        parts += [text[at : found.start()], " " * len(found.group())]
        at = found.end()
    return "".join([*parts, text[at:]]), holds


def speaker_attribution(
    text: str,
    spans: Sequence[tuple[int, int, int]],
    said: Mapping[int, tuple[str, str | None]],
) -> float:
    """Return the share of the kept words that stand under the name of who said them.

    ``sum of right words / sum of kept words``: the words between white space of every kept slice
    are looked for in the final text, after those of the slice before, and the last label above
    them is compared with the speaker of the memory. Words that are not found are not right.

    Parameters
    ----------
    text : str
        The final text.
    spans : sequence of (int, int, int)
        Memory id, start and end of what was kept, in the order of the text; as
        :attr:`riemem.distill.Distillation.spans`.
    said : mapping of int to (str, str or None)
        Text and speaker of every memory.

    Returns
    -------
    float
        0 to 1; NaN when no word was kept.

    Notes
    -----
    Ours. See :func:`read_speakers` for what a label is. O(n) for n characters where the slices
    stand in the text.

    Examples
    --------
    >>> said = {1: ("I moved", "Maya"), 2: ("I paint birds", "Ana")}
    >>> spans = [(1, 0, 7), (2, 0, 13)]
    >>> speaker_attribution("Maya: I moved\\nAna: I paint birds", spans, said)
    1.0
    >>> speaker_attribution("Maya: I moved\\nI paint birds", spans, said)
    0.4
    """
    names = {speaker for _, speaker in said.values() if speaker is not None}
    content, holds = read_speakers(text, names)
    places = [place for place, _ in holds]
    right = of = at = 0
    for memory, start, end in spans:
        source, speaker = said[memory]
        words = source[start:end].split()
        of += len(words)
        found = re.compile(r"\s+".join(map(re.escape, words))).search(content, at)
        if not words or found is None:
            continue
        at = found.end()
        above = bisect_right(places, found.start())
        right += len(words) * ((holds[above - 1][1] if above else None) == speaker)
    return right / of if of else float("nan")

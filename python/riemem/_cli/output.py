"""What the commands print: results on stdout; progress, notes and errors on stderr."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import click

__all__ = [
    "brief",
    "emit",
    "instant",
    "note",
    "paragraph",
    "progress",
    "safe",
    "table",
    "to_json",
]

#: Never wider than this, so that output pasted into a report still reads well.
MAX_WIDTH = 100
_BAR_CELLS = 28

# Control characters move a terminal's cursor and can hide text, so a stored text must not reach
# the terminal with them; bidirectional overrides (U+202A-202E, U+2066-2069) do the same by stealth.
_UNSAFE = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_UNSAFE |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
del _UNSAFE[ord("\n")], _UNSAFE[ord("\t")]


def width() -> int:
    """Return the columns to fill: the terminal's, at most `MAX_WIDTH`."""
    return min(MAX_WIDTH, shutil.get_terminal_size((MAX_WIDTH, 24)).columns)


def safe(text: str) -> str:
    r"""Return `text` with control characters spelt out, for a terminal.

    Examples
    --------
    >>> safe("red\x1b[31m")
    'red\\x1b[31m'
    """
    return text.translate(_UNSAFE)


def brief(text: str, columns: int) -> str:
    """Return `text` on one line of at most `columns` characters.

    Examples
    --------
    >>> brief("one two  three", 9)
    'one two …'
    """
    line = " ".join(safe(text[: 8 * columns]).split())
    if len(line) <= columns and len(text) <= 8 * columns:
        return line
    return line[: max(columns - 1, 0)] + "…"


def paragraph(text: str, *, indent: int, lines: int | None = None) -> str:
    """Return `text` wrapped and indented, cut to `lines` lines with an ellipsis.

    Examples
    --------
    >>> print(paragraph("It is raining. The gauge is at two metres.", indent=2, lines=1))
      It is raining. The gauge is at two metres.
    """
    prefix, wide = " " * indent, max(width(), 2 * indent + 20)
    if lines is not None:
        text = text[: lines * wide]
    wrapped = textwrap.wrap(
        safe(text),
        width=wide,
        initial_indent=prefix,
        subsequent_indent=prefix,
        max_lines=lines,
        placeholder=" …",
    )
    return "\n".join(wrapped)


def instant(when: str | None) -> str:
    """Return a stored instant as a short UTC text, for a reader rather than a program.

    Examples
    --------
    >>> instant("1970-01-01T00:00:00+00:00"), instant(None)
    ('1970-01-01 00:00', '-')
    """
    return "-" if when is None else when[:16].replace("T", " ")


def table(rows: Iterable[Sequence[object]], header: Sequence[str]) -> str:
    """Return rows as aligned columns; columns that hold only numbers are aligned to the right.

    Examples
    --------
    >>> print(table([("a", 1), ("bcd", 20)], ("name", "n")))
    name   n
    a      1
    bcd   20
    """
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(header), *cells]) for i in range(len(header))]
    numeric = [
        bool(cells) and all(line[i].replace(".", "").replace("-", "").isdigit() for line in cells)
        for i in range(len(header))
    ]
    lines = []
    for line in [list(header), *cells]:
        padded = [
            value.rjust(widths[i]) if numeric[i] else value.ljust(widths[i])
            for i, value in enumerate(line)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return safe("-" if value is None else str(value))


def to_json(value: object) -> str:
    """Return `value` as one JSON document in ASCII, so that no console encoding can spoil it.

    Examples
    --------
    >>> to_json({"text": "\\u00e9", "n": float("nan")})
    '{"text": "\\\\u00e9", "n": null}'
    """
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: object) -> object:
    """Return `value` made of JSON types only; NaN and infinities, which JSON lacks, become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    item = getattr(value, "item", None)  # numpy scalars
    if item is not None and getattr(value, "ndim", None) == 0:
        value = item()
    if isinstance(value, float) and not (abs(value) < float("inf")):
        return None
    return value


def emit(as_json: bool, document: object, text: str | Callable[[], str]) -> None:
    """Print the result: `document` as JSON, or `text` for a reader."""
    if as_json:
        click.echo(to_json(document))
        return
    shown = text if isinstance(text, str) else text()
    if shown:
        click.echo(shown)


def note(message: str) -> None:
    """Print a remark that is not the result."""
    click.echo(message, err=True)


@contextmanager
def progress(label: str) -> Iterator[Callable[..., bool] | None]:
    """Give a callback ``(done, total, stage="")`` that draws a bar, or None off a terminal.

    The bar lives on stderr and disappears when the work is over.
    """
    if not sys.stderr.isatty():
        yield None
        return
    drawn = ""

    def draw(done: int, total: int, stage: str = "") -> bool:
        nonlocal drawn
        share = min(1.0, done / total) if total > 0 else 0.0
        filled = int(share * _BAR_CELLS)
        what = f"{label} {stage}".strip()
        line = f"{what} [{'#' * filled}{'.' * (_BAR_CELLS - filled)}] {100 * share:3.0f} %"
        if line != drawn:
            sys.stderr.write("\r\x1b[K" + line)
            sys.stderr.flush()
            drawn = line
        return True

    try:
        yield draw
    finally:
        if drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

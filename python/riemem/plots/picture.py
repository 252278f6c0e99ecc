"""A drawn picture: its numbers, the texts behind its marks, and the three files it can become.

Whatever comes out of a store is data: control characters are spelt out, long texts are cut, nothing
is read as mathematics or as markup.
"""

from __future__ import annotations

import html
import io
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from riemem.errors import ArgumentError, BackendUnavailableError
from riemem.store.files import check_target, replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "OTHER", "SUFFIXES", "Picture", "cut", "legend", "new_figure"]
__all__ += ["plain_numbers", "plural", "whole_numbers"]

SUFFIXES = (".png", ".svg", ".html")

#: Okabe and Ito's colours, which people who confuse red and green can tell apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C6D1F", "#5B3A8C")
OTHER = "#B8BCC4"

_STYLE = {
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "axes.edgecolor": "#8A8F98",
    "axes.labelcolor": "#30343B",
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E8EC",
    "grid.linewidth": 0.8,
    "font.size": 9.5,
    "text.parse_math": False,
    "text.color": "#30343B",
    "xtick.color": "#5A5F69",
    "ytick.color": "#5A5F69",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "riemem",
}

# What a stored text must not hand on to a page or a picture: control characters, line separators,
# and the marks that turn the direction of reading.
_SPELT = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_SPELT |= {code: f"\\u{code:04x}" for code in (0x061C, 0x200E, 0x200F, 0x2028, 0x2029, 0xFEFF)}
_SPELT |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_SPELT |= {code: f"\\u{code:04x}" for code in (*range(0xD800, 0xE000), 0xFFFE, 0xFFFF)}

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ max-width: 70rem; margin: 2rem auto; padding: 0 1rem; background: #fff; color: #30343b;
        font: 16px/1.5 system-ui, sans-serif; }}
h1 {{ font-size: 1.4rem; margin: 0 0 .3rem; }}
figure {{ margin: 1rem 0; overflow-x: auto; }}
svg {{ width: 100%; height: auto; font-family: system-ui, sans-serif; }}
svg use:hover {{ stroke: #000; stroke-width: 1.5; }}
table {{ border-collapse: collapse; font-size: .9rem; }}
th, td {{ padding: .25rem .8rem .25rem 0; text-align: left; vertical-align: top;
          border-bottom: 1px solid #e6e8ec; overflow-wrap: anywhere; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{caption}</p>
<figure>
{svg}
</figure>
{table}
</body>
</html>
"""


def cut(text: object, columns: int = 60) -> str:
    r"""Return a text on one line of at most so many characters, control characters spelt out.

    Examples
    --------
    >>> cut("a\x1b[31m\nb")
    'a\\x1b[31m b'
    """
    line = " ".join(str(text)[: 8 * columns].split()).translate(_SPELT)
    return line if len(line) <= columns else line[: columns - 1] + "…"


def plural(count: int, one: str, many: str) -> str:
    """Return a count and its noun.

    Examples
    --------
    >>> plural(1, "memory", "memories"), plural(0, "hub", "hubs")
    ('1 memory', '0 hubs')
    """
    return f"{count} {one if count == 1 else many}"


@contextmanager
def _styled() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # What the font lacks becomes a box; that is no reason to fail, or to write to stderr.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Figure]:
    """Give a figure to draw on, in the style of all pictures.

    Raises
    ------
    BackendUnavailableError
        matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BackendUnavailableError(
            "plot: matplotlib is not installed; pip install 'riemem[plot]'"
        ) from error
    with _styled():
        yield Figure(figsize=(width, height), layout="constrained")


def plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis without mathematics, which texts of a store must not start."""
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(lambda value, _: "")


def whole_numbers(axis: Axis) -> None:
    """Put ticks at whole numbers alone: what is counted has no halves."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def legend(axes: Axes, entries: Sequence[tuple[str, str]], title: str) -> None:
    """Draw a legend beside the axes: a colour and a text from the store each."""
    from matplotlib.lines import Line2D

    handles = [
        # A label that begins with "_" would be left out.
        Line2D([], [], marker="o", linestyle="", color=colour, label=" " + cut(text, 34))
        for colour, text in entries
    ]
    axes.legend(
        handles=handles, title=title, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8.5,
        alignment="left",
    )  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """What was drawn.

    Attributes
    ----------
    title, caption : str
        Of the page.
    figure : matplotlib.figure.Figure
    summary : dict
        The numbers behind it.
    tips : dict
        Name of a group of marks -> one text each, shown by the page under the pointer.
    header, rows : sequences
        The page's table.
    """

    title: str
    caption: str
    figure: Any
    summary: dict[str, Any]
    tips: dict[str, list[str]] = field(default_factory=dict)
    header: tuple[str, ...] = ()
    rows: tuple[tuple[object, ...], ...] = ()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture; the end of the name says as what. An older file is replaced whole.

        Raises
        ------
        ArgumentError
            Neither ``.png`` nor ``.svg`` nor ``.html``.
        OutputFileError
            It cannot be written.
        """
        suffix = Path(path).suffix.lower()
        if suffix not in SUFFIXES:
            raise ArgumentError(f"path: expected a name in {', '.join(SUFFIXES)}, got {path}")
        if suffix == ".png":
            content = self.png()
        else:
            content = (self.svg() if suffix == ".svg" else self.page()).encode("utf-8")
        target = check_target(path, "path")
        with replacing(target) as file:
            file.write(content)
        return target

    def png(self) -> bytes:
        """The picture as PNG."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        buffer = io.BytesIO()
        with _styled():
            FigureCanvasAgg(self.figure)
            self.figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
        return buffer.getvalue()

    def svg(self) -> str:
        """The picture as SVG, with the texts of `tips` as titles of their marks."""
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        buffer = io.BytesIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        with _styled():
            FigureCanvasSVG(self.figure)
            self.figure.savefig(buffer, format="svg", metadata=nothing)
        ElementTree.register_namespace("", _SVG)
        ElementTree.register_namespace("xlink", _XLINK)
        root = ElementTree.fromstring(buffer.getvalue())
        for name, texts in self.tips.items():
            group = root.find(f".//*[@id='{name}']")
            marks = [] if group is None else list(group.iter(f"{{{_SVG}}}use"))
            for mark, text in zip(marks, texts, strict=True):
                ElementTree.SubElement(mark, f"{{{_SVG}}}title").text = text
        return ElementTree.tostring(root, encoding="unicode")

    def page(self) -> str:
        """The picture as one HTML page that loads nothing and runs nothing."""
        return _PAGE.format(
            title=html.escape(self.title),
            caption=html.escape(self.caption),
            svg=self.svg(),
            table=self._table(),
        )

    def _table(self) -> str:
        if not self.rows:
            return ""
        lines = ["<table>", "<tr>" + "".join(f"<th>{html.escape(n)}</th>" for n in self.header)]
        lines.extend(
            "<tr>" + "".join(f"<td>{html.escape(cut(cell, 160))}</td>" for cell in row)
            for row in self.rows
        )
        return "\n".join([*lines, "</table>"])

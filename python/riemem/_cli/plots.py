"""``riemem plot``: pictures of a store, as PNG, SVG or a page that loads nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .options import Opener, with_store
from .output import emit, note

if TYPE_CHECKING:
    from ..plots import Picture

__all__ = ["COMMANDS", "plot_group"]

F = TypeVar("F", bound=Callable[..., Any])

_COLOURS = click.Choice(("atom", "session", "speaker"))


@click.group("plot")
def plot_group() -> None:
    """Draw what is in a store: PNG, SVG, or an HTML page that loads nothing."""


def _output(default: str) -> Callable[[F], F]:
    return click.option(
        "--output",
        "-o",
        type=click.Path(dir_okay=False, writable=True),
        default=default,
        show_default=True,
        help="The file to write; its ending chooses .png, .svg or .html.",
    )


def _colour(default: str) -> Callable[[F], F]:
    return click.option(
        "--colour", "--color", type=_COLOURS, default=default, show_default=True,
        help="What tells the memories apart.",
    )  # fmt: skip


_session = click.option("--session", help="Only this session.")


def _written(picture: Picture, output: str, as_json: bool) -> None:
    target = picture.save(output)
    note(picture.caption)
    emit(as_json, {"plot": output} | picture.summary, str(target))


@plot_group.command("map")
@_output("map.png")
@_colour("session")
@_session
@click.option(
    "--limit",
    type=click.IntRange(min=3),
    default=5000,
    show_default=True,
    help="At most so many memories, the newest.",
)
@with_store(readonly=True)
def plot_map_command(
    opener: Opener, output: str, colour: str, session: str | None, limit: int, as_json: bool
) -> None:
    """Draw the memories along the first two directions of the metric, hubs marked."""
    from ..plots import memory_map

    with opener.open_if_writable() if colour == "atom" else opener.open() as memory:
        picture = memory_map(memory, colour=colour, session=session, limit=limit)
    _written(picture, output, as_json)


@plot_group.command("timeline")
@_output("timeline.png")
@_colour("session")
@_session
@with_store(readonly=True)
def plot_timeline_command(
    opener: Opener, output: str, colour: str, session: str | None, as_json: bool
) -> None:
    """Draw when the memories were said, and to which session, speaker or atom they belong."""
    from ..plots import timeline

    with opener.open_if_writable() if colour == "atom" else opener.open() as memory:
        picture = timeline(memory, colour=colour, session=session)
    _written(picture, output, as_json)


@plot_group.command("spectrum")
@_output("spectrum.png")
@_session
@with_store(readonly=True)
def plot_spectrum_command(opener: Opener, output: str, session: str | None, as_json: bool) -> None:
    """Draw the eigenvalues of the metric, the rank that is kept, and the ridge."""
    from ..plots import spectrum

    with opener.open() as memory:
        picture = spectrum(memory, session=session)
    _written(picture, output, as_json)


@plot_group.command("atoms")
@_output("atoms.png")
@with_store(readonly=True)
def plot_atoms_command(opener: Opener, output: str, as_json: bool) -> None:
    """Draw the growth of atoms against memories, and their sizes."""
    from ..plots import atom_growth

    with opener.open_if_writable() as memory:
        picture = atom_growth(memory)
    _written(picture, output, as_json)


COMMANDS = (plot_group,)

"""``riemem cluster`` and ``riemem plot``: the groups into which the memories have fallen."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from .options import Opener, with_store
from .output import brief, emit, table

__all__ = ["COMMANDS"]


@click.command("cluster")
@click.option(
    "--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Most to show."
)
@with_store(readonly=True)
def cluster_command(opener: Opener, limit: int, as_json: bool) -> None:
    """Print the atoms of a profile, largest first: number, size, a few words, members."""
    with opener.open_for_atoms() as memory:
        found = memory.atoms()
    members = sum(atom.size for atom in found)
    largest = found[0].size / members if found else 0.0
    document = {
        "memories": members,
        "atoms": len(found),
        "largest_share": largest,
        "shown": [asdict(atom) | {"size": atom.size} for atom in found[:limit]],
    }

    def text() -> str:
        rows = [
            (atom.id, atom.size, brief(atom.header, 40), brief(", ".join(map(str, atom.ids)), 36))
            for atom in found[:limit]
        ]
        head = f"{members} memories in {len(found)} atoms, the largest holds {largest:.0%}"
        return head + ("\n" + table(rows, ("atom", "size", "words", "memories")) if rows else "")

    emit(as_json, document, text)


@click.group("plot")
def plot_group() -> None:
    """Draw what is in a store."""


@plot_group.command("atoms")
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, writable=True),
    default="atoms.png",
    show_default=True,
    help="The PNG to write.",
)
@with_store(readonly=True)
def plot_atoms_command(opener: Opener, output: str, as_json: bool) -> None:
    """Draw the growth of atoms against memories, and their sizes, as a PNG."""
    from ..errors import BackendUnavailableError

    with opener.open_for_atoms() as memory:
        found = memory.atoms()
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BackendUnavailableError(
            "plot: matplotlib is not installed; pip install 'riemem[plot]'"
        ) from error
    growth, sizes = _growth([atom.ids for atom in found]), [atom.size for atom in found]
    figure = Figure(figsize=(9, 4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    left.plot(range(1, len(growth) + 1), growth, label="atoms")
    left.plot([0, len(growth)], [0, len(growth)], linestyle=":", color="grey", label="one each")
    left.set(xlabel="memories", ylabel="atoms", title="growth")
    left.legend()
    if sizes:
        right.hist(sizes, bins=min(40, max(sizes)))
        right.set_yscale("log")
    right.set(xlabel="members of an atom", ylabel="atoms", title="sizes")
    figure.savefig(output, format="png")
    document: dict[str, Any] = {"plot": output, "memories": len(growth), "atoms": len(sizes)}
    emit(as_json, document, f"{output}: {len(growth)} memories, {len(sizes)} atoms")


def _growth(atoms: list[tuple[int, ...]]) -> list[int]:
    """Return how many atoms there were after each memory, in order of their ids."""
    opened = {min(ids) for ids in atoms}
    count, growth = 0, []
    for memory_id in sorted(memory_id for ids in atoms for memory_id in ids):
        count += memory_id in opened
        growth.append(count)
    return growth


COMMANDS = (cluster_command, plot_group)

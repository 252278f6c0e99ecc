"""How the atoms grew with the memories, and how large they are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from riemem.memory import Memory
from riemem.plots.picture import (
    COLOURS,
    OTHER,
    Picture,
    cut,
    new_figure,
    plain_numbers,
    plural,
    whole_numbers,
)

__all__ = ["atom_growth"]

_SHOWN = 20


def atom_growth(memory: Memory, *, profile: str | None = None) -> Picture:
    """Draw the number of atoms against the number of memories, and the sizes of the atoms.

    Parameters
    ----------
    memory : Memory
    profile : str, optional

    Returns
    -------
    Picture
        ``summary``: ``memories``, ``atoms``, ``largest_share``.
    """
    found = memory.atoms(profile=profile)
    growth, sizes = grown([atom.ids for atom in found]), [atom.size for atom in found]
    with new_figure(9.0, 3.9) as figure:
        left, right = figure.subplots(1, 2)
        left.plot(range(1, len(growth) + 1), growth, color=COLOURS[0])
        left.plot([0, len(growth)], [0, len(growth)], linestyle=":", color=OTHER)
        if growth:
            left.annotate(
                "one atom each", (len(growth) / 2, len(growth) / 2), color="#8A8F98", ha="right",
                xytext=(-8, 6), textcoords="offset points",
            )  # fmt: skip
        left.set(xlabel="memories", ylabel="atoms", title="Growth")
        if sizes:
            edges = [x + 0.5 for x in range(max(sizes) + 1)] if max(sizes) <= 40 else 40
            right.hist(sizes, bins=edges, color=COLOURS[0], rwidth=0.9)
            right.set_yscale("log")
            right.set_ylim(bottom=0.5)
            plain_numbers(right.yaxis)
            whole_numbers(right.xaxis)
        right.set(xlabel="members of an atom", ylabel="atoms", title="Sizes")
    share = max(sizes) / len(growth) if growth else 0.0
    rows = tuple((atom.id, atom.size, cut(atom.header)) for atom in found[:_SHOWN])
    return Picture(
        "Atoms",
        f"{plural(len(growth), 'memory', 'memories')} in {plural(len(sizes), 'atom', 'atoms')}; "
        f"the largest holds {share:.0%}.",
        figure,
        {"memories": len(growth), "atoms": len(sizes), "largest_share": share},
        header=("atom", "members", "words"),
        rows=rows,
    )


def grown(atoms: Sequence[Sequence[int]]) -> list[int]:
    """Return how many atoms there were after each memory, in order of their ids.

    Examples
    --------
    >>> grown([[1, 3], [2]])
    [1, 2, 2]
    """
    opened = {min(ids) for ids in atoms}
    count, growth = 0, []
    for memory_id in sorted(chain.from_iterable(atoms)):
        count += memory_id in opened
        growth.append(count)
    return growth

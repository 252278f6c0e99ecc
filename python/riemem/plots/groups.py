"""Which colour a memory has: that of its atom, its session or its speaker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from riemem._arrays import as_choice
from riemem.memory import Memory
from riemem.plots.picture import COLOURS, OTHER, cut
from riemem.store import Record

__all__ = ["COLOUR_BY", "Groups", "group"]

COLOUR_BY = ("atom", "session", "speaker")


@dataclass(frozen=True)
class Groups:
    """The groups with a colour, in order of appearance, and the group of each record."""

    names: tuple[str, ...]
    labels: tuple[str, ...]
    of: Mapping[int, int]  # memory id -> position in names, or -1 for the rest
    rest: int

    def colour(self, memory_id: int) -> str:
        """Return the colour of a memory."""
        position = self.of[memory_id]
        return OTHER if position < 0 else COLOURS[position]

    def entries(self) -> list[tuple[str, str]]:
        """Return the colours and texts of a legend."""
        found = list(zip(COLOURS, self.labels, strict=False))
        return [*found, (OTHER, f"others ({self.rest})")] if self.rest else found


def group(memory: Memory, records: Sequence[Record], by: str, profile: str | None) -> Groups:
    """Group records; the eight largest groups have colours.

    Raises
    ------
    ArgumentError
        `by` is none of :data:`COLOUR_BY`.
    """
    as_choice(by, "colour", COLOUR_BY)
    title: dict[object, str] = {}
    key_of: dict[int, object]
    if by == "atom":
        found = memory.atoms(profile=profile)
        title = {atom.id: atom.header or f"atom {atom.id}" for atom in found}
        atom_of = {memory_id: atom.id for atom in found for memory_id in atom.ids}
        key_of = {record.id: atom_of.get(record.id) for record in records}
    else:
        key_of = {record.id: getattr(record, by) for record in records}
    sizes = Counter(key for key in key_of.values() if key is not None)
    # An atom of one memory is no group. Of equal sizes the one that comes first is taken, and the
    # chosen ones stand in the order in which they come.
    chosen = {key for key, size in sizes.most_common(len(COLOURS)) if by != "atom" or size > 1}
    largest = [key for key in sizes if key in chosen]
    position = {key: i for i, key in enumerate(largest)}
    of = {memory_id: position.get(key, -1) for memory_id, key in key_of.items()}
    names = tuple(cut(title.get(key, str(key)), 24) for key in largest)
    labels = tuple(f"{name} ({sizes[key]})" for key, name in zip(largest, names, strict=True))
    return Groups(names, labels, of, sum(place < 0 for place in of.values()))

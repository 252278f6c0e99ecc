"""What a clustering returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from riemem._arrays import F64, I64


class LargeAtomWarning(UserWarning):
    """One atom holds more than half of all members: the threshold does not separate this data."""


@dataclass(frozen=True)
class Assignment:
    """What became of a batch.

    Attributes
    ----------
    labels : (N,) int64
        The atom of each chunk, by id.
    scores : (N,) float64
        Its best cosine to a centroid or member of what was there before it, also where that did
        not suffice; NaN where nothing was there.
    created : (N,) bool
        True where the chunk opened its atom.
    atom_count : int
        Atoms after the batch; -1 from a GPU, where counting them would mean to wait.
    largest_share : float
        Share of all members that the largest atom holds; NaN from a GPU.
    warning : str or None
        Says so when that share is above one half.
    """

    labels: Any
    scores: Any
    created: Any
    atom_count: int = 0
    largest_share: float = 0.0
    warning: str | None = None


@dataclass(frozen=True)
class Atom:
    """One atom: id, ids of its members in order of arrival, unit centroid."""

    id: int
    members: I64
    centroid: F64

    @property
    def size(self) -> int:
        """Number of members."""
        return int(self.members.size)


@dataclass(frozen=True)
class Removal:
    """What a removal did.

    Attributes
    ----------
    removed : tuple of int
        Ids of members.
    vanished : tuple of int
        Atoms that became empty.
    fragments : dict
        Atom -> groups of member ids, for each atom that what was removed had held together.
        The atom is left as it is; building anew would open one atom for each group.
    """

    removed: tuple[int, ...]
    vanished: tuple[int, ...] = ()
    fragments: dict[int, tuple[tuple[int, ...], ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Merge:
    """Which atom of this clustering each atom of the other became, and which of these are new."""

    atoms: dict[int, int]
    created: tuple[int, ...]

"""The sheaf of claims: which of them no assignment of values to entities can satisfy at once.

Vertices are an entity's attribute during one span of time in which nothing begins or ends; the
stalk has a coordinate for each value that is spoken of. A claim is an observed vertex whose edge
leads to each span it is valid in: "the port is 80" restricts to all coordinates (1 at 80, else 0),
"the port is not 80" to one coordinate (0). Two names of one entity are joined by identities. The
claims agree exactly when what was observed extends to a global section, that is, when its class in
``H^1`` of the pair (graph, claims) is zero.

Every map is a choice of coordinates, so ranks need no arithmetic: coordinates joined by identities
form components, and a component is explained unless one claim puts 0 on it and another 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from riemem._consistency.claims import Claim, alike
from riemem._consistency.linear import NOTHING, Cohomology, Csr

__all__ = ["MOST_COMPARED", "ClaimSheaf", "Entry", "Group"]

#: Claims about one attribute of one entity that are compared, the newest first.
MOST_COMPARED = 64

_EPSILON = 1e-12


class Entry(NamedTuple):
    """A claim in the sheaf: its number, what it says, when it is valid, how much it weighs."""

    key: int
    claim: Claim
    first: int
    last: int
    said: int
    weight: float = 1.0


@dataclass
class Group:
    """All claims about one attribute of one entity (under all its names).

    Attributes
    ----------
    subject, attribute : str
        Of an attribute with many values, such as "likes", with the value.
    size : int
        Claims there are.
    compared : int
        Claims that were compared; fewer than `size` where the bound was reached.
    candidates : list of pairs of int
        Keys of claims that cannot both hold, ascending, each once.
    cohomology : Cohomology
        Of the group relative to its claims: `h1` counts the independent agreements that the
        claims could break.
    kappa : float
        Share of what is said that the best assignment leaves unexplained; 0 exactly when the class
        of the claims in H^1 is zero.
    """

    subject: str
    attribute: str
    size: int = 0
    compared: int = 0
    candidates: list[tuple[int, int]] = field(default_factory=list)
    cohomology: Cohomology = NOTHING
    kappa: float = 0.0

    @property
    def obstructed(self) -> bool:
        """True when no assignment satisfies all claims."""
        return bool(self.candidates)


class ClaimSheaf:
    """The sheaf over some claims.

    Parameters
    ----------
    entries : iterable of Entry
    same : iterable of pairs of str
        Subjects that are one: ``("dave's sister", "anna")``.
    most : int
        Bound on the claims compared per group.

    Notes
    -----
    For a group of n claims with m values: at most n spans, O(n^2 m) pins, n bounded by `most`.

    Examples
    --------
    >>> said = [Claim("x", "port", "80", single=True), Claim("x", "port", "81", single=True)]
    >>> entries = [Entry(i, claim, 0, 9, i) for i, claim in enumerate(said)]
    >>> group, = ClaimSheaf(entries).groups
    >>> group.candidates, round(group.kappa, 3)
    ([(0, 1)], 0.4)
    """

    def __init__(
        self,
        entries: Iterable[Entry],
        same: Iterable[tuple[str, str]] = (),
        most: int = MOST_COMPARED,
    ) -> None:
        names: dict[str, str] = {}
        for a, b in same:
            names[_root(names, a)] = _root(names, b)
        by_group: dict[tuple[str, str, str], list[Entry]] = {}
        for entry in entries:
            claim = entry.claim
            # Of an attribute with many values each value is a matter of its own.
            value = "" if claim.single else claim.value
            key = (_root(names, claim.subject), claim.attribute, value)
            by_group.setdefault(key, []).append(entry)
        self._built = [
            _Built(subject, f"{attribute} {value}".strip(), found, most)
            for (subject, attribute, value), found in sorted(by_group.items())
        ]
        self.groups: list[Group] = [built.group for built in self._built]

    @property
    def cohomology(self) -> Cohomology:
        """Of the whole, relative to the claims: the sums over the groups."""
        return Cohomology(*(sum(column) for column in zip(*self._numbers(), strict=True)))

    def _numbers(self) -> list[Cohomology]:
        return [group.cohomology for group in self.groups] or [NOTHING]

    @property
    def obstructed(self) -> list[Group]:
        """The groups whose claims cannot all hold."""
        return [group for group in self.groups if group.obstructed]

    def coboundary(self) -> tuple[Csr, np.ndarray]:
        """Return delta on the free coordinates and the right side that the claims put on its rows.

        The claims agree exactly when ``delta x = rhs`` has a solution.
        """
        rows: list[list[tuple[int, float]]] = []
        rhs: list[float] = []
        base = 0
        for built in self._built:
            for edges, value in built.rows():
                rows.append([(base + column, sign) for column, sign in edges])
                rhs.append(value)
            base += built.size
        flat = [pair for row in rows for pair in sorted(row)]
        return (
            Csr(
                np.array([sign for _, sign in flat], np.float64),
                np.array([column for column, _ in flat], np.int64),
                np.cumsum([0, *map(len, rows)]).astype(np.int64),
                (len(rows), base),
            ),
            np.array(rhs, np.float64),
        )


class _Built:
    """One group: its coordinates, the pins of claims on them, and the identities between names."""

    def __init__(self, subject: str, attribute: str, entries: Sequence[Entry], most: int) -> None:
        self.group = Group(subject, attribute, len(entries))
        newest = sorted(entries, key=lambda e: (e.said, e.key))[-most:]
        self.group.compared = len(newest)
        values = sorted({e.claim.value for e in newest})
        self._coordinate: dict[tuple[str, int, str], int] = {}
        self._pins: list[tuple[int, float, Entry]] = []
        self._links: list[tuple[int, int]] = []
        ends = sorted({t for e in newest for t in (e.first, e.last)})
        place = {t: i for i, t in enumerate(ends)}
        for entry in newest:
            pinned = _pinned(entry.claim, values)
            for span in range(place[entry.first], place[entry.last]):
                for value, number in pinned:
                    where = (entry.claim.subject, span, value)
                    at = self._coordinate.setdefault(where, len(self._coordinate))
                    self._pins.append((at, number, entry))
        self._join_names()
        self._examine()

    @property
    def size(self) -> int:
        return len(self._coordinate)

    def rows(self) -> list[tuple[list[tuple[int, float]], float]]:
        """Each row of delta on the free coordinates, with the number its claim puts on it."""
        pins = [([(at, 1.0)], number) for at, number, _ in self._pins]
        return pins + [([(a, 1.0), (b, -1.0)], 0.0) for a, b in self._links]

    def _join_names(self) -> None:
        before: dict[tuple[int, str], int] = {}
        for (_, span, value), at in self._coordinate.items():
            if (span, value) in before:
                self._links.append((before[span, value], at))
            before[span, value] = at

    def _examine(self) -> None:
        owner = list(range(self.size))

        def root(i: int) -> int:
            while owner[i] != i:
                owner[i] = owner[owner[i]]
                i = owner[i]
            return i

        for a, b in self._links:
            owner[root(a)] = root(b)
        pins: dict[int, list[tuple[int, float, Entry]]] = {}
        for pin in self._pins:
            pins.setdefault(root(pin[0]), []).append(pin)
        # Each component holds a pinned coordinate: only a claim makes one. So all ranks are full.
        rank, rows = self.size, len(self._pins) + len(self._links)
        self.group.cohomology = Cohomology(self.size - rank, rows - rank, rank, self.size, rows)
        pairs: set[tuple[int, int]] = set()
        energy, length = 0.0, 0.0
        for found in pins.values():
            ones = {entry.key for _, number, entry in found if number == 1.0}
            zeros = {entry.key for _, number, entry in found if number == 0.0}
            pairs.update((min(a, b), max(a, b)) for a in ones for b in zeros)
            left, size = self._harmonic(found, bool(self._links) and len(found) > 1)
            energy += left
            length += size
        self.group.candidates = sorted(pairs)
        self.group.kappa = energy / (length + _EPSILON) if pairs else 0.0

    def _harmonic(self, found: list[tuple[int, float, Entry]], linked: bool) -> tuple[float, float]:
        """Least ``norm(delta f)^2`` over the free coordinates of a component, and ``norm(f)^2``."""
        weights = np.array([entry.weight for _, _, entry in found])
        numbers = np.array([number for _, number, _ in found])
        own = float(weights @ numbers**2)
        spots = sorted({at for at, _, _ in found})
        if not linked or len(spots) == 1:
            x = float(weights @ numbers / weights.sum())
            return float(weights @ (numbers - x) ** 2), own + x * x
        place = {at: i for i, at in enumerate(spots)}
        links = [(place[a], place[b]) for a, b in self._links if a in place and b in place]
        matrix = np.zeros((len(found) + len(links), len(spots)))
        side = np.zeros(len(found) + len(links))
        for row, (at, number, entry) in enumerate(found):
            matrix[row, place[at]] = np.sqrt(entry.weight)
            side[row] = np.sqrt(entry.weight) * number
        for row, (a, b) in enumerate(links, len(found)):
            matrix[row, a], matrix[row, b] = 1.0, -1.0
        x_all = np.linalg.lstsq(matrix, side, rcond=None)[0]
        rest = matrix @ x_all - side
        return float(rest @ rest), own + float(x_all @ x_all)


def _pinned(claim: Claim, values: Sequence[str]) -> list[tuple[str, float]]:
    """The coordinates that a claim restricts to, and what it puts on each."""
    if not claim.positive:
        return [(claim.value, 0.0)]
    if not claim.single:
        return [(claim.value, 1.0)]
    own = [(claim.value, 1.0)]
    return own + [(v, 0.0) for v in values if v != claim.value and not alike(v, claim.value)]


def _root(names: dict[str, str], name: str) -> str:
    while name in names and names[name] != name:
        name = names[name]
    return name

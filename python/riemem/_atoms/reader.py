"""What can be asked of a clustering without changing it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from riemem._arrays import F32, I64, as_choice, as_count, as_number, like
from riemem._atoms import links, ranking, storage
from riemem._atoms.device import AtomMirror
from riemem._atoms.ranking import AtomHit
from riemem._atoms.results import Atom
from riemem._atoms.state import STORAGES, AtomState, usable_rows
from riemem._atoms.storage import CompressedAtoms
from riemem._device import View, is_device
from riemem.errors import ArgumentError, MemoryNotFoundError

_FEW = 50  # below this many members one large atom says nothing
_LARGE_SHARE = 0.5


class AtomReader(ABC):
    """The questions of :class:`riemem.MaxMemberClusters`; each holds its lock while it looks."""

    _threshold: float
    _route: str
    _lock: threading.RLock

    @property
    @abstractmethod
    def _state(self) -> AtomState:
        """The arrays, up to date."""

    @abstractmethod
    def _mirror_for(self, X: object) -> tuple[AtomMirror, View]:
        """The arrays on the device of X, and X as rows."""

    def nearest(self, X: object) -> tuple[Any, Any]:
        """Return for each row the id of the atom that would win and its best; nothing is changed.

        Rows on a GPU are answered there, as by :meth:`riemem.MaxMemberClusters.assign`; when one
        of them has no direction, all get -1 and NaN.

        Returns
        -------
        atoms : (N,) int64
            -1 while there is no atom.
        scores : (N,) float64
            NaN there.

        Examples
        --------
        >>> from riemem import MaxMemberClusters
        >>> clusters = MaxMemberClusters(2, threshold=0.9)
        >>> _ = clusters.assign([[1.0, 0.0], [0.0, 1.0]])
        >>> clusters.nearest([0.1, 1.0])[0].tolist()
        [1]
        """
        if is_device(X):
            with self._lock:
                mirror, given = self._mirror_for(X)
                return mirror.nearest(given, self._route)
        rows = usable_rows(X, "X", self.dim)
        with self._lock:
            slots, scores = self._state.nearest(rows, self._route)
            named = np.append(self._state.atom_ids, -1)[slots]
        return like(X)(named), like(X)(scores)

    def components(self, atom: int) -> tuple[tuple[int, ...], ...]:
        """Return the members of an atom as groups that links above the threshold hold together.

        Raises
        ------
        MemoryNotFoundError
            There is no such atom.
        """
        with self._lock:
            slot = self._slot(atom)
            groups = links.components(self._state, slot, self._threshold, self._route)
            return tuple(tuple(self._state.ids[rows].tolist()) for rows in groups)

    def retrieve(
        self,
        query: object,
        *,
        atoms: int = 5,
        by: str = "centroid",
        within: str = "cosine",
        rank: int = 8,
    ) -> list[AtomHit]:
        """Return the best atoms for a query, with their members ranked inside.

        Parameters
        ----------
        query : array_like, shape (d,)
        atoms : int
            How many.
        by : {"centroid", "best_member", "basis1"}
            The centroid's cosine; the best member's; the cosine with the atom's first basis vector
            (the paper's "v1" rule).
        within : {"cosine", "subspace"}
            How members are scored; "subspace" is the inner product inside the atom's first `rank`
            basis vectors, which the paper reports as no gain.

        Raises
        ------
        ZeroVectorError, NotFiniteError, ShapeError, DTypeError, ArgumentError

        Examples
        --------
        >>> from riemem import MaxMemberClusters
        >>> clusters = MaxMemberClusters(2, threshold=0.9)
        >>> _ = clusters.assign([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]])
        >>> [hit.members.tolist() for hit in clusters.retrieve([1.0, 0.2], atoms=1)]
        [[2, 0]]
        """
        as_choice(by, "by", ranking.ATOM_SCORES)
        as_choice(within, "within", ranking.MEMBER_SCORES)
        count = as_count(atoms, "atoms")
        rows = usable_rows(query, "query", self.dim, "B")
        if rows.shape[0] != 1:
            raise ArgumentError(f"query: expected one vector, got {rows.shape[0]}")
        unit = rows[0].astype(np.float64)
        unit /= np.linalg.norm(unit)
        with self._lock:
            return ranking.retrieve(
                self._state, unit, count, by, within, as_count(rank, "rank", minimum=1)
            )

    def compress(
        self,
        form: str,
        *,
        rank: int | None = None,
        energy: float = 0.9,
        bases: str = "float32",
        subspaces: int = 48,
        seed: int = 0,
    ) -> CompressedAtoms:
        """Return the members in a smaller form that knows its bytes and its error.

        Parameters
        ----------
        form : {"float32", "int8", "basis", "summary", "pq"}
            Rows as they are; int8 with one scale per row; a basis per atom and coefficients per
            member; a basis per atom and the mean and deviation of the coefficients; product
            quantisation.
        rank : int, optional
            Basis vectors per atom; by default the fewest that hold `energy` of the squares.
        energy : float
            In (0, 1].
        bases : {"float32", "int8"}
            How basis vectors are held.
        subspaces : int
            Bytes per member for "pq".
        seed : int
            For the codebook of "pq".

        Raises
        ------
        ArgumentError, DTypeError

        Examples
        --------
        >>> from riemem import MaxMemberClusters
        >>> clusters = MaxMemberClusters(4, threshold=0.9)
        >>> _ = clusters.assign(np.eye(4))
        >>> small = clusters.compress("int8")
        >>> small.nbytes, round(small.max_error, 6)
        (32, 0.0)
        """
        as_choice(form, "form", storage.FORMS)
        as_choice(bases, "bases", STORAGES)
        fixed = None if rank is None else as_count(rank, "rank", minimum=1)
        share = as_number(energy, "energy", low=0.0, high=1.0, open_low=True)
        with self._lock:
            return storage.compress(
                self._state.unit_rows(),
                self._state.ids.copy(),
                self.labels,
                form,
                rank=fixed,
                energy=share,
                bases=bases,
                subspaces=as_count(subspaces, "subspaces", minimum=1),
                seed=as_count(seed, "seed"),
            )

    def _slot(self, atom: int) -> int:
        found = np.flatnonzero(self._state.atom_ids == as_count(atom, "atom"))
        if found.size == 0:
            raise MemoryNotFoundError(f"atom: expected the id of an atom, got {atom}")
        return int(found[0])

    def atom(self, atom: int) -> Atom:
        """Return one atom by its id.

        Raises
        ------
        MemoryNotFoundError
            There is no such atom.
        """
        with self._lock:
            slot = self._slot(atom)
            members = self._state.ids[self._state.members_of(slot)]
            return Atom(int(atom), members, self._state.unit_centres()[slot])

    def atoms(self) -> list[Atom]:
        """Return all atoms, oldest first."""
        with self._lock:
            state = self._state
            order = np.argsort(state.view("atom"), kind="stable")
            groups = np.split(state.ids[order], np.cumsum(state.view("sizes"))[:-1])
            centres = state.unit_centres()
            return [
                Atom(int(state.atom_ids[slot]), groups[slot], centres[slot])
                for slot in range(state.atom_count)
            ]

    @property
    def ids(self) -> I64:
        """Members in order of arrival, shape (N,)."""
        return self._state.ids.copy()

    @property
    def labels(self) -> I64:
        """The atom of each member, in the order of :attr:`ids`, shape (N,)."""
        with self._lock:
            labels: I64 = self._state.atom_ids[self._state.view("atom")]
            return labels

    @property
    def sizes(self) -> I64:
        """Members per atom, oldest atom first, shape (M,)."""
        return self._state.view("sizes").copy()

    def vectors(self) -> F32:
        """The members' rows in the order of :attr:`ids`, shape (N, d): a copy."""
        return self._state.view("rows").copy()

    @property
    def dim(self) -> int:
        """Number of columns d."""
        return self._state.dim

    @property
    def threshold(self) -> float:
        """What a best must exceed."""
        return self._threshold

    @property
    def route(self) -> str:
        """What is looked at."""
        return self._route

    @property
    def atom_count(self) -> int:
        """Number of atoms."""
        return self._state.atom_count

    @property
    def largest_share(self) -> float:
        """Share of all members that the largest atom holds; 0 when there is none."""
        sizes = self._state.view("sizes")
        return float(sizes.max() / self._state.row_count) if sizes.size else 0.0

    @property
    def warning(self) -> str | None:
        """Says so when one atom holds more than half of at least 50 members."""
        share = self.largest_share
        if len(self) < _FEW or share <= _LARGE_SHARE:
            return None
        return (
            f"one of {self.atom_count} atoms holds {share:.0%} of {len(self)} members: threshold "
            f"{self._threshold:g} does not separate this data; a higher one would"
        )

    @property
    def nbytes(self) -> int:
        """Bytes held in arrays, spare room included."""
        return self._state.nbytes

    def __len__(self) -> int:
        return self._state.row_count

    def stats(self) -> dict[str, Any]:
        """Describe the clustering: counts, threshold, the largest atom, bytes."""
        with self._lock:
            sizes = self._state.view("sizes")
            return {
                "members": len(self),
                "atoms": self.atom_count,
                "singletons": int((sizes == 1).sum()),
                "largest_share": self.largest_share,
                "threshold": self._threshold,
                "route": self._route,
                "storage": self._state.storage,
                "nbytes": self.nbytes,
                "warning": self.warning,
            }

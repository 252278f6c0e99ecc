"""Streaming max-member clustering: each chunk joins the atom that holds its nearest relative.

A chunk joins an atom when its cosine to the atom's centroid or to any member exceeds the threshold
(strictly, everywhere: in batches, one by one, after loading); else it opens an atom. The result
depends on the order of the stream, and chains of near members can join what is far apart.
"""

from __future__ import annotations

import math
import os
import threading
import warnings

import numpy as np

from riemem._arrays import (
    I64,
    Bool,
    as_choice,
    as_count,
    as_ids,
    as_integers,
    as_rows,
    like,
)
from riemem._atoms import files
from riemem._atoms.placed import PlacedAtoms
from riemem._atoms.ranking import AtomHit
from riemem._atoms.results import Assignment, Atom, LargeAtomWarning, Merge, Removal
from riemem._atoms.state import ROUTES, STORAGES, AtomState, usable_rows
from riemem._atoms.storage import CompressedAtoms, grassmann_merge
from riemem._atoms.threshold import calibrate_threshold, check_threshold
from riemem._device import is_device
from riemem.errors import ArgumentError, MemoryNotFoundError, StoreCorruptError

__all__ = ["Assignment", "Atom", "AtomHit", "CompressedAtoms", "LargeAtomWarning"]
__all__ += ["MaxMemberClusters", "Merge", "Removal", "calibrate_threshold", "grassmann_merge"]


class MaxMemberClusters(PlacedAtoms):
    """Atoms of a stream of vectors, assigned one after the other by the max-member rule.

    ``best(x, a) = max(cos(x, centroid_a), max over members m of a of cos(x, m))``; the atom with
    the largest best wins (ties: higher centroid cosine, then the older atom) and takes the chunk
    when ``best > threshold``. The centroid is the normalised float64 sum of unit members.

    Parameters
    ----------
    dim : int
        Number of columns d.
    threshold : float
        In (-1, 1]; see :func:`calibrate_threshold`. At 1 nothing joins anything.
    route : {"max_member", "nearest_fallback", "centroid"}
        All members of all atoms; the atom of the nearest centroid and its members; centroids alone.
    storage : {"float32", "int8"}
        "int8" holds a coded copy beside the rows, decides by its error bounds what it can, and
        gives the same answers.

    Raises
    ------
    ArgumentError, DTypeError
        An option out of its range.

    Notes
    -----
    O(N d) per chunk at worst (O(M d) for the other routes); atoms too far away to matter are
    skipped by an exact bound. Answers are those of :func:`riemem.reference.max_member` bit for bit,
    whatever the batches, threads and processor. RSM-full (arXiv 2609.04915), section 2.

    Examples
    --------
    >>> clusters = MaxMemberClusters(2, threshold=0.9)
    >>> clusters.assign([[1.0, 0.0], [0.0, 1.0], [3.0, 0.1]]).labels.tolist()
    [0, 1, 0]
    >>> clusters.atom_count, round(clusters.largest_share, 2)
    (2, 0.67)
    """

    def __init__(
        self,
        dim: int,
        *,
        threshold: float,
        route: str = "max_member",
        storage: str = "float32",
    ) -> None:
        self._threshold = check_threshold(threshold)
        self._route = as_choice(route, "route", ROUTES)
        self._arrays = AtomState(
            as_count(dim, "dim", minimum=1), as_choice(storage, "storage", STORAGES)
        )
        self._mirror = None
        self._next_id = 0
        self._warned = False
        self._lock = threading.RLock()

    def assign(self, X: object, ids: object = None) -> Assignment:
        """Assign chunks in order; either all of them or, on an error, none.

        Parameters
        ----------
        X : array_like, shape (N, d) or (d,)
            Any real dtype, strides and length; directions are what counts. Float32 or bfloat16
            rows of torch or cupy on a GPU are assigned there, on the library's current stream and
            without waiting; the answer is of the same library, its counts are -1 and NaN, and
            whoever reads the clustering next waits, and hears of a row without direction.
        ids : array_like of int, shape (N,), optional
            Unique, >= 0 and not in use. By default counted up from the largest id ever used.

        Returns
        -------
        Assignment

        Raises
        ------
        ZeroVectorError, NotFiniteError
            A row without direction, or with NaN or an infinity; the row is named.
        ShapeError, DTypeError, DeviceError, ArgumentError
            The argument it names does not fit.

        Warns
        -----
        LargeAtomWarning
            Once, when the largest atom holds more than half of at least 50 members.

        Examples
        --------
        >>> MaxMemberClusters(2, threshold=0.5).assign([1.0, 0.0]).created.tolist()
        [True]
        """
        if is_device(X):
            return self._assign_there(X, ids)
        rows = usable_rows(X, "X", self.dim)
        given = None if ids is None else as_ids(ids, rows.shape[0])
        with self._lock:
            state = self._alone()
            fresh = self._claim(given, rows.shape[0])
            labels, scores, created = state.assign(rows, fresh, self._threshold, self._route)
            message = self.warning
            first = message is not None and not self._warned
            self._warned = self._warned or first
            count, share = self.atom_count, self.largest_share
        if first:
            warnings.warn(str(message), LargeAtomWarning, stacklevel=2)
        turn = like(X)
        return Assignment(turn(labels), turn(scores), turn(created), count, share, message)

    def _assign_there(self, X: object, ids: object) -> Assignment:
        with self._lock:
            mirror, rows = self._mirror_for(X)
            count = rows.shape[0]
            given = None if ids is None else as_ids(ids, count)
            before = self._next_id
            fresh = self._claim(given, count)
            try:
                labels, scores, created = mirror.assign(rows, fresh, self._threshold, self._route)
            except BaseException:
                self._next_id = before
                raise
        return Assignment(labels, scores, created, -1, math.nan)

    def remove(self, ids: object) -> Removal:
        """Remove members by id, all or none; what remains is as if they had never joined.

        The other members keep their atoms, centroids are summed again from who is left, and atoms
        without members are gone. Where the links that hold an atom together went through what was
        removed, the receipt says into which groups it falls; it is not split.

        Parameters
        ----------
        ids : int or array_like of int

        Returns
        -------
        Removal

        Raises
        ------
        MemoryNotFoundError
            An id is not in use; nothing is changed.

        Examples
        --------
        >>> clusters = MaxMemberClusters(2, threshold=0.9)
        >>> _ = clusters.assign([[1.0, 0.0], [0.0, 1.0]])
        >>> clusters.remove(1).vanished
        (1,)
        """
        wanted = np.unique(as_integers(ids, "ids").reshape(-1).astype(np.int64))
        with self._lock:
            state = self._alone()
            self._require_known(wanted)
            if wanted.size == 0:
                return Removal(())
            gone: Bool = np.isin(state.ids, wanted)
            touched = np.unique(state.atom_ids[state.view("atom")[gone]]).tolist()
            lost = set(wanted.tolist())
            before = {
                int(a): sum(not lost.issuperset(group) for group in self.components(a))
                for a in touched
            }
            vanished = state.keep(~gone)
            now = {a: self.components(a) for a in before if a not in vanished}
            fragments = {a: groups for a, groups in now.items() if len(groups) > before[a]}
        return Removal(tuple(int(i) for i in wanted), tuple(vanished), fragments)

    def discard(self, ids: object) -> None:
        """Remove members as :meth:`remove` does, without looking for fragments.

        Raises
        ------
        MemoryNotFoundError
            An id is not in use; nothing is changed.
        """
        wanted = np.unique(as_integers(ids, "ids").reshape(-1).astype(np.int64))
        with self._lock:
            state = self._alone()
            self._require_known(wanted)
            if wanted.size:
                state.keep(~np.isin(state.ids, wanted))

    def _require_known(self, wanted: I64) -> None:
        missing = wanted[~np.isin(wanted, self._state.ids)]
        if missing.size:
            raise MemoryNotFoundError(f"ids: expected ids in use, got {missing[0]}")

    def merge(self, other: MaxMemberClusters) -> Merge:
        """Take in all members of another clustering, atom by atom.

        An atom of the other joins the atom here to which its centroid or any of its members has the
        largest best, as a chunk would, if that exceeds the threshold; else it becomes a new atom.
        All are compared with what was here before the merge.

        Parameters
        ----------
        other : MaxMemberClusters
            Of the same dimension, with other ids.

        Raises
        ------
        ArgumentError
            Dimensions differ, or ids are used in both.

        Examples
        --------
        >>> left, right = (MaxMemberClusters(2, threshold=0.9) for _ in range(2))
        >>> _ = left.assign([[1.0, 0.0]], ids=[1]), right.assign([[2.0, 0.1]], ids=[2])
        >>> left.merge(right).atoms, len(left)
        ({0: 0}, 2)
        """
        if not isinstance(other, MaxMemberClusters) or other.dim != self.dim:
            raise ArgumentError(f"other: expected MaxMemberClusters of dimension {self.dim}")
        first, second = sorted((self, other), key=id)
        with first._lock, second._lock:
            here, there = self._alone(), other._state
            shared = np.intersect1d(here.ids, there.ids)
            if shared.size:
                raise ArgumentError(
                    f"other: expected ids that are not in use here, got {shared[0]}"
                )
            target: I64 = np.full(there.atom_count, -1, np.int64)
            if here.row_count and there.row_count:
                target = self._targets(there)
            created = np.flatnonzero(target < 0)
            target[created] = here.atom_count + np.arange(created.size)
            if there.row_count:
                slots = target[there.view("atom")]
                total = here.atom_count + created.size
                here.append(there.view("rows"), there.ids, slots, total)
                self._next_id = max(self._next_id, int(here.ids.max()) + 1)
            names = here.atom_ids[target]
            mapping = dict(zip(there.atom_ids.tolist(), names.tolist(), strict=True))
            return Merge(mapping, tuple(names[created].tolist()))

    def _targets(self, there: AtomState) -> I64:
        centres = there.unit_centres().astype(np.float32)
        aimed = np.abs(centres).max(axis=1) > 0.0
        rows = np.concatenate([there.view("rows"), centres[aimed]])
        owners = np.concatenate([there.view("atom"), np.flatnonzero(aimed)])
        slots, scores = self._state.nearest(np.ascontiguousarray(rows), self._route)
        target: I64 = np.full(there.atom_count, -1, np.int64)
        # Best first; of equals the older atom.
        for i in np.lexsort((slots, -scores)):
            if target[owners[i]] < 0 and scores[i] > self._threshold:
                target[owners[i]] = slots[i]
        return target

    @classmethod
    def from_labels(
        cls,
        X: object,
        labels: object,
        *,
        threshold: float,
        ids: object = None,
        route: str = "max_member",
        storage: str = "float32",
    ) -> MaxMemberClusters:
        """Take up a clustering whose members' atoms are known, such as one kept elsewhere.

        Parameters
        ----------
        X : array_like, shape (N, d)
            Members in order of arrival.
        labels : array_like of int, shape (N,)
            Their atoms; smaller numbers are older.
        threshold, ids, route, storage
            See the class and :meth:`assign`.

        Examples
        --------
        >>> made = MaxMemberClusters.from_labels(np.eye(2), [3, 5], threshold=0.9)
        >>> made.assign([[1.0, 0.1], [-1.0, 0.0]]).labels.tolist()
        [3, 6]
        """
        rows = as_rows(X, "X")
        made = cls(rows.shape[1], threshold=threshold, route=route, storage=storage)
        usable = usable_rows(rows, "X", made.dim)
        wanted = as_integers(labels, "labels").astype(np.int64)
        if wanted.shape != (usable.shape[0],) or (wanted.size and wanted.min() < 0):
            raise ArgumentError(
                f"labels: expected {usable.shape[0]} atoms >= 0, got shape {wanted.shape}"
            )
        fresh = made._claim(None if ids is None else as_ids(ids, usable.shape[0]), usable.shape[0])
        names, slots = np.unique(wanted, return_inverse=True)
        made._state.append(usable, fresh, slots.astype(np.int64), names.size)
        made._state.atom_ids = names
        made._state.next_atom_id = int(names[-1]) + 1 if names.size else 0
        return made

    def number_atoms_from(self, number: int) -> None:
        """Make the next new atom's id at least `number`."""
        with self._lock:
            state = self._alone()
            state.next_atom_id = max(state.next_atom_id, as_count(number, "number"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file; an older file stays whole until the new one is complete."""
        with self._lock:
            state = self._state
            facts = {
                "dim": self.dim,
                "threshold": self._threshold.hex(),
                "route": self._route,
                "storage": state.storage,
                "next_id": self._next_id,
                "next_atom_id": state.next_atom_id,
            }
            arrays = {
                "rows": state.view("rows"),
                "atom": state.view("atom"),
                "ids": state.ids,
                "atom_ids": state.atom_ids,
            }
            files.write_file(path, facts, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MaxMemberClusters:
        """Read what :meth:`save` wrote; it goes on as the saved one would have.

        Raises
        ------
        StoreCorruptError
            Not such a file, or damaged.
        FileNotFoundError
            There is none.
        """
        facts, arrays = files.read_file(path)
        try:
            made = cls(
                facts["dim"],
                threshold=float.fromhex(facts["threshold"]),
                route=facts["route"],
                storage=facts["storage"],
            )
            atoms = int(arrays["atom_ids"].size)
            slots = arrays["atom"]
            if slots.size and not 0 <= slots.min() <= slots.max() < atoms:
                raise ValueError("a member belongs to no atom")
            if arrays["rows"].shape != (slots.size, made.dim) or arrays["ids"].shape != slots.shape:
                raise ValueError("arrays of different lengths")
            made._state.append(arrays["rows"], arrays["ids"], slots, atoms)
            made._state.atom_ids = arrays["atom_ids"].copy()
            made._state.next_atom_id = int(facts["next_atom_id"])
            made._next_id = int(facts["next_id"])
        except (KeyError, ValueError, TypeError) as error:
            raise StoreCorruptError(
                f"{path}: the saved clustering is not valid: {error}"
            ) from error
        return made

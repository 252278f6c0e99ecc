"""Smaller forms of the members of atoms, each with its bytes and what it loses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from riemem._arrays import F64, I64
from riemem.errors import ArgumentError

FORMS = ("float32", "int8", "basis", "summary", "pq")

_LLOYD_ROUNDS = 12
_CODEWORDS = 256


@dataclass(frozen=True)
class CompressedAtoms:
    """Members in a smaller form.

    Attributes
    ----------
    form : str
    ids : ndarray of int64, shape (N,)
        Members in order of arrival.
    labels : ndarray of int64, shape (N,)
        Their atoms.
    parts : dict of ndarray
        What is stored.
    ranks : ndarray of int64, shape (M,)
        Basis vectors kept per atom; empty for forms without bases.
    """

    form: str
    ids: I64
    labels: I64
    parts: dict[str, NDArray[Any]]
    dim: int
    ranks: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    _error: tuple[float, float] = (0.0, 0.0)

    @property
    def nbytes(self) -> int:
        """Bytes of everything stored but ids and labels, which all forms share."""
        return sum(int(part.nbytes) for part in self.parts.values())

    @property
    def mean_error(self) -> float:
        """Mean of ``|h - reconstructed h|`` over the unit members."""
        return self._error[0]

    @property
    def max_error(self) -> float:
        """Largest ``|h - reconstructed h|`` over the unit members."""
        return self._error[1]

    def reconstruct(self) -> F64:
        """Return the members as far as this form remembers them, shape (N, d), in order of ids.

        A "summary" remembers each member only as the mean of its atom inside the atom's basis.
        """
        rows: F64 = _RECONSTRUCT[self.form](self)
        return rows


def compress(
    unit: F64,
    ids: I64,
    labels: I64,
    form: str,
    *,
    rank: int | None,
    energy: float,
    bases: str,
    subspaces: int,
    seed: int,
) -> CompressedAtoms:
    """Put unit rows, grouped by label, into one of the forms of :data:`FORMS`."""
    ranks: I64 = np.empty(0, np.int64)
    if form == "float32":
        parts: dict[str, NDArray[Any]] = {"rows": unit.astype(np.float32)}
    elif form == "int8":
        parts = _quantise(unit)
    elif form == "pq":
        parts = _product_quantise(unit, subspaces, seed)
    else:
        parts, ranks = _bases(unit, labels, form, rank, energy, bases)
    made = CompressedAtoms(form, ids, labels, parts, unit.shape[1], ranks)
    lost = np.linalg.norm(unit - made.reconstruct(), axis=1)
    error = (float(lost.mean()), float(lost.max())) if lost.size else (0.0, 0.0)
    return CompressedAtoms(form, ids, labels, parts, unit.shape[1], ranks, error)


def leading_basis(rows: F64, rank: int) -> F64:
    """Return the first right singular vectors of the rows (not centred), shape (<= rank, d).

    Each sign is such that the mean of the rows has no negative part along it; where that is zero,
    the largest component is positive.
    """
    _, _, right = np.linalg.svd(rows, full_matrices=False)
    basis: F64 = right[: min(rank, right.shape[0])].copy()
    along = basis @ rows.mean(axis=0)
    largest = np.take_along_axis(basis, np.abs(basis).argmax(axis=1)[:, None], axis=1)[:, 0]
    flip = np.where(np.abs(along) > 1e-12, along < 0.0, largest < 0.0)
    basis[flip] *= -1.0
    return basis


def choose_rank(rows: F64, rank: int | None, energy: float) -> int:
    """Return `rank`, or, when it is None, the smallest that holds `energy` of the squares."""
    if rank is not None:
        return min(rank, int(rows.shape[0]), int(rows.shape[1]))
    squares = np.linalg.svd(rows, compute_uv=False) ** 2
    total = np.cumsum(squares)
    return min(int(np.searchsorted(total, energy * total[-1] * (1.0 - 1e-12))) + 1, total.size)


def grassmann_merge(bases: Sequence[F64], weights: Sequence[float], rank: int) -> F64:
    """Merge subspaces into the one of dimension `rank` that is nearest to all of them.

    It maximises ``sum_i w_i |V B_i'|_F^2`` (the weighted chordal mean on the Grassmann manifold):
    the leading right singular vectors of the stacked ``sqrt(w_i) B_i``. With one weight per basis
    vector instead (its singular value squared), merging is the same as a new SVD of both.

    Parameters
    ----------
    bases : sequence of ndarray, each of shape (k_i, d)
        Orthonormal rows.
    weights : sequence of float or of ndarray of shape (k_i,)
        At least 0, not all zero.
    rank : int

    Returns
    -------
    ndarray of float64, shape (<= rank, d)
        Orthonormal rows.

    Examples
    --------
    >>> same = grassmann_merge([np.eye(3)[:1], np.eye(3)[:1]], [1.0, 5.0], 1)
    >>> np.abs(same).round(12).tolist()
    [[1.0, 0.0, 0.0]]
    """
    scaled = [
        np.sqrt(np.broadcast_to(np.asarray(w, np.float64), (len(b),)))[:, None] * b
        for b, w in zip(bases, weights, strict=True)
    ]
    _, values, right = np.linalg.svd(np.concatenate(scaled), full_matrices=False)
    present = int((values > 1e-12 * values[0]).sum()) if values.size and values[0] > 0 else 0
    merged: F64 = right[: min(rank, present)]
    return merged


def _quantise(rows: F64) -> dict[str, NDArray[Any]]:
    scale = np.abs(rows).max(axis=1) / 127.0
    safe = np.where(scale > 0.0, scale, 1.0)
    return {
        "codes": np.rint(rows / safe[:, None]).astype(np.int8),
        "scale": safe.astype(np.float32),
    }


def _dequantise(parts: dict[str, NDArray[Any]], prefix: str = "") -> F64:
    codes = parts[prefix + "codes"].astype(np.float64)
    return codes * parts[prefix + "scale"].astype(np.float64)[:, None]


def _bases(
    unit: F64, labels: I64, form: str, rank: int | None, energy: float, bases: str
) -> tuple[dict[str, NDArray[Any]], I64]:
    vectors, ranks, summaries, sizes = [], [], [], []
    chosen: list[tuple[I64, F64]] = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        rows = unit[members]
        basis = leading_basis(rows, choose_rank(rows, rank, energy))
        vectors.append(basis)
        ranks.append(len(basis))
        sizes.append(members.size)
        chosen.append((members, basis))
    all_vectors = np.concatenate(vectors) if vectors else np.empty((0, unit.shape[1]))
    parts: dict[str, NDArray[Any]] = {"ranks": np.array(ranks, np.int32)}
    if bases == "int8":
        held = _quantise(all_vectors)
        parts |= {"basis_codes": held["codes"], "basis_scale": held["scale"]}
        stored = _dequantise(held)
    else:
        parts["basis"] = all_vectors.astype(np.float32)
        stored = parts["basis"].astype(np.float64)
    widest = max(ranks, default=0)
    coefficients = np.zeros((unit.shape[0], widest), np.float32)
    at = 0
    for members, basis in chosen:
        own = stored[at : at + len(basis)]
        at += len(basis)
        # Least squares, because rounding has left the vectors not quite orthonormal.
        values = np.linalg.lstsq(own.T, unit[members].T, rcond=None)[0].T
        coefficients[members, : len(basis)] = values
        summaries.append((values.mean(axis=0), values.std(axis=0)))
    if form == "basis":
        # Flat, so that an atom of rank 1 pays for one number and not for the widest of all.
        used = np.repeat(np.array(ranks, np.int64), sizes) if ranks else np.empty(0, np.int64)
        mask = np.zeros(coefficients.shape, bool)
        order = np.concatenate([m for m, _ in chosen]) if chosen else np.empty(0, np.int64)
        mask[order] = np.arange(widest)[None, :] < used[:, None]
        parts["coefficients"] = coefficients[mask]
    else:
        none = [np.empty(0)]
        means, deviations = ([pair[i] for pair in summaries] for i in (0, 1))
        parts["coefficient_mean"] = np.concatenate(means or none).astype(np.float32)
        parts["coefficient_deviation"] = np.concatenate(deviations or none).astype(np.float32)
        parts["sizes"] = np.array(sizes, np.int32)
    return parts, np.array(ranks, np.int64)


def _stored_basis(made: CompressedAtoms) -> F64:
    if "basis" in made.parts:
        wide: F64 = made.parts["basis"].astype(np.float64)
        return wide
    return _dequantise(made.parts, "basis_")


def _from_bases(made: CompressedAtoms) -> F64:
    vectors = _stored_basis(made)
    starts = np.concatenate([[0], np.cumsum(made.ranks)])
    atoms = np.unique(made.labels, return_inverse=True)[1]
    out = np.zeros((made.labels.size, made.dim))
    if made.form == "basis":
        per_row = made.ranks[atoms]
        offsets = np.concatenate([[0], np.cumsum(per_row)])
        values = made.parts["coefficients"].astype(np.float64)
        for i, atom in enumerate(atoms):
            own = vectors[starts[atom] : starts[atom + 1]]
            out[i] = values[offsets[i] : offsets[i + 1]] @ own
        return out
    means = made.parts["coefficient_mean"].astype(np.float64)
    for atom in range(made.ranks.size):
        span = slice(starts[atom], starts[atom + 1])
        out[atoms == atom] = means[span] @ vectors[span]
    return out


def _product_quantise(unit: F64, subspaces: int, seed: int) -> dict[str, NDArray[Any]]:
    n, d = unit.shape
    if subspaces > d:
        raise ArgumentError(f"subspaces: expected at most the dimension {d}, got {subspaces}")
    cuts = np.linspace(0, d, subspaces + 1).round().astype(int)
    words = min(_CODEWORDS, n)
    books: F64 = np.zeros((words, d))
    codes = np.zeros((n, subspaces), np.uint8)
    generator = np.random.default_rng(seed)
    for s in range(subspaces):
        part = unit[:, cuts[s] : cuts[s + 1]]
        if n == 0:
            continue
        centres, code = _lloyd(part, words, generator)
        books[:, cuts[s] : cuts[s + 1]] = centres
        codes[:, s] = code
    return {
        "codes": codes,
        "codebook": books.astype(np.float32),
        "cuts": cuts.astype(np.int32),
    }


def _lloyd(rows: F64, words: int, generator: np.random.Generator) -> tuple[F64, I64]:
    centres = rows[generator.permutation(rows.shape[0])[:words]].copy()
    code: I64 = np.zeros(rows.shape[0], np.int64)
    for _ in range(_LLOYD_ROUNDS):
        code = ((centres**2).sum(axis=1)[None] - 2.0 * rows @ centres.T).argmin(axis=1)
        counts = np.bincount(code, minlength=words)
        sums = np.zeros_like(centres)
        np.add.at(sums, code, rows)
        filled = counts > 0
        centres[filled] = sums[filled] / counts[filled, None]
    code = ((centres**2).sum(axis=1)[None] - 2.0 * rows @ centres.T).argmin(axis=1)
    return centres, code


def _from_pq(made: CompressedAtoms) -> F64:
    cuts, codes = made.parts["cuts"], made.parts["codes"]
    book = made.parts["codebook"].astype(np.float64)
    out = np.empty((codes.shape[0], made.dim))
    for s in range(codes.shape[1]):
        out[:, cuts[s] : cuts[s + 1]] = book[codes[:, s], cuts[s] : cuts[s + 1]]
    return out


_RECONSTRUCT = {
    "float32": lambda made: made.parts["rows"].astype(np.float64),
    "int8": lambda made: _dequantise(made.parts),
    "basis": _from_bases,
    "summary": _from_bases,
    "pq": _from_pq,
}

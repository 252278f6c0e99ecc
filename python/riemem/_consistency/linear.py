"""A cellular sheaf on a graph: coboundary as sparse rows, sections and cohomology by rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from riemem.errors import ArgumentError, NotFiniteError, ShapeError

__all__ = ["CellularSheaf", "Cohomology", "Csr", "published_score", "rank"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Csr(NamedTuple):
    """A sparse matrix by rows: the layout of scipy's csr_matrix, which this package does not need.

    Attributes
    ----------
    data : (nnz,) float64 ndarray
    indices : (nnz,) int64 ndarray
        Columns, ascending within a row.
    indptr : (rows + 1,) int64 ndarray
    shape : pair of int
    """

    data: Floats
    indices: Ints
    indptr: Ints
    shape: tuple[int, int]

    def dot(self, x: Floats) -> Floats:
        """The product with a vector; O(nnz).

        Examples
        --------
        >>> eye = Csr(np.ones(2), np.arange(2), np.arange(3), (2, 2))
        >>> eye.dot(np.array([3.0, 4.0])).tolist()
        [3.0, 4.0]
        """
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))
        sums = np.zeros(self.shape[0])
        np.add.at(sums, rows, self.data * x[self.indices])
        return sums

    def dense(self) -> Floats:
        """The matrix with its zeros."""
        full = np.zeros(self.shape)
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))
        full[rows, self.indices] = self.data
        return full


class Cohomology(NamedTuple):
    """Dimensions: `h0` of the global sections, `h1` of what no assignment on vertices explains.

    `rank` is that of the coboundary, `c0` and `c1` the dimensions of the cochains.
    """

    h0: int
    h1: int
    rank: int
    c0: int
    c1: int


@dataclass(frozen=True)
class _Edge:
    u: int
    v: int
    at_u: Floats
    at_v: Floats


#: Of nothing.
NOTHING = Cohomology(0, 0, 0, 0, 0)


class CellularSheaf:
    r"""A sheaf of real vector spaces on a graph.

    Parameters
    ----------
    dims : sequence of int
        Dimension of the stalk of each vertex.

    Notes
    -----
    ``(delta x)_e = F_{u,e} x_u - F_{v,e} x_v`` for an edge e from u to v with restriction maps F.
    A graph has no 2-cells, so ``H^0 = ker delta`` and ``H^1 = C^1 / im delta``: their dimensions
    follow from one rank. Hansen and Ghrist (2019), section 3; SLM-V3 (arXiv 2603.14588), 5.4.

    Examples
    --------
    >>> sheaf = CellularSheaf([1, 1])
    >>> sheaf.add_edge(0, 1, [[1.0]], [[1.0]])
    >>> sheaf.cohomology()
    Cohomology(h0=1, h1=0, rank=1, c0=2, c1=1)
    """

    def __init__(self, dims: Sequence[int]) -> None:
        self.dims = [int(d) for d in dims]
        if any(d < 0 for d in self.dims):
            raise ArgumentError(f"dims: expected dimensions >= 0, got {min(self.dims)}")
        self._edges: list[_Edge] = []

    def add_edge(self, u: int, v: int, at_u: npt.ArrayLike, at_v: npt.ArrayLike) -> None:
        """Join two vertices by restriction maps into a common space.

        Parameters
        ----------
        u, v : int
            Two different vertices.
        at_u, at_v : (m, dim of u) and (m, dim of v) array_like

        Raises
        ------
        ArgumentError, ShapeError, NotFiniteError
        """
        n = len(self.dims)
        if not (0 <= u < n and 0 <= v < n) or u == v:
            raise ArgumentError(f"u, v: expected two vertices below {n}, got {u} and {v}")
        maps = [np.array(m, np.float64, ndmin=2) for m in (at_u, at_v)]
        for name, found, vertex in (("at_u", maps[0], u), ("at_v", maps[1], v)):
            if found.ndim != 2 or found.shape[1] != self.dims[vertex]:
                raise ShapeError(f"{name}: expected (m, {self.dims[vertex]}), got {found.shape}")
            if not np.isfinite(found).all():
                raise NotFiniteError(f"{name}: expected finite numbers")
        if maps[0].shape[0] != maps[1].shape[0]:
            raise ShapeError(
                f"at_u, at_v: expected as many rows in both, got {maps[0].shape[0]} and "
                f"{maps[1].shape[0]}"
            )
        self._edges.append(_Edge(u, v, *maps))

    def coboundary(self, observed: Iterable[int] = ()) -> Csr:
        """Return delta; columns of observed vertices are left out (the pair's relative complex).

        Parameters
        ----------
        observed : iterable of int
            Vertices whose values are given rather than free.
        """
        given = set(observed)
        start, column = [], 0
        for vertex, dim in enumerate(self.dims):
            start.append(-1 if vertex in given else column)
            column += 0 if vertex in given else dim
        data: list[float] = []
        indices: list[int] = []
        indptr = [0]
        for edge in self._edges:
            ends = sorted(((edge.u, 1.0, edge.at_u), (edge.v, -1.0, edge.at_v)), key=lambda e: e[0])
            for row in range(edge.at_u.shape[0]):
                for vertex, sign, restriction in ends:
                    if start[vertex] < 0:
                        continue
                    for j in np.flatnonzero(restriction[row]).tolist():
                        data.append(sign * float(restriction[row, j]))
                        indices.append(start[vertex] + j)
                indptr.append(len(data))
        return Csr(
            np.array(data, np.float64),
            np.array(indices, np.int64),
            np.array(indptr, np.int64),
            (len(indptr) - 1, column),
        )

    def cohomology(self, observed: Iterable[int] = ()) -> Cohomology:
        """Return the dimensions of H^0 and H^1, relative to the observed vertices if there are any.

        Notes
        -----
        Rank by QR with column pivoting on each connected part; O(sum of m n min(m, n)).
        """
        delta = self.coboundary(observed)
        found = rank(delta)
        rows, columns = delta.shape
        return Cohomology(columns - found, rows - found, found, columns, rows)


def rank(matrix: Csr, tolerance: float = 1e-10) -> int:
    """Return the rank of a sparse matrix, connected part by connected part.

    Parameters
    ----------
    matrix : Csr
    tolerance : float
        Of the largest entry: a smaller pivot counts as zero.

    Examples
    --------
    >>> rank(Csr(np.array([1.0, -1.0]), np.array([0, 1]), np.array([0, 2]), (1, 2)))
    1
    """
    if matrix.data.size == 0:
        return 0
    owner = list(range(matrix.shape[1]))

    def root(i: int) -> int:
        while owner[i] != i:
            owner[i] = owner[owner[i]]
            i = owner[i]
        return i

    rows_of: dict[int, list[int]] = {}
    spans = [matrix.indices[a:b].tolist() for a, b in zip(*_ends(matrix), strict=True)]
    for columns in spans:
        for column in columns[1:]:
            owner[root(column)] = root(columns[0])
    for row, columns in enumerate(spans):
        if columns:
            rows_of.setdefault(root(columns[0]), []).append(row)
    scale = float(np.abs(matrix.data).max())
    total = 0
    for rows in rows_of.values():
        columns = sorted({c for row in rows for c in spans[row]})
        place = {c: i for i, c in enumerate(columns)}
        block = np.zeros((len(rows), len(columns)))
        for i, row in enumerate(rows):
            for offset, c in enumerate(spans[row], int(matrix.indptr[row])):
                block[i, place[c]] = matrix.data[offset]
        total += _dense_rank(block, tolerance * scale)
    return total


def _ends(matrix: Csr) -> tuple[list[int], list[int]]:
    return matrix.indptr[:-1].tolist(), matrix.indptr[1:].tolist()


def _dense_rank(block: Floats, smallest: float) -> int:
    """Householder QR with column pivoting: pivots until the rest is as good as zero."""
    a = block.copy()
    steps = int(min(a.shape))
    for k in range(steps):
        norms = np.linalg.norm(a[k:, k:], axis=0)
        best = int(norms.argmax())
        if norms[best] <= smallest:
            return k
        a[:, [k, k + best]] = a[:, [k + best, k]]
        v = a[k:, k].copy()
        v[0] += np.copysign(norms[best], v[0])
        v /= np.linalg.norm(v)
        a[k:, k:] -= 2.0 * np.outer(v, v @ a[k:, k:])
    return steps


def published_score(a: npt.ArrayLike, b: npt.ArrayLike, epsilon: float = 1e-12) -> float:
    """Return the paper's contradiction score of two vectors under identity restriction maps.

    ``kappa = norm(a - b)^2 / (norm(a)^2 + norm(b)^2 + epsilon)``, which for vectors of length one
    is ``1 - cosine``.

    Parameters
    ----------
    a, b : (d,) array_like of float
    epsilon : float

    Raises
    ------
    ShapeError, NotFiniteError

    Notes
    -----
    SLM-V3 (arXiv 2603.14588), section 5.4.

    Examples
    --------
    >>> published_score([1.0, 0.0], [0.0, 1.0])
    0.9999999999995
    """
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise ShapeError(f"a, b: expected two vectors of one length, got {x.shape} and {y.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise NotFiniteError("a, b: expected finite numbers")
    return float((x - y) @ (x - y) / (x @ x + y @ y + epsilon))

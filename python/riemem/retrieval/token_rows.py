"""The tokens of a text as a store keeps them: few, short and rounded to bytes."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from riemem.errors import ArgumentError, ShapeError
from riemem.retrieval.words import STOP_WORDS, word_places
from riemem.store.token_vectors import MOST_ROWS

__all__ = ["DIMS", "FORM", "MOST_ROWS", "SCALE"]
__all__ += ["read_rows", "rounded", "signs", "telling", "token_rows"]

#: Numbers of a row.
DIMS = 64

#: What a row of length 1 is multiplied by before it is rounded.
SCALE = 127

#: How rows are made. Rows of another form cannot be compared with these.
FORM = "signs64-int8-v1"


class Tokens(Protocol):
    """Unit vectors of a text's tokens; :class:`riemem.embed.TokenVectors` is one."""

    @property
    def starts(self) -> npt.NDArray[np.int32]: ...

    @property
    def ends(self) -> npt.NDArray[np.int32]: ...

    @property
    def vectors(self) -> npt.NDArray[np.float32]: ...


def token_rows(
    text: str, tokens: Tokens, *, dims: int = DIMS, without: Collection[str] = ()
) -> bytes:
    """Return the rows of the tokens that lie in words that say something.

    ``round(127 P v / |P v|)``, v = a token's vector, P = :func:`signs`. Punctuation and the words
    of :data:`riemem.retrieval.words.STOP_WORDS` are left out.

    Parameters
    ----------
    text : str
    tokens : TokenVectors
        Of this text, in its order; vectors of at most `dims` numbers are not projected.
    dims : int
    without : collection of str
        More words to leave out, as :func:`riemem.retrieval.words.raw_words` writes them.

    Returns
    -------
    bytes
        (t, dims) int8, row by row, at most :data:`MOST_ROWS` of them; empty where no word says
        something.

    Raises
    ------
    ShapeError
        The vectors are not one for each start and end.

    Notes
    -----
    Random signs keep inner products to about ``1 / sqrt(dims)`` (Achlioptas, 2003); O(t d dims).

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> starts, ends = np.array([[0, 4], [3, 7]], np.int32)
    >>> vectors = np.array([[1.0, 0.0], [0.6, 0.8]], np.float32)
    >>> tokens = SimpleNamespace(starts=starts, ends=ends, vectors=vectors)
    >>> read_rows(token_rows("the sea", tokens, dims=2), dims=2).tolist()
    [[76, 102]]
    """
    vectors = np.asarray(tokens.vectors)
    if vectors.ndim != 2 or not len(vectors) == len(tokens.starts) == len(tokens.ends):
        raise ShapeError(
            f"tokens: expected a vector for each of {len(tokens.starts)} starts and "
            f"{len(tokens.ends)} ends, got shape {vectors.shape}"
        )
    own = telling(text, tokens, without)[:MOST_ROWS]
    return rounded(vectors[own], dims).tobytes()


def rounded(vectors: npt.NDArray[Any], dims: int = DIMS) -> npt.NDArray[np.int8]:
    """Return ``round(127 P v / |P v|)`` of each vector; (t, dims).

    Rows of int8 are rounded already, and returned as they are.

    Examples
    --------
    >>> rounded(np.array([[3.0, 4.0]], np.float32), dims=2).tolist()
    [[76, 102]]
    """
    if vectors.dtype == np.int8:
        return vectors
    rows = vectors.astype(np.float64)
    if rows.shape[1] > dims:
        # In double precision: the bytes do not depend on the order in which a library adds.
        rows = rows @ signs(rows.shape[1], dims)
    elif rows.shape[1] < dims:
        rows = np.pad(rows, ((0, 0), (0, dims - rows.shape[1])))
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    rows = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0.0)
    found: npt.NDArray[np.int8] = np.rint(SCALE * rows).astype(np.int8)
    return found


def read_rows(data: bytes, dims: int = DIMS) -> npt.NDArray[np.int8]:
    """Return the rows as (t, dims) int8.

    Raises
    ------
    ArgumentError
        These are not whole rows.

    Examples
    --------
    >>> read_rows(bytes(128)).shape
    (2, 64)
    """
    if len(data) % dims:
        raise ArgumentError(f"data: expected rows of {dims} bytes, got {len(data)} bytes")
    return np.frombuffer(data, np.int8).reshape(-1, dims)


@functools.cache
def signs(d: int, dims: int = DIMS) -> npt.NDArray[np.float64]:
    """Return the fixed matrix of signs that vectors are multiplied by; (d, dims), +1 and -1.

    The bits, row by row, of SHA-256 of ``"riemem token signs d dims i"``, i = 0, 1, ...: the same
    on every machine and with every version of a random generator.

    Examples
    --------
    >>> signs(384).shape, sorted(set(signs(3, 2).ravel().tolist()))
    ((384, 64), [-1.0, 1.0])
    """
    blocks = -(-d * dims // 256)
    names = (f"riemem token signs {d} {dims} {i}" for i in range(blocks))
    bits = np.frombuffer(b"".join(hashlib.sha256(n.encode()).digest() for n in names), np.uint8)
    ones = np.unpackbits(bits)[: d * dims].reshape(d, dims)
    matrix: npt.NDArray[np.float64] = 2.0 * ones.astype(np.float64) - 1.0
    matrix.flags.writeable = False
    return matrix


def telling(text: str, tokens: Tokens, without: Collection[str] = ()) -> npt.NDArray[np.int64]:
    """Return which tokens lie in a word that is not left out; ascending; see :func:`token_rows`."""
    words = [
        (start, end)
        for start, end, word in word_places(text)
        if word not in STOP_WORDS and word not in without
    ]
    if not words:
        return np.empty(0, np.int64)
    begins, ends = np.array(words, np.int64).T
    # A token may begin with the space before its word.
    first = np.searchsorted(ends, tokens.starts, side="right")
    inside = first < len(words)
    inside[inside] = begins[first[inside]] < np.asarray(tokens.ends)[inside]
    found: npt.NDArray[np.int64] = np.flatnonzero(inside)
    return found

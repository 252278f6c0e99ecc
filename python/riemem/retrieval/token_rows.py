"""The tokens of a text as a store keeps them: a sign for each number of their vectors."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from riemem import _backend
from riemem.errors import ArgumentError, ShapeError
from riemem.retrieval.words import STOP_WORDS, word_places
from riemem.store.token_vectors import MOST_ROWS

__all__ = ["DIMS", "FORM", "MOST_ROWS", "ROW_BYTES", "UNIT"]
__all__ += ["checked_vectors", "read_rows", "rounded", "telling", "token_rows", "told_rows"]

#: Numbers of a row.
DIMS = 512

#: Bytes of a row in a store: a bit for each number.
ROW_BYTES = DIMS // 8

#: How rows are made. Rows of another form cannot be compared with these.
FORM = "rotated-signs512-v1"

#: A row's numbers are mostly within 1 / sqrt(DIMS) of 0; four times that far is 127.
_SCALE = 127.0 / 4.0

#: About what the product of a question's row with the signs of the same row is. Of a unit vector x
#: in general position the sum of |x_i| is nearly sqrt(2 DIMS / pi).
UNIT = _SCALE * DIMS * np.sqrt(2.0 / np.pi)


class Tokens(Protocol):
    """Unit vectors of a text's tokens; :class:`riemem.embed.TokenVectors` is one."""

    @property
    def starts(self) -> npt.NDArray[np.int32]: ...

    @property
    def ends(self) -> npt.NDArray[np.int32]: ...

    @property
    def vectors(self) -> npt.NDArray[np.float32]: ...


def token_rows(text: str, tokens: Tokens, *, without: Collection[str] = ()) -> bytes:
    """Return the signs of the rows of the tokens that lie in words that say something.

    Bit j is 1 where number j of :func:`rounded` is 0 or more. Punctuation and the words of
    :data:`riemem.retrieval.words.STOP_WORDS` are left out.

    Parameters
    ----------
    text : str
    tokens : TokenVectors
        Of this text, in its order.
    without : collection of str
        More words to leave out, as :func:`riemem.retrieval.words.raw_words` writes them.

    Returns
    -------
    bytes
        :data:`ROW_BYTES` for each of at most :data:`MOST_ROWS` tokens, the lowest bit of a byte
        first; empty where no word says something.

    Raises
    ------
    ShapeError
        The vectors are not one for each start and end.

    Notes
    -----
    The product of a vector with the signs of another is, but for a constant, an estimate of their
    cosine, with an error of about ``0.75 / sqrt(DIMS)`` in general position, into which the
    rotation brings every vector: Gao and Long, 2024 (RaBitQ). O(t d log d).

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> starts, ends = np.array([[0, 4], [3, 7]], np.int32)
    >>> vectors = np.array([[1.0, 0.0], [0.6, 0.8]], np.float32)
    >>> tokens = SimpleNamespace(starts=starts, ends=ends, vectors=vectors)
    >>> len(token_rows("the sea", tokens))
    64
    """
    rows = told_rows(text, tokens, without=without)
    return np.packbits(rows >= 0, axis=1, bitorder="little").tobytes()


def told_rows(text: str, tokens: Tokens, *, without: Collection[str] = ()) -> npt.NDArray[np.int8]:
    """Return the numbers whose signs :func:`token_rows` returns; (t, DIMS)."""
    vectors = checked_vectors(tokens, "tokens")
    rows = rounded(vectors[telling(text, tokens, without)])
    return rows[rows.any(axis=1)][:MOST_ROWS]


def checked_vectors(tokens: Tokens, name: str) -> npt.NDArray[Any]:
    """Return the vectors of tokens, one for each start and end.

    Raises
    ------
    ShapeError
        They are not; the message begins with `name`.
    """
    vectors = np.asarray(tokens.vectors)
    if vectors.ndim != 2 or not len(vectors) == len(tokens.starts) == len(tokens.ends):
        raise ShapeError(
            f"{name}: expected a vector for each of {len(tokens.starts)} starts and "
            f"{len(tokens.ends)} ends, got shape {vectors.shape}"
        )
    return vectors


def rounded(vectors: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    """Return each vector's direction, rotated and rounded; (t, DIMS).

    ``clip(round(127/4 sqrt(DIMS) R v / |R v|), -127, 127)``, R = the fixed rotation of
    :func:`riemem._backend.core.rotate`. A vector of fewer than DIMS numbers is continued by zeros;
    of a longer one the first DIMS numbers of R v count. DIMS numbers of int8 are rounded
    already, and returned as they are; what has no direction becomes zeros.

    Examples
    --------
    >>> rows = rounded(np.array([[3.0, 4.0], [0.0, 0.0]]))
    >>> rows.shape, round(float(np.linalg.norm(rows[0] / (127 / 4 * DIMS**0.5))), 1)
    ((2, 512), 1.0)
    """
    if vectors.dtype == np.int8 and vectors.shape[1] == DIMS:
        return vectors
    rows = np.zeros((len(vectors), max(DIMS, vectors.shape[1])))
    rows[:, : vectors.shape[1]] = vectors
    rows = _backend.core.rotate(rows)[:, :DIMS]
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    scales = np.divide(_SCALE * DIMS**0.5, lengths, out=np.zeros_like(lengths), where=lengths > 0.0)
    rows = np.minimum(np.maximum(rows * scales, -127.0), 127.0)
    found: npt.NDArray[np.int8] = np.rint(rows).astype(np.int8)
    return found


def read_rows(data: bytes) -> npt.NDArray[np.uint8]:
    """Return what :func:`token_rows` returned as (t, ROW_BYTES) uint8.

    Raises
    ------
    ArgumentError
        These are not whole rows.

    Examples
    --------
    >>> read_rows(bytes(128)).shape
    (2, 64)
    """
    if len(data) % ROW_BYTES:
        raise ArgumentError(f"data: expected rows of {ROW_BYTES} bytes, got {len(data)} bytes")
    return np.frombuffer(data, np.uint8).reshape(-1, ROW_BYTES)


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

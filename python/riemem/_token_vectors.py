"""The vectors of a text's tokens: what an encoder gives before they are pooled into one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .errors import NotFiniteError

__all__ = ["TokenVectors", "join_windows", "token_vectors"]


@dataclass(frozen=True)
class TokenVectors:
    """Unit vectors of the tokens of one text, in their order, without those that mark its ends.

    Attributes
    ----------
    starts, ends : (t,) int32 ndarray
        Where each token lies in the text, in characters.
    vectors : (t, d) float32 ndarray
        Rows of length 1.

    Examples
    --------
    >>> place = np.zeros(1, np.int32)
    >>> TokenVectors(place, place + 2, np.ones((1, 1), np.float32)).ends.tolist()
    [2]
    """

    starts: NDArray[np.int32]
    ends: NDArray[np.int32]
    vectors: NDArray[np.float32]


def token_vectors(
    states: NDArray[np.float32], offsets: Sequence[tuple[int, int]], special: Sequence[int]
) -> TokenVectors:
    """Return the tokens of a text out of the encoder's last hidden states.

    Parameters
    ----------
    states : (n, d) float32 ndarray
        As many as there are tokens, special ones included.
    offsets : sequence of (int, int)
        Start and end of each token in the text. What ends at 0 or before belongs to a prompt.
    special : sequence of int
        1 for a token that the tokenizer added.

    Raises
    ------
    NotFiniteError
        A state has no direction.

    Examples
    --------
    >>> states = np.array([[1.0, 1.0], [3.0, 4.0]], np.float32)
    >>> found = token_vectors(states, [(0, 0), (0, 5)], [1, 0])
    >>> found.ends.tolist(), found.vectors.tolist()
    ([5], [[0.6000000238418579, 0.800000011920929]])
    """
    places = np.array(offsets, np.int64).reshape(-1, 2)
    own = np.flatnonzero((np.array(special) == 0) & (places[:, 1] > 0))
    rows = states[own].astype(np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.all(np.isfinite(norms) & (norms > 0)):
        raise NotFiniteError("embed_with_tokens: the model returned a token without a direction")
    starts, ends = np.maximum(places[own], 0).astype(np.int32).T
    return TokenVectors(starts.copy(), ends.copy(), (rows / norms).astype(np.float32))


def join_windows(windows: Iterable[tuple[int, TokenVectors]]) -> TokenVectors:
    """Return the tokens of a long text out of those of its windows.

    Of a token that lies in two windows, that of the first counts.

    Parameters
    ----------
    windows : iterable of (int, TokenVectors)
        Where each window starts in the text, ascending, and its tokens; at least one.

    Examples
    --------
    >>> place, row = np.array([0, 2], np.int32), np.ones((2, 1), np.float32)
    >>> tokens = TokenVectors(place, place + 2, row)
    >>> join_windows([(0, tokens), (2, tokens)]).starts.tolist()
    [0, 2, 4]
    """
    parts, seen = [], 0
    for begin, tokens in windows:
        new = tokens.starts + begin >= seen
        place = np.int32(begin)
        part = TokenVectors(
            tokens.starts[new] + place, tokens.ends[new] + place, tokens.vectors[new]
        )
        if part.ends.size:
            seen = int(part.ends.max())
        parts.append(part)
    return TokenVectors(
        np.concatenate([part.starts for part in parts]),
        np.concatenate([part.ends for part in parts]),
        np.concatenate([part.vectors for part in parts]),
    )

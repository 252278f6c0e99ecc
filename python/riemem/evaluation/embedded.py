"""The vectors of benchmark texts and what is compared of their tokens, kept between runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ..embed import Embedder, TokenEmbedder, TokenVectors
from ..errors import CancelledError
from ..retrieval.embedding import TurnEmbedder
from ..retrieval.token_rows import DIMS, FORM, rounded, telling

__all__ = ["Progress", "compared", "embed_texts", "read_tokens", "tokens_for", "write_tokens"]

_BATCH = 64

Progress = Callable[[int, int], object]


def tokens_for(model: Embedder) -> dict[str, TokenVectors] | None:
    """Return where the tokens of texts go, if a new memory would keep them; else None.

    Examples
    --------
    >>> from riemem.embed import HashingEmbedder
    >>> tokens_for(HashingEmbedder(dim=8)) is None
    True
    """
    return {} if TurnEmbedder(model).tokens_by_default() else None


def embed_texts(
    model: Embedder,
    texts: list[list[str]],
    progress: Progress | None,
    cache: Path | None,
    tokens: dict[str, TokenVectors] | None = None,
) -> list[NDArray[np.float32]]:
    """Return the vectors of groups of texts; what is compared of their tokens goes into `tokens`.

    Parameters
    ----------
    model : Embedder
        One that gives tokens, where `tokens` is given.
    texts : list of lists of str
    progress : callable, optional
        ``progress(done, total)`` with texts embedded; returning False cancels.
    cache : path, optional
        A folder where each group's are kept between runs, under a hash of embedder and texts.
    tokens : dict, optional

    Returns
    -------
    list of (n, d) float32 ndarrays

    Raises
    ------
    CancelledError
    """
    total, done, vectors = sum(map(len, texts)), 0, []

    def report() -> None:
        if progress is not None and progress(done, total) is False:
            raise CancelledError("the evaluation was cancelled")

    report()
    for group in texts:
        file = None if cache is None else cache / f"{_key(model.identity, group)}.npy"
        beside = None if file is None else file.with_suffix(f".{FORM}.npz")
        known = tokens is None or (beside is not None and beside.exists())
        if file is not None and file.exists() and known:
            vectors.append(np.load(file, allow_pickle=False))
            if tokens is not None and beside is not None:
                tokens.update(zip(group, read_tokens(beside), strict=True))
            done += len(group)
            report()
            continue
        rows = np.empty((len(group), model.dim), dtype=np.float32)
        found: list[TokenVectors] = []
        for start in range(0, len(group), _BATCH):
            part = group[start : start + _BATCH]
            if tokens is None:
                rows[start : start + len(part)] = model.embed(part)
            else:
                assert isinstance(model, TokenEmbedder)
                rows[start : start + len(part)], own = model.embed_with_tokens(part)
                found += map(compared, part, own)
            done += len(part)
            report()
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            np.save(file, rows)
            if tokens is not None and beside is not None:
                write_tokens(beside, found)
        if tokens is not None:
            tokens.update(zip(group, found, strict=True))
        vectors.append(rows)
    return vectors


def _key(identity: str, texts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps([identity, list(texts)]).encode()).hexdigest()[:32]


def compared(text: str, tokens: TokenVectors) -> TokenVectors:
    """Return the tokens that say something, with the rows that a store would keep as vectors.

    A store makes the same rows of them as of the whole.

    Examples
    --------
    >>> place = np.array([0, 2, 5], np.int32)
    >>> tokens = TokenVectors(place, place + 2, np.eye(3, 128, dtype=np.float32))
    >>> found = compared("a sea", tokens)
    >>> found.starts.tolist(), found.vectors.shape
    ([2], (1, 512))
    """
    own = telling(text, tokens)
    return _of_rows(tokens.starts[own], tokens.ends[own], rounded(tokens.vectors[own]))


def _of_rows(
    starts: NDArray[np.int32], ends: NDArray[np.int32], rows: NDArray[np.int8]
) -> TokenVectors:
    # Not to be rounded twice: a row of rounded numbers need not have the length it had.
    return TokenVectors(starts, ends, cast(NDArray[np.float32], rows))


def write_tokens(path: Path, tokens: Sequence[TokenVectors]) -> None:
    """Write what :func:`compared` returned of several texts."""
    none = np.empty(0, np.int32)
    np.savez(
        path,
        counts=np.array([len(own.starts) for own in tokens], np.int32),
        starts=np.concatenate([none, *(own.starts for own in tokens)]),
        ends=np.concatenate([none, *(own.ends for own in tokens)]),
        rows=np.concatenate([none, *(own.vectors.ravel() for own in tokens)]).astype(np.int8),
    )


def read_tokens(path: Path) -> list[TokenVectors]:
    """Return what :func:`write_tokens` wrote."""
    with np.load(path, allow_pickle=False) as file:
        counts, starts, ends, rows = (file[name] for name in ("counts", "starts", "ends", "rows"))
    if not counts.size:
        return []
    cuts = np.cumsum(counts)[:-1]
    vectors = rows.astype(np.int8, copy=False).reshape(-1, DIMS)
    return [
        _of_rows(*own)
        for own in zip(
            np.split(starts, cuts), np.split(ends, cuts), np.split(vectors, cuts), strict=True
        )
    ]

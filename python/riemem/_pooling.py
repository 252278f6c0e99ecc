"""From the states of a text's tokens to one vector: the poolings of sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["MODES", "pool"]

_States = NDArray[np.float64]


def _mean(states: _States) -> _States:
    mean: _States = states.sum(axis=0) / len(states)
    return mean


def _sqrt_mean(states: _States) -> _States:
    mean: _States = states.sum(axis=0) / np.sqrt(len(states))
    return mean


def _weighted_mean(states: _States) -> _States:
    weights = np.arange(1.0, len(states) + 1.0)
    mean: _States = (weights @ states) / weights.sum()
    return mean


def _largest(states: _States) -> _States:
    most: _States = states.max(axis=0)
    return most


#: By the name that a folder's configuration uses.
MODES: dict[str, Callable[[_States], _States]] = {
    "cls": lambda states: states[0],
    "max": _largest,
    "mean": _mean,
    "mean_sqrt_len": _sqrt_mean,
    "weightedmean": _weighted_mean,
    "lasttoken": lambda states: states[-1],
}


def pool(
    states: NDArray[np.float32], lengths: Sequence[int], modes: Sequence[str], skip: int = 0
) -> _States:
    """Return one vector per text, the poolings side by side; (B, d len(modes)), float64.

    Parameters
    ----------
    states : ndarray of float32, shape (B, L, d)
        Last hidden states of the texts, padded at the end.
    lengths : sequence of int
        Tokens of each text; what stands behind them does not count.
    modes : sequence of str
        Keys of :data:`MODES`.
    skip : int
        Tokens at the beginning that belong to a prompt and do not count.

    Notes
    -----
    Row by row, so that no vector depends on what else is in the batch. The poolings are those of
    Reimers and Gurevych, "Sentence-BERT", 2019, section 3, and of the configuration files that
    came after it.

    Examples
    --------
    >>> states = np.array([[[1.0, 4.0], [3.0, 0.0], [9.0, 9.0]]], np.float32)
    >>> pool(states, [2], ["mean", "max"]).tolist()
    [[2.0, 2.0, 3.0, 4.0]]
    """
    rows = []
    for own, length in zip(states, lengths, strict=True):
        kept = own[min(skip, length - 1) : length].astype(np.float64)
        rows.append(np.concatenate([MODES[mode](kept) for mode in modes]))
    return np.stack(rows)

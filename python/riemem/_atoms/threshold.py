"""The threshold of a clustering: its check, and its choice from a sample."""

from __future__ import annotations

import numpy as np

from riemem._arrays import as_count, as_number, as_rows, require_finite
from riemem.errors import ArgumentError, ZeroVectorError


def check_threshold(threshold: object) -> float:
    """Return a threshold within (-1, 1]."""
    return as_number(threshold, "threshold", low=-1.0, high=1.0, open_low=True)


def calibrate_threshold(
    X: object, *, quantile: float = 0.70, sample: int = 50, seed: int = 0
) -> float:
    """Return a quantile of the cosines between pairs of a sample: the paper's way to a threshold.

    Parameters
    ----------
    X : array_like, shape (N, d)
        At least two rows, none of them zero.
    quantile : float
        In [0, 1]. On dialogue turns 0.70 lets one atom take nearly all; 0.95 to 0.98 separates.
    sample : int
        At most so many rows, drawn without replacement.
    seed : int
        For the drawing.

    Returns
    -------
    float
        Within (-1, 1].

    Raises
    ------
    ArgumentError
        Fewer than two rows, or an option out of its range.
    ZeroVectorError, NotFiniteError, ShapeError, DTypeError

    Notes
    -----
    Linear interpolation between order statistics; pairs i < j in float64. O(sample^2 d).

    Examples
    --------
    >>> calibrate_threshold([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], quantile=1.0)
    0.0
    """
    share = as_number(quantile, "quantile", low=0.0, high=1.0)
    most = as_count(sample, "sample", minimum=2)
    rows = as_rows(X, "X", one_row=True)
    if rows.shape[0] < 2:
        raise ArgumentError(f"X: expected at least 2 rows to compare, got {rows.shape[0]}")
    require_finite(rows, "X")
    generator = np.random.default_rng(as_count(seed, "seed"))
    if rows.shape[0] > most:
        rows = rows[np.sort(generator.permutation(rows.shape[0])[:most])]
    wide = rows.astype(np.float64)
    wide /= np.maximum(np.abs(wide).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    if (norms == 0.0).any():
        raise ZeroVectorError("X: expected vectors with a direction, got a zero vector")
    unit = wide / norms
    cosines = np.clip(unit @ unit.T, -1.0, 1.0)[np.triu_indices(unit.shape[0], 1)]
    value = float(np.quantile(cosines, share))
    return value if value > -1.0 else float(np.nextafter(-1.0, 0.0))

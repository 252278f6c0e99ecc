"""What max-member clustering is compared with: k-means, DP-means and centroids alone, in a stream.

All take unit rows in the order of the stream and return one label per row.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from ..clustering import LargeAtomWarning, MaxMemberClusters

__all__ = ["CLUSTERINGS", "cluster", "dp_means", "online_kmeans"]

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

CLUSTERINGS = ("max_member", "nearest_fallback", "centroid", "dp_means", "online_kmeans")

_PASSES = 5


def cluster(rows: F32, name: str, threshold: float) -> I64:
    """Label rows by one of :data:`CLUSTERINGS`; k-means gets as many clusters as max-member made.

    Examples
    --------
    >>> cluster(np.eye(3, dtype=np.float32), "dp_means", 0.5).tolist()
    [0, 1, 2]
    """
    if rows.shape[0] == 0:
        return np.empty(0, np.int64)
    if name == "dp_means":
        return dp_means(rows, threshold)
    if name == "online_kmeans":
        clusters = int(cluster(rows, "max_member", threshold).max()) + 1
        return online_kmeans(rows, clusters)
    made = MaxMemberClusters(rows.shape[1], threshold=threshold, route=name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LargeAtomWarning)
        made.assign(rows)
    return made.labels


def online_kmeans(rows: F32, clusters: int) -> I64:
    """Sequential k-means (MacQueen): the first rows are the centres, each later one moves its own.

    Examples
    --------
    >>> online_kmeans(np.array([[1, 0], [0, 1], [0.9, 0.1]], np.float32), 2).tolist()
    [0, 1, 0]
    """
    wide = rows.astype(np.float64)
    count = min(clusters, wide.shape[0])
    centres, sizes = wide[:count].copy(), np.ones(count)
    squares = (centres**2).sum(axis=1)
    labels: I64 = np.arange(wide.shape[0], dtype=np.int64)
    for i in range(count, wide.shape[0]):
        nearest = int(np.argmin(squares - 2.0 * (centres @ wide[i])))
        sizes[nearest] += 1.0
        centres[nearest] += (wide[i] - centres[nearest]) / sizes[nearest]
        squares[nearest] = centres[nearest] @ centres[nearest]
        labels[i] = nearest
    return labels


def dp_means(rows: F32, threshold: float, *, passes: int = _PASSES) -> I64:
    """DP-means (Kulis and Jordan, 2012) with the penalty ``2 - 2 threshold``, first pass online.

    A row opens a cluster when its squared distance to every mean exceeds the penalty, which for
    unit vectors is a cosine below the threshold; further passes assign and average again.

    Examples
    --------
    >>> dp_means(np.array([[1, 0], [0, 1], [1, 0.1]], np.float32), 0.9).tolist()
    [0, 1, 0]
    """
    wide = rows.astype(np.float64)
    penalty = 2.0 - 2.0 * threshold
    labels, centres = _first_pass(wide, penalty)
    for _ in range(passes - 1):
        before = labels
        labels, centres = _means_of(wide, _assign_to(wide, centres, penalty))
        if (labels == before).all():
            break
    return labels


def _first_pass(wide: F64, penalty: float) -> tuple[I64, F64]:
    """Each row joins the nearest mean, which moves at once, or opens a cluster."""
    norms = (wide**2).sum(axis=1)
    centres = np.empty_like(wide)
    squares, sizes = np.empty(len(wide)), np.zeros(len(wide))
    labels: I64 = np.empty(len(wide), np.int64)
    count = 0
    for i, row in enumerate(wide):
        nearest = -1
        if count:
            distance = squares[:count] - 2.0 * (centres[:count] @ row)
            nearest = int(distance.argmin())
        if nearest < 0 or distance[nearest] + norms[i] > penalty:
            nearest = count
            count += 1
            centres[nearest], sizes[nearest], squares[nearest] = row, 1.0, norms[i]
        else:
            sizes[nearest] += 1.0
            centres[nearest] += (row - centres[nearest]) / sizes[nearest]
            squares[nearest] = centres[nearest] @ centres[nearest]
        labels[i] = nearest
    return _means_of(wide, labels)


def _assign_to(wide: F64, centres: F64, penalty: float) -> I64:
    """Assign rows in turn to means that stand still; only what is opened on the way is added."""
    distance = (centres**2).sum(axis=1) - 2.0 * (wide @ centres.T)
    labels: I64 = distance.argmin(axis=1)
    norms = (wide**2).sum(axis=1)
    least = distance[np.arange(len(wide)), labels] + norms
    count = len(centres)
    for i in range(len(wide)):
        if least[i] > penalty:  # opens a cluster, which is there for the rows that follow
            to_new = norms[i] - 2.0 * (wide[i:] @ wide[i]) + norms[i:]
            to_new[0] = 0.0
            closer = i + np.flatnonzero(to_new < least[i:])
            labels[closer], least[closer] = count, to_new[closer - i]
            count += 1
    return labels


def _means_of(wide: F64, labels: I64) -> tuple[I64, F64]:
    """Number the clusters that somebody is in, and average each."""
    names, labels = np.unique(labels, return_inverse=True)
    grouped = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[grouped], np.arange(names.size))
    sums = np.add.reduceat(wide[grouped], starts, axis=0)
    return labels, sums / np.bincount(labels)[:, None]

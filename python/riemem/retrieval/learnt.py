"""What an index learnt from many vectors, as a segment of the store, and back."""

from __future__ import annotations

import sqlite3

import numpy as np
import numpy.typing as npt

from riemem._fused import Constants
from riemem._gaussian import Moments
from riemem.index import Learnt
from riemem.store.segments import Segment, pack, read_segments, unpack

__all__ = ["learnt_segment", "read_learnt"]

Ids = npt.NDArray[np.int64]


def learnt_segment(learnt: Learnt, keys: Ids, owners: Ids, made_with: str) -> Segment:
    """Put what was learnt into the form that the store keeps.

    Parameters
    ----------
    learnt : Learnt
    keys, owners : (n,) int64 ndarray
        Of each vector its key and its memory's id.
    made_with : str
        Options of the metric and the score.
    """
    moments, constants = learnt.moments, learnt.constants
    lower = np.tril_indices(moments.shift.size)
    arrays = {
        "numbers": np.array(
            [learnt.rows, learnt.count, moments.n, keys[-1], learnt.whitening], np.int64
        ),
        "shift": moments.shift,
        "total": moments.total,
        "scatter": moments.scatter[lower],
    }
    arrays |= {name: values for name, values in constants._asdict().items() if values is not None}
    data = pack(arrays, {"made_with": [made_with]})
    return Segment(int(owners[0]), int(owners[-1]), np.unique(owners).size, data)


def read_learnt(
    connection: sqlite3.Connection, profile: str, made_with: str
) -> list[tuple[int, Learnt]]:
    """Return what the store keeps of a profile, with the key of the last vector it is about."""
    found = []
    for segment in read_segments(connection, profile, "metric"):
        arrays, names = unpack(segment.data)
        if names["made_with"] != [made_with]:
            continue
        rows, count, n, key, whitening = arrays["numbers"].tolist()
        dim = arrays["shift"].size
        scatter = np.zeros((dim, dim))
        scatter[np.tril_indices(dim)] = arrays["scatter"]
        moments = Moments(n, arrays["shift"].copy(), arrays["total"].copy(), scatter)
        constants = Constants(arrays["inv_norms"], arrays.get("scale"), arrays.get("bias"))
        found.append((key, Learnt(rows, moments, count, constants, whitening)))
    return found

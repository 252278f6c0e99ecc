"""Which turns stand beside which in their sessions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["REACH", "Beside", "beside"]

Ids = npt.NDArray[np.int64]

#: How far neighbours are known, in turns.
REACH = 3


class Beside(NamedTuple):
    """Neighbours in sessions, by row; n rows.

    Attributes
    ----------
    before, after : tuples of (n,) int32 ndarrays
        The row 1, 2, ... turns earlier and later in the session; n where there is none.
    lane : (m,) int64 ndarray
        The rows of all sessions in a line, each session in order of time; n at both ends and in
        REACH places between two sessions, so that no turn has one of another within reach.
    place : (n,) int64 ndarray
        Where in the lane each row stands; for a row in no session a place with nothing in reach.
    """

    before: tuple[npt.NDArray[np.int32], ...]
    after: tuple[npt.NDArray[np.int32], ...]
    lane: Ids
    place: Ids


def beside(order: Ids, sessions: npt.NDArray[np.int32], n: int) -> Beside:
    """Find the neighbours.

    Parameters
    ----------
    order : (r,) int64 ndarray
        The rows that are in sessions, session by session and in order of time.
    sessions : (r,) int32 ndarray
        The session of each of them.
    n : int
        How many rows there are.

    Examples
    --------
    >>> found = beside(np.array([2, 0, 1]), np.array([5, 5, 8], np.int32), 4)
    >>> found.before[0].tolist(), found.after[0].tolist()
    ([2, 4, 4, 4], [4, 4, 0, 4])
    >>> found.lane[found.place].tolist()
    [0, 1, 2, 4]
    """
    before, after = [], []
    for distance in range(1, REACH + 1):
        earlier, later = np.full(n, n, np.int32), np.full(n, n, np.int32)
        same = sessions[distance:] == sessions[:-distance]
        left, right = order[:-distance][same], order[distance:][same]
        earlier[right], later[left] = left, right
        before.append(earlier)
        after.append(later)
    number = np.zeros(order.size, np.int64)
    np.cumsum(sessions[1:] != sessions[:-1], out=number[1:])
    own = np.arange(order.size) + REACH * (number + 1)
    last = int(own[-1]) if own.size else 0
    lane = np.full(last + 2 * REACH + 2, n, np.int64)
    lane[own] = order
    place = np.full(n, last + REACH + 1, np.int64)
    place[order] = own
    return Beside(tuple(before), tuple(after), lane, place)

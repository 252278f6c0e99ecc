"""What the headers of a document cost in the caller's tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .document import Document
from .order import OpeningCosts
from .protect import Kind

__all__ = ["opening_costs"]


def opening_costs(
    document: Document, count: Callable[[str], int], *, headers: bool = True
) -> OpeningCosts:
    """Return the tokens of names and dates, counted once for each different one.

    Parameters
    ----------
    document : Document
        A plain text has lines with labels for turns, and no sessions.
    count : callable
        The caller's counter.
    headers : bool
        False: they cost nothing.
    """
    size = len(document.units)
    if document.plain:
        blocks = int(document.line_of[-1]) + 1 if size else 0
        costs = np.zeros(blocks)
        if headers:
            costs += 1.0  # the line break
            for unit in np.flatnonzero(document.kinds & Kind.LABEL):
                costs[document.line_of[unit]] += 1.0
        return OpeningCosts(document.line_of, np.zeros(size, np.int64), costs.tolist(), [0.0])
    names: dict[str | None, float] = {}
    days: dict[str, float] = {}
    blocks_cost: list[float] = []
    sessions: list[float] = []
    session_number: list[int] = []
    groups: dict[tuple[str, str | None], int] = {}
    for piece in document.pieces:
        if piece.speaker not in names:
            label = "\n- " if piece.speaker is None else f"\n{piece.speaker}: "
            names[piece.speaker] = float(count(label)) if headers else 0.0
        blocks_cost.append(names[piece.speaker])
        day = piece.when[:10] if piece.when else "undated"
        if day not in days:
            days[day] = float(count(f"\n# {day}")) if headers else 0.0
        group = (day, piece.session)
        if group not in groups:
            groups[group] = len(sessions)
            sessions.append(days[day])
        session_number.append(groups[group])
    session_of = np.array(session_number, np.int64)[document.piece_of]
    return OpeningCosts(document.piece_of, session_of, blocks_cost, sessions)

"""When what memories say holds: the third of their dates, given as valid_from and valid_to."""

from __future__ import annotations

from datetime import MAXYEAR, date
from typing import NamedTuple

import numpy as np

from riemem.retrieval.channel import Ids
from riemem.retrieval.corpus import CorpusView, day_of
from riemem.store import Store
from riemem.store.sqlite import has_table

__all__ = ["Valid", "valid_times"]

_FIRST, _LAST = 1, date(MAXYEAR, 12, 31).toordinal()


class Valid(NamedTuple):
    """Row, first day and last day (proleptic ordinals) of every memory that has such a time."""

    rows: Ids
    first: Ids
    last: Ids


def valid_times(store: Store, view: CorpusView) -> Valid:
    """Return the valid times of the living rows; an open end reaches as far as the calendar.

    The end does not belong to the time: "until midnight of the first of May" ends with April.
    """
    found: list[tuple[int, int | None, int | None]] = []
    with store.reading() as connection:
        if has_table(connection, "provenance"):
            found = connection.execute(
                "SELECT memory_id, valid_from, valid_to FROM provenance "
                "WHERE valid_from IS NOT NULL OR valid_to IS NOT NULL ORDER BY memory_id"
            ).fetchall()
    living = np.flatnonzero(view.alive)
    row_of = dict(zip(view.ids[living].tolist(), living.tolist(), strict=True)) if found else {}
    spans = [
        (
            row_of[memory_id],
            _FIRST if start is None else day_of(start).toordinal(),
            _LAST if end is None else day_of(end - 1).toordinal(),
        )
        for memory_id, start, end in found
        if memory_id in row_of
    ]
    rows, first, last = np.array(spans, np.int64).reshape(-1, 3).T
    return Valid(rows, first, last)

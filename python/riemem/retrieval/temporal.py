"""The temporal channel: what was said, or spoken of, at the time a question names.

A memory has three dates: the day on which it was said, the days it speaks of (relative expressions
resolved against the day it was said), and from when to when it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

import numpy as np

from riemem.retrieval.corpus import CorpusView, Floats
from riemem.retrieval.dates import Span, asks_for_time, find_dates
from riemem.retrieval.valid import Valid

__all__ = ["Temporal", "temporal_scores", "time_word_scores"]

_SPREAD_DAYS = 30.0


@dataclass(frozen=True)
class Temporal:
    """Scores in [0, 1] per row, what could not be done, and the days the question names."""

    scores: Floats
    notes: tuple[str, ...]
    spans: tuple[Span, ...]


def temporal_scores(
    query: str,
    view: CorpusView,
    at: date | None = None,
    valid: Callable[[], Valid] | None = None,
) -> Temporal:
    """Score by distance in days from the time that a question names.

    ``exp(-d^2 / (2 30^2))``, d = days between the nearest of the question's days and the nearest
    of the memory's: the day it was said, the days it speaks of, and the time for which it holds.
    All 0 where the question names no time.

    Parameters
    ----------
    query : str
    view : CorpusView
    at : date, optional
        The day of the question, for "yesterday" in it.
    valid : callable, optional
        Gives the times for which memories hold, where the question names a time.

    Raises
    ------
    BackendUnavailableError
        python-dateutil is not installed.

    Notes
    -----
    SLM-V3 (arXiv 2603.14588), section 4.2, channel 4. A month without a year means that month of
    every year in which something was said.
    """
    nothing = view.nothing()
    if not view.alive.any():
        return Temporal(nothing, (), ())
    years = view.cached("years", lambda: _years(view))
    spans, unresolved = find_dates(query[:20_000], at, years=years)
    notes: tuple[str, ...] = ()
    if unresolved:
        notes = (f"temporal: {unresolved[0]!r} in the query needs at= to be a date",)
    if not spans:
        return Temporal(nothing, notes, ())
    days = view.days.astype(np.int64)
    distance = np.full(len(view), np.iinfo(np.int64).max)
    for span in spans:
        own = np.maximum(0, np.maximum(span.first - days, days - span.last))
        distance = np.minimum(distance, own)
    spoken = view.spoken()
    first, last = spoken.first.astype(np.int64), spoken.last.astype(np.int64)
    for span in spans:
        own = np.maximum(0, np.maximum(span.first - last, first - span.last))
        np.minimum.at(distance, spoken.rows, own)
    if valid is not None:
        held = valid()
        for span in spans:
            own = np.maximum(0, np.maximum(span.first - held.last, held.first - span.last))
            np.minimum.at(distance, held.rows, own)
    scores = np.exp(-np.square(distance.astype(np.float64)) / (2.0 * _SPREAD_DAYS**2))
    return Temporal(scores, notes, tuple(spans))


def time_word_scores(query: str, view: CorpusView) -> Floats:
    """1 for memories with a word of time where the question asks when, else 0; shape (n,)."""
    if not asks_for_time(query):
        return view.nothing()
    return view.spoken().mentions.astype(np.float64)


def _years(view: CorpusView) -> tuple[int, int]:
    living = view.days[view.alive]
    return date.fromordinal(int(living.min())).year, date.fromordinal(int(living.max())).year

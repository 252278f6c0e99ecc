"""The channels opening and first_person: where news stands, whatever the question is.

Who opens a session says what is new since the last one, and who speaks of themselves says more
that can be asked for later than who answers ("You really did great!").
"""

from __future__ import annotations

import numpy as np

from riemem.retrieval.corpus import CorpusView, Floats

__all__ = ["first_person_scores", "opening_scores"]


def opening_scores(view: CorpusView) -> Floats:
    """1 for the first turn of each session and for memories in no session, else 0; shape (n,)."""
    return view.cached("opening", lambda: (view.beside.before[0] == len(view)).astype(np.float64))


def first_person_scores(view: CorpusView) -> Floats:
    """Return how much more each memory speaks of its speaker than to somebody else; shape (n,).

    ``(i - y) / (i + y + 1)`` in (-1, 1), i and y = how often English words of the first and second
    person occur in it; 0 in other languages.

    Notes
    -----
    Ours. Counted once for each memory.
    """
    return view.cached("first_person", view.postings.first_person)

"""Profile lookup: "What is Dave's job?" goes straight to what Dave says of himself."""

from __future__ import annotations

import re

import numpy as np

from riemem.retrieval.corpus import CorpusView, Floats, Turn
from riemem.retrieval.names import speaker_scores
from riemem.retrieval.words import STOP_WORDS

__all__ = ["profile_scores"]

_ATTRIBUTE = re.compile(r"['\u2019]s\s+(?:(?:new|old|current|own|favou?rite)\s+)?([^\W\d_]{3,30})")
_SELF = re.compile(
    r"\b(?:I am|I['\u2019]m|I work|I live|I was born|my name|I study|I used to)\b", re.I
)


def profile_scores(query: str, view: CorpusView) -> Floats:
    """Score what a named speaker says of himself; shape (n,).

    1 where he says "my ..." with the attribute that the query asks for, 0.5 where he says what he
    is, does or lives in; 0 where the query does not ask for somebody's something.
    """
    asked = _ATTRIBUTE.search(query[:2000])
    scores = np.zeros(len(view))
    if asked is None or asked[1].casefold() in STOP_WORDS:
        return scores
    mine = speaker_scores(query, view) > 0
    if not mine.any():
        return scores
    statement = view.cached(
        "self", lambda: np.array(view.column("self", _speaks_of_self), np.float64)
    )
    owned = re.compile(rf"\bmy (?:\w+ )?{re.escape(asked[1].casefold())}")
    has = np.array(view.column("lower", _lower), object)
    for row in np.flatnonzero(mine & view.alive):
        if owned.search(has[row]):
            scores[row] = 1.0
        else:
            scores[row] = 0.5 * statement[row]
    return scores


def _speaks_of_self(turn: Turn) -> bool:
    return _SELF.search(turn.text) is not None


def _lower(turn: Turn) -> str:
    return turn.text.casefold()

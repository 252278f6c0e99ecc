"""What a hit is worth where a token budget is filled: long turns crowd out several short ones."""

from __future__ import annotations

import math
from collections.abc import Iterable

from riemem._packed_text import Turn

__all__ = ["worth", "worths"]


def worth(score: float, text: str, weight: float, free: int) -> float:
    """Return ``score - weight log(max(bytes of the text, free) / free)``.

    Parameters
    ----------
    score : float
        Of the default ranking, whose scores are logarithms of probabilities up to a constant.
    text : str
    weight : float
        0 turns it off.
    free : int
        Bytes of UTF-8 up to which length costs nothing: there the shortest turns are not the
        better ones. Bytes, so that it does not depend on whose tokens are counted.

    Notes
    -----
    Ours. With p = exp(score) and a budget in tokens, filling by p / tokens is Dantzig's rule for
    the knapsack, which is weight 1; how much more pays is chosen in bench/fit_brevity.py by
    leaving one conversation out.

    Examples
    --------
    >>> worth(2.0, "short", 3.0, 400), round(worth(2.0, "x" * 800, 3.0, 400), 3)
    (2.0, -0.079)
    """
    if weight == 0.0:
        return score
    size = len(text) if text.isascii() else len(text.encode("utf-8"))
    return score if size <= free else score - weight * math.log(size / free)


def worths(turns: Iterable[Turn], weight: float, free: int) -> dict[int, float]:
    """Return the :func:`worth` of each turn by its id.

    Examples
    --------
    >>> worths([], 3.0, 400)
    {}
    """
    found = {}
    for turn in turns:
        score, text = turn.score, turn.text
        # Of UTF-8 a character takes four bytes at most.
        short = weight == 0.0 or 4 * len(text) <= free
        found[turn.id] = score if short else worth(score, text, weight, free)
    return found

"""Words that one slip of the pen makes of another: for names and words that are misspelt."""

from __future__ import annotations

__all__ = ["LEAST_LETTERS", "slips"]

#: Shorter words are left as they are: too many others are one letter away.
LEAST_LETTERS = 4

_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "\u03b1\u03b2\u03b3\u03b4\u03b5\u03b6\u03b7\u03b8\u03b9\u03ba\u03bb\u03bc\u03bd\u03be\u03bf\u03c0\u03c1\u03c3\u03c4\u03c5\u03c6\u03c7\u03c8\u03c9",
    "".join(map(chr, range(0x430, 0x450))),
)


def slips(word: str) -> set[str]:
    """Return what a word becomes by one letter too few, too many, wrong, or in the wrong order.

    Parameters
    ----------
    word : str
        Lower case.

    Returns
    -------
    set of str
        Without the word itself; empty for short words, numbers and mixed or other scripts.

    Notes
    -----
    About 54 L + 25 words for L Latin letters. Damerau, A technique for computer detection and
    correction of spelling errors, 1964: four of five misspelt words have one such slip.

    Examples
    --------
    >>> "caroline" in slips("carolin"), "melanie" in slips("melaine"), slips("tea")
    (True, True, set())
    """
    letters = set(word)
    alphabet = next((own for own in _ALPHABETS if letters <= set(own)), None)
    if alphabet is None or not LEAST_LETTERS <= len(word) <= 40:
        return set()
    halves = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    found = {left + right[1:] for left, right in halves if right}
    found |= {left + right[1] + right[0] + right[2:] for left, right in halves if len(right) > 1}
    found |= {left + c + right[1:] for left, right in halves if right for c in alphabet}
    found |= {left + c + right for left, right in halves for c in alphabet}
    return found - {word}

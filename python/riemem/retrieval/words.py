"""Words of a text as the lexical channel sees them, in any script.

English words are stemmed by the tokenizer of SQLite's FTS5 (``porter unicode61``), so the stems
here and in the full-text index of a store are the same. Scripts written without spaces give
overlapping character n-grams instead of words.
"""

from __future__ import annotations

import functools
import re
import sqlite3
import sys
import threading
import unicodedata
from collections.abc import Iterable
from itertools import islice

__all__ = ["FIRST_PERSON", "MAX_QUERY_TERMS", "SECOND_PERSON", "STOP_WORDS"]
__all__ += ["Stemmer", "raw_words", "word_places"]

#: Different words of a query that are looked up; the rest of a very long query is left out.
MAX_QUERY_TERMS = 256

_STOP = """
    a about am an and any are as at be been being but by can could did do does doing for from had
    has have having he her hers him his how i if in into is it its me my of on or our ours she
    should so some than that the their them then there these they this those to was we were what
    when where which who whom whose why will with would you your yours s t d ll m re ve
"""

#: English words that say how a question is put and not what it is about. They are indexed, but a
#: query with any other word does not look for them.
STOP_WORDS = frozenset(_STOP.split())

#: Stems of the English words in which somebody speaks of themselves, and of whom they speak to.
FIRST_PERSON = frozenset(["i", "me", "my", "mine", "we", "us", "our"])
SECOND_PERSON = frozenset(["you", "your"])

# Written without spaces, one character about one morpheme: single characters and pairs.
_PAIRED = "\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
_PAIRED += "\U00020000-\U0003134f"
# Written without spaces, alphabetic: Thai, Lao, Myanmar, Khmer.
_TRIPLED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_RUNS = re.compile(f"([{_PAIRED}]+)|([{_TRIPLED}]+)|([^{_PAIRED}{_TRIPLED}]+)")
_ASCII_WORD = re.compile(r"[0-9a-z]+")
_STEMMABLE = re.compile(r"[a-z]{3,60}")


def raw_words(text: str) -> list[str]:
    """Return the words of a text in order, unstemmed: lower case, without accents.

    Parameters
    ----------
    text : str

    Returns
    -------
    list of str
        Runs of letters, digits and combining marks; a run of a script without spaces as its
        characters and pairs of characters (Chinese, Japanese, Korean) or triples (Thai, Lao,
        Myanmar, Khmer).

    Examples
    --------
    >>> raw_words("Zoë's pre-edit of 20.04")
    ['zoe', 's', 'pre', 'edit', 'of', '20', '04']
    >>> raw_words("东京塔")
    ['东', '京', '塔', '东京', '京塔']
    """
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    words: list[str] = []
    for run in _word_pattern().findall(_folded(text)):
        if run.isascii():
            words.append(run)
            continue
        for paired, tripled, other in _RUNS.findall(run):
            if paired:
                words += paired
                words += [paired[i : i + 2] for i in range(len(paired) - 1)]
            elif tripled:
                words += [tripled[i : i + 3] for i in range(max(1, len(tripled) - 2))]
            else:
                words.append(other)
    return words


def query_words(text: str) -> list[str]:
    """Return the different words to look up for a query, at most :data:`MAX_QUERY_TERMS`.

    Single characters of Chinese, Japanese and Korean are looked up only where they stand alone,
    and stop words only where there is nothing else.

    Examples
    --------
    >>> query_words("What did Dave say about the bikes?")
    ['dave', 'say', 'bikes']
    >>> query_words("What is it?")
    ['what', 'is', 'it']
    """
    words: dict[str, None] = {}
    if text.isascii():
        found = dict.fromkeys(_ASCII_WORD.findall(text.lower()))
        words = dict.fromkeys(islice(found, 4 * MAX_QUERY_TERMS + 1))
        text = ""
    for run in _word_pattern().findall(_folded(text)) if text else ():
        for paired, tripled, other in _RUNS.findall(run):
            if len(paired) > 1:
                words.update((paired[i : i + 2], None) for i in range(len(paired) - 1))
            elif tripled:
                words.update((tripled[i : i + 3], None) for i in range(max(1, len(tripled) - 2)))
            else:
                words[paired or other] = None
        if len(words) > 4 * MAX_QUERY_TERMS:
            break
    telling = [word for word in words if word not in STOP_WORDS]
    return (telling or list(words))[:MAX_QUERY_TERMS]


def word_places(text: str) -> list[tuple[int, int, str]]:
    """Return where each run of letters and digits lies in a text, and how a query would write it.

    Unlike :func:`raw_words` it leaves runs of scripts without spaces whole.

    Examples
    --------
    >>> word_places("Zoë's sea")
    [(0, 3, 'zoe'), (4, 5, 's'), (6, 9, 'sea')]
    """
    return [(m.start(), m.end(), _folded(m[0])) for m in _word_pattern().finditer(text)]


class Stemmer:
    """The English stemmer of FTS5 with a memory of what it was asked; safe to share.

    Examples
    --------
    >>> Stemmer()(["running", "bicycles", "42", "日本"])
    ['run', 'bicycl', '42', '日本']
    """

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._lock = threading.Lock()

    def __call__(self, words: Iterable[str]) -> list[str]:
        """Return the stem of each word."""
        asked = list(words)
        known = self._known
        fresh = {w for w in asked if w not in known}
        if fresh:
            with self._lock:
                known.update(_stems(sorted(fresh)))
        return [known[word] for word in asked]


def _stems(words: list[str]) -> dict[str, str]:
    stems = {word: word for word in words}
    english = [word for word in words if _STEMMABLE.fullmatch(word)]
    if english:
        connection = sqlite3.connect(":memory:", isolation_level=None)
        try:
            connection.execute(
                "CREATE VIRTUAL TABLE stems USING fts5 (word, tokenize='porter unicode61')"
            )
            connection.execute("CREATE VIRTUAL TABLE found USING fts5vocab (stems, instance)")
            connection.execute("BEGIN")
            connection.executemany(
                "INSERT INTO stems (rowid, word) VALUES (?, ?)", enumerate(english)
            )
            connection.execute("COMMIT")
            for stem, row in connection.execute("SELECT term, doc FROM found"):
                stems[english[row]] = stem
        finally:
            connection.close()
    return stems


def _folded(text: str) -> str:
    """Lower case, compatibility forms composed, accents of Latin, Greek and Cyrillic removed."""
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(c for c in apart if not "\u0300" <= c <= "\u036f")
    return unicodedata.normalize("NFC", plain)


@functools.cache
def _word_pattern() -> re.Pattern[str]:
    # Vowel signs of many scripts are combining marks, which re's \w leaves out.
    marks = [chr(c) for c in range(0x300, 0x11A00) if unicodedata.category(chr(c)) in ("Mn", "Mc")]
    assert sys.maxunicode == 0x10FFFF
    return re.compile(f"[^\\W_](?:[^\\W_]|[{''.join(marks)}])*")

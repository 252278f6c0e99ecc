"""The lexical channel: exact words, ranked by the BM25 of SQLite's full-text index (FTS5)."""

from __future__ import annotations

import json
import sqlite3
import threading
import unicodedata
from collections.abc import Sequence

from riemem.errors import ArgumentError
from riemem.retrieval.channel import ChannelHits, Ids
from riemem.store import Store

__all__ = ["LexicalChannel", "LexicalIndex", "match_expression"]

#: Words of a query that are looked up; FTS5 limits the size of an expression.
MAX_WORDS = 256

_TOKENIZE = "porter unicode61"


def match_expression(query: str) -> str:
    """Return an FTS5 expression that finds any of the query's words and cannot be misread.

    Words are runs of letters, digits and combining marks; each is quoted, so that nothing a user
    types is taken for an operator or a column.

    Examples
    --------
    >>> match_expression('pre-edit "NOT" a*')
    '"pre" OR "edit" OR "NOT" OR "a"'
    >>> match_expression("?!")
    ''
    """
    spaced = "".join(c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in query)
    words = list({word.casefold(): word for word in reversed(spaced.split())}.values())[::-1]
    return " OR ".join(f'"{word}"' for word in words[:MAX_WORDS])


class LexicalChannel:
    """Search by words in the memories of one profile.

    Parameters
    ----------
    store : Store
    profile : str
    speaker_weight, text_weight, day_weight : float
        Weights of the columns: who said it, what was said, and the date in words.

    Notes
    -----
    BM25 with k1 = 1.2 and b = 0.75, English stemming. The rarity of a word is counted over all
    profiles of the store. Scores are >= 0, larger is better.
    """

    name = "lexical"

    def __init__(
        self,
        store: Store,
        profile: str = "default",
        *,
        speaker_weight: float = 1.0,
        text_weight: float = 1.0,
        day_weight: float = 1.0,
    ) -> None:
        self._store = store
        self._profile = profile
        self._weights = (float(speaker_weight), float(text_weight), float(day_weight))

    def search(
        self, query: str, k: int, allowed: Ids | None = None, *, explain: bool = False
    ) -> ChannelHits:
        """Return the k best memories that share a word with the query.

        Raises
        ------
        ArgumentError
            k is negative.
        """
        expression = match_expression(query)
        if not expression or _checked(k) == 0:
            return ChannelHits(scoring="bm25")
        condition, parameters = _among("memories.id", allowed)
        with self._store.reading() as connection:
            rows = connection.execute(
                "SELECT memories.id, -bm25(memories_fts, ?, ?, ?) AS score FROM memories_fts "
                "JOIN memories ON memories.id = memories_fts.rowid "
                f"WHERE memories_fts MATCH ? AND profile = ? {condition} "
                "ORDER BY score DESC, memories.id LIMIT ?",
                (*self._weights, expression, self._profile, *parameters, k),
            ).fetchall()
        return ChannelHits(((int(i), float(score)) for i, score in rows), scoring="bm25")


class LexicalIndex:
    """The same search over a list of texts, in memory; results are positions in the list.

    Parameters
    ----------
    texts : sequence of str
    tokenize : str
        Tokenizer of FTS5.

    Examples
    --------
    >>> [i for i, _ in LexicalIndex(["red bicycle", "tax form"]).search("bicycles", 5)]
    [0]
    """

    def __init__(self, texts: Sequence[str], tokenize: str = _TOKENIZE) -> None:
        if "'" in tokenize:
            raise ArgumentError(f"tokenize: expected the name of a tokenizer, got {tokenize!r}")
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False
        )
        self._connection.execute(
            f"CREATE VIRTUAL TABLE texts USING fts5 (text, content='', tokenize='{tokenize}')"
        )
        self._connection.execute("BEGIN")
        self._connection.executemany(
            "INSERT INTO texts (rowid, text) VALUES (?, ?)", list(enumerate(texts, start=1))
        )
        self._connection.execute("COMMIT")

    def search(
        self, query: str, k: int, allowed: Ids | None = None, *, explain: bool = False
    ) -> ChannelHits:
        """Return the k best positions; parameters as :meth:`LexicalChannel.search`."""
        expression = match_expression(query)
        if not expression or _checked(k) == 0:
            return ChannelHits(scoring="bm25")
        condition, parameters = _among("rowid - 1", allowed)
        with self._lock:
            rows = self._connection.execute(
                "SELECT rowid - 1, -bm25(texts) AS score FROM texts "
                f"WHERE texts MATCH ? {condition} ORDER BY score DESC, rowid LIMIT ?",
                (expression, *parameters, k),
            ).fetchall()
        return ChannelHits(((int(i), float(score)) for i, score in rows), scoring="bm25")

    def close(self) -> None:
        """Free the memory."""
        self._connection.close()

    def __enter__(self) -> LexicalIndex:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _among(column: str, allowed: Ids | None) -> tuple[str, list[str]]:
    if allowed is None:
        return "", []
    return (
        f"AND {column} IN (SELECT value FROM json_each(?))",
        [json.dumps([int(i) for i in allowed])],
    )


def _checked(k: int) -> int:
    # A negative LIMIT means "no limit" to SQLite.
    if k < 0:
        raise ArgumentError(f"k: expected an int >= 0, got {k}")
    return k

"""The late channel: the words of a question compared one by one with those of the best memories.

"When did Ana adopt the puppy?" and "we brought him home from the shelter" share no word, and as
wholes they are not near; "adopt" and "shelter" are. What a turn leaves out the turn beside it
often says, so each word also finds its match there, for a little less. After ColBERT (Khattab and
Zaharia, 2020), which compares with the passage alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from riemem.retrieval.channel import Ids
from riemem.retrieval.corpus import CorpusView, Floats
from riemem.retrieval.fusion import Fused, Ranking
from riemem.retrieval.names import named_words
from riemem.retrieval.narrowing import top
from riemem.retrieval.token_rows import DIMS, SCALE, Tokens, read_rows, token_rows
from riemem.store import Store
from riemem.store.token_vectors import token_rows_of

__all__ = ["NEAR", "compare", "late_scores", "maxima", "question_rows"]

#: How many turns before and after a turn its words are looked for.
NEAR = 2

Bytes = npt.NDArray[np.int8]


def compare(
    query: str,
    tokens: Tokens | None,
    first: tuple[Ranking, Fused],
    view: CorpusView,
    channels: dict[str, Floats],
    store: Store,
) -> list[str]:
    """Put the channel's score of every row into `channels`, or return why there is none.

    Parameters
    ----------
    query : str
    tokens : TokenVectors or None
        Of the query, or of its beginning.
    first : (Ranking, Fused)
        What the other channels give together, and by which ranking.
    view : CorpusView
    channels : dict of str to (n,) float64 ndarray
        "late" is set: 0 for what was not compared; see :func:`late_scores`.
    store : Store

    Notes
    -----
    Reads what it compares and nothing else, by one statement.
    """
    if tokens is None:
        return ["late: the embedder gives no vectors of tokens"]
    question = question_rows(query, tokens, view)
    if not len(question):
        return ["late: the query has no word to compare"]
    rule, fused = first
    best = fused.rows[top(fused.scores, view.ids[fused.rows], rule.late[0])]
    with store.reading() as connection:
        texts = token_rows_of(connection, view.ids[best].tolist())
    channels["late"] = np.zeros(len(view))
    channels["late"][best] = late_scores(question, texts, view, best, rule.late[1])
    return []


def question_rows(query: str, tokens: Tokens, view: CorpusView) -> Bytes:
    """Return the rows of a question's words without the speakers that it names.

    Who said it is for the channel "names"; the vectors of names are near to each other.
    """
    return read_rows(token_rows(query, tokens, without=named_words(query, view)))


def maxima(question: Bytes, texts: Sequence[bytes]) -> Floats:
    """Return the largest product of each row of a question with the rows of each text.

    Parameters
    ----------
    question : (m, DIMS) int8 ndarray
    texts : sequence of n bytes
        As :func:`riemem.retrieval.token_rows.token_rows` returns them.

    Returns
    -------
    (m, n) float64 ndarray
        Whole numbers; -inf for a text without rows.

    Notes
    -----
    O(m t DIMS) for t rows in all. A product is at most ``64 * 127^2 < 2^24``: single precision
    adds it up without rounding, in any order.

    Examples
    --------
    >>> row = np.zeros((1, DIMS), np.int8)
    >>> row[0, :2] = 100, 10
    >>> maxima(row, [row.tobytes() + bytes(DIMS), b""]).tolist()
    [[10100.0, -inf]]
    """
    found = np.full((len(question), len(texts)), -np.inf)
    counts = np.array([len(text) for text in texts], np.int64) // DIMS
    own = np.flatnonzero(counts)
    if own.size and len(question):
        rows = read_rows(b"".join(texts)).astype(np.float32)
        products = rows @ question.astype(np.float32).T
        starts = (np.cumsum(counts) - counts)[own]
        found[:, own] = np.maximum.reduceat(products, starts, axis=0).T
    return found


def late_scores(
    question: Bytes, texts: Mapping[int, bytes], view: CorpusView, rows: Ids, beside: float
) -> Floats:
    """Score some rows by how near each word of a question comes to a word in or beside them.

    ``s_i = mean over words q of max(m_qi, beside * m_qj for turns j up to NEAR before or after i)``
    with ``m_qi = max over tokens t of i of q . t``, of the rows that are compared; returned is
    s_i less the smallest of them.

    Parameters
    ----------
    question : (m, DIMS) int8 ndarray
    texts : mapping of int to bytes
        By memory id; what is missing or empty is neutral: the mean of the others.
    view : CorpusView
    rows : (c,) int64 ndarray
        What is compared, in any order; a turn that is not among them lends nothing.
    beside : float
        What a word beside a turn counts, in [0, 1].

    Returns
    -------
    (c,) float64 ndarray
        At least 0, so that what was not compared comes after what was.

    Notes
    -----
    The whole numbers of :func:`maxima` make it the same on every machine, in any order of rows.
    """
    ids = view.ids[rows]
    own = maxima(question, [texts.get(i, b"") for i in ids.tolist()])
    has = np.isfinite(own[0]) if len(own) else np.zeros(rows.size, np.bool_)
    if not has.any():
        return np.zeros(rows.size)
    place = np.full(len(view) + 1, rows.size, np.int64)  # the last for no such turn
    place[rows] = np.arange(rows.size)
    lent = np.append(beside * own, np.full((len(own), 1), -np.inf), axis=1)
    best = own
    for near in (*view.beside.before[:NEAR], *view.beside.after[:NEAR]):
        best = np.maximum(best, lent[:, place[near[rows]]])
    scores = best.sum(axis=0)[has] / (len(own) * SCALE**2)
    values = np.empty(rows.size)
    values[has] = scores
    # Summed by id: in whatever order the rows came.
    values[~has] = scores[np.argsort(ids[has])].mean()
    values -= scores.min()
    return values

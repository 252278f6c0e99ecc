"""The late channel: the words of a question compared one by one with those of the best memories.

"When did Ana adopt the puppy?" and "we brought him home from the shelter" share no word, and as
wholes they are not near; "adopt" and "shelter" are. What a turn leaves out the turn beside it
often says, so each word also finds its match there, for a little less. After ColBERT (Khattab and
Zaharia, 2020), which compares with the passage alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from riemem import _backend
from riemem.retrieval.channel import Ids
from riemem.retrieval.corpus import CorpusView, Floats, Mask
from riemem.retrieval.fusion import Fused, Ranking, fuse
from riemem.retrieval.names import named_words
from riemem.retrieval.narrowing import top
from riemem.retrieval.token_rows import ROW_BYTES, UNIT, Tokens, read_rows, told_rows
from riemem.store.records import shown_ids

__all__ = ["NEAR", "compare", "in_new_order", "late_scores", "maxima", "question_rows"]

#: How many turns before and after a turn its words are looked for.
NEAR = 2

_BESIDE = np.array([d for d in range(-NEAR, NEAR + 1) if d])

Bytes = npt.NDArray[np.int8]


def compare(
    query: str,
    tokens: Tokens | None,
    first: Fused,
    options: tuple[int, float],
    view: CorpusView,
    channels: dict[str, Floats],
    read: Callable[[list[int]], Mapping[int, bytes]],
) -> tuple[Ids | None, list[str]]:
    """Put the channel's score of every row into `channels`, or return why there is none.

    Parameters
    ----------
    query : str
    tokens : TokenVectors or None
        Of the query, or of its beginning.
    first : Fused
        What finds the memories that are compared.
    options : (int, float)
        How many of the best are, and what a word beside a turn counts.
    view : CorpusView
    channels : dict of str to (n,) float64 ndarray
        "late" is set: 0 for what was not compared; see :func:`late_scores`.
    read : callable
        Returns the token rows of memories; called once.

    Returns
    -------
    (c,) int64 ndarray or None
        The positions in `first` of what was compared, ascending; None where nothing could be.
    list of str
        Why not.

    Notes
    -----
    Reads what it compares and nothing else.
    """
    if tokens is None:
        return None, ["late: the embedder gives no vectors of tokens"]
    question = question_rows(query, tokens, view)
    if not len(question):
        return None, ["late: the query has no word to compare"]
    best = np.sort(top(first.scores, view.ids[first.rows], options[0]))
    rows = first.rows[best]
    texts, notes = read(view.ids[rows].tolist()), []
    damaged = sorted(i for i, row in texts.items() if len(row) % ROW_BYTES)
    if damaged:
        notes.append(
            f"late: the token vectors of {shown_ids(damaged)} are damaged; riemem check --repair"
        )
        texts = {i: row for i, row in texts.items() if i not in damaged}
    if not any(texts.values()):
        return None, [*notes, "late: none of the memories found has vectors of tokens"]
    channels["late"] = np.zeros(len(view))
    channels["late"][rows] = late_scores(question, texts, view, rows, options[1])
    return best, notes


def question_rows(query: str, tokens: Tokens, view: CorpusView) -> Bytes:
    """Return the rows of a question's words without the speakers that it names.

    Who said it is for the channel "names"; the vectors of names are near to each other.
    """
    return told_rows(query, tokens, without=named_words(query, view))


def maxima(question: Bytes, texts: Sequence[bytes]) -> Floats:
    """Return the largest product of each row of a question with the rows of each text.

    ``max over rows b of sum over j of q_j (2 b_j - 1)``, b_j = bit j.

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
    O(m t DIMS) for t rows in all.

    Examples
    --------
    >>> row = np.zeros((1, 512), np.int8)
    >>> row[0, :2] = 100, 10
    >>> maxima(row, [bytes([1]) + bytes(63), b""]).tolist()
    [[90.0, -inf]]
    """
    counts = np.fromiter(map(len, texts), np.int64, len(texts)) // ROW_BYTES
    found = _backend.core.max_sim(question, read_rows(b"".join(texts)), counts).astype(np.float64)
    if not counts.all():
        found[:, counts == 0] = -np.inf
    return found


def late_scores(
    question: Bytes, texts: Mapping[int, bytes], view: CorpusView, rows: Ids, beside: float
) -> Floats:
    """Score some rows by how near each word of a question comes to a word in or beside them.

    ``s_i = mean over words q of max(m_qi, beside * m_qj for turns j up to NEAR before or after i)``
    with ``m_qi = max over tokens t of i of q . sign(t) / UNIT``, nearly their cosine, of the rows
    that are compared; returned is s_i less the smallest of them.

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
    order = np.argsort(rows)
    near = view.beside.lane[view.beside.place[rows][:, None] + _BESIDE]
    place = order[np.minimum(np.searchsorted(rows, near, sorter=order), rows.size - 1)]
    place[rows[place] != near] = rows.size  # the last for no such turn
    lent = np.empty((len(own), rows.size + 1))
    lent[:, -1] = -np.inf
    np.multiply(own, beside, out=lent[:, :-1])
    best = np.maximum(own, lent[:, place].max(axis=2))
    values: Floats = best.sum(axis=0) / (len(own) * UNIT)
    least = values[has].min()
    if not has.all():
        # Summed by id: in whatever order the rows came.
        values[~has] = values[has][np.argsort(ids[has])].mean()
    values -= least
    return values


def in_new_order(
    first: Fused,
    best: Ids,
    ranking: Ranking,
    channels: Mapping[str, Floats],
    view: CorpusView,
    passes: Mask,
    kind: str,
) -> Fused:
    """Give the best of a first ranking the scores of a second, and the rest its place behind.

    Parameters
    ----------
    first : Fused
    best : (c,) int64 ndarray
        Their positions in it, ascending; no other has a larger score.
    ranking : Ranking
        The second; other parameters as for :func:`riemem.retrieval.fusion.fuse`.

    Returns
    -------
    Fused
        Of all rows of `first`. From the scores of the rest so much is taken, as their share of
        "late", that none is above the least of the best.
    """
    second = fuse(ranking, channels, view, passes, kind, first.rows[best])
    if best.size == first.rows.size:  # ascending, so all of them as they are
        return second
    least = float(second.scores.min())
    behind = max(0.0, float(first.scores[best].min()) - least)

    def joined(rest: Floats, own: Floats) -> Floats:
        both = rest.copy()
        both[best] = own
        return both

    zero, none = np.zeros(first.rows.size), np.zeros(best.size)
    shares = {
        name: joined(first.shares.get(name, zero), second.shares.get(name, none))
        for name in {**second.shares, **first.shares}
        if name != "late"
    }
    shares["late"] = joined(zero - behind, second.shares.get("late", none))
    rest = np.minimum(first.scores - behind, least)  # whichever way the difference was rounded
    return Fused(first.rows, joined(rest, second.scores), shares)

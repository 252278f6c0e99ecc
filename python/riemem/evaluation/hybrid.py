"""Measuring the joined search: every channel alone, every one left out, every ranking."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..embed import Embedder, TokenEmbedder, TokenVectors
from ..memory import Memory
from ..retrieval.embedding import DEFAULT_RENDERING, TurnEmbedder
from ..retrieval.fusion import CHANNELS, Ranking, rankings
from ..retrieval.hybrid import Gathered, HybridChannel
from ..retrieval.narrowing import top
from ..store import Store
from .locomo import Conversation

BUDGETS: tuple[int, ...] = (500, 1000, 2000)
"""Token budgets in which evidence is looked for."""

_EVERYTHING = 10**6
_WHEN = "%I:%M %p on %d %B, %Y"
_ISO = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class KnownVectors:
    """An embedder that has already seen what it will be asked; anything else goes to `model`."""

    model: Embedder
    known: Mapping[str, NDArray[np.float32]]
    tokens: Mapping[str, TokenVectors] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """That of `model`."""
        return self.model.identity

    @property
    def dim(self) -> int:
        """That of `model`."""
        return self.model.dim

    @property
    def max_tokens(self) -> int:
        """That of `model`."""
        return self.model.max_tokens

    @property
    def tokens_by_default(self) -> bool:
        """Whether any are known."""
        return bool(self.tokens)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the known vectors, and the model's for texts that are not known."""
        fresh = [text for text in texts if text not in self.known]
        made = dict(zip(fresh, self.model.embed(fresh), strict=True)) if fresh else {}
        rows = [self.known[text] if text in self.known else made[text] for text in texts]
        return np.array(rows, np.float32).reshape(len(texts), self.dim)

    def embed_with_tokens(
        self, texts: Sequence[str]
    ) -> tuple[NDArray[np.float32], list[TokenVectors]]:
        """Return the known vectors and tokens, and the model's for texts that are not known."""
        fresh = [text for text in texts if text not in self.tokens]
        made: dict[str, TokenVectors] = {}
        if fresh:
            assert isinstance(self.model, TokenEmbedder)
            made = dict(zip(fresh, self.model.embed_with_tokens(fresh)[1], strict=True))
        found = [self.tokens[text] if text in self.tokens else made[text] for text in texts]
        return self.embed(texts), found

    def windows(self, text: str) -> Sequence[str]:
        """Return a known text whole, as it was embedded."""
        return [text] if text in self.known else self.model.windows(text)


def remember(
    conversation: Conversation, embedder: Embedder, rendering: str = DEFAULT_RENDERING
) -> Memory:
    """Store a conversation's turns in a memory of their own; turn i gets the id i + 1.

    Every turn is said at the instant of its session, as the file says no more.
    """
    memory = Memory(Store.open(":memory:"), TurnEmbedder(embedder, rendering), "default")
    memory.add_many(
        {
            "text": turn.text if turn.text.strip() else "(picture)",
            "speaker": turn.speaker,
            "session": f"session_{turn.id[0]}",
            "when": instant(turn.when),
            "metadata": {"caption": turn.caption} if turn.caption else None,
        }
        for turn in conversation.turns
    )
    return memory


def instant(when: str | None) -> str:
    """Return LoCoMo's "1:56 pm on 8 May, 2023" as ISO 8601; the epoch where there is none.

    Examples
    --------
    >>> instant("1:56 pm on 8 May, 2023")
    '2023-05-08T13:56:00+00:00'
    """
    if when is None:
        return "1970-01-01T00:00:00+00:00"
    if _ISO.match(when):
        return when
    try:
        moment = datetime.strptime(when.strip(), _WHEN)
    except ValueError:
        return "1970-01-01T00:00:00+00:00"
    return moment.replace(tzinfo=timezone.utc).isoformat()


def default_ranking(*, late: bool) -> Ranking:
    """What "default" means to a memory that keeps token vectors, or that keeps none."""
    return rankings["late-interaction" if late else "default"]


def variants(names: Sequence[str] | None = None, *, late: bool = False) -> dict[str, Ranking]:
    """Return what is measured: channels alone, the default without each, every ranking.

    With `late` the default is that of a store that keeps token vectors; "without late" is that of
    one that keeps none.

    Examples
    --------
    >>> [name for name in variants() if name.startswith("only")][:2]
    ['only dense', 'only lexical']
    """
    default = default_ranking(late=late)
    own = [name for name in CHANNELS if name in default.weights]
    chosen: dict[str, Ranking] = {}
    for name in ("dense", "lexical", "names", "temporal", "entities", "profile"):
        chosen[f"only {name}"] = Ranking(name, {name: 1.0})
    for name in own:  # what is left out is left out of what comes before, too
        chosen[f"without {name}"] = default.without(name)
    chosen["without neighbours"] = default.changed(kernel={}, answers=0.0)
    chosen["without answers"] = default.changed(answers=0.0)
    chosen["without brevity"] = default.changed(brevity=(0.0, 1))
    for name in ("half", "slm-v3"):
        chosen[name] = rankings[name]
    chosen["default"] = default
    if names is not None:
        chosen = {name: chosen[name] for name in names}
    return chosen


def score_all(memory: Memory, query: str, ranking: Ranking) -> NDArray[np.float64]:
    """Return the score of every row (id - 1) of a memory from which nothing was taken out."""
    channel = memory._channel(memory.profile)
    gathered = channel.gather(query, ranking, k=_EVERYTHING)
    joined = HybridChannel.join(query, ranking, gathered)
    scores = np.empty(joined.rows.size)
    scores[gathered.view.ids[joined.rows] - 1] = joined.scores
    return scores


class Ranked(list[int]):
    """Rows, best first; `packing` is the order in which they would fill a token budget.

    Examples
    --------
    >>> Ranked([2, 0, 1]).packing
    [2, 0, 1]
    """

    def __init__(self, rows: Iterable[int], packing: list[int] | None = None) -> None:
        super().__init__(rows)
        self.packing: list[int] = list(self) if packing is None else packing


def rank_all(
    memory: Memory,
    queries: Sequence[str],
    chosen: Mapping[str, Ranking],
    texts: Sequence[str] | None = None,
) -> dict[str, list[list[int]]]:
    """Return, by variant, for every query all rows (id - 1), best first, as :class:`Ranked`.

    Parameters
    ----------
    memory : Memory
    queries : sequence of str
    chosen : mapping of str to Ranking
    texts : sequence of str, optional
        Of the rows, for rankings that mind the length of a turn where they fill a budget.
    """
    found: dict[str, list[list[int]]] = {name: [] for name in chosen}
    sizes = None if texts is None else np.array([len(t.encode("utf-8")) for t in texts], np.float64)
    channel = memory._channel(memory.profile)
    for query in queries:
        known: dict[tuple[Any, ...], Gathered] = {}
        for name, ranking in chosen.items():
            # The channel "likeness" depends on all the others and their weights.
            whole = replace(ranking, name="", brevity=(0.0, 1))
            alike = whole if "likeness" in ranking.weights else None
            key = (
                ranking.dense,
                ranking.k1,
                ranking.b,
                tuple(sorted(ranking.weights)),
                repr(alike),
                ranking.superseded,
            )
            if key not in known:
                known[key] = channel.gather(query, ranking)
            gathered = known[key]
            joined = HybridChannel.join(query, ranking, gathered)
            joined = HybridChannel.in_order(gathered, joined)
            ids = gathered.view.ids[joined.rows]
            rows = (ids[top(joined.scores, ids, ids.size)] - 1).tolist()
            weight, free = ranking.brevity
            packing = None
            if weight > 0.0 and sizes is not None:
                worth = joined.scores - weight * np.log(np.maximum(sizes[ids - 1], free) / free)
                packing = (ids[top(worth, ids, ids.size)] - 1).tolist()
            found[name].append(Ranked(rows, packing))
    return found


def evidence_inside(
    ranking: Sequence[int], gold: Sequence[int], tokens: Sequence[int], budget: int
) -> float:
    """Return the share of the right rows among those that fit into a token budget.

    Rows are taken in order of rank, of a :class:`Ranked` in that of its `packing`; one that does
    not fit is left out and the next is tried.

    Parameters
    ----------
    ranking : sequence of int
    gold : sequence of int
    tokens : sequence of int
        Tokens of each row.
    budget : int

    Examples
    --------
    >>> evidence_inside([2, 0, 1], gold=[0, 1], tokens=[60, 30, 50], budget=80)
    0.5
    """
    left, inside = budget, set()
    smallest = min(tokens, default=0)
    for row in getattr(ranking, "packing", ranking):
        if tokens[row] <= left:
            left -= tokens[row]
            inside.add(row)
        if left < smallest:
            break
    return sum(row in inside for row in gold) / len(gold)


def in_recall(
    memory: Memory, query: str, gold: Sequence[int], ranking: str | Ranking = "default"
) -> list[float]:
    """Return the share of the right rows in what ``Memory.recall`` packs into each budget.

    Budgets are :data:`BUDGETS`, in the default counter's tokens, of the whole text.
    """
    shares = []
    for budget in BUDGETS:
        context = memory.recall(query, token_budget=budget, ranking=ranking)
        found = {hit.id - 1 for hit in context.hits}
        shares.append(sum(row in found for row in gold) / len(gold))
    return shares


def turn_tokens(conversation: Conversation, count: Callable[[str], int]) -> list[int]:
    """Tokens of each turn as a line of a context, without the header of its session."""
    lines = []
    for turn in conversation.turns:
        caption = f" [shares {turn.caption}]" if turn.caption else ""
        lines.append(count(f"{turn.speaker}: {turn.text}{caption}\n"))
    return lines

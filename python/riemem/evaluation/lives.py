"""Measuring what use teaches and what falling asleep costs, on the questions of a conversation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from ..memory import Memory
from ..retrieval.fusion import Ranking, rankings
from ..retrieval.hybrid import HybridChannel
from ..retrieval.narrowing import top
from .locomo import Conversation, Question

__all__ = ["rank_lives"]

Rankings = dict[str, list[list[int]]]
Make = Callable[[], Memory]

#: How long before the end of the last session the confirmed uses lie.
TAUGHT_DAYS = 14


def rank_lives(
    conversation: Conversation, make: Make, default: Ranking = rankings["default"]
) -> Rankings:
    """Return, by variant, for every question all rows that may answer, best first.

    The questions are parted into two halves. For the answers to one half, the turns that answer the
    other half were confirmed to have helped with it, two weeks before the end: what a memory learns
    from use, asked about something else. "asleep" rows come after a maintenance at the end of the
    last session; what it archived cannot be found.

    Parameters
    ----------
    conversation : Conversation
    make : callable
        Returns a new memory of the conversation.
    default : Ranking
        Of the rows "asleep".
    """
    chosen = {
        "taught fisher-rao": (rankings["fisher-rao"], None, True),
        "taught slm-v3": (rankings["slm-v3"], None, True),
        "asleep half-life": (default, "half-life", False),
        "asleep langevin": (default, "langevin", False),
        "asleep half-life, taught": (default, "half-life", True),
        "asleep langevin, taught": (default, "langevin", True),
    }
    found: Rankings = {name: [[] for _ in conversation.questions] for name in chosen}
    for half in (0, 1):
        for taught in (False, True):
            with make() as memory:
                end = memory.list(order="-time", limit=1)[0].when
                if taught:
                    when = datetime.fromisoformat(end) - timedelta(days=TAUGHT_DAYS)
                    _teach(memory, conversation.questions[1 - half :: 2], when)
                for name, (ranking, policy, wanted) in chosen.items():
                    if wanted != taught:
                        continue
                    awake = None
                    if policy is not None:
                        memory.maintain(now=end, policy=policy)
                        awake = memory._asleep.awake(memory.profile)
                    asked = range(half, len(conversation.questions), 2)
                    for i in asked:
                        text = conversation.questions[i].text
                        found[name][i] = _rank(memory, text, ranking, awake)
    return found


def _teach(memory: Memory, questions: Sequence[Question], at: datetime) -> None:
    """Confirm that the right turns helped."""
    for question in questions:
        if question.gold:
            ids = sorted({row + 1 for row in question.gold})
            memory.used(ids, helped=True, query=question.text, at=at)


def _rank(memory: Memory, query: str, ranking: Ranking, awake: Any) -> list[int]:
    gathered = memory._channel(memory.profile).gather(query, ranking, allowed=awake)
    joined = HybridChannel.join(query, ranking, gathered)
    ids = gathered.view.ids[joined.rows]
    rows: list[int] = (np.asarray(ids[top(joined.scores, ids, ids.size)]) - 1).tolist()
    return rows

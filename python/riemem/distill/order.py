"""The greedy order of words: what a word is worth over what it costs, headers included.

The first word of a turn pays for the speaker's name, the first of a session for its date; so a
turn enters with its best words at once, or not at all.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .document import Document
from .protect import core

__all__ = ["OpeningCosts", "greedy_order"]


@dataclass(frozen=True)
class OpeningCosts:
    """Tokens of a header, paid once by the first unit under it.

    Attributes
    ----------
    block_of, session_of : (U,) int64
        The turn (or line of a plain text) of each unit, and its session group.
    blocks, sessions : sequence of float
        Tokens of the header of each.
    """

    block_of: NDArray[np.int64]
    session_of: NDArray[np.int64]
    blocks: Sequence[float]
    sessions: Sequence[float]


class _Greedy:
    def __init__(
        self,
        document: Document,
        members: list[list[int]],
        scores: NDArray[np.float64],
        costs: NDArray[np.float64],
        opening: OpeningCosts,
        novelty: float,
        density: float,
    ) -> None:
        self._members = members
        self._values = [float(scores[units].sum()) for units in members]
        self._costs = [float(costs[units].sum()) for units in members]
        self._divisors = [max(cost, 1e-9) ** density for cost in self._costs]
        self._opening = opening
        self._novelty = novelty
        self._density = density
        self._words = [
            [stem(core(document.word(unit))) for unit in units] if novelty < 1.0 else []
            for units in members
        ]
        self._taken: dict[str, int] = {}
        self._open_blocks: set[int] = set()
        # Of an open block: its groups by the worth they had when last asked, as a heap.
        self._own: dict[int, list[tuple[float, int]]] = {}
        # Those that come after a group of the heap and are like it, the next one last.
        self._after: dict[int, list[int]] = {}
        self._open_sessions: set[int] = set()
        self._session_of_block: dict[int, int] = {}
        self._blocks_of_session: dict[int, list[int]] = {}

    def run(self, groups: Sequence[int]) -> list[list[int]]:
        waiting: dict[int, list[int]] = {}
        for group in groups:
            unit = self._members[group][0]
            block = int(self._opening.block_of[unit])
            if block not in waiting:
                session = int(self._opening.session_of[unit])
                self._session_of_block[block] = session
                self._blocks_of_session.setdefault(session, []).append(block)
            waiting.setdefault(block, []).append(group)
        heap = [(-self._best(block, left)[0], block) for block, left in waiting.items()]
        heapq.heapify(heap)
        order: list[list[int]] = []
        while heap:
            priority, block = heapq.heappop(heap)
            left = waiting[block]
            if not (self._own[block] if block in self._open_blocks else left):
                continue
            now, bundle = self._best(block, left)
            if -now > priority + 1e-15 and heap and -now > heap[0][0]:
                heapq.heappush(heap, (-now, block))
                continue
            order.append(bundle)
            if block in self._open_blocks:
                self._take_first(block)
            else:
                taken = set(bundle)
                self._own[block] = self._one_of_each(g for g in left if g not in taken)
            for group in bundle:
                for word in self._words[group]:
                    self._taken[word] = self._taken.get(word, 0) + 1
            self._open(block, waiting, heap)
        return order

    def _open(
        self, block: int, waiting: dict[int, list[int]], heap: list[tuple[float, int]]
    ) -> None:
        session = self._session_of_block[block]
        self._open_blocks.add(block)
        again = [block]
        if session not in self._open_sessions:
            self._open_sessions.add(session)
            again = self._blocks_of_session[session]
        for other in again:
            if self._own[other] if other in self._open_blocks else waiting[other]:
                heapq.heappush(heap, (-self._best(other, waiting[other])[0], other))

    def _worth(self, group: int) -> float:
        if self._novelty >= 1.0:
            return self._values[group]
        taken = self._taken
        times = min([taken.get(word, 0) for word in self._words[group]])
        return self._values[group] * float(self._novelty**times)

    def _one_of_each(self, groups: Iterable[int]) -> list[tuple[float, int]]:
        """Return a heap that holds, of groups that are worth the same at all times, the first."""
        alike: dict[tuple[object, ...], list[int]] = {}
        for group in groups:
            key = (*self._words[group], self._values[group], self._costs[group])
            alike.setdefault(key, []).append(group)
        heap = []
        for members in alike.values():
            members.reverse()
            first = members.pop()
            self._after[first] = members
            heap.append(self._rank(first))
        heapq.heapify(heap)
        return heap

    def _take_first(self, block: int) -> None:
        _, group = heapq.heappop(self._own[block])
        members = self._after.pop(group)
        if members:
            following = members.pop()
            self._after[following] = members
            heapq.heappush(self._own[block], self._rank(following))

    def _rank(self, group: int) -> tuple[float, int]:
        return -self._worth(group) / max(self._costs[group], 1e-9) ** self._density, group

    def _first(self, own: list[tuple[float, int]]) -> tuple[float, int]:
        """Bring the best group to the front of an open block's heap: worth falls, never rises."""
        while (fresh := self._rank(own[0][1])) != own[0]:
            heapq.heapreplace(own, fresh)
        return fresh

    def _best(self, block: int, left: list[int]) -> tuple[float, list[int]]:
        """Return the highest worth per cost that this block has to offer, and its groups."""
        if block in self._open_blocks:
            first = self._first(self._own[block])
            return -first[0], [first[1]]
        ranked = sorted(map(self._rank, left))
        cost = float(self._opening.blocks[block])
        session = self._session_of_block[block]
        if session not in self._open_sessions:
            cost += float(self._opening.sessions[session])
        # How many words open a block is decided by worth per token, whatever `density` says: with
        # a smaller exponent more would always be better, and a block would enter whole.
        worth, best, priority, size = 0.0, -1.0, 0.0, 0
        for number, (_, group) in enumerate(ranked, start=1):
            worth += self._worth(group)
            cost += self._costs[group]
            if worth / max(cost, 1e-9) > best:
                best, size = worth / max(cost, 1e-9), number
                priority = worth / max(cost, 1e-9) ** self._density
        return priority, [group for _, group in ranked[:size]]


def greedy_order(
    document: Document,
    members: list[list[int]],
    groups: Sequence[int],
    scores: NDArray[np.float64],
    costs: NDArray[np.float64],
    opening: OpeningCosts,
    *,
    novelty: float,
    density: float,
) -> list[list[int]]:
    """Return bundles of groups, best worth per token first; ties go to the earlier block.

    Parameters
    ----------
    document : Document
        What the groups are of.
    members : list of list of int
        Units of every group.
    groups : sequence of int
        Those to order.
    scores, costs : (U,) float64
        Of every unit.
    opening : OpeningCosts
        Of turns and sessions.
    novelty : float
        Factor for each time that the words of a group were taken before.
    density : float
        Worth is divided by cost to this power.
    """
    return _Greedy(document, members, scores, costs, opening, novelty, density).run(groups)


def stem(word: str) -> str:
    """Return a word without its commonest English endings.

    Examples
    --------
    >>> stem("paintings"), stem("is")
    ('painting', 'is')
    """
    for ending in ("'s", "ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word

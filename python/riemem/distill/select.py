"""From scores to the largest set of units that fits: an order of steps, gap filling, bisection.

A *step* is a set of units that enters together: a group and whatever it may not be kept without.
The kept sets of the first 1, 2, 3, ... steps contain each other, so the number of steps can be
bisected with the caller's own counter on the finished text, and the result is the largest prefix
that fits. Then the steps that were too large are passed over, and smaller ones may still enter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from riemem.errors import BudgetTooSmallError

from .document import Document
from .kernels import NEVER, fill_gaps, largest_size
from .order import OpeningCosts, greedy_order
from .protect import Kind, Protection

__all__ = [
    "Selection",
    "hierarchical_steps",
    "select",
    "token_steps",
    "turn_steps",
    "untouchable_units",
]

_PATIENCE = 24  # steps in a row that do not fit before the rest is left
_FIRST_STEPS = 16  # too large ones that are left before the rest is tried one by one
_LONG_SENTENCE = 8
_SKELETON = 3


@dataclass(frozen=True)
class Selection:
    """The kept units, the text they make and its count."""

    kept: NDArray[np.bool_]
    text: str
    tokens: int
    calls: int


def _bound_units(document: Document, protection: Protection) -> dict[int, list[int]]:
    """Return the units that every other unit of their sentence brings along."""
    flags = protection.binding("sentence")
    bound: dict[int, list[int]] = {}
    members = _members(document.group_of)
    last: tuple[int, int] | None = None
    for unit in np.flatnonzero(document.kinds & flags).tolist():
        place = int(document.sentence_of[unit]), int(document.group_of[unit])
        if place != last:  # a group's units are neighbours
            bound.setdefault(place[0], []).extend(members[place[1]])
        last = place
    return bound


def _members(group_of: NDArray[np.int64]) -> list[list[int]]:
    members: list[list[int]] = [[] for _ in range(int(group_of[-1]) + 1 if group_of.size else 0)]
    for unit, group in enumerate(group_of.tolist()):
        members[group].append(unit)
    return members


class _Closure:
    """Adds to a set of units all that they may not be kept without."""

    def __init__(self, document: Document, protection: Protection) -> None:
        self._bound = _bound_units(document, protection)
        self._sentence = document.sentence_of.tolist()
        self._line = document.line_of.tolist()
        self._group = document.group_of.tolist()
        self._members = _members(document.group_of)
        self._whole: dict[int, tuple[list[int], set[int]]] = {}
        self._labels: dict[int, list[int]] = {}
        for unit in np.flatnonzero(document.kinds & Kind.LABEL):
            self._labels.setdefault(self._line[unit], []).append(int(unit))

    def of(self, units: Sequence[int]) -> list[int]:
        """Return the units with all that they bring; the list may be shared, not to be changed."""
        sentence = self._sentence[units[0]]
        if sentence in self._bound:
            if sentence not in self._whole:
                whole = self._brought_by(self._bound[sentence])
                self._whole[sentence] = whole, set(whole)
            whole, inside = self._whole[sentence]
            # What is bound brings itself and no more, whichever part of it is asked for.
            if all(unit in inside and self._sentence[unit] == sentence for unit in units):
                return whole
        return self._brought_by(units)

    def _brought_by(self, units: Sequence[int]) -> list[int]:
        found: set[int] = set()
        # What a group, sentence or line brings is the same for all its words, and is brought once.
        groups: set[int] = set()
        sentences: set[int] = set()
        lines: set[int] = set()
        todo = list(units)
        while todo:
            unit = todo.pop()
            if unit in found:
                continue
            found.add(unit)
            if (group := self._group[unit]) not in groups:
                groups.add(group)
                todo += self._members[group]
            if (sentence := self._sentence[unit]) not in sentences:
                sentences.add(sentence)
                todo += self._bound.get(sentence, ())
            if (line := self._line[unit]) not in lines:
                lines.add(line)
                todo += self._labels.get(line, ())
        return sorted(found)


def _first_steps(
    document: Document, protection: Protection, closure: _Closure, scores: NDArray[np.float64]
) -> list[list[int]]:
    """Return the units that are kept before any other, if there are such."""
    flags = protection.binding("always")
    units = [int(unit) for unit in np.flatnonzero(document.kinds & flags)]
    units.sort(key=lambda unit: (-scores[unit], unit))
    return [closure.of([unit]) for unit in units]


def token_steps(
    document: Document,
    protection: Protection,
    scores: NDArray[np.float64],
    costs: NDArray[np.float64],
    opening: OpeningCosts,
    *,
    novelty: float = 1.0,
    density: float = 1.0,
) -> list[list[int]]:
    """Order the groups by score, the highest first; ties go to the earlier one.

    Parameters
    ----------
    scores, costs : (U,) float64
        Of every unit; a cost is in tokens.
    opening : OpeningCosts
        Of the headers above the units.
    novelty : float
        A group whose words have all been kept before has its score multiplied by this once for
        every time; 1 leaves scores alone.
    density : float
        A group's score is the sum over its units divided by its cost to this power.
    """
    closure = _Closure(document, protection)
    steps = _first_steps(document, protection, closure, scores)
    members = _members(document.group_of)
    labels = document.kinds & Kind.LABEL
    groups = [g for g in range(len(members)) if not labels[members[g]].all()]
    bundles = greedy_order(
        document, members, groups, scores, costs, opening, novelty=novelty, density=density
    )
    steps += [closure.of([u for g in bundle for u in members[g]]) for bundle in bundles]
    # Where a bundle is too much, its parts may not be.
    steps += [closure.of(members[g]) for bundle in bundles if len(bundle) > 1 for g in bundle]
    return steps


def turn_steps(
    document: Document, protection: Protection, scores: NDArray[np.float64]
) -> list[list[int]]:
    """Order whole pieces (whole lines of a plain text) by the mean of their scores."""
    owner = document.line_of if document.plain else document.piece_of
    blocks: dict[int, list[int]] = {}
    for unit, block in enumerate(owner.tolist()):
        blocks.setdefault(block, []).append(unit)
    closure = _Closure(document, protection)
    ranked = sorted(blocks, key=lambda block: (-float(scores[blocks[block]].mean()), block))
    return [closure.of(blocks[block]) for block in ranked]


def hierarchical_steps(
    document: Document,
    protection: Protection,
    scores: NDArray[np.float64],
    *,
    middle_keep: float | None = None,
) -> list[list[int]]:
    """Order pruned sentences by their mean score, then the pruned words.

    Of a sentence longer than 8 words the first 3 and the last 3 stay, and of the middle the
    `middle_keep` best; without it the skeletons come first and then the middles, evenly: the
    n-th best share of every sentence together.
    """
    closure = _Closure(document, protection)
    steps = _first_steps(document, protection, closure, scores)
    sentences: dict[int, list[int]] = {}
    for unit, sentence in enumerate(document.sentence_of.tolist()):
        sentences.setdefault(sentence, []).append(unit)
    pruned: list[tuple[float, int, list[int]]] = []
    rest: list[tuple[float, float, int]] = []
    for number, units in sentences.items():
        body, middle = units, []
        if len(units) > _LONG_SENTENCE:
            middle = sorted(units[_SKELETON:-_SKELETON], key=lambda u: (-scores[u], u))
            share = 0 if middle_keep is None else round(middle_keep * len(middle))
            rest += [
                ((place + 1) / len(middle), -float(scores[unit]), unit)
                for place, unit in enumerate(middle)
                if place >= share
            ]
            body = units[:_SKELETON] + middle[:share] + units[-_SKELETON:]
        pruned.append((-float(scores[body].mean()), number, body))
    steps += [closure.of(body) for _, _, body in sorted(pruned)]
    steps += [closure.of([unit]) for _, _, unit in sorted(rest)]
    return steps


def untouchable_units(document: Document, protection: Protection) -> list[int]:
    """Return the units that must be kept and all that they may not be kept without."""
    units = np.flatnonzero(document.untouchable).tolist()
    return _Closure(document, protection).of(units) if units else []


def select(
    document: Document,
    steps: Sequence[Sequence[int]],
    *,
    budget: int,
    count: Callable[[str], int],
    costs: NDArray[np.float64],
    must: Sequence[int] = (),
    gap: int = 0,
) -> Selection:
    """Keep as many steps as the budget holds.

    Parameters
    ----------
    document : Document
        What is selected from.
    steps : sequence of sequence of int
        Units that enter together, in the order in which they do.
    budget : int
        Most tokens of the finished text.
    count : callable
        The caller's counter; asked for the finished text of every size that is tried.
    costs : (U,) float64
        Estimated tokens of every unit; they only decide where to begin.
    must : sequence of int
        Units that are kept in any case.
    gap : int
        See :func:`riemem.distill.kernels.fill_gaps`; gaps end at line breaks.

    Raises
    ------
    BudgetTooSmallError
        Not one step fits, or the units that must be kept do not.

    Notes
    -----
    About log2(steps) counts. A counter for which a longer text can be shorter is obeyed too: what
    is returned was counted, and fits.
    """
    return _Chooser(document, steps, must, budget, count, gap, costs).run()


class _Chooser:
    def __init__(
        self,
        document: Document,
        steps: Sequence[Sequence[int]],
        must: Sequence[int],
        budget: int,
        count: Callable[[str], int],
        gap: int,
        costs: NDArray[np.float64],
    ) -> None:
        self._document = document
        self._budget = budget
        self._count = count
        self._gap = gap
        self._costs = costs
        self._calls = 0
        self._smallest: int | None = None
        self._must = list(must)
        self._steps = list(steps)
        self._entry = fill_gaps(self._entries(self._steps), document.line_of, gap)

    def _entries(self, steps: Sequence[Sequence[int]]) -> NDArray[np.int64]:
        """Return for every unit how many steps it takes to be kept; the untouchable take none."""
        entry = np.full(len(self._document.units), NEVER, np.int64)
        for number in range(len(steps), 0, -1):
            if number > 1 and steps[number - 2] is steps[number - 1]:
                continue
            entry[np.asarray(steps[number - 1], np.int64)] = number
        entry[np.asarray(self._must, np.int64)] = 0
        return entry

    def _try(self, kept: NDArray[np.bool_]) -> Selection | None:
        text = self._document.render(kept)
        tokens = self._count(text)
        self._calls += 1
        if tokens <= self._budget:
            return Selection(kept, text, tokens, self._calls)
        if kept.any() and (self._smallest is None or tokens < self._smallest):
            self._smallest = tokens
        return None

    def run(self) -> Selection:
        best: Selection | None = None
        if self._must:
            best = self._try(self._entry == 0)
            if best is None:
                raise BudgetTooSmallError(
                    f"token_budget: the untouchable text needs {self._smallest} tokens, "
                    f"the budget is {self._budget}"
                )
        size, found = self._largest_prefix()
        for _ in range(_FIRST_STEPS):
            if size or not self._steps:
                break
            # The first step is too much by itself: begin with the next.
            self._steps = self._steps[1:]
            self._entry = fill_gaps(self._entries(self._steps), self._document.line_of, self._gap)
            size, found = self._largest_prefix()
        best = self._pass_over(size, found or best)
        if best is None or not best.kept.any():
            raise BudgetTooSmallError(
                f"token_budget: {self._budget} tokens hold nothing of the text; "
                f"the smallest piece needs {self._smallest}"
            )
        return Selection(best.kept, best.text, best.tokens, self._calls)

    def _largest_prefix(self) -> tuple[int, Selection | None]:
        """Bisect, beginning where the estimated costs reach the budget."""
        low, high, best = 0, len(self._steps) + 1, None
        shifted = np.where(self._entry == 0, 1, self._entry)
        guess = max(largest_size(shifted, self._costs, len(self._steps), self._budget), 1)
        stride = max(len(self._steps) // 16, 1)
        while high - low > 1:
            middle = guess if low < guess < high else (low + high) // 2
            found = self._try(self._entry <= middle)
            if found is not None:
                low, best = middle, found
                guess = middle + stride
            else:
                high = middle
                guess = middle - stride
            stride = stride * 2 if low < guess < high else len(self._steps) + 1
        return low, best

    def _pass_over(self, size: int, best: Selection | None) -> Selection | None:
        """Try the steps after the first that did not fit, as long as that is worth a count."""
        chosen = self._steps[:size]
        failures = 0
        # Many words of one sentence may be one and the same step, and its list is then shared.
        too_much: set[int] = set()
        for step in self._steps[size:]:
            if id(step) in too_much:
                continue
            if best is not None and best.kept.any():
                free = self._budget - best.tokens
                if free <= 0 or failures >= _PATIENCE:
                    break
                fresh = [unit for unit in step if not best.kept[unit]]
                if not fresh or float(self._costs[fresh].sum()) > free + 1:
                    continue
            entry = fill_gaps(self._entries([*chosen, step]), self._document.line_of, self._gap)
            found = self._try(entry != NEVER)
            if found is None:
                failures += 1
                too_much.add(id(step))
                continue
            chosen.append(step)
            too_much.clear()
            best = found
        return best

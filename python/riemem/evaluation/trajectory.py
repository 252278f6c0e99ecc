"""A made-up agent trajectory: few states, many visits, small variations; questions about one step.

This is the regime for which grouping near-duplicates was proposed. Texts are put together from word
lists with a seeded generator, so every run is the same and no data is needed.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import numpy as np

from ..embed import RENDERINGS
from .packing_streams import PackQuestion, Stream, StreamTurn

__all__ = ["make_trajectory"]

_PAGES = ("login", "inbox", "settings", "billing", "search", "report", "calendar", "upload")
_ACTIONS = ("opened", "clicked save on", "refreshed", "filtered", "scrolled", "submitted")
_RESULTS = (
    "the page loaded without changes",
    "a warning about the quota was shown",
    "the form was accepted",
    "nothing happened",
    "a list of rows was shown",
    "the server answered after a delay",
)
_THINGS = ("invoice", "ticket", "draft", "token", "record", "job", "order", "file")
_START = datetime(2025, 3, 1, 9, 0, tzinfo=timezone.utc)


def make_trajectory(
    steps: int = 1200, *, questions: int = 120, tasks: int = 30, seed: int = 0
) -> Stream:
    """Return a trajectory of `steps` steps in `tasks` tasks, and questions about single steps.

    Parameters
    ----------
    steps, questions, tasks : int
    seed : int

    Examples
    --------
    >>> stream = make_trajectory(60, questions=5, tasks=3)
    >>> len(stream.turns), len(stream.questions), len(stream.questions[0].gold)
    (60, 5, 1)
    """
    generator = np.random.default_rng(seed)
    render = RENDERINGS["name-said"]
    turns, facts = [], []
    for i in range(steps):
        task = i * tasks // steps
        page, action = _choose(generator, _PAGES), _choose(generator, _ACTIONS)
        result, thing = _choose(generator, _RESULTS), _choose(generator, _THINGS)
        number = int(generator.integers(1000, 9999))
        text = (
            f"In task {task} the agent {action} the {page} page; {result}; "
            f"the {thing} number was {number}."
        )
        when = (_START + timedelta(minutes=3 * i)).isoformat()
        said = render(text, speaker="Agent", when=when)
        turns.append(StreamTurn(i, text, "Agent", f"task-{task}", when, str(i), said))
        facts.append((task, action, page, thing))
    asked = []
    seen: dict[tuple[int, str, str, str], int] = {}
    for fact in facts:
        seen[fact] = seen.get(fact, 0) + 1
    single = [i for i, fact in enumerate(facts) if seen[fact] == 1]
    for i in generator.permutation(single)[:questions]:
        task, action, page, thing = facts[i]
        asked.append(
            PackQuestion(
                f"Which {thing} number did the agent see when it {action} the {page} page "
                f"in task {task}?",
                (str(i),),
                steps,
            )
        )
    return Stream(f"trajectory-{seed}", tuple(turns), tuple(asked))


def _choose(generator: np.random.Generator, words: tuple[str, ...]) -> str:
    return words[int(generator.integers(len(words)))]

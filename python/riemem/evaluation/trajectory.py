"""A made-up agent trajectory: few states, many visits, other words each time; questions about one.

This is the regime for which grouping near-duplicates was proposed. Each step visits one of eight
pages with one of six actions, and says so in one of several ways; what tells two visits apart is
the outcome, a number and the day. A question names page and action in words of its own choosing
and means one visit: the one on a day, the first, last or n-th, or the one with a given outcome. So
dozens of steps are nearly the same, and a budget holds only some of them. Texts are put together
from word lists with a seeded generator: every run is the same and no data is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import numpy as np

from ..embed import RENDERINGS
from .packing_streams import PackQuestion, Stream, StreamTurn

__all__ = ["make_trajectory"]

_PAGES = (
    ("login page", "sign-in screen"),
    ("inbox", "list of messages"),
    ("settings", "preferences"),
    ("billing page", "invoices section"),
    ("search page", "finder"),
    ("report", "monthly summary"),
    ("calendar", "schedule"),
    ("upload form", "file dialog"),
)
_ACTIONS = (
    ("opened", "went to", "navigated to"),
    ("saved", "stored the changes in", "clicked save on"),
    ("refreshed", "reloaded", "loaded again"),
    ("filtered", "narrowed down", "set a filter on"),
    ("scrolled through", "read down", "moved along"),
    ("submitted", "sent off", "confirmed"),
)
_RESULTS = (
    ("nothing changed", "it stayed as it was"),
    ("a warning about the quota came up", "a notice said that the limit was near"),
    ("it was accepted", "it went through"),
    ("the server was slow to answer", "the reply took a long time"),
    ("an error was shown", "it failed with a message"),
)
_THINGS = ("invoice", "ticket", "draft", "token", "record", "job", "order", "file")
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_START = datetime(2025, 3, 1, 9, 0, tzinfo=timezone.utc)
_STEPS_PER_DAY = 40


@dataclass(frozen=True)
class _Step:
    page: int
    action: int
    result: int
    thing: str
    day: str


def make_trajectory(
    steps: int = 2400, *, questions: int = 120, tasks: int = 60, seed: int = 0
) -> Stream:
    """Return a trajectory of `steps` steps in `tasks` tasks, and questions about single steps.

    Parameters
    ----------
    steps, questions, tasks : int
        40 steps make a day; a task is a session.
    seed : int

    Examples
    --------
    >>> stream = make_trajectory(60, questions=5, tasks=3)
    >>> len(stream.turns), len(stream.questions), len(stream.questions[0].gold)
    (60, 5, 1)
    """
    generator = np.random.default_rng(seed)
    render = RENDERINGS["name-said"]
    turns, done = [], []
    for i in range(steps):
        when = _START + timedelta(days=i // _STEPS_PER_DAY, minutes=3 * (i % _STEPS_PER_DAY))
        page, action, result = (
            int(generator.integers(len(x))) for x in (_PAGES, _ACTIONS, _RESULTS)
        )
        thing = _choose(generator, _THINGS)
        step = _Step(page, action, result, thing, when.date().isoformat())
        text = (
            f"I {_choose(generator, _ACTIONS[action])} the {_choose(generator, _PAGES[page])}; "
            f"{_choose(generator, _RESULTS[result])}. "
            f"The {thing} number was {int(generator.integers(1000, 9999))}."
        )
        said = render(text, speaker="Agent", when=when.isoformat())
        session = f"task-{i * tasks // steps}"
        turns.append(StreamTurn(i, text, "Agent", session, when.isoformat(), str(i), said))
        done.append(step)
    asked: list[PackQuestion] = []
    for i in generator.permutation(steps):
        question = _question(generator, done, int(i), len(asked) % 3)
        if question is not None:
            asked.append(PackQuestion(question, (str(i),), steps))
        if len(asked) == questions:
            break
    return Stream(f"trajectory-{seed}", tuple(turns), tuple(asked))


def _question(generator: np.random.Generator, done: list[_Step], i: int, kind: int) -> str | None:
    """Return a question that only step `i` answers; None where this kind cannot single it out."""
    step = done[i]
    same = [j for j, s in enumerate(done) if (s.page, s.action) == (step.page, step.action)]
    what = (
        f"{_choose(generator, _ACTIONS[step.action])} the {_choose(generator, _PAGES[step.page])}"
    )
    which = f"Which {step.thing} number was there when the agent"
    if kind == 0:
        own = [j for j in same if (done[j].day, done[j].thing) == (step.day, step.thing)]
        return f"{which} {what} on {step.day}?" if own == [i] else None
    if kind == 1:
        own = [j for j in same if done[j].thing == step.thing]
        place = own.index(i)
        if place == len(own) - 1:
            return f"{which} {what} for the last time?"
        return f"{which} {what} for the {_ORDINALS[place]} time?" if place < 5 else None
    own = [j for j in same if (done[j].result, done[j].thing) == (step.result, step.thing)]
    return (
        f"{which} {what} and {_choose(generator, _RESULTS[step.result])}?" if own == [i] else None
    )


def _choose(generator: np.random.Generator, words: tuple[str, ...]) -> str:
    return words[int(generator.integers(len(words)))]

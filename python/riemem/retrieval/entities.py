"""The entities channel: names found without a model, and activation that spreads between them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from riemem.retrieval.corpus import CorpusView, Floats, Turn
from riemem.retrieval.words import STOP_WORDS

__all__ = ["EntityGraph", "entities_of", "entity_graph", "entity_scores"]

DECAY = 0.7
HOPS = 3

#: Activated entities that are followed in each hop.
_WIDTH = 64
_MOST_PER_TEXT = 64

_QUOTED = re.compile(r'["\u201c]([^"\u201c\u201d]{2,60})["\u201d]')
_CAPITALISED = re.compile(r"\b[^\W\d_][\w&'\u2019-]*")
_OPENING = """
    hey hi hello thanks thank yeah yes yep no not wow oh ok okay well sure great good nice cool
    awesome amazing congrats sorry glad just let lets got get it's that's i'm i've i'll i'd there's
    here here's also now today tonight tomorrow yesterday last next maybe please really totally
    absolutely definitely see take keep look been sounds love like one two
"""
_OPENERS = STOP_WORDS | frozenset(_OPENING.split())


def entities_of(text: str, speaker: str | None = None) -> tuple[str, ...]:
    """Return the names in a text, lower case, each once, in order; the speaker's name first.

    Parameters
    ----------
    text : str
        Runs of capitalised words count, and what stands in double quotes. A capitalised word that
        opens a sentence counts unless it is a word that often does.
    speaker : str, optional

    Examples
    --------
    >>> entities_of('We saw the Eiffel Tower. Maya read "the hobbit"', "Dave")
    ('dave', 'eiffel tower', 'maya', 'the hobbit')
    """
    found: dict[str, None] = {}
    if speaker:
        found[speaker.casefold()] = None
    run: list[str] = []
    end = -1
    for match in _CAPITALISED.finditer(text[:20_000]):
        word = match[0]
        plain = re.sub(r"['\u2019]s$", "", word)
        named = word[0].isupper() and plain.casefold() not in _OPENERS
        if named and run and text[end : match.start()] == " ":
            run.append(plain)
        else:
            if run:
                found[" ".join(run).casefold()] = None
            run = [plain] if named and len(plain) > 1 else []
        end = match.end()
    if run:
        found[" ".join(run).casefold()] = None
    for match in _QUOTED.finditer(text[:20_000]):
        found[match[1].strip(" .,!?").casefold()] = None
    found.pop("", None)
    return tuple(found)[:_MOST_PER_TEXT]


@dataclass(frozen=True)
class EntityGraph:
    """Which row names which entity: the edges of a bipartite graph.

    Attributes
    ----------
    numbers : dict
        Entity -> its number.
    rows, entities : (m,) int64 ndarrays
        The edges, by row.
    rarity : (number of entities,) float64 ndarray
        ``1 / log(e + rows that name it)``: what everybody names says little.
    """

    numbers: dict[str, int]
    rows: npt.NDArray[np.int64]
    entities: npt.NDArray[np.int64]
    rarity: Floats

    def named_in(self, query: str) -> list[int]:
        """The known entities that a query names, also in lower case, ascending."""
        plain = re.sub(r"['\u2019]s\b", "", query[:20_000]).casefold()
        words = re.findall(r"[\w&'\u2019-]+", plain)[:512]
        found = set()
        for i in range(len(words)):
            for length in range(1, 6):
                number = self.numbers.get(" ".join(words[i : i + length]))
                if number is not None and not (length == 1 and words[i] in STOP_WORDS):
                    found.add(number)
        return sorted(found)


def entity_graph(view: CorpusView) -> EntityGraph:
    """Return the graph of the living rows, made once per state."""
    return view.cached("entity graph", lambda: _make_graph(view))


def entity_scores(
    query: str, view: CorpusView, *, hops: int = HOPS, decay: float = DECAY
) -> Floats:
    """Score by the activation that spreads from the query's entities; in [0, 1], shape (n,).

    In hop h the activated entities activate the rows that name them, with weight ``decay^h`` and
    their rarity, and those rows activate what else they name.

    Notes
    -----
    SLM-V3 (arXiv 2603.14588), section 4.2, channel 3; O(edges) per hop, with the 64 most
    activated entities followed.
    """
    graph = entity_graph(view)
    seeds = graph.named_in(query)
    total = np.zeros(len(view))
    if not seeds:
        return total
    active = np.zeros(graph.rarity.size)
    active[seeds] = 1.0
    for hop in range(hops):
        weights = (active * graph.rarity)[graph.entities]
        rows = np.bincount(graph.rows, weights=weights, minlength=len(view))
        total += decay**hop * rows
        reached = np.bincount(
            graph.entities, weights=rows[graph.rows], minlength=active.size
        ) * np.square(graph.rarity)
        if reached.max() <= 0.0:
            break
        keep = np.lexsort((np.arange(reached.size), -reached))[:_WIDTH]
        active = np.zeros_like(active)
        active[keep] = reached[keep] / reached.max()
    return total / total.max() if total.max() > 0.0 else total


def _make_graph(view: CorpusView) -> EntityGraph:
    numbers: dict[str, int] = {}
    rows: list[int] = []
    entities: list[int] = []
    alive = view.alive.tolist()
    for row, names in enumerate(view.column("entities", _entities_of_turn)):
        if alive[row]:
            for name in names:
                rows.append(row)
                entities.append(numbers.setdefault(name, len(numbers)))
    numbered = np.array(entities, np.int64)
    degree = np.bincount(numbered, minlength=len(numbers))
    return EntityGraph(numbers, np.array(rows, np.int64), numbered, 1.0 / np.log(np.e + degree))


def _entities_of_turn(turn: Turn) -> tuple[str, ...]:
    return entities_of(turn.text, turn.speaker)

"""Putting memories into a token budget: whole turns, dated, in time order, counted exactly.

The form of the text, and the way back from it, is in :mod:`riemem._packed_text`: nothing that was
stored can pass itself off as another line, speaker or date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, TypeVar

from riemem._atoms.headers import OTHER, describe, distinct
from riemem._budget import check_budget, check_compressor, checked_counter, fill, ids_of
from riemem._packed_text import (
    ParsedTurn,
    Turn,
    TurnWriter,
    delimited,
    format_turns,
    in_time,
    parse,
)
from riemem.errors import ArgumentError, BudgetTooSmallError, DTypeError

__all__ = ["Context", "Dropped", "Packing", "ParsedTurn", "Turn", "pack_turns", "parse"]
__all__ += ["check_budget", "check_compressor", "checked_counter", "delimited", "distinct_turns"]
__all__ += ["fill", "format_turns", "pack_compressed", "pack_grouped"]

T = TypeVar("T", bound=Turn)


@dataclass(frozen=True)
class Dropped:
    """A memory that was found but is not in the text, and why."""

    id: int
    reason: str


@dataclass(frozen=True)
class Context:
    """What was recalled.

    Attributes
    ----------
    text : str
        Ready to be put before a language model; see :mod:`riemem.packing` for its form.
    tokens : int
        Of `text`, by the caller's counter; never more than the budget.
    hits : tuple
        The memories in the text, in its order.
    dropped : tuple of Dropped
        Those that are not, best first.
    token_counter : str
        What counted.
    skipped : tuple of str
        Parts of the search that could not run; empty when all did.
    """

    text: str
    tokens: int
    hits: tuple[Any, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    token_counter: str = "caller"
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Packing:
    """What :func:`pack_turns` made: the text, its count, the turns in it, and the others."""

    text: str
    tokens: int
    turns: tuple[Any, ...] = ()
    dropped: tuple[Dropped, ...] = field(default=())


def pack_turns(
    turns: Sequence[T],
    *,
    token_budget: int,
    count_tokens: Callable[[str], int],
    worth: Mapping[int, float] | None = None,
) -> Packing:
    """Pack whole turns, best first, as long as the final string stays within the budget.

    A turn that does not fit is skipped and the next one is tried. Turns with the same speaker and
    text are packed once. The result is in time order.

    Parameters
    ----------
    turns : sequence of Turn
        In any order; equal scores are taken by lower id.
    token_budget : int
        Most tokens of the final string, dates and names included.
    count_tokens : callable
        ``str -> int``; called on candidate strings as a whole, so it may be any tokenizer. What it
        raises is passed on.
    worth : mapping of int to float, optional
        By id, what counts instead of the score; see :func:`riemem.retrieval.brevity.worth`.

    Returns
    -------
    Packing
        Empty (0 tokens) when there are no turns.

    Raises
    ------
    ArgumentError
        A negative budget or count.
    BudgetTooSmallError
        There are turns and not one of them fits.
    DTypeError
        The budget, counter or count has the wrong type.

    Notes
    -----
    Turns are tried in halving groups, so most are accepted by a few counts; each one that does not
    fit costs one more.

    Examples
    --------
    >>> from types import SimpleNamespace as Row
    >>> row = Row(id=1, text="I moved", speaker="Maya", session=None,
    ...           when="2024-05-01T10:00:00+00:00", score=1.0)
    >>> pack_turns([row], token_budget=20, count_tokens=lambda s: len(s.split())).text
    '# 2024-05-01\\nMaya: I moved'
    """
    budget = check_budget(token_budget)
    count = checked_counter(count_tokens)
    ordered = _by_score(turns, worth)
    ranked, dropped = _distinct(ordered)
    if not ranked:
        return Packing("", 0)
    writer = TurnWriter(ranked)
    draft = writer.draft()

    def size_of(own: list[T], more: list[T]) -> int:
        if len(draft) < len(own):
            draft.add(own[len(draft) :])
        return count(draft.with_more(more))

    chosen, over, tokens = fill(ranked, budget, size_of)
    _require_some(chosen, ranked, budget, count, writer.write)
    draft.add(chosen[len(draft) :])
    left = tuple([Dropped(turn.id, "over budget") for turn in over])  # in their order
    left = _all_dropped(ordered, dropped, over) if dropped else left
    return Packing(draft.text, tokens, tuple(writer.in_time(chosen)), left)


def pack_grouped(
    turns: Sequence[T],
    atoms: Mapping[int, int],
    *,
    token_budget: int,
    count_tokens: Callable[[str], int],
    headers: Mapping[int, str] | None = None,
    select: str = "hits",
    worth: Mapping[int, float] | None = None,
) -> Packing:
    """Pack whole turns atom by atom under headers, as long as the final string stays in the budget.

    Atoms come by their best turn, turns inside an atom in time order. A header is written for an
    atom with at least two turns in the text; the others stand together under ``## other``, last.
    Without any such atom the text is that of :func:`pack_turns`.

    Parameters
    ----------
    turns : sequence of Turn
        In any order; equal scores are taken by lower id.
    atoms : mapping of int to int
        The atom of each turn, by the turn's id; a turn without one stands alone.
    token_budget, count_tokens
        See :func:`pack_turns`; headers count.
    headers : mapping of int to str, optional
        By atom. By default up to three words that set the atom's turns apart from the others
        found. A header is brought onto one line, and numbered where an earlier atom has it, so it
        cannot pass itself off as anything else.
    select : {"hits", "atoms"}
        In which order turns are tried: by their own score, or, as RSM-full prints it, all turns
        of the best atom, then all of the next one.
    worth : mapping of int to float, optional
        See :func:`pack_turns`.

    Returns
    -------
    Packing
        Its turns are in the order of the text.

    Raises
    ------
    As :func:`pack_turns`; also ArgumentError for another `select`.

    Examples
    --------
    >>> from types import SimpleNamespace as Row
    >>> said = ["I paint", "Rain again", "I paint birds"]
    >>> rows = [Row(id=i, text=text, speaker="Ana", session=None, score=1.0 - i / 10,
    ...             when="2024-05-01T10:00:00+00:00") for i, text in enumerate(said)]
    >>> print(pack_grouped(rows, {0: 7, 1: 8, 2: 7}, token_budget=40,
    ...                    count_tokens=lambda s: len(s.split())).text)
    ## paint birds
    # 2024-05-01
    Ana: I paint
    Ana: I paint birds
    ## other
    # 2024-05-01
    Ana: Rain again
    """
    budget = check_budget(token_budget)
    count = checked_counter(count_tokens)
    if select not in ("hits", "atoms"):
        raise ArgumentError(f"select: expected 'hits' or 'atoms', got {select!r}")
    ordered = _by_score(turns, worth)
    ranked, dropped = _distinct(ordered)
    if not ranked:
        return Packing("", 0)
    # A turn without an atom gets one of its own, below every number that is in use.
    lowest = min(atoms.values(), default=0)
    owner = {turn.id: atoms.get(turn.id, lowest - 1 - i) for i, turn in enumerate(ranked)}
    place: dict[int, int] = {}
    for turn in ranked:
        place.setdefault(owner[turn.id], len(place))
    if select == "atoms":
        ranked = sorted(ranked, key=lambda turn: place[owner[turn.id]])
    names = _headers(ranked, owner, headers)
    writer = TurnWriter(ranked)

    def groups(chosen: Sequence[T]) -> list[tuple[str | None, list[T]]]:
        return _groups(chosen, owner, place, names, writer)

    def write(chosen: Sequence[T]) -> str:
        return writer.write_groups(groups(chosen))

    chosen, over, tokens = fill(ranked, budget, lambda own, more: count(write(own + more)))
    _require_some(chosen, ranked, budget, count, write)
    order = [turn for _, group in groups(chosen) for turn in group]
    return Packing(write(chosen), tokens, tuple(order), _all_dropped(ordered, dropped, over))


def _headers(
    ranked: Sequence[T], owner: Mapping[int, int], given: Mapping[int, str] | None
) -> dict[int, str]:
    texts: dict[int, list[str]] = {}
    for turn in ranked:
        texts.setdefault(owner[turn.id], []).append(turn.text)
    # An atom with one turn has no header.
    shown = [atom for atom, own in texts.items() if len(own) > 1]
    return distinct(describe(texts, smallest=2) if given is None else given, shown)


def _groups(
    turns: Sequence[T],
    owner: Mapping[int, int],
    place: Mapping[int, int],
    names: Mapping[int, str],
    writer: TurnWriter,
) -> list[tuple[str | None, list[T]]]:
    members: dict[int, list[T]] = {}
    for turn in turns:
        members.setdefault(owner[turn.id], []).append(turn)
    shown = sorted((a for a in members if len(members[a]) > 1), key=lambda a: place[a])
    groups: list[tuple[str | None, list[T]]] = [
        (names[atom], writer.in_time(members[atom])) for atom in shown
    ]
    lone = writer.in_time([own[0] for own in members.values() if len(own) == 1])
    if lone:
        groups.append((OTHER if groups else None, lone))
    return groups


def _require_some(
    chosen: Sequence[T],
    ranked: Sequence[T],
    budget: int,
    count: Callable[[str], int],
    write: Callable[[Sequence[T]], str],
) -> None:
    if not chosen:
        smallest = min(count(write([turn])) for turn in ranked)
        raise BudgetTooSmallError(
            f"token_budget: {budget} tokens hold none of the {len(ranked)} memories found; "
            f"the shortest needs {smallest}"
        )


def _all_dropped(
    ordered: Sequence[T], copies: Sequence[Dropped], over: Sequence[T]
) -> tuple[Dropped, ...]:
    """What is left out of turns that stand best first, in their order."""
    best = {turn.id: place for place, turn in enumerate(ordered)}
    dropped = [*copies, *(Dropped(turn.id, "over budget") for turn in over)]
    return tuple(sorted(dropped, key=lambda item: best[item.id]))


def pack_compressed(
    turns: Sequence[T],
    compressor: Any,
    query: str,
    *,
    token_budget: int,
    count_tokens: Callable[[str], int],
    cache: Any = None,
) -> Packing:
    """Let a compressor make the text, and hold it to the budget.

    Parameters
    ----------
    turns : sequence of Turn
    compressor : object
        ``distill(turns, *, token_budget, query)`` gets the distinct turns in time order and
        returns an object with ``.text``. Where it takes ``count_tokens`` or ``cache`` as well, it
        gets them; ``.spans`` of ``(id, start, end)`` in what it returns say which turns are left.
    query, token_budget, count_tokens
        See :func:`pack_turns`.
    cache : object, optional
        Handed on.

    Raises
    ------
    DTypeError
        The compressor has no ``distill`` or returned no text.
    BudgetTooSmallError
        Its text is longer than the budget.

    Examples
    --------
    >>> pack_compressed([], None, "tea?", token_budget=10, count_tokens=len).text
    ''
    """
    budget = check_budget(token_budget)
    count = checked_counter(count_tokens)
    ranked, dropped = distinct_turns(turns)
    if not ranked:
        return Packing("", 0)
    ordered = in_time(ranked)
    compress = check_compressor(compressor).distill
    taken = signature(compress).parameters
    extra = {"count_tokens": count_tokens, "cache": cache}
    made = compress(
        ordered,
        token_budget=budget,
        query=query,
        **{name: value for name, value in extra.items() if name in taken and value is not None},
    )
    text = getattr(made, "text", None)
    if not isinstance(text, str):
        raise DTypeError(
            f"compressor: expected distill() to return an object with .text, got "
            f"{type(made).__name__}"
        )
    tokens = count(text)
    if tokens > budget:
        raise BudgetTooSmallError(
            f"token_budget: the compressor returned {tokens} tokens for a budget of {budget}"
        )
    spans = getattr(made, "spans", None)
    if spans is not None:
        left = ids_of(spans)
        best = {turn.id: place for place, turn in enumerate(ranked)}
        dropped += [Dropped(turn.id, "over budget") for turn in ranked if turn.id not in left]
        dropped.sort(key=lambda item: best.get(item.id, len(best)))
        ordered = [turn for turn in ordered if turn.id in left]
    return Packing(text, tokens, tuple(ordered), tuple(dropped))


def distinct_turns(
    turns: Sequence[T], worth: Mapping[int, float] | None = None
) -> tuple[list[T], list[Dropped]]:
    """Return the turns best first without copies, and the copies.

    Examples
    --------
    >>> distinct_turns([])
    ([], [])
    """
    return _distinct(_by_score(turns, worth))


def _distinct(ordered: Sequence[T]) -> tuple[list[T], list[Dropped]]:
    """The same of turns that stand best first."""
    first: dict[tuple[str | None, str], int] = {}
    seen: set[int] = set()
    ranked, dropped = [], []
    for turn in ordered:
        if turn.id in seen:
            continue
        seen.add(turn.id)
        original = first.setdefault((turn.speaker, turn.text), turn.id)
        if original == turn.id:
            ranked.append(turn)
        else:
            dropped.append(Dropped(turn.id, f"duplicate of {original}"))
    return ranked, dropped


def _by_score(turns: Sequence[T], worth: Mapping[int, float] | None = None) -> list[T]:
    own = {} if worth is None else worth
    return sorted(turns, key=lambda turn: (-own.get(turn.id, turn.score), turn.id))

"""A budget of tokens: what may be one, what counts, and what is tried to fill it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from riemem._arrays import whole_number
from riemem.errors import ArgumentError, DTypeError

__all__ = ["check_budget", "check_compressor", "checked_counter", "fill", "ids_of"]

A = TypeVar("A")


def fill(
    ranked: Sequence[A],
    budget: int,
    size_of: Callable[[list[A], list[A]], int],
    adds: Sequence[int] | None = None,
) -> tuple[list[A], list[A], int]:
    """Return the turns that fit, best first, those that do not, and the size of the former.

    Parameters
    ----------
    ranked : sequence
    budget : int
    size_of : callable
        The size of the turns that fitted and some more, put together. The former are always the
        same list, which grows at its end.
    adds : sequence of int, optional
        What each turn adds to any size at least, where somebody can say.

    Examples
    --------
    >>> fill([3, 9, 2], 6, lambda chosen, more: sum(chosen) + sum(more))
    ([3, 2], [9], 5)
    """
    chosen: list[A] = []
    over: list[A] = []
    used = 0
    start, step, count = 0, len(ranked), len(ranked)
    while start < count:
        if adds is not None:
            fits = _prefix(adds, start, step, budget - used)
            if fits == 0:
                over.append(ranked[start])
                start += 1
                continue
            step = fits
        group = [ranked[start]] if step == 1 else list(ranked[start : start + step])
        size = size_of(chosen, group)
        if size <= budget:
            chosen += group
            used = size
            start += len(group)
            step *= 2
        elif len(group) > 1:
            step = len(group) // 2
        else:
            over += group
            start += 1
            step = 1
    return chosen, over, used


def _prefix(adds: Sequence[int], start: int, step: int, left: int) -> int:
    """Return how many of the next `step` turns may fit into what is left."""
    used = 0
    for number, add in enumerate(adds[start : start + step]):
        used += add
        if used > left:
            return number
    return min(step, len(adds) - start)


def check_budget(token_budget: object) -> int:
    """Return the budget as an int.

    Raises
    ------
    DTypeError
        Not an int.
    ArgumentError
        Negative.

    Examples
    --------
    >>> check_budget(1000)
    1000
    """
    budget = whole_number(token_budget)
    if budget is None:
        raise DTypeError(
            f"token_budget: expected an int, got {type(token_budget).__name__} {token_budget!r:.40}"
        )
    if budget < 0:
        raise ArgumentError(f"token_budget: expected an int >= 0, got {budget}")
    return budget


def checked_counter(count_tokens: object) -> Callable[[str], int]:
    """Return a counter that makes sure of what it is told.

    Raises
    ------
    DTypeError
        Not callable, or (when called) the count is not an int.
    ArgumentError
        When called: the count is negative.

    Examples
    --------
    >>> checked_counter(len)("four")
    4
    """
    if not callable(count_tokens):
        raise DTypeError(
            f"count_tokens: expected a function str -> int, got {type(count_tokens).__name__}"
        )

    def count(text: str) -> int:
        given = count_tokens(text)
        if type(given) is int and given >= 0:  # a budget takes a hundred counts
            return given
        number = whole_number(given)
        if number is None:
            raise DTypeError(
                f"count_tokens: expected it to return an int, got {type(given).__name__}"
            )
        if number < 0:
            raise ArgumentError(f"count_tokens: expected a count >= 0, got {number}")
        return number

    return count


def check_compressor(compressor: Any) -> Any:
    """Return the compressor if it has a method ``distill``.

    Raises
    ------
    DTypeError
    """
    if not callable(getattr(compressor, "distill", None)):
        raise DTypeError(
            f"compressor: expected an object with distill(), got {type(compressor).__name__}"
        )
    return compressor


def ids_of(spans: Any) -> set[int]:
    """Return the ids in the spans that a compressor gave.

    Raises
    ------
    DTypeError
        They are not of the form ``(id, start, end)``.

    Examples
    --------
    >>> ids_of([(3, 0, 5), (3, 7, 9)])
    {3}
    """
    try:
        return {span[0] for span in spans}
    except (TypeError, LookupError) as error:
        raise DTypeError(
            "compressor: expected .spans of (id, start, end) in what distill() returned, got "
            f"{spans!r:.60}"
        ) from error

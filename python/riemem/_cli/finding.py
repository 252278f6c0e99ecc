"""The commands that look for memories: search and recall."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import ArgumentError, InputFileError
from .options import (
    INSTANT,
    Opener,
    archived_option,
    budget_option,
    scope_options,
    with_store,
)
from .output import emit, instant, note, paragraph, safe

if TYPE_CHECKING:
    from ..retrieval.fusion import Ranking

__all__ = ["COMMANDS"]

_COUNT = click.IntRange(min=1)


def _finding_options(function: Any) -> Any:
    """Add how memories are ranked; see :func:`_options`."""
    for option in reversed(
        (
            click.option("--at", type=INSTANT, help="Only what was known at this instant or day."),
            click.option(
                "--ranking",
                "--preset",
                "ranking",
                default="default",
                show_default=True,
                metavar="NAME",
                help="How the channels are joined: default, late-interaction, slm-v3, half, dense, "
                "cosine, lexical, or a .json file with the fields of a "
                "riemem.retrieval.fusion.Ranking.",
            ),
            click.option(
                "--near-duplicates",
                type=click.FloatRange(-1, 1, min_open=True),
                metavar="COSINE",
                help="Leave out a hit whose cosine to a better one is above this, such as 0.98.",
            ),
            click.option(
                "--rerank",
                type=click.Path(exists=True, file_okay=False),
                metavar="FOLDER",
                help="A cross-encoder that looks at the 50 best again.",
            ),
        )
    ):
        function = option(function)
    return function


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``Memory.search`` for what :func:`_finding_options` gave."""
    return {
        "at": given["at"],
        "archived": given["archived"],
        "ranking": _ranking(given["ranking"]),
        "near_duplicates": given["near_duplicates"],
        "reranker": given["rerank"],
        "session": given["session"],
        "filters": given["filters"],
    }


def _ranking(text: str) -> str | Ranking:
    """Return the name of a ranking, or the one that a JSON file describes."""
    path = Path(text)
    if path.suffix != ".json":
        return text
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputFileError(f"--ranking: {text}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"--ranking: {text} is not JSON ({error})") from error
    return _described(found, text, path.stem)


def _described(found: Any, text: str, name: str) -> Ranking:
    from ..retrieval.fusion import Ranking, as_ranking

    if not isinstance(found, dict):
        raise ArgumentError(f"--ranking: {text}: expected an object, got {type(found).__name__}")
    known = [field.name for field in fields(Ranking)]
    odd = sorted(set(found) - set(known))
    if odd:
        raise ArgumentError(
            f"--ranking: {text}: expected fields out of {', '.join(known)}, got {odd[0]!r}"
        )
    convert: dict[str, Callable[[Any], Any]] = {
        "kernel": lambda value: {int(key): float(weight) for key, weight in value.items()},
        "likeness": lambda value: (int(value[0]), float(value[1])),
        "late": lambda value: (int(value[0]), float(value[1])),
        "brevity": lambda value: (float(value[0]), int(value[1])),
        "first": lambda value: (
            as_ranking(value) if isinstance(value, str) else _described(value, text, "first")
        ),
    }
    try:
        values = {k: convert[k](value) if k in convert else value for k, value in found.items()}
        return Ranking(**({"name": name} | values))
    except ArgumentError as error:
        raise ArgumentError(f"--ranking: {text}: {error}") from error
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise ArgumentError(f"--ranking: {text}: not a ranking ({error})") from error


def _heading(record: Any) -> str:
    who = f"  {record.speaker}" if record.speaker else ""
    where = f"  ({record.session})" if record.session else ""
    return safe(f"{instant(record.when)}{who}{where}").replace("\n", " ")


@click.command("search")
@click.argument("query")
@click.option("-k", "--k", type=_COUNT, default=10, show_default=True, help="Hits to return.")
@click.option("--explain", is_flag=True, help="Also what each channel gave, and why it is there.")
@_finding_options
@archived_option
@click.option("--trust", type=float, default=0.0, help="Weight of trust in the score.")
@click.option("--adaptive", is_flag=True, help="With the weights that feedback has changed.")
@scope_options
@with_store(readonly=True)
def search_command(
    opener: Opener,
    query: str,
    k: int,
    explain: bool,
    trust: float,
    adaptive: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Find the memories nearest to QUERY, best first."""
    options = _options(given) | {"trust": trust}
    with opener.open(adaptive=adaptive) as memory:
        hits = memory.search(query, k=k, explain=explain, **options)
    found = {"query": query, "k": k, "scoring": hits.scoring, "skipped": hits.skipped}

    def text() -> str:
        lines = []
        for rank, hit in enumerate(hits, start=1):
            lines.append(f"{rank:>3}. {hit.score:7.3f}  [{hit.id}]  {_heading(hit)}")
            lines.append(paragraph(hit.text, indent=5, lines=3))
            if explain:
                channels = (f"{name} {value:.4g}" for name, value in hit.channels.items())
                origin = f"trust {hit.trust:.3f}, source {safe(hit.source or '-')}"
                lines.append(f"     {', '.join(channels)}; {origin}")
                lines.append(f"     because of: {hit.why}")
            if hit.superseded_by:
                by = ", ".join(map(str, hit.superseded_by))
                lines.append(f"     superseded by {by}")
        if explain:
            lines.append(f"scored by {hits.scoring}")
        return "\n".join(lines) or "nothing found"

    emit(as_json, found | {"hits": [asdict(hit) for hit in hits]}, text)
    _note_skipped(hits.skipped, as_json)


def _note_skipped(skipped: Sequence[str], as_json: bool) -> None:
    """Say what could not run; with --json the document says it."""
    if not as_json:
        for what in skipped:
            note(f"riemem: note: {what}")


@click.command("recall")
@click.argument("query")
@budget_option(1000)
@click.option(
    "--layout",
    type=click.Choice(["flat", "grouped"]),
    default="flat",
    show_default=True,
    help="One list in time order, or grouped by the atoms of `riemem cluster`.",
)
@click.option(
    "--delimited", is_flag=True, help="Between two lines that no stored text can forge; they count."
)
@click.option("-k", "--k", type=_COUNT, default=100, show_default=True, help="Memories to look at.")
@_finding_options
@archived_option
@scope_options
@with_store(readonly=True)
def recall_command(
    opener: Opener,
    query: str,
    token_budget: int,
    layout: str,
    delimited: bool,
    k: int,
    as_json: bool,
    **given: Any,
) -> None:
    """Print a context for QUERY inside a token budget, ready for a prompt.

    The context goes to standard output, and what it cost to standard error.
    """
    options = _options(given) | {"layout": layout, "delimited": delimited, "k": k}
    with opener.open() if layout == "flat" else opener.open_if_writable() as memory:
        context = memory.recall(query, token_budget=token_budget, **options)
    document = {"query": query, "token_budget": token_budget, **asdict(context)}
    emit(as_json, document, context.text)
    if not as_json:
        note(
            f"{context.tokens} of {token_budget} tokens (counted by {context.token_counter}), "
            f"{len(context.hits)} memories, {len(context.dropped)} left out"
        )
    _note_skipped(context.skipped, as_json)


COMMANDS = (search_command, recall_command)

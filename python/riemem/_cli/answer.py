"""``riemem answer``: a question answered by what was said, or by a local language model."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from .options import Opener, budget_option, scope_options, with_store
from .output import emit, note, safe

__all__ = ["COMMANDS"]


@click.command("answer")
@click.argument("question")
@click.option(
    "--mode",
    type=click.Choice(["A", "B"]),
    default="A",
    show_default=True,
    help="A: what was said, no language model. B: a local model answers. (C: from Python.)",
)
@budget_option(500)
@click.option("--model", help="Of mode B. Default: smollm2-135m.")
@click.option("--distil", is_flag=True, help="Mode B: let the model shorten the context.")
@scope_options
@with_store(readonly=True)
def answer_command(
    opener: Opener,
    question: str,
    mode: str,
    token_budget: int,
    model: str | None,
    distil: bool,
    session: str | None,
    filters: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """Answer QUESTION from the memory. Nothing leaves this machine."""
    from ..answering import answer

    with opener.open() as memory:
        found = answer(
            memory,
            question,
            mode=mode,
            token_budget=token_budget,
            model=model,
            distil=distil,
            session=session,
            filters=filters,
        )
    emit(as_json, {"question": question, **asdict(found)}, safe(found.text) or "nothing found")
    if not as_json:
        note(f"mode {mode}, from {len(found.context.hits)} memories")


COMMANDS = (answer_command,)

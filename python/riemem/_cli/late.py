"""``riemem late-interaction``: whether the store keeps the vectors of tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from .options import Opener, with_store
from .output import emit, progress

__all__ = ["COMMANDS"]


@click.command("late-interaction")
@click.argument("what", type=click.Choice(["on", "off", "status"]), metavar="on|off|status")
@with_store(readonly=True)
def late_command(opener: Opener, what: str, as_json: bool) -> None:
    """Compare word with word in searches; it needs the vectors of all memories' tokens.

    A new store keeps them. on is for one that does not: it makes those that are missing, for all
    profiles, and keeps them for all that is added later; Ctrl-C stops it, and the next on goes on.
    off erases them, and before the first memory says that none will be kept.
    """
    if what == "status":
        with opener.open() as memory:
            state = memory.stats()["late_interaction"]
        emit(as_json, {"late_interaction": state}, _shown(state))
        return
    # A store that does not exist yet can be told what it will not keep.
    writing = replace(opener, readonly=False, create=what == "off")
    with writing.open() as memory, progress("late-interaction") as bar:
        if what == "on":
            memory.enable_late_interaction(progress=bar)
        else:
            memory.disable_late_interaction()
        found = memory.stats()
    state = found["late_interaction"]
    text = _shown(state)
    if what == "off":
        state["erased"] = not found["erasure_pending"]
        if not state["erased"]:
            text += "; another process is reading, so the bytes go at the next forget or compact"
    emit(as_json, {"late_interaction": state}, text)


def _shown(state: dict[str, Any]) -> str:
    if not state["on"]:
        return "off"
    total = state["memories"] + state["missing"]
    have = "memory has" if total == 1 else "memories have"
    return f"on: {state['memories']} of {total} {have} vectors of tokens, {state['bytes']} bytes"


COMMANDS = (late_command,)

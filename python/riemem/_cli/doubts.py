"""The commands about doubt: conflicts, resolve, history, trust, feedback."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from .options import Opener, with_store
from .output import brief, emit, instant, safe, width

if TYPE_CHECKING:
    from ..store.conflicts import Conflict

__all__ = ["COMMANDS", "conflict_text"]


def conflict_text(conflict: Conflict) -> str:
    """A conflict in three lines: what it is about, and the two memories."""
    about = f"{conflict.subject}: {conflict.attribute}"
    lines = [f"[{conflict.id}] {conflict.kind}, {conflict.state}: {about} ({conflict.rule})"]
    for memory_id, value, text in (
        (conflict.older, conflict.older_value, conflict.older_text),
        (conflict.newer, conflict.newer_value, conflict.newer_text),
    ):
        role = "keeps " if memory_id == conflict.keep else "      "
        head = f"    {role} memory {memory_id} = {value}: "
        lines.append(head + brief(text, max(width() - len(head), 20)))
    return safe("\n".join(lines))


@click.command("conflicts")
@click.option(
    "--state",
    type=click.Choice(["open", "superseded", "dismissed"]),
    help="Only these. Default: all.",
)
@click.option("--id", "memory_id", type=int, help="Only those that this memory has a part in.")
@with_store(readonly=True)
def conflicts_command(
    opener: Opener, state: str | None, memory_id: int | None, as_json: bool
) -> None:
    """Show memories that cannot both hold, and what was decided about them."""
    with opener.open() as memory:
        found = memory.conflicts(state=state, id=memory_id)
    emit(
        as_json,
        {"conflicts": [asdict(conflict) for conflict in found]},
        lambda: "\n".join(map(conflict_text, found)) or "no conflicts",
    )


@click.command("resolve")
@click.argument("conflict", type=int)
@click.option("--keep", type=int, metavar="ID", help="This memory is right.")
@click.option("--both", is_flag=True, help="Both may hold.")
@click.option("--undo", is_flag=True, help="Take the last decision back, also one made by a rule.")
@with_store()
def resolve_command(
    opener: Opener, conflict: int, keep: int | None, both: bool, undo: bool, as_json: bool
) -> None:
    """Decide the CONFLICT of this number (see `riemem conflicts`). No memory is removed."""
    if (keep is not None) + both + undo != 1:
        raise click.UsageError("expected one of --keep ID, --both and --undo")
    with opener.open() as memory:
        decided = memory.undo(conflict) if undo else memory.resolve(conflict, keep=keep)
    emit(as_json, {"conflict": asdict(decided)}, lambda: conflict_text(decided))


@click.command("history")
@click.argument("memory_id", metavar="ID", type=int)
@with_store(readonly=True)
def history_command(opener: Opener, memory_id: int, as_json: bool) -> None:
    """Show what happened to a memory, oldest first."""
    with opener.open() as memory:
        events = memory.history(memory_id)

    def text() -> str:
        lines = []
        for event in events:
            detail = ", ".join(f"{key} {value}" for key, value in event.detail.items())
            lines.append(f"{instant(event.at)}  {event.event:<12} {detail}".rstrip())
        return safe("\n".join(lines))

    emit(as_json, {"id": memory_id, "history": [asdict(event) for event in events]}, text)


@click.command("trust")
@click.argument("memory_id", metavar="ID", type=int)
@click.option("--confirm", "event", flag_value="confirmed", help="It turned out right.")
@click.option("--contradict", "event", flag_value="contradicted", help="It turned out wrong.")
@with_store()
def trust_command(opener: Opener, memory_id: int, event: str | None, as_json: bool) -> None:
    """Show where a memory comes from and how far it is trusted, or record an event first."""
    from ..store.trust import as_dict

    with opener.open() as memory:
        if event is not None:
            memory.mark(memory_id, event)
        record, found = memory.get(memory_id), memory.trust(memory_id)
    document: dict[str, Any] = {
        "id": memory_id,
        "speaker": record.speaker,
        "session": record.session,
        "when": record.when,
        **as_dict(found),
    }

    def text() -> str:
        shown = {**document, "mean": f"{found.mean:.3f}", "variance": f"{found.variance:.4f}"}
        return safe(
            "\n".join(
                f"{name:<13} {'-' if value is None else value}" for name, value in shown.items()
            )
        )

    emit(as_json, {"trust": document}, text)


@click.command("feedback")
@click.argument("query", required=False)
@click.argument("memory_id", metavar="ID", type=int, required=False)
@click.option("--useful/--not-useful", default=True, show_default=True, help="What the memory was.")
@click.option("--replay", is_flag=True, help="Show the factors after each judgement.")
@click.option("--reset", is_flag=True, help="Begin anew.")
@with_store()
def feedback_command(
    opener: Opener,
    query: str | None,
    memory_id: int | None,
    useful: bool,
    replay: bool,
    reset: bool,
    as_json: bool,
) -> None:
    """Say whether memory ID was useful for QUERY; without both, show what follows from that.

    The factors of the channels change the ranking only with `search --adaptive`.
    """
    if (query is None) != (memory_id is None):
        raise click.UsageError("expected both QUERY and ID, or neither")
    if query is not None and (replay or reset):
        raise click.UsageError("--replay, --reset: expected no QUERY beside them")
    document: dict[str, Any] = {}
    with opener.open() as memory:
        if query is not None and memory_id is not None:
            memory.feedback(query, memory_id, useful=useful)
        if reset:
            document["no_longer_counted"] = memory.reset_weights()
        judged = memory.judgements()
        if replay:
            document["replay"] = list(memory.replay_weights())
        document["weights"] = memory.weights()
    document["judgements"] = [asdict(event) for event in judged]

    def text() -> str:
        lines = [f"{len(judged)} judgements count"]
        for event, factors in zip(judged, document.get("replay", ()), strict=False):
            verdict = "useful" if event.useful else "not useful"
            lines.append(f"{event.id:>5}  memory {event.memory_id} {verdict}: {event.query}")
            lines.append("       " + ", ".join(f"{n} {f:.3f}" for n, f in factors.items()))
        lines += [f"{name:<12} x {f:.3f}" for name, f in document["weights"].items()]
        return safe("\n".join(lines))

    emit(as_json, document, text)


COMMANDS = (conflicts_command, resolve_command, history_command, trust_command, feedback_command)

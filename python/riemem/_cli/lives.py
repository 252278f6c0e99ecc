"""What happens to memories after they were stored: used, weigh, life, maintain."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from .options import INSTANT, Opener, scope_options, with_store
from .output import emit, instant, progress, table

__all__ = ["COMMANDS"]

_IDS = click.argument("ids", metavar="ID...", nargs=-1, type=int, required=True)
_AT = click.option("--at", type=INSTANT, help="When; by default now.")


@click.command("used")
@_IDS
@click.option("--helped", is_flag=True, help="It was confirmed that they helped.")
@click.option("--query", help="What they answered; with --helped, they learn from it.")
@_AT
@scope_options
@with_store()
def used_command(
    opener: Opener,
    ids: tuple[int, ...],
    helped: bool,
    query: str | None,
    at: str | None,
    session: str | None,
    filters: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """Record that memories were used; a search records nothing by itself."""
    with opener.open() as memory:
        count = memory.used(
            ids, helped=helped, query=query, at=at, session=session, filters=filters
        )
    emit(as_json, {"used": count, "helped": helped}, f"recorded for {_number(count)}")


@click.command("weigh")
@click.argument("importance", type=click.FloatRange(0.0, 1.0))
@_IDS
@_AT
@scope_options
@with_store()
def weigh_command(
    opener: Opener,
    importance: float,
    ids: tuple[int, ...],
    at: str | None,
    session: str | None,
    filters: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """Say how much memories matter: IMPORTANCE from 0 to 1, then their IDs."""
    with opener.open() as memory:
        count = memory.weigh(ids, importance, at=at, session=session, filters=filters)
    emit(
        as_json,
        {"weighed": count, "importance": importance},
        f"importance {importance:g} for {_number(count)}",
    )


@click.command("life")
@_IDS
@scope_options
@with_store(readonly=True)
def life_command(
    opener: Opener,
    ids: tuple[int, ...],
    session: str | None,
    filters: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """Show how awake memories are, as of the last `riemem maintain`."""
    with opener.open() as memory:
        lives = {i: memory.life(i, session=session, filters=filters) for i in ids}

    def text() -> str:
        rows = [
            (
                i,
                v.state,
                f"{v.strength:.3f}",
                f"{v.distance:.2f}",
                v.uses,
                v.confirmed,
                v.importance,
            )
            for i, v in lives.items()
        ]
        head = ("id", "state", "strength", "distance", "uses", "helped", "importance")
        return table(rows, head)

    emit(as_json, {"lives": [{"id": i} | asdict(life) for i, life in lives.items()]}, text)


@click.command("maintain")
@click.option("--now", type=INSTANT, help="The instant to age to; by default the clock's.")
@click.option(
    "--policy",
    type=click.Choice(["langevin", "half-life"]),
    help="By default that of the last time, at first langevin; another one begins again.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of --policy langevin."
)
@click.option("--replay", is_flag=True, help="Begin again at each memory's birth.")
@with_store()
def maintain_command(
    opener: Opener, now: str | None, policy: str | None, seed: int, replay: bool, as_json: bool
) -> None:
    """Let memories age: active, warm, cold, archived. None is ever removed.

    Archived ones answer a search only with --archived. Ctrl-C leaves everything as it was.
    """
    with opener.open() as memory, progress("maintain") as bar:
        done = memory.maintain(now=now, policy=policy, seed=seed, replay=replay, progress=bar)

    def text() -> str:
        counts = ", ".join(f"{count} {state}" for state, count in done.counts.items())
        changed = f"{len(done.changed)} changed"
        return f"as of {instant(done.now)} ({done.policy}): {counts}; {changed}"

    emit(as_json, {"maintained": done.as_dict()}, text)


def _number(count: int) -> str:
    return "1 memory" if count == 1 else f"{count} memories"


COMMANDS = (used_command, weigh_command, life_command, maintain_command)

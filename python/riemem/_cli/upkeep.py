"""The commands that look after a store and a machine: stats, check, reembed, doctor."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from .doubts import conflict_text
from .options import Opener, load_embedder, scope_options, with_store
from .output import emit, progress, safe

if TYPE_CHECKING:
    from ..doctor import Diagnosis

__all__ = ["COMMANDS"]


def _sheet(values: dict[str, Any]) -> str:
    """Return names and values, one a line."""
    wide = max(map(len, values), default=0)
    return "\n".join(f"{name:<{wide}}  {safe(_shown(value))}" for name, value in values.items())


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items()) or "-"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "-"
    return str(value)


@click.command("stats")
@scope_options
@with_store(readonly=True)
def stats_command(
    opener: Opener, session: str | None, filters: dict[str, Any] | None, as_json: bool
) -> None:
    """Count what the store holds, and say what it was made with."""
    with opener.open() as memory:
        found = memory.stats(session=session, filters=filters)
    emit(as_json, {"stats": found}, lambda: _sheet(found))


@click.command("check")
@click.option("--repair", is_flag=True, help="Rebuild what disagrees with the texts.")
@click.option(
    "--conflicts", is_flag=True, help="Instead: whether the memories agree with each other."
)
@with_store(readonly=True)
def check_command(opener: Opener, repair: bool, conflicts: bool, as_json: bool) -> int:
    """Prove that vectors, words and labels agree with the memories. Exit code 3 if they do not.

    With --conflicts all claims of the profile are compared; conflicts are no fault, and the exit
    code is 0.
    """
    if conflicts:
        if repair:
            raise click.UsageError("--conflicts: expected no --repair beside it")
        return _check_conflicts(opener, as_json)
    # Without a repair a store that may only be read is proved too, all but the index of words.
    opened = replace(opener, readonly=False).open() if repair else opener.open_if_writable()
    with opened as memory, progress("check") as bar:
        report = memory.check(repair=repair, progress=bar)
    counts = ", ".join(f"{number} {name}" for name, number in report.counts.items())
    lines = [f"repaired: {item}" for item in report.repaired]
    lines += [f"problem: {item}" for item in report.problems]
    lines += [f"skipped: {item}" for item in report.skipped]
    lines.append(f"{'in order' if report.ok else 'NOT in order'}: {counts}")
    emit(as_json, {"check": report.as_dict()}, "\n".join(map(safe, lines)))
    return 0 if report.ok else 3


def _check_conflicts(opener: Opener, as_json: bool) -> int:
    with replace(opener, readonly=False).open() as memory:
        found = memory.check_conflicts()

    def text() -> str:
        numbers = found.cohomology
        lines = [
            f"{found.claims} claims of {found.memories} memories, {found.read} read just now",
            f"coboundary {numbers.c1} x {numbers.c0}, rank {numbers.rank}, "
            f"dim H^0 {numbers.h0}, dim H^1 {numbers.h1}",
            f"{len(found.obstructed)} attributes without a global section, largest kappa "
            f"{found.kappa:.3f}",
            f"{len(found.conflicts)} conflicts, {found.found} new, {len(found.open)} open",
        ]
        lines += [
            f"bounded: {group.subject}: {group.attribute}: the newest {group.compared} of "
            f"{group.size} claims were compared"
            for group in found.bounded
        ]
        return safe("\n".join([*lines, *map(conflict_text, found.open)]))

    emit(as_json, {"conflicts": found.as_dict()}, text)
    return 0


@click.command("reembed")
@with_store()
def reembed_command(opener: Opener, as_json: bool) -> None:
    """Embed every memory again, with the embedder given, and replace the vectors in one step."""
    from .. import embed as embed_module
    from ..memory import Memory

    opener.require()
    embedder = embed_module.load_embedder(load_embedder(opener.embedder))
    with progress("reembed") as bar:
        count = Memory.reembed_store(
            opener.path, embedder=embedder, progress=bar, timeout=opener.timeout
        )
    embedded = "memory" if count == 1 else "memories"
    emit(
        as_json,
        {"reembedded": count, "embedder": embedder.identity},
        f"embedded {count} {embedded} with {embedder.identity}",
    )


@click.command("doctor")
@with_store(readonly=True)
def doctor_command(opener: Opener, as_json: bool) -> int:
    """Say what this installation and the store can do, and what to do about the rest.

    Looks at the build, SQLite, packages, models, devices, memory, the store and what leaves this
    machine, and changes nothing. Exit code 3 if something does not work.
    """
    from ..doctor import examine

    found = examine(opener.path, timeout=opener.timeout)
    emit(as_json, {"doctor": found.as_dict()}, lambda: _diagnosis(found))
    return 0 if found.ok else 3


def _diagnosis(found: Diagnosis) -> str:
    lines = []
    for title, findings in found.sections.items():
        lines.append(title)
        wide = max((len(one.name) for one in findings), default=0)
        for one in findings:
            mark = {"ok": " ", "note": "-", "problem": "!"}[one.status]
            lines.append(f"  {mark} {one.name:<{wide}}  {safe(_shown(one.value))}")
            if one.remedy:
                lines.append(f"    {'':<{wide}}  -> {safe(one.remedy)}")
    count = len(found.problems)
    lines.append("nothing is wrong" if not count else f"{count} marked ! must be put right")
    return "\n".join(lines)


COMMANDS = (stats_command, check_command, reembed_command, doctor_command)

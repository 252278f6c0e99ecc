"""The commands that move whole stores: export, import, backup, compact."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..foreign import SOURCES
from .options import Opener, scope_options, with_store
from .output import emit, note, progress, safe

if TYPE_CHECKING:
    from ..memory import ForeignImport

__all__ = ["COMMANDS"]

_SHOWN = 20


def _memories(count: int) -> str:
    return f"{count} memory" if count == 1 else f"{count} memories"


@click.command("export")
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--vectors", is_flag=True, help="Also the vectors: the import needs no embedder.")
@click.option("--all-profiles", is_flag=True, help="Every profile of the store.")
@scope_options
@with_store(readonly=True)
def export_command(
    opener: Opener,
    file: str,
    vectors: bool,
    all_profiles: bool,
    session: str | None,
    filters: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """Write memories to FILE as JSON lines, or with - to standard output."""
    if all_profiles and (session is not None or filters is not None):
        raise click.UsageError("--all-profiles: expected no narrowing option beside it")
    if file == "-" and as_json:
        raise click.UsageError("--json: expected a FILE, because the export is JSON lines itself")
    target = sys.stdout.buffer if file == "-" else file
    with opener.open() as memory, progress("export") as bar:
        receipt = memory.export(
            target,
            vectors=vectors,
            all_profiles=all_profiles,
            session=session,
            filters=filters,
            progress=bar,
        )
    said = f"exported {_memories(receipt.memories)}, {receipt.bytes} bytes"
    if file == "-":
        sys.stdout.buffer.flush()
        note(said)
    else:
        emit(as_json, {"exported": asdict(receipt), "file": file}, said)


@click.command("import")
@click.argument("file", type=click.Path(allow_dash=True))
@click.option(
    "--from",
    "source",
    type=click.Choice(["riemem", *SOURCES]),
    default="riemem",
    show_default=True,
    help="What wrote FILE.",
)
@click.option("--into", metavar="PROFILE", help="All into this profile instead of their own.")
@click.option("--skip-duplicates", is_flag=True, help="Leave out what is there already.")
@click.option("--dry-run", is_flag=True, help="Check the file and say what would be done.")
@with_store(create=True)
def import_command(
    opener: Opener,
    file: str,
    source: str,
    into: str | None,
    skip_duplicates: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Store the memories of an export: all of them, or, after an error, none.

    Ids are kept where the store never held a memory; otherwise --json says the new ones. With
    --from the memories of another tool, or a chat; it says what of the file was left out, and why.
    """
    if dry_run and not opener.path.exists():
        opener = replace(opener, path=Path(":memory:"), is_default=False)  # it makes no store
    given = sys.stdin.buffer if file == "-" else file
    options: dict[str, Any] = {"profile": into, "dry_run": dry_run}
    options["duplicates"] = "skip" if skip_duplicates else "keep"
    if source != "riemem":
        with opener.open() as memory, progress("import") as bar:
            taken = memory.import_from(given, source, progress=bar, **options)
        emit(as_json, {"imported": asdict(taken)}, lambda: _told(taken))
        return
    with opener.open() as memory, progress("import") as bar:
        receipt = memory.import_(given, progress=bar, **options)
    said = f"{'would import' if dry_run else 'imported'} {_memories(receipt.memories)}"
    if receipt.skipped:
        said += f", {receipt.skipped} already there"
    said += ", ids kept" if receipt.ids_kept else ", with new ids"
    if receipt.embedded:
        said += f", {receipt.embedded} {'to embed' if dry_run else 'embedded'}"
    emit(as_json, {"imported": asdict(receipt)}, said)


def _told(taken: ForeignImport) -> str:
    said = f"{'would import' if taken.dry_run else 'imported'} {_memories(taken.memories)}"
    said += f" from {taken.source}"
    if taken.already_there:
        said += f", {taken.already_there} already there"
    if taken.skipped:
        said += f", {len(taken.skipped)} skipped:"
    lines = [said, *(f"  {item.where}: {item.reason}" for item in taken.skipped[:_SHOWN])]
    if len(taken.skipped) > _SHOWN:
        lines.append(f"  and {len(taken.skipped) - _SHOWN} more; --json lists them all")
    lines += [f"note: {remark}" for remark in taken.notes]
    return "\n".join(safe(line) for line in lines)


@click.command("backup")
@click.argument("file", type=click.Path())
@with_store(readonly=True)
def backup_command(opener: Opener, file: str, as_json: bool) -> None:
    """Write a complete copy of the store to FILE, also while others write to it."""
    with opener.open() as memory:
        size = memory.backup(file)
    emit(as_json, {"backup": {"file": file, "bytes": size}}, f"wrote {file}, {size} bytes")


@click.command("compact")
@with_store()
def compact_command(opener: Opener, as_json: bool) -> None:
    """Rewrite the store without free space, and finish what a forget could not erase yet."""
    with opener.open() as memory:
        before = memory.stats()["file_bytes"]
        done = memory.compact()
        after = memory.stats()["file_bytes"]
    emit(
        as_json,
        {"compacted": {"complete": done, "bytes_before": before, "bytes_after": after}},
        f"{before} bytes became {after}"
        + ("" if done else "; another process is reading, so the log is still there"),
    )


COMMANDS = (export_command, import_command, backup_command, compact_command)

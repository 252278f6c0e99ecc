"""The commands that write and read memories by id: add, get, list, update, forget."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ..errors import ArgumentError, TextError
from .options import INSTANT, Opener, pairs, scope_options, with_store
from .output import brief, emit, instant, progress, safe, width

if TYPE_CHECKING:
    from ..store.records import Record

__all__ = ["COMMANDS"]

_COUNT = click.IntRange(min=1)


def _turn_options(function: Any) -> Any:
    """Add what a memory may carry beside its text."""
    for option in reversed(
        (
            click.option("--speaker", help="Who said it."),
            click.option("--session", help="The session it belongs to."),
            click.option(
                "--when", type=INSTANT, help="When it was said: ISO 8601 with offset, or a day."
            ),
            click.option(
                "--meta",
                "meta_pairs",
                multiple=True,
                metavar="KEY=VALUE",
                help="Metadata; VALUE is read as JSON if it is JSON. Repeat for several.",
            ),
        )
    ):
        function = option(function)
    return function


@click.command("add")
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@click.option(
    "--jsonl",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="One JSON object a line: text, speaker, session, when, metadata, profile, key, source.",
)
@_turn_options
@click.option("--source", help="Where it comes from.")
@click.option("--valid-from", type=INSTANT, help="From when on it holds.")
@click.option("--valid-to", type=INSTANT, help="Until when it holds.")
@with_store(create=True)
def add_command(
    opener: Opener,
    texts: tuple[str, ...],
    jsonl: str | None,
    speaker: str | None,
    session: str | None,
    when: str | None,
    meta_pairs: tuple[str, ...],
    source: str | None,
    valid_from: str | None,
    valid_to: str | None,
    as_json: bool,
) -> None:
    """Store memories: one per TEXT, or with - one per line of standard input.

    All of them are stored, or, after an error or Ctrl-C, none.
    """
    given = {
        "speaker": speaker,
        "session": session,
        "when": when,
        "metadata": pairs(meta_pairs, "--meta") or None,
        "source": source,
        "valid_from": valid_from,
        "valid_to": valid_to,
    }
    common = {key: value for key, value in given.items() if value is not None}
    items = [common | item for item in _items(texts, jsonl)]
    many = jsonl is not None or texts == ("-",)
    with opener.open() as memory, progress("add") if many else nullcontext() as bar:
        ids = memory.add_many(items, progress=bar)
    added = "memory" if len(ids) == 1 else "memories"
    emit(
        as_json,
        {"ids": ids, "store": opener.path, "profile": opener.profile},
        f"added {len(ids)} {added}: {_ranges(ids)}",
    )


def _items(texts: tuple[str, ...], jsonl: str | None) -> list[dict[str, Any]]:
    """Return what is to be added; nothing at all is the user's error."""
    if jsonl is not None:
        if texts:
            raise click.UsageError("--jsonl: expected no TEXT beside it")
        with click.open_file(jsonl, "rb") as lines:
            items = list(_json_lines(lines, "standard input" if jsonl == "-" else jsonl))
    elif texts == ("-",):
        source = sys.stdin.buffer
        items = [{"text": line} for _, line in _lines(source, "standard input")]
    elif "-" in texts:
        raise click.UsageError("-: expected no other TEXT beside it")
    else:
        items = [{"text": text} for text in texts]
    if not items:
        where = "in the input" if jsonl or texts else "given"
        raise TextError(
            f"text: nothing to add {where}; expected TEXT, - for standard input, or --jsonl FILE"
        )
    return items


def _lines(source: Iterable[bytes], name: str) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of the lines that are not blank."""
    for number, raw in enumerate(source, start=1):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise TextError(f"{name}: line {number}: expected UTF-8 ({error.reason})") from error
        if line.strip():
            yield number, line.rstrip("\r\n")


def _json_lines(source: Iterable[bytes], name: str) -> Iterator[dict[str, Any]]:
    for number, line in _lines(source, name):
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"{name}: line {number}: expected JSON ({error})") from error
        if not isinstance(item, dict):
            raise ArgumentError(
                f"{name}: line {number}: expected a JSON object, got {type(item).__name__}"
            )
        yield item


def _ranges(ids: list[int]) -> str:
    """Return ascending ids as "1-3, 7"."""
    parts: list[list[int]] = []
    for number in ids:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _full(record: Record) -> str:
    """Return a memory with all that is known about it; its text last, whole."""
    lines = [f"id        {record.id}", f"when      {record.when}"]
    for label, value in (
        ("speaker", record.speaker),
        ("session", record.session),
        ("key", record.key),
    ):
        if value is not None:
            lines.append(f"{label:<9} {brief(value, width() - 10)}")
    lines.append(f"profile   {brief(record.profile, width() - 10)}")
    lines.append(f"created   {record.created_at}")
    if record.updated_at != record.created_at:
        lines.append(f"updated   {record.updated_at}")
    if record.metadata:
        lines.append(f"metadata  {json.dumps(record.metadata)}")
    return "\n".join([*lines, "", safe(record.text)])


@click.command("get")
@click.argument("ids", metavar="ID...", nargs=-1, type=int, required=True)
@with_store(readonly=True)
def get_command(opener: Opener, ids: tuple[int, ...], as_json: bool) -> None:
    """Show memories by id, with everything known about them."""
    with opener.open() as memory:
        records = [memory.get(memory_id) for memory_id in ids]
    emit(
        as_json,
        {"memories": [asdict(record) for record in records]},
        lambda: "\n\n".join(_full(record) for record in records),
    )


@click.command("list")
@click.option("--limit", type=_COUNT, default=50, show_default=True, help="Most to show.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="How many to pass over.")
@click.option(
    "--order",
    type=click.Choice(["time", "-time", "id", "-id"]),
    default="time",
    show_default=True,
    help="By when it was said or by id; - is newest first.",
)
@scope_options
@with_store(readonly=True)
def list_command(
    opener: Opener,
    limit: int,
    offset: int,
    order: str,
    session: str | None,
    filters: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """List memories, one a line."""
    with opener.open() as memory:
        records = memory.list(
            session=session, filters=filters, order=order, limit=limit, offset=offset
        )

    def text() -> str:
        lines = []
        for record in records:
            head = f"[{record.id}]  {instant(record.when)}  "
            who = f"{brief(record.speaker, 20)}: " if record.speaker else ""
            lines.append(head + brief(who + record.text, max(width() - len(head), 20)))
        return "\n".join(lines) or "no memories"

    emit(as_json, {"memories": [asdict(record) for record in records]}, text)


@click.command("update")
@click.argument("memory_id", metavar="ID", type=int)
@click.argument("text", required=False)
@_turn_options
@click.option("--source", help="Where it comes from.")
@click.option("--valid-from", type=INSTANT, help="From when on it holds.")
@click.option("--valid-to", type=INSTANT, help="Until when it holds.")
@with_store()
def update_command(
    opener: Opener,
    memory_id: int,
    text: str | None,
    speaker: str | None,
    session: str | None,
    when: str | None,
    meta_pairs: tuple[str, ...],
    source: str | None,
    valid_from: str | None,
    valid_to: str | None,
    as_json: bool,
) -> None:
    """Change a memory: its TEXT (embedded again), or what is known about it.

    --meta replaces all metadata. What is not given stays.
    """
    given: dict[str, Any] = {
        "text": text,
        "speaker": speaker,
        "session": session,
        "when": when,
        "metadata": pairs(meta_pairs, "--meta") or None,
        "source": source,
        "valid_from": valid_from,
        "valid_to": valid_to,
    }
    changed = {key: value for key, value in given.items() if value is not None}
    if not changed:
        raise click.UsageError("nothing to change: expected TEXT or an option such as --speaker")
    with opener.open() as memory:
        record = memory.update(memory_id, **changed)
    emit(as_json, {"memory": asdict(record)}, lambda: _full(record))


@click.command("forget")
@click.argument("ids", metavar="[ID]...", nargs=-1, type=int)
@click.option("--all", "everything", is_flag=True, help="Everything in the profile.")
@click.option("--yes", is_flag=True, help="Do not ask before forgetting more than the IDs given.")
@scope_options
@with_store()
def forget_command(
    opener: Opener,
    ids: tuple[int, ...],
    everything: bool,
    yes: bool,
    session: str | None,
    filters: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """Erase memories by ID, or all that --session, --speaker, --filter, --since, --until choose.

    The bytes of text and vector leave the file. All of them go, or, if an ID is unknown, none.
    """
    narrowed = session is not None or filters is not None
    if not (ids or narrowed or everything):
        raise click.UsageError("nothing chosen: expected ID, a narrowing option, or --all")
    if everything and (ids or narrowed):
        raise click.UsageError("--all: expected neither ID nor a narrowing option beside it")
    with opener.open() as memory:
        if not ids and not yes:
            count = len(memory.list(session=session, filters=filters))
            _confirm(f"Forget {count} of the memories in profile {opener.profile!r} for good?")
        receipt = memory.forget(
            ids or None, profile=opener.profile, session=session, filters=filters
        )
    forgotten = "memory" if receipt.count == 1 else "memories"
    emit(
        as_json,
        {"forgotten": asdict(receipt)},
        f"forgot {receipt.count} {forgotten}"
        + (f": {_ranges(list(receipt.ids))}" if receipt.ids else "")
        + ("" if receipt.erased else "; their bytes leave the file when no other process uses it"),
    )


def _confirm(question: str) -> None:
    """Ask on a terminal; elsewhere nobody can answer, so the answer must come as an option."""
    if not sys.stdin.isatty():
        raise click.UsageError("--yes: needed to forget more than the IDs given without a terminal")
    click.confirm(question, abort=True, err=True)


COMMANDS = (
    add_command,
    get_command,
    list_command,
    update_command,
    forget_command,
)

"""The commands that look after a store and a machine: stats, check, reembed, doctor."""

from __future__ import annotations

import platform
import sqlite3
import sys
from importlib.util import find_spec
from typing import Any

import click

from .options import Opener, default_store, json_option, load_embedder, scope_options, with_store
from .output import emit, progress, safe

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
@with_store()
def check_command(opener: Opener, repair: bool, as_json: bool) -> int:
    """Prove that vectors, words and labels agree with the memories. Exit code 3 if they do not."""
    with opener.open() as memory:
        report = memory.check(repair=repair)
    counts = ", ".join(f"{number} {name}" for name, number in report.counts.items())
    lines = [f"repaired: {item}" for item in report.repaired]
    lines += [f"problem: {item}" for item in report.problems]
    lines.append(f"{'in order' if report.ok else 'NOT in order'}: {counts}")
    emit(as_json, {"check": report.as_dict()}, "\n".join(map(safe, lines)))
    return 0 if report.ok else 3


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
@json_option
def doctor_command(as_json: bool) -> None:
    """Say what this installation can do: build, models, SQLite, optional packages, network use."""
    import riemem

    from .. import models

    optional = ("torch", "transformers", "safetensors", "tokenizers", "gguf", "platformdirs")
    found = {
        "riemem": riemem.__version__,
        "python": platform.python_version(),
        "platform": f"{sys.platform} {platform.machine()}",
        "sqlite": sqlite3.sqlite_version,
        "default_store": str(default_store()),
        "models": {
            status.name: "present" if status.present else status.problem or "not here"
            for status in models.list_models()
        },
        "model_cache": str(models.cache_dir()),
        "packages": {
            name: "installed" if find_spec(name) is not None else "not installed"
            for name in optional
        },
        "build": dict(riemem.build_info()),
        "data_leaving_this_machine": "none; only `riemem models pull` uses the network",
    }
    flat: dict[str, Any] = {}
    for name, value in found.items():
        flat |= (
            {f"{name}.{key}": item for key, item in value.items()}
            if name == "build" and isinstance(value, dict)
            else {name: value}
        )
    emit(as_json, {"doctor": found}, lambda: _sheet(flat))


COMMANDS = (stats_command, check_command, reembed_command, doctor_command)

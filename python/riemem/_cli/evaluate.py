"""``riemem eval`` and ``riemem demo``: showing what the memory finds."""

from __future__ import annotations

from typing import Any

import click

from .options import embedder_option, json_option, load_embedder
from .output import emit, note, progress, width

__all__ = ["COMMANDS"]


@click.group("eval")
def eval_group() -> None:
    """Measure retrieval on a benchmark file that you have."""


@eval_group.command("locomo")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--audit",
    type=click.Path(exists=True, dir_okay=False),
    help="Known annotation errors; adds lines without the questions they spoil.",
)
@click.option(
    "--rendering",
    default="name-said",
    show_default=True,
    help="How a turn is put to the embedder: name-said, name-text or text.",
)
@embedder_option
@json_option
def locomo_command(
    file: str, audit: str | None, rendering: str, embedder: str | None, as_json: bool
) -> None:
    """Hit@k, recall, MRR and hubness of every score on FILE, a LoCoMo JSON file.

    One memory per turn, one index per conversation. Prints the rendering, the SHA-256 of FILE and
    a bootstrap interval of the difference to cosine.
    """
    from ..embed import RENDERINGS
    from ..evaluation import run_locomo

    if rendering not in RENDERINGS:
        raise click.BadParameter(
            f"expected one of {', '.join(RENDERINGS)}, got {rendering!r}",
            param_hint="'--rendering'",
        )
    options: dict[str, Any] = {"audit": audit, "rendering": rendering}
    with progress("eval") as bar:
        report = run_locomo(file, embedder=load_embedder(embedder), progress=bar, **options)
    emit(as_json, report.to_dict(), report.to_text)


@click.command("demo")
@click.option("--pull", is_flag=True, help="Fetch the embedder first if it is not here.")
@click.option("-k", type=click.IntRange(min=1), default=5, show_default=True, help="Hits to show.")
@click.option(
    "--budget",
    "--token-budget",
    "token_budget",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="Tokens of each recalled context.",
)
@embedder_option
@json_option
def demo_command(
    pull: bool, k: int, token_budget: int, embedder: str | None, as_json: bool
) -> None:
    """Store a year of messages in a temporary file and ask eight questions.

    For each question: the hits by cosine and by the fused metric side by side, and the context
    recalled. Needs the embedder: run `riemem models pull` before, or give --pull, or --embedder
    hashing for a machine without it.
    """
    from .. import demo, models

    if pull and embedder in (None, "minilm"):
        with progress("minilm") as bar:
            folder = models.pull("minilm", progress=bar)
        note(f"minilm: {folder}")
    with progress("demo") as bar:
        report = demo.run(load_embedder(embedder), k=k, token_budget=token_budget, progress=bar)
    emit(as_json, report.to_dict(), lambda: report.to_text(width()))


COMMANDS = (eval_group, demo_command)

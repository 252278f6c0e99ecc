"""``riemem distill`` and ``riemem plot sensitivity``: texts inside a token budget, and why."""

from __future__ import annotations

import html
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import json_option
from .output import emit, safe
from .plots import plot_group

if TYPE_CHECKING:
    from ..distill import Distillation

__all__ = ["COMMANDS"]

_MODEL = click.option(
    "--model", help="A name, a folder or a Hugging Face id on this machine. Default: smollm2-135m."
)


def _read(file: str) -> str:
    """Return the text of a file, or of standard input for "-"."""
    from ..errors import InputFileError

    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InputFileError(f"FILE: {file}: {error.strerror or error}") from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputFileError(
            f"FILE: {file}: expected UTF-8 text, byte {error.start} is not"
        ) from error


@click.command("distill")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--budget",
    "--token-budget",
    "budget",
    type=click.IntRange(min=0),
    required=True,
    help="Most tokens of the result.",
)
@click.option("--question", help="What the text is to answer; raises what bears on it.")
@click.option(
    "--preset",
    default="default",
    show_default=True,
    help="default, coremem or coremem-token.",
)
@click.option(
    "--score",
    default=None,
    help="sensitivity, words, self_information, random, truncate or turns. Default: the preset's.",
)
@click.option("--show", is_flag=True, help="The whole text, with what was dropped struck out.")
@_MODEL
@json_option
def distill_command(
    file: str,
    budget: int,
    question: str | None,
    preset: str,
    score: str | None,
    show: bool,
    model: str | None,
    as_json: bool,
) -> None:
    """Cut FILE ("-" for standard input) to a token budget, keeping whole words.

    The words that stay are those the local language model leans on most, or, where it is not on
    this machine, as many different ones as fit; negations stay with their sentences.
    """
    from ..distill import Distiller

    options: dict[str, Any] = {} if score is None else {"score": score}
    text = _read(file)
    found = Distiller(model, preset=preset, **options).distill(
        text, token_budget=budget, query=question
    )
    document = {
        "text": found.text,
        "tokens": found.tokens,
        "kept_ratio": found.kept_ratio,
        "token_counter": found.token_counter,
        "spans": [list(span) for span in found.spans],
        "removed": [
            {"start": gone.start, "end": gone.end, "text": gone.text, "kinds": list(gone.kinds)}
            for gone in found.removed
        ],
        "report": dict(vars(found.report)),
    }
    emit(as_json, document, lambda: _shown(text, found) if show else safe_lines(found.text))


def safe_lines(text: str) -> str:
    """Return text with control characters spelt out, line breaks and tabs as they are."""
    return "\n".join(
        "\t".join(safe(part) for part in line.split("\t")) for line in text.split("\n")
    )


def _shown(text: str, found: Distillation) -> str:
    colour = sys.stdout.isatty()
    parts, at = [], 0
    for _, start, end in found.spans:
        parts += [_dropped(text[at:start], colour), safe_lines(text[start:end])]
        at = end
    parts.append(_dropped(text[at:], colour))
    report = found.report
    kinds = ", ".join(
        f"{name} {kept} of {of}" for name, (kept, of) in report.kept_kinds.items() if of
    )
    return (
        "".join(parts).rstrip("\n")
        + f"\n\n{found.tokens} of {report.original_tokens} tokens by {found.token_counter}, "
        f"{report.kept_units} of {report.units} words"
        + (f"; {kinds}" if kinds else "")
        + (f"; by {report.score}" if report.score != "auto" else "")
    )


def _dropped(text: str, colour: bool) -> str:
    if not text.strip():
        return text
    head = text[: len(text) - len(text.lstrip())]
    tail = text[len(text.rstrip()) :]
    body = safe_lines(text.strip())
    mark = click.style(body, dim=True, strikethrough=True) if colour else f"[-{body}-]"
    return f"{head}{mark}{tail}"


@plot_group.command("sensitivity")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, writable=True),
    default="sensitivity.html",
    show_default=True,
    help="The HTML page to write.",
)
@click.option("--question", help="What the text is to answer.")
@_MODEL
@json_option
def plot_sensitivity_command(
    file: str, output: str, question: str | None, model: str | None, as_json: bool
) -> None:
    """Draw each word of FILE on a ground as strong as its sensitivity, as an HTML page."""
    from ..distill import Distiller
    from ..errors import OutputFileError

    text = _read(file)
    document, scores = Distiller(model).sensitivities(text, question)
    order = scores.argsort().argsort() / max(len(scores) - 1, 1)
    parts, at = [], 0
    for unit, score, rank in zip(document.units, scores.tolist(), order.tolist(), strict=True):
        parts.append(html.escape(text[at : unit.start]))
        parts.append(
            f'<span style="background:rgba(230,120,0,{rank**2:.3f})" title="{score:.3g}">'
            f"{html.escape(text[unit.start : unit.end])}</span>"
        )
        at = unit.end
    parts.append(html.escape(text[at:]))
    page = (
        '<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>Sensitivity</title>\n'
        '<body style="font:16px/1.6 sans-serif;max-width:48em;margin:2em auto;'
        f'white-space:pre-wrap">{"".join(parts)}</body></html>\n'
    )
    try:
        Path(output).write_text(page, encoding="utf-8", errors="replace")
    except OSError as error:
        raise OutputFileError(f"--output: {output}: {error.strerror or error}") from error
    emit(as_json, {"plot": output, "words": len(scores)}, f"{output}: {len(scores)} words")


COMMANDS = (distill_command,)

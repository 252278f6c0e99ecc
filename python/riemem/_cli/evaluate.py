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


def _sizes(text: str, option: str) -> list[int]:
    try:
        return [int(size) for size in text.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"expected whole numbers separated by commas, got {text!r}", param_hint=f"'{option}'"
        ) from None


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
@click.option("--ablate", is_flag=True, help="Instead: the search with each layer off.")
@click.option(
    "--lives",
    is_flag=True,
    help="Also what confirmed uses teach, and what falling asleep costs.",
)
@click.option("--cache", type=click.Path(file_okay=False), help="Folder to keep vectors in.")
@click.option(
    "--recall",
    is_flag=True,
    help="Also the evidence in the texts that recall packs, dates counted.",
)
@click.option(
    "--latency",
    "sizes",
    metavar="SIZES",
    help="Also the time of a search at so many memories, such as 1000,10000,100000.",
)
@embedder_option
@json_option
def locomo_command(
    file: str,
    audit: str | None,
    rendering: str,
    ablate: bool,
    lives: bool,
    cache: str | None,
    recall: bool,
    sizes: str | None,
    embedder: str | None,
    as_json: bool,
) -> None:
    """Hit@k, recall, MRR and hubness of every score on FILE, a LoCoMo JSON file.

    One memory per turn, one index per conversation. Prints the rendering, the SHA-256 of FILE and
    a bootstrap interval of the difference to cosine.
    """
    from ..embed import RENDERINGS
    from ..evaluation import run_locomo

    if ablate:
        from ..evaluation.ablation import run_ablation

        if audit is not None:
            raise click.UsageError("--ablate: expected no --audit beside it")
        with progress("eval") as bar:
            table = run_ablation(file, embedder=load_embedder(embedder), progress=bar)
        emit(as_json, table.to_dict(), table.to_text)
        return

    if rendering not in RENDERINGS:
        raise click.BadParameter(
            f"expected one of {', '.join(RENDERINGS)}, got {rendering!r}",
            param_hint="'--rendering'",
        )
    options: dict[str, Any] = {"audit": audit, "rendering": rendering, "cache": cache}
    options |= {"lives": lives, "recall": recall}
    options |= {"latency": None if sizes is None else _sizes(sizes, "--latency")}
    with progress("eval") as bar:
        report = run_locomo(file, embedder=load_embedder(embedder), progress=bar, **options)
    emit(as_json, report.to_dict(), report.to_text)


@eval_group.command("packing")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--budget",
    "budgets",
    type=click.IntRange(min=1),
    multiple=True,
    help="Tokens; may be given several times. Default: 500 1000 2000 4000.",
)
@click.option(
    "--threshold",
    "thresholds",
    type=click.FloatRange(-1, 1, min_open=True),
    multiple=True,
    help="Of max-member; may be given several times. Default: 0.60 to 0.90 in steps of 0.05.",
)
@click.option(
    "--clustering",
    "clusterings",
    multiple=True,
    help="Compared at the store's threshold; may be repeated. Default: all there are.",
)
@click.option(
    "--orders",
    type=click.IntRange(1, 3),
    default=3,
    show_default=True,
    help="Stream orders: as it came, reversed, shuffled.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), help="Most questions per conversation, evenly spaced."
)
@click.option(
    "--ranking",
    default="default",
    show_default=True,
    help="How hits are ranked: default, half, dense, cosine, lexical or slm-v3.",
)
@click.option(
    "--cache",
    type=click.Path(file_okay=False),
    help="Folder that keeps the vectors for the next run.",
)
@click.option(
    "--trajectory",
    "seed",
    type=click.IntRange(min=0),
    help="No FILES: a made-up agent trajectory with this seed.",
)
@embedder_option
@json_option
def packing_command(
    files: tuple[str, ...],
    budgets: tuple[int, ...],
    thresholds: tuple[float, ...],
    clusterings: tuple[str, ...],
    orders: int,
    limit: int | None,
    ranking: str,
    cache: str | None,
    seed: int | None,
    embedder: str | None,
    as_json: bool,
) -> None:
    """Evidence inside a token budget, for each clustering and layout, on FILES.

    FILES are LoCoMo JSON (evidence turns are counted) or RealMem JSON (gold sessions); questions of
    several are taken together. With --trajectory SEED a stream that repeats itself is made up
    instead.
    """
    from ..evaluation.packing_eval import (
        BUDGETS,
        CLUSTERINGS,
        THRESHOLDS,
        run_packing,
        run_streams,
    )
    from ..evaluation.trajectory import make_trajectory

    if bool(files) == (seed is not None):
        raise click.UsageError("expected either FILES or --trajectory SEED")
    options: dict[str, Any] = {"orders": orders, "limit": limit, "cache": cache}
    options["ranking"] = ranking
    options["thresholds"] = thresholds or THRESHOLDS
    options["clusterings"] = clusterings or CLUSTERINGS
    options |= {"budgets": budgets or BUDGETS, "embedder": load_embedder(embedder)}
    with progress("eval") as bar:
        if files:
            report = run_packing(files, progress=bar, **options)
        else:
            made = [make_trajectory(seed=seed or 0)]
            report = run_streams(made, {"file": f"trajectory {seed}"}, progress=bar, **options)
    emit(as_json, report.to_dict(), report.to_text)


@eval_group.command("realmem")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--cache", type=click.Path(file_okay=False), help="Folder to keep vectors in.")
@embedder_option
@json_option
def realmem_command(
    files: tuple[str, ...], cache: str | None, embedder: str | None, as_json: bool
) -> None:
    """How many of the sessions that an answer needs are found, on RealMem persona FILES.

    The sessions are added one by one and each question is asked when it was asked. Prints cosine,
    BM25, the other rankings and the default, with bootstrap intervals of the differences.
    """
    from ..evaluation.realmem import run_realmem

    with progress("eval") as bar:
        report = run_realmem(files, embedder=load_embedder(embedder), progress=bar, cache=cache)
    emit(as_json, report.to_dict(), report.to_text)


@eval_group.command("latency")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--sizes",
    default="1000,10000,100000",
    show_default=True,
    help="Numbers of memories, separated by commas.",
)
@click.option("--cache", type=click.Path(file_okay=False), help="Folder to keep vectors in.")
@click.option(
    "--late/--no-late",
    default=None,
    help="Whether the memories keep the vectors of tokens; by default, as a new store does.",
)
@embedder_option
@json_option
def latency_command(
    file: str, sizes: str, cache: str | None, late: bool | None, embedder: str | None, as_json: bool
) -> None:
    """Time of a search without the embedding, on copies of FILE, a LoCoMo JSON file.

    The copies have other names and later dates.
    """
    from ..embed import MiniLMEmbedder, TokenEmbedder, render_turn
    from ..evaluation.embedded import tokens_for
    from ..evaluation.latency import latency_text, measure_latency
    from ..evaluation.locomo import load_locomo
    from ..evaluation.retrieval import embed_benchmark

    numbers = _sizes(sizes, "--sizes")
    benchmark = load_locomo(file)
    with progress("eval") as bar:
        model = load_embedder(embedder) or MiniLMEmbedder()
        tokens = tokens_for(model) if late is None else {} if late else None
        if late and not isinstance(model, TokenEmbedder):
            raise click.BadParameter("the embedder gives no vectors of tokens", param_hint="--late")
        known = embed_benchmark(model, benchmark, cache=cache, progress=bar, tokens=tokens)
    rows = measure_latency(benchmark, known, render_turn, numbers, tokens=tokens)
    emit(as_json, {"rows": rows}, lambda: latency_text(rows))


@eval_group.command("conflicts")
@click.option(
    "--half",
    type=click.Choice(["reporting", "development", "all"]),
    default="reporting",
    show_default=True,
    help="No rule was made with the reporting half.",
)
@embedder_option
@json_option
def conflicts_command(half: str, embedder: str | None, as_json: bool) -> None:
    """Precision and recall of the contradictions that are found, on labelled pairs that come along.

    Beside the rules: thresholds on the cosine, and the score of the published code.
    """
    from ..embed import MiniLMEmbedder
    from ..evaluation.consistency import run_consistency

    with progress("eval") as bar:
        report = run_consistency(
            half=half, embedder=load_embedder(embedder) or MiniLMEmbedder(), progress=bar
        )
    emit(as_json, report.to_dict(), report.to_text)


@eval_group.command("compression")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--budget",
    "budgets",
    type=click.IntRange(min=1),
    multiple=True,
    help="Tokens; may be given several times. Default: 250 500 1000.",
)
@click.option(
    "--ratio",
    "ratios",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    multiple=True,
    help="Share of a context of 1000 tokens; may be repeated. Default: 0.25 0.5 0.75.",
)
@click.option("--method", "methods", multiple=True, help="Only these; may be repeated.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Most questions per conversation, evenly spaced.",
)
@click.option(
    "--likelihood",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Questions whose answers the local model is asked for.",
)
@click.option(
    "--sentences",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Contexts of which each sentence is left out in turn.",
)
@click.option(
    "--cache",
    type=click.Path(file_okay=False),
    help="Folder that keeps vectors and what the model said for the next run.",
)
@click.option(
    "--cached-only",
    is_flag=True,
    help="Only questions of which the cache holds every sensitivity.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="Ask no further question once so much time has passed.",
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False),
    help="JSON file for the report so far, written after every question.",
)
@click.option("--model", help="The causal language model. Default: smollm2-135m.")
@embedder_option
@json_option
def compression_command(
    file: str,
    budgets: tuple[int, ...],
    ratios: tuple[float, ...],
    methods: tuple[str, ...],
    limit: int,
    likelihood: int,
    sentences: int,
    cache: str | None,
    cached_only: bool,
    seconds: float | None,
    save: str | None,
    model: str | None,
    embedder: str | None,
    as_json: bool,
) -> None:
    """What survives distillation into a token budget, on FILE, a LoCoMo JSON file.

    Answer words (of those that the evidence holds), evidence words, numbers, dates, names and
    negations that are kept, and what a local language model makes of the answer, for whole turns,
    truncation, chance, self-information and sensitivity.
    """
    from ..evaluation.compression import BUDGETS, RATIOS, run_compression

    options: dict[str, Any] = {"limit": limit, "likelihood": likelihood, "sentences": sentences}
    options |= {"cached_only": cached_only, "seconds": seconds, "save": save}
    options |= {"cache": cache, "model": model, "methods": methods or None}
    if not budgets and not ratios:
        budgets, ratios = BUDGETS, RATIOS
    with progress("eval") as bar:
        report = run_compression(
            file,
            budgets=budgets,
            ratios=ratios,
            embedder=load_embedder(embedder),
            progress=bar,
            **options,
        )
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

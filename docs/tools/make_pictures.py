"""Draw the pictures of docs/concepts.md. Needs riemem[text,plot] and the local models:

    python docs/tools/make_pictures.py [NAME ...]

Each picture shows something computed: from the conversation of `riemem demo`, or from points drawn
with a seed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import riemem
from riemem import demo
from riemem.plots.picture import COLOURS, OTHER, Picture, cut, new_figure

TARGET = Path(__file__).parents[1] / "pictures"
QUESTION = "Where did Mara lose her glasses?"

Axes = Any
_HELD: dict[str, riemem.Memory] = {}


def conversation() -> riemem.Memory:
    """Return a store in memory that holds the demo's conversation."""
    if "memory" not in _HELD:
        _HELD["memory"] = riemem.Memory.open(":memory:")
        _HELD["memory"].add_many(demo.load().items())
    return _HELD["memory"]


def _bare(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)


def _box(axes: Axes, x: float, y: float, text: str, colour: str, width: float = 2.4) -> None:
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0.04,rounding_size=0.12"
    box = FancyBboxPatch((x, y), width, 0.8, boxstyle=style)
    box.set(facecolor=colour + "22", edgecolor=colour)
    axes.add_patch(box)
    axes.text(x + width / 2, y + 0.4, text, ha="center", va="center", fontsize=9.5)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "#5A5F69"})


def store(figure: Any) -> None:
    """One file: texts, and what follows from them."""
    axes = figure.subplots()
    _bare(axes)
    axes.set(xlim=(-0.3, 10.6), ylim=(-0.3, 4.4))
    _box(axes, 0.0, 1.7, "add(text, speaker,\nsession, when)", COLOURS[1])
    _box(axes, 3.6, 1.7, "memories\n(the texts)", COLOURS[0])
    derived = (
        ("vectors", "embedder"),
        ("words", "full-text index"),
        ("labels", "metadata filters"),
        ("atoms", "groups"),
    )
    for row, (name, what) in enumerate(derived):
        y = 3.4 - 1.1 * row
        _box(axes, 7.4, y, f"{name}\n{what}", COLOURS[2], 2.8)
        _arrow(axes, (6.1, 2.1), (7.3, y + 0.4))
    _arrow(axes, (2.5, 2.1), (3.5, 2.1))
    axes.text(3.6, 1.25, "kept", color=COLOURS[0], fontsize=9)
    axes.text(7.4, -0.28, "derived: check compares, repair rebuilds", color=COLOURS[2], fontsize=9)


def metric(figure: Any) -> None:
    """The cosine and the metric disagree where all memories vary together."""
    generator = np.random.default_rng(3)
    points = generator.normal(size=(220, 2)) @ np.array([[2.0, 0.9], [0.0, 0.45]])
    spread = np.cov(points.T)
    query, along, across = np.array([1.0, 1.0]), np.array([3.3, 2.0]), np.array([0.5, 2.0])
    turn = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    root = np.linalg.cholesky(spread)
    for axes, title in zip(figure.subplots(1, 2), ("plain distance", "the metric"), strict=True):
        axes.scatter(*points.T, s=8, color=OTHER, linewidths=0)
        for scale in (0.7, 1.4, 2.1):
            ring = circle * scale if title == "plain distance" else root @ circle * scale * 0.72
            axes.plot(*(ring + query[:, None]), color=COLOURS[0], linewidth=0.9)
        for place, name, colour in (
            (query, "question", COLOURS[3]), (along, "A", COLOURS[2]), (across, "B", COLOURS[4]),
        ):  # fmt: skip
            axes.scatter(*place, s=42, color=colour, zorder=3)
            axes.annotate(name, place, xytext=(6, 5), textcoords="offset points", color=colour)
        plain = title == "plain distance"
        inverse = np.eye(2) if plain else np.linalg.inv(spread)
        distances = [(place - query) @ inverse @ (place - query) for place in (along, across)]
        axes.set(
            title=f"{title}: {'AB'[int(np.argmin(distances))]} is nearer",
            xlim=(-5, 6.5),
            ylim=(-3.6, 4.6),
        )
        axes.set_aspect("equal")


def exact(figure: Any) -> None:
    """Cheap scores with a bound decide what they can; the rest is computed in float64."""
    generator = np.random.default_rng(11)
    truth = np.sort(generator.normal(0.5, 0.13, 26))[::-1]
    bound = 0.035
    cheap = truth + generator.uniform(-bound, bound, truth.size)
    k = 5
    limit = np.sort(cheap - bound)[::-1][k - 1]
    open_rows = cheap + bound >= limit
    axes = figure.subplots()
    rank = np.arange(1, truth.size + 1)
    for chosen, colour, name in (
        (open_rows, COLOURS[3], "may be among the best five: computed in float64"),
        (~open_rows, OTHER, "cannot be: skipped"),
    ):
        axes.errorbar(
            rank[chosen], cheap[chosen], bound, fmt="o", color=colour, markersize=4, capsize=3,
            linewidth=1.2, label=f"{chosen.sum()} rows {name}",
        )  # fmt: skip
    axes.scatter(rank, truth, marker="x", s=22, color="#30343B", label="exact score", zorder=3)
    axes.axhline(limit, color=COLOURS[0], linewidth=1.0, linestyle="--")
    axes.set(xlabel="row", ylabel="score")
    axes.legend(loc="upper right", fontsize=9)


def search(figure: Any) -> None:
    """What each channel says about the best hits of one question."""
    hits = conversation().search(QUESTION, k=5, explain=True)
    wanted = ("dense", "lexical", "likeness", "names", "neighbours", "first_person")
    names = [name for name in wanted if any(hit.channels.get(name) for hit in hits)]
    axes = figure.subplots()
    height = 0.8 / len(names)
    for i, name in enumerate(names):
        values = [float(hit.channels.get(name, 0.0) or 0.0) for hit in hits]
        largest = max(map(abs, values)) or 1.0
        places = [row + (i - len(names) / 2 + 0.5) * height for row in range(len(hits))]
        axes.barh(
            places, [value / largest for value in values], height * 0.9,
            color=COLOURS[i % len(COLOURS)], label=name,
        )  # fmt: skip
    axes.set_yticks(range(len(hits)), [cut(hit.text, 44) for hit in hits])
    axes.invert_yaxis()
    axes.set(xlabel="score of the channel, its largest here = 1", title=QUESTION)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8.5)


def recall(figure: Any) -> None:
    """Whole turns by rank, until the budget is full; what does not fit is skipped."""
    budget = 120
    context = conversation().recall(QUESTION, token_budget=budget)
    hits = conversation().search(QUESTION, k=14)
    kept = {hit.id for hit in context.hits}
    count, _ = riemem.models.token_counter()
    axes = figure.subplots()
    for row, hit in enumerate(hits):
        colour = COLOURS[2] if hit.id in kept else OTHER
        axes.barh(row, count(hit.text), 0.72, color=colour)
        axes.text(count(hit.text) + 0.8, row, cut(hit.text, 52), va="center", fontsize=8)
    axes.set_yticks(range(len(hits)), [f"{row + 1}" for row in range(len(hits))])
    axes.invert_yaxis()
    axes.set(
        xlabel="tokens of the turn", ylabel="rank", xlim=(0, 62),
        title=f"budget {budget}: {len(kept)} green turns and headers make {context.tokens} tokens",
    )  # fmt: skip


def atoms(figure: Any) -> None:
    """A chunk joins the atom that holds its nearest relative, or opens one."""
    generator = np.random.default_rng(5)
    angles = np.concatenate(
        [generator.normal(centre, 0.09, 12) for centre in (0.2, 0.85, 1.5, 2.3)]
    )
    generator.shuffle(angles)
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    threshold = 0.985
    clusters = riemem.MaxMemberClusters(2, threshold=threshold)
    labels = clusters.assign(rows).labels
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    for atom in np.unique(labels):
        own = rows[labels == atom]
        left.scatter(*own.T, s=26, color=COLOURS[atom % len(COLOURS)], linewidths=0)
        middle = own.mean(axis=0)
        left.annotate(f"atom {atom}", middle * 0.82, ha="center", va="center", fontsize=8.5)
    left.set(title=f"{len(rows)} chunks, threshold {threshold}", ylim=(0, 1.12), xlim=(-1.05, 1.15))
    left.set_aspect("equal")
    found = [riemem.MaxMemberClusters(2, threshold=t) for t in np.linspace(0.9, 0.9999, 40)]
    for one in found:
        one.assign(rows)
    counts = [one.atom_count for one in found]
    right.plot([one.threshold for one in found], counts, color=COLOURS[0])
    right.axvline(threshold, color=COLOURS[3], linewidth=1.0, linestyle="--")
    right.set(xlabel="threshold", ylabel="atoms", title="the threshold decides")


def distill(figure: Any) -> None:
    """How strongly the local language model leans on each word."""
    text = next(turn.text for turn in demo.load().turns if len(turn.text.split()) > 22)
    text = " ".join(text.split()[:26])
    document, scores = riemem.Distiller().sensitivities(text)
    words = [text[unit.start : unit.end] for unit in document.units]
    values = scores.tolist()
    axes = figure.subplots()
    order = np.argsort(values)[::-1]
    kept = set(order[: len(words) // 2].tolist())
    colours = [COLOURS[2] if i in kept else OTHER for i in range(len(words))]
    axes.bar(range(len(words)), values, 0.8, color=colours)
    axes.set_xticks(range(len(words)), words, rotation=55, ha="right", fontsize=8.5)
    axes.set(ylabel="sensitivity", title="the half with the largest scores is green")


def forget(figure: Any) -> None:
    """What a deletion leaves behind in SQLite, and what forget leaves: nothing."""
    axes = figure.subplots()
    _bare(axes)
    axes.set(xlim=(-0.3, 10.6), ylim=(-0.2, 3.3))
    places = ("table rows", "word index", "free pages", "write-ahead log")
    for column, place in enumerate(places):
        x = 2.4 + 2.05 * column
        axes.text(x + 0.85, 2.95, place, ha="center", fontsize=9.5)
        for row, gone in ((1.7, column == 0), (0.4, True)):
            _box(axes, x, row, "gone" if gone else "copies stay", COLOURS[2 if gone else 3], 1.7)
    axes.text(0.0, 2.1, "DELETE FROM ...", va="center", family="monospace")
    axes.text(0.0, 0.8, "memory.forget(...)", va="center", family="monospace")


PICTURES: dict[str, tuple[Callable[[Any], None], float, float]] = {
    "store": (store, 7.6, 3.3),
    "metric": (metric, 8.4, 3.6),
    "exact": (exact, 7.6, 3.3),
    "search": (search, 8.4, 3.6),
    "recall": (recall, 8.4, 4.2),
    "atoms": (atoms, 8.4, 3.4),
    "distill": (distill, 8.4, 3.2),
    "forget": (forget, 8.0, 2.5),
}


def main(names: list[str]) -> int:
    """Draw the pictures that are named, or all."""
    TARGET.mkdir(exist_ok=True)
    for name in names or PICTURES:
        make, width, height = PICTURES[name]
        with new_figure(width, height) as figure:
            make(figure)
            picture = Picture(name, "", figure, {})
            picture.save(TARGET / f"{name}.png")
        sys.stdout.write(f"{TARGET / name}.png\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The memories on the two directions in which they differ most, with the hubs among them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from riemem._arrays import F32, F64, I64, as_count
from riemem.errors import ArgumentError
from riemem.evaluation.metrics import hubness_skewness
from riemem.memory import Memory
from riemem.metric import FisherMetric
from riemem.plots.groups import group
from riemem.plots.picture import Picture, cut, legend, new_figure, plural
from riemem.presets import presets
from riemem.scoring import search
from riemem.store import Record

__all__ = ["memory_map"]

_NEAREST = 10
_BATCH = 256
_MOST_HUBS = 10


def memory_map(
    memory: Memory,
    *,
    colour: str = "session",
    limit: int = 5000,
    profile: str | None = None,
    session: str | None = None,
) -> Picture:
    """Draw each memory at its place along the first two directions of the metric.

    Parameters
    ----------
    memory : Memory
    colour : {"atom", "session", "speaker"}
        The eight largest groups have colours.
    limit : int
        At most so many memories, the newest by number.
    profile, session : str, optional

    Returns
    -------
    Picture
        ``summary``: ``memories``, ``left_out``, ``shares`` of the variance along both directions,
        ``hubs`` (``id``, ``count``), ``skewness`` of the counts.

    Raises
    ------
    ArgumentError
        Fewer than three memories with a vector, or all are the same.

    Notes
    -----
    Coordinates are ``(h - mean) . basis``. The count of a memory is among how many others' ten
    nearest it is, under the default score; a hub is counted more than three standard deviations
    above the mean. Large counts are marked by rings. O(N^2 d).
    """
    ids, rows = memory.vectors(profile=profile, session=session)
    kept = as_count(limit, "limit", minimum=3)
    left_out = max(0, ids.size - kept)
    ids, rows = ids[left_out:], rows[left_out:]
    if ids.size < 3:
        raise ArgumentError(f"plot: expected at least 3 memories with vectors, got {ids.size}")
    preset = presets["default"]
    metric = FisherMetric.fit(rows, ridge=preset.ridge, energy=1.0)
    if metric.rank < 2:
        raise ArgumentError("plot: expected memories that differ in more than one direction")
    places: F64 = (rows.astype(np.float64) - metric.mean) @ metric.basis[:, :2]
    counts, skewness = _counted(rows, metric)
    hubs = _hubs(counts)
    records = {r.id: r for r in memory.list(profile=profile, session=session)}
    shown = [records[i] for i in ids.tolist()]
    groups = group(memory, shown, colour, profile)
    shares = metric.eigenvalues[:2] / np.trace(metric.covariance_matrix())
    with new_figure(9.0, 5.6) as figure:
        axes = figure.subplots()
        size = float(np.clip(9000 / ids.size, 8, 48))
        axes.scatter(
            places[:, 0], places[:, 1], s=size, c=[groups.colour(i) for i in ids.tolist()],
            alpha=0.8, linewidths=0, gid="memories",
        )  # fmt: skip
        for hub in hubs:
            axes.scatter(
                places[hub, 0], places[hub, 1], s=4 * size, facecolors="none", edgecolors="black"
            )
            axes.annotate(
                f"#{ids[hub]}", places[hub], xytext=(6, 5), textcoords="offset points", fontsize=8
            )
        axes.set(
            xlabel=f"first direction ({shares[0]:.1%} of the variance)",
            ylabel=f"second direction ({shares[1]:.1%})",
            title=f"{ids.size} memories; rings: hubs",
        )
        legend(axes, groups.entries(), colour)
    return Picture(
        "Map of the memories",
        _caption(ids.size, left_out, colour, shares, len(hubs), skewness),
        figure,
        {
            "memories": int(ids.size),
            "left_out": left_out,
            "colour": colour,
            "shares": shares.tolist(),
            "hubs": [{"id": int(ids[i]), "count": int(counts[i])} for i in hubs],
            "skewness": skewness,
        },
        {"memories": [_tip(record) for record in shown]},
        ("hub", f"among the {_NEAREST} nearest of", "text"),
        tuple((f"#{ids[i]}", int(counts[i]), shown[i].text) for i in hubs),
    )


def _caption(
    count: int, left_out: int, colour: str, shares: F64, hubs: int, skewness: float
) -> str:
    older = f" {left_out} older ones are left out." if left_out else ""
    return (
        f"{count} memories, coloured by {colour}, along the two directions in which they differ "
        f"most: {shares.sum():.0%} of the variance, so much of what is far apart looks near."
        f"{older} {plural(hubs, 'hub', 'hubs')} (rings); skewness of the {_NEAREST}-occurrence "
        f"counts {skewness:.2f}."
    )


def _counted(rows: F32, metric: FisherMetric) -> tuple[I64, float]:
    """Among how many others' nearest each row is, and the skewness of these counts."""
    preset = presets["default"]
    k = min(_NEAREST, rows.shape[0] - 1)
    nearest: list[NDArray[np.int64]] = []
    for begin in range(0, rows.shape[0], _BATCH):
        found = search(
            rows[begin : begin + _BATCH], rows, metric, k + 1, form=preset.form,
            cosine_weight=preset.cosine_weight, norm=preset.norm,
        )  # fmt: skip
        for own, line in enumerate(np.asarray(found.indices), start=begin):
            nearest.append(line[line != own][:k])
    counts: I64 = np.bincount(np.concatenate(nearest), minlength=rows.shape[0])
    return counts, hubness_skewness([line.tolist() for line in nearest], rows.shape[0])


def _hubs(counts: I64) -> list[int]:
    limit = counts.mean() + 3.0 * counts.std()
    order = np.argsort(-counts, kind="stable")[:_MOST_HUBS]
    return [int(i) for i in order if counts[i] > limit]


def _tip(record: Record) -> str:
    who = f"{cut(record.speaker, 40)}: " if record.speaker else ""
    return f"#{record.id}  {record.when[:10]}  {who}{cut(record.text, 160)}"

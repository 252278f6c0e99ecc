"""The eigenvalues behind the metric: how many directions count, and where the ridge takes over."""

from __future__ import annotations

import numpy as np

from riemem.errors import ArgumentError
from riemem.memory import Memory
from riemem.metric import FisherMetric
from riemem.plots.picture import COLOURS, OTHER, Picture, new_figure, plain_numbers
from riemem.presets import presets

__all__ = ["spectrum"]

_SHOWN = 12


def spectrum(memory: Memory, *, profile: str | None = None, session: str | None = None) -> Picture:
    """Draw the eigenvalues of the covariance, the rank that holds the energy, and the ridge.

    Parameters
    ----------
    memory : Memory
    profile, session : str, optional

    Returns
    -------
    Picture
        ``summary``: ``memories``, ``dim``, ``rank``, ``energy``, ``ridge`` (the multiple),
        ``ridge_value``, ``condition_number``, ``largest``, ``above_ridge``.

    Raises
    ------
    ArgumentError
        Fewer than two memories with a vector, or all are the same.

    Notes
    -----
    ``Sigma = C + ridge * trace(C) / d * I`` over the first window of each memory, as in the search;
    a direction with eigenvalue l gets the weight ``1 / (l + ridge_value)``. O(N d^2 + d^3).
    """
    _, rows = memory.vectors(profile=profile, session=session)
    if rows.shape[0] < 2:
        raise ArgumentError(f"plot: expected at least 2 memories with vectors, got {len(rows)}")
    preset = presets["default"]
    metric = FisherMetric.fit(rows, ridge=preset.ridge, energy=preset.energy)
    if metric.degenerate:
        raise ArgumentError("plot: expected memories that differ, but all vectors are the same")
    values = np.linalg.eigvalsh(metric.covariance_matrix())[::-1]
    held = np.cumsum(values) / values.sum()
    ridge, rank = metric.ridge_value, metric.rank
    summary = {
        "memories": int(rows.shape[0]),
        "dim": int(rows.shape[1]),
        "rank": rank,
        "energy": preset.energy,
        "ridge": preset.ridge,
        "ridge_value": ridge,
        "condition_number": metric.condition_number,
        "largest": float(values[0]),
        "above_ridge": int((values > ridge).sum()),
    }
    number = np.arange(1, values.size + 1)
    positive = values > values[0] * 1e-12
    with new_figure(9.0, 3.9) as figure:
        left, right = figure.subplots(1, 2)
        left.plot(number[positive], values[positive], color=COLOURS[0], marker=".", markersize=3)
        left.axhline(ridge, color=COLOURS[3], linewidth=1.2)
        left.annotate(
            f"ridge {ridge:.2g}", (number[positive][-1], ridge), color=COLOURS[3], ha="right",
            va="bottom", xytext=(0, 3), textcoords="offset points",
        )  # fmt: skip
        left.set_yscale("log")
        plain_numbers(left.yaxis)
        left.set(xlabel="direction", ylabel="eigenvalue", title="Eigenvalues")
        right.plot(number, held, color=COLOURS[0])
        right.plot([rank, rank, 0], [0, held[rank - 1], held[rank - 1]], ":", color=COLOURS[3])
        right.annotate(
            f"rank {rank}: {held[rank - 1]:.1%}", (rank, held[rank - 1]), color=COLOURS[3],
            xytext=(6, -14), textcoords="offset points",
        )  # fmt: skip
        right.axhline(1.0, color=OTHER, linewidth=0.8)
        right.set(
            xlabel="directions kept", ylabel="share of the variance", title="Energy", ylim=(0, 1.05)
        )
    return Picture(
        "Spectrum of the metric",
        f"{summary['memories']} memories, {summary['dim']} dimensions. {rank} directions hold "
        f"{preset.energy:.0%} of the variance; {summary['above_ridge']} are larger than the ridge "
        f"({preset.ridge:g} times the mean eigenvalue). "
        f"Condition number {summary['condition_number']:.3g}.",
        figure,
        summary,
        header=("direction", "eigenvalue", "share", "held so far", "weight in the score"),
        rows=tuple(
            (i + 1, f"{values[i]:.3g}", f"{values[i] / values.sum():.1%}", f"{held[i]:.1%}",
             f"{1.0 / (values[i] + ridge):.3g}")
            for i in range(min(_SHOWN, values.size))
        ),
    )  # fmt: skip

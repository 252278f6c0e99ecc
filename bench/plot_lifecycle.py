"""Draw docs/lifecycle.png: unused memories falling asleep, and the law of the dynamics.

python bench/plot_lifecycle.py docs/lifecycle.png
"""

from __future__ import annotations

import sys

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from riemem import _backend
from riemem.lifecycle import DAY_US, STATES, Events, Lives, advance, distance, policy_named

MEMORIES = 2000
DAYS = np.arange(0, 366, 3)
COLOURS = ("#2b6cb0", "#63b3ed", "#cbd5e0", "#4a5568")


def shares(name: str) -> np.ndarray:
    """Share of memories in each state, day by day."""
    policy = policy_named(name)
    lives = Lives.new(np.arange(MEMORIES), np.zeros(MEMORIES, np.int64))
    none = Events(
        np.zeros(MEMORIES + 1, np.int64), np.zeros(0, np.int64), np.zeros(0, bool), np.zeros(0)
    )
    found = []
    for day in DAYS:
        moved = advance(policy, lives, none, int(day) * DAY_US)
        assert moved is not None
        lives, states = moved
        found.append([states.count(state) / MEMORIES for state in STATES])
    return np.array(found)


def draws(drift: float, kappa: float = 8.0, points: int = 6000) -> np.ndarray:
    """Distances of independent points in eight dimensions, long after the start."""
    position = np.zeros((points, 8))
    none = np.zeros(0)
    counts = np.zeros(points, np.int64)
    _backend.core.langevin(
        position,
        np.zeros(points),
        np.full(points, kappa),
        np.arange(points),
        counts,
        np.full(points, 1500),
        np.zeros(points + 1, np.int64),
        np.zeros(0, np.int64),
        none,
        none,
        temperature=1.0,
        dt=0.001,
        drift=drift,
        slope=0.0,
        most=1e9,
        decay=1.0,
        seed=1,
    )
    return distance(position)


def main(path: str) -> None:
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), constrained_layout=True)
    for axis, name in zip(axes, ("half-life", "langevin"), strict=False):
        axis.stackplot(DAYS, shares(name).T, labels=STATES, colors=COLOURS)
        axis.set(title=f"{name}: memories that nobody uses", xlabel="days", xlim=(0, 365))
        axis.set(ylim=(0, 1), ylabel="share")
    axes[1].legend(loc="center right", framealpha=0.9)
    rho = np.linspace(0.0, 2.5, 400)
    law = np.sinh(rho) ** 7 * np.exp(-4.0 * rho**2)
    law /= law.sum() * (rho[1] - rho[0])
    bins = np.linspace(0.0, 2.5, 60)
    for drift, label, colour in (
        (1.0, "drift T (d - 2)", "#2b6cb0"),
        (0.5, "half of it", "#dd6b20"),
    ):
        axes[2].hist(draws(drift), bins, density=True, alpha=0.5, color=colour, label=label)
    axes[2].plot(rho, law, color="black", label="exp(-U / T)")
    axes[2].set(title="distance from the centre, d = 8", xlabel="hyperbolic distance")
    axes[2].set(ylabel="density", xlim=(0, 2.5))
    axes[2].legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(sys.argv[1])

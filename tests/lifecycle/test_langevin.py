"""The law of the dynamics against exp(-U / T), and the policies built on it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from riemem import _backend, errors, reference
from riemem.lifecycle import (
    DAY_US,
    DIM,
    STATES,
    Events,
    Lives,
    Policy,
    advance,
    distance,
    policy_named,
)
from scipy.integrate import quad
from scipy.stats import kstest

NONE = np.zeros(0)


def run(points, stiffness, steps, *, d, temperature=1.0, dt, drift=1.0, seed=0):
    position = np.zeros((points, d))
    _backend.core.langevin(
        position,
        np.zeros(points),
        np.full(points, stiffness),
        np.arange(points),
        np.zeros(points, np.int64),
        np.full(points, steps),
        np.zeros(points + 1, np.int64),
        np.zeros(0, np.int64),
        NONE,
        NONE,
        temperature=temperature,
        dt=dt,
        drift=drift,
        slope=0.0,
        most=1e9,
        decay=1.0,
        seed=seed,
    )
    return position


def radial_law(d, kappa):
    """Distribution function of rho under exp(-kappa rho^2 / 2) and the hyperbolic volume."""
    rho = np.linspace(0.0, 12.0, 24_001)
    density = np.sinh(rho) ** (d - 1) * np.exp(-kappa * rho**2 / 2)
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    total = quad(lambda r: np.sinh(r) ** (d - 1) * np.exp(-kappa * r**2 / 2), 0.0, 12.0, limit=200)
    assert mass[-1] * (rho[1] - rho[0]) == pytest.approx(total[0], rel=1e-5)
    return lambda values: np.interp(values, rho, mass / mass[-1])


# Dimension, stiffness / temperature, step, steps: ten relaxation times at least.
LAWS = [(1, 0.5, 0.008, 2500), (2, 2.0, 0.004, 1250), (8, 8.0, 0.001, 1500)]
POINTS = 3000


@pytest.mark.parametrize(("d", "kappa", "dt", "steps"), LAWS)
def test_the_stationary_law_is_the_one_of_the_potential(d, kappa, dt, steps):
    position = run(POINTS, kappa, steps, d=d, dt=dt, seed=d)
    assert kstest(distance(position), radial_law(d, kappa)).pvalue > 0.01
    if d == 2:  # and every direction is as likely
        angle = np.arctan2(position[:, 1], position[:, 0]) / (2 * np.pi) % 1.0
        assert kstest(angle, "uniform").pvalue > 0.01
    else:
        assert abs(np.sign(position[:, 0]).mean()) < 3.5 / np.sqrt(POINTS)


@pytest.mark.parametrize(("d", "kappa", "dt", "steps"), LAWS)
def test_the_printed_drift_has_another_law(d, kappa, dt, steps):
    position = run(POINTS, kappa, steps, d=d, dt=dt, drift=0.5, seed=d)
    if d == 2:  # (d - 2) = 0: there the two are one
        np.testing.assert_array_equal(position, run(POINTS, kappa, steps, d=d, dt=dt, seed=d))
        return
    assert kstest(distance(position), radial_law(d, kappa)).pvalue < 1e-6


def test_the_printed_potential_has_no_law_at_all():
    # exp(-alpha r^2 / T) over the volume (2 / (1 - r^2))^d r^(d-1) dr: the tail outweighs the rest.
    for d in (1, 2, 8):
        masses = [
            quad(lambda r, d=d: np.exp(-(r**2)) * (2 / (1 - r**2)) ** d * r ** (d - 1), 0, edge)[0]
            for edge in (0.9, 0.99, 0.999, 0.9999)
        ]
        growth = np.diff(masses)
        assert (growth[1:] > 0.9 * growth[:-1]).all()  # no sign of convergence


@pytest.mark.parametrize("d", [1, 2, 3, 8])
def test_the_kernel_takes_the_steps_of_the_reference(d):
    found = run(40, 0.3, 60, d=d, temperature=0.05, dt=0.5, seed=9)
    expected = reference.langevin(
        np.zeros((40, d)),
        np.full(40, 0.3),
        np.arange(40),
        steps=60,
        temperature=0.05,
        dt=0.5,
        seed=9,
    )
    np.testing.assert_array_equal(found, expected)


# -- policies --------------------------------------------------------------------------------

LANGEVIN = policy_named("langevin")
HALF_LIFE = policy_named("half-life")


def no_events(n):
    return Events(
        np.zeros(n + 1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_), np.zeros(0)
    )


def same_events(n, at, *, confirmed=False, importance=np.nan):
    """The same events for n memories: at, a list of days."""
    count = len(at)
    return Events(
        np.arange(n + 1, dtype=np.int64) * count,
        np.tile(np.array(at, np.int64) * DAY_US, n),
        np.full(n * count, confirmed),
        np.full(n * count, importance),
    )


def median_distance(events, days, n=400):
    lives = Lives.new(np.arange(n), np.zeros(n, np.int64))
    moved, _ = advance(LANGEVIN, lives, events, days * DAY_US)
    return float(np.median(distance(moved.position)))


def test_use_and_importance_enter_the_dynamics():
    n = 400
    quiet = median_distance(no_events(n), 120)
    used = median_distance(same_events(n, [30, 60, 90]), 120)
    helped = median_distance(same_events(n, [30, 60, 90], confirmed=True), 120)
    important = median_distance(same_events(n, [0], importance=1.0), 120)
    assert quiet > used + 0.2 > helped + 0.3
    assert important < 0.75
    late = median_distance(same_events(n, [100], importance=1.0), 120)
    assert important < late < quiet


def test_forgetting_is_gradual_and_an_unused_year_archives():
    n = 1000
    lives = Lives.new(np.arange(n), np.zeros(n, np.int64))
    seen = []
    for days in (1, 30, 60, 120, 365):
        _, found = advance(LANGEVIN, lives, no_events(n), days * DAY_US)
        seen.append([found.count(state) / n for state in STATES])
    assert seen[0][0] == 1.0
    assert 0.4 < seen[1][0] < 0.6  # half of them leave "active" within a month
    assert seen[4][3] > 0.95
    for earlier, later in itertools.pairwise(seen):
        assert later[0] <= earlier[0]
        assert later[3] >= earlier[3]


def test_an_importance_of_one_is_never_archived():
    n = 300
    lives = Lives.new(np.arange(n), np.zeros(n, np.int64))
    for policy in (LANGEVIN, HALF_LIFE):
        _, found = advance(policy, lives, same_events(n, [0], importance=1.0), 2000 * DAY_US)
        assert found.count("archived") == 0


@pytest.mark.parametrize("policy", [LANGEVIN, HALF_LIFE])
def test_to_an_instant_in_one_call_or_in_several(policy):
    rng = np.random.default_rng(0)
    n = 50
    counts = rng.integers(0, 6, n)
    at = rng.integers(-20, 200, counts.sum()) * DAY_US // 2
    importance = np.where(rng.random(at.size) < 0.3, rng.random(at.size), np.nan)
    events = Events(
        np.concatenate([[0], np.cumsum(counts)]), at, rng.random(at.size) < 0.5, importance
    )
    born = rng.integers(-10, 60, n) * DAY_US
    whole, states = advance(policy, Lives.new(np.arange(n), born), events, 120 * DAY_US + 5)
    lives = Lives.new(np.arange(n), born)
    for now in (3, 3, 40, 41, 90):
        lives, _ = advance(policy, lives, events, now * DAY_US)
    lives, again = advance(policy, lives, events, 120 * DAY_US + 5)
    np.testing.assert_array_equal(lives.position, whole.position)
    np.testing.assert_array_equal(lives.strength, whole.strength)
    assert again == states


def test_half_life_is_what_it_says():
    lives = Lives.new(np.arange(1), np.zeros(1, np.int64))
    ages = ((0, "active"), (29, "active"), (31, "warm"), (61, "cold"), (121, "archived"))
    for days, expected in ages:
        moved, found = advance(HALF_LIFE, lives, no_events(1), days * DAY_US)
        assert moved.strength[0] == pytest.approx(2.0 ** (-days / 30))
        assert found == [expected]
    used, _ = advance(HALF_LIFE, lives, same_events(1, [60], confirmed=True), 90 * DAY_US)
    assert used.strength[0] == pytest.approx(2.0**-3 + 2.0**-1)
    future, _ = advance(HALF_LIFE, lives, same_events(1, [91], confirmed=True), 90 * DAY_US)
    assert future.strength[0] == pytest.approx(2.0**-3)


def test_the_seed_matters_and_the_others_do_not():
    lives = Lives.new(np.arange(10), np.zeros(10, np.int64))
    one, _ = advance(LANGEVIN, lives, no_events(10), 30 * DAY_US)
    other, _ = advance(policy_named("langevin", seed=1), lives, no_events(10), 30 * DAY_US)
    assert (one.position != other.position).all()
    alone, _ = advance(
        LANGEVIN, Lives.new(np.array([7]), np.zeros(1, np.int64)), no_events(1), 30 * DAY_US
    )
    np.testing.assert_array_equal(alone.position[0], one.position[7])


def test_progress_can_stop_it():
    lives = Lives.new(np.arange(3), np.zeros(3, np.int64))
    assert advance(LANGEVIN, lives, no_events(3), DAY_US, lambda done, total: False) is None
    assert (lives.position == 0.0).all()
    assert lives.position.shape == (3, DIM)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"kind": "weekly"}, errors.ArgumentError, "kind"),
        ({"half_life_days": 0.0}, errors.ArgumentError, "half_life_days"),
        ({"temperature": -1.0}, errors.ArgumentError, "temperature"),
        ({"limits": (1.0, 1.0, 2.0)}, errors.ArgumentError, "limits"),
        ({"seed": -1}, errors.ArgumentError, "seed"),
        ({"seed": 0.5}, errors.DTypeError, "seed"),
        ({"most": 1e6}, errors.ArgumentError, "overshoots"),
        ({"slope": np.nan}, errors.ArgumentError, "slope"),
    ],
)
def test_bad_policies_are_named(changed, error, message):
    with pytest.raises(error, match=message):
        Policy(**changed)


def test_a_policy_survives_being_written_down():
    policy = Policy(seed=3, limits=(0.5, 0.8, 1.5))
    assert Policy.from_dict(policy.as_dict()) == policy
    with pytest.raises(errors.ArgumentError, match="policy"):
        Policy.from_dict({"kind": "langevin"})
    with pytest.raises(errors.DTypeError, match="policy"):
        policy_named(3)
    with pytest.raises(errors.ArgumentError, match="policy"):
        policy_named("weekly")

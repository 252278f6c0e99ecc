"""The named settings: those the papers print, and that nobody can change them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from riemem.metric import FisherMetric
from riemem.presets import Preset, presets
from riemem.scoring import search


@pytest.mark.parametrize(
    ("name", "covariance", "form", "cosine_weight"),
    [
        ("coremem-pure", "paper", "inner", 0.0),
        ("coremem-fusion", "paper", "inner", 0.5),
        ("coremem-v3", "paper", "inner", 0.9),
        ("whitened-cosine", "full", "cosine", 0.0),
    ],
)
def test_printed_constants(name, covariance, form, cosine_weight):
    preset = presets[name]
    assert preset.name == name
    assert (preset.covariance, preset.form, preset.cosine_weight) == (
        covariance,
        form,
        cosine_weight,
    )
    assert (preset.ridge, preset.energy, preset.norm) == (10.0, 0.95, "minmax")


def test_the_default_is_the_whitened_cosine():
    fields = dataclasses.asdict(presets["default"])
    other = dataclasses.asdict(presets["whitened-cosine"])
    for key in ("name", "source"):
        del fields[key], other[key]
    assert fields == other


def test_the_cosine_preset_scores_plain_cosine():
    preset = presets["cosine"]
    points = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    metric = FisherMetric.fit(points)
    top = search(
        points[:3],
        points,
        metric,
        5,
        cosine_weight=preset.cosine_weight,
        form=preset.form,
        norm=preset.norm,
    )
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    cosines = unit[:3].astype(np.float64) @ unit.T.astype(np.float64)
    np.testing.assert_allclose(top.scores, -np.sort(-cosines, axis=1)[:, :5], atol=1e-6)


@pytest.mark.parametrize("name", [name for name in presets if name != "slm-v3"])
def test_every_preset_can_be_used_as_it_is(name):
    preset = presets[name]
    points = np.random.default_rng(1).normal(size=(64, 8)).astype(np.float32)
    metric = FisherMetric.fit(
        points, covariance=preset.covariance, ridge=preset.ridge, energy=preset.energy
    )
    top = search(
        points[5],
        points,
        metric,
        1,
        cosine_weight=preset.cosine_weight,
        form=preset.form,
        norm=preset.norm,
    )
    assert top.scoring == "fused"
    assert top.scores[0, 0] <= 1.0
    assert preset.source


def test_nothing_can_be_changed():
    with pytest.raises(TypeError):
        presets["default"] = presets["cosine"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        presets["default"].ridge = 1.0
    assert isinstance(presets["default"], Preset)

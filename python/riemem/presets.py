"""Named settings: the ones the papers print, plain cosine, and what riemem uses by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["Preset", "presets"]


@dataclass(frozen=True)
class Preset:
    """One complete setting of the metric and of the score.

    Attributes
    ----------
    name : str
        The key under which it is found.
    covariance, ridge, energy
        Arguments of :meth:`riemem.FisherMetric.fit`.
    form, cosine_weight, norm
        Arguments of :func:`riemem.search`.
    source : str
        Where the setting comes from.
    temperature, full_at
        Of form "fisher-rao" alone: arguments of :func:`riemem.fisher_rao_scores` and
        :func:`riemem.fisher_rao.access_ramp`. This form has no metric; its similarity is in [0, 1].

    Examples
    --------
    >>> presets["coremem-fusion"].cosine_weight
    0.5
    """

    name: str
    covariance: str
    ridge: float
    energy: float
    form: str
    cosine_weight: float
    norm: str
    source: str
    temperature: float = 15.0
    full_at: int = 10


def _coremem(name: str, cosine_weight: float, source: str) -> Preset:
    return Preset(name, "paper", 10.0, 0.95, "inner", cosine_weight, "minmax", source)


_ALL = (
    Preset(
        "default",
        "full",
        10.0,
        0.95,
        "cosine",
        0.0,
        "minmax",
        "riemem: what measured best among the printed and the repaired scores",
    ),
    Preset(
        "whitened-cosine",
        "full",
        10.0,
        0.95,
        "cosine",
        0.0,
        "minmax",
        "cosine after whitening with the ridge covariance",
    ),
    _coremem("coremem-pure", 0.0, "CoreMem (arXiv 2606.18406), Equation 1 alone"),
    _coremem("coremem-fusion", 0.5, "CoreMem (arXiv 2606.18406), Equation 2, alpha = 0.5"),
    _coremem("coremem-v3", 0.9, "CoreMem (arXiv 2606.18406), the setting with alpha = 0.9"),
    Preset("cosine", "full", 10.0, 0.95, "inner", 1.0, "none", "plain cosine similarity"),
    Preset(
        "slm-v3",
        "full",
        10.0,
        0.95,
        "fisher-rao",
        0.0,
        "none",
        "SLM-V3 (arXiv 2603.14588), section 5.2: a variance per memory and dimension",
    ),
)

presets: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _ALL})
"""Every preset by name; the mapping cannot be changed."""

"""The choices of the distiller, and the presets that set them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from riemem.errors import ArgumentError

from .protect import Protection

__all__ = ["Options", "presets"]

_SCORES = ("auto", "sensitivity", "words", "self_information", "random", "truncate", "turns")
_MODES = ("token", "hierarchical")
_CONDITIONS = ("none", "question", "both")
_DECAYS = ("none", "turn", "rank")


@dataclass(frozen=True)
class Options:
    """Every choice of the method; see docs/distillation.md for what each is worth.

    Parameters
    ----------
    mode : {"token", "hierarchical"}
        Words by score, or sentences pruned in the middle and then taken whole.
    score : {"auto", "sensitivity", "words", "self_information", "random", "truncate", "turns"}
        What decides. "words": every word is worth the same before multipliers, relevance and
        novelty. It and the last three need no model. "auto" is "words" for turns that come with
        scores, and for a text "sensitivity" where the default model is on this machine, else
        "words"; a model, a memory budget or a condition that is given makes it "sensitivity". The
        report names what it came to.
    condition : {"none", "question", "both"}
        Whose loss the sensitivity is of.
    context : {"turn", "document"}
        What the model reads at once: each turn alone, or all as one text.
    smooth : int
        Width of the mean over tokens; 0 for none.
    gap : int
        Dropped runs of at most so many words between kept ones are kept too.
    decay : {"none", "turn", "rank"}
        Weight by age (the newest 1) or by the order of the scores the turns came with (the best
        1), falling to `decay_floor`.
    decay_floor : float
        Weight of the oldest or last.
    middle_keep : float, optional
        Share of a long sentence's middle that stays ("hierarchical"); None: as much as fits.
    pool : {"mean", "sum", "max"}
        From a word's tokens to the word.
    density : float
        A score is divided by the cost in tokens to this power.
    novelty : float
        Factor on a word each time it has been kept before.
    headers : bool
        Whether the first word of a turn or session is charged with its name or date.
    oversample : float
        Of turns that come with scores, the best are read that hold so many times the budget; the
        rest is left out unread. Ignored by the score "turns".
    query_boost : float
        Factor on words of the question.
    power : float
        Exponent on the sensitivity: 2 is the Fisher trace of Eq. 3, 1 the printed norm.
    seed : int
        For "random".
    """

    mode: str = "token"
    score: str = "auto"
    condition: str = "none"
    context: str = "turn"
    smooth: int = 0
    gap: int = 0
    decay: str = "rank"
    decay_floor: float = 0.1
    middle_keep: float | None = None
    pool: str = "sum"
    density: float = 1.0
    novelty: float = 0.3
    headers: bool = True
    oversample: float = 2.0
    query_boost: float = 1.0
    power: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        for name, known in (
            ("mode", _MODES),
            ("score", _SCORES),
            ("condition", _CONDITIONS),
            ("context", ("turn", "document")),
            ("decay", _DECAYS),
            ("pool", ("mean", "sum", "max")),
        ):
            if getattr(self, name) not in known:
                raise ArgumentError(
                    f"{name}: expected one of {', '.join(known)}, got {getattr(self, name)!r}"
                )
        for name in ("smooth", "gap", "seed"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ArgumentError(f"{name}: expected an int >= 0, got {value!r}")
        if self.smooth and self.smooth % 2 == 0:
            raise ArgumentError(f"smooth: expected an odd width or 0, got {self.smooth}")
        for name, low, high in (
            ("decay_floor", 0.0, 1.0),
            ("novelty", 0.0, 1.0),
            ("density", 0.0, 10.0),
            ("query_boost", 0.0, 1e6),
            ("power", 0.0, 10.0),
            ("oversample", 1.0, 1e6),
        ):
            _check_number(name, getattr(self, name), low, high)
        if self.middle_keep is not None:
            _check_number("middle_keep", self.middle_keep, 0.0, 1.0)


def _check_number(name: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ArgumentError(f"{name}: expected a number from {low} to {high}, got {value!r}")


_PAPER_PROTECTION = Protection(connector=1.2, number=1.4, name=1.3, sentence_end=1.3, structure=1.5)

_PAPER: dict[str, Any] = {
    "score": "sensitivity",
    "smooth": 5,
    "gap": 3,
    "decay": "turn",
    "decay_floor": 0.6,
    "pool": "mean",
    "density": 0.0,
    "power": 1.0,
    "novelty": 1.0,
    "headers": False,
    "context": "document",
}

presets: dict[str, tuple[Options, Protection]] = {
    "default": (Options(), Protection()),
    "coremem": (Options(mode="hierarchical", **_PAPER), _PAPER_PROTECTION),
    "coremem-token": (Options(mode="token", **_PAPER), _PAPER_PROTECTION),
}

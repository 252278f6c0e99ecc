"""What the local model said in the compression evaluation, kept between questions and runs."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from ..distill.language_model import LanguageModel
from .likelihood import AnswerPrediction, divergence, predict_answer

__all__ = ["ModelCache"]


class ModelCache:
    """Sensitivities, and likelihoods of answers, in memory and in a folder.

    Parameters
    ----------
    folder : path, optional
        Holds ``sensitivities.json`` and ``answers.json``; None: nothing is kept.

    Notes
    -----
    Several methods, budgets and ratios ask the model for the same: the pass of a question over
    the turns that were read, the answer after whole turns, and after one and the same text.
    """

    keeps_questions = True

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._known: dict[str, str] = self._read("sensitivities.json")
        self._answers: dict[str, list[float]] = self._read("answers.json")
        self._full: tuple[tuple[str, ...], AnswerPrediction] | None = None
        self._fresh: set[str] = set()

    def _read(self, name: str) -> dict[str, Any]:
        if self._folder is None or not (self._folder / name).exists():
            return {}
        found: dict[str, Any] = json.loads((self._folder / name).read_text(encoding="utf-8"))
        return found

    def get(self, memory_id: int, key: str) -> bytes | None:
        """Return the sensitivities under a key."""
        found = self._known.get(key)
        return None if found is None else bytes.fromhex(found)

    def put(self, memory_id: int, key: str, value: bytes) -> None:
        """Keep sensitivities."""
        self._known[key] = value.hex()
        self._fresh.add("sensitivities.json")

    def answer(
        self, model: LanguageModel, full: str, text: str, question: str, answer: str
    ) -> dict[str, float]:
        """Return how an answer fares after a text, against a fuller one.

        Parameters
        ----------
        model : LanguageModel
            One forward pass for the text, and one for the fuller text of a question.
        full, text, question, answer : str
            As for :func:`~riemem.evaluation.likelihood.predict_answer`.

        Returns
        -------
        dict
            ``nll`` after the text, ``delta_nll`` against the fuller one, and ``kl``.
        """
        asked = (model.identity, full, question, answer)
        key = hashlib.sha256(json.dumps([*asked, text]).encode()).hexdigest()
        if key not in self._answers:
            if self._full is None or self._full[0] != asked:
                self._full = (asked, predict_answer(model, full, question, answer))
            whole = self._full[1]
            found = whole if text == full else predict_answer(model, text, question, answer)
            self._answers[key] = [found.nll, found.nll - whole.nll, divergence(whole, found)]
            self._fresh.add("answers.json")
        return dict(zip(("nll", "delta_nll", "kl"), self._answers[key], strict=True))

    def save(self) -> None:
        """Write what is new; a run that is interrupted leaves whole files."""
        if self._folder is not None and self._fresh:
            self._folder.mkdir(parents=True, exist_ok=True)
            for name, values in (
                ("sensitivities.json", self._known),
                ("answers.json", self._answers),
            ):
                if name in self._fresh:
                    part = self._folder / f"{name}.part"
                    part.write_text(json.dumps(values), encoding="utf-8")
                    part.replace(self._folder / name)
        self._fresh.clear()

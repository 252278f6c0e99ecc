"""An optional second look at the best hits by a model that reads query and text together."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from riemem.errors import ArgumentError, DTypeError, ModelNotFoundError, NotFiniteError, ShapeError
from riemem.retrieval.channel import ChannelHits

__all__ = ["CrossEncoder", "Reranker", "check_reranker", "rerank"]


@runtime_checkable
class Reranker(Protocol):
    """Anything that says how well texts answer a query; used by ``Memory.search(reranker=...)``."""

    def scores(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return one logit per text: larger is better, 0 is undecided."""


class CrossEncoder:
    """A sequence-classification model from a local folder, as a :class:`Reranker`.

    Parameters
    ----------
    path : str or path
        A folder with ``config.json``, weights and tokenizer of a cross-encoder with one label.
    batch_size : int
    max_tokens : int

    Raises
    ------
    ModelNotFoundError
        There is no such folder. Nothing is ever downloaded.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, batch_size: int = 16, max_tokens: int = 512
    ) -> None:
        folder = Path(path)
        if not (folder / "config.json").is_file():
            raise ModelNotFoundError(f"path: no cross-encoder at {folder} (config.json is missing)")
        if batch_size < 1 or max_tokens < 8:
            raise ArgumentError(
                f"batch_size, max_tokens: expected at least 1 and 8, got {batch_size}, {max_tokens}"
            )
        self.path = folder
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self._lock = threading.Lock()
        self._parts: tuple[Any, Any] | None = None

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the model's logit per text; deterministic, on the CPU, in float32."""
        import torch

        with self._lock, torch.inference_mode():
            if self._parts is None:
                from transformers import AutoModelForSequenceClassification, AutoTokenizer

                local: dict[str, Any] = {"local_files_only": True}
                model = AutoModelForSequenceClassification.from_pretrained(
                    self.path, dtype=torch.float32, **local
                ).eval()
                self._parts = (AutoTokenizer.from_pretrained(self.path, **local), model)
            tokenizer, model = self._parts
            found: list[float] = []
            for start in range(0, len(texts), self.batch_size):
                part = list(texts[start : start + self.batch_size])
                inputs = tokenizer(
                    [query] * len(part),
                    part,
                    truncation=True,
                    max_length=self.max_tokens,
                    padding=True,
                    return_tensors="pt",
                )
                found += model(**inputs).logits[:, 0].double().tolist()
        return found


def check_reranker(value: object) -> Reranker | None:
    """Return the reranker, a :class:`CrossEncoder` for a path, or None.

    Raises
    ------
    DTypeError, ModelNotFoundError
    """
    if value is None or isinstance(value, Reranker):
        return value
    if isinstance(value, (str, os.PathLike)):
        return CrossEncoder(value)
    raise DTypeError(
        f"reranker: expected an object with scores(query, texts), a path or None, "
        f"got {type(value).__name__}"
    )


def rerank(
    found: ChannelHits, texts: dict[int, str], reranker: Reranker, query: str, alpha: float
) -> ChannelHits:
    """Blend: ``alpha sigmoid(logit) + (1 - alpha) s``, s = the score scaled to [0, 1].

    Notes
    -----
    SLM-V3 (arXiv 2603.14588), Equation 12, which adds the unscaled reciprocal-rank sum; that is
    below 0.08, so there the model decides alone whatever alpha is. Scaled, alpha means something.

    Raises
    ------
    ShapeError, NotFiniteError
        The reranker did not return one finite number per text.
    """
    pairs = [(memory_id, score) for memory_id, score in found if memory_id in texts]
    if not pairs:
        return found
    logits = np.asarray(
        reranker.scores(query, [texts[memory_id] for memory_id, _ in pairs]), np.float64
    )
    if logits.shape != (len(pairs),):
        raise ShapeError(f"reranker: expected {len(pairs)} scores, got shape {logits.shape}")
    if not np.isfinite(logits).all():
        raise NotFiniteError("reranker: expected finite scores, got NaN or an infinity")
    chance = 0.5 * (1.0 + np.tanh(0.5 * logits))  # the sigmoid, without overflow
    scores = np.array([score for _, score in pairs])
    spread = scores.max() - scores.min()
    scaled = (scores - scores.min()) / spread if spread > 0 else np.zeros_like(scores)
    own, rest = alpha * chance, (1.0 - alpha) * scaled
    details = {
        memory_id: {**found.details.get(memory_id, {}), "reranker": float(a), "ranking": float(b)}
        for (memory_id, _), a, b in zip(pairs, own, rest, strict=True)
    }
    order = sorted(range(len(pairs)), key=lambda i: (-(own[i] + rest[i]), pairs[i][0]))
    return ChannelHits(
        ((pairs[i][0], float(own[i] + rest[i])) for i in order),
        scoring=f"reranked, alpha {alpha:g}; {found.scoring}",
        notes=found.notes,
        details=details,
    )

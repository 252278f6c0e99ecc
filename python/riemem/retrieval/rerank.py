"""An optional second look at the best hits by a model that reads query and text together."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from riemem._tokenizer import load_tokenizer, require
from riemem.errors import (
    ArgumentError,
    DTypeError,
    ModelCorruptError,
    ModelNotFoundError,
    NotFiniteError,
    ShapeError,
)
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
        A folder with ``config.json``, ``model.safetensors`` and ``tokenizer.json`` of a
        cross-encoder with one label.
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
        if not os.path.isfile(folder / "config.json"):
            raise ModelNotFoundError(
                f"path: no cross-encoder at {os.fspath(path)!r:.200} (config.json is missing)"
            )
        if batch_size < 1 or max_tokens < 8:
            raise ArgumentError(
                f"batch_size, max_tokens: expected at least 1 and 8, got {batch_size}, {max_tokens}"
            )
        self.path = folder
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self._lock = threading.Lock()
        self._model: Any = None

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the model's logit per text; deterministic, on the CPU, in float32.

        Of a pair that is too long the text loses its end, and the query what is beyond half.

        Raises
        ------
        ModelCorruptError
            The folder's files are incomplete or not those of such a model.
        BackendUnavailableError
            torch, transformers or tokenizers is not installed.
        """
        if not texts:
            return []
        with self._lock:
            if self._model is None:
                self._model = self._load()
            found: list[float] = []
            for start in range(0, len(texts), self.batch_size):
                found += self._logits(query, texts[start : start + self.batch_size])
        return found

    def _load(self) -> Any:
        # By hand, because from_pretrained draws bars, and fills in noise where a weight is missing.
        require("torch", "transformers", "safetensors", "tokenizers")
        import torch
        from safetensors import SafetensorError
        from safetensors.torch import load_file
        from transformers import AutoConfig, AutoModelForSequenceClassification

        try:
            config = AutoConfig.from_pretrained(str(self.path), local_files_only=True)
            state = load_file(str(self.path / "model.safetensors"))
        except (OSError, ValueError, SafetensorError) as error:
            raise ModelCorruptError(f"model folder {self.path}: {error}") from error
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            model = AutoModelForSequenceClassification.from_config(config).to(torch.float32)
        missing = model.load_state_dict(state, strict=False).missing_keys
        needed = [name for name in missing if "position_ids" not in name]
        if needed or config.num_labels != 1:
            what = f"lacks {needed[0]}" if needed else f"has {config.num_labels} labels, not one"
            raise ModelCorruptError(f"model folder {self.path}: model.safetensors {what}")
        self._kinds = int(getattr(config, "type_vocab_size", 0) or 0) > 1
        self._pad = int(config.pad_token_id or 0)
        limit = int(getattr(config, "max_position_embeddings", 0) or self.max_tokens)
        self._limit = min(self.max_tokens, limit)
        return model.eval().requires_grad_(False)

    def _logits(self, query: str, texts: Sequence[str]) -> list[float]:
        import torch

        tokenizer = load_tokenizer(self.path)
        room = self._limit - int(tokenizer.num_special_tokens_to_add(True))
        pairs = []
        for text in texts:
            asked = tokenizer.encode(query, add_special_tokens=False)
            said = tokenizer.encode(text, add_special_tokens=False)
            asked.truncate(min(len(asked), max(room // 2, room - len(said))))
            said.truncate(min(len(said), room - len(asked)))
            pairs.append(tokenizer.post_process(asked, said, add_special_tokens=True))
        shape = (len(pairs), max(len(pair) for pair in pairs))
        ids = np.full(shape, self._pad, np.int64)
        mask, kinds = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for i, pair in enumerate(pairs):
            ids[i, : len(pair)], mask[i, : len(pair)] = pair.ids, 1
            kinds[i, : len(pair)] = pair.type_ids
        inputs = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        if self._kinds:
            inputs["token_type_ids"] = torch.from_numpy(kinds)
        with torch.inference_mode(), torch.autocast("cpu", enabled=False):
            logits: list[float] = self._model(**inputs).logits[:, 0].double().tolist()
        return logits


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
    DTypeError, ShapeError, NotFiniteError
        The reranker did not return one finite number per text.
    """
    pairs = [(memory_id, score) for memory_id, score in found if memory_id in texts]
    if not pairs:
        return found
    given = reranker.scores(query, [texts[memory_id] for memory_id, _ in pairs])
    try:
        logits = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise DTypeError(
            f"reranker: expected scores() to return numbers, got {type(given).__name__}"
        ) from error
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

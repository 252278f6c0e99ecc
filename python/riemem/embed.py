"""Turning text into unit vectors: the embedder protocol, MiniLM, and a hashing stand-in.

Importing this module imports neither torch nor transformers; they are loaded by the first call
of :meth:`MiniLMEmbedder.embed`.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import getattr_static
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from . import _windows, models
from ._encoder import EncoderFiles
from ._rendering import RENDERINGS, render_turn
from ._tokenizer import encodable, require
from ._windows import Windows
from .errors import ArgumentError, DTypeError, NotFiniteError

__all__ = [
    "RENDERINGS",
    "Embedder",
    "HashingEmbedder",
    "MiniLMEmbedder",
    "Windows",
    "load_embedder",
    "render_turn",
]


@runtime_checkable
class Embedder(Protocol):
    """What riemem asks of anything that turns text into vectors.

    A store remembers `identity` and refuses vectors of another one, so it must change whenever
    the vectors would: with the weights, the tokenizer, the pooling or the length limit, but not
    with the batch size or the number of threads.
    """

    @property
    def identity(self) -> str:
        """Name, options and content hash of the embedder."""

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""

    @property
    def max_tokens(self) -> int:
        """Longest input, in the embedder's own tokens; :meth:`embed` ignores what follows."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit rows, float32 (len(texts), dim), in the order of `texts`."""

    def windows(self, text: str) -> Sequence[str]:
        """Return pieces of `text`, each short enough to be embedded whole."""


def _checked_texts(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, (str, bytes)):
        raise DTypeError(f"texts: expected a sequence of str, got a single {type(texts).__name__}")
    return [encodable(text, f"texts[{i}]") for i, text in enumerate(texts)]


class MiniLMEmbedder:
    """Mean-pooled sentence vectors of a local BERT-type encoder, MiniLM-L6 unless told otherwise.

    ``v = normalise(mean over tokens of the last hidden state)``, in float32 on the CPU, from at
    most 256 tokens (the limit that all-MiniLM-L6-v2 states).

    Parameters
    ----------
    model : str or path, optional
        A known name, a folder with ``config.json``, ``model.safetensors`` and
        ``tokenizer.json``, or a Hugging Face id in the local cache. Default: ``"minilm"``.
    batch_size : int
        Texts per forward pass. Changes speed and memory, and the vectors by less than 1e-6.
    threads : int, optional
        Threads torch may use while embedding; its global setting is restored afterwards. None
        leaves the setting alone.

    Raises
    ------
    ModelNotFoundError
        On first use: the model is not on this machine; the message says which command gets it.
    ModelCorruptError
        On first use: the files are incomplete or not of a kind that can be used.
    BackendUnavailableError
        On first use: torch, transformers or tokenizers is not installed.

    Notes
    -----
    Texts are sorted by length before batching, so padding is rare; the order of the result is
    that of the input. Control strings such as ``[SEP]`` are ordinary text. Gradient mode, random
    state and default dtype of torch are left as they were. One instance may be shared between
    threads; they take turns. The files are looked for on first use, not on construction.

    Examples
    --------
    >>> embedder = MiniLMEmbedder(batch_size=8)      # nothing is loaded yet
    >>> embedder.batch_size
    8
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        batch_size: int = 32,
        threads: int | None = None,
    ) -> None:
        for name, value in (("batch_size", batch_size), ("threads", threads)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ArgumentError(f"{name}: expected an integer of at least 1, got {value!r}")
        self._spec = "minilm" if model is None else model
        self.batch_size = batch_size
        self.threads = threads
        self._lock = threading.RLock()
        self._files: EncoderFiles | None = None
        self._model: Any = None

    def __repr__(self) -> str:
        return f"MiniLMEmbedder({os.fspath(self._spec)!r}, batch_size={self.batch_size})"

    @property
    def files(self) -> EncoderFiles:
        """The model's folder and options, found and read on first use."""
        with self._lock:
            if self._files is None:
                self._files = EncoderFiles(models.find(self._spec))
            return self._files

    @property
    def identity(self) -> str:
        """For example ``minilm-l6-v2:384:mean:256:sha256=0123456789abcdef``."""
        with self._lock:
            return self.files.identity()

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.files.dim

    @property
    def max_tokens(self) -> int:
        """Longest input in word pieces, the two control tokens included."""
        return self.files.max_tokens

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per text.

        Parameters
        ----------
        texts : sequence of str
            Any number of texts; what lies beyond `max_tokens` does not count (see `windows`).

        Returns
        -------
        ndarray of float32, shape (len(texts), dim)
            Rows of length 1, in the order of `texts`.

        Raises
        ------
        DTypeError
            `texts` is a single string.
        TextError
            A text is not a string or holds a lone surrogate; the message says which and where.
        """
        checked = _checked_texts(texts)
        files = self.files
        vectors = np.empty((len(checked), files.dim), dtype=np.float32)
        if not checked:
            return vectors
        tokens = [files.token_ids(text) for text in checked]
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        with self._lock, self._torch_settings():
            for start in range(0, len(order), self.batch_size):
                rows = order[start : start + self.batch_size]
                vectors[rows] = self._forward([tokens[i] for i in rows])
        return vectors

    def windows(self, text: str) -> Windows:
        """Cut a long text into overlapping windows that can each be embedded whole.

        Parameters
        ----------
        text : str
            Any text; a short one comes back as the only window.

        Returns
        -------
        Windows
            A list of str with ``.spans`` (character offsets) and ``.truncated``.

        Raises
        ------
        TextError
            `text` is not valid Unicode.
        """
        files = self.files
        return _windows.split(
            encodable(text), files.tokenizer(), files.max_tokens - files.added_tokens()
        )

    @contextmanager
    def _torch_settings(self) -> Iterator[None]:
        """Load the model if need be, and hold torch in a known state for the calling thread."""
        require("torch", "transformers")
        import torch

        before = torch.get_num_threads()
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        try:
            if self._model is None:
                self._model = self.files.load()
            with torch.inference_mode(), torch.autocast("cpu", enabled=False):
                yield
        finally:
            if self.threads is not None:
                torch.set_num_threads(before)

    def _forward(self, batch: list[list[int]]) -> NDArray[np.float32]:
        import torch

        lengths = np.array([len(tokens) for tokens in batch])
        ids = np.full((len(batch), int(lengths.max())), self.files.pad_id, dtype=np.int64)
        for row, tokens in zip(ids, batch, strict=True):
            row[: len(tokens)] = tokens
        mask = (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int64)
        hidden = self._model(
            input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask)
        ).last_hidden_state
        states: NDArray[np.float32] = hidden.numpy()
        if self.files.pooling == "cls":
            pooled = states[:, 0].astype(np.float64)
        else:
            # The padded states are left out of the sum, so it is taken row by row.
            pooled = np.stack(
                [
                    row[:n].sum(axis=0, dtype=np.float64)
                    for row, n in zip(states, lengths, strict=True)
                ]
            )
        norms = np.linalg.norm(pooled, axis=1, keepdims=True)
        if not np.all(np.isfinite(norms) & (norms > 0)):
            raise NotFiniteError("embed: the model returned a vector without a direction")
        unit: NDArray[np.float32] = (pooled / norms).astype(np.float32)
        return unit


class HashingEmbedder:
    """A deterministic embedder without a model: words and letter triples, projected by hashing.

    ``v = normalise(sum of f(w) + 0.25 * sum of f(t))`` over the words w and the letter triples t
    of the text, where f maps a string to a vector of signs drawn from its BLAKE2 hash. For tests
    and for machines without a model: it finds shared words and spelling, not meaning.

    Parameters
    ----------
    dim : int
        Dimension of the vectors.
    seed : int
        Another seed gives another, unrelated projection.

    Notes
    -----
    The same vectors in every process, on every machine. A text without any word is hashed by its
    characters, so no text has the zero vector.

    Examples
    --------
    >>> rows = HashingEmbedder(dim=64).embed(["a red bicycle", "red bicycles", "tax form"])
    >>> bool(rows[0] @ rows[1] > 0.3 > abs(rows[0] @ rows[2]))
    True
    """

    max_tokens = 1_000_000

    def __init__(self, dim: int = 64, seed: int = 0) -> None:
        if not isinstance(dim, int) or dim < 1:
            raise ArgumentError(f"dim: expected an integer of at least 1, got {dim!r}")
        if not isinstance(seed, int):
            raise ArgumentError(f"seed: expected an integer, got {seed!r}")
        self.dim = dim
        self.seed = seed
        self._key = hashlib.sha256(str(seed).encode()).digest()

    def __repr__(self) -> str:
        return f"HashingEmbedder(dim={self.dim}, seed={self.seed})"

    @property
    def identity(self) -> str:
        """Name, dimension and seed; there are no weights to hash."""
        return f"hashing-v1:{self.dim}:seed={self.seed}"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per text; parameters and errors as `MiniLMEmbedder.embed`."""
        checked = _checked_texts(texts)
        vectors = np.zeros((len(checked), self.dim), dtype=np.float32)
        for row, text in zip(vectors, checked, strict=True):
            total = self._project(text)
            row[:] = total / np.linalg.norm(total)
        return vectors

    def windows(self, text: str) -> Windows:
        """Return the text as its only window: hashing has no length limit worth the name."""
        return Windows([encodable(text)], spans=[(0, len(text))], truncated=False)

    def _project(self, text: str) -> NDArray[np.float64]:
        total = np.zeros(self.dim)
        words = re.findall(r"\w+", text.casefold())
        for word in words:
            total += self._signs(f"w:{word}")
            padded = f"<{word}>"
            for i in range(len(padded) - 2):
                total += 0.25 * self._signs(f"t:{padded[i : i + 3]}")
        if not words:
            for character in text:
                total += self._signs(f"c:{character}")
        # Signs can cancel, and an empty text has nothing to add up.
        return total if np.any(total) else self._signs(f"x:{text}")

    def _signs(self, feature: str) -> NDArray[np.float64]:
        data, blocks = feature.encode("utf-8"), []
        for block in range(-(-self.dim // 512)):
            salt = block.to_bytes(8, "little")
            digest = hashlib.blake2b(data, digest_size=64, key=self._key, salt=salt).digest()
            blocks.append(np.frombuffer(digest, dtype=np.uint8))
        bits = np.unpackbits(np.concatenate(blocks))[: self.dim]
        return bits.astype(np.float64) * 2.0 - 1.0


def load_embedder(spec: str | os.PathLike[str] | Embedder | None = None) -> Embedder:
    """Return the embedder that `spec` names.

    Parameters
    ----------
    spec : str, path, Embedder or None
        None: MiniLM from the cache, looked for on first use. A known name, a folder or a Hugging
        Face id in the local cache: looked for now. An embedder: itself.

    Returns
    -------
    Embedder

    Raises
    ------
    ModelNotFoundError, ModelCorruptError
        As :func:`riemem.models.find`.
    DTypeError
        `spec` is none of these.

    Examples
    --------
    >>> load_embedder(HashingEmbedder(dim=8)).identity
    'hashing-v1:8:seed=0'
    """
    if spec is None:
        return MiniLMEmbedder()
    if isinstance(spec, (str, os.PathLike)):
        embedder = MiniLMEmbedder(spec)
        _ = embedder.files
        return embedder
    # Not isinstance: that reads the properties, which would look for the model's files.
    names = ("identity", "dim", "max_tokens", "embed", "windows")
    if all(getattr_static(spec, name, None) is not None for name in names):
        return spec
    raise DTypeError(
        "embedder: expected a name, a folder or an object with identity, dim, max_tokens, embed "
        f"and windows, got {type(spec).__name__}"
    )

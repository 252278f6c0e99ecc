"""Turning text into unit vectors: the embedder protocol, its kinds, and a hashing stand-in.

Importing this module imports neither torch nor transformers nor onnxruntime; they are loaded by
the first call of ``embed``.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from inspect import getattr_static
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ._onnx import OnnxEmbedder, export_onnx, onnx_file
from ._rendering import RENDERINGS, render_turn
from ._sentence import SentenceEmbedder, checked_texts
from ._token_vectors import TokenVectors
from ._tokenizer import encodable
from ._windows import Windows
from .errors import ArgumentError, DTypeError

__all__ = [
    "RENDERINGS",
    "Embedder",
    "HashingEmbedder",
    "MiniLMEmbedder",
    "OnnxEmbedder",
    "SentenceEmbedder",
    "TokenEmbedder",
    "TokenVectors",
    "Windows",
    "export_onnx",
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


@runtime_checkable
class TokenEmbedder(Embedder, Protocol):
    """An :class:`Embedder` that can also give the vectors of a text's tokens.

    What compares the words of a question with those of a memory one by one asks for it. Where
    questions are embedded otherwise than memories, ``embed_queries_with_tokens`` beside
    ``embed_queries`` is used for them. A new store keeps them from its first memory on; an embedder
    whose tokens are not worth that has an attribute ``tokens_by_default`` that is False.
    """

    def embed_with_tokens(
        self, texts: Sequence[str]
    ) -> tuple[NDArray[np.float32], list[TokenVectors]]:
        """Return what :meth:`embed` does and each text's tokens, out of one pass."""


class MiniLMEmbedder(SentenceEmbedder):
    """Mean-pooled sentence vectors of MiniLM-L6, unless another model is named.

    ``v = normalise(mean over tokens of the last hidden state)``, in float32 on the CPU, from at
    most 256 tokens (the limit that all-MiniLM-L6-v2 states).

    Parameters
    ----------
    model : str or path, optional
        Default: ``"minilm"``, from the cache.
    **options
        As :class:`SentenceEmbedder`.

    Examples
    --------
    >>> embedder = MiniLMEmbedder(batch_size=8)      # nothing is loaded yet
    >>> embedder.batch_size
    8
    """

    def __init__(self, model: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__("minilm" if model is None else model, **options)


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
    #: Its tokens are words without their context, which the words of a search find anyway.
    tokens_by_default = False

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
        checked = checked_texts(texts)
        vectors = np.zeros((len(checked), self.dim), dtype=np.float32)
        for row, text in zip(vectors, checked, strict=True):
            total = self._project(text)
            row[:] = total / np.linalg.norm(total)
        return vectors

    def embed_with_tokens(
        self, texts: Sequence[str]
    ) -> tuple[NDArray[np.float32], list[TokenVectors]]:
        """Return what `embed` does, and of each word what the text's vector is made of.

        See :class:`TokenEmbedder`; words are the tokens here.
        """
        vectors = self.embed(texts)
        return vectors, [self._words_of(text) for text in texts]

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

    def _words_of(self, text: str) -> TokenVectors:
        found = list(re.finditer(r"\w+", text))
        rows = np.zeros((len(found), self.dim))
        for row, word in zip(rows, found, strict=True):
            row[:] = self._project(word[0])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        starts, ends = np.array([word.span() for word in found], np.int32).reshape(-1, 2).T
        return TokenVectors(starts, ends, rows.astype(np.float32))

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
        None: MiniLM from the cache, looked for on first use. A known name, a folder in the layout
        of sentence-transformers or a Hugging Face id in the local cache: looked for now. A folder
        with an ONNX model and no safetensors, or an ``.onnx`` file in such a folder:
        :class:`OnnxEmbedder`. An embedder: itself.

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
        embedder = _by_path(spec)
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


def _by_path(spec: str | os.PathLike[str]) -> SentenceEmbedder:
    path = Path(spec)
    if path.suffix == ".onnx" and path.is_file():
        for folder in (path.parent, path.parent.parent):
            if (folder / "config.json").is_file():
                return OnnxEmbedder(folder, file=path.relative_to(folder).as_posix())
    embedder = SentenceEmbedder(spec)
    files = embedder.files
    if (files.folder / files.weights).exists() or onnx_file(files.folder) is None:
        return embedder
    return OnnxEmbedder(files.folder)

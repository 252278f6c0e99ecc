"""Sentence vectors of a local encoder in the layout of sentence-transformers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _windows, models
from ._encoder import EncoderFiles
from ._pooling import pool
from ._token_vectors import TokenVectors, token_vectors
from ._tokenizer import encodable, require
from ._windows import Windows
from .errors import ArgumentError, DTypeError, NotFiniteError

__all__ = ["SentenceEmbedder", "checked_texts"]


def checked_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts as a list, each valid Unicode.

    Raises
    ------
    DTypeError, TextError
    """
    if isinstance(texts, (str, bytes)):
        raise DTypeError(f"texts: expected a sequence of str, got a single {type(texts).__name__}")
    return [encodable(text, f"texts[{i}]") for i, text in enumerate(texts)]


class SentenceEmbedder:
    """Unit sentence vectors of any encoder saved by sentence-transformers, on the CPU.

    ``v = normalise(dense layers(pool(last hidden states of prompt + text)))``: the poolings
    (cls, max, mean, mean_sqrt_len, weightedmean, lasttoken, also several side by side), the dense
    layers, the length limit, ``do_lower_case`` and the prompts are read from the folder.

    Parameters
    ----------
    model : str or path
        A known name, a folder with ``config.json``, ``model.safetensors`` and
        ``tokenizer.json``, or a Hugging Face id in the local cache.
    batch_size : int
        Texts per forward pass. Changes speed and memory, and the vectors by less than 1e-6.
    threads : int, optional
        Threads torch may use while embedding; its global setting is restored afterwards. None
        leaves the setting alone.
    query_prompt, document_prompt : str, optional
        What is put before a query or a memory; by default the folder's own prompts "query" and
        "document" (or "passage"), or its default prompt, or nothing.

    Raises
    ------
    ArgumentError, DTypeError
    ModelNotFoundError
        On first use: the model is not on this machine; the message says which command gets it.
    ModelCorruptError
        On first use: the files are incomplete or not of a kind that can be used.
    BackendUnavailableError
        On first use: torch, transformers or tokenizers is not installed.

    Notes
    -----
    Vectors are normalised also where the folder asks for none, because riemem compares
    directions. Texts are sorted by length before batching, so padding is rare; the order of the
    result is that of the input. Control strings such as ``[SEP]`` are ordinary text. Gradient
    mode, random state and default dtype of torch are left as they were. One instance may be
    shared between threads; they take turns. The files are looked for on first use, not on
    construction.

    Examples
    --------
    >>> embedder = SentenceEmbedder("minilm", batch_size=8)      # nothing is loaded yet
    >>> embedder.batch_size
    8
    """

    _weights_file: str | None = None

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        batch_size: int = 32,
        threads: int | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
    ) -> None:
        for name, value in (("batch_size", batch_size), ("threads", threads)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ArgumentError(f"{name}: expected an integer of at least 1, got {value!r}")
        for name, prompt in (("query_prompt", query_prompt), ("document_prompt", document_prompt)):
            if prompt is not None and not isinstance(prompt, str):
                raise DTypeError(f"{name}: expected str or None, got {type(prompt).__name__}")
        self._spec = model
        self.batch_size = batch_size
        self.threads = threads
        self._prompts = (query_prompt, document_prompt)
        self._lock = threading.RLock()
        self._files: EncoderFiles | None = None
        self._model: Any = None
        self._dense: list[tuple[Any, Any, str]] = []

    def __repr__(self) -> str:
        return f"{type(self).__name__}({os.fspath(self._spec)!r}, batch_size={self.batch_size})"

    @property
    def files(self) -> EncoderFiles:
        """The model's folder and options, found and read on first use."""
        with self._lock:
            if self._files is None:
                self._files = EncoderFiles(models.find(self._spec), self._weights_file)
            return self._files

    @property
    def tokens_by_default(self) -> bool:
        """Whether a new store keeps the vectors of tokens: where the text's is a mean of them.

        What training made of tokens that are only picked from, or not pooled at all, nobody knows.
        """
        return any("mean" in mode for mode in self.files.modes)

    @property
    def query_prompt(self) -> str:
        """What is put before a query."""
        return self.files.query_prompt if self._prompts[0] is None else self._prompts[0]

    @property
    def document_prompt(self) -> str:
        """What is put before a memory."""
        return self.files.document_prompt if self._prompts[1] is None else self._prompts[1]

    @property
    def identity(self) -> str:
        """For example ``minilm-l6-v2:384:mean:256:sha256=0123456789abcdef``."""
        with self._lock:
            return self.files.identity(self.query_prompt, self.document_prompt)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.files.dim

    @property
    def max_tokens(self) -> int:
        """Longest input in word pieces, the control tokens included."""
        return self.files.max_tokens

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per text, each behind the document prompt.

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
        NotFiniteError
            The model returned a vector without a direction.
        """
        checked = checked_texts(texts)
        return self._embed(checked, self.document_prompt if checked else "")

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per text, each behind the query prompt; see :meth:`embed`."""
        checked = checked_texts(texts)
        return self._embed(checked, self.query_prompt if checked else "")

    def embed_with_tokens(
        self, texts: Sequence[str]
    ) -> tuple[NDArray[np.float32], list[TokenVectors]]:
        """Return what :meth:`embed` does and, from the same pass, the vectors of the tokens.

        Those are the last hidden states with length 1, before pooling and dense layers; tokens of
        the prompt and tokens that mark the ends of a text are left out.

        Parameters
        ----------
        texts : sequence of str
            As for :meth:`embed`.

        Returns
        -------
        vectors : ndarray of float32, shape (len(texts), dim)
        tokens : list of TokenVectors
            Their offsets are characters of the texts as they were given.

        Raises
        ------
        DTypeError, TextError, NotFiniteError
            As :meth:`embed`.
        """
        checked = checked_texts(texts)
        tokens: list[TokenVectors] = []
        return self._embed(checked, self.document_prompt if checked else "", tokens), tokens

    def embed_queries_with_tokens(
        self, texts: Sequence[str]
    ) -> tuple[NDArray[np.float32], list[TokenVectors]]:
        """Return :meth:`embed_queries` and the tokens; see :meth:`embed_with_tokens`."""
        checked = checked_texts(texts)
        tokens: list[TokenVectors] = []
        return self._embed(checked, self.query_prompt if checked else "", tokens), tokens

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
        longest = max(map(files.prompt_tokens, (self.query_prompt, self.document_prompt)))
        room = files.max_tokens - files.added_tokens() - longest
        return _windows.split(encodable(text), files.tokenizer(), max(8, room))

    def _embed(
        self, texts: list[str], prompt: str, found: list[TokenVectors] | None = None
    ) -> NDArray[np.float32]:
        """The vectors; the tokens of each text are appended to `found`, where it is given."""
        files = self.files
        vectors = np.empty((len(texts), files.dim), dtype=np.float32)
        if not texts:
            return vectors
        tokens = [files.token_ids(prompt + text) for text in texts]
        skip = 0 if files.include_prompt or not prompt else files.prompt_tokens(prompt) + 1
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        by_text: dict[int, TokenVectors] = {}
        with self._lock, self._running():
            if files.projections and not self._dense:
                self._dense = files.load_projections()
            for start in range(0, len(order), self.batch_size):
                rows = order[start : start + self.batch_size]
                states, lengths = self._forward([tokens[i] for i in rows])
                vectors[rows] = self._pooled(states, lengths, skip)
                if found is not None:
                    for i, own, length in zip(rows, states, lengths, strict=True):
                        by_text[i] = self._tokens(prompt, texts[i], own[:length])
        if found is not None:
            found += [by_text[i] for i in range(len(texts))]
        return vectors

    def _tokens(self, prompt: str, text: str, states: NDArray[np.float32]) -> TokenVectors:
        places, special = self.files.token_places(prompt + text)
        own = [(start - len(prompt), end - len(prompt)) for start, end in places]
        return token_vectors(states, own, special)

    def _running(self) -> AbstractContextManager[None]:
        """Load the model if need be, and hold its library in a known state."""
        return self._torch_settings()

    @contextmanager
    def _torch_settings(self) -> Iterator[None]:
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

    def _forward(self, batch: list[list[int]]) -> tuple[NDArray[np.float32], list[int]]:
        """Last hidden states of a batch, and how many of each row are not padding."""
        files = self.files
        lengths = [len(tokens) for tokens in batch]
        ids = np.full((len(batch), max(lengths)), files.pad_id, dtype=np.int64)
        for row, tokens in zip(ids, batch, strict=True):
            row[: len(tokens)] = tokens
        mask = (np.arange(ids.shape[1]) < np.array(lengths)[:, None]).astype(np.int64)
        return self._states(ids, mask), lengths

    def _pooled(
        self, states: NDArray[np.float32], lengths: list[int], skip: int
    ) -> NDArray[np.float32]:
        pooled = pool(states, lengths, self.files.modes, skip)
        for weight, bias, activation in self._dense:
            pooled = _activated(pooled @ weight.T + bias, activation)
        norms = np.linalg.norm(pooled, axis=1, keepdims=True)
        if not np.all(np.isfinite(norms) & (norms > 0)):
            raise NotFiniteError("embed: the model returned a vector without a direction")
        unit: NDArray[np.float32] = (pooled / norms).astype(np.float32)
        return unit

    def _states(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """Last hidden states, (B, L, d)."""
        import torch

        inputs = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        states: NDArray[np.float32] = self._model(**inputs).last_hidden_state.numpy()
        return states


def _activated(values: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    result = values
    if name == "Tanh":
        result = np.tanh(values)
    elif name == "ReLU":
        result = np.maximum(values, 0.0)
    elif name == "Sigmoid":
        result = 0.5 * (1.0 + np.tanh(0.5 * values))
    elif name == "GELU":
        from math import erf

        result = values * 0.5 * (1.0 + np.vectorize(erf)(values / np.sqrt(2.0)))
    return result

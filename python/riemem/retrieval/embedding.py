"""From turns to stored vectors: rendering, windows of long texts, batches, and whose they are."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from riemem._token_vectors import TokenVectors, join_windows
from riemem.embed import RENDERINGS, Embedder, Windows, load_embedder
from riemem.errors import DTypeError, NotFiniteError, ShapeError, TextError
from riemem.retrieval.channel import Embedded
from riemem.retrieval.token_rows import checked_vectors, token_rows
from riemem.store.records import check_integer, check_name
from riemem.store.sqlite import Identity
from riemem.store.vectors import check_rows, encode

__all__ = ["DEFAULT_RENDERING", "MAX_CHUNKS", "Progress", "TurnEmbedder", "TurnLike", "caption_of"]

#: The rendering that :func:`riemem.embed.render_turn` uses.
DEFAULT_RENDERING = "name-said"

#: Most vectors of one memory; the dense index numbers them within this range.
MAX_CHUNKS = 4096

_BATCH = 256

Progress = Callable[[int, int], Any]
#: Text, speaker, when, and the metadata as JSON, whose key "caption" is part of the rendering.
TurnLike = tuple[str, str | None, str | None] | tuple[str, str | None, str | None, str]


class TurnEmbedder:
    """An embedder with the way turns are written for it; loaded at its first use.

    Parameters
    ----------
    spec : Embedder, str, path or None
        As for :func:`riemem.embed.load_embedder`; any object with ``identity``, ``dim`` and
        ``embed`` will do; ``windows``, ``embed_queries``, ``embed_with_tokens`` and
        ``embed_queries_with_tokens`` are used where they exist, and so is ``tokens_by_default``
        (:class:`riemem.embed.TokenEmbedder`).
    rendering : str
        A key of :data:`riemem.embed.RENDERINGS`.

    Raises
    ------
    DTypeError
        `spec` cannot embed.

    Examples
    --------
    >>> from riemem.embed import HashingEmbedder
    >>> TurnEmbedder(HashingEmbedder(dim=8)).identity().dim
    8
    """

    def __init__(self, spec: Any = None, rendering: str = DEFAULT_RENDERING) -> None:
        if spec is not None and not isinstance(spec, (str, os.PathLike)):
            missing = [name for name in ("identity", "dim", "embed") if not _has(spec, name)]
            if missing:
                raise DTypeError(
                    f"embedder: expected a name, a folder or an object with identity, dim and "
                    f"embed, got {type(spec).__name__} without {', '.join(missing)}"
                )
        self._spec = spec
        self.rendering = rendering
        self._lock = threading.Lock()
        self._embedder: Embedder | None = None

    @property
    def given(self) -> bool:
        """Whether the caller chose an embedder."""
        return self._spec is not None

    def identity(self) -> Identity:
        """Whose vectors these are.

        Raises
        ------
        ModelNotFoundError, ModelCorruptError
        DTypeError, ArgumentError, TextError
            The embedder has no name that a store can tell it by, or no dimension.
        """
        embedder = self._get()
        name = check_name(embedder.identity, "embedder.identity")
        return Identity(name, check_integer(embedder.dim, "embedder.dim", 1), self.rendering)

    def render(self, turn: TurnLike) -> str:
        """The text that is embedded for a turn."""
        text, speaker, when = turn[:3]
        caption = caption_of(turn[3]) if len(turn) == 4 else None
        return RENDERINGS[self.rendering](text, speaker=speaker, when=when, caption=caption)

    def embed_turns(
        self,
        turns: Sequence[TurnLike],
        progress: Progress | None = None,
        *,
        tokens: list[bytes | None] | None = None,
    ) -> list[list[bytes]] | None:
        """Return the stored form of each turn's vectors, one per window of its text.

        Parameters
        ----------
        turns : sequence of (text, speaker, when) or (text, speaker, when, metadata as JSON)
        progress : callable, optional
            ``progress(done, total)`` in turns; returning False stops.
        tokens : list, optional
            Where it is given, each turn's rows (:func:`riemem.retrieval.token_rows.token_rows`)
            are appended, or None for a turn that has none; from the same pass.

        Returns
        -------
        list of lists of bytes, or None when `progress` stopped it

        Raises
        ------
        ShapeError, DTypeError, NotFiniteError, ZeroVectorError
            The embedder returned something that cannot be stored.
        """
        embedder, dim = self._get(), self.identity().dim
        split, render = getattr(embedder, "windows", None), self.render
        blobs: list[list[bytes]] = []
        for start in range(0, len(turns), _BATCH):
            if progress is not None and progress(start, len(turns)) is False:
                return None
            texts = [render(turn) for turn in turns[start : start + _BATCH]]
            chunks = [_windows(split, text) for text in texts]
            flat = [window for windows in chunks for window in windows]
            if tokens is not None and self.gives_tokens():
                found, of_windows = self._with_tokens(flat, "embed_with_tokens")
                tokens += _rows_of(texts, chunks, of_windows)
            else:
                found = embedder.embed(flat)
                if tokens is not None:
                    tokens += [None] * len(texts)
            rows = encode(check_rows(found, len(flat), dim, "embedder"))
            end = 0
            for windows in chunks:
                first, end = end, end + len(windows)
                blobs.append(rows[first:end])
        if progress is not None and turns and progress(len(turns), len(turns)) is False:
            return None
        return blobs

    def gives_tokens(self) -> bool:
        """Whether the embedder gives the vectors of tokens as well."""
        return callable(getattr(self._get(), "embed_with_tokens", None))

    def tokens_by_default(self) -> bool:
        """Whether a new store keeps them: where there are any, unless the embedder says False."""
        return self.gives_tokens() and bool(getattr(self._get(), "tokens_by_default", True))

    def embed_query(self, query: str, *, tokens: bool = False) -> Embedded:
        """Return a query's vector; of a query longer than the window the beginning counts.

        With `tokens` also those of its tokens, if the embedder gives them.
        """
        embedder, dim = self._get(), self.identity().dim
        windows = _windows(getattr(embedder, "windows", None), query)
        # Models that want another prompt before a question than before a memory have this.
        asked = None
        if tokens and self.gives_tokens():
            own = getattr(embedder, "embed_queries_with_tokens", None)
            name = "embed_with_tokens" if own is None else "embed_queries_with_tokens"
            found, (asked,) = self._with_tokens(windows[:1], name)
        else:
            found = getattr(embedder, "embed_queries", embedder.embed)(windows[:1])
        rows = check_rows(found, 1, dim, "embedder")
        notes: tuple[str, ...] = ()
        if len(windows) > 1:
            notes = (
                f"dense: the query is longer than the embedder's window; only its first "
                f"{len(windows[0])} of {len(query)} characters were used",
            )
        return Embedded(rows[0], notes, asked)

    def _with_tokens(
        self, texts: list[str], name: str
    ) -> tuple[npt.NDArray[np.float32], list[TokenVectors]]:
        found = getattr(self._get(), name)(texts)
        if not isinstance(found, tuple) or len(found) != 2:
            raise DTypeError(
                f"embedder.{name}: expected (vectors, tokens), got {type(found).__name__}"
            )
        vectors, tokens = found
        if not isinstance(tokens, Sequence) or not all(
            isinstance(item, TokenVectors) for item in tokens
        ):
            raise DTypeError(f"embedder.{name}: expected tokens as a list of TokenVectors")
        if len(tokens) != len(texts):
            raise ShapeError(
                f"embedder.{name}: expected the tokens of {len(texts)} texts, got {len(tokens)}"
            )
        for item in tokens:
            if not np.isfinite(checked_vectors(item, f"embedder.{name}: tokens")).all():
                raise NotFiniteError(f"embedder.{name}: a token's vector is not finite")
        return vectors, list(tokens)

    def _get(self) -> Embedder:
        with self._lock:
            if self._embedder is None:
                spec = self._spec
                by_name = spec is None or isinstance(spec, (str, os.PathLike))
                self._embedder = load_embedder(spec) if by_name else spec
            return self._embedder


def caption_of(metadata: str) -> str | None:
    """The caption of a picture that came with a turn: the metadata key "caption", if it is text.

    Examples
    --------
    >>> caption_of('{"caption": "a red boat"}')
    'a red boat'
    """
    if '"caption"' not in metadata:
        return None
    value = json.loads(metadata).get("caption")
    return value if isinstance(value, str) and value.strip() else None


def unit(row: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The row in float64 with length one."""
    wide = row.astype(np.float64)
    result: npt.NDArray[np.float64] = wide / np.sqrt(wide @ wide)
    return result


def _windows(split: Callable[[str], Iterable[str]] | None, text: str) -> list[str]:
    found = () if split is None else split(text)
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise DTypeError(
            f"embedder.windows: expected it to return texts, got {type(found).__name__}"
        )
    windows = found if isinstance(found, Windows) and found else list(found) or [text]
    if len(windows) > MAX_CHUNKS:
        raise TextError(
            f"text: expected at most {MAX_CHUNKS} windows of the embedder, got {len(windows)}"
        )
    return windows


def _rows_of(
    texts: Sequence[str], chunks: Sequence[list[str]], tokens: Sequence[TokenVectors]
) -> list[bytes | None]:
    """The rows of each text out of the tokens of its windows; None where those lie nowhere."""
    rows: list[bytes | None] = []
    end = 0
    for text, windows in zip(texts, chunks, strict=True):
        first, end = end, end + len(windows)
        places = _places(text, windows)
        if places is None:
            rows.append(None)
        else:
            own = zip(places, tokens[first:end], strict=True)
            rows.append(token_rows(text, join_windows(own)))
    return rows


def _places(text: str, windows: list[str]) -> list[int] | None:
    """Where each window starts; None for windows that are not pieces of the text, in order."""
    if isinstance(windows, Windows):
        return [begin for begin, _ in windows.spans]
    places, after = [], 0
    for window in windows:
        begin = text.find(window, after)
        if begin < 0:
            return None
        places.append(begin)
        after = begin
    return places


def _has(spec: object, name: str) -> bool:
    # On the type first: an instance's property may raise because its model is not there yet.
    return hasattr(type(spec), name) or name in getattr(spec, "__dict__", {})

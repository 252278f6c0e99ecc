"""How long a search takes: synthetic copies of a benchmark's turns, with new names and dates."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..embed import TokenVectors
from ..errors import ArgumentError
from ..memory import Memory
from ..retrieval.fusion import Ranking, as_ranking
from .hybrid import instant
from .locomo import Benchmark

__all__ = ["CopyEmbedder", "copies", "latency", "latency_text", "measure_latency"]

_NAME_LIST = (
    "Ada Bruno Chidi Dara Emil Farah Goran Hana Ines Jonas Kira Lior Mina Nadia Omar Petra Quinn "
    "Rafa Selma Tomas Uma Vera Wanda Xenia Yara Zoltan"
)
_NAMES = _NAME_LIST.split()
#: How far a copy's vector is moved, as a share of its length.
_NOISE = 0.35
_ADDED_TOGETHER = 5000


@dataclass
class CopyEmbedder:
    """Known vectors for the texts of a benchmark, moved a little for each copy; needs no model.

    Parameters
    ----------
    known : mapping of str to (d,) float32 ndarray
    sources : dict
        Filled with the original text of each copy.
    tokens : mapping of str to TokenVectors
        Of the same texts; a copy has those of its original.
    """

    known: Mapping[str, NDArray[np.float32]]
    sources: dict[str, str] = field(default_factory=dict)
    max_tokens: int = 1_000_000
    tokens: Mapping[str, TokenVectors] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """A name of its own: the vectors are nobody's."""
        return "copies-for-latency"

    @property
    def dim(self) -> int:
        """Dimension of the known vectors."""
        return int(next(iter(self.known.values())).size)

    @property
    def tokens_by_default(self) -> bool:
        """Whether any are known."""
        return bool(self.tokens)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vector of the original, moved in a direction that depends on the text."""
        rows = np.empty((len(texts), self.dim), np.float32)
        for row, text in zip(rows, texts, strict=True):
            source = self.sources.get(text)
            row[:] = self.known[text if source is None else source]
            if source is not None:
                seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
                moved = np.random.default_rng(seed).standard_normal(self.dim, np.float32)
                row += _NOISE * moved / np.linalg.norm(moved)
                row /= np.linalg.norm(row)
        return rows

    def embed_with_tokens(
        self, texts: Sequence[str]
    ) -> tuple[NDArray[np.float32], list[TokenVectors]]:
        """Return what `embed` does, and the tokens of the originals."""
        return self.embed(texts), [self.tokens[self.sources.get(text, text)] for text in texts]


def copies(benchmark: Benchmark, n: int) -> list[dict[str, Any]]:
    """Return n items for ``Memory.add_many``; copy c has other speakers and later dates.

    The key "source" of an item is the original's rendered text, "said" its own.
    """
    if n < 1:
        raise ArgumentError(f"sizes: expected at least 1 memory, got {n}")
    items: list[dict[str, Any]] = []
    number = 0
    while True:
        for conversation in benchmark.conversations:
            names = {
                speaker: f"{_NAMES[(2 * number + i) % len(_NAMES)]}{number // len(_NAMES) or ''}"
                for i, speaker in enumerate(dict.fromkeys(t.speaker for t in conversation.turns))
            }
            pattern = re.compile("|".join(map(re.escape, names)) or "$^")
            for turn in conversation.turns:
                moment = datetime.fromisoformat(instant(turn.when)) + timedelta(days=37 * number)
                text = pattern.sub(lambda m, own=names: own[m[0]], turn.text)  # type: ignore[misc]
                items.append(
                    {
                        "text": text.strip() or "(picture)",
                        "speaker": names[turn.speaker],
                        "session": f"{conversation.name}/{number}/{turn.id[0]}",
                        "when": moment.isoformat(),
                        "original": turn,
                    }
                )
                if len(items) == n:
                    return items
            number += 1


def measure_latency(
    benchmark: Benchmark,
    known: Mapping[str, NDArray[np.float32]],
    render: Callable[..., str],
    sizes: Sequence[int] = (1000, 10_000, 100_000),
    *,
    queries: int = 60,
    ranking: str | Ranking = "default",
    tokens: Mapping[str, TokenVectors] | None = None,
) -> list[dict[str, float]]:
    """Return, per size, p50 and p95 of ``Memory.search(k=10)`` in ms, without the embedding.

    Parameters
    ----------
    benchmark : Benchmark
    known : mapping of str to (d,) float32 ndarray
        Vectors of the rendered turns and of the questions.
    render : callable
        As ``riemem.embed.render_turn``.
    sizes : sequence of int
    queries : int
        Questions asked, the first of each conversation in turn; three more are asked before.
    ranking : str or Ranking
    tokens : mapping of str to TokenVectors, optional
        Of the rendered turns and of the questions; the memories keep them where they are given.

    Returns
    -------
    list of dict
        ``memories``, ``p50_ms``, ``p95_ms``, ``first_ms`` (the first search, which reads
        everything).
    """
    rule = as_ranking(ranking)
    questions = [q.text for c in benchmark.conversations for q in c.answerable]
    step = max(1, len(questions) // (queries + 3))
    asked = questions[::step][: queries + 3]
    rows = []
    for size in sizes:
        embedder = CopyEmbedder(known, tokens=tokens or {})
        with Memory.open(":memory:", embedder=embedder, durability="normal") as memory:
            items = copies(benchmark, size)
            for start in range(0, size, _ADDED_TOGETHER):
                part = items[start : start + _ADDED_TOGETHER]
                for item in part:
                    turn = item.pop("original")
                    own = render(item["text"], speaker=item["speaker"])
                    embedder.sources[own] = render(
                        turn.text, speaker=turn.speaker, caption=turn.caption
                    )
                memory.add_many(part)
            times = [latency(memory, query, rule) for query in asked]
        later = np.array(times[3:])
        rows.append(
            {
                "memories": float(size),
                "p50_ms": float(np.percentile(later, 50)),
                "p95_ms": float(np.percentile(later, 95)),
                "first_ms": times[0],
            }
        )
    return rows


def latency(memory: Memory, query: str, ranking: str | Ranking = "default") -> float:
    """Milliseconds of one search."""
    start = time.perf_counter()
    memory.search(query, k=10, ranking=ranking)
    return 1000.0 * (time.perf_counter() - start)


def latency_text(rows: Sequence[Mapping[str, float]]) -> str:
    """Return the table of :func:`measure_latency`.

    Examples
    --------
    >>> print(latency_text([{"memories": 10.0, "p50_ms": 1, "p95_ms": 2, "first_ms": 3}]))
      memories   p50 ms   p95 ms  first ms
            10     1.00     2.00       3.0
    """
    lines = [f"{'memories':>10} {'p50 ms':>8} {'p95 ms':>8} {'first ms':>9}"]
    lines += [
        f"{row['memories']:10.0f} {row['p50_ms']:8.2f} {row['p95_ms']:8.2f} {row['first_ms']:9.1f}"
        for row in rows
    ]
    return "\n".join(lines)

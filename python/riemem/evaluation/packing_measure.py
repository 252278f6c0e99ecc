"""One stream, measured: each question packed flat, grouped, and chosen by atoms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._atoms.headers import describe, distinct
from ..clustering import calibrate_threshold
from ..errors import CancelledError
from ..memory import Memory
from ..packing import fill
from ..retrieval.brevity import worth
from ..retrieval.embedding import DEFAULT_RENDERING, TurnEmbedder
from ..retrieval.fusion import Ranking, rankings
from ..store import Store
from ..store.atoms import THRESHOLD
from .clustering_baselines import cluster
from .embedded import Progress
from .hybrid import KnownVectors, score_all
from .packing_report import FLAT, Measured
from .packing_sizes import LineCounter, LineSizes
from .packing_streams import PackQuestion, Stream

__all__ = ["ORDERS", "Plan", "measure"]

ORDERS = ("as it came", "reversed", "shuffled")

# Hits that are tried: as many as `Memory.recall` asks for, and more where a budget needs them to be
# filled; a turn of dialogue takes 38 tokens on average.
_HITS = 100
_TOKENS_PER_HIT = 25
_TOP_ATOMS = 5
_CALIBRATION = 500  # rows that a threshold is a quantile of

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """What is measured, and the counter and the words that are shared."""

    budgets: tuple[int, ...]
    thresholds: tuple[float, ...]
    quantiles: tuple[float, ...]
    clusterings: tuple[str, ...]
    orders: int
    ranking: Ranking
    count: LineCounter
    words: Callable[[str], frozenset[str]]


def measure(
    stream: Stream, rows: F32, known: KnownVectors, plan: Plan, progress: Progress | None
) -> Measured:
    """Ask every question when only the turns before it are in the memory."""
    out = Measured()
    by_visible: dict[int, list[PackQuestion]] = {}
    for question in stream.questions:
        by_visible.setdefault(question.visible, []).append(question)
    sizes = LineSizes(stream.turns, plan.count)
    length = _length_costs(stream, plan.ranking)
    turns, stored = TurnEmbedder(known, DEFAULT_RENDERING), 0
    done = 0
    with Memory(Store.open(":memory:"), turns, "default") as memory:
        for visible, asked in sorted(by_visible.items()):
            memory.add_many(turn.item() for turn in stream.turns[stored:visible])
            stored = visible
            labelled = _labels(rows[:visible], plan)
            for name, labels in labelled.items():
                members = np.bincount(labels)
                fact = (int((members > 0).sum()), float(members.max() / labels.size))
                out.atoms.setdefault(name, []).append(fact)
            norms = {
                name: _lengths(rows[:visible], labels)
                for name, labels in labelled.items()
                if not name.endswith(ORDERS[1:])
            }
            for question in asked:
                scores = {
                    "hits": score_all(memory, question.text, plan.ranking),
                    "cosine": score_all(memory, question.text, rankings["cosine"]),
                }
                _note_pairs(stream, question, labelled, out)
                valued = {"hits": scores["hits"] - length[:visible], "cosine": scores["cosine"]}
                packer = _Packer(stream, question, scores, valued, sizes, plan, out)
                packer.run(labelled, norms)
                done += 1
                if progress is not None and progress(done, len(stream.questions)) is False:
                    raise CancelledError("the evaluation was cancelled")
    return out


def _labels(rows: F32, plan: Plan) -> dict[str, I64]:
    """Name of clustering, threshold and order -> labels."""
    found: dict[str, I64] = {}
    if rows.shape[0] < 2:
        return {"max_member": np.zeros(rows.shape[0], np.int64)}
    for threshold in plan.thresholds:
        found[f"max_member {threshold:.2f}"] = cluster(rows, "max_member", threshold)
    for quantile in plan.quantiles:
        threshold = calibrate_threshold(rows, quantile=quantile, sample=_CALIBRATION)
        found[f"max_member q{quantile:g}"] = cluster(rows, "max_member", threshold)
    for kind in plan.clusterings:
        for order in range(plan.orders):
            turned = _order(rows.shape[0], order)
            labels = np.empty(rows.shape[0], np.int64)
            labels[turned] = cluster(rows[turned], kind, THRESHOLD)
            found[kind if order == 0 else f"{kind}, {ORDERS[order]}"] = labels
    return found


def _lengths(rows: F32, labels: I64) -> F64:
    """Length of the sum of each atom's members."""
    first = np.argsort(labels, kind="stable")
    count = int(labels.max()) + 1
    starts = np.minimum(np.searchsorted(labels[first], np.arange(count)), len(rows) - 1)
    sums = np.add.reduceat(rows[first].astype(np.float64), starts, axis=0)
    lengths: F64 = np.linalg.norm(sums, axis=1)
    lengths[np.bincount(labels, minlength=count) == 0] = 0.0  # reduceat knows no empty slices
    return lengths


def _order(n: int, order: int) -> I64:
    if order == 0:
        return np.arange(n)
    if order == 1:
        return np.arange(n)[::-1]
    return np.random.default_rng(0).permutation(n)


def _note_pairs(
    stream: Stream, question: PackQuestion, labelled: dict[str, I64], out: Measured
) -> None:
    """Note whether evidence turns of one question share atoms, where gold names single turns."""
    wanted = set(question.gold)
    gold = [turn.id for turn in stream.turns[: question.visible] if turn.group in wanted]
    if len(gold) != len(wanted) or len(gold) < 2:
        return
    for name, labels in labelled.items():
        own = np.bincount(labels[gold]).astype(np.float64)
        sizes = np.bincount(labels).astype(np.float64)
        together = int((own * (own - 1) / 2).sum())
        every = float((sizes * (sizes - 1)).sum() / (labels.size * (labels.size - 1)))
        pairs = len(gold) * (len(gold) - 1) // 2
        out.pairs.setdefault(name, []).append((together, pairs, every))


def _length_costs(stream: Stream, ranking: Ranking) -> F64:
    """What each turn is worth less where a budget is filled: :func:`riemem.retrieval.brevity`."""
    return np.array([-worth(0.0, turn.item()["text"], *ranking.brevity) for turn in stream.turns])


def _best(scores: F64, count: int) -> I64:
    return np.lexsort((np.arange(scores.size), -scores))[:count]


class _Packer:
    """Packs the hits of one question in every way."""

    def __init__(
        self,
        stream: Stream,
        question: PackQuestion,
        scores: dict[str, F64],
        valued: dict[str, F64],
        sizes: LineSizes,
        plan: Plan,
        out: Measured,
    ) -> None:
        self._turns, self._gold, self._scores = stream.turns, question.gold, scores
        self._worth, self._sizes, self._plan, self._out = valued, sizes, plan, out
        self._most = max(_HITS, max(plan.budgets) // _TOKENS_PER_HIT)
        self._best: dict[str, list[int]] = {}
        for kind, values in scores.items():
            found = _best(values, self._most)
            self._best[kind] = found[_best(valued[kind][found], self._most)].tolist()
        self._known: dict[tuple[int, tuple[int, ...]], tuple[float, float]] = {}
        self._named: dict[tuple[int, ...], dict[int, str]] = {}
        words = [plan.words(self._turns[row].text) for row in self._best["hits"]]
        self._overall = Counter(word for own in words for word in own)

    def run(self, labelled: dict[str, I64], norms: dict[str, F64]) -> None:
        """Note flat, grouped and chosen by atoms."""
        flat = self._sizes.flat
        self._note(FLAT, FLAT, lambda b: self._reached(self._best["hits"], b, flat))
        alone = self._best["cosine"]
        self._note("flat, cosine alone", "plain", lambda b: self._reached(alone, b, flat))
        for name, labels in labelled.items():
            self._note(f"grouped, {name}", "grouped", self._grouped(labels))
            if name in norms:
                rows, owner = self._by_atoms(labels, norms[name])
                self._note(f"atoms, {name}", "atoms", self._chosen(rows, owner))

    def _note(self, name: str, layout: str, make: Callable[[int], tuple[float, float]]) -> None:
        cells = [make(budget) for budget in self._plan.budgets]
        self._out.shares.setdefault(name, []).append([share for share, _ in cells])
        self._out.tokens.setdefault(name, []).append([tokens for _, tokens in cells])
        self._out.layout[name] = layout

    def _reached(
        self, rows: list[int], budget: int, size_of: Callable[[list[int]], int]
    ) -> tuple[float, float]:
        """Return the share of the gold in the text that the packer would make, and its size."""
        distinct = self._sizes.distinct(rows)
        adds = [self._sizes.adds[row] for row in distinct]
        chosen, _, tokens = fill(distinct, budget, lambda own, more: size_of(own + more), adds)
        reached = {self._turns[row].group for row in chosen}
        return sum(g in reached for g in self._gold) / len(self._gold), float(tokens)

    def _grouped(self, labels: I64) -> Callable[[int], tuple[float, float]]:
        # Clusterings that part the hits alike make the same text.
        order: dict[int, int] = {}
        rows = self._best["hits"]
        parted = tuple(order.setdefault(int(a), len(order)) for a in labels[rows])
        owner = dict(zip(rows, parted, strict=True))

        def make(budget: int) -> tuple[float, float]:
            key = (budget, parted)
            if key not in self._known:
                if parted not in self._named:
                    self._named[parted] = self._headers(rows, owner, self._overall)
                names = self._named[parted]
                self._known[key] = self._reached(
                    rows, budget, lambda some: self._sizes.grouped(some, owner, names)
                )
            return self._known[key]

        return make

    def _headers(
        self, rows: Sequence[int], owner: Mapping[int, int], overall: Counter[str] | None = None
    ) -> dict[int, str]:
        texts: dict[int, list[str]] = {}
        for row in rows:
            texts.setdefault(owner[row], []).append(self._turns[row].text)
        names = describe(texts, smallest=2, words=self._plan.words, overall=overall)
        return distinct(names, [atom for atom, own in texts.items() if len(own) > 1])

    def _chosen(
        self, rows: list[int], owner: dict[int, int]
    ) -> Callable[[int], tuple[float, float]]:
        names = self._headers(rows, owner)
        return lambda budget: self._reached(
            rows, budget, lambda some: self._sizes.grouped(some, owner, names)
        )

    def _by_atoms(self, labels: I64, norms: F64) -> tuple[list[int], dict[int, int]]:
        """The printed rule: the best atoms by centroid, all their members, ranked inside."""
        count, cosine = int(labels.max()) + 1, self._scores["cosine"]
        # cos(q, centroid) = sum of the members' cosines / |sum|
        along = np.bincount(labels, weights=cosine, minlength=count)
        central = np.where(norms > 0, along / np.maximum(norms, 1e-300), -np.inf)
        rows: list[int] = []
        owner = {}
        for atom in _best(central, _TOP_ATOMS):
            members = np.flatnonzero(labels == atom)
            inside = members[_best(self._worth["hits"][members], self._most)]
            rows += inside.tolist()
            owner.update(dict.fromkeys(inside.tolist(), int(atom)))
        return rows[: self._most], owner

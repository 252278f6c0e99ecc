"""Which evidence a token budget leaves out, at which ranks it stands, and what the tokens go to.

    python bench/lost_evidence.py PATH/locomo_dev.json --cache FOLDER

With the default ranking and texts as recall packs them. Each question counts 1, whatever number of
evidence turns it has. The last lines pack the same order with dates, and dates and speakers, for
nothing: what a shorter form of the text could bring at most.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from riemem import models
from riemem.embed import load_embedder
from riemem.evaluation.embedded import tokens_for
from riemem.evaluation.hybrid import BUDGETS, KnownVectors, default_ranking, rank_all, remember
from riemem.evaluation.locomo import Conversation, load_locomo
from riemem.evaluation.retrieval import embed_benchmark

KINDS = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
RANKS = (10, 20, 30, 45, 60, 100, 200)
SHORT = 8


class Sizes:
    """Tokens of each turn's words, of its line, and of the header of a day."""

    def __init__(self, conversation: Conversation) -> None:
        count, _ = models.token_counter()
        turns = conversation.turns
        self.bare = [count(turn.text) for turn in turns]
        self.line = [count(f"{turn.speaker}: {turn.text}\n") for turn in turns]
        self.sessions = [turn.id[0] for turn in turns]
        self.header = count("# 2023-05-08\n")

    def packed(self, order: Sequence[int], budget: int, *, dates: bool, names: bool) -> set[int]:
        """Rows that fit, taken in order; one that does not is left out and the next is tried."""
        tokens = self.line if names else self.bare
        inside: set[int] = set()
        opened: set[int] = set()
        for row in order:
            new = dates and self.sessions[row] not in opened
            cost = tokens[row] + (self.header if new else 0)
            if cost <= budget:
                budget -= cost
                inside.add(row)
                opened.add(self.sessions[row])
        return inside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--cache", type=Path)
    arguments = parser.parse_args()
    benchmark = load_locomo(arguments.file)
    model = load_embedder(None)
    tokens = tokens_for(model)
    vectors = embed_benchmark(model, benchmark, cache=arguments.cache, tokens=tokens)
    known = KnownVectors(model, vectors, tokens or {})
    default = default_ranking(late=tokens is not None)
    lost = {kind: np.zeros(len(BUDGETS)) for kind in KINDS}
    deep = {kind: np.zeros(len(RANKS)) for kind in KINDS}
    asked = dict.fromkeys(KINDS, 0)
    spent: dict[int, list[tuple[int, ...]]] = {budget: [] for budget in BUDGETS}
    forms: dict[str, list[list[float]]] = {}
    for conversation in benchmark.conversations:
        sizes = Sizes(conversation)
        texts = [turn.text for turn in conversation.turns]
        questions = conversation.answerable
        with remember(conversation, known) as memory:
            found = rank_all(memory, [q.text for q in questions], {"x": default}, texts)["x"]
        for ranked, question in zip(found, questions, strict=True):
            order, gold, kind = ranked.packing, set(question.gold), question.category
            asked[kind] += 1
            place = {row: rank for rank, row in enumerate(order)}
            deep[kind] += [np.mean([place[row] >= rank for row in gold]) for rank in RANKS]
            for form, dates, names in (
                ("as it is", True, True),
                ("dates for nothing", False, True),
                ("dates and speakers for nothing", False, False),
            ):
                sets = [sizes.packed(order, b, dates=dates, names=names) for b in BUDGETS]
                shares = [len(gold & inside) / len(gold) for inside in sets]
                forms.setdefault(form, []).append(shares)
                if form != "as it is":
                    continue
                lost[kind] += 1.0 - np.array(shares)
                for budget, inside in zip(BUDGETS, sets, strict=True):
                    words = sum(sizes.bare[row] for row in inside)
                    lines = sum(sizes.line[row] for row in inside)
                    days = sizes.header * len({sizes.sessions[row] for row in inside})
                    few = sum(sizes.bare[row] < SHORT for row in inside)
                    spent[budget].append((len(inside), words, lines - words, days, few))
    print(f"{'questions not answered by':26} " + " ".join(f"{b:>7}" for b in BUDGETS), "tokens")
    for kind, name in KINDS.items():
        print(f"{name:16} of {asked[kind]:5d}   " + " ".join(f"{v:7.1f}" for v in lost[kind]))
    print(f"\n{'evidence behind rank':26} " + " ".join(f"{r:>7}" for r in RANKS))
    for kind, name in KINDS.items():
        print(f"{name:26} " + " ".join(f"{v:7.1f}" for v in deep[kind]))
    print(f"\n{'a packed text':14} turns   words speakers   dates  turns under {SHORT} tokens")
    for budget, rows in spent.items():
        n, words, names, days, few = np.mean(rows, axis=0)
        print(f"{budget:14d} {n:5.1f} {words:7.0f} {names:8.0f} {days:7.0f} {few:8.2f}")
    print()
    for form, rows in forms.items():
        print(f"{form:32} " + " ".join(f"{v:7.3f}" for v in np.mean(rows, axis=0)))


if __name__ == "__main__":
    main()

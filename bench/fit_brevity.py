"""Choose how much length counts where a token budget is filled, leaving one conversation out.

    python bench/fit_brevity.py PATH/locomo_dev.json PATH/realmem/*.json --cache FOLDER [--late]

Every pair of (weight, bytes that are free) is tried with the default ranking, whose other weights
are left as they are. For each conversation and persona the pair is chosen on all others: of those
that lose no more than 0.001 of the evidence of either benchmark against no penalty at all, the one
with the largest mean over conversations and budgets. What it then gives on the one left out is
printed, and at the end the pair that all of them together choose, which is
``riemem.retrieval.fusion.rankings["default"].brevity``. With `--late` the same is asked of
"late-interaction", which has the default's all the same.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from riemem import models
from riemem.embed import load_embedder
from riemem.evaluation.embedded import embed_texts
from riemem.evaluation.hybrid import (
    BUDGETS,
    KnownVectors,
    evidence_inside,
    rank_all,
    remember,
    turn_tokens,
)
from riemem.evaluation.locomo import load_locomo
from riemem.evaluation.realmem import _ask, _texts, load_realmem
from riemem.evaluation.retrieval import embed_benchmark
from riemem.retrieval.embedding import TurnEmbedder
from riemem.retrieval.fusion import Ranking, rankings

WEIGHTS = (1.0, 2.0, 3.0)
FREE = (1, 200, 300, 400, 500)
NONE = (0.0, 1)
MOST_LOST = 0.001


def variants(base: Ranking) -> dict:
    pairs = [NONE, *((weight, free) for free in FREE for weight in WEIGHTS)]
    return {pair: replace(base, brevity=pair) for pair in pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("locomo", type=Path)
    parser.add_argument("realmem", type=Path, nargs="+")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--late", action="store_true", help="of the ranking late-interaction")
    arguments = parser.parse_args()
    model = load_embedder(None)
    count, label = models.token_counter()
    chosen = variants(rankings["late-interaction" if arguments.late else "default"])
    seen = {} if arguments.late else None
    names, groups, tables = [], [], []
    benchmark = load_locomo(arguments.locomo)
    vectors = embed_benchmark(model, benchmark, cache=arguments.cache, tokens=seen)
    known = KnownVectors(model, vectors, seen or {})
    for conversation in benchmark.conversations:
        questions = conversation.answerable
        texts = [turn.text for turn in conversation.turns]
        tokens = turn_tokens(conversation, count)
        with remember(conversation, known) as memory:
            found = rank_all(memory, [q.text for q in questions], chosen, texts)
        tables.append(
            {
                pair: np.mean(
                    [
                        [evidence_inside(rows, q.gold, tokens, budget) for budget in BUDGETS]
                        for rows, q in zip(lists, questions, strict=True)
                    ],
                    axis=0,
                )
                for pair, lists in found.items()
            }
        )
        names.append(conversation.name)
        groups.append("locomo")
    personas = [load_realmem(path) for path in arguments.realmem]
    turns = TurnEmbedder(model)
    texts = [_texts(persona, turns, model) for persona in personas]
    vectors = embed_texts(model, texts, None, arguments.cache, seen)
    for persona, group, rows in zip(personas, texts, vectors, strict=True):
        own = KnownVectors(model, dict(zip(group, rows, strict=True)), seen or {})
        values = _ask(persona, own, chosen, count)
        tables.append(
            {
                pair: np.mean([[v[f"inside {b}"] for b in BUDGETS] for v in lists], axis=0)
                for pair, lists in values.items()
            }
        )
        names.append(persona.name)
        groups.append("realmem")
    print(f"evidence inside {BUDGETS} tokens of {label}; (weight, free bytes)")
    for pair in chosen:
        means = [
            np.mean([t[pair] for t, g in zip(tables, groups, strict=True) if g == group], axis=0)
            for group in ("locomo", "realmem")
        ]
        print(f"  {pair!s:12} locomo {np.round(means[0], 3)}  realmem {np.round(means[1], 3)}")
    for i, name in enumerate(names):
        rest = [j for j in range(len(names)) if j != i]
        best = choose(chosen, tables, groups, rest)
        print(
            f"without {name:14} {best!s:12} gives it {np.round(tables[i][best], 3)}, "
            f"no penalty {np.round(tables[i][NONE], 3)}"
        )
    print(f"together: {choose(chosen, tables, groups, range(len(names)))}")


def choose(chosen: dict, tables: list, groups: list, use) -> tuple[float, int]:
    def gain(pair, group=None) -> float:
        own = [i for i in use if group in (None, groups[i])]
        return float(np.mean([(tables[i][pair] - tables[i][NONE]).mean() for i in own]))

    fine = [
        pair for pair in chosen if all(gain(pair, group) >= -MOST_LOST for group in set(groups))
    ]
    return max(fine, key=gain)


if __name__ == "__main__":
    main()

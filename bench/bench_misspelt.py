"""What misspelt questions lose, and what the words that are one slip away give back.

    python bench/bench_misspelt.py PATH/locomo_dev.json --cache FOLDER --ranking lexical default

In every question one letter of each of its two longest words is left out, doubled, replaced or
swapped with the next, by a fixed seed. Hit@10 and recall@10 of rankings on the questions as they
are, and misspelt, with and without ``riemem.retrieval.spelling``.
"""

from __future__ import annotations

import argparse
import random
import re
from pathlib import Path

import numpy as np
from riemem.embed import load_embedder
from riemem.evaluation.embedded import tokens_for
from riemem.evaluation.hybrid import KnownVectors, default_ranking, rank_all, remember
from riemem.evaluation.locomo import load_locomo
from riemem.evaluation.metrics import gold_ranks, question_metrics
from riemem.evaluation.retrieval import embed_benchmark
from riemem.retrieval import postings
from riemem.retrieval.fusion import rankings


def misspelt(question: str, rng: random.Random) -> str:
    words = sorted(set(re.findall(r"[A-Za-z]{5,}", question)), key=lambda w: (-len(w), w))[:2]
    for word in words:
        at = rng.randrange(1, len(word) - 1)
        wrong = rng.choice(
            [
                word[:at] + word[at + 1 :],
                word[:at] + word[at] + word[at:],
                word[:at] + rng.choice("abcdefghijklmnopqrstuvwxyz") + word[at + 1 :],
                word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            ]
        )
        question = question.replace(word, wrong)
    return question


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument(
        "--ranking", nargs="+", default=["lexical", "default"], help="default: both"
    )
    arguments = parser.parse_args()
    benchmark = load_locomo(arguments.file)
    model = load_embedder(None)
    tokens = tokens_for(model)
    vectors = embed_benchmark(model, benchmark, cache=arguments.cache, tokens=tokens)
    known = KnownVectors(model, vectors, tokens or {})
    default = default_ranking(late=tokens is not None)
    chosen = {n: default if n == "default" else rankings[n] for n in arguments.ranking}
    rng, slips = random.Random(0), postings.slips
    values: dict[tuple[str, str], list[dict[str, float]]] = {}
    for conversation in benchmark.conversations:
        questions = conversation.answerable
        asked = [question.text for question in questions]
        wrong = [misspelt(text, rng) for text in asked]
        with remember(conversation, known) as memory:
            for label, texts, rule in (
                ("as they are", asked, slips),
                ("misspelt, spelling off", wrong, lambda word: set()),
                ("misspelt", wrong, slips),
            ):
                postings.slips = rule
                for name, lists in rank_all(memory, texts, chosen).items():
                    values.setdefault((label, name), []).extend(
                        question_metrics(gold_ranks(rows, question.gold))
                        for rows, question in zip(lists, questions, strict=True)
                    )
    postings.slips = slips
    print(f"{'':24} {'':8} {'hit@10':>7} {'recall@10':>10}")
    for (label, name), own in values.items():
        hit, recall = (np.mean([v[key] for v in own]) for key in ("hit@10", "recall@10"))
        print(f"{label:24} {name:8} {hit:7.3f} {recall:10.3f}")


if __name__ == "__main__":
    main()

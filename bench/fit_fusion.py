"""Fit the weights of the default ranking, leaving one conversation out at a time.

    python bench/fit_fusion.py PATH/locomo_dev.json --cache FOLDER [--late]

The score of a memory is a weighted sum of its channels; the weights maximise the mean logarithm
of the probability that softmax over a conversation's memories gives to the evidence turns. For
each conversation the weights are fitted on the others, and its questions are answered with them.
The weights fitted on all conversations are printed at the end; those rounded are
``riemem.retrieval.fusion.rankings["default"]``. With `--late` the weights are fitted twice: first
these, then those of ``rankings["late-interaction"]``, with the late scores of the best that the
first ones find, and with their likeness.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from riemem import models
from riemem.embed import load_embedder
from riemem.evaluation.hybrid import (
    BUDGETS,
    KnownVectors,
    evidence_inside,
    in_recall,
    rank_all,
    remember,
    turn_tokens,
)
from riemem.evaluation.locomo import Conversation, load_locomo
from riemem.evaluation.metrics import gold_ranks, question_metrics
from riemem.evaluation.retrieval import embed_benchmark
from riemem.retrieval.fusion import Fused, Ranking, rankings
from riemem.retrieval.late import compare
from riemem.retrieval.lately import token_rows
from riemem.retrieval.likeness import centre_of, likeness_weights
from scipy.optimize import minimize

ADDED = ("names", "temporal", "time_words", "substance", "opening", "first_person")
KERNEL = (-1, 1, -2, 2, -3)
NAMES = ("dense", "lexical", *(f"kernel {d:+d}" for d in KERNEL), "answers", *ADDED)
NAMES += ("likeness", "late")
RIDGE = 1e-3
_ASKS = replace(
    rankings["default"], weights={**rankings["default"].weights, **dict.fromkeys(ADDED, 1.0)}
)
#: How often weights are fitted to the likeness that the weights before gave.
ROUNDS = 2


def features(memory, conversation: Conversation) -> np.ndarray:
    """(questions, memories, features): the two channels, both by neighbour, and what is added.

    The last columns, likeness and late, are empty; see :func:`with_passes`.
    """
    channel = memory._channel("default")
    stacked = []
    for question in conversation.answerable:
        gathered = channel.gather(question.text, _ASKS)
        view = gathered.view
        zero = np.zeros(len(view))
        main = [gathered.channels.get(name, zero) for name in ("dense", "lexical")]
        columns = list(main)
        for scores in main:
            extended = np.append(scores, 0.0)
            for d in KERNEL:
                beside = view.beside.after if d > 0 else view.beside.before
                rows = beside[abs(d) - 1]
                columns.append(extended[rows])
            columns.append(np.append(scores * view.questions, 0.0)[view.beside.before[0]])
        columns += [gathered.channels.get(name, zero) for name in ADDED]
        stacked.append(np.stack([*columns, zero, zero], axis=1))
    return np.array(stacked, np.float32)


def with_passes(
    memory, conversation: Conversation, x: np.ndarray, weights: np.ndarray, late: bool
) -> np.ndarray:
    """The features with the likeness that these weights give, and the late scores of their best."""
    channel = memory._channel("default")
    dense, rows = channel.dense, token_rows(memory._store)
    ids = np.arange(1, x.shape[1] + 1)
    filled = x.copy()
    full = spread(weights)
    alike, full[-2:] = full[-2], 0.0
    every = np.arange(len(ids))
    for row, question in enumerate(conversation.answerable):
        best, shares = likeness_weights(x[row] @ full, ids, *rankings["default"].likeness)
        chosen = ids[best].tolist()
        centre = centre_of(dense.vectors_of(chosen), chosen, shares)
        scores = dense.scores(question.text).again(centre).all()
        filled[row, :, -2] = scores * np.sqrt(centre @ centre)
        if late:
            first = Fused(every, x[row] @ full + alike * filled[row, :, -2], {})
            found: dict = {}
            options = rankings["late-interaction"].late
            tokens = memory._embedder.embed_query(question.text, tokens=True).tokens
            view = channel._corpus.follow()
            compare(
                question.text, tokens, first, options, view, found, lambda ids: rows.of(ids, None)
            )
            filled[row, :, -1] = found.get("late", 0.0)
    return filled


def spread(weights: np.ndarray) -> np.ndarray:
    """The weight of every feature from the parameters."""
    k = len(KERNEL) + 1
    main, kernel, added = weights[:2], weights[2 : 2 + k], weights[2 + k :]
    return np.concatenate([main, main[0] * kernel, main[1] * kernel, added])


def jacobian(weights: np.ndarray) -> np.ndarray:
    k = len(KERNEL) + 1
    kernel, n = weights[2 : 2 + k], len(ADDED) + 2
    out = np.zeros((2 + 2 * k + n, weights.size))
    out[0, 0] = out[1, 1] = 1.0
    for i in range(2):
        rows = slice(2 + i * k, 2 + (i + 1) * k)
        out[rows, i] = kernel
        out[rows, 2 : 2 + k] = weights[i] * np.eye(k)
    out[2 + 2 * k :, 2 + k :] = np.eye(n)
    return out


def fit(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Weights for the given (features, target distribution) of several conversations."""

    def objective(weights: np.ndarray) -> tuple[float, np.ndarray]:
        full = spread(weights).astype(np.float32)
        loss, gradient, n = 0.0, np.zeros(full.size), 0
        for x, target in parts:
            s = x @ full
            s -= s.max(axis=1, keepdims=True)
            p = np.exp(s)
            z = p.sum(axis=1, keepdims=True)
            p /= z
            loss -= float((target * (s - np.log(z))).sum())
            gradient += (p - target).reshape(-1) @ x.reshape(-1, full.size)
            n += len(s)
        return (
            loss / n + RIDGE * float(weights @ weights),
            jacobian(weights).T @ (gradient / n) + 2 * RIDGE * weights,
        )

    start = np.concatenate([[4.0, 4.0], np.full(len(KERNEL) + 1, 0.3), np.zeros(len(ADDED) + 2)])
    options = {"maxiter": 100}
    return minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x


def fit_rounds(memories, conversations, parts, use: Sequence[int], late: bool) -> list[np.ndarray]:
    """Weights for some of the conversations, likeness included; with `late` also the second."""

    def filled(weights: np.ndarray, late: bool) -> list[tuple[np.ndarray, np.ndarray]]:
        return [
            (with_passes(memories[i], conversations[i], parts[i][0], weights, late), parts[i][1])
            for i in use
        ]

    weights = fit([parts[i] for i in use])
    for _ in range(ROUNDS):
        weights = fit(filled(weights, late=False))
    return [weights, fit(filled(weights, late=True))] if late else [weights]


def as_ranking(fitted: Sequence[np.ndarray]) -> Ranking:
    ranking = None
    for base, weights in zip(("default", "late-interaction"), fitted, strict=False):
        named = dict(zip(NAMES, weights.tolist(), strict=True))
        kernel = {d: named[f"kernel {d:+d}"] for d in KERNEL}
        own = {name: named[name] for name in rankings[base].weights}
        ranking = replace(
            rankings[base], weights=own, kernel=kernel, answers=named["answers"], first=ranking
        )
    return replace(ranking, name="fitted")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--recall", action="store_true", help="also pack the texts of recall")
    parser.add_argument("--late", action="store_true", help="also compare the vectors of tokens")
    arguments = parser.parse_args()
    benchmark = load_locomo(arguments.file)
    model = load_embedder(None)
    late = arguments.late
    known_tokens = {} if late else None
    known = embed_benchmark(model, benchmark, cache=arguments.cache, tokens=known_tokens)
    embedder = KnownVectors(model, known, known_tokens or {})
    memories = [remember(c, embedder) for c in benchmark.conversations]
    parts = []
    for memory, conversation in zip(memories, benchmark.conversations, strict=True):
        x = features(memory, conversation)
        target = np.zeros(x.shape[:2], np.float32)
        for i, question in enumerate(conversation.answerable):
            target[i, list(question.gold)] = 1.0 / len(question.gold)
        parts.append((x, target))
    count, label = models.token_counter()
    folds, values, inside, packed = [], [], [], []
    for i, (memory, conversation) in enumerate(zip(memories, benchmark.conversations, strict=True)):
        use = [j for j in range(len(parts)) if j != i]
        weights = fit_rounds(memories, benchmark.conversations, parts, use, late)
        folds.append(weights)
        questions = conversation.answerable
        texts = [turn.text for turn in conversation.turns]
        asked = [q.text for q in questions]
        ranked = rank_all(memory, asked, {"x": as_ranking(weights)}, texts)["x"]
        own = [
            question_metrics(gold_ranks(r, q.gold)) for r, q in zip(ranked, questions, strict=True)
        ]
        tokens = turn_tokens(conversation, count)
        within = [
            [evidence_inside(r, q.gold, tokens, b) for b in BUDGETS]
            for r, q in zip(ranked, questions, strict=True)
        ]
        values += own
        inside += within
        if arguments.recall:
            rule = as_ranking(weights)
            packed += [in_recall(memory, q.text, q.gold, rule) for q in questions]
        print(
            f"{conversation.name:10} n {len(own):4d}  hit@10 "
            f"{np.mean([v['hit@10'] for v in own]):.3f}  recall@10 "
            f"{np.mean([v['recall@10'] for v in own]):.3f}  inside "
            f"{np.round(np.mean(within, axis=0), 3)}",
            flush=True,
        )
    print(
        f"{'all':10} n {len(values):4d}  "
        + "  ".join(f"{name} {np.mean([v[name] for v in values]):.3f}" for name in values[0])
    )
    print(f"evidence inside {BUDGETS} tokens ({label}): {np.round(np.mean(inside, axis=0), 3)}")
    if arguments.recall:
        print(f"in the texts of recall, dates counted: {np.round(np.mean(packed, axis=0), 3)}")
    final = fit_rounds(memories, benchmark.conversations, parts, range(len(parts)), late)
    for base, own, of_folds in zip(
        ("default", "late-interaction"), final, zip(*folds, strict=True), strict=False
    ):
        print(base)
        for name, value, by in zip(NAMES, own, np.std(of_folds, axis=0), strict=True):
            if name != "late" or base != "default":
                print(f"  {name:12} {value:7.3f}  (+- {by:.3f} over the folds)")


if __name__ == "__main__":
    main()

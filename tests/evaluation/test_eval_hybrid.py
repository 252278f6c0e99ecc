from __future__ import annotations

import numpy as np
import pytest
from riemem.embed import HashingEmbedder, render_turn
from riemem.errors import ArgumentError
from riemem.evaluation.hybrid import (
    KnownVectors,
    evidence_inside,
    instant,
    rank_all,
    remember,
    turn_tokens,
    variants,
)
from riemem.evaluation.latency import CopyEmbedder, copies, measure_latency
from riemem.evaluation.locomo import Benchmark, Conversation, Question, Turn

TURNS = tuple(
    Turn((1 + i // 3, 1 + i % 3), ["Ana", "Bo"][i % 2], text, caption, "1:56 pm on 8 May, 2023")
    for i, (text, caption) in enumerate(
        [
            ("I bought a kite", None),
            ("Which colour?", None),
            ("Red!", "a red kite"),
            ("My dentist is nice", None),
            ("Ana, you are lucky", None),
            ("I know", None),
        ]
    )
)
QUESTIONS = (Question(0, "What did Ana buy?", 4, (0,)), Question(1, "kite colour", 1, (1, 2)))
CONVERSATION = Conversation("c", TURNS, QUESTIONS)


def test_a_conversation_is_remembered_turn_by_turn() -> None:
    with remember(CONVERSATION, HashingEmbedder(dim=16)) as memory:
        records = memory.list(order="id")
    assert [record.id for record in records] == [1, 2, 3, 4, 5, 6]
    assert records[2].metadata == {"caption": "a red kite"}
    assert records[2].session == "session_1"
    assert {record.when for record in records} == {"2023-05-08T13:56:00+00:00"}


def test_every_variant_ranks_every_turn_once() -> None:
    chosen = variants()
    assert {"only lexical", "without neighbours", "without names", "default"} <= set(chosen)
    with remember(CONVERSATION, HashingEmbedder(dim=16)) as memory:
        ranked = rank_all(memory, [q.text for q in QUESTIONS], chosen)
        hits = [hit.id - 1 for hit in memory.search(QUESTIONS[0].text)]
    assert set(ranked) == set(chosen)
    for lists in ranked.values():
        assert [sorted(rows) for rows in lists] == [list(range(6))] * 2
    assert ranked["default"][0] == hits
    assert list(variants(["slm-v3"])) == ["slm-v3"]


def test_known_vectors_answer_for_the_model() -> None:
    model = HashingEmbedder(dim=8)
    known = KnownVectors(model, {"a": np.ones(8, np.float32)})
    rows = known.embed(["b", "a"])
    assert rows[1].tolist() == [1.0] * 8
    assert rows[0].tolist() == model.embed(["b"])[0].tolist()
    assert (known.identity, known.dim) == (model.identity, 8)
    assert known.embed([]).shape == (0, 8)


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("1:56 pm on 8 May, 2023", "2023-05-08T13:56:00+00:00"),
        ("12:09 am on 13 September, 2023", "2023-09-13T00:09:00+00:00"),
        ("2023-05-08T13:56:00Z", "2023-05-08T13:56:00Z"),
        ("30 February", "1970-01-01T00:00:00+00:00"),
        (None, "1970-01-01T00:00:00+00:00"),
    ],
)
def test_the_date_of_a_session(when: str | None, expected: str) -> None:
    assert instant(when) == expected


def test_evidence_inside_a_budget() -> None:
    assert turn_tokens(CONVERSATION, len)[2] == len("Ana: Red! [shares a red kite]") + 1
    assert evidence_inside([0, 1, 2], [0, 2], [50, 60, 40], 100) == 1.0
    assert evidence_inside([0, 1, 2], [1], [50, 60, 40], 100) == 0.0
    assert evidence_inside([0], [0], [50], 49) == 0.0


def test_copies_have_other_names_and_dates_and_near_vectors() -> None:
    benchmark = Benchmark("f", "0", (CONVERSATION,))
    items = copies(benchmark, 15)
    assert len(items) == 15
    assert {item["speaker"] for item in items[:6]}.isdisjoint(
        item["speaker"] for item in items[6:12]
    )
    assert items[0]["when"] < items[6]["when"] < items[12]["when"]
    assert items[0]["session"] != items[6]["session"]
    assert "Ana" not in items[10]["text"]
    known = {"a": np.eye(64, dtype=np.float32)[0]}
    copied = CopyEmbedder(known, {"b": "a"})
    near = copied.embed(["b"])[0]
    assert 0.85 < float(near @ known["a"]) < 1.0
    assert copied.embed(["b"])[0].tolist() == near.tolist()
    with pytest.raises(ArgumentError, match="sizes"):
        copies(benchmark, 0)


def test_latency_is_reported_for_each_size() -> None:
    model = HashingEmbedder(dim=16)
    texts = [render_turn(t.text, speaker=t.speaker, caption=t.caption) for t in TURNS]
    texts += [q.text for q in QUESTIONS] + ["x"]
    known = dict(zip(texts, model.embed(texts), strict=True))
    benchmark = Benchmark("f", "0", (Conversation("c", TURNS, QUESTIONS * 4),))
    rows = measure_latency(benchmark, known, render_turn, [5, 20], queries=3)
    assert [row["memories"] for row in rows] == [5.0, 20.0]
    assert all(0 < row["p50_ms"] <= row["p95_ms"] for row in rows)
    tokens = dict(zip(texts, model.embed_with_tokens(texts)[1], strict=True))
    late = measure_latency(
        benchmark, known, render_turn, [20], queries=3, ranking="late-interaction", tokens=tokens
    )
    assert [row["memories"] for row in late] == [20.0]
    assert late[0]["first_ms"] > 0.0

"""The late channel against plain float64 MaxSim, and the rule of who uses it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from riemem.embed import HashingEmbedder
from riemem.errors import ArgumentError
from riemem.memory import Memory
from riemem.retrieval.fusion import Ranking, rankings
from riemem.retrieval.late import NEAR, late_scores, maxima, question_rows
from riemem.retrieval.token_rows import DIMS, ROW_BYTES, UNIT, read_rows
from riemem.store.token_vectors import token_rows_of

WORDS = [
    "sea",
    "boat",
    "river",
    "harbour",
    "dog",
    "puppy",
    "tax",
    "form",
    "red",
    "blue",
    "kite",
    "paris",
    "train",
    "bike",
    "cake",
    "music",
    "violin",
    "garden",
    "roses",
    "winter",
    "snow",
    "coffee",
    "tea",
    "letter",
    "sister",
    "brother",
    "school",
    "exam",
    "doctor",
    "clinic",
]


class Plain:
    """An embedder without tokens."""

    identity, dim, max_tokens = "plain-hashing", 64, 512

    def __init__(self) -> None:
        self._inner = HashingEmbedder(dim=64)

    def embed(self, texts: Any) -> NDArray[np.float32]:
        return self._inner.embed(texts)


def items(n: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {
            "text": " ".join(rng.choice(WORDS, size=int(rng.integers(1, 9)))),
            "speaker": str(rng.choice(["Ana", "Ben", "Bo Lee"])),
            "session": f"s{i // 12}",
            "when": f"2024-{1 + i // 336:02d}-{1 + i // 12 % 28:02d}T10:00:00Z",
        }
        for i in range(n)
    ]


def filled(n: int = 150, *, late: bool = True, seed: int = 0) -> Memory:
    memory = Memory.open(":memory:", embedder=HashingEmbedder(dim=64))
    memory.add_many(items(n, seed))
    if late:
        memory.enable_late_interaction()
    return memory


def stored(memory: Memory, ids: list[int]) -> dict[int, bytes]:
    with memory._store.reading() as connection:
        return token_rows_of(connection, ids)


def rows_of(seed: int, counts: list[int]) -> list[bytes]:
    rng = np.random.default_rng(seed)
    return [rng.bytes(count * ROW_BYTES) for count in counts]


def asked_of(seed: int, count: int) -> NDArray[np.int8]:
    return np.random.default_rng(seed).integers(-127, 128, (count, DIMS), np.int8)


def max_sim(question: NDArray[np.int8], text: bytes) -> list[float]:
    """For each row of the question the best product, one by one in Python's whole numbers."""
    rows = [
        [2 * (byte >> bit & 1) - 1 for byte in row for bit in range(8)]
        for row in read_rows(text).tolist()
    ]
    return [
        max((sum(a * b for a, b in zip(q, t, strict=True)) for t in rows), default=-np.inf)
        for q in question.astype(int).tolist()
    ]


def plain_scores(memory: Memory, query: str, ids: list[int]) -> dict[int, float]:
    """The channel as its docstring says, turn by turn in float64."""
    view = memory._channel("default")._corpus.follow()
    tokens = memory._embedder.embed_query(query, tokens=True).tokens
    assert tokens is not None
    question = question_rows(query, tokens, view)
    texts = stored(memory, ids)
    best = {i: np.array(max_sim(question, texts.get(i, b""))) / UNIT for i in ids}
    session = {i: (i - 1) // 12 for i in ids}
    scores = {}
    for i in ids:
        if not texts.get(i):
            continue
        own = best[i]
        for j in range(i - NEAR, i + NEAR + 1):
            if j != i and j in best and session[j] == session[i]:
                own = np.maximum(own, 0.9 * best[j])
        scores[i] = own.mean()
    mean, low = np.mean(list(scores.values())), min(scores.values())
    return {i: scores.get(i, mean) - low for i in ids}


def late_of(memory: Memory, query: str) -> dict[int, float]:
    channel = memory._channel("default")
    gathered = channel.gather(query, rankings["late-interaction"])
    ids = gathered.view.ids.tolist()
    return dict(zip(ids, gathered.channels["late"].tolist(), strict=True))


@pytest.mark.parametrize("query", ["puppy by the sea", "Which clinic did Ana visit?", "snow?"])
def test_the_channel_is_max_sim_over_the_turns_beside(query: str) -> None:
    with filled(90) as memory:
        expected = plain_scores(memory, query, list(range(1, 91)))
        found = late_of(memory, query)
    assert found == pytest.approx(expected, abs=1e-12)
    assert min(found.values()) == 0.0 < max(found.values())


def test_turns_that_are_not_compared_lend_nothing() -> None:
    query = "puppy by the sea"
    with filled(90) as memory:
        view = memory._channel("default")._corpus.follow()
        tokens = memory._embedder.embed_query(query, tokens=True).tokens
        assert tokens is not None
        question = question_rows(query, tokens, view)
        ids = list(range(1, 91, 3))
        place = np.flatnonzero(np.isin(view.ids, ids))
        found = late_scores(question, stored(memory, ids), view, place, 0.9)
        expected = plain_scores(memory, query, ids)
    assert dict(zip(view.ids[place].tolist(), found.tolist(), strict=True)) == pytest.approx(
        expected, abs=1e-12
    )


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 6), min_size=1, max_size=8))
@settings(max_examples=40)
def test_maxima_are_exact_in_whole_numbers(seed: int, counts: list[int]) -> None:
    texts = rows_of(seed, counts)
    question = asked_of(seed + 1, 3)
    found = maxima(question, texts)
    assert np.array_equal(found, np.array([max_sim(question, text) for text in texts]).T)


def test_the_largest_products_are_exact() -> None:
    row = np.full((1, DIMS), 127, np.int8)
    texts = [b"\xff" * ROW_BYTES, b"\xfe" + b"\xff" * (ROW_BYTES - 1), bytes(ROW_BYTES)]
    assert maxima(row, texts).tolist() == [[65024.0, 64770.0, -65024.0]]


@given(st.permutations(list(range(30))), st.integers(0, 50))
@settings(max_examples=25, deadline=None)
def test_scores_do_not_depend_on_the_order_of_rows(order: list[int], seed: int) -> None:
    view = _VIEW
    counts = [int(c) for c in np.random.default_rng(seed).integers(0, 5, 30)]
    texts = dict(zip(view.ids.tolist(), rows_of(seed, counts), strict=False))
    question = asked_of(seed + 1, 4)
    rows = np.arange(30)
    plain = late_scores(question, texts, view, rows, 0.9)
    mixed = late_scores(question, texts, view, rows[order], 0.9)
    assert np.array_equal(mixed, plain[order])
    assert plain.min() == 0.0


with filled(30) as _memory:
    _VIEW = _memory._channel("default")._corpus.follow()


def test_a_memory_without_rows_gets_the_mean_of_the_others() -> None:
    view = _VIEW
    texts = dict(zip(range(1, 11), rows_of(3, [2] * 10), strict=True))
    texts[4] = b""
    del texts[7]
    question = asked_of(4, 3)
    rows = np.flatnonzero(np.isin(view.ids, range(1, 11)))
    found = dict(
        zip(view.ids[rows].tolist(), late_scores(question, texts, view, rows, 0.9), strict=True)
    )
    others = [found[i] for i in range(1, 11) if i not in (4, 7)]
    assert found[4] == found[7] == pytest.approx(np.mean(others), abs=1e-12)


def test_nothing_to_compare_is_nothing() -> None:
    view = _VIEW
    question = asked_of(4, 3)
    rows = np.arange(5)
    assert not late_scores(question, {}, view, rows, 0.9).any()
    assert not late_scores(question[:0], {1: bytes(ROW_BYTES)}, view, rows, 0.9).any()


def test_the_names_of_speakers_are_left_out_of_the_question() -> None:
    with filled(30) as memory:
        view = memory._channel("default")._corpus.follow()
        for query, left in [("Ana sea", 1), ("Bo Lee's sea boat", 2), ("Ana?", 0), ("Zoe sea", 2)]:
            tokens = memory._embedder.embed_query(query, tokens=True).tokens
            assert tokens is not None
            assert len(question_rows(query, tokens, view)) == left


def test_default_means_it_where_the_store_keeps_tokens() -> None:
    query = "puppy by the sea"
    with filled(late=False) as memory:
        before = memory.search(query, k=20)
        memory.enable_late_interaction()
        within = memory.search(query, k=20)
        named = memory.search(query, k=20, ranking="late-interaction")
        given = memory.search(query, k=20, ranking=rankings["default"])
        memory.disable_late_interaction()
        after = memory.search(query, k=20)
    assert before == after == given
    assert "late" not in before[0].channels
    assert before.scoring.startswith("default")
    assert within == named
    assert within.scoring.startswith("late-interaction")
    assert within[0].channels["late"] > 0.0
    assert within.skipped == ()
    total = sum(v for name, v in within[0].channels.items())
    assert total == pytest.approx(within[0].score, abs=1e-9)


def test_where_no_tokens_are_kept_it_is_the_default_and_says_so() -> None:
    query = "puppy by the sea"
    with filled(late=False) as memory:
        plain = memory.search(query, k=10)
        found = memory.search(query, k=10, ranking="late-interaction")
        packed = memory.recall(query, token_budget=200, ranking="late-interaction")
    assert list(found) == list(plain)
    assert found.skipped == packed.skipped
    assert found.skipped == (
        "late: the store keeps no token vectors; see Memory.enable_late_interaction",
    )
    assert plain.skipped == ()


def test_a_ranking_of_ones_own_goes_without_the_channel() -> None:
    own = Ranking("own", {"lexical": 1.0, "late": 2.0})
    with filled(late=False) as memory:
        found = memory.search("puppy sea", k=10, ranking=own)
        assert found == memory.search("puppy sea", k=10, ranking=Ranking("own", {"lexical": 1.0}))
        assert found.skipped
        memory.enable_late_interaction()
        both = memory.search("puppy sea", k=10, ranking=own)
        assert both.skipped == ()
        assert set(both[0].channels) == {"lexical", "late"}


def test_memories_without_rows_are_neutral_in_a_search() -> None:
    with filled(40) as memory:
        with memory._store.writing(advance=False) as transaction:
            transaction.connection.execute("DELETE FROM token_vectors WHERE memory_id IN (3, 9)")
        scores = late_of(memory, "puppy by the sea")
        others = [score for i, score in scores.items() if i not in (3, 9)]
    assert scores[3] == scores[9] == pytest.approx(np.mean(others), abs=1e-12)


def test_an_embedder_without_tokens_uses_the_default_and_says_so(tmp_path: Any) -> None:
    class Both(Plain):
        def embed_with_tokens(self, texts: Any) -> Any:
            return self._inner.embed_with_tokens(texts)

    path = tmp_path / "both.db"
    with Memory.open(path, embedder=Both()) as memory:
        memory.add_many(items(80))
        memory.enable_late_interaction()
        assert memory.search("puppy sea").scoring.startswith("late-interaction")
        wanted = memory.search("puppy sea", ranking=rankings["default"])
    with Memory.open(path, embedder=Plain()) as memory:
        found = memory.search("puppy sea")
    assert list(found) == list(wanted)
    assert found.skipped == ("late: the embedder gives no vectors of tokens",)


def test_only_the_best_are_compared_and_stay_before_the_others() -> None:
    query = "puppy by the sea"
    with filled(300) as memory:
        channel = memory._channel("default")
        late = rankings["late-interaction"]
        gathered = channel.gather(query, late)
        joined = channel.join(query, late, gathered)
        compared = gathered.channels["late"] > 0.0
        assert 90 < np.count_nonzero(compared) <= late.late[0]
        everything = memory.search(query, k=300)
        short = memory.search(query, k=7)
    assert [hit.id for hit in short] == [hit.id for hit in everything[:7]]
    order = joined.rows[np.argsort(-joined.scores, kind="stable")]
    assert compared[order[: late.late[0]]].sum() == np.count_nonzero(compared)


def test_when_the_rows_were_made_and_asking_again_change_nothing() -> None:
    query = "Which train to paris did Ben take?"
    with filled(120) as first, filled(60, late=False) as second:
        second.enable_late_interaction()
        second.add_many(items(120)[60:])
        ids = list(range(1, 121))
        assert stored(first, ids) == stored(second, ids)
        assert len(stored(first, ids)) == 120
        found = [memory.search(query, k=30) for memory in (first, first, second)]
    hits = [[(hit.id, hit.score) for hit in one] for one in found]
    assert hits[0] == hits[1] == hits[2]


def test_the_default_finds_what_is_put_in_a_new_order() -> None:
    late = rankings["late-interaction"]
    with filled(300) as memory:
        for query in ["puppy by the sea", "Which clinic did Ana visit?", "snow in the garden"]:
            found = memory.search(query, k=250)
            before = memory.search(query, k=250, ranking=rankings["default"])
            best = [hit.id for hit in before[: late.late[0]]]
            assert {hit.id for hit in found[:100]} == set(best)
            assert [hit.id for hit in found[:100]] != best
            # The rest keeps its order behind them, and its scores but for what all of them lose.
            assert [hit.id for hit in found[100:]] == [hit.id for hit in before[100:]]
            lost = found[100].score - before[100].score
            assert lost == pytest.approx(found[100].channels["late"])
            assert found[200].score - before[200].score == pytest.approx(lost)
            scores = [hit.score for hit in found]
            assert scores == sorted(scores, reverse=True)
            for hit in found:
                assert sum(hit.channels.values()) == pytest.approx(hit.score, abs=1e-9)


def test_where_none_of_them_has_tokens_it_is_the_default_and_says_so() -> None:
    with filled(60, late=False) as memory:
        plain = memory.search("puppy sea", k=20)
        memory.enable_late_interaction(progress=lambda done, total: False)
        found = memory.search("puppy sea", k=20)
    assert list(found) == list(plain)
    assert found.skipped == ("late: none of the memories found has vectors of tokens",)


def test_what_finds_need_not_have_vectors() -> None:
    own = Ranking("own", {"dense": 1.0, "late": 5.0}, first=rankings["lexical"])
    with filled(1500) as memory:
        for query in ("puppy by the sea", "snow"):
            few = memory.search(query, k=7, ranking=own)
            many = memory.search(query, k=1000, ranking=own)
            assert [(h.id, h.score) for h in few] == [(h.id, h.score) for h in many[:7]]


def test_late_alone_puts_what_the_default_finds_in_order() -> None:
    alone = Ranking("alone", {"late": 1.0})
    assert alone.finder is rankings["default"]
    with filled(150) as memory:
        found = memory.search("puppy sea", k=10, ranking=alone)
        assert found[0].score == found[0].channels["late"] > 0.0
        with memory._store.writing(advance=False) as transaction:
            transaction.connection.execute(
                "UPDATE meta SET value = replace(value, 'rotated', 'former') "
                "WHERE key = 'token vectors'"
            )
        other = memory.search("puppy sea", k=10, ranking=alone)
        assert list(other) == list(memory.search("puppy sea", ranking=rankings["default"]))
        assert "late" not in other[0].channels
        assert other.skipped[0].startswith("late: the store's token vectors are of the form former")


def test_changes_go_down_but_for_what_is_ones_own() -> None:
    late = rankings["late-interaction"]
    assert late.changed(name="mine").first == rankings["default"]
    other = rankings["default"].changed(scenes=0.5)
    assert late.changed(first=other).first is other
    weights = {"dense": 1.0, "late": 2.0}
    assert late.changed(weights=weights).finder.weights == rankings["default"].weights


def test_the_shift_of_what_was_not_compared_teaches_nothing() -> None:
    from riemem._doubts import told_apart

    with filled(300) as memory:
        hits = memory.search("puppy by the sea", k=200)
    assert hits[150].channels["late"] <= 0.0
    behind = replace(hits[150], channels={**hits[150].channels, "late": -1.0})
    assert "late" not in told_apart(behind, hits[:3])
    assert "late" not in told_apart(hits[0], [hits[1], behind])
    assert "late" in told_apart(hits[0], hits[1:4])


def test_what_was_learnt_weighs_in_both() -> None:
    late = rankings["late-interaction"]
    other = late.reweighed(lambda name, weight: 0.0 if name == "lexical" else weight, trust=2.0)
    assert other.weights["lexical"] == other.finder.weights["lexical"] == 0.0
    assert other.weights["trust"] == other.finder.weights["trust"] == 2.0
    assert other.finder.weights["dense"] == rankings["default"].weights["dense"]
    assert late.reweighed(lambda _, weight: weight) is late
    assert "names" not in late.without("names").finder.weights
    assert late.without("late") is rankings["default"]
    assert late.changed(kernel={}, answers=0.0).finder.kernel == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first": rankings["slm-v3"]}, "first: expected its dense to be 'whitened'"),
        (
            {"first": rankings["default"].changed(kernel={})},
            "first: expected a kernel with .*-3.*, got ",
        ),
        ({"first": "default"}, "first: expected a ranking without the channel 'late'"),
        ({"k1": 2.0}, "first: expected its k1 to be 2.0, got 0.8"),
        ({"weights": {"dense": 1.0}}, "first: expected a ranking without the channel 'late'"),
        ({"first": rankings["late-interaction"]}, "first: expected a ranking without"),
        ({"first": rankings["default"].without("likeness")}, "a weight for 'likeness'"),
    ],
)
def test_what_cannot_come_first_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        replace(rankings["late-interaction"], **changes)


@pytest.mark.parametrize(
    "late",
    [
        (0, 0.9),
        (2.5, 0.9),
        (),
        (9,),
        ("a", 0.9),
        (10**400, 0.9),
        (100, 1.5),
        (100, -0.1),
        (100, float("nan")),
    ],
)
def test_what_the_ranking_cannot_mean_is_refused(late: tuple[int, float]) -> None:
    with pytest.raises(ArgumentError):
        Ranking("own", {"late": 1.0}, late=late)


def test_of_many_memories_the_candidates_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = ["puppy by the sea", "Which clinic did Ana visit?", "snow in the garden"]
    with filled(360) as memory:
        exact = [memory.search(query, k=10) for query in queries]
        monkeypatch.setattr("riemem.retrieval.hybrid.MANY", 50)
        found = [memory.search(query, k=10) for query in queries]
    for one, other in zip(exact, found, strict=True):
        assert other.scoring == one.scoring
        assert len({hit.id for hit in one} & {hit.id for hit in other}) >= 8
        assert max(hit.channels["late"] for hit in other) > 0.0


def test_after_any_changes_the_answers_are_those_of_a_store_just_opened(tmp_path: Any) -> None:
    path, queries = tmp_path / "me.db", ["puppy by the sea", "snow in the garden"]
    rng = np.random.default_rng(5)
    with Memory.open(path, embedder=HashingEmbedder(dim=64)) as living:
        living.enable_late_interaction()
        alive: list[int] = []
        for step in range(6):
            alive += living.add_many(items(30, seed=step))
            living.update(alive[step], text=f"snow on the harbour {step}", speaker="Ben")
            gone = [int(i) for i in rng.choice(alive[10:], 5, replace=False)]
            living.forget(gone)
            alive = [i for i in alive if i not in gone]
            with Memory.open(path, embedder=HashingEmbedder(dim=64)) as fresh:
                for query in queries:
                    one, other = living.search(query, k=40), fresh.search(query, k=40)
                    assert one.scoring.startswith("late-interaction")
                    assert [(h.id, h.score) for h in one] == [(h.id, h.score) for h in other]

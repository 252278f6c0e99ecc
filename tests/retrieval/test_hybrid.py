from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import ArgumentError, DTypeError, ModelNotFoundError, RiememError
from riemem.memory import Hit, Memory
from riemem.retrieval import dense, hybrid
from riemem.retrieval.channel import Shares
from riemem.retrieval.fusion import Ranking, rankings
from riemem.retrieval.hybrid import HybridChannel
from riemem.store.reads import metadata_of

_WORDS = "tea dog boat key moon salt fern coal harp nail oak rain sand wolf yarn"
WORDS = _WORDS.split()
PEOPLE = ["Ana", "Bo", "Will", "May"]


def items(n: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "text": " ".join(rng.choice(WORDS) for _ in range(rng.randint(2, 8)))
            + rng.choice(["", "?", " last week", " on Monday"]),
            "speaker": rng.choice([*PEOPLE, None]),
            "session": rng.choice([f"s{i // 8}", None]),
            "when": f"2023-{1 + i % 12:02d}-{1 + i % 28:02d}T10:00:00Z",
            "metadata": {"caption": rng.choice(WORDS)} if i % 5 == 0 else None,
        }
        for i in range(n)
    ]


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory.open(":memory:", embedder=HashingEmbedder(dim=48)) as opened:
        yield opened


QUERIES = [
    "When did Ana see the moon?",
    "What did Bo and Will do with the boat in March 2023?",
    "salt",
    "Will May come yesterday?",
]


# -- what a result says ----------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(rankings))
def test_the_shares_add_up_to_the_score_and_the_order_is_total(memory: Memory, name: str) -> None:
    memory.add_many(items(80))
    if name == "late-interaction":
        memory.enable_late_interaction()
    for query in QUERIES:
        hits = memory.search(query, k=80, ranking=name, explain=True)
        assert len(hits) == 80
        keys = [(-hit.score, hit.id) for hit in hits]
        assert keys == sorted(keys)
        for hit in hits:
            shares = {
                key: value
                for key, value in hit.channels.items()
                if "." not in key and key not in ("cosine", "chunk")
            }
            assert sum(shares.values()) == pytest.approx(hit.score, abs=1e-12)
            assert set(rankings[name].weights) - set(shares) <= {"lexical"}
            assert hit.why


def test_the_default_is_the_documented_sum(memory: Memory) -> None:
    memory.add("The boat sank", speaker="Ana", session="a", when="2023-03-05T10:00:00Z")
    memory.add("When was that?", speaker="Bo", session="a", when="2023-03-05T10:01:00Z")
    memory.add("A long story about nothing", when="2024-03-05T10:01:00Z")
    weights, kernel = rankings["default"].weights, rankings["default"].kernel
    hits = {h.id: h for h in memory.search("When did Ana's boat sink?", explain=True)}
    one, two = hits[1].channels, hits[2].channels
    assert one["names"] == weights["names"]
    assert two["names"] == 0.0
    assert one["substance"] == pytest.approx(weights["substance"] * 13 / 33)
    assert 0 < one["lexical.score"] <= 1
    assert one["lexical"] == pytest.approx(weights["lexical"] * one["lexical.score"])
    base = one["dense"] + one["lexical"]
    assert two["neighbours"] == pytest.approx(kernel[-1] * base)
    assert one["neighbours"] == pytest.approx(kernel[1] * (two["dense"] + two["lexical"]))
    assert hits[3].channels["neighbours"] == 0.0
    assert hits[1].why.split()[0] in ("lexical", "dense")


def test_neighbours_follow_time_then_id_and_do_not_leave_the_session(memory: Memory) -> None:
    late = memory.add("x", session="s", when="2023-01-02T00:00:00Z")
    early = memory.add("moon", session="s", when="2023-01-01T00:00:00Z")
    other = memory.add("x", session="t", when="2023-01-01T12:00:00Z")
    alone = memory.add("x", when="2023-01-01T12:00:00Z")
    got = {hit.id: hit.channels["neighbours"] for hit in memory.search("moon")}
    assert got[late] > 0
    assert got[other] == got[alone] == 0.0
    assert abs(got[early]) < got[late]


def test_captions_are_words_and_part_of_the_vector(memory: Memory) -> None:
    memory.add("look at this", speaker="Ana", metadata={"caption": "a red kite"})
    memory.add("look at this", speaker="Ana", metadata={"caption": 7})
    hits = memory.search("kite", explain=True)
    assert [hit.id for hit in hits] == [1, 2]
    assert hits[0].channels["lexical.score"] > 0.5 > hits[1].channels["lexical.score"]
    assert hits[0].channels["cosine"] > hits[1].channels["cosine"]
    memory.update(2, metadata={"caption": "a kite"})
    assert memory.search("kite", explain=True)[1].channels["lexical.score"] > 0


def test_a_date_in_the_query_finds_what_was_said_or_spoken_of_then(memory: Memory) -> None:
    memory.add("tea", when="2022-10-05T23:30:00-05:00")  # the 6th in UTC
    memory.add("tea last month", when="2023-11-20T10:00:00Z")
    memory.add("tea", when="2024-05-05T10:00:00Z")
    got = {h.id: h.channels["temporal"] for h in memory.search("tea in October 2023")}
    weight = rankings["default"].weights["temporal"]
    assert got[2] == pytest.approx(weight)
    assert got[1] < weight / 100
    assert got[3] < weight / 100
    got = {h.id: h.channels["temporal"] for h in memory.search("tea on 6 October 2022")}
    assert got[1] == pytest.approx(weight)


def test_relative_dates_of_a_query_need_the_day_of_the_question(memory: Memory) -> None:
    memory.add("tea", when="2023-10-18T10:00:00Z")
    hits = memory.search("tea yesterday")
    assert hits.skipped == ("temporal: 'yesterday' in the query needs at= to be a date",)
    hits = memory.search("tea yesterday", at="2023-10-19T12:00:00Z")
    assert hits.skipped == ()
    assert hits[0].channels["temporal"] == rankings["default"].weights["temporal"]


def test_a_channel_that_cannot_run_is_named_and_nobody_loses_by_it(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.add_many(items(20))
    monkeypatch.setitem(sys.modules, "dateutil", None)
    hits = memory.search("tea in May 2023")
    assert "temporal" not in hits[0].channels
    assert [note for note in hits.skipped if "python-dateutil" in note]
    assert "python-dateutil" in memory.stats()["skipped"][0]
    hits = memory.search("🙂")
    assert "lexical: the query has no words" in hits.skipped
    assert "lexical" not in hits[0].channels
    context = memory.recall("🙂", token_budget=500, count_tokens=len)
    assert "lexical: the query has no words" in context.skipped


# -- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        '" OR NEAR( *',
        "NOT",
        "a AND OR b",
        "col:umn",
        "*",
        "the of and",
        "🙂",
        "pre-edit",
        "don't",
        "ubuntu 20.04",
        "'; DROP TABLE memories; --",
        "30 February, year 0000-00-00, 9999-99-99",
        "31.12.9999 9999-12-31 99999 days ago",
        "日本語の質問",
        "\x00 tea \x00",
        "((((((((((",
        "[a-z]+(?P<x>",
        "tea " * 25_000,
        "x" * 100_000,
        "A" + "'s" * 3000,
    ],
)
@pytest.mark.parametrize("name", ["default", "slm-v3"])
def test_any_query_gives_a_plain_result(memory: Memory, query: str, name: str) -> None:
    memory.add_many(items(40))
    hits = memory.search(query, k=40, ranking=name)
    assert len(hits) == 40
    assert all(np.isfinite(hit.score) for hit in hits)
    assert hits == memory.search(query, k=40, ranking=name)
    assert len(memory.list()) == 40


@pytest.mark.parametrize("query", ["", "  \n", 3, None, b"tea"])
def test_what_is_no_query_is_a_typed_error(memory: Memory, query: Any) -> None:
    with pytest.raises(RiememError, match=r"^query: "):
        memory.search(query)


@pytest.mark.parametrize("query", ["pre-edit", "don't", "ubuntu 20.04"])
def test_punctuation_changes_nothing(memory: Memory, query: str) -> None:
    memory.add_many([{"text": f"note {i} about {WORDS[i % 15]}"} for i in range(30)])
    wanted = memory.add(f"we said {query} there")
    plain = query.replace("-", " ").replace("'", " ").replace(".", " ")
    found = memory.search(query, k=5, ranking="lexical")
    assert [(h.id, h.score) for h in found] == [
        (h.id, h.score) for h in memory.search(plain, k=5, ranking="lexical")
    ]
    assert found[0].id == wanted


def test_sql_in_every_field_is_text(memory: Memory) -> None:
    evil = "'); DROP TABLE memories; --"
    memory.add(evil, speaker=evil, session=evil, metadata={"caption": evil, evil: evil})
    memory.add("tea", speaker=evil, session=evil)
    hits = memory.search(evil, session=evil, filters={"speaker": evil})
    assert [hit.id for hit in hits] == [1, 2]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"ranking": "best"}, ArgumentError, "ranking: expected one of"),
        ({"ranking": None}, ArgumentError, "ranking: expected one of"),
        ({"near_duplicates": "0.9"}, DTypeError, "near_duplicates: expected a number"),
        ({"near_duplicates": True}, DTypeError, "near_duplicates: expected a number"),
        ({"near_duplicates": float("nan")}, ArgumentError, "near_duplicates: expected a cosine"),
        ({"near_duplicates": -1.0}, ArgumentError, "near_duplicates: expected a cosine"),
        ({"reranker": 5}, DTypeError, "reranker: expected an object"),
        ({"reranker": "/no/such/folder"}, ModelNotFoundError, "path: no cross-encoder"),
    ],
)
def test_options_are_checked(
    memory: Memory, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    memory.add("tea")
    with pytest.raises(error, match=message):
        memory.search("tea", **options)


def test_names_that_are_words_and_dates_at_the_edges_of_the_calendar(memory: Memory) -> None:
    for i, when in enumerate(["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]):
        memory.add(f"tea {i} yesterday, tomorrow, last year, in May", speaker="May", when=when)
    for query in ("When will May come?", "in May", "tea in 9999", "tea 0001-01-01"):
        assert len(memory.search(query)) == 2
    weight = rankings["default"].weights["names"]
    assert memory.search("What did May say?")[0].channels["names"] == weight
    assert memory.search("What happened in May?")[0].channels["names"] == 0.0


# -- scopes ----------------------------------------------------------------------------------


def test_a_scope_is_searched_as_if_the_rest_lent_nothing(memory: Memory) -> None:
    for i in range(60):
        memory.add(f"moon {i}" if i % 2 else f"fern {i}", session="s", metadata={"b": i >= 50})
    hits = memory.search("moon", k=5, filters={"b": True})
    everything = memory.search("moon", k=60, filters={"b": True})
    assert len(hits) == 5
    assert hits == everything[:5]
    assert {hit.id for hit in everything} == set(range(51, 61))
    first = next(hit for hit in everything if hit.id == 51)
    alone = memory.search("moon", filters={"ids": [51]})[0]
    assert alone.channels["neighbours"] == 0.0
    assert first.channels["neighbours"] != 0.0


def test_later_turns_lend_nothing_to_a_search_in_the_past(memory: Memory) -> None:
    memory.add("hm", session="s", when="2023-01-01T00:00:00Z")
    before = memory.search("moon", at="2023-01-02T00:00:00Z")[0].channels["neighbours"]
    memory.add("moon moon", session="s", when="2023-01-03T00:00:00Z")
    assert memory.search("moon", at="2023-01-02T00:00:00Z")[0].channels["neighbours"] == before == 0


def test_profiles_never_meet(memory: Memory) -> None:
    memory.add("moon", session="s", speaker="Ana", profile="a")
    memory.add("fern", session="s", speaker="Bo", profile="b")
    for name in rankings:
        assert [h.id for h in memory.search("moon fern Ana", profile="b", ranking=name)] == [2]


# -- living ----------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [16_384, 20])
def test_after_any_changes_the_answers_are_those_of_a_store_just_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(hybrid, "MANY", many)
    path, embedder = tmp_path / "me.db", HashingEmbedder(dim=48)
    rng = random.Random(3)
    with Memory.open(path, embedder=embedder) as living:
        alive: list[int] = []
        for step in range(12):
            alive += living.add_many(items(12, seed=step))
            living.update(rng.choice(alive), text=f"moon and salt {step}", speaker="Will")
            gone = rng.sample(alive, 4)
            living.forget(gone)
            alive = [i for i in alive if i not in gone]
            answers = [living.search(query, k=30) for query in QUERIES]
        with Memory.open(path, embedder=embedder) as opened:
            for query, answer in zip(QUERIES, answers, strict=True):
                assert opened.search(query, k=30) == answer


def test_forgotten_turns_leave_the_columns_and_lend_nothing(memory: Memory) -> None:
    memory.add("moon last Friday", speaker="Ana", session="s", when="2023-01-01T00:00:00Z")
    memory.add("hm", speaker="Bo", session="s", when="2023-01-01T00:01:00Z")
    memory.search("When was the moon in 2022?", ranking="slm-v3")
    memory.search("When was the moon in 2022?")
    memory.forget([1])
    hits = memory.search("When was the moon in 2022?", explain=True)
    assert [hit.id for hit in hits] == [2]
    assert hits[0].channels["neighbours"] == 0.0
    assert hits[0].channels["names"] == 0.0
    corpus = memory._channel("default")._corpus
    assert all(turn and turn.text != "moon last Friday" for turn in corpus._derived.turns)


def test_many_memories_give_the_hits_of_the_full_sum(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, talk = random.Random(9), items(1500)
    for item in talk:  # a vocabulary of some size, as people have
        item["text"] += " " + " ".join(f"w{int(rng.paretovariate(0.6))}" for _ in range(6))
    memory.add_many(talk)
    queries = [f"{q} w{i} w{i + 7}" for i, q in enumerate(QUERIES, 20)]
    channel = memory._channel("default")
    assert isinstance(channel, HybridChannel)
    full = [channel.search(query, 10) for query in queries]
    monkeypatch.setattr(hybrid, "MANY", 100)
    for query, expected in zip(queries, full, strict=True):
        found = channel.search(query, 10)
        assert [i for i, _ in found][:5] == [i for i, _ in expected][:5]
        assert len(set(dict(found)) & set(dict(expected))) >= 8
        everything = dict(channel.search(query, 1500))
        assert dict(found) == pytest.approx({i: everything[i] for i in dict(found)}, abs=1e-9)
        few = np.arange(100, 130)
        monkeypatch.setattr(hybrid, "MANY", 16_384)
        wanted = channel.search(query, 10, few)
        monkeypatch.setattr(hybrid, "MANY", 100)
        found = channel.search(query, 10, few)
        assert [i for i, _ in found] == [i for i, _ in wanted]


# -- options ---------------------------------------------------------------------------------


def test_near_duplicates_are_left_out_on_request(memory: Memory) -> None:
    memory.add_many([{"text": "the moon is full"} for _ in range(6)])
    memory.add_many([{"text": f"moon {word}"} for word in WORDS])
    plain = memory.search("the full moon", k=8)
    assert [hit.id for hit in plain][:6] == [1, 2, 3, 4, 5, 6]
    hits = memory.search("the full moon", k=8, near_duplicates=0.99)
    assert len(hits) == 8
    assert [hit.id for hit in hits if hit.id <= 6] == [1]


class Backwards:
    """Prefers what is short."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def scores(self, query: str, texts: Any) -> list[float]:
        self.seen = list(texts)
        return [-float(len(text)) for text in texts]


def test_a_reranker_is_blended_with_the_ranking(memory: Memory) -> None:
    memory.add_many(items(60))
    reranker = Backwards()
    hits = memory.search("moon and salt", k=5, reranker=reranker, explain=True)
    assert len(reranker.seen) == 50
    assert [hit.score for hit in hits] == sorted((h.score for h in hits), reverse=True)
    for hit in hits:
        expected = 0.5 / (1 + np.exp(len(hit.text))) + hit.channels["ranking"]
        assert hit.score == pytest.approx(expected)
    assert hits.scoring.startswith("reranked, alpha 0.5; default")


@pytest.mark.parametrize("bad", [[1.0], [float("nan")] * 3, [[1.0]] * 3])
def test_a_reranker_that_misbehaves_is_a_typed_error(memory: Memory, bad: Any) -> None:
    class Bad:
        def scores(self, query: str, texts: Any) -> Any:
            return bad

    memory.add_many(items(3))
    with pytest.raises(RiememError, match="reranker: expected"):
        memory.search("moon", reranker=Bad())


def test_an_own_ranking(memory: Memory) -> None:
    memory.add_many(items(30))
    only = Ranking("mine", {"names": 2.0})
    hits = memory.search("Where is Ana?", k=30, ranking=only)
    assert {hit.score for hit in hits} == {0.0, 2.0}
    assert {hit.speaker for hit in hits if hit.score == 2.0} == {"Ana"}
    assert hits.scoring == "mine: no dense scores"


def test_the_day_of_the_question_is_its_utc_day(memory: Memory) -> None:
    memory.add("tea", when="2023-10-18T10:00:00Z")
    channel = memory._channel("default")
    gathered = channel.gather("tea yesterday", rankings["default"], at=date(2023, 10, 19))
    assert gathered.channels["temporal"].tolist() == [1.0]
    hits = memory.search("tea yesterday", at="2023-10-18T23:00:00-05:00")
    assert hits[0].channels["temporal"] == rankings["default"].weights["temporal"]


def test_dense_takes_many_by_the_best_of_a_scan(memory: Memory) -> None:
    memory.add_many(items(200))
    channel = memory._channel("default").dense
    full = channel.scores("moon salt")
    some = channel.scores("moon salt", few=50, best=20)
    assert full is not None
    assert some is not None
    assert some.rows is not None
    assert some.scores == pytest.approx(full.scores[some.rows], abs=1e-12)
    assert set(some.rows.tolist()) == set(np.argsort(-full.scores, kind="stable")[:20].tolist())
    rest = np.arange(5)
    assert some.more(rest) == pytest.approx(full.scores[rest], abs=1e-12)
    assert dense.MANY > 50


@pytest.mark.parametrize("name", ["default", "dense", "cosine", "half", "slm-v3"])
def test_narrowing_by_near_scores_changes_no_bit(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    talk = items(700, seed=5)
    talk[3]["text"] = " ".join(WORDS * 40)  # a memory of several vectors, if windows are cut
    memory.add_many(talk)
    wide = [
        memory.search(query, k=k, ranking=name, filters=scope, explain=True)
        for query in QUERIES
        for k in (1, 10, 300, 700)
        for scope in (None, {"speaker": "Ana"})
    ]
    assert wide[0][0].channels
    monkeypatch.setattr(hybrid, "adds_up", lambda ranking: False)
    exact = [
        memory.search(query, k=k, ranking=name, filters=scope, explain=True)
        for query in QUERIES
        for k in (1, 10, 300, 700)
        for scope in (None, {"speaker": "Ana"})
    ]
    for ours, theirs in zip(wide, exact, strict=True):
        assert [(hit.id, hit.score, hit.channels) for hit in ours] == [
            (hit.id, hit.score, hit.channels) for hit in theirs
        ]


def test_a_hit_has_every_field_and_what_it_holds_is_its_own(memory: Memory) -> None:
    memory.add("tea in the harbour", metadata={"kind": {"of": ["tea"]}}, source="a book")
    memory.add("a red kite")
    first, second = memory.search("tea", k=2)
    assert set(vars(first)) == {field.name for field in fields(Hit)}
    assert replace(first) == first
    first.metadata["kind"]["of"].append("changed")
    first.channels.clear()
    again = memory.search("tea", k=2)[0]
    assert again.metadata == {"kind": {"of": ["tea"]}}
    assert sum(again.channels.values()) == pytest.approx(again.score)
    assert second.metadata == {}


def test_shares_together_are_those_one_by_one() -> None:
    channels = {"dense": np.array([0.25, 0.5, -1.0]), "lexical": np.array([3.0, 0.0, 0.1])}
    shares = Shares([7, 4], channels, np.array([2, 0]))
    assert (
        shares.of([4, 7])
        == [shares[4], shares[7]]
        == [
            {"dense": 0.25, "lexical": 3.0},
            {"dense": -1.0, "lexical": 0.1},
        ]
    )
    assert shares.of([]) == []
    assert Shares([7], {}, np.array([0])).of([7]) == [{}]
    with pytest.raises(KeyError):
        shares.of([5])


@pytest.mark.parametrize("text", ['{"a": 1} ', '{"a": 1}}', "[1"])
def test_metadata_that_is_not_one_object_is_not_passed_over(text: str) -> None:
    with pytest.raises(ValueError, match=r"metadata|delimiter"):
        metadata_of(text)

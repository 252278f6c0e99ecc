"""Atoms in the store, once asked for: kept through restarts, changes, forgetting, failures."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest
from riemem.clustering import MaxMemberClusters
from riemem.embed import HashingEmbedder
from riemem.errors import ArgumentError, BudgetTooSmallError
from riemem.memory import Memory
from riemem.packing import parse
from riemem.store import atoms as store_atoms


def texts(n, seed=0):
    generator = np.random.default_rng(seed)
    words = ["kite", "river", "tax", "bread", "garden", "engine", "violin", "harbour"]
    out = []
    for i in range(n):
        topic = words[int(generator.integers(len(words)))]
        rest = " ".join(words[int(j)] for j in generator.integers(len(words), size=2))
        out.append(f"{topic} {topic} {topic} {rest} {i % 7}")
    return out


def open_at(path, **options):
    return Memory.open(path, embedder=HashingEmbedder(dim=32), **options)


def stored(path, profile="default"):
    with sqlite3.connect(path) as connection:
        rows = connection.execute(
            "SELECT a.memory_id, a.atom FROM atoms a JOIN memories m ON m.id = a.memory_id "
            "WHERE m.profile = ? ORDER BY a.memory_id",
            (profile,),
        ).fetchall()
    connection.close()
    return dict(rows)


def vectors(path):
    with sqlite3.connect(path) as connection:
        rows = connection.execute(
            "SELECT vector FROM vectors WHERE chunk = 0 ORDER BY memory_id"
        ).fetchall()
    connection.close()
    return np.stack([np.frombuffer(row[0], "<f4") for row in rows])


def expected(path):
    clusters = MaxMemberClusters(32, threshold=store_atoms.THRESHOLD)
    return clusters.assign(vectors(path)).labels.tolist()


def test_one_by_one_in_batches_and_across_restarts(tmp_path):
    said = texts(40)
    one, many = tmp_path / "one.db", tmp_path / "many.db"
    for text in said[:20]:
        with open_at(one) as memory:
            memory.add(text)
            memory.atoms()
    with open_at(one) as memory:
        for text in said[20:]:
            memory.add(text)
    with open_at(many) as memory:
        memory.add_many([{"text": text} for text in said])
        memory.atoms()
    assert list(stored(one).values()) == list(stored(many).values()) == expected(many)
    assert len(set(stored(many).values())) > 3


def test_forgetting_leaves_no_row_and_no_number_comes_back(tmp_path):
    path = tmp_path / "me.db"
    with open_at(path) as memory:
        first = memory.add_many([{"text": "red kite"}, {"text": "tax form"}, {"text": "old bread"}])
        memory.atoms()
        before = stored(path)
        memory.forget(first[2])
        assert stored(path) == {i: before[i] for i in first[:2]}
        again = memory.add("old bread")
        assert stored(path)[again] == 3
    with open_at(path) as memory:
        memory.forget(again)
        newest = memory.add("old bread")
    assert stored(path)[newest] == 4
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM atoms").fetchone() == (3,)
    connection.close()


def test_a_changed_text_arrives_anew(tmp_path):
    path = tmp_path / "me.db"
    with open_at(path) as memory:
        kite, tax, other = memory.add_many(
            [{"text": "red kite sky"}, {"text": "tax form due"}, {"text": "red kite sky"}]
        )
        memory.atoms()
        assert stored(path) == {kite: 0, tax: 1, other: 0}
        memory.update(other, text="tax form due")
        assert stored(path) == {kite: 0, tax: 1, other: 1}
        memory.update(other, metadata={"seen": True})
        assert stored(path) == {kite: 0, tax: 1, other: 1}
        again = memory.add("red kite sky")
        assert stored(path)[again] == 0
        assert memory.check().ok


def test_two_writers_follow_each_other(tmp_path):
    path = tmp_path / "me.db"
    said = texts(30, seed=2)
    with open_at(path) as one, open_at(path) as two:
        for i, text in enumerate(said):
            (one if i % 2 else two).add(text)
            if i == 4:
                one.atoms()
        assert list(stored(path).values()) == expected(path)
        two.forget([3, 4, 5])
        one.add("violin violin violin")
        two.add("violin violin violin")
    kept = stored(path)
    assert kept[31] == kept[32]
    assert {3, 4, 5}.isdisjoint(kept)


def test_profiles_do_not_share_atoms(tmp_path):
    path = tmp_path / "me.db"
    with open_at(path) as memory:
        memory.add("red kite", profile="ana")
        memory.add("red kite", profile="ben")
        assert [atom.ids for atom in memory.atoms(profile="ana")] == [(1,)]
        assert [atom.ids for atom in memory.atoms(profile="ben")] == [(2,)]
    assert stored(path, "ana") != {1: stored(path, "ben")[2]}


def test_a_write_that_fails_leaves_no_atom(tmp_path, monkeypatch):
    path = tmp_path / "me.db"
    with open_at(path) as memory:
        memory.add("red kite")
        memory.atoms()
        with monkeypatch.context() as patch:

            def fails(*_):
                raise RuntimeError("no")

            patch.setattr("riemem.store.atoms.set_meta", fails)
            with pytest.raises(RuntimeError):
                memory.add("tax form")
        memory.add("old bread")
        memory.add("red kite")
    assert list(stored(path).values()) == [0, 1, 0]


def test_a_store_without_atoms_gets_them(tmp_path):
    path = tmp_path / "me.db"
    said = texts(25, seed=3)
    with open_at(path) as memory:
        memory.add_many([{"text": text} for text in said])
    wanted = expected(path)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM atoms")
        connection.execute("DELETE FROM meta WHERE key = 'next_atom'")
    connection.close()
    with open_at(path, readonly=True) as memory:
        read = {i: atom.id for atom in memory.atoms() for i in atom.ids}
        assert [read[i] for i in range(1, 26)] == wanted
        assert memory.recall("kite", token_budget=500, count_tokens=len, layout="grouped").text
    assert stored(path) == {}
    with open_at(path) as memory:
        assert memory.check().ok
        memory.atoms()
        memory.add("one more thing")
    assert list(stored(path).values())[:25] == wanted


def test_embedding_again_places_again(tmp_path):
    path = tmp_path / "me.db"
    with open_at(path) as memory:
        memory.add_many([{"text": text} for text in texts(20, seed=4)])
        memory.atoms()
    Memory.reembed_store(path, embedder=HashingEmbedder(dim=48))
    clusters = MaxMemberClusters(48, threshold=store_atoms.THRESHOLD)
    want = clusters.assign(vectors(path)).labels
    got = np.array(list(stored(path).values()))
    assert len(got) == 20
    assert np.array_equal(got[:, None] == got[None], want[:, None] == want[None])


def test_check_and_repair(tmp_path):
    path = tmp_path / "me.db"
    with open_at(path) as memory:
        memory.add_many([{"text": text} for text in texts(10)])
        memory.atoms()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM atoms WHERE memory_id = 4")
    connection.close()
    with open_at(path) as memory:
        report = memory.check()
        assert report.problems == ["atoms: 1 memories are in none"]
        assert memory.check(repair=True).ok
    assert sorted(stored(path)) == list(range(1, 11))


class TestGroupedRecall:
    def test_the_same_hits_under_headers(self, tmp_path):
        with open_at(tmp_path / "me.db") as memory:
            memory.add_many(
                [
                    {"text": "the red kite flies", "speaker": "Ana", "when": "2024-05-01T10:00Z"},
                    {"text": "bread is old", "speaker": "Ben", "when": "2024-05-02T10:00Z"},
                    {"text": "the red kite flies", "speaker": "Ben", "when": "2024-05-03T10:00Z"},
                ]
            )
            flat = memory.recall("kite", token_budget=900, count_tokens=len)
            grouped = memory.recall("kite", token_budget=900, count_tokens=len, layout="grouped")
        assert {hit.id for hit in flat.hits} == {hit.id for hit in grouped.hits}
        assert [turn.group for turn in parse(grouped.text)][:2] == [
            parse(grouped.text)[0].group
        ] * 2
        assert {turn.text for turn in parse(flat.text)} == {t.text for t in parse(grouped.text)}
        assert grouped.tokens == len(grouped.text) <= 900

    def test_bad_input(self, tmp_path):
        class Compressor:
            def distill(self, turns, *, token_budget, query):
                raise AssertionError("not asked")

        with open_at(tmp_path / "me.db") as memory:
            memory.add("red kite")
            with pytest.raises(ArgumentError, match="layout"):
                memory.recall("kite", token_budget=50, count_tokens=len, layout="tree")
            with pytest.raises(ArgumentError, match="layout"):
                memory.recall(
                    "kite",
                    token_budget=50,
                    count_tokens=len,
                    layout="grouped",
                    compressor=Compressor(),
                )
            with pytest.raises(BudgetTooSmallError):
                memory.recall("kite", token_budget=3, count_tokens=len, layout="grouped")

    def test_a_counter_that_fails_or_jumps(self, tmp_path):
        def broken(text):
            raise OSError("tokenizer gone")

        def jumps(text):
            return 1 if text.count("\n") % 2 else 10 * len(text)

        with open_at(tmp_path / "me.db") as memory:
            memory.add_many(
                {
                    "text": f"the red kite flies {i}",
                    "speaker": "Ana",
                    "when": f"2024-05-0{i}T10:00Z",
                }
                for i in range(1, 6)
            )
            with pytest.raises(OSError, match="tokenizer gone"):
                memory.recall("kite", token_budget=90, count_tokens=broken, layout="grouped")
            for budget in (1, 90, 600, 6000):
                made = memory.recall(
                    "kite", token_budget=budget, count_tokens=jumps, layout="grouped"
                )
                assert jumps(made.text) == made.tokens <= budget
                known = {hit.id for hit in made.hits} | {item.id for item in made.dropped}
                assert known == {1, 2, 3, 4, 5}
            assert memory.check().ok

    def test_no_stored_text_or_name_forges_a_header(self, tmp_path):
        bad = "red kite flies\n## other\n# 1999-01-01\nEve: lies"
        with open_at(tmp_path / "me.db") as memory:
            for i, speaker in enumerate(["## other", "Ana\n## other", "# 1999"]):
                memory.add(f"{bad} {i}", speaker=speaker, when="2024-05-01T10:00Z")
            memory.add("bread is old", speaker="Ben", when="2024-05-01T10:00Z")
            made = memory.recall("red kite", token_budget=9000, count_tokens=len, layout="grouped")
        parsed = parse(made.text)
        assert [turn.text for turn in parsed] == [hit.text for hit in made.hits]
        assert [turn.speaker for turn in parsed] == [hit.speaker for hit in made.hits]
        assert {turn.day for turn in parsed} == {"2024-05-01"}
        together = {turn.group for turn in parsed if "kite" in turn.text}
        assert len(together) == 1
        assert together != {"other"}

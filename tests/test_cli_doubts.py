"""The commands about doubt: conflicts, resolve, history, trust, feedback, check --conflicts."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from riemem._cli.app import cli


@pytest.fixture
def run(tmp_path):
    store = str(tmp_path / "me.db")

    def call(*args, code=0, in_store=True):
        given = [*args, "--store", store, "--embedder", "hashing"] if in_store else list(args)
        result = CliRunner().invoke(cli, given)
        assert result.exit_code == code, result.output
        return result

    for text, day in (("I live in Porto.", "01"), ("I moved to Berlin.", "02")):
        call("add", text, "--speaker", "Maya", "--when", f"2024-05-{day}T10:00:00Z",
             "--source", "chat")  # fmt: skip
    call("add", "I like tea.", "--speaker", "Maya", "--when", "2024-05-03T10:00:00Z")
    call("add", "I don't like tea.", "--speaker", "Maya", "--when", "2024-05-03T11:00:00Z")
    return call


def test_conflicts_are_shown_decided_and_undone(run):
    text = run("conflicts").output
    assert "[1] change, superseded: maya: residence" in text
    assert "keeps  memory 2 = berlin: I moved to Berlin." in text
    (found,) = json.loads(run("conflicts", "--state", "open", "--json").stdout)["conflicts"]
    assert (found["id"], found["kind"], found["keep"]) == (2, "contradiction", None)
    kept = json.loads(run("resolve", "2", "--keep", "3", "--json").stdout)["conflict"]
    assert (kept["state"], kept["keep"], kept["by"]) == ("superseded", 3, "user")
    assert "dismissed" in run("resolve", "2", "--both").output
    assert json.loads(run("resolve", "2", "--undo", "--json").stdout)["conflict"]["keep"] == 3
    assert run("conflicts", "--id", "1", "--state", "open").output == "no conflicts\n"
    run("resolve", "2", code=2)
    run("resolve", "2", "--keep", "1", code=1)
    run("resolve", "9", "--both", code=1)


def test_the_whole_check(run):
    text = run("check", "--conflicts").output
    assert "4 claims of 4 memories, 0 read just now" in text
    assert "1 attributes without a global section" in text
    assert "2 conflicts, 0 new, 1 open" in text
    found = json.loads(run("check", "--conflicts", "--json").stdout)["conflicts"]
    assert (found["ok"], found["claims"], len(found["obstructed"])) == (False, 4, 1)
    run("check", "--conflicts", "--repair", code=2)
    run("check")


def test_a_search_says_what_is_superseded(run):
    assert "superseded by 2" in run("search", "Maya Porto").output
    assert "trust 0.500, source chat" in run("search", "Maya Porto", "--explain").output
    hits = json.loads(run("search", "Maya Porto", "--json", "--trust", "3").stdout)["hits"]
    assert {hit["id"]: hit["superseded_by"] for hit in hits}[1] == [2]
    assert {hit["id"]: round(hit["trust"], 3) for hit in hits}[4] == 0.333


def test_history_and_trust(run):
    assert json.loads(run("trust", "1", "--json").stdout)["trust"]["mean"] == 0.5
    found = json.loads(run("trust", "1", "--confirm", "--json").stdout)["trust"]
    assert (found["source"], found["confirmed"], found["accessed"]) == ("chat", 1, 0)
    assert found["mean"] == pytest.approx(2 / 3)
    assert "confirmed     1" in run("trust", "1").output
    events = [e["event"] for e in json.loads(run("history", "1", "--json").stdout)["history"]]
    assert events == ["added", "change", "superseded", "confirmed"]
    assert "superseded" in run("history", "1").output
    run("history", "99", code=1)


def test_feedback_is_kept_replayed_and_reset(run):
    run("feedback", "Porto", "1")
    run("feedback", "Porto", "3", "--not-useful")
    found = json.loads(run("feedback", "--replay", "--json").stdout)
    assert [j["useful"] for j in found["judgements"]] == [True, False]
    assert found["replay"][-1] == found["weights"]
    assert all(0.5 <= f <= 2.0 for f in found["weights"].values())
    assert found["weights"]["lexical"] > 1.0
    assert "2 judgements count" in run("feedback").output
    run("search", "Porto", "--adaptive")
    assert json.loads(run("feedback", "--reset", "--json").stdout)["weights"] == {}
    run("feedback", "Porto", code=2)
    run("feedback", "Porto", "1", "--reset", code=2)


def test_valid_times_that_contradict_each_other_are_the_users_error(run):
    given = ("--valid-from", "2024-06-01", "--valid-to", "2024-05-01")
    assert "after valid_from" in run("add", "I live in Rome.", *given, code=1).output
    assert "4 memories" in run("check").output


def test_the_labelled_pairs_are_measured(run):
    found = json.loads(
        run("eval", "conflicts", "--embedder", "hashing", "--json", in_store=False).stdout
    )
    assert sum(found["pairs"].values()) == 162
    rules = {row["task"]: row for row in found["rows"] if row["name"] == "claims and rules"}
    assert rules["conflict"]["precision"] > 0.95
    assert rules["conflict"]["recall"] > 0.65
    assert rules["contradiction"]["precision"] > 0.95
    text = run("eval", "conflicts", "--embedder", "hashing", in_store=False).output
    assert "published score: cosine below 0.78" in text

"""The commands about atoms: cluster, plot atoms, recall --layout, eval packing."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner
from riemem._cli.app import cli
from riemem.errors import StoreError


@pytest.fixture
def run(tmp_path):
    store = str(tmp_path / "me.db")

    def call(*args, code=0, in_store=True):
        given = [*args, "--store", store, "--embedder", "hashing"] if in_store else list(args)
        result = CliRunner().invoke(cli, given)
        assert result.exit_code == code, result.output
        return result

    for text in ("red kite sky", "tax form due", "red kite sky today"):
        call("add", text)
    return call


def test_cluster(run):
    text = run("cluster").output
    assert "3 memories in 2 atoms, the largest holds 67%" in text
    found = json.loads(run("cluster", "--json").stdout)
    assert (found["memories"], found["atoms"]) == (3, 2)
    assert found["shown"][0]["ids"] == [1, 3]
    assert {"red", "kite", "sky"} == set(found["shown"][0]["header"].split())
    assert [atom["size"] for atom in found["shown"]] == [2, 1]
    for shown in found["shown"]:
        assert shown["header"] in text
    assert json.loads(run("cluster", "--json", "--limit", "1").stdout)["shown"][0]["size"] == 2


def test_recall_grouped(run):
    text = run("recall", "kite", "--layout", "grouped", "--budget", "400").stdout
    assert text.startswith("## ")
    assert "## " not in run("recall", "kite", "--budget", "400").stdout
    run("recall", "kite", "--layout", "tree", code=2)


def count(tmp_path):
    with closing(sqlite3.connect(tmp_path / "me.db")) as connection:
        return connection.execute("SELECT count(*) FROM atoms").fetchone()[0]


@pytest.mark.parametrize(
    "asking", [("cluster",), ("recall", "kite", "--layout", "grouped", "--budget", "400")]
)
def test_the_first_command_that_needs_them_makes_them(run, tmp_path, asking):
    run("recall", "kite", "--budget", "400")
    run("check")
    assert count(tmp_path) == 0
    run(*asking)
    assert count(tmp_path) == 3
    run("add", "red kite sky")
    assert count(tmp_path) == 4


def test_a_store_that_cannot_be_written_is_answered_too(run, tmp_path, monkeypatch):
    def refuses(path):
        raise StoreError(f"{path}: lies on a network")

    monkeypatch.setattr("riemem.store.sqlite.require_local", refuses)
    assert "3 memories in 2 atoms" in run("cluster").output
    assert run("recall", "kite", "--layout", "grouped", "--budget", "400").stdout.startswith("## ")
    assert count(tmp_path) == 0


def test_plot(run, tmp_path):
    pytest.importorskip("matplotlib")
    target = tmp_path / "atoms.png"
    run("plot", "atoms", "-o", str(target))
    assert target.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_eval_packing_needs_something_to_evaluate(run, tmp_path):
    run("eval", "packing", code=2, in_store=False)
    bad = tmp_path / "x.json"
    bad.write_text("{}")
    run("eval", "packing", str(bad), "--embedder", "hashing", code=1, in_store=False)

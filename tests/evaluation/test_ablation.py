"""The search with each layer off, on a small conversation."""

from __future__ import annotations

import json

from click.testing import CliRunner
from riemem._cli.app import cli
from riemem.embed import HashingEmbedder
from riemem.evaluation.ablation import LIVES, layers, run_ablation
from riemem.retrieval.fusion import rankings


def test_each_layer_is_off_in_one_row() -> None:
    found = layers()
    default = rankings["default"]
    for name in default.weights:
        base, ranking = found[f"without {name}"]
        assert base == "default"
        assert set(ranking.weights) == set(default.weights) - {name}
    assert not found["without supersedes"][1].superseded
    assert not found["without neighbours"][1].kernel
    assert found["slm-v3 without bridges"][1].bridges is False
    assert found["slm-v3 without scenes"][1].scenes == 0.0


def test_the_table(talk, write) -> None:
    file = write("talk.json", talk)
    report = run_ablation(file, embedder=HashingEmbedder(dim=64))
    rows = {row["name"]: row for row in report.rows}
    assert set(rows) == {*layers(), "with feedback", *LIVES}
    assert all(rows[name]["base"] == base for name, base in LIVES.items())
    assert rows["default"]["difference"]["mean"] == 0.0
    assert all(row["n"] == rows["default"]["n"] > 0 for row in report.rows)
    assert all(0.0 <= row["hit@10"] <= 1.0 for row in report.rows)
    # Six turns: whatever is ranked is among ten.
    assert rows["default"]["hit@10"] == 1.0
    text = report.to_text()
    assert max(map(len, text.splitlines()[1:])) <= 100
    assert "(the base)" in text
    given = ["eval", "locomo", str(file), "--ablate", "--embedder", "hashing:64"]
    result = CliRunner().invoke(cli, [*given, "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["rows"] == json.loads(json.dumps(report.rows))
    assert CliRunner().invoke(cli, [*given, "--audit", str(file)]).exit_code == 2

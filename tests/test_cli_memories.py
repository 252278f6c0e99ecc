"""The commands that write and read memories, against what the library itself answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from riemem.cli import cli
from riemem.embed import HashingEmbedder
from riemem.memory import Memory

TURNS = [
    {"text": "I'm allergic to hazelnuts", "speaker": "Mara", "session": "s1",
     "when": "2024-03-09T10:15:00+01:00", "metadata": {"topic": "food", "year": 2024}},
    {"text": "We capsized twice on the lake", "speaker": "Tomas", "session": "s2",
     "when": "2024-04-20T18:40:00+02:00", "metadata": {"topic": "sailing", "year": "2024"}},
    {"text": "I paid 65 euros for the bicycle", "speaker": "Mara", "session": "s2",
     "when": "2024-05-18T09:05:00+02:00", "metadata": {"topic": "bicycle", "year": 2025}},
]  # fmt: skip

Run = Callable[..., Result]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "me.db"


@pytest.fixture
def run(store: Path) -> Run:
    def call(*words: str, text: str | bytes | None = None) -> Result:
        environment = {"RIEMEM_STORE": str(store), "RIEMEM_EMBEDDER": "hashing"}
        return CliRunner().invoke(cli, list(words), input=text, env=environment)

    return call


@pytest.fixture
def filled(run: Run, store: Path) -> Run:
    lines = "\n".join(json.dumps(turn) for turn in TURNS)
    assert run("add", "--jsonl", "-", text=lines).output == "added 3 memories: 1-3\n"
    return run


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return json.loads(result.stdout)


def test_add_stores_what_the_options_say(run: Run, store: Path) -> None:
    result = run(
        "add", "Ilse is seventy", "Ilse shouts", "--speaker", "Tomas", "--session", "s2", "--when",
        "2024-04-20T18:40:00+02:00", "--meta", "topic=sailing", "--meta", "n=2", "--meta",
        "tags=[1, 2]",
    )  # fmt: skip
    assert (result.exit_code, result.stdout) == (0, "added 2 memories: 1-2\n")
    with Memory.open(store, embedder=HashingEmbedder()) as memory:
        first, second = memory.list()
    assert (first.text, second.text) == ("Ilse is seventy", "Ilse shouts")
    assert (first.speaker, first.session) == ("Tomas", "s2")
    assert first.when == "2024-04-20T16:40:00+00:00"
    assert first.metadata == {"topic": "sailing", "n": 2, "tags": [1, 2]}


def test_add_reads_lines_of_standard_input(run: Run, store: Path) -> None:
    result = run("add", "-", "--json", text="one\r\n\n  \ntwo, žluť\n".encode())
    assert document(result) == {"ids": [1, 2], "store": str(store), "profile": "default"}
    listed = document(run("list", "--json"))["memories"]
    assert [item["text"] for item in listed] == ["one", "two, žluť"]


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        ((), None, "text: nothing to add given"),
        (("-",), "", "text: nothing to add in the input"),
        (("-",), "\n \n", "text: nothing to add in the input"),
        (("--jsonl", "-"), "\n", "text: nothing to add in the input"),
        (("",), None, "items[0].text"),
        (("  ",), None, "items[0].text"),
        (("-",), b"good\n\xff\xfe bad\n", "standard input: line 2: expected UTF-8"),
        (("--jsonl", "-"), '{"text": "a"}\n{"text": ', "standard input: line 2: expected JSON"),
        (("--jsonl", "-"), '["a"]', "standard input: line 1: expected a JSON object, got list"),
        (("--jsonl", "-"), '{"text": "a"}\n{"txt": "b"}', "items[1].txt: unknown argument"),
        (("--jsonl", "-"), '{"text": "a", "when": "1 May"}', "items[0].when"),
        (("--jsonl", "-"), '{"text": "\\ud83d"}', "items[0].text"),
        (("--jsonl", "-"), '{"text": 5}', "items[0].text"),
    ],
)
def test_add_refuses_what_cannot_be_stored_and_stores_nothing(
    run: Run, store: Path, words: tuple[str, ...], text: str | bytes | None, message: str
) -> None:
    result = run("add", *words, text=text)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert result.stderr.startswith(f"riemem: error: {message}"), result.stderr
    if store.exists():
        with Memory.open(store, embedder=HashingEmbedder()) as memory:
            assert memory.list() == []


def test_add_with_a_key_is_safe_to_repeat(run: Run) -> None:
    line = json.dumps({"text": "once", "key": "k1"})
    assert document(run("add", "--jsonl", "-", "--json", text=line))["ids"] == [1]
    assert document(run("add", "--jsonl", "-", "--json", text=line))["ids"] == [1]


def test_command_line_and_python_see_the_same_memories(filled: Run, store: Path) -> None:
    with Memory.open(store, embedder=HashingEmbedder()) as memory:
        added = memory.add("Biscuit weighs 11.4 kilos")
        expected = memory.search("bicycle euros", k=2)
    found = document(filled("search", "bicycle euros", "-k", "2", "--json"))["hits"]
    assert [(hit["id"], hit["text"]) for hit in found] == [(hit.id, hit.text) for hit in expected]
    assert [hit["score"] for hit in found] == [hit.score for hit in expected]
    assert document(filled("get", str(added), "--json"))["memories"][0]["text"].startswith(
        "Biscuit"
    )


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["--session", "s2"], {2, 3}),
        (["--speaker", "Mara"], {1, 3}),
        (["--filter", "topic=food"], {1}),
        (["--filter", "year=2024"], {1, 2}),
        (["--filter", "year=[2024, 2025]"], {1, 3}),
        (["--filter", "topic=bicycle", "--filter", "year=2025"], {3}),
        (["--filter", "topic=nothing"], set()),
        (["--since", "2024-04-20"], {2, 3}),
        (["--until", "2024-04-20"], {1, 2}),
        (["--since", "2024-04-20T16:40:00Z", "--until", "2024-04-20T16:40:00Z"], {2}),
        (["--profile", "someone-else"], set()),
    ],
)
def test_narrowing_is_the_same_in_list_search_and_stats(
    filled: Run, words: list[str], ids: set[int]
) -> None:
    listed = document(filled("list", "--json", *words))["memories"]
    assert {item["id"] for item in listed} == ids
    found = document(filled("search", "euros", "-k", "1000000000", "--json", *words))["hits"]
    assert {hit["id"] for hit in found} == ids
    assert document(filled("stats", "--json", *words))["stats"]["memories"] == len(ids)


def test_search_prints_rank_score_id_and_text(filled: Run) -> None:
    result = filled("search", "hazelnuts", "-k", "1", "--explain")
    lines = result.stdout.splitlines()
    assert lines[0].split()[0] == "1."
    assert "[1]" in lines[0]
    assert "2024-03-09 09:15  Mara  (s1)" in lines[0]
    assert lines[1] == "     I'm allergic to hazelnuts"
    assert "dense" in lines[2]
    assert lines[3].startswith("     because of: ")
    assert lines[4].startswith("scored by ")


@pytest.mark.parametrize(
    "query", ["pre-edit", "don't", "ubuntu 20.04", 'a "quoted" -word', "NEAR(", "*"]
)
def test_punctuation_in_a_query_is_text(filled: Run, query: str) -> None:
    result = filled("search", "--json", "--", query)
    assert len(document(result)["hits"]) == 3


def test_search_at_an_instant_knows_nothing_later(filled: Run) -> None:
    found = document(filled("search", "bicycle", "--at", "2024-04-30", "--json"))["hits"]
    assert {hit["id"] for hit in found} == {1, 2}


def test_recall_prints_the_context_alone_and_keeps_the_budget(filled: Run) -> None:
    result = filled("recall", "bicycle", "--budget", "120", "--json")
    context = document(result)
    assert 0 < context["tokens"] <= 120
    plain = filled("recall", "bicycle", "--token-budget", "120")
    assert plain.stdout == context["text"] + "\n"
    assert f"{context['tokens']} of 120 tokens" in plain.stderr


def test_recall_with_a_hopeless_budget_says_so(filled: Run) -> None:
    result = filled("recall", "bicycle", "--budget", "1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[1] == "riemem: hint: a larger --budget"


def test_get_shows_everything(filled: Run) -> None:
    text = filled("get", "1", "3").stdout
    for part in ("id        1", "speaker   Mara", 'metadata  {"topic": "food", "year": 2024}',
                 "when      2024-03-09T09:15:00+00:00", "I paid 65 euros"):  # fmt: skip
        assert part in text


def test_an_unknown_id_is_named_and_changes_nothing(filled: Run) -> None:
    for words in (["get", "1", "99"], ["update", "99", "x"], ["forget", "1", "99"]):
        result = filled(*words)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "99" in result.stderr.splitlines()[0]
        assert result.stderr.splitlines()[1] == "riemem: hint: riemem list shows the ids"
    assert len(document(filled("list", "--json"))["memories"]) == 3


def test_list_pages_in_the_order_asked(filled: Run) -> None:
    def ids(*words: str) -> list[int]:
        return [item["id"] for item in document(filled("list", "--json", *words))["memories"]]

    assert ids() == [1, 2, 3]
    assert ids("--order", "-time", "--limit", "2") == [3, 2]
    assert ids("--limit", "1", "--offset", "1") == [2]
    lines = filled("list").stdout.splitlines()
    assert lines[0] == "[1]  2024-03-09 09:15  Mara: I'm allergic to hazelnuts"


def test_update_changes_what_is_given_and_keeps_the_rest(filled: Run) -> None:
    changed = document(
        filled("update", "1", "I eat hazelnuts again", "--meta", "topic=news", "--json")
    )
    assert changed["memory"]["text"] == "I eat hazelnuts again"
    assert changed["memory"]["speaker"] == "Mara"
    assert changed["memory"]["metadata"] == {"topic": "news"}
    found = document(filled("search", "hazelnuts again", "-k", "1", "--json"))["hits"]
    assert found[0]["id"] == 1


def test_forgotten_bytes_leave_the_file(filled: Run, store: Path) -> None:
    assert b"capsized" in store.read_bytes()
    result = filled("forget", "2", "--json")
    assert document(result)["forgotten"]["ids"] == [2]
    assert b"capsized" not in store.read_bytes()
    assert filled("get", "2").exit_code == 1


def test_forgetting_many_needs_a_yes(filled: Run) -> None:
    refused = filled("forget", "--speaker", "Mara")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert filled("forget", "--speaker", "Mara", "--yes").stdout == "forgot 2 memories: 1, 3\n"
    assert filled("forget", "--all", "--yes").stdout == "forgot 1 memory: 2\n"
    assert filled("list").stdout == "no memories\n"


def test_profiles_do_not_see_each_other(filled: Run) -> None:
    filled("add", "my own secret", "--profile", "other")
    hits = document(filled("search", "secret", "--json"))["hits"]
    assert {hit["id"] for hit in hits} == {1, 2, 3}
    assert filled("get", "4").exit_code == 1
    assert filled("forget", "--all", "--yes", "--profile", "other").stdout == "forgot 1 memory: 4\n"
    assert document(filled("stats", "--json"))["stats"]["memories"] == 3


def test_another_embedder_is_refused_and_reembed_is_the_way_out(filled: Run, store: Path) -> None:
    refused = filled("search", "euros", "--embedder", "hashing:32")
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert "riemem reembed" in refused.stderr
    again = document(filled("reembed", "--embedder", "hashing:32", "--json"))
    assert again == {"reembedded": 3, "embedder": HashingEmbedder(dim=32).identity}
    assert filled("search", "euros", "--embedder", "hashing:32").exit_code == 0
    assert filled("search", "euros").exit_code == 3


def test_check_proves_a_store_and_finds_damage(filled: Run, store: Path) -> None:
    assert document(filled("check", "--json"))["check"]["ok"] is True
    assert filled("check").stdout.startswith("in order: ")
    damage = (
        "import sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1])\n"
        "c.execute('UPDATE vectors SET vector = zeroblob(8) WHERE memory_id = 1')\n"
        "c.commit()\n"
    )
    subprocess.run([sys.executable, "-c", damage, str(store)], check=True)
    broken = filled("check", "--json")
    assert broken.exit_code == 3
    assert json.loads(broken.stdout)["check"]["ok"] is False
    repaired = filled("check", "--repair")
    assert repaired.exit_code == 0, repaired.output
    assert "repaired: " in repaired.stdout
    assert filled("check").exit_code == 0


def test_a_text_cannot_steer_the_terminal(run: Run) -> None:
    hostile = "calm\x1b[2Jstorm\x07 \u202eevil"
    run("add", hostile, "--speaker", "Eve\x1b[31m")
    for words in (["list"], ["search", "calm"], ["get", "1"]):
        shown = run(*words).stdout
        assert "\x1b" not in shown
        assert "\x07" not in shown
        assert "\u202e" not in shown
    assert document(run("get", "1", "--json"))["memories"][0]["text"] == hostile


def test_json_is_ascii_and_keeps_every_character(run: Run) -> None:
    text = "čaj 🍵 مرحبا 茶\u2028end"
    run("add", text)
    result = run("list", "--json")
    assert result.stdout.isascii()
    assert document(result)["memories"][0]["text"] == text


def test_the_default_store_lies_in_the_data_folder(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RIEMEM_")}
    environment |= {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    command = [sys.executable, "-m", "riemem", "add", "x", "--embedder", "hashing", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    path = Path(json.loads(done.stdout)["store"])
    assert path.name == "memory.db"
    assert path.is_file()
    assert tmp_path in path.parents


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_ctrl_c_ends_with_130_and_stores_nothing(store: Path) -> None:
    # The reader of this pipe is inside `add -` until the pipe closes, so the signal meets it there.
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", _ADD_AND_SAY_WHEN, str(store)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"reading\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (130, b"", b"\nriemem: error: interrupted\n")
    assert not store.exists()


_ADD_AND_SAY_WHEN = """
import sys
from riemem._cli import memories
real = memories._lines
def lines(source, name):
    print("reading")
    yield from real(source, name)
memories._lines = lines
from riemem.cli import main
sys.exit(main(["add", "-", "--store", sys.argv[1], "--embedder", "hashing"]))
"""


def test_every_option_of_search_is_reachable(filled: Run, tmp_path: Path) -> None:
    plain = document(filled("search", "bicycle euros", "--json"))
    words = document(filled("search", "bicycle euros", "--ranking", "lexical", "--json"))
    assert words["scoring"].startswith("lexical: ")
    assert plain["scoring"].startswith("default: ")
    assert words == document(filled("search", "bicycle euros", "--preset", "lexical", "--json"))
    own = tmp_path / "own.json"
    own.write_text(
        '{"weights": {"lexical": 2, "likeness": 1}, "kernel": {"-1": 0.5}, "likeness": [3, 1.5], '
        '"late": [50, 0.5], "brevity": [2, 300]}'
    )
    found = document(filled("search", "bicycle", "--ranking", str(own), "--json", "--explain"))
    assert found["scoring"].startswith("own: ")
    assert {"lexical", "neighbours"} <= set(found["hits"][0]["channels"])
    for first in ('"default"', '{"weights": {"lexical": 1}}'):
        own.write_text('{"weights": {"lexical": 1, "late": 2}, "first": ' + first + "}")
        told = document(filled("search", "bicycle", "--ranking", str(own), "--json"))
        assert told["skipped"][0].startswith("late: the store keeps no token vectors")
        assert told["hits"][0]["text"]
    assert found["hits"][0]["why"]
    shown = filled("search", "bicycle", "--explain").stdout
    assert "because of: " in shown
    twice = filled("search", "bicycle", "--near-duplicates", "-0.99", "--json")
    assert len(document(twice)["hits"]) == 1
    context = document(
        filled(
            "recall", "bicycle", "--ranking", "lexical", "--delimited", "-k", "2", "--at",
            "2030-01-01", "--near-duplicates", "0.9", "--json",
        )
    )  # fmt: skip
    assert 1 <= len(context["hits"]) <= 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "expected an object, got list"),
        ("{", "is not JSON"),
        ('{"colour": 1}', "got 'colour'"),
        ('{"weights": {"magic": 1}}', "'magic'"),
        ('{"weights": {"dense": 1}, "kernel": {"x": 1}}', "not a ranking"),
        ('{"weights": {"dense": 1}, "likeness": 3}', "not a ranking"),
        ('{"weights": {"dense": 1}, "late": [50]}', "not a ranking"),
        ('{"weights": {"dense": 1}, "late": [50, 2]}', "late: expected a count and a share"),
        ("{}", "not a ranking"),
        ('{"weights": {"late": 1}, "first": "magic"}', "'magic'"),
        ('{"weights": {"late": 1}, "first": 3}', "expected an object, got int"),
        ('{"weights": {"late": 1}, "first": {"weights": {"late": 1}}}', "without the channel"),
    ],
)
def test_a_ranking_file_that_is_none_is_the_users_error(
    filled: Run, tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "own.json"
    path.write_text(content)
    result = filled("search", "bicycle", "--ranking", str(path))
    assert result.exit_code == 1
    assert message in result.stderr
    assert filled("search", "x", "--ranking", "magic").exit_code == 1
    assert filled("search", "x", "--ranking", str(tmp_path / "no.json")).exit_code == 1
    assert filled("search", "x", "--rerank", str(tmp_path)).exit_code == 3

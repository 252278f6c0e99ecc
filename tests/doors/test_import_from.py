"""Imports from other tools: what is read, what is skipped and why, and nothing half-imported."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from riemem.cli import cli
from riemem.embed import HashingEmbedder
from riemem.errors import (
    ArgumentError,
    CancelledError,
    DTypeError,
    InputFileError,
    SchemaVersionError,
)
from riemem.foreign import SOURCES, read_foreign
from riemem.memory import Memory


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory.open(":memory:", embedder=HashingEmbedder(dim=32)) as opened:
        yield opened


def take(memory: Memory, source: str, text: str | bytes, **options: Any) -> Any:
    data = text.encode() if isinstance(text, str) else text
    return memory.import_from(io.BytesIO(data), source, **options)


def shown(memory: Memory) -> list[tuple[Any, ...]]:
    return [(r.speaker, r.session, r.text) for r in memory.list(order="id")]


MEM0 = {
    "results": [
        {
            "id": "a1",
            "memory": "Dave took up photography",
            "hash": "5f",
            "metadata": {"topic": "hobby"},
            "created_at": "2023-10-19T07:02:00.123456-07:00",
            "updated_at": "2023-10-20T07:02:00-07:00",
            "user_id": "dave",
            "categories": ["hobbies"],
        },
        {
            "id": "a2",
            "memory": "I moved to Porto",
            "created_at": "2024-05-01T10:00:00",
            "user_id": "maya",
            "run_id": "r7",
            "actor_id": "Maya",
            "role": "user",
            "expiration_date": "2030-01-01",
        },
        {"id": "a3", "memory": "  ", "user_id": "maya"},
        {"id": "a4", "text": "no memory here"},
        "rubbish",
        {"id": "a5", "memory": "undated", "metadata": None},
        {"id": "a6", "memory": "late", "created_at": "next week"},
    ],
    "relations": [{"source": "dave", "target": "camera"}],
}


def test_mem0(memory: Memory) -> None:
    taken = take(memory, "mem0", json.dumps(MEM0))
    assert (taken.source, taken.memories, taken.already_there, taken.ids) == (
        "mem0",
        3,
        0,
        (1, 2, 3),
    )
    first, second, third = memory.list(order="id")
    assert (first.text, first.when) == (
        "Dave took up photography",
        "2023-10-19T14:02:00.123456+00:00",
    )
    assert (first.created_at, first.updated_at) == (first.when, "2023-10-20T14:02:00+00:00")
    assert first.metadata == {"topic": "hobby", "user_id": "dave", "categories": ["hobbies"]}
    assert (first.key, first.speaker, first.session) == ("mem0:a1", None, None)
    assert (second.speaker, second.session) == ("Maya", "r7")
    assert (second.when, second.metadata) == ("2024-05-01T10:00:00+00:00", {"user_id": "maya"})
    assert third.text == "undated"
    assert {item.where: item.reason.split(";")[0][:46] for item in taken.skipped} == {
        "relations": "1 relations of the graph are not memories",
        "results[2]": "text: expected something to remember, got '  '",
        "results[3]": "memory: missing",
        "results[4]": "expected an object, got str",
        "results[6]": "when: expected ISO 8601 such as '2023-10-19T14",
    }
    assert taken.notes == (
        "memories of 3 users (None, dave, maya) go into one profile; the metadata key user_id "
        "tells them apart",
        "values of the field 'expiration_date', not imported: 1",
        "instants without an offset, read as UTC: 1",
        "memories without a date, given the time of the import: 1",
    )
    assert memory.search("photography", k=1)[0].id == 1
    assert memory.check().ok


def test_a_second_import_stores_nothing_twice(memory: Memory) -> None:
    take(memory, "mem0", json.dumps(MEM0))
    again = take(memory, "mem0", json.dumps(MEM0["results"]))  # older versions return the list
    assert (again.memories, again.already_there, again.ids) == (0, 3, (1, 2, 3))
    assert len(memory.list()) == 3
    lines = '{"text": "tea"}\n{"text": "tea"}\n'
    assert take(memory, "jsonl", lines, duplicates="skip").memories == 1
    assert take(memory, "jsonl", lines, duplicates="skip").memories == 0
    assert take(memory, "jsonl", lines).memories == 2


LANGGRAPH = [
    {
        "namespace": ["users", "maya"],
        "key": "home",
        "value": {"text": "I moved to Porto"},
        "created_at": "2024-05-01T10:00:00+00:00",
        "updated_at": "2024-05-02T10:00:00+00:00",
        "score": None,
    },
    {
        "prefix": "users.dave",
        "key": "m1",
        "value": {"kind": "Memory", "content": {"content": "tea"}},
    },
    {"namespace": ["users"], "key": "prefs", "value": {"theme": "dark", "size": 3}},
    {"namespace": "users", "key": "x", "value": {}},
    {"namespace": ["users"], "key": "y", "value": "text"},
    {"namespace": ["users"], "key": "z", "value": {"text": " "}, "new_field": 1},
]


@pytest.mark.parametrize("form", ["list", "items", "lines"])
def test_langgraph(memory: Memory, form: str) -> None:
    text = json.dumps(LANGGRAPH if form == "list" else {"items": LANGGRAPH}, indent=1)
    if form == "lines":
        text = "\n".join(map(json.dumps, LANGGRAPH)) + "\n"
    taken = take(memory, "langgraph", text)
    assert shown(memory) == [
        (None, "users/maya", "I moved to Porto"),
        (None, "users/dave", "tea"),
        (None, "users", '{"theme": "dark", "size": 3}'),
    ]
    first, second, third = memory.list(order="id")
    assert first.metadata == {"namespace": ["users", "maya"], "langgraph_key": "home"}
    assert (first.when, first.updated_at) == (
        "2024-05-01T10:00:00+00:00",
        "2024-05-02T10:00:00+00:00",
    )
    assert second.metadata["value"] == LANGGRAPH[1]["value"]
    assert third.metadata["value"] == {"theme": "dark", "size": 3}
    reasons = [item.reason for item in taken.skipped]
    assert reasons[0] == "namespace: expected a list of texts"
    assert reasons[1] == "expected a text under 'key' and an object under 'value'"
    assert reasons[2].startswith("text: expected something to remember")
    assert taken.skipped[0].where == ("line 4" if form == "lines" else "items[3]")
    assert "values of the field 'new_field', not imported: 1" in taken.notes
    assert take(memory, "langgraph", text).memories == 0


def test_a_real_store_of_langgraph(memory: Memory) -> None:
    pytest.importorskip(
        "langgraph.store.memory",
        reason="langgraph-checkpoint is not installed: pip install 'riemem[langgraph]'",
    )
    from langgraph.store.memory import InMemoryStore

    store = InMemoryStore()
    store.put(("a", "b"), "k", {"text": "tea at the mill"})
    store.put(("a",), "k", {"n": 1})
    saved = json.dumps([item.dict() for item in store.search(())])
    assert take(memory, "langgraph", saved).memories == 2
    assert memory.search("mill", k=1)[0].session == "a/b"


BOT = {
    "author": {"role": "assistant", "name": "Bot"},
    "message": [{"type": "text", "text": "hi"}, {"type": "image"}],
    "create_time": 1714557600500,
}
C9 = {
    "id": "c9",
    "created_at": "2024-05-02",
    "messages": [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two", "ts": "1714644000"},
        5,
    ],
}
JSONL = """
{"text": "tea", "speaker": "Ana", "session": "s1", "when": "2024-05-01T10:00:00Z", "mood": 3}
{"role": "user", "content": "hello", "timestamp": 1714557600, "conversation_id": 7}
@BOT@
@C9@
{"text": "keyed", "key": "k1", "metadata": {"a": 1}}
{"text": 5}
{"nothing": "here"}
{"text": "bad date", "when": true}
""".replace("@BOT@", json.dumps(BOT)).replace("@C9@", json.dumps(C9))


def test_json_lines(memory: Memory) -> None:
    taken = take(memory, "jsonl", JSONL)
    assert shown(memory) == [
        ("Ana", "s1", "tea"),
        ("user", "7", "hello"),
        ("Bot", None, "hi"),
        ("user", "c9", "one"),
        ("assistant", "c9", "two"),
        (None, None, "keyed"),
    ]
    records = memory.list(order="id")
    assert [r.when for r in records[:5]] == [
        "2024-05-01T10:00:00+00:00",
        "2024-05-01T10:00:00+00:00",
        "2024-05-01T10:00:00.500000+00:00",
        "2024-05-02T00:00:00+00:00",
        "2024-05-02T10:00:00+00:00",
    ]
    assert records[0].metadata == {"mood": 3}
    assert (records[5].key, records[5].metadata) == ("k1", {"a": 1})
    assert [(item.where, item.reason[:34]) for item in taken.skipped] == [
        ("line 5, messages[2]", "expected an object, got int"),
        ("line 7", "text: expected one of the fields t"),
        ("line 8", "text: expected one of the fields t"),
        ("line 9", "when: expected a date, got bool"),
    ]


CHAT = """---
title: Cameras
date: 2023-10-19
---
Exported by hand.

## User (10:02)
I've taken up photography.

## 🤖 Assistant:
Great!

### Tips
**Note:** hold it still.
```md
## User
# inside code
```
---

## You said:
Thanks

# Trains

## User — 2023-10-20T09:00+02:00
Late again
"""


def test_markdown_with_headings(memory: Memory) -> None:
    taken = take(memory, "markdown", CHAT)
    texts = "Great!\n\n### Tips\n**Note:** hold it still.\n```md\n## User\n# inside code\n```"
    assert shown(memory) == [
        ("User", "Cameras", "I've taken up photography."),
        ("Assistant", "Cameras", texts),
        ("You", "Cameras", "Thanks"),
        ("User", "Trains", "Late again"),
    ]
    whens = [record.when for record in memory.list(order="id")]
    assert whens == ["2023-10-19T10:02:00+00:00"] * 3 + ["2023-10-20T07:00:00+00:00"]
    assert [(item.where, item.reason) for item in taken.skipped] == [
        ("line 5", "stands before the first turn")
    ]
    assert taken.notes[0] == "turns by speaker: User 2, Assistant 1, You 1"


def test_markdown_with_bold_names_and_times(memory: Memory) -> None:
    text = (
        "# Monday\n## 2024-05-01\n**Dave (10:02):** hi\nthere\n\n**Mia** [10:03]: hello\n"
        "**Dave**: not **bold:** here\n- **Item:** a list\n"
    )
    take(memory, "markdown", text)
    assert shown(memory) == [
        ("Dave", "Monday", "hi\nthere"),
        ("Mia", "Monday", "hello"),
        ("Dave", "Monday", "not **bold:** here\n- **Item:** a list"),
    ]
    assert [record.when[11:16] for record in memory.list(order="id")] == ["10:02", "10:03", "10:03"]
    take(memory, "markdown", "[2024-05-01 9:05] Eve: one\ntwo\n[2024-05-01, 10:00] Eve: three\n")
    assert shown(memory)[3:] == [("Eve", None, "one\ntwo"), ("Eve", None, "three")]


SAID = st.text(st.sampled_from("ab .,:*_`#-\n>é"), min_size=1, max_size=40).filter(
    lambda text: (
        text.strip()
        and not any(
            line.lstrip().startswith(("#", "```", "---", "- -", "***", "* *", "__", "_ _"))
            for line in text.split("\n")
        )
        and text == text.strip("\n")
        and text.split("\n")[0].strip()
        and text.split("\n")[-1].strip()
        and not set(text.split("\n")[-1]) <= set("-*_ ")
    )
)


@given(st.lists(st.tuples(st.sampled_from(["User", "Assistant"]), SAID), min_size=1, max_size=6))
def test_what_was_written_as_markdown_is_read_back(turns: list[tuple[str, str]]) -> None:
    text = "# Title\n\n" + "\n\n".join(f"## {name}\n\n{said}" for name, said in turns)
    found = read_foreign(io.BytesIO(text.encode()), "markdown", profile="p")
    drafts = [item.draft for item in found.parcel.memories]
    assert [(d.speaker, d.text) for d in drafts] == turns
    assert {d.session for d in drafts} == {"Title"}
    assert found.skipped == ()


@pytest.mark.parametrize(
    ("source", "text", "said"),
    [
        ("mem0", "", "expected one JSON document"),
        ("mem0", "[1, NaN]", "NaN is not JSON"),
        ("mem0", "[" * 100_000, "expected"),
        ("mem0", '"text"', "expected a list of mem0's records or an object"),
        ("mem0", '{"memories": []}', r"with 'results', got \['memories'\]"),
        ("mem0", '[{"content": "x", "uuid": 1}]', "written by another version"),
        ("langgraph", '[{"ns": "x"}]', "written by another version"),
        ("langgraph", '{"ns": "x"}', "expected a list of items"),
        ("langgraph", '{"key":"k","value":{}}\n{"key":\n', "line 2: expected JSON"),
        ("jsonl", '{"text": "one"}\n{"text": "tw', "line 2: expected JSON"),
        ("jsonl", '{"text": "one"}\n["two"]\n', "line 2: expected a JSON object, got list"),
        ("jsonl", '{"format": "riemem-export", "version": 1}\n', "line 1: an export of riemem"),
        ("jsonl", b'{"text": "\xff"}', "line 1: expected UTF-8"),
        ("markdown", "", "found none"),
        ("markdown", "# Title\n\nno turns\n", "found none"),
        ("markdown", "## User\nlook:\n```py\nprint(1)\n## User\n", "line 3: the code block that"),
        ("markdown", b"## User\n\xff", "expected UTF-8"),
    ],
)
def test_what_cannot_be_read_is_refused_whole(
    memory: Memory, source: str, text: str | bytes, said: str
) -> None:
    with pytest.raises(ArgumentError, match=said):
        take(memory, source, text)
    assert memory.list() == []


def test_an_export_of_another_version(memory: Memory) -> None:
    with pytest.raises(SchemaVersionError, match=r"version: expected one of v1, .*, got 'v9'"):
        take(memory, "mem0", '{"version": "v9", "results": []}')
    taken = take(memory, "mem0", '{"count": 5, "next": "/page2", "results": [{"memory": "a"}]}')
    assert taken.notes[0] == "the file is one page of several: 'next' names another"


def test_cut_off_anywhere_it_is_whole_or_refused(memory: Memory) -> None:
    document = json.dumps(MEM0).encode()
    for end in range(0, len(document), 7):
        with pytest.raises(ArgumentError):
            take(memory, "mem0", document[:end])
    lines = "".join(json.dumps(item) + "\n" for item in LANGGRAPH[:3]).encode()
    ends = [i + 1 for i, byte in enumerate(lines) if byte == 10]
    for end in range(1, len(lines), 5):
        whole = (
            end in ends or end + 1 in ends
        )  # between lines nothing is missing that could be seen
        if not whole:
            with pytest.raises(ArgumentError):
                take(memory, "jsonl", lines[:end])
    assert memory.list() == []


@pytest.mark.parametrize("when", [1e300, -1e300, "9" * 16, [], {}, "2024-13-40", "0000-01-01"])
def test_impossible_dates_are_skipped(memory: Memory, when: Any) -> None:
    taken = take(memory, "jsonl", json.dumps({"text": "tea", "when": when}))
    assert taken.memories == 0
    assert taken.skipped[0].reason.startswith("when: expected")


def test_a_dry_run_says_the_same_and_stores_nothing(memory: Memory) -> None:
    dry = take(memory, "mem0", json.dumps(MEM0), dry_run=True)
    assert memory.list() == []
    wet = take(memory, "mem0", json.dumps(MEM0))
    assert dry.dry_run
    assert (dry.memories, dry.skipped, dry.notes) == (wet.memories, wet.skipped, wet.notes)
    assert take(memory, "mem0", json.dumps(MEM0), dry_run=True).already_there == 3


def test_progress_cancelling_and_arguments(memory: Memory, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    take(memory, "jsonl", JSONL, progress=lambda *step: steps.append(step))
    assert steps == [(0, 6), (6, 6)]
    with pytest.raises(CancelledError):
        take(memory, "mem0", json.dumps(MEM0), progress=lambda *step: False)
    assert len(memory.list()) == 6
    with pytest.raises(DTypeError, match="progress"):
        take(memory, "jsonl", "{}", progress=5)
    with pytest.raises(ArgumentError, match="source: expected one of mem0, langgraph"):
        take(memory, "zep", "{}")
    with pytest.raises(InputFileError, match="cannot read"):
        memory.import_from(tmp_path / "no", "mem0")
    into = take(memory, "jsonl", '{"text": "elsewhere"}', profile="p2")
    assert memory.get(into.ids[0], profile="p2").text == "elsewhere"


def test_on_the_command_line(tmp_path: Path) -> None:
    store, file = tmp_path / "me.db", tmp_path / "mem0.json"
    file.write_text(json.dumps(MEM0), encoding="utf-8")

    def run(*words: str) -> Any:
        words = ("import", *words, "--store", str(store), "--embedder", "hashing")
        return CliRunner().invoke(cli, list(words))

    dry = run("--from", "mem0", str(file), "--dry-run")
    assert dry.exit_code == 0, dry.output
    lines = dry.stdout.splitlines()
    assert lines[0] == "would import 3 memories from mem0, 5 skipped:"
    assert lines[1] == "  relations: 1 relations of the graph are not memories"
    assert not store.exists()
    done = run("--from", "mem0", str(file), "--json")
    document = json.loads(done.stdout)["imported"]
    assert (document["memories"], document["ids"], document["dry_run"]) == (3, [1, 2, 3], False)
    assert document["skipped"][0] == {
        "where": "relations",
        "reason": "1 relations of the graph are not memories",
    }
    assert "3 already there" in run("--from", "mem0", str(file)).stdout
    cut = tmp_path / "cut.json"
    cut.write_bytes(file.read_bytes()[:-9])
    refused = run("--from", "mem0", str(cut), "--json")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "was the file cut off?" in json.loads(refused.stderr)["error"]["message"]
    cut.write_text('{"version": 9, "results": []}', encoding="utf-8")
    assert run("--from", "mem0", str(cut)).exit_code == 3
    assert run("--from", "zep", str(file)).exit_code == 2
    many = "\n".join(json.dumps({"text": " "}) for _ in range(25))
    cut.write_text(many, encoding="utf-8")
    told = run("--from", "jsonl", str(cut)).stdout.splitlines()
    assert (told[0], told[21]) == (
        "imported 0 memories from jsonl, 25 skipped:",
        "  and 5 more; --json lists them all",
    )
    assert set(SOURCES) == {"mem0", "langgraph", "jsonl", "markdown"}

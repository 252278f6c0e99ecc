"""Export, import and backup: nothing lost on the way, nothing half done."""

from __future__ import annotations

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from riemem.embed import HashingEmbedder
from riemem.errors import (
    ArgumentError,
    CancelledError,
    DTypeError,
    InputFileError,
    ModelNotFoundError,
    OutputFileError,
    RiememError,
    SchemaVersionError,
    StoreReadOnlyError,
    TextError,
)
from riemem.memory import Memory
from riemem.store.reads import stored_vectors

EMBEDDER = HashingEmbedder(dim=24)
WHEN = "2024-05-01T10:00:00.000001Z"


class Forbidden:
    """Has the identity of another embedder and may not be asked for anything."""

    identity, dim = EMBEDDER.identity, EMBEDDER.dim

    def embed(self, texts: object) -> np.ndarray:
        raise AssertionError("nothing was to be embedded")


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    with Memory.open(tmp_path / "me.db", embedder=EMBEDDER) as opened:
        opened.add_many(
            [
                {"text": "tea\0\r\n \u2028 žluť 😀", "speaker": "Ana", "when": WHEN, "key": "k1"},
                {"text": "milk", "session": "s", "metadata": {"b": 1.0, "a": [None, {"é": 1e300}]}},
                {"text": "gone"},
                {"text": "other", "profile": "p2", "metadata": {"n": 2**70}},
                {"text": "tea", "when": WHEN},
            ]
        )
        opened.forget(3)
        opened.update(2, text="oat milk")
        yield opened


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def everything(memory: Memory) -> list[Any]:
    return [*memory.list(order="id"), *memory.list(profile="p2", order="id")]


@pytest.mark.parametrize("vectors", [False, True])
def test_the_round_trip_is_identical(memory: Memory, tmp_path: Path, vectors: bool) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    receipt = memory.export(first, vectors=vectors, all_profiles=True)
    assert (receipt.memories, receipt.vectors) == (4, 4 * vectors)
    assert receipt.bytes == first.stat().st_size
    embedder: Any = Forbidden() if vectors else EMBEDDER
    with Memory.open(tmp_path / "copy.db", embedder=embedder) as copy:
        taken = copy.import_(first)
        assert (taken.memories, taken.skipped, taken.ids_kept) == (4, 0, True)
        assert taken.ids == {1: 1, 2: 2, 4: 4, 5: 5}
        assert taken.embedded == (0 if vectors else 4)
        assert everything(copy) == everything(memory)
        for i in (1, 2, 4, 5):
            assert np.array_equal(stored_vectors(copy._store, i), stored_vectors(memory._store, i))
        copy.export(second, vectors=vectors, all_profiles=True)
        assert copy.check().ok
    assert lines_of(first)[1:] == lines_of(second)[1:]
    with Memory.open(tmp_path / "copy.db", embedder=EMBEDDER) as copy:
        for query in ("tea", "oat milk"):
            assert copy.search(query) == memory.search(query)
        assert copy.add("new") == 6  # the largest id of the file is not given again


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip),
            st.dictionaries(
                st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
                st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False,
                                                                     allow_infinity=False),
                max_size=3,
            ),
        ),
        max_size=4,
    )
)  # fmt: skip
def test_any_memory_comes_back(items: list[tuple[str, dict[str, Any]]]) -> None:
    file = io.BytesIO()
    with Memory.open(":memory:", embedder=EMBEDDER) as memory:
        memory.add_many([{"text": text, "metadata": meta} for text, meta in items])
        memory.export(file)
        file.seek(0)
        with Memory.open(":memory:", embedder=EMBEDDER) as copy:
            copy.import_(file)
            assert copy.list(order="id") == memory.list(order="id")


def test_scopes_and_files(memory: Memory, tmp_path: Path) -> None:
    text, raw = io.StringIO(), io.BytesIO()
    assert memory.export(text).memories == 3
    assert memory.export(raw, filters={"speaker": "Ana"}).memories == 1
    assert memory.export(io.BytesIO(), session="s").memories == 1
    assert memory.export(io.BytesIO(), profile="p2").memories == 1
    assert memory.export(io.BytesIO(), profile="nobody").memories == 0
    assert text.getvalue().isascii()
    with pytest.raises(ArgumentError, match="all_profiles"):
        memory.export(io.BytesIO(), all_profiles=True, session="s")
    with Memory.open(":memory:", embedder=EMBEDDER) as copy:
        text.seek(0)
        assert copy.import_(text, profile="mine").memories == 3
        assert [r.profile for r in copy.list(profile="mine")] == ["mine"] * 3


def test_where_memories_were_before_ids_are_mapped(memory: Memory, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    memory.export(file, vectors=True)
    before = memory.list(order="id")
    plan = memory.import_(file, dry_run=True)
    assert (plan.memories, plan.skipped, plan.ids, plan.ids_kept) == (2, 1, {}, False)
    assert memory.list(order="id") == before
    taken = memory.import_(file)
    assert (taken.memories, taken.skipped, taken.ids) == (2, 1, {1: 1, 2: 6, 5: 7})
    assert memory.get(6).created_at == memory.get(2).created_at
    again = memory.import_(file, duplicates="skip")
    assert (again.memories, again.skipped) == (0, 3)
    assert again.ids == {1: 1, 2: 2, 5: 5}
    # A store that held memories once never gives an id again, whatever a file says.
    memory.forget(profile="default")
    memory.forget(profile="p2")
    assert memory.import_(file).ids == {1: 8, 2: 9, 5: 10}
    assert memory.check().ok


def test_vectors_of_another_embedder_are_made_again(memory: Memory, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    memory.export(file, vectors=True)
    with Memory.open(tmp_path / "other.db", embedder=HashingEmbedder(dim=8)) as other:
        assert other.import_(file, dry_run=True).embedded == 3
        assert other.import_(file).embedded == 3
        assert stored_vectors(other._store, 1).shape == (1, 8)
        assert other.check().ok


def test_without_its_model_an_empty_store_takes_the_vectors_of_the_file(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from riemem.retrieval import embedding

    def missing(spec: object) -> None:
        raise ModelNotFoundError("riemem models pull")

    with_vectors, without = tmp_path / "v.jsonl", tmp_path / "w.jsonl"
    memory.export(with_vectors, vectors=True)
    memory.export(without)
    monkeypatch.setattr(embedding, "load_embedder", missing)
    with Memory.open(tmp_path / "other.db") as other:
        with pytest.raises(ModelNotFoundError):
            other.import_(without)
        assert other.list() == []
        assert other.import_(with_vectors).memories == 3
    with Memory.open(tmp_path / "other.db", embedder=EMBEDDER) as other:
        assert other.search("oat milk")[0].text == "oat milk"


HEAD = {"format": "riemem-export", "version": 1, "at": WHEN, "memories": 1}
LINE = {"id": 1, "profile": "p", "text": "t", "when": WHEN, "created_at": WHEN, "updated_at": WHEN}
END = {"end": True, "memories": 1}
VECTORS = {"vectors": {"embedder": "e", "dim": 1, "rendering": "text"}}


def changed(line: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {key: value for key, value in (line | fields).items() if value is not ...}


@pytest.mark.parametrize(
    ("lines", "error", "message"),
    [
        ([], ArgumentError, "line 1: expected the first line of a riemem export"),
        ([{"text": "t"}], ArgumentError, "line 1: expected the first line"),
        ([changed(HEAD, version=3), LINE, END], SchemaVersionError, "line 1: .* version 3, .* 2"),
        ([changed(HEAD, version="1"), LINE, END], ArgumentError, "line 1: version: expected"),
        ([changed(HEAD, version=True), LINE, END], ArgumentError, "line 1: version: expected"),
        ([changed(HEAD, vectors=3), LINE, END], ArgumentError, "line 1: vectors: expected"),
        ([HEAD, LINE], ArgumentError, "line 3: .*the file was cut off"),
        ([HEAD], ArgumentError, "line 2: .*the file was cut off"),
        ([HEAD, END], ArgumentError, "line 2: .* expected 1 memories before this line, got 0"),
        ([HEAD, LINE, END, LINE], ArgumentError, "line 4: expected nothing after"),
        ([HEAD, LINE, LINE, END], ArgumentError, "line 3: id: 1 comes a second time"),
        ([HEAD, b'{"id": 1, "te', END], ArgumentError, "line 2: expected JSON"),
        ([HEAD, b"\xff\xfe", END], ArgumentError, "line 2: expected UTF-8"),
        ([HEAD, b"[1]", END], ArgumentError, "line 2: expected a JSON object, got list"),
        ([HEAD, b"[" * 100_000, END], ArgumentError, "line 2: expected JSON"),
        ([HEAD, changed(LINE, colour=1), END], ArgumentError, "line 2: colour: unknown field"),
        ([HEAD, changed(LINE, text=...), END], ArgumentError, "line 2: text: missing"),
        ([HEAD, changed(LINE, text=" "), END], TextError, "line 2: text: expected"),
        ([HEAD, b'{"id": 1, "text": "\\ud800"}', END], ArgumentError, "line 2: profile: missing"),
        ([HEAD, changed(LINE, text="\ud800"), END], TextError, "line 2: text: lone surrogate"),
        ([HEAD, changed(LINE, text=3), END], DTypeError, "line 2: text: expected str"),
        ([HEAD, changed(LINE, id=0), END], ArgumentError, "line 2: id: expected an int >= 1"),
        ([HEAD, changed(LINE, id=2**63), END], ArgumentError, "line 2: id: expected at most"),
        ([HEAD, changed(LINE, id=1.5), END], DTypeError, "line 2: id: expected an int"),
        ([HEAD, changed(LINE, when="now"), END], ArgumentError, "line 2: when: expected ISO"),
        ([HEAD, changed(LINE, created_at="x"), END], ArgumentError, "line 2: created_at: "),
        ([HEAD, changed(LINE, metadata=[1]), END], DTypeError, "line 2: metadata: expected"),
        ([HEAD, b'{"id": NaN}', END], ArgumentError, "line 2: expected JSON .NaN is not JSON"),
        ([HEAD, changed(LINE, profile=" "), END], ArgumentError, "line 2: profile: expected"),
        ([HEAD, changed(LINE, vectors=["AAAA"]), END], ArgumentError, "line 2: vectors: the first"),
        ([HEAD | VECTORS, LINE, END], DTypeError, "line 2: vectors: expected a list"),
        ([HEAD | VECTORS, changed(LINE, vectors=["!"]), END], ArgumentError, "expected base64"),
        ([HEAD | VECTORS, changed(LINE, vectors=[7]), END], ArgumentError, "expected base64"),
        ([HEAD | VECTORS, changed(LINE, vectors=["AAA="]), END], ArgumentError, "expected 4 bytes"),
        (
            [HEAD | VECTORS, changed(LINE, vectors=["AADAfw=="]), END],
            ArgumentError,
            r"line 2: vectors\[0\]: expected length 1, got nan",
        ),
        (
            [HEAD | VECTORS, changed(LINE, vectors=["AAAAAA=="]), END],
            ArgumentError,
            r"line 2: vectors\[0\]: expected length 1, got 0",
        ),
    ],
)
def test_a_bad_file_names_the_line_and_leaves_nothing(
    tmp_path: Path, lines: list[Any], error: type[RiememError], message: str
) -> None:
    file = tmp_path / "bad.jsonl"
    parts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    # A good memory first, so that something could have been stored.
    if len(parts) > 2 and message.startswith("line 2"):
        good = json.dumps(changed(LINE, id=7, vectors=...) if VECTORS else LINE).encode()
        if b'"dim"' not in parts[0]:
            parts.insert(1, good)
            message = message.replace("line 2", "line 3")
    file.write_bytes(b"\n".join(parts) + b"\n")
    with Memory.open(tmp_path / "me.db", embedder=EMBEDDER) as memory:
        for dry_run in (True, False):
            with pytest.raises(error, match=message):
                memory.import_(file, dry_run=dry_run)
        assert everything(memory) == []
        assert memory.add("first") == 1


def test_a_file_cut_anywhere_is_refused(memory: Memory, tmp_path: Path) -> None:
    whole = io.BytesIO()
    memory.export(whole, vectors=True)
    data = whole.getvalue()
    with Memory.open(":memory:", embedder=EMBEDDER) as copy:
        for size in range(0, len(data) - 1, 7):
            with pytest.raises(ArgumentError, match="line "):
                copy.import_(io.BytesIO(data[:size]))
        assert copy.list() == []
        copy.import_(io.BytesIO(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n\r\n")))
        assert copy.list() == memory.list()


def test_progress_and_cancelling(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from riemem.store import exchange

    monkeypatch.setattr(exchange, "_BATCH", 1)
    file = tmp_path / "x.jsonl"
    seen: list[tuple[int, int]] = []
    memory.export(file, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
    before = file.read_bytes()
    with pytest.raises(CancelledError, match="export"):
        memory.export(file, vectors=True, progress=lambda done, total: done < 2)
    assert file.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["me.db", "me.db-shm", "me.db-wal", "x.jsonl"]
    with Memory.open(":memory:", embedder=EMBEDDER) as copy:
        with pytest.raises(CancelledError, match="import"):
            copy.import_(file, progress=lambda done, total: False)
        assert copy.list() == []
        with pytest.raises(DTypeError, match="progress"):
            copy.import_(file, progress="loud")  # type: ignore[arg-type]
        with pytest.raises(DTypeError, match="progress"):
            copy.export(file, progress="loud")  # type: ignore[arg-type]


@pytest.mark.parametrize("use", ["export", "backup"])
def test_where_nothing_can_be_written(memory: Memory, tmp_path: Path, use: str) -> None:
    write: Callable[[Any], Any] = getattr(memory, use)
    (tmp_path / "link.db").symlink_to(tmp_path / "me.db")
    os.link(tmp_path / "me.db", tmp_path / "hard.db")
    for name in ("me.db", "me.db-wal", "me.db-shm", "link.db", "hard.db"):
        with pytest.raises(ArgumentError, match="belongs to the store that is open"):
            write(tmp_path / name)
    with pytest.raises(ArgumentError, match="is a directory"):
        write(tmp_path)
    with pytest.raises(ArgumentError, match="does not exist"):
        write(tmp_path / "no" / "file")
    with pytest.raises(ArgumentError, match="expected the path of a file"):
        write("")
    for path in (3, b"bytes", None):
        with pytest.raises(DTypeError, match="path"):
            write(path)
    assert memory.check().ok


def test_what_cannot_be_read(memory: Memory, tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path, "a\0b"):
        with pytest.raises(InputFileError, match="cannot read"):
            memory.import_(path)
    with pytest.raises(DTypeError, match="path"):
        memory.import_(3)
    with pytest.raises(ArgumentError, match="duplicates"):
        memory.import_(tmp_path, duplicates="merge")


def test_a_read_only_store_exports_and_plans_but_imports_nothing(
    memory: Memory, tmp_path: Path
) -> None:
    file = tmp_path / "x.jsonl"
    with Memory.open(tmp_path / "me.db", embedder=EMBEDDER, readonly=True) as reader:
        assert reader.export(file).memories == 3
        assert reader.import_(file, dry_run=True).memories == 2
        assert reader.backup(tmp_path / "copy.db") > 0
        with pytest.raises(StoreReadOnlyError):
            reader.import_(file)


def test_a_pipe_is_written_and_read(memory: Memory, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as sink:
        memory.export(sink)
    with os.fdopen(reading, "rb") as source, Memory.open(":memory:", embedder=EMBEDDER) as copy:
        assert copy.import_(source).memories == 3
    assert memory.export(os.devnull).memories == 3


def test_a_full_disk_leaves_the_old_file(memory: Memory, tmp_path: Path) -> None:
    # A limit on the size of files fails like a disk that is full, after the first part was written.
    code = (
        "import resource, sys\n"
        "from riemem.memory import Memory\n"
        "from riemem.embed import HashingEmbedder\n"
        "memory = Memory.open(sys.argv[1], embedder=HashingEmbedder(dim=24), readonly=True)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "getattr(memory, sys.argv[3])(sys.argv[2])\n"
    )
    memory.add_many([{"text": "long " * 5000, "session": str(i)} for i in range(5)])
    for use in ("export", "backup"):
        file = tmp_path / f"old.{use}"
        file.write_bytes(b"the old one")
        ran = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "me.db"), str(file), use],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "OutputFileError" in ran.stderr.splitlines()[-1]
        assert "left as it was" in ran.stderr.splitlines()[-1]
        assert file.read_bytes() == b"the old one"
        assert not [name for name in os.listdir(tmp_path) if "part" in name]


def test_a_kill_during_an_export_leaves_the_old_file_and_no_litter(
    memory: Memory, tmp_path: Path
) -> None:
    code = (
        "import sys, time\n"
        "from riemem.memory import Memory\n"
        "from riemem.store import exchange\n"
        "exchange._BATCH = 1\n"
        "def stop(done, total):\n"
        "    if done: print('half', flush=True); time.sleep(60)\n"
        "Memory.open(sys.argv[1], readonly=True).export(sys.argv[2], progress=stop)\n"
    )
    file = tmp_path / "old.jsonl"
    file.write_bytes(b"the old one")
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "me.db"), str(file)], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"half\n"
    assert len(list(tmp_path.glob(".old*"))) == 1
    memory.export(file)  # what is being written by the other is left alone
    assert len(list(tmp_path.glob(".old*"))) == 1
    new = file.read_bytes()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert file.read_bytes() == new
    memory.export(file)
    assert list(tmp_path.glob(".old*")) == []


def test_a_backup_is_complete_while_a_copy_is_not(memory: Memory, tmp_path: Path) -> None:
    memory.add_many([{"text": f"note {i}"} for i in range(100)])
    copied = tmp_path / "copied.db"
    copied.write_bytes((tmp_path / "me.db").read_bytes())  # without its log
    plain = sqlite3.connect(copied)
    assert plain.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] in range(100)
    plain.close()
    backup = tmp_path / "backup.db"
    assert memory.backup(backup) == backup.stat().st_size
    with Memory.open(backup, embedder=EMBEDDER) as other:
        assert everything(other) == everything(memory)
        assert other.search("note 7", k=3) == memory.search("note 7", k=3)
        assert other.check().ok
        with pytest.raises(ArgumentError, match="a store that is open"):
            memory.backup(backup)
    assert memory.backup(backup) > 0  # an older copy gives way


def test_a_backup_holds_no_trace_of_what_was_forgotten(memory: Memory, tmp_path: Path) -> None:
    wanted = memory.add("CANARY " + "x" * 3000)
    reader = sqlite3.connect(tmp_path / "me.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM memories").fetchone()
    assert not memory.forget(wanted).erased
    memory.backup(tmp_path / "backup.db")
    reader.close()
    assert b"CANARY" not in (tmp_path / "backup.db").read_bytes()


def test_errors_are_also_built_in_ones() -> None:
    assert issubclass(OutputFileError, OSError)
    assert issubclass(InputFileError, FileNotFoundError)


def test_skipping_duplicates(tmp_path: Path) -> None:
    with Memory.open(tmp_path / "me.db", embedder=EMBEDDER) as memory:
        item = {"text": "tea", "speaker": "Ana", "when": WHEN, "metadata": {"a": 1}}
        first = memory.add(**item)
        assert memory.add(**item) == first + 1  # without a key every add makes a memory
        for _ in range(3):
            assert memory.add(**item, duplicates="skip") == first
        assert memory.add(**(item | {"text": "Tea"}), duplicates="skip") == 3
        for change in (
            {"speaker": None},
            {"session": "s"},
            {"when": "2025-01-01T00:00:00Z"},
            {"metadata": {"a": 2}},
            {"profile": "p2"},
        ):
            assert memory.add(**(item | change), duplicates="skip") > 3
        undated = {"text": "tea", "speaker": "Ana", "metadata": {"a": 1}}
        assert memory.add(**undated, duplicates="skip") == first
        both = memory.add_many([{"text": "new"}, {"text": "new"}, item], duplicates="skip")
        assert both == [9, 9, first]
        with pytest.raises(ArgumentError, match="duplicates"):
            memory.add("x", duplicates="drop")
        assert memory.check().ok

"""A reader that may not write beside the store takes no locks: it must notice every writer."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import StoreLockedError
from riemem.memory import Memory
from riemem.store import connect

EMBEDDER = HashingEmbedder(dim=16)
PLAIN = connect._open


class _Refused(sqlite3.Connection):
    """Opens, and fails at the first statement, as SQLite does."""

    def execute(self, *_: object) -> sqlite3.Cursor:  # type: ignore[override]
        raise sqlite3.OperationalError("unable to open database file")


def _as_in_a_foreign_folder(
    path: str, mode: str, timeout: float, extra: str = ""
) -> sqlite3.Connection:
    """Open as one who may not make the file that readers share beside the store."""
    if mode == "ro" and not extra and not os.path.exists(f"{path}-shm"):
        return sqlite3.connect(path, factory=_Refused)
    return PLAIN(path, mode, timeout, extra)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=EMBEDDER) as memory:
        memory.add_many([{"text": f"note {i} " * 40} for i in range(300)])
    return path


def test_it_follows_what_others_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_open", _as_in_a_foreign_folder)
    with Memory.open(path, embedder=EMBEDDER, readonly=True) as reader:
        assert isinstance(reader._store._reader, connect.Frozen)
        assert len(reader.list(limit=None)) == 300
        assert len(reader.search("note", k=400)) == 300
        with Memory.open(path, embedder=EMBEDDER) as writer:
            fresh = writer.add("a fresh pear")
            assert reader.search("pear", k=1)[0].id == fresh
            writer.forget(list(range(1, 200)))
            assert [record.id for record in reader.list(limit=None)] == [*range(200, 302)]
        for _ in range(2):
            assert reader.stats()["memories"] == 102
            assert reader.check().ok
            assert len(reader.search("note", k=400)) == 102
            with Memory.open(path, embedder=EMBEDDER) as writer:
                writer.forget(writer.add("short of life"))


def _read_while_another_forgets(reading: Any, path: Path) -> None:
    with reading() as connection:
        connection.execute("SELECT count(*) FROM memories").fetchone()
        with Memory.open(path, embedder=EMBEDDER) as writer:
            writer.forget(writer.list(limit=100)[-1].id)
        connection.execute("SELECT group_concat(text) FROM memories").fetchone()


def test_a_write_in_the_middle_of_a_read_is_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "_open", _as_in_a_foreign_folder)
    with Memory.open(path, embedder=EMBEDDER, readonly=True) as reader:
        for reading in (reader._store.reading, reader._store.snapshot):
            with pytest.raises(StoreLockedError, match=r"wrote .* while it was read; try again"):
                _read_while_another_forgets(reading, path)
        assert reader.stats()["memories"] == 298


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs the right to become another user"
)
def test_another_user_reads_what_is_there_now(path: Path) -> None:
    code = """
import os, sys
from riemem.embed import HashingEmbedder
from riemem.memory import Memory
os.setgroups([]), os.setgid(65534), os.setuid(65534)
with Memory.open(sys.argv[1], readonly=True, embedder=HashingEmbedder(dim=16)) as reader:
    for line in sys.stdin:
        print(reader.stats()["memories"], flush=True)
"""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        place = Path(folder, "me.db")
        shutil.copy(path, place)
        place.chmod(0o644)
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(place)], stdin=subprocess.PIPE, text=True,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        stdin, stdout = child.stdin, child.stdout
        assert stdin is not None
        assert stdout is not None

        def seen() -> str:
            stdin.write("\n")
            stdin.flush()
            return stdout.readline().strip()

        with child:
            assert seen() == "300"
            with Memory.open(place, embedder=EMBEDDER) as writer:
                writer.forget(list(range(1, 200)))
                assert seen() == "101"
            assert seen() == "101"
            stdin.close()

"""What takes long shows a bar on a terminal, and Ctrl-C in the middle of it loses nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from riemem.embed import HashingEmbedder
from riemem.memory import Memory

pty = pytest.importorskip("pty", reason="needs pseudo-terminals, which this system has not")

PYTHON = str(Path(sys.modules["riemem"].__path__[0]).parent)
MEMORIES = 300  # two batches of the embedder

#: Runs the command of argv; the second batch says so on the terminal, and waits for a signal. That
#: writes into the pipe whenever it comes: between the word and the wait, it still ends the wait.
_WAITING = """
import os, signal, sys
from riemem.embed import HashingEmbedder
real, calls = HashingEmbedder.embed, []
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job ignores
reader, writer = os.pipe()
os.set_blocking(writer, False)
signal.set_wakeup_fd(writer)
def embed(self, texts):
    calls.append(1)
    if len(calls) == 2 and sys.argv[1]:
        os.write(2, b"IN THE MIDDLE")
        os.read(reader, 1)
    return real(self, texts)
HashingEmbedder.embed = embed
from riemem.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A store of 300 memories, the same as an export and as JSON lines, and a LoCoMo file."""
    items = [{"text": f"memory {i} of the mill"} for i in range(MEMORIES)]
    with Memory.open(tmp_path / "old.db", embedder=HashingEmbedder(dim=16)) as memory:
        memory.add_many(items)
        memory.export(tmp_path / "export.jsonl")
    lines = "".join(json.dumps(item) + "\n" for item in items)
    (tmp_path / "turns.jsonl").write_text(lines, encoding="utf-8")
    turns = [
        {"speaker": "Ana" if i % 2 else "Ben", "dia_id": f"D1:{i + 1}", "text": item["text"]}
        for i, item in enumerate(items)
    ]
    talk = {
        "sample_id": "t1",
        "conversation": {
            "speaker_a": "Ana",
            "speaker_b": "Ben",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": turns,
        },
        "qa": [{"question": "What mill?", "answer": "x", "evidence": ["D1:3"], "category": 4}],
    }
    (tmp_path / "locomo.json").write_text(json.dumps([talk]), encoding="utf-8")
    return tmp_path


COMMANDS = {
    "add": "add --jsonl {0}/turns.jsonl --store {0}/new.db --embedder hashing:16",
    "import": "import {0}/export.jsonl --store {0}/new.db --embedder hashing:16",
    "reembed": "reembed --store {0}/old.db --embedder hashing:32",
    "eval": "eval locomo {0}/locomo.json --embedder hashing:16",
}


def run(name: str, files: Path, *, interrupt: bool) -> tuple[int, str]:
    """Run a command on a terminal of its own; return its exit code and what the terminal got."""
    words = COMMANDS[name].format(files).split()
    code = [sys.executable, "-c", _WAITING, "wait" if interrupt else "", *words]
    master, slave = pty.openpty()
    process = subprocess.Popen(
        code,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=slave,
        env={**os.environ, "PYTHONPATH": PYTHON},
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:  # Linux says so when the last writer has closed a terminal
            break
        if not piece:
            break
        shown += piece
        if interrupt and b"IN THE MIDDLE" in shown:
            process.send_signal(signal.SIGINT)
            interrupt = False
    os.close(master)
    return process.wait(60), shown.decode()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_bar_is_drawn_and_goes_away(name: str, files: Path) -> None:
    code, shown = run(name, files, interrupt=False)
    assert code == 0, shown
    steps = [int(share) for share in re.findall(rf"{name} \[[#.]+\] +(\d+) %", shown)]
    assert steps == sorted(steps)
    assert steps[0] == 0
    assert any(0 < share < 100 for share in steps)
    assert steps[-1] == 100
    assert shown.endswith("\r\x1b[K")


@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_in_the_middle_loses_nothing(name: str, files: Path) -> None:
    code, shown = run(name, files, interrupt=True)
    assert code == 130, shown
    assert shown.rstrip().endswith("riemem: error: interrupted")
    with Memory.open(files / "old.db", embedder=HashingEmbedder(dim=16)) as old:
        assert old.stats()["dim"] == 16
        assert old.stats()["memories"] == MEMORIES
        assert old.check().ok
    if (files / "new.db").exists():
        with Memory.open(files / "new.db", embedder=HashingEmbedder(dim=16)) as new:
            assert new.stats()["memories"] == 0
            assert new.check().ok
            assert new.add_many([{"text": "later"}]) == [1]


def test_a_repair_shows_its_progress_and_can_be_stopped(tmp_path: Path) -> None:
    import sqlite3

    path, embedder = tmp_path / "me.db", HashingEmbedder(dim=16)
    with Memory.open(path, embedder=embedder) as memory:
        memory.add_many([{"text": f"memory {i}"} for i in range(5)])
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM vectors WHERE memory_id IN (2, 4)")
    connection.commit()
    connection.close()
    with Memory.open(path, embedder=embedder) as memory:
        stopped = memory.check(repair=True, progress=lambda done, total: False)
        assert not stopped.ok
        assert not any("vectors of" in item for item in stopped.repaired)
        steps: list[tuple[int, int]] = []
        report = memory.check(repair=True, progress=lambda *step: steps.append(step))
        assert report.ok, report.problems
        assert steps == [(0, 2), (2, 2)]
        assert "vectors of 2 memories" in report.repaired

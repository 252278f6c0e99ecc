"""Disks, logs and clocks that misbehave: a typed error or the right effect, nothing lost."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import StoreCorruptError, StoreError, StoreReadOnlyError, StoreWarning
from riemem.memory import Memory
from riemem.store import filesystem

EMBEDDER = HashingEmbedder(dim=8)

SHIM = r"""
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
static int broken(void) { const char *flag = getenv("BROKEN"); return flag && !access(flag, F_OK); }
int fsync(int fd) { if (broken()) { errno = EIO; return -1; } return 0; }
int fdatasync(int fd) { if (broken()) { errno = EIO; return -1; } return 0; }
"""

WITH_A_BROKEN_DISK = """
import os, sys
from riemem.embed import HashingEmbedder
from riemem.errors import StoreError
from riemem.memory import Memory
path, flag = sys.argv[1:3]
with Memory.open(path, embedder=HashingEmbedder(dim=8)) as memory:
    first = memory.add("before")
    open(flag, "w").close()
    for use in (
        lambda: memory.add("lost"),
        lambda: memory.update(first, text="lost"),
        lambda: memory.forget(first),
        lambda: memory.add_many([{"text": "lost"}] * 3),
    ):
        try:
            use()
        except StoreError as error:
            assert "disk I/O error" in str(error), error
        else:
            raise SystemExit("the write was acknowledged")
        assert [r.text for r in memory.list()] == ["before"]
    os.unlink(flag)
    memory.add("after")
    assert [r.text for r in memory.list(order="id")] == ["before", "after"]
    assert memory.check().ok
    os._exit(0)  # without closing: what is in the log must do
"""


def texts(path: Path) -> list[str]:
    with Memory.open(path, embedder=EMBEDDER) as memory:
        assert memory.check().ok
        return [record.text for record in memory.list(order="id")]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="replaces fsync by LD_PRELOAD")
def test_a_write_that_did_not_reach_the_disk_is_not_acknowledged(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (tmp_path / "shim.c").write_text(SHIM)
    shim = tmp_path / "shim.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(shim), str(tmp_path / "shim.c")], check=True
    )
    flag = tmp_path / "broken"
    ran = subprocess.run(
        [sys.executable, "-c", WITH_A_BROKEN_DISK, str(tmp_path / "me.db"), str(flag)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LD_PRELOAD": str(shim), "BROKEN": str(flag)},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert texts(tmp_path / "me.db") == ["before", "after"]


class Failing:
    """A connection whose COMMIT fails as if the disk did."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.failing = True

    def execute(self, sql: str, *rest: Any) -> Any:
        if sql == "COMMIT" and self.failing:
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(sql, *rest)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_a_commit_that_fails_is_undone_and_the_next_one_works(tmp_path: Path) -> None:
    with Memory.open(tmp_path / "me.db", embedder=EMBEDDER) as memory:
        memory.add("before")
        failing: Any = Failing(memory._store._writer)
        memory._store._writer = failing
        with pytest.raises(StoreError, match="disk I/O error"):
            memory.add("lost")
        assert [hit.text for hit in memory.search("lost before")] == ["before"]
        failing.failing = False
        memory.add("after")
    assert texts(tmp_path / "me.db") == ["before", "after"]


def in_a_namespace(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script that may mount what nobody else sees, or skip."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs unshare")
    flags = ["-m"] if os.geteuid() == 0 else ["-rm"]
    ran = subprocess.run(
        [unshare, *flags, "sh", "-c", script, "sh", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in ran.stderr or "mount:" in ran.stderr:
        pytest.skip("may not mount here: " + ran.stderr.strip()[:80])
    return ran


READ_ONLY = """
import sys
from riemem.embed import HashingEmbedder
from riemem.errors import StoreReadOnlyError
from riemem.memory import Memory
path, embedder = sys.argv[1], HashingEmbedder(dim=8)
try:
    Memory.open(path, embedder=embedder)
except StoreReadOnlyError as error:
    assert "readonly=True" in str(error), error
else:
    raise SystemExit("opened for writing")
with Memory.open(path, embedder=embedder, readonly=True) as memory:
    assert [hit.text for hit in memory.search("tea")] == ["tea"]
    assert memory.check().ok
"""


def test_a_file_system_mounted_read_only(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with Memory.open(tmp_path / "me.db", embedder=EMBEDDER) as memory:
        memory.add("tea")
    ran = in_a_namespace(
        'mount -t tmpfs none "$1" && cp "$2" "$1/me.db" && mount -o remount,ro "$1" && '
        'exec "$3" -c "$4" "$1/me.db"',
        str(folder),
        str(tmp_path / "me.db"),
        sys.executable,
        READ_ONLY,
    )
    assert (ran.returncode, ran.stderr) == (0, "")


FULL = """
import os, sys
from riemem.embed import HashingEmbedder
from riemem.errors import OutputFileError, StoreError
from riemem.memory import Memory
path, embedder = sys.argv[1], HashingEmbedder(dim=8)
with Memory.open(path, embedder=embedder) as memory:
    kept, full = [], False
    for i in range(1000):
        try:
            memory.add(f"{i}", metadata={"long": "x" * 100_000})
        except StoreError as error:
            assert "disk is full" in str(error), error
            break
        kept.append(str(i))
    else:
        raise SystemExit("the disk was never full")
    folder = os.path.dirname(path)
    with open(folder + "/old.jsonl", "w") as old:
        pass
    try:
        memory.export(folder + "/old.jsonl")
    except OutputFileError as error:
        assert "disk is full" in str(error), error
    else:
        raise SystemExit("the export was said to be written")
    assert os.path.getsize(folder + "/old.jsonl") == 0
    assert not [name for name in os.listdir(folder) if "part" in name]
    assert [r.text for r in memory.list(order="id")] == kept
with Memory.open(path, embedder=embedder, readonly=True) as memory:
    assert [r.text for r in memory.list(order="id")] == kept
    assert memory.check().ok
print("kept", len(kept))
"""


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    ran = in_a_namespace(
        'mount -t tmpfs -o size=2m none "$1" && exec "$2" -c "$3" "$1/me.db"',
        str(tmp_path),
        sys.executable,
        FULL,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert int(ran.stdout.split()[1]) > 2


def died_with_a_log(path: Path) -> None:
    """A store with one memory in the file and one only in its log."""
    with Memory.open(path, embedder=EMBEDDER) as memory:
        memory.add("in the file")
    code = (
        "import os, sys\n"
        "from riemem.embed import HashingEmbedder\n"
        "from riemem.memory import Memory\n"
        "memory = Memory.open(sys.argv[1], embedder=HashingEmbedder(dim=8))\n"
        "memory.add('in the log')\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert Path(f"{path}-wal").stat().st_size > 0


def test_a_log_that_was_left_is_read_and_one_that_was_taken_away_takes_its_writes_only(
    tmp_path: Path,
) -> None:
    path, log = tmp_path / "me.db", tmp_path / "me.db-wal"
    died_with_a_log(path)
    whole = tmp_path / "whole"
    whole.mkdir()
    for name in ("me.db", "me.db-wal"):
        shutil.copy(tmp_path / name, whole / name)
    assert texts(whole / "me.db") == ["in the file", "in the log"]
    os.rename(log, tmp_path / "elsewhere")
    assert texts(path) == ["in the file"]
    with Memory.open(path, embedder=EMBEDDER) as memory:
        memory.add("later")
    assert texts(path) == ["in the file", "later"]


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"not a log at all" * 300])
def test_a_log_without_anything_in_it_is_no_log(
    tmp_path: Path, content: bytes, readonly: bool
) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=EMBEDDER) as memory:
        memory.add("tea")
    Path(f"{path}-wal").write_bytes(content)
    with Memory.open(path, embedder=EMBEDDER, readonly=readonly) as memory:
        assert [hit.text for hit in memory.search("tea")] == ["tea"]
        if not readonly:
            memory.add("milk")
            assert memory.check().ok


def test_a_log_cut_anywhere_gives_a_state_that_was(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    died_with_a_log(path)
    data, log = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    seen = set()
    for i, size in enumerate(range(0, len(log) + 1, max(1, len(log) // 12))):
        copy = tmp_path / f"{i}.db"
        copy.write_bytes(data)
        Path(f"{copy}-wal").write_bytes(log[:size])
        seen.add(tuple(texts(copy)))
    assert seen == {("in the file",), ("in the file", "in the log")}


@pytest.mark.parametrize("replaced", [False, True])
def test_a_log_taken_away_while_it_is_used_is_said_and_may_come_back(
    tmp_path: Path, replaced: bool
) -> None:
    path, log = tmp_path / "me.db", tmp_path / "me.db-wal"
    memory = Memory.open(path, embedder=EMBEDDER)
    memory.add("tea")
    os.rename(log, tmp_path / "elsewhere")
    if replaced:
        log.write_bytes(b"")
    for use in (lambda: memory.add("lost"), memory.list, lambda: memory.search("tea")):
        with pytest.raises(StoreError, match=r"its log .* was deleted, moved or replaced"):
            use()
    os.replace(tmp_path / "elsewhere", log)
    memory.add("milk")
    memory.close()
    assert texts(path) == ["tea", "milk"]


def test_a_clock_that_goes_back_changes_no_order_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from riemem.store import writes

    now = [1_700_000_000_000_000]

    def backwards() -> int:
        now[0] -= 3_600_000_000
        return now[0]

    monkeypatch.setattr(writes, "now_us", backwards)
    path = tmp_path / "me.db"
    with (
        Memory.open(path, embedder=EMBEDDER) as memory,
        Memory.open(path, embedder=EMBEDDER) as other,
    ):
        ids = [memory.add(f"note {i}") for i in range(5)]
        assert ids == [1, 2, 3, 4, 5]
        assert {hit.id for hit in other.search("note", k=9)} == set(ids)
        memory.update(1, text="note changed")
        memory.forget(2)
        assert {hit.id for hit in other.search("note", k=9)} == {1, 3, 4, 5}
        assert other.search("changed", k=1)[0].text == "note changed"
        assert [record.id for record in memory.list(order="id")] == [1, 3, 4, 5]
        assert [record.id for record in memory.list()] == [5, 4, 3, 1]  # by when it was said
        assert memory.check().ok


def test_a_long_job_that_is_killed_holds_up_nobody_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=EMBEDDER) as memory:
        memory.add("tea")
    code = (
        "import sys, time\n"
        "from riemem.embed import HashingEmbedder\n"
        "from riemem.memory import Memory\n"
        "class Slow(HashingEmbedder):\n"
        "    def embed(self, texts):\n"
        "        print('embedding', flush=True)\n"
        "        time.sleep(60)\n"
        "Memory.reembed_store(sys.argv[1], embedder=Slow(dim=16))\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"embedding\n"
    with Memory.open(path, embedder=EMBEDDER, timeout=0.5) as memory:
        memory.add("milk")  # is not kept waiting
        assert len(memory.search("milk")) == 2
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        memory.add("bread")
    assert texts(path) == ["tea", "milk", "bread"]
    assert Memory.reembed_store(path, embedder=HashingEmbedder(dim=16)) == 3


TABLE = r"""21 1 0:20 / / rw,relatime - ext4 /dev/vda rw
22 21 0:21 / /home rw,relatime shared:1 - nfs4 server:/home rw
23 22 0:22 / /home/local rw - xfs /dev/vdb rw
24 21 0:23 / /mnt/with\040space rw - cifs //server/share rw
25 21 0:24 / /work rw - 9p host rw
26 25 0:25 / /elsewhere rw - tmpfs none rw
27 21 0:26 / /vm rw - 9p host rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/me.db", "ext4"),
        ("/home/me/me.db", "nfs4"),
        ("/home", "nfs4"),
        ("/homes/me.db", "ext4"),
        ("/home/local/me.db", "xfs"),
        ("/mnt/with space/me.db", "cifs"),
        ("/elsewhere/me.db", "tmpfs"),
    ],
)
def test_the_file_system_of_a_path(tmp_path: Path, path: str, kind: str) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    assert filesystem.file_system_of(path, str(table)) == kind
    assert filesystem.file_system_of(path, str(tmp_path / "none")) is None


def test_a_network_file_system_is_refused_by_name_before_the_first_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=EMBEDDER) as memory:
        memory.add("tea")
    before = path.read_bytes()
    monkeypatch.setattr(filesystem, "file_system_of", lambda path: "nfs4")
    for where in (path, tmp_path / "new.db"):
        with pytest.raises(StoreError, match=r"network file system \(nfs4\).*RIEMEM_STORE"):
            Memory.open(where, embedder=EMBEDDER)
    assert os.listdir(tmp_path) == ["me.db"]
    assert path.read_bytes() == before
    with Memory.open(path, embedder=EMBEDDER, readonly=True) as memory:
        assert memory.list()[0].text == "tea"
    monkeypatch.setenv(filesystem.ALLOW, "1")
    with pytest.warns(StoreWarning, match="nfs4"):
        Memory.open(path, embedder=EMBEDDER).close()


def test_a_folder_shared_with_the_host_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "file_system_of", lambda path: "9p")
    with pytest.warns(StoreWarning, match=r"\(9p\)"):
        Memory.open(tmp_path / "me.db", embedder=EMBEDDER).close()
    monkeypatch.setattr(filesystem, "file_system_of", lambda path: "ext4")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Memory.open(tmp_path / "me.db", embedder=EMBEDDER).close()
        Memory.open(":memory:", embedder=EMBEDDER).close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_a_file_nobody_may_read(tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    Memory.open(path, embedder=EMBEDDER).close()
    path.chmod(0)
    with pytest.raises(StoreReadOnlyError):
        Memory.open(path, embedder=EMBEDDER)
    with pytest.raises(StoreError):
        Memory.open(path, embedder=EMBEDDER, readonly=True)


def test_bytes_that_changed_on_the_disk_are_an_error_and_never_another_text(
    tmp_path: Path,
) -> None:
    path = tmp_path / "me.db"
    with Memory.open(path, embedder=EMBEDDER) as memory:
        memory.add_many([{"text": f"note {i}"} for i in range(200)])
    data = bytearray(path.read_bytes())
    for start in range(8192, len(data), 8192):
        data[start : start + 16] = b"\xff" * 16
    path.write_bytes(data)
    for embedder in (EMBEDDER, None):  # with an embedder the damage is met at once
        with (
            pytest.raises(StoreCorruptError, match="damaged"),
            Memory.open(path, embedder=embedder) as memory,
        ):
            memory.list()

"""The file of an index: the same answers after a load, and all or nothing on every disaster."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from riemem import RiemannianIndex, build_info, set_num_threads
from riemem.errors import (
    ArgumentError,
    DTypeError,
    InputFileError,
    SchemaVersionError,
    StoreCorruptError,
    StoreError,
)
from riemem.index_file import _DIGEST_AT, _PREFIX, _header_digest

STORAGES = ["float32", "float32+int8", "bf16", "int8"]


def data(n=90, d=12, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * np.geomspace(3.0, 0.1, d) + rng.normal(size=d)


def lived(**options):
    """An index with some history behind it."""
    index = RiemannianIndex(12, **options)
    index.add(data())
    index.search(data(2, seed=1))
    index.remove([3, 50, 89])
    index.add(data(4, seed=2), ids=[500, 7000, 3, 91])
    return index


def same_answers(a, b, k=50):
    queries = data(6, seed=9)
    first, second = a.search(queries, k), b.search(queries, k)
    np.testing.assert_array_equal(first.indices, second.indices)
    np.testing.assert_array_equal(first.scores, second.scores)
    assert first.scoring == second.scoring


# -- there and back ----------------------------------------------------------------------------


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("covariance", ["full", "low_rank", "paper"])
def test_a_loaded_index_goes_on_as_the_saved_one(tmp_path, storage, covariance, mmap):
    index = lived(storage=storage, covariance=covariance, ridge=0.3, cosine_weight=0.2)
    index.save(tmp_path / "a.index")
    twin = RiemannianIndex.load(tmp_path / "a.index", mmap=mmap)
    same_answers(index, twin)
    np.testing.assert_array_equal(twin.ids, index.ids)
    np.testing.assert_array_equal(twin.vectors(), index.vectors())
    assert {k: v for k, v in twin.stats().items() if k not in ("nbytes", "exact_rows")} == {
        k: v for k, v in index.stats().items() if k not in ("nbytes", "exact_rows")
    }
    for one in (index, twin):
        assert one.add(data(40, seed=3)).tolist() == list(range(7001, 7041))
        one.remove([500, 7039, 0])
    same_answers(index, twin, 200)
    assert twin.add(data(1)).tolist() == [7041]


def test_ids_are_never_used_again_after_a_load(tmp_path):
    index = RiemannianIndex(12)
    index.add(data(5))
    index.remove([4, 3])
    index.save(tmp_path / "a.index")
    assert RiemannianIndex.load(tmp_path / "a.index").add(data(1)).tolist() == [5]
    index.remove([0, 1, 2])
    index.save(tmp_path / "a.index")
    empty = RiemannianIndex.load(tmp_path / "a.index", mmap=True)
    assert len(empty) == 0
    assert empty.add(np.zeros((0, 12))).tolist() == []
    assert empty.add(data(1)).tolist() == [5]


@pytest.mark.parametrize("storage", STORAGES)
def test_nothing_of_a_removed_row_is_in_the_file_nor_beside_it(tmp_path, storage):
    path = tmp_path / "a.index"
    index = RiemannianIndex(12, storage=storage)
    index.add(data())
    index.search(data(2, seed=1))
    rows = index.vectors()
    # All of a row, and pieces of it as float32 and as the upper halves of its numbers.
    halves = np.ascontiguousarray(rows.view(np.uint16)[:, 1::2])
    forms = [[part.tobytes() for part in own] for own in (rows, rows[:, :4], rows[:, 8:], halves)]
    index.save(path)
    before = path.read_bytes()
    assert all(row in before for row in forms[0])  # the control: it can be found this way
    index.remove([3, 50, 89])
    index.save(path)
    after = path.read_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["a.index"]
    for row in range(90):
        gone = row in (3, 50, 89)
        assert (forms[0][row] in after) is not gone
        assert not (gone and any(form[row] in after for form in forms))


def test_the_largest_id_survives(tmp_path):
    index = RiemannianIndex(12)
    index.add(data(1), ids=[2**63 - 1])
    index.save(tmp_path / "a.index")
    with pytest.raises(ArgumentError, match=r"^ids: expected to be given"):
        RiemannianIndex.load(tmp_path / "a.index").add(data(1))


def test_c56_threads_of_the_saver_do_not_bind_the_loader(tmp_path):
    before = build_info()["num_threads"]
    try:
        set_num_threads(1)
        index = lived()
        index.save(tmp_path / "a.index")
        set_num_threads(8)
        twin = RiemannianIndex.load(tmp_path / "a.index", mmap=True)
        assert build_info()["num_threads"] == 8
        same_answers(index, twin)
        threads = [threading.Thread(target=same_answers, args=(index, twin)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        set_num_threads(before)


def test_mapped_rows_stay_in_the_file_until_the_index_grows(tmp_path):
    index = lived()
    index.save(tmp_path / "a.index")
    twin = RiemannianIndex.load(tmp_path / "a.index", mmap=True)
    base = twin.vectors()
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert type(base.base).__name__ in ("mmap", "memoryview")
    twin.save(tmp_path / "a.index")  # over the file it reads from
    same_answers(index, twin)
    (tmp_path / "a.index").unlink()
    same_answers(index, twin)
    twin.add(data(1))
    assert len(twin) == len(index) + 1


def test_saving_twice_gives_the_same_bytes(tmp_path):
    index = lived()
    index.save(tmp_path / "a.index")
    RiemannianIndex.load(tmp_path / "a.index").save(tmp_path / "b.index")
    assert (tmp_path / "a.index").read_bytes() == (tmp_path / "b.index").read_bytes()


def test_saving_while_others_add_and_search_gives_one_moment(tmp_path):
    rows = data(400)
    index = RiemannianIndex(12)
    index.add(rows[:40])
    stop = threading.Event()

    def add():
        for row in rows[40:]:
            index.add(row)
        stop.set()

    writer = threading.Thread(target=add)
    writer.start()
    rounds = 0
    while not stop.is_set() or rounds == 0:
        index.save(tmp_path / "a.index")
        twin = RiemannianIndex.load(tmp_path / "a.index")
        n = len(twin)
        fresh = RiemannianIndex(12)
        fresh.add(rows[:n])
        assert twin.ids.tolist() == list(range(n))
        np.testing.assert_array_equal(twin.vectors(), fresh.vectors())
        np.testing.assert_allclose(twin.metric.sigma(), fresh.metric.sigma(), atol=1e-13)
        rounds += 1
    writer.join()


@pytest.mark.parametrize("name", ["with space", "emoji \U0001f9e0", "what?", "a#b%20", "-rf"])
def test_odd_names(tmp_path, name):
    lived().save(os.fsencode(tmp_path / name))
    same_answers(lived(), RiemannianIndex.load(str(tmp_path / name)))
    assert [p.name for p in tmp_path.iterdir()] == [name]


# -- damage ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    index = RiemannianIndex(3)
    index.add(data(4, 3))
    path = tmp_path_factory.mktemp("good") / "a.index"
    index.save(path)
    return path.read_bytes()


def refused(path, content):
    path.write_bytes(content)
    with pytest.raises(StoreCorruptError, match=r"^path: .* is damaged or is not an index: "):
        RiemannianIndex.load(path)


def test_every_flipped_bit_is_seen(tmp_path, good):
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1 << (at % 8)
        refused(tmp_path / "a", bytes(bad))


def test_every_truncation_and_any_addition_is_seen(tmp_path, good):
    for size in range(len(good)):
        refused(tmp_path / "a", good[:size])
    refused(tmp_path / "a", good + b"\0")
    refused(tmp_path / "a", good + good)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300))
def test_foreign_bytes_are_refused(tmp_path_factory, content):
    refused(tmp_path_factory.mktemp("f") / "a", content)


def resealed(content, **changes):
    """A file with other header text or version whose checksum is right."""
    prefix = bytearray(content[: _PREFIX.size])
    _, _, room, _, _ = _PREFIX.unpack(bytes(prefix))
    text = content[_PREFIX.size : _PREFIX.size + room]
    if "version" in changes:
        struct.pack_into("<I", prefix, 8, changes["version"])
    for old, new in changes.get("text", []):
        assert old in text
        text = text.replace(old, new)
        text = text.rstrip().ljust(room) if len(text.rstrip()) <= room else text
    prefix[_DIGEST_AT] = _header_digest(prefix, text)
    return bytes(prefix) + text + content[_PREFIX.size + room :]


def test_a_newer_version_is_refused_by_name(tmp_path, good):
    (tmp_path / "a").write_bytes(resealed(good, version=2))
    with pytest.raises(SchemaVersionError, match=r"has version 2 .* reads 1$"):
        RiemannianIndex.load(tmp_path / "a")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"full"', b'"what"'),
        (b'"dim": 3', b'"dim": 4'),
        (b'"next_id": 4', b'"next_id": 1'),
        (b'"rows"', b'"sows"'),
        (b'"<f4"', b'"<f8"'),
        (b'"<i8"', b'"O"'),
        (b"[4, 3]", b"[3, 4]"),
        (b"[4, 3]", b"[-1,3]"),
        (b'"ridge"', b'"bridg"'),
        (b"{", b"["),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(tmp_path, good, old, new):
    refused(tmp_path / "a", resealed(good, text=[(old, new)]))


# -- the file system ---------------------------------------------------------------------------


def test_c62_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.index"
    lived().save(path)
    old = path.read_bytes()
    code = """
import resource, sys
import numpy as np
from riemem import RiemannianIndex
from riemem.errors import StoreError
index = RiemannianIndex(64)
index.add(np.random.default_rng(0).normal(size=(4000, 64)))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    index.save(sys.argv[1])
except StoreError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.startswith("path: cannot save the index at")
    assert "no space left" in done.stdout
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["a.index"]


@pytest.mark.parametrize("call", ["fsync", "replace", "pwrite"])
def test_an_error_of_the_system_leaves_the_old_file(tmp_path, monkeypatch, call):
    path = tmp_path / "a.index"
    lived().save(path)
    old = path.read_bytes()

    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(StoreError, match=r"^path: cannot save .*Input/output error"):
            RiemannianIndex(3).save(path)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["a.index"]


def test_short_writes_are_continued(tmp_path, monkeypatch):
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, part, at: write(file, part[:1000], at))
    lived().save(tmp_path / "a")
    same_answers(lived(), RiemannianIndex.load(tmp_path / "a"))


def test_a_killed_writer_leaves_the_old_file_and_its_litter_is_swept(tmp_path):
    path = tmp_path / "a.index"
    lived().save(path)
    old = path.read_bytes()
    code = """
import os, signal, sys
from riemem import RiemannianIndex
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
RiemannianIndex(3).save(sys.argv[1])
"""
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=120)
    assert done.returncode == -9
    assert path.read_bytes() == old
    assert len(os.listdir(tmp_path)) == 2
    same_answers(lived(), RiemannianIndex.load(path))
    assert os.listdir(tmp_path) == ["a.index"]


def test_many_savers_of_one_path(tmp_path):
    path = tmp_path / "a.index"
    indexes = [lived(ridge=float(i + 1)) for i in range(4)]
    errors: list[BaseException] = []

    def save(index):
        try:
            for _ in range(5):
                index.save(path)
                RiemannianIndex.load(path)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=save, args=(index,)) for index in indexes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert RiemannianIndex.load(path).metric.ridge in (1.0, 2.0, 3.0, 4.0)
    assert os.listdir(tmp_path) == ["a.index"]


def test_permissions_and_links_of_an_old_file_are_kept(tmp_path):
    path, link = tmp_path / "a.index", tmp_path / "link"
    lived().save(path)
    path.chmod(0o640)
    link.symlink_to("a.index")
    RiemannianIndex(3).save(link)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert RiemannianIndex.load(path).dim == 3


def test_what_is_not_a_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    index = RiemannianIndex(3)
    for name in ("fifo", "folder", "loop", "no/such", "x" * 300, "nul\0"):
        with pytest.raises(StoreError, match=r"^path: "):
            index.save(tmp_path / name)
    for name in ("loop", "nothing", "no/such", "nul\0"):
        with pytest.raises(InputFileError, match=r"^path: cannot open the index at"):
            RiemannianIndex.load(tmp_path / name)
    for name in ("fifo", "folder"):
        with pytest.raises(StoreCorruptError, match=r"^path: expected a file"):
            RiemannianIndex.load(tmp_path / name)
    for call in (index.save, RiemannianIndex.load):
        with pytest.raises(DTypeError, match=r"^path: expected a path, got int"):
            call(3)
    assert sorted(os.listdir(tmp_path)) == ["fifo", "folder", "loop"]

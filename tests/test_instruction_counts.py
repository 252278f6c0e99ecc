"""Instructions of three fixed searches against stored counts: a regression no clock can hide."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

STORED = Path(__file__).with_name("instruction_counts.json")
COUNTS: dict[str, dict[str, int]] = json.loads(STORED.read_text(encoding="utf-8"))
SEARCHES = ("float32-single", "int8-single", "int8-batch")


def build() -> Path:
    folder = os.environ.get("RIEMEM_NATIVE_BUILD")
    if not folder:
        pytest.skip("RIEMEM_NATIVE_BUILD names no native build (see CONTRIBUTING.md)")
    program = Path(folder, "riemem_instructions")
    if not program.is_file() or shutil.which("valgrind") is None:
        pytest.skip("needs an x86-64 native build and valgrind")
    return program


def compiler(program: Path) -> str:
    cache = (program.parent / "CMakeCache.txt").read_text(encoding="utf-8")
    found = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", cache, re.MULTILINE)
    assert found is not None
    version = subprocess.run([found[1], "--version"], capture_output=True, text=True, check=True)
    first = version.stdout.splitlines()[0]
    number = re.search(r"(\d+)\.\d+", first)
    assert number is not None
    return f"{'clang' if 'clang' in first else 'gcc'} {number[1]}"


def count(program: Path, search: str, folder: Path) -> int:
    out = folder / "callgrind.out"
    command = ["valgrind", "--tool=callgrind", "--toggle-collect=measured_search"]
    command += [f"--callgrind-out-file={out}", str(program), search]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1])


@pytest.mark.parametrize("search", SEARCHES)
def test_no_search_takes_five_percent_more_instructions(search: str, tmp_path: Path) -> None:
    program = build()
    stored = COUNTS.get(compiler(program))
    if stored is None:
        pytest.skip(f"no counts are stored for {compiler(program)}")
    counted = count(program, search, tmp_path)
    assert counted > 0
    assert counted <= 1.05 * stored[search], f"{search}: {counted} instructions"

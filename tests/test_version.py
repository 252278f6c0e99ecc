"""The version is written in one place, and everything that shows it reads it there."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest
import riemem
from riemem import _core

ROOT = Path(__file__).parents[1]


def written() -> str:
    found = re.findall(
        r'^version = "([^"]+)"$',
        (ROOT / "pyproject.toml").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert len(found) == 1
    return str(found[0])


def test_package_and_compiled_module_say_what_is_written() -> None:
    assert riemem.__version__ == _core.version == written()


def test_the_installed_package_says_the_same() -> None:
    try:
        installed = metadata.version("riemem")
    except metadata.PackageNotFoundError:
        pytest.skip("riemem runs from its folder, without being installed")
    assert installed == written()


def test_no_other_file_writes_it() -> None:
    names = ("CMakeLists.txt", "python/riemem/__init__.py", "csrc/bindings/bind_core.cpp")
    for name in names:
        assert written() not in (ROOT / name).read_text(encoding="utf-8"), name

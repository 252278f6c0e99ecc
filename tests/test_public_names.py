"""The names of the package exist, and asking for one imports no more than it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest
import riemem


def test_every_public_name_can_be_had() -> None:
    for name in riemem.__all__:
        assert getattr(riemem, name) is not None


def test_distill_can_be_called_whoever_imported_it_first() -> None:
    for first in ("riemem", "riemem.distill"):
        code = f"import riemem, {first}; assert callable(riemem.distill), riemem.distill"
        subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_riemem_imports_nothing_heavy() -> None:
    code = (
        "import riemem, sys\n"
        "heavy = {'torch', 'transformers', 'click', 'cupy', 'sqlite3', 'riemem.memory'}\n"
        "heavy |= {'mcp', 'pydantic', 'langchain_core', 'langgraph', 'llama_index', 'sklearn'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        riemem.no_such_name  # noqa: B018

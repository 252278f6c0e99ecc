"""The ``riemem`` command: everything it does is in :mod:`riemem._cli`, which needs Click."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["main"]

_NEEDS_CLICK = (
    "riemem: error: the command line needs the package 'click', which is not installed\n"
    "riemem: hint: pip install 'riemem[text]'\n"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The words after ``riemem``; by default those of this process.

    Returns
    -------
    int
        0 done, 1 the user's input is at fault, 2 usage, 3 the store or a model is at fault,
        130 interrupted, 141 the reader of our output went away.

    Examples
    --------
    >>> main(["purgee"])
    2
    """
    try:
        from ._cli.app import run
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.stderr.write(_NEEDS_CLICK)
        return 3
    return run(argv)


def __getattr__(name: str) -> Any:
    """Return the Click group as ``riemem.cli.cli``, for tools that read it (and for tests)."""
    if name == "cli":
        from ._cli.app import cli

        return cli
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    sys.exit(main())

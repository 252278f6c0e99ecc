"""The command group, and the one place where failures become messages and exit codes."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from .. import errors
from . import (
    answer,
    atoms,
    distill,
    doubts,
    evaluate,
    finding,
    late,
    lives,
    mcp,
    memories,
    models,
    plots,
    transfer,
    upkeep,
)
from .output import to_json

__all__ = ["cli", "run"]

USER, USAGE, MACHINE, INTERRUPTED, READER_GONE = 1, 2, 3, 130, 141

# What is the store's, the model's or the machine's fault; every other RiememError is about input.
_MACHINE_ERRORS = (
    errors.StoreError,
    errors.ModelNotFoundError,
    errors.ModelCorruptError,
    errors.BackendUnavailableError,
    errors.CudaError,
    errors.DeviceError,
    errors.VramBudgetError,
    errors.OutputFileError,
)

_HINTS: tuple[tuple[type[BaseException], str], ...] = (
    (errors.EmbedderMismatchError, "--embedder NAME gives the one that filled the store"),
    (errors.ModelNotFoundError, "riemem models pull"),
    (errors.ModelCorruptError, "riemem models verify"),
    (errors.StoreCorruptError, "riemem check --store FILE says what is damaged"),
    (errors.SchemaVersionError, "pip install --upgrade riemem"),
    (errors.StoreLockedError, "another process is writing; try again, or --timeout SECONDS"),
    (errors.MemoryNotFoundError, "riemem list shows the ids"),
    (errors.BudgetTooSmallError, "a larger --budget"),
)


class Commands(click.Group):
    """A group that ends every run with the exit codes of the documentation."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one command; in standalone mode leave the process with its exit code."""
        argv = list(sys.argv[1:] if args is None else args)
        code = self._guarded(argv, prog_name or "riemem", complete_var, extra)
        if standalone_mode:
            sys.exit(code)
        return code

    def _guarded(
        self, argv: list[str], prog_name: str, complete_var: str | None, extra: dict[str, Any]
    ) -> int:
        report = _Report("--json" in argv)
        try:
            result = super().main(
                argv, prog_name=prog_name, complete_var=complete_var, standalone_mode=False, **extra
            )
            sys.stdout.flush()
        except click.exceptions.Abort:
            return report.failed("Interrupted", "interrupted", INTERRUPTED)
        except click.UsageError as error:
            return report.usage(error)
        except click.ClickException as error:
            return report.failed(type(error).__name__, error.format_message(), USER)
        except BrokenPipeError:
            _drop_stdout()
            return READER_GONE
        except errors.RiememError as error:
            code = MACHINE if isinstance(error, _MACHINE_ERRORS) else USER
            return report.failed(type(error).__name__, str(error), code, _hint(error))
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "riemem":
                raise  # a fault of ours, which deserves its traceback
            message = f"this command needs the package {error.name!r}, which is not installed"
            bringing = "mcp" if (error.name or "").partition(".")[0] == "mcp" else "text"
            return report.failed(
                type(error).__name__, message, MACHINE, f"pip install 'riemem[{bringing}]'"
            )
        except OSError as error:
            return report.failed(type(error).__name__, str(error), MACHINE)
        return result if isinstance(result, int) else 0

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader that went away is told apart from Click's exit code 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _drop_stdout()
            raise click.exceptions.Exit(READER_GONE) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is a usage error that names the nearest."""
        import difflib

        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {name!r}.{meant}", ctx)
        return super().resolve_command(ctx, args)


class _Report:
    """Writes a failure to stderr: one line and a hint, or one JSON document."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def failed(self, kind: str, message: str, code: int, hint: str = "") -> int:
        message = " ".join(message.split())
        if hint and hint in message:
            hint = ""
        if self.as_json:
            body = {"type": kind, "message": message, "exit_code": code}
            text = to_json({"error": body | ({"hint": hint} if hint else {})})
        else:
            text = f"riemem: error: {message}" + (f"\nriemem: hint: {hint}" if hint else "")
        # stderr may be gone as well, and then nobody is left to be told.
        with contextlib.suppress(BrokenPipeError):
            click.echo(text, err=True)
        return code

    def usage(self, error: click.UsageError) -> int:
        asked_for_nothing = getattr(click.exceptions, "NoArgsIsHelpError", None)
        if asked_for_nothing and isinstance(error, asked_for_nothing) and not self.as_json:
            error.show()
            return USAGE
        path = error.ctx.command_path if error.ctx else "riemem"
        return self.failed("UsageError", error.format_message(), USAGE, f"{path} --help")


def _hint(error: BaseException) -> str:
    own = getattr(error, "hint", "")
    if own:
        return str(own)
    return next((text for kind, text in _HINTS if isinstance(error, kind)), "")


def _drop_stdout() -> None:
    """Send what is still buffered nowhere, so that shutting down does not fail a second time."""
    with contextlib.suppress(OSError, ValueError, io.UnsupportedOperation):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _version() -> str:
    import riemem

    return str(riemem.__version__)


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"riemem {_version()}")
        ctx.exit()


@click.group(
    "riemem",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Long-term memory on your own machine: one SQLite file, no cloud, no key.

    \b
    Exit codes: 0 done, 1 your input, 2 usage, 3 the store or a model.
    Every command takes --json: one JSON document on standard output.
    """


for _command in (
    *memories.COMMANDS,
    *finding.COMMANDS,
    *lives.COMMANDS,
    *upkeep.COMMANDS,
    *late.COMMANDS,
    *transfer.COMMANDS,
    *models.COMMANDS,
    *atoms.COMMANDS,
    *plots.COMMANDS,
    *doubts.COMMANDS,
    *answer.COMMANDS,
    *distill.COMMANDS,
    *evaluate.COMMANDS,
    *mcp.COMMANDS,
):
    cli.add_command(_command)


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command of this process and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a console that cannot show a character
            stream.reconfigure(errors="backslashreplace")
    return int(cli.main(argv, standalone_mode=False))

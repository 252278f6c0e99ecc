"""Options that several commands share, and how the store they name is opened."""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import RiememError, StoreError, StoreReadOnlyError
from ..store.times import parse_instant

if TYPE_CHECKING:
    from ..embed import Embedder
    from ..memory import Memory

    _TextParam = click.ParamType[str]
else:
    _TextParam = click.ParamType  # generic only in newer versions of Click

__all__ = [
    "INSTANT",
    "MissingStoreError",
    "Opener",
    "archived_option",
    "budget_option",
    "default_store",
    "json_option",
    "load_embedder",
    "pairs",
    "scope_options",
    "with_store",
]

F = TypeVar("F", bound=Callable[..., Any])

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class MissingStoreError(StoreError):
    """A command that only reads or changes memories was given a file that does not exist."""

    hint = 'riemem add "some text" makes a store; --store FILE or RIEMEM_STORE names one'


class NoFolderError(StoreReadOnlyError):
    """The default store has no place here, such as a home that may not be written to."""

    hint = "--store FILE or RIEMEM_STORE names another place"


class Instant(_TextParam):
    """An ISO 8601 instant with an offset, or a plain date, which stands for all of that UTC day."""

    name = "instant"

    def __init__(self, time_of_day: str) -> None:
        self.time_of_day = time_of_day

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the instant as text with an offset, or fail as a usage error."""
        text = str(value)
        if _DAY.fullmatch(text):
            text = f"{text}T{self.time_of_day}+00:00"
        try:
            parse_instant(text, "instant")
        except RiememError as error:
            self.fail(str(error).removeprefix("instant: "), param, ctx)
        return text


INSTANT = Instant("00:00:00")
LAST_INSTANT = Instant("23:59:59.999999")


def default_store() -> Path:
    """Return the store used when neither ``--store`` nor ``RIEMEM_STORE`` names one."""
    try:
        import platformdirs
    except ModuleNotFoundError:  # it belongs to riemem[text], and get, list and stats need less
        return _plain_data_dir() / "memory.db"
    return Path(platformdirs.user_data_dir("riemem", appauthor=False)) / "memory.db"


def _plain_data_dir() -> Path:
    """Return what platformdirs would."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "riemem"
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return (Path(base) if base else Path.home() / "AppData" / "Local") / "riemem"
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "riemem"


def load_embedder(spec: str | None) -> Embedder | None:
    """Return the embedder that ``--embedder`` names; None leaves the choice to the library."""
    if spec is None or spec == "minilm":
        return None
    from .. import embed

    name, _, dim = spec.partition(":")
    if name != "hashing":
        return embed.load_embedder(spec)
    if dim and not re.fullmatch(r"[1-9]\d{0,4}", dim, re.ASCII):
        raise click.BadParameter(
            f"expected hashing or hashing:DIM, got {spec!r}", param_hint="'--embedder'"
        )
    return embed.HashingEmbedder(dim=int(dim)) if dim else embed.HashingEmbedder()


@dataclass(frozen=True)
class Opener:
    """Where the store is and how it is to be opened."""

    path: Path
    is_default: bool
    profile: str
    embedder: str | None
    timeout: float
    create: bool
    readonly: bool

    def require(self) -> None:
        """Raise if there is no store; SQLite's own message for this is "unable to open"."""
        if not self.path.exists():
            raise MissingStoreError(f"store: no such file: {self.path}")

    def open(self, *, adaptive: bool = False) -> Memory:
        """Open the store; only a command that adds may make a new one."""
        from ..memory import Memory

        if not self.create:
            self.require()
        elif self.is_default:
            self._make_folder()
        return Memory.open(
            self.path,
            embedder=load_embedder(self.embedder),
            profile=self.profile,
            readonly=self.readonly,
            timeout=self.timeout,
            create=self.create,
            adaptive=adaptive,
        )

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NoFolderError(
                f"store: the folder {self.path.parent} cannot be made: {error.strerror}"
            ) from error

    def open_if_writable(self) -> Memory:
        """Open for writing if that is possible, for what can be done without."""
        from ..errors import StoreError

        try:
            return replace(self, readonly=False).open()
        except StoreError:
            return self.open()  # says what is wrong if it is not only that writing is impossible


def embedder_option(function: F) -> F:
    """Add ``--embedder``."""
    return click.option(
        "--embedder",
        envvar="RIEMEM_EMBEDDER",
        metavar="NAME",
        help="minilm (the default), a model folder, an id in the local Hugging Face cache, or "
        "hashing[:DIM]: no model, finds shared words only, for tests and machines without one.",
    )(function)


def budget_option(default: int) -> Callable[[F], F]:
    """Add ``--budget``, the most tokens of a context."""
    return click.option(
        "--budget",
        "--token-budget",
        "token_budget",
        type=click.IntRange(min=1),
        default=default,
        show_default=True,
        help="Most tokens of the context; never exceeded.",
    )


def archived_option(function: F) -> F:
    """Add ``--archived``."""
    return click.option(
        "--archived", is_flag=True, help="Also memories that `riemem maintain` archived."
    )(function)


def json_option(function: F) -> F:
    """Add ``--json``."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document instead of text."
    )(function)


def with_store(
    *, create: bool = False, readonly: bool = False
) -> Callable[[F], Callable[..., Any]]:
    """Add the options that name the store; the command gets an `Opener` as first argument."""

    def decorate(function: F) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(
            *,
            store: str | None,
            profile: str,
            embedder: str | None,
            timeout: float,
            **rest: Any,
        ) -> Any:
            path = default_store() if store is None else Path(store)
            opener = Opener(path, store is None, profile, embedder, timeout, create, readonly)
            return function(opener, **rest)

        for option in reversed(
            (
                click.option(
                    "--store",
                    envvar="RIEMEM_STORE",
                    metavar="FILE",
                    type=click.Path(dir_okay=True),
                    help="The store. Default: memory.db in the user's data folder.",
                ),
                click.option(
                    "--profile",
                    envvar="RIEMEM_PROFILE",
                    default="default",
                    show_default=True,
                    help="Whose memories; profiles never see each other.",
                ),
                embedder_option,
                click.option(
                    "--timeout",
                    type=click.FloatRange(min=0, max=86_400),
                    default=5.0,
                    show_default=True,
                    metavar="SECONDS",
                    help="How long to wait for a store that another process is writing.",
                ),
                json_option,
            )
        ):
            command = option(command)
        return command

    return decorate


def scope_options(function: F) -> Callable[..., Any]:
    """Add the options that narrow a call; the command gets ``session`` and ``filters``."""

    @functools.wraps(function)
    def command(
        *,
        session: str | None,
        speaker: str | None,
        filter_pairs: tuple[str, ...],
        since: str | None,
        until: str | None,
        **rest: Any,
    ) -> Any:
        filters = _filters(filter_pairs)
        for key, value in (("speaker", speaker), ("since", since), ("until", until)):
            if value is not None:
                filters[key] = value
        return function(session=session, filters=filters or None, **rest)

    narrowed: Callable[..., Any] = command
    for option in reversed(
        (
            click.option("--session", help="Only this session."),
            click.option("--speaker", help="Only what this speaker said."),
            click.option(
                "--filter",
                "filter_pairs",
                multiple=True,
                metavar="KEY=VALUE",
                help="Only memories whose metadata hold this; repeat for several.",
            ),
            click.option("--since", type=INSTANT, help="Only from this instant or day on."),
            click.option("--until", type=LAST_INSTANT, help="Only up to this instant or day."),
        )
    ):
        narrowed = option(narrowed)
    return narrowed


def pairs(given: tuple[str, ...], option: str) -> dict[str, Any]:
    """Return ``KEY=VALUE`` words as a dict; a value that is JSON is read as JSON, else as text."""
    return {key: _value(text) for key, text in _split(given, option)}


def _split(given: tuple[str, ...], option: str) -> list[tuple[str, str]]:
    found = []
    for pair in given:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"expected KEY=VALUE, got {pair!r}", param_hint=f"'{option}'")
        found.append((key, text))
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text


def _filters(given: tuple[str, ...]) -> dict[str, Any]:
    """Return ``--filter`` pairs; ``2024`` matches both the number and the text."""
    filters: dict[str, Any] = {}
    wanted: dict[str, list[Any]] = {}
    for key, text in _split(given, "--filter"):
        value = _value(text)
        if key in ("speaker", "session", "since", "until"):
            filters[key] = text
        elif isinstance(value, (list, Mapping)):
            filters[key] = value
        elif key in wanted:
            raise click.BadParameter(
                f"{key!r} is given twice; for any of several values: {key}='[1, 2]'",
                param_hint="'--filter'",
            )
        else:
            wanted[key] = [value] if value == text else [value, text]
    for key, values in wanted.items():
        filters[key] = values if len(values) > 1 else values[0]
    return filters

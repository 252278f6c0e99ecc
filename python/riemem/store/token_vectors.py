"""The vectors of memories' tokens, where a store keeps them.

A new store does from its first memory on, unless it was told not to. Whether it does stands in the
file, so that every process that writes a memory writes its rows in the same transaction. A memory
may be without: an embedder that gives no tokens, vectors that came ready made, a filling that was
stopped. Rows go with the vectors of their memory (by a trigger).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from riemem.errors import RiememError
from riemem.store.records import shown_ids
from riemem.store.sqlite import (
    Identity,
    Store,
    Transaction,
    get_meta,
    has_table,
    read_identity,
    require_identity,
    set_meta,
)

__all__ = ["MOST_ROWS", "KeepsTokens", "Kept", "LateInteraction", "Tokens", "Unfilled"]
__all__ += [
    "begin_keeping",
    "begin_with",
    "check_token_vectors",
    "fill_rows",
    "kept_form",
    "late_interaction",
]
__all__ += [
    "may_begin",
    "of_embedder",
    "repair_token_vectors",
    "stop_keeping",
    "token_rows_of",
    "unfilled",
]
__all__ += ["write_rows"]

_KEY = "token vectors"
#: The record of a store that was told to keep none.
_OFF = "off"
#: Rows of a memory; what is said after so many words is not compared word by word.
MOST_ROWS = 255


class KeepsTokens(RiememError):
    """The store keeps token vectors since a moment ago, and the memories came without."""


@dataclass(frozen=True)
class Kept:
    """What a store keeps: the form of the rows, their size in bytes, and whose they are."""

    form: str
    row_bytes: int
    embedder: str


@dataclass(frozen=True)
class Tokens:
    """Rows of memories that are about to be written; None for one that has none.

    With `begin` a store whose first memories these are keeps such rows from then on, unless it was
    told to keep none.
    """

    form: str
    row_bytes: int
    rows: Sequence[bytes | None]
    begin: bool = False

    def of(self, positions: Sequence[int]) -> Tokens:
        """Those of some of the memories."""
        return replace(self, rows=[self.rows[i] for i in positions])


@dataclass(frozen=True)
class LateInteraction:
    """Whether a store keeps the vectors of tokens, and for how many of its memories.

    Attributes
    ----------
    on : bool
    memories, missing : int
        How many memories, of any profile, have them and have not.
    bytes : int
        Their size.
    form : str or None
        How they are made.
    """

    on: bool
    memories: int
    missing: int
    bytes: int
    form: str | None


class Unfilled(NamedTuple):
    """A memory without token vectors."""

    id: int
    revision: int
    text: str
    speaker: str | None
    metadata: str


def kept_form(connection: sqlite3.Connection) -> Kept | None:
    """Return what the store keeps, or None; also None where the record cannot be read."""
    record = get_meta(connection, _KEY)
    return None if record is None else _read(record)


def may_begin(store: Store) -> bool:
    """Whether the store never held anything, and was not told what to keep."""
    with store.reading() as connection:
        return read_identity(connection) is None and get_meta(connection, _KEY) is None


def begin_with(connection: sqlite3.Connection, identity: Identity, tokens: Tokens | None) -> None:
    """Record that a store keeps tokens like these, which come with its first memories."""
    if tokens is not None and tokens.begin and get_meta(connection, _KEY) is None:
        _write(connection, Kept(tokens.form, tokens.row_bytes, identity.embedder))


def _read(record: object) -> Kept | None:
    try:
        found: Any = json.loads(str(record))
        kept = Kept(str(found["form"]), int(found["row_bytes"]), str(found["embedder"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return kept if kept.row_bytes > 0 else None


def _write(connection: sqlite3.Connection, kept: Kept) -> None:
    record = {"form": kept.form, "row_bytes": kept.row_bytes, "embedder": kept.embedder}
    set_meta(connection, _KEY, json.dumps(record))


def late_interaction(connection: sqlite3.Connection) -> LateInteraction:
    """Return the state of the whole file."""
    kept = kept_form(connection)
    total = int(connection.execute("SELECT count(*) FROM memories").fetchone()[0])
    count = size = 0
    if has_table(connection, "token_vectors"):
        count, size = connection.execute(
            "SELECT count(*), coalesce(sum(length(data)), 0) FROM token_vectors"
        ).fetchone()
    form = None if kept is None else kept.form
    return LateInteraction(kept is not None, count, total - count, size, form)


def token_rows_of(connection: sqlite3.Connection, ids: Iterable[int]) -> dict[int, bytes]:
    """Return the rows of those of the memories with these ids that have any."""
    if not has_table(connection, "token_vectors"):
        return {}
    return dict(
        connection.execute(
            "SELECT memory_id, data FROM token_vectors "
            "WHERE memory_id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        )
    )


def begin_keeping(store: Store, kept: Kept, identity: Identity) -> None:
    """Record that the store keeps them; rows of another form or embedder go.

    Raises
    ------
    EmbedderMismatchError, StoreLockedError, StoreReadOnlyError
    """
    with store.writing() as transaction:
        connection = transaction.connection
        require_identity(connection, identity, store.path)
        if kept_form(connection) != kept:
            connection.execute("DELETE FROM token_vectors")
            _write(connection, kept)


def stop_keeping(transaction: Transaction) -> int:
    """Record that none are kept, remove all rows, and return of how many memories."""
    connection = transaction.connection
    count = connection.execute("DELETE FROM token_vectors").rowcount
    set_meta(connection, _KEY, _OFF)
    if count:
        set_meta(connection, "erasing", transaction.revision)
    return count


def write_rows(transaction: Transaction, ids: Sequence[int], tokens: Tokens | None) -> None:
    """Write the rows of memories, if the store keeps such rows.

    Parameters
    ----------
    ids : sequence of int
        As many as there are rows.
    tokens : Tokens or None
        None: none were made, because the store kept none.

    Raises
    ------
    KeepsTokens
        It keeps some now; the transaction must be undone, and begun again with them.
    """
    kept = kept_form(transaction.connection)
    if kept is None:
        return
    if tokens is None:
        raise KeepsTokens("the store keeps token vectors since a moment ago; write again with them")
    if tokens.form == kept.form:
        transaction.connection.executemany(
            "INSERT OR REPLACE INTO token_vectors (memory_id, data) VALUES (?, ?)",
            [(i, row) for i, row in zip(ids, tokens.rows, strict=True) if row is not None],
        )


def unfilled(connection: sqlite3.Connection, after: int, limit: int) -> list[Unfilled]:
    """Return memories that have no rows, with ids above `after`, ascending."""
    rows = connection.execute(
        "SELECT id, revision, text, speaker, metadata FROM memories WHERE id > ? AND NOT EXISTS "
        "(SELECT 1 FROM token_vectors WHERE memory_id = memories.id) ORDER BY id LIMIT ?",
        (after, limit),
    )
    return [Unfilled(*row) for row in rows]


def fill_rows(store: Store, turns: Sequence[Unfilled], tokens: Tokens, kept: Kept) -> bool:
    """Write the rows of memories that did not change since; False if others are kept by now."""
    with store.writing(advance=False) as transaction:
        connection = transaction.connection
        if kept_form(connection) != kept:
            return False
        connection.executemany(
            "INSERT OR REPLACE INTO token_vectors (memory_id, data) "
            "SELECT id, ? FROM memories WHERE id = ? AND revision = ?",
            [
                (row, turn.id, turn.revision)
                for turn, row in zip(turns, tokens.rows, strict=True)
                if row is not None
            ],
        )
    return True


def of_embedder(
    connection: sqlite3.Connection, identity: Identity, tokens: Tokens | None = None
) -> None:
    """Record whose tokens the store keeps from now on, if it keeps any; all others go."""
    kept = kept_form(connection)
    if kept is not None:
        made = kept if tokens is None else tokens
        new = Kept(made.form, made.row_bytes, identity.embedder)
        if new != kept:
            connection.execute("DELETE FROM token_vectors")
            _write(connection, new)


def check_token_vectors(connection: sqlite3.Connection) -> list[str]:
    """Return what is wrong with the rows; that some memories have none is not."""
    if not has_table(connection, "token_vectors"):
        return []
    record = get_meta(connection, _KEY)
    kept = kept_form(connection)
    problems = []
    if record not in (None, _OFF) and kept is None:
        problems.append("token vectors: what is kept cannot be read")
    if kept is None:
        if connection.execute("SELECT 1 FROM token_vectors LIMIT 1").fetchone():
            problems.append("token vectors: there are some, but the store keeps none")
        return problems
    identity = read_identity(connection)
    if identity is not None and identity.embedder != kept.embedder:
        problems.append(
            f"token vectors: of the embedder {kept.embedder}, the store's is {identity.embedder}"
        )
    wrong = _wrong_sizes(connection, kept)
    if wrong:
        problems.append(f"token vectors: size: {shown_ids(wrong)}")
    return problems


def repair_token_vectors(connection: sqlite3.Connection) -> None:
    """Remove what check finds wrong; who has the embedder can make it again."""
    connection.execute("DELETE FROM token_vectors WHERE memory_id NOT IN (SELECT id FROM memories)")
    kept, identity = kept_form(connection), read_identity(connection)
    if kept is None:
        connection.execute("DELETE FROM token_vectors")
        if get_meta(connection, _KEY) != _OFF:
            set_meta(connection, _KEY, None)
        return
    if identity is not None and identity.embedder != kept.embedder:
        of_embedder(connection, identity)
    connection.executemany(
        "DELETE FROM token_vectors WHERE memory_id = ?",
        [(memory_id,) for memory_id in _wrong_sizes(connection, kept)],
    )


def _wrong_sizes(connection: sqlite3.Connection, kept: Kept) -> list[int]:
    rows = connection.execute(
        "SELECT memory_id FROM token_vectors WHERE length(data) % ?1 <> 0 "
        "OR length(data) > ?1 * ?2 ORDER BY memory_id",
        (kept.row_bytes, MOST_ROWS),
    )
    return [row[0] for row in rows]

"""Keeping the vectors of memories' tokens in a store: when they are made, and for whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from riemem.errors import ArgumentError, ModelNotFoundError
from riemem.retrieval.embedding import Progress, TurnEmbedder, TurnLike
from riemem.retrieval.token_rows import FORM, ROW_BYTES
from riemem.store import Store, writes
from riemem.store.sqlite import read_identity
from riemem.store.token_vectors import (
    KeepsTokens,
    Kept,
    LateInteraction,
    Tokens,
    begin_keeping,
    fill_rows,
    kept_form,
    late_interaction,
    may_begin,
    stop_keeping,
    unfilled,
)

__all__ = ["embed_and_write", "fill_tokens", "keep_tokens", "keeps_tokens", "leave_tokens"]
__all__ += ["other_form", "refill_tokens", "tokens_of"]

R = TypeVar("R")

#: Memories whose tokens are made and written together; what is written stays when a filling stops.
_PART = 64


def keeps_tokens(store: Store) -> bool:
    """Whether the store keeps them."""
    with store.reading() as connection:
        return kept_form(connection) is not None


def tokens_of(rows: Sequence[bytes | None], *, begin: bool = False) -> Tokens:
    """Return the rows that :meth:`TurnEmbedder.embed_turns` made, as a store takes them."""
    return Tokens(FORM, ROW_BYTES, rows, begin)


def embed_and_write(
    store: Store,
    embedder: TurnEmbedder,
    turns: Sequence[TurnLike],
    progress: Progress | None,
    write: Callable[[list[list[bytes]], Tokens | None], R],
) -> R | None:
    """Embed turns and write them, with their tokens where the store keeps those.

    A store that never held anything begins to, where the embedder gives tokens that are worth it.

    Parameters
    ----------
    write : callable
        ``write(blobs, tokens)``; raises KeepsTokens where the store began to keep them since, and
        then it is called again.

    Returns
    -------
    What `write` returned, or None where `progress` said False; nothing was written then.
    """
    begin = may_begin(store) and embedder.tokens_by_default()
    kept = begin or keeps_tokens(store)
    while True:
        rows: list[bytes | None] | None = [] if kept else None
        blobs = embedder.embed_turns(turns, progress, tokens=rows)
        if blobs is None:
            return None
        try:
            return write(blobs, None if rows is None else tokens_of(rows, begin=begin))
        except KeepsTokens:
            kept = True


def keep_tokens(
    store: Store, embedder: TurnEmbedder, progress: Progress | None = None
) -> LateInteraction:
    """Keep the tokens of all memories from now on, and make those that are missing.

    Raises
    ------
    ArgumentError
        The embedder gives no tokens.
    EmbedderMismatchError, ModelNotFoundError, StoreLockedError, StoreReadOnlyError
    """
    store.check_writable()
    if not embedder.gives_tokens():
        raise ArgumentError(
            "embedder: expected one that gives the vectors of tokens (embed_with_tokens), got "
            f"{embedder.identity().embedder}"
        )
    identity = embedder.identity()
    begin_keeping(store, Kept(FORM, ROW_BYTES, identity.embedder), identity)
    fill_tokens(store, embedder, progress)
    with store.reading() as connection:
        return late_interaction(connection)


def fill_tokens(store: Store, embedder: TurnEmbedder, progress: Progress | None = None) -> int:
    """Make the tokens that are missing, where the store keeps any; return of how many memories.

    What was written stays where `progress` says False, and so does the rest: the next call goes on.
    """
    with store.reading() as connection:
        kept = kept_form(connection)
        total = late_interaction(connection).missing
    if total == 0:
        return 0
    done, after = 0, 0
    while kept == Kept(FORM, ROW_BYTES, embedder.identity().embedder):
        if progress is not None and progress(done, max(total, done)) is False:
            break
        with store.reading() as connection:
            turns = unfilled(connection, after, _PART)
        if not turns:
            break
        rows: list[bytes | None] = []
        said: list[TurnLike] = [(turn.text, turn.speaker, None, turn.metadata) for turn in turns]
        embedder.embed_turns(said, tokens=rows)
        if not fill_rows(store, turns, tokens_of(rows), kept):
            break
        done, after = done + len(turns), turns[-1].id
    return done


def refill_tokens(store: Store, embedder: TurnEmbedder, progress: Progress | None = None) -> int:
    """Make what is missing or of another form, where that is possible here; else it only goes."""
    with store.reading() as connection:
        kept, identity = kept_form(connection), read_identity(connection)
    if kept is None or identity is None:
        return 0
    begin_keeping(store, Kept(FORM, ROW_BYTES, identity.embedder), identity)
    try:
        return fill_tokens(store, embedder, progress) if embedder.gives_tokens() else 0
    except ModelNotFoundError:
        return 0


def leave_tokens(store: Store) -> LateInteraction:
    """Erase all of them, and keep none from now on.

    Raises
    ------
    StoreLockedError, StoreReadOnlyError
    """
    with store.writing() as transaction:
        count = stop_keeping(transaction)
    if count:
        writes.resume_erasure(store)
    with store.reading() as connection:
        return late_interaction(connection)


def other_form(store: Store) -> list[str]:
    """Return, as a problem, that the rows are of a form that this riemem does not read."""
    with store.reading() as connection:
        kept = kept_form(connection)
        if kept is None or (kept.form, kept.row_bytes) == (FORM, ROW_BYTES):
            return []
    return [
        f"token vectors: of the form {kept.form!r}, this riemem makes {FORM!r}; "
        "`riemem late-interaction on` makes them again"
    ]

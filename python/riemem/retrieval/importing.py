"""Taking in an export: all of it or nothing, with its vectors where they can be used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from riemem.errors import CancelledError, EmbedderMismatchError, ModelNotFoundError
from riemem.foreign.reading import Foreign, Skipped
from riemem.retrieval.embedding import MAX_CHUNKS, Progress, TurnEmbedder
from riemem.retrieval.token_keeping import embed_and_write, keeps_tokens, tokens_of
from riemem.retrieval.token_rows import FORM, ROW_BYTES
from riemem.store import Store
from riemem.store.exchange import Incoming, Parcel
from riemem.store.sqlite import Identity, require_identity
from riemem.store.token_vectors import KeepsTokens, Tokens, may_begin
from riemem.store.writes import Origin, already_there, insert, never_held_any

__all__ = ["ForeignImport", "Imported", "foreign_receipt", "import_parcel"]


@dataclass(frozen=True)
class Imported:
    """Receipt of an import.

    Attributes
    ----------
    memories : int
        How many were stored (with ``dry_run``: would be).
    skipped : int
        How many were there already, by key or, if wanted, by what they say.
    ids : dict of int to int
        The id of each memory in the file, and in this store. Empty for a dry run into a store
        where the ids cannot be kept.
    ids_kept : bool
        Whether they are all the same, which they are where this store never held a memory.
    embedded : int
        How many were embedded again, because the file holds no vectors of this store's embedder.
    dry_run : bool
        Nothing was stored.
    """

    memories: int
    skipped: int
    ids: dict[int, int]
    ids_kept: bool
    embedded: int
    dry_run: bool


@dataclass(frozen=True)
class ForeignImport:
    """Receipt of an import from another tool.

    Attributes
    ----------
    source : str
        What wrote the file.
    memories : int
        How many were stored (with ``dry_run``: would be).
    already_there : int
        How many were there already, by key or, if wanted, by what they say.
    skipped : tuple
        Parts of the file that were left out: ``.where`` and ``.reason``.
    notes : tuple of str
        Remarks about the file as a whole.
    ids : tuple of int
        The memories of the file, in its order; empty for a dry run where they cannot be known.
    dry_run : bool
        Nothing was stored.
    """

    source: str
    memories: int
    already_there: int
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]
    ids: tuple[int, ...]
    dry_run: bool


def foreign_receipt(source: str, found: Foreign, done: Imported) -> ForeignImport:
    """Join what was read from a foreign file with what became of it."""
    return ForeignImport(
        source=source,
        memories=done.memories,
        already_there=done.skipped,
        skipped=found.skipped,
        notes=found.notes,
        ids=tuple(done.ids.values()),
        dry_run=done.dry_run,
    )


def import_parcel(
    store: Store,
    embedder: TurnEmbedder,
    parcel: Parcel,
    *,
    skip_duplicates: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    read_claims: bool = True,
) -> Imported:
    """Store the memories of an export in one transaction.

    Parameters
    ----------
    store : Store
    embedder : TurnEmbedder
        Used only where the vectors in the file are not of this store's embedder.
    parcel : Parcel
    skip_duplicates : bool
        Leave out what repeats a memory in everything it says.
    dry_run : bool
        Only say what would be done.
    progress : callable, optional
        ``progress(done, total)`` in memories embedded; returning False stops.
    read_claims : bool
        As for :func:`riemem.store.writes.insert`.

    Raises
    ------
    CancelledError
        `progress` returned False; nothing was stored.
    EmbedderMismatchError, ModelNotFoundError
    """
    if not dry_run:
        store.check_writable()
    drafts = [item.draft for item in parcel.memories]
    known = already_there(store, drafts, skip_duplicates=skip_duplicates)
    fresh = [item for i, item in enumerate(parcel.memories) if i not in known]
    kept = never_held_any(store)
    identity = _usable(store, embedder, parcel.identity)
    again = identity is None and bool(fresh)
    ids = {parcel.memories[i].id: found for i, found in known.items()}
    if dry_run:
        if kept:
            ids |= {item.id: item.id for item in fresh}
        sure = ids if kept or not fresh else {}
        kept = kept or (bool(sure) and all(a == b for a, b in sure.items()))
        return _receipt(sure, kept, len(fresh), known, again, True)
    if identity is None and fresh:
        identity = embedder.identity()
        with store.reading() as connection:
            require_identity(connection, identity, store.path)
    if fresh and identity is not None:
        owner = identity

        def write(blobs: Sequence[Sequence[bytes]], tokens: Tokens | None) -> list[int]:
            return insert(
                store,
                [item.draft for item in fresh],
                blobs,
                owner,
                skip_duplicates=skip_duplicates,
                origins=[Origin(item.id, item.created_at, item.updated_at) for item in fresh],
                read_claims=read_claims,
                tokens=tokens,
            )

        given = None if again else owner
        stored = _store(store, embedder, fresh, given, parcel, progress, write)
        ids |= {item.id: new for item, new in zip(fresh, stored, strict=True)}
    count = len(set(ids.values()) - set(known.values()))
    return _receipt(ids, all(a == b for a, b in ids.items()), count, known, again, False)


def _receipt(
    ids: dict[int, int],
    kept: bool,
    count: int,
    known: dict[int, int],
    again: bool,
    dry_run: bool,
) -> Imported:
    skipped = len(known) if dry_run else len(ids) - count
    return Imported(
        memories=count,
        skipped=skipped,
        ids=dict(sorted(ids.items())),
        ids_kept=kept,
        embedded=count if again else 0,
        dry_run=dry_run,
    )


def _usable(store: Store, embedder: TurnEmbedder, given: Identity | None) -> Identity | None:
    """The identity of the vectors in the file, if they may be stored here as they are."""
    if given is None:
        return None
    stored = store.identity()
    if stored is not None:
        return given if given == stored else None
    try:
        return given if embedder.identity() == given else None
    except ModelNotFoundError:
        # Nothing here can embed, and the store has no vectors yet: those of the file are all there
        # is, and a search will ask for their embedder by name.
        return given


def _store(
    store: Store,
    embedder: TurnEmbedder,
    fresh: Sequence[Incoming],
    owner: Identity | None,
    parcel: Parcel,
    progress: Progress | None,
    write: Callable[[Sequence[Sequence[bytes]], Tokens | None], list[int]],
) -> list[int]:
    """Write what came, with tokens where the store keeps some.

    `owner` is whose vectors came with it; None: they are made. A new store keeps tokens if the file
    brings them: to make them would take as long as to embed every text.
    """
    stopped = CancelledError("import: stopped by progress; nothing was stored")
    turns = [(d.text, d.speaker, d.when, d.metadata) for d in (item.draft for item in fresh)]
    if owner is None:
        stored = embed_and_write(store, embedder, turns, progress, write)
        if stored is None:
            raise stopped
        return stored
    given = _given(fresh)
    rows: list[bytes | None] = []
    brought = (parcel.form, parcel.row_bytes) == (FORM, ROW_BYTES)
    begin = brought and may_begin(store)
    if (kept := begin or keeps_tokens(store)) and not brought and _gives_tokens(embedder, owner):
        # The vectors of the file stay as they are, bit for bit.
        if embedder.embed_turns(turns, progress, tokens=rows) is None:
            raise stopped
    else:
        rows = [item.tokens if brought else None for item in fresh] if kept else []
        if progress is not None and progress(len(fresh), len(fresh)) is False:
            raise stopped
    try:
        return write(given, tokens_of(rows, begin=begin) if rows else None)
    except KeepsTokens:
        return _store(store, embedder, fresh, owner, parcel, progress, write)


def _gives_tokens(embedder: TurnEmbedder, owner: Identity) -> bool:
    """Whether tokens can be made here that go with vectors of `owner`."""
    try:
        return embedder.identity() == owner and embedder.gives_tokens()
    except ModelNotFoundError:
        return False


def _given(fresh: Sequence[Incoming]) -> Sequence[Sequence[bytes]]:
    found = []
    for item in fresh:
        chunks = item.blobs or ()
        if len(chunks) > MAX_CHUNKS:
            raise EmbedderMismatchError(
                f"memory {item.id}: expected at most {MAX_CHUNKS} vectors, got {len(chunks)}"
            )
        found.append(chunks)
    return found

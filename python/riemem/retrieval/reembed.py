"""Embedding again what is already stored: for another embedder, or where vectors are damaged."""

from __future__ import annotations

import json
from collections.abc import Sequence

from riemem.errors import StoreLockedError
from riemem.retrieval.embedding import Progress, TurnEmbedder
from riemem.retrieval.token_keeping import embed_and_write, other_form, refill_tokens
from riemem.retrieval.upkeep import check_contents
from riemem.store import CheckReport, Store
from riemem.store.check import check_store, rebuild_derived
from riemem.store.reads import everything
from riemem.store.sqlite import require_identity
from riemem.store.token_vectors import Tokens
from riemem.store.writes import replace_vectors

__all__ = ["check_all", "embed_again", "repair_store"]

_ATTEMPTS = 20


def embed_again(
    store: Store,
    embedder: TurnEmbedder,
    ids: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> int:
    """Replace vectors in one transaction and return of how many memories.

    Parameters
    ----------
    store : Store
    embedder : TurnEmbedder
    ids : sequence of int, optional
        None: every memory of every profile, whoever's vectors it has now.
    progress : callable, optional
        ``progress(done, total)``; when it returns False nothing is changed and the answer is 0.

    Raises
    ------
    EmbedderMismatchError
        Only some were to be embedded, and the others are of another embedder.
    StoreLockedError
        Others kept writing during each attempt.
    """
    store.check_writable()
    identity = embedder.identity()
    if ids is not None:
        with store.reading() as connection:
            require_identity(connection, identity, store.path)
    for _ in range(_ATTEMPTS):
        revision, records = everything(store)
        if ids is not None:
            wanted = set(ids)
            records = [record for record in records if record.id in wanted]
        turns = [(r.text, r.speaker, r.when, json.dumps(r.metadata)) for r in records]
        own = [record.id for record in records]

        def write(
            blobs: list[list[bytes]],
            tokens: Tokens | None,
            ids: list[int] = own,
            seen: int = revision,
        ) -> bool:
            rows = dict(zip(ids, blobs, strict=True))
            return replace_vectors(store, rows, identity, seen, tokens)

        done = embed_and_write(store, embedder, turns, progress, write)
        if done is None:
            return 0
        if done:
            return len(own)
    raise StoreLockedError(f"{store.path}: others wrote during each of {_ATTEMPTS} attempts")


def check_all(store: Store) -> CheckReport:
    """Compare everything in the store with everything else, what channels keep in it included."""
    report = check_store(store)
    report.problems += check_contents(store)
    report.problems += other_form(store)
    return report


def repair_store(
    store: Store, embedder: TurnEmbedder, progress: Progress | None = None
) -> CheckReport:
    """Rebuild what disagrees with the memories, check again, and return the last report.

    Where `progress` says False no vector is replaced, and the report still names what is missing.
    """
    store.check_writable()
    before = check_all(store)
    if before.ok:
        return before
    rebuild_derived(store, before)
    if before.unembedded:
        count = embed_again(store, embedder, before.unembedded, progress)
        if count:
            before.repaired.append(f"vectors of {count} memories")
    if tokens := refill_tokens(store, embedder, progress):
        before.repaired.append(f"token vectors of {tokens} memories")
    after = check_all(store)
    after.repaired = before.repaired
    return after

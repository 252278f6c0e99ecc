"""The facade for people with text: one store, its channels, and the packer, joined."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from riemem import models, packing
from riemem._doubts import DoubtMethods
from riemem._lives import LifeMethods
from riemem.errors import ArgumentError, DTypeError, ModelNotFoundError, StoreLockedError
from riemem.foreign import read_foreign
from riemem.packing import Context, Dropped
from riemem.retrieval.brevity import worths
from riemem.retrieval.channel import ChannelHits
from riemem.retrieval.choice import choose, unavailable
from riemem.retrieval.corpus import day_of
from riemem.retrieval.embedding import Progress, TurnEmbedder, TurnLike
from riemem.retrieval.fusion import Ranking
from riemem.retrieval.hits import Hit, SearchResult, check_query
from riemem.retrieval.hybrid import HybridChannel
from riemem.retrieval.importing import ForeignImport, Imported, foreign_receipt, import_parcel
from riemem.retrieval.lookup import Looked, Question, look_up
from riemem.retrieval.reembed import check_all, embed_again, repair_store
from riemem.retrieval.refine import Refinement
from riemem.retrieval.token_keeping import embed_and_write, keep_tokens, leave_tokens
from riemem.store import CheckReport, Forgotten, Record, Store, atoms, reads, writes
from riemem.store.atoms import MemoryAtom
from riemem.store.awake import Asleep, Life, Maintained, states
from riemem.store.exchange import Exported
from riemem.store.filters import Scope, check_id, check_ids, scope
from riemem.store.records import (
    Draft,
    check_flag,
    check_integer,
    check_name,
    check_weight,
    draft,
)
from riemem.store.sensitivities import StoredSensitivities
from riemem.store.sqlite import require_identity
from riemem.store.times import parse_instant
from riemem.store.token_vectors import LateInteraction, Tokens
from riemem.store.transfer import back_up, export_to, parcel_from
from riemem.store.trust import Trust, trust_of

__all__ = ["CheckReport", "Context", "Dropped", "Exported", "ForeignImport", "Forgotten", "Hit"]
__all__ += ["Imported", "LateInteraction", "Life", "Maintained", "Memory", "Record"]
__all__ += ["SearchResult"]

Filters = Mapping[str, Any]
Instant = str | datetime

_UNCHANGED: Any = type("_Unchanged", (), {"__repr__": lambda self: "UNCHANGED"})()
_MOST_HITS = 2**31 - 1
_LAYOUTS = ("flat", "grouped")
_ATTEMPTS = 20


# Inside the class `list` is a method.
_Ids = list[int]
_Records = list[Record]
_Atoms = list[MemoryAtom]


class Memory(LifeMethods, DoubtMethods):
    """Long-term memory in one file. Open it with :meth:`open`; close it, or use ``with``.

    One object may be used from many threads, and one file from many processes. After a fork the
    child must open the file itself.

    Every call takes the same scope: `profile` (by default the one given at open), `session`, and
    `filters`, a mapping with any of ``speaker``, ``session`` (a list means any of), ``since``,
    ``until`` (instants, inclusive), ``ids``, ``metadata`` (a mapping), or a metadata key itself,
    whose value must be equal (a list means any of), and ``lifecycle``, a state or a list of states.
    Filters apply before the best are taken.

    Instants are ISO 8601 text with an offset or ``Z``, or datetimes with a time zone.

    Examples
    --------
    >>> from riemem.embed import HashingEmbedder
    >>> with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as memory:
    ...     _ = memory.add("I moved to Porto", speaker="Maya", when="2024-05-01T10:00:00Z")
    ...     memory.search("Porto", k=1)[0].text
    'I moved to Porto'
    """

    def __init__(self, store: Store, embedder: TurnEmbedder, profile: str) -> None:
        self._store = store
        self._embedder = embedder
        self._profile = profile
        self._asleep = Asleep(store)
        self._read_claims = True
        self._adaptive = False
        self._lock = threading.Lock()
        self._channels: dict[str, HybridChannel] = {}

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        embedder: Any = None,
        profile: str = "default",
        readonly: bool = False,
        timeout: float = 5.0,
        durability: str = "full",
        create: bool = True,
        claims: bool = True,
        adaptive: bool = False,
    ) -> Memory:
        """Open a store, making it if there is none.

        Parameters
        ----------
        path : str or path
            The file, or ``":memory:"``.
        embedder : Embedder, str, path, optional
            By default MiniLM from the cache, loaded by the first call that needs a vector.
        profile : str
            Whose memories; profiles never see each other's.
        readonly : bool
            Nothing is written.
        timeout : float
            Seconds to wait for other processes.
        durability : {"full", "normal"}
            "full": an acknowledged write survives a power cut. "normal": the death of the process.
        create : bool
            False refuses a path without a store.
        claims : bool
            Read what new memories claim and note what that conflicts with.
        adaptive : bool
            Let :meth:`feedback` change the weights of the channels.

        Raises
        ------
        StoreError, StoreCorruptError, SchemaVersionError, StoreLockedError, StoreReadOnlyError
            The file is left as it was.
        EmbedderMismatchError
            The store holds vectors of another embedder than the one given.
        """
        name = check_name(profile, "profile")
        turns = TurnEmbedder(embedder)
        store = Store.open(
            path, readonly=readonly, timeout=timeout, durability=durability, create=create
        )
        try:
            if turns.given and store.identity() is not None:
                try:
                    identity = turns.identity()
                except ModelNotFoundError:
                    pass  # reading, listing and forgetting need no model; the first search says so
                else:
                    with store.reading() as connection:
                        require_identity(connection, identity, store.path)
            if not readonly:
                writes.resume_erasure(store)
        except BaseException:
            store.close()
            raise
        memory = cls(store, turns, name)
        memory._read_claims = check_flag(claims, "claims")
        memory._adaptive = check_flag(adaptive, "adaptive")
        return memory

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self._store.closed else ", readonly" if self._store.readonly else ""
        return f"Memory({self._store.path!r}, profile={self._profile!r}{state})"

    @property
    def path(self) -> str:
        """The file."""
        return self._store.path

    @property
    def profile(self) -> str:
        """The profile used when a call names none."""
        return self._profile

    def close(self) -> None:
        """Close the file. A second call does nothing; any other call raises StoreError."""
        for channel in self._channels.values():
            channel.keep()
        self._store.close()
        self._channels.clear()

    # -- writing -----------------------------------------------------------------------------

    def add(
        self,
        text: str,
        *,
        speaker: str | None = None,
        session: str | None = None,
        when: Instant | None = None,
        metadata: Mapping[str, Any] | None = None,
        profile: str | None = None,
        key: str | None = None,
        duplicates: str = "keep",
        source: str | None = None,
        valid_from: Instant | None = None,
        valid_to: Instant | None = None,
    ) -> int:
        """Store one memory and return its id.

        Parameters
        ----------
        text : str
            Stored and returned unchanged, up to 16 MiB.
        speaker, session : str, optional
        when : str or datetime, optional
            When it was said; by default now.
        metadata : mapping, optional
            JSON values under str keys.
        profile : str, optional
        key : str, optional
            Makes the call safe to repeat: the profile holds one memory per key, and a second add
            with the same key changes nothing and returns the first one's id.
        duplicates : {"keep", "skip"}
            Without a key every add makes a memory, also of a text that is already there. "skip"
            gives a memory that repeats another of its profile in text, speaker, session, metadata
            and, where it is given, `when`, that one's id, and stores nothing.
        source : str, optional
            Where it comes from, such as the name of a document or of another program.
        valid_from, valid_to : str or datetime, optional
            When what it says holds, if that is known; the end does not belong to it.

        Raises
        ------
        TextError, ArgumentError, DTypeError
            Nothing was written.
        EmbedderMismatchError, ModelNotFoundError
        StoreLockedError, StoreReadOnlyError, StoreError
        """
        item: dict[str, Any] = {"text": text, "speaker": speaker, "session": session, "when": when}
        item |= {"metadata": metadata, "profile": profile, "key": key, "source": source}
        item |= {"valid_from": valid_from, "valid_to": valid_to}
        skip = _skips(duplicates)
        return self._insert([draft(item, self._profile)], None, skip)[0]

    def add_many(
        self,
        items: Iterable[Mapping[str, Any]],
        *,
        progress: Progress | None = None,
        duplicates: str = "keep",
    ) -> _Ids:
        """Store many memories, all of them or none, and return their ids.

        Parameters
        ----------
        items : iterable of mappings
            The arguments of :meth:`add`.
        progress : callable, optional
            ``progress(done, total)`` while texts are embedded. If it returns False, nothing is
            stored and the answer is an empty list.
        duplicates : {"keep", "skip"}
            As for :meth:`add`; also among the items.

        Raises
        ------
        As :meth:`add`; the message names the item, as in ``items[3].when``. Nothing was written.
        """
        if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable):
            raise DTypeError(f"items: expected an iterable of dicts, got {type(items).__name__}")
        if progress is not None and not callable(progress):
            raise DTypeError(f"progress: expected a function, got {type(progress).__name__}")
        skip = _skips(duplicates)
        drafts = []
        for i, item in enumerate(items):
            if not isinstance(item, Mapping):
                raise DTypeError(f"items[{i}]: expected a dict, got {type(item).__name__}")
            drafts.append(draft(item, self._profile, f"items[{i}]."))
        return self._insert(drafts, progress, skip) if drafts else []

    def _insert(self, drafts: Sequence[Draft], progress: Progress | None, skip: bool) -> _Ids:
        self._store.check_writable()
        known = writes.already_there(self._store, drafts, skip_duplicates=skip)
        fresh = [item for i, item in enumerate(drafts) if i not in known] if known else drafts
        if not fresh:
            return [known[i] for i in range(len(drafts))]
        identity = self._embedder.identity()
        with self._store.reading() as connection:  # before the work, not only after it
            require_identity(connection, identity, self._store.path)
        turns = [(item.text, item.speaker, item.when, item.metadata) for item in fresh]
        write = partial(
            writes.insert, self._store, fresh, skip_duplicates=skip, read_claims=self._read_claims
        )
        stored = embed_and_write(
            self._store,
            self._embedder,
            turns,
            progress,
            lambda blobs, tokens: write(blobs, identity, tokens=tokens),
        )
        if stored is None:
            return []
        ids = iter(stored)
        return [known[i] if i in known else next(ids) for i in range(len(drafts))]

    def update(
        self,
        id: int,
        *,
        text: str = _UNCHANGED,
        speaker: str | None = _UNCHANGED,
        session: str | None = _UNCHANGED,
        when: Instant = _UNCHANGED,
        metadata: Mapping[str, Any] | None = _UNCHANGED,
        source: str | None = _UNCHANGED,
        valid_from: Instant | None = _UNCHANGED,
        valid_to: Instant | None = _UNCHANGED,
        profile: str | None = None,
        filters: Filters | None = None,
    ) -> Record:
        """Change what is given, leave the rest, and return the memory as it is now.

        Text, vectors, words and labels change in one transaction. Here `session` is the new
        session; `profile` and `filters` are the scope in which the memory must be.
        The former text is gone for every reader; its last bytes leave the file's free space with
        the next :meth:`forget` or :meth:`compact`. What it claims is read again if text, speaker or
        a time changes, and with that its conflicts and what was decided about them begin anew.

        Raises
        ------
        MemoryNotFoundError
            There is no such memory in the scope.
        ArgumentError
            Nothing to change was given.
        Otherwise as :meth:`add`.
        """
        given: dict[str, Any] = {"text": text, "speaker": speaker, "session": session, "when": when}
        given |= {"metadata": metadata, "source": source}
        given |= {"valid_from": valid_from, "valid_to": valid_to}
        changed = {name: value for name, value in given.items() if value is not _UNCHANGED}
        if not changed:
            raise ArgumentError("update: expected something to change, such as text=...")
        if changed.get("when", "") is None:
            raise ArgumentError("when: expected an instant such as '2023-10-19T14:02:00+00:00'")
        memory_id = check_id(id)
        where = self._scope(profile, None, filters)
        self._store.check_writable()
        for _ in range(_ATTEMPTS):
            old, revision = reads.revision_of(self._store, where, memory_id)
            item: dict[str, Any] = {
                "text": old.text,
                "speaker": old.speaker,
                "session": old.session,
            }
            item |= {"when": old.when, "metadata": old.metadata}
            origin = trust_of(self._store, [memory_id]).get(memory_id, Trust())
            item |= {"source": origin.source, "valid_from": origin.valid_from}
            item["valid_to"] = origin.valid_to
            new = draft(item | changed, old.profile)
            before = self._embedder.render(
                (old.text, old.speaker, old.when, json.dumps(old.metadata))
            )
            turn = (new.text, new.speaker, new.when, new.metadata)
            change = writes.Change(
                memory_id, new, revision, None, tuple(changed), self._read_claims
            )
            if self._embedder.render(turn) == before:
                done: bool | None = writes.update(self._store, change, None)
            else:
                done = self._embed_and_update(change, turn)
            if done:
                return reads.find_one(self._store, self._scope(old.profile, None, None), memory_id)
        raise StoreLockedError(
            f"{self.path}: memory {memory_id} was changed by others during each of {_ATTEMPTS} "
            "attempts"
        )

    def _embed_and_update(self, change: writes.Change, turn: TurnLike) -> bool | None:
        identity = self._embedder.identity()

        def write(blobs: Sequence[Sequence[bytes]], tokens: Tokens | None) -> bool:
            new = replace(change, blobs=blobs[0], tokens=tokens)
            return writes.update(self._store, new, identity)

        return embed_and_write(self._store, self._embedder, [turn], None, write)

    def forget(
        self,
        ids: int | Iterable[int] | None = None,
        *,
        profile: str | None = None,
        session: str | None = None,
        filters: Filters | None = None,
    ) -> Forgotten:
        """Erase memories from the file and return a receipt.

        The file is rewritten (about 0.5 s at 50,000 memories), because SQLite alone leaves copies
        of deleted rows behind; forget many in one call rather than one by one.

        Parameters
        ----------
        ids : int or iterable of int, optional
            All of them must be in the scope.
        profile, session : str, optional
        filters : mapping, optional
            Without `ids`, everything in the scope is forgotten; ``profile=`` alone forgets a
            whole profile.

        Returns
        -------
        Forgotten

        Raises
        ------
        ArgumentError
            Nothing was named.
        MemoryNotFoundError
            An id is not in the scope; nothing was forgotten.
        """
        wanted = None if ids is None else check_ids(ids)
        if wanted is None and profile is None and session is None and not filters:
            raise ArgumentError(
                "forget: expected ids=, filters=, session= or profile=; without any of them "
                "everything would be forgotten"
            )
        return writes.forget(self._store, self._scope(profile, session, filters), wanted)

    # -- reading -----------------------------------------------------------------------------

    def get(
        self,
        id: int,
        *,
        profile: str | None = None,
        session: str | None = None,
        filters: Filters | None = None,
    ) -> Record:
        """Return one memory.

        Raises
        ------
        MemoryNotFoundError
            There is none with this id in the scope.
        """
        where = self._scope(profile, session, filters)
        return reads.find_one(self._store, where, check_id(id))

    def list(
        self,
        *,
        profile: str | None = None,
        session: str | None = None,
        filters: Filters | None = None,
        limit: int | None = None,
        offset: int = 0,
        order: str = "time",
    ) -> _Records:
        """Return memories in order of "time" (when said, then id) or "id"; "-" in front reverses.

        Raises
        ------
        ArgumentError, DTypeError
        """
        if not isinstance(order, str) or order not in reads.ORDERS:
            raise ArgumentError(f"order: expected one of {sorted(reads.ORDERS)}, got {order!r}")
        return reads.find_records(
            self._store,
            self._scope(profile, session, filters),
            order=order,
            limit=None if limit is None else min(check_integer(limit, "limit", 0), _MOST_HITS),
            offset=min(check_integer(offset, "offset", 0), _MOST_HITS),
        )

    def search(
        self,
        query: str,
        *,
        k: int = 10,
        filters: Filters | None = None,
        at: Instant | None = None,
        explain: bool = False,
        profile: str | None = None,
        session: str | None = None,
        ranking: str | Ranking = "default",
        near_duplicates: float | None = None,
        reranker: Any = None,
        archived: bool = False,
        trust: float = 0.0,
    ) -> SearchResult:
        """Return the memories nearest to a query, best first.

        Parameters
        ----------
        query : str
        k : int
            At most so many; 0 gives none.
        filters : mapping, optional
        at : str or datetime, optional
            As of this instant: only what was said at or before it; "yesterday" in the query is the
            day before it.
        explain : bool
            Put more numbers into ``Hit.channels``, and words into ``Hit.why``.
        profile, session : str, optional
        ranking : str or Ranking
            How the channels are joined: a key of :data:`riemem.retrieval.fusion.rankings`. In a
            store that keeps token vectors "default" means "late-interaction".
        near_duplicates : float, optional
            Leave out a hit whose cosine to a better one is above this, such as 0.98.
        reranker : Reranker, str or path, optional
            ``scores(query, texts)``, or the folder of a cross-encoder; it sees the 50 best.
        archived : bool
            Also memories that :meth:`maintain` archived; so does the filter "lifecycle".
        trust : float
            Weight of trust in the score; 0 leaves it out.

        Returns
        -------
        SearchResult
            A list of :class:`Hit` that also says how it was scored and what could not run.

        Raises
        ------
        ArgumentError
            A blank query, or a negative `k`.
        DTypeError, TextError
        EmbedderMismatchError, ModelNotFoundError

        Examples
        --------
        >>> from riemem.embed import HashingEmbedder
        >>> with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as memory:
        ...     memory.search("anything")
        []
        """
        where: dict[str, Any] = {"filters": filters, "at": at, "profile": profile}
        where |= {"session": session, "archived": archived, "ranking": ranking}
        where |= {"near_duplicates": near_duplicates, "reranker": reranker}
        return self._look_up(query, k, explain=explain, trust=trust, **where).hits()

    def recall(
        self,
        query: str,
        *,
        token_budget: int,
        count_tokens: Any = None,
        compressor: Any = None,
        layout: str = "flat",
        delimited: bool = False,
        k: int = 100,
        filters: Filters | None = None,
        at: Instant | None = None,
        profile: str | None = None,
        session: str | None = None,
        archived: bool = False,
        ranking: str | Ranking = "default",
        near_duplicates: float | None = None,
        reranker: Any = None,
    ) -> Context:
        """Find memories and put them, dated and in time order, into a token budget.

        Parameters
        ----------
        query : str
        token_budget : int
            Most tokens of the text as a whole.
        count_tokens : callable, optional
            ``str -> int``, your model's tokenizer. By default that of the local SmolLM2, or, where
            its files are missing, the number of UTF-8 bytes, which no byte-level tokenizer
            exceeds; ``Context.token_counter`` says which.
        compressor : object, optional
            With ``distill(turns, *, token_budget, query) -> object with .text``, such as a
            :class:`riemem.Distiller`, whose sensitivities the store keeps for the next time.
        layout : {"flat", "grouped"}
            One list in time order, or the same hits grouped by the atoms they belong to, under
            headers that count. Without a compressor only.
        delimited : bool
            Put the text between two lines, which count, that no stored text can forge; see
            :func:`riemem.packing.delimited`.
        k : int
            How many memories are looked at.
        filters, at, profile, session, archived, ranking, near_duplicates, reranker
            As for :meth:`search`. Without a reranker or compressor, long turns must be better than
            short ones to be packed before them, as the ranking's ``brevity`` says.

        Returns
        -------
        Context
            Empty when nothing was found. See :mod:`riemem.packing` for the form of the text.

        Raises
        ------
        BudgetTooSmallError
            Memories were found and none of them fits.
        ArgumentError, DTypeError
        """
        budget = packing.check_budget(token_budget)
        counter, label = count_tokens, "caller"
        if count_tokens is None:
            counter, label = models.token_counter()
        count = packing.checked_counter(counter)
        if layout not in _LAYOUTS:
            raise ArgumentError(f"layout: expected one of {_LAYOUTS}, got {layout!r}")
        if compressor is not None:
            packing.check_compressor(compressor)
            if layout != "flat":
                raise ArgumentError("layout: a compressor makes its own; leave layout='flat'")
        where: dict[str, Any] = {"filters": filters, "at": at, "profile": profile}
        where |= {"session": session, "archived": archived, "ranking": ranking}
        where |= {"near_duplicates": near_duplicates, "reranker": reranker}
        looked = self._look_up(query, k, **where)
        turns = looked.turns()
        own = worths(turns, *looked.brevity)
        sizes: dict[str, Any] = {"token_budget": budget, "worth": None if reranker else own}
        framed = packing.delimited if delimited else str
        # What packs checks each count by itself.
        counted = (lambda text: count(framed(text))) if delimited else counter
        if layout == "grouped":
            name = self._scope(profile, None, None).profile
            owners = atoms.atoms_of(self._store, name, [turn.id for turn in turns])
            packed = packing.pack_grouped(turns, owners, **sizes, count_tokens=counted)
        elif compressor is None:
            packed = packing.pack_turns(turns, **sizes, count_tokens=counted)
        else:
            kept = StoredSensitivities(self._store)
            try:
                packed = packing.pack_compressed(
                    looked.hits(),
                    compressor,
                    query,
                    token_budget=budget,
                    count_tokens=counted if delimited else count,
                    cache=kept,
                )
            finally:
                kept.flush()
        hits = looked.hits({turn.id for turn in packed.turns})
        own_hits = {hit.id: hit for hit in hits}
        chosen = tuple(own_hits[turn.id] for turn in packed.turns)
        text = framed(packed.text)
        return Context(text, packed.tokens, chosen, packed.dropped, label, hits.skipped)

    def atoms(self, *, profile: str | None = None) -> _Atoms:
        """Return the groups into which the stream of memories has organised itself, largest first.

        The first call, or the first ``recall(layout="grouped")``, makes them, which reads every
        vector of the profile; from then on each write keeps them up to date.

        Returns
        -------
        list of MemoryAtom
            Ties by lower number.

        Examples
        --------
        >>> from riemem.embed import HashingEmbedder
        >>> with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as memory:
        ...     _ = memory.add_many([{"text": "red kite"}, {"text": "red kite"}])
        ...     [(atom.header, atom.ids) for atom in memory.atoms()]
        [('kite red', (1, 2))]
        """
        return atoms.list_atoms(self._store, self._scope(profile, None, None).profile)

    def vectors(
        self,
        *,
        profile: str | None = None,
        session: str | None = None,
        filters: Filters | None = None,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Return ids (N,), ascending, and unit vectors (N, d) of the memories of the scope.

        A memory longer than the embedder's window has one vector a window; the first is returned.

        Examples
        --------
        >>> from riemem.embed import HashingEmbedder
        >>> with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as memory:
        ...     _ = memory.add("red kite")
        ...     ids, rows = memory.vectors()
        >>> ids.tolist(), rows.shape
        ([1], (1, 64))
        """
        return reads.first_vectors(self._store, self._scope(profile, session, filters))

    def stats(
        self,
        *,
        profile: str | None = None,
        session: str | None = None,
        filters: Filters | None = None,
    ) -> dict[str, Any]:
        """Return counts of the scope (``memories``, ``sessions``, ...) and facts about the file.

        ``skipped`` names the channels of the search that cannot run here; ``lifecycle`` counts
        the states as of the last :meth:`maintain`; ``late_interaction`` says whether the vectors of
        tokens are kept, and of how many memories.
        """
        where = self._scope(profile, session, filters)
        found = reads.statistics(self._store, where)
        found["readonly"] = self._store.readonly
        found["skipped"] = unavailable()
        found["lifecycle"] = states(self._store, where)
        return found

    # -- upkeep ------------------------------------------------------------------------------

    def check(self, *, repair: bool = False, progress: Progress | None = None) -> CheckReport:
        """Compare everything in the file with everything else.

        Parameters
        ----------
        repair : bool
            Rebuild labels, words and indexes from the memories, and embed those again whose
            vectors are missing or damaged; then check again.
        progress : callable, optional
            ``progress(done, total)`` in memories embedded again; when it returns False none of
            their vectors is replaced.

        Returns
        -------
        CheckReport
            ``.ok``, ``.problems``, ``.repaired``, ``.counts``.

        Raises
        ------
        StoreReadOnlyError
            `repair` of a store opened read-only.
        """
        if not repair:
            return check_all(self._store)
        return repair_store(self._store, self._embedder, progress)

    def enable_late_interaction(self, *, progress: Progress | None = None) -> LateInteraction:
        """Keep the vectors of all memories' tokens, so that a search compares word with word.

        A new store does so from its first memory on, if its embedder gives tokens
        (:class:`riemem.embed.TokenEmbedder`; MiniLM does). This is for stores that were made
        before, or told not to. Every write, by any process, then adds them in the transaction of
        its memory; those of the memories that are there, of all profiles, are made now, which takes
        as long as embedding them again. They take 64 bytes for each token of a word that is no stop
        word. Once a store keeps them, ``ranking="default"`` means "late-interaction".

        Parameters
        ----------
        progress : callable, optional
            ``progress(done, total)``; returning False stops. What was made stays, a memory without
            counts like the mean of the others, and the next call goes on.

        Raises
        ------
        ArgumentError
            The embedder gives no vectors of tokens; see :class:`riemem.embed.TokenEmbedder`.
        EmbedderMismatchError, ModelNotFoundError
        StoreLockedError, StoreReadOnlyError, StoreError

        Examples
        --------
        >>> from riemem.embed import HashingEmbedder
        >>> with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as memory:
        ...     _ = memory.add("the red kite")
        ...     memory.enable_late_interaction()
        LateInteraction(on=True, memories=1, missing=0, bytes=128, form='rotated-signs512-v1')
        """
        return keep_tokens(self._store, self._embedder, progress)

    def disable_late_interaction(self) -> LateInteraction:
        """Erase the vectors of all tokens, as :meth:`forget` erases, and keep none from now on.

        Of a new store it is enough to call it before the first memory.

        Where another process was reading, ``stats()["erasure_pending"]`` says that their bytes go
        at the next forget, compact or open.

        Raises
        ------
        StoreLockedError, StoreReadOnlyError, StoreError
        """
        return leave_tokens(self._store)

    def compact(self) -> bool:
        """Rewrite the file without free space; False if others were reading and the log remains."""
        return writes.compact(self._store)

    @classmethod
    def reembed_store(
        cls,
        path: str | os.PathLike[str],
        *,
        embedder: Any = None,
        progress: Progress | None = None,
        timeout: float = 5.0,
    ) -> int:
        """Embed every memory of a store again, for a new embedder, and return how many.

        The vectors are exchanged in one transaction; until then, and if anything fails, the store
        stays as it was.

        Parameters
        ----------
        path : str or path
        embedder : Embedder, str, path, optional
        progress : callable, optional
            As for :meth:`add_many`; when it returns False nothing is changed and the answer is 0.
        timeout : float

        Raises
        ------
        StoreError, ModelNotFoundError
        """
        turns = TurnEmbedder(embedder)
        with Store.open(path, timeout=timeout, create=False) as store:
            return embed_again(store, turns, progress=progress)

    # -- in and out --------------------------------------------------------------------------

    def export(
        self,
        path_or_file: Any,
        *,
        vectors: bool = False,
        all_profiles: bool = False,
        progress: Progress | None = None,
        profile: str | None = None,
        session: str | None = None,
        filters: Filters | None = None,
    ) -> Exported:
        """Write memories as JSON lines, in the order of their ids, as of one moment.

        Parameters
        ----------
        path_or_file : str, path, or a file open for writing
            A path is replaced in one step at the end; after an error it is what it was.
        vectors : bool
            Also the vectors, so that the import needs no embedder.
        all_profiles : bool
            Every profile; not together with a narrower scope.
        progress : callable, optional
            ``progress(done, total)``; returning False stops.
        profile, session, filters
            The scope.

        Returns
        -------
        Exported

        Raises
        ------
        OutputFileError
            The path could not be written.
        CancelledError
        ArgumentError, DTypeError

        Notes
        -----
        The format is described in docs/export-format.md. What follows from the memories (words,
        labels, clusters) is not part of it.
        """
        if all_profiles and (profile is not None or session is not None or filters):
            raise ArgumentError("all_profiles: expected no profile, session or filters beside it")
        where = None if all_profiles else self._scope(profile, session, filters)
        return export_to(self._store, where, path_or_file, vectors=vectors, progress=progress)

    def import_(
        self,
        path_or_file: Any,
        *,
        profile: str | None = None,
        duplicates: str = "keep",
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Imported:
        """Store the memories of an export, all of them or none.

        Ids are kept where this store never held a memory; otherwise each memory gets a new one,
        and the receipt says which. Vectors in the file are taken as they are if they are of this
        store's embedder; otherwise the texts are embedded again.

        Parameters
        ----------
        path_or_file : str, path, or a file open for reading
        profile : str, optional
            All memories go into this profile; by default each into its own.
        duplicates : {"keep", "skip"}
            As for :meth:`add`. A memory whose key is already in its profile is never stored twice.
        dry_run : bool
            Read and check everything, store nothing.
        progress : callable, optional
            ``progress(done, total)``; returning False stops.

        Returns
        -------
        Imported

        Raises
        ------
        InputFileError
            The path cannot be read.
        SchemaVersionError
            Written by a newer riemem.
        ArgumentError, DTypeError, TextError
            Not an export, cut off, or a line that does not fit; the message names the line.
        CancelledError
        EmbedderMismatchError, ModelNotFoundError
        """
        if progress is not None and not callable(progress):
            raise DTypeError(f"progress: expected a function, got {type(progress).__name__}")
        skip = _skips(duplicates)
        if not dry_run:
            self._store.check_writable()
        name = None if profile is None else check_name(profile, "profile")
        parcel = parcel_from(path_or_file, name)
        return import_parcel(
            self._store,
            self._embedder,
            parcel,
            skip_duplicates=skip,
            dry_run=dry_run,
            progress=progress,
            read_claims=self._read_claims,
        )

    def import_from(
        self,
        path_or_file: Any,
        source: str,
        *,
        profile: str | None = None,
        duplicates: str = "keep",
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> ForeignImport:
        """Store what another tool wrote: all that can be read of it, in one transaction.

        Parameters
        ----------
        path_or_file : str, path, or a file open for reading
        source : {"mem0", "langgraph", "jsonl", "markdown"}
            What wrote it; docs/import.md describes each. Memories of mem0 and LangGraph carry keys,
            so that a second import stores none of them twice.
        profile, duplicates, dry_run, progress
            As for :meth:`import_`; all memories go into one profile.

        Returns
        -------
        ForeignImport
            Also what was skipped, where and why.

        Raises
        ------
        InputFileError
            The path cannot be read.
        ArgumentError, SchemaVersionError
            Not such a file, of another version, or cut off; nothing was stored.
        CancelledError
        EmbedderMismatchError, ModelNotFoundError
        """
        if progress is not None and not callable(progress):
            raise DTypeError(f"progress: expected a function, got {type(progress).__name__}")
        skip = _skips(duplicates)
        if not dry_run:
            self._store.check_writable()
        name = check_name(self._profile if profile is None else profile, "profile")
        found = read_foreign(path_or_file, source, profile=name)
        done = import_parcel(
            self._store,
            self._embedder,
            found.parcel,
            skip_duplicates=skip,
            dry_run=dry_run,
            progress=progress,
            read_claims=self._read_claims,
        )
        return foreign_receipt(source, found, done)

    def backup(self, path: str | os.PathLike[str]) -> int:
        """Write a complete copy of the store to `path` and return its size in bytes.

        Unlike a copy of the file it is whole while others write. An older copy is replaced in one
        step, or, after an error, left as it was.

        Raises
        ------
        ArgumentError
            The path is this store's, or that of a store that is open.
        OutputFileError, StoreError
        """
        return back_up(self._store, path)

    # -- within ------------------------------------------------------------------------------

    def _scope(
        self,
        profile: str | None,
        session: str | None,
        filters: Filters | None,
        at: Instant | None = None,
    ) -> Scope:
        name = self._profile if profile is None else profile
        return scope(name, session=session, filters=filters, at=at)

    def _look_up(
        self,
        query: str,
        k: int,
        *,
        filters: Filters | None,
        at: Instant | None,
        profile: str | None,
        session: str | None,
        archived: bool,
        ranking: str | Ranking,
        near_duplicates: float | None,
        reranker: Any,
        explain: bool = False,
        trust: float = 0.0,
    ) -> Looked:
        text = check_query(query)
        count = min(check_integer(k, "k", 0), _MOST_HITS)
        weight = check_weight(trust, "trust")
        refinement = Refinement.of(near_duplicates, reranker)
        mark = self._store.mark()
        chosen, lacking = choose(ranking, self._store, self._embedder, mark)
        where = self._scope(profile, session, filters, at)
        day = None if at is None else day_of(parse_instant(at, "at"))
        allowed, asleep = self._asleep.allowed(where, archived, mark)
        if count == 0 or (allowed is not None and allowed.size == 0):
            return Looked(ChannelHits(scoring="nothing to rank"), notes=asleep)
        rule = self._adapted(chosen, where.profile, weight)
        asked = Question(text, count, rule, refinement, day, explain, mark)
        found = look_up(self._store, self._channel(where.profile), asked, allowed)
        return replace(found, notes=lacking + asleep)

    def _channel(self, profile: str) -> HybridChannel:
        with self._lock:
            if profile not in self._channels:
                self._channels[profile] = HybridChannel(self._store, profile, self._embedder)
            return self._channels[profile]


def _skips(duplicates: object) -> bool:
    if duplicates not in ("keep", "skip"):
        raise ArgumentError(f"duplicates: expected 'keep' or 'skip', got {duplicates!r}")
    return duplicates == "skip"

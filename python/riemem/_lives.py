"""The methods of Memory about what happens to memories: use, importance, falling asleep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from riemem.errors import ArgumentError, DTypeError
from riemem.lifecycle import Policy
from riemem.retrieval.embedding import Progress, TurnEmbedder
from riemem.retrieval.hits import check_query
from riemem.store import Store, awake, uses
from riemem.store.awake import Life, Maintained
from riemem.store.filters import Scope, check_id, check_ids
from riemem.store.sqlite import require_identity
from riemem.store.times import now_us, parse_instant

__all__ = ["LifeMethods"]

Instant = str | datetime


class LifeMethods:
    """How memories of :class:`riemem.Memory` fall asleep; not used by itself."""

    _store: Store
    _embedder: TurnEmbedder

    if TYPE_CHECKING:  # what Memory defines

        def _scope(self, profile: str | None, session: str | None, filters: Any) -> Scope: ...

    def used(
        self,
        ids: int | Iterable[int],
        *,
        helped: bool = False,
        query: str | None = None,
        at: Instant | None = None,
        profile: str | None = None,
        session: str | None = None,
        filters: Mapping[str, Any] | None = None,
    ) -> int:
        """Record that memories were used, and return how many.

        A search records nothing by itself: it may be read-only, and it must give the same answer
        twice. Call this with what went into an answer.

        Parameters
        ----------
        ids : int or iterable of int
            All of them must be in the scope.
        helped : bool
            The use was confirmed: by the user, a test, a citation. It counts for more, and with
            the query it teaches the memory which dimensions it can be trusted in.
        query : str, optional
            What they answered; with `helped` only.
        at : str or datetime, optional
            When; by default now.
        profile, session, filters
            The scope.

        Raises
        ------
        MemoryNotFoundError
            An id is not in the scope; nothing was recorded.
        ArgumentError, DTypeError, TextError
        EmbedderMismatchError, ModelNotFoundError
            A query was given.

        Examples
        --------
        >>> from riemem import Memory
        >>> from riemem.embed import HashingEmbedder
        >>> with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as memory:
        ...     first = memory.add("I moved to Porto", when="2024-05-01T10:00:00Z")
        ...     memory.used(first, helped=True, query="Where?", at="2024-05-02T10:00:00Z")
        ...     memory.life(first).confirmed
        1
        1
        """
        wanted = check_ids(ids)
        if not isinstance(helped, bool):
            raise DTypeError(f"helped: expected True or False, got {helped!r}")
        if query is not None and not helped:
            raise ArgumentError("query: expected helped=True beside it; only that teaches anything")
        where = self._scope(profile, session, filters)
        moment = now_us() if at is None else parse_instant(at, "at")
        self._store.check_writable()
        vector = None
        if query is not None:
            text = check_query(query)
            with self._store.reading() as connection:
                require_identity(connection, self._embedder.identity(), self._store.path)
            vector = self._embedder.embed_query(text).vector
        kind = "confirmed" if helped else "used"
        uses.record(self._store, where, wanted, kind, moment, query=vector)
        return len(wanted)

    def weigh(
        self,
        ids: int | Iterable[int],
        importance: float,
        *,
        at: Instant | None = None,
        profile: str | None = None,
        session: str | None = None,
        filters: Mapping[str, Any] | None = None,
    ) -> int:
        """Say how much memories matter, from 0 (the default) to 1, and return how many.

        Parameters
        ----------
        ids : int or iterable of int
        importance : float
            1 keeps a memory from ever being archived.
        at, profile, session, filters
            As for :meth:`used`.

        Raises
        ------
        ArgumentError, DTypeError, MemoryNotFoundError
        """
        wanted = check_ids(ids)
        if isinstance(importance, bool) or not isinstance(importance, (int, float)):
            raise DTypeError(f"importance: expected a number, got {type(importance).__name__}")
        if not 0.0 <= importance <= 1.0:
            raise ArgumentError(f"importance: expected a number in [0, 1], got {importance}")
        where = self._scope(profile, session, filters)
        moment = now_us() if at is None else parse_instant(at, "at")
        self._store.check_writable()
        uses.record(self._store, where, wanted, "importance", moment, importance=float(importance))
        return len(wanted)

    def life(
        self,
        id: int,
        *,
        profile: str | None = None,
        session: str | None = None,
        filters: Mapping[str, Any] | None = None,
    ) -> Life:
        """Return how awake a memory is, as of the last :meth:`maintain`.

        Raises
        ------
        MemoryNotFoundError
        """
        memory_id = check_id(id)
        return awake.life_of(self._store, self._scope(profile, session, filters), memory_id)

    def maintain(
        self,
        *,
        now: Instant | None = None,
        policy: str | Policy | None = None,
        seed: int = 0,
        replay: bool = False,
        progress: Progress | None = None,
        profile: str | None = None,
    ) -> Maintained:
        """Let the memories of a profile age to an instant; none is ever removed.

        Each is "active", "warm", "cold" or "archived" afterwards. Archived memories are left out
        of :meth:`Memory.search` and :meth:`Memory.recall` unless they ask for them; everything
        else sees them. Nothing ages without this call.

        Parameters
        ----------
        now : str or datetime, optional
            By default the clock's. A second call with the same instant changes nothing.
        policy : {"langevin", "half-life"} or Policy, optional
            By default the one of the last time, at first "langevin". Another one begins again.
        seed : int
            Of the noise, with a policy given by name.
        replay : bool
            Begin again at each memory's birth, from the log of its uses; may lead to an earlier
            instant than the last time.
        progress : callable, optional
            ``progress(done, total)`` in memories; returning False stops.
        profile : str, optional

        Returns
        -------
        Maintained

        Raises
        ------
        ArgumentError
            `now` lies before the last maintenance: the clock went backwards.
        StoreCorruptError
            Part of a log is missing; nothing was changed.
        CancelledError
            Nothing was changed.
        StoreReadOnlyError, StoreLockedError

        Notes
        -----
        O(n days) since the last time. To an instant in one call or in several is the same to the
        bit, on every machine. docs/lifecycle.md says what each policy is good for.

        Examples
        --------
        >>> from riemem import Memory
        >>> from riemem.embed import HashingEmbedder
        >>> with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as memory:
        ...     _ = memory.add("I moved to Porto", when="2024-05-01T10:00:00Z")
        ...     memory.maintain(now="2026-05-01T10:00:00Z", policy="half-life").counts
        {'active': 0, 'warm': 0, 'cold': 0, 'archived': 1}
        """
        moment = None if now is None else parse_instant(now, "now")
        if progress is not None and not callable(progress):
            raise DTypeError(f"progress: expected a function, got {type(progress).__name__}")
        name = self._scope(profile, None, None).profile
        return awake.maintain(
            self._store, name, moment, policy=policy, seed=seed, replay=replay, progress=progress
        )

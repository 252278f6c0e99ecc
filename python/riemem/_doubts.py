"""The methods of Memory that say what it doubts: conflicts, trust, history, feedback."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from riemem.consistency import Conflict, ConsistencyReport, examine
from riemem.errors import ArgumentError, DTypeError
from riemem.retrieval.fusion import Ranking
from riemem.retrieval.hits import Hit, SearchResult, check_query
from riemem.store import Store, feedback, reads, trust
from riemem.store.conflicts import find_conflicts, resolve, undo
from riemem.store.feedback import Feedback
from riemem.store.filters import Scope, check_id, check_ids
from riemem.store.records import check_integer
from riemem.store.trust import Event, Trust

__all__ = ["DoubtMethods"]

#: How deep a judged memory is looked for.
_DEEPEST = 200
_BESIDE = 10

# A subclass has a method of the name `list`.
_Conflicts = list[Conflict]
_Events = list[Event]
_Judged = list[Feedback]


class DoubtMethods:
    """What :class:`riemem.Memory` can say about its own doubts; not used by itself."""

    _store: Store
    _profile: str
    _adaptive: bool

    if TYPE_CHECKING:  # what Memory defines

        def _scope(self, profile: str | None, session: str | None, filters: Any) -> Scope: ...

        def search(
            self, query: str, *, k: int = 10, profile: str | None = None
        ) -> SearchResult: ...

    # -- conflicts ---------------------------------------------------------------------------

    def conflicts(
        self,
        *,
        state: str | None = None,
        id: int | None = None,
        profile: str | None = None,
    ) -> _Conflicts:
        """Return the memories that cannot both hold, in the order in which that was found.

        Parameters
        ----------
        state : {"open", "superseded", "dismissed"}, optional
            By default all.
        id : int, optional
            Only those that this memory has a part in.
        profile : str, optional

        Raises
        ------
        ArgumentError

        Examples
        --------
        >>> from riemem import Memory
        >>> from riemem.embed import HashingEmbedder
        >>> with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as memory:
        ...     _ = memory.add("I live in Porto.", speaker="Maya", when="2024-05-01T10:00:00Z")
        ...     _ = memory.add("I moved to Berlin.", speaker="Maya", when="2024-09-01T10:00:00Z")
        ...     [(c.kind, c.older_value, c.newer_value, c.keep) for c in memory.conflicts()]
        [('change', 'porto', 'berlin', 2)]
        """
        memory_id = None if id is None else check_id(id)
        name = self._scope(profile, None, None).profile
        return find_conflicts(self._store, name, state=state, memory_id=memory_id)

    def resolve(
        self, conflict: int, *, keep: int | None = None, profile: str | None = None
    ) -> Conflict:
        """Decide a conflict; both memories stay.

        Parameters
        ----------
        conflict : int
            Its number.
        keep : int, optional
            The memory that is right: the other is superseded and ranks below it. None: both may
            hold, and the conflict is dismissed.
        profile : str, optional

        Raises
        ------
        ArgumentError
            There is no such conflict, `keep` has no part in it, or memories would supersede each
            other in a circle.
        """
        number = check_integer(conflict, "conflict", 1)
        kept = None if keep is None else check_id(keep)
        return resolve(self._store, self._scope(profile, None, None).profile, number, kept)

    def undo(self, conflict: int, *, profile: str | None = None) -> Conflict:
        """Take back the last decision about a conflict, also one that a rule made.

        Raises
        ------
        ArgumentError
            There is no such conflict, or nothing is decided about it.
        """
        number = check_integer(conflict, "conflict", 1)
        return undo(self._store, self._scope(profile, None, None).profile, number)

    def check_conflicts(self, *, profile: str | None = None) -> ConsistencyReport:
        """Look at all claims of a profile at once; see :func:`riemem.consistency.examine`."""
        return examine(self._store, self._scope(profile, None, None).profile)

    # -- trust and history -------------------------------------------------------------------

    def trust(self, id: int, *, profile: str | None = None) -> Trust:
        """Return where a memory comes from and how far it is trusted.

        Raises
        ------
        MemoryNotFoundError
        """
        memory_id = check_id(id)
        reads.find_one(self._store, self._scope(profile, None, None), memory_id)
        return trust.trust_of(self._store, [memory_id]).get(memory_id, Trust())

    def mark(self, ids: int | Iterable[int], event: str, *, profile: str | None = None) -> None:
        """Record that memories were "confirmed" or "contradicted".

        Uses are recorded by :meth:`used`; they count for trust as well. A search by itself records
        nothing: the same question gives the same answer.

        Raises
        ------
        ArgumentError, MemoryNotFoundError
            Nothing was recorded.
        """
        wanted = check_ids(ids)
        trust.mark(self._store, self._scope(profile, None, None), wanted, event)

    def history(self, id: int, *, profile: str | None = None) -> _Events:
        """Return what happened to a memory, oldest first.

        The history only grows; :meth:`forget` erases it together with the memory. Of an update it
        keeps the names of what changed and not the former text.

        Raises
        ------
        MemoryNotFoundError
        """
        return trust.history(self._store, self._scope(profile, None, None), check_id(id))

    # -- feedback ----------------------------------------------------------------------------

    def feedback(
        self, query: str, id: int, *, useful: bool = True, profile: str | None = None
    ) -> dict[str, float]:
        """Say whether a memory was useful for a query, and return the channels' factors after it.

        The factors are applied where the memory was opened with ``adaptive=True``.

        Parameters
        ----------
        query : str
        id : int
            Among the 200 memories that the query finds first.
        useful : bool
        profile : str, optional

        Raises
        ------
        ArgumentError
            The query does not find the memory.
        MemoryNotFoundError, DTypeError
        """
        text = check_query(query)
        if not isinstance(useful, bool):
            raise DTypeError(f"useful: expected bool, got {type(useful).__name__}")
        memory_id = check_id(id)
        name = self._scope(profile, None, None).profile
        reads.find_one(self._store, self._scope(profile, None, None), memory_id)
        self._store.check_writable()
        hits = self.search(text, k=_DEEPEST, profile=profile)
        judged = next((hit for hit in hits if hit.id == memory_id), None)
        if judged is None:
            raise ArgumentError(
                f"id: memory {memory_id} is not among the {_DEEPEST} that this query finds first"
            )
        beside = [hit for hit in hits[:_BESIDE] if hit.id != memory_id]
        shares = told_apart(judged, beside)
        feedback.add(self._store, name, memory_id, text, useful, shares)
        return feedback.weights(self._store, name)

    def weights(self, *, profile: str | None = None) -> dict[str, float]:
        """Return the factor of each channel that feedback has changed, between 0.5 and 2."""
        return feedback.weights(self._store, self._scope(profile, None, None).profile)

    def judgements(self, *, profile: str | None = None) -> _Judged:
        """Return the feedback that counts, oldest first."""
        return feedback.events(self._store, self._scope(profile, None, None).profile)

    def replay_weights(
        self, *, until: int | None = None, profile: str | None = None
    ) -> Sequence[Mapping[str, float]]:
        """Return the factors as they were after each judgement, computed anew from the log."""
        number = None if until is None else check_integer(until, "until", 0)
        return feedback.replay(self._store, self._scope(profile, None, None).profile, number)

    def reset_weights(self, *, profile: str | None = None) -> int:
        """Begin anew with all factors 1; return how many judgements no longer count."""
        return feedback.reset(self._store, self._scope(profile, None, None).profile)

    # -- within ------------------------------------------------------------------------------

    def _adapted(self, ranking: Ranking, profile: str, trust_weight: float) -> Ranking:
        """The ranking with what feedback says of this profile, and with trust if asked."""
        factors = feedback.weights(self._store, profile) if self._adaptive else {}
        more = {"trust": trust_weight} if trust_weight else {}
        return ranking.reweighed(lambda name, weight: weight * factors.get(name, 1.0), **more)


def told_apart(judged: Hit, beside: Sequence[Hit]) -> dict[str, float]:
    """Return how much more each channel gave a hit than those beside it; the largest is 1."""
    if not beside:
        return {}
    apart = ["superseded", "neighbours", "scenes", "bridges"]
    if any(hit.channels.get("late", 0.0) < 0.0 for hit in (judged, *beside)):
        apart.append("late")  # not compared: the share only keeps it behind those that were
    raw = {
        name: share - sum(hit.channels.get(name, 0.0) for hit in beside) / len(beside)
        for name, share in judged.channels.items()
        if name not in apart and "." not in name
    }
    largest = max(map(abs, raw.values()), default=0.0)
    return {name: value / largest for name, value in raw.items()} if largest > 0.0 else {}

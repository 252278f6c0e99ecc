"""Which ranking a search uses: what was asked for, as far as it can run here."""

from __future__ import annotations

from riemem.errors import BackendUnavailableError
from riemem.retrieval.dates import require_calendar
from riemem.retrieval.embedding import TurnEmbedder
from riemem.retrieval.fusion import Ranking, as_ranking, rankings
from riemem.retrieval.token_rows import FORM, ROW_BYTES
from riemem.store import Store
from riemem.store.remembered import remembered
from riemem.store.token_vectors import Kept, kept_form

__all__ = ["choose", "unavailable"]


def choose(
    ranking: object, store: Store, embedder: TurnEmbedder, mark: int | None = None
) -> tuple[Ranking, tuple[str, ...]]:
    """Return the ranking to use, and what it cannot do here.

    The name "default" means "late-interaction" in a store that keeps token vectors. Where there
    are none, "late-interaction" is the default without them, and any other ranking goes without
    the channel "late". A :class:`Ranking` that does not ask for it is used as it is.

    Parameters
    ----------
    ranking : str or Ranking
    store : Store
    embedder : TurnEmbedder
        Not loaded unless the store keeps token vectors.
    mark : int, optional
        Of the store, taken in this call; see :meth:`riemem.store.Store.mark`.

    Raises
    ------
    ArgumentError
        The ranking is not known.
    ModelNotFoundError, ModelCorruptError
    """
    rule = as_ranking(ranking)
    by_default = ranking == "default"
    if not by_default and "late" not in rule.weights:
        return rule, ()
    kept = remembered(store, "kept form", kept_form, mark)
    if kept is None:
        reason = "the store keeps no token vectors; see Memory.enable_late_interaction"
        return (rule, ()) if by_default else (rule.finder, (f"late: {reason}",))
    wrong = _unlike(kept, embedder)
    if wrong:
        return rule.finder, (f"late: {wrong}",)
    return rankings["late-interaction"] if by_default else rule, ()


def unavailable() -> list[str]:
    """Return which channels cannot run on this machine, and why.

    Examples
    --------
    >>> unavailable()
    []
    """
    try:
        require_calendar()
    except BackendUnavailableError as error:
        return [str(error)]
    return []


def _unlike(kept: Kept, embedder: TurnEmbedder) -> str:
    """Why the question's tokens cannot be compared with those of the store; empty if they can."""
    if (kept.form, kept.row_bytes) != (FORM, ROW_BYTES):
        return f"the store's token vectors are of the form {kept.form}, this version makes {FORM}"
    own = embedder.identity().embedder
    if kept.embedder != own:
        return f"the store's token vectors are of the embedder {kept.embedder}, this is {own}"
    return "" if embedder.gives_tokens() else "the embedder gives no vectors of tokens"

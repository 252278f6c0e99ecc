"""Do the memories agree? Claims, the sheaf over them, and the conflicts of a whole profile.

A memory's claims are read when it is added, and compared with what its profile says about the same
attribute of the same entity (:mod:`riemem.store.claims`). This module looks at all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from riemem._consistency.claims import Claim, Confirmed, confirm, excludes
from riemem._consistency.linear import (
    NOTHING,
    CellularSheaf,
    Cohomology,
    Csr,
    published_score,
    rank,
)
from riemem._consistency.rules import extract
from riemem._consistency.sheaf import MOST_COMPARED, ClaimSheaf, Entry, Group
from riemem.store import Store
from riemem.store.claims import MOST_SEEN, Said, Stored, all_claims, record, record_pairs
from riemem.store.conflicts import Conflict, find_conflicts
from riemem.store.sqlite import has_table
from riemem.store.trust import read_trust

__all__ = [
    "MOST_COMPARED",
    "MOST_SEEN",
    "CellularSheaf",
    "Claim",
    "ClaimSheaf",
    "Cohomology",
    "Confirmed",
    "Conflict",
    "ConsistencyReport",
    "Csr",
    "Entry",
    "Group",
    "confirm",
    "examine",
    "excludes",
    "extract",
    "published_score",
    "rank",
]


@dataclass
class ConsistencyReport:
    """What :func:`examine` found.

    Attributes
    ----------
    profile : str
    memories, claims : int
    read : int
        Memories whose claims were read only now, because they were stored without.
    found : int
        Conflicts that were not known before.
    cohomology : Cohomology
        Of the sheaf relative to the claims.
    kappa : float
        The largest contradiction score of a group.
    obstructed : list of Group
        Attributes whose claims no assignment satisfies; decided conflicts no longer count.
    bounded : list of Group
        Attributes with more claims than were compared.
    conflicts : list of Conflict
        All that are known, decided or not.
    """

    profile: str
    memories: int = 0
    claims: int = 0
    read: int = 0
    found: int = 0
    cohomology: Cohomology = NOTHING
    kappa: float = 0.0
    obstructed: list[Group] = field(default_factory=list)
    bounded: list[Group] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)

    @property
    def open(self) -> list[Conflict]:
        """The conflicts that nobody has decided."""
        return [conflict for conflict in self.conflicts if conflict.state == "open"]

    @property
    def ok(self) -> bool:
        """True when no conflict is open."""
        return not self.open

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values."""

        def group(found: Group) -> dict[str, Any]:
            return {
                "subject": found.subject,
                "attribute": found.attribute,
                "claims": found.size,
                "compared": found.compared,
                "kappa": found.kappa,
            }

        return {
            "ok": self.ok,
            "profile": self.profile,
            "memories": self.memories,
            "claims": self.claims,
            "read": self.read,
            "found": self.found,
            "cohomology": self.cohomology._asdict(),
            "kappa": self.kappa,
            "obstructed": [group(found) for found in self.obstructed],
            "bounded": [group(found) for found in self.bounded],
            "conflicts": [vars(conflict) for conflict in self.conflicts],
        }


def examine(store: Store, profile: str) -> ConsistencyReport:
    """Build the sheaf of a profile's claims and say where it has no global section.

    Claims of memories that were stored without are read first, and conflicts that only show across
    two names of one entity are added, unless the store is read-only.

    Parameters
    ----------
    store : Store
    profile : str

    Returns
    -------
    ConsistencyReport

    Notes
    -----
    At most the newest 64 claims about one attribute of one entity are compared; where there are
    more the report names them. O(claims) otherwise, plus the reading of texts without claims.
    """
    report = ConsistencyReport(profile)
    if not store.readonly:
        report.read, report.found = _read_missing(store, profile)
    with store.reading() as connection:
        stored = all_claims(connection, profile)
        ends = _ends(connection) if stored else {}
        trusted = read_trust(connection, None) if stored else {}
        settled = _settled(connection) if stored else set()
        report.memories = int(
            connection.execute(
                "SELECT count(*) FROM memories WHERE profile = ?", (profile,)
            ).fetchone()[0]
        )
    report.claims = len(stored)
    entries = []
    for item in stored:
        last = min(item.claim.last, ends.get(item.id, item.claim.last))
        if item.claim.first < last:
            known = trusted.get(item.memory_id)
            weight = 1.0 if known is None else 2.0 * known.mean
            entries.append(Entry(item.id, item.claim, item.claim.first, last, item.said, weight))
    sheaf = ClaimSheaf(entries, same_entities(stored))
    report.cohomology = sheaf.cohomology
    by_id = {item.id: item for item in stored}
    pairs = _confirmed(sheaf, by_id)
    if pairs and not store.readonly:
        with store.writing() as transaction:
            report.found += record_pairs(transaction, profile, pairs)
    report.conflicts = find_conflicts(store, profile)
    report.obstructed = [
        group for group in sheaf.groups if any(pair not in settled for pair in group.candidates)
    ]
    report.bounded = [group for group in sheaf.groups if group.compared < group.size]
    report.kappa = max((group.kappa for group in report.obstructed), default=0.0)
    return report


def same_entities(stored: list[Stored]) -> list[tuple[str, str]]:
    """Return pairs of subjects that are one: "dave's sister" where her name is said to be "anna".

    Only names that one entity has, of entities with one name.
    """
    names: dict[str, set[str]] = {}
    owners: dict[str, set[str]] = {}
    for item in stored:
        claim = item.claim
        if claim.attribute == "name" and claim.positive:
            names.setdefault(claim.subject, set()).add(claim.value)
            owners.setdefault(claim.value, set()).add(claim.subject)
    return sorted(
        (subject, next(iter(found)))
        for subject, found in names.items()
        if len(found) == 1 and len(owners[next(iter(found))]) == 1
    )


def _confirmed(
    sheaf: ClaimSheaf, by_id: dict[int, Stored]
) -> list[tuple[Stored, Stored, Confirmed]]:
    pairs = []
    for group in sheaf.obstructed:
        for first, second in group.candidates:
            a, b = by_id[first], by_id[second]
            if a.memory_id == b.memory_id:
                continue
            named = a.claim._replace(subject=b.claim.subject)
            why = confirm(named, a.said, b.claim, b.said)
            if why is not None:
                pairs.append((a, b, why))
    return pairs


def _read_missing(store: Store, profile: str) -> tuple[int, int]:
    """Read the claims of memories that have none; (memories with claims, conflicts found)."""
    with store.reading() as connection:
        rows = connection.execute(
            "SELECT m.id, m.profile, m.text, m.speaker, m.observed_at, p.valid_from, p.valid_to "
            "FROM memories m LEFT JOIN provenance p ON p.memory_id = m.id WHERE m.profile = ? "
            "AND NOT EXISTS (SELECT 1 FROM claims WHERE memory_id = m.id) "
            "ORDER BY m.observed_at, m.id",
            (profile,),
        ).fetchall()
    missing = [said for row in rows if extract((said := Said(*row)).text, said.speaker, said.said)]
    if not missing:
        return 0, 0
    with store.writing() as transaction:
        # Another process may have forgotten or changed some of them meanwhile.
        fresh = [
            said
            for said in missing
            if transaction.connection.execute(
                "SELECT 1 FROM memories WHERE id = ? AND text = ? AND NOT EXISTS "
                "(SELECT 1 FROM claims WHERE memory_id = memories.id)",
                (said.memory_id, said.text),
            ).fetchone()
        ]
        return len(fresh), record(transaction, fresh)


def _ends(connection: Any) -> dict[int, int]:
    """When each superseded claim ended: when that which supersedes it began or was said."""
    rows = connection.execute(
        "SELECT s.older_claim, min(c.said) FROM supersedes s JOIN claims c ON c.id = s.newer_claim "
        "GROUP BY s.older_claim"
    )
    return {int(claim): int(said) for claim, said in rows}


def _settled(connection: Any) -> set[tuple[int, int]]:
    """Pairs of claims about which somebody has decided."""
    if not has_table(connection, "conflicts"):
        return set()
    rows = connection.execute(
        "SELECT k.older_claim, k.newer_claim FROM conflicts k JOIN decisions d "
        "ON d.id = k.decision WHERE d.state != 'open'"
    )
    return {(min(a, b), max(a, b)) for a, b in rows}

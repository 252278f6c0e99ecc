"""What kind of question a query is, by rules on its words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from riemem.retrieval.dates import asks_for_time, mentions_time

__all__ = ["KINDS", "SLM_V3_MULTIPLIERS", "query_kind"]

#: The kinds, and what each of SLM-V3's four channels (arXiv 2603.14588, section 4.3) is
#: multiplied by: dense, lexical, entities, temporal.
SLM_V3_MULTIPLIERS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        kind: MappingProxyType(
            dict(zip(("dense", "lexical", "entities", "temporal"), values, strict=True))
        )
        for kind, values in {
            "temporal": (0.8, 1.5, 0.8, 2.0),
            "multi-hop": (1.0, 0.8, 2.0, 0.5),
            "aggregation": (1.2, 1.5, 1.0, 0.5),
            "opinion": (1.8, 0.6, 0.8, 0.3),
            "factual": (1.2, 1.4, 1.0, 0.6),
            "entity": (1.0, 1.5, 1.2, 0.5),
            "open": (1.0, 1.0, 1.0, 1.0),
        }.items()
    }
)

KINDS = tuple(SLM_V3_MULTIPLIERS)

_RULES = (
    (
        "multi-hop",
        r"\b(?:both|in common|together|same|similar|relationship between|between \w+ and"
        r"|compared? (?:to|with)|connection|because of|after (?:he|she|they)|as well as)\b",
    ),
    (
        "aggregation",
        r"\b(?:how many|how often|list|all (?:the|of)|every|what (?:kinds?|types?|sorts?) of"
        r"|which (?:\w+ )?(?:activities|books|places|events|things|hobbies)|total|count)\b",
    ),
    (
        "opinion",
        r"\b(?:think|feel|feels|opinion|prefer|favou?rite|like best|enjoy|would|might|likely"
        r"|should|believe|attitude|personality)\b",
    ),
    ("entity", r"^\s*(?:who|whose|whom)\b"),
    ("factual", r"^\s*(?:what|which|where|how|is|are|was|were|did|does|do|has|have|had)\b"),
)
_COMPILED = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _RULES)


def query_kind(query: str) -> str:
    """Return one of :data:`KINDS`; "open" where no rule applies.

    The first rule that applies decides: a question for a time or one that names a time, for what
    several have in common, for a number or a list, for an opinion, for a person, for a fact.

    Examples
    --------
    >>> query_kind("When did Dave move?"), query_kind("What do Dave and Maya have in common?")
    ('temporal', 'multi-hop')
    >>> query_kind("How many dogs has Maya?"), query_kind("photography")
    ('aggregation', 'open')
    """
    head = query[:2000]
    if asks_for_time(head) or (mentions_time(head) and head.rstrip().endswith("?")):
        return "temporal"
    return next((kind for kind, rule in _COMPILED if rule.search(head)), "open")

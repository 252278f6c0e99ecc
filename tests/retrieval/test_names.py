from __future__ import annotations

import pytest
from riemem.retrieval.names import named_speakers

NAMES = ["Dave", "Maya Lopez", "Will", "May", "田中", "user", "Zoë", "O'Brien"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("What is Dave's job?", ["Dave"]),
        ("what is dave's job?", ["Dave"]),
        ("Dave\u2019s job", ["Dave"]),
        ("Did Dave meet Maya?", ["Dave", "Maya Lopez"]),
        ("Has Maya Lopez moved?", ["Maya Lopez"]),
        ("Will Dave come?", ["Dave"]),
        ("Will he come?", []),
        ("will you?", []),
        ("Where does Will live?", ["Will"]),
        ("Will's house", ["Will"]),
        ("What happened in May?", []),
        ("May 5, 2023", []),
        ("What did May say?", ["May"]),
        ("may I?", []),
        ("田中さんはどこ", ["田中"]),
        ("What does the user like?", []),
        ("Zoë moved", ["Zoë"]),
        ("O'Brien moved", ["O'Brien"]),
        ("davenport", []),
        ("", []),
        ("'; DROP TABLE memories; --", []),
    ],
)
def test_a_query_names_these(query: str, found: list[str]) -> None:
    assert [NAMES[i] for i in named_speakers(query, NAMES)] == found


def test_names_of_any_kind_are_taken_as_they_are() -> None:
    odd = ["", "(", "\\", "🙂", "a" * 1000, "' OR 1=1", "  "]
    assert named_speakers("Where is ( 🙂 \\ ?", odd) == []

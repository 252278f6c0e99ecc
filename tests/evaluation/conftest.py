"""A small benchmark in LoCoMo's format, written for these tests."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_SAID = [
    ("Ana", "I adopted a greyhound called Pixel"),
    ("Tom", "My sister moved to Trondheim last week"),
    ("Ana", "The pottery course starts on Monday"),
    ("Tom", "I sold the old cello"),
    ("Ana", "Pixel chewed my passport"),
    ("Tom", "I never eat mushrooms"),
]

_QUESTIONS: list[dict[str, Any]] = [
    {"question": "greyhound", "answer": "Pixel", "evidence": ["D1:1"], "category": 4},
    {"question": "passport", "answer": "Pixel", "evidence": ["D1:1; D:2:2"], "category": 1},
    {"question": "Trondheim", "answer": 2, "evidence": ["D1:2", "D9:9"], "category": 2},
    {"question": "cello", "answer": "Tom", "evidence": ["D7:1"], "category": 3},
    {"question": "pottery", "adversarial_answer": "no", "evidence": ["D1:3"], "category": 5},
    {"question": "mushrooms", "answer": "no", "evidence": ["D2:1"], "category": 3},
]

_AUDIT = [
    {
        "sample_id": "talk-1",
        "qa_index": 5,
        "question": "mushrooms",
        "error_type": "WRONG_CITATION",
        "correct_evidence": ["D2:3"],
    },
    {
        "sample_id": "talk-1",
        "qa_index": 3,
        "question": "cello",
        "error_type": "WRONG_CITATION",
        "correct_evidence": ["D2:1"],
    },
    {"sample_id": "talk-1", "qa_index": 2, "error_type": "TEMPORAL_ERROR"},
    {"sample_id": "elsewhere", "qa_index": 0, "error_type": "AMBIGUOUS"},
]


@pytest.fixture
def talk() -> list[dict[str, Any]]:
    """One conversation: two sessions of three turns, a date too many, six questions."""
    turns = [
        {"speaker": who, "text": text, "dia_id": f"D{1 + i // 3}:{1 + i % 3}"}
        for i, (who, text) in enumerate(_SAID)
    ]
    turns[4]["blip_caption"] = "a torn booklet"
    conversation = {
        "speaker_a": "Ana",
        "speaker_b": "Tom",
        "session_2_date_time": "9:00 am on 2 May, 2021",
        "session_2": turns[3:],
        "session_1_date_time": "1:56 pm on 1 May, 2021",
        "session_1": turns[:3],
        "session_3_date_time": "1:56 pm on 8 May, 2021",
    }
    return [{"sample_id": "talk-1", "conversation": conversation, "qa": copy.deepcopy(_QUESTIONS)}]


@pytest.fixture
def audit() -> list[dict[str, Any]]:
    """Two wrong citations, one other error, one entry of another conversation."""
    return copy.deepcopy(_AUDIT)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, object], Path]:
    """Write something as JSON into the test's folder."""

    def write_json(name: str, data: object) -> Path:
        path = tmp_path / name
        path.write_text(json.dumps(data), encoding="utf-8")
        return path

    return write_json

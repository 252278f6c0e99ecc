"""Reading the LoCoMo benchmark's file format, and a public audit of its annotations.

The data itself is licensed for non-commercial use and is no part of riemem.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, InputFileError

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
"""The categories that are evaluated; 5, adversarial, asks for what was never said."""

_EVIDENCE = re.compile(r"D:?(\d+):(\d+)")
_SESSION = re.compile(r"session_(\d+)")


@dataclass(frozen=True)
class Turn:
    """One thing that was said; `id` is (session, number within the session)."""

    id: tuple[int, int]
    speaker: str
    text: str
    caption: str | None
    when: str | None


@dataclass(frozen=True)
class Question:
    """A question, its place in the file, and the rows of the turns that answer it."""

    index: int
    text: str
    category: int
    gold: tuple[int, ...]


@dataclass(frozen=True)
class Conversation:
    """The turns of one conversation in order, and its questions of categories 1 to 4."""

    name: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]

    @property
    def answerable(self) -> tuple[Question, ...]:
        """The questions with at least one evidence turn that exists."""
        return tuple(question for question in self.questions if question.gold)


@dataclass(frozen=True)
class Benchmark:
    """A LoCoMo file, read."""

    file: str
    sha256: str
    conversations: tuple[Conversation, ...]

    @property
    def n_questions(self) -> int:
        """Number of questions of categories 1 to 4 with an evidence turn that exists."""
        return sum(len(conversation.answerable) for conversation in self.conversations)


@dataclass(frozen=True)
class Audit:
    """What applying an audit changed: questions given other evidence, and questions left out."""

    file: str
    sha256: str
    corrected: int
    dropped: int


def load_locomo(path: str | os.PathLike[str]) -> Benchmark:
    """Read a file in LoCoMo's published format.

    Parameters
    ----------
    path : str or path
        A JSON list of ``{sample_id, conversation, qa}``.

    Returns
    -------
    Benchmark
        Evidence ids are read with the pattern ``D:?(session):(turn)``, so that joined and
        misspelt ones count; those that name no turn are left out.

    Raises
    ------
    InputFileError
        The file cannot be opened.
    ArgumentError
        It is not of this format; the message says what is wrong and where.
    """
    data, sha256 = _read_json(path, "path")
    if not isinstance(data, list) or not data:
        raise ArgumentError(f"path: expected a non-empty list of conversations, got {_kind(data)}")
    conversations = tuple(_conversation(item, f"[{i}]") for i, item in enumerate(data))
    names = [conversation.name for conversation in conversations]
    if len(set(names)) != len(names):
        raise ArgumentError("path: two conversations have the same sample_id")
    benchmark = Benchmark(Path(path).name, sha256, conversations)
    if benchmark.n_questions == 0:
        raise ArgumentError(
            "path: expected questions of categories 1 to 4 with evidence that exists, got none"
        )
    return benchmark


def apply_audit(benchmark: Benchmark, path: str | os.PathLike[str]) -> tuple[Benchmark, Audit]:
    """Correct the evidence that an audit found wrong and leave out what it found broken.

    Parameters
    ----------
    benchmark : Benchmark
        As loaded.
    path : str or path
        A JSON list of ``{sample_id, qa_index, error_type}``; ``WRONG_CITATION`` comes with
        ``correct_evidence``. Entries for other conversations or for category 5 are ignored.

    Returns
    -------
    Benchmark
        Questions with wrong citations have the corrected ones; any other error drops the
        question.
    Audit
        How many questions that was.

    Raises
    ------
    InputFileError, ArgumentError
        As :func:`load_locomo`; also when an entry's question is not the one in the benchmark.
    """
    data, sha256 = _read_json(path, "audit")
    if not isinstance(data, list):
        raise ArgumentError(f"audit: expected a list of known errors, got {_kind(data)}")
    entries: dict[tuple[str, int], Mapping[str, Any]] = {}
    for i, entry in enumerate(data):
        where = f"audit: [{i}]"
        name = _get(entry, "sample_id", str, where)
        entries[name, _get(entry, "qa_index", int, where)] = entry
        _get(entry, "error_type", str, where)
    corrected = dropped = 0
    conversations = []
    for conversation in benchmark.conversations:
        rows = {turn.id: row for row, turn in enumerate(conversation.turns)}
        kept = []
        for question in conversation.questions:
            found = entries.get((conversation.name, question.index))
            if found is None:
                kept.append(question)
                continue
            if found.get("question", question.text) != question.text:
                raise ArgumentError(
                    f"audit: question {question.index} of {conversation.name!r} is another one "
                    "than in the benchmark; the two files do not belong together"
                )
            gold = _gold(found.get("correct_evidence"), rows)
            if found["error_type"] == "WRONG_CITATION" and gold:
                kept.append(replace(question, gold=gold))
                corrected += 1
            else:
                dropped += bool(question.gold)
        conversations.append(replace(conversation, questions=tuple(kept)))
    audited = replace(benchmark, conversations=tuple(conversations))
    return audited, Audit(Path(path).name, sha256, corrected, dropped)


def _read_json(path: str | os.PathLike[str], name: str) -> tuple[Any, str]:
    try:
        raw = Path(path).read_bytes()
    except FileNotFoundError:
        raise InputFileError(f"{name}: no such file: {os.fspath(path)}") from None
    except OSError as error:
        raise InputFileError(f"{name}: {os.fspath(path)}: {error.strerror}") from error
    try:
        return json.loads(raw.decode("utf-8-sig")), hashlib.sha256(raw).hexdigest()
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{name}: {os.fspath(path)} is not JSON: {error}") from error


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", int: "a number"}
    names |= {float: "a number", bool: "true or false", type(None): "null"}
    kind = names.get(type(value), type(value).__name__)
    return f"{kind} of length {len(value)}" if isinstance(value, (dict, list)) else kind


def _get(item: object, key: str, kind: type, where: str) -> Any:
    if not isinstance(item, dict):
        raise ArgumentError(f"{where}: expected an object with {key!r}, got {_kind(item)}")
    if key not in item:
        raise ArgumentError(f"{where}: {key!r} is missing")
    value = item[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ArgumentError(f"{where}: {key!r}: expected {kind.__name__}, got {_kind(value)}")
    return value


def _conversation(item: object, where: str) -> Conversation:
    where = f"path: {where}"
    name = _get(item, "sample_id", str, where)
    where = f"{where} ({name})"
    sessions = _get(item, "conversation", dict, where)
    turns: list[Turn] = []
    # Some files date sessions that do not exist, so it is the sessions that are counted.
    numbers = sorted(int(m[1]) for key in sessions if (m := _SESSION.fullmatch(key)))
    for number in numbers:
        key = f"session_{number}"
        when = sessions.get(f"{key}_date_time")
        for i, turn in enumerate(_get(sessions, key, list, where)):
            turns.append(_turn(turn, when, f"{where}.{key}[{i}]"))
    if not turns:
        raise ArgumentError(f"{where}: expected turns in session_1, session_2, ..., got none")
    rows = {turn.id: row for row, turn in enumerate(turns)}
    if len(rows) != len(turns):
        raise ArgumentError(f"{where}: two turns have the same dia_id")
    questions = []
    for i, entry in enumerate(_get(item, "qa", list, where)):
        place = f"{where}.qa[{i}]"
        category = _get(entry, "category", int, place)
        if category in CATEGORIES:
            text = _get(entry, "question", str, place)
            questions.append(Question(i, text, category, _gold(entry.get("evidence"), rows)))
    return Conversation(name, tuple(turns), tuple(questions))


def _turn(item: object, when: object, where: str) -> Turn:
    match = _EVIDENCE.fullmatch(_get(item, "dia_id", str, where))
    if match is None:
        raise ArgumentError(f"{where}: 'dia_id': expected D<session>:<turn>")
    assert isinstance(item, dict)
    caption = item.get("blip_caption")
    return Turn(
        id=(int(match[1]), int(match[2])),
        speaker=_get(item, "speaker", str, where),
        text=_get(item, "text", str, where),
        caption=caption if isinstance(caption, str) and caption else None,
        when=when if isinstance(when, str) else None,
    )


def _gold(evidence: object, rows: Mapping[tuple[int, int], int]) -> tuple[int, ...]:
    """The rows of the evidence that exists, each once, in the order of the conversation."""
    parts: Sequence[object] = evidence if isinstance(evidence, list) else [evidence]
    found = {
        (int(session), int(turn))
        for part in parts
        if isinstance(part, str)
        for session, turn in _EVIDENCE.findall(part)
    }
    return tuple(sorted(rows[id_] for id_ in found if id_ in rows))

"""Streams of turns with questions, as the packing evaluation reads them: LoCoMo, RealMem, made up.

A question may only be answered from the turns before it (RealMem asks in the middle of the
stream); its gold are groups of turns, and a group is reached when one of its turns is in the text:
for LoCoMo a group is one evidence turn, for RealMem the session that holds it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..embed import RENDERINGS
from ..errors import ArgumentError, InputFileError
from .locomo import load_locomo

__all__ = ["PackQuestion", "Stream", "StreamTurn", "load_streams", "streams_from_locomo"]

_DAY = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_LOCOMO_DATE = "%I:%M %p on %d %B, %Y"


@dataclass(frozen=True)
class StreamTurn:
    """What is packed: as :class:`riemem.packing.Turn`, with what is embedded and remembered.

    Attributes
    ----------
    text : str
        What is packed; a shared picture's caption stands in it.
    group : str
        What a question's gold names.
    embedded : str
        The turn as the embedder reads it.
    plain, caption : str, optional
        Text and caption as a memory would get them; without `plain`, `text` is.
    """

    id: int
    text: str
    speaker: str | None
    session: str | None
    when: str | None
    group: str
    embedded: str
    score: float = 0.0
    plain: str | None = None
    caption: str | None = None

    def item(self) -> dict[str, Any]:
        """Return the turn as ``Memory.add_many`` takes it; without a date, the epoch."""
        text = self.text if self.plain is None else self.plain
        return {
            "text": text if text.strip() else "(picture)",
            "speaker": self.speaker,
            "session": self.session,
            "when": self.when or "1970-01-01T00:00:00+00:00",
            "metadata": {"caption": self.caption} if self.caption else None,
        }


@dataclass(frozen=True)
class PackQuestion:
    """A question, the groups that hold its answer, and how many turns there were before it."""

    text: str
    gold: tuple[str, ...]
    visible: int


@dataclass(frozen=True)
class Stream:
    """One conversation, persona or trajectory."""

    name: str
    turns: tuple[StreamTurn, ...]
    questions: tuple[PackQuestion, ...]


def load_streams(path: str | os.PathLike[str]) -> tuple[str, str, list[Stream]]:
    """Return the format ("locomo" or "realmem"), the file's SHA-256, and its streams.

    Raises
    ------
    InputFileError
        The file cannot be read.
    ArgumentError
        It is of neither format; the message says where.
    """
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise InputFileError(f"path: {os.fspath(path)}: {error.strerror}") from error
    try:
        data = json.loads(raw)
    except ValueError as error:
        raise ArgumentError(f"path: {os.fspath(path)} is not JSON: {error}") from error
    digest = hashlib.sha256(raw).hexdigest()
    if isinstance(data, dict) and "dialogues" in data:
        return "realmem", digest, [_realmem(data)]
    return "locomo", digest, streams_from_locomo(path)


def streams_from_locomo(path: str | os.PathLike[str]) -> list[Stream]:
    """Read a LoCoMo file: one stream per conversation, one group per turn."""
    render = RENDERINGS["name-said"]
    streams = []
    for conversation in load_locomo(path).conversations:
        turns = []
        for row, turn in enumerate(conversation.turns):
            when = _locomo_instant(turn.when)
            shared = f" [shares {turn.caption}]" if turn.caption else ""
            turns.append(
                StreamTurn(
                    row,
                    turn.text + shared,
                    turn.speaker,
                    f"{conversation.name}:{turn.id[0]}",
                    when,
                    str(row),
                    render(turn.text, speaker=turn.speaker, when=turn.when, caption=turn.caption),
                    plain=turn.text,
                    caption=turn.caption,
                )
            )
        questions = tuple(
            PackQuestion(q.text, tuple(str(g) for g in q.gold), len(turns))
            for q in conversation.answerable
        )
        streams.append(Stream(conversation.name, tuple(turns), questions))
    return streams


def _locomo_instant(when: str | None) -> str | None:
    if when is None:
        return None
    try:
        moment = datetime.strptime(when, _LOCOMO_DATE)
    except ValueError:
        return None
    return moment.replace(tzinfo=timezone.utc).isoformat()


def _realmem(data: Mapping[str, Any]) -> Stream:
    render = RENDERINGS["name-said"]
    name = str(data.get("_metadata", {}).get("person_name", "persona"))
    turns: list[StreamTurn] = []
    questions: list[PackQuestion] = []
    for i, dialogue in enumerate(data["dialogues"]):
        where = f"path: dialogues[{i}]"
        try:
            session, entries = str(dialogue["session_uuid"]), dialogue["dialogue_turns"]
            when = _realmem_instant(dialogue.get("current_time"))
            visible = len(turns)
            known = {turn.session for turn in turns}
            for j, entry in enumerate(entries):
                speaker, text = str(entry["speaker"]), str(entry["content"])
                if entry.get("is_query"):
                    gold = _answer_sessions(entries[j + 1 :])
                    reachable = tuple(g for g in gold if g in known)
                    if reachable:
                        questions.append(PackQuestion(text, reachable, visible))
                if text.strip():
                    said = render(text, speaker=speaker, when=when)
                    row = (len(turns), text, speaker, session, when, session, said)
                    turns.append(StreamTurn(*row))
        except (KeyError, TypeError, AttributeError) as error:
            raise ArgumentError(f"{where}: expected RealMem's format: {error!r}") from error
    return Stream(name, tuple(turns), tuple(questions))


def _answer_sessions(entries: Any) -> tuple[str, ...]:
    for entry in entries:
        sessions = entry.get("memory_session_uuids")
        if sessions is not None:
            return tuple(dict.fromkeys(str(s) for s in sessions))
        if entry.get("is_query"):
            break
    return ()


def _realmem_instant(value: object) -> str | None:
    found = _DAY.search(str(value))
    return None if found is None else f"{found.group()}T00:00:00+00:00"

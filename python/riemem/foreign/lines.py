"""Plain JSON lines: one object a line, under whatever names chats and datasets use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from riemem.errors import ArgumentError
from riemem.foreign.reading import Reading, first_of, plain_text
from riemem.store.exchange import FORMAT, json_objects

__all__ = ["read_json_lines"]

# In the order in which they are looked for; the first that is there counts.
_TEXT = ("text", "content", "message", "memory", "body")
_SPEAKER = ("speaker", "name", "author", "role", "from", "sender", "user")
_WHEN = ("when", "timestamp", "created_at", "create_time", "datetime", "date", "time", "ts")
_SESSION = ("session", "session_id", "conversation", "conversation_id", "thread_id", "chat_id")


def read_json_lines(lines: Iterable[bytes], name: str, reading: Reading) -> None:
    """Read one memory a line, or one conversation a line with its turns under ``messages``.

    Raises
    ------
    ArgumentError
        A line that is not a JSON object, or is cut off; the message names it. Also an export of
        riemem itself, which has a reader of its own.
    """
    for number, line in json_objects(lines, name):
        if line.get("format") == FORMAT:
            raise ArgumentError(f"{name}: line {number}: an export of riemem; import it as it is")
        where = f"line {number}"
        turns = line.get("messages")
        if not isinstance(turns, list):
            _take(where, line, reading, {})
            continue
        common = {
            "session": first_of(line, (*_SESSION, "id", "title"))[1],
            "when": first_of(line, _WHEN)[1],
        }
        for place, turn in enumerate(turns):
            if isinstance(turn, dict):
                _take(f"{where}, messages[{place}]", turn, reading, common)
            else:
                reading.skip(
                    f"{where}, messages[{place}]",
                    f"expected an object, got {type(turn).__name__}",
                )


def _take(where: str, line: dict[str, Any], reading: Reading, common: dict[str, Any]) -> None:
    used = {"metadata", "key"}
    found: dict[str, Any] = {}
    for field, names in (("when", _WHEN), ("session", _SESSION), ("speaker", _SPEAKER)):
        name, value = first_of(line, names)
        used.add(name or field)
        found[field] = common.get(field) if value is None else value
    name, value = first_of(line, _TEXT)
    text = plain_text(value)
    if name is None or text is None:
        reading.skip(where, f"text: expected one of the fields {', '.join(_TEXT)} with a text")
        return
    used.add(name)
    speaker = found["speaker"]
    if isinstance(speaker, dict):
        speaker = first_of(speaker, ("name", "role", "id"))[1]
    own = line.get("metadata")
    if own is not None and not isinstance(own, dict):
        reading.skip(where, f"metadata: expected an object, got {type(own).__name__}")
        return
    rest = {field: value for field, value in line.items() if field not in used}
    reading.take(
        where,
        {
            "text": text,
            "speaker": None if speaker in (None, "") else str(speaker),
            "session": None if found["session"] in (None, "") else str(found["session"]),
            "when": found["when"],
            "metadata": {**rest, **(own or {})},
            "key": line.get("key"),
        },
    )

"""What ``Memory.get_all()`` of mem0 returns, or its platform's ``/memories``, saved as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from riemem.errors import ArgumentError, SchemaVersionError
from riemem.foreign.reading import Reading, whole_json

__all__ = ["read_mem0"]

_VERSIONS = ("v1", "v1.0", "v1.1", "v2", "v3")
#: Kept beside the record's own metadata, so that filters find them.
_LABELS = ("user_id", "agent_id", "app_id", "categories")
#: Used, or worth nothing outside mem0.
_USED = {"id", "memory", "metadata", "created_at", "updated_at", "actor_id", "role", "run_id"}
_DERIVED = {"hash", "score", "event", "owner", "organization", "immutable", "type", "name", "input"}


def read_mem0(lines: Iterable[bytes], name: str, reading: Reading) -> None:
    """Read a list of mem0's records, or a document with them under ``results``.

    Raises
    ------
    ArgumentError
        Not JSON, cut off, or not such records.
    SchemaVersionError
        The document names a version that is not known here.
    """
    _, document = whole_json(lines, name)
    records = _records(document, name, reading)
    if records and not any(isinstance(record, dict) and "memory" in record for record in records):
        shown = sorted(records[0]) if isinstance(records[0], dict) else type(records[0]).__name__
        raise ArgumentError(
            f"{name}: expected records of mem0 with a field 'memory', got {shown!s:.200}; was it "
            "written by another version?"
        )
    users = set()
    for number, record in enumerate(records):
        where = f"results[{number}]"
        if not isinstance(record, dict):
            reading.skip(where, f"expected an object, got {type(record).__name__}")
            continue
        users.add(record.get("user_id"))
        _take(where, record, reading)
    if len(users) > 1:
        named = ", ".join(sorted(str(user) for user in users))
        reading.note(
            f"memories of {len(users)} users ({named:.200}) go into one profile; the metadata key "
            "user_id tells them apart"
        )


def _records(document: Any, name: str, reading: Reading) -> list[Any]:
    if isinstance(document, list):
        return document
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        raise ArgumentError(
            f"{name}: expected a list of mem0's records or an object with 'results', "
            f"got {sorted(document) if isinstance(document, dict) else type(document).__name__}"
        )
    version = document.get("version")
    if version is not None and str(version) not in _VERSIONS:
        raise SchemaVersionError(
            f"{name}: version: expected one of {', '.join(_VERSIONS)}, got {version!r}"
        )
    records: list[Any] = document["results"]
    if document.get("next"):
        reading.note("the file is one page of several: 'next' names another")
    if document.get("relations"):
        reading.skip(
            "relations", f"{len(document['relations'])} relations of the graph are not memories"
        )
    return records


def _take(where: str, record: dict[str, Any], reading: Reading) -> None:
    own = record.get("metadata")
    if own is not None and not isinstance(own, dict):
        reading.skip(where, f"metadata: expected an object, got {type(own).__name__}")
        return
    if not isinstance(record.get("memory"), str):
        reading.skip(where, "memory: missing")
        return
    for field in sorted(set(record) - _USED - _DERIVED - set(_LABELS)):
        if record[field] not in (None, [], {}, ""):
            reading.count(f"values of the field {field!r}, not imported")
    metadata = dict(own or {})
    metadata |= {label: record[label] for label in _LABELS if record.get(label)}
    item = {
        "text": record["memory"],
        "speaker": record.get("actor_id") or record.get("role") or None,
        "session": record.get("run_id") or None,
        "when": record.get("created_at"),
        "metadata": metadata,
        "key": f"mem0:{record['id']}" if record.get("id") else None,
    }
    reading.take(where, item, created=record.get("created_at"), updated=record.get("updated_at"))

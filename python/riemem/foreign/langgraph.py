"""Items of a LangGraph store: ``[item.dict() for item in store.search(())]``, saved as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from riemem.errors import ArgumentError
from riemem.foreign.reading import Reading, first_of, plain_text, whole_json
from riemem.store.exchange import json_objects

__all__ = ["read_langgraph"]

_TEXTS = ("text", "content", "memory", "data")
_KNOWN = {"namespace", "prefix", "key", "value", "created_at", "updated_at", "score"}
_KNOWN |= {"expires_at", "ttl_minutes"}


def read_langgraph(lines: Iterable[bytes], name: str, reading: Reading) -> None:
    """Read items from a JSON list, from an object with ``items``, or one a line.

    Raises
    ------
    ArgumentError
        Not JSON, cut off, or not such items.
    """
    count = 0
    for where, item in _items(lines, name):
        count += 1
        if not isinstance(item, dict):
            reading.skip(where, f"expected an object, got {type(item).__name__}")
            continue
        if count == 1 and not ("value" in item and "key" in item):
            raise ArgumentError(
                f"{name}: expected items of a LangGraph store with 'namespace', 'key' and 'value', "
                f"got {sorted(item)!s:.200}; was it written by another version?"
            )
        _take(where, item, reading)


def _items(lines: Iterable[bytes], name: str) -> Iterator[tuple[str, Any]]:
    kept = list(lines)
    filled = [line for line in kept if line.strip()]
    if (
        len(filled) > 1
        and filled[0].lstrip(b"\xef\xbb\xbf ").startswith(b"{")
        and _is_json(filled[0])
    ):
        for number, item in json_objects(kept, name):
            yield f"line {number}", item
        return
    _, document = whole_json(kept, name)
    if isinstance(document, dict) and isinstance(document.get("items"), list):
        document = document["items"]
    elif isinstance(document, dict) and "value" in document:
        document = [document]
    if not isinstance(document, list):
        raise ArgumentError(
            f"{name}: expected a list of items of a LangGraph store, got {type(document).__name__}"
        )
    for number, item in enumerate(document):
        yield f"items[{number}]", item


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return False
    return True


def _take(where: str, item: dict[str, Any], reading: Reading) -> None:
    value, key = item.get("value"), item.get("key")
    namespace = item.get("namespace")
    if namespace is None and isinstance(item.get("prefix"), str):
        namespace = item["prefix"].split(".")  # the column of LangGraph's tables
    if not isinstance(value, dict) or not isinstance(key, str):
        reading.skip(where, "expected a text under 'key' and an object under 'value'")
        return
    if not isinstance(namespace, list) or not all(isinstance(part, str) for part in namespace):
        reading.skip(where, "namespace: expected a list of texts")
        return
    for field in sorted(set(item) - _KNOWN):
        reading.count(f"values of the field {field!r}, not imported")
    text = plain_text(first_of(value, _TEXTS)[1])
    metadata: dict[str, Any] = {"namespace": namespace, "langgraph_key": key}
    if text is None or len(value) > 1 or not isinstance(next(iter(value.values())), str):
        metadata["value"] = value
    name = hashlib.sha256(json.dumps([namespace, key]).encode()).hexdigest()
    reading.take(
        where,
        {
            "text": json.dumps(value, ensure_ascii=False) if text is None else text,
            "session": "/".join(namespace) or None,
            "when": item.get("created_at"),
            "metadata": metadata,
            "key": f"langgraph-item:{name}",
        },
        created=item.get("created_at"),
        updated=item.get("updated_at"),
    )

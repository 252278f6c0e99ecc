"""The memory as the long-term store of LangGraph. Needs ``langgraph-checkpoint``."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchItem,
    SearchOp,
    get_text_at_path,
    tokenize_path,
)

from riemem.errors import ArgumentError, DTypeError
from riemem.memory import Memory
from riemem.store.records import Record, check_name

__all__ = ["RiememStore"]

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "$gt": lambda a, b: a > b,
    "$gte": lambda a, b: a >= b,
    "$lt": lambda a, b: a < b,
    "$lte": lambda a, b: a <= b,
}


class RiememStore(BaseStore):
    """LangGraph's ``BaseStore`` over a :class:`riemem.Memory`: items in a profile of their own.

    Each item is a memory whose text is what is indexed of its value. ``search`` with a query ranks
    as :meth:`riemem.Memory.search` does; without one the oldest come first. An item put with
    ``index=False``, or without any of the fields, is found by key and filter only.

    Parameters
    ----------
    memory : Memory
    profile : str
        Holds the items and nothing else, so that they do not mix with what people said.
    fields : sequence of str, optional
        Paths whose text is indexed, as in LangGraph's ``IndexConfig``; by default the whole value
        as JSON.

    Notes
    -----
    In a batch, what reads sees the state before it; of several puts under one key the last one
    counts. New items of a batch are stored in one transaction. Items do not expire (``ttl`` is
    refused by the base class). A filter is evaluated on every item under the prefix, O(N).

    Examples
    --------
    >>> from riemem.embed import HashingEmbedder
    >>> with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as memory:
    ...     store = RiememStore(memory, fields=["text"])
    ...     store.put(("users", "maya"), "home", {"text": "moved to Porto"})
    ...     store.search(("users",), query="Porto")[0].value
    {'text': 'moved to Porto'}
    """

    def __init__(
        self, memory: Memory, *, profile: str = "langgraph", fields: Sequence[str] | None = None
    ) -> None:
        if isinstance(fields, str):
            raise DTypeError(f"fields: expected a sequence of paths, got str {fields!r}")
        self._memory = memory
        self._profile = check_name(profile, "profile")
        self._fields = ["$"] if fields is None else list(fields)

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        """Execute operations and return their results in order."""
        results: list[Any] = []
        puts: dict[str, PutOp] = {}
        for op in ops:
            if isinstance(op, GetOp):
                found = self._records({"item": _digest(op.namespace, op.key)})
                results.append(_item(found[0]) if found else None)
            elif isinstance(op, SearchOp):
                results.append(self._search(op))
            elif isinstance(op, ListNamespacesOp):
                results.append(self._namespaces(op))
            elif isinstance(op, PutOp):
                puts[_digest(op.namespace, op.key)] = op
                results.append(None)
            else:
                raise DTypeError(f"ops: expected operations of a store, got {type(op).__name__}")
        self._put({item: op for item, op in puts.items() if op.value is not None})
        self._delete([item for item, op in puts.items() if op.value is None])
        return results

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        """Execute operations in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _put(self, puts: Mapping[str, PutOp]) -> None:
        if not puts:
            return
        items = [self._memory_of(item, op) for item, op in puts.items()]
        ids = self._memory.add_many(items)  # one whose key is there already stays as it is
        stored = {
            record.id: record
            for record in self._memory.list(profile=self._profile, filters={"ids": ids})
        }
        for memory_id, wanted in zip(ids, items, strict=True):
            old = stored.get(memory_id)
            if old is not None and (old.text, old.metadata) != (wanted["text"], wanted["metadata"]):
                self._memory.update(
                    memory_id,
                    text=wanted["text"],
                    metadata=wanted["metadata"],
                    profile=self._profile,
                )

    def _delete(self, items: Sequence[str]) -> None:
        ids = [record.id for record in self._records({"item": list(items)})] if items else []
        if ids:
            self._memory.forget(ids, profile=self._profile)

    def _memory_of(self, item: str, op: PutOp) -> dict[str, Any]:
        value = json.loads(json.dumps(dict(op.value or {}), allow_nan=False))
        paths = self._fields if op.index is None else op.index
        texts = [text for path in paths or () for text in _texts(value, path) if text.strip()]
        metadata: dict[str, Any] = {"item": item, "indexed": bool(texts), **_places(op.namespace)}
        metadata["langgraph"] = {"namespace": list(op.namespace), "key": op.key, "value": value}
        return {
            "text": "\n".join(texts) or json.dumps(value),
            "metadata": metadata,
            "key": f"langgraph:{item}",
            "profile": self._profile,
        }

    def _records(self, metadata: Mapping[str, Any]) -> list[Record]:
        return self._memory.list(
            profile=self._profile, filters={"metadata": dict(metadata)}, order="id"
        )

    def _search(self, op: SearchOp) -> list[Any]:
        prefix = tuple(op.namespace_prefix)
        where = {f"ns{len(prefix)}": _joined(prefix)} if prefix else {}
        last = op.offset + op.limit
        if not op.query:
            found = [r for r in self._records(where) if _passes(_value(r), op.filter)]
            return [_search_item(record, None) for record in found[op.offset : last]]
        filters: dict[str, Any] = {"metadata": {**where, "indexed": True}}
        if op.filter:
            passing = [r.id for r in self._records(where) if _passes(_value(r), op.filter)]
            filters["ids"] = passing
        hits = self._memory.search(op.query, k=last, profile=self._profile, filters=filters)
        records = {
            record.id: record
            for record in self._memory.list(
                profile=self._profile, filters={"ids": [hit.id for hit in hits]}
            )
        }
        return [
            _search_item(records[hit.id], hit.score)
            for hit in hits[op.offset :]
            if hit.id in records  # deleted meanwhile
        ]

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        every = {tuple(r.metadata["langgraph"]["namespace"]) for r in self._records({})}
        chosen = {
            namespace[: op.max_depth]
            for namespace in every
            if all(_matches(condition, namespace) for condition in op.match_conditions or ())
        }
        return sorted(chosen)[op.offset : op.offset + op.limit]


def _joined(namespace: Sequence[str]) -> str:
    return json.dumps(list(namespace))


def _digest(namespace: Sequence[str], key: str) -> str:
    """One short name for a namespace and a key, whatever their length."""
    return hashlib.sha256(json.dumps([list(namespace), key]).encode()).hexdigest()


def _places(namespace: Sequence[str]) -> dict[str, str]:
    """The prefixes of a namespace, each under its depth, so that a filter finds them."""
    return {f"ns{n}": _joined(namespace[:n]) for n in range(1, len(namespace) + 1)}


def _texts(value: dict[str, Any], path: str) -> list[str]:
    if path == "$":
        return [json.dumps(value, ensure_ascii=False)]
    texts: list[str] = get_text_at_path(value, tokenize_path(path))
    return texts


def _value(record: Record) -> dict[str, Any]:
    value: dict[str, Any] = record.metadata["langgraph"]["value"]
    return value


def _fields_of(record: Record) -> dict[str, Any]:
    kept = record.metadata["langgraph"]
    return {
        "namespace": tuple(kept["namespace"]),
        "key": kept["key"],
        "value": kept["value"],
        "created_at": datetime.fromisoformat(record.created_at),
        "updated_at": datetime.fromisoformat(record.updated_at),
    }


def _item(record: Record) -> Any:
    return Item(**_fields_of(record))


def _search_item(record: Record, score: float | None) -> Any:
    return SearchItem(**_fields_of(record), score=score)


def _matches(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = tuple(condition.path)
    if len(path) > len(namespace):
        return False
    if condition.match_type == "prefix":
        part = namespace[: len(path)]
    elif condition.match_type == "suffix":
        part = namespace[len(namespace) - len(path) :]
    else:
        raise ArgumentError(f"match_type: expected prefix or suffix, got {condition.match_type!r}")
    return all(wanted in ("*", got) for wanted, got in zip(path, part, strict=True))


def _passes(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    return all(_equal(value.get(key), want) for key, want in (wanted or {}).items())


def _equal(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(str(key).startswith("$") for key in wanted):
            return all(_compare(value, key, other) for key, other in wanted.items())
        return isinstance(value, Mapping) and _passes(value, wanted)
    if isinstance(wanted, (list, tuple)):
        return (
            isinstance(value, (list, tuple))
            and len(value) == len(wanted)
            and all(map(_equal, value, wanted))
        )
    return bool(value == wanted)


def _compare(value: Any, operator: str, other: Any) -> bool:
    if operator == "$eq":
        return bool(value == other)
    if operator == "$ne":
        return bool(value != other)
    if operator not in _COMPARISONS:
        expected = ", ".join(["$eq", "$ne", *_COMPARISONS])
        raise ArgumentError(f"filter: expected one of {expected}, got {operator!r}")
    try:
        return bool(_COMPARISONS[operator](float(value), float(other)))
    except (TypeError, ValueError):
        return False  # what is no number is neither larger nor smaller

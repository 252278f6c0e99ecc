"""Reading what other tools wrote: exports and chats, as memories that can be imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from riemem.errors import ArgumentError
from riemem.foreign.langgraph import read_langgraph
from riemem.foreign.lines import read_json_lines
from riemem.foreign.markdown import read_markdown
from riemem.foreign.mem0 import read_mem0
from riemem.foreign.reading import Foreign, Reading, Skipped
from riemem.store.transfer import read_from

__all__ = ["SOURCES", "Foreign", "Skipped", "read_foreign"]

Reader = Callable[[Iterable[bytes], str, Reading], None]

#: The readers by the name that ``riemem import --from`` takes.
SOURCES: Mapping[str, Reader] = MappingProxyType(
    {
        "mem0": read_mem0,
        "langgraph": read_langgraph,
        "jsonl": read_json_lines,
        "markdown": read_markdown,
    }
)


def read_foreign(path_or_file: Any, source: str, *, profile: str) -> Foreign:
    """Read and check a whole file of another tool; nothing is stored here.

    Parameters
    ----------
    path_or_file : str, path, or a file open for reading
    source : {"mem0", "langgraph", "jsonl", "markdown"}
        What wrote it; see docs/import.md for what is read.
    profile : str
        The memories go into it.

    Returns
    -------
    Foreign
        The memories, what was skipped and why, and remarks.

    Raises
    ------
    InputFileError
        The path cannot be read.
    ArgumentError
        Not such an export, one of another version, or cut off; the message says where.

    Examples
    --------
    >>> import io
    >>> found = read_foreign(io.BytesIO(b'{"text": "tea"}'), "jsonl", profile="default")
    >>> [item.draft.text for item in found.parcel.memories]
    ['tea']
    """
    if source not in SOURCES:
        raise ArgumentError(f"source: expected one of {', '.join(SOURCES)}, got {source!r}")

    def read(lines: Iterable[bytes], name: str) -> Foreign:
        reading = Reading(source, profile)
        SOURCES[source](lines, name, reading)
        return reading.finish()

    return read_from(path_or_file, read)

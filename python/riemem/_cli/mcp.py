"""``riemem mcp``: the memory for agents that speak the Model Context Protocol."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import Any

import click

from .options import Opener, with_store
from .output import emit, note

__all__ = ["COMMANDS"]


@click.command("mcp")
@click.option("--readonly", is_flag=True, help="Offer recall and search, not remember and forget.")
@with_store(create=True)
def mcp_command(opener: Opener, readonly: bool, as_json: bool) -> None:
    """Serve the memory to an MCP client over standard input and output, until it hangs up.

    Standard output carries the protocol and nothing else; logs go to standard error. No model is
    loaded before a call needs one. With --json it prints what it offers, and serves nothing.
    """
    from ..mcp_server import make_server, serve

    opener = replace(opener, readonly=readonly, create=not readonly)
    with opener.open() as memory:
        server = make_server(memory)
        if as_json:
            emit(True, {"mcp": asyncio.run(_offer(server))}, "")
        else:
            if sys.stdin.isatty():
                note("riemem: serving MCP on standard input; an agent starts this, Ctrl-C ends it")
            serve(server)


async def _offer(server: Any) -> dict[str, Any]:
    plain = {"by_alias": True, "exclude_none": True, "mode": "json"}
    return {
        "tools": [tool.model_dump(**plain) for tool in await server.list_tools()],
        "resources": [item.model_dump(**plain) for item in await server.list_resources()],
        "resource_templates": [
            item.model_dump(**plain) for item in await server.list_resource_templates()
        ],
    }


COMMANDS = (mcp_command,)

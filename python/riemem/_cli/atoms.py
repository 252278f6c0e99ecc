"""``riemem cluster``: the groups into which the memories have fallen."""

from __future__ import annotations

from dataclasses import asdict

import click

from .options import Opener, with_store
from .output import brief, emit, table

__all__ = ["COMMANDS"]


@click.command("cluster")
@click.option(
    "--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Most to show."
)
@with_store(readonly=True)
def cluster_command(opener: Opener, limit: int, as_json: bool) -> None:
    """Print the atoms of a profile, largest first: number, size, a few words, members."""
    with opener.open_if_writable() as memory:
        found = memory.atoms()
    members = sum(atom.size for atom in found)
    largest = found[0].size / members if found else 0.0
    document = {
        "memories": members,
        "atoms": len(found),
        "largest_share": largest,
        "shown": [asdict(atom) | {"size": atom.size} for atom in found[:limit]],
    }

    def text() -> str:
        rows = [
            (atom.id, atom.size, brief(atom.header, 40), brief(", ".join(map(str, atom.ids)), 36))
            for atom in found[:limit]
        ]
        head = f"{members} memories in {len(found)} atoms, the largest holds {largest:.0%}"
        return head + ("\n" + table(rows, ("atom", "size", "words", "memories")) if rows else "")

    emit(as_json, document, text)


COMMANDS = (cluster_command,)

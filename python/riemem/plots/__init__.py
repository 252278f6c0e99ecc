"""Pictures of a store: its map, its time line, the spectrum of its metric, its atoms.

Each function takes an open :class:`riemem.Memory` and returns a :class:`Picture`, which is saved as
PNG, SVG, or one HTML page that loads nothing. Needs the extra ``plot`` (matplotlib).
"""

from __future__ import annotations

from .atoms import atom_growth
from .map import memory_map
from .picture import SUFFIXES, Picture
from .spectrum import spectrum
from .timeline import timeline

__all__ = ["SUFFIXES", "Picture", "atom_growth", "memory_map", "spectrum", "timeline"]

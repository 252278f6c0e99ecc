"""The durable store: one SQLite file, everything in it written in transactions."""

from riemem.store.check import CheckReport
from riemem.store.records import Record
from riemem.store.sqlite import Identity, Store
from riemem.store.writes import Forgotten

__all__ = ["CheckReport", "Forgotten", "Identity", "Record", "Store"]

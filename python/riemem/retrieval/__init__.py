"""Channels: ways of finding memories, each in its own file, behind one protocol."""

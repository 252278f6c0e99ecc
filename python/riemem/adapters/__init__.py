"""Thin adapters to other people's frameworks; each module needs its own, and is imported by name.

``riemem.adapters.langchain``, ``.langgraph``, ``.llama_index``, ``.sklearn``: see docs/adapters.md.
"""

"""The memory as a LlamaIndex retriever, and distillation as a node postprocessor.

Needs ``llama-index-core``; the postprocessor's own distiller also ``riemem[text]``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

from riemem.memory import Memory

__all__ = ["DistillPostprocessor", "RiememRetriever"]


class RiememRetriever(BaseRetriever):
    """Nodes from :meth:`riemem.Memory.search`, best first.

    Each node has the memory's text, its id (as text), and as metadata those of the memory with
    ``speaker``, ``session`` and ``when``, which win over keys of the same name.

    Parameters
    ----------
    memory : Memory
    k : int
    filters, session, profile, ranking
        As for :meth:`riemem.Memory.search`.
    **options
        Of LlamaIndex's ``BaseRetriever``.

    Examples
    --------
    >>> from riemem.embed import HashingEmbedder
    >>> with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as memory:
    ...     _ = memory.add("I moved to Porto", speaker="Maya")
    ...     RiememRetriever(memory, k=1).retrieve("Porto")[0].text
    'I moved to Porto'
    """

    def __init__(
        self,
        memory: Memory,
        *,
        k: int = 10,
        filters: Mapping[str, Any] | None = None,
        session: str | None = None,
        profile: str | None = None,
        ranking: Any = "default",
        **options: Any,
    ) -> None:
        self._memory = memory
        self._arguments: dict[str, Any] = {"k": k, "filters": filters, "session": session}
        self._arguments |= {"profile": profile, "ranking": ranking}
        super().__init__(**options)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self._memory.search(query_bundle.query_str, **self._arguments)
        return [
            NodeWithScore(
                node=TextNode(
                    id_=str(hit.id),
                    text=hit.text,
                    metadata={
                        **hit.metadata,
                        "speaker": hit.speaker,
                        "session": hit.session,
                        "when": hit.when,
                    },
                ),
                score=hit.score,
            )
            for hit in hits
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


class DistillPostprocessor(BaseNodePostprocessor):
    """Cuts the texts of nodes to a token budget with a :class:`riemem.Distiller`.

    Nodes keep their ids, scores, metadata and order; one of which nothing is left goes.

    Parameters
    ----------
    token_budget : int
        Most tokens of what is left, written as riemem writes turns: with the dates and speakers of
        the metadata (``when``, ``speaker``), counted by the distiller.
    distiller : Distiller, optional
        By default ``riemem.Distiller()``, made at the first use.

    Raises
    ------
    As :meth:`riemem.Distiller.distill`, when used.

    Examples
    --------
    >>> from riemem import Distiller
    >>> cut = DistillPostprocessor(
    ...     token_budget=5,
    ...     distiller=Distiller(score="truncate", count_tokens=lambda s: len(s.split())),
    ... )
    >>> node = NodeWithScore(node=TextNode(text="one two three four five"), score=1.0)
    >>> cut.postprocess_nodes([node])[0].text
    'one two'
    """

    token_budget: int
    distiller: Any = None

    @classmethod
    def class_name(cls) -> str:
        """The name under which LlamaIndex writes it down."""
        return "DistillPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if not nodes:
            return []
        if self.distiller is None:
            from riemem.distill import Distiller

            self.distiller = Distiller()
        texts = [item.node.get_content(metadata_mode=MetadataMode.NONE) for item in nodes]
        made = self.distiller.distill(
            [_turn(number, text, nodes[number]) for number, text in enumerate(texts)],
            token_budget=self.token_budget,
            query=None if query_bundle is None else query_bundle.query_str,
        )
        left: dict[int, list[str]] = {}
        for number, start, end in made.spans:
            left.setdefault(number, []).append(texts[number][start:end])
        kept = []
        for number, parts in sorted(left.items()):
            node = nodes[number].node.model_copy()
            node.set_content("".join(parts))
            kept.append(NodeWithScore(node=node, score=nodes[number].score))
        return kept


def _turn(number: int, text: str, item: NodeWithScore) -> dict[str, Any]:
    turn = {"id": number, "text": text, "score": item.score}
    for name in ("speaker", "when"):
        value = item.node.metadata.get(name)
        if isinstance(value, str):
            turn[name] = value
    return turn

"""The LlamaIndex adapters against the real llama-index-core."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from riemem.distill import Distiller
from riemem.embed import HashingEmbedder
from riemem.errors import ArgumentError, BudgetTooSmallError
from riemem.memory import Memory

pytest.importorskip(
    "llama_index.core",
    reason="llama-index-core is not installed: pip install 'riemem[llama-index]'",
)

from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode
from riemem.adapters.llama_index import DistillPostprocessor, RiememRetriever


def words(text: str) -> int:
    return len(text.split())


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as opened:
        opened.add_many(
            [
                {
                    "text": "Dave took up photography",
                    "speaker": "Mia",
                    "metadata": {"topic": "art"},
                },
                {"text": "The trains were late", "speaker": "Mia", "session": "s2"},
                {"text": "Dave sold his camera", "speaker": "Ana", "metadata": {"speaker": "no"}},
            ]
        )
        yield opened


def test_nodes_are_the_hits(memory: Memory) -> None:
    retriever = RiememRetriever(memory, k=2)
    hits = memory.search("Dave camera", k=2)
    nodes = retriever.retrieve("Dave camera")
    assert [(n.node_id, n.text, n.score) for n in nodes] == [
        (str(h.id), h.text, h.score) for h in hits
    ]
    assert nodes[0].metadata["speaker"] == "Ana"
    assert nodes[0].metadata["when"] == hits[0].when
    again = asyncio.run(retriever.aretrieve("Dave camera"))
    assert [n.node_id for n in again] == [n.node_id for n in nodes]
    only = RiememRetriever(memory, filters={"topic": "art"}).retrieve("Dave")
    assert [n.text for n in only] == ["Dave took up photography"]
    assert RiememRetriever(memory, session="s2").retrieve("Dave")[0].text == "The trains were late"
    with pytest.raises(ArgumentError, match="query"):
        retriever.retrieve(" ")


def test_in_a_query_engine(memory: Memory) -> None:
    cut = DistillPostprocessor(
        token_budget=8, distiller=Distiller(score="truncate", count_tokens=words)
    )
    engine = RetrieverQueryEngine.from_args(
        RiememRetriever(memory, k=2), llm=MockLLM(), node_postprocessors=[cut]
    )
    answer = engine.query("What did Dave sell? A camera?")
    assert 1 <= len(answer.source_nodes) <= 2
    assert "camera" in str(answer) or "photography" in str(answer)


def _nodes() -> list[NodeWithScore]:
    texts = ["one two three four", "five six", "seven eight nine"]
    return [
        NodeWithScore(node=TextNode(id_=f"n{i}", text=text, metadata={"m": i}), score=1.0 - i / 10)
        for i, text in enumerate(texts)
    ]


@pytest.mark.parametrize("budget", range(4, 16))
def test_the_budget_and_what_nodes_keep(budget: int) -> None:
    distiller = Distiller(score="truncate", count_tokens=words)
    nodes = _nodes()
    kept = DistillPostprocessor(token_budget=budget, distiller=distiller).postprocess_nodes(nodes)
    whole = {item.node_id: item.text.split() for item in nodes}
    assert kept
    for item in kept:
        left = item.node.get_content(metadata_mode=MetadataMode.NONE).split()
        assert [w for w in whole[item.node_id] if w in left] == left  # in order, nothing made up
        assert item.metadata == {"m": int(item.node_id[1])}
        assert item.score == 1.0 - item.metadata["m"] / 10
    assert sum(words(item.text) for item in kept) <= budget
    expected = distiller.distill(
        [{"id": i, "text": item.text, "score": item.score} for i, item in enumerate(nodes)],
        token_budget=budget,
    )
    assert expected.tokens <= budget
    assert [int(item.node_id[1]) for item in kept] == sorted({span.id for span in expected.spans})
    assert [item.text for item in nodes] == [item.text for item in _nodes()]  # the input is whole


def test_edges(memory: Memory) -> None:
    distiller = Distiller(score="truncate", count_tokens=words)
    cut = DistillPostprocessor(token_budget=1, distiller=distiller)
    assert cut.postprocess_nodes([]) == []
    with pytest.raises(BudgetTooSmallError):
        cut.postprocess_nodes(_nodes())
    roomy = DistillPostprocessor(token_budget=1000, distiller=distiller)
    assert [n.text for n in roomy.postprocess_nodes(_nodes())] == [n.text for n in _nodes()]
    assert DistillPostprocessor.class_name() == "DistillPostprocessor"
    assert asyncio.run(roomy.apostprocess_nodes(_nodes(), query_str="one?"))[0].text


def test_the_default_distiller_is_made_at_the_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Distiller] = []

    def make() -> Distiller:
        made.append(Distiller(score="truncate", count_tokens=words))
        return made[-1]

    monkeypatch.setattr("riemem.distill.Distiller", make)
    cut = DistillPostprocessor(token_budget=9)
    assert made == []
    assert cut.postprocess_nodes(_nodes(), query_str="one?")
    assert cut.postprocess_nodes(_nodes())
    assert len(made) == 1


def test_dates_and_speakers_count() -> None:
    distiller = Distiller(score="truncate", count_tokens=words)
    said = {"speaker": "Dave", "when": "2023-10-19T14:02:00Z"}
    node = NodeWithScore(node=TextNode(text="one two three four five six seven", metadata=said))
    bare = NodeWithScore(node=TextNode(text=node.text))
    cut = DistillPostprocessor(token_budget=8, distiller=distiller)
    assert [n.text for n in cut.postprocess_nodes([node])] == ["one two three four five"]
    assert [n.text for n in cut.postprocess_nodes([bare])] == ["one two three four five"]

"""The LangChain adapters against the real langchain-core."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import ArgumentError
from riemem.memory import Memory

pytest.importorskip(
    "langchain_core", reason="langchain-core is not installed: pip install 'riemem[langchain]'"
)

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from riemem.adapters.langchain import RiememChatHistory, RiememRetriever


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
                {"text": "Dave sold his camera", "speaker": "Ana", "metadata": {"score": "low"}},
            ]
        )
        yield opened


def test_documents_are_the_hits(memory: Memory) -> None:
    retriever = RiememRetriever(memory=memory, k=2)
    hits = memory.search("Dave camera", k=2)
    documents = retriever.invoke("Dave camera")
    assert [(d.id, d.page_content) for d in documents] == [(str(h.id), h.text) for h in hits]
    best = documents[0]
    assert best.page_content == "Dave sold his camera"
    assert best.metadata["speaker"] == "Ana"
    assert best.metadata["when"] == hits[0].when
    assert best.metadata["score"] == hits[0].score  # ours, not the one in the metadata
    assert asyncio.run(retriever.ainvoke("Dave camera")) == documents
    assert retriever.batch(["Dave camera", "trains"])[0] == documents


def test_the_scope_of_a_retriever(memory: Memory) -> None:
    found = RiememRetriever(memory=memory, filters={"topic": "art"}).invoke("Dave")
    assert [d.metadata["topic"] for d in found] == ["art"]
    found = RiememRetriever(memory=memory, session="s2").invoke("Dave")
    assert [d.page_content for d in found] == ["The trains were late"]
    assert RiememRetriever(memory=memory, profile="nobody").invoke("Dave") == []
    with pytest.raises(ArgumentError, match="query"):
        RiememRetriever(memory=memory).invoke(" ")


def test_in_a_chain(memory: Memory) -> None:
    seen = []

    def note(prompt: object) -> object:
        seen.append(prompt.to_string())
        return prompt

    prompt = ChatPromptTemplate.from_template("Known: {known}\nAsked: {asked}")
    model = GenericFakeChatModel(messages=iter([AIMessage("a camera")]))
    join = RunnableLambda(lambda documents: "; ".join(d.page_content for d in documents))
    chain = (
        {
            "known": RiememRetriever(memory=memory, k=1) | join,
            "asked": RunnablePassthrough(),
        }
        | prompt
        | RunnableLambda(note)
        | model
        | StrOutputParser()
    )
    assert chain.invoke("What did Dave sell? A camera?") == "a camera"
    assert "Known: Dave sold his camera" in seen[0]


def test_messages_come_back_as_they_were(memory: Memory) -> None:
    history = RiememChatHistory(memory, "chat", speakers={"human": "Maya"})
    messages = [
        SystemMessage("be kind"),
        HumanMessage("I moved to Porto", id="h1"),
        AIMessage("", tool_calls=[{"name": "map", "args": {"city": "Porto"}, "id": "t1"}]),
        ToolMessage("41.1 N", tool_call_id="t1"),
        AIMessage([{"type": "text", "text": "Nice"}], additional_kwargs={"mood": 1}),
    ]
    history.add_messages(messages)
    assert history.messages == messages
    assert asyncio.run(history.aget_messages()) == messages
    records = memory.list(session="chat", order="id")
    assert [r.speaker for r in records] == ["system", "Maya", "ai", "tool", "ai"]
    assert [r.text for r in records][2:] == ["[ai message without text]", "41.1 N", "Nice"]
    assert memory.search("Porto", k=1)[0].speaker == "Maya"


def test_clearing_touches_nothing_else(memory: Memory) -> None:
    history = RiememChatHistory(memory, "s2", profile="default")
    other = RiememChatHistory(memory, "s3")
    history.add_user_message("hello")
    history.add_ai_message("hi")
    other.add_user_message("elsewhere")
    history.clear()
    assert history.messages == []
    assert [r.text for r in memory.list(session="s2")] == ["The trains were late"]
    assert other.messages == [HumanMessage("elsewhere")]
    history.clear()  # an empty one can be cleared too
    with pytest.raises(ArgumentError, match="session"):
        RiememChatHistory(memory, " ")


def test_a_failing_message_stores_none(memory: Memory) -> None:
    history = RiememChatHistory(memory, "chat")
    with pytest.raises(ValueError, match="surrogate"):
        history.add_messages([HumanMessage("one"), HumanMessage("\ud800")])
    assert history.messages == []

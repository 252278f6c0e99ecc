"""The memory as a LangChain retriever and as a chat history. Needs ``langchain-core``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict
from langchain_core.retrievers import BaseRetriever

from riemem.memory import Memory
from riemem.store.records import check_name

__all__ = ["RiememChatHistory", "RiememRetriever"]

#: The metadata key under which a message is kept as LangChain writes it.
_MESSAGE = "langchain_message"
#: Marks what a history has written, so that clearing it touches nothing else in the session.
_OURS = "langchain_history"


class RiememRetriever(BaseRetriever):
    """Documents from :meth:`riemem.Memory.search`, best first.

    Each :class:`Document` has the memory's text and id, and as metadata those of the memory with
    ``score``, ``speaker``, ``session`` and ``when``, which win over keys of the same name.

    Parameters
    ----------
    memory : Memory
    k : int
    filters, session, profile, ranking
        As for :meth:`riemem.Memory.search`.

    Examples
    --------
    >>> from riemem.embed import HashingEmbedder
    >>> with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as memory:
    ...     _ = memory.add("I moved to Porto", speaker="Maya")
    ...     RiememRetriever(memory=memory, k=1).invoke("Porto")[0].page_content
    'I moved to Porto'
    """

    memory: Any
    k: int = 10
    filters: dict[str, Any] | None = None
    session: str | None = None
    profile: str | None = None
    ranking: Any = "default"

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        hits = self.memory.search(
            query,
            k=self.k,
            filters=self.filters,
            session=self.session,
            profile=self.profile,
            ranking=self.ranking,
        )
        return [
            Document(
                id=str(hit.id),
                page_content=hit.text,
                metadata={
                    **hit.metadata,
                    "score": hit.score,
                    "speaker": hit.speaker,
                    "session": hit.session,
                    "when": hit.when,
                },
            )
            for hit in hits
        ]


class RiememChatHistory(BaseChatMessageHistory):
    """The messages of one session, kept in the store and found by every search of it.

    A message comes back exactly as it was, tool calls included: its text is the memory, the rest
    stands in the metadata.

    Parameters
    ----------
    memory : Memory
    session : str
    profile : str, optional
    speakers : mapping of str to str, optional
        Names for the types of messages; by default the type itself: human, ai, system, tool.

    Examples
    --------
    >>> from riemem.embed import HashingEmbedder
    >>> with Memory.open(":memory:", embedder=HashingEmbedder(dim=64)) as memory:
    ...     history = RiememChatHistory(memory, "today", speakers={"human": "Maya"})
    ...     history.add_user_message("I moved to Porto")
    ...     (memory.search("Porto")[0].speaker, history.messages[0].content)
    ('Maya', 'I moved to Porto')
    """

    def __init__(
        self,
        memory: Memory,
        session: str,
        *,
        profile: str | None = None,
        speakers: Mapping[str, str] | None = None,
    ) -> None:
        self._memory = memory
        self._session = check_name(session, "session")
        self._profile = memory.profile if profile is None else check_name(profile, "profile")
        self._speakers = dict(speakers or {})

    @property
    def messages(self) -> list[BaseMessage]:
        """The messages in the order in which they were added."""
        records = self._memory.list(
            session=self._session, profile=self._profile, filters={_OURS: True}, order="id"
        )
        found: list[BaseMessage] = messages_from_dict(
            [json.loads(record.metadata[_MESSAGE]) for record in records]
        )
        return found

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Store messages, all of them or none."""
        self._memory.add_many([self._item(message) for message in messages])

    def clear(self) -> None:
        """Erase the messages of this history; other memories of the session stay."""
        self._memory.forget(session=self._session, profile=self._profile, filters={_OURS: True})

    def _item(self, message: BaseMessage) -> dict[str, Any]:
        said = str(message.text)
        return {
            # A message of tool calls alone says nothing; a memory has to.
            "text": said if said.strip() else f"[{message.type} message without text]",
            "speaker": self._speakers.get(message.type, message.type),
            "session": self._session,
            "profile": self._profile,
            "metadata": {_OURS: True, _MESSAGE: json.dumps(message_to_dict(message))},
        }

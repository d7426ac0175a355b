"""Several processes write one conversation, and processes die while they write: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed; ./dev kits pydantic-ai has it")

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

from moorage.adapters.pydantic_ai import MoorageConversationStore
from tests.kits.races import killed, race

pytestmark = pytest.mark.timeout(300)  # four processes import a framework at once

TURNS = 15


async def say(store: MoorageConversationStore, text: str) -> None:
    """Save a turn; after a conflict, load the conversation again."""
    while True:
        conversation = await store.load("c") or Conversation(conversation_id="c")
        conversation.messages.append(ModelRequest(parts=[UserPromptPart(content=text)]))
        conversation.messages.append(ModelResponse(parts=[TextPart(content="yes")]))
        try:
            await store.save(conversation)
        except ConversationConflict:
            continue
        return


def save(url: str, name: str) -> Iterator[str]:
    """Save turns."""
    store = MoorageConversationStore(url)
    for number in range(TURNS):
        asyncio.run(say(store, f"{name}-{number}"))
        yield f"{name}-{number}"


def delete(url: str, name: str) -> Iterator[str]:
    """Save and delete, for ever."""
    store = MoorageConversationStore(url)
    while True:
        asyncio.run(say(store, "one"))
        yield "saved"
        asyncio.run(store.delete("c"))
        yield "deleted"


def said(url: str) -> list[str]:
    """Return what the conversation holds: the questions, of whole turns."""
    conversation = asyncio.run(MoorageConversationStore(url).load("c"))
    if conversation is None:
        return []
    assert len(conversation.messages) % 2 == 0
    return [message.parts[0].content for message in conversation.messages[::2]]


def test_four_writers_lose_nothing(process_url: str) -> None:
    acknowledged = [text for texts in race(save, process_url) for text in texts]

    assert sorted(said(process_url)) == sorted(acknowledged)
    assert len(acknowledged) == 4 * TURNS


def test_killed_writer_leaves_whole_turns(process_url: str) -> None:
    acknowledged = killed(save, process_url, 3)

    assert said(process_url)[: len(acknowledged)] == acknowledged


def test_killed_deletion_leaves_all_or_nothing(process_url: str) -> None:
    killed(delete, process_url, 3)

    assert said(process_url) in ([], ["one"])

"""Pydantic AI: one contract, held by its store in memory and by ours, and what we promise besides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed; ./dev kits pydantic-ai has it")

from pydantic_ai import Agent, BinaryContent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, InMemoryConversationStore
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import moorage
from moorage.adapters.pydantic_ai import MoorageConversationStore


def turn(text: str) -> list[Any]:
    """A question and its answer."""
    return [ModelRequest(parts=[UserPromptPart(content=text)]), ModelResponse(parts=[TextPart(content=f"re {text}")])]


def texts(messages: list[Any]) -> list[Any]:
    """Return the texts of messages."""
    return [message.parts[0].content for message in messages]


@pytest.fixture(params=["theirs", "ours"])
async def store(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Any]:
    """A store without conversations."""
    if request.param == "theirs":
        yield InMemoryConversationStore()
        return
    async with MoorageConversationStore(url) as ours:
        yield ours


async def saved(store: Any, name: str, *said: str, **options: Any) -> Conversation:
    """A conversation that was saved turn by turn."""
    conversation = Conversation(conversation_id=name)
    for text in said:
        conversation.messages.extend(turn(text))
        await store.save(conversation, **options)
    return conversation


class TestContract:
    """The contract of every conversation store."""

    async def test_saved_conversation_is_loaded(self, store: Any) -> None:
        conversation = await saved(store, "c", "one", "two")
        loaded = await store.load("c")

        assert loaded.messages == conversation.messages
        assert loaded.revision == conversation.revision
        assert texts((await store.load("c", limit=3)).messages) == ["re one", "two", "re two"]
        assert (await store.load("c", limit=0)).messages == []
        assert await store.load("none") is None

    async def test_entries_are_stored_once_and_linked(self, store: Any) -> None:
        conversation = await saved(store, "c", "one")
        conversation.messages.extend(turn("two"))
        new = await store.save(conversation)
        entries = await store.load_entries("c")

        assert len(new) == 2
        assert [entry.id for entry in entries[2:]] == [entry.id for entry in new]
        assert [entry.parent_id for entry in entries] == [None, *(entry.id for entry in entries[:-1])]
        assert await store.read_entry(new[0].id) == new[0]
        with pytest.raises(LookupError):
            await store.read_entry("none")

    async def test_writer_with_an_old_copy_is_refused(self, store: Any) -> None:
        await saved(store, "c", "one")
        mine, theirs = await store.load("c"), await store.load("c")
        mine.messages.extend(turn("mine"))
        theirs.messages.extend(turn("theirs"))
        await store.save(mine)
        with pytest.raises(ConversationConflict):
            await store.save(theirs)
        with pytest.raises(ConversationConflict):
            await store.save(Conversation(conversation_id="c", messages=turn("new")))

        assert texts((await store.load("c")).messages) == ["one", "re one", "mine", "re mine"]

    async def test_branch_leaves_the_other_history_stored(self, store: Any) -> None:
        conversation = await saved(store, "c", "one", "two")
        old = (await store.load_entries("c"))[-1].id
        branched = await store.branch("c", at=2, expected_revision=conversation.revision)
        branched.messages.extend(turn("three"))
        await store.save(branched)
        [record] = await store.list_conversations()
        assert record.branches == [old]
        back = await store.branch("c", from_entry=old, expected_revision=branched.revision)

        assert texts(back.messages) == ["one", "re one", "two", "re two"]

    async def test_fork_goes_on_by_itself_and_outlives_its_source(self, store: Any) -> None:
        conversation = await saved(store, "c", "one", "two")
        fork = await store.fork("c", at=2, new_conversation_id="f")
        fork.messages.extend(turn("three"))
        await store.save(fork)
        await store.delete("c")

        assert texts((await store.load("f")).messages) == ["one", "re one", "three", "re three"]
        assert await store.load("c") is None
        assert len(conversation.messages) == 4
        with pytest.raises(UserError):
            await store.fork("c")

    async def test_deleted_conversation_begins_anew(self, store: Any) -> None:
        old = await saved(store, "c", "one")
        await store.delete("c")
        await store.delete("c")
        await saved(store, "c", "new")
        old.messages.extend(turn("late"))
        with pytest.raises(ConversationConflict):
            await store.save(old)

        assert texts((await store.load("c")).messages) == ["new", "re new"]

    async def test_lists_begin_with_what_was_saved_last(self, store: Any) -> None:
        first = await saved(store, "a", "one", scope="anna")
        await saved(store, "b", "one", scope="ben")
        await saved(store, "c", "one", scope="anna")

        async def names(**chosen: Any) -> list[str]:
            return [record.conversation_id for record in await store.list_conversations(**chosen)]

        assert await names() == ["c", "b", "a"]
        await store.branch("a", at=1, expected_revision=first.revision)
        assert await names() == ["a", "c", "b"]
        assert await names(limit=2) == ["a", "c"]
        assert await names(limit=0) == []
        assert await names(scope="anna") == ["a", "c"]
        assert await names(scope="nobody") == []

    async def test_other_scope_does_not_see_it(self, store: Any) -> None:
        await saved(store, "c", "one", scope="anna")
        await store.delete("c", scope="ben")

        assert await store.load("c", scope="ben") is None
        assert await store.load("c", scope="anna") is not None

    async def test_rewritten_history_branches_off(self, store: Any) -> None:
        conversation = await saved(store, "c", "one", "two")
        again = Conversation(conversation_id="c", messages=[*turn("one")[:1], *turn("other")])
        again.revision = conversation.revision
        again.messages[0] = conversation.messages[0]
        await store.save(again)

        assert texts((await store.load("c")).messages) == ["one", "other", "re other"]

    async def test_bytes_come_back(self, store: Any) -> None:
        picture = BinaryContent(data=b"\x00\xff", media_type="application/pdf")
        request = ModelRequest(parts=[UserPromptPart(content=["look", picture])])
        await store.save(Conversation(conversation_id="c", messages=[request]))

        assert (await store.load("c")).messages == [request]


async def test_log_has_what_was_said(url: str) -> None:
    async with moorage.connect(url) as moor, MoorageConversationStore(moor) as store:
        await saved(store, "c", "one")
        entries = (await moor.messages("c")).items

    assert [(entry.role, entry.text) for entry in entries] == [("user", "one"), ("assistant", "re one")]


async def test_other_owner_sees_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    async with MoorageConversationStore(url, owner="one") as one, MoorageConversationStore(url, owner="two") as two:
        await saved(one, "c", "private")
        [entry, _] = await one.load_entries("c") or []

        assert await two.load("c") is None
        with pytest.raises(LookupError):
            await two.read_entry(entry.id)


async def test_any_names_will_do(url: str) -> None:
    async with MoorageConversationStore(url) as store:
        await saved(store, "ü/ \n" * 100, "one", scope="a b" * 90)

        assert len(await store.list_conversations(scope="a b" * 90)) == 1


async def test_agent_goes_on_where_it_was(tmp_path: Path) -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(content=f"{len(messages)} messages")])

    answers = []
    for prompt in ("one", "two"):
        async with MoorageConversationStore(f"sqlite:///{tmp_path / 'a.db'}") as store:
            conversation = await store.load("c") or Conversation(conversation_id="c")
            result = await Agent(FunctionModel(model)).run(prompt, conversation=conversation)
            await store.save(result)
            answers.append(result.output)

    assert answers == ["1 messages", "3 messages"]


async def test_fork_is_a_conversation_of_its_own(url: str) -> None:
    async with moorage.connect(url) as moor:
        store, said = MoorageConversationStore(moor), ["Hello", "re Hello", "More", "re More"]
        await store.save(Conversation(conversation_id="c", messages=turn("Hello")))
        await moor.fork("c", session_id="f")
        fork = await store.load("f")
        assert fork is not None
        fork.messages += turn("More")
        await store.save(fork)
        other = MoorageConversationStore(moor)

        assert fork.conversation_id == "f"
        assert sorted(record.conversation_id for record in await other.read_records()) == ["c", "f"]
        assert [entry.text for entry in (await moor.messages("f")).items] == said
        source = await other.load("c")
        assert source is not None
        assert texts(source.messages) == said[:2]
        await moor.delete("c")
        left = await other.load("f")
        assert left is not None
        assert texts(left.messages) == said

"""Frameworks whose session stores `bench.adapters` compares: ours, and the one that the framework brings for a file.

The SQLite backends of OpenAI Agents and Google ADK wait for the disk at every commit, as ours does. Strands and the
Agent Framework bring files that they do not sync: here each write waits for the disk, so that both sides promise the
same (`--unsynced` leaves them as they are). Claude and Pydantic AI bring a store in memory only: of them ours is shown
alone.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Callable
from inspect import isawaitable
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

UNSYNCED = "MOORAGE_BENCH_UNSYNCED"  # set: the files of frameworks are not synced
WORDS = "lorem ipsum " * 16


class Peer:
    """A session store with one long session and many short ones."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self._numbers = count()

    def text(self) -> str:
        """Return the next text."""
        return f"{next(self._numbers)} {WORDS}"

    async def open(self) -> None:
        """Prepare the long session."""

    async def join(self) -> None:
        """Go on beside others who write to the same store, in a session of its own where a stale writer is refused."""

    async def fill(self, messages: int) -> None:
        """Store a history, a thousand messages at once where the interface allows it."""
        raise NotImplementedError

    async def turn(self) -> None:
        """Store a question and its answer."""
        raise NotImplementedError

    async def load(self) -> None:
        """Read the whole history."""
        raise NotImplementedError

    async def add_other(self, number: int) -> None:
        """Store one of many short sessions; a page of fifty is listed."""
        raise NotImplementedError

    async def list(self) -> None:
        """List fifty among many."""
        raise NotImplementedError

    async def close(self) -> None:
        """Let the store go."""
        closing = self.store.close() if hasattr(self.store, "close") else None
        if isawaitable(closing):
            await closing


class OpenAI(Peer):
    """A session of the OpenAI Agents SDK. It has no list of sessions: the last fifty items are read instead."""

    def _items(self, number: int) -> list[Any]:
        roles = ("user", "assistant")
        return [{"role": roles[each % 2], "content": self.text()} for each in range(number)]

    async def fill(self, messages: int) -> None:
        for start in range(0, messages, 1000):
            await self.store.add_items(self._items(min(1000, messages - start)))

    async def turn(self) -> None:
        await self.store.add_items(self._items(2))

    async def load(self) -> None:
        await self.store.get_items()

    async def add_other(self, number: int) -> None:
        if number % 1000 == 0:
            await self.fill(1000)

    async def list(self) -> None:
        await self.store.get_items(50)


class Adk(Peer):
    """Sessions of Google ADK."""

    AT = {"app_name": "shop", "user_id": "anna"}  # noqa: RUF012

    async def open(self) -> None:
        self._name = f"long-{uuid4()}"
        await self.store.create_session(**self.AT, session_id=self._name)

    join = open

    def _event(self, author: str) -> Any:
        from google.adk.events.event import Event
        from google.genai import types

        return Event(author=author, content=types.Content(role="user", parts=[types.Part(text=self.text())]))

    async def fill(self, messages: int) -> None:
        await self._say(messages)

    async def _say(self, messages: int) -> None:
        session = await self._session()
        for number in range(messages):
            await self.store.append_event(session, self._event(("user", "helper")[number % 2]))

    async def _session(self) -> Any:
        from google.adk.sessions.base_session_service import GetSessionConfig

        few = GetSessionConfig(num_recent_events=1)
        return await self.store.get_session(**self.AT, session_id=self._name, config=few)

    async def turn(self) -> None:
        await self._say(2)

    async def load(self) -> None:
        await self.store.get_session(**self.AT, session_id=self._name)

    async def add_other(self, number: int) -> None:
        user = "listed" if number < 50 else f"user-{number % 400}"
        await self.store.create_session(app_name="shop", user_id=user, session_id=f"s-{number}")

    async def list(self) -> None:
        await self.store.list_sessions(app_name="shop", user_id="listed")


class Claude(Peer):
    """Transcripts of the Claude Agent SDK."""

    KEY = {"project_key": "p", "session_id": "long"}  # noqa: RUF012

    def _lines(self, number: int) -> list[Any]:
        roles = ("user", "assistant")
        return [
            {
                "type": roles[each % 2],
                "uuid": str(uuid4()),
                "timestamp": "2026-01-01T00:00:00.000Z",
                "message": {"role": roles[each % 2], "content": self.text()},
            }
            for each in range(number)
        ]

    async def fill(self, messages: int) -> None:
        for start in range(0, messages, 1000):
            await self.store.append(self.KEY, self._lines(min(1000, messages - start)))

    async def turn(self) -> None:
        await self.store.append(self.KEY, self._lines(2))

    async def load(self) -> None:
        await self.store.load(self.KEY)

    async def add_other(self, number: int) -> None:
        project = "listed" if number < 50 else f"p-{number % 400}"
        await self.store.append({"project_key": project, "session_id": f"s-{number}"}, self._lines(1))

    async def list(self) -> None:
        await self.store.list_session_summaries("listed")


class PydanticAI(Peer):
    """Conversations of Pydantic AI."""

    def _say(self, conversation: Any, messages: int) -> None:
        from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

        for _ in range(messages // 2):
            conversation.messages.append(ModelRequest(parts=[UserPromptPart(content=self.text())]))
            conversation.messages.append(ModelResponse(parts=[TextPart(content=self.text())]))

    def _new(self, name: str) -> Any:
        from pydantic_ai.conversation import Conversation

        return Conversation(conversation_id=name)

    async def join(self) -> None:
        self._long = self._new(f"long-{uuid4()}")

    async def fill(self, messages: int) -> None:
        await self.join()
        self._say(self._long, messages)
        await self.store.save(self._long)

    async def turn(self) -> None:
        self._say(self._long, 2)
        await self.store.save(self._long)

    async def load(self) -> None:
        await self.store.load(self._long.conversation_id)

    async def add_other(self, number: int) -> None:
        conversation = self._new(f"c-{number}")
        self._say(conversation, 2)
        await self.store.save(conversation)

    async def list(self) -> None:
        await self.store.read_records(limit=50)


class Strands(Peer):
    """Sessions of Strands. Fifty messages of one agent are listed among many."""

    async def open(self) -> None:
        from strands.types.session import Session, SessionAgent, SessionType

        self._name = f"long-{uuid4()}"
        self.store.create_session(Session(session_id=self._name, session_type=SessionType.AGENT))
        self.store.create_agent(self._name, SessionAgent(agent_id="a", state={}, conversation_manager_state={}))
        self._next = count()

    join = open

    def _add(self, number: int) -> None:
        from strands.types.session import SessionMessage

        for _ in range(number):
            message: Any = {"role": "user", "content": [{"text": self.text()}]}
            self.store.create_message(self._name, "a", SessionMessage(message=message, message_id=next(self._next)))

    async def fill(self, messages: int) -> None:
        self._add(messages)

    async def turn(self) -> None:
        self._add(2)

    async def load(self) -> None:
        self.store.list_messages(self._name, "a")

    async def add_other(self, number: int) -> None:
        self._add(1)

    async def list(self) -> None:
        self.store.list_messages(self._name, "a", limit=50)


class AgentFramework(Peer):
    """The history of a session of the Agent Framework. It has no lists: another, short session is read instead."""

    def _messages(self, number: int) -> list[Any]:
        from agent_framework import Message

        return [Message(("user", "assistant")[each % 2], [self.text()]) for each in range(number)]

    async def fill(self, messages: int) -> None:
        for start in range(0, messages, 1000):
            await self.store.save_messages("long", self._messages(min(1000, messages - start)))

    async def turn(self) -> None:
        await self.store.save_messages("long", self._messages(2))

    async def load(self) -> None:
        await self.store.get_messages("long")

    async def add_other(self, number: int) -> None:
        if number % 50 == 0:
            await self.store.save_messages(f"s-{number}", self._messages(50))

    async def list(self) -> None:
        await self.store.get_messages("s-0")


# Stores ---------------------------------------------------------------------------------------------

Opened = Callable[[Path], Peer]


def _url(path: Path) -> str:
    return f"sqlite:///{path}"


def _openai(path: Path) -> Peer:
    from moorage.adapters.openai_agents import MoorageSession

    return OpenAI(MoorageSession("long", _url(path)))


def _their_openai(path: Path) -> Peer:
    from agents import SQLiteSession

    return OpenAI(SQLiteSession("long", path))


def _adk(path: Path) -> Peer:
    from moorage.adapters.adk import MoorageSessionService

    return Adk(MoorageSessionService(_url(path)))


def _their_adk(path: Path) -> Peer:
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    return Adk(SqliteSessionService(str(path)))


def _claude(path: Path) -> Peer:
    from moorage.adapters.claude_agent_sdk import MoorageSessionStore

    return Claude(MoorageSessionStore(_url(path)))


def _pydantic_ai(path: Path) -> Peer:
    from moorage.adapters.pydantic_ai import MoorageConversationStore

    return PydanticAI(MoorageConversationStore(_url(path)))


def _strands(path: Path) -> Peer:
    from moorage.adapters.strands import MoorageSessionRepository

    return Strands(MoorageSessionRepository(_url(path)))


def _their_strands(path: Path) -> Peer:
    from strands.session.file_session_manager import FileSessionManager

    class Repository(FileSessionManager):
        def __init__(self) -> None:
            self.storage_dir = str(path)

        def _write_file(self, path: str, data: dict[str, Any]) -> None:
            super()._write_file(path, data)
            _sync(path, str(Path(path).parent))

    return Strands(Repository())


def _agent_framework(path: Path) -> Peer:
    from moorage.adapters.agent_framework import MoorageHistoryProvider

    return AgentFramework(MoorageHistoryProvider(_url(path)))


def _their_agent_framework(path: Path) -> Peer:
    from agent_framework import FileHistoryProvider

    warnings.filterwarnings("ignore", message=".*is experimental")

    class Provider(FileHistoryProvider):
        async def save_messages(self, session_id: str | None, messages: Any, **settings: Any) -> None:
            await super().save_messages(session_id, messages, **settings)
            await asyncio.to_thread(_sync, str(self._session_file_path(session_id)))

    return AgentFramework(Provider(path))


def _sync(*paths: str) -> None:
    """Wait until files and folders are on the disk."""
    for path in () if UNSYNCED in os.environ else paths:
        number = os.open(path, os.O_RDONLY)
        os.fsync(number)
        os.close(number)


PEERS: dict[str, dict[str, Opened]] = {
    "openai-agents": {"theirs": _their_openai, "ours": _openai},
    "google-adk": {"theirs": _their_adk, "ours": _adk},
    "claude-agent-sdk": {"ours": _claude},
    "pydantic-ai": {"ours": _pydantic_ai},
    "strands": {"theirs": _their_strands, "ours": _strands},
    "agent-framework": {"theirs": _their_agent_framework, "ours": _agent_framework},
}

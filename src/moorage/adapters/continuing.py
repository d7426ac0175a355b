"""Continue elsewhere: copy a session so that another framework continues it, through its own adapter.

::

    continued = await continue_in("sqlite:///moorage.db", "support-42", "openai-agents")
    await Runner.run(agent, "Go on.", session=MoorageSession(continued.framework_id, "sqlite:///moorage.db"))

The session itself is unchanged. The copy's metadata names the session that it `continues`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from msgspec import Struct

from moorage.adapters.adapter import Adapter
from moorage.adapters.channel import ConnectTarget
from moorage.adapters.convert import convert
from moorage.api import Moorage
from moorage.core.entry import Entry
from moorage.core.errors import IdTaken, InvalidField, SessionNotFound
from moorage.core.query import each_item

__all__ = ["FRAMEWORKS", "Continued", "continue_in"]

PAGE = 1000  # messages read at once


class Continued(Struct, frozen=True, kw_only=True):
    """A session that continues elsewhere, and the content that could not be converted."""

    session_id: str
    framework: str
    framework_id: str  # the session's id in the framework
    continues: str  # the session that it is a copy of
    messages: int
    left_out: list[str]
    system_prompt: str | None = None  # for a framework whose history has no place for it


async def continue_in(
    target: ConnectTarget,
    ref: str,
    framework: str,
    *,
    framework_id: str | None = None,
    folder: str = ".",
    dry_run: bool = False,
    owner: str = "local",
    key: str | None = None,
) -> Continued:
    """Copy a session so that a framework can continue it, under a generated id if none is given.

    `folder` is the working directory of the project that a Claude session belongs to. Raises IdTaken, and InvalidField
    if there is nothing to copy.
    """
    if framework not in FRAMEWORKS:
        raise InvalidField("to", f"is {framework!r}; use one of {', '.join(FRAMEWORKS)}")
    import_module(f"moorage.adapters.{MODULES[framework]}")  # raises if the framework is missing
    name = framework_id or str(uuid4())
    async with SessionReads(target, owner=owner, key=key) as sessions:
        source, entries = await sessions.messages(ref)
        carried = convert(entries, framework)
        if not carried.messages:
            raise InvalidField("session", f"{source} has no messages that could be carried")
        settings = {"owner": owner, "key": key, "metadata": {"continues": source}}
        parts, write = FRAMEWORKS[framework](Copy(target, name, folder, carried.messages, settings))
        session_id = await sessions.free_id(parts)
        if not dry_run:
            await write()
    return Continued(
        session_id=session_id,
        framework=framework,
        framework_id=name,
        continues=source,
        messages=len(carried.messages),
        left_out=carried.left_out,
        system_prompt=carried.system_prompt,
    )


class SessionReads(Adapter):
    """Reads of sessions."""

    framework = "python"

    async def messages(self, ref: str) -> tuple[str, list[Entry]]:
        """Return the id of a session, and all its messages."""

        async def read(moor: Moorage) -> tuple[str, list[Entry]]:
            session_id = await moor.resolve(ref)
            ask = partial(moor.messages, session_id, limit=PAGE)
            return session_id, [entry async for entry in each_item(ask, 0, by="after")]

        return await self._read(read)

    async def free_id(self, parts: tuple[str, ...]) -> str:
        """Return the id that a framework's session will have. Raises IdTaken if it exists."""

        async def look(moor: Moorage) -> str:
            async def missing(ref: str) -> str:
                try:
                    found = await moor.get(ref)
                except SessionNotFound:
                    return ref
                raise IdTaken(found.session_id)

            return await self._in_session(parts, missing)

        return await self._read(look)


# Frameworks -----------------------------------------------------------------------------------------


class Copy(NamedTuple):
    """Messages in the format of a framework, and their destination."""

    target: ConnectTarget
    name: str
    folder: str
    messages: list[dict[str, Any]]
    settings: dict[str, Any]  # of the adapter


WriteCopy = Callable[[], Coroutine[Any, Any, None]]
Prepared = tuple[tuple[str, ...], WriteCopy]  # the parts of the session's id, and how to write it


def _openai_agents(copy: Copy) -> Prepared:
    from moorage.adapters.openai_agents import MoorageSession

    async def write() -> None:
        async with MoorageSession(copy.name, copy.target, **copy.settings) as session:
            await session.add_items(copy.messages)

    return (copy.name,), write


def _langgraph(copy: Copy) -> Prepared:
    from langchain_core.messages import convert_to_messages
    from langgraph.checkpoint.base import empty_checkpoint

    from moorage.adapters.langgraph import MoorageSaver

    async def write() -> None:
        messages = convert_to_messages([{"id": str(uuid4()), **each} for each in copy.messages])
        async with MoorageSaver(copy.target, approvals=False, **copy.settings) as saver:
            versions = {CHANNEL: saver.get_next_version(None, None)}
            checkpoint = {**empty_checkpoint(), "channel_values": {CHANNEL: messages}, "channel_versions": versions}
            config = {"configurable": {"thread_id": copy.name, "checkpoint_ns": ""}}
            await saver.aput(config, checkpoint, {"source": "update", "step": 0, "parents": {}}, versions)

    return (copy.name,), write


def _claude(copy: Copy) -> Prepared:
    from claude_agent_sdk import project_key_for_directory

    from moorage.adapters.claude_agent_sdk import MoorageSessionStore

    try:
        UUID(copy.name)
    except ValueError:
        raise InvalidField("session_id", f"is {copy.name!r}; the id of a Claude session is a UUID") from None
    place = {"project_key": project_key_for_directory(copy.folder), "session_id": copy.name}

    async def write() -> None:
        async with MoorageSessionStore(copy.target, **copy.settings) as store:
            await store.append(place, _transcript(copy))

    return (place["project_key"], copy.name), write


def _pydantic_ai(copy: Copy) -> Prepared:
    from pydantic_ai.conversation import Conversation
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    from moorage.adapters.pydantic_ai import MoorageConversationStore

    async def write() -> None:
        messages = ModelMessagesTypeAdapter.validate_python(copy.messages)
        async with MoorageConversationStore(copy.target, **copy.settings) as store:
            await store.save(Conversation(conversation_id=copy.name, messages=messages))

    return (copy.name,), write


def _transcript(copy: Copy) -> list[dict[str, Any]]:
    """Return the lines of a Claude transcript, each after its parent."""
    lines: list[dict[str, Any]] = []
    folder = os.path.abspath(copy.folder)
    for message in copy.messages:
        parent = lines[-1]["uuid"] if lines else None
        shared = {"isSidechain": False, "userType": "external", "cwd": folder, "sessionId": copy.name}
        answer = {"id": f"msg_{uuid4().hex}", "type": "message", "model": "<synthetic>", "stop_reason": "end_turn"}
        lines.append(
            {
                "parentUuid": parent,
                **shared,
                "type": message["role"],
                "message": {**(answer if message["role"] == "assistant" else {}), **message},
                "uuid": str(uuid4()),
                "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            }
        )
    return lines


CHANNEL = "messages"  # of a graph's state
MODULES = {
    "openai-agents": "openai_agents",
    "langgraph": "langgraph",
    "claude": "claude_agent_sdk",
    "pydantic-ai": "pydantic_ai",
}
FRAMEWORKS: dict[str, Callable[[Copy], Prepared]] = {
    "openai-agents": _openai_agents,
    "langgraph": _langgraph,
    "claude": _claude,
    "pydantic-ai": _pydantic_ai,
}

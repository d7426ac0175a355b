"""Threads for tests: checkpoints with messages, put as LangGraph puts them."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint

Config = Any


def config_of(thread: str = "t", namespace: str = "", **more: Any) -> Config:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, **more}}


def some_messages(count: int, start: int = 0) -> list[BaseMessage]:
    kinds = (HumanMessage, AIMessage)
    return [kinds[number % 2](content=f"message {number}", id=f"m{number}") for number in range(start, start + count)]


class Thread:
    """One writer of a thread: each `put` is the child of the one before."""

    def __init__(self, saver: BaseCheckpointSaver[str], thread: str = "t", namespace: str = "") -> None:
        self.saver, self.config = saver, config_of(thread, namespace)
        self.versions: dict[str, Any] = {}

    def put(
        self,
        metadata: dict[str, Any] | None = None,
        *,
        format: int | None = None,
        unchanged: dict[str, Any] | None = None,
        **values: Any,
    ) -> str:
        arguments = self._arguments(metadata, values, unchanged)
        if format is not None:
            arguments[1]["v"] = format
        self.config = self.saver.put(*arguments)
        return str(self.config["configurable"]["checkpoint_id"])

    async def aput(self, metadata: dict[str, Any] | None = None, **values: Any) -> str:
        arguments = self._arguments(metadata, values)
        self.config = await self.saver.aput(*arguments)
        return str(self.config["configurable"]["checkpoint_id"])

    def values(self) -> Any:
        found = self.saver.get_tuple(self.config)
        assert found is not None
        return found.checkpoint["channel_values"]

    def _arguments(
        self, metadata: dict[str, Any] | None, values: dict[str, Any], unchanged: dict[str, Any] | None = None
    ) -> Any:
        new = {channel: self.saver.get_next_version(self.versions.get(channel), None) for channel in values}
        self.versions |= new
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {**(unchanged or {}), **values}
        checkpoint["channel_versions"] = dict(self.versions)
        return self.config, checkpoint, {"source": "loop", "step": 1, "parents": {}, **(metadata or {})}, new

"""Reads of the stored data of threads, and their configs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial

from langchain_core.runnables import RunnableConfig

from moorage.adapters.adapter import parts_in
from moorage.adapters.foreign_ids import required_id
from moorage.adapters.langgraph.layout import EPOCH, VALUES
from moorage.api import Moorage
from moorage.core.query import each_item, each_page
from moorage.core.record import MAX_WRITES
from moorage.records import Record

PAGE = 500  # records or sessions read at once


def thread_of(config: RunnableConfig) -> str:
    """Return the thread id in a config."""
    return str(required_id(required_id(config, "configurable"), "thread_id"))


def namespace_of(config: RunnableConfig) -> str:
    """Return the checkpoint namespace in a config: that of the graph, or of a subgraph."""
    return str(config["configurable"].get("checkpoint_ns") or "")


def config_of(thread_id: str, namespace: str, checkpoint_id: str | None) -> RunnableConfig:
    """Return the config of a checkpoint, or of the newest."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}


async def records_of(moor: Moorage, session_id: str, keys: Sequence[str]) -> dict[str, Record]:
    """Return the existing values by their keys."""
    found: dict[str, Record] = {}
    keys = list(dict.fromkeys(keys))
    for start in range(0, len(keys), MAX_WRITES):
        page = await moor.records.get_many(session_id, VALUES, keys[start : start + MAX_WRITES])
        found.update({record.key: record for record in page if record is not None})
    return found


def each_record(moor: Moorage, session_id: str, namespace: str, prefix: str = "") -> AsyncIterator[Record]:
    """Return all records of a namespace with this key prefix, in the order of their keys."""
    return each_item(partial(moor.records.list, session_id, namespace, prefix=prefix, limit=PAGE), by="after")


async def each_thread(moor: Moorage) -> AsyncIterator[tuple[str, str]]:
    """Yield the sessions that are threads, and the ids of the threads."""
    async for page in each_page(partial(moor.list, limit=PAGE)):
        ids = [session.session_id for session in page.items]
        epochs = await moor.records.of_sessions(ids, VALUES, EPOCH) if ids else []
        for session, epoch in zip(page.items, epochs, strict=True):
            if epoch is not None and len(parts := parts_in(session)) == 1:
                yield session.session_id, parts[0]

"""Peers on Redis: `python -m bench.peers.redis PEER URL TURNS TASKS` prints turns a second.

A session has twenty turns, then the next one is begun: some of them write a conversation anew with every turn, which a
long one would make the whole figure. With several tasks each has its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench import material
from bench.peers.postgres import Append, rate_of


@asynccontextmanager
async def openai(url: str) -> AsyncIterator[Append]:
    """`RedisSession` of the OpenAI Agents SDK, all on one client."""
    import redis.asyncio as redis_py
    from agents.extensions.memory.redis_session import RedisSession

    client = redis_py.from_url(url)

    async def append(session: str, number: int) -> None:
        await RedisSession(session, redis_client=client).add_items(list(material.turn(number)))

    yield append
    await client.aclose()


@asynccontextmanager
async def adk(url: str) -> AsyncIterator[Append]:
    """`RedisSessionService` of google-adk-community: an event at a time."""
    from google.adk_community.sessions.redis_session_service import RedisSessionService

    from bench.peers.adk import APP, USER, _event

    service = RedisSessionService(uri=url)
    known: dict[str, Any] = {}

    async def append(session: str, number: int) -> None:
        if session not in known:
            known[session] = await service.create_session(app_name=APP, user_id=USER, session_id=session)
        for message in material.turn(number):
            await service.append_event(known[session], _event(message))

    yield append
    await service.cache.aclose()


@asynccontextmanager
async def langgraph(url: str) -> AsyncIterator[Append]:
    """`AsyncRedisSaver` under a graph of one node, one checkpoint at the end of a turn. Needs two modules."""
    from langchain_core.messages import HumanMessage
    from langgraph.checkpoint.redis.aio import AsyncRedisSaver

    from bench.peers.langgraph_saver import _graph

    async with AsyncRedisSaver.from_conn_string(url) as saver:
        graph = _graph().compile(checkpointer=saver)

        async def append(session: str, number: int) -> None:
            question, answer = material.turn(number)
            config: Any = {"configurable": {"thread_id": session, "answer": answer["content"]}}
            await graph.ainvoke({"messages": [HumanMessage(question["content"])]}, config, durability="exit")

        yield append


PEERS = {"OpenAI Agents": openai, "ADK": adk, "LangGraph": langgraph}

if __name__ == "__main__":
    print(asyncio.run(rate_of(PEERS[sys.argv[1]], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))

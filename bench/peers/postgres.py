"""Peers on PostgreSQL: `python -m bench.peers.postgres PEER URL TURNS TASKS` prints turns a second.

A session has twenty turns, then the next one is begun: some of them write a conversation anew with
every turn, which a long one would make the whole figure. With several tasks each has its own.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import perf_counter
from typing import Any

from bench import material

TURNS_OF_A_SESSION = 20
POOL = 10

Append = Callable[[str, int], Awaitable[None]]  # a session's name, and which turn


@asynccontextmanager
async def langgraph(url: str) -> AsyncIterator[Append]:
    """`AsyncPostgresSaver` under a graph of one node, one checkpoint at the end of a turn."""
    from langchain_core.messages import HumanMessage
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    from bench.peers.langgraph_saver import _graph

    options = {"autocommit": True, "row_factory": dict_row}
    async with AsyncConnectionPool(url, min_size=POOL, max_size=POOL, kwargs=options) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        graph = _graph().compile(checkpointer=saver)

        async def append(session: str, number: int) -> None:
            question, answer = material.turn(number)
            config: Any = {"configurable": {"thread_id": session, "answer": answer["content"]}}
            await graph.ainvoke({"messages": [HumanMessage(question["content"])]}, config, durability="exit")

        yield append


@asynccontextmanager
async def openai(url: str) -> AsyncIterator[Append]:
    """`SQLAlchemySession` of the OpenAI Agents SDK, over asyncpg."""
    from agents.extensions.memory import SQLAlchemySession
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(_for_sqlalchemy(url), pool_size=POOL)
    first = SQLAlchemySession("first", engine=engine, create_tables=True)
    await first.add_items(list(material.turn(0)))

    async def append(session: str, number: int) -> None:
        await SQLAlchemySession(session, engine=engine).add_items(list(material.turn(number)))

    yield append
    await engine.dispose()


@asynccontextmanager
async def adk(url: str) -> AsyncIterator[Append]:
    """`DatabaseSessionService` of Google's ADK, over asyncpg: an event at a time."""
    from google.adk.sessions import DatabaseSessionService

    from bench.peers.adk import APP, USER, _event

    service = DatabaseSessionService(_for_sqlalchemy(url), pool_size=POOL)
    known: dict[str, Any] = {}

    async def append(session: str, number: int) -> None:
        if session not in known:
            known[session] = await service.create_session(app_name=APP, user_id=USER, session_id=session)
        for message in material.turn(number):
            await service.append_event(known[session], _event(message))

    yield append
    await service.close()


PEERS = {"LangGraph": langgraph, "OpenAI Agents": openai, "ADK": adk}


def _for_sqlalchemy(url: str) -> str:
    return url.replace("postgresql://", "postgresql+asyncpg://", 1)


Peer = Callable[[str], AbstractAsyncContextManager[Append]]


async def rate_of(peer: Peer, url: str, turns: int, tasks: int) -> float:
    """Turns a second of a peer, from some tasks."""
    async with peer(url) as append:
        await _turns(append, TURNS_OF_A_SESSION)
        began = perf_counter()
        await asyncio.gather(*[_turns(append, turns // tasks) for _ in range(tasks)])
        return turns // tasks * tasks / (perf_counter() - began)


async def _turns(append: Append, count: int) -> None:
    for number in range(count):
        if number % TURNS_OF_A_SESSION == 0:
            session = str(uuid.uuid4())
        await append(session, number)


if __name__ == "__main__":
    print(asyncio.run(rate_of(PEERS[sys.argv[1]], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))

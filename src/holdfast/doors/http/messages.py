"""`POST /sessions/{ref}/messages`: say something, and hear the answer: later, after a while, or as it comes."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from holdfast.core.codec import encode
from holdfast.doors.http.app import Door, Route
from holdfast.doors.http.described import Described
from holdfast.doors.http.exchange import Exchange
from holdfast.doors.http.reach import check_one
from holdfast.doors.http.reading import read_body
from holdfast.doors.http.visit import Posted, Visit, Visitor
from holdfast.remote.operations import Scope

PATH = "/sessions/{ref}/messages"


class PostMessages(Struct, kw_only=True, forbid_unknown_fields=True):
    """One message (`content`, `role`) or several (`messages`), and what is to come of them."""

    content: str | list[dict[str, Any]] | None = None
    messages: list[str | dict[str, Any]] | None = None
    role: str = "user"
    client_key: str | None = None
    token: str | None = None
    run: bool = True
    wait: Annotated[float, Meta(ge=0, le=60)] = 0.0
    stream: bool = False


def add_to(door: Door) -> None:
    """Let messages be posted."""

    async def post(exchange: Exchange, visitor: Visitor) -> None:
        asked = read_body(await exchange.body(), PostMessages)
        hf = door.visit(exchange, visitor)
        if visitor.session_id is not None:
            await check_one(hf, visitor, "ref", exchange.params["ref"])
        posted = await said(hf, exchange, asked)
        await exchange.answer(encode(posted), status=201)

    described = Described(
        name="post_messages",
        summary="Say something to a session; a user's message asks its agent for an answer",
        scope=Scope.WRITE,
        body=PostMessages,
        answer=Posted,
        status=201,
    )
    door.add("POST", PATH, Route(described.name, post, described.scope), described)


async def said(hf: Visit, exchange: Exchange, asked: PostMessages) -> Posted:
    """Say what a request wants said."""
    key = exchange.header(b"idempotency-key")
    return await hf.post(
        exchange.params["ref"],
        messages=None if asked.messages is None else _keyed(asked.messages, key or asked.client_key),
        content=asked.content,
        role=asked.role,
        client_key=key or asked.client_key,
        token=asked.token,
        run=asked.run,
        wait=0.0 if asked.stream else asked.wait,
    )


def _keyed(messages: list[str | dict[str, Any]], key: str | None) -> list[Any]:
    """Messages with a client key each: their own, else that of the request and their place in it."""
    if key is None:
        return list(messages)
    every = [{"role": "user", "content": each} if isinstance(each, str) else each for each in messages]
    return [{"client_key": f"{key}:{index}", **each} for index, each in enumerate(every)]

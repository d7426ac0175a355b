"""Answers that get lost between a launcher and its server, after the work was done: nothing else is, or is doubled."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from moorage.agents.interface import Commands, Emit, Job
from moorage.core.approval import ApprovalQuery
from moorage.core.errors import ServerUnreachable, TurnLost
from moorage.core.turn import Launcher, Retry, TurnState
from moorage.core.work import TurnEnd
from moorage.ports import Claimed
from moorage.remote.dispatcher import RemoteDispatcher
from moorage.remote.transport import Requester
from moorage.service.approvals import decide_approval
from moorage.testing.history import problems_in
from tests.launcher.stage import PATIENCE, Stage, echo, on

LOSSES = 2  # of each kind
KINDS = frozenset(
    {"register", "claim", "heartbeat", "started", "messages", "update", "checkpoint", "approval", "finish"}
)


class Thief:
    """A proxy that swallows the first answers of each kind and hangs up instead."""

    def __init__(self, server: str, kinds: frozenset[str]) -> None:
        self._server, self._kinds = urlsplit(server), kinds
        self.stolen: Counter[str] = Counter()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: request by request, each on a connection of its own to the server."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await _whole(reader)
                answer = await self._forward(request)
                kind = _kind_of(request, answer)
                if kind in self._kinds and self.stolen[kind] < LOSSES:
                    self.stolen[kind] += 1
                    break
                writer.write(answer[0] + answer[1])
                await writer.drain()
        writer.transport.abort()

    async def _forward(self, request: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        reader, writer = await asyncio.open_connection(self._server.hostname, self._server.port)
        writer.write(request[0].replace(b"accept-encoding", b"x-nothing").replace(b"Accept-Encoding", b"x-nothing"))
        writer.write(request[1])
        try:
            return await _whole(reader)
        finally:
            writer.close()


async def _whole(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    return head, await reader.readexactly(int(fields.get(b"content-length", b"0")))


def _kind_of(request: tuple[bytes, bytes], answer: tuple[bytes, bytes]) -> str:
    """Return the kind of a request. A claim counts if it got turns; a report counts by its content."""
    _, path, _ = request[0].split(b" ", 2)
    name = path.decode().partition("?")[0].rpartition("/")[2]
    if name == "launchers":
        return "register"
    if name == "claim":
        return "claim" if b'"turn_id"' in answer[1] else "nothing to claim"
    if name == "entries":
        told = json.loads(request[1])
        return next(
            kind for kind in ("started", "messages", "update", "checkpoint", "approval", "release") if told[kind]
        )
    return name


@asynccontextmanager
async def robbed(stage: Stage, kinds: frozenset[str] = KINDS) -> AsyncIterator[Thief]:
    """The stage's launchers reach its server through a thief."""
    assert stage.server is not None
    thief = Thief(stage.server, kinds)
    proxy = await asyncio.start_server(thief.handle, "127.0.0.1", 0)
    stage.server = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    try:
        yield thief
    finally:
        proxy.close()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with on(f"sqlite:///{tmp_path / 'moorage.db'}", tmp_path, over_http=True) as made:
        made.plays("echo", echo)
        yield made


async def busy(_: Stage, job: Job, emit: Emit, commands: Commands) -> str:
    """Say one thing of every kind, ask a person, and wait long enough to be renewed."""
    await emit({"type": "message", "content": "at work"})
    await emit({"type": "phase", "phase": "planning"})
    await emit({"type": "error", "error": "a small one"})
    await emit({"type": "metadata", "metadata": {"colour": "blue"}})
    await emit({"type": "checkpoint", "checkpoint": {"step": 1}})
    await emit({"type": "approval", "id": "q", "question": "Go on?", "wait": True})
    renewed = decided = False
    while not (renewed and decided):
        command = await commands.get()
        renewed = renewed or command["type"] == "renewed"
        decided = decided or command["type"] == "decision"
    return "done"


async def test_nothing_is_doubled_or_lost_with_lost_answers(stage: Stage) -> None:
    stage.plays("busy", busy)
    async with robbed(stage) as thief, asyncio.timeout(PATIENCE), stage.launcher(lease=timedelta(seconds=1.5)):
        asked = await stage.ask("busy")
        session_id = asked.session.session_id

        async def is_waiting() -> bool:
            return (await stage.session(session_id)).pending_approvals > 0

        await stage.until(is_waiting)
        [pending] = await stage.deps.store.approvals("local", ApprovalQuery(session_id=session_id))
        await decide_approval(stage.deps, stage.caller, pending.approval_id, "approve")
        run = await stage.settled(asked.run)
    assert run.result == "done"
    assert {kind: times for kind, times in thief.stolen.items() if times < LOSSES} == {}
    assert thief.stolen.keys() == KINDS
    kinds = Counter(entry.kind for entry in await stage.log(session_id))
    assert {
        kind: kinds[kind] for kind in ("turn_started", "error", "metadata", "checkpoint", "run_settled")
    } == dict.fromkeys(("turn_started", "error", "metadata", "checkpoint", "run_settled"), 1)
    said = [entry.text for entry in await stage.log(session_id, "message")]
    assert said == ["go", "at work", "done"]
    assert len(await stage.deps.store.approvals("local", ApprovalQuery(session_id=session_id, pending_only=False))) == 1
    assert len(stage.jobs) == 1
    assert await problems_in(stage.deps.store, "local", [run.run_id]) == []


async def test_a_claim_whose_answer_is_lost_is_given_again_without_waiting_for_its_lease(stage: Stage) -> None:
    async with robbed(stage, frozenset({"claim"})) as thief, stage.launcher():
        asked = [await stage.ask("echo", str(number)) for number in range(5)]
        async with asyncio.timeout(20):  # the lease is 30 seconds
            results = [(await stage.settled(each.run)).result for each in asked]
    assert thief.stolen["claim"] == LOSSES
    assert results == [f"echo: {number}" for number in range(5)]
    assert len(stage.jobs) == 5
    assert await problems_in(stage.deps.store, "local", [each.run.run_id for each in asked]) == []


def a_launcher(stage: Stage, name: str = "one") -> Launcher:
    now = stage.deps.clock.now()
    return Launcher(launcher_id=f"launcher-{name}", name=name, registered_at=now, seen_at=now, slots=1)


@asynccontextmanager
async def at_dispatcher(stage: Stage, name: str = "one") -> AsyncIterator[RemoteDispatcher]:
    assert stage.server is not None
    dispatcher = RemoteDispatcher(Requester(stage.server), a_launcher(stage, name))
    try:
        yield dispatcher
    finally:
        await dispatcher.close()


async def claimed(stage: Stage, dispatcher: RemoteDispatcher) -> Claimed:
    """The next turn that comes to this dispatcher."""
    async with asyncio.timeout(PATIENCE):
        while True:
            seen = dispatcher.pulse()
            found = await dispatcher.claim(a_launcher(stage), {"echo": Retry.RESUME})
            if found is not None:
                return found
            await dispatcher.wait(seen, 5)


async def test_a_turn_adopted_in_an_answer_that_is_lost_is_adopted_once(stage: Stage) -> None:
    asked = await stage.ask("echo")
    async with at_dispatcher(stage) as former:
        turn = (await claimed(stage, former)).turn
        await former.started("local", turn)
        async with robbed(stage, frozenset({"adopt"})), at_dispatcher(stage, "reborn") as dispatcher:
            for _ in range(LOSSES):
                with pytest.raises(ServerUnreachable):
                    await dispatcher.adopt("local", turn, "launcher-reborn")
            mine = await dispatcher.adopt("local", turn, "launcher-reborn")
            assert mine.epoch == turn.epoch + 1
            with pytest.raises(TurnLost):
                await former.finish("local", turn, TurnEnd(result="late"))
            await dispatcher.finish("local", mine, TurnEnd(result="done"))
    assert (await stage.settled(asked.run)).result == "done"


async def test_turn_is_reassigned_if_its_launcher_disconnects(stage: Stage) -> None:
    async with at_dispatcher(stage) as gone, at_dispatcher(stage, "two") as other:
        assert await gone.claim(a_launcher(stage), {"echo": Retry.RESUME}) is None
        await asyncio.sleep(0)
        await gone.close()
        asked = await stage.ask("echo")
        async with asyncio.timeout(10):
            turn = (await claimed(stage, other)).turn
        assert turn.launcher_id == "launcher-two"
        await other.finish("local", turn, TurnEnd(outcome=TurnState.COMPLETED, result="done"))
    assert (await stage.settled(asked.run)).result == "done"

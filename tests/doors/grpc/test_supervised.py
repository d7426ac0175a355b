"""Agents with processes of their own, by gRPC: as runs of a launcher, in a session or in none."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

import moorage
from moorage.protobuf import agent_platform_pb2 as pb
from moorage.protobuf import sessions_pb2 as sp
from tests.doors.grpc.serving import PATIENCE, Stubs, server_process, until
from tests.doors.grpc.test_platform import in_pieces, task


@pytest.fixture
async def stubs(home: Path) -> AsyncIterator[Stubs]:
    """A server with a launcher, and two programs for agents."""
    folder = home / "agents"
    folder.mkdir()
    (folder / "upper.toml").write_text('[agent]\nname = "upper"\nkind = "command"\ncommand = ["tr", "a-z", "A-Z"]\n')
    sleeper = f"echo $$ > {home}/pid; exec sleep 60"
    (folder / "sleeper.toml").write_text(
        f'[agent]\nname = "sleeper"\nkind = "command"\ncommand = ["sh", "-c", "{sleeper}"]\n'
    )
    with server_process(f"sqlite:///{home}/store.db", home) as server:
        async with grpc.aio.insecure_channel(server.place) as channel:
            yield Stubs(channel)


async def test_a_program_answers_in_its_own_session_in_anothers_and_in_none(stubs: Stubs, home: Path) -> None:
    none = await stubs.agents.ExecuteTask(task("nothing kept", "upper"), timeout=PATIENCE)
    assert (none.output.strip(), none.session_id) == ("NOTHING KEPT", "")
    own = await stubs.agents.ExecuteTask(task("mine", "upper", session_id="own"), timeout=PATIENCE)
    assert (own.output.strip(), own.session_id) == ("MINE", "own")
    await stubs.agents.ExecuteTask(task("hello", session_id="echoed"))
    other = await stubs.agents.ExecuteTask(
        task("as a guest", "upper", parameters={"a": "b"}, session_id="echoed"), timeout=PATIENCE
    )
    assert other.output.strip().startswith("AS A GUEST")
    assert '"A":"B"' in other.output
    recalled = await stubs.agents.ExecuteTask(task("what did I say?", session_id="echoed"))
    assert recalled.output.endswith("Remembered: hello; as a guest")
    sessions = (await stubs.sessions.ListSessions(sp.ListSessionsRequest())).sessions
    assert {each.session_id: each.agent_name for each in sessions} == {"own": "upper", "echoed": "echo-agent"}
    async with moorage.connect(f"sqlite:///{home}/store.db") as moor:
        runs = (await moor.runs(session="echoed")).items
    assert [(each.agent_name, each.state) for each in reversed(runs)] == [
        ("echo-agent", "completed"),
        ("upper", "completed"),
        ("echo-agent", "completed"),
    ]


async def test_a_program_can_be_heard_in_pieces(stubs: Stubs) -> None:
    for session_id in ("", "s-1"):
        chunks = await in_pieces(stubs, task("word by word", "upper", session_id=session_id))
        assert "".join(chunk.content for chunk in chunks).strip() == "WORD BY WORD"
        assert (chunks[-1].is_final, {chunk.session_id for chunk in chunks}) == (True, {session_id})


@pytest.mark.parametrize("session_id", ["s-1", ""])
async def test_a_cancelled_call_stops_the_program(stubs: Stubs, home: Path, session_id: str) -> None:
    request = task("sleep", "sleeper", session_id=session_id)
    call = stubs.agents.ExecuteTask(request)

    async def has_begun() -> bool:
        return (home / "pid").exists() and bool((home / "pid").read_text().strip())

    async def is_over() -> bool:
        status = await stubs.workers.GetTaskStatus(pb.TaskStatusRequest(task_id=request.task_id))
        return status.status == "cancelled" and not _lives(int((home / "pid").read_text()))

    await until(has_begun)
    call.cancel()
    await until(is_over)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

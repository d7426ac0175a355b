"""Earlier names: each does what its present one does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import moorage
from moorage import compat, sync
from moorage.compat import AgentPluginExecutor, AgentSessionManager, count_child_sessions, get_child_sessions
from moorage.core.errors import SessionClosed, SessionNotFound
from moorage.executor import AgentExecutor, PipelineContext


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path))
    url = f"sqlite:///{tmp_path}/moorage.db"
    monkeypatch.setenv("MOORAGE_URL", url)
    return url


def test_children_are_found_and_counted(url: str) -> None:
    with sync.connect(url) as moor:
        parent = moor.create(name="mother", parent=None)
        for number in range(3):
            child = moor.create(session_id=f"c-{number}", parent=parent.id)
            moor.create(parent=child.id)
        assert [child["session_id"] for child in get_child_sessions(parent.id)] == ["c-0", "c-1", "c-2"]
        assert get_child_sessions("mother")[0]["parent_session_name"] == "mother"
        assert (count_child_sessions(parent.id), count_child_sessions("c-0")) == (3, 1)
        moor.delete(parent.id)
    assert (get_child_sessions(parent.id), count_child_sessions("unknown")) == ([], 0)


async def test_manager_leads_a_session_through_its_life(url: str) -> None:
    async with moorage.connect(url) as moor:
        manager = AgentSessionManager(moor)
        made = await manager.create_session("hello-world", task_id="T1", metadata={"who": "Ann"}, name="talk")
        assert (made.task_id, made.metadata, made.agent_name) == ("T1", {"who": "Ann"}, "hello-world")
        entry = await manager.add_message("talk", "user", "Let us go on")
        assert [each.number for each in await manager.get_history(made.id)] == [entry.number]
        suspended = await manager.suspend_session(made.id, checkpoint={"step": 3}, reason="lunch")
        assert suspended.state == "suspended"
        resumed = await manager.resume_session(made.id)
        assert (resumed.state, resumed.hold) == ("active", None)
        assert await manager.resume_session(made.id) == resumed
        assert [each.id for each in await manager.list_sessions(state="active", agent_name="hello-world")] == [made.id]
        assert (await manager.complete_session(made.id, "done")).state == "completed"
        other = await manager.create_session("hello-world")
        assert (await manager.fail_session(other.id)).state == "failed"
        with pytest.raises(SessionClosed):
            await manager.resume_session(made.id)
        with pytest.raises(SessionNotFound):
            await manager.resume_session("unknown")
        assert await manager.get_session("unknown") is None


async def test_plugin_executor_is_the_executor(url: str) -> None:
    assert AgentPluginExecutor is AgentExecutor
    async with moorage.connect(url) as moor:
        turn = await AgentPluginExecutor(moor).execute_single_turn("echo-agent", "hello")
        assert (turn.status, turn.text) == ("completed", "Echo Agent Response: hello")


async def test_pipeline_context_collects_for_good(url: str) -> None:
    async with moorage.connect(url) as moor:
        session = await moor.create(parent=None)
        context = PipelineContext(session.id, AgentExecutor(moor))
        await context.collect("draft", "Notes")
        assert (context.values, context.agent_session_id) == ({"draft": "Notes"}, None)
        assert await moor.context.get(session.id) == {"draft": "Notes"}


def test_all_names_are_there_and_no_other() -> None:
    assert all(getattr(compat, name) for name in compat.__all__)
    with pytest.raises(AttributeError):
        compat.no_such_name  # noqa: B018


def test_package_loads_nothing_until_a_name_is_used() -> None:
    code = "import sys, moorage.compat; assert 'moorage.executor' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)

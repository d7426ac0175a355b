"""A stop reaches an agent whenever it comes, long before its lease would be renewed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import config
from holdfast.client import Holdfast
from holdfast.launcher.embedded import Embedded
from holdfast.service.deps import Caller
from tests.doors.cli.agent_files import SLOW, define

SOON = 7.0  # seconds: the launcher's next heartbeat, after ten, would have it look again
LEASE = timedelta(minutes=10)


async def test_an_agent_that_was_stopped_while_it_was_being_started_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    define(tmp_path, SLOW)
    deps = config.open_deps(f"memory://{tmp_path}", threaded=True)
    hf = Holdfast(lambda: deps, Caller())
    hf.launches = False
    async with Embedded(deps, config.agents, lease=LEASE):
        asked = await hf.run("slow", "take your time", mode="async_poll", parent=None)
        async for event in hf.events(asked.session.session_id):
            if event.type == "turn_started":
                break
        await hf.stop_run(asked.run.run_id)
        assert (await hf.result(asked.run.run_id, wait=SOON)).state == "stopped"
    await hf.close()

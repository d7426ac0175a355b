"""Turns reserved for a launcher of their family: it goes first, before all other launchers of the store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from moorage import config
from moorage.core.turn import RESERVED_FOR, Retry
from moorage.ports import Claimed
from moorage.service import runs
from moorage.service.deps import Caller, Deps
from moorage.service.turns import TurnDispatcher
from moorage.testing.builders import FakeClock
from moorage.testing.work import a_launcher

MOMENT = timedelta(milliseconds=1)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def deps(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Deps]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path / 'db'}"}
    url = urls.get(request.param) or request.getfixturevalue("postgres_url")
    store = config.open_store(url, threaded=True)
    yield Deps(store, FakeClock(), config.entropy, find_agent=config.find_agent)
    await store.close()


async def claimed(deps: Deps, launcher: str, root: str | None = None) -> Claimed | None:
    """The next turn for a launcher of one family, or of all."""
    return await TurnDispatcher(deps).claim(a_launcher(launcher, "local", root=root), {"echo-agent": Retry.RESUME})


async def child_of_an_agent(deps: Deps, *, of_family: bool) -> str:
    """The root of a family whose agent, started by either kind of launcher, has just asked for a child."""
    asked = await runs.start_run(deps, Caller(), "echo-agent", "go")
    root = asked.session.session_id
    turn = await claimed(deps, "launcher-1", root if of_family else None)
    assert turn is not None
    await TurnDispatcher(deps).started("local", turn.turn)
    wish = runs.Wish(parent=root, parent_run=asked.run.run_id, mode="async_callback")
    await runs.start_run(deps, Caller(), "echo-agent", "go on", wish=wish)  # by another process, the agent's own
    return root


async def test_child_of_an_agent_is_reserved_for_the_launcher_of_its_family(deps: Deps) -> None:
    root = await child_of_an_agent(deps, of_family=True)
    assert await claimed(deps, "server") is None
    child = await claimed(deps, "launcher-1", root)
    assert child is not None
    assert child.turn.launcher_id == "launcher-1"


async def test_child_that_its_family_leaves_is_taken_by_others_after_a_while(deps: Deps) -> None:
    await child_of_an_agent(deps, of_family=True)
    assert isinstance(deps.clock, FakeClock)
    deps.clock.forward(RESERVED_FOR - MOMENT)
    assert await claimed(deps, "server") is None
    deps.clock.forward(MOMENT)
    assert await claimed(deps, "server") is not None


async def test_child_of_an_agent_of_a_launcher_for_all_is_not_reserved(deps: Deps) -> None:
    await child_of_an_agent(deps, of_family=False)
    assert await claimed(deps, "server") is not None

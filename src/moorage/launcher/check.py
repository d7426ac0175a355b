"""One turn of an agent in a temporary session, to find its invalid output.

The store is temporary and private. Questions of the agent are rejected, because no person is there to answer them.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf

import msgspec
from msgspec import Struct

from moorage import config
from moorage.core.agent import AgentDefinition
from moorage.core.entry import Kind, Problem
from moorage.core.errors import AgentNotFound, Conflict
from moorage.core.query import LogQuery
from moorage.core.render import like
from moorage.core.run import Run, RunState
from moorage.launcher.embedded import Embedded
from moorage.launcher.processes import clock
from moorage.service import runs
from moorage.service.approvals import decide_approval, list_approvals
from moorage.service.deps import Caller, Deps

SCRATCH = "memory://"
LOOK = 1.0  # seconds; a wake-up may get lost
ALL = 1000  # entries of one turn


class Checked(Struct, frozen=True, kw_only=True):
    """The result of an agent's check."""

    agent_name: str
    outcome: str  # completed, failed or stopped
    problems: int  # the number of all problems
    items: list[Problem]  # the first problems
    result: str | None = None
    error: str | None = None
    reason: str | None = None

    @property
    def is_sound(self) -> bool:
        """Return whether the agent answered without an invalid line."""
        return self.outcome == "completed" and not self.problems


async def check_agent(name: str, prompt: str, *, timeout: float | None = None) -> Checked:
    """Run an agent of this machine for one turn, and return its problems. Raises AgentNotFound."""
    deps = config.open_deps(SCRATCH, threaded=True)
    caller = Caller(interface="check")
    agents = config.agents_of(deps)
    if (agent := agents.get(name)) is None:
        raise AgentNotFound.among(name, agents)
    try:
        asked = await runs.start_run(deps, caller, name, prompt)
        launcher = await _once(deps, agent).__aenter__()
        try:
            run = await _one_turn(deps, caller, asked.run, timeout)
        except BaseException:
            await launcher.close(drain=False)
            raise
        await launcher.close()
        return await _checked(deps, caller, run, name)
    finally:
        await deps.store.close()


def _once(deps: Deps, agent: AgentDefinition) -> Embedded:
    """Return a launcher that takes one turn: it must not retry a failed one."""
    taken = False

    def agents() -> dict[str, AgentDefinition]:
        nonlocal taken
        taken = taken or bool(launcher.at_work)
        return {} if taken else {agent.name: agent}

    launcher = Embedded(deps, agents, environment=config.agent_environment(SCRATCH))
    return launcher


async def _one_turn(deps: Deps, caller: Caller, run: Run, timeout: float | None) -> Run:
    """Return the run when its first turn has ended; stop it after the timeout."""
    stop_at = inf if timeout is None else clock() + timeout
    while True:
        seen = deps.store.pulse()
        run = await deps.store.run(caller.owner, run.run_id)
        if run.turns and run.state is not RunState.RUNNING:
            return run
        await _reject_questions(deps, caller, run.session_id)
        if clock() >= stop_at:
            stop_at = inf
            with suppress(Conflict):  # it has ended
                await runs.stop_run(deps, caller, run.run_id)
        await deps.store.wait(seen, max(0.0, min(LOOK, stop_at - clock())))


async def _reject_questions(deps: Deps, caller: Caller, session_id: str) -> None:
    for approval in await list_approvals(deps, caller, ref=session_id):
        with suppress(Conflict):  # the question was withdrawn
            note = "this is a check; approvals are rejected"
            await decide_approval(deps, caller, approval.approval_id, "reject", note=note)


async def _checked(deps: Deps, caller: Caller, run: Run, name: str) -> Checked:
    kinds = (Kind.PROBLEM.value, Kind.TURN_ENDED.value)
    log = await deps.store.log(caller.owner, run.session_id, LogQuery(kinds=kinds, limit=ALL))
    outcome = next(str((entry.data or {})["outcome"]) for entry in log if entry.kind == Kind.TURN_ENDED)
    items = [msgspec.convert(entry.data, Problem) for entry in log if entry.kind == Kind.PROBLEM]
    return like(Checked, run, agent_name=name, outcome=outcome, items=items)

"""A turn as a job for an agent: what it is to know, and the environment it works in."""

from __future__ import annotations

from moorage.agents.interface import Job, Limits
from moorage.core.agent import AgentDefinition
from moorage.core.prompt import composed
from moorage.service.turns import Given


def job_for(given: Given, agent: AgentDefinition, environment: dict[str, str]) -> Job:
    """The job of a turn. The session it is about is the parent of whatever the agent starts.

    That the turn before was cut off is told to those it was cut off for: another run's turn only has its log repaired.
    """
    claimed = given.claimed
    session, turn = claimed.session, claimed.turn
    run_id = claimed.runs[0].run_id if claimed.runs else None
    name = session.session_name or session.session_id
    was_cut_off = turn.cut_off and (not claimed.runs or any(run.cut_off for run in claimed.runs))
    return Job(
        owner=claimed.owner,
        session_id=session.session_id,
        session_name=session.session_name,
        task_id=session.task_id,
        agent=agent.for_session(session_id=session.session_id, session_name=name),
        turn_id=turn.turn_id,
        epoch=turn.epoch,
        run_id=run_id,
        prompt=composed(claimed.items, cut_off=was_cut_off),
        items=[{"kind": item.kind.value, **item.body} for item in claimed.items],
        history=given.history,
        system_prompt=agent.system_prompt,
        checkpoint=given.checkpoint,
        context=given.context,
        cut_off=was_cut_off,
        env={
            **environment,
            "AGENT_SESSION_ID": session.session_id,
            "AGENT_SESSION_NAME": name,
            "AGENT_TASK_ID": session.task_id,
            **({} if run_id is None else {"AGENT_RUN_ID": run_id}),
            **({} if given.token is None else {"MOORAGE_TOKEN": given.token}),
        },
        cwd=session.project_dir,
        limits=Limits.of(agent),
        lost_after=turn.lost_after.total_seconds(),
    )

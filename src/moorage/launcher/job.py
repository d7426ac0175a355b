"""Convert a turn to a job for an agent: its input, and its environment."""

from __future__ import annotations

from typing import Any

from moorage.agents.interface import Job, Limits
from moorage.core.agent import AgentDefinition
from moorage.core.codec import encode_text
from moorage.core.inbox import composed
from moorage.service.turns import Given


def job_for(given: Given, agent: AgentDefinition, environment: dict[str, str]) -> Job:
    """Return the job of a turn. The turn's session is the parent of sessions that the agent starts.

    Only the runs that a lost turn worked on learn that it was cut off: for the turn of another run the log is repaired.
    """
    session, turn = given.session, given.turn
    run = given.runs[0] if given.runs else None
    run_id = None if run is None else run.run_id
    parameters = {} if run is None else run.parameters  # a run with its own parameters has its own turn
    name = session.session_name or session.session_id
    was_cut_off = turn.cut_off and (not given.runs or any(run.cut_off for run in given.runs))
    return Job(
        owner=given.owner,
        session_id=session.session_id,
        session_name=session.session_name,
        task_id=session.task_id,
        agent=agent.for_session(session_id=session.session_id, session_name=name),
        turn_id=turn.turn_id,
        epoch=turn.epoch,
        run_id=run_id,
        prompt=_with_parameters(composed(given.items, cut_off=was_cut_off), agent, parameters),
        parameters=parameters,
        tools=[] if run is None else list(run.tools),
        turns=session.turns - 1,
        items=[{"kind": item.kind.value, **item.body} for item in given.items],
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


def _with_parameters(prompt: str, agent: AgentDefinition, parameters: dict[str, Any]) -> str:
    """Return the prompt of a program with the parameters, which it may have no other way to receive."""
    if not parameters or not agent.is_supervised:
        return prompt
    return f"{prompt}\n\nParameters: {encode_text(parameters)}"

"""`moorage agent …`: the same commands under the names that agent frameworks use."""

from __future__ import annotations

from moorage.doors.cli.app import group

PLACES = {
    "run": "runs:run",
    "list-sessions": "sessions:list_",
    "show-session": "sessions:get",
    "resume": "holds:agent_resume",
    "suspend": "holds:suspend",
    "cleanup": "cleanup:cleanup",
}


@group("agent", 'moorage agent run echo-agent "hello"', "moorage agent list-sessions --active-only", places=PLACES)
def agent() -> None:
    """Aliases: agent run, agent list-sessions, agent resume, …

    They are run, list, show, suspend and cleanup; `resume` talks to the session's agent.
    """

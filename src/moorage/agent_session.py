"""Sessions as plain functions, and as commands: `python -m moorage.agent_session --help`."""

from __future__ import annotations

from moorage.compat.agent_session import (
    AgentSession,
    cleanup_old_sessions,
    create_session,
    finalize_session,
    get_session,
    list_sessions,
    pre_delegate_hook,
    should_resume,
    update_state,
)

__all__ = [
    "AgentSession",
    "cleanup_old_sessions",
    "create_session",
    "finalize_session",
    "get_session",
    "list_sessions",
    "pre_delegate_hook",
    "should_resume",
    "update_state",
]

if __name__ == "__main__":
    from moorage.compat.agent_session_commands import main

    raise SystemExit(main())

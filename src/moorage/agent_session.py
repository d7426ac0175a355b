"""Sessions as plain functions, and as commands: `python -m moorage.agent_session --help`."""

from __future__ import annotations

from moorage.compat.agent_session import AgentSession

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

# The functions: the same operations on the default store.
_usual = AgentSession()
create_session = _usual.create_session
update_state = _usual.update_state
should_resume = _usual.should_resume
get_session = _usual.get_session
finalize_session = _usual.finalize_session
cleanup_old_sessions = _usual.cleanup_old_sessions
list_sessions = _usual.list_sessions
pre_delegate_hook = _usual.pre_delegate_hook

if __name__ == "__main__":
    from moorage.compat.agent_session_commands import main

    raise SystemExit(main())

"""Samples of what Claude Code sends to a hook: one run of a session that delegates once.

Shaped like recorded ones, with every field the host sends. `samples` tells the story in the
order in which a host would; each event can be made alone, too.
"""

from __future__ import annotations

from typing import Any

SESSION = "5ca1ab1e-0000-4000-8000-000000000001"
PROMPT = "5ca1ab1e-0000-4000-8000-000000000002"
AGENT, AGENT_TYPE = "a5ca1ab1e00000001", "general-purpose"
CALL = "toolu_sample"
MODEL = "sample-model"
TASK = {
    "description": "Investigate the crash loop",
    "prompt": "Find out why the pod restarts",
    "subagent_type": AGENT_TYPE,
}
FINDING = "Two causes found: OOMKilled and a low limit."

Event = dict[str, Any]


def samples(cwd: str) -> dict[str, Event]:
    """One event of each kind by its name, as a host working in `cwd` sends them one after another."""
    told = (
        session_start(cwd),
        user_prompt_submit(cwd),
        pre_tool_use(cwd),
        subagent_start(cwd),
        post_tool_use(cwd),
        subagent_stop(cwd),
        pre_compact(cwd),
        stop(cwd),
        stop_failure(cwd),
        session_end(cwd),
    )
    return {event["hook_event_name"]: event for event in told}


def session_start(cwd: str, source: str = "startup", *, session_id: str = SESSION) -> Event:
    """A session opens: `startup`, `resume`, `fork`, `compact` or `clear`."""
    event = _event("SessionStart", cwd, session_id) | {"source": source}
    if source in ("resume", "fork"):
        event |= {"seconds_since_last_response": 23, "context_tokens": 15, "prompt_cache_likely_expired": False}
        event |= {"estimated_cache_write_usd": 0.0001}
    elif source == "compact":
        event |= {"prompt_id": PROMPT, "model": MODEL}
    return event


def user_prompt_submit(cwd: str, prompt: str = "Why does the pod restart?", *, session_id: str = SESSION) -> Event:
    """A person says something."""
    return _in_prompt("UserPromptSubmit", cwd, session_id) | _MODE | {"prompt": prompt}


def pre_tool_use(cwd: str, *, tool: str = "Agent", call: str = CALL, session_id: str = SESSION) -> Event:
    """The session is about to delegate."""
    return _in_turn("PreToolUse", cwd, session_id) | {"tool_name": tool, "tool_input": TASK, "tool_use_id": call}


def post_tool_use(
    cwd: str, *, tool: str = "Agent", call: str = CALL, agent_id: str = AGENT, session_id: str = SESSION
) -> Event:
    """It has delegated; the sub-agent works in the background."""
    launched = {
        "isAsync": True,
        "status": "async_launched",
        "agentId": agent_id,
        "description": TASK["description"],
        "resolvedModel": MODEL,
        "prompt": TASK["prompt"],
        "outputFile": f"{cwd}/.tasks/{agent_id}.output",
        "canReadOutputFile": True,
        "canContinueAgent": True,
    }
    called = {"tool_name": tool, "tool_input": TASK, "tool_response": launched, "tool_use_id": call, "duration_ms": 35}
    return _in_turn("PostToolUse", cwd, session_id) | called


def subagent_start(
    cwd: str, *, agent_id: str = AGENT, agent_type: str = AGENT_TYPE, session_id: str = SESSION
) -> Event:
    """A sub-agent begins."""
    return _in_prompt("SubagentStart", cwd, session_id) | {"agent_id": agent_id, "agent_type": agent_type}


def subagent_stop(
    cwd: str,
    last_message: str = FINDING,
    *,
    agent_id: str = AGENT,
    agent_type: str = AGENT_TYPE,
    session_id: str = SESSION,
) -> Event:
    """A sub-agent has said its last."""
    agent = {
        "agent_id": agent_id,
        "agent_type": agent_type,
        "agent_transcript_path": f"{cwd}/.transcripts/{session_id}/subagents/agent-{agent_id}.jsonl",
    }
    return _in_turn("SubagentStop", cwd, session_id) | agent | _stopped(last_message)


def pre_compact(cwd: str, *, session_id: str = SESSION) -> Event:
    """The host is about to shorten the conversation."""
    asked = {"trigger": "manual", "custom_instructions": "keep the causes"}
    return _in_prompt("PreCompact", cwd, session_id) | asked


def stop(cwd: str, last_message: str = "Both causes are in the report.", *, session_id: str = SESSION) -> Event:
    """A turn has ended; the session goes on."""
    return _in_turn("Stop", cwd, session_id) | _stopped(last_message)


def stop_failure(cwd: str, error: str = "rate_limit", *, session_id: str = SESSION) -> Event:
    """A turn has ended because the model could not be asked."""
    return _in_turn("StopFailure", cwd, session_id) | {"error": error, "error_details": "429 from the model's API"}


def session_end(cwd: str, reason: str = "other", *, session_id: str = SESSION) -> Event:
    """The session closes: `clear`, `logout`, `prompt_input_exit` or `other`."""
    return _in_prompt("SessionEnd", cwd, session_id) | {"reason": reason}


_MODE = {"permission_mode": "default"}


def _event(name: str, cwd: str, session_id: str) -> Event:
    transcript = f"{cwd}/.transcripts/{session_id}.jsonl"
    return {"session_id": session_id, "transcript_path": transcript, "cwd": cwd, "hook_event_name": name}


def _in_prompt(name: str, cwd: str, session_id: str) -> Event:
    return _event(name, cwd, session_id) | {"prompt_id": PROMPT}


def _in_turn(name: str, cwd: str, session_id: str) -> Event:
    return _in_prompt(name, cwd, session_id) | _MODE | {"effort": {"level": "medium"}}


def _stopped(last_message: str) -> Event:
    said = {"stop_hook_active": False, "last_assistant_message": last_message}
    return said | {"background_tasks": [], "session_crons": []}

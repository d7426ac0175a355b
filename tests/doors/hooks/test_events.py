"""Claude Code's events as the host sent them: each through the real command, with the real input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moorage import sync
from moorage.core.entry import Entry
from moorage.core.session import Session
from tests.doors.hooks.running import Told, hook

RECORDED = Path(__file__).parent / "recorded"
HOST = "01774132-f6be-4d18-9c2c-4a496cf50b96"
AGENT = "ae8062bc6e3c98a22"
FOLDER = "/srv/dev/shop"


def recorded(name: str, **changes: Any) -> dict[str, Any]:
    """An event as it was recorded, with some fields changed."""
    event: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    return {**event, **changes}


def tell(*names: str | dict[str, Any], **environment: str) -> list[Told]:
    """Send events one after another; every one is answered without a complaint."""
    told = [hook(name if isinstance(name, dict) else recorded(name), **environment) for name in names]
    assert [(each.code, each.err) for each in told] == [(0, "")] * len(told)
    return told


def said(moor: sync.Moorage, ref: str) -> list[tuple[str | None, str]]:
    return [(entry.role, entry.text) for entry in moor.messages(ref)]


def kinds(moor: sync.Moorage, ref: str) -> list[str]:
    return [entry.kind for entry in moor.log(ref)]


def newest(moor: sync.Moorage, ref: str, kind: str) -> Entry:
    entry: Entry = moor.log(ref, kinds=[kind], newest_first=True).items[0]
    return entry


# The host's conversation ------------------------------------------------------------------------


def test_session_start_opens_the_hosts_session(moor: sync.Moorage) -> None:
    tell("session_start-startup")
    session = moor.get(HOST)
    assert (session.agent, session.interface, session.project_dir) == ("claude-code", "claude-code", FOLDER)
    assert (session.state.value, session.parent_session_id) == ("active", None)
    assert session.hold is not None
    assert session.hold.holder == f"claude-code:{HOST}"


@pytest.mark.parametrize("source", ["startup", "resume", "compact"])
def test_a_start_of_an_open_session_changes_little(moor: sync.Moorage, source: str) -> None:
    tell("session_start-startup", "user_prompt_submit", f"session_start-{source}")
    assert [session.id for session in moor.list()] == [HOST]
    assert said(moor, HOST) == [("user", "Why does the pod restart?")]


def test_session_end_suspends_and_the_next_start_goes_on(moor: sync.Moorage) -> None:
    tell("session_start-startup", "user_prompt_submit", "session_end-other")
    assert moor.get(HOST).state.value == "suspended"
    assert newest(moor, HOST, "suspended").data == {"reason": "host_ended", "suspended_by": "agent"}

    tell("session_start-resume")
    assert moor.get(HOST).state.value == "active"
    assert kinds(moor, HOST)[-1] == "resumed"


@pytest.mark.parametrize("reason", ["logout", "prompt_input_exit", "resume", "other", "something_new"])
def test_whatever_ends_a_session_suspends_it(moor: sync.Moorage, reason: str) -> None:
    tell("session_start-startup", recorded("session_end-other", reason=reason))
    assert moor.get(HOST).state.value == "suspended"


def test_clearing_closes_the_session_and_opens_another(moor: sync.Moorage) -> None:
    tell("session_start-startup", "session_end-clear", "session_start-clear")
    assert (moor.get(HOST).state.value, moor.get(HOST).summary) == ("completed", "cleared")
    after = recorded("session_start-clear")["session_id"]
    assert (moor.get(after).state.value, moor.get(after).forked_from) == ("active", None)


def test_a_closed_session_that_is_resumed_goes_on_in_a_fork(moor: sync.Moorage) -> None:
    tell("session_start-startup", "user_prompt_submit", "session_end-clear", "session_start-resume", "stop")
    fork = moor.get(f"{HOST}:latest")
    assert (fork.forked_from, fork.state.value) == (HOST, "active")
    assert said(moor, fork.id) == [("user", "Why does the pod restart?"), ("assistant", "Done with the turn.")]
    assert moor.get(HOST).state.value == "completed"

    tell("session_end-clear", "session_start-resume")
    assert moor.get(f"{HOST}:latest").forked_from == fork.id


def test_a_fork_of_the_hosts_is_a_session_of_its_own(moor: sync.Moorage) -> None:
    tell("session_start-startup", "session_start-fork")
    assert len(moor.list()) == 2


def test_a_turn_is_a_prompt_and_an_answer_and_ends_no_session(moor: sync.Moorage) -> None:
    tell("session_start-startup", "user_prompt_submit", "stop-while_agents_run", "stop")
    assert said(moor, HOST) == [
        ("user", "Why does the pod restart?"),
        ("assistant", "Done with the turn."),
        ("assistant", "Done with the turn."),
    ]
    assert kinds(moor, HOST).count("turn_ended") == 2
    assert moor.get(HOST).state.value == "active"


def test_stop_resets_the_errors(moor: sync.Moorage) -> None:
    tell("session_start-startup")
    for _ in range(3):
        moor.update(HOST, error="overloaded")
    tell("stop")
    assert moor.get(HOST).error_count == 0
    assert moor.get(HOST).last_error == "overloaded"


def test_a_turn_that_failed_counts_as_an_error(moor: sync.Moorage) -> None:
    failure = recorded("stop", hook_event_name="StopFailure", error="rate_limit", error_details="try later")
    tell("session_start-startup", failure)
    assert (moor.get(HOST).error_count, moor.get(HOST).last_error) == (1, "rate_limit: try later")


def test_messages_generated_by_the_host_are_not_stored(moor: sync.Moorage) -> None:
    tell("session_start-startup", "user_prompt_submit-notification")
    tell(recorded("user_prompt_submit", source="system", prompt="go on"))
    assert said(moor, HOST) == []


def test_events_told_twice_say_nothing_twice(moor: sync.Moorage) -> None:
    tell("session_start-startup", *("user_prompt_submit", "stop", "subagent_start") * 2, *["subagent_stop"] * 2)
    assert [text for _, text in said(moor, HOST)] == ["Why does the pod restart?", "Done with the turn."]
    assert [text for _, text in said(moor, AGENT)] == ["Two causes found: OOMKilled and a low limit."]
    assert len(moor.list()) == 2


def test_before_compacting_a_checkpoint_is_kept(moor: sync.Moorage) -> None:
    tell("session_start-startup", "pre_compact")
    assert moor.checkpoint(HOST).checkpoint == {
        "reason": "pre_compact",
        "trigger": "manual",
        "custom_instructions": "keep the causes",
        "transcript_path": recorded("pre_compact")["transcript_path"],
    }


def test_hooks_installed_in_the_middle_of_a_session_open_it(moor: sync.Moorage) -> None:
    tell("stop")
    assert moor.get(HOST).state.value == "active"
    tell("subagent_stop")
    assert moor.get(AGENT).parent_session_id == HOST


# Sub-agents -------------------------------------------------------------------------------------


def test_a_sub_agent_is_a_child_of_its_hosts_session(moor: sync.Moorage) -> None:
    told = tell("session_start-startup", "subagent_start")[-1]
    session = moor.get(AGENT)
    assert (session.agent, session.parent_session_id, session.project_dir) == ("general-purpose", HOST, FOLDER)
    assert (session.state.value, session.task_id) == ("active", moor.get(HOST).task_id)
    context = told.json["hookSpecificOutput"]
    assert context["hookEventName"] == "SubagentStart"
    assert f"moorage update {AGENT} --phase approval" in context["additionalContext"]


@pytest.mark.parametrize(
    "order", [("subagent_start", "post_tool_use-agent"), ("post_tool_use-agent", "subagent_start")]
)
def test_prompt_of_a_subagent_comes_from_its_tool_call(moor: sync.Moorage, order: tuple[str, str]) -> None:
    tell("session_start-startup", "pre_tool_use-agent", *order, "subagent_stop")
    session = moor.get(AGENT)
    assert said(moor, AGENT) == [
        ("user", "Find out why the pod restarts"),
        ("assistant", "Two causes found: OOMKilled and a low limit."),
    ]
    assert (session.metadata["tool_use_id"], session.metadata["description"]) == (
        "toolu_01delegate",
        "Investigate the crash loop",
    )
    assert (session.agent, session.parent_session_id) == ("general-purpose", HOST)


def test_a_sub_agent_that_stops_is_finalized(moor: sync.Moorage) -> None:
    tell("session_start-startup", "subagent_start", "subagent_stop")
    session = moor.get(AGENT)
    assert (session.state.value, session.hold) == ("completed", None)
    assert session.summary == "Two causes found: OOMKilled and a low limit."
    assert session.metadata["transcript_path"] == recorded("subagent_stop")["agent_transcript_path"]


def test_the_word_error_in_its_last_words_means_nothing(moor: sync.Moorage) -> None:
    stop = recorded("subagent_stop", last_assistant_message="Error: everything failed, an exception occurred")
    tell("session_start-startup", "subagent_start", stop)
    assert moor.get(AGENT).state.value == "completed"


def test_one_in_phase_approval_is_suspended_instead(moor: sync.Moorage) -> None:
    tell("session_start-startup", "subagent_start")
    moor.update(AGENT, phase="approval")
    tell("subagent_stop")
    assert (moor.get(AGENT).state.value, moor.get(AGENT).phase.value) == ("suspended", "approval")
    assert newest(moor, AGENT, "suspended").data == {"reason": "awaiting approval", "suspended_by": "agent"}
    assert said(moor, AGENT)[-1][0] == "assistant"


def test_one_that_asks_a_person_stays_and_the_answer_wakes_it(moor: sync.Moorage) -> None:
    tell("session_start-startup", "subagent_start")
    approval = moor.request_approval(AGENT, "Apply the change?")
    tell("subagent_stop")
    assert (moor.get(AGENT).state.value, moor.get(AGENT).pending_approvals) == ("suspended", 1)
    moor.approve(approval.approval_id)
    assert moor.get(AGENT).state.value == "active"


def test_one_that_comes_back_after_its_end_goes_on_in_a_fork(moor: sync.Moorage) -> None:
    tell("session_start-startup", "subagent_start", "subagent_stop", "subagent_start")
    fork = moor.get(f"{AGENT}:latest")
    assert (fork.forked_from, fork.state.value, fork.agent) == (AGENT, "active", "general-purpose")

    follow_up = recorded("post_tool_use-sendmessage")
    follow_up["tool_response"] |= {"resumedAgentId": AGENT}
    tell(follow_up, recorded("subagent_stop", last_assistant_message="Also a config issue."))
    assert said(moor, fork.id)[-2:] == [("user", "Look once more"), ("assistant", "Also a config issue.")]
    assert moor.get(fork.id).state.value == "completed"
    assert moor.get(AGENT).last_entry < moor.get(fork.id).last_entry

    tell("subagent_start")
    assert moor.get(f"{AGENT}:latest").forked_from == fork.id


def test_one_that_was_suspended_goes_on_where_it_was(moor: sync.Moorage) -> None:
    tell("session_start-startup", "subagent_start")
    moor.update(AGENT, phase="approval", metadata={"plan_file": "plan.json"})
    told = tell("subagent_stop", "subagent_start")[-1]
    assert (moor.get(AGENT).state.value, len(moor.list())) == ("active", 2)
    assert "plan.json" in told.json["hookSpecificOutput"]["additionalContext"]


def test_prompt_of_a_foreground_subagent_comes_from_its_transcript(moor: sync.Moorage, tmp_path: Path) -> None:
    transcript = tmp_path / "agent.jsonl"
    first = {"type": "user", "message": {"role": "user", "content": "Find out why"}, "isSidechain": True}
    transcript.write_text(json.dumps(first) + "\n")
    tell("session_start-startup", "pre_tool_use-agent-foreground", "subagent_start")
    tell(recorded("subagent_stop", agent_transcript_path=str(transcript)), "post_tool_use-agent-foreground")
    assert [text for _, text in said(moor, AGENT)] == ["Find out why", "Two causes found: OOMKilled and a low limit."]


def test_agents_the_host_uses_for_itself_are_left_out(moor: sync.Moorage) -> None:
    tell("session_start-startup", "subagent_stop-internal", recorded("subagent_start", agent_type=""))
    assert [session.id for session in moor.list()] == [HOST]


def test_sessions_still_running_when_the_host_ends_are_suspended(moor: sync.Moorage) -> None:
    tell("session_start-startup", "subagent_start", recorded("subagent_start", agent_id="another"))
    tell(recorded("subagent_stop", agent_id="another"), "session_end-other")
    assert (moor.get(AGENT).state.value, moor.get("another").state.value) == ("suspended", "completed")


def test_running_fork_of_a_sub_agent_is_suspended_when_the_host_ends(moor: sync.Moorage) -> None:
    tell("session_start-startup", *["subagent_start", "subagent_stop"] * 2, "subagent_start")
    other = {"session_id": "other-host", "agent_id": "other"}
    tell(*(recorded(name, **other) for name in ("subagent_start", "subagent_stop", "subagent_start")))
    own = moor.fork(AGENT, name="my-own")
    moor.resume(own.id)
    tell("session_end-other")

    fork = moor.get(f"{AGENT}:latest")
    assert (fork.state.value, fork.hold) == ("suspended", None)
    assert newest(moor, fork.id, "suspended").data == {"reason": "host_ended", "suspended_by": "agent"}
    assert (moor.get(own.id).state.value, moor.get("other:latest").state.value) == ("active", "active")


def test_a_deleted_sub_agent_that_comes_back_is_a_new_session(moor: sync.Moorage) -> None:
    tell("session_start-startup", "subagent_start")
    moor.delete(AGENT)
    tell("subagent_start", "subagent_stop")
    again = moor.get(f"{AGENT}:latest")
    assert (again.parent_session_id, again.state.value) == (HOST, "completed")


@pytest.mark.parametrize("odd", ["with space", "ünïcode", "../../evil", "x" * 400, "a:b/c"])
def test_ids_of_any_kind_are_kept_apart(moor: sync.Moorage, odd: str) -> None:
    tell(recorded("subagent_start", agent_id=odd, session_id=odd + "-host"), "subagent_start")
    tell(recorded("subagent_stop", agent_id=odd, session_id=odd + "-host"))
    sessions = {session.agent: session for session in moor.list() if session.id not in (HOST, AGENT)}
    assert len(moor.list()) == 4
    assert sessions["general-purpose"].state.value == "completed"
    assert sessions["general-purpose"].parent_session_id == sessions["claude-code"].id
    assert moor.get(AGENT).state.value == "active"


# Before delegating ------------------------------------------------------------------------------


def resumable_child(moor: sync.Moorage) -> Session:
    """A sub-agent of the recorded host that waits for a person."""
    tell("session_start-startup", "subagent_start")
    moor.update(AGENT, phase="approval", metadata={"plan_file": "plan.json"})
    tell(recorded("subagent_stop", last_assistant_message="May I apply the plan?"))
    session: Session = moor.get(AGENT)
    return session


def test_every_delegation_is_recorded(moor: sync.Moorage) -> None:
    assert tell("session_start-startup", "pre_tool_use-agent")[-1].json == {}
    tell("pre_tool_use-agent")  # the host may ask twice about one call
    [known] = moor.delegations().items
    assert (known.agent_name, known.resumed, known.reason) == ("general-purpose", False, "no_existing_session")
    assert (known.host_session_id, known.project_dir) == (HOST, FOLDER)


@pytest.mark.parametrize("tool", ["Agent", "Task"])
def test_a_session_that_could_be_picked_up_is_offered(moor: sync.Moorage, tool: str) -> None:
    resumable_child(moor)
    told = tell(recorded("pre_tool_use-agent", tool_name=tool))[0].json["hookSpecificOutput"]
    assert told["hookEventName"] == "PreToolUse"
    for words in (AGENT, "approval", "plan.json", "May I apply the plan?", f"send a message to agent {AGENT}"):
        assert words in told["additionalContext"]
    assert "permissionDecision" not in told
    assert moor.delegations().items[-1].resumed


def test_work_of_an_earlier_conversation_in_the_same_folder_is_offered(moor: sync.Moorage) -> None:
    resumable_child(moor)
    tell("session_end-other")
    event = recorded("pre_tool_use-agent", session_id="the-next-morning")
    context = tell(event)[0].json["hookSpecificOutput"]["additionalContext"]
    assert f"moorage resume {AGENT}" in context


def test_another_agents_work_and_another_folders_are_not_offered(moor: sync.Moorage) -> None:
    resumable_child(moor)
    other_agent = recorded("pre_tool_use-agent", tool_input={"prompt": "Look", "subagent_type": "Explore"})
    other_folder = recorded("pre_tool_use-agent", cwd="/elsewhere", session_id="another-host")
    assert [each.json for each in tell(other_agent, other_folder)] == [{}, {}]


def test_a_sub_agent_at_work_is_not_offered(moor: sync.Moorage) -> None:
    tell("session_start-startup", "subagent_start")
    moor.update(AGENT, phase="planning")
    assert tell("pre_tool_use-agent")[0].json == {}
    assert moor.delegations().items[-1].reason == "held_by_another"


def test_a_delegation_without_a_kind_is_one_of_the_hosts_own(moor: sync.Moorage) -> None:
    tell(recorded("pre_tool_use-agent", tool_input={"prompt": "Look"}))
    assert moor.delegations().items[0].agent_name == "general-purpose"


def test_other_tools_are_none_of_our_business(moor: sync.Moorage) -> None:
    tell("pre_tool_use-bash", "post_tool_use-bash")
    assert (len(moor.list()), len(moor.delegations())) == (0, 0)


def test_a_delegation_is_denied_only_if_configured_so(moor: sync.Moorage, home: Path) -> None:
    (home / "config.toml").write_text("[hooks]\ndeny_if_resumable = true\n")
    assert tell("session_start-startup", "pre_tool_use-agent")[-1].json == {}
    resumable_child(moor)
    denied = hook(recorded("pre_tool_use-agent", tool_use_id="toolu_02"))
    assert denied.code == 2
    assert f"send a message to agent {AGENT}" in denied.err

    elsewhere = hook(recorded("pre_tool_use-agent", session_id="the-next-morning"))
    assert elsewhere.code == 0  # it cannot be sent a message there
    (home / "config.toml").write_text("[hooks]\ndeny_if_resumable = false\n")
    assert hook(recorded("pre_tool_use-agent", tool_use_id="toolu_03")).code == 0


# Output for the host at the start ----------------------------------------------------------------


def test_session_start_lists_waiting_sessions_of_the_folder(moor: sync.Moorage) -> None:
    waiting = moor.create("terraform-architect", project_dir=FOLDER, task_id="T001", purpose="two buckets").id
    approval = moor.request_approval(waiting, "Apply the plan?")
    idle = moor.create("gitops-operator", project_dir=FOLDER).id
    moor.update(idle, phase="investigating")
    elsewhere = moor.create("gitops-operator", project_dir="/elsewhere").id
    moor.update(elsewhere, phase="investigating")

    told = tell("session_start-startup")[0].json["hookSpecificOutput"]
    assert told["hookEventName"] == "SessionStart"
    context = told["additionalContext"]
    for words in (waiting, "Apply the plan?", f"moorage approve {approval.approval_id}", "task T001", idle):
        assert words in context
    assert elsewhere not in context


def test_a_start_where_nothing_waits_says_nothing(moor: sync.Moorage) -> None:
    assert tell("session_start-startup")[0].json == {}


def test_every_recorded_event_is_answered(moor: sync.Moorage) -> None:
    for path in sorted(RECORDED.glob("*.json")):
        told = hook(json.loads(path.read_text()))
        assert (told.code, type(told.json)) == (0, dict)


# Inside another agent ---------------------------------------------------------------------------


def test_a_host_inside_an_agent_works_for_that_agents_session(moor: sync.Moorage) -> None:
    above = moor.create("orchestrator", name="release").id
    tell("session_start-startup", AGENT_SESSION_NAME="release")
    assert moor.get(HOST).parent_session_id == above
    tell("subagent_start", AGENT_SESSION_NAME="release")
    assert moor.get(AGENT).root_session_id == above


@pytest.mark.parametrize("value", ["nobody", "${AGENT_SESSION_NAME}", "closed", HOST])
def test_a_host_whose_agent_cannot_be_found_is_a_root(moor: sync.Moorage, value: str) -> None:
    moor.finalize(moor.create("orchestrator", name="closed").id)
    tell("session_start-startup", AGENT_SESSION_NAME=value)
    assert moor.get(HOST).parent_session_id is None

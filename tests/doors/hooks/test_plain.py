"""`pre-delegate` and `subagent-stop` with JSON of our own, as processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moorage import sync
from moorage.agent_session import pre_delegate_hook
from tests.doors.hooks.running import Told, hook

REQUEST = {
    "agent_name": "terraform-architect",
    "task_id": "T001",
    "task_description": "Plan two new buckets",
    "metadata": {"workspace": "prod"},
}
ANSWERED = {"should_resume", "reason", "agent_id", "resume_metadata", "original_context"}


def before(**fields: Any) -> Told:
    """Ask before delegating."""
    return hook({**REQUEST, **fields}, "pre-delegate")


def stopped(**fields: Any) -> Any:
    """Tell that an agent has stopped; the answer."""
    told = hook({"task_id": "T001", "agent": "terraform-architect", **fields}, "subagent-stop")
    assert (told.code, told.err) == (0, "")
    return told.json


def planning(moor: sync.Moorage, **fields: Any) -> str:
    """A session that could be picked up."""
    fields = {"task_id": "T001", "metadata": {"workspace": "prod"}, **fields}
    session_id: str = moor.create("terraform-architect", **fields).id
    moor.update(session_id, phase="planning", metadata={"plan_file": "plan.json"})
    return session_id


# Before delegating ------------------------------------------------------------------------------


def test_nothing_to_pick_up(moor: sync.Moorage) -> None:
    told = before()
    assert (told.code, told.err) == (0, "")
    assert told.json == {
        "should_resume": False,
        "reason": "no_existing_session",
        "agent_id": None,
        "resume_metadata": None,
        "original_context": REQUEST,
    }


def test_everything_needed_to_go_on(moor: sync.Moorage) -> None:
    session_id = planning(moor)
    moor.update(session_id, phase="approval")
    answer = before(agent_id=session_id).json
    session = moor.get(session_id)
    assert answer.keys() == ANSWERED
    assert (answer["should_resume"], answer["reason"], answer["agent_id"]) == (True, "session_resumable", session_id)
    known = answer["resume_metadata"]
    assert known["previous_phase"] == "approval"
    assert known["session_metadata"] == {"workspace": "prod", "plan_file": "plan.json"}
    assert [(each["from_phase"], each["to_phase"]) for each in known["history"]] == [
        ("initializing", "planning"),
        ("planning", "approval"),
    ]
    assert (known["created_at"], known["last_updated"]) == (_text(session.created_at), _text(session.updated_at))
    assert answer["original_context"] == {**REQUEST, "agent_id": session_id}


def _text(at: Any) -> str:
    return str(at.isoformat()).replace("+00:00", "Z")


def test_without_an_id_the_task_then_the_folder(moor: sync.Moorage, tmp_path: Path) -> None:
    of_task = planning(moor)
    in_folder = planning(moor, task_id=None, project_dir=str(tmp_path))
    assert before().json["agent_id"] == of_task
    assert before(task_id="T002", project_dir=str(tmp_path)).json["agent_id"] == in_folder
    assert before(task_id="T002", project_dir="/elsewhere").json["should_resume"] is False


def test_the_folder_is_where_the_hook_runs_unless_told(
    moor: sync.Moorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    in_folder = planning(moor, task_id=None, project_dir=str(tmp_path))
    assert before(task_id=None).json["agent_id"] == in_folder


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"phase": "executing"}, "phase_not_resumable"),
        ({"resume_ready": False}, "not_resume_ready"),
    ],
)
def test_reasons_are_the_verdicts(moor: sync.Moorage, change: dict[str, Any], reason: str) -> None:
    session_id = planning(moor)
    moor.update(session_id, **change)
    assert before(agent_id=session_id).json["reason"] == reason


def test_more_reasons(moor: sync.Moorage) -> None:
    closed, broken, held = planning(moor), planning(moor), planning(moor)
    moor.finalize(closed)
    for _ in range(3):
        moor.update(broken, error="oops")
    moor.resume(held)
    reasons = [before(agent_id=each).json["reason"] for each in (closed, broken, held, "nobody", "../../evil")]
    assert reasons == [
        *("session_closed", "too_many_errors", "held_by_another"),
        *("session_not_found", "session_not_found"),
    ]


def test_every_call_is_recorded(moor: sync.Moorage) -> None:
    before()
    session_id = planning(moor)
    before()
    before(agent_id="nobody")
    known = moor.delegations().items
    assert [(each.resumed, each.reason, each.session_id) for each in known] == [
        (False, "no_existing_session", None),
        (True, "session_resumable", session_id),
        (False, "session_not_found", "nobody"),
    ]
    assert {(each.agent_name, each.task_id) for each in known} == {("terraform-architect", "T001")}


@pytest.mark.parametrize("way", ["flag", "field"])
def test_a_new_session_is_opened_and_named_if_asked_for(moor: sync.Moorage, way: str) -> None:
    told = hook(REQUEST, "pre-delegate", "--create") if way == "flag" else before(create=True)
    answer = told.json
    assert (answer["should_resume"], answer["reason"], answer["created"]) == (False, "no_existing_session", True)
    session = moor.get(answer["agent_id"])
    assert answer["agent_id"].startswith("agent-20")
    assert (session.agent, session.task_id, session.purpose) == ("terraform-architect", "T001", "Plan two new buckets")
    assert session.metadata == {"workspace": "prod"}

    moor.update(session.id, phase="approval")
    again = before(create=True).json
    assert (again["should_resume"], again["agent_id"]) == (True, session.id)
    assert "created" not in again


def test_the_python_function_answers_the_same(moor: sync.Moorage) -> None:
    for prepare in (lambda: None, lambda: planning(moor)):
        prepare()
        assert pre_delegate_hook(REQUEST) == before().json
    assert len(moor.delegations()) == 4


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({}, "agent_name"),
        ({"agent_name": 7}, "agent_name"),
        ({"agent_name": "a", "metadata": []}, "metadata"),
        ({"agent_name": "a", "task_description": {}}, "task_description"),
        ({"agent_name": "a", "task_id": "\n"}, "task_id"),
    ],
)
def test_a_wrong_request_is_named_and_harmless(moor: sync.Moorage, request_: dict[str, Any], field: str) -> None:
    told = hook(request_, "pre-delegate")
    assert (told.code, told.json["should_resume"], told.json["reason"]) == (0, False, "invalid_request")
    assert told.json["original_context"] == request_
    assert field in told.err
    assert told.err.count("\n") == 1
    assert len(moor.delegations()) == 0


def test_self_check_reports_its_steps(home: Path) -> None:
    told = hook(b"", "pre-delegate", "--test")
    assert told.code == 0, told.out
    assert told.out.count("\nok ") == 5
    assert "All went as it should." in told.out
    assert not home.exists()  # it has a store of its own


# When an agent has stopped ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(0, "completed"), (None, "completed"), ("0", "completed"), (1, "failed"), (-9, "failed"), ("137", "failed")],
)
def test_the_exit_code_alone_tells_how_it_ended(moor: sync.Moorage, code: object, outcome: str) -> None:
    session_id = planning(moor)
    answer = stopped(agent_id=session_id, exit_code=code, output="Error: failed badly\nexit code 1")
    session = moor.get(session_id)
    assert (session.state.value, session.phase.value) == (outcome, outcome)
    assert answer == {
        "finalized": True,
        "outcome": outcome,
        "reason": "finalized",
        "agent_id": session_id,
        "task_id": "T001",
        "agent": "terraform-architect",
        "duration_seconds": session.duration_seconds,
    }
    last = moor.messages(session_id).items[-1]
    assert (last.role, last.text) == ("assistant", "Error: failed badly\nexit code 1")


def test_tier_and_tags_are_kept(moor: sync.Moorage) -> None:
    session_id = planning(moor)
    stopped(agent_id=session_id, tier="T2", tags=["terraform", "infrastructure"])
    assert moor.get(session_id).metadata | {"tier": "T2", "tags": ["terraform", "infrastructure"]} == (
        moor.get(session_id).metadata
    )


def test_without_an_id_the_one_open_session_of_agent_and_task(moor: sync.Moorage) -> None:
    assert stopped()["reason"] == "no_existing_session"
    session_id = planning(moor)
    answer = stopped(exit_code=0)
    assert (answer["agent_id"], answer["finalized"]) == (session_id, True)


def test_without_an_id_nothing_is_guessed(moor: sync.Moorage) -> None:
    one, other = planning(moor), planning(moor)
    assert stopped(exit_code=0) | {"finalized": False, "agent_id": None, "reason": "no_existing_session"} == (
        stopped(exit_code=0)
    )
    assert {moor.get(each).state.value for each in (one, other)} == {"active"}


@pytest.mark.parametrize("way", ["phase", "approval"])
def test_one_that_waits_for_a_person_is_suspended(moor: sync.Moorage, way: str) -> None:
    session_id = planning(moor)
    if way == "phase":
        moor.update(session_id, phase="approval")
    else:
        moor.request_approval(session_id, "Apply?")
    answer = stopped(agent_id=session_id, exit_code=0, output="Waiting.")
    assert (answer["finalized"], answer["outcome"], answer["reason"]) == (False, "suspended", "awaiting_approval")
    assert answer["duration_seconds"] >= 0
    assert (moor.get(session_id).state.value, moor.get(session_id).phase.value) == ("suspended", "approval")


def test_a_session_that_is_closed_stays_as_it_is(moor: sync.Moorage) -> None:
    session_id = planning(moor)
    moor.finalize(session_id, "failed", summary="by hand")
    answer = stopped(agent_id=session_id, exit_code=0, output="Done.")
    assert (answer["outcome"], answer["reason"]) == ("failed", "session_closed")
    assert moor.get(session_id).summary == "by hand"
    assert len(moor.messages(session_id)) == 0


@pytest.mark.parametrize(
    "wrong", [{"exit_code": "bad"}, {"exit_code": True}, {"output": 7}, {"tags": "a"}, {"tier": {}}, {"agent_id": 7}]
)
def test_a_wrong_stop_is_named_and_changes_nothing(moor: sync.Moorage, wrong: dict[str, Any]) -> None:
    session_id = planning(moor)
    told = hook({"task_id": "T001", "agent": "terraform-architect", "agent_id": session_id, **wrong}, "subagent-stop")
    assert (told.code, told.json["finalized"], told.json["reason"]) == (0, False, "invalid_request")
    assert next(iter(wrong)) in told.err
    assert moor.get(session_id).state.value == "active"


def test_an_unknown_session_is_named(moor: sync.Moorage) -> None:
    told = hook({"agent_id": "nobody", "exit_code": 0}, "subagent-stop")
    assert (told.code, told.json["reason"], told.json["finalized"]) == (0, "session_not_found", False)
    assert "nobody" in told.err


def test_a_long_output_is_cut_and_says_so(moor: sync.Moorage) -> None:
    session_id = planning(moor)
    stopped(agent_id=session_id, output="ä" * 800_000)
    text = moor.messages(session_id).items[-1].text
    assert len(text.encode()) <= 1024 * 1024
    assert text.endswith("[cut: the rest was too long to keep]")


# By hand ----------------------------------------------------------------------------------------


def test_help_and_version() -> None:
    for flag in ("--help", "-h"):
        told = hook(b"", flag)
        assert (told.code, told.err) == (0, "")
        assert "echo '{" in told.out
    assert hook(b"", "--version").out.startswith("moorage-hook 0.")


def test_the_url_names_the_store(moor: sync.Moorage, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    for args in (("--url", url), (f"--url={url}",)):
        hook(REQUEST, "pre-delegate", *args)
    with sync.connect(url) as other:
        assert len(other.delegations()) == 2
    assert len(moor.delegations()) == 0

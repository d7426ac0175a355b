"""Sessions as plain functions: what each answers, that nothing gets lost, and the commands as processes."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from moorage import agent_session, config, sync
from moorage.agent_session import (
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
from moorage.client import LocalMoorage
from moorage.compat import agent_session as inside
from moorage.testing.builders import FakeClock

FIELDS = [
    "agent_id", "agent_name", "purpose", "created_at", "last_updated", "phase", "metadata", "resume_ready", "history",
    "error_count", "last_error", "finalized_at", "duration_seconds", "summary",
]  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data folder of the test's own, and no agent around it."""
    for name in ("MOORAGE_URL", "AGENT_SESSION_ID", "AGENT_SESSION_NAME"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "data"
    monkeypatch.setenv("MOORAGE_HOME", str(folder))
    yield folder
    while inside._connections:
        inside._connections.popitem()[1].close()


@pytest.fixture
def clock(home: Path, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The time of everything that is opened from now on."""
    clock = FakeClock()
    monkeypatch.setattr(config, "SystemClock", lambda: clock)
    return clock


def state(agent_id: str | None) -> dict[str, Any]:
    """A session that must be there."""
    found = get_session(agent_id)
    assert found is not None
    return found


def waiting_for_approval(**metadata: Any) -> str | None:
    agent_id = create_session("terraform-architect", "approval_workflow", metadata)
    assert update_state(agent_id, phase="approval")
    return agent_id


def forward(clock: FakeClock, **by: float) -> None:
    clock.forward(timedelta(**by))


# One test for each thing the functions are for --------------------------------------------------


def test_create_session() -> None:
    agent_id = create_session(agent_name="terraform-architect", purpose="approval_workflow", metadata={"a": 1})
    assert re.fullmatch(r"agent-\d{8}-\d{6}-[0-9a-f]{8}", agent_id or "")
    created = state(agent_id)
    assert list(created) == FIELDS
    assert created["agent_id"] == agent_id
    assert created["agent_name"] == "terraform-architect"
    assert created["purpose"] == "approval_workflow"
    assert created["phase"] == "initializing"
    assert created["metadata"] == {"a": 1}
    assert created["resume_ready"] is False
    assert created["history"] == []
    assert created["error_count"] == 0
    assert [created[name] for name in FIELDS[-4:]] == [None] * 4
    assert json.loads(json.dumps(created)) == created


def test_update_state() -> None:
    agent_id = create_session("gitops-operator")
    assert update_state(agent_id, phase="planning", metadata={"plan_file": "plan.json"}) is True
    updated = state(agent_id)
    assert updated["phase"] == "planning"
    assert updated["resume_ready"] is True
    assert updated["metadata"] == {"plan_file": "plan.json"}
    assert updated["last_updated"] > updated["created_at"]


@pytest.mark.parametrize("phase", ["approval", "investigating", "planning"])
def test_should_resume_success(phase: str) -> None:
    agent_id = create_session("gitops-operator")
    update_state(agent_id, phase=phase)
    assert should_resume(agent_id) is True


@pytest.mark.parametrize("phase", ["initializing", "executing", "validating"])
def test_should_resume_not_resumable_phase(phase: str) -> None:
    agent_id = create_session("gitops-operator")
    update_state(agent_id, phase=phase)
    assert should_resume(agent_id) is False


@pytest.mark.parametrize("phase", ["investigating", "planning"])
def test_should_resume_timeout(clock: FakeClock, phase: str) -> None:
    agent_id = create_session("gitops-operator")
    update_state(agent_id, phase=phase)
    forward(clock, minutes=29, seconds=59)
    assert should_resume(agent_id) is True
    forward(clock, seconds=1)
    assert should_resume(agent_id) is False


def test_should_resume_too_many_errors() -> None:
    agent_id = create_session("gitops-operator")
    update_state(agent_id, phase="planning", error="one")
    update_state(agent_id, error="two")
    assert should_resume(agent_id) is True
    update_state(agent_id, error="three")
    assert should_resume(agent_id) is False


@pytest.mark.parametrize("outcome", ["completed", "failed", "abandoned"])
def test_finalize_session(clock: FakeClock, outcome: str) -> None:
    agent_id = create_session("gitops-operator")
    update_state(agent_id, phase="executing")
    forward(clock, seconds=90)
    assert finalize_session(agent_id, outcome=outcome, summary="that was it") is True
    final = state(agent_id)
    assert final["phase"] == outcome
    assert final["resume_ready"] is False
    assert final["finalized_at"] == "2026-03-01T12:01:30Z"
    assert final["duration_seconds"] == 90
    assert final["summary"] == "that was it"
    assert should_resume(agent_id) is False


def test_phase_history(clock: FakeClock) -> None:
    agent_id = create_session("gitops-operator")
    for phase in ("investigating", "investigating", "approval"):
        forward(clock, minutes=1)
        update_state(agent_id, phase=phase)
    forward(clock, minutes=1)
    finalize_session(agent_id)
    finalize_session(agent_id, summary="added later")
    assert state(agent_id)["history"] == [
        {"from_phase": "initializing", "to_phase": "investigating", "timestamp": "2026-03-01T12:01:00Z"},
        {"from_phase": "investigating", "to_phase": "approval", "timestamp": "2026-03-01T12:03:00Z"},
        {"from_phase": "approval", "to_phase": "completed", "timestamp": "2026-03-01T12:04:00Z"},
    ]
    assert state(agent_id)["summary"] == "added later"


def test_list_sessions() -> None:
    first, second, third = create_session("a"), create_session("b"), create_session("a")
    finalize_session(first)
    assert [listed["agent_id"] for listed in list_sessions()] == [third, second, first]
    assert [listed["agent_id"] for listed in list_sessions(active_only=True)] == [third, second]
    assert [listed["agent_id"] for listed in list_sessions(agent_name="a")] == [third, first]
    assert [listed["agent_id"] for listed in list_sessions(True, "a")] == [third]
    assert list_sessions(agent_name="nobody") == []
    assert list_sessions()[2] == state(first)


def test_a_list_reads_no_log_of_a_session_to_which_nothing_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    untouched, touched = create_session("a"), create_session("a")
    update_state(touched, phase="planning")
    read: list[str] = []
    log = LocalMoorage.log

    async def noting(moor: LocalMoorage, ref: str, **how: Any) -> Any:
        read.append(ref)
        return await log(moor, ref, **how)

    monkeypatch.setattr(LocalMoorage, "log", noting)
    histories = {listed["agent_id"]: len(listed["history"]) for listed in list_sessions()}
    assert histories == {untouched: 0, touched: 1}
    assert read == [touched]


def test_long_lists_and_histories_are_read_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.core.query.PAGE", 2)
    made = [create_session("a") for _ in range(5)]
    phases = ["planning", "executing", "planning", "executing", "validating"]
    for phase in phases:
        update_state(made[0], phase=phase)
    assert [listed["agent_id"] for listed in list_sessions()] == made[::-1]
    assert [change["to_phase"] for change in list_sessions()[-1]["history"]] == phases


def test_cleanup_old_sessions(clock: FakeClock) -> None:
    old, closed = create_session("a"), create_session("a")
    finalize_session(closed)
    forward(clock, hours=23)
    young = create_session("a")
    forward(clock, hours=2)
    assert cleanup_old_sessions(hours=48) == 0
    assert cleanup_old_sessions() == 2
    assert [get_session(old), get_session(closed)] == [None, None]
    assert [listed["agent_id"] for listed in list_sessions()] == [young]
    assert cleanup_old_sessions(hours=1) == 1


def test_metadata_merge() -> None:
    agent_id = create_session("a", metadata={"kept": 1, "replaced": {"old": True}})
    update_state(agent_id, metadata={"replaced": {"new": True}, "added": [1, 2]})
    assert state(agent_id)["metadata"] == {"kept": 1, "replaced": {"new": True}, "added": [1, 2]}


def test_error_tracking() -> None:
    agent_id = create_session("a")
    assert update_state(agent_id, error="it broke")
    assert update_state(agent_id, error="it broke again")
    assert update_state(agent_id, phase="planning")
    assert (state(agent_id)["error_count"], state(agent_id)["last_error"]) == (2, "it broke again")


@pytest.mark.parametrize("phase", ["no_such_phase", "", "completed", "failed", "abandoned", 7])
def test_invalid_phase(phase: Any) -> None:
    agent_id = create_session("a")
    before = state(agent_id)
    assert update_state(agent_id, phase=phase, metadata={"not": "kept"}, error="not counted") is False
    assert state(agent_id) == before


def test_an_error_without_words_is_not_counted() -> None:
    agent_id = create_session("a")
    before = state(agent_id)
    assert update_state(agent_id, phase="planning", error="") is False
    assert state(agent_id) == before


def test_nothing_to_resume() -> None:
    create_session("a")
    assert should_resume() is False


def test_nonexistent_session() -> None:
    unknown = "agent-20260108-180530-abc12345"
    assert update_state(unknown, phase="planning") is False
    assert should_resume(unknown) is False
    assert get_session(unknown) is None
    assert finalize_session(unknown) is False
    assert list_sessions() == []


def test_convenience_functions() -> None:
    """The functions and the class do the same, and are all that is promised."""
    agent_id = AgentSession().create_session()
    assert update_state(agent_id, "planning")
    assert AgentSession().get_session(agent_id) == get_session(agent_id)
    assert sorted(agent_session.__all__) == agent_session.__all__
    for name in set(agent_session.__all__) - {"AgentSession"}:
        assert callable(getattr(AgentSession, name))
        assert callable(getattr(agent_session, name))


# Two stories, word for word ---------------------------------------------------------------------

APPROVAL_WORKFLOW = """
# 1. Create session
from agent_session import create_session, update_state, finalize_session

agent_id = create_session(
    agent_name="terraform-architect",
    purpose="approval_workflow",
    metadata={"task_id": "T001", "workspace": "prod"}
)

# 2. Agent generates plan
update_state(agent_id, phase="planning", metadata={"plan_file": "plan.json"})

# 3. Agent requests approval
update_state(agent_id, phase="approval")

# [User approves after 10 minutes]

# 4. Pre-delegate hook checks resume
# (automatically called by orchestrator)
result = pre_delegate_hook({"agent_name": "terraform-architect", "agent_id": agent_id})
if result["should_resume"]:
    # Resume with full context
    previous_plan = result["resume_metadata"]["session_metadata"]["plan_file"]

# 5. Agent executes
update_state(agent_id, phase="executing")

# 6. Agent completes
# (subagent_stop hook automatically finalizes)
finalize_session(agent_id, outcome="completed", summary="Terraform applied successfully")
"""

INVESTIGATION = """
from agent_session import create_session, update_state, should_resume, get_session

# Turn 1: Initial investigation
agent_id = create_session(
    agent_name="gitops-operator",
    purpose="investigation",
    metadata={"issue": "pod-crash-loop"}
)

update_state(agent_id, phase="investigating", metadata={"findings": ["OOMKilled", "resource limits"]})

# [User asks follow-up question 5 minutes later]

# Turn 2: Continue investigation
if should_resume(agent_id):
    session = get_session(agent_id)
    previous_findings = session["metadata"]["findings"]
    # Agent continues from where left off
    new_findings = previous_findings + ["config issue in deployment"]
    update_state(agent_id, metadata={"findings": new_findings})

# [User asks for solution]

# Turn 3: Provide solution
update_state(agent_id, phase="planning", metadata={"solution": "increase memory limits"})

# Turn 4: Apply solution
update_state(agent_id, phase="executing")

finalize_session(agent_id, outcome="completed", summary="Fixed pod crash loop")
"""


def told(story: str, between: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a story; whenever it waits for its user, do what is given."""
    monkeypatch.setitem(sys.modules, "agent_session", agent_session)
    names: dict[str, Any] = {"pre_delegate_hook": pre_delegate_hook, "finalize_session": finalize_session}
    for number, part in enumerate(re.split(r"^# \[User .*\]$", story, flags=re.MULTILINE)):
        if number:
            between()
        exec(part, names)
    return names


def test_approval_workflow(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    names = told(APPROVAL_WORKFLOW, lambda: forward(clock, minutes=10), monkeypatch)
    assert names["previous_plan"] == "plan.json"
    final = state(names["agent_id"])
    assert [change["to_phase"] for change in final["history"]] == ["planning", "approval", "executing", "completed"]
    assert final["metadata"] == {"task_id": "T001", "workspace": "prod", "plan_file": "plan.json"}
    assert (final["duration_seconds"], final["summary"]) == (600, "Terraform applied successfully")


def test_multi_turn_investigation(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    names = told(INVESTIGATION, lambda: forward(clock, minutes=5), monkeypatch)
    final = state(names["agent_id"])
    assert final["metadata"]["findings"] == ["OOMKilled", "resource limits", "config issue in deployment"]
    assert final["metadata"]["solution"] == "increase memory limits"
    assert (final["phase"], final["summary"]) == ("completed", "Fixed pod crash loop")


# Nothing gets lost ------------------------------------------------------------------------------


def test_updates_from_eight_threads_are_all_counted() -> None:
    agent_id = create_session("a")
    answers: list[bool] = []

    def work(number: int) -> None:
        keys = (f"{number}-{turn}" for turn in range(50))
        answers.extend(update_state(agent_id, metadata={key: True}, error="counted") for key in keys)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 400
    assert (state(agent_id)["error_count"], len(state(agent_id)["metadata"])) == (400, 400)


def test_the_first_use_by_many_threads_opens_one_connection() -> None:
    barrier = threading.Barrier(8)
    made: list[str | None] = []

    def work() -> None:
        barrier.wait()
        made.append(create_session("a"))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(inside._connections) == 1
    assert {listed["agent_id"] for listed in list_sessions()} == set(made)


def test_updates_from_two_processes_are_all_there() -> None:
    agent_id = create_session("a")
    code = (
        "import sys; from moorage.agent_session import update_state\n"
        "for n in range(100): assert update_state(sys.argv[1], metadata={sys.argv[2] + str(n): n}, error='counted')"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, str(agent_id), who]) for who in "ab"]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert state(agent_id)["error_count"] == 200
    assert sorted(state(agent_id)["metadata"]) == sorted(f"{who}{number}" for who in "ab" for number in range(100))


def test_a_forked_child_gets_a_connection_of_its_own() -> None:
    agent_id = create_session("a")
    child = os.fork()
    if child == 0:
        os._exit(0 if update_state(agent_id, error="in the child") else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert update_state(agent_id, error="in the parent")
    assert state(agent_id)["error_count"] == 2


def test_an_id_that_is_taken_is_made_again(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = iter([b"\0\0\0\1", b"\0\0\0\1", b"\0\0\0\2"])
    monkeypatch.setattr(os, "urandom", lambda size: next(dice) if size == 4 else b"\7" * size)
    assert create_session() == "agent-20260301-120000-00000001"
    assert create_session() == "agent-20260301-120000-00000002"


def test_ids_that_stay_taken_are_refused_in_the_end(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda size: b"\7" * size)
    assert create_session() is not None
    assert create_session() is None


# When to resume, and when not -------------------------------------------------------------------


def test_approval_the_next_morning_resumes(clock: FakeClock) -> None:
    agent_id = waiting_for_approval()
    forward(clock, hours=15)
    assert should_resume(agent_id) is True
    assert pre_delegate_hook({"agent_name": "terraform-architect", "agent_id": agent_id})["should_resume"] is True
    forward(clock, days=6, hours=9)
    assert should_resume(agent_id) is False


def test_writing_metadata_does_not_extend_the_window(clock: FakeClock) -> None:
    agent_id = create_session("a")
    update_state(agent_id, phase="planning")
    for _ in range(3):
        forward(clock, minutes=10)
        assert update_state(agent_id, metadata={"seen": True})
    assert should_resume(agent_id) is False


def test_a_finalized_session_is_not_reopened() -> None:
    agent_id = create_session("a")
    assert finalize_session(agent_id, "failed")
    before = state(agent_id)
    assert update_state(agent_id, phase="planning") is False
    assert update_state(agent_id, metadata={"not": "kept"}) is False
    assert update_state(agent_id, error="not counted") is False
    assert finalize_session(agent_id, "completed") is False
    assert finalize_session(agent_id, "failed") is True
    assert state(agent_id) == before


@pytest.mark.parametrize("outcome", ["done", "", None, "planning"])
def test_an_unknown_outcome_finalizes_nothing(outcome: Any) -> None:
    agent_id = create_session("a")
    assert finalize_session(agent_id, outcome) is False
    assert state(agent_id)["finalized_at"] is None


# Bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "evil", ["../../evil", "/etc/passwd", "", " ", "a b", "x" * 200, "\udc80", "a\0b", None, 7, b"x"]
)
def test_an_id_that_is_none_answers_no_and_creates_nothing(home: Path, evil: Any) -> None:
    assert update_state(evil, phase="planning") is False
    assert should_resume(evil) is False
    assert get_session(evil) is None
    assert finalize_session(evil) is False
    assert list_sessions() == []
    assert {path.name.removesuffix("-wal").removesuffix("-shm") for path in home.iterdir()} == {"moorage.db"}
    assert not list(home.parent.glob("**/*evil*"))


@pytest.mark.parametrize("metadata", [[], "text", {"a": float("nan")}, {"a": object()}, {"a": "x" * 65536}, {7: 1}])
def test_metadata_that_cannot_be_kept_is_refused_whole(metadata: Any) -> None:
    agent_id = create_session("a")
    assert create_session("a", metadata=metadata) is None
    assert update_state(agent_id, phase="planning", metadata=metadata) is False
    assert [listed["phase"] for listed in list_sessions()] == ["initializing"]


@pytest.mark.parametrize("hours", [-1, float("nan"), "24", True])
def test_cleanup_with_bad_hours_deletes_nothing(clock: FakeClock, hours: Any) -> None:
    create_session("a")
    forward(clock, days=10)
    assert cleanup_old_sessions(hours) == 0
    assert len(list_sessions()) == 1


def test_secrets_are_not_kept() -> None:
    agent_id = create_session("a", metadata={"api_key": "s3cr3t"})
    assert state(agent_id)["metadata"] == {"api_key": "[redacted]"}


def test_why_something_was_refused_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert update_state("agent-unknown", phase="planning") is False
    assert caplog.record_tuples[0][:2] == ("moorage", logging.WARNING)
    assert caplog.records[0].getMessage().startswith("session_not_found: there is no session")


# A broken store ---------------------------------------------------------------------------------


def test_a_corrupt_session_is_skipped_and_the_others_still_work(home: Path, clock: FakeClock) -> None:
    whole, corrupt = waiting_for_approval(), waiting_for_approval()
    with apsw.Connection(str(home / "moorage.db")) as raw:
        raw.execute("UPDATE sessions SET metadata = '{\"task' WHERE id = ?", (corrupt,))
    assert get_session(corrupt) is None
    assert should_resume(corrupt) is False
    assert update_state(corrupt, phase="planning") is False
    assert finalize_session(corrupt) is False
    hooked = pre_delegate_hook({"agent_name": "terraform-architect", "agent_id": corrupt})
    assert (hooked["should_resume"], hooked["reason"]) == (False, "session_corrupt")
    assert pre_delegate_hook({"agent_name": "terraform-architect"})["agent_id"] == whole
    assert [listed["agent_id"] for listed in list_sessions()] == [whole]
    forward(clock, days=8)
    assert cleanup_old_sessions() == 1


def test_a_corrupt_log_hides_one_session_and_no_other(home: Path) -> None:
    corrupt, whole = waiting_for_approval(), waiting_for_approval()
    with apsw.Connection(str(home / "moorage.db")) as raw:
        raw.execute("UPDATE entries SET data = '{' WHERE id = (SELECT min(id) FROM entries WHERE kind = 'phase')")
    assert get_session(corrupt) is None
    assert [listed["agent_id"] for listed in list_sessions()] == [whole]


def test_a_store_that_cannot_be_opened_answers_no(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in (
        "sqlite:///",
        "sqlite:///a%00b",
        "sqlite:////dev/null/x.db",
        "nonsense",
        f"sqlite:///{tmp_path}/missing/x.db",
        f"sqlite:///{__file__}",
    ):
        monkeypatch.setenv("MOORAGE_URL", url)
        assert create_session("a") is None
        assert update_state("agent-x") is False
        assert should_resume("agent-x") is False
        assert get_session("agent-x") is None
        assert finalize_session("agent-x") is False
        assert cleanup_old_sessions() == 0
        assert list_sessions() == []
        assert pre_delegate_hook({"agent_name": "a"})["should_resume"] is False


def test_a_home_that_is_a_file_answers_no(home: Path) -> None:
    home.write_text("not a folder")
    assert create_session("a") is None


# Which store ------------------------------------------------------------------------------------


def test_another_home_is_another_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent_id = create_session("a")
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path / "100% other"))
    assert get_session(agent_id) is None
    assert create_session("b")
    assert (tmp_path / "100% other" / "moorage.db").is_file()


def test_a_folder_keeps_sessions_of_its_own(tmp_path: Path) -> None:
    here = AgentSession(tmp_path / "a folder" / "of 100% its own")
    agent_id = here.create_session("a")
    assert here.get_session(agent_id) is not None
    assert get_session(agent_id) is None
    assert (tmp_path / "a folder" / "of 100% its own" / "moorage.db").is_file()


def test_a_url_names_the_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/elsewhere.db"
    agent_id = AgentSession(url=url).create_session("a", metadata={"task_id": "T001"})
    with sync.connect(url) as moor:
        session = moor.get(agent_id or "")
        assert (session.task_id, session.interface) == ("T001", "agent_session")
    with pytest.raises(ValueError, match="not both"):
        AgentSession(tmp_path, url=url)


def test_a_session_begun_elsewhere_goes_on_here() -> None:
    with sync.connect() as moor:
        session_id = moor.create(agent="a", name="by-name").id
    assert update_state("by-name", phase="planning")
    assert state(session_id)["phase"] == "planning"


# Before delegating ------------------------------------------------------------------------------


def test_hook_returns_the_resume_packet() -> None:
    agent_id = waiting_for_approval(task_id="T001", plan_file="plan.json")
    context: dict[str, Any] = {
        "agent_name": "terraform-architect",
        "task_id": "T001",
        "agent_id": agent_id,
        "metadata": {},
    }
    known = state(agent_id)
    assert pre_delegate_hook(context) == {
        "should_resume": True,
        "reason": "session_resumable",
        "agent_id": agent_id,
        "resume_metadata": {
            "previous_phase": "approval",
            "created_at": known["created_at"],
            "last_updated": known["last_updated"],
            "history": known["history"],
            "session_metadata": {"task_id": "T001", "plan_file": "plan.json"},
        },
        "original_context": context,
    }


def test_the_hook_finds_the_newest_session_of_the_task() -> None:
    waiting_for_approval(task_id="T001")
    newest = waiting_for_approval(task_id="T001")
    waiting_for_approval(task_id="T002")
    found = pre_delegate_hook({"agent_name": "terraform-architect", "task_id": "T001", "task_description": "Go on"})
    assert (found["should_resume"], found["agent_id"]) == (True, newest)


def test_the_hook_finds_the_newest_session_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    agent_id = waiting_for_approval()
    request = {"agent_name": "terraform-architect", "task_id": "T001"}
    assert pre_delegate_hook(request)["agent_id"] == agent_id
    monkeypatch.chdir("/")
    assert pre_delegate_hook(request)["reason"] == "no_existing_session"
    assert pre_delegate_hook({**request, "project_dir": str(tmp_path)})["agent_id"] == agent_id
    assert pre_delegate_hook({"agent_name": "another", "project_dir": str(tmp_path)})["should_resume"] is False


def test_the_hook_does_not_take_the_work_of_another_task() -> None:
    agent_id = waiting_for_approval(task_id="T001")
    for phase in ("approval", "executing"):
        update_state(agent_id, phase=phase)
        found = pre_delegate_hook({"agent_name": "terraform-architect", "task_id": "T002"})
        assert (found["should_resume"], found["reason"], found["agent_id"]) == (False, "no_existing_session", None)


@pytest.mark.parametrize(
    ("reason", "prepare"),
    [
        ("session_closed", lambda agent_id, clock: finalize_session(agent_id)),
        ("phase_not_resumable", lambda agent_id, clock: update_state(agent_id, phase="executing")),
        ("idle_too_long", lambda agent_id, clock: forward(clock, days=7)),
        ("too_many_errors", lambda agent_id, clock: [update_state(agent_id, error="no") for _ in range(3)]),
        ("held_by_another", lambda agent_id, clock: sync.connect().resume(agent_id)),
    ],
)
def test_the_hook_says_why_not(
    clock: FakeClock, reason: str, prepare: Callable[[str | None, FakeClock], object]
) -> None:
    agent_id = waiting_for_approval()
    prepare(agent_id, clock)
    answer = pre_delegate_hook({"agent_name": "terraform-architect", "agent_id": agent_id})
    assert (answer["should_resume"], answer["reason"], answer["agent_id"]) == (False, reason, agent_id)
    assert answer["resume_metadata"] is None


def test_the_hook_says_that_there_is_no_such_session() -> None:
    for unknown in ("agent-unknown", "../../evil"):
        answer = pre_delegate_hook({"agent_name": "a", "agent_id": unknown})
        assert (answer["should_resume"], answer["reason"]) == (False, "session_not_found")


@pytest.mark.parametrize("key", ["agent_name", "agent_id", "task_id", "project_dir"])
@pytest.mark.parametrize("value", [7, [], {}, b"a", "\udc80", "a\nb", "x" * 5000])
def test_the_hook_never_raises_on_bad_values(key: str, value: Any) -> None:
    context: dict[str, Any] = {"agent_name": "a", key: value}
    answer = pre_delegate_hook(context)
    assert (answer["should_resume"], answer["reason"]) == (False, "invalid_request")
    assert answer["original_context"] is context


@pytest.mark.parametrize("context", [None, [], "text", 7, {}, {"agent_name": None}, {"agent_name": ""}])
def test_the_hook_never_raises_on_bad_requests(context: Any) -> None:
    answer = pre_delegate_hook(context)
    assert (answer["should_resume"], answer["reason"]) == (False, "invalid_request")


# The commands, as processes ---------------------------------------------------------------------


def run(*arguments: str | None, code: int = 0) -> str:
    """Run a command, check its exit code and return its output."""
    command = [sys.executable, "-m", "moorage.agent_session", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert bool(done.stderr) == (code != 0), done.stderr
    return done.stdout


def test_a_life_on_the_command_line() -> None:
    metadata = '{"task_id": "T001"}'
    agent_id = run("create", "--agent", "a", "--purpose", "two\nlines", "--metadata", metadata).strip()
    assert run("update", agent_id, "--phase", "approval", "--metadata", '{"plan": "ü"}', "--error", "e") == (
        f"Updated {agent_id}: phase approval; metadata plan; error counted\n"
    )
    assert json.loads(run("get", agent_id)) == state(agent_id)
    assert state(agent_id)["metadata"] == {"task_id": "T001", "plan": "ü"}
    assert run("should-resume", agent_id) == "true\n"
    assert run("list", "--active-only", "--agent", "a") == f"{agent_id}  approval       a  two lines\n"
    assert run("finalize", agent_id, "completed", "--summary", "done") == f"Finalized {agent_id}: completed\n"
    assert run("list", "--active-only") == ""
    assert run("cleanup") == "Removed 0 sessions\n"
    assert run("cleanup", "--hours", "0") == "Removed 1 session\n"
    assert run("list") == ""


def test_the_list_has_one_line_per_session() -> None:
    made = [create_session("a") for _ in range(3)]
    assert [line.split()[0] for line in run("list").splitlines()] == made[::-1]


def test_a_no_exits_with_1() -> None:
    agent_id = create_session("a")
    assert run("should-resume", agent_id, code=1) == "false\n"
    assert run("finalize", agent_id, "failed") == f"Finalized {agent_id}: failed\n"
    assert run("update", agent_id, "--phase", "planning", code=1) == ""
    assert run("finalize", agent_id, "completed", code=1) == ""
    assert run("finalize", agent_id, "failed") == f"Finalized {agent_id}: failed\n"


def test_a_wrong_request_exits_with_2() -> None:
    agent_id = create_session("a")
    for wrong in (
        ["update", agent_id, "--phase", "no_such_phase"],
        ["update", agent_id, "--phase", "completed"],
        ["update", agent_id, "--metadata", "not json"],
        ["create", "--metadata", "[]"],
        ["create", "--agent", ""],
        ["finalize", agent_id, "done"],
        ["cleanup", "--hours", "-1"],
        ["no-such-command"],
        [],
    ):
        assert run(*wrong, code=2) == ""
    assert len(list_sessions()) == 1


def test_an_unknown_session_exits_with_3() -> None:
    for unknown in ("agent-unknown", "../../evil"):
        assert run("get", unknown, code=3) == ""
        assert run("update", unknown, "--phase", "planning", code=3) == ""
        assert run("finalize", unknown, "completed", code=3) == ""
        assert run("should-resume", unknown, code=3) == "false\n"


def test_a_store_that_cannot_be_opened_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_URL", f"sqlite:///{__file__}")
    assert run("list", code=1) == ""


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    for _ in range(3):
        create_session("a" * 200, "b" * 4000)
    command = f"'{sys.executable}' -m moorage.agent_session list | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout, done.stderr) == ("a", "")


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("update_state('unknown') is False", "session_not_found"),
        ("update_state('unknown', phase='no-phase') is False", "unknown_phase"),
        ("get_session('unknown') is None", "session_not_found"),
        ("finalize_session('unknown') is False", "session_not_found"),
        ("create_session('') is None", "invalid_agent_name"),
    ],
)
def test_refusal_is_one_line_on_standard_error(call: str, code: str) -> None:
    script = f"from moorage.agent_session import *; assert {call}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (0, "", 1), done.stderr
    assert done.stderr.startswith(f"{code}: ")


def test_refusal_goes_to_the_logging_of_the_application() -> None:
    script = "import logging, sys; logging.basicConfig(stream=sys.stdout, format='app %(message)s')\n"
    script += "from moorage.agent_session import update_state; assert update_state('unknown') is False"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.startswith("app session_not_found: ")

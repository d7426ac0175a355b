"""state.json: sound files become sessions, the others are told and left alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from moorage import sync
from moorage.agent_session import AgentSession
from moorage.core.errors import InvalidImport, SessionClosed
from tests.service.doors import Timed
from tests.service.histories import STATE, a_state, write_state

ID = "agent-20260108-180530-abc12345"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def test_the_example_of_the_schema_reads_back_word_for_word(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'moorage.db'}"
    scripts = AgentSession(url=url)
    with sync.connect(url) as moor:
        assert moor.import_files([STATE]).imported == [ID]
    assert scripts.get_session(ID) == json.loads(STATE.read_text())


def test_the_example_is_a_session_that_waits_for_approval(timed: Timed) -> None:
    moor = timed.moor
    assert moor.import_files([STATE.parent.parent]).imported == [ID]
    session = moor.get(ID)
    assert (session.state, session.phase, session.resume_ready) == ("active", "approval", True)
    assert (session.agent, session.purpose, session.task_id) == ("terraform-architect", "approval_workflow", "T001")
    assert session.metadata == {"task_id": "T001", "tags": ["terraform", "infrastructure"]}
    assert session.created_at == at("2026-01-08T18:05:30Z")
    assert session.updated_at == session.last_activity_at == at("2026-01-08T18:10:15Z")
    phases = [(entry.at, entry.data) for entry in moor.log(ID, kinds=["phase"])]
    assert phases == [
        (at("2026-01-08T18:06:00Z"), {"from": "initializing", "to": "investigating"}),
        (at("2026-01-08T18:10:15Z"), {"from": "investigating", "to": "approval"}),
    ]
    moor.update(ID, phase="executing")
    moor.finalize(ID, "completed", summary="Applied")
    assert moor.check() == []


def test_importing_twice_changes_nothing(timed: Timed) -> None:
    moor = timed.moor
    moor.import_files([STATE])
    moor.append(ID, "meanwhile")
    before = list(moor.export(ID))
    report = moor.import_files([STATE])
    assert (report.imported, report.already_there, report.left_out_total) == ([], [ID], 0)
    assert list(moor.export(ID)) == before


@pytest.mark.parametrize("outcome", ["completed", "failed", "abandoned"])
def test_final_state_is_imported_as_final(timed: Timed, tmp_path: Path, outcome: str) -> None:
    history = a_state()["history"]
    history.append({"from_phase": "approval", "to_phase": outcome, "timestamp": "2026-01-08T18:30:00Z"})
    state = a_state(
        phase=outcome,
        history=history,
        resume_ready=False,
        finalized_at="2026-01-08T18:30:00Z",
        duration_seconds=1470.0,
        summary="That was it",
    )
    timed.moor.import_files([write_state(tmp_path, state)])
    session = timed.moor.get(ID)
    assert (session.state, session.phase, session.summary) == (outcome, outcome, "That was it")
    assert (session.finalized_at, session.duration_seconds) == (at("2026-01-08T18:30:00Z"), 1470.0)
    assert timed.moor.log(ID).items[-1].data == {"outcome": outcome, "summary": "That was it", "from": "approval"}
    with pytest.raises(SessionClosed):
        timed.moor.append(ID, "one more thing")


def test_an_end_that_says_no_time_is_the_last_time_there_is(timed: Timed, tmp_path: Path) -> None:
    timed.moor.import_files([write_state(tmp_path, a_state(phase="failed", finalized_at=None))])
    session = timed.moor.get(ID)
    assert (session.state, session.finalized_at) == ("failed", at("2026-01-08T18:10:15Z"))
    assert session.duration_seconds == 285.0


def test_one_that_only_began_is_created(timed: Timed, tmp_path: Path) -> None:
    timed.moor.import_files([write_state(tmp_path, a_state(phase="initializing", history=[], resume_ready=False))])
    assert timed.moor.get(ID).state == "created"


def test_errors_are_kept_with_their_count(timed: Timed, tmp_path: Path) -> None:
    timed.moor.import_files([write_state(tmp_path, a_state(error_count=3, last_error="quota exceeded"))])
    session = timed.moor.get(ID)
    assert (session.error_count, session.last_error) == (3, "quota exceeded")
    assert [entry.data for entry in timed.moor.log(ID, kinds=["error"])] == [{"error": "quota exceeded"}]
    timed.clock.at = at("2026-01-08T18:11:00Z")
    assert timed.moor.should_resume(ID).reason == "too_many_errors"


def test_unknown_fields_are_kept_verbatim(timed: Timed, tmp_path: Path) -> None:
    odd = a_state(tier=2, nested={"a": [1, None]}, finalized_at="2026-01-08T18:00:00Z")
    odd["history"][0]["note"] = "looked around"
    timed.moor.import_files([write_state(tmp_path, odd)])
    session = timed.moor.get(ID)
    assert session.state == "active", "its phase says that somebody went on"
    assert session.metadata["imported"] == {
        "tier": 2,
        "nested": {"a": [1, None]},
        "finalized_at": "2026-01-08T18:00:00Z",
        "history": odd["history"],
    }
    assert session.metadata["task_id"] == "T001"


def test_secrets_stay_out_of_metadata(timed: Timed, tmp_path: Path) -> None:
    state = a_state(metadata={"task_id": "T001", "db_password": "hunter2"}, apiKey="k-123")
    report = timed.moor.import_files([write_state(tmp_path, state)])
    assert timed.moor.get(ID).metadata == {
        "task_id": "T001",
        "db_password": "[redacted]",
        "imported": {"apiKey": "[redacted]"},
    }
    assert (report.passed_over, report.left_out_total) == ({"secret": 2}, 0)


def test_times_without_a_zone_were_meant_in_utc(timed: Timed, tmp_path: Path) -> None:
    state = a_state(created_at="2026-01-08T18:05:30.123456", last_updated="2026-01-08T20:10:15+02:00", history=[])
    timed.moor.import_files([write_state(tmp_path, state)])
    session = timed.moor.get(ID)
    assert session.created_at == at("2026-01-08T18:05:30.123456Z")
    assert session.updated_at == at("2026-01-08T18:10:15Z")


# Files that are not sound -----------------------------------------------------------------------

CORRUPT: dict[str, dict[str, Any] | str | bytes] = {
    "empty": "",
    "cut short": STATE.read_text()[:200],
    "two written at once": STATE.read_text() + '"}\n',
    "not UTF-8": b'{"agent_id": "\xff\xfe"}',
    "no object": "[1, 2]",
    "nothing in it": "{}",
    "bottomless": '{"metadata": ' + "[" * 5000 + "]" * 5000 + "}",
    "unknown phase": a_state(phase="dreaming"),
    "unknown phase before": a_state(history=[{"from_phase": "x", "to_phase": "planning", "timestamp": "2026-01-08"}]),
    "no time": a_state(created_at="yesterday"),
    "a time no clock shows": a_state(created_at="0001-01-01T00:00:00+14:00"),
    "a time before computers": a_state(created_at="1066-10-14T09:00:00Z"),
    "metadata that is no object": a_state(metadata=["task_id"]),
    "metadata that is too large": a_state(metadata={"x": "y" * 70_000}),
    "a number with too many digits": a_state(metadata={"x": 10**30}),
    "negative errors": a_state(error_count=-1),
    "errors in words": a_state(error_count="three"),
    "no id": a_state(agent_id=None),
    "an agent with a bell": a_state(agent_name="ding\a"),
}


@pytest.mark.parametrize("name", CORRUPT)
def test_a_corrupt_file_is_told_and_left_and_the_others_come_in(timed: Timed, tmp_path: Path, name: str) -> None:
    corrupt = CORRUPT[name]
    wrong = write_state(tmp_path, corrupt, folder="agent-20260108-180530-abc12345")
    write_state(tmp_path, a_state(agent_id="agent-sound"))
    before = wrong.read_bytes()
    report = timed.moor.import_files([tmp_path])
    assert report.imported == ["agent-sound"]
    assert [(left.file, left.line) for left in report.left_out] == [(str(wrong), None)]
    assert report.left_out[0].reason
    assert wrong.read_bytes() == before
    assert [session.id for session in timed.moor.list()] == ["agent-sound"]


@pytest.mark.parametrize("agent_id", ["../../evil", "/etc/passwd", "..", "a/b", "", "x" * 200])
def test_an_id_that_is_a_path_touches_none(timed: Timed, tmp_path: Path, agent_id: str) -> None:
    write_state(tmp_path, a_state(agent_id=agent_id), folder="agent-evil")
    before = sorted(tmp_path.rglob("*"))
    report = timed.moor.import_files([tmp_path])
    assert (report.imported, report.left_out_total) == ([], 1)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_called_otherwise_is_a_sign_of_a_copy(timed: Timed, tmp_path: Path) -> None:
    path = write_state(tmp_path, a_state(), folder="agent-copy")
    report = timed.moor.import_files([tmp_path])
    assert (report.imported, report.left_out_total) == ([], 1)
    assert "'agent-copy'" in report.left_out[0].reason
    assert timed.moor.import_files([path]).imported == [ID], "named by itself, it may lie anywhere"


@pytest.mark.parametrize("level", [".", ".claude", ".claude/session", f".claude/session/{ID}"])
def test_a_folder_may_be_given_at_any_level(timed: Timed, tmp_path: Path, level: str) -> None:
    write_state(tmp_path, a_state())
    (tmp_path / "terraform").mkdir()
    (tmp_path / "terraform" / "state.json").write_text('{"version": 4}')
    report = timed.moor.import_files([f"{tmp_path}/{level}/"])
    assert (report.imported, report.left_out_total) == ([ID], 0)


def test_scripts_may_have_kept_their_states_in_any_folder(timed: Timed, tmp_path: Path) -> None:
    for name, text in (("agent-a", json.dumps(a_state(agent_id="agent-a"))), ("agent-b", '{"agent_id": "agent-b", ')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state.json").write_text(text)
    report = timed.moor.import_files([tmp_path])
    assert (report.imported, report.left_out_total) == (["agent-a"], 1)


def test_a_folder_with_nothing_to_import_is_refused(timed: Timed, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(InvalidImport, match="contains nothing that can be imported"):
        timed.moor.import_files([tmp_path])


def test_an_id_that_was_deleted_stays_spent(timed: Timed) -> None:
    timed.moor.import_files([STATE])
    timed.moor.delete(ID)
    report = timed.moor.import_files([STATE])
    assert (report.imported, report.left_out_total) == ([], 1)
    assert "deleted" in report.left_out[0].reason

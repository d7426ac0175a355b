"""Before work is handed to an agent: what is looked for, in which order, and that it is counted."""

from __future__ import annotations

from typing import Any

import pytest

from moorage import sync
from moorage.core.errors import InvalidField, InvalidRequest
from tests.service.doors import Place, Timed


def planning(moor: sync.Moorage, agent: str = "planner", **fields: object) -> str:
    """A session that could be picked up."""
    session_id: str = moor.create(agent, **fields).id  # type: ignore[arg-type]  # the fields are those of create
    moor.update(session_id, phase="planning")
    return session_id


# Where earlier work is looked for ---------------------------------------------------------------


def test_the_same_task_comes_before_the_same_folder(place: Place) -> None:
    moor = place.connect()
    of_task = planning(moor, task_id="T001", project_dir="/elsewhere")
    in_folder = planning(moor, project_dir="/shop")

    verdict = moor.should_resume(agent="planner", task_id="T001", project_dir="/shop")
    assert verdict.session_id == of_task
    assert moor.should_resume(agent="planner", task_id="T002", project_dir="/shop").session_id == in_folder


def test_under_the_same_host_comes_before_the_same_folder(place: Place) -> None:
    moor = place.connect()
    host = moor.create("claude-code").id
    child = planning(moor, parent=host)
    in_folder = planning(moor, project_dir="/shop")

    assert moor.should_resume(agent="planner", host=host, project_dir="/shop").session_id == child
    assert moor.should_resume(agent="planner", host=in_folder, project_dir="/shop").session_id == in_folder


def test_work_for_another_task_in_the_same_folder_is_left_alone(place: Place) -> None:
    moor = place.connect()
    planning(moor, task_id="T001", project_dir="/shop")

    verdict = moor.should_resume(agent="planner", task_id="T002", project_dir="/shop")
    assert (verdict.decision, verdict.reason) == (False, "no_existing_session")
    assert moor.should_resume(agent="planner", project_dir="/shop").decision


def test_work_that_belongs_to_no_task_may_be_picked_up_for_one(place: Place) -> None:
    moor = place.connect()
    root = planning(moor, project_dir="/shop")
    child = planning(moor, "builder", parent=root, project_dir="/shop")

    assert moor.should_resume(agent="planner", task_id="T002", project_dir="/shop").session_id == root
    assert moor.should_resume(agent="builder", task_id="T002", project_dir="/shop").session_id == child


def test_another_agents_work_is_left_alone(place: Place) -> None:
    moor = place.connect()
    planning(moor, task_id="T001", project_dir="/shop")

    verdict = moor.should_resume(agent="builder", task_id="T001", project_dir="/shop")
    assert (verdict.reason, verdict.session_id) == ("no_existing_session", None)


def test_work_that_waits_for_a_person_is_found_behind_newer_work_gone_stale(timed: Timed) -> None:
    waiting = timed.moor.create("planner", task_id="T001").id
    timed.moor.update(waiting, phase="approval")
    for _ in range(25):
        planning(timed.moor, task_id="T001")
    timed.forward(hours=15)

    verdict = timed.moor.should_resume(agent="planner", task_id="T001")
    assert (verdict.decision, verdict.session_id) == (True, waiting)


def test_if_nothing_fits_the_newest_tells_why(place: Place) -> None:
    moor = place.connect()
    planning(moor, task_id="T001")
    newest = moor.create("planner", task_id="T001").id
    moor.update(newest, phase="executing")
    moor.finalize(moor.create("planner", task_id="T001").id)
    moor.update(moor.list(task_id="T001", sort="created").items[0].id, resume_ready=False)

    verdict = moor.should_resume(agent="planner", task_id="T001")
    assert (verdict.reason, verdict.session_id) == ("phase_not_resumable", newest)


def test_a_session_without_a_task_has_its_own(place: Place) -> None:
    moor = place.connect()
    assert moor.create("planner", session_id="agent-1").task_id == "agent-1"
    made = moor.create("planner")
    assert made.task_id == made.session_id


# That it is counted -----------------------------------------------------------------------------


def test_every_question_is_counted(timed: Timed) -> None:
    moor = timed.moor
    first = moor.delegate("planner", task_id="T001", project_dir="/shop")
    session_id = planning(moor, task_id="T001")
    timed.forward(minutes=1)
    second = moor.delegate("planner", task_id="T001", host="host-1")

    assert (first.verdict.reason, first.session, first.created) == ("no_existing_session", None, False)
    assert (second.verdict.decision, second.session and second.session.id) == (True, session_id)
    assert moor.delegations().items == [first.delegation, second.delegation]
    known = second.delegation
    assert (known.resumed, known.reason, known.session_id) == (True, "session_resumable", session_id)
    assert (known.agent_name, known.task_id, known.host_session_id) == ("planner", "T001", "host-1")
    assert (known.at - first.delegation.at).total_seconds() == 60


def test_an_id_that_is_not_known_is_counted_too(place: Place) -> None:
    moor = place.connect()
    for session_id in ("nobody", "../evil"):
        done = moor.delegate("planner", session_id=session_id)
        assert (done.verdict.reason, done.session) == ("session_not_found", None)
    bad: list[Any] = [7, ["nobody"], "\ud800", "x" * 5000]
    for each in bad:
        with pytest.raises(InvalidField):  # it would be recorded, and could not be read back from every store
            moor.delegate("planner", session_id=each)
    assert [known.session_id for known in moor.delegations()] == ["nobody", "../evil"]


def test_one_id_is_counted_once(place: Place) -> None:
    moor = place.connect()
    for _ in range(3):
        moor.delegate("planner", delegation_id="call-1")
    assert len(moor.delegations()) == 1


def test_a_session_is_opened_if_asked_for_and_there_is_none_to_pick_up(place: Place) -> None:
    moor = place.connect()
    done = moor.delegate(
        "planner", task_id="T001", project_dir="/shop", create=True, new_id="agent-1", purpose="Plan", metadata={"a": 1}
    )

    assert done.created
    assert done.session is not None
    session = moor.get("agent-1")
    assert (session.agent, session.task_id, session.project_dir) == ("planner", "T001", "/shop")
    assert (session.purpose, session.metadata) == ("Plan", {"a": 1})
    assert done.delegation.session_id == "agent-1"
    assert not done.delegation.resumed

    moor.update("agent-1", phase="approval")
    again = moor.delegate("planner", task_id="T001", create=True, new_id="agent-2")
    assert (again.created, again.session and again.session.id) == (False, "agent-1")


def test_a_refused_creation_counts_nothing(place: Place) -> None:
    moor = place.connect()
    with pytest.raises(InvalidRequest):
        moor.delegate("planner", create=True, new_id="no id")
    with pytest.raises(InvalidRequest):
        moor.delegate()
    assert (len(moor.delegations()), len(moor.list())) == (0, 0)


def test_session_held_by_another_is_not_resumed(place: Place) -> None:
    moor, other = place.connect(), place.connect()
    session_id = planning(moor, task_id="T001")
    other.resume(session_id)

    assert moor.delegate("planner", task_id="T001").verdict.reason == "held_by_another"
    assert other.delegate("planner", task_id="T001").verdict.decision

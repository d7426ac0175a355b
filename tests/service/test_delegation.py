"""Before work is handed to an agent: what is looked for, in which order, and that it is counted."""

from __future__ import annotations

import pytest

from holdfast import sync
from holdfast.core.errors import InvalidRequest
from tests.service.doors import Place, Timed


def planning(hf: sync.Holdfast, agent: str = "planner", **fields: object) -> str:
    """A session that could be picked up."""
    session_id: str = hf.create(agent, **fields).id  # type: ignore[arg-type]  # the fields are those of create
    hf.update(session_id, phase="planning")
    return session_id


# Where earlier work is looked for ---------------------------------------------------------------


def test_the_same_task_comes_before_the_same_folder(place: Place) -> None:
    hf = place.connect()
    of_task = planning(hf, task_id="T001", project_dir="/elsewhere")
    in_folder = planning(hf, project_dir="/shop")

    verdict = hf.should_resume(agent="planner", task_id="T001", project_dir="/shop")
    assert verdict.session_id == of_task
    assert hf.should_resume(agent="planner", task_id="T002", project_dir="/shop").session_id == in_folder


def test_under_the_same_host_comes_before_the_same_folder(place: Place) -> None:
    hf = place.connect()
    host = hf.create("claude-code").id
    child = planning(hf, parent=host)
    in_folder = planning(hf, project_dir="/shop")

    assert hf.should_resume(agent="planner", host=host, project_dir="/shop").session_id == child
    assert hf.should_resume(agent="planner", host=in_folder, project_dir="/shop").session_id == in_folder


def test_work_for_another_task_in_the_same_folder_is_left_alone(place: Place) -> None:
    hf = place.connect()
    planning(hf, task_id="T001", project_dir="/shop")

    verdict = hf.should_resume(agent="planner", task_id="T002", project_dir="/shop")
    assert (verdict.decision, verdict.reason) == (False, "no_existing_session")
    assert hf.should_resume(agent="planner", project_dir="/shop").decision


def test_work_that_belongs_to_no_task_may_be_picked_up_for_one(place: Place) -> None:
    hf = place.connect()
    root = planning(hf, project_dir="/shop")
    child = planning(hf, "builder", parent=root, project_dir="/shop")

    assert hf.should_resume(agent="planner", task_id="T002", project_dir="/shop").session_id == root
    assert hf.should_resume(agent="builder", task_id="T002", project_dir="/shop").session_id == child


def test_another_agents_work_is_left_alone(place: Place) -> None:
    hf = place.connect()
    planning(hf, task_id="T001", project_dir="/shop")

    verdict = hf.should_resume(agent="builder", task_id="T001", project_dir="/shop")
    assert (verdict.reason, verdict.session_id) == ("no_existing_session", None)


def test_work_that_waits_for_a_person_is_found_behind_newer_work_gone_stale(timed: Timed) -> None:
    waiting = timed.hf.create("planner", task_id="T001").id
    timed.hf.update(waiting, phase="approval")
    for _ in range(25):
        planning(timed.hf, task_id="T001")
    timed.forward(hours=15)

    verdict = timed.hf.should_resume(agent="planner", task_id="T001")
    assert (verdict.decision, verdict.session_id) == (True, waiting)


def test_if_nothing_fits_the_newest_tells_why(place: Place) -> None:
    hf = place.connect()
    planning(hf, task_id="T001")
    newest = hf.create("planner", task_id="T001").id
    hf.update(newest, phase="executing")
    hf.finalize(hf.create("planner", task_id="T001").id)
    hf.update(hf.list(task_id="T001", sort="created").items[0].id, resume_ready=False)

    verdict = hf.should_resume(agent="planner", task_id="T001")
    assert (verdict.reason, verdict.session_id) == ("phase_not_resumable", newest)


def test_a_session_without_a_task_has_its_own(place: Place) -> None:
    hf = place.connect()
    assert hf.create("planner", session_id="agent-1").task_id == "agent-1"
    made = hf.create("planner")
    assert made.task_id == made.session_id


# That it is counted -----------------------------------------------------------------------------


def test_every_question_is_counted(timed: Timed) -> None:
    hf = timed.hf
    first = hf.delegate("planner", task_id="T001", project_dir="/shop")
    session_id = planning(hf, task_id="T001")
    timed.forward(minutes=1)
    second = hf.delegate("planner", task_id="T001", host="host-1")

    assert (first.verdict.reason, first.session, first.created) == ("no_existing_session", None, False)
    assert (second.verdict.decision, second.session and second.session.id) == (True, session_id)
    assert hf.delegations().items == [first.delegation, second.delegation]
    known = second.delegation
    assert (known.resumed, known.reason, known.session_id) == (True, "session_resumable", session_id)
    assert (known.agent_name, known.task_id, known.host_session_id) == ("planner", "T001", "host-1")
    assert (known.at - first.delegation.at).total_seconds() == 60


def test_an_id_that_is_not_known_is_counted_too(place: Place) -> None:
    hf = place.connect()
    for session_id in ("nobody", "../evil"):
        done = hf.delegate("planner", session_id=session_id)
        assert (done.verdict.reason, done.session) == ("session_not_found", None)
    assert [each.session_id for each in hf.delegations()] == ["nobody", "../evil"]


def test_one_id_is_counted_once(place: Place) -> None:
    hf = place.connect()
    for _ in range(3):
        hf.delegate("planner", delegation_id="call-1")
    assert len(hf.delegations()) == 1


def test_a_session_is_opened_if_asked_for_and_there_is_none_to_pick_up(place: Place) -> None:
    hf = place.connect()
    done = hf.delegate(
        "planner", task_id="T001", project_dir="/shop", create=True, new_id="agent-1", purpose="Plan", metadata={"a": 1}
    )

    assert done.created
    assert done.session is not None
    session = hf.get("agent-1")
    assert (session.agent, session.task_id, session.project_dir) == ("planner", "T001", "/shop")
    assert (session.purpose, session.metadata) == ("Plan", {"a": 1})
    assert done.delegation.session_id == "agent-1"
    assert not done.delegation.resumed

    hf.update("agent-1", phase="approval")
    again = hf.delegate("planner", task_id="T001", create=True, new_id="agent-2")
    assert (again.created, again.session and again.session.id) == (False, "agent-1")


def test_a_refused_creation_counts_nothing(place: Place) -> None:
    hf = place.connect()
    with pytest.raises(InvalidRequest):
        hf.delegate("planner", create=True, new_id="no id")
    with pytest.raises(InvalidRequest):
        hf.delegate()
    assert (len(hf.delegations()), len(hf.list())) == (0, 0)


def test_what_is_held_by_another_is_not_picked_up(place: Place) -> None:
    hf, other = place.connect(), place.connect()
    session_id = planning(hf, task_id="T001")
    other.resume(session_id)

    assert hf.delegate("planner", task_id="T001").verdict.reason == "held_by_another"
    assert other.delegate("planner", task_id="T001").verdict.decision

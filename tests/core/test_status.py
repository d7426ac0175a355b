"""Status: its precedence, what a session waits for, and why what was asked has not started."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from moorage.core.session import BY_AGENT, BY_PERSON, Hold, Session, State
from moorage.core.status import (
    Because,
    Child,
    LastRun,
    Reason,
    Status,
    WaitingFor,
    status_of,
    waiting_for,
    why_not_started,
)
from moorage.core.turn import Launcher
from moorage.testing.builders import NOON, after
from tests.core.heads import a_head

CHILD = Child("child", "run-2")
FAILED = LastRun("run-1", "failed", "agent_failed", NOON)
COMPLETED = LastRun("run-1", "completed", None, NOON)


def head(state: State = State.ACTIVE, **fields: Any) -> Session:
    return a_head(state, agent_name="echo-agent", **fields)


def a_launcher(seen_at: datetime = NOON, **fields: Any) -> Launcher:
    return Launcher(launcher_id="launcher-1", name="one", registered_at=NOON, seen_at=seen_at, **fields)


# Everything that may hold at once; the status is the first word of the list whose fact holds.
FACTS: list[tuple[Status, dict[str, Any]]] = [
    (Status.WAITING, {"pending_approvals": 1, "awaited_approval": "approval-1"}),
    (Status.RUNNING, {"live_turn": "s-1:t1"}),
    (Status.SUSPENDED, {"state": State.SUSPENDED}),
    (Status.WAITING, {"awaited_child": CHILD}),
    (Status.QUEUED, {"waits": True}),
    (Status.RUN_FAILED, {"last_run": FAILED}),
    (Status.CREATED, {"state": State.CREATED}),
]


@pytest.mark.parametrize("which", list(product((False, True), repeat=len(FACTS))))
def test_the_first_fact_that_holds_is_the_status(which: tuple[bool, ...]) -> None:
    facts = [fact for fact, holds in zip(FACTS, which, strict=True) if holds]
    fields = {name: value for _, fact in reversed(facts) for name, value in fact.items()}
    expected = facts[0][0] if facts else Status.IDLE

    assert status_of(replace(head(), **fields)) is expected


@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.ABANDONED])
def test_a_final_state_comes_before_everything_else(state: State) -> None:
    everything = {name: value for _, fact in FACTS for name, value in fact.items() if name != "state"}
    closed = replace(head(), **everything, state=state)

    assert status_of(closed).value == state.value
    assert (waiting_for(closed), why_not_started(closed, [], NOON)) == (None, None)


def test_only_a_failed_run_shows_once_nothing_is_asked() -> None:
    assert head(last_run=FAILED).status == "run_failed"
    assert head(last_run=COMPLETED).status == "idle"


def test_waiting_for_names_the_approval_before_the_child() -> None:
    assert head(pending_approvals=1, awaited_approval="a-1", awaited_child=CHILD).waiting_for == WaitingFor(
        approval_id="a-1"
    )
    assert head(awaited_child=CHILD).waiting_for == WaitingFor(child=CHILD)
    assert head(awaited_child=CHILD, live_turn="s-1:t1").waiting_for is None
    assert head(waits=True).waiting_for is None


HELD = {"hold": Hold("ann", after(60), "token")}
SILENT = {"hold": Hold("launcher:1", NOON, "token")}


@pytest.mark.parametrize(
    ("fields", "because"),
    [
        ({}, None),
        ({"state": State.SUSPENDED, "suspended_by": BY_PERSON}, None),
        (HELD, None),
        ({"live_turn": "s-1:t1"}, None),
        ({"live_turn": "s-1:t1", "awaited_child": CHILD}, None),
        (
            {"waits": True, "pending_approvals": 1, "awaited_approval": "a-1", **HELD},
            Because(reason=Reason.WAITING_FOR_APPROVAL, approval_id="a-1"),
        ),
        ({"waits": True, "live_turn": "s-1:t1", **HELD}, Because(reason=Reason.LAUNCHER_BUSY)),
        ({"live_turn": "s-1:t1", **HELD}, None),
        ({"live_turn": "s-1:t1", **SILENT}, Because(reason=Reason.UNRESPONSIVE, by="launcher:1", since=NOON)),
        (
            {"waits": True, "live_turn": "s-1:t1", **SILENT},
            Because(reason=Reason.UNRESPONSIVE, by="launcher:1", since=NOON),
        ),
        (
            {"waits": True, "state": State.SUSPENDED, "suspended_by": BY_PERSON},
            Because(reason=Reason.SUSPENDED, by=BY_PERSON),
        ),
        ({"waits": True, "state": State.SUSPENDED, "suspended_by": BY_AGENT}, Because(reason=Reason.LAUNCHER_BUSY)),
        ({"waits": True, **HELD}, Because(reason=Reason.HELD, by="ann", until=after(60))),
        ({"waits": True, "hold": Hold("ann", NOON, "token")}, Because(reason=Reason.LAUNCHER_BUSY)),
        ({"awaited_child": CHILD}, Because(reason=Reason.WAITING_FOR_CHILD, child=CHILD)),
        ({"waits": True, "awaited_child": CHILD}, Because(reason=Reason.LAUNCHER_BUSY)),
    ],
)
def test_because_names_the_obstacle(fields: dict[str, Any], because: Because | None) -> None:
    state = fields.get("state", State.ACTIVE)
    rest = {name: value for name, value in fields.items() if name != "state"}

    assert why_not_started(head(state, **rest), [a_launcher()], NOON) == because


@pytest.mark.parametrize(
    ("launcher", "reason"),
    [
        (a_launcher(), Reason.LAUNCHER_BUSY),
        (a_launcher(agents=("echo-agent",)), Reason.LAUNCHER_BUSY),
        (a_launcher(NOON - timedelta(seconds=29)), Reason.LAUNCHER_BUSY),
        (a_launcher(NOON - timedelta(seconds=30)), Reason.NO_LAUNCHER),
        (a_launcher(drain=True), Reason.NO_LAUNCHER),
        (a_launcher(draining=True), Reason.NO_LAUNCHER),
        (a_launcher(agents=("hello-world",)), Reason.NO_LAUNCHER),
        (a_launcher(owners=("somebody-else",)), Reason.NO_LAUNCHER),
        (a_launcher(root="s-1"), Reason.LAUNCHER_BUSY),
        (a_launcher(root="of-another-family"), Reason.NO_LAUNCHER),
        (None, Reason.NO_LAUNCHER),
    ],
)
def test_only_a_live_launcher_of_the_agent_the_owner_and_the_family_counts(
    launcher: Launcher | None, reason: Reason
) -> None:
    because = why_not_started(head(waits=True), [] if launcher is None else [launcher], NOON)

    assert because == Because(reason=reason)


@pytest.mark.parametrize("reason", list(Reason))
def test_wait_ends_only_for_reasons_that_need_a_person(reason: Reason) -> None:
    assert Because(reason=reason).needs_a_person == (reason in {"held", "suspended", "waiting_for_approval"})

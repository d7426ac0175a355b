"""Deadlines take effect with the next call: a silent launcher's turn is shown as such and given up in time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from moorage.core.agent import AgentDefinition, AgentKind
from moorage.core.errors import HeldByAnother, SessionCorrupt
from moorage.core.run import RunQuery
from moorage.core.session import Session
from moorage.core.status import Because, Reason
from moorage.core.turn import LEASE, LOST_AFTER, Launcher
from moorage.service import leases, runs, sessions
from moorage.service.deps import SETTLING, Caller
from moorage.service.family import delete_session
from moorage.service.inline import drive
from moorage.service.launchers import save_launcher
from moorage.testing.builders import OWNER
from moorage.testing.work import AGENT, a_run, finish, launch, start, taken
from tests.service.doors import Timed

CALLER = Caller(owner=OWNER, by="ann", holder="ann")
MOMENT = timedelta(microseconds=1)


@pytest.fixture
def timed(timed_store: Timed) -> Timed:
    return timed_store


@pytest.fixture
def working(timed: Timed) -> Timed:
    """A turn that was started just now, by a launcher that has noted the clock of this boot."""
    note_clock(timed)
    drive(launch(timed.store, "s-1", "run-1"))
    drive(start(timed.store, drive(taken(timed.store))))
    return timed


def note_clock(timed: Timed) -> None:
    now = timed.clock.now()
    launcher = Launcher(
        launcher_id="launcher-1", name="one", registered_at=now, seen_at=now, boot=timed.clock.boot, zero_at=now
    )
    drive(save_launcher(timed.store, launcher))


def know_agent(timed: Timed) -> None:
    """Define an agent that can be asked, though no launcher starts it."""
    timed.deps.find_agent = {AGENT: AgentDefinition(name=AGENT, kind=AgentKind.BUILTIN)}.get


def get(timed: Timed) -> Session:
    return drive(sessions.get_session(timed.deps, CALLER, "s-1"))


def calls(timed: Timed, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count what is asked of the store from now on."""
    asked: list[str] = []

    def counted(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            asked.append(name)
            return method(*args, **more)

        return call

    for name in ("get", "get_many", "apply", "find_turn", "run", "runs", "overdue"):
        monkeypatch.setattr(timed.store, name, counted(name, getattr(timed.store, name)))
    return asked


def test_turn_without_renewal_shows_as_unresponsive_in_session_and_runs(working: Timed) -> None:
    begun = working.clock.now()
    working.clock.forward(LEASE - MOMENT)
    assert get(working).because is None

    working.clock.forward(MOMENT)

    silence = Because(
        reason=Reason.UNRESPONSIVE, by="launcher:launcher-1", since=begun + LEASE, until=begun + LOST_AFTER
    )
    assert (get(working).status, get(working).because) == ("running", silence)
    run = drive(runs.get_run(working.deps, CALLER, "run-1"))
    assert (run.state.value, run.because) == ("running", silence)
    [listed] = drive(runs.list_runs(working.deps, CALLER, RunQuery())).items
    assert listed.because == silence
    assert str(begun.year) in silence.in_words


def test_look_at_a_running_session_asks_the_store_nothing_more(working: Timed, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = calls(working, monkeypatch)
    get(working)
    assert asked == ["get"]


@pytest.mark.parametrize("call", ["get", "run", "runs", "resume", "send", "suspend", "delete"])
def test_turn_that_is_overdue_ends_with_the_next_call(working: Timed, call: str) -> None:
    working.clock.forward(LOST_AFTER)
    deps = working.deps
    if call == "get":
        assert get(working).status == "queued"
    elif call == "run":
        assert drive(runs.get_run(deps, CALLER, "run-1")).state.value == "queued"
    elif call == "runs":
        assert drive(runs.list_runs(deps, CALLER, RunQuery())).items[0].state.value == "queued"
    elif call == "resume":
        packet = drive(sessions.resume_session(deps, CALLER, "s-1"))
        assert packet.hold is not None
        assert packet.hold.holder == "ann"
    elif call == "suspend":
        assert drive(sessions.suspend_session(deps, CALLER, "s-1")).status == "suspended"
    elif call == "send":
        know_agent(working)
        assert drive(runs.ask(deps, CALLER, "s-1", "again")).session.status == "queued"
    else:
        assert drive(delete_session(deps, CALLER, "s-1")).session_ids == ["s-1"]
        return
    assert drive(working.store.find_turn(OWNER, "s-1:t1")).state.value == "lost"


def test_stop_of_an_overdue_turn_settles_its_run(working: Timed) -> None:
    working.clock.forward(LOST_AFTER)
    assert drive(runs.stop_session(working.deps, CALLER, "s-1")) == ["s-1"]
    assert drive(runs.get_run(working.deps, CALLER, "run-1")).state.value == "stopped"
    assert get(working).status == "idle"


def test_stop_of_a_silent_turn_settles_when_its_time_is_over(working: Timed) -> None:
    working.clock.forward(LEASE)
    stopped = drive(runs.stop_run(working.deps, CALLER, "run-1"))
    assert (stopped.state.value, stopped.stop_requested) == ("running", True)
    assert stopped.because is not None
    assert stopped.because.until == working.clock.now() - LEASE + LOST_AFTER

    working.clock.forward(LOST_AFTER - LEASE)
    assert drive(runs.get_run(working.deps, CALLER, "run-1")).state.value == "stopped"


def test_silent_turn_refuses_until_a_future_time(working: Timed) -> None:
    given_up = working.clock.now() + LOST_AFTER
    working.clock.forward(LOST_AFTER - MOMENT)
    with pytest.raises(HeldByAnother) as refused:
        drive(sessions.resume_session(working.deps, CALLER, "s-1"))
    assert refused.value.facts["until"] == f"{given_up:%Y-%m-%dT%H:%M:%SZ}"


def test_step_of_the_clock_makes_no_turn_overdue(working: Timed) -> None:
    working.clock.step(timedelta(hours=2))
    assert get(working).status == "running"
    assert drive(working.store.find_turn(OWNER, "s-1:t1")).lost_at == working.clock.now() + LOST_AFTER


def test_second_step_of_the_clock_right_after_the_first_makes_no_turn_overdue(working: Timed) -> None:
    for step in (timedelta(minutes=20), timedelta(hours=2)):
        working.clock.step(step)
        assert get(working).status == "running"
        assert drive(working.store.find_turn(OWNER, "s-1:t1")).lost_at == working.clock.now() + LOST_AFTER
    working.clock.forward(timedelta(seconds=SETTLING))
    assert get(working).status == "running"


def test_turn_of_a_boot_before_is_given_up_by_looks_alone(timed: Timed) -> None:
    """No launcher of this boot vouches for the clock, so the first look extends the lease; the next one judges."""
    drive(launch(timed.store, "s-1", "run-1"))
    drive(start(timed.store, drive(taken(timed.store))))
    timed.clock.forward(timedelta(days=1))
    for expected in ("running", "queued"):
        timed.deps.watch.zero_at = None  # as in a process that has just begun
        assert get(timed).status == expected
        timed.clock.forward(LOST_AFTER)


def test_turn_that_was_not_started_is_given_out_again_by_a_look(timed: Timed) -> None:
    note_clock(timed)
    drive(launch(timed.store, "s-1", "run-1"))
    drive(taken(timed.store))
    timed.clock.forward(LEASE)
    assert get(timed).status == "queued"
    assert drive(timed.store.find_turn(OWNER, "s-1:t1")).state.value == "queued"


def test_turn_of_a_launcher_in_this_process_is_not_given_up(working: Timed) -> None:
    working.deps.launchers.add("launcher-1")
    working.clock.forward(LOST_AFTER)
    assert get(working).status == "running"


def test_ask_of_a_silent_session_says_so_at_once(working: Timed) -> None:
    know_agent(working)
    working.clock.forward(LEASE)
    asked = drive(runs.ask(working.deps, CALLER, "s-1", "again", agent=AGENT))
    assert asked.run.because is not None
    assert asked.run.because.reason is Reason.UNRESPONSIVE

    working.clock.forward(LOST_AFTER)
    asked = drive(runs.ask(working.deps, CALLER, "s-1", "once more", agent=AGENT))
    assert asked.run.because is not None
    assert asked.run.because.reason is Reason.NO_LAUNCHER


def test_nothing_is_due_where_nothing_is_live(timed: Timed, monkeypatch: pytest.MonkeyPatch) -> None:
    head = drive(launch(timed.store, "s-1", "run-1"))
    asked = calls(timed, monkeypatch)
    assert drive(leases.settle(timed.deps, head)) is None
    assert asked == []


# Runs that no launcher takes in time -------------------------------------------------------------


@pytest.mark.parametrize("call", ["run", "runs", "result", "wait", "get"])
def test_run_that_no_launcher_takes_in_time_expires_with_the_next_call(timed: Timed, call: str) -> None:
    know_agent(timed)
    asked = drive(runs.start_run(timed.deps, CALLER, AGENT, "p", wish=runs.Wish(expires_in=1))).run
    assert asked.state.value == "queued"
    timed.forward(seconds=1)

    moor = timed.connect(owner=OWNER)
    if call == "wait":
        run = drive(runs.wait_for_run(timed.deps, CALLER, asked.run_id, timeout=60))
        assert run.settled_at == timed.clock.now()
    elif call == "result":
        run = moor.result(asked.run_id)
    elif call == "runs":
        [run] = moor.runs().items
    elif call == "get":
        assert moor.get(asked.session_id).status == "idle"
        return
    else:
        run = moor.get_run(asked.run_id)
    assert (run.state.value, run.reason) == ("expired", "expired")


def test_run_expires_for_its_owner_only(timed: Timed) -> None:
    know_agent(timed)
    asked = drive(runs.start_run(timed.deps, CALLER, AGENT, "p", wish=runs.Wish(expires_in=1))).run
    timed.forward(seconds=1)
    timed.connect(owner="other").list()
    assert drive(timed.store.run(OWNER, asked.run_id)).state.value == "queued"


def test_parent_gets_the_callback_of_an_untaken_run(timed: Timed) -> None:
    know_agent(timed)
    drive(launch(timed.store, "p-1", "run-1"))
    drive(finish(timed.store, drive(taken(timed.store))))
    wish = runs.Wish(expires_in=1, parent="p-1", mode="async_callback")
    drive(runs.start_run(timed.deps, CALLER, AGENT, "p", wish=wish))
    timed.forward(seconds=1)

    [item] = timed.connect(owner=OWNER).inbox("p-1").items
    assert (item.kind, item.body["outcome"]) == ("callback", "expired")
    assert drive(taken(timed.store)).session.session_id == "p-1"


def test_damaged_session_keeps_no_other_run_from_expiring(timed: Timed, monkeypatch: pytest.MonkeyPatch) -> None:
    for session_id in ("bad", "good"):
        drive(launch(timed.store, session_id, a_run(session_id, expires_at=timed.clock.now())))
    apply = timed.store.apply

    async def damaged(owner: str, ref: str, *args: Any, **options: Any) -> Any:
        if ref == "bad":
            raise SessionCorrupt(ref, "damaged")
        return await apply(owner, ref, *args, **options)

    monkeypatch.setattr(timed.store, "apply", damaged)
    timed.connect(owner=OWNER).list()
    assert drive(timed.store.run(OWNER, "good")).state.value == "expired"

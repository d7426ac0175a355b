"""Stopping trees: parents first, again until nothing is left, and no new work for stopped runs."""

from __future__ import annotations

from typing import Any, cast

import pytest

from moorage import sync
from moorage.core.errors import RunStopped
from moorage.core.session import Asker, Session
from moorage.ports import Claimed, Store
from moorage.service.deps import Caller, Deps, Settings
from moorage.service.inline import drive
from moorage.service.runs import stop_run, stop_session
from moorage.testing.builders import OWNER, FakeClock
from moorage.testing.model_store import ModelStore
from moorage.testing.work import a_child_run, finish, inbox_of, launch, start, states_of, take, taken
from tests.service.doors import Place, Timed


class Watched:
    """A store that keeps the order of changes, and lets children be born right after a look at the tree."""

    def __init__(self, store: Store) -> None:
        self._store, self.changed = store, list[str]()
        self.late: list[tuple[str, str]] = []  # children to be born then, and their parents

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def tree(self, owner: str, ref: str, limit: int) -> list[Session]:
        found = await self._store.tree(owner, ref, limit)
        while self.late:
            child, parent = self.late.pop()
            await launch(self._store, child, a_child_run(f"run-{child}", parent, f"run-{parent}"), parent=parent)
            await start(self._store, await taken(self._store))
        return found

    async def apply(self, owner: str, ref: str, *args: Any, **options: Any) -> Any:
        self.changed.append(ref)
        return await self._store.apply(owner, ref, *args, **options)


@pytest.fixture
def store() -> Store:
    return ModelStore()


def deps_on(store: object) -> Deps:
    return Deps(cast(Store, store), FakeClock(), bytes, Settings())


async def a_family(store: Store) -> None:
    """p → c → g, all at work."""
    await launch(store, "p", "run-p")
    for child, parent in (("c", "p"), ("g", "c")):
        await launch(store, child, a_child_run(f"run-{child}", parent, f"run-{parent}"), parent=parent)
    while (claimed := await take(store)) is not None:
        await start(store, claimed)


def test_parents_are_stopped_before_their_children(store: Store) -> None:
    watched = Watched(store)
    drive(a_family(store))
    stopped = drive(stop_session(deps_on(watched), Caller(owner=OWNER), "p"))
    assert watched.changed[:3] == ["p", "c", "g"]
    assert stopped == ["g", "c", "p"]


def test_child_that_is_born_while_its_tree_is_stopped_is_stopped(store: Store) -> None:
    watched = Watched(store)
    drive(a_family(store))
    watched.late = [("late", "g")]
    stopped = drive(stop_session(deps_on(watched), Caller(owner=OWNER), "p"))
    assert set(stopped) == {"p", "c", "g", "late"}
    assert drive(store.run(OWNER, "run-late")).stop_requested


def test_stopping_a_run_stops_its_children(store: Store) -> None:
    drive(a_family(store))
    drive(launch(store, "other", a_child_run("run-other", "p")))
    assert drive(stop_run(deps_on(store), Caller(owner=OWNER), "run-p")).stop_requested
    assert [drive(store.run(OWNER, f"run-{name}")).stop_requested for name in ("c", "g", "other")] == [
        True,
        True,
        False,
    ]


# Children that were asked while no turn of their parent ran ---------------------------------------


def idle_parent(store: Store, *children: str) -> dict[str, Claimed]:
    """Create p, whose run is over, and its children at work; return their turns."""
    drive(launch(store, "p", "run-p"))
    drive(finish(store, drive(taken(store))))
    for child in children:
        drive(launch(store, child, a_child_run(f"run-{child}", "p"), parent="p"))
    claimed = [drive(taken(store)) for _ in children]
    for each in claimed:
        drive(start(store, each))
    return {each.session.session_id: each for each in claimed}


def test_stopped_child_does_not_wake_its_stopped_parent(timed_store: Timed) -> None:
    store, deps = timed_store.store, timed_store.deps
    drive(launch(store, "p", "run-p"))
    drive(finish(store, drive(taken(store))))
    drive(launch(store, "queued", a_child_run("run-queued", "p"), parent="p"))
    drive(stop_session(deps, Caller(owner=OWNER), "p"))
    assert drive(inbox_of(store, "p"))["callback:run-queued"] == "consumed"
    assert drive(take(store)) is None


@pytest.mark.parametrize("outcome", ["completed", "failed", "stopped"])
def test_child_that_ends_after_the_stop_does_not_wake_its_parent(timed_store: Timed, outcome: str) -> None:
    store, deps = timed_store.store, timed_store.deps
    child = idle_parent(store, "c")["c"]
    drive(stop_session(deps, Caller(owner=OWNER), "p"))
    drive(finish(store, child, outcome))
    assert drive(inbox_of(store, "p"))["callback:run-c"] == "consumed"
    assert drive(take(store)) is None


@pytest.mark.parametrize("when", ["before", "after"])
def test_child_that_ends_while_its_parent_is_stopped_does_not_wake_it(store: Store, when: str) -> None:
    child = idle_parent(store, "c")["c"]
    watched = Watched(store)
    apply = watched.apply

    async def ending(owner: str, ref: str, *args: Any, **options: Any) -> Any:
        """Let the child end right before or after the commit that stops its parent."""
        if ref == "p" and when == "before":
            await finish(store, child)
        change = await apply(owner, ref, *args, **options)
        if ref == "p" and when == "after":
            await finish(store, child)
        return change

    vars(watched)["apply"] = ending
    drive(stop_session(deps_on(watched), Caller(owner=OWNER), "p", tree=False))
    assert drive(take(store)) is None
    assert drive(states_of(store, "p")) == ["completed"]


def test_stop_mutes_no_child_of_a_later_request(timed_store: Timed) -> None:
    store, deps = timed_store.store, timed_store.deps
    idle_parent(store)
    drive(stop_session(deps, Caller(owner=OWNER), "p"))
    drive(launch(store, "c", a_child_run("run-c", "p"), parent="p"))
    drive(finish(store, drive(taken(store))))
    assert drive(taken(store)).session.session_id == "p"


def test_stop_of_a_child_alone_wakes_its_parent(timed_store: Timed) -> None:
    store, deps = timed_store.store, timed_store.deps
    child = idle_parent(store, "c")["c"]
    drive(stop_session(deps, Caller(owner=OWNER), "c"))
    drive(finish(store, child, "stopped"))
    assert drive(taken(store)).session.session_id == "p"


# Reports ------------------------------------------------------------------------------------------


def test_stop_names_only_sessions_in_which_something_ends(timed_store: Timed) -> None:
    store, deps = timed_store.store, timed_store.deps
    child = idle_parent(store, "c")["c"]
    caller = Caller(owner=OWNER)
    assert drive(stop_session(deps, caller, "p")) == ["c"]
    assert drive(stop_session(deps, caller, "p")) == ["c"], "its turn has not ended yet"
    drive(finish(store, child, "stopped"))
    assert drive(stop_session(deps, caller, "p")) == []


def test_repeated_stop_names_no_session(place: Place) -> None:
    moor = place.connect()
    asked = moor.run("echo-agent", "hello", mode="async_poll").session.session_id
    assert (moor.stop(asked), moor.stop(asked)) == ([asked], [])


def stopped_run(moor: sync.Moorage) -> tuple[str, str]:
    """Return a session and its run, which was stopped before a launcher took it."""
    asked = moor.run("echo-agent", "hello", mode="async_poll")
    moor.stop(asked.session.session_id)
    return asked.session.session_id, asked.run.run_id


def test_agent_of_a_stopped_run_gets_nothing_new(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    moor = place.connect()
    moor.create("echo-agent", session_id="free")
    session_id, run_id = stopped_run(moor)
    monkeypatch.setenv("AGENT_SESSION_ID", session_id)
    monkeypatch.setenv("AGENT_RUN_ID", run_id)
    agent = place.connect()
    for ask in (
        lambda: agent.create("echo-agent"),
        lambda: agent.run("echo-agent", "hello", mode="async_poll"),
        lambda: agent.run("echo-agent", "hello", mode="async_callback"),
        lambda: agent.run(None, "hello", session="free", mode="async_poll"),
        lambda: agent.send("free", "hello"),
    ):
        with pytest.raises(RunStopped) as refusal:
            ask()
        assert refusal.value.run_id == run_id
    assert len(moor.list().items) == 2


def test_person_may_ask_anew(place: Place) -> None:
    moor = place.connect()
    session_id, run_id = stopped_run(moor)
    again = moor.run(None, "hello", session=session_id, mode="async_poll")
    assert (again.status, moor.get_run(run_id).state.value) == ("queued", "stopped")


def test_caller_is_unknown_without_run_and_parent() -> None:
    from moorage.service.sessions import asker_of

    assert asker_of(Caller(), None) is None
    assert asker_of(Caller(run_id="r"), None) == Asker(run_id="r")
    assert asker_of(Caller(), "p") == Asker()

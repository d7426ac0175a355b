"""Changing sessions: decisions, versions, holds, and that a refusal changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from moorage.core.entry import Kind, Message
from moorage.core.errors import HeldByAnother, SessionClosed, SessionGone, SessionNotFound, VersionConflict
from moorage.core.query import LogQuery
from moorage.core.session import HOLD_FOR, Change, Phase, State, View
from moorage.ports import Store
from moorage.testing.builders import *

Writer = Callable[[Store, int], Awaitable[object]]

WRITERS: dict[str, Writer] = {  # every method that takes a version
    "apply": lambda store, version: store.apply(OWNER, "s-1", updated(error="no"), expected=version),
    "append": lambda store, version: store.append(OWNER, "s-1", said("one"), a_stamp(), expected=version),
    "append with a key": lambda store, version: store.append(
        OWNER, "s-1", [Message("user", "one", "k")], a_stamp(), expected=version
    ),
    "fork": lambda store, version: store.fork(OWNER, "s-1", None, a_fork("s-2"), expected=version),
    "context": lambda store, version: write_context(
        store, OWNER, "s-1", remembering("key", 1), "key", expected=version
    ),
    "delete": lambda store, version: store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp(), expected=version),
}


class ChangeRules:
    """Rules of `apply`."""

    async def test_change_is_kept_with_its_entries(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))

        change = await store.apply(OWNER, "s-1", updated(after(1), phase=Phase.PLANNING, metadata={"a": 1}, error="no"))

        assert change.session == await store.get(OWNER, "s-1")
        assert list(change.entries) == await store.log(OWNER, "s-1", LogQuery(after=1))
        assert [entry.kind for entry in change.entries] == [Kind.PHASE, Kind.METADATA, Kind.ERROR]
        assert (change.session.version, change.session.last_entry, change.session.error_count) == (2, 4, 1)

    async def test_every_field_of_a_closed_session_is_kept(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        stamp = a_stamp(after(1.5))
        await store.apply(
            OWNER, "s-1", lambda view: view.session.suspend(stamp, checkpoint={"step": 3}, reason="lunch")
        )
        await store.apply(OWNER, "s-1", lambda view: view.session.resume("ann", "secret", a_stamp(after(2))))
        change = await store.apply(OWNER, "s-1", finalized("failed", after(3.25), summary="It broke"))

        session = await store.get(OWNER, "s-1")

        assert session == change.session
        assert (session.state, session.phase, session.hold) == (State.FAILED, Phase.FAILED, None)
        assert (session.finalized_at, session.duration_seconds, session.summary) == (after(3.25), 3.25, "It broke")
        assert session.last_checkpoint == 2

    async def test_change_is_made_by_name_too(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))
        await store.apply(OWNER, "planner", updated(error="oops"))

        assert (await store.get(OWNER, "s-1")).last_error == "oops"

    async def test_unknown_session_is_not_decided_upon(self, store: Store) -> None:
        with pytest.raises(SessionNotFound):
            await store.apply(OWNER, "nobody", refusing)

    async def test_decision_sees_the_session_as_it_is(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        seen: list[View] = []

        def look(view: View) -> Change:
            seen.append(view)
            return Change(session=view.session)

        await store.apply(OWNER, "s-1", look)

        assert seen[0] == View(await store.get(OWNER, "s-1"))

    # Versions -----------------------------------------------------------------------------------

    async def test_stale_writer_changes_nothing(self, store: Store) -> None:
        stale = await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", updated(phase=Phase.PLANNING))

        async with nothing_changes(store):
            with pytest.raises(VersionConflict) as conflict:
                await store.apply(OWNER, "s-1", finalized(), expected=stale.version)
        assert (conflict.value.expected, conflict.value.actual) == (1, 2)

    async def test_version_is_compared_before_the_decision_is_asked(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))

        with pytest.raises(VersionConflict):
            await store.apply(OWNER, "s-1", refusing, expected=7)

    async def test_writer_with_the_right_version_succeeds(self, store: Store) -> None:
        session = await store.create(OWNER, a_session("s-1"))
        change = await store.apply(OWNER, "s-1", updated(error="one"), expected=session.version)
        await store.apply(OWNER, "s-1", updated(error="two"), expected=change.session.version)

        assert (await store.get(OWNER, "s-1")).error_count == 2

    @pytest.mark.parametrize("name", WRITERS)
    async def test_whatever_names_another_version_changes_nothing(self, store: Store, name: str) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", updated(phase=Phase.PLANNING))

        async with nothing_changes(store):
            with pytest.raises(VersionConflict) as conflict:
                await WRITERS[name](store, 1)
        assert (conflict.value.session_id, conflict.value.expected, conflict.value.actual) == ("s-1", 1, 2)
        await WRITERS[name](store, 2)

    @pytest.mark.parametrize("name", WRITERS)
    async def test_change_at_a_version_is_never_made_after_another(self, store: Store, name: str) -> None:
        await store.create(OWNER, a_session("s-1"))
        change = store.apply(OWNER, "s-1", updated(metadata={"late": True}))
        changed, made = await asyncio.gather(change, WRITERS[name](store, 1), return_exceptions=True)

        if name == "delete":
            assert isinstance(changed, SessionGone) or isinstance(made, VersionConflict)
        elif not isinstance(made, VersionConflict):
            kinds = [entry.kind for entry in await store.log(OWNER, "s-1")]
            assert name in ("context", "fork") or kinds[-1] == Kind.METADATA
            assert name != "fork" or (await store.get(OWNER, "s-2")).metadata == {}

    async def test_append_at_a_version_moves_none(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        for _ in range(2):
            await store.append(OWNER, "s-1", said("one"), a_stamp(), expected=1)

        assert (await store.get(OWNER, "s-1")).version == 1

    async def test_of_writers_with_one_version_one_wins(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        tries = [store.apply(OWNER, "s-1", updated(error=str(n)), expected=1) for n in range(8)]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes].count(VersionConflict) == 7
        assert (await store.get(OWNER, "s-1")).version == 2

    async def test_writers_without_a_version_all_succeed(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await asyncio.gather(*(store.apply(OWNER, "s-1", updated(metadata={f"k{n}": n})) for n in range(20)))

        session = await store.get(OWNER, "s-1")

        assert session.metadata == {f"k{n}": n for n in range(20)}
        assert (session.version, session.last_entry) == (21, 21)
        assert [entry.number for entry in await whole_log(store, "s-1")] == list(range(1, 22))

    # Refusals and no-ops ------------------------------------------------------------------------

    async def test_decision_that_raises_changes_nothing(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))

        async with nothing_changes(store):
            with pytest.raises(DecisionRefused):
                await store.apply(OWNER, "s-1", refusing)

    async def test_refused_change_changes_nothing(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", finalized())

        async with nothing_changes(store):
            with pytest.raises(SessionClosed):
                await store.apply(OWNER, "s-1", updated(error="too late"))

    async def test_change_to_the_same_is_not_written(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))

        async with nothing_changes(store):
            change = await store.apply(OWNER, "s-1", lambda view: Change(session=view.session))
        assert change.session == await store.get(OWNER, "s-1")

    async def test_finalizing_twice_changes_nothing(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", finalized(summary="done"))

        async with nothing_changes(store):
            await store.apply(OWNER, "s-1", finalized(at=after(60)))

    async def test_redacted_paths_are_reported_once_and_not_stored(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))

        def decide(view: View) -> Change:
            change = updated(metadata={"password": "[redacted]"})(view)
            return replace(change, session=replace(change.session, redacted=("password",)))

        change = await store.apply(OWNER, "s-1", decide)

        assert change.session.redacted == ("password",)
        assert (await store.get(OWNER, "s-1")).redacted == ()

    # Holds --------------------------------------------------------------------------------------

    async def test_hold_is_kept_with_its_token(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", lambda view: view.session.resume("ann", "secret", a_stamp()))

        hold = (await store.get(OWNER, "s-1")).hold

        assert hold is not None
        assert (hold.holder, hold.token, hold.until) == ("ann", "secret", NOON + HOLD_FOR)

    async def test_renewed_hold_is_kept_with_its_new_token_and_without_an_entry(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", lambda view: view.session.resume("ann", "secret", a_stamp()))
        before, end = await store.get(OWNER, "s-1"), await store.feed_end(OWNER)

        await store.apply(OWNER, "s-1", lambda view: view.session.resume("ann", "other", a_stamp(after(60))))
        session = await store.get(OWNER, "s-1")

        assert session.hold is not None
        assert (session.hold.token, session.hold.until) == ("other", NOON + HOLD_FOR + timedelta(minutes=1))
        assert (session.version, session.last_entry) == (before.version, before.last_entry)
        assert await store.feed_end(OWNER) == end

    async def test_released_hold_is_gone(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", lambda view: view.session.resume("ann", "secret", a_stamp()))
        await store.apply(OWNER, "s-1", lambda view: view.session.release(a_stamp(), token="secret"))

        assert (await store.get(OWNER, "s-1")).hold is None

    async def test_one_of_many_wins_a_race_to_resume(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))

        async def resume(holder: str) -> Change:
            return await store.apply(OWNER, "s-1", lambda view: view.session.resume(holder, holder, a_stamp()))

        outcomes = await asyncio.gather(*(resume(f"racer-{n}") for n in range(8)), return_exceptions=True)
        session = await store.get(OWNER, "s-1")

        assert [type(outcome) for outcome in outcomes].count(HeldByAnother) == 7
        assert session.hold is not None
        assert all(error.holder == session.hold.holder for error in outcomes if isinstance(error, HeldByAnother))

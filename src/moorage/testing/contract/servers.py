"""Servers: their owners, their heartbeats, and leases that outlive their absence."""

from __future__ import annotations

from datetime import timedelta

from moorage.core.fact import Backlog
from moorage.ports import Store
from moorage.service.leases import KEPT_FOR, SILENT_AFTER, count_live, extend_leases, heartbeats, note_beat
from moorage.testing.builders import *
from moorage.testing.work import *

HOUR = timedelta(hours=1)


class ServerRules:
    """Rules of `owners` and `totals`, of heartbeats, and of extended leases."""

    async def test_servers_live_for_a_while_after_their_last_heartbeat(self, store: Store) -> None:
        assert await heartbeats(store) == []
        for server, at in (("one", NOON), ("other", after(2)), ("one", after(1))):
            await note_beat(store, server, at)

        beats, silent = await heartbeats(store), SILENT_AFTER.total_seconds()
        assert sorted(beats) == [after(1), after(2)]
        assert [count_live(beats, after(silent + n)) for n in range(1, 4)] == [2, 1, 0]

    async def test_heartbeat_from_before_the_clock_was_set_back_does_not_count(self, store: Store) -> None:
        await note_beat(store, "dead", NOON + HOUR)
        await note_beat(store, "lives", NOON)
        assert count_live(await heartbeats(store), NOON) == 1

    async def test_backlog_of_an_empty_store_is_nothing(self, store: Store) -> None:
        assert (await store.totals()).backlog == Backlog()

    async def test_backlog_counts_waiting_work_of_all_owners(self, store: Store) -> None:
        await launch(store, "p-1", "run-p")
        parent = await taken(store)
        await start(store, parent)
        for number, name in enumerate(("c-1", "c-2")):
            child = a_child_run(f"run-{name}", "p-1", "run-p")
            await launch(store, name, child, parent="p-1", at=after(number + 1))
        assert (await store.totals()).backlog == Backlog(queued=2, running=1, oldest_queued_at=after(1))

        await finish(store, await taken(store, at=after(3)), at=after(3))  # c-1 calls back to a running parent
        assert (await store.totals()).backlog == Backlog(queued=1, running=1, oldest_queued_at=after(2), callbacks=1)

        await finish(store, await taken(store, at=after(3)), at=after(3))
        assert (await store.totals()).backlog == Backlog(running=1, callbacks=2)

        for attempt in range(3):
            await finish(store, parent if attempt == 0 else await taken(store), "failed")
        assert (await store.totals()).backlog == Backlog(dead_letters=3)  # its message, and both callbacks

    async def test_owners_are_those_with_sessions(self, store: Store) -> None:
        assert await store.owners() == []
        for owner in (OWNER, OTHER):
            await store.create(owner, a_session(f"s-{owner}", owner=owner))
        await store.feed("nobody", 0, 10)

        assert sorted(await store.owners()) == sorted([OWNER, OTHER])
        await store.delete_tree(OTHER, f"s-{OTHER}", may_delete(f"s-{OTHER}", reason="gone"), a_stamp())
        assert await store.owners() == [OWNER]

    async def test_purge_deletes_heartbeats_older_than_an_hour(self, store: Store) -> None:
        await note_beat(store, "one", NOON)
        await note_beat(store, "other", after(2))

        assert await store.purge(after(-1) + KEPT_FOR, 9) == 0
        assert await store.purge(after(1) + KEPT_FOR, 9) == 1
        assert await heartbeats(store) == [after(2)]
        assert await store.purge(after(2) + KEPT_FOR, 9) == 1
        assert await heartbeats(store) == []

    # Leases

    async def test_extended_lease_keeps_a_started_turn_from_being_lost(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await start(store, claimed)
        at = NOON + TOO_LATE
        until = at + claimed.turn.lost_after

        assert await extend_leases(store, lambda: at) == 1

        turn, session = await store.find_turn(OWNER, "s-1:t1"), await store.get(OWNER, "s-1")
        assert (turn.lease_until, turn.lost_at) == (until, until)
        assert session.hold is not None
        assert session.hold.until == until
        assert await store.overdue(until - timedelta(microseconds=1), 9) == []
        assert await store.overdue(until, 9) == [(OWNER, "s-1")]
        await expire(store, until - timedelta(seconds=1))
        assert await states_of(store, "s-1") == ["running"]
        await expire(store, until)
        assert (await states_of(store, "s-1"))[0] == "lost"

    async def test_extended_lease_keeps_an_unstarted_turn_from_being_given_out_again(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)

        assert await extend_leases(store, lambda: NOON + LATE) == 1
        assert await store.overdue(NOON + LATE, 9) == []
        assert await store.overdue(NOON + LATE + claimed.turn.lost_after, 9) == [(OWNER, "s-1")]

    async def test_extending_changes_nothing_else(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await launch(store, "s-2", "run-2")
        claimed = await taken(store)
        before = await store.get(OWNER, "s-1")

        await extend_leases(store, lambda: NOON)

        session = await store.get(OWNER, "s-1")
        assert (session.version, session.last_entry, session.updated_at, session.epoch) == (
            before.version,
            before.last_entry,
            before.updated_at,
            before.epoch,
        )
        assert await states_of(store, "s-2") == ["queued"]
        await renew(store, claimed, after(1))
        await start(store, claimed, after(1))
        await finish(store, claimed, at=after(2))

    async def test_turn_is_extended_by_the_silence_that_its_own_launcher_may_keep(self, store: Store) -> None:
        for number, lost_after in enumerate((timedelta(seconds=40), HOUR), 1):
            await launch(store, f"s-{number}", f"run-{number}")
            await store.claim((OWNER,), (AGENT,), a_claim(lost_after=lost_after), a_stamp())

        assert await extend_leases(store, lambda: NOON) == 2

        turns = [await store.find_turn(OWNER, f"s-{number}:t1") for number in (1, 2)]
        assert [turn.lost_at for turn in turns] == [NOON + timedelta(seconds=40), NOON + HOUR]

    async def test_lease_written_before_the_clock_was_set_back_counts_from_now(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await start(store, claimed)
        at, lost_after = NOON - 2 * HOUR, claimed.turn.lost_after

        assert await extend_leases(store, lambda: at) == 1

        turn = await store.find_turn(OWNER, "s-1:t1")
        assert (turn.lease_until, turn.lost_at) == (at + lost_after, at + lost_after)
        await expire(store, at + lost_after - timedelta(seconds=1))
        assert await states_of(store, "s-1") == ["running"]
        assert await store.overdue(at + lost_after, 9) == [(OWNER, "s-1")]
        await expire(store, at + lost_after)
        assert (await states_of(store, "s-1"))[0] == "lost"

    async def test_unstarted_turn_from_before_the_clock_was_set_back_is_given_out_again(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        at = NOON - 2 * HOUR

        assert await extend_leases(store, lambda: at) == 1
        assert await store.overdue(at + claimed.turn.lost_after - timedelta(seconds=1), 9) == []
        await expire(store, at + claimed.turn.lost_after)
        assert await states_of(store, "s-1") == ["queued"]

    async def test_leases_of_all_owners_are_extended_once(self, store: Store) -> None:
        for owner in (OWNER, OTHER):
            await store.create(owner, a_session(f"s-{owner}", owner=owner))
        await launch(store, "s-1", "run-1")
        await taken(store, owners=(OWNER, OTHER), agents=(AGENT,))

        assert await extend_leases(store, lambda: NOON) == 1
        assert await extend_leases(store, lambda: NOON) == 0
        assert await extend_leases(store, lambda: after(1)) == 1

    async def test_hold_of_a_person_is_not_extended(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", lambda view: view.session.resume("ann", "secret", a_stamp()))

        async with nothing_changes(store):
            assert await extend_leases(store, lambda: NOON) == 0

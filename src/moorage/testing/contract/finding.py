"""Finding sessions: every filter, both orders, and pages that neither repeat nor skip."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import Any

import pytest
from msgspec.structs import replace

from moorage.core.errors import InvalidCursor
from moorage.core.family import FamilyLimits, born
from moorage.core.query import SORTS, SessionQuery
from moorage.core.session import Change, Phase
from moorage.ports import Store
from moorage.testing.builders import *

SOME_FILTERS: dict[str, Any] = {
    "agent": "planner",
    "state": "active",
    "status": "idle",
    "phase": "planning",
    "interface": "test",
    "parent": "mother",
    "root": "mother",
    "task": "task-7",
    "name_prefix": "plan",
    "project_dir": "/srv/a",
    "label": "prod",
    "metadata_key": "count",
    "active_only": True,
    "created_after": after(1),
    "created_before": after(4),
    "updated_after": after(3),
    "updated_before": after(62),
}


async def found(store: Store, **filters: Any) -> list[str]:
    """Return the ids of all matching sessions, oldest first by default."""
    return [session.session_id for session in await all_sessions(store, **filters)]


class FindRules:
    """Rules of `find`."""

    async def test_nothing_is_found_where_nothing_is(self, store: Store) -> None:
        [page] = await store.find(OWNER, SessionQuery())

        assert (page.items, page.next) == ([], None)

    async def test_everything_is_found_newest_first(self, store: Store) -> None:
        for session_id in ("b", "a", "c"):
            await store.create(OWNER, a_session(session_id))

        [page] = await store.find(OWNER, SessionQuery())

        assert [session.session_id for session in page.items] == ["c", "a", "b"]
        assert page.items[0] == await store.get(OWNER, "c")
        assert page.next is None

    async def test_order_is_that_of_creation_not_of_times_or_changes(self, store: Store) -> None:
        for session_id, at in (("first", after(9)), ("second", after(1)), ("third", after(5))):
            await store.create(OWNER, a_session(session_id, at=at))
        await store.append(OWNER, "first", said("hello"), a_stamp(after(60)))

        assert await found(store) == ["first", "second", "third"]
        assert await found(store, sort="-created") == ["third", "second", "first"]

    async def test_order_of_updates_is_that_of_the_newest_entries(self, store: Store) -> None:
        for session_id in ("first", "second", "third"):
            await store.create(OWNER, a_session(session_id, at=after(5)))
        await store.append(OWNER, "first", [*said("hello"), *said("again")], a_stamp(after(1)))
        await store.apply(OWNER, "second", updated(after(0), phase=Phase.PLANNING))
        await store.fork(OWNER, "third", None, a_fork("fork"))
        await store.create(OWNER, a_session("gone"))
        await store.delete_tree(OWNER, "gone", may_delete("gone"), a_stamp())
        await store.create(OTHER, a_session("theirs"))

        for limit in (1, 2, 9):
            assert await found(store, sort="updated", limit=limit) == ["third", "first", "second", "fork"]
            assert await found(store, sort="-updated", limit=limit) == ["fork", "second", "first", "third"]
            assert await found(store, sort="-updated", limit=limit, state="active") == ["second", "first"]
        assert await found(store, sort="updated", task="no such task") == []

    async def test_session_updated_between_pages_is_listed_once(self, store: Store) -> None:
        for n in range(4):
            await store.create(OWNER, a_session(f"s-{n}"))
        [page] = await store.find(OWNER, SessionQuery(limit=2, sort="-updated"))
        await store.append(OWNER, "s-3", said("hello"), a_stamp(after(60)))
        await store.append(OWNER, "s-0", said("hello"), a_stamp(after(61)))

        [rest] = await store.find(OWNER, SessionQuery(limit=9, sort="-updated", cursor=page.next))
        assert [session.session_id for session in rest.items] == ["s-1"]
        assert await found(store, sort="-updated") == ["s-0", "s-3", "s-2", "s-1"]

    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ({"agent": "planner"}, ["mother", "son"]),
            ({"agent": "nobody"}, []),
            ({"state": "active"}, ["son"]),
            ({"state": "completed"}, ["alone"]),
            ({"state": "created"}, ["mother"]),
            ({"status": "idle"}, ["son"]),
            ({"status": "waiting"}, ["daughter"]),
            ({"status": "completed"}, ["alone"]),
            ({"status": "created"}, ["mother"]),
            ({"status": "suspended"}, ["sleeper"]),
            ({"state": "suspended"}, ["daughter", "sleeper"]),
            ({"phase": "planning"}, ["son"]),
            ({"phase": "completed"}, ["alone"]),
            ({"parent": "mother"}, ["son", "daughter"]),
            ({"parent": "son"}, []),
            ({"root": "mother"}, ["mother", "son", "daughter"]),
            ({"root": "son"}, []),
            ({"task": "task-7"}, ["mother", "son", "daughter"]),
            ({"name_prefix": "plan-"}, ["son", "daughter"]),
            ({"name_prefix": "plan_"}, ["alone"]),
            ({"name_prefix": "PLAN-"}, []),
            ({"name_prefix": ""}, ["mother", "son", "daughter", "alone", "sleeper"]),
            ({"project_dir": "/srv/a"}, ["alone"]),
            ({"metadata_key": "colour"}, ["mother", "daughter", "alone"]),
            ({"metadata_key": "colour", "metadata_value": "red"}, ["mother"]),
            ({"metadata_key": "colour", "metadata_value": ["red"]}, ["daughter"]),
            ({"metadata_key": "a.b c"}, ["son"]),
            ({"metadata_key": "a"}, []),
            ({"metadata_key": "count", "metadata_value": 3}, ["son"]),
            ({"metadata_key": "count", "metadata_value": "3"}, []),
            ({"active_only": True}, ["mother", "son", "daughter", "sleeper"]),
            ({"created_after": after(2)}, ["daughter", "alone", "sleeper"]),
            ({"created_before": after(2)}, ["mother"]),
            ({"created_after": after(1), "created_before": after(4)}, ["son", "daughter"]),
            ({"updated_after": after(60)}, ["son"]),
            ({"updated_before": after(3)}, ["mother"]),
            ({"agent": "planner", "state": "active", "task": "task-7", "active_only": True}, ["son"]),
            ({"agent": "planner", "state": "completed"}, []),
            ({"root": "mother", "state": "suspended", "sort": "-created"}, ["daughter"]),
            ({"task": "task-7", "sort": "-created"}, ["daughter", "son", "mother"]),
        ],
        ids=str,
    )
    async def test_filter_finds_matching_sessions(
        self, store: Store, filters: dict[str, Any], expected: list[str]
    ) -> None:
        await _population(store)

        assert await found(store, **filters) == expected

    async def test_sessions_are_found_by_the_door_they_were_created_by(self, store: Store) -> None:
        for session_id, interface in (("typed", "cli"), ("asked", "graphql"), ("also-typed", "cli"), ("none", None)):
            new, stamp = new_session(session_id), a_stamp(interface=interface)
            await store.create(OWNER, partial(born, new, stamp=stamp, limits=FamilyLimits()))

        assert await found(store, interface="cli") == ["typed", "also-typed"]
        assert await found(store, interface="graphql", agent="echo-agent") == ["asked"]
        assert await found(store, interface="grpc") == []

    async def test_sessions_are_found_by_each_of_their_labels(self, store: Store) -> None:
        for session_id, labels in (("first", ["prod", "urgent"]), ("second", ["prod"]), ("none", [])):
            await store.create(OWNER, a_session(session_id, labels=labels))
        await store.create(OTHER, a_session("theirs", owner=OTHER, labels=["prod"]))

        assert await found(store, label="prod") == ["first", "second"]
        assert await found(store, label="prod", sort="-updated", agent="echo-agent") == ["second", "first"]
        assert await found(store, label="urgent", state="created") == ["first"]
        assert [await found(store, label=each) for each in ("pro", "PROD", "%", "[]", '"prod"', "")] == [[]] * 6

    async def test_list_by_label_follows_changes_forks_and_deletions(self, store: Store) -> None:
        for session_id in ("changed", "deleted", "forked"):
            await store.create(OWNER, a_session(session_id, labels=["kept", "old"]))
        await store.apply(OWNER, "changed", lambda view: Change(session=replace(view.session, labels=["kept", "new"])))
        await store.fork(OWNER, "forked", None, a_fork("fork"))
        await store.delete_tree(OWNER, "deleted", may_delete("deleted"), a_stamp())

        assert await found(store, label="old") == ["forked", "fork"]
        assert await found(store, label="kept") == ["changed", "forked", "fork"]
        assert await found(store, label="new") == ["changed"]

    async def test_filters_agree_with_the_querys_own_rule(self, store: Store) -> None:
        await _population(store)
        everything = await all_sessions(store)
        for field in ("agent_name", "state", "status", "phase", "parent_session_id", "root_session_id", "task_id"):
            name = field.removesuffix("_name").removesuffix("_session_id").removesuffix("_id")
            for value in {getattr(session, field) for session in everything} - {None}:
                query = SessionQuery(**{name: value})
                assert await found(store, **{name: value}) == [
                    session.session_id for session in everything if query.admits(session)
                ]

    @pytest.mark.parametrize("sort", ["created", "-created", "-updated"])
    @pytest.mark.parametrize("state", ["active", "completed"])
    async def test_filters_work_together(self, store: Store, sort: str, state: str) -> None:
        await _population(store)
        everything = await all_sessions(store, sort=sort)
        filters = {**SOME_FILTERS, "state": state}.items()
        for chosen in (*combinations(filters, 2), *combinations(filters, 3)):
            query = SessionQuery(sort=sort, **dict(chosen))
            expected = [session.session_id for session in everything if query.admits(session)]
            [page] = await store.find(OWNER, query)
            assert [session.session_id for session in page] == expected, chosen

    @pytest.mark.parametrize("prefix", ["100%", "a%", "a*", "a[", "a\\", "a'"])
    async def test_name_prefix_has_no_wildcards(self, store: Store, prefix: str) -> None:
        await store.create(OWNER, a_session("s-1", "abc"))

        assert await found(store, name_prefix=prefix) == []

    @pytest.mark.parametrize("key", ["a.b", "a[0]", "$", 'a"b', "a'b", "ключ", "a b", "*", "0"])
    async def test_metadata_keys_are_taken_as_they_are(self, store: Store, key: str) -> None:
        await store.create(OWNER, a_session("s-1", metadata={key: "x"}))
        await store.create(OWNER, a_session("s-2", metadata={"a": {"b": "x", "0": "x"}, "other": key}))

        assert await found(store, metadata_key=key) == ["s-1"]
        assert await found(store, metadata_key=key, metadata_value="x") == ["s-1"]
        assert await found(store, metadata_key=key, metadata_value="y") == []

    @pytest.mark.parametrize("value", ["text", "", "null", 0, 3, -1.5, True, False, [1, [2]], {"b": 1, "a": [None]}])
    async def test_metadata_values_of_any_kind_are_compared(self, store: Store, value: Any) -> None:
        await store.create(OWNER, a_session("same", metadata={"k": value}))
        await store.create(OWNER, a_session("other", metadata={"k": "something else"}))
        await store.create(OWNER, a_session("none", metadata={"k": None}))
        await store.create(OWNER, a_session("missing"))

        assert await found(store, metadata_key="k", metadata_value=value) == ["same"]
        assert await found(store, metadata_key="k") == ["same", "other", "none"]

    async def test_filters_see_updates(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("hello"), a_stamp(after(5)))
        assert await found(store, state="active", updated_after=after(4)) == ["s-1"]

        await write_context(store, OWNER, "s-1", remembering("k", 1, after(7)))
        assert await found(store, updated_after=after(6)) == ["s-1"]

        await store.apply(OWNER, "s-1", updated(phase=Phase.PLANNING, metadata={"k": 1}))
        assert await found(store, phase="planning", metadata_key="k") == ["s-1"]

        await store.apply(OWNER, "s-1", finalized("abandoned"))
        assert await found(store, active_only=True) == await found(store, state="active") == []
        assert await found(store, state="abandoned", phase="abandoned") == ["s-1"]

    async def test_deleted_sessions_are_not_found(self, store: Store) -> None:
        await _population(store)
        await store.delete_tree(OWNER, "mother", may_delete("mother"), a_stamp())

        assert await found(store) == ["alone", "sleeper"]
        assert await found(store, parent="mother") == await found(store, task="task-7") == []

    async def test_fork_is_found_apart_from_its_source(self, store: Store) -> None:
        await _population(store)
        await store.fork(OWNER, "son", None, a_fork("fork"))

        assert await found(store, root="fork") == ["fork"]
        assert await found(store, parent="mother") == ["son", "daughter"]

    # Pages --------------------------------------------------------------------------------------

    @pytest.mark.parametrize("sort", SORTS)
    @pytest.mark.parametrize("limit", [1, 2, 3, 4, 10])
    async def test_pages_neither_repeat_nor_skip(self, store: Store, sort: str, limit: int) -> None:
        for n in range(7):
            await store.create(OWNER, a_session(f"s-{n}", agent_name="even" if n % 2 == 0 else "odd"))

        order = -1 if sort.startswith("-") else 1
        assert await found(store, sort=sort, limit=limit) == [f"s-{n}" for n in range(7)][::order]
        assert await found(store, sort=sort, limit=limit, agent="even") == [f"s-{n}" for n in range(0, 7, 2)][::order]

    async def test_last_page_says_that_it_is_the_last(self, store: Store) -> None:
        for n in range(4):
            await store.create(OWNER, a_session(f"s-{n}", agent_name="even" if n % 2 == 0 else "odd"))

        assert (await store.find(OWNER, SessionQuery(limit=4)))[0].next is None
        assert (await store.find(OWNER, SessionQuery(limit=3)))[0].next is not None
        assert (await store.find(OWNER, SessionQuery(limit=2, agent="even")))[0].next is None

    async def test_sessions_created_meanwhile_do_not_disturb_the_pages(self, store: Store) -> None:
        for n in range(4):
            await store.create(OWNER, a_session(f"s-{n}"))
        [newest] = await store.find(OWNER, SessionQuery(limit=2))
        [oldest] = await store.find(OWNER, SessionQuery(limit=2, sort="created"))
        await store.create(OWNER, a_session("s-4"))

        [rest] = await store.find(OWNER, SessionQuery(limit=9, cursor=newest.next))
        assert [session.session_id for session in rest.items] == ["s-1", "s-0"]
        [rest] = await store.find(OWNER, SessionQuery(limit=9, sort="created", cursor=oldest.next))
        assert [session.session_id for session in rest.items] == ["s-2", "s-3", "s-4"]

    async def test_sessions_deleted_meanwhile_do_not_disturb_the_pages(self, store: Store) -> None:
        for n in range(5):
            await store.create(OWNER, a_session(f"s-{n}"))
        [page] = await store.find(OWNER, SessionQuery(limit=2))
        for gone in ("s-3", "s-2"):
            await store.delete_tree(OWNER, gone, may_delete(gone), a_stamp())

        [rest] = await store.find(OWNER, SessionQuery(limit=9, cursor=page.next))
        assert [session.session_id for session in rest.items] == ["s-1", "s-0"]

    async def test_sessions_changed_meanwhile_keep_their_place(self, store: Store) -> None:
        for n in range(4):
            await store.create(OWNER, a_session(f"s-{n}"))
        [page] = await store.find(OWNER, SessionQuery(limit=2))
        await store.append(OWNER, "s-0", said("hello"), a_stamp(after(60)))

        [rest] = await store.find(OWNER, SessionQuery(limit=9, cursor=page.next))
        assert [session.session_id for session in rest.items] == ["s-1", "s-0"]

    async def test_cursor_serves_pages_of_any_size(self, store: Store) -> None:
        for n in range(5):
            await store.create(OWNER, a_session(f"s-{n}"))
        [page] = await store.find(OWNER, SessionQuery(limit=1))

        [rest] = await store.find(OWNER, SessionQuery(limit=3, cursor=page.next))
        assert [session.session_id for session in rest.items] == ["s-3", "s-2", "s-1"]

    async def test_cursor_of_another_query_is_refused(self, store: Store) -> None:
        for n in range(3):
            await store.create(OWNER, a_session(f"s-{n}"))
        cursor = (await store.find(OWNER, SessionQuery(limit=1)))[0].next

        for filters in ({"agent": "echo-agent"}, {"sort": "created"}, {"sort": "-updated"}, {"active_only": True}):
            with pytest.raises(InvalidCursor):
                await store.find(OWNER, SessionQuery(cursor=cursor, **filters))

    @pytest.mark.parametrize("cursor", ["", "-", "zz", "1", "00000000-1", "'; DROP TABLE sessions", "𝟙-𝟙"])
    async def test_damaged_cursor_is_refused(self, store: Store, cursor: str) -> None:
        await store.create(OWNER, a_session("s-1"))

        with pytest.raises(InvalidCursor):
            await store.find(OWNER, SessionQuery(cursor=cursor))


async def _population(store: Store) -> None:
    """Create mother (created), son (active, planning), daughter (waiting); alone (completed); sleeper (suspended)."""
    await store.create(
        OWNER, a_session("mother", agent_name="planner", task_id="task-7", metadata={"colour": "red"}, at=after(1))
    )
    await store.create(
        OWNER,
        a_session(
            "son", "plan-1", agent_name="planner", labels=["prod"], metadata={"a.b c": 1, "count": 3}, at=after(2)
        ),
        parent="mother",
    )
    await store.create(
        OWNER, a_session("daughter", "plan-2", metadata={"colour": ["red"]}, at=after(3)), parent="mother"
    )
    alone = {"project_dir": "/srv/a", "labels": ["prod"], "metadata": {"colour": None}}
    await store.create(OWNER, a_session("alone", "plan_3", at=after(4), **alone))
    await store.create(OWNER, a_session("sleeper", agent_name=None, at=after(5)))
    await store.apply(OWNER, "son", updated(after(61), phase=Phase.PLANNING))
    await store.apply(OWNER, "daughter", asked(an_approval("daughter", at=after(3))))
    await store.apply(OWNER, "alone", finalized(at=after(4)))
    await store.apply(OWNER, "sleeper", lambda view: view.session.suspend(a_stamp(after(5))))

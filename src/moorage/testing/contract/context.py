"""Context: keys and values, versions, and expiry to the microsecond."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from moorage.core.context import MAX_VALUE_BYTES, ContextItem, items_in
from moorage.core.errors import SessionClosed, SessionNotFound, VersionConflict
from moorage.core.record import PutRecord
from moorage.core.session import Change, View
from moorage.ports import Store
from moorage.testing.builders import *
from moorage.testing.texts import DEEP, TEXTS

TICK = timedelta(microseconds=1)


async def values(store: Store, at: Any = NOON, key: str | None = None) -> dict[str, Any]:
    """Return the context without versions and times."""
    return {name: item.value for name, item in (await context_of(store, OWNER, "s-1", at, key)).items()}


class ContextRules:
    """Rules of the context: a namespace of records."""

    async def test_context_of_a_new_session_is_empty(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))

        assert await context_of(store, OWNER, "s-1", NOON) == {}
        assert await context_of(store, OWNER, "s-1", NOON, "nothing") == {}

    async def test_value_is_remembered_with_version_and_times(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))
        change = await write_context(
            store, OWNER, "planner", remembering("preference", "italian", after(1), timedelta(hours=1))
        )

        item = ContextItem(value="italian", version=1, updated_at=after(1), expires_at=after(3601))
        assert items_in(write.record for write in change.records if isinstance(write, PutRecord)) == {
            "preference": item
        }
        assert await context_of(store, OWNER, "planner", after(1)) == {"preference": item}

    async def test_write_moves_the_head_along(self, store: Store) -> None:
        before = await store.create(OWNER, a_session("s-1"))
        change = await write_context(store, OWNER, "s-1", remembering("a", 1, after(5)))

        session = await store.get(OWNER, "s-1")

        assert session == change.session
        assert (session.context_version, session.updated_at) == (1, after(5))
        assert (session.version, session.last_entry) == (before.version, before.last_entry)
        assert session.last_activity_at == before.last_activity_at

    async def test_write_adds_no_entry_and_no_event(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", remembering("a", 1))

        assert len(await store.log(OWNER, "s-1")) == 1
        assert await store.feed_end(OWNER) == 1

    async def test_one_key_is_read_alone(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", merging({"a": 1, "ab": 2, "A": 3}))

        assert await values(store, key="a") == {"a": 1}
        assert await values(store, key="b") == {}

    async def test_merge_leaves_other_keys(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", merging({"a": 1, "b": 2}))
        await write_context(store, OWNER, "s-1", merging({"b": 3, "c": 4}))

        assert await values(store) == {"a": 1, "b": 3, "c": 4}
        versions = {key: item.version for key, item in (await context_of(store, OWNER, "s-1", NOON)).items()}
        assert versions == {"a": 1, "b": 2, "c": 2}

    async def test_replacing_all_drops_the_rest(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", merging({"a": 1, "b": 2}))
        await write_context(store, OWNER, "s-1", replacing({"b": 3, "c": 4}))

        assert await values(store) == {"b": 3, "c": 4}

    async def test_forgotten_keys_are_gone(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", merging({"a": 1, "b": 2, "c": 3}))
        await write_context(store, OWNER, "s-1", forgetting("a"), "a")
        assert await values(store) == {"b": 2, "c": 3}

        await write_context(store, OWNER, "s-1", forgetting())
        assert await values(store) == {}
        assert (await store.get(OWNER, "s-1")).context_version == 3

    async def test_deleting_an_absent_key_changes_nothing(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))

        async with nothing_changes(store):
            await write_context(store, OWNER, "s-1", forgetting("a", at=after(9)))

    async def test_decision_sees_head_and_context(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", merging({"a": 1, "b": 2}))
        await write_context(store, OWNER, "s-1", remembering("old", 0, ttl=timedelta(seconds=1)))
        seen: list[View] = []

        def look(view: View) -> Change:
            seen.append(view)
            return Change(session=view.session)

        await write_context(store, OWNER, "s-1", look)
        await write_context(store, OWNER, "s-1", look, "a")

        whole, one = ({name.key for name in view.records.found} for view in seen if view.records is not None)
        assert seen[0].session == await store.get(OWNER, "s-1")
        assert (whole, one) == ({"a", "b", "old"}, {"a"})

    async def test_decision_about_one_key_leaves_the_others(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", merging({"a": 1, "b": 2}))
        await write_context(store, OWNER, "s-1", remembering("a", 3), "a")

        assert await values(store) == {"a": 3, "b": 2}

    async def test_unknown_session_has_no_context(self, store: Store) -> None:
        with pytest.raises(SessionNotFound):
            await context_of(store, OWNER, "nobody", NOON)
        with pytest.raises(SessionNotFound):
            await write_context(store, OWNER, "nobody", refusing)

    async def test_closed_session_is_read_but_not_written(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", remembering("a", 1))
        await store.apply(OWNER, "s-1", finalized())

        async with nothing_changes(store):
            with pytest.raises(SessionClosed):
                await write_context(store, OWNER, "s-1", remembering("a", 2))
        assert await values(store) == {"a": 1}

    async def test_refused_write_changes_nothing(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", remembering("a", 1))

        async with nothing_changes(store):
            with pytest.raises(DecisionRefused):
                await write_context(store, OWNER, "s-1", refusing)
            with pytest.raises(VersionConflict):
                await write_context(store, OWNER, "s-1", remembering("a", 2, expected=7))

    async def test_context_survives_changes_of_the_session(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", remembering("a", 1))
        await store.apply(OWNER, "s-1", finalized())

        assert (await store.get(OWNER, "s-1")).context_version == 1
        assert await values(store) == {"a": 1}

    # Versions -----------------------------------------------------------------------------------

    async def test_of_writers_of_one_key_with_one_version_one_wins(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        tries = [write_context(store, OWNER, "s-1", remembering("a", n, expected=0), "a") for n in range(8)]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes].count(VersionConflict) == 7

    async def test_writers_of_different_keys_all_succeed(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await asyncio.gather(*(write_context(store, OWNER, "s-1", remembering(f"k{n}", n), f"k{n}") for n in range(20)))

        assert await values(store) == {f"k{n}": n for n in range(20)}
        assert (await store.get(OWNER, "s-1")).context_version == 20

    async def test_key_written_again_after_it_was_forgotten_has_a_new_version(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", remembering("a", 1))
        await write_context(store, OWNER, "s-1", forgetting("a"))
        await write_context(store, OWNER, "s-1", remembering("a", 2, expected=0), "a")

        assert (await context_of(store, OWNER, "s-1", NOON))["a"].version == 3

    # Expiry -------------------------------------------------------------------------------------

    async def test_value_is_there_until_its_very_end_and_not_after(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", remembering("a", 1, ttl=timedelta(seconds=10)))

        assert await values(store, after(10) - TICK) == {"a": 1}
        assert await values(store, after(10)) == {}
        assert await values(store, after(10), "a") == {}

    async def test_shortest_time_to_live_is_kept_exactly(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", remembering("a", 1, ttl=TICK))

        assert await values(store, NOON) == {"a": 1}
        assert await values(store, NOON + TICK) == {}

    async def test_writing_refreshes_the_time_to_live_and_reading_does_not(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        ten = timedelta(seconds=10)
        await write_context(store, OWNER, "s-1", remembering("a", 1, NOON, ten))
        await write_context(store, OWNER, "s-1", remembering("b", 1, NOON, ten))
        await write_context(store, OWNER, "s-1", remembering("a", 1, after(9), ten))
        await values(store, after(9))

        assert await values(store, after(10)) == {"a": 1}
        assert await values(store, after(19)) == {}

    async def test_write_without_a_time_to_live_keeps_for_good(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", remembering("a", 1, ttl=timedelta(seconds=10)))
        await write_context(store, OWNER, "s-1", remembering("a", 2))

        assert await values(store, after(10**6)) == {"a": 2}

    async def test_expired_key_counts_as_absent_for_a_writer(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", remembering("a", 1, ttl=timedelta(seconds=10)))
        await write_context(store, OWNER, "s-1", remembering("a", 2, after(10), expected=0), "a")

        assert await values(store, after(10)) == {"a": 2}

    async def test_write_to_another_key_does_not_bring_an_expired_one_back(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", remembering("a", 1, ttl=timedelta(seconds=10)))
        await write_context(store, OWNER, "s-1", remembering("b", 2, after(11)), "b")

        assert await values(store, after(11)) == {"b": 2}

    async def test_several_keys_expire_each_in_its_time(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        for seconds in (1, 2, 3):
            ttl = timedelta(seconds=seconds)
            await write_context(store, OWNER, "s-1", remembering(f"k{seconds}", seconds, ttl=ttl))

        assert [len(await values(store, after(seconds))) for seconds in range(4)] == [3, 2, 1, 0]

    # Round trips --------------------------------------------------------------------------------

    @pytest.mark.parametrize("value", [None, True, 0, 1.0, "", [], {}, DEEP, {"a": [1, {"b": None}]}])
    async def test_any_json_value_comes_back_the_same(self, store: Store, value: Any) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", remembering("k", value))

        read = await values(store)

        assert read == {"k": value}
        assert str(read) == str({"k": value}), "1 and 1.0 and True are equal, but not the same"

    @pytest.mark.parametrize("text", TEXTS)
    async def test_any_text_remembered_comes_back_the_same(self, store: Store, text: str) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", remembering(text, text))

        assert await values(store, key=text) == {text: text}

    async def test_largest_value_comes_back_whole(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        largest = "x" * (MAX_VALUE_BYTES - 2)
        await write_context(store, OWNER, "s-1", remembering("k", largest))

        assert await values(store) == {"k": largest}

    async def test_changing_a_returned_value_leaves_the_context_unchanged(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        given = [1]
        await write_context(store, OWNER, "s-1", remembering("k", given))
        for value in (given, (await values(store))["k"]):
            value.append(2)

        assert await values(store) == {"k": [1]}

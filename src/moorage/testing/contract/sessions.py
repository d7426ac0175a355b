"""Creating and finding sessions: ids, names, parents, and exact round trips."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from moorage.core.entry import Kind
from moorage.core.errors import IdTaken, NameTaken, ParentNotFound, SessionGone, SessionNotFound
from moorage.core.query import SessionQuery
from moorage.core.session import Birth, Change, Session, State, View
from moorage.ports import Store
from moorage.testing.builders import *
from moorage.testing.texts import DEEP, TEXTS


def _renamed(view: View, name: str | None) -> Change:
    return view.session.rename(name, a_stamp())


class SessionRules:
    """Rules of `create`, `get` and `match`."""

    # Creation -----------------------------------------------------------------------------------

    async def test_created_session_reads_back_whole(self, store: Store) -> None:
        decide = a_session(
            "s-1",
            "plan-prod",
            task_id="task-7",
            agent_name="terraform-architect",
            purpose="approval_workflow",
            project_dir="/srv/infra",
            metadata={"workspace": "prod"},
            expires_at=NOON + timedelta(microseconds=1),
        )
        created = await store.create(OWNER, decide)

        assert created == await store.get(OWNER, "s-1")
        assert created == Session(
            session_id="s-1",
            session_name="plan-prod",
            task_id="task-7",
            agent_name="terraform-architect",
            purpose="approval_workflow",
            project_dir="/srv/infra",
            owner=OWNER,
            interface="test",
            root_session_id="s-1",
            last_entry=1,
            metadata={"workspace": "prod"},
            created_at=NOON,
            updated_at=NOON,
            last_activity_at=NOON,
            expires_at=NOON + timedelta(microseconds=1),
        )

    async def test_labels_come_back_as_they_were_created_and_changed(self, store: Store) -> None:
        def create(birth: Birth) -> Change:
            change = a_session("s-1")(birth)
            return replace(change, session=replace(change.session, labels=["prod", "urgent"]))

        await store.create(OWNER, create)
        assert (await store.get(OWNER, "s-1")).labels == ["prod", "urgent"]
        await store.append(OWNER, "s-1", said("hello"), a_stamp())
        assert (await store.get(OWNER, "s-1")).labels == ["prod", "urgent"]
        await store.apply(OWNER, "s-1", lambda view: Change(session=replace(view.session, labels=["test"])))
        assert (await store.get(OWNER, "s-1")).labels == ["test"]

    async def test_first_entry_tells_of_the_creation(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", purpose="testing"))

        (entry,) = await whole_log(store, "s-1")

        assert (entry.number, entry.kind, entry.at, entry.by) == (1, Kind.CREATED, NOON, "tester")
        assert entry.data == {"agent_name": "echo-agent", "purpose": "testing"}

    @pytest.mark.parametrize("text", TEXTS)
    async def test_any_text_in_metadata_comes_back_the_same(self, store: Store, text: str) -> None:
        await store.create(OWNER, a_session("s-1", metadata={text: text}, purpose=text))

        session = await store.get(OWNER, "s-1")

        assert (session.metadata, session.purpose) == ({text: text}, text)

    async def test_deep_metadata_comes_back_the_same(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", metadata={"deep": DEEP}))

        session = await store.get(OWNER, "s-1")

        assert session.metadata == {"deep": DEEP}
        assert str(session.metadata) == str({"deep": DEEP}), "1 and 1.0 and True are equal, but not the same"

    async def test_changing_a_returned_value_leaves_the_store_unchanged(self, store: Store) -> None:
        given: dict[str, Any] = {"list": [1]}
        created = await store.create(OWNER, a_session("s-1", metadata=given))

        for metadata in (given, created.metadata, (await store.get(OWNER, "s-1")).metadata):
            metadata["list"].append(2)

        assert (await store.get(OWNER, "s-1")).metadata == {"list": [1]}

    async def test_refused_birth_leaves_nothing(self, store: Store) -> None:
        async with nothing_changes(store):
            with pytest.raises(DecisionRefused):
                await store.create(OWNER, refusing)

    # References ---------------------------------------------------------------------------------

    async def test_unknown_reference_is_not_found(self, store: Store) -> None:
        with pytest.raises(SessionNotFound):
            await store.get(OWNER, "nobody")

    @pytest.mark.parametrize("ref", ["", "../../evil", "a b", "%", "s-1\0", "S-1", "s-", "ſ-1", "x" * 1000])
    async def test_odd_reference_is_not_found(self, store: Store, ref: str) -> None:
        await store.create(OWNER, a_session("s-1"))

        with pytest.raises(SessionNotFound):
            await store.get(OWNER, ref)

    async def test_name_finds_the_session(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))

        assert (await store.get(OWNER, "planner")).session_id == "s-1"

    async def test_name_finds_a_closed_session(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))
        await store.apply(OWNER, "planner", finalized())

        assert (await store.get(OWNER, "planner")).session_id == "s-1"

    async def test_name_finds_the_open_session_before_closed_ones(self, store: Store) -> None:
        for session_id in ("s-1", "s-2"):
            await store.create(OWNER, a_session(session_id, "planner"))
            await store.apply(OWNER, session_id, finalized())
        await store.create(OWNER, a_session("s-3", "planner"))
        await store.create(OWNER, a_session("s-4", "other"))

        assert (await store.get(OWNER, "planner")).session_id == "s-3"

    async def test_name_finds_the_newest_of_closed_sessions(self, store: Store) -> None:
        for session_id in ("s-2", "s-1"):
            await store.create(OWNER, a_session(session_id, "planner"))
            await store.apply(OWNER, session_id, finalized())

        assert (await store.get(OWNER, "planner")).session_id == "s-1"

    async def test_id_comes_before_name(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "s-2"))
        await store.apply(OWNER, "s-1", finalized())
        await store.create(OWNER, a_session("s-2"))

        assert (await store.get(OWNER, "s-2")).session_id == "s-2"

    async def test_deleted_id_is_gone_and_says_why(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))
        await store.delete_tree(OWNER, "planner", may_delete("s-1", reason="tidying up"), a_stamp(by="ann"))

        with pytest.raises(SessionGone) as gone:
            await store.get(OWNER, "s-1")

        assert (gone.value.deleted_by, gone.value.reason) == ("ann", "tidying up")
        assert gone.value.deleted_at == "2026-03-01T12:00:00Z"

    async def test_name_of_a_deleted_session_is_unknown(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())

        with pytest.raises(SessionNotFound):
            await store.get(OWNER, "planner")

    # Ids and names are unique -------------------------------------------------------------------

    async def test_id_in_use_is_refused(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))

        async with nothing_changes(store):
            with pytest.raises(IdTaken):
                await store.create(OWNER, a_session("s-1"))

    async def test_id_of_a_closed_session_is_refused(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", finalized())

        with pytest.raises(IdTaken):
            await store.create(OWNER, a_session("s-1"))

    async def test_deleted_id_stays_spent(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.create(OWNER, a_session("s-2"))
        await store.append(OWNER, "s-2", said("to fork"), a_stamp())
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())

        async with nothing_changes(store):
            with pytest.raises(SessionGone):
                await store.create(OWNER, a_session("s-1"))
            with pytest.raises(SessionGone):
                await store.fork(OWNER, "s-2", None, a_fork("s-1"))

    async def test_id_that_is_an_open_name_is_refused(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))

        async with nothing_changes(store):
            with pytest.raises(IdTaken):
                await store.create(OWNER, a_session("planner"))

    async def test_id_that_was_a_closed_sessions_name_is_free(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))
        await store.apply(OWNER, "s-1", finalized())

        assert (await store.create(OWNER, a_session("planner"))).session_id == "planner"

    async def test_name_of_an_open_session_is_refused(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))

        async with nothing_changes(store):
            with pytest.raises(NameTaken) as taken:
                await store.create(OWNER, a_session("s-2", "planner"))
        assert (taken.value.session_name, taken.value.session_id) == ("planner", "s-1")
        assert "finalize that one or choose another name" in str(taken.value)

    async def test_name_of_a_suspended_session_is_refused(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))
        await store.apply(OWNER, "s-1", lambda view: view.session.suspend(a_stamp()))

        with pytest.raises(NameTaken):
            await store.create(OWNER, a_session("s-2", "planner"))

    @pytest.mark.parametrize("outcome", ["completed", "failed", "abandoned"])
    async def test_name_is_free_once_its_session_is_final(self, store: Store, outcome: str) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))
        await store.apply(OWNER, "s-1", finalized(outcome))

        assert (await store.create(OWNER, a_session("s-2", "planner"))).session_name == "planner"

    async def test_name_is_free_once_its_session_is_deleted(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())

        assert (await store.create(OWNER, a_session("s-2", "planner"))).session_name == "planner"

    async def test_name_that_is_another_sessions_id_is_refused(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", finalized())

        async with nothing_changes(store):
            with pytest.raises(NameTaken, match=r"is the id of a session; choose another name"):
                await store.create(OWNER, a_session("s-2", "s-1"))

    async def test_session_may_be_named_after_its_own_id(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "s-1"))

        assert (await store.get(OWNER, "s-1")).session_name == "s-1"

    async def test_ids_and_names_tell_upper_from_lower_case(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))
        await store.create(OWNER, a_session("S-1", "Planner"))

        assert (await store.get(OWNER, "Planner")).session_id == "S-1"

    async def test_one_of_many_wins_a_race_for_an_id(self, store: Store) -> None:
        tries = [store.create(OWNER, a_session("s-1", purpose=str(n))) for n in range(8)]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes].count(IdTaken) == 7
        assert (await store.get(OWNER, "s-1")) in outcomes

    async def test_one_of_many_wins_a_race_for_a_name(self, store: Store) -> None:
        tries = [store.create(OWNER, a_session(f"s-{n}", "planner")) for n in range(8)]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes].count(NameTaken) == 7
        assert (await store.get(OWNER, "planner")) in outcomes

    # Renaming -----------------------------------------------------------------------------------

    async def test_renamed_session_is_found_by_its_new_name_and_the_old_one_is_free(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))

        changed = await store.apply(OWNER, "planner", lambda view: view.session.rename("thinker", a_stamp()))
        assert changed.session == await store.get(OWNER, "thinker")
        assert (changed.session.session_name, changed.session.version) == ("thinker", 2)
        assert [entry.data for entry in changed.entries] == [{"from": "planner", "to": "thinker"}]
        with pytest.raises(SessionNotFound):
            await store.get(OWNER, "planner")
        assert (await store.create(OWNER, a_session("s-2", "planner"))).session_name == "planner"
        [found] = await store.find(OWNER, SessionQuery(name_prefix="think"))
        assert [session.session_id for session in found.items] == ["s-1"]

    async def test_session_loses_its_name_and_gets_one(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))
        for name in (None, "planner", None):
            changed = await store.apply(OWNER, "s-1", partial(_renamed, name=name))
            assert changed.session.session_name == name
            assert (await store.get(OWNER, "s-1")).session_name == name

    @pytest.mark.parametrize("taken", ["worker", "s-2"])
    async def test_session_gets_no_name_that_is_taken(self, store: Store, taken: str) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))
        await store.create(OWNER, a_session("s-2", "worker"))

        async with nothing_changes(store):
            with pytest.raises(NameTaken) as refused:
                await store.apply(OWNER, "s-1", lambda view: view.session.rename(taken, a_stamp()))
        assert (refused.value.session_name, refused.value.session_id) == (taken, "s-2")

    async def test_name_of_a_final_session_is_free_for_a_rename(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.create(OWNER, a_session("s-2", "worker"))
        await store.apply(OWNER, "s-2", finalized())

        await store.apply(OWNER, "s-1", lambda view: view.session.rename("worker", a_stamp()))
        assert (await store.get(OWNER, "worker")).session_id == "s-1"

    async def test_one_of_many_wins_a_rename_to_one_name(self, store: Store) -> None:
        for number in range(6):
            await store.create(OWNER, a_session(f"s-{number}"))
        tries = [
            store.apply(OWNER, f"s-{number}", lambda view: view.session.rename("planner", a_stamp()))
            for number in range(6)
        ]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes].count(NameTaken) == 5
        assert (await store.get(OWNER, "planner")).session_name == "planner"

    async def test_deleted_session_leaves_its_new_name_free(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))
        await store.apply(OWNER, "s-1", lambda view: view.session.rename("thinker", a_stamp()))
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())

        for name in ("planner", "thinker"):
            await store.create(OWNER, a_session(f"new-{name}", name))

    # Parents ------------------------------------------------------------------------------------

    @pytest.mark.parametrize("ref", ["mother", "p-1"])
    async def test_child_knows_its_parent_root_and_depth(self, store: Store, ref: str) -> None:
        await store.create(OWNER, a_session("p-1", "mother", task_id="task-7"))
        await store.create(OWNER, a_session("c-1", "child"), parent=ref)
        await store.create(OWNER, a_session("g-1"), parent="c-1")

        child, grandchild = await store.get(OWNER, "c-1"), await store.get(OWNER, "g-1")

        assert (child.parent_session_id, child.parent_session_name) == ("p-1", "mother")
        assert (child.root_session_id, child.depth, child.task_id) == ("p-1", 1, "task-7")
        assert (grandchild.parent_session_id, grandchild.parent_session_name) == ("c-1", "child")
        assert (grandchild.root_session_id, grandchild.depth) == ("p-1", 2)

    @pytest.mark.parametrize("ref", ["nobody", "../../evil", ""])
    async def test_unknown_parent_is_an_error_before_anything_is_written(self, store: Store, ref: str) -> None:
        async with nothing_changes(store):
            with pytest.raises(ParentNotFound):
                await store.create(OWNER, refusing, parent=ref)

    async def test_deleted_parent_is_not_found(self, store: Store) -> None:
        await store.create(OWNER, a_session("p-1"))
        await store.delete_tree(OWNER, "p-1", may_delete("p-1"), a_stamp())

        async with nothing_changes(store):
            with pytest.raises(ParentNotFound):
                await store.create(OWNER, a_session("c-1"), parent="p-1")

    async def test_birth_shows_how_many_descendants_of_the_whole_tree_are_open(self, store: Store) -> None:
        for session_id, parent in (("r", None), ("a", "r"), ("b", "r"), ("a1", "a"), ("a2", "a"), ("alone", None)):
            await store.create(OWNER, a_session(session_id), parent=parent)
        await store.apply(OWNER, "a2", finalized())
        await store.apply(OWNER, "b", updated(error="still open"))
        seen: list[tuple[str | None, int]] = []

        def look(birth: Any) -> Any:
            seen.append((birth.parent and birth.parent.session_id, birth.open_descendants))
            raise DecisionRefused

        for parent in ("r", "a1", "alone", None):
            with pytest.raises(DecisionRefused):
                await store.create(OWNER, look, parent=parent)

        assert list(dict.fromkeys(seen)) == [("r", 3), ("a1", 3), ("alone", 0), (None, 0)]

    async def test_birth_sees_the_parent_as_it_is(self, store: Store) -> None:
        await store.create(OWNER, a_session("p-1"))
        await store.apply(OWNER, "p-1", updated(metadata={"seen": True}))
        seen: list[Session] = []

        def look(birth: Any) -> Any:
            seen.append(birth.parent)
            return a_session("c-1")(birth)

        await store.create(OWNER, look, parent="p-1")

        assert seen[0] == await store.get(OWNER, "p-1")

    async def test_birth_leaves_the_parent_as_it_is(self, store: Store) -> None:
        parent = await store.create(OWNER, a_session("p-1"))
        await store.create(OWNER, a_session("c-1"), parent="p-1")

        assert await store.get(OWNER, "p-1") == parent
        assert parent.state is State.CREATED

    # Prefixes -----------------------------------------------------------------------------------

    async def test_prefix_matches_ids_in_order_up_to_a_limit(self, store: Store) -> None:
        for session_id in ("ab-3", "ab-1", "ab", "ab-2", "AB-4", "b-1", "a"):
            await store.create(OWNER, a_session(session_id))

        assert await store.match(OWNER, "ab", 10) == ["ab", "ab-1", "ab-2", "ab-3"]
        assert await store.match(OWNER, "ab", 2) == ["ab", "ab-1"]
        assert await store.match(OWNER, "ab-2", 10) == ["ab-2"]
        assert await store.match(OWNER, "zz", 10) == []

    async def test_prefix_has_no_wildcards(self, store: Store) -> None:
        for session_id in ("a_b-1", "axb-1", "a.b-1", "a:b-1"):
            await store.create(OWNER, a_session(session_id))

        assert await store.match(OWNER, "a_b", 10) == ["a_b-1"]
        assert await store.match(OWNER, "a.b", 10) == ["a.b-1"]
        for wild in ("a%", "a*", "a?b", "a[x]b"):
            assert await store.match(OWNER, wild, 10) == []

    async def test_prefix_does_not_match_names_and_deleted_ids(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "abc-1"))
        await store.create(OWNER, a_session("abc-2"))
        await store.delete_tree(OWNER, "abc-2", may_delete("abc-2"), a_stamp())

        assert await store.match(OWNER, "abc", 10) == []

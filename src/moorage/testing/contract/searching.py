"""Search: words in messages and summaries of all of the owner's sessions."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.core.entry import Kind
from moorage.core.errors import Unsupported
from moorage.core.session import Phase
from moorage.ports import Capability, Store
from moorage.testing.builders import *


async def found(store: Store, text: str, limit: int = 100) -> set[tuple[str, int]]:
    """Return the places where a text is found; skip the test on a store without search."""
    if Capability.SEARCH not in store.capabilities:
        pytest.skip("this store cannot search")
    hits = await store.search(OWNER, text, limit)
    assert len({(hit.session_id, hit.number) for hit in hits}) == len(hits), "an entry is found once"
    return {(hit.session_id, hit.number) for hit in hits}


class SearchRules:
    """Rules of `search`."""

    async def test_store_without_search_says_so(self, store: Store) -> None:
        if Capability.SEARCH in store.capabilities:
            pytest.skip("this store can search")

        with pytest.raises(Unsupported):
            await store.search(OWNER, "hello", 10)

    async def test_words_are_found_across_sessions(self, store: Store) -> None:
        await _said(store, "s-1", "The quick brown fox", "jumps over")
        await _said(store, "s-2", "the lazy dog, and the fox.")

        assert await found(store, "fox") == {("s-1", 2), ("s-2", 2)}
        assert await found(store, "dog") == {("s-2", 2)}
        assert await found(store, "cat") == set()

    async def test_search_hit_names_session_and_text(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("Plan the change", role="assistant"), a_stamp(after(5)))
        await found(store, "plan")

        (hit,) = await store.search(OWNER, "plan", 10)

        assert (hit.session_id, hit.number, hit.kind, hit.role, hit.at) == (
            "s-1",
            2,
            Kind.MESSAGE,
            "assistant",
            after(5),
        )
        assert "Plan the change" in hit.snippet

    async def test_all_words_must_be_there_in_any_order(self, store: Store) -> None:
        await _said(store, "s-1", "red green", "green blue", "blue red green")

        assert await found(store, "green red") == {("s-1", 2), ("s-1", 4)}
        assert await found(store, "red green blue") == {("s-1", 4)}

    async def test_words_are_whole_and_of_any_case(self, store: Store) -> None:
        await _said(store, "s-1", "Terraform-plan for PROD", "terraforming")

        assert await found(store, "TERRAFORM") == {("s-1", 2)}
        assert await found(store, "prod plan") == {("s-1", 2)}
        assert await found(store, "terra") == set()

    async def test_star_finds_beginnings_of_words(self, store: Store) -> None:
        await _said(store, "s-1", "terraform", "terraforming", "form")

        assert await found(store, "terra*") == {("s-1", 2), ("s-1", 3)}
        assert await found(store, "terra* terraforming") == {("s-1", 3)}
        assert await found(store, "form*") == {("s-1", 4)}

    @pytest.mark.parametrize("text", ["", " ", "*", "\"'", "()", "- + :", "🦊"])
    async def test_nothing_to_look_for_finds_nothing(self, store: Store, text: str) -> None:
        await _said(store, "s-1", "hello world")

        assert await found(store, text) == set()

    @pytest.mark.parametrize(
        "text", ["hello AND", "hello OR nothing", "NOT hello", "hello NEAR(world)", "^hello absent", "text:hello", '"']
    )
    async def test_query_has_no_operators(self, store: Store, text: str) -> None:
        await _said(store, "s-1", "hello world")

        assert await found(store, text) == set()

    @pytest.mark.parametrize("text", ["hello-world", "hello.world", "(hello) world!", '"hello" "world', "hello_world"])
    async def test_punctuation_parts_words(self, store: Store, text: str) -> None:
        await _said(store, "s-1", "hello, world")

        assert await found(store, text) == {("s-1", 2)}

    @pytest.mark.parametrize("text", ["привет", "ПРИВЕТ", "Grüße", "grüße", "漢字かな", "مرحبا", "x86", "42"])
    async def test_words_of_any_script_are_found(self, store: Store, text: str) -> None:
        await _said(store, "s-1", "Привет, Grüße! 漢字かな مرحبا x86 42", "nothing of that")

        assert await found(store, text) == {("s-1", 2)}

    async def test_tool_calls_results_and_parts_are_found(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        call = {"type": "tool_call", "id": "call-77", "name": "weather", "input": {"city": ["Lisbon"]}}
        result = {"type": "tool_result", "call_id": "call-77", "output": "sunny", "is_error": False}
        text = {"type": "text", "text": "let me look"}
        await store.append(OWNER, "s-1", said([text, call], role="assistant") + said([result], role="tool"), a_stamp())

        assert await found(store, "lisbon look weather") == {("s-1", 2)}
        assert await found(store, "sunny") == {("s-1", 3)}
        assert await found(store, "77") == set()

    async def test_summaries_are_found_and_other_entries_are_not(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", purpose="investigation"))
        await store.apply(OWNER, "s-1", lambda view: view.session.compact("an investigation", 1, a_stamp()))
        await store.apply(
            OWNER, "s-1", updated(phase=Phase.PLANNING, error="investigation", metadata={"investigation": 1})
        )
        await store.apply(OWNER, "s-1", finalized(summary="investigation over"))

        assert await found(store, "investigation") == {("s-1", 2)}
        (hit,) = await store.search(OWNER, "investigation", 10)
        assert (hit.kind, hit.role) == (Kind.SUMMARY, None)

    async def test_no_more_is_answered_than_asked_for(self, store: Store) -> None:
        await _said(store, "s-1", *["hello"] * 10)

        assert len(await found(store, "hello", 3)) == 3
        assert len(await found(store, "hello")) == 10

    async def test_search_finds_a_new_message(self, store: Store) -> None:
        await _said(store, "s-1", "first")
        assert await found(store, "second") == set()
        await store.append(OWNER, "s-1", said("second"), a_stamp())

        assert await found(store, "second") == {("s-1", 3)}

    async def test_words_of_deleted_sessions_are_not_found(self, store: Store) -> None:
        await _said(store, "s-1", "hello")
        await _said(store, "s-2", "hello")
        assert await found(store, "hello") == {("s-1", 2), ("s-2", 2)}
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())

        assert await found(store, "hello") == {("s-2", 2)}

    async def test_session_deleted_before_any_search_is_not_found(self, store: Store) -> None:
        await _said(store, "s-1", "hello")
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())
        await _said(store, "s-2", "goodbye")

        assert await found(store, "hello") == set()

    async def test_shared_entry_is_found_once_where_it_was_said(self, store: Store) -> None:
        await _said(store, "s-1", "hello")
        await store.fork(OWNER, "s-1", None, a_fork("f-1"))
        await store.append(OWNER, "f-1", said("hello again"), a_stamp())

        assert await found(store, "hello") == {("s-1", 2), ("f-1", 4)}

    async def test_shared_entry_is_found_in_the_fork_once_its_source_is_deleted(self, store: Store) -> None:
        await _said(store, "s-0", "of no concern")
        await _said(store, "s-1", "hello", "goodbye")
        await store.fork(OWNER, "s-1", 2, a_fork("f-1"))
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())

        assert await found(store, "hello") == {("f-1", 2)}
        assert await found(store, "goodbye") == set()

    async def test_restored_sessions_are_found(self, store: Store) -> None:
        await _said(store, "s-1", "hello")
        bundle = await bundle_of(store, "s-1")
        other = "owner-of-the-copy"
        await store.restore(other, bundle)
        await found(store, "hello")

        assert [hit.number for hit in await store.search(other, "hello", 10)] == [2]

    async def test_largest_message_is_found(self, store: Store) -> None:
        await _said(store, "s-1", "word " * 200_000 + "needle")

        assert await found(store, "needle") == {("s-1", 2)}


async def _said(store: Store, session_id: str, *texts: Any) -> None:
    await store.create(OWNER, a_session(session_id))
    await store.append(OWNER, session_id, said(*texts), a_stamp())

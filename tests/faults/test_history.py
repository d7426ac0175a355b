"""The history checker itself: it says nothing of a true story, and notices every kind of lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from moorage.core.entry import Entry
from moorage.testing.builders import OWNER
from moorage.testing.history import problems_in
from moorage.testing.model_store import ModelStore
from moorage.testing.work import a_child_run, ask, carry, finish, launch, start, taken

Lie = Callable[[Entry], Entry | None]


class Tampered:
    """A store whose log tells something else."""

    def __init__(self, store: ModelStore, lie: Lie) -> None:
        self._store, self._lie = store, lie

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def log(self, *args: Any, **options: Any) -> list[Entry]:
        told = [self._lie(entry) for entry in await self._store.log(*args, **options)]
        return [entry for entry in told if entry is not None]


@pytest.fixture
async def store() -> ModelStore:
    """A parent, its child, the callback, and the parent's second turn."""
    store = ModelStore()
    await launch(store, "p-1", "run-p")
    parent = await taken(store)
    await start(store, parent)
    await launch(store, "c-1", a_child_run("run-c", "p-1", "run-p"), parent="p-1")
    await finish(store, parent)
    await carry(store)
    await carry(store)
    return store


def of(kind: str, turn: str | None = None) -> Callable[[Entry], bool]:
    return lambda entry: entry.kind == kind and turn in (None, (entry.data or {}).get("turn_id"))


def without(which: Callable[[Entry], bool]) -> Lie:
    return lambda entry: None if which(entry) else entry


def instead(which: Callable[[Entry], bool], kind: str = "error", **data: Any) -> Lie:
    """The same number, but something else happened."""
    return lambda entry: replace(entry, kind=kind, data={**(entry.data or {}), **data}) if which(entry) else entry


LIES: dict[str, tuple[Lie, str]] = {
    "a gap": (without(of("turn_ended", "c-1:t1")), "has gaps or doubles"),
    "settled twice": (instead(of("turn_ended", "c-1:t1"), "run_settled", run_id="run-c"), "run run-c settled 2 times"),
    "called back twice": (instead(of("turn_ended", "p-1:t2"), "callback", run_id="run-c"), "called back 2 times"),
    "not called back": (instead(of("callback")), "run run-c has not called back"),
    "two at once": (instead(of("turn_ended", "p-1:t1")), "started p-1:t2 while p-1:t1 was running"),
    "ended twice": (instead(of("run_settled"), "turn_ended", turn_id="c-1:t1"), "ended c-1:t1 twice"),
    "an old epoch": (instead(of("turn_started", "p-1:t2"), "turn_started", epoch=1), "went back from epoch 1 to 1"),
}


async def test_a_true_story_is_believed(store: ModelStore) -> None:
    assert await problems_in(store, OWNER, ["run-p", "run-c"]) == []


@pytest.mark.parametrize("name", LIES)
async def test_a_lie_is_noticed(store: ModelStore, name: str) -> None:
    lie, problem = LIES[name]
    found = await problems_in(Tampered(store, lie), OWNER, ["run-p", "run-c"])
    assert [each for each in found if problem in each], found


async def test_checker_finds_a_lost_acknowledged_write(store: ModelStore) -> None:
    assert await problems_in(store, OWNER, ["run-x"]) == ["run run-x was acknowledged and is gone"]


async def test_checker_finds_unfinished_work(store: ModelStore) -> None:
    await ask(store, "c-1", "run-late")
    assert len(await problems_in(store, OWNER, [])) == 2  # a run, and the message it waits with
    await start(store, await taken(store))
    assert "session c-1 still has a live turn" in await problems_in(store, OWNER, [])

"""Cleanup against a naive recomputation: with any policy and any family, exactly what every member allows goes."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from moorage.core.policy import ResumePolicy, RetentionPolicy
from moorage.core.session import FINAL_STATES, Change, Phase, State, View
from moorage.ports import Store
from moorage.service import retention
from moorage.service.deps import Caller, Deps, Settings
from moorage.service.retention import Cleanup, cleanup
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import (
    NOON,
    OWNER,
    FakeClock,
    a_session,
    a_stamp,
    all_sessions,
    an_approval,
    asked,
    drive,
)
from moorage.testing.model_store import ModelStore
from tests.contract.choice import IS_ALL

DAY = timedelta(days=1)
BEFORE = NOON - 100 * DAY  # when they were all created


class Kept(Struct, frozen=True):
    """A session of a family, as it is when the cleanup comes."""

    parent: int | None  # its place in the family
    state: State
    idle: int  # days
    is_waiting: bool  # in phase `approval`
    use: str | None  # held, asked
    ttl: int | None  # days until it ends; ended if not above 0

    @property
    def is_in_use(self) -> bool:
        return self.use is not None and self.state not in FINAL_STATES

    @property
    def waits(self) -> bool:
        return self.is_waiting and self.state not in FINAL_STATES


class Rules(Struct, frozen=True):
    """The limits of a cleanup, in days."""

    age: int | None
    ages: dict[State, int | None]
    waiting: int
    hours: int | None
    states: tuple[State, ...] | None


# Expected deletions -----------------------------------------------------------------------------


def expected(family: list[Kept], rules: Rules) -> set[int]:
    """The places of those that go: every tree whose members all allow it."""
    gone: set[int] = set()
    for root, member in enumerate(family):
        tree = [place for place in range(len(family)) if root in _line(family, place)]
        members = [family[place] for place in tree]
        if is_past(member):
            goes = not any(each.is_in_use for each in members)
        else:
            goes = all(may_go(each, rules) for each in members)
        if goes:
            gone.update(tree)
    return gone


def _line(family: list[Kept], place: int | None) -> set[int]:
    """A member and its ancestors."""
    return set() if place is None else {place} | _line(family, family[place].parent)


def is_past(member: Kept) -> bool:
    return member.ttl is not None and member.ttl <= 0


def may_go(member: Kept, rules: Rules) -> bool:
    if member.is_in_use:
        return False
    if is_past(member):
        return True
    if rules.states is not None and member.state not in rules.states:
        return False
    age = rules.hours if rules.hours is not None else rules.ages.get(member.state, rules.age)
    if age is None or member.idle <= age:
        return False
    return not member.waits or member.idle > rules.waiting


# Actual deletions -------------------------------------------------------------------------------


def name_of(place: int) -> str:
    return f"s-{place}"


async def settle(store: Store, family: list[Kept]) -> None:
    """Put the family into a store: all are born open, so that they can have children, then made what they are."""
    for place, member in enumerate(family):
        expires_at = None if member.ttl is None else NOON + member.ttl * DAY
        parent = None if member.parent is None else name_of(member.parent)
        await store.create(OWNER, a_session(name_of(place), at=BEFORE, expires_at=expires_at), parent=parent)
    for place, member in enumerate(family):
        await store.apply(OWNER, name_of(place), lambda view, member=member: made(view, member))  # type: ignore[misc]
        if member.is_in_use and member.use == "asked":
            await store.apply(OWNER, name_of(place), asked(an_approval(name_of(place), f"a-{place}", at=BEFORE)))


def made(view: View, member: Kept) -> Change:
    head = view.session
    if member.is_in_use and member.use == "held":
        head = head.resume("ann", "secret", a_stamp(NOON)).session
    phase = Phase(member.state) if member.state in FINAL_STATES else Phase.APPROVAL if member.waits else Phase.PLANNING
    finalized_at = BEFORE if member.state in FINAL_STATES else None
    fields: dict[str, Any] = {"state": member.state, "phase": phase, "finalized_at": finalized_at}
    return Change(session=replace(head, last_activity_at=NOON - member.idle * DAY, **fields))


async def clean(store: Store, rules: Rules, *, dry_run: bool) -> Cleanup:
    policy = RetentionPolicy(
        age=None if rules.age is None else rules.age * DAY,
        ages={state: None if age is None else age * DAY for state, age in rules.ages.items()},
    )
    resume = ResumePolicy(idle_limits={"approval": rules.waiting * DAY})
    deps = Deps(store, FakeClock(), os.urandom, Settings(retention=policy, resume=resume))
    hours = None if rules.hours is None else rules.hours * 24
    return await cleanup(deps, Caller(owner=OWNER), hours=hours, states=rules.states, dry_run=dry_run)


# Any family, any policy -------------------------------------------------------------------------

days = st.integers(0, 6)
members = st.tuples(
    st.integers(0, 30),  # its parent, counted from there; more than there are: none
    st.sampled_from(State),
    st.integers(0, 8),
    st.booleans(),
    st.sampled_from([None, None, None, None, "held", "asked"]),
    st.sampled_from([None, None, None, -1, 0, 1]),
)


@st.composite
def families(draw: st.DrawFn) -> list[Kept]:
    family: list[Kept] = []
    for parent, *rest in draw(st.lists(members, min_size=1, max_size=12)):
        family.append(Kept(parent if parent < len(family) else None, *rest))
    return family


policies = st.builds(
    Rules,
    age=st.one_of(st.none(), days),
    ages=st.dictionaries(st.sampled_from(State), st.one_of(st.none(), days)),
    waiting=days,
    hours=st.one_of(st.none(), st.none(), days),
    states=st.one_of(st.none(), st.none(), st.sets(st.sampled_from(State)).map(tuple)),
)


@pytest.mark.parametrize("kind", ["model", "sqlite"])
@settings(deadline=None, max_examples=150 if IS_ALL else 40)
@given(family=families(), rules=policies, step=st.sampled_from([1, 2, 50]))
def test_tree_is_deleted_only_if_every_member_allows_it(
    kind: str, tmp_path_factory: pytest.TempPathFactory, family: list[Kept], rules: Rules, step: int
) -> None:
    folder: Path = tmp_path_factory.mktemp("model")
    store: Store = ModelStore() if kind == "model" else SqliteStore.open(folder / "moorage.db")
    drive(settle(store, family))
    should_go = {name_of(place) for place in expected(family, rules)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "STEP", step)
        preview = drive(clean(store, rules, dry_run=True))
        done = drive(clean(store, rules, dry_run=False))
    assert sorted(preview.session_ids) == sorted(done.session_ids) == sorted(should_go)
    left = {session.session_id for session in drive(all_sessions(store))}
    assert left == {name_of(place) for place in range(len(family))} - should_go
    for gone in done.sessions:  # by the limit it was told with, each of them was old enough
        assert gone.limit_seconds is None or (NOON - gone.last_activity_at).total_seconds() > gone.limit_seconds
    drive(store.close())

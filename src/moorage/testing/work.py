"""Runs and turns for tests: each action of a launcher in one line.

`asking`, `expiring` and the like return decisions for `apply`; `ask`, `take`, `start`, `finish` and the like apply them
to a store. They pass a claimed turn from one to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from msgspec.structs import replace

from moorage.core import work
from moorage.core.entry import Problem
from moorage.core.family import FamilyLimits, born
from moorage.core.inbox import Item, ItemState
from moorage.core.run import Mode, Run, RunQuery
from moorage.core.session import Birth, Change, Needs, Session, View
from moorage.core.turn import LEASE, LOST_AFTER, Launcher, Retry, Turn, TurnState
from moorage.core.work import Asking, Claim, TurnEnd
from moorage.ports import BirthDecision, Claimed, Decision, Store
from moorage.testing.builders import MANY, NOON, OWNER, a_stamp, new_session, said

__all__ = [
    "AGENT",
    "EVERY_STATE",
    "LATE",
    "TOO_LATE",
    "a_child_run",
    "a_claim",
    "a_launcher",
    "a_run",
    "adopt",
    "all_items",
    "all_runs",
    "ask",
    "ask_again",
    "asked_at_birth",
    "asking",
    "carry",
    "expire",
    "expiring",
    "finish",
    "give_back",
    "inbox_of",
    "launch",
    "misspeak",
    "number_tokens_anew",
    "renew",
    "send_again",
    "start",
    "states_of",
    "stop",
    "take",
    "taken",
    "token_of",
    "turns_of",
]

AGENT = "echo-agent"
LATE = LEASE + timedelta(seconds=1)  # an unstarted turn is queued again
TOO_LATE = LOST_AFTER + timedelta(seconds=1)  # a started turn is lost
EVERY_STATE = tuple(state.value for state in ItemState)


# Requests ---------------------------------------------------------------------------------------


def a_run(run_id: str = "run-1", **fields: Any) -> Run:
    """Return a run to ask for. Fields are those of Run."""
    return Run(**{"run_id": run_id, "session_id": "", "created_at": NOON, "agent_name": AGENT, **fields})


def a_child_run(run_id: str, parent: str, parent_run: str | None = None, **fields: Any) -> Run:
    """Return a run that a session asks for with a callback."""
    fields = {"mode": Mode.ASYNC_CALLBACK, **fields}
    return a_run(run_id, parent_session_id=parent, parent_run_id=parent_run, **fields)


def asking(run: Run, prompt: str = "go on", at: datetime = NOON, before: Iterable[str] = (), **how: Any) -> Decision:
    """Return a decision for `apply` that asks for a run, after the messages `before`. Others are fields of Asking."""
    *first, message = said(*before, prompt)
    return lambda view: work.ask(view, run, message, a_stamp(at), before=tuple(first), asking=Asking(**how))


def asked_at_birth(
    session_id: str, run: Run, prompt: str = "begin", at: datetime = NOON, **fields: Any
) -> BirthDecision:
    """Return a decision for `create`: a new session with a run. Fields are those of NewSession."""
    new, (message,) = new_session(session_id, **fields), said(prompt)

    def decide(birth: Birth) -> Change:
        change = born(new, birth, a_stamp(at), FamilyLimits())
        return change.then(lambda head: work.ask(View(head), run, message, a_stamp(at)))

    return decide


async def ask(store: Store, ref: str, run: Run | str, at: datetime = NOON, prompt: str = "go on", **how: Any) -> Change:
    """Ask a session for a run. Others are those of `asking`."""
    wanted = a_run(run) if isinstance(run, str) else run
    return await store.apply(OWNER, ref, asking(wanted, prompt, at, **how))


async def launch(
    store: Store, session_id: str, run: Run | str, parent: str | None = None, at: datetime = NOON, **fields: Any
) -> Session:
    """Create a session and ask its agent for a run."""
    wanted = a_run(run, agent_name=fields.get("agent_name", AGENT)) if isinstance(run, str) else run
    return await store.create(OWNER, asked_at_birth(session_id, wanted, at=at, **fields), parent=parent)


_numbers = [count(1)]  # of tokens: each claim has another one


def number_tokens_anew() -> None:
    """Restart at token 1, so that two equally filled stores have the same tokens."""
    _numbers[0] = count(1)


# Calls of a launcher ----------------------------------------------------------------------------


def a_launcher(launcher_id: str = "launcher-1", owner: str = OWNER, *, root: str | None = None) -> Launcher:
    """Return a launcher of one owner, for one family or for all."""
    return Launcher(
        launcher_id=launcher_id,
        name="a launcher",
        registered_at=NOON,
        seen_at=NOON,
        slots=1,
        owners=(owner,),
        root=root,
    )


def a_claim(launcher: str = "launcher-1", retry: Retry = Retry.RESUME, **fields: Any) -> Claim:
    """Return a launcher's request for a turn. Fields are those of Claim."""
    usual = {"launcher_id": launcher, "lease": LEASE, "lost_after": LOST_AFTER, "retries": {AGENT: retry}}
    return Claim(**{**usual, "token": f"token-{next(_numbers[0])}", **fields})


async def take(
    store: Store,
    launcher: str = "launcher-1",
    at: datetime = NOON,
    *,
    owners: tuple[str, ...] = (OWNER,),
    agents: tuple[str, ...] = (AGENT,),
    retry: Retry = Retry.RESUME,
    **options: Any,
) -> Claimed | None:
    """Claim a turn, if there is one."""
    wish = a_claim(launcher, retry, of_family=options.get("root") is not None)
    return await store.claim(owners, agents, wish, a_stamp(at, by=launcher), **options)


async def taken(store: Store, launcher: str = "launcher-1", at: datetime = NOON, **options: Any) -> Claimed:
    """Claim a turn; there must be one."""
    claimed = await take(store, launcher, at, **options)
    assert claimed is not None, "there is no turn to take"
    return claimed


async def start(store: Store, claimed: Claimed, at: datetime = NOON) -> Change:
    """Report that the agent is about to be started."""
    return await _report(store, claimed, lambda view, turn: work.started(view, turn.turn_id, turn.epoch, a_stamp(at)))


async def renew(store: Store, claimed: Claimed, at: datetime = NOON) -> Change:
    """Renew a turn."""
    return await _report(store, claimed, lambda view, turn: work.renewed(view, turn.turn_id, turn.epoch, a_stamp(at)))


async def adopt(store: Store, claimed: Claimed, launcher: str, at: datetime = NOON) -> Claimed:
    """Adopt a turn of a launcher's former process; return the turn with its new epoch."""
    change = await _report(
        store,
        claimed,
        lambda view, turn: work.adopted(
            view, turn.turn_id, turn.epoch, launcher, a_stamp(at), token=f"token-{next(_numbers[0])}"
        ),
    )
    return replace(claimed, session=change.session, turn=change.turns[0])


async def misspeak(store: Store, claimed: Claimed, line: int, at: datetime = NOON) -> Change:
    """Report a line of the agent that does not validate."""
    problem = Problem(line=line, field="role", expected="one of user, assistant", text="{}")
    return await _report(
        store, claimed, lambda view, turn: work.misspoken(view, turn.turn_id, turn.epoch, problem, a_stamp(at))
    )


async def give_back(store: Store, claimed: Claimed, at: datetime = NOON) -> Change:
    """Release a turn whose launcher ends first."""
    return await _report(store, claimed, lambda view, turn: work.released(view, turn.turn_id, turn.epoch, a_stamp(at)))


async def finish(
    store: Store, claimed: Claimed, outcome: str = "completed", at: datetime = NOON, says: str | None = None, **end: Any
) -> Change:
    """Report the end of a turn. Other fields are those of TurnEnd."""
    ended = TurnEnd(outcome=TurnState(outcome), messages=tuple(said(says, role="assistant")) if says else (), **end)
    return await _report(
        store, claimed, lambda view, turn: work.finished(view, turn.turn_id, turn.epoch, ended, a_stamp(at))
    )


async def carry(store: Store, outcome: str = "completed", at: datetime = NOON, **end: Any) -> Claimed:
    """Take the next turn, start it, and end it."""
    claimed = await taken(store, at=at)
    await start(store, claimed, at)
    await finish(store, claimed, outcome, at, **end)
    return claimed


async def _report(store: Store, claimed: Claimed, rule: Callable[[View, Turn], Change]) -> Change:
    turn = claimed.turn
    return await store.apply(
        claimed.owner, turn.session_id, lambda view: rule(view, turn), needs=Needs(turn=turn.turn_id)
    )


def token_of(claimed: Claimed) -> str:
    """Return the hold token of a claimed turn."""
    return claimed.session.token_of(claimed.turn)


async def ask_again(
    store: Store, claimed: Claimed, earlier: str, asked_id: str, at: datetime = NOON, *, waits: bool = True
) -> bool:
    """Ask an earlier approval's question again in a turn; return whether its answer was replayed."""
    change = await store.apply(
        claimed.owner,
        claimed.turn.session_id,
        lambda view: work.replayed(view, asked_id, a_stamp(at), waits=waits, token=token_of(claimed)),
        needs=Needs(approval=earlier),
    )
    return bool(change.turns)


# Time and people --------------------------------------------------------------------------------


def expiring(at: datetime) -> Decision:
    """Return a decision for `apply` that expires what is due."""
    return lambda view: work.expired(view, a_stamp(at))


async def expire(store: Store, at: datetime) -> list[str]:
    """Expire what is due, as every launcher does; return the affected sessions."""
    due = await store.overdue(at, MANY)
    for owner, session_id in due:
        await store.apply(owner, session_id, expiring(at))
    return [session_id for _, session_id in due]


async def stop(store: Store, ref: str, run_id: str | None = None, at: datetime = NOON) -> Change:
    """Stop a run, or all of a session's."""
    return await store.apply(OWNER, ref, lambda view: work.stop(view, run_id, a_stamp(at)))


async def send_again(store: Store, ref: str, item_id: str, at: datetime = NOON) -> Change:
    """Send a dead letter again."""
    return await store.apply(OWNER, ref, lambda view: work.sent_again(view, a_stamp(at)), needs=Needs(item=item_id))


# Reads ------------------------------------------------------------------------------------------


async def all_runs(store: Store, owner: str = OWNER, page: int = 100, **filters: Any) -> list[Run]:
    """Return every matching run, page after page, newest first."""
    query, runs = RunQuery(limit=page, **filters), []
    while True:
        some = await store.runs(owner, query)
        assert len(some) <= page
        runs += some.items
        if some.next is None:
            return runs
        query = replace(query, cursor=some.next)


async def all_items(
    store: Store,
    ref: str | None = None,
    owner: str = OWNER,
    states: Iterable[str] = EVERY_STATE,
    page: int = 100,
) -> list[Item]:
    """Return every item in these states, page after page, oldest first."""
    items: list[Item] = []
    cursor: str | None = None
    while True:
        some = await store.inbox(owner, ref=ref, states=tuple(states), limit=page, cursor=cursor)
        assert len(some) <= page
        items += some.items
        if (cursor := some.next) is None:
            return items


async def turns_of(store: Store, ref: str, owner: str = OWNER) -> list[Turn]:
    """Return all turns of a session, oldest first."""
    session = await store.get(owner, ref)
    return [await store.find_turn(owner, f"{session.session_id}:t{n}") for n in range(1, session.turns + 1)]


async def states_of(store: Store, ref: str) -> list[str]:
    """Return the states of a session's turns, oldest first."""
    return [turn.state.value for turn in await turns_of(store, ref)]


async def inbox_of(store: Store, ref: str) -> dict[str, str]:
    """Return the states of a session's items, oldest first."""
    return {item.item_id: item.state.value for item in await all_items(store, ref)}

"""The rules of the random test for launchers: asking, claiming, reporting, getting lost.

`WorkRules` is mixed into the machine of `model`, together with all other rules; `WorkComparison` is a machine with
little else, so it gets further.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, multiple, rule

from moorage.core import work
from moorage.core.approval import ApprovalQuery
from moorage.core.run import Join, Mode, Run, RunState
from moorage.core.session import BY_AGENT, BY_PERSON, OUTCOMES, Asker, Change, Stamp, View
from moorage.core.turn import Launcher, Retry, Turn, TurnState
from moorage.ports import Store, SweepPart
from moorage.service.launchers import all_launchers, save_launcher, set_drain
from moorage.testing.builders import (
    MANY,
    OTHER,
    OWNER,
    all_sessions,
    an_approval,
    answered,
    asked,
    drive,
    finalized,
    may_delete,
    run_out,
    said,
)
from moorage.testing.call_model import AGENTS, CallModelRules
from moorage.testing.comparison import CallOutcome, Place, Runner, somewhere
from moorage.testing.recovery_model import Taken, claims, decisions, places, questions, runs, wordings
from moorage.testing.work import EVERY_STATE, a_claim, a_run, all_items, all_runs, asked_at_birth, asking

wheres = st.builds(somewhere, places, st.integers(0, 30))
owners = st.sampled_from([OWNER, OWNER, OWNER, OTHER])
texts = st.sampled_from(["red", "green", "blue", "Ünïcode", "a longer text"])
launchers = st.sampled_from(["launcher-1", "launcher-2"])
some_agents = st.sampled_from([AGENTS, AGENTS, AGENTS, AGENTS[:1], ()])
lifetimes = st.sampled_from([None, None, timedelta(seconds=20), timedelta(minutes=20)])
steps = st.sampled_from([timedelta(0), timedelta(microseconds=1), timedelta(seconds=31), timedelta(minutes=6)])
wishes = st.fixed_dictionaries(
    {"mode": st.sampled_from([Mode.ASYNC_CALLBACK, *Mode]), "join": st.sampled_from(Join), "lifetime": lifetimes},
    optional={
        "idempotency_key": st.sampled_from(["k-1", "k-2"]),
        "correlation": st.sampled_from([1, {"a": [None]}]),
        "max_turns": st.sampled_from([1, 2]),
        "agent_name": st.sampled_from(AGENTS),  # any agent may answer in any session
        "called": st.booleans(),
        "parameters": st.sampled_from([{}, {"days": 3}]),
    },
)
holders = st.sampled_from(["ann", "bob"])
tokens = st.sampled_from([None, None, None, "token-of-ann", "token-of-bob"])
ways = st.fixed_dictionaries(
    {"queue": st.booleans(), "wakes": st.booleans()},
    optional={"holder": holders, "token": tokens, "before": st.sampled_from([(), ("one", "two")])},
)
EndRule = Callable[[View, Turn, Stamp], Change]


def _ending(outcome: str, **end: Any) -> EndRule:
    ended = work.TurnEnd(outcome=TurnState(outcome), messages=tuple(said("so", role="assistant")), **end)
    return lambda view, turn, stamp: work.finished(view, turn.turn_id, turn.epoch, ended, stamp)


def _token(launcher: str) -> str:
    """Return the token of every hold of a launcher's turns."""
    return f"token-of-{launcher}"


def _with_token(view: View, turn: Turn, stamp: Stamp) -> Change:
    change = view.session.suspend(
        stamp, by=BY_AGENT, checkpoint={"turn": turn.turn_id}, token=view.session.token_of(turn)
    )
    return work.after(view, change, stamp)


def _closing(view: View, turn: Turn, stamp: Stamp) -> Change:
    change = view.session.finalize("completed", stamp, pending=view.pending, token=view.session.token_of(turn))
    return work.after(view, change, stamp)


REPORTS: dict[str, EndRule] = {
    "started": lambda view, turn, stamp: work.started(view, turn.turn_id, turn.epoch, stamp),
    "renewed": lambda view, turn, stamp: work.renewed(view, turn.turn_id, turn.epoch, stamp),
    "released": lambda view, turn, stamp: work.released(view, turn.turn_id, turn.epoch, stamp),
    "completed": _ending("completed", result="the result"),
    "failed": _ending("failed", error="oh no"),
    "died": _ending("failed", error="killed", cut_off=True),
    "stopped": _ending("stopped", reason="stopped"),
    "suspended": _with_token,
    "closed": _closing,
}
WITHOUT_A_REPORT = ("died", "released")  # of its agent: the next turn knows that
# Most turns succeed; failures must not close every session before anything else can happen.
reports = st.sampled_from(["started", "completed", *(name for name in REPORTS if name != "closed")] * 3 + ["closed"])


class WorkRules(CallModelRules):
    """Rules of launchers and their turns."""

    # Asking -------------------------------------------------------------------------------------

    @rule(target=runs, where=wheres, wish=wishes, parent=st.one_of(st.none(), runs), prompt=texts, how=ways)
    def ask_for_run(
        self, where: Place, wish: dict[str, Any], parent: tuple[Place, str] | None, prompt: str, how: dict[str, Any]
    ) -> Any:
        """Ask for a run; its parent may be unrelated, of another owner, or deleted, but not the session itself."""
        if parent is not None and parent[0] == where:
            return multiple()  # the service refuses it
        run = self._wanted(wish, parent)
        asker = None if parent is None else Asker(run_id=parent[1], session_id=parent[0][1])
        done, _ = self.change(where, asking(run, prompt, self.clock.now(), **how), asker=asker)
        self._check_may_ask(where[0], run, done)
        return (where, run.run_id) if done else multiple()

    @rule(target=places, owner=owners, wish=wishes, agent=st.sampled_from(AGENTS))
    def launch(self, owner: str, wish: dict[str, Any], agent: str) -> Any:
        return self._launched((owner, ""), self._wanted(wish, None), None, agent)

    @rule(target=places, parent=runs, wish=wishes, agent=st.sampled_from(AGENTS))
    def launch_child(self, parent: tuple[Place, str], wish: dict[str, Any], agent: str) -> Any:
        return self._launched(parent[0], self._wanted(wish, parent), parent[0][1], agent)

    def _wanted(self, wish: dict[str, Any], parent: tuple[Place, str] | None) -> Run:
        now, fields = self.clock.now(), {name: wish[name] for name in wish if name != "lifetime"}
        lifetime = wish["lifetime"]
        return a_run(
            self.fresh("run"),
            created_at=now,
            expires_at=None if lifetime is None else now + lifetime,
            parent_session_id=None if parent is None else self._session_id_of(*parent),
            parent_run_id=None if parent is None else parent[1],
            **fields,
        )

    def _session_id_of(self, place: Place, run_id: str) -> str:
        """Return the id of a run's session: a place may hold its name, which no run keeps."""
        done, run = self.both(lambda store: store.run(place[0], run_id))
        return str(run["session_id"]) if done else place[1]

    def _launched(self, place: Place, run: Run, parent: str | None, agent: str) -> Any:
        owner, session_id = place[0], self.fresh("s")
        decide = asked_at_birth(session_id, run, at=self.clock.now(), owner=owner, agent_name=agent)
        asker = None if parent is None else Asker(run_id=run.parent_run_id)
        done, _ = self.both(lambda store: store.create(owner, decide, parent=parent, asker=asker))
        self._check_may_ask(owner, run, done)
        return (owner, session_id) if done else multiple()

    def _check_may_ask(self, owner: str, run: Run, done: bool) -> None:
        if done and run.parent_run_id in self.promises.stopped:
            parent = run.parent_run_id
            assert not self.both(lambda store: store.run(owner, parent))[0], "a stopped run asks for nothing new"

    @rule(target=runs, place=places)
    def find_run(self, place: Place) -> Any:
        """Choose a run of a session, as the parent of another."""
        _, found = self.both(lambda store: all_runs(store, place[0], session_id=place[1], open_only=True))
        return (place, found[0]["run_id"]) if found else multiple()

    # Launchers ----------------------------------------------------------------------------------

    @rule(
        target=claims,
        launcher=launchers,
        whose=st.sampled_from([(OWNER, OTHER), (OWNER,), (OTHER,)]),
        wanted=some_agents,
        root=st.one_of(st.none(), st.none(), places.map(lambda place: place[1])),
        retry=st.sampled_from(Retry),
    )
    def claim(
        self,
        launcher: str,
        whose: tuple[str, ...],
        wanted: tuple[str, ...],
        root: Any,
        retry: Retry,
    ) -> Any:
        stamp, wish = self.stamp(), a_claim(launcher, retries=dict.fromkeys(AGENTS, retry), token=_token(launcher))
        _, plain = self.both(lambda store: store.claim(whose, wanted, wish, stamp, root=root))
        return multiple() if plain is None else self._claimed(plain)

    def _claimed(self, plain: dict[str, Any]) -> Taken:
        self.note_claim(plain)
        return plain["owner"], msgspec.convert(plain["turn"], Turn)

    @rule(target=claims, launcher=launchers)
    def claim_any(self, launcher: str) -> Any:
        return self.claim(launcher, (OWNER, OTHER), AGENTS, None, Retry.RESUME)

    @rule(claimed=claims, what=reports)
    def report(self, claimed: Taken, what: str) -> None:
        self._report(claimed, REPORTS[what], cuts=what in WITHOUT_A_REPORT)

    @rule(target=claims, claimed=claims, launcher=launchers)
    def adopt(self, claimed: Taken, launcher: str) -> Any:
        done, plain = self._report(
            claimed,
            lambda view, turn, stamp: work.adopted(
                view, turn.turn_id, turn.epoch, launcher, stamp, token=_token(launcher)
            ),
        )
        return (claimed[0], msgspec.convert(plain["turns"][0], Turn)) if done else multiple()

    @rule(claimed=claims)
    def say_with_token(self, claimed: Taken) -> None:
        stamp, (owner, turn) = self.stamp(), claimed
        words, token = said("by the agent", role="assistant"), _token(str(turn.launcher_id))
        self.both(lambda store: store.append(owner, turn.session_id, words, stamp, token=token))

    def _report(self, claimed: Taken, rule_: EndRule, *, cuts: bool = False) -> CallOutcome:
        stamp, (owner, turn) = self.stamp(), claimed
        where = owner, turn.session_id
        return self.change(where, lambda view: rule_(view, turn, stamp), turn=turn.turn_id, cuts=cuts)

    @rule(
        target=claims,
        launcher=launchers,
        wording=wordings,
        waits=st.booleans(),
        ttl=st.sampled_from([None, timedelta(minutes=20)]),
        decision=decisions,
        is_answered=st.booleans(),
        how=st.sampled_from(["lost", *WITHOUT_A_REPORT]),
        pause=st.sampled_from([timedelta(0), timedelta(minutes=20)]),
        asks=st.integers(1, 2),
    )
    def cut_off(
        self,
        launcher: str,
        wording: dict[str, Any],
        waits: bool,
        ttl: timedelta | None,
        decision: str,
        is_answered: bool,
        how: str,
        pause: timedelta,
        asks: int,
    ) -> Any:
        """Cut a turn off after its question, before or after the answer, and let the next one ask the same again.

        Single steps reach this too, but rarely.
        """
        if not isinstance(claimed := self.claim_any(launcher), tuple):
            return multiple()
        self.report(claimed, "started")
        question = self.ask_in_turn(claimed, wording, waits, ttl)
        if is_answered and isinstance(question, tuple):
            self.decide(question, decision)
        if how == "lost":
            self.expire(timedelta(minutes=6))
        else:
            self.report(claimed, how)
        if not isinstance(question, tuple):
            return multiple()
        self.decide(question, decision)
        if isinstance(again := self.claim_any(launcher), tuple):
            self.report(again, "started")
            self.clock.forward(pause)
            for _ in range(asks):
                self.ask_in_turn(again, wording, waits, None)
        return again

    @rule(
        launcher=launchers,
        wish=wishes,
        agent=st.sampled_from(AGENTS),
        parent_ends=st.sampled_from(["completed", "died"]),
        below=st.booleans(),
    )
    def stop_a_parent(self, launcher: str, wish: dict[str, Any], agent: str, parent_ends: str, below: bool) -> None:
        """Stop a run whose child is still running: the child's end wakes no session, and no other child is created.

        Single steps reach this too, but rarely.
        """
        if not isinstance(claimed := self.claim_any(launcher), tuple) or not self._served(claimed):
            return
        self.report(claimed, "started")
        parent = (claimed[0], claimed[1].session_id), self._served(claimed)[0]
        child = self.launch_child(parent, wish, agent)
        if below:
            self.stop_with_what_it_asked_for(parent)
        else:
            self.stop(parent, whole=False, again=False)
        assert not isinstance(self.launch_child(parent, wish, agent), tuple), "a stopped run has no more children"
        ends = [(claimed, parent_ends)]
        if isinstance(child, tuple) and isinstance(taken := self.claim_any(launcher), tuple):
            self.report(taken, "started")
            ends.insert(wish["join"] is Join.EACH, (taken, "completed"))
        for turn, end in ends:
            self.report(turn, end)

    def _served(self, claimed: Taken) -> list[str]:
        return sorted(self.promises.serving[claimed[1].turn_id].run_ids)

    @rule(launcher=launchers, drain=st.sampled_from([False, False, True]))
    def look_at_launchers(self, launcher: str, drain: bool) -> None:
        now = self.clock.now()
        seen = Launcher(launcher_id=launcher, name="l", registered_at=now, seen_at=now)
        self.both(lambda store: save_launcher(store, seen))
        self.both(lambda store: all_launchers(store))
        self.both(lambda store: set_drain(store, launcher, drain))
        self.both(lambda store: store.turns_of(launcher))

    # Time and people ----------------------------------------------------------------------------

    @rule(by=steps)
    def expire(self, by: timedelta) -> None:
        now = self.clock.forward(by)

        async def overdue(store: Store) -> list[tuple[str, str]]:
            return sorted(await store.overdue(now, MANY))

        for place in self.both(overdue)[1]:
            self.judge((place[0], place[1]))
        assert self.both(overdue)[1] == [], "what time does is done"

    @rule(where=places)
    def expire_one(self, where: Place) -> None:
        self.judge(where)

    @rule(run=runs, whole=st.booleans(), again=st.booleans())
    def stop(self, run: tuple[Place, str], whole: bool, again: bool) -> None:
        stamp, (where, run_id) = self.stamp(), run
        self.change(where, lambda view: work.stop(view, None if whole else run_id, stamp, again=again))

    @rule(owner=owners)
    def send_again(self, owner: str) -> None:
        stamp = self.stamp()
        _, aside = self.both(lambda store: all_items(store, None, owner, ("dead_letter",)))
        for item in aside[:1]:
            self.promises.sent_again.add(item["item_id"])
            self.change((owner, item["session_id"]), lambda view: work.sent_again(view, stamp), item=item["item_id"])

    def follow(self, where: Place, rule_: Callable[[View], Change], stamp: Stamp) -> None:
        """Apply a rule to a session and to its work."""
        self.change(where, lambda view: work.after(view, rule_(view), stamp))

    # Looking ------------------------------------------------------------------------------------

    @rule(
        owner=owners,
        page=st.integers(1, 3),
        filters=st.fixed_dictionaries(
            {},
            optional={
                "session_id": places.map(lambda place: place[1]),
                "parent_session_id": places.map(lambda place: place[1]),
                "agent": st.sampled_from(AGENTS),
                "state": st.sampled_from([state.value for state in RunState]),
                "open_only": st.booleans(),
            },
        ),
    )
    def list_runs(self, owner: str, page: int, filters: dict[str, Any]) -> None:
        self.both(lambda store: all_runs(store, owner, page, **filters))

    @rule(where=wheres, of_all=st.booleans(), states=st.sets(st.sampled_from(EVERY_STATE)), page=st.integers(1, 3))
    def list_inbox(self, where: Place, of_all: bool, states: set[str], page: int) -> None:
        owner, ref = where
        self.both(lambda store: all_items(store, None if of_all else ref, owner, tuple(sorted(states)), page))

    @rule(run=runs, claimed=claims)
    def look(self, run: tuple[Place, str], claimed: Taken) -> None:
        self.both(lambda store: store.run(run[0][0], run[1]))
        self.both(lambda store: store.find_turn(claimed[0], claimed[1].turn_id))
        self.both(lambda store: store.run_by_key(run[0][0], "k-1"))


class WorkComparison(WorkRules):
    """A random test of work alone, so that longer sequences of steps are likely.

    In the end no more faults occur, and every run must end.
    """

    def teardown(self) -> None:
        """Let people and launchers complete their work, and check that nothing is left over."""
        for _ in range(MANY):
            if not self._go_on():
                break
        for owner in (OWNER, OTHER):
            self._check_nothing_is_left(owner)
        super().teardown()

    def _check_nothing_is_left(self, owner: str) -> None:
        assert self.both(lambda store: all_runs(store, owner, open_only=True))[1] == []
        assert self.both(lambda store: all_items(store, None, owner, ("held", "waiting", "given")))[1] == []

    def _go_on(self) -> bool:
        """Do one round in which everything succeeds; return whether there was anything to do."""
        for owner in (OWNER, OTHER):
            self._do_what_people_do(owner)
        self.expire(timedelta(minutes=6))
        return self._carry_one()

    def _do_what_people_do(self, owner: str) -> None:
        for approval in self.both(lambda store: store.approvals(owner, ApprovalQuery(limit=MANY)))[1]:
            for is_over in (True, False):
                self.answer(((owner, approval["session_id"]), approval["approval_id"]), is_over)
        for session in self.both(lambda store: all_sessions(store, owner, active_only=True))[1]:
            if session["suspended_by"] == BY_PERSON:
                self.resume((owner, session["session_id"]))
            if session["live_turn"] is None:
                self.release((owner, session["session_id"]))

    def _carry_one(self) -> bool:
        stamp, wish = self.stamp(), a_claim("launcher-3")  # this launcher was not told to drain
        _, plain = self.both(lambda store: store.claim((OWNER, OTHER), AGENTS, wish, stamp))
        if plain is None:
            return False
        claimed = self._claimed(plain)
        assert self._report(claimed, REPORTS["started"])[0]
        assert self._report(claimed, REPORTS["completed"])[0]
        return True

    @initialize(target=places)
    def begin(self) -> Any:
        wish = {"mode": Mode.ASYNC_POLL, "join": Join.EACH, "lifetime": None}
        return multiple(*(self.launch(OWNER, wish, agent) for agent in (*AGENTS, AGENTS[0])))

    @rule(where=places, by=st.sampled_from([BY_PERSON, BY_AGENT]))
    def suspend(self, where: Place, by: str) -> None:
        stamp = self.stamp()
        self.follow(where, lambda view: view.session.suspend(stamp, by=by), stamp)

    @rule(where=places)
    def resume(self, where: Place) -> None:
        stamp = self.stamp()
        self.follow(where, lambda view: view.session.resume("ann", "token-of-ann", stamp), stamp)

    @rule(where=places)
    def release(self, where: Place) -> None:
        stamp = self.stamp()
        self.follow(where, lambda view: view.session.release(stamp), stamp)

    @rule(where=places, outcome=st.sampled_from(OUTCOMES), chance=st.integers(0, 3))
    def finalize(self, where: Place, outcome: str, chance: int) -> None:
        if chance == 0:  # rarely, or no session is left for work
            self.change(where, finalized(outcome, self.clock.now()))

    @rule(where=places, force=st.booleans(), chance=st.integers(0, 3))
    def delete(self, where: Place, force: bool, chance: int) -> None:
        decide, stamp = may_delete(where[1], force=force, reason="random"), self.stamp()
        self.both(lambda store: store.delete_tree(*where, decide, stamp, dry_run=chance != 0))

    @rule(owner=owners, idle=steps)
    def sweep(self, owner: str, idle: timedelta) -> None:
        stamp = self.stamp()

        async def sweep(store: Store) -> list[Any]:
            before = stamp.at - idle - timedelta(minutes=10)
            step = await store.sweep(owner, lambda members: _why(members, stamp), stamp, SweepPart(before=before))
            return step.gone

        self.both(sweep)

    @rule(target=questions, where=places, waits=st.booleans(), ttl=lifetimes)
    def ask_person(self, where: Place, waits: bool, ttl: timedelta | None) -> Any:
        at, name = self.clock.now(), self.fresh("a")
        approval = an_approval(where[1], name, at, waits=waits, expires_at=None if ttl is None else at + ttl)
        done, _ = self.change(where, asked(approval))
        return (where, name) if done else multiple()

    @rule(question=questions, expires=st.booleans())
    def answer(self, question: tuple[Place, str], expires: bool) -> None:
        decide = run_out(self.clock.now()) if expires else answered("approve", self.clock.now())
        self.change(question[0], decide, approval=question[1])


def _why(members: list[Any], stamp: Stamp) -> str | None:
    return None if any(member.is_in_use(stamp.at) for member in members) else "random"


def work_compared_with_model(make: Callable[[], Store], run: Runner = drive) -> type[WorkComparison]:
    """Return a machine that compares the work of `make`'s store with that of the model."""

    class ComparedWork(WorkComparison):
        def make_store(self) -> Store:
            return make()

        def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
            return run(coroutine)

    return ComparedWork

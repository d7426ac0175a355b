"""The rules of the random test for cut-off turns, stops, repeated requests and retries.

These rules call the service, as doors and launchers do: matching a question with its answer, finding a prompt and
listing a tree are not done by the store. `Promises` checks the consequences.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle as Pool
from hypothesis.stateful import multiple, rule

from moorage.core import work
from moorage.core.agent import AgentDefinition, AgentKind
from moorage.core.approval import hash_of_plan
from moorage.core.turn import Turn
from moorage.ports import Decision, Store
from moorage.service.approvals import decide_approval, request_approval
from moorage.service.deps import Caller, Deps
from moorage.service.leases import extend_leases
from moorage.service.runs import retry_run, stop_run, stop_session
from moorage.testing.builders import MANY
from moorage.testing.comparison import CallOutcome, Comparison, Place
from moorage.testing.promises import OPEN, AgentQuestion, Plain, Promises
from moorage.testing.work import all_items, all_runs

Taken = tuple[str, Turn]  # the owner and the turn that a launcher got
Served = Callable[[Deps], Coroutine[Any, Any, Any]]

places: Pool[Place] = Pool("places")
runs: Pool[tuple[Place, str]] = Pool("runs")
claims: Pool[Taken] = Pool("claims")
questions: Pool[tuple[Place, str]] = Pool("questions")

# Few of each, so that equal and similar requests occur often.
wordings = st.fixed_dictionaries(
    {
        "question": st.sampled_from(["Apply?", "Apply?", "Really?"]),
        "options": st.sampled_from([(), (), ("later",)]),
        "plan": st.sampled_from([{"steps": 1}, {"steps": 1}, None]),
    }
)
lifetimes = st.sampled_from([None, None, timedelta(seconds=20), timedelta(minutes=20)])
decisions = st.sampled_from(["approve", "reject"])
clock_steps = st.sampled_from([timedelta(minutes=minutes) for minutes in (20, -20, 120, -120)])


class RecoveryRules(Comparison):
    """Rules of stops, interruptions, repeated requests and retries."""

    def __init__(self) -> None:
        super().__init__()
        self.promises = Promises()

    def change(self, where: Place, decide: Decision, *, cuts: bool = False, **options: Any) -> CallOutcome:
        """Apply a decision to a session in both, and record its effect; see `Promises.changed`."""
        done, plain = super().change(where, decide, **options)
        if done:
            self.promises.changed(plain, cuts=cuts)
        return done, plain

    def note_claim(self, claim: Plain) -> None:
        """Check that a claimed turn may begin."""
        callbacks = [item for item in claim["items"] if item["kind"] == "callback"]
        runs = {item["item_id"]: item["item_id"].removeprefix("callback:") for item in callbacks}
        parents = {item_id: self._parent_of(claim["owner"], run_id) for item_id, run_id in runs.items()}
        self.promises.claimed(claim, parents)

    def _parent_of(self, owner: str, run_id: str) -> str | None:
        done, run = self.both(lambda store: store.run(owner, run_id))
        return run["parent_run_id"] if done else None

    def served(self, call: Served) -> CallOutcome:
        """Call the service on both stores, with the same randomness."""
        self.made += 1
        chance = self.made.to_bytes(16, "big")

        def deps(store: Store) -> Deps:
            return Deps(store, self.clock, lambda size: chance[-size:], find_agent=_found)

        return self.both(lambda store: call(deps(store)))

    # Questions of a turn ------------------------------------------------------------------------

    @rule(target=questions, claimed=claims, wording=wordings, waits=st.booleans(), ttl=lifetimes)
    def ask_in_turn(self, claimed: Taken, wording: dict[str, Any], waits: bool, ttl: timedelta | None) -> Any:
        """Let an agent ask; if it was cut off and asks the same again, it gets the answer."""
        (owner, turn), asked_id = claimed, self.fresh("a")

        def ask(deps: Deps) -> Any:
            return request_approval(
                deps,
                Caller(owner=owner, by="agent"),
                turn.session_id,
                **wording,
                expires_in=None if ttl is None else ttl.total_seconds(),
                waits=waits,
                approval_id=asked_id,
                turn=turn,
            )

        expected = self._expected_replay(owner, turn, wording)
        done, approval = self.served(ask)
        if not done:
            return multiple()
        if approval["approval_id"] == asked_id:
            assert expected is None, "the answer is replayed"
            self.promises.asked[asked_id] = approval
            return (owner, turn.session_id), asked_id
        assert approval["approval_id"] == expected
        self.promises.replayed(turn.turn_id, approval)
        assert self.served(ask) == (True, approval), "an answer that got lost on the way comes again"
        return multiple()

    def _expected_replay(self, owner: str, turn: Turn, wording: dict[str, Any]) -> str | None:
        wanted = AgentQuestion(wording["question"], wording["options"], hash_of_plan(wording["plan"]))
        _, found = self.both(lambda store: all_runs(store, owner, session_id=turn.session_id, open_only=True))
        return self.promises.next_replay(turn.turn_id, wanted, {run["run_id"] for run in found}, self.clock.now())

    @rule(question=questions, decision=decisions)
    def decide(self, question: tuple[Place, str], decision: str) -> None:
        """Let a person answer a question."""
        (owner, _), approval_id = question
        done, approval = self.served(lambda deps: decide_approval(deps, Caller(owner=owner), approval_id, decision))
        if done:
            self.promises.asked[approval_id] = approval

    # Stops --------------------------------------------------------------------------------------

    @rule(where=places)
    def stop_tree(self, where: Place) -> None:
        """Stop a session and all its descendants, and check that all are marked."""
        owner, session_id = where
        done, stopped = self.served(lambda deps: stop_session(deps, Caller(owner=owner), session_id))
        if done:
            for each in stopped:
                self._note_stop(owner, session_id=each)

    @rule(run=runs)
    def stop_with_what_it_asked_for(self, run: tuple[Place, str]) -> None:
        """Stop a run and its descendants, in all their sessions."""
        (owner, _), run_id = run
        done, _ = self.served(lambda deps: stop_run(deps, Caller(owner=owner), run_id))
        if done:
            self.promises.stopped.add(run_id)
            self._note_stop_below(owner, run_id)

    def _note_stop(self, owner: str, **filters: Any) -> None:
        _, found = self.both(lambda store: all_runs(store, owner, **filters))
        assert all(run["stop_requested"] for run in found if run["state"] in OPEN), "a stop leaves nothing unmarked"
        self.promises.stopped |= {run["run_id"] for run in found if run["stop_requested"] or run["state"] == "stopped"}

    def _note_stop_below(self, owner: str, above: str) -> None:
        _, found = self.both(lambda store: all_runs(store, owner))
        for run in found:
            if run["parent_run_id"] == above and run["state"] in OPEN:
                assert run["stop_requested"], "a stop leaves nothing unmarked"
                self.promises.stopped.add(run["run_id"])
                self._note_stop_below(owner, run["run_id"])

    # Retries ------------------------------------------------------------------------------------

    @rule(target=runs, run=runs)
    def retry(self, run: tuple[Place, str]) -> Any:
        """Retry a run, which is refused unless it has failed or was never taken."""
        return self._retried(*run)

    @rule(target=runs, owner=st.sampled_from(["ann", "ann", "bob"]), state=st.sampled_from(["failed", "expired"]))
    def retry_what_failed(self, owner: str, state: str) -> Any:
        """Retry the last unsuccessful run of an owner."""
        _, found = self.both(lambda store: all_runs(store, owner, state=state))
        return self._retried((owner, found[0]["session_id"]), found[0]["run_id"]) if found else multiple()

    def _retried(self, where: Place, run_id: str) -> Any:
        owner = where[0]
        done, again = self.served(lambda deps: retry_run(deps, Caller(owner=owner), run_id))
        if not done:
            return multiple()
        assert again["retry_of"] == run_id
        is_first = run_id not in self.promises.retries
        assert self.promises.retries.setdefault(run_id, again["run_id"]) == again["run_id"], "a run is retried once"
        if is_first:
            self._check_retry(owner, run_id, again)
        return (owner, again["session_id"]), again["run_id"]

    def _check_retry(self, owner: str, run_id: str, again: Plain) -> None:
        _, items = self.both(lambda store: all_items(store, again["session_id"], owner))
        assert not [item for item in items if item["run_id"] == run_id and item["state"] == "dead_letter"]
        asked = [item for item in items if item["run_id"] == again["run_id"] and item["kind"] == "message"]
        assert again["asked_entry"] in [item["entry"] for item in asked], "the prompt is asked again"

    # The clock ----------------------------------------------------------------------------------

    @rule(by=clock_steps)
    def step_clock(self, by: timedelta) -> None:
        """Set the clock, and extend the leases as servers do: no started turn is lost."""
        self.clock.step(by)
        now = self.clock.now()
        self.both(lambda store: extend_leases(store, lambda: now))

        async def overdue(store: Store) -> list[tuple[str, str]]:
            return sorted(await store.overdue(now, MANY))

        for owner, session_id in self.both(overdue)[1]:
            _, change = self.judge((owner, session_id))
            assert not [turn for turn in change["turns"] if turn["state"] == "lost"], "a clock step is no death"

    def judge(self, where: Place) -> CallOutcome:
        """Apply due expiries to a session."""
        stamp = self.stamp()
        return self.change(where, lambda view: work.expired(view, stamp))


def _found(name: str) -> AgentDefinition:
    return AgentDefinition(name=name, kind=AgentKind.BUILTIN)

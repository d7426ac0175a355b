"""The rules of the random test for agents that answer in the calling process.

A call is stored with its answer in one commit, or its turn begins in the commit that asks and ends in another.
Launchers, people and other calls get in between.
"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import multiple, rule

from moorage.core import work
from moorage.core.run import Run
from moorage.core.session import Change, View
from moorage.core.turn import Retry, Turn, TurnState
from moorage.core.work import AnotherTurn, TurnEnd
from moorage.ports import Store
from moorage.testing.builders import said
from moorage.testing.comparison import Place
from moorage.testing.promises import Plain
from moorage.testing.recovery_model import RecoveryRules, Taken, claims, places, runs
from moorage.testing.work import a_claim, a_run

AGENTS = ("echo-agent", "hello-world")
HERE = "asking-process"

agents = st.sampled_from(AGENTS)
endings = st.sampled_from(
    [
        TurnEnd(messages=tuple(said("the answer", role="assistant")), result="the answer", metadata={"n": 1}),
        TurnEnd(outcome=TurnState.FAILED, error="no luck", reason="agent_failed"),
    ]
)


class CallModelRules(RecoveryRules):
    """Rules of processes that answer calls themselves."""

    @rule(target=runs, where=places, agent=agents, end=endings, missed=st.sampled_from([0, 0, 0, 1]))
    def call_with_answer(self, where: Place, agent: str, end: TurnEnd, missed: int) -> Any:
        """Store question, run, turn and answer in one commit, unless a turn was `missed` or another is running."""
        (done, head), run = self.both(lambda store: store.get(*where)), self._call(agent)
        known, stamp = (head["turns"] if done else 0) - missed, self.stamp()

        async def answer(store: Store) -> Change | None:
            def decide(view: View) -> Change:
                (message,) = said("tell me")
                claim = a_claim(HERE, Retry.NEVER)
                return work.answered_here(view, run, message, end, stamp, claim, after_turns=known)

            try:
                return await store.apply(*where, decide)
            except AnotherTurn:
                return None

        done, change = self.both(answer)
        if not done or change is None:
            return multiple()
        assert not missed, "an answer that was made without knowing of a turn is not kept"
        [settled], [turn] = change["runs"], change["turns"]
        assert (settled["state"], turn["state"]) == (end.outcome.value, end.outcome.value)
        assert not change["items"], "nothing of a call that is answered at once waits"
        self.promises.changed(change)
        return where, run.run_id

    @rule(target=claims, where=places, agent=agents)
    def call_and_begin(self, where: Place, agent: str) -> Any:
        """Ask, and begin the turn in the same commit; `report` of a claim ends it."""
        run, stamp, claim = self._call(agent), self.stamp(), a_claim(HERE, Retry.NEVER)
        (message,) = said("tell me")
        done, change = self.change(where, lambda view: work.ask(view, run, message, stamp, claim))
        return self._begun(where, change) if done else multiple()

    @rule(target=claims, run=runs)
    def begin_queued_call(self, run: tuple[Place, str]) -> Any:
        """Begin the turn of a queued run in the calling process, if it is the next."""
        (where, run_id), stamp, claim = run, self.stamp(), a_claim(HERE, Retry.NEVER)
        done, change = self.change(where, lambda view: work.take_here(view, run_id, claim, stamp))
        return self._begun(where, change) if done else multiple()

    def _call(self, agent: str) -> Run:
        return a_run(self.fresh("run"), created_at=self.clock.now(), agent_name=agent, called=True)

    def _begun(self, where: Place, change: Plain) -> Taken | Any:
        begun = [turn for turn in change["turns"] if turn["state"] == "running"]
        if not begun:
            return multiple()
        given = [item for item in change["items"] if item["state"] == "given"]
        served = {item["run_id"] for item in given}
        at_work = [run for run in change["runs"] if run["run_id"] in served]
        assert len(at_work) == 1, "a turn that begins where it is asked for serves one run"
        claim = {"owner": where[0], "session": change["session"], "turn": begun[0], "items": given, "runs": at_work}
        self.note_claim(claim)
        return where[0], msgspec.convert(begun[0], Turn)

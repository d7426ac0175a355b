"""The promises about runs in a random test, recorded apart from every store.

Two stores that agree may both be wrong. So the machine records what happens to runs, and checks the consequences: a
stopped run has no more turns, no turn begins before a question is decided, a turn after a cut-off one knows that, an
answer is replayed once, to its own run and never after its time.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

Plain = dict[str, Any]

ANSWERED = ("approved", "rejected", "answered")
OPEN = ("queued", "running")


class AgentQuestion(NamedTuple):
    """A question of an agent; equal if all fields are."""

    question: str
    options: tuple[str, ...]
    plan_hash: str | None


class Serving(NamedTuple):
    """One claim of a turn: its input, and the answers replayed since."""

    turn: Plain
    run_ids: frozenset[str]
    answers: tuple[Plain, ...]  # items with decisions, oldest first
    replayed: set[str]


class Promises:
    """The observed runs and questions."""

    def __init__(self) -> None:
        self.stopped: set[str] = set()  # runs
        self.cut_off: set[str] = set()  # runs whose last turn ended without a report
        self.sent_again: set[str] = set()  # items that a person sent again in spite of a stop
        self.serving: dict[str, Serving] = {}  # by turn: its last claim
        self.asked: dict[str, Plain] = {}  # approvals by their ids
        self.retries: dict[str, str] = {}  # runs, by the failed ones they repeat

    # Events -------------------------------------------------------------------------------------

    def changed(self, change: Plain, *, cuts: bool = False) -> None:
        """Record the effect of a change on runs and questions. With `cuts`, a turn ends without its agent's report."""
        self.stopped |= {run["run_id"] for run in change["runs"] if run["stop_requested"] or run["state"] == "stopped"}
        self.asked |= {each["approval_id"]: each for each in change["approvals"]}
        for turn in change["turns"]:
            self._turn_changed(turn, change, cuts=cuts)

    def _turn_changed(self, turn: Plain, change: Plain, *, cuts: bool) -> None:
        was_at_work = cuts and turn["started_at"] is not None
        if turn["state"] == "lost" or (was_at_work and turn["state"] in ("failed", "queued")):
            left = {run["run_id"] for run in change["runs"] if run["state"] in OPEN}
            self.cut_off |= left
            if not turn["stop_requested"]:
                self._check_questions_are_kept(change["approvals"], left)
        elif turn["state"] in ("completed", "failed", "stopped") and turn["turn_id"] in self.serving:
            self.cut_off -= self.serving[turn["turn_id"]].run_ids

    def _check_questions_are_kept(self, approvals: list[Plain], left: set[str]) -> None:
        for each in approvals:
            assert each["state"] != "withdrawn" or not left & {*each["run_ids"]}, "a cut withdraws no question"

    def claimed(self, claim: Plain, parents: dict[str, str | None]) -> None:
        """Record a claim and check that the turn may begin; `parents` are the runs that its callbacks are for."""
        turn, run_ids = claim["turn"], {run["run_id"] for run in claim["runs"]}
        assert claim["items"], "never an empty turn"
        assert not claim["session"]["pending_approvals"], "no turn begins before the decision"
        assert not run_ids & self.stopped, "a stopped run starts no turn"
        woken = {item["item_id"]: parents.get(item["item_id"]) for item in claim["items"]}
        late = {item_id for item_id, parent in woken.items() if parent in self.stopped} - self.sent_again
        assert not late, "a callback to a stopped run wakes no session"
        assert turn["cut_off"] or not run_ids & self.cut_off, "a turn after a cut is told so"
        answers = tuple(item for item in claim["items"] if item["kind"] == "decision")
        self.serving[turn["turn_id"]] = Serving(turn, frozenset(run_ids), answers, set())

    # Replays ------------------------------------------------------------------------------------

    def next_replay(self, turn_id: str, wanted: AgentQuestion, open_runs: Iterable[str], now: datetime) -> str | None:
        """Return the approval whose answer a live turn must get for that question; None if a person is asked."""
        serving = self.serving[turn_id]
        if not serving.turn["cut_off"]:
            return None
        for item in serving.answers:
            approval = self.asked[item["item_id"].removeprefix("decision:")]
            is_due = approval["expires_at"] is not None and datetime.fromisoformat(approval["expires_at"]) <= now
            is_old = is_due or approval["approval_id"] in serving.replayed or item["run_id"] not in open_runs
            if approval["state"] in ANSWERED and not is_old and question_of(approval) == wanted:
                return str(approval["approval_id"])
        return None

    def replayed(self, turn_id: str, approval: Plain) -> None:
        """Check that the right turn gets a replayed answer, and record it."""
        serving = self.serving[turn_id]
        is_its_own = not approval["run_ids"] or serving.run_ids & {*approval["run_ids"]}
        assert is_its_own, "an answer is never replayed to another run"
        serving.replayed.add(approval["approval_id"])


def question_of(approval: Plain) -> AgentQuestion:
    """Return the question of an approval."""
    return AgentQuestion(approval["question"], tuple(approval["options"]), approval["plan_hash"])

"""Eight hosts at once on one store, and hooks that die any time: nothing lost, nothing doubled, no hook blocked."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from moorage import sync
from moorage.core.entry import Entry
from tests.doors.hooks.running import (
    HOST,
    PATIENCE,
    Json,
    Running,
    Told,
    event,
    hook,
    hurried,
    post_tool_use,
    pre_tool_use,
    spooled,
    subagent_start,
    subagent_stop,
)

SENDERS, AGENTS = 8, 4
EACH = 6 * AGENTS + 1  # events of a sender
KILLED = 0.2  # of the events, once
LONGEST = 15.0  # seconds for one hook, when twelve share a machine with whatever else it does


class Sender:
    """A host with several agents at a time; an event whose hook was killed before its answer is sent again.

    So is an event that may be lost: on an overloaded machine a hook says last that it was.
    """

    def __init__(self, number: int, seed: int, moor: sync.Moorage) -> None:
        self.number, self.moor = number, moor
        self.chance = random.Random(seed * 100 + number)
        self.answered: list[Told] = []
        self.killed = 0

    def run(self) -> None:
        """Tell the stories of all agents, mixed, each in its order."""
        waiting = [self.story(f"agent-{self.number}-{count}") for count in range(AGENTS)]
        waiting.append([(event("UserPromptSubmit", prompt=f"from {self.number}", prompt_id=f"p{self.number}"), ())])
        while waiting := [story for story in waiting if story]:
            sent, args = self.chance.choice(waiting).pop(0)
            self.tell(sent, args)

    def story(self, agent: str) -> list[tuple[Json, tuple[str, ...]]]:
        """Return the events of one agent and of a session of our own beside it."""
        call, task = f"toolu-{agent}", f"task-{agent}"
        launched = [(post_tool_use(agent, call), ()), (subagent_start(agent), ())]
        self.chance.shuffle(launched)
        return [
            (pre_tool_use(call), ()),
            ({"agent_name": "architect", "task_id": task, "create": True}, ("pre-delegate",)),
            *launched,
            ({"agent": "architect", "task_id": task, "output": f"{task} done"}, ("subagent-stop",)),
            (subagent_stop(agent, f"{agent} done"), ()),
        ]

    def tell(self, sent: Json, args: tuple[str, ...]) -> None:
        """Tell, perhaps die, tell again; an answer without complaint means that it is stored."""
        if self.chance.random() < KILLED and args != ("pre-delegate",) and self.dies(sent, args):
            self.killed += 1
        done = self.told(sent, args)
        self.answered.append(done)
        if not done.err:
            self.check_stored(sent)

    def told(self, sent: Json, args: tuple[str, ...]) -> Told:
        """The end of a hook that does not fear for its event. A question counts as often as it is asked: ask once."""
        while True:
            done = Running(sent, *args, hurry=args != ("pre-delegate",)).done(PATIENCE)
            if "may be lost" not in done.err:
                return done

    def dies(self, sent: Json, args: tuple[str, ...]) -> bool:
        """Whether it was killed before it had ended."""
        running = Running(sent, *args)
        running.send()
        time.sleep(self.chance.uniform(0.02, 0.25))
        return running.kill().code == -signal.SIGKILL

    def check_stored(self, sent: Json) -> None:
        match sent.get("hook_event_name"):
            case "SubagentStart":
                assert self.moor.get(sent["agent_id"]).parent_session_id == HOST
            case "PostToolUse":
                assert self.moor.get(sent["tool_response"]["agentId"]).metadata["tool_use_id"] == sent["tool_use_id"]
            case "SubagentStop":
                assert self.moor.get(sent["agent_id"]).state.value == "completed"
            case None if "output" in sent:
                (session,) = self.moor.list(task_id=sent["task_id"])
                assert session.state.value == "completed"


@pytest.mark.parametrize("seed", [7])
def test_two_hundred_events_from_eight_senders_with_deaths_among_them(
    moor: sync.Moorage, home: Path, seed: int
) -> None:
    assert hook(event("SessionStart", source="startup")).answer == {}
    senders = [Sender(number, seed, moor) for number in range(SENDERS)]
    with ThreadPoolExecutor(SENDERS) as threads:
        for done in [threads.submit(sender.run) for sender in senders]:
            done.result(PATIENCE * 2)

    answered = [each for sender in senders for each in sender.answered]
    assert len(answered) == SENDERS * EACH == 200
    assert {each.code for each in answered} == {0}, "no host was stopped"
    assert max(each.seconds for each in answered) < LONGEST, "or blocked"
    assert sum(sender.killed for sender in senders) >= 10, "there were deaths"
    assert all("put off until" in each.err or "counted later" in each.err for each in answered if each.err)
    assert hook(event("Stop", session_id="the-end")).answer == {}
    assert not spooled(home)
    assert not spooled(home, ".refused")
    assert_complete(moor)


def assert_complete(moor: sync.Moorage) -> None:
    """Everything that was told is there, once."""
    agents = [f"agent-{number}-{count}" for number in range(SENDERS) for count in range(AGENTS)]
    for agent in agents:
        session = moor.get(agent)
        assert (session.state.value, session.parent_session_id) == ("completed", HOST)
        assert [(entry.role, entry.text) for entry in moor.messages(agent)] == [
            ("user", "Look into it"),
            ("assistant", f"{agent} done"),
        ]
        (own,) = moor.list(task_id=f"task-{agent}")
        assert (own.state.value, [entry.text for entry in moor.messages(own.id)]) == (
            "completed",
            [f"task-{agent} done"],
        )
    said = Counter(entry.text for entry in moor.messages(HOST, limit=100))
    assert said == Counter(f"from {number}" for number in range(SENDERS))
    calls = Counter(each.delegation_id for each in moor.delegations(limit=1000) if each.host_session_id)
    assert calls == Counter(f"{HOST}:toolu-{agent}" for agent in agents)
    assert sum(1 for each in moor.delegations(limit=1000) if not each.host_session_id) == len(agents)
    sessions = list(moor.list(limit=1000))
    assert len(sessions) == 2 * len(agents) + 2
    for session in sessions:
        entries: list[Entry] = moor.log(session.id, limit=1000).items
        assert [entry.number for entry in entries] == list(range(1, session.last_entry + 1))
    assert moor.check() == []


# Races of two -----------------------------------------------------------------------------------


def at_once(*events: Json) -> list[Told]:
    """Send events at the same time; what became of each."""
    running = [Running(each, hurry=False) for each in events]
    started = threading.Barrier(len(running))

    def send(each: Running) -> Told:
        started.wait(PATIENCE)
        return each.done()

    with ThreadPoolExecutor(len(running)) as threads:
        return list(threads.map(send, running))


def test_starts_of_a_closed_agent_at_once_make_one_fork(moor: sync.Moorage) -> None:
    hook(subagent_start("a1"))
    hook(subagent_stop("a1"))
    told = at_once(*[subagent_start("a1")] * 5)
    assert {(each.code, each.err) for each in told} == {(0, "")}
    assert len({each.json["hookSpecificOutput"]["additionalContext"] for each in told}) == 1
    assert [session.session_name for session in moor.list() if session.forked_from] == ["a1:latest"]


def test_first_events_of_a_host_at_once_make_one_session_each(moor: sync.Moorage) -> None:
    both = [subagent_start("a1"), subagent_start("a2"), post_tool_use("a1")]
    told = at_once(*both, event("SessionStart"), event("Stop"))
    assert {(each.code, each.err) for each in told} == {(0, "")}
    family = {(session.id, session.parent_session_id) for session in moor.list()}
    assert family == {(HOST, None), ("a1", HOST), ("a2", HOST)}
    holders = {session.id: session.hold.holder for session in moor.list() if session.hold}
    assert holders[HOST] == f"claude-code:{HOST}", "the first holder"


def test_prompt_reported_by_several_hooks_is_stored_once(moor: sync.Moorage, tmp_path: Path) -> None:
    transcript = tmp_path / "agent.jsonl"
    transcript.write_text('{"type": "user", "message": {"role": "user", "content": "Look into it"}}\n')
    for number in range(3):
        agent = f"a{number}"
        hook(subagent_start(agent))
        ending = subagent_stop(agent, "Found.", agent_transcript_path=str(transcript))
        told = at_once(post_tool_use(agent, f"toolu_{number}"), ending)
        assert {(each.code, each.err) for each in told} == {(0, "")}
        assert [entry.text for entry in moor.messages(agent)] == ["Look into it", "Found."]


def test_ends_of_agents_and_of_their_host_at_once_leave_nothing_running(moor: sync.Moorage) -> None:
    for name in ("a1", "a2", "a3"):
        hook(subagent_start(name))
    told = at_once(subagent_stop("a1"), subagent_stop("a2"), event("SessionEnd", reason="other"))
    assert {(each.code, each.err) for each in told} == {(0, "")}
    states = {session.id: session.state.value for session in moor.list()}
    assert states == {HOST: "suspended", "a1": "completed", "a2": "completed", "a3": "suspended"}


def test_a_host_with_more_agents_than_a_page_leaves_none_of_them_running(moor: sync.Moorage, home: Path) -> None:
    hook(event("SessionStart", source="startup"))
    for number in range(130):
        moor.append(moor.create("general-purpose", session_id=f"a{number}", parent=HOST).id, "at work")
    assert hurried(event("SessionEnd", reason="other")).code == 0
    for _ in range(10):  # what one does not get done in its time is put off, and the next goes on with it
        if spooled(home):
            assert hook(event("Stop", session_id="another")).code == 0
    assert {session.state.value for session in moor.list(parent=HOST, limit=1000)} == {"suspended"}


def test_a_family_that_is_full_is_complained_of_and_the_rest_goes_on(moor: sync.Moorage, home: Path) -> None:
    (home / "config.toml").write_text("[family]\nopen_children = 2\n")
    told = [hook(subagent_start(name)) for name in ("a1", "a2", "a3")]
    assert [len(each.complaints) for each in told] == [0, 0, 1]
    assert {each.code for each in told} == {0}
    assert hook(subagent_stop("a1")).answer == {}
    assert hook(subagent_start("a3")).answer != {}


def test_events_of_a_deleted_session_go_on_under_its_name(moor: sync.Moorage) -> None:
    for each in (subagent_start("a1"), event("UserPromptSubmit", prompt="Why?")):
        hook(each)
    moor.delete(HOST)
    for each in (event("UserPromptSubmit", prompt="Again?"), subagent_stop("a1", "Found.")):
        assert hook(each).answer == {}
    assert [entry.text for entry in moor.messages(f"{HOST}:latest")] == ["Again?"]
    assert moor.get("a1:latest").state.value == "completed"
    assert moor.get("a1:latest").parent_session_id == moor.get(f"{HOST}:latest").id

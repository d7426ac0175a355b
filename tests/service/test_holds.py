"""Picking work up: the packet, the hold, and that exactly one of two callers wins."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from moorage import sync
from moorage.core.errors import AgentNotFound, HeldByAnother, HoldLost, InvalidField
from moorage.core.render import to_json
from moorage.service.deps import Caller
from moorage.service.inline import drive
from moorage.service.sessions import release_session, resume_session
from moorage.testing.builders import a_session
from moorage.testing.faults import race
from tests.service.doors import Place, Timed


def test_the_packet_has_all_that_is_needed_to_go_on(timed: Timed) -> None:
    moor = timed.moor
    session = moor.create("echo-agent", metadata={"workspace": "prod"})
    moor.append(session.id, ["one", "two"])
    moor.context.merge(session.id, {"colour": "blue", "size": 3})
    moor.suspend(session.id, checkpoint={"step": 3}, reason="lunch")
    at = timed.forward(minutes=5)
    packet = moor.resume(session.id)
    assert (packet.session.state, packet.session.metadata) == ("active", {"workspace": "prod"})
    assert packet.checkpoint == {"step": 3}
    assert packet.context == {"colour": "blue", "size": 3}
    assert [entry.content for entry in packet.messages] == ["one", "two"]
    assert packet.hold.holder == timed.holder("ann")
    assert (packet.hold.until - at).total_seconds() == 600
    assert packet.hold.token
    assert packet.session.version == moor.get(session.id).version


def test_whatever_its_age_a_session_is_picked_up(timed: Timed) -> None:
    session = timed.moor.create("echo-agent")
    timed.moor.suspend(session.id)
    timed.forward(days=400)
    assert timed.moor.resume(session.id).session.state == "active"


def test_a_session_without_checkpoint_context_or_messages_is_picked_up_too(place: Place) -> None:
    moor = place.connect()
    packet = moor.resume(moor.create("echo-agent").id)
    assert (packet.checkpoint, packet.context, packet.messages) == (None, {}, [])


def test_the_token_is_shown_to_its_holder_alone(place: Place) -> None:
    moor = place.connect(holder="ann")
    session = moor.create("echo-agent", name="held")
    packet = moor.resume(session.id)
    shown = [
        moor.get(session.id),
        packet.session,
        *moor.list(),
        moor.update(session.id, metadata={"a": 1}),
        moor.tree(session.id).session,
        *moor.ancestors(moor.create("child", parent=session.id).id),
    ]
    assert all(str(packet.hold.token) not in str(to_json(each)) for each in shown)
    assert all(str(packet.hold.token) not in line for line in moor.export(session.id))
    assert all(str(packet.hold.token) not in str(event) for event in moor.events(follow=False))
    assert {each.hold.holder for each in shown if each.hold} == {place.holder("ann")}


def test_another_is_told_who_holds_it_and_until_when(timed: Timed) -> None:
    session = timed.moor.create("echo-agent")
    timed.moor.resume(session.id)
    with pytest.raises(HeldByAnother) as refused:
        timed.connect(holder="bob").resume(session.id)
    holder = timed.holder("ann")
    assert refused.value.facts == {"session_id": session.id, "holder": holder, "until": "2026-03-01T12:10:00Z"}
    verdict = timed.connect(holder="bob").should_resume(session.id)
    assert verdict.criteria["held_by"].value == holder


def test_same_holder_resuming_again_gets_a_new_token_and_the_old_one_is_refused(timed: Timed) -> None:
    session = timed.moor.create("echo-agent")
    first = timed.moor.resume(session.id)
    timed.forward(minutes=9)
    again = timed.connect(holder="ann").resume(session.id)
    assert again.hold.token != first.hold.token
    assert (again.hold.until - first.hold.until).total_seconds() == 540
    assert len(timed.moor.log(session.id, kinds=["resumed"])) == 1
    with pytest.raises(HoldLost):
        timed.moor.append(session.id, "too late", token=str(first.hold.token))
    timed.moor.append(session.id, "in time", token=str(again.hold.token))


WRITES: dict[str, Callable[[sync.Moorage, str, str | None], object]] = {
    "append": lambda moor, ref, token: moor.append(ref, "hello", token=token),
    "send": lambda moor, ref, token: moor.send(ref, "hello", token=token),
    "update": lambda moor, ref, token: moor.update(ref, metadata={"a": 1}, token=token),
    "checkpoint": lambda moor, ref, token: moor.save_checkpoint(ref, {"step": 1}, token=token),
    "compact": lambda moor, ref, token: moor.compact(ref, "so far", token=token),
}
ENDS: dict[str, Callable[[sync.Moorage, str, str | None], object]] = {
    "suspend": lambda moor, ref, token: moor.suspend(ref, token=token),
    "finalize": lambda moor, ref, token: moor.finalize(ref, "completed", token=token),
    "release": lambda moor, ref, token: moor.release(ref, token=token),
}


@pytest.mark.parametrize("write", WRITES)
def test_writing_with_the_token_renews_the_hold(timed: Timed, write: str) -> None:
    session = timed.moor.create("echo-agent")
    token = str(timed.moor.resume(session.id).hold.token)
    at = timed.forward(minutes=9)
    WRITES[write](timed.moor, session.id, token)
    hold = timed.moor.get(session.id).hold
    assert hold is not None
    assert (hold.until - at).total_seconds() == 600
    timed.forward(minutes=9)
    with pytest.raises(HeldByAnother):
        timed.connect(holder="bob").resume(session.id)


@pytest.mark.parametrize("write", WRITES | ENDS)
def test_a_wrong_token_is_refused_and_changes_nothing(place: Place, write: str) -> None:
    moor = place.connect(holder="ann")
    session = moor.create("echo-agent")
    moor.append(session.id, "hello")
    moor.resume(session.id)
    before = list(moor.export(session.id)), moor.get(session.id)
    for token in ("guessed", "", "0" * 32):
        with pytest.raises(HoldLost):
            (WRITES | ENDS)[write](moor, session.id, token)
    assert (list(moor.export(session.id)), moor.get(session.id)) == before


@pytest.mark.parametrize("write", [name for name in WRITES if name != "send"])
def test_plain_writes_by_others_land(place: Place, write: str) -> None:
    ann, bob = place.connect(holder="ann"), place.connect(holder="bob")
    session = ann.create("echo-agent")
    ann.append(session.id, "hello")
    hold = ann.resume(session.id).hold
    before = ann.get(session.id).last_entry
    WRITES[write](bob, session.id, None)
    now = ann.get(session.id)
    assert now.last_entry > before
    assert now.hold is not None
    assert now.hold.until == hold.until


@pytest.mark.parametrize("end", ["suspend", "release"])
def test_suspending_and_releasing_end_the_hold(place: Place, end: str) -> None:
    ann, bob = place.connect(holder="ann"), place.connect(holder="bob")
    session = ann.create("echo-agent")
    token = str(ann.resume(session.id).hold.token)
    ENDS[end](ann, session.id, token)
    assert ann.get(session.id).hold is None
    with pytest.raises(HoldLost):
        ann.append(session.id, "too late", token=token)
    assert bob.resume(session.id).hold.holder == place.holder("bob")


def test_finalizing_ends_the_hold(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    token = str(moor.resume(session.id).hold.token)
    assert moor.finalize(session.id, "completed", token=token).hold is None


def test_time_ends_the_hold_and_its_token_is_worth_nothing_once_another_has_it(timed: Timed) -> None:
    bob = timed.connect(holder="bob")
    session = timed.moor.create("echo-agent")
    token = str(timed.moor.resume(session.id).hold.token)
    timed.forward(minutes=10)
    assert bob.resume(session.id).hold.holder == timed.holder("bob")
    for write in (*WRITES.values(), *ENDS.values()):
        with pytest.raises(HoldLost):
            write(timed.moor, session.id, token)


def test_a_hold_may_be_released_by_a_person_without_its_token(place: Place) -> None:
    ann, bob = place.connect(holder="ann"), place.connect(holder="bob")
    session = ann.create("echo-agent")
    ann.resume(session.id)
    bob.release(session.id)
    assert bob.resume(session.id).hold.holder == place.holder("bob")


def test_holders_of_one_connection_may_be_told_apart(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    moor.resume(session.id, holder="worker-1")
    with pytest.raises(HeldByAnother):
        moor.resume(session.id, holder="worker-2")
    with pytest.raises(InvalidField):
        moor.resume(session.id, holder="")


def test_two_connections_are_two_holders(place: Place) -> None:
    one, other = place.connect(), place.connect()
    session = one.create("echo-agent")
    one.resume(session.id)
    with pytest.raises(HeldByAnother):
        other.resume(session.id)


@pytest.mark.parametrize("name", ["laptop", "key-1:laptop", None])
def test_holder_of_one_key_cannot_be_named_with_another(timed_store: Timed, name: str | None) -> None:
    one, other = (Caller(owner="ann", holder=key, scope=key) for key in ("key-1", "key-2"))
    drive(timed_store.store.create("ann", a_session("s-1", owner="ann")))
    drive(resume_session(timed_store.deps, one, "s-1", holder="laptop"))

    with pytest.raises(HeldByAnother):
        drive(resume_session(timed_store.deps, other, "s-1", holder=name))


def test_agent_cannot_release_the_hold_of_a_person_without_its_token(timed_store: Timed) -> None:
    person = Caller(owner="ann", holder="key-1", scope="key-1")
    agent = Caller(owner="ann", holder="token-1", scope="token-1", session_id="s-1")
    drive(timed_store.store.create("ann", a_session("s-1", owner="ann")))
    hold = drive(resume_session(timed_store.deps, person, "s-1")).hold
    assert hold is not None

    with pytest.raises(HeldByAnother):
        drive(release_session(timed_store.deps, agent, "s-1"))
    assert drive(release_session(timed_store.deps, agent, "s-1", token=str(hold.token))).hold is None


# Without a hold ---------------------------------------------------------------------------------


def test_resuming_without_a_hold_wakes_the_session_and_holds_nothing(place: Place) -> None:
    ann, bob = place.connect(holder="ann"), place.connect(holder="bob")
    session = ann.create("echo-agent")
    ann.suspend(session.id, checkpoint={"step": 3})
    packet = ann.resume(session.id, hold=False)
    assert (packet.hold, packet.session.state, packet.session.hold) == (None, "active", None)
    assert packet.checkpoint == {"step": 3}
    version = packet.session.version
    assert bob.resume(session.id, hold=False).session.version == version, "an active one is left as it is"


def test_resume_without_a_hold_is_refused_while_another_holds(place: Place) -> None:
    ann, bob = place.connect(holder="ann"), place.connect(holder="bob")
    session = ann.create("echo-agent")
    ann.resume(session.id)
    with pytest.raises(HeldByAnother):
        bob.resume(session.id, hold=False)
    assert ann.resume(session.id, hold=False).session.hold is None, "one's own hold ends"
    assert bob.resume(session.id).hold is not None


# Asking -----------------------------------------------------------------------------------------


def test_asking_by_the_holder_ends_its_hold(place: Place) -> None:
    moor = place.connect(holder="ann")
    session = moor.create("echo-agent")
    moor.resume(session.id)
    reply = moor.send(session.id, "go on")
    assert reply.run_id is not None
    assert [entry.kind for entry in moor.log(session.id, after=reply.message.number - 2)] == ["released", "message"]
    assert moor.get(session.id).hold is None


def test_message_with_the_token_and_no_word_about_a_run_is_only_kept(place: Place) -> None:
    moor = place.connect(holder="ann")
    session = moor.create("echo-agent")
    token = str(moor.resume(session.id).hold.token)
    assert moor.send(session.id, "noted", token=token).run_id is None
    assert moor.get(session.id).hold is not None
    assert moor.send(session.id, "go on", token=token, run=True).run_id is not None
    assert moor.get(session.id).hold is None


def test_ask_while_another_holds_is_refused_or_queued(place: Place) -> None:
    ann, bob = place.connect(holder="ann"), place.connect(holder="bob")
    session = ann.create("echo-agent")
    ann.resume(session.id)
    before = ann.get(session.id).last_entry
    with pytest.raises(HeldByAnother) as refused:
        bob.send(session.id, "go on")
    assert refused.value.facts["holder"] == place.holder("ann")
    assert "ask with `queue`" in refused.value.message
    assert ann.get(session.id).last_entry == before
    assert bob.send(session.id, "go on", queue=True).run_id is not None
    assert ann.get(session.id).hold is not None


def test_ask_resumes_a_session_suspended_by_a_person_unless_told_not_to(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    moor.suspend(session.id)
    assert moor.send(session.id, "later", wake=False).run_id is not None
    assert moor.get(session.id).state == "suspended"
    moor.append(session.id, "a plain append starts nothing")
    assert moor.get(session.id).state == "suspended"
    moor.send(session.id, "now")
    assert moor.get(session.id).state == "active"


def test_ask_of_an_agent_does_not_wake_a_session_suspended_by_a_person(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    moor = place.connect()
    asker, session = moor.create("echo-agent"), moor.create("echo-agent")
    moor.suspend(session.id)
    monkeypatch.setenv("AGENT_SESSION_ID", asker.id)
    assert moor.send(session.id, "go on").run_id is not None
    assert moor.get(session.id).state == "suspended"


def test_message_to_an_agent_that_cannot_be_started_is_kept_or_refused(place: Place) -> None:
    moor = place.connect()
    session = moor.create("ecko-agent")
    assert moor.send(session.id, "for later").run_id is None
    before = moor.get(session.id).last_entry
    with pytest.raises(AgentNotFound, match="did you mean echo-agent") as unknown:
        moor.send(session.id, "go on", run=True)
    assert unknown.value.facts["nearest"] == ["echo-agent"]
    with pytest.raises(AgentNotFound, match="no agent is named; name one"):
        moor.send(moor.create().id, "go on", run=True)
    assert moor.get(session.id).last_entry == before


# Races ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False], ids=["one connection", "a connection each"])
def test_exactly_one_of_many_threads_wins(place: Place, shared: bool) -> None:
    session = place.connect().create("echo-agent")
    doors = [place.connect(holder="one")] * 8 if shared else [place.connect(holder=f"h-{n}") for n in range(8)]
    start = threading.Barrier(8)
    won: list[str] = []
    lost: list[HeldByAnother] = []

    def resume(number: int, moor: sync.Moorage) -> None:
        start.wait(30)
        try:
            won.append(moor.resume(session.id, holder=f"h-{number}").hold.holder)
        except HeldByAnother as error:
            lost.append(error)

    threads = [threading.Thread(target=resume, args=(number, moor)) for number, moor in enumerate(doors)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len(won), len(lost)) == (1, 7)
    assert {error.holder for error in lost} == set(won)
    assert len({error.until for error in lost}) == 1


RESUMER = """
import sys
from moorage import sync
from moorage.core.errors import HeldByAnother
moor = sync.connect(sys.argv[1], holder=sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
try:
    print("won", moor.resume("s-1").hold.holder)
except HeldByAnother as error:
    print("lost", error.holder, error.until)
"""


def test_exactly_one_of_many_processes_wins(place: Place) -> None:
    if not place.is_shared:
        pytest.skip("memory is not shared among processes")
    moor = place.connect()
    moor.create("echo-agent", session_id="s-1")
    for round_ in range(3):
        answers = race(RESUMER, [(place.url, f"holder-{number}") for number in range(6)])
        words = [answer[0].split() for answer in answers]
        winners = [word[1] for word in words if word[0] == "won"]
        assert len(winners) == 1, words
        assert {word[1] for word in words if word[0] == "lost"} == set(winners)
        assert len({word[2] for word in words if word[0] == "lost"}) == 1
        assert len(moor.log("s-1", kinds=["resumed"])) == round_ + 1
        moor.release("s-1")


# Repairs ----------------------------------------------------------------------------------------


def a_call(call_id: str, name: str = "deploy") -> dict[str, object]:
    part = {"type": "tool_call", "id": call_id, "name": name, "input": {}}
    return {"role": "assistant", "content": [part]}


def a_result(call_id: str) -> dict[str, object]:
    return {"role": "tool", "content": [{"type": "tool_result", "call_id": call_id, "output": "done"}]}


def repairs(moor: sync.Moorage, ref: str) -> list[str]:
    return [
        part["call_id"]
        for entry in moor.messages(ref, limit=1000)
        if isinstance(entry.content, list)
        for part in entry.content
        if part.get("repaired")
    ]


def test_a_call_left_open_by_a_crash_is_answered_visibly_and_once(place: Place) -> None:
    moor = place.connect(holder="ann")
    session = moor.create("echo-agent")
    moor.append(session.id, ["go", a_call("c-1"), a_result("c-1"), a_call("c-2")])
    packet = moor.resume(session.id)
    content = packet.messages[-1].content
    assert isinstance(content, list)
    part = content[0]
    assert (part["call_id"], part["is_error"], part["repaired"]) == ("c-2", True, True)
    assert moor.messages(session.id).items[-1] == packet.messages[-1], "it is in the log"
    moor.release(session.id)
    moor.resume(session.id)
    assert repairs(moor, session.id) == ["c-2"]


def test_result_of_a_repaired_call_follows_it_whatever_lies_between(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    moor.append(session.id, ["go", a_call("c-1"), "hello?", "anybody?"])
    assert [entry.number for entry in moor.resume(session.id).messages] == [2, 3, 7, 4, 5]
    moor.append(session.id, "on we go")
    newest = moor.messages(session.id, last=2)
    assert [entry.number for entry in newest] == [5, 8]
    older = moor.messages(session.id, last=3, before=newest.next)
    assert [entry.number for entry in older] == [3, 7, 4]

    fork = moor.fork(session.id, at=5)
    assert [entry.role for entry in moor.resume(fork.id).messages] == ["user", "assistant", "tool", "user", "user"]


def test_an_answered_call_is_not_repaired(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    moor.append(session.id, [a_call("c-1"), a_result("c-1")])
    moor.resume(session.id)
    assert repairs(moor, session.id) == []


def test_a_call_whose_id_was_used_before_is_repaired_each_time(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    for count in (1, 2, 3):
        moor.append(session.id, [a_call("c-1")])
        moor.resume(session.id)
        moor.release(session.id)
        assert repairs(moor, session.id) == ["c-1"] * count


def test_a_holder_that_asks_again_is_at_it_still_and_nothing_is_repaired(place: Place) -> None:
    moor = place.connect(holder="ann")
    session = moor.create("echo-agent")
    token = str(moor.resume(session.id).hold.token)
    moor.append(session.id, a_call("c-1"), token=token)
    token = str(moor.resume(session.id).hold.token)
    moor.append(session.id, a_result("c-1"), token=token)
    assert repairs(moor, session.id) == []


def test_suspend_with_the_token_counts_as_the_agent(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    moor.suspend(session.id)
    token = str(moor.resume(session.id).hold.token)
    moor.suspend(session.id, token=token)
    said = [entry.data["suspended_by"] for entry in moor.log(session.id, kinds=["suspended"]) if entry.data]
    assert said == ["person", "agent"]


def test_session_kept_past_its_ttl_does_not_slow_others(timed: Timed) -> None:
    moor = timed.moor
    moor.create("echo-agent", session_id="kept", ttl=60)
    moor.create("echo-agent", session_id="other")
    token = str(moor.resume("kept").hold.token)
    timed.forward(minutes=2)
    moor.get("other")
    assert timed.deps.look_again_at > timed.clock.now(), "it is not looked at again for every call"
    moor.release("kept", token=token)
    assert [each.id for each in moor.list()] == ["other"]

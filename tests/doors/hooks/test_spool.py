"""Events that could not be stored are spooled and stored later: all, in order, with their times, once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from moorage import sync
from moorage.core.entry import Entry
from moorage.doors.hooks import spool
from moorage.testing.faults import Worker, opened_raw, write_lock
from tests.doors.hooks.running import (
    EVENTS,
    HOST,
    IN_TIME,
    PLAIN,
    Json,
    Running,
    assert_safe,
    ended,
    event,
    hook,
    hurried,
    post_tool_use,
    pre_tool_use,
    spooled,
    subagent_start,
    subagent_stop,
)


class Later:
    """A store that cannot be reached until its folder is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/moorage.db"

    def tell(self, *events: Json, args: tuple[str, ...] = ()) -> None:
        """Tell of these while it cannot be reached."""
        for each in events:
            done = hook(each, *args, MOORAGE_URL=self.url)
            assert (done.code, len(done.complaints)) == (0, 1)
            assert "put off until" in done.err

    def be_there(self) -> sync.Moorage:
        """The store, now that it can be reached."""
        self.folder.mkdir()
        return sync.connect(self.url)

    def nudge(self, **environment: str) -> None:
        """Send an event of another host, which takes in what waits."""
        assert hook(event("Stop", session_id="another"), MOORAGE_URL=self.url, **environment).answer == {}


@pytest.fixture
def later(tmp_path: Path) -> Later:
    return Later(tmp_path / "later")


def items(home: Path) -> list[Json]:
    return [json.loads(path.read_bytes()) for path in spooled(home)]


def said(moor: sync.Moorage, ref: str) -> list[str]:
    return [entry.text for entry in moor.messages(ref, limit=100)]


def told(moor: sync.Moorage, ref: str) -> list[tuple[Any, ...]]:
    """Return the log without what depends on the clock."""
    entries: list[Entry] = moor.log(ref, limit=1000).items
    return [(entry.number, entry.kind, entry.role, entry.content, entry.data, entry.by) for entry in entries]


# All of it --------------------------------------------------------------------------------------

STORY = [
    EVENTS["SessionStart"],
    EVENTS["UserPromptSubmit"],
    EVENTS["PreToolUse"],
    subagent_start("a1"),
    post_tool_use("a1"),
    post_tool_use("a2", "toolu_2"),  # before its agent's start
    subagent_start("a2"),
    subagent_stop("a1"),
    EVENTS["PreCompact"],
    subagent_stop("a3", "Its start was not told."),
    EVENTS["StopFailure"],
    EVENTS["Stop"],
    subagent_start("a1"),  # once more
    EVENTS["SessionEnd"],
]


def test_a_story_told_late_is_the_same_story(moor: sync.Moorage, later: Later, home: Path) -> None:
    for each in STORY:
        assert hook(each).code == 0
    later.tell(*STORY)
    with later.be_there() as behind:
        later.nudge()
        assert not spooled(home)
        for ref in (HOST, "a1", "a2", "a3", "a1:latest"):
            assert told(behind, ref) == told(moor, ref)
            assert behind.get(ref).state == moor.get(ref).state
        assert len(behind.list().items) == len(moor.list().items) + 1  # that of the nudge
        assert [each.reason for each in behind.delegations()] == ["store_unavailable"]
        assert behind.check() == []


def test_late_event_keeps_its_time(later: Later, home: Path) -> None:
    later.tell(subagent_start("a1"), subagent_stop("a1"))
    began, stopped = (datetime.fromisoformat(item["at"]) for item in items(home))
    for number, path in enumerate(spooled(home)):  # as if an hour, and then half an hour, had gone by
        item = json.loads(path.read_bytes())
        item["at"] = ((began, stopped)[number] - timedelta(minutes=90 - 60 * number)).isoformat()
        path.write_text(json.dumps(item))
    with later.be_there() as moor:
        later.nudge()
        session = moor.get("a1")
        assert session.created_at == began - timedelta(minutes=90)
        assert session.finalized_at == stopped - timedelta(minutes=30)
        assert session.duration_seconds == round((session.finalized_at - session.created_at).total_seconds(), 3)
        assert {entry.at for entry in moor.log("a1")} == {session.created_at, session.finalized_at}


def test_the_commands_are_put_off_too(later: Later, home: Path) -> None:
    later.tell(PLAIN["pre-delegate"], args=("pre-delegate",))
    later.tell({**PLAIN["subagent-stop"], "agent_id": "mine", "exit_code": 3}, args=("subagent-stop",))
    with later.be_there() as moor:
        moor.create("architect", session_id="mine", task_id="T001")
        later.nudge()
        assert (moor.get("mine").state.value, said(moor, "mine")) == ("failed", ["Planned."])
        (delegation,) = moor.delegations()
        assert (delegation.resumed, delegation.reason, delegation.task_id) == (False, "store_unavailable", "T001")


def test_a_host_inside_an_agent_is_so_when_it_is_told_late(later: Later) -> None:
    assert hook(EVENTS["SessionStart"], MOORAGE_URL=later.url, AGENT_SESSION_ID="boss").code == 0
    with later.be_there() as moor:
        moor.create("boss", session_id="boss")
        later.nudge()
        assert moor.get(HOST).parent_session_id == "boss"
        assert moor.get("another").parent_session_id is None


@pytest.mark.parametrize("text", ["[hooks\n", "[hooks]\ndeny_if_resumable = 7\n"], ids=["no TOML", "no sense"])
def test_events_spooled_under_a_broken_configuration_are_stored_later(
    url: str, home: Path, later: Later, text: str
) -> None:
    home.mkdir()
    (home / "config.toml").write_text(text)
    assert_safe("an event", hook(prompt(1)))
    (home / "config.toml").write_text("")
    with later.be_there() as other:
        later.nudge()  # names its store itself: that may be another
        assert [session.id for session in other.list()] == ["another"]
    assert hook(prompt(2)).answer == {}
    with sync.connect(url) as moor:
        assert said(moor, HOST) == ["1", "2"]


# In order ---------------------------------------------------------------------------------------


def prompt(number: int) -> Json:
    return event("UserPromptSubmit", prompt=f"{number}", prompt_id=f"p-{number}")


def test_an_event_does_not_overtake_those_that_wait(moor: sync.Moorage, home: Path, database: Path) -> None:
    hook(prompt(0))
    with write_lock(database):
        assert "locked" in hurried(prompt(1)).err
        assert "older events wait" in hurried(prompt(2)).err
    assert len(spooled(home)) == 2
    assert hook(prompt(3)).answer == {}
    assert said(moor, HOST) == ["0", "1", "2", "3"]


def test_late_start_does_not_reopen_an_ended_session(moor: sync.Moorage, later: Later, home: Path) -> None:
    later.tell(subagent_start("a1"))
    with later.be_there() as behind:
        behind.create("general-purpose", session_id="a1")
        behind.finalize("a1", "completed")
        later.nudge()
        assert not spooled(home)
        assert [session.id for session in behind.list() if session.forked_from] == []


HOLDS_THE_LOCK = """
import fcntl, glob, os, sys
(path,) = glob.glob(sys.argv[1] + "/*.lock")
lock = os.open(path, os.O_RDWR)
fcntl.flock(lock, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.readline()
"""


def test_stopped_spool_reader_blocks_others_only_briefly(later: Later, home: Path) -> None:
    later.tell(prompt(1))
    with later.be_there() as moor:
        later.nudge()  # leaves the file that is locked
        later.folder.rename(later.folder.with_name("away"))
        later.tell(prompt(2))
        later.folder.with_name("away").rename(later.folder)
        with Worker(HOLDS_THE_LOCK, home / "spool") as other:
            other.line()
            other.stop()
            done = hurried(prompt(3), MOORAGE_URL=later.url)
            assert_safe("an event", done)
            assert "older events wait" in done.err
            answered = hurried(pre_tool_use(), MOORAGE_URL=later.url)
            assert (answered.code, answered.json, answered.seconds < IN_TIME) == (0, {}, True)
            assert len(moor.delegations().items) == 1, "a question overtakes"
            other.go_on()
        later.nudge()
        assert said(moor, HOST) == ["1", "2", "3"]


def test_concurrent_hooks_store_each_spooled_event_once(later: Later, home: Path) -> None:
    later.tell(prompt(1))
    (first,) = spooled(home)
    item, (mark, at, pid) = json.loads(first.read_bytes()), first.stem.split("-")
    for number in range(2, 41):
        item["event"] = prompt(number)
        (home / "spool" / f"{mark}-{int(at) + number:020d}-{pid}.json").write_text(json.dumps(item))
    with later.be_there() as moor:
        running = [Running(prompt(100 + number), env={"MOORAGE_URL": later.url}, hurry=False) for number in range(4)]
        for each in running:
            each.send()
        for each in running:
            assert ended(each).answer == {}
        texts = said(moor, HOST)
        assert texts[:40] == [f"{number}" for number in range(1, 41)]
        assert sorted(texts[40:]) == ["100", "101", "102", "103"]
        assert not spooled(home)


# Once -------------------------------------------------------------------------------------------

DIES_BEFORE_DELETING = "import os, signal; os.unlink = lambda path: os.kill(os.getpid(), signal.SIGKILL)"


def twice(later: Later, home: Path) -> None:
    """Take in what waits, but die between storing it and deleting it; then take it in."""
    waiting = len(spooled(home))
    done = ended(Running(event("Stop", session_id="x"), env={"MOORAGE_URL": later.url}, first=DIES_BEFORE_DELETING))
    assert (done.code, done.out) == (-signal.SIGKILL, "")
    assert len(spooled(home)) == waiting
    later.nudge()
    assert not spooled(home)
    assert not spooled(home, ".refused")


@pytest.mark.parametrize("prompt_id", ["p-1", None], ids=["with a prompt's id", "without"])
def test_a_message_taken_in_twice_is_there_once(later: Later, home: Path, prompt_id: str | None) -> None:
    later.tell(event("UserPromptSubmit", prompt="Why?", prompt_id=prompt_id))
    with later.be_there() as moor:
        twice(later, home)
        assert said(moor, HOST) == ["Why?"]


def test_an_end_taken_in_twice_is_there_once(later: Later, home: Path) -> None:
    later.tell(subagent_stop("a1"))
    with later.be_there() as moor:
        twice(later, home)
        assert said(moor, "a1") == ["Two causes found."]
        assert [session.id for session in moor.list(agent="general-purpose")] == ["a1"]


@pytest.mark.parametrize("way", ["a phase", "an approval"])
def test_an_end_that_only_suspends_taken_in_twice_is_there_once(later: Later, home: Path, way: str) -> None:
    later.tell(subagent_stop("a1", prompt_id=None))
    with later.be_there() as moor:
        moor.create("general-purpose", session_id="a1")
        moor.update("a1", phase="approval") if way == "a phase" else moor.request_approval("a1", "Go on?")
        twice(later, home)
        assert (moor.get("a1").state.value, said(moor, "a1")) == ("suspended", ["Two causes found."])


def test_the_same_of_the_command(later: Later, home: Path) -> None:
    later.tell({"agent_id": "mine", "output": "Planned."}, args=("subagent-stop",))
    with later.be_there() as moor:
        moor.create("architect", session_id="mine")
        moor.update("mine", phase="approval")
        twice(later, home)
        assert said(moor, "mine") == ["Planned."]


def test_an_error_taken_in_twice_counts_once(later: Later, home: Path) -> None:
    later.tell(EVENTS["StopFailure"])
    with later.be_there() as moor:
        twice(later, home)
        assert moor.get(HOST).error_count == 1


def test_a_bridge_taken_in_twice_is_there_once(later: Later, home: Path) -> None:
    later.tell(post_tool_use("a1"))
    with later.be_there() as moor:
        twice(later, home)
        assert said(moor, "a1") == ["Look into it"]
        assert [entry.kind for entry in moor.log("a1")].count("metadata") == 1


def test_a_delegation_taken_in_twice_counts_once(later: Later, home: Path) -> None:
    later.tell(pre_tool_use())
    later.tell(PLAIN["pre-delegate"], args=("pre-delegate",))
    with later.be_there() as moor:
        for _ in range(2):
            ended(Running(event("Stop"), env={"MOORAGE_URL": later.url}, first=DIES_BEFORE_DELETING))
        later.nudge()
        assert len(moor.delegations().items) == 2


def test_an_agent_may_say_the_same_again_when_it_is_called_again(moor: sync.Moorage) -> None:
    for told_ in (subagent_start("a1"), subagent_stop("a1"), subagent_start("a1")):
        assert hook(told_).code == 0
    moor.update("a1:latest", phase="approval")
    assert hook(subagent_stop("a1")).answer == {}
    assert said(moor, "a1:latest") == ["Two causes found."] * 2


def test_an_end_without_its_beginning_is_kept_though_the_session_is_closed(moor: sync.Moorage) -> None:
    for words in ("First.", "First.", "Second.", "Second.", ""):
        assert hook(subagent_stop("a1", words)).answer == {}
    assert said(moor, "a1") == ["First."]
    assert (said(moor, "a1:latest"), moor.get("a1:latest").state.value) == (["First.", "Second."], "completed")
    assert len(moor.list(agent="general-purpose").items) == 2


# Whole ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_who_dies_while_putting_off_leaves_nothing_that_looks_whole(later: Later, home: Path, step: str) -> None:
    dies = f"import os, signal; os.{step} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)"
    done = ended(Running(EVENTS["UserPromptSubmit"], env={"MOORAGE_URL": later.url}, first=dies))
    assert (done.code, done.out) == (-signal.SIGKILL, ""), "nothing was acknowledged"
    assert spooled(home) == []
    with later.be_there() as moor:
        later.nudge()
        assert [session.id for session in moor.list()] == ["another"]


def test_spooled_event_is_on_disk_when_acknowledged(later: Later, home: Path) -> None:
    trace = (
        "import os; real, synced = os.fsync, []\n"
        "def fsync(file): synced.append(os.readlink(f'/proc/self/fd/{file}')); real(file)\n"
        "os.fsync = fsync; write = os.write\n"
        "def answer(file, data): os.write = write; print(*synced, sep='\\n', file=open('synced', 'w')); "
        "return write(file, data)\n"
        "os.write = answer"
    )
    done = ended(Running(EVENTS["UserPromptSubmit"], env={"MOORAGE_URL": later.url}, first=trace))
    assert_safe("an event", done)
    file, folder = Path("synced").read_text().split()
    assert file.endswith(".part")
    assert folder == str(home / "spool")


BROKEN = {
    "empty": b"",
    "cut short": b'{"event": {"hook_event_name": "Stop"',
    "binary": bytes(range(256)),
    "nested": b"[" * 100_000,
    "a list": b"[]",
    "without anything": b"{}",
    "without a time": b'{"event": {"hook_event_name": "Stop", "session_id": "s"}}',
    "with half a time": b'{"event": {"hook_event_name": "Stop", "session_id": "s"}, "at": "2026-01-01T00:00:00"}',
    "of an unknown event": b'{"event": {"hook_event_name": "New", "session_id": "s"}, "at": "2026-01-01T00:00:00Z"}',
    "of an unknown command": b'{"command": "dance", "event": {"agent_id": "s"}, "at": "2026-01-01T00:00:00Z"}',
    "without a session": b'{"event": {"hook_event_name": "Stop"}, "at": "2026-01-01T00:00:00Z"}',
    "half a delegation": b'{"delegation": {"delegation_id": "d"}}',
}


def test_broken_files_are_moved_aside_and_do_not_block_others(later: Later, home: Path) -> None:
    later.tell(prompt(1))
    mark, at, pid = spooled(home)[0].stem.split("-")
    for number, (name, content) in enumerate(BROKEN.items(), 1):
        path = home / "spool" / f"{mark}-{int(at) - number:020d}-{pid}.json"
        path.write_bytes(content)
        assert name
    (home / "spool" / f"{mark}-{0:020d}-{pid}.json").mkdir()
    with later.be_there() as moor:
        later.nudge()
        assert said(moor, HOST) == ["1"]
        assert {session.id for session in moor.list()} == {HOST, "another"}
        assert spooled(home) == []
        assert len(spooled(home, ".refused")) == len(BROKEN) + 1


def test_corrupt_session_does_not_block_others(moor: sync.Moorage, home: Path, database: Path) -> None:
    hook(subagent_start("a1"))
    with opened_raw(database) as db:
        db.execute("UPDATE sessions SET metadata = '{broken' WHERE id = 'a1'")
    done = hook(subagent_stop("a1"))
    assert_safe("an event", done)
    assert hook(prompt(1)).answer == {}
    assert said(moor, HOST) == ["1"]
    assert (len(spooled(home)), len(spooled(home, ".refused"))) == (0, 1), "it is kept, and the doctor tells"


def test_refused_events_are_moved_aside(later: Later, home: Path) -> None:
    later.tell(event("PreCompact", custom_instructions="x" * 2_000_000))
    with later.be_there():
        later.nudge()
    (aside,) = spooled(home, ".refused")
    why, item = aside.read_bytes().splitlines()
    assert "at most" in json.loads(why)["reason"]
    assert len(json.loads(item)["event"]["custom_instructions"]) == 2_000_000


# Whose ------------------------------------------------------------------------------------------


def test_events_for_another_store_are_left_alone(moor: sync.Moorage, later: Later, home: Path) -> None:
    later.tell(prompt(1))
    assert hook(prompt(2)).answer == {}
    assert said(moor, HOST) == ["2"]
    assert len(spooled(home)) == 1
    with later.be_there() as behind:
        later.nudge()
        assert said(behind, HOST) == ["1"]


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def test_a_relative_url_is_another_store_in_another_folder(tmp_path: Path, home: Path) -> None:
    url = "sqlite:///data/moorage.db"
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (there / "data").mkdir(parents=True)
    with working_in(here):
        assert "put off until" in hook(prompt(1), MOORAGE_URL=url).err
    with working_in(there):
        assert hook(prompt(2), MOORAGE_URL=url).answer == {}
    assert len(spooled(home)) == 1
    (here / "data").mkdir()
    with working_in(here):
        assert hook(prompt(3), MOORAGE_URL=url).answer == {}
        with sync.connect(url) as moor:
            assert said(moor, HOST) == ["1", "3"]


# Questions --------------------------------------------------------------------------------------


def test_a_verdict_is_given_though_it_cannot_be_counted_now(moor: sync.Moorage, home: Path, database: Path) -> None:
    moor.create("architect", session_id="mine", task_id="T001")
    moor.update("mine", phase="planning")
    with write_lock(database):
        done = hurried(PLAIN["pre-delegate"], "pre-delegate")
        assert (done.code, done.json["should_resume"], done.json["agent_id"]) == (0, True, "mine")
        assert "counted later" in done.err
        assert done.seconds < IN_TIME
        hurried(prompt(1))
        again = hurried(PLAIN["pre-delegate"], "pre-delegate")  # with something in the spool, too
        assert (again.code, again.json["should_resume"], again.seconds < IN_TIME) == (0, True, True)
    assert hook(prompt(2)).answer == {}
    assert [(each.resumed, each.session_id) for each in moor.delegations()] == [(True, "mine")] * 2
    assert said(moor, HOST) == ["1", "2"]


def test_a_verdict_is_given_though_it_can_never_be_counted(moor: sync.Moorage, home: Path, database: Path) -> None:
    moor.create("architect", session_id="mine", task_id="T001")
    moor.update("mine", phase="planning")
    (home / "spool").write_text("in the way")
    with write_lock(database):
        done = hurried(PLAIN["pre-delegate"], "pre-delegate")
    assert (done.code, done.json["should_resume"], len(done.complaints)) == (0, True, 1)
    assert "not counted" in done.err


def test_slow_event_does_not_delay_the_answer(moor: sync.Moorage, database: Path) -> None:
    moor.create("architect", session_id="mine", task_id="T001")
    moor.update("mine", phase="planning")
    moor.create("other", ttl=0.001)
    with write_lock(database):
        done = hurried(PLAIN["pre-delegate"], "pre-delegate")
    assert (done.code, done.json["should_resume"], done.seconds < IN_TIME) == (0, True, True)


@pytest.mark.parametrize("name", ["pre-delegate", "subagent-stop"])
def test_where_the_spool_cannot_be_either_the_loss_is_told(later: Later, home: Path, name: str) -> None:
    home.mkdir()
    (home / "spool").write_text("in the way")
    done = hook(PLAIN[name], name, MOORAGE_URL=later.url)
    assert_safe(name, done)
    assert "lost" in done.err
    assert (home / "spool").read_text() == "in the way"


def test_a_spool_that_cannot_be_used_does_not_keep_a_store_from_being(later: Later, home: Path) -> None:
    later.tell(prompt(1))
    mark = spooled(home)[0].name.split("-")[0]
    in_the_way = home / "spool" / f"{mark}.lock"
    in_the_way.mkdir()
    with later.be_there() as moor:
        assert hook(prompt(2), MOORAGE_URL=later.url).answer == {}
        in_the_way.rmdir()
        later.nudge()
        assert said(moor, HOST) == ["2", "1"], "late is better than never"


def moorage(*arguments: str, **environment: str) -> tuple[int, Json]:
    """Run a command; its exit code and its answer."""
    asked = [sys.executable, "-m", "moorage", "--json", *arguments]
    done = subprocess.run(asked, capture_output=True, check=False, env={**os.environ, **environment})
    return done.returncode, json.loads(done.stdout)


def test_doctor_tells_how_many_events_wait_since_when_and_how_to_store_them(later: Later, home: Path) -> None:
    before = datetime.now(UTC)
    later.tell(prompt(1), prompt(2))
    code, found = moorage("doctor")
    assert (code, found["ok"], found["spooled_events"]) == (1, False, 2)
    assert before <= datetime.fromisoformat(found["spooled_since"]) <= datetime.now(UTC)
    (problem,) = found["problems"]
    assert all(word in problem for word in (found["spooled_since"], "hooks deliver", "2 for other stores"))
    with later.be_there() as moor:
        assert moorage("--url", later.url, "hooks", "deliver") == (0, {"stored": 2, "waiting": 0, "refused": 0})
        assert said(moor, HOST) == ["1", "2"]
    assert moorage("doctor")[1]["ok"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "carrier-pigeon://home"])
def test_event_for_an_unknown_store_is_a_dead_letter(url: str, home: Path, database: Path) -> None:
    for number in (1, 2):
        done = hook(prompt(number), MOORAGE_URL=url)
        assert (done.code, "moved aside" in done.err) == (0, True)
    assert spooled(home) == []
    code, found = moorage("doctor")
    assert (code, found["spooled_events"], found["refused_events"]) == (1, 0, 2)
    assert url in found["problems"][0]
    assert "hooks deliver --refused" in found["problems"][0]
    assert moorage("hooks", "deliver", "--refused") == (0, {"stored": 2, "waiting": 0, "refused": 0})
    with sync.connect(f"sqlite:///{database}") as moor:
        assert said(moor, HOST) == ["1", "2"]


def test_event_that_is_refused_again_stays_a_dead_letter(later: Later, home: Path) -> None:
    later.tell(event("PreCompact", custom_instructions="x" * 2_000_000))
    with later.be_there():
        deliver = ("--url", later.url, "hooks", "deliver")
        assert moorage(*deliver) == (1, {"stored": 0, "waiting": 0, "refused": 1})
        assert moorage(*deliver, "--refused") == (1, {"stored": 0, "waiting": 0, "refused": 1})


@pytest.mark.parametrize(("number", "size"), [(3, 10**9), (10**9, 3_000)])
def test_oldest_dead_letters_go_when_there_are_too_many(
    number: int, size: int, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "MAX_REFUSED", number)
    monkeypatch.setattr(spool, "MAX_REFUSED_BYTES", size)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    for minute in range(5):
        spool.Spool("http://x").refuse(b"%d" % minute + b" " * 900, at + timedelta(minutes=minute), "it is no store")
    kept = [path.read_bytes().splitlines()[1].strip() for path in spooled(home, ".refused")]
    assert kept == [b"2", b"3", b"4"]

"""Whatever a hook is given and wherever it runs: an answer in time, at most a line of complaint, exit code 0."""

from __future__ import annotations

import json
import os
import pty
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage import sync
from moorage.doors.hooks.main import MAX_INPUT
from moorage.doors.hooks.work import HookWork
from moorage.stores.sqlite.store import LATEST
from moorage.testing.faults import (
    NOBODY,
    CannotInject,
    cut_to,
    fill,
    into_one_file,
    opened_raw,
    small_disk,
    write_lock,
)
from tests.doors.hooks.running import (
    CALLS,
    EVENTS,
    HOST,
    IN_TIME,
    PRE_DELEGATE_KEYS,
    SUBAGENT_STOP_KEYS,
    Json,
    Running,
    assert_safe,
    encoded,
    ended,
    event,
    hook,
    hurried,
    pre_tool_use,
    spooled,
    subagent_start,
    subagent_stop,
)
from tests.fuzz.inputs import SHORT, kept, many, tried

PROMPT = event("UserPromptSubmit", prompt="Why?")
SPOOL_HANGS = "import os, time; os.fsync = lambda file: time.sleep(10)"
COMMANDS = {"an event": (), "pre-delegate": ("pre-delegate",), "subagent-stop": ("subagent-stop",)}


def prompts(moor: sync.Moorage) -> list[str]:
    return [entry.text for entry in moor.messages(HOST, limit=100)]


# Standard input ---------------------------------------------------------------------------------

MALFORMED = {
    "empty": b"",
    "blank": b" \n\t ",
    "no JSON": b"hello",
    "a list": b"[1, 2]",
    "a text": b'"hook_event_name"',
    "null": b"null",
    "cut short": encoded(PROMPT)[:-20],
    "two documents": encoded(PROMPT) * 2,
    "NUL bytes": b"\0" * 100,
    "NUL in a text": b'{"hook_event_name": "Sto\0p"}',
    "not UTF-8": b"\xff\xfe{\x00",
    "infinite": b'{"hook_event_name": "Stop", "n": Infinity}',
    "too large a number": b'{"hook_event_name": "Stop", "n": 1e999}',
    "nested": b"[" * 100_000,
    "nested objects": b'{"a":' * 100_000,
    "closed too often": b'{"a": 1}}',
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("malformed", MALFORMED)
def test_malformed_input_is_complained_of_in_one_line(malformed: str, command: str, home: Path) -> None:
    done = hook(MALFORMED[malformed], *COMMANDS[command])
    assert_safe(command, done)
    assert not home.exists(), "nothing was done"


@pytest.mark.parametrize(
    ("broken", "kept"),
    [(b'{"prompt": "half a smile: \\ud83d"', "half a smile: ?"), (b'{"prompt": "caf\xe9"', "caf�")],
    ids=["a lone surrogate", "not UTF-8"],
)
def test_a_broken_character_costs_that_character_and_nothing_else(moor: sync.Moorage, broken: bytes, kept: str) -> None:
    rest = encoded({**PROMPT, "prompt": None}).replace(b'"prompt": null, ', b"").removeprefix(b"{")
    assert hook(broken + b", " + rest.replace(b', "prompt": null', b"")).answer == {}
    assert prompts(moor) == [kept]


@pytest.mark.parametrize("depth", [60, 500, 900, 935, 940, 945, 950, 980, 990, 995, 1000])
def test_largest_readable_event_is_answered_and_spooled(depth: int, tmp_path: Path) -> None:
    deep = b'{"agent_name": "a", "metadata": {"m": ' + b"[" * depth + b"]" * depth + b"}}"
    url = f"sqlite:///{tmp_path}/missing/moorage.db"
    done = hook(deep, "pre-delegate", MOORAGE_URL=url)
    assert_safe("pre-delegate", done)
    assert done.json["reason"] in ("store_unavailable", "invalid_request")


def test_more_than_the_limit_is_read_to_its_end_and_left(home: Path) -> None:
    huge = encoded(event("UserPromptSubmit", prompt="x" * 20_000_000))
    done = hook(huge)
    assert_safe("an event", done)
    assert "longer than" in done.err
    assert not home.exists()


def test_a_long_text_is_kept_as_far_as_it_may_be(moor: sync.Moorage) -> None:
    assert hook(event("UserPromptSubmit", prompt="x" * 3_000_000)).answer == {}
    (kept,) = prompts(moor)
    assert kept.startswith("xxxx")
    assert kept.endswith("[cut: the rest was too long to keep]")


@contextmanager
def left_open(sent: bytes, **options: Any) -> Iterator[Running]:
    """A hook whose standard input does not end."""
    reader, writer = os.pipe()
    os.write(writer, sent)
    try:
        yield Running(b"", stdin=reader, **options)
    finally:
        os.close(reader)
        os.close(writer)


def test_a_host_that_does_not_close_the_pipe_is_answered(moor: sync.Moorage) -> None:
    with left_open(encoded(PROMPT)) as running:
        done = ended(running)
    assert done.answer == {}
    assert done.seconds < IN_TIME
    assert prompts(moor) == ["Why?"]


@pytest.mark.parametrize("sent", [b"", b'{"hook_event_name": "Stop", "a": {}'], ids=["nothing", "half of it"])
def test_a_host_that_does_not_come_to_an_end_is_answered_in_time(sent: bytes, home: Path) -> None:
    with left_open(sent) as running:
        done = ended(running)
    assert_safe("an event", done)
    assert "did not end in time" in done.err
    assert not home.exists()


def test_a_host_that_never_stops_sending_is_answered_in_time(home: Path) -> None:
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as sender:
        done = ended(Running(b"", stdin=sender.stdout))
        sender.kill()
    assert_safe("an event", done)
    assert not home.exists()


JUMP = """
import time
from moorage.doors.hooks import main
now, read = time.monotonic, main.read_input
def read_slowly(deadline, problems):
    raw = read(deadline, problems)
    time.monotonic = lambda: now() + 100
    return raw
main.read_input = read_slowly
"""


def test_a_person_may_type_as_slowly_as_they_like(moor: sync.Moorage) -> None:
    leader, follower = pty.openpty()
    running = Running(b"", stdin=follower, first=JUMP)
    os.write(leader, encoded({"hook_event_name": "UserPromptSubmit", "session_id": HOST, "prompt": "Why?"}))
    os.write(leader, b"\n\x04")
    done = ended(running)
    os.close(leader)
    os.close(follower)
    assert (done.code, done.json) == (0, {})
    assert done.complaints == ["moorage-hook: reading an event from the terminal; Ctrl-D ends it"]
    assert prompts(moor) == ["Why?"]


# Fields -----------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["", " ", "\0", "a\nb", "x" * 5000, HOST, f"{HOST}:latest", "../../evil", "ünïcode", "Agent"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = sorted({name for each, _ in CALLS.values() for name in each} | {"create", "agentId", "status", "error"})


@st.composite
def mutilated(draw: st.DrawFn) -> tuple[str, Json]:
    """Draw a command and an event with fields left out, added and replaced, one level down too."""
    kind = draw(st.sampled_from(sorted(CALLS)))
    sample, args = CALLS[kind]
    fields: Json = {name: value for name, value in sample.items() if draw(st.integers(0, 9)) > 0}
    fields |= draw(st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), JSON, max_size=3))
    for name in ("tool_input", "tool_response"):
        if isinstance(inner := fields.get(name), dict):
            some = st.sampled_from(["agentId", "status", "subagent_type", "prompt", "message", "resumedAgentId", "x"])
            fields[name] = inner | draw(st.dictionaries(some, JSON, max_size=3))
    if draw(st.booleans()) and "hook_event_name" in fields:
        fields["hook_event_name"] = draw(st.sampled_from(sorted(EVENTS)))
    return (args[0] if args else draw(st.sampled_from(["", "", "pre-delegate", "subagent-stop"]))), fields


def test_kept_events_are_answered_and_change_something_whole_or_nothing(moor: sync.Moorage, home: Path) -> None:
    for sent in kept("hooks"):
        check_event(moor, home, *json.loads(sent))


@pytest.mark.timeout(120 + many(200))
@settings(
    max_examples=many(200),
    derandomize=SHORT,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(call=mutilated(), create=st.booleans())
def test_any_event_is_answered_and_changes_something_whole_or_nothing(
    moor: sync.Moorage, home: Path, call: tuple[str, Json], create: bool
) -> None:
    with tried("hooks", json.dumps([*call, create]).encode()):
        check_event(moor, home, *call, create)


def check_event(moor: sync.Moorage, home: Path, command: str, fields: Json, create: bool) -> None:
    before = whole(moor)
    work = HookWork(command, encoded(fields), url=None, create=create, deadline=time.monotonic() + 60)
    answer = work.answer()
    body = json.loads(answer.encoded())
    name = fields.get("hook_event_name")
    if isinstance(name, str) and name:
        assert body == {} or body["hookSpecificOutput"]["hookEventName"] == name
    elif command:
        assert body.keys() >= (PRE_DELEGATE_KEYS if command == "pre-delegate" else SUBAGENT_STOP_KEYS)
    assert answer.code == 0
    assert "should not" not in answer.complaint
    if answer.complaint:
        assert before.items() <= whole(moor).items(), "what is refused changes nothing that is there"
    assert not spooled(home)


def whole(moor: sync.Moorage) -> dict[str, tuple[str, int]]:
    """Return every session with its state and last number; its log has no gap."""
    found = {}
    for session in moor.list(limit=1000):
        numbers = [entry.number for entry in moor.log(session.id, limit=1000)]
        assert numbers == list(range(1, session.last_entry + 1))
        found[session.id] = (session.state.value, session.last_entry)
    return found


@pytest.mark.parametrize("odd", ["x" * 5000, "ä b", "../../evil", "a\nb", f"{HOST}:latest", "-", "😀" * 100])
def test_odd_ids_are_kept_apart_and_found_again(moor: sync.Moorage, odd: str) -> None:
    for told in (subagent_start(odd), subagent_start(f"{odd}2"), subagent_stop(odd, "Found.")):
        assert hook(told).code == 0
    done = [session for session in moor.list() if session.state.value == "completed"]
    assert [[entry.text for entry in moor.messages(session.id)] for session in done] == [["Found."]]
    assert len(moor.list()) == 3


def test_an_agent_with_the_hosts_id_does_not_close_the_host(moor: sync.Moorage) -> None:
    hook(PROMPT)
    for told in (subagent_start(HOST), subagent_stop(HOST)):
        done = hook(told)
        assert_safe("an event", done)
        assert "agent_id" in done.err
    assert moor.get(HOST).state.value == "active"


@pytest.mark.parametrize("kind", ["a pipe", "a folder", "nothing", "no JSON", "nested", "endless"])
def test_a_transcript_that_cannot_be_read_costs_nothing(moor: sync.Moorage, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "transcript"
    if kind == "a pipe":
        os.mkfifo(path)  # opening it would wait for a writer
    elif kind == "a folder":
        path.mkdir()
    elif kind == "endless":
        path = Path("/dev/zero")
    elif kind != "nothing":
        path.write_bytes(b"[" * 100_000 if kind == "nested" else b"hello\n")
    done = hook(subagent_stop("a1", "Found.", agent_transcript_path=str(path)))
    assert (done.answer, done.seconds < IN_TIME) == ({}, True)
    assert [entry.text for entry in moor.messages("a1")] == ["Found."]


def test_last_words_are_kept_though_the_metadata_are_full(moor: sync.Moorage) -> None:
    hook(subagent_start("a1"))
    moor.update("a1", metadata={"notes": "x" * (64 * 1024 - 200)})
    assert hook(subagent_stop("a1", "Found.", agent_transcript_path="/" + "y" * 300)).answer == {}
    assert (moor.get("a1").state.value, [entry.text for entry in moor.messages("a1")]) == ("completed", ["Found."])


# The process's surroundings ---------------------------------------------------------------------


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)], ids=str)
def test_closed_streams_cause_no_error(moor: sync.Moorage, database: Path, closed: tuple[int, ...]) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    done = ended(Running(PROMPT, before=close))
    assert done.code == 0
    assert [session.id for session in moor.list()] == ([] if 0 in closed else [HOST])
    assert moor.check() == []


def test_output_to_a_closed_stream_reaches_no_file(home: Path) -> None:
    """The next file that a process opens gets the smallest free number: that of standard output."""
    env = {"MOORAGE_URL": "sqlite:////missing/moorage.db"}
    assert ended(Running(PROMPT, before=lambda: os.close(1), first=SPOOL_HANGS, env=env)).code == 0
    for half_done in (home / "spool").iterdir():
        assert json.loads(half_done.read_bytes())["event"] == PROMPT, "the answer is not behind it"


def test_a_host_that_is_gone_is_not_missed(moor: sync.Moorage) -> None:
    for stream in ("stdout", "stderr"):
        reader, writer = os.pipe()
        os.close(reader)
        options: Json = {stream: writer}
        running = Running({**PROMPT, "prompt": stream}, **options)
        os.close(writer)
        assert ended(running).code == 0
    assert prompts(moor) == ["stdout", "stderr"]


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONWARNINGS": "always"},
        {"PYTHONWARNINGS": "error"},
        {"PYTHONDEVMODE": "1"},
        {"PYTHONOPTIMIZE": "2"},
        {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
        {"AGENT_SESSION_ID": "${AGENT_SESSION_ID}"},
    ],
    ids=lambda each: next(iter(each)) + "=" + next(iter(each.values())),
)
def test_python_has_nothing_to_say_to_the_host(moor: sync.Moorage, environment: dict[str, str]) -> None:
    done = hook({**PROMPT, "prompt": "größer"}, **environment)
    assert (done.code, done.json) == (0, {})
    assert prompts(moor) == ["größer"]


def test_a_user_whose_name_is_no_text_is_served(moor: sync.Moorage) -> None:
    assert hook(PROMPT, USER=os.fsdecode(b"\xff")).answer == {}
    assert prompts(moor) == ["Why?"]


def test_missing_folder_causes_no_error(moor: sync.Moorage, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    first = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r})"
    running = Running(PROMPT, first=first)
    assert ended(running).answer == {}
    assert prompts(moor) == ["Why?"]


def test_an_unknown_event_is_left_alone(home: Path) -> None:
    done = hook(event("SomethingNew"))
    assert_safe("an event", done)
    assert not home.exists()


@pytest.mark.parametrize("argument", ["stop", "--verbose", "", "--url", "ä"])
def test_an_unknown_argument_is_left_out(moor: sync.Moorage, argument: str) -> None:
    done = hook(PROMPT, argument)
    assert_safe("an event", done)
    assert prompts(moor) == ["Why?"]


@pytest.mark.parametrize("sent", [b"", b"{", json.dumps({"cwd": "/"}).encode(), b"x" * (MAX_INPUT + 1)])
def test_several_problems_are_told_in_one_line(sent: bytes, home: Path) -> None:
    done = hook(sent, "bogus", "--verbose")
    assert_safe("an event", done)
    assert "unknown argument 'bogus' is ignored" in done.err


@pytest.mark.parametrize("missing", ["moorage.doors.hooks.work", "moorage.doors.hooks.claude_code", "apsw"])
def test_a_broken_installation_does_not_break_the_host(missing: str) -> None:
    done = ended(Running(PROMPT, first=f"import sys; sys.modules[{missing!r}] = None"))
    assert_safe("an event", done)


# Stores that are not as they should be ----------------------------------------------------------


def missing_folder(home: Path, database: Path) -> str:
    return f"sqlite:///{home}/no/such/folder/moorage.db"


def a_folder(home: Path, database: Path) -> str:
    database.mkdir(parents=True)
    return f"sqlite:///{database}"


def no_database(home: Path, database: Path) -> str:
    home.mkdir()
    database.write_bytes(b"PK\x03\x04" * 2000)
    return f"sqlite:///{database}"


def cut_short(home: Path, database: Path) -> str:
    filled(home, database)
    cut_to(database, 8192)
    return f"sqlite:///{database}"


def too_new(home: Path, database: Path) -> str:
    filled(home, database)
    with opened_raw(database) as db:
        db.execute(f"PRAGMA user_version = {LATEST + 1}").fetchall()
    return f"sqlite:///{database}"


def anothers(home: Path, database: Path) -> str:
    home.mkdir()
    with opened_raw(database) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")
    return f"sqlite:///{database}"


def no_store(home: Path, database: Path) -> str:
    return "carrier-pigeon://home"


def no_url(home: Path, database: Path) -> str:
    return "sqlite://moorage.db"


def broken_configuration(home: Path, database: Path) -> str:
    home.mkdir()
    (home / "config.toml").write_text("[hooks\n")
    return ""


def odd_configuration(home: Path, database: Path) -> str:
    home.mkdir()
    (home / "config.toml").write_text("[hooks]\ndeny_if_resumable = 'maybe'\n")
    return ""


def filled(home: Path, database: Path) -> None:
    home.mkdir()
    with sync.connect(f"sqlite:///{database}") as moor:
        moor.create("agent", session_id="s-1")
        moor.append("s-1", ["x" * 1000] * 40)
    into_one_file(database)


Trouble = Callable[[Path, Path], str]
TROUBLES: list[Trouble] = [
    *(missing_folder, a_folder, no_database, cut_short, too_new, anothers, no_store, no_url),
    *(broken_configuration, odd_configuration),
]
TELLING = ("SubagentStop", "PreToolUse", "pre-delegate", "subagent-stop")


@pytest.mark.parametrize("name", TELLING)
@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda each: each.__name__)
def test_a_store_in_trouble_is_told_of_and_the_event_kept(
    trouble: Trouble, name: str, home: Path, database: Path
) -> None:
    sent, args = CALLS[name]
    url = trouble(home, database)
    before = database.read_bytes() if database.is_file() else None
    done = hook(sent, *args, **({"MOORAGE_URL": url} if url else {}))
    assert_safe(name, done)
    never = trouble in (no_store, no_url)
    assert ("moved aside" if never else "put off") in done.err
    assert len(spooled(home, ".refused" if never else ".json")) == 1
    assert (database.read_bytes() if database.is_file() else None) == before, "not one byte was changed"


@pytest.mark.parametrize("name", CALLS)
def test_every_event_survives_a_store_in_trouble(name: str, home: Path, database: Path) -> None:
    sent, args = CALLS[name]
    done = hook(sent, *args, MOORAGE_URL=missing_folder(home, database))
    assert_safe(name, done)
    assert len(spooled(home)) == 1


@pytest.fixture
def begun(moor: sync.Moorage) -> sync.Moorage:
    """A store in which there is something to do for every event."""
    for sent in (EVENTS["SessionStart"], EVENTS["SubagentStart"]):
        assert hook(sent).code == 0
    moor.create("architect", task_id="T001")
    return moor


def locked_out(*names: str) -> None:
    """Every one of these calls gives up in time, and is put off."""
    running = [Running(CALLS[name][0], *CALLS[name][1]) for name in names]
    for each in running:
        each.send()
    for name, each in zip(names, running, strict=True):
        done = ended(each)
        if name in ("PreToolUse", "pre-delegate"):  # a question: it can be answered, though not counted
            assert (done.code, len(done.complaints), "counted later" in done.err) == (0, 1, True)
        else:
            assert_safe(name, done)
            assert "put off until" in done.err
        assert done.seconds < IN_TIME


@pytest.mark.parametrize("names", [sorted(CALLS)[:4], sorted(CALLS)[4:8], sorted(CALLS)[8:]], ids=",".join)
def test_a_store_that_stays_locked_is_not_waited_for(
    begun: sync.Moorage, home: Path, database: Path, names: list[str]
) -> None:
    with write_lock(database):
        locked_out(*names)
    assert len(spooled(home)) == len(names)


def test_hook_does_not_wait_for_a_stopped_writer(begun: sync.Moorage, home: Path, database: Path) -> None:
    with write_lock(database) as locker:
        locker.stop()
        locked_out("SubagentStop", "pre-delegate")
        locker.go_on()
    assert len(spooled(home)) == 2


def test_a_first_start_that_finds_the_file_locked_gives_up_in_time(home: Path, database: Path) -> None:
    home.mkdir()
    with write_lock(database):
        locked_out("SessionStart")


def test_the_end_of_a_session_takes_less_time_than_its_hooks_share(begun: sync.Moorage, database: Path) -> None:
    with write_lock(database):
        work = HookWork("", encoded(EVENTS["SessionEnd"]), url=None, create=False, deadline=time.monotonic() + 1.9)
        began = time.monotonic()
        assert work.deadline <= began + 1.0
        assert "put off" in work.answer().complaint
        assert time.monotonic() < work.deadline + 0.5


def test_event_of_a_hanging_worker_is_spooled(moor: sync.Moorage, home: Path) -> None:
    hang = "from moorage.doors.hooks.work import HookWork; import time; HookWork.answer = lambda self: time.sleep(10)"
    done = ended(Running(PROMPT, first=hang))
    assert_safe("an event", done)
    assert "did not answer in time" in done.err
    assert len(spooled(home)) == 1


def test_when_the_spool_hangs_too_the_host_is_answered_all_the_same(moor: sync.Moorage, home: Path) -> None:
    for sent, args in (CALLS["subagent-stop"], CALLS["UserPromptSubmit"]):
        done = ended(Running(sent, *args, first=SPOOL_HANGS, env={"MOORAGE_URL": "sqlite:////missing/moorage.db"}))
        assert_safe(args[0] if args else "an event", done)
        assert "may be lost" in done.err


def test_without_threads_there_is_an_answer(moor: sync.Moorage) -> None:
    none = "import _thread\ndef no(*_): raise RuntimeError('no threads')\n_thread.start_new_thread = no"
    assert ended(Running(PROMPT, first=none)).answer == {}
    assert prompts(moor) == ["Why?"]


@pytest.mark.parametrize("name", ["UserPromptSubmit", "pre-delegate", "subagent-stop"])
def test_where_nothing_can_be_written_the_loss_is_told(name: str, home: Path) -> None:
    sent, args = CALLS[name]
    done = ended(Running(sent, *args, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))))
    assert_safe(name, done)
    assert "lost" in done.err
    assert not list((home / "spool").glob("*"))


def test_a_store_that_cannot_grow_is_told_of_and_the_event_taken_in_when_it_can(moor: sync.Moorage, home: Path) -> None:
    moor.append(moor.create("agent").id, ["x" * 1000] * 200)  # the log's end is far beyond what the hook may write
    done = ended(Running(PROMPT, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))))
    assert_safe("an event", done)
    assert len(spooled(home)) == 1
    assert hook({**PROMPT, "prompt": "Again"}).answer == {}
    assert prompts(moor) == ["Why?", "Again"]
    assert moor.check() == []


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small one."""
    try:
        with small_disk(tmp_path / "small", 4096) as folder:
            yield Path(folder)
    except CannotInject as error:
        pytest.skip(str(error))


def test_a_full_disk_is_told_of_and_the_event_taken_in_when_there_is_room(disk: Path, home: Path) -> None:
    url = f"sqlite:///{disk}/moorage.db"
    with sync.connect(url) as moor:
        filling = fill(disk)
        done = hook(PROMPT, MOORAGE_URL=url)
        assert_safe("an event", done)
        assert len(spooled(home)) == 1
        Path(filling).unlink()
        assert hook({**PROMPT, "prompt": "Again"}, MOORAGE_URL=url).answer == {}
        assert prompts(moor) == ["Why?", "Again"]
        assert moor.check() == []


def test_a_full_disk_for_the_spool_too_is_a_loss_and_told(disk: Path) -> None:
    hook(PROMPT, MOORAGE_HOME=str(disk))
    fill(disk)
    done = hook({**PROMPT, "prompt": "x" * 100_000}, MOORAGE_HOME=str(disk))
    assert_safe("an event", done)
    assert "lost" in done.err


DEMOTED = f"""
import os
import apsw, fcntl, hashlib, msgspec, select
from moorage.doors.hooks import claude_code, plain, work
import moorage.stores.sqlite.store, moorage.service.retention
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that another user can reach; not within ours, which other tests close and open at the same time."""
    with tempfile.TemporaryDirectory(prefix="moorage-shared-") as folder:
        path = Path(folder)
        path.chmod(0o755)
        if not all(each.stat().st_mode & 0o001 for each in path.parents):
            pytest.skip("temporary files are nobody else's business here")
        yield path


@pytest.mark.parametrize("spool", ["writable", "not writable"])
def test_a_store_that_may_only_be_read_is_told_of(shared: Path, spool: str) -> None:
    with sync.connect(f"sqlite:///{shared}/moorage.db") as moor:
        moor.create("agent")
    (shared / "moorage.db").chmod(0o444)
    folder = shared / "home"
    folder.mkdir()
    folder.chmod(0o777 if spool == "writable" else 0o555)
    env = {"MOORAGE_URL": f"sqlite:///{shared}/moorage.db", "MOORAGE_HOME": str(folder)}
    done = ended(Running(PROMPT, first=DEMOTED, env=env))
    assert_safe("an event", done)
    assert ("put off until" if spool == "writable" else "lost") in done.err
    assert len(spooled(folder)) == (spool == "writable")


# Refusing ---------------------------------------------------------------------------------------


def resumable_child(moor: sync.Moorage) -> None:
    hook(subagent_start("a1"))
    moor.update("a1", phase="approval")
    hook(subagent_stop("a1", "A very long answer. " * 200))
    assert moor.should_resume("a1").decision


def test_a_denial_is_the_only_thing_that_ends_with_2(moor: sync.Moorage, home: Path, database: Path) -> None:
    resumable_child(moor)
    assert hook(pre_tool_use("toolu_1")).code == 0
    (home / "config.toml").write_text("[hooks]\ndeny_if_resumable = true\n")
    denied = hook(pre_tool_use("toolu_2"))
    assert (denied.code, denied.json, len(denied.complaints)) == (2, {}, 1)
    assert "send a message to agent a1" in denied.err, "the way out is not cut off"
    others = (
        pre_tool_use("toolu_3", session_id="another"),
        pre_tool_use("toolu_4", tool_input={"subagent_type": "explorer"}),
        pre_tool_use("toolu_5", tool_name="Bash"),
        *(each for name, each in EVENTS.items() if name not in ("PreToolUse", "SessionEnd")),
    )
    assert {hook(each).code for each in others} == {0}
    database.rename(home / "gone.db")
    database.mkdir()
    assert_safe("an event", hook(pre_tool_use("toolu_6")))


def test_a_denial_holds_while_the_store_is_locked(moor: sync.Moorage, home: Path, database: Path) -> None:
    resumable_child(moor)
    (home / "config.toml").write_text("[hooks]\ndeny_if_resumable = true\n")
    with write_lock(database):
        assert hurried(pre_tool_use()).code == 2
    assert hook(event("Stop")).answer == {}
    (counted,) = moor.delegations().items
    assert counted.resumed

"""Agents that speak JSON lines: what they may say, what becomes of what they should not, and how they are answered."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.agents.interface import AgentEvent
from moorage.core.entry import check_message
from moorage.launcher.drivers.acp import AcpDriver
from moorage.launcher.drivers.base import MAX_LINE, MAX_MESSAGE_BYTES, Exit, TextDriver
from moorage.launcher.drivers.jsonl import JsonlDriver
from moorage.launcher.turn_files import Follower
from tests.fuzz.inputs import kept, many, tried
from tests.launcher.turns import Turns, python, shell


class Listener:
    """The other end of a driver's line, without any process."""

    def __init__(self) -> None:
        self.sent, self.events, self.is_closed = bytearray(), list[AgentEvent](), False

    def send(self, data: bytes) -> None:
        self.sent += data

    def close_input(self) -> None:
        self.is_closed = True

    def emit(self, event: AgentEvent) -> None:
        json.dumps(event)
        self.events.append(event)

    def errors(self) -> str:
        return ""


JOB = {"agent": {"name": "tested", "command": ["x"]}, "prompt": "hello", "cwd": "/", "turn_line": b"{}\n"}
LEFT = Exit(0)


def told(*lines: object, exit: Exit = LEFT) -> list[AgentEvent]:
    """Return the events of an agent's lines, the result last; texts are sent unchanged."""
    line = Listener()
    driver = JsonlDriver(JOB, line)
    driver.begin()
    for said in lines:
        data = said if isinstance(said, bytes) else json.dumps(said).encode()
        driver.hear(data + b"\n")
    driver.hear_end()
    return [*line.events, driver.result(exit)]


# A real program ---------------------------------------------------------------------------------

TALKER = """
import json, sys
turn = json.loads(sys.stdin.readline())
def say(**event): print(json.dumps(event), flush=True)
say(type="phase", phase="planning", metadata={"step": 1})
say(type="chunk", text="You ")
say(type="chunk", text="said ")
say(type="message", content=f"You said {turn['prompt']}")
say(type="metadata", metadata={"asked_by": turn["session_id"]})
say(type="error", error="a small one")
say(type="checkpoint", checkpoint={"seen": len(turn["history"])})
say(type="usage", input_tokens=3, output_tokens=4, model="m")
say(type="weather", sky="blue")
say(type="result", text="done")
"""


def test_everything_an_agent_can_say_arrives_in_order(turns: Turns) -> None:
    running = turns.begin(python(TALKER, protocol="jsonl"), prompt="tea", history=[{"role": "user", "content": "hi"}])
    assert running.wait() == [
        {"type": "phase", "phase": "planning", "metadata": {"step": 1}, "line": 1},
        {"type": "chunk", "text": "You said "},
        {"type": "message", "role": "assistant", "content": "You said tea", "line": 4},
        {"type": "metadata", "metadata": {"asked_by": "session-1"}, "line": 5},
        {"type": "error", "error": "a small one", "line": 6},
        {"type": "checkpoint", "checkpoint": {"seen": 1}, "line": 7},
        {"type": "usage", "input_tokens": 3, "output_tokens": 4},
        {
            "type": "problem",
            "field": "type",
            "expected": "one of message, chunk, phase, metadata, error, checkpoint, usage, note, approval, result",
            "text": '{"type": "weather", "sky": "blue"}',
            "line": 9,
        },
        {"type": "result", "outcome": "completed", "text": "done", "said": False, "problems": 1},
    ]


ASKER = """
import json, sys
json.loads(sys.stdin.readline())
question = {"type": "approval", "id": "q", "question": "Shall I?", "plan": {"rm": "all"}, "options": ["later"]}
print(json.dumps(question), flush=True)
answer = json.loads(sys.stdin.readline())
print(json.dumps({"type": "result", "text": f"{answer['decision']} ({answer['note']})"}), flush=True)
"""


def test_a_question_waits_for_its_answer_and_time_stands_still_meanwhile(turns: Turns) -> None:
    running = turns.begin(python(ASKER, protocol="jsonl", timeout="1s", idle_timeout="1s"))
    asked = running.until(lambda event: event["type"] == "approval")
    assert asked == {
        "type": "approval",
        "id": "q",
        "question": "Shall I?",
        "options": ["later"],
        "wait": True,
        "plan": {"rm": "all"},
        "line": 1,
    }
    with pytest.raises(AssertionError):  # it stays for longer than it may work
        running.until(lambda event: event["type"] == "result", 2.5)
    running.folder.send({"type": "decision", "id": "q", "decision": "approve", "note": "go"})
    assert running.result()["text"] == "approve (go)"


def test_after_the_answer_time_goes_on(turns: Turns) -> None:
    stubborn = ASKER.replace(
        'print(json.dumps({"type": "result"', 'import time; time.sleep(600); print(json.dumps({"type": "result"'
    )
    running = turns.begin(python(stubborn, protocol="jsonl", timeout="1s"))
    running.until(lambda event: event["type"] == "approval")
    running.folder.send({"type": "decision", "id": "q", "decision": "reject", "note": None})
    assert running.result()["reason"] == "timed_out"


def test_an_agent_that_has_answered_and_does_not_leave_is_ended(turns: Turns) -> None:
    script = 'read line; echo \'{"type": "result", "text": "done"}\'; exec sleep 600'
    assert turns.begin(shell(script, protocol="jsonl")).result()["text"] == "done"


def test_an_agent_that_is_stopped_is_told_so_and_its_last_words_are_kept(turns: Turns) -> None:
    script = (
        'trap : TERM; read turn; echo \'{"type": "chunk", "text": "thinking"}\'; read stop || read stop; '
        'case "$stop" in *stop*) echo \'{"type": "result", "text": "as you wish"}\';; esac'  # TERM would end a grep
    )
    running = turns.begin(shell(script, protocol="jsonl"))
    running.heard("thinking")
    running.folder.send({"type": "stop"})
    result = running.result()
    assert (result["outcome"], result["text"]) == ("stopped", "as you wish")


def test_a_line_of_fifty_megabytes_is_cut_and_told(turns: Turns) -> None:
    answer = json.dumps({"type": "result", "text": "still here"})
    flood = f"print('x' * 50_000_000)\nprint({answer!r})"
    running = turns.begin(python(flood, protocol="jsonl", max_output_bytes=100_000_000))
    problem, result = running.wait()
    assert (result["text"], result["problems"]) == ("still here", 1)
    assert problem["expected"] == f"a line of at most {MAX_LINE:,} bytes; this one has 50,000,000"
    assert problem["text"].startswith("xxx")
    assert Path(running.folder.path, "out.jsonl").stat().st_size < 10_000


def test_such_a_line_is_too_much_for_an_agent_with_the_usual_limit(turns: Turns) -> None:
    result = turns.begin(python("print('x' * 50_000_000)", protocol="jsonl")).result()
    assert result["reason"] == "output_too_large"


# The rules --------------------------------------------------------------------------------------


def test_the_answer_is_not_said_twice() -> None:
    message = {"type": "message", "content": "the answer"}
    assert told(message, {"type": "result", "text": "the answer"})[-1]["said"] is True
    assert told(message, {"type": "result"})[-1] == {
        "type": "result",
        "outcome": "completed",
        "text": "the answer",
        "said": True,
    }
    assert told(message, {"type": "result", "text": "another"})[-1]["said"] is False


def test_an_agent_may_leave_without_a_result_if_it_spoke() -> None:
    assert told({"type": "message", "content": "hi"})[-1]["text"] == "hi"
    pieces = told({"type": "chunk", "text": "a"}, {"type": "chunk", "text": "b"})[-1]
    assert (pieces["outcome"], pieces["text"], pieces["said"]) == ("completed", "ab", False)
    question = told({"type": "approval", "question": "Shall I?", "wait": False})
    assert (question[0]["id"], question[0]["wait"]) == ("question-1", False)
    assert (question[-1]["outcome"], question[-1]["text"]) == ("completed", "")


def test_an_agent_that_says_nothing_gave_no_answer() -> None:
    assert told()[-1]["reason"] == "no_answer"
    assert told({"type": "phase", "phase": "planning"})[-1]["reason"] == "no_answer"
    assert told(b"Traceback: oh no")[-1]["reason"] == "bad_output"


def test_an_agent_can_say_that_it_failed() -> None:
    assert told({"type": "result", "outcome": "failed"})[-1]["reason"] == "agent_failed"
    own = told({"type": "result", "outcome": "failed", "error": "no luck", "reason": "out_of_luck"})[-1]
    assert (own["error"], own["reason"]) == ("no luck", "out_of_luck")


def test_a_status_other_than_0_counts_unless_there_was_a_result() -> None:
    assert told({"type": "message", "content": "hi"}, exit=Exit(4))[-1]["reason"] == "agent_failed"
    assert told({"type": "result", "text": "hi"}, exit=Exit(4))[-1]["outcome"] == "completed"


def test_nothing_counts_after_the_result() -> None:
    events = told({"type": "result", "text": "first"}, {"type": "message", "content": "late"}, {"type": "result"})
    assert [event["type"] for event in events] == ["result"]
    assert events[0]["text"] == "first"


@pytest.mark.parametrize(
    "said",
    [
        b"not JSON",
        b"[1]",
        b'"text"',
        b"\xff\xfe",
        b'{"type": "chunk", "text": NaN}',
        b'{"type": "usage", "x": Infinity, "y": 1}',
        b"[" * 100_000,
        b'{"a": ' * 100_000,
        {},
        {"type": 5},
        {"type": "message"},
        {"type": "message", "content": 5},
        {"type": "message", "content": []},
        {"type": "message", "content": [{"text": "no type"}]},
        {"type": "message", "content": [{"type": "tool_call", "id": "1"}]},
        {"type": "message", "content": "x", "role": "boss"},
        {"type": "chunk"},
        {"type": "phase", "phase": 1},
        {"type": "phase", "phase": "planning", "metadata": []},
        {"type": "metadata", "metadata": "x"},
        {"type": "checkpoint", "checkpoint": [1]},
        {"type": "approval"},
        {"type": "approval", "question": "?", "options": "abc"},
        {"type": "approval", "question": "?", "expires_in": "soon"},
        {"type": "result", "outcome": "great"},
        {"type": "result", "text": 5},
    ],
)
def test_malformed_lines_are_reported_counted_and_skipped(said: object) -> None:
    problem, result = told(said, {"type": "result", "text": "fine"})
    assert (problem["type"], problem["line"]) == ("problem", 1)
    assert (result["outcome"], result["text"], result["problems"]) == ("completed", "fine", 1)


@pytest.mark.parametrize(
    ("said", "field", "expected"),
    [
        (b"oh no", None, "a JSON object"),
        ({"type": "mesage"}, "type", "one of message, "),
        ({"type": "message", "content": "x", "role": "assistent"}, "role", "one of user, assistant, system, tool"),
        (
            {"type": "message", "content": [{"type": "text", "text": "a"}, {"type": "tool_result", "output": 1}]},
            "content[1].call_id",
            "a text, in a part of type tool_result",
        ),
        ({"type": "message", "content": ["a"]}, "content[0].type", "the type of a part: text, tool_call, tool_result"),
        ({"type": "phase"}, "phase", "a text, in an event of type phase"),
        ({"type": "usage", "input_tokens": "12"}, "input_tokens", "a number"),
        ({"type": "result", "metadata": []}, "metadata", "a JSON object, in an event of type result"),
    ],
)
def test_problem_names_line_field_and_expectation(said: object, field: str | None, expected: str) -> None:
    [problem, _] = told(b"", said, {"type": "result", "text": "fine"})
    assert (problem["line"], problem["field"]) == (2, field)
    assert problem["expected"].startswith(expected)


def test_text_of_a_problem_is_the_beginning_of_its_line_without_nul() -> None:
    [problem, _] = told(b"\0" + b"x" * 1000, {"type": "result", "text": "fine"})
    assert problem["text"] == "\ufffd" + "x" * 199 + "…"


def test_problems_of_a_stopped_agent_are_counted(turns: Turns) -> None:
    running = turns.begin(shell("read turn; echo oh; echo no; exec sleep 600", protocol="jsonl"))
    running.until(lambda event: event["type"] == "problem" and event["line"] == 2)
    running.folder.send({"type": "stop"})
    assert running.result()["problems"] == 2


def test_a_flood_of_nonsense_is_counted_but_not_repeated() -> None:
    events = told(*[b"nonsense"] * 1000, {"type": "result", "text": "fine"})
    assert len(events) == 21
    assert events[-1]["problems"] == 1000


def test_a_character_that_is_none_does_not_spoil_the_line(tmp_path: Path) -> None:
    [event, _] = told(b'{"type": "chunk", "text": "half \\ud83d a pair"}')
    from moorage.launcher.turn_files import Outbox

    outbox = Outbox(str(tmp_path / "out.jsonl"))
    outbox.put(event)
    outbox.put({"type": "note", "note": "end"})
    [said, _] = Follower(str(tmp_path / "out.jsonl")).news()
    assert said["text"] == "half ? a pair"


def test_messages_above_the_limit_of_the_log_are_made_to_fit() -> None:
    long = told({"type": "message", "content": "ü" * 700_000})
    assert "".join(event["content"] for event in long[:-1]) == "ü" * 700_000
    parts = [{"type": "text", "text": "see"}, {"type": "tool_result", "call_id": "1", "output": "y" * 2_000_000}]
    [short, _] = told({"type": "message", "role": "tool", "content": parts})
    assert short["content"][1]["output"].endswith("[1,967,232 of 2,000,000 characters left out]")
    many = [{"type": "tool_result", "call_id": str(n), "output": "z" * 30_000} for n in range(100)]
    for event in (*long[:-1], short, *told({"type": "message", "role": "tool", "content": many})[:-1]):
        check_message({"role": event["role"], "content": event["content"]})


def test_lines_may_come_in_any_pieces() -> None:
    whole = b"".join(
        json.dumps(event).encode() + b"\n" for event in ({"type": "chunk", "text": "é"}, {"type": "result"})
    )
    for size in (1, 2, 3, 7):
        line = Listener()
        driver = JsonlDriver(JOB, line)
        for start in range(0, len(whole), size):
            driver.hear(whole[start : start + size])
        assert line.events == [{"type": "chunk", "text": "é"}]
        assert driver.is_done


def test_commands_are_followed_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    follower = Follower(str(path))
    assert follower.news() == []
    path.write_bytes(b'{"type": "ren')
    assert follower.news() == []
    with path.open("ab") as file:
        file.write(b'ewed"}\nnonsense\n[]\n{"type": "stop"}\n{"half')
    assert follower.news() == [{"type": "renewed"}, {"type": "stop"}]
    assert follower.news() == []


# Whatever an agent prints -----------------------------------------------------------------------

WORDS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20))
VALUES = st.recursive(
    WORDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner), max_leaves=6
)
TYPES = ["message", "chunk", "phase", "metadata", "error", "checkpoint", "approval", "usage", "note", "result"]
FIELDS = ["role", "content", "text", "phase", "metadata", "error", "checkpoint", "question", "id", "options", "outcome"]
EVENTS = st.dictionaries(st.sampled_from(FIELDS), VALUES).flatmap(
    lambda fields: st.sampled_from(TYPES).map(lambda kind: {"type": kind, **fields})
)
UPDATES = ["agent_message_chunk", "tool_call", "tool_call_update", "plan", "usage_update", "other"]
ACP_FIELDS = ["toolCallId", "title", "status", "content", "rawInput", "rawOutput", "messageId", "used", "entries"]
ACP_MESSAGES = st.one_of(
    st.builds(lambda n, value: {"id": n, "result": value}, st.integers(1, 4), VALUES),
    st.builds(lambda n, value: {"id": n, "error": value}, st.integers(1, 4), VALUES),
    st.builds(lambda: {"id": 1, "result": {"protocolVersion": 1}}),
    st.builds(lambda: {"id": 2, "result": {"sessionId": "s"}}),
    st.builds(
        lambda kind, fields: {
            "method": "session/update",
            "params": {"sessionId": "s", "update": {"sessionUpdate": kind, **fields}},
        },
        st.sampled_from(UPDATES),
        st.dictionaries(st.sampled_from(ACP_FIELDS), VALUES),
    ),
    st.builds(
        lambda value, options: {
            "id": value,
            "method": "session/request_permission",
            "params": {"sessionId": "s", "toolCall": value, "options": options},
        },
        VALUES,
        st.lists(st.fixed_dictionaries({"optionId": VALUES, "kind": VALUES})) | VALUES,
    ),
)


def lines_of(values: Any) -> Any:
    return st.lists(values.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=30), max_size=12)


@pytest.mark.timeout(120 + many(60) // 10)
@pytest.mark.parametrize(
    ("kind", "lines"),
    [(JsonlDriver, lines_of(EVENTS)), (AcpDriver, lines_of(ACP_MESSAGES)), (TextDriver, lines_of(EVENTS))],
)
def test_no_output_of_an_agent_upsets_its_driver(kind: Any, lines: Any) -> None:
    @settings(max_examples=many(60), deadline=None)
    @given(lines, st.sampled_from([Exit(0), Exit(1), Exit(None, "SIGKILL")]), st.booleans())
    def check(said: list[bytes], exit: Exit, stopped: bool) -> None:
        sent = [kind.__name__.encode(), *said]
        with tried("lines", b"\n".join(sent)):
            check_output(kind, said, exit, stopped)

    check()


def test_kept_output_of_an_agent_does_not_upset_its_driver() -> None:
    for sent in kept("lines"):
        name, *said = sent.split(b"\n")
        check_output({each.__name__: each for each in DRIVERS}[name.decode()], said, Exit(0), False)


DRIVERS: tuple[Any, ...] = (JsonlDriver, AcpDriver, TextDriver)


def check_output(kind: Any, said: list[bytes], exit: Exit, stopped: bool) -> None:
    line = Listener()
    driver = kind(JOB, line)
    driver.begin()
    for part in said:
        driver.hear(part + b"\n")
        driver.told({"type": "decision", "id": "permission-1", "decision": "approve"})
    if stopped:
        driver.ask_to_stop()
    driver.hear_end()
    result = driver.result(exit)
    assert result["outcome"] in ("completed", "failed", "stopped")
    assert isinstance(result["text"], str)
    for event in line.events:
        if event["type"] == "message":
            assert (
                len(json.dumps(event["content"], ensure_ascii=False).encode("utf-8", "replace"))
                <= MAX_MESSAGE_BYTES + 2
            )

"""Lists of messages become sessions: however they are written, with calls and results, linked to their tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.core.bundle import check_bundle
from moorage.core.errors import InvalidImport
from moorage.core.window import unanswered_calls
from moorage.service.histories.message_lists import read_messages
from moorage.testing.builders import NOON
from tests.service.doors import Place, Timed

CALL = {"id": "call-1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Lisbon"}'}}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "How is the weather in Lisbon?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call-1", "content": "21 °C"},
    {"role": "assistant", "content": "Warm: 21 °C."},
]
EXPECTED = [
    ("system", "Be brief."),
    ("user", "How is the weather in Lisbon?"),
    ("assistant", [{"type": "tool_call", "id": "call-1", "name": "weather", "input": {"city": "Lisbon"}}]),
    ("tool", [{"type": "tool_result", "call_id": "call-1", "output": "21 °C"}]),
    ("assistant", "Warm: 21 °C."),
]


def write(path: Path, value: Any, **how: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value, **how))
    return path


def lines(values: list[Any]) -> str:
    return "".join(f"{json.dumps(value)}\n" for value in values)


def said(moor: Any, session_id: str) -> list[tuple[str, Any]]:
    return [(message.role, message.content) for message in moor.messages(session_id)]


def the_only(moor: Any, path: Path, **how: Any) -> str:
    """Import a file that holds one conversation, all of it; its session."""
    report = moor.import_files([path], **how)
    assert (report.left_out, report.left_out_total) == ([], 0)
    [session_id] = report.imported
    return str(session_id)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(CHAT),
        json.dumps(CHAT, indent=2),
        lines(CHAT),
        json.dumps({"messages": CHAT}),
        json.dumps({"model": "m", "messages": CHAT}, indent=1),
        json.dumps([{"conversation": CHAT}], indent=1),
        lines([CHAT]),
    ],
    ids=["list", "list over lines", "messages on lines", "object", "object over lines", "list of objects", "line"],
)
def test_a_list_is_read_however_it_is_written(timed: Timed, tmp_path: Path, text: str) -> None:
    session_id = the_only(timed.moor, write(tmp_path / "chat", text))
    assert said(timed.moor, session_id) == EXPECTED
    session = timed.moor.get(session_id)
    assert (session.state, session.interface, session.task_id) == ("suspended", "openai", session_id)
    assert {entry.interface for entry in timed.moor.log(session_id)} == {"openai"}


def test_a_conversation_on_each_line_is_a_session_each(timed: Timed, tmp_path: Path) -> None:
    path = write(
        tmp_path / "tuning.jsonl", lines([{"messages": CHAT}, {"messages": CHAT[:2]}, {"messages": CHAT[1:2]}])
    )
    report = timed.moor.import_files([path])
    assert len(report.imported) == 3
    assert sorted(len(timed.moor.messages(each).items) for each in report.imported) == [1, 2, 5]


def test_importing_twice_or_from_another_file_changes_nothing(place: Place, tmp_path: Path) -> None:
    moor = place.connect()
    path = write(tmp_path / "a.json", CHAT)
    would = moor.import_files([path], dry_run=True)
    assert (len(would.imported), list(moor.list())) == (1, [])
    report = moor.import_files([path])
    assert report.imported == would.imported
    before = list(moor.export(report.imported[0]))
    again = moor.import_files([write(tmp_path / "b.jsonl", lines(CHAT)), path])
    assert (again.imported, set(again.already_there)) == ([], set(report.imported))
    assert list(moor.export(report.imported[0])) == before


def test_other_fields_of_a_conversation_are_kept(timed: Timed, tmp_path: Path) -> None:
    about = {"session_id": "s-1", "task_id": "T001", "agent": "forecaster", "model": "m-1", "api_key": "sk-1"}
    session_id = the_only(timed.moor, write(tmp_path / "chat.json", {**about, "messages": CHAT}))
    session = timed.moor.get("s-1")
    assert (session_id, session.task_id, session.agent_name) == ("s-1", "T001", "forecaster")
    assert session.metadata == {"host": "openai", "imported": {"model": "m-1", "api_key": "[redacted]"}}


@pytest.mark.parametrize("task", ["T001", "Größe 5/…"[:7].replace("/", "-")])
def test_a_folder_of_tasks_links_conversations_to_them(place: Place, tmp_path: Path, task: str) -> None:
    moor = place.connect()
    moor.create(session_id="there", task_id=task)
    path = write(tmp_path / "tasks" / task / "agent" / "conversation_history.json", CHAT)
    write(tmp_path / "tasks" / "other" / "agent" / "conversation_history.json", {"messages": CHAT[:2]}, indent=1)
    write(tmp_path / "tasks" / "other" / "package.json", {"role": "user"})
    report = moor.import_files([tmp_path / "tasks"])
    assert (len(report.imported), report.left_out) == (2, [])
    mine = [session.session_id for session in moor.list(task_id=task, sort="created")]
    assert len(mine) == 2
    assert said(moor, next(each for each in mine if each != "there")) == EXPECTED
    write(path, CHAT[:4])
    assert moor.import_files([path]).already_there == [each for each in mine if each != "there"]


def test_older_calls_and_items_of_responses_are_calls_too(timed: Timed, tmp_path: Path) -> None:
    older = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": "not json"}},
        {"role": "function", "name": "weather", "content": "rain"},
    ]
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c-1", "name": "weather", "arguments": "{}", "id": "fc-1"},
        {"type": "function_call_output", "call_id": "c-1", "output": "rain"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Rain."}]},
    ]
    first = said(timed.moor, the_only(timed.moor, write(tmp_path / "a.json", older)))
    call_id = first[1][1][0]["id"]
    assert first[1:] == [
        ("assistant", [{"type": "tool_call", "id": call_id, "name": "weather", "input": "not json"}]),
        ("tool", [{"type": "tool_result", "call_id": call_id, "output": "rain"}]),
    ]
    second = said(timed.moor, the_only(timed.moor, write(tmp_path / "b.json", {"input": items})))
    assert second == [
        ("user", "Weather?"),
        ("assistant", [{"type": "tool_call", "id": "c-1", "name": "weather", "input": {}}]),
        ("tool", [{"type": "tool_result", "call_id": "c-1", "output": "rain"}]),
        ("assistant", "Rain."),
    ]


def test_pictures_are_referred_to_and_blocks_of_other_models_are_read(timed: Timed, tmp_path: Path) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    chat = [
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t-1", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t-1", "content": "a cat"}]},
        {"role": "assistant", "content": "", "refusal": "I cannot say."},
    ]
    report = timed.moor.import_files([write(tmp_path / "a.json", chat)])
    assert report.passed_over == {"image": 1}
    assert said(timed.moor, report.imported[0]) == [
        (
            "user",
            [{"type": "text", "text": "What is this?"}, {"type": "image", "media_type": "image/png", "size": 3}],
        ),
        ("assistant", [{"type": "tool_call", "id": "t-1", "name": "look", "input": {}}]),
        ("tool", [{"type": "tool_result", "call_id": "t-1", "output": "a cat", "is_error": False}]),
        ("assistant", "I cannot say."),
    ]


def test_times_are_kept_where_they_are_said(timed: Timed, tmp_path: Path) -> None:
    chat = [
        {"role": "user", "content": "a", "timestamp": "2025-05-01T10:00:00+02:00"},
        {"role": "assistant", "content": "b", "created_at": 1746086460},
        {"role": "user", "content": "c", "ts": "whenever"},
    ]
    session_id = the_only(timed.moor, write(tmp_path / "a.json", chat))
    times = [entry.at.isoformat() for entry in timed.moor.messages(session_id)]
    assert times == ["2025-05-01T08:00:00+00:00", "2025-05-01T08:01:00+00:00", "2025-05-01T08:01:00+00:00"]


def test_invalid_messages_are_listed_and_the_rest_is_imported(timed: Timed, tmp_path: Path) -> None:
    chat: list[Any] = [
        {"role": "user", "content": "a"},
        {"role": "boss", "content": "b"},
        {"role": "tool", "content": "who called me?"},
        {"role": "tool", "tool_call_id": "nobody", "content": "x"},
        "not an object",
        {"role": "assistant", "content": 5},
        {"role": "assistant", "content": "c", "logprobs": {"a": 1}, "reasoning_content": "hm"},
        {"role": "assistant", "content": None},
    ]
    by_lines = timed.moor.import_files([write(tmp_path / "a.jsonl", lines(chat) + '{"role": "user", "con')])
    assert [(each.line, each.reason.partition(" (")[0]) for each in by_lines.left_out] == [
        (9, "not JSON"),
        (2, "a message whose role is 'boss'"),
        (3, "the result of a call without the id of the call"),
        (5, "it is not an object"),
        (6, "a message whose content is neither text nor a list of parts"),
        (4, "a result of the call 'nobody', which is not there"),
    ]
    assert by_lines.passed_over == {"field logprobs": 1, "thinking": 1, "empty": 1}
    assert said(timed.moor, by_lines.imported[0]) == [("user", "a"), ("assistant", "c")]
    other = timed.connect(owner="other").import_files([write(tmp_path / "b.json", chat, indent=1)])
    assert other.left_out[0].reason == "message 2: a message whose role is 'boss'"


@pytest.mark.parametrize("text", ['[{"role": "user", "content": "a"}', '[{"role": "bo', "[1, 2]"])
def test_a_document_that_was_cut_short_is_left_out_or_refused(timed: Timed, tmp_path: Path, text: str) -> None:
    folder = tmp_path / "T001" / "agent"
    path = write(folder / "conversation_history.json", text)
    report = timed.moor.import_files([tmp_path])
    assert (report.imported, [each.file for each in report.left_out]) == ([], [str(path)])
    with pytest.raises(InvalidImport, match="nor a list of messages"):
        timed.moor.import_files([write(tmp_path / "other.json", text)])


def test_a_call_without_its_result_is_answered_when_the_session_goes_on(timed: Timed, tmp_path: Path) -> None:
    session_id = the_only(timed.moor, write(tmp_path / "a.json", CHAT[:3]))
    back = timed.moor.resume(session_id)
    assert unanswered_calls(back.messages) == []
    repaired = back.messages[-1].content
    assert isinstance(repaired, list)
    assert repaired[0]["repaired"] is True


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=6)
    | st.sampled_from(CHAT),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)
KEYS = ["role", "content", "tool_calls", "tool_call_id", "function_call", "type", "name", "timestamp", "call_id", "id"]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_becomes_of_a_list_reading_it_never_fails(data: st.DataObject) -> None:
    chat = [dict(message) for message in CHAT]
    for _ in range(data.draw(st.integers(1, 4))):
        chat[data.draw(st.integers(0, len(chat) - 1))][data.draw(st.sampled_from(KEYS))] = data.draw(values)
    text = data.draw(st.sampled_from([json.dumps(chat), json.dumps(chat, indent=1), lines(chat)])).encode()
    cut = text[: data.draw(st.integers(1, len(text)))]
    for whole in (text, cut):
        history = read_messages("chat", whole.splitlines(keepends=True), now=NOON)
        assert history.bundles or history.notes.left_out_total
        for bundle in history.bundles:
            check_bundle(bundle)

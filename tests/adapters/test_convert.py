"""A session's messages in the format of each framework."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moorage import sync
from moorage.adapters.convert import NO_RESULT, TARGETS, Carried, convert
from moorage.adapters.formats import claude, openai, pydantic_ai
from moorage.core.errors import InvalidField

CALL = {"type": "tool_call", "id": "c1", "name": "weather", "input": {"city": "Genoa"}}
RESULT = {"type": "tool_result", "call_id": "c1", "output": "sunny", "is_error": False}
CONVERSATION: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "How is Genoa?"},
    {"role": "assistant", "content": [{"type": "text", "text": "I look."}, CALL]},
    {"role": "tool", "content": [RESULT]},
    {"role": "assistant", "content": "Sunny."},
]


@pytest.fixture
def carry(tmp_path: Path) -> Any:
    def carried(messages: list[Any], to: str) -> Carried:
        with sync.connect(f"sqlite:///{tmp_path / 'a.db'}") as moor:
            session = moor.create("helper")
            moor.append(session.session_id, messages)
            return convert(moor.messages(session.session_id).items, to)

    return carried


def test_openai_takes_calls_and_results_as_items(carry: Any) -> None:
    carried = carry(CONVERSATION, "openai-agents")

    assert carried.left_out == []
    assert [item.get("type", item.get("role")) for item in carried.messages] == [
        *("system", "user", "assistant", "function_call", "function_call_output", "assistant")
    ]
    assert json.loads(carried.messages[3]["arguments"]) == {"city": "Genoa"}


def test_langgraph_takes_messages_with_tool_calls(carry: Any) -> None:
    messages = carry(CONVERSATION, "langgraph").messages

    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert messages[2]["tool_calls"] == [
        {"type": "tool_call", "id": "c1", "name": "weather", "args": {"city": "Genoa"}}
    ]
    assert messages[3]["tool_call_id"] == "c1"


def test_claude_takes_blocks(carry: Any) -> None:
    carried = carry(CONVERSATION, "claude")

    assert carried.system_prompt == "Be brief."
    assert [block["type"] for message in carried.messages for block in message["content"]] == [
        *("text", "text", "tool_use", "tool_result", "text")
    ]


def test_pydantic_ai_takes_requests_and_responses(carry: Any) -> None:
    messages = carry(CONVERSATION, "pydantic-ai").messages

    assert [part["part_kind"] for message in messages for part in message["parts"]] == [
        *("system-prompt", "user-prompt", "text", "tool-call", "tool-return", "text")
    ]


@pytest.mark.parametrize("to", TARGETS)
def test_call_without_result_gets_one_and_is_told(to: str, carry: Any) -> None:
    carried = carry([*CONVERSATION[:3], {"role": "user", "content": "Well?"}], to)

    assert carried.left_out == ["call c1 of weather: it has no result"]
    assert str(carried.messages).index(NO_RESULT) < str(carried.messages).index("Well?")


@pytest.mark.parametrize("to", TARGETS)
def test_result_without_call_and_pictures_are_left_out_and_told(to: str, carry: Any) -> None:
    picture = {"type": "image", "url": "https://example.org/a.png"}
    carried = carry([{"role": "user", "content": [{"type": "text", "text": "look"}, picture]}, CONVERSATION[3]], to)

    assert len(carried.messages) == 1
    assert carried.left_out[1:] == ["result of c1: its call is not there"]
    assert carried.left_out[0].endswith(": image")


@pytest.mark.parametrize("to", TARGETS)
def test_calls_with_one_id_keep_their_own_results(to: str, carry: Any) -> None:
    again = [{**CALL, "input": {"city": "Rome"}}], [{**RESULT, "output": "rainy"}]
    later = [{"role": "assistant", "content": again[0]}, {"role": "tool", "content": again[1]}]
    text = str(carry([*CONVERSATION, *later], to).messages)

    assert text.index("Genoa") < text.index("sunny") < text.index("Rome") < text.index("rainy")


def test_formats_read_back_what_was_carried(carry: Any) -> None:
    items = carry(CONVERSATION, "openai-agents").messages
    lines = [{"type": one["role"], "message": one} for one in carry(CONVERSATION, "claude").messages]
    spoken = carry(CONVERSATION, "pydantic-ai").messages

    assert [openai.said(item).role for item in items] == [
        *("system", "user", "assistant", "assistant", "tool", "assistant")
    ]
    assert [said.role for line in lines for said in claude.said(line)] == ["user", "assistant", "tool", "assistant"]
    assert [said.role for one in spoken for said in pydantic_ai.said(one, "k")] == [
        *("system", "user", "assistant", "tool", "assistant")
    ]


def test_unknown_framework_is_refused(carry: Any) -> None:
    with pytest.raises(InvalidField, match="openai-agents, langgraph, claude, pydantic-ai"):
        carry(CONVERSATION, "basic")

"""Models behind chat endpoints, with a real server that behaves well or badly."""

import asyncio
import socket
import subprocess
import sys
from typing import Any

import pytest

from moorage.agents import inside
from moorage.agents.openai import OpenAi, request_of
from moorage.core.agent import AgentKind
from moorage.core.entry import check_message
from tests.agents.chat_server import Server, breaking, failing, hanging, piece, saying, serving, streaming
from tests.agents.jobs import Doing, job_of, result_of


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries of a hundredth of a second."""

    def agent(kind: AgentKind, secret: Any = None) -> OpenAi:
        return OpenAi(secret, first_pause=0.01)

    monkeypatch.setattr(inside, "agent_inside", agent)


def table(chat: Server, **more: Any) -> dict[str, Any]:
    return {"kind": "openai", "base_url": chat.url, "model": "small", **more}


async def test_an_answer_streams_and_is_told_whole() -> None:
    with serving(saying("Tea ", "is ", "ready ☕")) as chat:
        doing = Doing(job_of(table(chat)))
        assert await doing.result() == {
            "type": "result",
            "outcome": "completed",
            "text": "Tea is ready ☕",
            "said": False,
        }
    assert [event["text"] for event in doing.events if event["type"] == "chunk"] == ["Tea ", "is ", "ready ☕"]
    assert {"type": "usage", "input_tokens": 5, "output_tokens": 2, "total_tokens": 7} in doing.events


async def test_words_arrive_before_the_answer_is_over() -> None:
    with serving(hanging(piece("first"))) as chat:
        doing = Doing(job_of(table(chat)))
        assert (await doing.until("chunk"))["text"] == "first"
        assert not doing.task.done()
        doing.commands.put_nowait({"type": "stop"})
        result = await doing.result()
    assert (result["outcome"], result["text"]) == ("stopped", "first")


async def test_the_model_is_told_the_conversation() -> None:
    history = [
        {"role": "user", "content": "weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Looking."},
                {"type": "tool_call", "id": "c1", "name": "weather", "input": {"city": "Bern"}},
                {"type": "tool_call", "id": "c2", "name": "lost", "input": {}},
            ],
        },
        {"role": "tool", "content": [{"type": "tool_result", "call_id": "c1", "output": {"sky": "blue"}}]},
        {"role": "tool", "content": [{"type": "tool_result", "call_id": "gone", "output": "nobody asked"}]},
        {"role": "assistant", "content": "Blue."},
    ]
    with serving(saying("ok")) as chat:
        agent = table(chat, system_prompt="Be brief.", api_key_env="CHAT_KEY")
        await result_of(job_of(agent, prompt="thanks", history=history), lambda name: f"key-for-{name}")
    [asked] = chat.requests
    calls = asked["messages"][2]["tool_calls"]
    assert [call["function"]["name"] for call in calls] == ["weather", "lost"]
    assert calls[0]["function"]["arguments"] == '{"city":"Bern"}'
    assert asked["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": "Looking.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": '{"sky":"blue"}'},
        {"role": "tool", "tool_call_id": "c2", "content": "[there is no result]"},
        {"role": "assistant", "content": "Blue."},
        {"role": "user", "content": "thanks"},
    ]
    assert (asked["model"], asked["stream"]) == ("small", True)
    assert chat.keys == ["Bearer key-for-CHAT_KEY"]


async def test_missing_key_is_reported_without_a_request() -> None:
    with serving(saying("ok")) as chat:
        result = await result_of(job_of(table(chat, api_key_env="CHAT_KEY")), lambda _: None)
    assert "the variable CHAT_KEY" in result["error"]
    assert chat.requests == []


async def test_calls_of_tools_are_kept_as_parts() -> None:
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city"'}}
    second = {"index": 1, "id": "c2", "function": {"name": "clock", "arguments": "not JSON"}}
    steps = streaming(
        piece("Looking."),
        piece(tool_calls=[first]),
        piece(tool_calls=[{"index": 0, "function": {"arguments": ': "Bern"}'}}]),
        piece(tool_calls=[second]),
        piece(finish="tool_calls"),
    )
    with serving(steps) as chat:
        doing = Doing(job_of(table(chat)))
        result = await doing.result()
    [message] = [event for event in doing.events if event["type"] == "message"]
    assert message["content"] == [
        {"type": "text", "text": "Looking."},
        {"type": "tool_call", "id": "c1", "name": "weather", "input": {"city": "Bern"}},
        {"type": "tool_call", "id": "c2", "name": "clock", "input": {"unreadable": "not JSON"}},
    ]
    check_message({"role": "assistant", "content": message["content"]})
    assert (result["outcome"], result["text"], result["said"]) == ("completed", "Looking.", True)


async def test_a_server_that_does_not_stream_is_understood() -> None:
    whole = '{"choices": [{"message": {"role": "assistant", "content": "all at once"}, "finish_reason": "stop"}]}'
    with serving(failing(200, whole)) as chat:
        assert (await result_of(job_of(table(chat))))["text"] == "all at once"


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
async def test_a_busy_server_is_tried_again(status: int) -> None:
    with serving(failing(status), failing(status), saying("at last")) as chat:
        doing = Doing(job_of(table(chat)))
        assert (await doing.result())["text"] == "at last"
        assert len(chat.requests) == 3
    notes = [event["note"] for event in doing.events if event["type"] == "note"]
    assert notes[0].startswith(f"try 1 of 4: the server says {status}: too busy")


async def test_it_is_not_tried_for_ever() -> None:
    with serving(failing(503)) as chat:
        result = await result_of(job_of(table(chat)))
        assert len(chat.requests) == 4
    assert (result["outcome"], result["error"]) == ("failed", "the server says 503: too busy")


async def test_a_server_is_left_alone_for_as_long_as_it_wants() -> None:
    with serving(failing(429, retry_after="0.4"), saying("at last")) as chat:
        began = asyncio.get_running_loop().time()
        assert (await result_of(job_of(table(chat))))["text"] == "at last"
    assert asyncio.get_running_loop().time() - began >= 0.4


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_a_refusal_is_not_tried_again(status: int) -> None:
    with serving(failing(status, "no such model")) as chat:
        result = await result_of(job_of(table(chat)))
        assert len(chat.requests) == 1
    assert result["error"] == f"the server says {status}: no such model"


async def test_interrupted_answer_keeps_its_beginning() -> None:
    with serving(breaking(piece("half an "))) as chat:
        result = await result_of(job_of(table(chat)))
        assert len(chat.requests) == 1  # what was shown already is not begun again
    assert (result["outcome"], result["text"], result["error"]) == ("failed", "half an ", "the answer broke off")


async def test_one_that_breaks_off_before_it_begins_is_tried_again() -> None:
    with serving(breaking(), breaking(piece(role="assistant")), saying("at last")) as chat:
        assert (await result_of(job_of(table(chat))))["text"] == "at last"


async def test_a_connection_that_is_cut_in_the_middle_is_told() -> None:
    def cut(exchange: Any) -> None:
        exchange.send_response(200)
        exchange.send_header("content-type", "text/event-stream")
        exchange.send_header("content-length", "100000")
        exchange.end_headers()
        exchange.send(piece("half"))
        exchange.connection.shutdown(socket.SHUT_RDWR)

    with serving(cut) as chat:
        result = await result_of(job_of(table(chat)))
    assert (result["text"], result["error"].startswith("the answer broke off (")) == ("half", True)


async def test_a_server_that_is_not_there_is_told() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    result = await result_of(job_of({"kind": "openai", "base_url": f"http://127.0.0.1:{port}/v1", "model": "m"}))
    assert "cannot be reached" in result["error"]


@pytest.mark.parametrize(
    ("events", "why"),
    [
        (["not JSON"], "invalid JSON: not JSON"),
        (["[1, 2]"], "an invalid event"),
        ([{"error": {"message": "overloaded"}}], "the server reported an error: overloaded"),
    ],
)
async def test_nonsense_from_a_server_is_told(events: list[object], why: str) -> None:
    with serving(breaking(*events)) as chat:
        assert why in (await result_of(job_of(table(chat))))["error"]


async def test_a_slow_server_meets_the_limits_of_the_agent() -> None:
    with serving(hanging(piece("slow"))) as chat:
        result = await result_of(job_of(table(chat, timeout="0.5s")))
    assert (result["reason"], result["text"]) == ("timed_out", "slow")
    with serving(hanging(piece("slow"))) as chat:
        result = await result_of(job_of(table(chat, idle_timeout="0.5s")))
    assert result["outcome"] == "failed"
    assert result["text"] == "slow"


async def test_an_answer_that_is_too_large_is_ended() -> None:
    with serving(saying(*["x" * 100] * 50)) as chat:
        result = await result_of(job_of(table(chat, max_output_bytes=1000)))
    assert (result["reason"], len(result["text"])) == ("output_too_large", 1000)


async def test_why_a_model_stopped_is_told() -> None:
    with serving(streaming(piece("cut"), piece(finish="length"))) as chat:
        result = await result_of(job_of(table(chat)))
        assert (result["outcome"], result["reason"]) == ("completed", "max_tokens")
    with serving(streaming(piece("bad"), piece(finish="content_filter"))) as chat:
        assert (await result_of(job_of(table(chat))))["reason"] == "refused"
    with serving(streaming(piece(finish="stop"))) as chat:
        assert (await result_of(job_of(table(chat))))["reason"] == "no_answer"


def test_plain_tool_text_becomes_a_user_message() -> None:
    job = job_of(
        {"kind": "openai", "base_url": "http://x/v1", "model": "m"},
        history=[{"role": "tool", "content": "plain"}, {"role": "user", "content": [{"type": "image", "url": "x"}]}],
    )
    assert request_of(job)["messages"] == [{"role": "user", "content": "plain"}, {"role": "user", "content": "hello"}]


def test_the_http_client_is_not_loaded_before_it_is_needed() -> None:
    modules = "moorage.agents.registry, moorage.agents.inside, moorage.agents.openai"
    source = f"import sys, {modules}; print('httpx2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"

"""Agents that come with Moorage."""

import asyncio
import json
import time
from typing import Any

import pytest
from msgspec.structs import replace

from moorage.agents.builtin import ANSWERS, DEFINITIONS
from moorage.agents.inside import run_inside
from moorage.agents.interface import AgentEvent
from moorage.core.agent import AgentDefinition, AgentKind
from tests.agents.jobs import Doing, job_of, result_of

HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "I like tea"},
    {"role": "assistant", "content": "Echo Agent Response: I like tea"},
    {"role": "user", "content": [{"type": "text", "text": "with milk"}]},
]


def test_every_definition_has_an_answer() -> None:
    assert ANSWERS.keys() == DEFINITIONS.keys() == {"echo-agent", "hello-world", "itinerary-worker"}


@pytest.mark.parametrize("prompt", ["hello", "", "two\nlines", "Parameters: no"])
async def test_echo_repeats_its_prompt(prompt: str) -> None:
    result = await result_of(job_of("echo-agent", prompt=prompt))
    assert (result["outcome"], result["text"]) == ("completed", f"Echo Agent Response: {prompt}")


async def test_echo_names_the_parameters() -> None:
    job = job_of("echo-agent", prompt="Hello, remember my preferences", parameters={"preference": "italian food"})
    expected = "Echo Agent Response: Hello, remember my preferences | Parameters: preference=italian food"
    assert (await result_of(job))["text"] == expected


async def test_echo_remembers_the_session() -> None:
    first = await result_of(job_of("echo-agent"))
    assert first["metadata"].pop("processed_at") <= time.time()
    told = {"agent_id": "echo-agent", "session_id": "session-1", "task_number": 1, "session_turns": 1}
    assert first["metadata"] == told
    third = await result_of(job_of("echo-agent", prompt="/recall", history=HISTORY))
    assert third["text"] == "Echo Agent Response: /recall | Remembered: I like tea; with milk"
    assert (third["metadata"]["task_number"], third["metadata"]["previous_input"]) == (3, "with milk")


@pytest.mark.parametrize("question", ["what did I say?", "What did I say before?", "what did i tell you"])
async def test_echo_recalls_earlier_messages_of_its_session(question: str) -> None:
    result = await result_of(job_of("echo-agent", prompt=question, history=HISTORY))
    assert result["text"] == f"Echo Agent Response: {question} | Remembered: I like tea; with milk"


async def test_echo_without_a_session_recalls_nothing_and_names_none() -> None:
    job = replace(job_of("echo-agent", prompt="what did I say?"), session_id="")
    result = await result_of(job)
    assert result["text"] == "Echo Agent Response: what did I say?"
    assert "session_id" not in result["metadata"]


async def test_next_agent_of_a_session_remembers_earlier_input() -> None:
    doing = Doing(job_of("echo-agent", parameters={"preference": "italian food"}))
    await doing.result()
    assert doing.events[0] == {"type": "context", "values": {"preference": "italian food"}}


async def test_hello_world_greets_and_greets_again() -> None:
    assert (await result_of(job_of("hello-world")))["text"] == "Hello! How can I help you today?"
    again = await result_of(job_of("hello-world", history=HISTORY))
    assert again["text"] == "Hello again! This is message 3 of our conversation. Before it you said: with milk"


@pytest.mark.parametrize(
    "facts",
    [
        {"parameters": {"destination": "Paris", "days": "2", "interests": "culture,food"}},
        {"prompt": "destination: Paris; days: 2; interests: culture, food"},
        {"prompt": "a trip to Paris for 2 days", "context": {"interests": "culture,food", "days": 9}},
        {"prompt": "2 days in Paris", "parameters": {"interests": "Culture, food"}},
    ],
)
async def test_the_itinerary_is_planned_day_by_day(facts: dict[str, Any]) -> None:
    result = await result_of(job_of("itinerary-worker", **facts))
    plan = json.loads(result["text"])
    assert (plan["destination"], plan["interests"], plan["source"]) == ("Paris", ["culture", "food"], "sample data")
    assert plan["days"] == [
        {"day": 1, "plan": ["a walk through the old town", "a market in the morning"]},
        {"day": 2, "plan": ["the main museum", "lunch where the locals eat"]},
    ]
    assert result["metadata"]["session_id"] == "session-1"


async def test_an_itinerary_needs_no_wishes() -> None:
    result = await result_of(job_of("itinerary-worker", prompt="surprise me"))
    plan = json.loads(result["text"])
    assert (plan["destination"], len(plan["days"])) == ("your destination", 3)


@pytest.mark.parametrize("days", ["x", "", "0", "-1", "31", 31, 2.5, True, None, [2]])
async def test_itinerary_refuses_days_that_are_no_number(days: Any) -> None:
    doing = Doing(job_of("itinerary-worker", prompt="to Paris", parameters={"days": days}))
    result = await doing.result()
    assert (result["outcome"], result["reason"]) == ("failed", "refused")
    assert result["error"] == "days must be a number from 1 to 30"
    assert len(doing.events) == 1, "the next agent of the session does not get the value"


async def test_a_preference_of_the_context_is_part_of_every_day() -> None:
    result = await result_of(
        job_of("itinerary-worker", prompt="2 days in Rome", context={"preference": "italian food"})
    )
    plan = json.loads(result["text"])
    assert plan["preferences"] == ["italian food"]
    assert all("time for italian food" in day["plan"] for day in plan["days"])


async def test_a_thousand_run_side_by_side_in_one_loop() -> None:
    events: list[AgentEvent] = []
    together = asyncio.Barrier(1000)

    async def keep(event: AgentEvent) -> None:
        async with asyncio.timeout(20):
            await together.wait()  # none goes on before all are there
        events.append(event)

    jobs = [job_of("echo-agent", prompt=str(number)) for number in range(1000)]
    await asyncio.gather(*(run_inside(job, keep, asyncio.Queue()) for job in jobs))
    assert sorted(event["text"] for event in events) == sorted(f"Echo Agent Response: {n}" for n in range(1000))


async def test_an_agent_that_does_not_come_along_is_told() -> None:
    job = replace(job_of("echo-agent"), agent=AgentDefinition(name="nobody", kind=AgentKind.BUILTIN))
    assert (await result_of(job))["reason"] == "not_found"

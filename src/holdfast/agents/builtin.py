"""Agents that come with Holdfast: to try things out with, and to test with. They need no model and no network.

Each answers at once and does nothing but compute, so a thousand of them run side by side in one loop.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from holdfast.agents.interface import NOT_FOUND, Commands, Emit, Event, Job, completed, failed
from holdfast.core.agent import AgentDefinition, AgentKind, AgentRole
from holdfast.core.entry import text_of

RECALL = "/recall"
MAX_DAYS = 30

Answer = Callable[[Job], Event]


class BuiltIn:
    """Runs whichever of them the job is for."""

    async def run(self, job: Job, emit: Emit, commands: Commands) -> None:
        """Answer."""
        answer = ANSWERS.get(job.agent.name)
        if answer is None:
            await emit(failed(NOT_FOUND, f"no agent {job.agent.name!r} comes with Holdfast"))
        else:
            await emit(answer(job))


# echo-agent -------------------------------------------------------------------------------------


def echo(job: Job) -> Event:
    """Repeat what was said; `/recall` has it tell what was said before in this session, too."""
    before = said_before(job)
    text = f"Echo Agent Response: {job.prompt}"
    if job.parameters:
        text += " | Parameters: " + ", ".join(f"{name}={value}" for name, value in job.parameters.items())
    if job.prompt.strip() == RECALL:
        text += " | Remembered: " + ("; ".join(before) or "nothing yet")
    return completed(text, metadata=_facts(job, before))


def said_before(job: Job) -> list[str]:
    """What the user said earlier in this session, as far as the agent was told."""
    return [text_of(message["content"]) for message in job.history if message["role"] == "user"]


def _facts(job: Job, before: list[str]) -> dict[str, Any]:
    facts = {"agent_id": job.agent.name, "session_id": job.session_id, "task_number": len(before) + 1}
    return facts | ({"previous_input": before[-1]} if before else {})


# hello-world ------------------------------------------------------------------------------------


def hello(job: Job) -> Event:
    """Greet; and greet again whoever comes back."""
    before = said_before(job)
    if not before:
        return completed("Hello! How can I help you today?", metadata=_facts(job, before))
    again = f"Hello again! This is message {len(before) + 1} of our conversation. Before it you said: {before[-1]}"
    return completed(again, metadata=_facts(job, before))


# itinerary-worker -------------------------------------------------------------------------------

_IDEAS = {
    "culture": ("a walk through the old town", "the main museum", "an evening at the theatre"),
    "food": ("a market in the morning", "lunch where the locals eat", "a cooking class"),
    "nature": ("the largest park", "a walk along the water", "a hill with a view"),
    "history": ("the oldest quarter", "the city's history museum", "a guided walk"),
    "art": ("the gallery of modern art", "a street art tour", "an artist's studio"),
    "shopping": ("the arcades", "a flea market", "small shops off the main street"),
}
_GENERAL = ("the sights everybody sees", "a quarter nobody told you about", "a long dinner")


def itinerary(job: Job) -> Event:
    """Plan a trip, day by day, from sample ideas: `destination`, `days` and `interests`."""
    wishes = _wishes(job)
    place = str(wishes.get("destination") or "your destination")
    days = _days(wishes.get("days"))
    interests = [word.strip().lower() for word in str(wishes.get("interests") or "").split(",") if word.strip()]
    lines = [f"Itinerary for {place}, {days} day{'s' if days > 1 else ''} (from sample data):"]
    lines += [f"Day {number}: {_day(interests, number)}" for number in range(1, days + 1)]
    facts = {"worker_id": job.agent.name, "session_id": job.session_id, "destination": place, "days": days}
    return completed("\n".join(lines), metadata=facts)


def _wishes(job: Job) -> dict[str, Any]:
    """What is wanted: of this session's context, of the prompt, of the parameters; later ones win."""
    remembered = {name: job.context[name] for name in ("destination", "days", "interests") if name in job.context}
    found = dict(re.findall(r"\b(destination|days|interests)\s*[=:]\s*([^;\n]+?)\s*(?=;|\n|$)", job.prompt))
    if place := re.search(r"\b(?:to|in|for)\s+([A-Z][\w'’-]*(?:\s+[A-Z][\w'’-]*)*)", job.prompt):
        found.setdefault("destination", place[1])
    if days := re.search(r"\b(\d{1,3})[\s-]*days?\b", job.prompt):
        found.setdefault("days", days[1])
    return remembered | found | job.parameters


def _days(value: object) -> int:
    try:
        return min(MAX_DAYS, max(1, int(str(value))))
    except ValueError:
        return 3


def _day(interests: list[str], number: int) -> str:
    """One thing of each interest, another one every day."""
    ideas = [_IDEAS.get(interest, (interest,)) for interest in interests] or [_GENERAL]
    return ", ".join(idea[(number - 1) % len(idea)] for idea in ideas)


ANSWERS: dict[str, Answer] = {"echo-agent": echo, "hello-world": hello, "itinerary-worker": itinerary}
DEFINITIONS = {
    definition.name: definition
    for definition in (
        AgentDefinition(
            name="echo-agent",
            kind=AgentKind.BUILTIN,
            description="Repeats what you say, and remembers it: /recall tells what you said before",
        ),
        AgentDefinition(
            name="hello-world",
            kind=AgentKind.BUILTIN,
            description="Says hello, and hello again",
        ),
        AgentDefinition(
            name="itinerary-worker",
            kind=AgentKind.BUILTIN,
            role=AgentRole.WORKER,
            description="Plans a trip from sample data: destination, days, interests",
        ),
    )
}

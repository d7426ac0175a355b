"""Agents and a tool that come with Moorage, for trials and tests. They need no model and no network.

Each agent answers at once and only computes, so a thousand of them can run concurrently in one loop. The tool tells the
usual weather, computed from sample climate data and marked as such: the same place and day always give the same answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta
from math import cos, pi
from time import time
from typing import Any
from zlib import crc32

from moorage.agents.interface import NOT_FOUND, REFUSED, AgentEvent, Commands, Emit, Job, completed, failed
from moorage.core.agent import AgentDefinition, AgentKind, AgentRole, Occasion, Refused, Tool, ToolOperation
from moorage.core.codec import encode_text
from moorage.core.entry import text_of

RECALL = "/recall"
_asks_what_was_said = re.compile(r"\s*what did i (just )?(say|tell you)\b.*", re.I | re.S).fullmatch
MAX_DAYS = 30

AnswerFunction = Callable[[Job], AgentEvent]


class BuiltIn:
    """Runs the built-in agent that the job names."""

    async def run(self, job: Job, emit: Emit, commands: Commands) -> None:
        """Run the agent, and emit its answer."""
        answer = ANSWERS.get(job.agent.name)
        if answer is None:
            await emit(failed(NOT_FOUND, f"no agent {job.agent.name!r} comes with Moorage"))
            return
        try:
            answered = answer(job)
        except Refused as error:
            await emit(failed(REFUSED, str(error)))
            return
        if job.session_id and job.parameters:
            await emit({"type": "context", "values": dict(job.parameters)})  # for agents called after this one
        await emit(answered)


def echo(job: Job) -> AgentEvent:
    """Repeat the prompt; for `/recall` or a question about earlier messages, add those of this session."""
    before = said_before(job)
    text = f"Echo Agent Response: {job.prompt}"
    if job.parameters:
        text += " | Parameters: " + ", ".join(f"{name}={value}" for name, value in job.parameters.items())
    if job.prompt.strip() == RECALL or (job.session_id and _asks_what_was_said(job.prompt)):
        text += " | Remembered: " + ("; ".join(before) or "nothing yet")
    return completed(text, metadata=_facts(job, before))


def said_before(job: Job) -> list[str]:
    """Return earlier user messages of this session that the agent was given."""
    return [text_of(message["content"]) for message in job.history if message["role"] == "user"]


def _facts(job: Job, before: list[str]) -> dict[str, Any]:
    number = max(len(before), job.turns) + 1
    facts: dict[str, Any] = {"agent_id": job.agent.name, "processed_at": time(), "task_number": number}
    if job.session_id:
        facts |= {"session_id": job.session_id, "session_turns": number}
    return facts | ({"previous_input": before[-1]} if before else {})


def hello(job: Job) -> AgentEvent:
    """Greet the user; the greeting differs if the session continues."""
    before = said_before(job)
    text = "Hello! How can I help you today?"
    if before:
        text = f"Hello again! This is message {len(before) + 1} of our conversation. Before it you said: {before[-1]}"
    return completed(text, metadata=_facts(job, before))


_IDEAS = {
    "culture": ("a walk through the old town", "the main museum", "an evening at the theatre"),
    "food": ("a market in the morning", "lunch where the locals eat", "a cooking class"),
    "nature": ("the largest park", "a walk along the water", "a hill with a view"),
    "history": ("the oldest quarter", "the city's history museum", "a guided walk"),
    "art": ("the gallery of modern art", "a street art tour", "an artist's studio"),
    "shopping": ("the arcades", "a flea market", "small shops off the main street"),
}
_WISHES = ("destination", "days", "interests", "preference", "preferences")
_GENERAL = ("the famous sights", "a quiet quarter", "a long dinner")


def itinerary(job: Job) -> AgentEvent:
    """Plan a trip, day by day, from sample ideas: `destination`, `days` and `interests`; the plan is JSON.

    Every day includes the values of `preference` and `preferences` in the session's context.
    """
    wishes = _wishes(job)
    place = str(wishes.get("destination") or "your destination")
    days, interests = _days(wishes.get("days", 3), MAX_DAYS), _listed(wishes.get("interests"))
    preferences = _listed(wishes.get("preference")) + _listed(wishes.get("preferences"))
    plan = {
        "destination": place,
        "interests": interests,
        "preferences": preferences,
        "days": [{"day": number, "plan": _day(interests, preferences, number)} for number in range(1, days + 1)],
        "source": "sample data",
    }
    facts: dict[str, Any] = {"worker_id": job.agent.name, "processed_at": time(), "destination": place, "days": days}
    if job.session_id:
        facts |= {"session_id": job.session_id, "session_turns": max(len(said_before(job)), job.turns) + 1}
    return completed(encode_text(plan), metadata=facts)


def _wishes(job: Job) -> dict[str, Any]:
    """Return the wishes from the session's context, the prompt and the parameters; later ones win."""
    remembered = {name: job.context[name] for name in _WISHES if name in job.context}
    found = dict(re.findall(r"\b(destination|days|interests)\s*[=:]\s*([^;\n]+?)\s*(?=;|\n|$)", job.prompt))
    if place := re.search(r"\b(?:to|in|for)\s+([A-Z][\w'’-]*(?:\s+[A-Z][\w'’-]*)*)", job.prompt):
        found.setdefault("destination", place[1])
    if days := re.search(r"\b(\d{1,3})[\s-]*days?\b", job.prompt):
        found.setdefault("days", days[1])
    return remembered | found | job.parameters


def _days(days: object, most: int) -> int:
    """Return a number of days, also from a text. Raises Refused."""
    number = int(days) if isinstance(days, str) and days.strip().isdecimal() else days
    if type(number) is not int or not 1 <= number <= most:
        raise Refused(f"days must be a number from 1 to {most}")
    return number


def _listed(value: object) -> list[str]:
    """Return the words of a list, or of a text with commas."""
    words = value if isinstance(value, list) else str(value or "").split(",")
    return [str(word).strip().lower() for word in words if str(word).strip()]


def _day(interests: list[str], preferences: list[str], number: int) -> list[str]:
    """Return one activity for each interest, different every day, and the preferences."""
    ideas = [_IDEAS.get(interest, (interest,)) for interest in interests] or [_GENERAL]
    return [*(idea[(number - 1) % len(idea)] for idea in ideas), *(f"time for {each}" for each in preferences)]


ANSWERS: dict[str, AnswerFunction] = {"echo-agent": echo, "hello-world": hello, "itinerary-worker": itinerary}
_DESCRIPTIONS = {
    "echo-agent": "Repeats what you say, and remembers it: /recall tells what you said before",
    "hello-world": "Says hello, and hello again",
    "itinerary-worker": "Plans a trip from sample data: destination, days, interests",
}
DEFINITIONS = {
    name: AgentDefinition(
        name=name,
        kind=AgentKind.BUILTIN,
        role=AgentRole.WORKER if name.endswith("-worker") else AgentRole.AGENT,
        description=description,
    )
    for name, description in _DESCRIPTIONS.items()
}


# weather-tool -----------------------------------------------------------------------------------

SOURCE = "sample climate data, not a forecast"
MAX_FORECAST = 14
SKIES = ("sunny", "partly cloudy", "cloudy", "light rain", "rain", "windy")
# The yearly mean, the amplitude of the seasons (reversed south of the equator), and rain in percent.
CLIMATES = {
    "amsterdam": (10.5, 7.5, 50),
    "berlin": (10.0, 10.0, 40),
    "cairo": (22.0, 8.0, 3),
    "lisbon": (17.0, 6.0, 25),
    "london": (11.5, 6.5, 45),
    "madrid": (15.0, 9.5, 20),
    "mumbai": (27.5, 2.5, 35),
    "new york": (13.0, 12.0, 35),
    "paris": (12.5, 8.0, 40),
    "rome": (16.0, 8.5, 25),
    "san francisco": (14.5, 3.0, 20),
    "singapore": (28.0, 0.8, 50),
    "sydney": (18.5, -5.0, 35),
    "tokyo": (16.0, 11.0, 35),
}
_PLACE = {"type": "string", "description": "A city"}
_DAYS = {"type": "integer", "minimum": 1, "maximum": MAX_FORECAST}
WEATHER = Tool(
    name="weather-tool",
    description=f"The usual weather of a place ({SOURCE})",
    operations={
        "get_weather": ToolOperation(
            description="The weather of a place today",
            parameters={"type": "object", "properties": {"location": _PLACE}, "required": ["location"]},
        ),
        "get_forecast": ToolOperation(
            description="The weather of a place for some days, from today on",
            parameters={
                "type": "object",
                "properties": {"location": _PLACE, "days": _DAYS},
                "required": ["location"],
            },
        ),
    },
)


def weather(operation: str, parameters: dict[str, Any], occasion: Occasion) -> Any:
    """Answer a call of `weather-tool`. Raises Refused."""
    place = _place(parameters)
    if operation == "get_weather":
        return {**_weather_of(place, occasion.today), "source": SOURCE}
    days = _days(parameters.get("days", 3), MAX_FORECAST)
    found = [_weather_of(place, occasion.today + timedelta(days=number)) for number in range(days)]
    return {
        "location": place,
        **{name: found[0][name] for name in ("temperature", "condition")},  # of today
        "days": found,
        "source": SOURCE,
    }


def _place(parameters: dict[str, Any]) -> str:
    place = parameters.get("location")
    if not isinstance(place, str) or not 0 < len(place.strip()) <= 200:
        raise Refused("location must be the name of a place")
    return place.strip()


def _weather_of(place: str, day: date) -> dict[str, Any]:
    chance = crc32(f"{place.lower()} {day.isoformat()}".encode())
    mean, swing, rain = CLIMATES.get(place.lower()) or (8 + crc32(place.lower().encode()) % 18, 7, 35)
    season = -cos(2 * pi * (day.timetuple().tm_yday - 15) / 365)  # coldest in the middle of January
    is_wet = chance % 100 < rain
    sky = SKIES[3 + chance // 100 % 2] if is_wet else SKIES[(0, 1, 2, 5)[chance // 100 % 4]]
    celsius = round(mean + swing * season + (chance >> 8) % 60 / 10 - 3, 1)
    return {
        "location": place,
        "date": day.isoformat(),
        "temperature": celsius,
        "temperature_c": celsius,
        "condition": sky,
        "humidity": 40 + rain // 2 + (chance >> 16) % 20,
    }

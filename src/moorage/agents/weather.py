"""weather-tool: the usual weather, computed from sample climate data and marked as such.

It needs no network: the same place and day always give the same answer, so agents can be tried with it.
"""

from __future__ import annotations

from datetime import date, timedelta
from math import cos, pi
from typing import Any
from zlib import crc32

from moorage.core.agent import Occasion, Refused, Tool, ToolOperation

SOURCE = "sample climate data, not a forecast"
MAX_DAYS = 14
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
_LOCATION = {"type": "string", "description": "A city"}
WEATHER = Tool(
    name="weather-tool",
    description=f"The usual weather of a place ({SOURCE})",
    operations={
        "get_weather": ToolOperation(
            description="The weather of a place today",
            parameters={"type": "object", "properties": {"location": _LOCATION}, "required": ["location"]},
        ),
        "get_forecast": ToolOperation(
            description="The weather of a place for some days, from today on",
            parameters={
                "type": "object",
                "properties": {"location": _LOCATION, "days": {"type": "integer", "minimum": 1, "maximum": MAX_DAYS}},
                "required": ["location"],
            },
        ),
    },
)


def call(operation: str, parameters: dict[str, Any], occasion: Occasion) -> Any:
    """Answer a call of the tool. Raises Refused."""
    place = _place(parameters)
    if operation == "get_weather":
        return {**_day(place, occasion.today), "source": SOURCE}
    days = _days(parameters.get("days", 3))
    found = [_day(place, occasion.today + timedelta(days=number)) for number in range(days)]
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


def _days(days: object) -> int:
    """Return a number of days, also from a text."""
    number = int(days) if isinstance(days, str) and days.strip().isdecimal() else days
    if type(number) is not int or not 1 <= number <= MAX_DAYS:
        raise Refused(f"days must be a number from 1 to {MAX_DAYS}")
    return number


def _day(place: str, day: date) -> dict[str, Any]:
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

"""Tools: the weather of sample places, the same for the same day, in the log of a session or of none."""

from __future__ import annotations

import json

import pytest

from moorage.core.errors import InvalidField, SessionNotFound, ToolNotFound
from tests.service.doors import Place, Timed


def test_weather_tool_is_listed_with_its_schema(place: Place) -> None:
    [tool] = place.connect().tools()
    assert tool.name == "weather-tool"
    assert set(tool.operations) == {"get_weather", "get_forecast"}
    assert "sample" in tool.description


def test_the_same_place_and_day_get_the_same_answer(timed: Timed) -> None:
    today = timed.moor.call_tool("weather-tool", "get_weather", {"location": "Lisbon"})
    assert today.success
    assert today == timed.moor.call_tool("weather-tool", "get_weather", {"location": "Lisbon"})
    days = timed.moor.call_tool("weather-tool", "get_forecast", {"location": "Lisbon", "days": 2}).result["days"]
    assert days[0] == {name: value for name, value in today.result.items() if name != "source"}
    timed.forward(days=1)
    assert timed.moor.call_tool("weather-tool", "get_weather", {"location": "Lisbon"}).result["date"] == days[1]["date"]
    assert "sample" in today.result["source"]


def test_summer_is_warmer_than_winter_on_both_sides_of_the_equator(timed: Timed) -> None:
    def month() -> tuple[float, float]:
        found = [
            timed.moor.call_tool("weather-tool", "get_forecast", {"location": place, "days": 14}).result["days"]
            for place in ("Berlin", "Sydney")
        ]
        north, south = (sum(day["temperature_c"] for day in days) / 14 for days in found)
        return north, south

    here = month()
    timed.forward(days=182)
    there = month()
    assert (here[0] < there[0]) == (here[1] > there[1])


def test_a_number_may_be_a_text(place: Place) -> None:
    moor = place.connect()
    asked = moor.call_tool("weather-tool", "get_forecast", {"location": "Oslo", "days": "5"})
    assert len(asked.result["days"]) == 5


@pytest.mark.parametrize("parameters", [None, {}, {"location": " "}, {"location": 3}, {"location": "x", "days": 99}])
def test_a_tool_that_refuses_says_why_and_is_no_error_of_the_request(place: Place, parameters: object) -> None:
    refused = place.connect().call_tool("weather-tool", "get_forecast", parameters)  # type: ignore[arg-type]
    assert (refused.success, refused.result) == (False, None)
    assert refused.error


def test_unknown_tool_is_an_error(place: Place) -> None:
    moor = place.connect()
    with pytest.raises(ToolNotFound):
        moor.call_tool("no-tool")
    with pytest.raises(InvalidField, match="get_weather"):
        moor.call_tool("weather-tool", "no_operation")
    with pytest.raises(SessionNotFound):
        moor.call_tool("weather-tool", parameters={"location": "Rome"}, session="nobody")


def test_a_session_keeps_the_call_and_its_result(place: Place) -> None:
    moor = place.connect()
    session = moor.create(agent="planner", parent=None)
    answer = moor.call_tool("weather-tool", parameters={"location": "Rome"}, session=session.id)
    assert answer.session_id == session.id
    call, result = (entry.content[0] for entry in moor.messages(session.id) if isinstance(entry.content, list))
    assert call["input"] == {"operation": "get_weather", "location": "Rome"}
    assert result["call_id"] == call["id"]
    assert json.loads(result["output"]) == answer.result

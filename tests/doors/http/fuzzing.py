"""Hooks of Schemathesis, loaded by its own process: what it makes up leads to sessions that are there, and soon back.

Ids that are made up lead nowhere, so every other one is replaced by that of a session made for the request.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import httpx2
import schemathesis
from schemathesis.generation.meta import TestPhase

SOON = 0.05  # seconds: the longest wait is a minute, and there are thousands of requests
KEY = os.environ["FUZZED_KEY"]
_turn = itertools.count()
_server = httpx2.Client(base_url=os.environ["FUZZED_URL"], headers={"authorization": f"Bearer {KEY}"})


@schemathesis.hook
def before_call(_: Any, case: schemathesis.Case[Any], kwargs: dict[str, Any]) -> None:
    for part in (case.body, case.query):
        if isinstance(part, dict) and isinstance(part.get("wait"), int | float):
            _shorten(part)
    places = case.path_parameters or {}
    if places.get("key_id") == KEY.split("_")[1]:  # it finds its own key in the list, and would revoke it
        places["key_id"] = "another"
    is_chain = case.meta is None or case.meta.phase.name is TestPhase.STATEFUL
    if "session_id" in places and not is_chain and next(_turn) % 2:
        places["session_id"] = _a_session()


def _shorten(part: dict[str, Any]) -> None:
    if SOON < part["wait"] <= 60:  # what is above is refused, and is to be
        part["wait"] = SOON


def _a_session() -> str:
    """A session with something to read."""
    made = _server.post("/sessions", json={}).raise_for_status().json()["session_id"]
    _server.post(f"/sessions/{made}/messages", json={"content": "hello", "run": False}).raise_for_status()
    return str(made)


@schemathesis.serializer("application/x-ndjson")
def lines(_: Any, value: Any) -> bytes:
    """What Schemathesis makes up in the place of lines."""
    return str(value).encode("utf-8", "replace")

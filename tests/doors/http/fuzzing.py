"""Hooks of Schemathesis, loaded by its own process: what it makes up leads to sessions that are there, and soon back.

Ids that are made up lead nowhere, so every other one is replaced by that of a session made for the request. Valid
values that no schema can describe are made here as well: cursors, which only the server makes, definitions of agents,
decisions among the options of an approval, files to import, and values without integers of more than 64 bits.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import Any

import httpx2
import schemathesis
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.meta import TestPhase

MOST = 2**63
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
    if case.meta is None or case.meta.generation.mode is GenerationMode.POSITIVE:
        _complete(case, places)
    if "session_id" in places and _is_free(case) and next(_turn) % 2:
        places["session_id"] = _a_session()


def _is_chain(case: schemathesis.Case[Any]) -> bool:
    return case.meta is None or case.meta.phase.name is TestPhase.STATEFUL


def _is_free(case: schemathesis.Case[Any]) -> bool:
    """Whether any session will do: it is neither one of a chain, nor what is wrong with the request."""
    if case.meta is None or _is_chain(case):
        return False
    if "key" in (case.path_parameters or {}):  # as it is here, it is quoted, and may be too long then
        return False
    path = case.meta.components.get(ParameterLocation.PATH)
    return path is None or path.mode is GenerationMode.POSITIVE


def _shorten(part: dict[str, Any]) -> None:
    if SOON < part["wait"] <= 60:  # what is above is refused, and is to be
        part["wait"] = SOON


def _complete(case: schemathesis.Case[Any], places: dict[str, Any]) -> None:
    """Make right what the document can only name."""
    if case.method == "DELETE" and _is_chain(case) and case.query:  # what comes next expects it to be gone
        case.query.pop("dry_run", None)
    for part in (case.body, case.query):
        if isinstance(part, dict) and part.get("cursor") is not None:
            del part["cursor"]
    if _has_too_large(case.body):
        case.body = _clipped(case.body)
    if not isinstance(case.body, dict):
        return
    if "definition" in case.body:
        name = f"agent-{next(_turn)}"
        table: Any = {"agent": {"name": name, "kind": "command", "command": ["true"]}}
        text = f'[agent]\nname = "{name}"\nkind = "command"\ncommand = ["true"]\n'
        case.body["definition"] = text if isinstance(case.body["definition"], str) else table
        places.update({"name": name} if "name" in places else {})
        if _is_chain(case):  # what comes next looks for it
            case.body["dry_run"] = False
    for writes in (case.body.get("writes"), case.body.get("memory")):
        if isinstance(writes, list):
            _part(writes)
    if "decision" in case.body:
        case.body.update(decision="approve", plan_hash=None)
    if case.body.get("session"):  # which has an agent of its own
        case.body.pop("agent_name", None)
    if "new_id" in case.body and case.body["new_id"] == case.body.get("host"):  # a session is not its own parent
        del case.body["host"]


def _part(writes: Any) -> None:
    """Let writes of records differ: one commit writes a key once, and below a prefix there are numbers only."""
    for write in writes:
        if isinstance(write, dict) and isinstance(write.get("prefix"), str):
            write["prefix"] = f"numbered-{next(_turn)}/"
        elif isinstance(write, dict) and isinstance(write.get("key"), str) and write["key"]:
            write["key"] = f"{write['key'][:200]}-{next(_turn)}"


def _has_too_large(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_too_large, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and abs(value) >= MOST


def _clipped(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _clipped(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_clipped(each) for each in value]
    return value % MOST if _has_too_large(value) else value


def _a_session() -> str:
    """A session with something to read."""
    made = _server.post("/sessions", json={}).raise_for_status().json()["session_id"]
    _server.post(f"/sessions/{made}/messages", json={"content": "hello", "run": False}).raise_for_status()
    return str(made)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Files that can be imported: exports, and lists of messages."""
    if draw(st.booleans()):
        return _server.get(f"/sessions/{_a_session()}/export").raise_for_status().content
    said = draw(st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": st.text(min_size=1)}), min_size=1))
    return json.dumps(said).encode()


schemathesis.openapi.media_type("application/octet-stream", files())

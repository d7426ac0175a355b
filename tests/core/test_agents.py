"""Definitions of agents: what may stand in one, what is refused and how, and what is filled in."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.agent import (
    KNOWN,
    NEEDS,
    TAKES,
    AgentDefinition,
    AgentKind,
    AgentProtocol,
    AgentRole,
    check_name,
    definition_of,
    fill_in,
)
from moorage.core.duration import duration, duration_text
from moorage.core.errors import InvalidField
from moorage.core.turn import Retry

LEAST: dict[str, dict[str, Any]] = {
    "builtin": {},
    "command": {"command": ["claude", "-p"]},
    "python": {"function": "my_agents.plans:Planner.plan"},
    "openai": {"base_url": "http://localhost:11434/v1", "model": "llama3.2"},
    "acp": {"command": ["gemini", "--acp"]},
    "grpc": {"endpoint": "localhost:50051"},
}


def table(kind: str = "command", **more: Any) -> dict[str, Any]:
    return {"name": "planner", "kind": kind, **LEAST[kind], **more}


@pytest.mark.parametrize("kind", LEAST)
def test_required_fields_of_a_kind_are_enough(kind: str) -> None:
    agent = definition_of(table(kind))
    assert (agent.name, agent.kind, agent.role, agent.enabled) == ("planner", kind, AgentRole.AGENT, True)
    assert (agent.timeout, agent.idle_timeout, agent.max_concurrent) == (timedelta(hours=1), None, None)
    assert (agent.retry, agent.protocol) == (Retry.RESUME, AgentProtocol.TEXT)
    assert agent.is_supervised is (kind in ("command", "python", "acp"))


def test_everything_can_be_said() -> None:
    agent = definition_of(
        table(
            description="Plans",
            protocol="jsonl",
            system_prompt="Be brief.",
            timeout="30m",
            idle_timeout=90,
            max_output_bytes=1000,
            max_concurrent=2,
            retry="never",
            env={"COLOUR": "blue"},
            cwd="~/plans",
            enabled=False,
            mcp_servers={"boss": {"url": "http://localhost:9/mcp"}, "own": {"command": "server"}},
        ),
        AgentRole.WORKER,
    )
    assert (agent.role, agent.protocol, agent.retry) == (AgentRole.WORKER, AgentProtocol.JSONL, Retry.NEVER)
    assert (agent.timeout, agent.idle_timeout) == (timedelta(minutes=30), timedelta(seconds=90))
    assert (agent.mcp_servers["boss"]["type"], agent.mcp_servers["own"]["type"]) == ("http", "stdio")


@pytest.mark.parametrize("kind", LEAST)
@pytest.mark.parametrize("role", AgentRole)
def test_a_definition_reads_back_from_its_table(kind: str, role: AgentRole) -> None:
    agent = definition_of(table(kind, description="é", timeout="never", idle_timeout="90s", retry="always"), role)
    assert definition_of(agent.table(), role) == agent
    assert set(agent.table()) == {"name", "kind", "description", "timeout", "idle_timeout", "retry", *NEEDS[agent.kind]}


@pytest.mark.parametrize("kind", LEAST)
def test_required_fields_of_a_kind_are_checked(kind: str) -> None:
    for key in NEEDS[AgentKind(kind)]:
        lacking = table(kind)
        del lacking[key]
        with pytest.raises(InvalidField, match=f"^{key} is missing: an agent of kind {kind} needs it"):
            definition_of(lacking)


@pytest.mark.parametrize("kind", LEAST)
def test_fields_of_other_kinds_are_refused(kind: str) -> None:
    foreign = set(KNOWN) - {*NEEDS[AgentKind(kind)], *TAKES[AgentKind(kind)], "name", "kind", "description"}
    foreign -= {"timeout", "idle_timeout", "max_output_bytes", "max_concurrent", "max_turns", "retry", "enabled"}
    assert foreign
    for key in foreign:
        with pytest.raises(InvalidField, match=f"^{key} does not apply to an agent of kind {kind}; it is for "):
            definition_of(table(kind, **{key: "x"}))


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"kind": "magic"}, "kind", "is 'magic'; use one of builtin, command, python, openai, acp, grpc"),
    ({"kind": ["command"]}, "kind", "use one of"),
    ({"name": "../evil"}, "name", "is '../evil'; use 1 to 64 letters"),
    ({"name": ""}, "name", "use 1 to 64 letters"),
    ({"name": 5}, "name", "use 1 to 64 letters"),
    ({"timout": "5m"}, "timout", "is not a key of a definition; use one of name, description, kind, timeout"),
    ({"command": "claude -p"}, "command", 'must be a list of words, such as ["sh", "-c", "…"]'),
    ({"command": []}, "command", "must be a list with the program"),
    ({"command": [5]}, "command", "must be text"),
    ({"command": ["a\0b"]}, "command", "must be text"),
    ({"command": [" "]}, "command", "must begin with a program"),
    ({"protocol": "xml"}, "protocol", "use one of text, jsonl"),
    ({"timeout": "soon"}, "timeout", "is 'soon'; write a duration such as 90s, 30m or 2h, or never"),
    ({"timeout": 0}, "timeout", "write a duration"),
    ({"timeout": 1e300}, "timeout", "write a duration"),
    ({"timeout": float("nan")}, "timeout", "write a duration"),
    ({"timeout": "999999w"}, "timeout", "write a duration"),
    ({"timeout": True}, "timeout", "write a duration"),
    ({"idle_timeout": "0s"}, "idle_timeout", "write a duration"),
    ({"max_output_bytes": 0}, "max_output_bytes", "give a whole number above 0"),
    ({"max_concurrent": 1.5}, "max_concurrent", "give a whole number above 0"),
    ({"retry": "maybe"}, "retry", "use one of resume, always, never"),
    ({"enabled": "yes"}, "enabled", "write true or false"),
    ({"description": 5}, "description", "must be text"),
    ({"system_prompt": "x" * 300_000}, "system_prompt", "has 300,000 characters, at most 262,144 are allowed"),
    ({"cwd": "plans"}, "cwd", "give an absolute path"),
    ({"env": "A=1"}, "env", "must be a table of variables"),
    ({"env": {"A-B": "1"}}, "env.A-B", "is not the name of an environment variable"),
    ({"env": {"A": 1}}, "env.A", "is 1; write text, in quotes"),
    ({"env": {"AGENT_SESSION_ID": "x"}}, "env.AGENT_SESSION_ID", "is set by the launcher"),
    ({"mcp_servers": []}, "mcp_servers", "must be a table with a table for each server"),
    ({"mcp_servers": {"a": "http://x"}}, "mcp_servers.a", "must be a table"),
    ({"mcp_servers": {"a": {}}}, "mcp_servers.a", "needs either a url or a command"),
    ({"mcp_servers": {"a": {"url": "http://x", "command": "y"}}}, "mcp_servers.a", "needs either"),
    ({"mcp_servers": {"a": {"url": "http://x", "type": "stdio"}}}, "mcp_servers.a.type", "use one of http, sse"),
    ({"mcp_servers": {"a": {"url": 5}}}, "mcp_servers.a.url", "must be some text"),
    ({"mcp_servers": {"a": {"command": "x", "args": "y"}}}, "mcp_servers.a.args", "must be a list of texts"),
    ({"mcp_servers": {"a": {"url": "x", "headers": {"H": 1}}}}, "mcp_servers.a.headers.H", "write text"),
]


@pytest.mark.parametrize(
    ("wrong", "field", "why"), WRONG, ids=[f"{field}-{n}" for n, (_, field, _) in enumerate(WRONG)]
)
def test_error_names_the_field_and_the_fix(wrong: dict[str, Any], field: str, why: str) -> None:
    with pytest.raises(InvalidField) as caught:
        definition_of(table() | wrong)
    assert caught.value.field == field
    assert caught.value.message.startswith(f"{field} ")
    assert why in caught.value.message
    assert caught.value.code == f"invalid_{field.split('.')[0]}"
    assert caught.value.path == tuple(field.split("."))


@pytest.mark.parametrize(
    ("kind", "wrong", "why"),
    [
        ("python", {"function": "module"}, "write module:function"),
        ("python", {"function": "my module:f"}, "write module:function"),
        ("openai", {"base_url": "localhost:8080"}, "write http://… or https://…"),
        ("openai", {"model": " "}, "must be some text"),
        ("openai", {"api_key_env": "sk-12345"}, "the key itself stays out of files"),
        ("grpc", {"endpoint": "localhost"}, "write host:port"),
    ],
)
def test_error_of_other_kinds_names_the_field(kind: str, wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidField, match=why):
        definition_of(table(kind) | wrong)


def test_a_definition_is_a_table() -> None:
    wrong: list[object] = [None, [], "x"]
    for nonsense in wrong:
        with pytest.raises(InvalidField):
            definition_of(nonsense)


@given(st.text(max_size=80))
def test_a_name_is_never_a_path(text: str) -> None:
    try:
        name = check_name(text)
    except InvalidField:
        return
    assert "/" not in name
    assert "\\" not in name
    assert "\0" not in name
    assert not name.startswith(".")


# Filling in -------------------------------------------------------------------------------------

SERVERS = {
    "boss": {"type": "http", "url": "http://x/${AGENT_SESSION_ID}", "headers": {"N": "${AGENT_SESSION_NAME}"}},
    "own": {"type": "stdio", "command": "s", "args": ["${AGENT_SESSION_NAME}-${AGENT_SESSION_ID}", "${OTHER}"], "n": 5},
}


def test_ids_and_names_are_filled_in_wherever_they_stand() -> None:
    filled = fill_in(SERVERS, session_id="id-1", session_name="plan")
    assert filled["boss"] == {"type": "http", "url": "http://x/id-1", "headers": {"N": "plan"}}
    assert filled["own"]["args"] == ["plan-id-1", "${OTHER}"]
    assert filled["own"]["n"] == 5


def test_a_session_without_a_name_is_called_by_its_id() -> None:
    assert fill_in("${AGENT_SESSION_NAME}", session_id="id-1", session_name=None) == "id-1"


def test_filling_in_leaves_the_definition_as_it_is() -> None:
    agent = definition_of(table(mcp_servers=SERVERS))
    filled = agent.for_session(session_id="id-1", session_name="plan")
    assert filled.mcp_servers["boss"]["headers"] == {"N": "plan"}
    assert agent.mcp_servers["boss"]["headers"] == {"N": "${AGENT_SESSION_NAME}"}
    plain = definition_of(table())
    assert plain.for_session(session_id="id-1", session_name=None) is plain


@given(st.text(max_size=40), st.text(max_size=10), st.text(max_size=10))
def test_a_name_that_looks_like_a_placeholder_is_not_filled_in_again(text: str, session_id: str, name: str) -> None:
    filled = fill_in("${AGENT_SESSION_NAME}", session_id=session_id, session_name=f"${{AGENT_SESSION_ID}}{name}")
    assert filled == f"${{AGENT_SESSION_ID}}{name}"
    assert fill_in(text, session_id=session_id, session_name=name) == (
        text.replace("${AGENT_SESSION_ID}", session_id).replace("${AGENT_SESSION_NAME}", name or session_id)
    )


@given(st.timedeltas(timedelta(milliseconds=1), timedelta(days=11)))
def test_durations_read_back(value: timedelta) -> None:
    assert duration("", duration_text(value)) == value


@given(st.timedeltas(timedelta(milliseconds=1), timedelta(seconds=10**8)))
def test_limits_read_back(value: timedelta) -> None:
    agent = definition_of(table(timeout=value.total_seconds()))
    assert definition_of(agent.table()) == agent


def test_definitions_know_nothing_of_each_other() -> None:
    one, two = AgentDefinition(name="a", kind=AgentKind.BUILTIN), AgentDefinition(name="b", kind=AgentKind.BUILTIN)
    assert one.env is not two.env

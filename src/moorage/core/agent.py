"""Agents: named definitions of what to start to continue a session.

A definition has the agent's `kind` with its settings, its instructions and its limits. A worker is an agent that does
one job per call. A tool is a function that a session may call; it is defined the same way, under another heading.

Definitions are read from tables, as TOML and JSON have them. An invalid table raises InvalidField, which names the
key and the values allowed; its `path` leads to the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, timedelta
from enum import StrEnum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from moorage.core.brief import brief
from moorage.core.codec import check_json, is_text
from moorage.core.duration import duration, duration_text
from moorage.core.errors import InvalidField
from moorage.core.run import MAX_TURNS
from moorage.core.turn import Retry

TIMEOUT = timedelta(hours=1)
MAX_OUTPUT_BYTES = 16 * 1024 * 1024
MAX_SYSTEM_PROMPT = 256 * 1024  # characters
LONGEST_LIMIT = timedelta(seconds=10**8)
LONGEST_IN_WORDS = timedelta(seconds=10**6)  # longer ones are written in seconds
MAX_ENDPOINT = 512  # characters
NEVER = "never"  # replaces a duration
SET_BY_LAUNCHER = (
    "AGENT_SESSION_ID", "AGENT_SESSION_NAME", "AGENT_TASK_ID", "AGENT_RUN_ID", "AGENT_TURN_FILE", "AGENT_MCP_CONFIG",
    "MOORAGE_URL", "MOORAGE_TOKEN", "MOORAGE_MARK",
)  # fmt: skip

_is_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}").fullmatch
_is_function = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*").fullmatch
_is_variable = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_is_http = re.compile(r"https?://[^\s/]\S*").fullmatch
_is_endpoint = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?\S+:\d{1,5}|unix:\S+").fullmatch

TomlTable = dict[str, Any]
Path = tuple[str, ...]


class AgentKind(StrEnum):
    """How an agent is started and called."""

    BUILTIN = "builtin"  # comes with Moorage
    COMMAND = "command"  # any program, through its standard input and output
    PYTHON = "python"  # a function, in its own Python process
    OPENAI = "openai"  # an OpenAI-compatible chat endpoint
    ACP = "acp"  # a program that speaks the Agent Client Protocol
    GRPC = "grpc"  # a remote AgentService


SUPERVISED = frozenset({AgentKind.COMMAND, AgentKind.PYTHON, AgentKind.ACP})  # others answer where called
AT_ONCE = frozenset({AgentKind.BUILTIN})  # they only compute


class AgentProtocol(StrEnum):
    """How a command exchanges input and output with its launcher."""

    TEXT = "text"  # the prompt in, the answer out
    JSONL = "jsonl"  # a line of JSON in, lines of JSON out


class AgentRole(StrEnum):
    """The role of a definition, which is also its heading in a file."""

    AGENT = "agent"
    WORKER = "worker"
    TOOL = "tool"


class AgentDefinition(Struct, frozen=True, kw_only=True):
    """One definition. Create it with `definition_of`, which checks it."""

    name: str
    kind: AgentKind
    description: str = ""
    role: AgentRole = AgentRole.AGENT
    command: tuple[str, ...] = ()
    protocol: AgentProtocol = AgentProtocol.TEXT
    function: str | None = None  # module:name
    endpoint: tuple[str, ...] = ()  # its addresses
    base_url: str | None = None
    model: str | None = None
    api_key_env: str | None = None  # the variable that holds the key, never the key itself
    system_prompt: str | None = None
    timeout: timedelta | None = TIMEOUT
    idle_timeout: timedelta | None = None  # None by default: many programs print nothing until they have the answer
    max_output_bytes: int = MAX_OUTPUT_BYTES
    max_concurrent: int | None = None  # per launcher
    max_turns: int = MAX_TURNS  # of one run
    retry: Retry = Retry.RESUME
    env: dict[str, str] = field(default_factory=dict)
    mcp_servers: dict[str, TomlTable] = field(default_factory=dict)
    cwd: str | None = None
    enabled: bool = True
    source: str | None = None  # the file it was read from

    @property
    def is_supervised(self) -> bool:
        """Return whether it runs in its own processes, which outlive a launcher."""
        return self.kind in SUPERVISED

    @property
    def answers_at_once(self) -> bool:
        """Return whether it answers in the process that calls it, without a launcher."""
        return self.kind in AT_ONCE

    @property
    def is_remote_tool(self) -> bool:
        """Return whether it is a remote tool."""
        return self.role is AgentRole.TOOL and self.kind is AgentKind.GRPC

    def for_session(self, *, session_id: str, session_name: str | None) -> AgentDefinition:
        """Return the definition with the variables of its MCP servers filled in for one session."""
        servers = fill_in(self.mcp_servers, session_id=session_id, session_name=session_name)
        return self if servers == self.mcp_servers else replace(self, mcp_servers=servers)

    def table(self) -> TomlTable:
        """Return the definition as a TOML or JSON table without defaults; `definition_of` reads it back."""
        default = AgentDefinition(name=self.name, kind=self.kind)
        said = {name: getattr(self, name) for name in KNOWN if getattr(self, name) != getattr(default, name)}
        return {"name": self.name, "kind": self.kind.value} | {name: _plain(value) for name, value in said.items()}


_EVERY_KIND = (
    "name", "description", "kind", "timeout", "idle_timeout", "max_output_bytes", "max_concurrent", "max_turns",
    "retry", "enabled",
)  # fmt: skip
_A_PROCESS = ("cwd", "env", "mcp_servers", "system_prompt")
# Required and optional fields of each kind. Any other field under its heading is an error.
NEEDS: dict[AgentKind, Path] = {
    AgentKind.BUILTIN: (),
    AgentKind.COMMAND: ("command",),
    AgentKind.PYTHON: ("function",),
    AgentKind.OPENAI: ("base_url", "model"),
    AgentKind.ACP: ("command",),
    AgentKind.GRPC: ("endpoint",),
}
TAKES: dict[AgentKind, Path] = {
    AgentKind.BUILTIN: (),
    AgentKind.COMMAND: ("protocol", *_A_PROCESS),
    AgentKind.PYTHON: _A_PROCESS,
    AgentKind.OPENAI: ("api_key_env", "system_prompt"),
    AgentKind.ACP: _A_PROCESS,
    AgentKind.GRPC: ("api_key_env", "system_prompt"),
}
KNOWN = (*_EVERY_KIND, *sorted({name for names in (*NEEDS.values(), *TAKES.values()) for name in names}))


def definition_of(table: object, role: AgentRole = AgentRole.AGENT, *, source: str | None = None) -> AgentDefinition:
    """Return the definition that a table describes. Raises InvalidField."""
    if not isinstance(table, dict):
        raise wrong((), f"must be a table that describes the {role}", role.value)
    kind = AgentKind(_choice("kind", _needed(table, "kind", role.value), tuple(AgentKind)))
    name = check_name(_needed(table, "name", role.value))
    _check_keys(table, kind)
    values = {key: _CHECKS[key](key, value) for key, value in table.items() if key not in ("kind", "name")}
    return AgentDefinition(name=name, kind=kind, role=role, source=source, **values)


def check_name(value: object) -> str:
    """Return an agent's name. It is also a file name, but never a path."""
    if not isinstance(value, str) or not _is_name(value):
        why = f"is {value!r}; use 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit"
        raise wrong(("name",), why)
    return value


def fill_in(value: Any, *, session_id: str, session_name: str | None) -> Any:
    """Return a value with `${AGENT_SESSION_ID}` and `${AGENT_SESSION_NAME}` replaced in all its texts."""
    if isinstance(value, str):
        filled = value.replace("${AGENT_SESSION_ID}", session_id)
        return filled.replace("${AGENT_SESSION_NAME}", session_name or session_id)
    if isinstance(value, dict):
        return {key: fill_in(item, session_id=session_id, session_name=session_name) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [fill_in(item, session_id=session_id, session_name=session_name) for item in value]
    return value


def wrong(path: Path, why: str, name: str | None = None) -> InvalidField:
    """Return the error for a key, with the path to it."""
    error = InvalidField(name or ".".join(path), why)
    error.__dict__["path"] = path
    return error


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return duration_text(value) if value < LONGEST_IN_WORDS else value.total_seconds()
    if isinstance(value, StrEnum):
        return value.value
    if value is None:
        return NEVER  # only durations are None when they differ from their default
    return list(value) if isinstance(value, tuple) else value


def check_endpoint(value: object) -> str:
    """Return one address of an agent, worker or tool. Raises InvalidField."""
    if isinstance(value, (list, tuple)):
        raise wrong(("endpoint",), "must be one place")
    return _check_endpoint("endpoint", value)[0]


# Fields allowed under a heading -----------------------------------------------------------------


def _needed(table: TomlTable, key: str, role: str) -> Any:
    if key not in table:
        raise wrong((key,), f"is missing: every {role} has one")
    return table[key]


def _check_keys(table: TomlTable, kind: AgentKind) -> None:
    allowed = (*_EVERY_KIND, *NEEDS[kind], *TAKES[kind])
    for key in table:
        if key not in KNOWN:
            raise wrong((key,), f"is not a key of a definition; use one of {', '.join(allowed)}")
        if key not in allowed:
            kinds = " or ".join(other for other in AgentKind if key in (*NEEDS[other], *TAKES[other]))
            raise wrong((key,), f"does not apply to an agent of kind {kind}; it is for {kinds}")
    for key in NEEDS[kind]:
        if key not in table:
            raise wrong((key,), f"is missing: an agent of kind {kind} needs it")


def _choice(key: str, value: object, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise wrong((key,), f"is {value!r}; use one of {', '.join(allowed)}")
    return str(value)


def _check_text(key: str, value: object, limit: int = 4096) -> str:
    if not isinstance(value, str) or not is_text(value) or "\0" in value:
        raise wrong((key,), "must be text")
    if len(value) > limit:
        raise wrong((key,), f"has {len(value):,} characters, at most {limit:,} are allowed")
    return value


def _matching(is_right: Callable[[Any], object], why: str, kind: type = str) -> Callable[[str, object], Any]:
    """Return a check of values of a kind; `why` says what is wrong with another value."""

    def check(key: str, value: object) -> Any:
        if not isinstance(value, kind) or not is_right(value):
            raise wrong((key,), why.format(value))
        return value

    return check


def _check_command(key: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        raise wrong((key,), 'must be a list of words, such as ["sh", "-c", "…"]; no shell reads it')
    if not isinstance(value, (list, tuple)) or not value:
        raise wrong((key,), "must be a list with the program and its arguments")
    words = tuple(_check_text(key, word, 128 * 1024) for word in value)
    if not words[0].strip():
        raise wrong((key,), "must begin with a program")
    return words


def _check_endpoint(key: str, value: object) -> tuple[str, ...]:
    places = value if isinstance(value, (list, tuple)) else [value]
    for place in places or [value]:
        if not isinstance(place, str) or len(place) > MAX_ENDPOINT or not _is_endpoint(place):
            raise wrong((key,), f"is {place!r}; write host:port, or a list of such")
    return tuple(dict.fromkeys(places))


def _check_limit(key: str, value: object) -> timedelta | None:
    if value == NEVER:
        return None
    limit = timedelta(0)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        limit = timedelta(seconds=value) if 0 < value < 10**9 else limit
    else:
        with suppress(InvalidField):
            limit = duration(key, value)
    if not timedelta(0) < limit <= LONGEST_LIMIT:
        raise wrong((key,), f"is {value!r}; write a duration such as 90s, 30m or 2h, or never")
    return limit


def _check_env(key: str, value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise wrong((key,), "must be a table of variables")
    for name, text in value.items():
        if not _is_variable(name):
            raise wrong((key, name), "is not the name of an environment variable")
        if name in SET_BY_LAUNCHER:
            raise wrong((key, name), "is set by the launcher; leave it out")
        if not isinstance(text, str) or "\0" in text or not is_text(text):
            raise wrong((key, name), f"is {text!r}; write text, in quotes")
    return value


def _check_servers(key: str, value: object) -> dict[str, TomlTable]:
    if not isinstance(value, dict):
        raise wrong((key,), "must be a table with a table for each server")
    return {name: _check_server((key, name), server) for name, server in value.items()}


_SERVER_TYPES = {"stdio": "command", "http": "url", "sse": "url"}


def _check_server(path: Path, server: object) -> TomlTable:
    """Return one MCP server: check known fields and pass on all others."""
    if not isinstance(server, dict):
        raise wrong(path, "must be a table: type, url and headers, or command, args and env")
    if ("url" in server) == ("command" in server):
        raise wrong(path, "needs either a url or a command")
    kind = server.get("type", "http" if "url" in server else "stdio")
    if _SERVER_TYPES.get(str(kind)) not in server:
        allowed = [name for name, needs in _SERVER_TYPES.items() if needs in server]
        raise wrong((*path, "type"), f"is {kind!r}; use one of {', '.join(allowed)}")
    for key in ("url", "command"):
        if key in server and (not isinstance(server[key], str) or not server[key].strip()):
            raise wrong((*path, key), "must be some text")
    for key in ("headers", "env"):
        _check_texts((*path, key), server.get(key, {}))
    args = server.get("args", [])
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        raise wrong((*path, "args"), "must be a list of texts")
    check_json(server, ".".join(path))
    return {"type": kind, **server}


def _check_texts(path: Path, table: object) -> None:
    if not isinstance(table, dict):
        raise wrong(path, "must be a table of texts")
    for name, text in table.items():
        if not isinstance(text, str):
            raise wrong((*path, name), f"is {text!r}; write text, in quotes")


_check_count = _matching(lambda number: type(number) is int and number > 0, "is {!r}; give a whole number above 0", int)
_check_model = _matching(str.strip, "must be some text")
_check_folder = _matching(
    lambda path: path.startswith(("/", "~")), "is {!r}; give an absolute path, or one that begins with ~"
)
_CHECKS: dict[str, Any] = {
    "description": _check_text,
    "command": _check_command,
    "protocol": lambda key, value: AgentProtocol(_choice(key, value, tuple(AgentProtocol))),
    "function": _matching(_is_function, "is {!r}; write module:function"),
    "endpoint": _check_endpoint,
    "base_url": _matching(_is_http, "is {!r}; write http://… or https://…"),
    "model": lambda key, value: _check_model(key, _check_text(key, value)),
    "api_key_env": _matching(
        _is_variable,
        "must be the name of an environment variable, such as OPENAI_API_KEY; the key itself stays out of files",
    ),
    "system_prompt": lambda key, value: _check_text(key, value, MAX_SYSTEM_PROMPT),
    "timeout": _check_limit,
    "idle_timeout": _check_limit,
    "max_output_bytes": _check_count,
    "max_concurrent": _check_count,
    "max_turns": _check_count,
    "retry": lambda key, value: Retry(_choice(key, value, tuple(Retry))),
    "env": _check_env,
    "mcp_servers": _check_servers,
    "cwd": lambda key, value: _check_folder(key, _check_text(key, value)),
    "enabled": _matching(lambda _: True, "is {!r}; write true or false", bool),
}


# Tools and their results ------------------------------------------------------------------------

NUMBERS = ("integer", "number")  # types in JSON schemas


class Refused(Exception):
    """A call that is invalid for the tool; the text says why."""


@brief("name", "description")
class Tool(Struct, frozen=True, kw_only=True):
    """A named function with one operation or several."""

    name: str
    description: str
    operations: dict[str, ToolOperation]  # empty if only the tool itself knows them
    endpoints: tuple[str, ...] = ()  # of a remote tool

    def fitting(self, given: Mapping[str, Any]) -> str:
        """Return the first operation that accepts all given parameters and needs no others, else the first of all."""
        return next(
            (name for name, each in self.operations.items() if each.takes(given)), next(iter(self.operations), "")
        )

    def read(self, operation: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters, with texts converted to numbers where the operation wants numbers."""
        known = self.operations.get(operation)
        properties = {} if known is None else known.parameters.get("properties", {})
        return {name: _number(value, properties.get(name)) for name, value in given.items()}


class ToolOperation(Struct, frozen=True, kw_only=True):
    """One operation of a tool; `parameters` is a JSON schema."""

    description: str
    parameters: dict[str, Any]

    def takes(self, given: Mapping[str, Any]) -> bool:
        """Return whether it accepts all given parameters and needs no others."""
        needed = set(self.parameters.get("required", ()))
        return given.keys() <= self.parameters.get("properties", {}).keys() and needed <= given.keys()


def _number(value: Any, schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if not isinstance(value, str) or kind not in NUMBERS:
        return value
    try:
        return int(value) if kind == "integer" else float(value)
    except ValueError:
        return value  # the tool refuses it with its own message


@brief("tool", "operation", "success", "result", "error")
class ToolAnswer(Struct, frozen=True, kw_only=True):
    """The result of a call. A failure of the tool is an answer with a reason, not an error of the request."""

    tool: str
    operation: str
    success: bool
    result: Any = None
    error: str | None = None
    session_id: str | None = None


class Occasion(Struct, frozen=True, kw_only=True):
    """The circumstances of a tool call: the time, the session, and how many seconds the caller waits."""

    today: date
    session_id: str | None = None
    timeout: float | None = None


# A tool function gets operation, parameters and occasion. It may raise Refused or return an awaitable.
ToolFunction = Callable[[str, dict[str, Any], Occasion], Any]
Toolbox = Mapping[str, tuple[Tool, ToolFunction]]  # by name

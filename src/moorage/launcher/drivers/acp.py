"""Agents that speak the Agent Client Protocol: JSON-RPC over standard input and output, one message per line.

This is a client of version 1 of the protocol::

    initialize → session/resume or session/load if the last turn left a session of the agent, else session/new
               → session/prompt; while it runs, the agent reports its actions (session/update) and may request
                 permission (session/request_permission); it ends with a stop reason

The client offers neither files nor terminals: the agent has its own process and its own tools.
"""

from __future__ import annotations

import json
import os
import sys

from moorage.launcher.drivers.base import MAX_LINE, Exit, LineDriver, read_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from moorage.launcher.drivers.base import AgentEvent, DriverChannel, JobTable

VERSION = 1
AUTH_REQUIRED, METHOD_NOT_FOUND, INVALID_PARAMS = -32000, -32601, -32602
CHECKPOINT = "acp_session_id"
MAX_HISTORY = 200_000  # characters of earlier history, for an agent that cannot load its session
MAX_OPTIONS = 20
CUT_SHORT = {"max_tokens": "its model's output was full", "max_turn_requests": "it had asked its model too often"}


class AcpDriver(LineDriver):
    """Runs one prompt in one session of the agent."""

    grace = 2.0  # seconds to end by itself after session/cancel

    def __init__(self, job: JobTable, line: DriverChannel) -> None:
        super().__init__(job, line)
        self._waiting: dict[int, Callable[[AgentEvent], None]] = {}  # handler for the answer to each request
        self._next_id = 0
        self._session: str | None = None
        self._capabilities: AgentEvent = {}
        self._is_prompted = False
        self._message_id: object = None
        self._calls: dict[str, AgentEvent] = {}  # tool calls that have not ended
        self._questions: dict[str, PermissionQuestion] = {}
        self._asked = 0
        self._ending: AgentEvent | None = None

    # From the supervisor

    def begin(self) -> None:
        version = sys.modules["moorage"].__version__  # loaded already; an import would depend on all of it
        info = {"name": "moorage", "title": "Moorage", "version": str(version)}
        offers = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        params = {"protocolVersion": VERSION, "clientCapabilities": offers, "clientInfo": info}
        self._request("initialize", params, self._initialized)

    def told(self, command: AgentEvent) -> None:
        question = self._questions.pop(str(command.get("id")), None)
        if question is not None:
            self._answer(question.request_id, {"outcome": question.outcome(command.get("decision"))})

    def ask_to_stop(self) -> None:
        if self._session is not None and self._is_prompted:
            self._send({"method": "session/cancel", "params": {"sessionId": self._session}})
        for question in self._questions.values():
            self._answer(question.request_id, {"outcome": {"outcome": "cancelled"}})
        self._questions.clear()

    def result(self, exit: Exit) -> AgentEvent:
        if self._ending is not None:
            return self._ending
        self._settle_calls()
        return self.died(f"{exit} before it had answered")

    def last_words(self) -> None:
        self._settle_calls()

    # The conversation, step by step

    def _initialized(self, result: AgentEvent) -> None:
        version = result.get("protocolVersion")
        if version != VERSION:
            self._fail("bad_output", f"it speaks version {version} of the Agent Client Protocol, we speak {VERSION}")
            return
        self._capabilities = _table(result.get("agentCapabilities"))
        can_resume = _table(self._capabilities.get("sessionCapabilities")).get("resume") is not None
        session = (self.job.get("checkpoint") or {}).get(CHECKPOINT)
        if isinstance(session, str) and (can_resume or self._capabilities.get("loadSession") is True):
            self._reopen("session/resume" if can_resume else "session/load", session)
        else:
            self._open_session()

    def _reopen(self, method: str, session: str) -> None:
        """Restore the agent's earlier session, or open a new one."""

        def reopened(_: AgentEvent) -> None:
            self._session = session
            self._prompt([])

        def not_reopened(error: AgentEvent) -> None:
            self._note(f"it could not take up its session again ({_reason(error)}); it gets a new one")
            self._open_session()

        self._request(method, self._setting() | {"sessionId": session}, reopened, not_reopened)

    def _open_session(self) -> None:
        self._request("session/new", self._setting(), self._opened)

    def _opened(self, result: AgentEvent) -> None:
        session = result.get("sessionId")
        if not isinstance(session, str):
            self._fail("bad_output", "it opened a session without an id")
            return
        self._session = session
        checkpoint = {**(self.job.get("checkpoint") or {}), CHECKPOINT: session}
        self.emit({"type": "checkpoint", "checkpoint": checkpoint})
        history = history_text(self.job.get("history") or [])
        told = f"The conversation so far:\n\n{history}" if history else ""
        self._prompt([text for text in (self.job.get("system_prompt"), told) if text])  # it remembers nothing

    def _setting(self) -> AgentEvent:
        offered, taken = _table(self._capabilities.get("mcpCapabilities")), []
        for name, server in (self.job["agent"].get("mcp_servers") or {}).items():
            if server["type"] != "stdio" and offered.get(server["type"]) is not True:
                self._note(f"it takes no MCP servers over {server['type']}: {name} is left out")
            else:
                taken.append(server_for_acp(name, server))
        return {"cwd": os.path.abspath(self.job["cwd"]), "mcpServers": taken}

    def _prompt(self, preface: list[str]) -> None:
        blocks = [{"type": "text", "text": text} for text in (*preface, self.job["prompt"])]
        self._is_prompted = True
        self._request("session/prompt", {"sessionId": self._session, "prompt": blocks}, self._answered)

    def _answered(self, result: AgentEvent) -> None:
        self._settle_calls()
        self.account.end_message()
        if usage := _tokens(result.get("usage")):
            self.emit({"type": "usage", **usage})
        reason = result.get("stopReason")
        if reason == "refusal":
            self._end(self.account.failing("refused", "it refused to go on"))
        elif reason == "cancelled":
            self._end(self.account.ending("stopped", reason="stopped"))
        elif cut_short := CUT_SHORT.get(str(reason)):
            self._note(f"it stopped because {cut_short}")
            self._end(self.account.ending("completed", reason=reason))
        else:
            self._end(self.account.ending("completed"))

    def _fail(self, reason: str, error: str) -> None:
        self._settle_calls()
        self._end(self.account.failing(reason, error))

    def _end(self, ending: AgentEvent) -> None:
        self._ending, self.is_done = ending, True

    def _refused(self, method: str, error: AgentEvent) -> None:
        if error.get("code") == AUTH_REQUIRED:
            self._fail("refused", "it wants you to log in first: start it by hand once, log in, and try again")
        else:
            self._fail("agent_failed", f"it refused {method}: {_reason(error)}")

    # JSON-RPC

    def _request(
        self,
        method: str,
        params: AgentEvent,
        then: Callable[[AgentEvent], None],
        otherwise: Callable[[AgentEvent], None] | None = None,
    ) -> None:
        self._next_id += 1

        def answered(message: AgentEvent) -> None:
            if "error" in message:
                error = _table(message["error"])
                otherwise(error) if otherwise else self._refused(method, error)
            else:
                then(_table(message.get("result")))

        self._waiting[self._next_id] = answered
        self._send({"id": self._next_id, "method": method, "params": params})

    def _answer(self, request_id: object, result: AgentEvent) -> None:
        self._send({"id": request_id, "result": result})

    def _send(self, message: AgentEvent) -> None:
        self.line.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def take(self, line: bytes, length: int) -> None:
        if not line.strip() or self.is_done:
            return
        message = read_object(line) if length == len(line) else None
        if message is None:
            self._puzzle(line, length)
        elif "method" not in message:
            handler = self._waiting.pop(message["id"], None) if isinstance(message.get("id"), int) else None
            handler(message) if handler else self._puzzle(line, length)
        elif "id" in message:
            self._serve(message["id"], str(message["method"]), _table(message.get("params")))
        elif message["method"] == "session/update":
            self._update(_table(message.get("params")))

    def _puzzle(self, line: bytes, length: int) -> None:
        too_long = f"a line of at most {MAX_LINE:,} bytes; this one has {length:,}"
        self.account.problem(line, "a message of the Agent Client Protocol" if length == len(line) else too_long)

    def _serve(self, request_id: object, method: str, params: AgentEvent) -> None:
        if method == "session/request_permission":
            self._ask(request_id, params)
            return
        why = f"{method} is not offered here; use tools of your own"
        self._send({"id": request_id, "error": {"code": METHOD_NOT_FOUND, "message": why}})

    # Tool calls

    def _update(self, params: AgentEvent) -> None:
        if params.get("sessionId") != self._session or not self._is_prompted:
            return  # updates replayed while loading are about earlier turns, which the log has already
        update = _table(params.get("update"))
        kind = update.get("sessionUpdate")
        if kind == "agent_message_chunk":
            if update.get("messageId") != self._message_id:
                self.account.end_message()
                self._message_id = update.get("messageId")
            self.account.chunk(_words(update.get("content")))
        elif kind == "tool_call":
            self._call(update)
        elif kind == "tool_call_update":
            self._progress(update)
        elif kind == "plan":
            self.emit({"type": "note", "note": "its plan", "data": {"plan": update.get("entries")}})
        elif kind == "usage_update":
            known = {key: update[key] for key in ("used", "size") if _is_int(update.get(key))}
            self.emit({"type": "usage", **known})

    def _call(self, update: AgentEvent) -> None:
        self.account.end_message()
        call_id = str(update.get("toolCallId"))
        if call_id not in self._calls:
            name = str(update.get("title") or update.get("kind") or "tool")
            self._calls[call_id] = {name: update.get(name) for name in ("content", "rawOutput")}
            part = {"type": "tool_call", "id": call_id, "name": name, "input": update.get("rawInput")}
            self.account.message("assistant", [part])
        self._progress(update)

    def _progress(self, update: AgentEvent) -> None:
        call_id, status = str(update.get("toolCallId")), update.get("status")
        call = self._calls.get(call_id)
        if call is None:
            return
        call.update({name: update[name] for name in ("content", "rawOutput") if update.get(name)})
        if status in ("completed", "failed"):
            self._result_of(call_id, _output_of(call), is_error=status == "failed")

    def _settle_calls(self) -> None:
        """End open tool calls: models refuse a log in which a call has no result."""
        for call_id in list(self._calls):
            self._result_of(call_id, "it did not say how this ended", is_error=True)

    def _result_of(self, call_id: str, output: Any, *, is_error: bool) -> None:
        del self._calls[call_id]
        part = {"type": "tool_result", "call_id": call_id, "output": output, "is_error": is_error}
        self.account.message("tool", [part])

    def _ask(self, request_id: object, params: AgentEvent) -> None:
        offered = params["options"] if isinstance(params.get("options"), list) else []
        options = [option for option in offered if isinstance(_table(option).get("optionId"), str)]
        if params.get("sessionId") != self._session or not options:
            error = {"code": INVALID_PARAMS, "message": "no such session, or no options to choose from"}
            self._send({"id": request_id, "error": error})
            return
        self.account.end_message()
        self._asked += 1
        question_id, call = f"permission-{self._asked}", _table(params.get("toolCall"))
        question = self._questions[question_id] = PermissionQuestion(request_id, options[:MAX_OPTIONS])
        self.emit(
            {
                "type": "approval",
                "id": question_id,
                "question": str(call.get("title") or "").strip() or "May it go on?",
                "plan": {key: call[key] for key in ("kind", "rawInput", "locations", "content") if call.get(key)},
                "options": list(question.names),
                "wait": True,
            }
        )

    def _note(self, note: str) -> None:
        self.emit({"type": "note", "note": note})


class PermissionQuestion:
    """A permission request that waits for its answer."""

    def __init__(self, request_id: object, options: list[AgentEvent]) -> None:
        self.request_id = request_id
        names = [str(option.get("name") or option["optionId"]) for option in options]
        if len(set(names)) < len(names):
            names = [option["optionId"] for option in options]
        self.names = {name: option["optionId"] for name, option in zip(names, options, strict=True)}
        self._kinds = {str(option.get("kind")): option["optionId"] for option in reversed(options)}

    def outcome(self, decision: object) -> AgentEvent:
        """Return the agent's option for a decision, or a cancelled outcome."""
        kinds = {"approve": ("allow_once", "allow_always"), "reject": ("reject_once", "reject_always")}
        chosen = self.names.get(str(decision))
        for kind in kinds.get(str(decision), ()):
            chosen = chosen or self._kinds.get(kind)
        return {"outcome": "cancelled"} if chosen is None else {"outcome": "selected", "optionId": chosen}


def server_for_acp(name: str, server: AgentEvent) -> AgentEvent:
    """Return an MCP server in the form of the protocol."""
    if server["type"] == "stdio":
        env = _pairs(server.get("env"))
        return {"name": name, "command": _located(server["command"]), "args": server.get("args") or [], "env": env}
    return {"type": server["type"], "name": name, "url": server["url"], "headers": _pairs(server.get("headers"))}


def _pairs(table: Any) -> list[AgentEvent]:
    return [{"name": key, "value": value} for key, value in (table or {}).items()]


def _located(command: str) -> str:
    """Return the program's absolute path, as the protocol requires; return it unchanged if it cannot be found."""
    from shutil import which  # takes milliseconds to load, and few agents have such a server

    found = which(command)
    return command if found is None else os.path.abspath(found)


def history_text(history: list[AgentEvent]) -> str:
    """Return the history as text; only its newest part if it is long."""
    said = [f"{message['role']}: {_said(message['content'])}" for message in history]
    return "\n\n".join(said)[-MAX_HISTORY:]


def _said(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] if part.get("type") == "text" else json.dumps(part) for part in content)


def _output_of(call: AgentEvent) -> Any:
    """Return the output of a tool call: its text if it has any."""
    blocks = call["content"] if isinstance(call.get("content"), list) else []
    words = []
    for block in map(_table, blocks):
        changed = f"changed {block.get('path')}" if block.get("type") == "diff" else ""
        words.append(_words(block.get("content")) or changed)
    return "\n".join(filter(None, words)) or (call["rawOutput"] if call.get("rawOutput") is not None else "")


def _words(block: Any) -> str:
    block = _table(block)
    if block.get("type") == "text":
        return str(block.get("text") or "")
    if block.get("type") == "resource_link":
        return str(block.get("uri") or "")
    return f"[{block['type']}]" if "type" in block else ""


def _tokens(usage: Any) -> AgentEvent:
    names = {"inputTokens": "input_tokens", "outputTokens": "output_tokens", "totalTokens": "total_tokens"}
    usage = _table(usage)
    return {ours: usage[theirs] for theirs, ours in names.items() if _is_int(usage.get(theirs))}


def _reason(error: AgentEvent) -> str:
    details = error.get("data")
    return f"{error.get('message')}" + (f" ({json.dumps(details)[:500]})" if details else "")


def _table(value: Any) -> AgentEvent:
    return value if isinstance(value, dict) else {}


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

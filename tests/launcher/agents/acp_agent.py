"""An agent written with the official SDK of the Agent Client Protocol. The prompt selects its behaviour.

It keeps its sessions in a folder (ACP_SESSIONS), so that one started later can load them.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from acp import (
    PROTOCOL_VERSION,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptResponse,
    RequestError,
    run_agent,
    start_tool_call,
    text_block,
    tool_content,
    update_agent_message,
    update_plan,
    update_tool_call,
    update_user_message,
)
from acp.interfaces import Client
from acp.schema import AgentCapabilities, McpCapabilities, PermissionOption, PlanEntry, ToolCallUpdate, Usage

SESSIONS = Path(os.environ["ACP_SESSIONS"])
OPTIONS = [
    PermissionOption(option_id="yes-1", name="Allow once", kind="allow_once"),
    PermissionOption(option_id="yes-2", name="Always allow", kind="allow_always"),
    PermissionOption(option_id="no-1", name="Not now", kind="reject_once"),
]


def _count() -> int:
    return len(list(SESSIONS.iterdir()))


class Scripted:
    """Does what it is told; it answers to the methods of the protocol that are used here."""

    _client: Client

    def on_connect(self, conn: Client) -> None:
        self._client = conn
        self._cancelled = asyncio.Event()

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        assert protocol_version == PROTOCOL_VERSION
        can_load = os.environ.get("ACP_LOADS") == "yes"
        capabilities = AgentCapabilities(load_session=can_load, mcp_capabilities=McpCapabilities(http=True))
        return InitializeResponse(protocol_version=PROTOCOL_VERSION, agent_capabilities=capabilities)

    async def new_session(self, cwd: str, mcp_servers: list[Any] | None = None, **_: Any) -> NewSessionResponse:
        if os.environ.get("ACP_AUTH") == "required":
            raise RequestError.auth_required()
        session_id = f"acp-{_count()}"
        servers = [server.model_dump(by_alias=True, exclude_none=True) for server in mcp_servers or []]
        self._keep(session_id, {"cwd": cwd, "servers": servers, "said": []})
        return NewSessionResponse(session_id=session_id)

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> LoadSessionResponse:
        if not (SESSIONS / session_id).exists():
            raise RequestError.invalid_params({"reason": "no such session"})
        for text in self._kept(session_id)["said"]:
            await self._client.session_update(session_id, update_user_message(text_block(text)))
            await self._client.session_update(session_id, update_agent_message(text_block(f"I answered {text}")))
        return LoadSessionResponse()

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> PromptResponse:
        session = self._kept(session_id)
        texts = [block.text for block in prompt]
        session["said"].append(texts[-1])
        self._keep(session_id, session)
        word, _, rest = texts[-1].partition(" ")
        answer: PromptResponse = await getattr(self, f"_{word}")(session_id, rest, session, texts)
        return answer

    async def cancel(self, session_id: str, **_: Any) -> None:
        if os.environ.get("ACP_DEAF") != "yes":
            self._cancelled.set()

    async def _say(self, session_id: str, text: str) -> None:
        await self._client.session_update(session_id, update_agent_message(text_block(text)))

    async def _echo(self, session_id: str, rest: str, *_: Any) -> PromptResponse:
        for word in rest.split():
            await self._say(session_id, f"{word} ")
        usage = Usage(total_tokens=7, input_tokens=4, output_tokens=3)
        return PromptResponse(stop_reason="end_turn", usage=usage)

    async def _recall(self, session_id: str, _: str, session: dict[str, Any], texts: list[str]) -> PromptResponse:
        await self._say(session_id, json.dumps({"said": session["said"], "told": texts[:-1]}))
        return PromptResponse(stop_reason="end_turn")

    async def _setting(self, session_id: str, _: str, session: dict[str, Any], *__: Any) -> PromptResponse:
        await self._say(session_id, json.dumps({"cwd": session["cwd"], "servers": session["servers"]}))
        return PromptResponse(stop_reason="end_turn")

    async def _work(self, session_id: str, *_: Any) -> PromptResponse:
        await self._say(session_id, "Let me look.")
        plan = [PlanEntry(content="look", priority="high", status="in_progress")]
        await self._client.session_update(session_id, update_plan(plan))
        call = start_tool_call("call-1", "Read notes.md", kind="read", status="pending", raw_input={"path": "notes.md"})
        await self._client.session_update(session_id, call)
        content = [tool_content(text_block("three lines"))]
        done = update_tool_call("call-1", status="completed", content=content)
        await self._client.session_update(session_id, done)
        await self._client.session_update(session_id, start_tool_call("call-2", "Never ends", status="in_progress"))
        await self._say(session_id, "It has three lines.")
        return PromptResponse(stop_reason="end_turn")

    async def _permit(self, session_id: str, *_: Any) -> PromptResponse:
        call = ToolCallUpdate(tool_call_id="call-1", title="Delete everything", raw_input={"path": "/"})
        answer = await self._client.request_permission(session_id=session_id, tool_call=call, options=OPTIONS)
        outcome = answer.outcome
        await self._say(session_id, getattr(outcome, "option_id", None) or outcome.outcome)
        return PromptResponse(stop_reason="cancelled" if self._cancelled.is_set() else "end_turn")

    async def _wait(self, session_id: str, *_: Any) -> PromptResponse:
        await self._say(session_id, "waiting")
        await self._cancelled.wait()
        await self._say(session_id, ", cancelled")
        return PromptResponse(stop_reason="cancelled")

    async def _read(self, session_id: str, *_: Any) -> PromptResponse:
        refusals = []
        for call in (
            self._client.read_text_file(session_id=session_id, path="/etc/hostname"),
            self._client.create_terminal(session_id=session_id, command="ls"),
        ):
            try:
                await call
            except RequestError as error:
                refusals.append(error.code)
        await self._say(session_id, f"refused with {refusals}")
        return PromptResponse(stop_reason="end_turn")

    async def _refuse(self, *_: Any) -> PromptResponse:
        return PromptResponse(stop_reason="refusal")

    async def _overflow(self, session_id: str, *_: Any) -> PromptResponse:
        await self._say(session_id, "half a")
        return PromptResponse(stop_reason="max_tokens")

    async def _fail(self, *_: Any) -> PromptResponse:
        raise RequestError.internal_error({"reason": "the model is away"})

    async def _die(self, session_id: str, *_: Any) -> PromptResponse:
        await self._say(session_id, "I am dying")
        os._exit(9)

    def _kept(self, session_id: str) -> dict[str, Any]:
        kept: dict[str, Any] = json.loads((SESSIONS / session_id).read_text())
        return kept

    def _keep(self, session_id: str, session: dict[str, Any]) -> None:
        (SESSIONS / session_id).write_text(json.dumps(session))


if __name__ == "__main__":
    agent: Any = Scripted()
    asyncio.run(run_agent(agent))

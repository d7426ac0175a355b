"""Chat endpoints that speak OpenAI's protocol: one request with the conversation, and a streamed answer.

A request to a busy or failing server is repeated a few times, as long as the answer has not begun. Any
later error fails the turn, with the text received until then.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from moorage.agents.interface import AGENT_FAILED, REFUSED, AgentEvent, Commands, Emit, Job, Secret, completed, failed
from moorage.core.codec import as_text
from moorage.core.entry import text_of

if TYPE_CHECKING:
    import httpx2

TRIES = 4
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds between attempts
CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 300.0  # seconds between two pieces; a model may take long before the first
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})  # status codes worth a retry
MAX_ERROR = 2000  # characters of a server's error that are kept


class Trouble(Exception):
    """The server did not answer correctly; a retry may help after `again_after` seconds, never if that is None."""

    def __init__(self, why: str, *, again_after: float | None = None, reason: str = AGENT_FAILED) -> None:
        super().__init__(why)
        self.again_after, self.reason = again_after, reason


class OpenAi:
    """An agent that consists of a model behind an endpoint."""

    def __init__(self, secret: Secret | None = None, *, first_pause: float = FIRST_PAUSE) -> None:
        self._secret, self._first_pause = secret, first_pause

    async def run(self, job: Job, emit: Emit, commands: Commands) -> None:
        """Send the request, stream the answer, and store it."""
        answer = Completion(job.limits.max_output_bytes)
        try:
            await self._ask(job, answer, emit)
        except Trouble as trouble:
            await emit(failed(trouble.reason, str(trouble), text=answer.text))
            return
        await _conclude(answer, emit)

    async def _ask(self, job: Job, answer: Completion, emit: Emit) -> None:
        import asyncio

        import httpx2

        timeout = httpx2.Timeout(job.limits.idle_timeout or READ_TIMEOUT, connect=CONNECT_TIMEOUT)
        async with httpx2.AsyncClient(timeout=timeout) as client:
            for attempt in range(1, TRIES + 1):
                try:
                    await self._try(client, job, answer, emit)
                    return
                except Trouble as trouble:
                    if trouble.again_after is None or answer.has_begun or attempt == TRIES:
                        raise
                    pause = max(trouble.again_after, self._first_pause * 2 ** (attempt - 1))
                    note = f"try {attempt} of {TRIES}: {trouble}; the next in {pause:g} s"
                    await emit({"type": "note", "note": note})
                    await asyncio.sleep(min(pause, LONGEST_PAUSE))

    async def _try(self, client: httpx2.AsyncClient, job: Job, answer: Completion, emit: Emit) -> None:
        import httpx2

        url = f"{(job.agent.base_url or '').rstrip('/')}/chat/completions"
        try:
            async with client.stream("POST", url, json=request_of(job), headers=self._headers(job)) as response:
                await _check_status(response)
                async for event in _events(response):
                    for text in answer.take(event):
                        await emit({"type": "chunk", "text": text})
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            what = "the answer broke off" if answer.has_begun else f"{url} cannot be reached"
            raise Trouble(f"{what} ({type(error).__name__}: {error})".replace(": )", ")"), again_after=0) from None
        except httpx2.InvalidURL as error:
            raise Trouble(f"{url} is not a valid address: {error}") from None
        if not answer.is_whole:
            raise Trouble("the answer broke off" if answer.has_begun else "the answer was empty", again_after=0)

    def _headers(self, job: Job) -> dict[str, str]:
        name = job.agent.api_key_env
        if name is None:
            return {}
        key = job.env.get(name) or (self._secret(name) if self._secret else None)
        if not key:
            raise Trouble(f"the variable {name}, which should have its key, is not set where the launcher runs")
        return {"Authorization": f"Bearer {key}"}


async def _conclude(answer: Completion, emit: Emit) -> None:
    if answer.usage:
        await emit({"type": "usage", **answer.usage})
    if answer.finish == "content_filter":
        await emit(failed(REFUSED, "the server's content filter stopped the answer", text=answer.text))
        return
    more = {"reason": "max_tokens"} if answer.finish == "length" else {}
    if answer.calls:
        await emit({"type": "message", "role": "assistant", "content": answer.parts()})
        await emit(completed(answer.text, **more) | {"said": True})
    elif answer.text:
        await emit(completed(answer.text, **more))
    else:
        await emit(failed("no_answer", "the model returned no text"))


# The request ------------------------------------------------------------------------------------


def request_of(job: Job) -> dict[str, Any]:
    """Return the request for a job: instructions, history, new messages."""
    system = job.system_prompt or job.agent.system_prompt
    messages: list[AgentEvent] = [{"role": "system", "content": system}] if system else []
    for message in job.history:
        messages += _turned(message["role"], message["content"])
    messages = [*_answered(messages), {"role": "user", "content": job.prompt}]
    return {"model": job.agent.model, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}


def _turned(role: str, content: str | list[AgentEvent]) -> list[AgentEvent]:
    """Return one of our messages in their format: there, tool results are messages of their own."""
    if isinstance(content, str):
        return [{"role": role if role != "tool" else "user", "content": content}]
    calls = [_their_call(part) for part in content if part.get("type") == "tool_call"]
    results = [
        {"role": "tool", "tool_call_id": part["call_id"], "content": as_text(part.get("output"))}
        for part in content
        if part.get("type") == "tool_result"
    ]
    text = text_of(content)
    if not text and not calls:
        return results
    said: AgentEvent = {"role": "assistant" if calls else role, "content": text or None}
    return [*results, said | ({"tool_calls": calls} if calls else {})]


def _their_call(part: AgentEvent) -> AgentEvent:
    function = {"name": part["name"], "arguments": as_text(part.get("input") or {})}
    return {"id": part["id"], "type": "function", "function": function}


def _answered(messages: list[AgentEvent]) -> list[AgentEvent]:
    """Put a result right after every call: servers refuse a conversation in which one is missing."""
    results = {message["tool_call_id"]: message for message in messages if message["role"] == "tool"}
    whole: list[AgentEvent] = []
    for message in messages:
        if message["role"] == "tool":
            continue
        whole.append(message)
        for call in message.get("tool_calls", ()):
            missing = {"role": "tool", "tool_call_id": call["id"], "content": "[there is no result]"}
            whole.append(results.get(call["id"], missing))
    return whole


# The response -----------------------------------------------------------------------------------


class Completion:
    """A model's answer, assembled from pieces."""

    def __init__(self, max_bytes: int | None) -> None:
        self._pieces: list[str] = []
        self._room = max_bytes
        self.calls: dict[int, AgentEvent] = {}
        self.finish: str | None = None
        self.usage: dict[str, int] = {}
        self.is_whole = False

    @property
    def text(self) -> str:
        """Return the text received so far."""
        return "".join(self._pieces)

    @property
    def has_begun(self) -> bool:
        """Return whether any part of it was received."""
        return bool(self._pieces or self.calls)

    def take(self, event: AgentEvent | None) -> list[str]:
        """Take one event of the stream, None for its regular end; return the new text."""
        if event is None:
            self.is_whole = True
            return []
        if isinstance(event.get("error"), (dict, str)):
            raise Trouble(f"the server reported an error: {_complaint(event)}", again_after=0)
        self._count(event.get("usage"))
        new: list[str] = []
        for choice in event.get("choices") or []:
            said = choice.get("delta") or choice.get("message") or {}
            if text := said.get("content"):
                new.append(self._said(text))
            for call in said.get("tool_calls") or []:
                self._called(call)
            if choice.get("finish_reason"):
                self.finish, self.is_whole = str(choice["finish_reason"]), True
        return new

    def parts(self) -> list[AgentEvent]:
        """Return the message with its calls."""
        said = [{"type": "text", "text": self.text}] if self._pieces else []
        return said + [
            {"type": "tool_call", "id": call["id"] or f"call-{index}", "name": call["name"], "input": _input(call)}
            for index, call in sorted(self.calls.items())
        ]

    def _said(self, text: str) -> str:
        if self._room is not None:
            self._room -= len(text.encode(errors="replace"))
            if self._room < 0:
                raise Trouble("the answer is larger than this agent's max_output_bytes", reason="output_too_large")
        self._pieces.append(text)
        return text

    def _called(self, call: AgentEvent) -> None:
        kept = self.calls.setdefault(int(call.get("index") or 0), {"id": "", "name": "", "arguments": ""})
        function = call.get("function") or {}
        kept["id"] = call.get("id") or kept["id"]
        kept["name"] += function.get("name") or ""
        kept["arguments"] += function.get("arguments") or ""

    def _count(self, usage: Any) -> None:
        names = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens", "total_tokens": "total_tokens"}
        if isinstance(usage, dict):
            self.usage |= {ours: usage[theirs] for theirs, ours in names.items() if type(usage.get(theirs)) is int}


def _input(call: AgentEvent) -> Any:
    try:
        return json.loads(call["arguments"] or "{}")
    except ValueError:
        return {"unreadable": call["arguments"]}


async def _check_status(response: httpx2.Response) -> None:
    if response.status_code == 200:
        return
    body = (await response.aread())[: 4 * MAX_ERROR].decode("utf-8", "replace")
    try:
        complaint = _complaint(json.loads(body))
    except ValueError:
        complaint = body.strip()[:MAX_ERROR]
    why = f"the server says {response.status_code}: {complaint or response.reason_phrase}"
    is_passing = response.status_code in PASSING
    raise Trouble(why, again_after=_retry_after(response.headers.get("retry-after")) if is_passing else None)


def _retry_after(value: str | None) -> float:
    """Return the seconds that a server asks to wait; dates are ignored."""
    try:
        return max(0.0, float(value or 0))
    except ValueError:
        return 0.0


def _complaint(body: Any) -> str:
    error = body.get("error", body) if isinstance(body, dict) else body
    message = error.get("message", error) if isinstance(error, dict) else error
    return str(message)[:MAX_ERROR]


async def _events(response: httpx2.Response) -> AsyncIterator[AgentEvent | None]:
    """Yield the events of a stream; if the server does not stream, yield its single answer."""
    if "text/event-stream" not in response.headers.get("content-type", ""):
        yield _event((await response.aread()).decode("utf-8", "replace"))
        yield None
        return
    async for line in response.aiter_lines():
        field, _, data = line.partition(":")
        if field != "data":
            continue
        if data.strip() == "[DONE]":
            yield None
            return
        yield _event(data)


def _event(data: str) -> AgentEvent:
    try:
        event = json.loads(data)
    except ValueError:
        raise Trouble(f"the server sent invalid JSON: {data.strip()[:200]}", again_after=0) from None
    if not isinstance(event, dict):
        raise Trouble(f"the server sent an invalid event: {data.strip()[:200]}", again_after=0)
    return event

"""Moorage on a server: the same methods and the same errors, over HTTP.

::

    async with moorage.connect("http://127.0.0.1:8765") as moor:
        session = await moor.create(agent="terraform-architect")

Every method that is a row of the table of operations is generated from that row; the methods written out here are
streams, files and conversations.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import wraps
from time import monotonic
from typing import Any, Self, TypeVar

from msgspec import UNSET, UnsetType

from moorage import config, values
from moorage.api import Context, EventListener, Moorage, WordListener
from moorage.connection import Connection, implements
from moorage.core.answer import Answer, RunAnswer, answer_of
from moorage.core.codec import check_list, decode
from moorage.core.duration import check_wait
from moorage.core.entry import SESSION_DELETED, Entry, Event, Kind, Message, check_messages, text_of
from moorage.core.errors import MoorageError, NotFound, RunNotFound, ServerUnreachable, SessionGone
from moorage.core.query import Page
from moorage.core.run import Mode, Run, check_mode
from moorage.core.session import check_metadata
from moorage.files.finding import Source
from moorage.remote.asking import CONTEXT, PARENTS, ask_for, encoded, new_key, query_of, read, segment, value_of
from moorage.remote.operations import OPERATIONS, Arguments
from moorage.remote.records import RemoteRecords
from moorage.remote.transport import DEADLINE, Ask, Headers, Interrupted, QueryPairs, Transport, lines_of, messages_of
from moorage.service.conversation import deletion_of
from moorage.service.deps import Caller
from moorage.service.retention import Cleanup
from moorage.service.transfer import ImportReport
from moorage.service.words import Spoken, Transcript

T = TypeVar("T")

WAIT = 25.0  # seconds one request waits for a run's end
LOOK_AGAIN = 0.5  # seconds between two checks of a run whose agent waits for a person
LAST_WORDS = 5.0  # seconds in which output from before a run's end arrives
NDJSON = "application/x-ndjson"
SSE = "text/event-stream"
TEXT = "text/plain"

SseMessage = tuple[str | None, bytes]  # its id, which is the reader's position, and its data


@implements(Moorage)
class RemoteMoorage(Connection):
    """Sessions on a server. Connected on first use."""

    def __init__(
        self,
        url: str,
        caller: Caller,
        *,
        key: str | None = None,
        deadline: float | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Set up. `headers` are sent with every request, besides those that identify the caller."""
        self.caller = caller
        who = {**_who(caller), **(headers or {})}
        inside_agent = config.run_from_environment() is not None  # its server was running when it was started
        self._transport = Transport(url, who, key=key, deadline=deadline or DEADLINE, is_known=inside_agent)

    def __repr__(self) -> str:
        return f"Moorage({self._transport.url!r})"

    @classmethod
    def to(cls, url: str, caller: Caller, **options: Any) -> Self:
        """Return a connection; type checkers do not see the methods generated from the table."""
        return cls(url, caller, **options)

    def record_backend(self) -> RemoteRecords:
        return RemoteRecords(self._transport.answer, _said)

    async def _answer(self, ask: Ask, kind: type[T]) -> T:
        """Send a request, and return its answer as a value of that type."""
        return read(await self._transport.answer(ask), kind)

    @property
    def context(self) -> Context:
        """The keyed memory of sessions."""
        return RemoteContext(self)  # type: ignore[abstract]  # its methods are made from the table

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    async def health(self) -> dict[str, Any]:
        """Return what the server says of itself. Raises ServerUnreachable."""
        try:
            told = await self._transport.answer(Ask(verb="GET", path="/healthz", is_repeatable=True))
        except NotFound:
            return {}
        return {name: value for name, value in dict(decode(told)).items() if isinstance(value, (str, int, float))}

    async def call(self, name: str, given: Arguments) -> Any:
        """Call a method that is a row of the table."""
        operation, ask = ask_for(name, given)
        if name in PARENTS:
            ask.headers.update(self._surroundings(session=given.get("parent", UNSET) is UNSET))
        return value_of(operation, await self._transport.answer(ask))

    def _surroundings(self, *, session: bool) -> Headers:
        """Return the headers that name the run of this process and, if needed, the calling session."""
        asker, run = self.asks_from() if session else None, self.caller.run_id
        named = {} if asker is None else {"X-Agent-Session-Id": asker}
        return named if run is None else {**named, "X-Agent-Run-Id": run}

    # Conversation -------------------------------------------------------------------------------

    async def append(self, ref: str, messages: object, *, token: str | None = None) -> values.EntryList:
        return (await self.post(ref, messages, token=token, run=False)).entries

    async def keep_summary(self, ref: str, summary: str, **options: Any) -> Entry:
        entry: Entry = await self.call("compact", {"ref": ref, "summary": summary, **options})
        return entry

    async def post(
        self,
        ref: str,
        messages: object,
        *,
        agent: str | None = None,
        parameters: dict[str, Any] | None = None,
        **how: Any,
    ) -> Answer:
        said = [_said(message) for message in check_messages(messages)]
        if parameters is not None:
            check_metadata(parameters, "parameters")
        path = f"/sessions/{segment('ref', ref)}/messages"
        headers = self._surroundings(session=True)  # each message has its key, so the request may be repeated
        body = encoded({"messages": said, "agent_name": agent, "parameters": parameters, **how})
        ask = Ask(verb="POST", path=path, body=body, headers=headers, is_repeatable=True)
        return await self._answer(ask, Answer)

    async def events(
        self, ref: str | None = None, *, after: int | str = 0, follow: bool = True
    ) -> AsyncIterator[Event]:
        path = "/events" if ref is None else f"/sessions/{segment('ref', ref)}/events"
        if not follow:
            async for event in self._event_pages(path, after):
                yield event
            return
        start = (await self.get(ref)).last_entry if after == "end" and ref is not None else after
        async for event in self._followed(path, start, is_one=ref is not None):
            yield event

    async def _followed(self, path: str, cursor: int | str, *, is_one: bool) -> AsyncIterator[Event]:
        """Yield a stream that continues after interruptions, as long as the server can be reached in time."""
        patience = None
        while True:
            pause = None
            try:
                async with self._event_stream(path, cursor) as stream:
                    async for place, data in stream:
                        self._is_followed()
                        patience, cursor = None, place or cursor
                        if data:
                            event = read(data, Event)
                            yield event
                            if is_one and event.type == SESSION_DELETED:
                                return
                failure: Exception = ServerUnreachable(self._transport.url, "the stream ended", is_unsure=False)
            except Interrupted as broken:
                failure, pause = broken.cause, broken.pause
            except SessionGone as gone:
                if patience is None:  # it did not exist before
                    raise
                yield deletion_of(gone, int(cursor) + 1)
                return
            patience, self.is_away = patience or self._transport.patience(), True
            await patience.after(failure, pause=pause)

    def _is_followed(self) -> None:
        """Call `on_return`, if given: a stream goes on after it broke off."""
        was_away, self.is_away = self.is_away, False
        if was_away and self.on_return is not None:
            self.on_return()

    @asynccontextmanager
    async def _event_stream(self, path: str, cursor: int | str) -> AsyncIterator[AsyncIterator[SseMessage]]:
        query, headers = query_of({"after": cursor}), {"Accept": SSE, "Accept-Encoding": "identity"}
        if cursor != "end":
            headers["Last-Event-ID"] = str(cursor)
        ask = Ask(verb="GET", path=path, query=query, headers=headers, is_repeatable=True)
        async with self._transport.streaming(ask) as response:
            yield messages_of(lines_of(response.aiter_bytes()), begins=response.headers.get("Last-Event-ID"))

    @contextmanager
    def words_heard(self, session_id: str, listener: WordListener) -> Iterator[None]:
        telling = asyncio.create_task(self._tell_words(session_id, listener))
        try:
            yield
        finally:
            telling.cancel()

    async def _tell_words(self, session_id: str, listener: WordListener) -> None:
        """Pass on live words while the server sends them: the log has everything that is missed here."""
        headers = {"Accept": SSE, "Accept-Encoding": "identity"}
        ask = Ask(verb="GET", path=f"/sessions/{segment('ref', session_id)}/words", headers=headers)
        patience = None  # counts from the break, not from the last word
        with suppress(MoorageError):
            while True:
                failure: Exception = ServerUnreachable(self._transport.url, "the words ended", is_unsure=False)
                try:
                    async with self._transport.streaming(ask) as response:
                        async for _, data in messages_of(lines_of(response.aiter_bytes())):
                            patience = None
                            spoken = read(data, Spoken)
                            listener(spoken.text, spoken.begins)
                except Interrupted as broken:
                    failure = broken.cause
                patience = patience or self._transport.patience()
                await patience.after(failure)

    async def _event_pages(self, path: str, after: int | str) -> AsyncIterator[Event]:
        cursor: int | str | None = after
        while cursor is not None:
            ask = Ask(verb="GET", path=path, query=query_of({"after": cursor}), is_repeatable=True)
            page = await self._answer(ask, Page[Event])
            for event in page.items:
                yield event
            cursor = page.next if page.items else None

    # Runs ---------------------------------------------------------------------------------------

    async def run(
        self,
        agent: str | None,
        prompt: object,
        *,
        mode: str = "sync",
        parent: str | UnsetType | None = UNSET,
        timeout: float | None = None,
        on_event: EventListener | None = None,
        **options: Any,
    ) -> RunAnswer:
        timeout = check_wait(timeout, "timeout")
        given = {"agent": agent, "prompt": prompt, "mode": mode, **options, "timeout": 0.0}
        if parent is not UNSET:
            given["parent"] = parent
        reply: RunAnswer = await self.call("run", given)
        if on_event is not None:
            on_event(reply.run.session_id, {"type": "asked", "run_id": reply.run.run_id})
        if check_mode(mode) is not Mode.SYNC or reply.run.is_settled:
            if on_event is not None and reply.run.is_settled:
                await self._tell(reply.run, on_event)
            return reply
        ends = float("inf") if timeout is None else monotonic() + timeout
        async with self._heard(reply.run, on_event):
            run = await self._result_by(ends, reply.run.run_id, reply.run.session_id)
            while on_event is not None and run.is_asking and monotonic() < ends:  # the listener may wait
                await asyncio.sleep(LOOK_AGAIN)
                run = await self._result_by(ends, run.run_id, run.session_id)
        return answer_of(run, await self.get(run.session_id))

    async def start(self, agent: str, prompt: object, *, idempotency_key: str | None = None, **new: Any) -> RunAnswer:
        key = None if idempotency_key is None else f"create:{idempotency_key}"
        return await self.run(agent, prompt, mode=Mode.ASYNC_POLL, idempotency_key=key, **new)

    async def result(self, run_id: str, *, wait: float | None = None) -> Run:
        return await self._result_by(monotonic() + (check_wait(wait, "wait") or 0.0), run_id)

    async def _result_by(self, ends: float, run_id: str, session_id: str | None = None) -> Run:
        """Return the run once it has settled, stands still, or time is up. Raises SessionGone if that is gone."""
        while True:
            left = max(0.0, ends - monotonic())
            try:
                run: Run = await self.call("result", {"run_id": run_id, "wait": min(left, WAIT)})
            except RunNotFound:
                if session_id is not None:
                    await self.get(session_id)
                raise
            stands_still = run.needs_a_person and not run.is_awaited_by_a_parent
            if run.is_settled or stands_still or left <= WAIT:
                return run

    @asynccontextmanager
    async def _heard(self, run: Run, listener: EventListener | None) -> AsyncIterator[None]:
        """Send the run's output to the listener until the block and the run have ended."""
        if listener is None:
            yield
            return
        telling = asyncio.create_task(self._tell(run, listener))
        try:
            yield
            if (await self.get_run(run.run_id)).is_settled:
                await asyncio.wait([telling], timeout=LAST_WORDS)
        finally:
            telling.cancel()
            await asyncio.wait([telling])
        if not telling.cancelled() and (error := telling.exception()) is not None:
            raise error

    async def _tell(self, run: Run, listener: EventListener) -> None:
        """Report output until the run has settled, as a launcher of this connection would: words first."""
        transcript = Transcript()

        def say(words: str) -> None:
            if words:
                listener(run.session_id, {"type": "chunk", "text": words})

        with self.words_heard(run.session_id, lambda text, begins: say(transcript.piece(text, begins=begins))):
            async for event in self.events(run.session_id, after=run.asked_entry or 0):
                if event.type == Kind.MESSAGE and event.data["role"] == "assistant":
                    say(transcript.message(text_of(event.data["content"])))
                elif event.type == Kind.APPROVAL_REQUESTED:
                    listener(run.session_id, {"type": "approval", **event.data})
                elif event.type == Kind.RUN_SETTLED and event.data.get("run_id") == run.run_id:
                    return

    # Transfer and care --------------------------------------------------------------------------

    async def cleanup(
        self,
        hours: float | None = None,
        *,
        states: Iterable[str] | None = None,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Cleanup:
        wanted = None if states is None else check_list(states, "states")
        done: Cleanup = await self.call("cleanup", {"hours": hours, "states": wanted, "dry_run": dry_run})
        if progress is not None:
            progress(done.removed)
        return done

    async def export(self, ref: str, *, tree: bool = False, format: str = "jsonl") -> AsyncIterator[str]:
        query, path = query_of({"tree": bool(tree), "format": str(format)}), f"/sessions/{segment('ref', ref)}/export"
        ask = Ask(verb="GET", path=path, query=query, headers={"Accept": f"{NDJSON}, {TEXT}"}, is_repeatable=True)
        has_begun, patience = False, self._transport.patience()
        while True:
            try:
                async with self._transport.streaming(ask) as response:
                    async for line in lines_of(response.aiter_bytes()):
                        has_begun = True
                        yield line.decode()
                return
            except Interrupted as broken:
                if has_begun:  # a repetition may send other data
                    url = self._transport.url
                    raise ServerUnreachable(url, "the export broke off", is_unsure=False) from broken.cause
                await patience.after(broken.cause, pause=broken.pause)

    async def import_(
        self, lines: Iterable[str | bytes], *, detach: bool = False, dry_run: bool = False
    ) -> ImportReport:
        from moorage.remote.sending import spooled

        with spooled(lines) as file:
            return await self._send_file("/import", file, detach=detach, dry_run=dry_run)

    async def import_files(
        self,
        paths: Iterable[Source],
        *,
        source: str = "auto",
        detach: bool = False,
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> ImportReport:
        from moorage.files.taking import take_files
        from moorage.remote.sending import Sender

        def send(path: str, file: Any, *, dry_run: bool) -> Any:
            return self._send_file(path, file, detach=detach, dry_run=dry_run)

        with Sender(send, dry_run=dry_run) as sender:
            return await take_files(sender, paths, source=source, dry_run=dry_run, progress=progress, threaded=True)

    async def _send_file(self, path: str, file: Any, *, detach: bool, dry_run: bool) -> ImportReport:
        query: QueryPairs = [(name, "true") for name, wanted in (("detach", detach), ("dry_run", dry_run)) if wanted]
        ask = Ask(verb="POST", path=path, query=query, file=file, headers={"Content-Type": NDJSON}, is_repeatable=True)
        return await self._answer(ask, ImportReport)


class RemoteContext(Context):
    """`moor.context` on a server."""

    def __init__(self, moor: RemoteMoorage) -> None:
        self.moor = moor


def _who(caller: Caller) -> Headers:
    named = {"Interface": caller.interface, "By": caller.by, "Holder": caller.holder}
    return {f"X-Moorage-{name}": value for name, value in named.items() if value and value.isprintable()}


def _said(message: Message) -> dict[str, Any]:
    """Return a message as it is sent: with a key, so that a repetition is stored once."""
    return {"role": message.role, "content": message.content, "client_key": message.client_key or new_key()}


# Methods generated from the table -----------------------------------------------------------------


def _from_table(name: str, specification: Any) -> Any:
    signature = inspect.signature(specification)
    in_context = name.startswith(CONTEXT)

    @wraps(specification)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs).arguments
        del given["self"]
        return await (self.moor if in_context else self).call(name, given)

    return call


for _operation in OPERATIONS:
    _kind = RemoteContext if _operation.name.startswith(CONTEXT) else RemoteMoorage
    _method = _operation.name.removeprefix(CONTEXT)
    if getattr(_kind, _method) is _operation.function:
        setattr(_kind, _method, _from_table(_operation.name, _operation.function))

"""Moorage on a server: the same object, the same methods and the same errors, over HTTP.

::

    async with moorage.connect("http://127.0.0.1:8765") as moor:
        session = await moor.create(agent="terraform-architect")

Every method that is a row of the table of operations is made from that row; those written out
here are streams, files and conversations.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import wraps
from time import monotonic
from typing import Any

import httpx2
from msgspec import UNSET, UnsetType

from moorage import config
from moorage.client import ContextDoor, Hearer, Moorage, WordHearer, caller_for
from moorage.core.approval import Approval
from moorage.core.codec import decode, encode
from moorage.core.entry import Entry, Kind, Message, check_messages, text_of
from moorage.core.errors import InvalidField, MoorageError, NotFound, ServerUnreachable, SessionGone
from moorage.core.event import SESSION_DELETED, Event
from moorage.core.query import Page
from moorage.core.run import Mode, Run, check_mode
from moorage.remote.asking import PARENTS, ask_for, new_key, read, segment, value_of
from moorage.remote.operations import OPERATIONS, Arguments
from moorage.remote.streams import lines_of, messages_of
from moorage.remote.transport import DEADLINE, Ask, Headers, Later, Query, Transport
from moorage.service.conversation import deletion_of
from moorage.service.deps import Caller, Deps
from moorage.service.importing import ImportReport
from moorage.service.retention import Cleanup
from moorage.service.runs import Asked, Posted, RunReply
from moorage.service.words import Spoken, Transcript

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.client import Entries
    from moorage.files.finding import Source

WAIT = 25.0  # seconds one request waits for a run's end
LAST_WORDS = 5.0  # seconds within which what was said before a run's end arrives
NDJSON = "application/x-ndjson"
SSE = "text/event-stream"
TEXT = "text/plain"

SseMessage = tuple[str | None, bytes]  # its id, which is where the reader is then, and its data


class RemoteMoorage(Moorage):
    """Sessions on a server. Connected on first use."""

    def __init__(
        self,
        url: str,
        caller: Caller,
        *,
        key: str | None = None,
        deadline: float = DEADLINE,
        headers: Headers | None = None,
    ) -> None:
        """`headers` go with every request, besides those that say who is asking."""
        super().__init__(_no_store, caller, url=url)
        who = {**_who(caller), **(headers or {})}
        inside_agent = config.run_from_environment() is not None  # its server was there when it was started
        self._transport = Transport(url, lambda: who, key=key, deadline=deadline, is_known=inside_agent)
        self.launches = False
        self.context: ContextDoor = RemoteContext(self)

    async def __aenter__(self) -> Moorage:
        return self

    async def close(self) -> None:
        """Close the connection. Nothing acknowledged depends on it."""
        await self._transport.close()

    async def health(self) -> dict[str, Any]:
        """What the server says of itself. Raises ServerUnreachable."""
        try:
            told = await self._transport.answer(Ask(verb="GET", path="/healthz", is_repeatable=True))
        except NotFound:
            return {}
        return {name: value for name, value in dict(decode(told)).items() if isinstance(value, (str, int, float))}

    async def _call(self, name: str, given: Arguments) -> Any:
        operation, ask = ask_for(name, given)
        if name in PARENTS:
            ask.headers.update(self._surroundings(session=given.get("parent", UNSET) is UNSET))
        return value_of(operation, await self._transport.answer(ask))

    def _surroundings(self, *, session: bool) -> Headers:
        """Headers that name the run this process works on and, if it matters, the session that asks."""
        asker, run = self._surrounding_session() if session else None, self._surrounding_run()
        named = {} if asker is None else {"X-Agent-Session-Id": asker}
        return named if run is None else {**named, "X-Agent-Run-Id": run}

    # Conversation -------------------------------------------------------------------------------

    async def append(self, ref: str, messages: object, *, token: str | None = None) -> Entries:
        return (await self._post(ref, messages, token=token, run=False)).entries

    async def compact(
        self,
        ref: str,
        summary: str | None = None,
        *,
        agent: str | None = None,
        upto: int | None = None,
        token: str | None = None,
        idempotency_key: str | None = None,
    ) -> Entry:
        if agent is not None:
            return await super().compact(ref, summary, agent=agent, upto=upto, token=token)
        given = {"ref": ref, "summary": summary, "upto": upto, "token": token, "idempotency_key": idempotency_key}
        entry: Entry = await self._call("compact", given)
        return entry

    async def _post(
        self,
        ref: str,
        messages: object,
        *,
        token: str | None = None,
        run: bool | None = None,
        queue: bool = False,
        wake: bool = True,
    ) -> Posted:
        said = [_said(message) for message in check_messages(messages)]
        body = {"messages": said, "token": token, "run": run, "queue": queue, "wake": wake}
        path = f"/sessions/{segment('ref', ref)}/messages"
        headers = self._surroundings(session=True)  # each message has its key, so the request may be repeated
        ask = Ask(verb="POST", path=path, body=encode(body), headers=headers, is_repeatable=True)
        posted: Posted = read(await self._transport.answer(ask), Posted)
        return posted

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
        """A stream that goes on where it broke off, for as long as the server can be reached in time."""
        patience = None
        while True:
            pause = None
            try:
                async with self._event_stream(path, cursor) as stream:
                    async for place, data in stream:
                        self._is_followed()
                        patience, cursor = None, place or cursor
                        if data:
                            event: Event = read(data, Event)
                            yield event
                            if is_one and event.type == SESSION_DELETED:
                                return
                failure: Exception = ServerUnreachable(self._transport.url, "the stream ended", is_unsure=False)
            except httpx2.TransportError as error:
                failure = error
            except Later as later:
                failure, pause = later.refusal, later.pause
            except SessionGone as gone:
                if patience is None:  # it was gone before
                    raise
                yield deletion_of(gone, int(cursor) + 1)
                return
            patience, self.is_away = patience or self._transport.patience(), True
            await patience.after(failure, pause=pause)

    def _is_followed(self) -> None:
        """Tell whoever wants to know that a stream goes on after it broke off."""
        was_away, self.is_away = self.is_away, False
        if was_away and self.on_return is not None:
            self.on_return()

    @asynccontextmanager
    async def _event_stream(self, path: str, cursor: int | str) -> AsyncIterator[AsyncIterator[SseMessage]]:
        headers = {"Accept": SSE, "Accept-Encoding": "identity"}
        if cursor != "end":
            headers["Last-Event-ID"] = str(cursor)
        ask = Ask(verb="GET", path=path, query=[("after", str(cursor))], headers=headers, is_repeatable=True)
        async with self._transport.streaming(ask) as response:
            yield messages_of(lines_of(response.aiter_bytes()), begins=response.headers.get("Last-Event-ID"))

    @contextmanager
    def _words_heard(self, session_id: str, hearer: WordHearer) -> Iterator[None]:
        telling = asyncio.create_task(self._tell_words(session_id, hearer))
        try:
            yield
        finally:
            telling.cancel()

    async def _tell_words(self, session_id: str, hearer: WordHearer) -> None:
        """Pass on live words for as long as the server gives some: the log has whatever is missed here."""
        headers = {"Accept": SSE, "Accept-Encoding": "identity"}
        ask = Ask(verb="GET", path=f"/sessions/{segment('ref', session_id)}/words", headers=headers)
        patience = self._transport.patience()
        with suppress(MoorageError):
            while True:
                failure: Exception = ServerUnreachable(self._transport.url, "the words ended", is_unsure=False)
                try:
                    async with self._transport.streaming(ask) as response:
                        async for _, data in messages_of(lines_of(response.aiter_bytes())):
                            patience = self._transport.patience()
                            spoken: Spoken = read(data, Spoken)
                            hearer(spoken.text, spoken.begins)
                except httpx2.TransportError as error:
                    failure = error
                except Later as later:
                    failure = later.refusal
                await patience.after(failure)

    async def _event_pages(self, path: str, after: int | str) -> AsyncIterator[Event]:
        cursor: int | str | None = after
        while cursor is not None:
            ask = Ask(verb="GET", path=path, query=[("after", str(cursor))], is_repeatable=True)
            page: Page[Event] = read(await self._transport.answer(ask), Page[Event])
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
        on_event: Hearer | None = None,
        **options: Any,
    ) -> RunReply:
        given = {"agent": agent, "prompt": prompt, "mode": mode, **options, "timeout": 0.0}
        if parent is not UNSET:
            given["parent"] = parent
        reply: RunReply = await self._call("run", given)
        if on_event is not None:
            on_event(reply.run.session_id, {"type": "asked", "run_id": reply.run.run_id})
        if check_mode(mode) is not Mode.SYNC or reply.run.is_settled:
            if on_event is not None and reply.run.is_settled:
                await self._tell(reply.run, on_event)
            return reply
        async with self._heard(reply.run, on_event):
            run = await self.result(reply.run.run_id, wait=timeout if timeout is not None else float("inf"))
        return RunReply(
            session=await self.get(run.session_id), run=run, status=run.state.value, result=run.result, error=run.error
        )

    async def _start(
        self,
        agent: str,
        prompt: object,
        *,
        parent: str | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
        **new: Any,
    ) -> Asked:
        key = None if idempotency_key is None else f"create:{idempotency_key}"
        reply = await self.run(agent, prompt, mode=Mode.ASYNC_POLL, parent=parent, idempotency_key=key, **new)
        return Asked(session=reply.session, run=reply.run)

    async def result(self, run_id: str, *, wait: float | None = None) -> Run:
        ends = monotonic() + (wait or 0.0)
        while True:
            left = max(0.0, ends - monotonic())
            run: Run = await self._wait_for(run_id, min(left, WAIT))
            stands_still = run.needs_a_person and not run.is_awaited_by_a_parent
            if run.is_settled or stands_still or left <= WAIT:
                return run

    async def _wait_for(self, run_id: str, seconds: float) -> Run:
        query = [("wait", f"{seconds:.3f}")] if seconds else []
        path = f"/runs/{segment('run_id', run_id)}/result"
        ask = Ask(verb="GET", path=path, query=query, is_repeatable=True, wait=seconds)
        run: Run = read(await self._transport.answer(ask), Run)
        return run

    @asynccontextmanager
    async def _heard(self, run: Run, hearer: Hearer | None) -> AsyncIterator[None]:
        """For as long as the block lasts, and until the run's last word, somebody hears what is said in it."""
        if hearer is None:
            yield
            return
        telling = asyncio.create_task(self._tell(run, hearer))
        try:
            yield
            if (await self.get_run(run.run_id)).is_settled:
                await asyncio.wait([telling], timeout=LAST_WORDS)
        finally:
            telling.cancel()
            await asyncio.wait([telling])
        if not telling.cancelled() and (error := telling.exception()) is not None:
            raise error

    async def _tell(self, run: Run, hearer: Hearer) -> None:
        """Tell what is said until the run has settled, as a launcher of this connection would: words first."""
        transcript = Transcript()

        def say(words: str) -> None:
            if words:
                hearer(run.session_id, {"type": "chunk", "text": words})

        with self._words_heard(run.session_id, lambda text, begins: say(transcript.piece(text, begins=begins))):
            async for event in self.events(run.session_id, after=run.asked_entry or 0):
                if event.type == Kind.MESSAGE and event.data["role"] == "assistant":
                    say(transcript.message(text_of(event.data["content"])))
                elif event.type == Kind.APPROVAL_REQUESTED:
                    hearer(run.session_id, {"type": "approval", **event.data})
                elif event.type == Kind.RUN_SETTLED and event.data.get("run_id") == run.run_id:
                    return

    # Approvals ----------------------------------------------------------------------------------

    async def approve(self, approval_id: str, *, note: str | None = None, by: str | None = None) -> Approval:
        return await self.decide(approval_id, "approve", note=note, by=by)

    async def reject(self, approval_id: str, *, note: str | None = None, by: str | None = None) -> Approval:
        return await self.decide(approval_id, "reject", note=note, by=by)

    # Transfer and care --------------------------------------------------------------------------

    async def cleanup(
        self,
        hours: float | None = None,
        *,
        states: Iterable[str] | None = None,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Cleanup:
        wanted = None if states is None else list(states)
        done: Cleanup = await self._call("cleanup", {"hours": hours, "states": wanted, "dry_run": dry_run})
        if progress is not None:
            progress(done.removed)
        return done

    async def export(self, ref: str, *, tree: bool = False, format: str = "jsonl") -> AsyncIterator[str]:
        query = [("tree", "true" if tree else "false"), ("format", str(format))]
        path = f"/sessions/{segment('ref', ref)}/export"
        ask = Ask(verb="GET", path=path, query=query, headers={"Accept": f"{NDJSON}, {TEXT}"}, is_repeatable=True)
        has_begun, patience = False, self._transport.patience()
        while True:
            try:
                async with self._transport.streaming(ask) as response:
                    async for line in lines_of(response.aiter_bytes()):
                        has_begun = True
                        yield line.decode()
                return
            except httpx2.TransportError as error:
                if has_begun:  # what comes the second time may be something else
                    raise ServerUnreachable(self._transport.url, "the export broke off", is_unsure=False) from error
                await patience.after(error)
            except Later as later:
                await patience.after(later.refusal, pause=later.pause)

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
        query: Query = [(name, "true") for name, wanted in (("detach", detach), ("dry_run", dry_run)) if wanted]
        ask = Ask(verb="POST", path=path, query=query, file=file, headers={"Content-Type": NDJSON}, is_repeatable=True)
        report: ImportReport = read(await self._transport.answer(ask), ImportReport)
        return report

    # What only a store has ----------------------------------------------------------------------

    def _for_a_loop(self) -> Moorage:
        raise AssertionError("a server's connection has an event loop of its own")


class RemoteContext(ContextDoor):
    """`moor.context` on a server."""

    _moorage: RemoteMoorage


def connect(
    url: str,
    *,
    key: str | None = None,
    by: str | None = None,
    interface: str = "python",
    holder: str | None = None,
    owner: str = "local",
    deadline: float | None = None,
) -> RemoteMoorage:
    """Sessions on the server at `url`, for an event loop."""
    if owner != "local":
        raise InvalidField("owner", "is for the key to say: a server knows whose key it is")
    caller = caller_for(owner=owner, by=by, interface=interface, holder=holder)
    return RemoteMoorage(url, caller, key=key or config.server_key(), deadline=deadline or DEADLINE)


def _no_store() -> Deps:
    raise AssertionError("this is asked of the server")


def _who(caller: Caller) -> Headers:
    named = {"Interface": caller.interface, "By": caller.by, "Holder": caller.holder}
    return {f"X-Moorage-{name}": value for name, value in named.items() if value and value.isprintable()}


def _said(message: Message) -> dict[str, Any]:
    """A message as it travels: with a key, so that it can be sent twice and is said once."""
    return {"role": message.role, "content": message.content, "client_key": message.client_key or new_key()}


# Methods made from the table ----------------------------------------------------------------------


def _from_table(name: str, method: Any) -> Any:
    signature = inspect.signature(method)
    in_context = name.startswith("context.")

    @wraps(method)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs).arguments
        moor = given.pop("self")
        return await (moor._moorage if in_context else moor)._call(name, given)

    return call


def _make_methods() -> None:
    for operation in OPERATIONS:
        door, _, method = operation.name.rpartition(".")
        target = RemoteContext if door else RemoteMoorage
        if method not in vars(target):
            setattr(target, method, _from_table(operation.name, operation.function))


_make_methods()

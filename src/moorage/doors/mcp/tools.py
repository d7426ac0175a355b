"""The table of tools: what a host can ask about sessions, each row one call of the object that every door calls.

`session_id` is an id or a name everywhere. A caller in a session (by header or environment) need not name it.
"""

from __future__ import annotations

from base64 import b64encode
from time import monotonic
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, to_builtins
from msgspec.structs import asdict

from moorage.core.codec import encode_text
from moorage.core.errors import InvalidField
from moorage.core.family import Deletion
from moorage.core.key import Scope
from moorage.core.record import BYTES, Record
from moorage.core.render import like
from moorage.core.run import Run
from moorage.doors.http.visit import USUAL_WAIT
from moorage.doors.mcp import answers
from moorage.doors.mcp.answers import MAX_SHORT, MAX_TEXT, Brief, RunBrief, next_offset
from moorage.doors.mcp.calls import ToolCall
from moorage.doors.mcp.table import TOOLS as TOOLS  # all of them, once this module is loaded
from moorage.doors.mcp.table import tool
from moorage.service.records import WrittenRecord

Ref = Annotated[str | None, Meta(description="The session, by id or name; by default the caller's own")]
ModeField = Annotated[
    Literal["sync", "async_poll", "async_callback", "SYNC", "ASYNC_POLL", "ASYNC_CALLBACK"],
    Meta(description="sync: wait for the result; async_poll: ask for it later; async_callback: it comes as a message"),
]
JoinField = Annotated[
    Literal["each", "all"],
    Meta(description="each: one callback per child; all: one turn with all callbacks, after the last child"),
]
Correlation = Annotated[str | None, Meta(description="A value that the callback returns")]
Parameters = Annotated[dict[str, Any] | None, Meta(description="Parameters for the agent")]
WaitField = Annotated[float, Meta(ge=0, le=3600, description="Seconds to wait for the end of the run")]
Token = Annotated[str | None, Meta(description="The token of your hold, from resume_agent_session")]
Queue = Annotated[bool, Meta(description="If another holder has the session, wait instead of failing")]
Wake = Annotated[bool, Meta(description="false: do not resume a suspended session; the message waits")]
LimitField = Annotated[int, Meta(ge=1, le=200)]
Cursor = Annotated[str | None, Meta(description="`next` of the previous page")]
Offset = Annotated[int, Meta(ge=0, description="`next_offset` of the previous answer")]


class Asks(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a tool."""


# Agents and tools -------------------------------------------------------------------------------


class ListAgents(Asks, frozen=True):
    """List the agents and workers that can be started, and the tools that can be called."""


@tool("List agents", Scope.READ)
async def list_agents(call: ToolCall, _: ListAgents) -> answers.AgentsAnswer:
    agents = sorted((await call.named.agents()).values(), key=lambda each: each.name)
    tools = (await call.named.tools()).values()
    return answers.AgentsAnswer(
        agents=[like(answers.AgentBrief, agent) for agent in agents],
        tools=[like(answers.ToolBrief, tool, operations=list(tool.operations)) for tool, _ in tools],
    )


# Work -------------------------------------------------------------------------------------------


class StartAgentSession(Asks, frozen=True):
    """Start an agent in a new session, as a child of the caller's session. With mode sync, the answer has the result;
    otherwise it comes at once, with the session_id to ask for later."""

    agent: str
    prompt: str
    mode: ModeField = "sync"
    join: JoinField = "each"
    correlation: Correlation = None
    parameters: Parameters = None
    session_id: Annotated[str | None, Meta(description="The id of the session; an unknown id creates a session")] = None
    session_name: str | None = None
    parent: Annotated[str | None, Meta(description="The parent session, instead of the caller's")] = None
    task_id: str | None = None
    purpose: str | None = None
    project_dir: str | None = None
    metadata: dict[str, Any] | None = None
    wait_seconds: Annotated[
        WaitField | None, Meta(description="Maximum of seconds to wait in mode sync; by default until the end")
    ] = None
    idempotency_key: Annotated[str | None, Meta(description="Requests with the same key create one run")] = None


@tool("Start an agent")
async def start_agent_session(call: ToolCall, asks: StartAgentSession) -> answers.StartedAnswer:
    how = ("mode", "join", "correlation", "parameters", "idempotency_key")
    options: dict[str, Any] = {name: getattr(asks, name) for name in how}
    await call.check_parent()
    options["parent"] = call.parent if asks.parent is None else await call.session(asks.parent)
    if asks.session_id is not None and await call.is_known(asks.session_id):
        options["session"] = await call.session(asks.session_id)
    else:
        new = ("session_id", "task_id", "purpose", "project_dir", "metadata")
        options |= {"name": asks.session_name, **{name: getattr(asks, name) for name in new}}
    reply = await call.moor.run(asks.agent, asks.prompt, timeout=0, **options)
    run = await _waited(call, reply.run, asks.mode, asks.wait_seconds)
    session = await call.moor.get(run.session_id)
    return answers.StartedAnswer(session_id=session.session_id, session=like(Brief, session), run=RunBrief.of(run))


async def _waited(call: ToolCall, run: Run, mode: str, wait: float | None) -> Run:
    """Return the run; if the caller waits, once it has settled. Cancelling the wait stops the run."""
    if mode.lower() != "sync":
        return run
    async with call.stopping(run):
        return await call.settled(run, wait)


class ResumeAgentSession(Asks, frozen=True):
    """Resume a session: a suspended one becomes active. With a prompt, its agent is asked; without one, the answer has
    its checkpoint, context and newest messages, and with hold you drive it. Without a session, list sessions that could
    be resumed."""

    session_id: Annotated[str | None, Meta(description="The session, by id or name; without it, list suggestions")] = (
        None
    )
    prompt: str | None = None
    mode: ModeField = "sync"
    join: JoinField = "each"
    correlation: Correlation = None
    parameters: Parameters = None
    wait_seconds: WaitField | None = None
    hold: Annotated[bool, Meta(description="true: drive the session yourself, until release_session")] = False
    token: Token = None
    queue: Queue = False
    wake: Wake = True
    agent: Annotated[str | None, Meta(description="Suggest only sessions of this agent")] = None


@tool("Resume a session")
async def resume_agent_session(call: ToolCall, asks: ResumeAgentSession) -> answers.ResumeAnswer:
    if asks.session_id is None:
        call.check_no_token()
        found = await call.moor.resumable(agent=asks.agent)
        return answers.ResumeAnswer(suggestions=[like(Brief, each) for each in found])
    ref = await call.session(asks.session_id)
    if asks.prompt is None:
        return await _resumed(call, ref, hold=asks.hold)
    await call.check_parent()
    how = ("mode", "join", "correlation", "parameters", "token", "queue", "wake")
    options: dict[str, Any] = {name: getattr(asks, name) for name in how}
    options["parent"] = await call.other_than(ref)
    reply = await call.moor.run(None, asks.prompt, session=ref, timeout=0, **options)
    run = await _waited(call, reply.run, asks.mode, asks.wait_seconds)
    session = await call.moor.get(ref)
    return answers.ResumeAnswer(session_id=session.session_id, session=like(Brief, session), run=RunBrief.of(run))


async def _resumed(call: ToolCall, ref: str, *, hold: bool) -> answers.ResumeAnswer:
    packet = await call.moor.resume(ref, hold=hold)
    return answers.ResumeAnswer(
        session_id=packet.session.session_id,
        session=like(Brief, packet.session),
        hold=UNSET if packet.hold is None else to_builtins(packet.hold),
        checkpoint=packet.checkpoint,
        context=packet.context,
        messages=[{"number": each.number, "role": each.role, "content": each.content} for each in packet.messages],
    )


class SendMessage(Asks, frozen=True):
    """Send a user's message to a session. If its agent can be started, the agent is asked and the answer has its
    result. An unknown session id creates a session."""

    message: str
    session_id: Ref = None
    wait_seconds: Annotated[
        WaitField | None, Meta(description="Seconds to wait for the answer; by default 30, or 0 in your own session")
    ] = None
    agent: Annotated[str | None, Meta(description="Ask this agent instead of the session's own")] = None
    parameters: Parameters = None
    client_key: Annotated[str | None, Meta(description="A message with the same key is stored once")] = None
    queue: Queue = False
    wake: Wake = True


@tool("Say something")
async def send_message(call: ToolCall, asks: SendMessage) -> answers.SentAnswer:
    ref = await call.opened(asks.session_id)
    how = ("agent", "parameters", "client_key", "queue", "wake")
    reply = await call.moor.send(ref, asks.message, **{name: getattr(asks, name) for name in how})
    run = None
    if reply.run_id is not None:
        is_own = call.parent is not None and await call.other_than(ref) is None  # its turn has to end first
        usual = 0.0 if is_own else USUAL_WAIT
        wait = usual if asks.wait_seconds is None else asks.wait_seconds
        run = await call.settled(await call.moor.get_run(reply.run_id), wait)
    return answers.SentAnswer(
        session_id=reply.session_id, number=reply.message.number, run=None if run is None else RunBrief.of(run)
    )


class GetAgentSessionStatus(Asks, frozen=True):
    """Return the status of a session: state, phase and newest run. With wait_seconds, wait for the end of that run."""

    session_id: Ref = None
    wait_seconds: WaitField = 0.0


@tool("Status of a session", Scope.READ)
async def get_agent_session_status(call: ToolCall, asks: GetAgentSessionStatus) -> answers.StatusAnswer:
    ref = await call.session(asks.session_id)
    run = await _newest_run(call, ref)
    if run is not None:
        run = await call.settled(run, asks.wait_seconds)
    session = await call.moor.get(ref)
    work = None if run is None else RunBrief.of(run, MAX_SHORT)
    return answers.StatusAnswer(session_id=session.session_id, session=like(Brief, session), run=work)


async def _newest_run(call: ToolCall, ref: str) -> Run | None:
    session = await call.moor.get(ref)
    found = (await call.moor.runs(session=session.session_id, limit=1)).items
    return found[0] if found else None


class GetAgentSessionResult(Asks, frozen=True):
    """Return the last answer of a session's agent, or the result of one run. For the rest of a long one, call again
    with next_offset."""

    session_id: Ref = None
    run_id: str | None = None
    wait_seconds: WaitField = 0.0
    offset: Offset = 0


@tool("Answer of an agent", Scope.READ)
async def get_agent_session_result(call: ToolCall, asks: GetAgentSessionResult) -> answers.ResultAnswer:
    if asks.run_id is not None:
        run: Run | None = await call.moor.get_run(await call.run_id(asks.run_id))
    else:
        run = await _newest_run(call, await call.session(asks.session_id))
    if run is None:
        return await _last_said(call, await call.session(asks.session_id), asks.offset)
    run = await call.settled(run, asks.wait_seconds)
    whole = await _whole_result(call, run)
    return like(
        answers.ResultAnswer,
        run,
        status=run.state.value,
        settled=run.is_settled,
        result=None if run.result is None else whole[asks.offset : asks.offset + MAX_TEXT],
        length=len(whole),
        next_offset=next_offset(whole, asks.offset, MAX_TEXT),
    )


async def _whole_result(call: ToolCall, run: Run) -> str:
    """Return the whole result: of a very long one, the run has only the beginning, and the log has all."""
    if run.result_entry is not None:
        page = await call.moor.log(run.session_id, after=run.result_entry - 1, before=run.result_entry + 1)
        if page.items and len(page.items[0].text) > len(run.result or ""):
            return page.items[0].text
    return run.result or ""


async def _last_said(call: ToolCall, ref: str, offset: int) -> answers.ResultAnswer:
    """Return the newest message of the assistant, for a session without runs."""
    session = await call.moor.get(ref)
    said = [each.text for each in (await call.moor.messages(ref, last=20)).items if each.role == "assistant"]
    whole = said[-1] if said else ""
    return answers.ResultAnswer(
        session_id=session.session_id,
        status=session.status,
        settled=session.status != "running",
        result=whole[offset : offset + MAX_TEXT] if said else None,
        length=len(whole),
        next_offset=next_offset(whole, offset, MAX_TEXT),
    )


class RetryRun(Asks, frozen=True):
    """Retry a failed run, or the failed last run of a session, as a new run with its prompt and dead letters. A
    repeated request returns the same new run. With wait_seconds, the answer has its result."""

    run_id: str | None = None
    session_id: Ref = None
    wait_seconds: WaitField = 0.0


@tool("Retry a failed run", repeatable=True)
async def retry_run(call: ToolCall, asks: RetryRun) -> answers.StartedAnswer:
    failed = asks.run_id
    if failed is None:
        session = await call.moor.get(await call.session(asks.session_id))
        failed = session.check_run_ended().id
    run = await call.moor.retry(await call.run_id(failed))
    run = await call.settled(run, asks.wait_seconds)
    session = await call.moor.get(run.session_id)
    return answers.StartedAnswer(session_id=session.session_id, session=like(Brief, session), run=RunBrief.of(run))


# Looking ----------------------------------------------------------------------------------------


class ListAgentSessions(Asks, frozen=True):
    """List sessions, newest first; a page at a time."""

    agent: str | None = None
    state: str | None = None
    status: str | None = None
    parent: Annotated[str | None, Meta(description="Only children of this session")] = None
    root: Annotated[str | None, Meta(description="Only the family of this session")] = None
    task_id: str | None = None
    label: Annotated[str | None, Meta(description="Only sessions with this label")] = None
    active_only: Annotated[bool, Meta(description="Leave out final sessions")] = False
    limit: LimitField = 20
    cursor: Cursor = None


@tool("List sessions", Scope.READ)
async def list_agent_sessions(call: ToolCall, asks: ListAgentSessions) -> answers.SessionsAnswer:
    wanted = asdict(asks)
    if call.token is not None:  # it reaches no other list
        if asks.root is not None:
            call.check_no_token()
        wanted["parent"] = await call.session(asks.parent)
    page = await call.moor.list(**wanted)
    return answers.SessionsAnswer(sessions=[like(Brief, each) for each in page.items], next=page.next)


class ListChildren(Asks, frozen=True):
    """List the children of a session, oldest first; a page at a time."""

    session_id: Ref = None
    limit: LimitField = 20
    cursor: Cursor = None


@tool("List children", Scope.READ)
async def list_children(call: ToolCall, asks: ListChildren) -> answers.SessionsAnswer:
    page = await call.moor.children(await call.session(asks.session_id), limit=asks.limit, cursor=asks.cursor)
    return answers.SessionsAnswer(sessions=[like(Brief, each) for each in page.items], next=page.next)


class WaitForChildren(Asks, frozen=True):
    """Wait for the runs that a session requested of others, and return their results, newest first. Long results are
    cut: get_agent_session_result has all of them."""

    session_id: Ref = None
    wait_seconds: WaitField = 60.0
    limit: LimitField = 20
    cursor: Cursor = None


@tool("Wait for children", Scope.READ)
async def wait_for_children(call: ToolCall, asks: WaitForChildren) -> answers.ChildrenAnswer:
    ref = (await call.moor.get(await call.session(asks.session_id))).session_id
    ends, still = monotonic() + asks.wait_seconds, await _open_runs(call, ref)
    while still and monotonic() < ends:
        await call.settled(still[-1], ends - monotonic())
        still = await _open_runs(call, ref)
    page = await call.moor.runs(parent=ref, limit=asks.limit, cursor=asks.cursor)
    settled = [RunBrief.of(run, MAX_SHORT) for run in page.items if run.is_settled]
    return answers.ChildrenAnswer(
        session_id=ref, settled=settled, open=len(still), all_settled=not still, next=page.next
    )


async def _open_runs(call: ToolCall, ref: str) -> list[Run]:
    return (await call.moor.runs(parent=ref, open_only=True, limit=1000)).items


# Pausing, asking a person, ending ---------------------------------------------------------------


class RenameSession(Asks, frozen=True):
    """Give a session another name, or none."""

    session_id: Ref = None
    session_name: Annotated[str | None, Meta(description="The new name; without it, the name is removed")] = None
    token: Token = None


@tool("Rename a session", repeatable=True)
async def rename_session(call: ToolCall, asks: RenameSession) -> answers.BriefAnswer:
    ref = await call.session(asks.session_id)
    session = await call.moor.rename(ref, asks.session_name, token=asks.token)
    return answers.BriefAnswer(session_id=session.session_id, session=like(Brief, session))


class SuspendSession(Asks, frozen=True):
    """Suspend a session, with a checkpoint for the next process."""

    session_id: Ref = None
    reason: str | None = None
    checkpoint: dict[str, Any] | None = None
    token: Token = None


@tool("Pause a session")
async def suspend_session(call: ToolCall, asks: SuspendSession) -> answers.BriefAnswer:
    ref = await call.session(asks.session_id)
    session = await call.moor.suspend(ref, checkpoint=asks.checkpoint, reason=asks.reason, token=asks.token)
    return answers.BriefAnswer(session_id=session.session_id, session=like(Brief, session))


class ReleaseSession(Asks, frozen=True):
    """End your hold on a session, so that its agent continues or others can resume it."""

    session_id: Ref = None
    token: Token = None


@tool("End a hold")
async def release_session(call: ToolCall, asks: ReleaseSession) -> answers.BriefAnswer:
    session = await call.moor.release(await call.session(asks.session_id), token=asks.token)
    return answers.BriefAnswer(session_id=session.session_id, session=like(Brief, session))


class RequestApproval(Asks, frozen=True):
    """Ask a person for approval. The session waits for the answer; you cannot answer it yourself."""

    question: str
    session_id: Ref = None
    plan: Annotated[Any, Meta(description="The plan to approve, as any JSON; its hash is stored with the answer")] = (
        None
    )
    options: Annotated[list[str], Meta(description="Answers besides approve and reject")] = []
    expires_in: Annotated[float, Meta(gt=0, description="Seconds")] | None = None


@tool("Ask a person")
async def request_approval(call: ToolCall, asks: RequestApproval) -> answers.ApprovalAnswer:
    ref, options = await call.session(asks.session_id), asdict(asks)
    del options["session_id"]
    return like(answers.ApprovalAnswer, await call.moor.request_approval(ref, **options))


class StopAgentSession(Asks, frozen=True):
    """Stop the runs of a session and of its descendants. Output so far is kept."""

    session_id: Ref = None
    tree: Annotated[bool, Meta(description="Its descendants, too")] = True


@tool("Stop an agent", destroys=True, repeatable=True)
async def stop_agent_session(call: ToolCall, asks: StopAgentSession) -> answers.StoppedAnswer:
    ref = await call.session(asks.session_id)
    stopped = await call.moor.stop(ref, tree=asks.tree)
    return answers.StoppedAnswer(session_id=(await call.moor.get(ref)).session_id, stopped=stopped)


class DeleteAgentSession(Asks, frozen=True):
    """Delete a session with its descendants, for good. With dry_run, return what would be deleted."""

    session_id: str
    cascade: Annotated[bool, Meta(description="false: refuse if it has children")] = True
    force: Annotated[bool, Meta(description="true: also delete running sessions; their agents are stopped")] = False
    dry_run: bool = False


@tool("Delete a session", destroys=True)
async def delete_agent_session(call: ToolCall, asks: DeleteAgentSession) -> Deletion:
    ref = await call.session(asks.session_id, strictly=True)
    return await call.moor.delete(ref, cascade=asks.cascade, force=asks.force, dry_run=asks.dry_run)


# Memory -----------------------------------------------------------------------------------------


class GetContext(Asks, frozen=True):
    """Read a session's context, or one key of it; an empty context is {}. A long value comes in pieces, as JSON
    text."""

    session_id: Ref = None
    key: str | None = None
    offset: Offset = 0


@tool("Read the memory", Scope.READ)
async def get_context(call: ToolCall, asks: GetContext) -> answers.ContextAnswer:
    ref = await call.session(asks.session_id)
    session_id = (await call.moor.get(ref)).session_id
    if asks.key is None:
        kept, left_out = _all_that_fits(await call.moor.context.get(ref))
        return answers.ContextAnswer(session_id=session_id, context=kept, left_out=left_out)
    if asks.key not in await call.moor.context.items(ref):
        return answers.ContextAnswer(session_id=session_id)
    value = await call.moor.context.get(ref, asks.key)
    if (piece := _piece(asks.key, value, asks.offset)) is not None:
        return answers.ContextAnswer(session_id=session_id, **piece)
    return answers.ContextAnswer(session_id=session_id, context={asks.key: value})


def _piece(key: str, value: Any, offset: int) -> dict[str, Any] | None:
    """Return a piece of a value that is too long for one answer; None for others, unless a piece was requested."""
    whole = encode_text(value)
    if len(whole) <= MAX_TEXT and not offset:
        return None
    following = next_offset(whole, offset, MAX_TEXT)
    return {"left_out": {key: len(whole)}, "text": whole[offset : offset + MAX_TEXT], "next_offset": following}


def _all_that_fits(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """Return as many values as fit into one answer, and the keys and lengths of the others."""
    kept, left_out, room = {}, {}, MAX_TEXT
    for key, value in values.items():
        length = len(encode_text(value))
        if length <= room:
            kept[key], room = value, room - length
        else:
            left_out[key] = length
    return kept, left_out


class SetContext(Asks, frozen=True):
    """Store values in a session's context, for every agent in it: one as `key`, or several as `values`. Other keys
    stay. An unknown session id creates a session."""

    session_id: Ref = None
    key: str | None = None
    value: Any = None
    values: dict[str, Any] | None = None
    ttl_seconds: Annotated[float, Meta(gt=0, description="How long; without it, for good")] | None = None


@tool("Remember", repeatable=True)
async def set_context(call: ToolCall, asks: SetContext) -> answers.ContextWrittenAnswer:
    if (asks.key is None) == (asks.values is None):
        raise InvalidField("key", "and values: give one of the two")
    ref = await call.opened(asks.session_id)
    values = asks.values if asks.values is not None else {str(asks.key): asks.value}
    written = await call.moor.context.merge(ref, values, ttl=asks.ttl_seconds)
    return like(answers.ContextWrittenAnswer, written)


class GetMemory(Asks, frozen=True):
    """Read values that all sessions share: those of a namespace, sorted by key, or one of them. A long value comes in
    pieces, as JSON text; bytes are base64."""

    namespace: str
    key: str | None = None
    prefix: Annotated[str, Meta(description="Only keys with this prefix")] = ""
    after: Annotated[str | None, Meta(description="`next` of the previous answer")] = None
    limit: LimitField = 50
    offset: Offset = 0


@tool("Read shared values", Scope.READ)
async def get_memory(call: ToolCall, asks: GetMemory) -> answers.MemoryAnswer:
    call.check_no_token()
    if asks.key is None:
        page = await call.moor.memory.list(asks.namespace, prefix=asks.prefix, after=asks.after, limit=asks.limit)
        kept, left_out = _all_that_fits({record.key: _content(record) for record in page.items})
        following = UNSET if page.next is None else page.next
        return answers.MemoryAnswer(namespace=asks.namespace, values=kept, left_out=left_out, next=following)
    record = await call.moor.memory.get(asks.namespace, asks.key)
    if record is None:
        return answers.MemoryAnswer(namespace=asks.namespace)
    if (piece := _piece(asks.key, _content(record), asks.offset)) is not None:
        return answers.MemoryAnswer(namespace=asks.namespace, **piece)
    return answers.MemoryAnswer(namespace=asks.namespace, values={asks.key: _content(record)})


def _content(record: Record) -> Any:
    return b64encode(record.value).decode() if record.form == BYTES else record.content


class SetMemory(Asks, frozen=True):
    """Store a value that all sessions share, under a key of a namespace."""

    namespace: str
    key: str
    value: Any
    ttl_seconds: Annotated[float, Meta(gt=0, description="How long; without it, for good")] | None = None
    version: Annotated[int, Meta(ge=0, description="The expected version; 0 for a new key")] | None = None


@tool("Store a shared value", repeatable=True)
async def set_memory(call: ToolCall, asks: SetMemory) -> WrittenRecord:
    call.check_no_token()
    return await call.moor.memory.put(asks.namespace, asks.key, asks.value, ttl=asks.ttl_seconds, version=asks.version)


# Searching --------------------------------------------------------------------------------------


class SearchSessions(Asks, frozen=True):
    """Search all sessions for entries that contain all these words."""

    query: str
    limit: LimitField = 20


@tool("Search", Scope.READ)
async def search_sessions(call: ToolCall, asks: SearchSessions) -> answers.SearchAnswer:
    call.check_no_token()
    hits = await call.moor.search(asks.query, limit=asks.limit)
    return answers.SearchAnswer(hits=[like(answers.FoundEntry, hit) for hit in hits])

"""The tools of the table: each makes one call of the object that every door calls. Hosts see signature and docstring.

`session_id` is an id or a name everywhere. A caller in a session (by header or environment) need not name it.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, to_builtins

from moorage.core.codec import encode_text
from moorage.core.errors import InvalidField
from moorage.core.family import Deletion
from moorage.core.key import Scope
from moorage.core.render import like
from moorage.core.run import Run
from moorage.doors.http.visit import USUAL_WAIT
from moorage.doors.mcp import answers
from moorage.doors.mcp.answers import MAX_SHORT, MAX_TEXT, Brief, RunBrief, next_offset
from moorage.doors.mcp.calls import TOOLS as TOOLS  # all of them, once this module is loaded
from moorage.doors.mcp.calls import ToolCall, tool
from moorage.executor import AgentExecutor
from moorage.service.records import ContextWritten, WrittenRecord

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
PlanField = Annotated[Any, Meta(description="The plan to approve, as any JSON; its hash is stored with the answer")]
Ttl = Annotated[float, Meta(gt=0, description="How long; without it, for good")] | None


# Agents and tools -------------------------------------------------------------------------------


@tool("List agents", Scope.READ)
async def list_agents(call: ToolCall) -> answers.AgentsAnswer:
    """List the agents and workers that can be started, and the tools that can be called."""
    agents = sorted((await call.named.agents()).values(), key=lambda each: each.name)
    tools = (await call.named.tools()).values()
    return answers.AgentsAnswer(
        agents=[like(answers.AgentBrief, agent) for agent in agents],
        tools=[like(answers.ToolBrief, tool, operations=list(tool.operations)) for tool, _ in tools],
    )


# Work -------------------------------------------------------------------------------------------


@tool("Start an agent")
async def start_agent_session(
    call: ToolCall,
    agent: str,
    prompt: str,
    mode: ModeField = "sync",
    join: JoinField = "each",
    correlation: Correlation = None,
    parameters: Parameters = None,
    session_id: Annotated[
        str | None, Meta(description="The id of the session; an unknown id creates a session")
    ] = None,
    session_name: str | None = None,
    parent: Annotated[str | None, Meta(description="The parent session, instead of the caller's")] = None,
    task_id: str | None = None,
    purpose: str | None = None,
    project_dir: str | None = None,
    metadata: dict[str, Any] | None = None,
    wait_seconds: Annotated[
        WaitField | None, Meta(description="Maximum of seconds to wait in mode sync; by default until the end")
    ] = None,
    idempotency_key: Annotated[str | None, Meta(description="Requests with the same key create one run")] = None,
) -> answers.StartedAnswer:
    """Start an agent in a new session, as a child of the caller's session. With mode sync, the answer has the result;
    otherwise it comes at once, with the session_id to ask for later."""
    await call.check_parent()
    how: dict[str, Any] = {"mode": mode, "join": join, "correlation": correlation, "parameters": parameters}
    if session_id is not None and await call.is_known(session_id):
        how["session"] = await call.session(session_id)
    else:
        how |= {"session_id": session_id, "name": session_name, "task_id": task_id}
        how |= {"purpose": purpose, "project_dir": project_dir, "metadata": metadata}
    how["parent"] = call.parent if parent is None else await call.session(parent)
    reply = await call.moor.run(agent, prompt, idempotency_key=idempotency_key, timeout=0, **how)
    run = await _waited(call, reply.run, mode, wait_seconds)
    return answers.StartedAnswer.of(await call.moor.get(run.session_id), run=RunBrief.of(run))


async def _waited(call: ToolCall, run: Run, mode: str, wait: float | None) -> Run:
    """Return the run; if the caller waits, once it has settled. Cancelling the wait stops the run."""
    if mode.lower() != "sync":
        return run
    async with call.stopping(run):
        return await call.settled(run, wait)


@tool("Resume a session")
async def resume_agent_session(
    call: ToolCall,
    session_id: Annotated[
        str | None, Meta(description="The session, by id or name; without it, list suggestions")
    ] = None,
    prompt: str | None = None,
    mode: ModeField = "sync",
    join: JoinField = "each",
    correlation: Correlation = None,
    parameters: Parameters = None,
    wait_seconds: WaitField | None = None,
    hold: Annotated[bool, Meta(description="true: drive the session yourself, until release_session")] = False,
    token: Token = None,
    queue: Queue = False,
    wake: Wake = True,
    agent: Annotated[str | None, Meta(description="Suggest only sessions of this agent")] = None,
) -> answers.ResumeAnswer:
    """Resume a session: a suspended one becomes active. With a prompt, its agent is asked; without one, the answer has
    its checkpoint, context and newest messages, and with hold you drive it. Without a session, list sessions that could
    be resumed."""
    if session_id is None:
        call.check_no_token()
        found = await call.moor.resumable(agent=agent)
        return answers.ResumeAnswer(suggestions=[like(Brief, each) for each in found])
    ref = await call.session(session_id)
    if prompt is None:
        return await _resumed(call, ref, hold=hold)
    await call.check_parent()
    how: dict[str, Any] = {"mode": mode, "join": join, "correlation": correlation, "parameters": parameters}
    how |= {"token": token, "queue": queue, "wake": wake, "parent": await call.other_than(ref)}
    reply = await call.moor.run(None, prompt, session=ref, timeout=0, **how)
    run = await _waited(call, reply.run, mode, wait_seconds)
    return answers.ResumeAnswer.of(await call.moor.get(ref), run=RunBrief.of(run))


async def _resumed(call: ToolCall, ref: str, *, hold: bool) -> answers.ResumeAnswer:
    packet = await call.moor.resume(ref, hold=hold)
    return answers.ResumeAnswer.of(
        packet.session,
        hold=UNSET if packet.hold is None else to_builtins(packet.hold),
        checkpoint=packet.checkpoint,
        context=packet.context,
        messages=[{"number": each.number, "role": each.role, "content": each.content} for each in packet.messages],
    )


@tool("Say something")
async def send_message(
    call: ToolCall,
    message: str,
    session_id: Ref = None,
    wait_seconds: Annotated[
        WaitField | None, Meta(description="Seconds to wait for the answer; by default 30, or 0 in your own session")
    ] = None,
    agent: Annotated[str | None, Meta(description="Ask this agent instead of the session's own")] = None,
    parameters: Parameters = None,
    client_key: Annotated[str | None, Meta(description="A message with the same key is stored once")] = None,
    queue: Queue = False,
    wake: Wake = True,
) -> answers.SentAnswer:
    """Send a user's message to a session. If its agent can be started, the agent is asked and the answer has its
    result. An unknown session id creates a session."""
    ref = await call.opened(session_id)
    reply = await call.moor.send(
        ref, message, agent=agent, parameters=parameters, client_key=client_key, queue=queue, wake=wake
    )
    run = None
    if reply.run_id is not None:
        is_own = call.parent is not None and await call.other_than(ref) is None  # its turn has to end first
        usual = 0.0 if is_own else USUAL_WAIT
        wait = usual if wait_seconds is None else wait_seconds
        run = RunBrief.of(await call.settled(await call.moor.get_run(reply.run_id), wait))
    return answers.SentAnswer(session_id=reply.session_id, number=reply.message.number, run=run)


@tool("Status of a session", Scope.READ)
async def get_agent_session_status(
    call: ToolCall, session_id: Ref = None, wait_seconds: WaitField = 0.0
) -> answers.StatusAnswer:
    """Return the status of a session: state, phase and newest run. With wait_seconds, wait for the end of that run."""
    ref = await call.session(session_id)
    run = await _newest_run(call, ref)
    if run is not None:
        run = await call.settled(run, wait_seconds)
    work = None if run is None else RunBrief.of(run, MAX_SHORT)
    return answers.StatusAnswer.of(await call.moor.get(ref), run=work)


async def _newest_run(call: ToolCall, ref: str) -> Run | None:
    session = await call.moor.get(ref)
    found = (await call.moor.runs(session=session.session_id, limit=1)).items
    return found[0] if found else None


@tool("Answer of an agent", Scope.READ)
async def get_agent_session_result(
    call: ToolCall, session_id: Ref = None, run_id: str | None = None, wait_seconds: WaitField = 0.0, offset: Offset = 0
) -> answers.ResultAnswer:
    """Return the last answer of a session's agent, or the result of one run. For the rest of a long one, call again
    with next_offset."""
    if run_id is not None:
        run: Run | None = await call.moor.get_run(await call.run_id(run_id))
    else:
        run = await _newest_run(call, await call.session(session_id))
    if run is None:
        return await _last_said(call, await call.session(session_id), offset)
    run = await call.settled(run, wait_seconds)
    whole, said = run.result or "", await AgentExecutor(call.moor).said(run)
    if said is not None and len(said.text) > len(whole):  # of a very long result, the run has only the beginning
        whole = said.text
    return like(
        answers.ResultAnswer,
        run,
        status=run.state.value,
        settled=run.is_settled,
        result=None if run.result is None else whole[offset : offset + MAX_TEXT],
        length=len(whole),
        next_offset=next_offset(whole, offset, MAX_TEXT),
    )


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


@tool("Retry a failed run", repeatable=True)
async def retry_run(
    call: ToolCall, run_id: str | None = None, session_id: Ref = None, wait_seconds: WaitField = 0.0
) -> answers.StartedAnswer:
    """Retry a failed run, or the failed last run of a session, as a new run with its prompt and dead letters. A
    repeated request returns the same new run. With wait_seconds, the answer has its result."""
    if run_id is None:
        session = await call.moor.get(await call.session(session_id))
        run_id = session.check_run_ended().id
    run = await call.settled(await call.moor.retry(await call.run_id(run_id)), wait_seconds)
    return answers.StartedAnswer.of(await call.moor.get(run.session_id), run=RunBrief.of(run))


# Looking ----------------------------------------------------------------------------------------


@tool("List sessions", Scope.READ)
async def list_agent_sessions(
    call: ToolCall,
    agent: str | None = None,
    state: str | None = None,
    status: str | None = None,
    parent: Annotated[str | None, Meta(description="Only children of this session")] = None,
    root: Annotated[str | None, Meta(description="Only the family of this session")] = None,
    task_id: str | None = None,
    label: Annotated[str | None, Meta(description="Only sessions with this label")] = None,
    active_only: Annotated[bool, Meta(description="Leave out final sessions")] = False,
    limit: LimitField = 20,
    cursor: Cursor = None,
) -> answers.SessionsAnswer:
    """List sessions, newest first; a page at a time."""
    if call.token is not None:  # it reaches no other list
        if root is not None:
            call.check_no_token()
        parent = await call.session(parent)
    only: dict[str, Any] = {"agent": agent, "state": state, "status": status, "task_id": task_id, "label": label}
    only |= {"parent": parent, "root": root, "active_only": active_only}
    page = await call.moor.list(limit=limit, cursor=cursor, **only)
    return answers.SessionsAnswer(sessions=[like(Brief, each) for each in page.items], next=page.next)


@tool("List children", Scope.READ)
async def list_children(
    call: ToolCall, session_id: Ref = None, limit: LimitField = 20, cursor: Cursor = None
) -> answers.SessionsAnswer:
    """List the children of a session, oldest first; a page at a time."""
    page = await call.moor.children(await call.session(session_id), limit=limit, cursor=cursor)
    return answers.SessionsAnswer(sessions=[like(Brief, each) for each in page.items], next=page.next)


@tool("Wait for children", Scope.READ)
async def wait_for_children(
    call: ToolCall,
    session_id: Ref = None,
    wait_seconds: WaitField = 60.0,
    limit: LimitField = 20,
    cursor: Cursor = None,
) -> answers.ChildrenAnswer:
    """Wait for the runs that a session requested of others, and return their results, newest first. Long results are
    cut: get_agent_session_result has all of them."""
    ref = (await call.moor.get(await call.session(session_id))).session_id
    ends, still = monotonic() + wait_seconds, await _open_runs(call, ref)
    while still and monotonic() < ends:
        await call.settled(still[-1], ends - monotonic())
        still = await _open_runs(call, ref)
    page = await call.moor.runs(parent=ref, limit=limit, cursor=cursor)
    settled = [RunBrief.of(run, MAX_SHORT) for run in page.items if run.is_settled]
    return answers.ChildrenAnswer(
        session_id=ref, settled=settled, open=len(still), all_settled=not still, next=page.next
    )


async def _open_runs(call: ToolCall, ref: str) -> list[Run]:
    return (await call.moor.runs(parent=ref, open_only=True, limit=1000)).items


# Pausing, asking a person, ending ---------------------------------------------------------------


@tool("Rename a session", repeatable=True)
async def rename_session(
    call: ToolCall,
    session_id: Ref = None,
    session_name: Annotated[str | None, Meta(description="The new name; without it, the name is removed")] = None,
    token: Token = None,
) -> answers.BriefAnswer:
    """Give a session another name, or none."""
    ref = await call.session(session_id)
    return answers.BriefAnswer.of(await call.moor.rename(ref, session_name, token=token))


@tool("Pause a session")
async def suspend_session(
    call: ToolCall,
    session_id: Ref = None,
    reason: str | None = None,
    checkpoint: dict[str, Any] | None = None,
    token: Token = None,
) -> answers.BriefAnswer:
    """Suspend a session, with a checkpoint for the next process."""
    ref = await call.session(session_id)
    return answers.BriefAnswer.of(await call.moor.suspend(ref, checkpoint=checkpoint, reason=reason, token=token))


@tool("End a hold")
async def release_session(call: ToolCall, session_id: Ref = None, token: Token = None) -> answers.BriefAnswer:
    """End your hold on a session, so that its agent continues or others can resume it."""
    return answers.BriefAnswer.of(await call.moor.release(await call.session(session_id), token=token))


@tool("Ask a person")
async def request_approval(
    call: ToolCall,
    question: str,
    session_id: Ref = None,
    plan: PlanField = None,
    options: Annotated[Sequence[str], Meta(description="Answers besides approve and reject")] = (),
    expires_in: Annotated[float, Meta(gt=0, description="Seconds")] | None = None,
) -> answers.ApprovalAnswer:
    """Ask a person for approval. The session waits for the answer; you cannot answer it yourself."""
    ref = await call.session(session_id)
    asked = await call.moor.request_approval(ref, question, plan=plan, options=options, expires_in=expires_in)
    return like(answers.ApprovalAnswer, asked)


@tool("Stop an agent", destroys=True, repeatable=True)
async def stop_agent_session(
    call: ToolCall, session_id: Ref = None, tree: Annotated[bool, Meta(description="Its descendants, too")] = True
) -> answers.StoppedAnswer:
    """Stop the runs of a session and of its descendants. Output so far is kept."""
    ref = await call.session(session_id)
    stopped = await call.moor.stop(ref, tree=tree)
    return answers.StoppedAnswer(session_id=(await call.moor.get(ref)).session_id, stopped=stopped)


@tool("Delete a session", destroys=True)
async def delete_agent_session(
    call: ToolCall,
    session_id: str,
    cascade: Annotated[bool, Meta(description="false: refuse if it has children")] = True,
    force: Annotated[bool, Meta(description="true: also delete running sessions; their agents are stopped")] = False,
    dry_run: bool = False,
) -> Deletion:
    """Delete a session with its descendants, for good. With dry_run, return what would be deleted."""
    ref = await call.session(session_id, strictly=True)
    return await call.moor.delete(ref, cascade=cascade, force=force, dry_run=dry_run)


# Memory -----------------------------------------------------------------------------------------


@tool("Read the memory", Scope.READ)
async def get_context(
    call: ToolCall, session_id: Ref = None, key: str | None = None, offset: Offset = 0
) -> answers.ContextAnswer:
    """Read a session's context, or one key of it; an empty context is {}. A long value comes in pieces, as JSON
    text."""
    ref = (await call.moor.get(await call.session(session_id))).session_id
    values = await call.moor.context.get(ref)
    if key is not None:
        values = {key: values[key]} if key in values else {}
    return answers.ContextAnswer(session_id=ref, **_readable("context", values, key, offset))


def _readable(name: str, values: dict[str, Any], key: str | None, offset: int) -> dict[str, Any]:
    """Return the fields of an answer: the values that fit into it, and the lengths of the others; of one, a piece."""
    kept, left_out, room = {}, {}, MAX_TEXT
    for each, value in values.items():
        length = len(encode_text(value))
        if length <= room:
            kept[each], room = value, room - length
        else:
            left_out[each] = length
    if key not in values or not (left_out or offset):
        return {name: kept, "left_out": left_out}
    whole = encode_text(values[key])
    following = next_offset(whole, offset, MAX_TEXT)
    return {"left_out": {key: len(whole)}, "text": whole[offset : offset + MAX_TEXT], "next_offset": following}


@tool("Remember", repeatable=True)
async def set_context(
    call: ToolCall,
    session_id: Ref = None,
    key: str | None = None,
    value: Any = None,
    values: dict[str, Any] | None = None,
    ttl_seconds: Ttl = None,
) -> ContextWritten:
    """Store values in a session's context, for every agent in it: one as `key`, or several as `values`. Other keys
    stay. An unknown session id creates a session."""
    if (key is None) == (values is None):
        raise InvalidField("key", "and values: give one of the two")
    ref = await call.opened(session_id)
    return await call.moor.context.merge(ref, {str(key): value} if values is None else values, ttl=ttl_seconds)


@tool("Read shared values", Scope.READ)
async def get_memory(
    call: ToolCall,
    namespace: str,
    key: str | None = None,
    prefix: Annotated[str, Meta(description="Only keys with this prefix")] = "",
    after: Annotated[str | None, Meta(description="`next` of the previous answer")] = None,
    limit: LimitField = 50,
    offset: Offset = 0,
) -> answers.MemoryAnswer:
    """Read values that all sessions share: those of a namespace, sorted by key, or one of them. A long value comes in
    pieces, as JSON text; bytes are base64."""
    call.check_no_token()
    following: str | None = None
    if key is None:
        page = await call.moor.memory.list(namespace, prefix=prefix, after=after, limit=limit)
        records, following = page.items, page.next
    else:
        record = await call.moor.memory.get(namespace, key)
        records = [] if record is None else [record]
    shown = _readable("values", {record.key: record.content for record in records}, key, offset)
    return answers.MemoryAnswer(namespace=namespace, next=UNSET if following is None else following, **shown)


@tool("Store a shared value", repeatable=True)
async def set_memory(
    call: ToolCall,
    namespace: str,
    key: str,
    value: Any,
    ttl_seconds: Ttl = None,
    version: Annotated[int, Meta(ge=0, description="The expected version; 0 for a new key")] | None = None,
) -> WrittenRecord:
    """Store a value that all sessions share, under a key of a namespace."""
    call.check_no_token()
    return await call.moor.memory.put(namespace, key, value, ttl=ttl_seconds, version=version)


# Searching --------------------------------------------------------------------------------------


@tool("Search", Scope.READ)
async def search_sessions(call: ToolCall, query: str, limit: LimitField = 20) -> answers.SearchAnswer:
    """Search all sessions for entries that contain all these words."""
    call.check_no_token()
    return answers.SearchAnswer(hits=await call.moor.search(query, limit=limit))

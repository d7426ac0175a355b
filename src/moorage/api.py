"""The typed specification of what callers can do: every method, its parameters and its answer.

`moorage.connect` gives an implementation: `client.LocalMoorage` on a store that this process opens, or
`remote.client.RemoteMoorage` on a server. Both take the same arguments, give the same answers and raise the same errors
(`moorage.core.errors`). The other doors follow this page: REST routes, the OpenAPI document and the remote client are
made from its signatures (`remote.operations`), `moorage.sync` has its methods without `await`, and tests compare
GraphQL, gRPC, MCP and the command line with it.

Wherever a method takes a `ref`, it is the id of a session or its name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, overload

from msgspec import UNSET, UnsetType

if TYPE_CHECKING:
    from moorage.values import *  # loaded by those alone who look at annotations, such as `remote.operations`

EventListener = Callable[[str, dict[str, Any]], None]  # gets a session's id, and an event in it
WordListener = Callable[[str, bool], None]  # gets a piece of a message, and whether it replaces the pieces before it


class Context(Protocol):
    """`moor.context`: a session's keyed memory."""

    async def get(self, ref: str, key: str | None = None) -> Any:
        """Return the whole context, or the value of one key; `{}` if there is none."""

    async def items(self, ref: str) -> dict[str, ContextItem]:
        """Return the context with versions and expiries."""

    async def put(
        self, ref: str, key: str, value: Any, *, ttl: object = None, version: int | None = None
    ) -> ContextWritten:
        """Store a value under a key."""

    async def merge(
        self,
        ref: str,
        values: dict[str, Any],
        *,
        key: str | None = None,
        ttl: object = None,
        version: int | None = None,
    ) -> ContextWritten:
        """Store several values, in the context or in the object under a key; other keys stay."""

    async def replace(
        self, ref: str, values: dict[str, Any], *, ttl: object = None, version: int | None = None
    ) -> ContextWritten:
        """Replace the whole context by these values."""

    async def delete(self, ref: str, key: str | None = None, *, version: int | None = None) -> ContextWritten:
        """Delete a key, or the whole context."""


class Moorage(Protocol):
    """Sessions of one store. `async with` opens and closes the store; otherwise it is opened on first use."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    @property
    def context(self) -> Context:
        """The keyed memory of sessions."""

    @property
    def records(self) -> Records:
        """Values beside the log of a session, by namespace and key."""

    @property
    def memory(self) -> Memory:
        """Values that all sessions of an owner share, by namespace and key."""

    async def close(self) -> None:
        """Close the connection. Acknowledged writes are already stored."""

    # Sessions -------------------------------------------------------------------------------------

    async def create(
        self,
        agent: str | None = None,
        *,
        name: str | None = None,
        purpose: str | None = None,
        metadata: dict[str, Any] | None = None,
        labels: Texts | None = None,
        parent: str | UnsetType | None = UNSET,
        task_id: str | None = None,
        session_id: str | None = None,
        project_dir: str | None = None,
        ttl: object = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """Create a session. Inside an agent, its parent is that agent's session, unless `parent` names another.

        A repeated request with the same `idempotency_key` within 24 hours returns the first session.
        """

    async def get(self, ref: str, *, messages: int | None = None) -> Session:
        """Return a session by id or name; with `messages=n`, its `messages` has the last n messages."""

    async def resolve(self, ref: str) -> str:
        """Return the id behind an id, a name, or a prefix that fits only one session."""

    async def list(
        self,
        *,
        agent: str | None = None,
        state: str | None = None,
        status: str | None = None,
        phase: str | None = None,
        interface: str | None = None,
        parent: str | None = None,
        root: str | None = None,
        task_id: str | None = None,
        name_prefix: str | None = None,
        project_dir: str | None = None,
        label: str | None = None,
        metadata_key: str | None = None,
        metadata_value: Any = None,
        active_only: bool = False,
        resume_ready: bool | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        updated_after: datetime | None = None,
        updated_before: datetime | None = None,
        sort: str = "-created",
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Session]:
        """Return a page of sessions; pass its `next` as `cursor` for the next one."""

    async def update(
        self,
        ref: str,
        *,
        phase: str | None = None,
        metadata: dict[str, Any] | None = None,
        labels: Texts | None = None,
        error: str | None = None,
        resume_ready: bool | None = None,
        version: int | None = None,
        token: str | None = None,
    ) -> Session:
        """Change phase, metadata, labels or readiness, or record an error. Either all changes are made or none."""

    async def rename(
        self, ref: str, name: str | None, *, version: int | None = None, token: str | None = None
    ) -> Session:
        """Give a session another name, or none. The old name becomes free."""

    async def suspend(
        self,
        ref: str,
        *,
        checkpoint: dict[str, Any] | None = None,
        reason: str | None = None,
        version: int | None = None,
        token: str | None = None,
    ) -> Session:
        """Suspend a session, with a checkpoint if given."""

    @overload
    async def resume(
        self, ref: str, *, hold: Literal[True] = True, holder: str | None = None, version: int | None = None
    ) -> HeldPacket: ...

    @overload
    async def resume(
        self, ref: str, *, hold: bool, holder: str | None = None, version: int | None = None
    ) -> ResumePacket: ...

    async def resume(
        self, ref: str, *, hold: bool = True, holder: str | None = None, version: int | None = None
    ) -> ResumePacket:
        """Resume a session and hold it; return session, hold, checkpoint, context and messages.

        With `hold=False`, let its agent continue instead: a suspended session becomes active, an active or running one
        does not change, and the packet has no hold.
        """

    async def release(self, ref: str, *, token: str | None = None) -> Session:
        """End the hold, so that others can resume the session."""

    async def finalize(
        self,
        ref: str,
        outcome: str = "completed",
        *,
        summary: str | None = None,
        version: int | None = None,
        token: str | None = None,
    ) -> Session:
        """Close a session: completed, failed or abandoned."""

    async def should_resume(
        self,
        ref: str | None = None,
        *,
        agent: str | None = None,
        task_id: str | None = None,
        project_dir: str | None = None,
        host: str | None = None,
        holder: str | None = None,
    ) -> Verdict:
        """Return whether a session should be resumed: the decision, its reason, and every criterion with its value.

        Without `ref`, find the newest fitting session of that agent: of the same task, a child of the session `host`,
        or in the same folder.
        """

    async def delegate(
        self,
        agent: str | None = None,
        *,
        session_id: str | None = None,
        task_id: str | None = None,
        project_dir: str | None = None,
        host: str | None = None,
        create: bool = False,
        new_id: str | None = None,
        purpose: str | None = None,
        metadata: dict[str, Any] | None = None,
        holder: str | None = None,
        delegation_id: str | None = None,
    ) -> Delegated:
        """Call `should_resume` and count a delegation; with `create`, create a session if none can be resumed."""

    async def delegations(
        self,
        *,
        agent: str | None = None,
        task_id: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Delegation]:
        """Return a page of delegations, oldest first, each with whether it resumed earlier work."""

    async def resumable(self, *, agent: str | None = None, limit: int = 20) -> SessionList:
        """Return sessions that could be resumed, suspended ones first."""

    async def fork(
        self,
        ref: str,
        *,
        at: int | None = None,
        name: str | None = None,
        session_id: str | None = None,
        agent: str | None = None,
        purpose: str | None = None,
        metadata: dict[str, Any] | None = None,
        task_id: str | None = None,
        ttl: object = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """Start a new session from entry `at` of another. Both share the earlier entries."""

    async def save_checkpoint(
        self, ref: str, checkpoint: dict[str, Any], *, token: str | None = None, idempotency_key: str | None = None
    ) -> Checkpoint:
        """Save a checkpoint without suspending the session."""

    async def checkpoint(self, ref: str, number: int | None = None) -> Checkpoint:
        """Return the newest checkpoint, or the one with that entry number."""

    async def checkpoints(self, ref: str, *, before: int | str | None = None, limit: int = 100) -> Page[Checkpoint]:
        """Return a page of checkpoints, newest first; pass `next` as `before` for older ones."""

    # Conversation ---------------------------------------------------------------------------------

    async def append(self, ref: str, messages: object, *, token: str | None = None) -> EntryList:
        """Append messages and return them as entries with their numbers. No run is requested."""

    async def send(
        self,
        ref: str,
        content: object,
        *,
        agent: str | None = None,
        parameters: dict[str, Any] | None = None,
        client_key: str | None = None,
        token: str | None = None,
        run: bool | None = None,
        queue: bool = False,
        wake: bool = True,
    ) -> Answer:
        """Send a user's message. It requests a run if the agent can be started; otherwise it is only stored.

        `agent` names another agent to answer in this session; an error is raised if it cannot be started. `parameters`
        are passed to the agent.

        The message resumes a suspended session, unless `wake` is false, and ends a hold of the caller. If another
        holder has the session, the message is refused, or waits with `queue`. With `run=True`, an agent that cannot be
        started is an error. With `run=False`, or with a token and no `run`, no run is requested.
        """

    async def messages(
        self,
        ref: str,
        *,
        last: int | None = None,
        turns: int | None = None,
        tokens: int | None = None,
        max_bytes: int | None = None,
        before: int | str | None = None,
        after: int | str | None = None,
        limit: int = 100,
        count_tokens: TokenCounter | None = None,
    ) -> Page[Entry]:
        """Return a window (`last`, `turns`, `tokens`, `max_bytes`), or a plain page before or after a number.

        A window never separates a tool call from its result and keeps system messages and the newest summary. For
        older messages, pass `next` as `before`; on a page after a number, pass it as `after`. A window before or after
        a number has only messages from there.
        """

    async def log(
        self,
        ref: str,
        *,
        after: int | str = 0,
        before: int | str | None = None,
        limit: int = 100,
        kinds: Iterable[str] | None = None,
        newest_first: bool = False,
    ) -> Page[Entry]:
        """Return a page of the log; pass `next` as `after` (or `before`, newest first) for the next one."""

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
        """Add a summary, given or written by an agent, that replaces the earlier messages in later windows."""

    async def search(self, text: str, *, limit: int = 20) -> Hits:
        """Return entries that contain all these words."""

    def events(self, ref: str | None = None, *, after: int | str = 0, follow: bool = True) -> AsyncIterator[Event]:
        """Yield the events of one session or of all after a cursor, then new ones; `end` is after the newest."""

    # Runs -----------------------------------------------------------------------------------------

    async def run(
        self,
        agent: str | None,
        prompt: object,
        *,
        mode: str = "sync",
        session: str | None = None,
        parent: str | UnsetType | None = UNSET,
        join: str = "each",
        correlation: str | None = None,
        parameters: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
        expires_in: object = None,
        timeout: float | None = None,
        name: str | None = None,
        purpose: str | None = None,
        metadata: dict[str, Any] | None = None,
        task_id: str | None = None,
        session_id: str | None = None,
        project_dir: str | None = None,
        ttl: object = None,
        token: str | None = None,
        queue: bool = False,
        wake: bool = True,
        on_event: EventListener | None = None,
    ) -> RunAnswer:
        """Ask an agent, in a new session or in `session`; with mode `sync`, wait for the answer.

        Without `agent`, ask the agent of `session`. `parameters` are passed to the agent; such a run has a turn of its
        own. `token`, `queue` and `wake` work as for `send`. Inside an agent, the parent is that agent's session, and a
        session that a person suspended stays suspended. A launcher does the work: a running one, or one of this
        connection. `on_event` gets the session's id and each event until this call ends: first `asked`, with the
        `run_id`, then the output of agents as it comes, from launchers of this connection or of the server.
        """

    async def get_run(self, run_id: str) -> Run:
        """Return a run as it is now."""

    async def runs(
        self,
        *,
        session: str | None = None,
        parent: str | None = None,
        agent: str | None = None,
        state: str | None = None,
        open_only: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Run]:
        """Return a page of runs, newest first."""

    async def result(self, run_id: str, *, wait: float | None = None) -> Run:
        """Return a run once it has settled, or when `wait` seconds are over."""

    async def stop(self, ref: str, *, tree: bool = True) -> Texts:
        """Stop all runs of a session and its descendants; return the ids of those in which something ends."""

    async def stop_run(self, run_id: str) -> Run:
        """Stop one run."""

    async def retry(self, run_id: str) -> Run:
        """Retry a failed run, as a new run with its prompt and its dead letters.

        A repeated request returns the same new run. Raises RunNotFailed if the run did not fail.
        """

    async def inbox(
        self, ref: str | None = None, *, dead_letters: bool = False, limit: int = 100, cursor: str | None = None
    ) -> Page[Item]:
        """Return the waiting input of one session or of all; with `dead_letters`, the dead letters."""

    async def send_again(self, item_id: str) -> Item:
        """Send a dead letter again: it waits for the next turn."""

    # Agents, tools and launchers ------------------------------------------------------------------

    async def agents(self) -> AgentList:
        """Return all agents by name, and the problems of invalid definition files."""

    async def agent(self, name: str) -> dict[str, Any]:
        """Return the definition of an agent."""

    async def define_agent(
        self,
        definition: str | dict[str, Any],
        *,
        replace: bool = False,
        dry_run: bool = False,
        source: str = "the definition",
    ) -> dict[str, Any]:
        """Add an agent from the text of a TOML file, or its table; errors name it `source`.

        With `dry_run`, only check the definition.
        """

    async def remove_agent(self, name: str) -> dict[str, Any]:
        """Remove an added agent, and return it. Its sessions stay."""

    async def tools(self) -> Tools:
        """Return all tools by name, with the parameters of their operations."""

    async def call_tool(
        self,
        tool: str,
        operation: str | None = None,
        parameters: dict[str, Any] | None = None,
        *,
        session: str | None = None,
    ) -> ToolAnswer:
        """Call a tool: the operation that fits, unless one is named. With `session`, log the call and its result."""

    async def launchers(self) -> Page[Launcher]:
        """Return launchers that work for the caller, newest first, without those that exited normally."""

    async def drain_launcher(self, launcher_id: str, *, drain: bool = True) -> Launcher:
        """Let a launcher finish its turns and take no new ones, or with `drain=False` take them again.

        A launcher that is a process of its own exits after its last turn; that of a server waits. A restart ends
        the draining. The launcher is given by its id, the beginning of its id, or its name.
        """

    # Families -------------------------------------------------------------------------------------

    async def children(self, ref: str, *, limit: int = 50, cursor: str | None = None) -> Page[Session]:
        """Return a page of a session's children, oldest first."""

    async def count_children(self, ref: str) -> int:
        """Return the number of a session's children."""

    async def ancestors(self, ref: str) -> SessionList:
        """Return parent, grandparent … up to the root."""

    async def tree(self, ref: str) -> TreeNode:
        """Return a session with all its descendants."""

    async def delete(
        self, ref: str, *, cascade: bool = True, force: bool = False, dry_run: bool = False, reason: str = "deleted"
    ) -> Deletion:
        """Delete a session with its tree; with `dry_run`, only return what would be deleted."""

    async def deleted(
        self, *, reason: str | None = None, since: datetime | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[Tombstone]:
        """Return deleted sessions, newest first: when, by whom and why."""

    async def cleanup(
        self,
        hours: float | None = None,
        *,
        states: Iterable[str] | None = None,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Cleanup:
        """Delete sessions that were idle for the configured time, or for `hours`, or are past their TTL."""

    # Approvals ------------------------------------------------------------------------------------

    async def request_approval(
        self,
        ref: str,
        question: str,
        *,
        plan: Any = None,
        options: Iterable[str] = (),
        expires_in: object = None,
        idempotency_key: str | None = None,
    ) -> Approval:
        """Ask a person for approval; the session waits in phase `approval`."""

    async def approvals(self, ref: str | None = None, *, pending_only: bool = True, limit: int = 100) -> ApprovalList:
        """Return approvals of one session or of all, oldest first."""

    async def approval(self, approval_id: str) -> Approval:
        """Return an approval as it is now."""

    async def decide(
        self,
        approval_id: str,
        decision: str,
        *,
        note: str | None = None,
        by: str | None = None,
        plan_hash: str | None = None,
    ) -> Approval:
        """Answer an approval: approve, reject, or one of its options; `withdraw` ends it without an answer."""

    async def approve(self, approval_id: str, *, note: str | None = None, by: str | None = None) -> Approval:
        """Approve."""

    async def reject(self, approval_id: str, *, note: str | None = None, by: str | None = None) -> Approval:
        """Reject."""

    # Keys -----------------------------------------------------------------------------------------

    async def create_key(
        self,
        *,
        owner: str | None = None,
        scopes: Iterable[str] = ("read", "write"),
        name: str | None = None,
        owners: Iterable[str] | None = None,
        expires_in: object = None,
    ) -> NewKey:
        """Create an access key for servers. Only this answer has its text."""

    async def keys(self, *, owner: str | None = None) -> Page[Key]:
        """Return the keys of an owner, or of all, oldest first, including revoked ones."""

    async def revoke_key(self, key_id: str) -> Key:
        """Revoke a key. Repeating it is harmless."""

    # Transfer and care ----------------------------------------------------------------------------

    def export(self, ref: str, *, tree: bool = False, format: str = "jsonl") -> AsyncIterator[str]:
        """Yield a session as lines: `jsonl` (whole, importable) or `markdown` (to read)."""

    async def import_(
        self, lines: Iterable[str | bytes], *, detach: bool = False, dry_run: bool = False
    ) -> ImportReport:
        """Import exported sessions. Importing twice changes nothing."""

    async def stats(
        self,
        *,
        agent: str | None = None,
        task_id: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        by: str | None = None,
    ) -> Analytics:
        """Count sessions, delegations, resumes, errors and more, with their targets.

        `by` groups the figures: agent, task, hour, day or week.
        """

    async def import_files(
        self,
        paths: Iterable[Source],
        *,
        source: str = "auto",
        detach: bool = False,
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> ImportReport:
        """Import sessions from files and folders of this machine: exports, and histories of other programs.

        Those are state.json files, transcripts of Claude Code, and lists of messages of chat APIs. Their valid parts
        are imported; the report lists the others with place and reason.
        """

    async def check(self) -> Texts:
        """Check the stored data and return its problems as texts."""

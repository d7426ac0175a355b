"""Moorage without `await`, for type checkers. Written by scripts/sync_stub.py; do not edit."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Literal, overload

from msgspec import UNSET, UnsetType

from moorage.client import Approvals, Entries, Hearer, Hits, Problems, Sessions, Stopped, Tools
from moorage.client import Moorage as AsyncMoorage
from moorage.core.approval import Approval
from moorage.core.context import ContextItem
from moorage.core.delegation import Delegation
from moorage.core.entry import Entry
from moorage.core.event import Event
from moorage.core.family import Deletion, Tombstone
from moorage.core.inbox import Item
from moorage.core.key import Key
from moorage.core.policy import Verdict
from moorage.core.query import Page
from moorage.core.run import Run
from moorage.core.session import Session
from moorage.core.tool import ToolAnswer
from moorage.core.turn import Launcher
from moorage.core.window import TokenCounter
from moorage.files.finding import Source
from moorage.service.agents import AgentList
from moorage.service.analytics import Analytics
from moorage.service.context import ContextWritten
from moorage.service.conversation import Reply
from moorage.service.delegation import Delegated
from moorage.service.family import TreeNode
from moorage.service.importing import ImportReport
from moorage.service.keys import NewKey
from moorage.service.retention import Cleanup
from moorage.service.runs import RunReply
from moorage.service.sessions import Checkpoint, HeldPacket, ResumePacket

ASKING = ("run", "compact")

def on_server(moor: AsyncMoorage) -> Moorage:
    """What a server's sessions are without `await`."""

class ContextDoor:
    """`moor.context`: a session's keyed memory."""

    def get(self, ref: str, key: str | None = None) -> Any:
        """The whole context, or one key's value; nothing there is `{}`."""

    def items(self, ref: str) -> dict[str, ContextItem]:
        """The context with versions and expiries."""

    def put(self, ref: str, key: str, value: Any, *, ttl: object = None, version: int | None = None) -> ContextWritten:
        """Remember a value under a key."""

    def merge(
        self, ref: str, values: dict[str, Any], *, ttl: object = None, version: int | None = None
    ) -> ContextWritten:
        """Remember several values; other keys stay."""

    def replace(
        self, ref: str, values: dict[str, Any], *, ttl: object = None, version: int | None = None
    ) -> ContextWritten:
        """Make these values the whole context."""

    def delete(self, ref: str, key: str | None = None, *, version: int | None = None) -> ContextWritten:
        """Forget a key, or everything."""

class Moorage:
    """Sessions on one store."""

    context: ContextDoor

    def __init__(self, target: AsyncMoorage, drive: Callable[..., Any] | None = None) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
    def __enter__(self) -> Moorage: ...
    def __exit__(self, *_: object) -> None: ...
    def close(self) -> None:
        """Let the store go. Nothing acknowledged depends on it."""

    def create(
        self,
        agent: str | None = None,
        *,
        name: str | None = None,
        purpose: str | None = None,
        metadata: dict[str, Any] | None = None,
        parent: str | UnsetType | None = UNSET,
        task_id: str | None = None,
        session_id: str | None = None,
        project_dir: str | None = None,
        ttl: object = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """Open a new session. Inside an agent its parent is that agent's session, unless `parent` says otherwise.

        With an `idempotency_key`, asked again within 24 hours, it is the session that was made the first time.
        """

    def get(self, ref: str, *, messages: int | None = None) -> Session:
        """A session by id or name; with a number, a window of so many last messages is in its `messages`."""

    def resolve(self, ref: str) -> str:
        """The id behind an id, a name, or a prefix that fits only one session."""

    def list(
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
        """A page of sessions; pass its `next` as `cursor` for what follows."""

    def update(
        self,
        ref: str,
        *,
        phase: str | None = None,
        metadata: dict[str, Any] | None = None,
        error: str | None = None,
        resume_ready: bool | None = None,
        version: int | None = None,
        token: str | None = None,
    ) -> Session:
        """Change phase, metadata or readiness, or count an error; all of it or nothing."""

    def suspend(
        self,
        ref: str,
        *,
        checkpoint: dict[str, Any] | None = None,
        reason: str | None = None,
        version: int | None = None,
        token: str | None = None,
    ) -> Session:
        """Pause a session, keeping what its agent hands over."""

    @overload
    def resume(
        self, ref: str, *, hold: Literal[True] = True, holder: str | None = None, version: int | None = None
    ) -> HeldPacket:
        """Take a session to drive: session, hold, checkpoint, context and messages.

        With `hold=False` its agent goes on instead: a suspended session becomes active, one that is active or running
        is left as it is, and the packet has no hold.
        """

    @overload
    def resume(
        self, ref: str, *, hold: bool, holder: str | None = None, version: int | None = None
    ) -> ResumePacket: ...
    def release(self, ref: str, *, token: str | None = None) -> Session:
        """Give the hold up, so that others may resume."""

    def finalize(
        self,
        ref: str,
        outcome: str = "completed",
        *,
        summary: str | None = None,
        version: int | None = None,
        token: str | None = None,
    ) -> Session:
        """Close a session: completed, failed or abandoned."""

    def should_resume(
        self,
        ref: str | None = None,
        *,
        agent: str | None = None,
        task_id: str | None = None,
        project_dir: str | None = None,
        host: str | None = None,
        holder: str | None = None,
    ) -> Verdict:
        """May this work be picked up? Decision, reason, and every criterion with its value.

        Without a ref the newest fitting session of that agent is looked for: of the same task, under
        the session `host`, or in the same folder.
        """

    def delegate(
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
        """`should_resume`, counted as a delegation; with `create`, a new session if there is none to pick up."""

    def delegations(
        self,
        *,
        agent: str | None = None,
        task_id: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Delegation]:
        """What was delegated, oldest first, and whether earlier work was picked up."""

    def resumable(self, *, agent: str | None = None, limit: int = 20) -> Sessions:
        """What could be picked up, suspended sessions first."""

    def fork(
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
        """Start a new session from entry `at` of another, without copying what came before."""

    def save_checkpoint(
        self, ref: str, checkpoint: dict[str, Any], *, token: str | None = None, idempotency_key: str | None = None
    ) -> Checkpoint:
        """Keep a checkpoint without pausing."""

    def checkpoint(self, ref: str, number: int | None = None) -> Checkpoint:
        """The newest checkpoint, or the one with that entry number."""

    def checkpoints(self, ref: str, *, before: int | str | None = None, limit: int = 100) -> Page[Checkpoint]:
        """Checkpoints, newest first; pass `next` as `before` for older ones."""

    def append(self, ref: str, messages: object, *, token: str | None = None) -> Entries:
        """Say something; the entries with their numbers. Starts nothing."""

    def send(
        self,
        ref: str,
        content: object,
        *,
        client_key: str | None = None,
        token: str | None = None,
        run: bool | None = None,
        queue: bool = False,
        wake: bool = True,
    ) -> Reply:
        """Say something to the agent as its user: a run, if the agent can be started; else it is only kept.

        Asking resumes a suspended session, unless `wake` is false, and ends a hold of yours. While somebody else
        holds the session it is refused, or waits with `queue`. With `run=True` an agent that cannot be started is an
        error; with `run=False`, or with a token and nothing said about `run`, it starts nothing.
        """

    def run(
        self,
        agent: str | None,
        prompt: object,
        *,
        mode: str = "sync",
        session: str | None = None,
        parent: str | UnsetType | None = UNSET,
        join: str = "each",
        correlation: str | None = None,
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
        on_event: Hearer | None = None,
    ) -> RunReply:
        """Ask an agent for something, in a session of its own or in `session`; with mode `sync`, wait for the answer.

        The agent of `session` need not be named; `token`, `queue` and `wake` are as for `send`. Inside an agent
        its parent is that agent's session, and it does not wake what a person suspended. A
        launcher does the work: one that is running, or one of this connection. `on_event` is told the
        session's id and what happens until this call ends: first `asked`, with the `run_id`; then what
        agents say while they say it, if the launcher is this connection's or on a server the server's.
        """

    def get_run(self, run_id: str) -> Run:
        """One run as it stands."""

    def runs(
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
        """A page of runs, newest first."""

    def result(self, run_id: str, *, wait: float | None = None) -> Run:
        """A run once it has settled, or when `wait` seconds are over."""

    def stop(self, ref: str, *, tree: bool = True) -> Stopped:
        """Stop what runs in a session, and in all that hang on it; the ids of those told to."""

    def stop_run(self, run_id: str) -> Run:
        """Stop one run."""

    def retry(self, run_id: str) -> Run:
        """Ask again what a failed run was asked: a new run, with its prompt and its dead letters.

        A run is retried once: asked again, the same new run answers. Raises RunNotFailed if it did not fail.
        """

    def inbox(
        self, ref: str | None = None, *, set_aside: bool = False, limit: int = 100, cursor: str | None = None
    ) -> Page[Item]:
        """What waits for a session's next turn, or what was set aside; of one session, or of all."""

    def send_again(self, item_id: str) -> Item:
        """Let what was set aside wait for the next turn again."""

    def agents(self) -> AgentList:
        """Agents by name, with what is wrong in files that describe none."""

    def agent(self, name: str) -> dict[str, Any]:
        """One agent as it is defined."""

    def define_agent(
        self,
        definition: str | dict[str, Any],
        *,
        replace: bool = False,
        dry_run: bool = False,
        source: str = "the definition",
    ) -> dict[str, Any]:
        """Add the agent that the text of a TOML file, or its table, describes; `source` is what errors call it.

        With `dry_run` it is only said what is wrong with it, if anything is.
        """

    def remove_agent(self, name: str) -> dict[str, Any]:
        """Remove an agent that was added; its sessions stay. The agent as it was."""

    def tools(self) -> Tools:
        """Tools by name, with what each of their operations takes."""

    def call_tool(
        self,
        tool: str,
        operation: str | None = None,
        parameters: dict[str, Any] | None = None,
        *,
        session: str | None = None,
    ) -> ToolAnswer:
        """Call a tool: the operation that fits, unless one is named. With `session`, its log has call and result."""

    def launchers(self) -> Page[Launcher]:
        """Launchers that work for the caller, newest first; not those that have ended in good order."""

    def drain_launcher(self, launcher_id: str, *, drain: bool = True) -> Launcher:
        """Let a launcher take no more turns, or with `drain=False` take them again; what it has at work goes on.

        One that is a process of its own ends when nothing is left; a server's own goes on waiting. It holds for
        this start of the launcher, which may also be named by its name, or the beginning of its id.
        """

    def messages(
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
        """A window (last, turns, tokens, max_bytes), or a plain page before or after a number.

        A window never separates a tool call from its result, keeps system messages and the
        newest summary. `next` goes into `before` for what is older (a page after a number:
        into `after`); a window before or after a number has only what was said there.
        """

    def log(
        self,
        ref: str,
        *,
        after: int | str = 0,
        before: int | str | None = None,
        limit: int = 100,
        kinds: Iterable[str] | None = None,
        newest_first: bool = False,
    ) -> Page[Entry]:
        """Entries of the log; pass `next` as `after` (or `before`, newest first) for what follows."""

    def compact(
        self,
        ref: str,
        summary: str | None = None,
        *,
        agent: str | None = None,
        upto: int | None = None,
        token: str | None = None,
        idempotency_key: str | None = None,
    ) -> Entry:
        """Add a summary that stands for what came before in every later window: yours, or one that an agent writes."""

    def search(self, text: str, *, limit: int = 20) -> Hits:
        """Entries that have all these words."""

    def events(self, ref: str | None = None, *, after: int | str = 0, follow: bool = True) -> Iterator[Event]:
        """What happened after the cursor, then what comes: of one session, or of all. `end` is after the newest."""

    def children(self, ref: str, *, limit: int = 50, cursor: str | None = None) -> Page[Session]:
        """The session's children, oldest first."""

    def count_children(self, ref: str) -> int:
        """How many children a session has."""

    def ancestors(self, ref: str) -> Sessions:
        """Parent, grandparent … up to the root."""

    def tree(self, ref: str) -> TreeNode:
        """The session with all that hangs on it."""

    def delete(
        self, ref: str, *, cascade: bool = True, force: bool = False, dry_run: bool = False, reason: str = "deleted"
    ) -> Deletion:
        """Delete a session with its tree, or say what would go."""

    def deleted(
        self, *, reason: str | None = None, since: datetime | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[Tombstone]:
        """What was deleted, when, by whom and why; newest first."""

    def cleanup(
        self,
        hours: float | None = None,
        *,
        states: Iterable[str] | None = None,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Cleanup:
        """Delete what nobody touched for as long as the policy says, or for so many hours, and what is past its TTL."""

    def request_approval(
        self,
        ref: str,
        question: str,
        *,
        plan: Any = None,
        options: Iterable[str] = (),
        expires_in: object = None,
        idempotency_key: str | None = None,
    ) -> Approval:
        """Put a question to a person; the session waits in phase `approval`."""

    def approvals(self, ref: str | None = None, *, pending_only: bool = True, limit: int = 100) -> Approvals:
        """Approvals, oldest first."""

    def approval(self, approval_id: str) -> Approval:
        """One approval as it stands."""

    def decide(
        self,
        approval_id: str,
        decision: str,
        *,
        note: str | None = None,
        by: str | None = None,
        plan_hash: str | None = None,
    ) -> Approval:
        """Answer an approval: approve, reject, or one of its options."""

    def approve(self, approval_id: str, *, note: str | None = None, by: str | None = None) -> Approval:
        """Say yes."""

    def reject(self, approval_id: str, *, note: str | None = None, by: str | None = None) -> Approval:
        """Say no."""

    def create_key(
        self,
        *,
        owner: str | None = None,
        scopes: Iterable[str] = ("read", "write"),
        name: str | None = None,
        owners: Iterable[str] | None = None,
        expires_in: object = None,
    ) -> NewKey:
        """Make a key for a server's door. Its text is in this answer and nowhere else."""

    def keys(self, *, owner: str | None = None) -> Page[Key]:
        """The keys of an owner, or of all, oldest first; revoked ones too."""

    def revoke_key(self, key_id: str) -> Key:
        """Let a key count no more. Twice is harmless."""

    def export(self, ref: str, *, tree: bool = False, format: str = "jsonl") -> Iterator[str]:
        """A session as lines: `jsonl` (whole, importable) or `markdown` (to read)."""

    def import_(self, lines: Iterable[str | bytes], *, detach: bool = False, dry_run: bool = False) -> ImportReport:
        """Bring exported sessions in. Importing twice changes nothing."""

    def stats(
        self,
        *,
        agent: str | None = None,
        task_id: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        by: str | None = None,
    ) -> Analytics:
        """How much was done, how much of it was picked up again and how it went, beside what is aimed at.

        `by` groups it: agent, task, hour, day or week.
        """

    def import_files(
        self,
        paths: Iterable[Source],
        *,
        source: str = "auto",
        detach: bool = False,
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> ImportReport:
        """Bring in what files and folders of this machine hold: exports, or what others kept.

        That is state.json files, transcripts of Claude Code, and lists of messages as chat APIs have them.
        What others kept comes in as far as it is sound; the report tells what was left out, where and why.
        """

    def check(self) -> Problems:
        """What is wrong with the stored data, in words; empty if nothing is."""

def connect(
    url: str | None = None,
    *,
    owner: str = "local",
    by: str | None = None,
    interface: str = "python",
    holder: str | None = None,
    key: str | None = None,
    deadline: float | None = None,
) -> Moorage:
    """Sessions on the store that `url` names, opened at once, or on a server.

    Without a URL: MOORAGE_URL, else an SQLite file in the user's data folder. `key` and `deadline` are
    for servers: what to show at the door (else MOORAGE_TOKEN, else MOORAGE_KEY), and after how many
    seconds without an answer the server counts as unreachable (30).
    """

"""Families: children, ancestors, trees, and deleting them."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct, field
from msgspec.structs import replace

from moorage.core.brief import brief
from moorage.core.errors import SessionCorrupt
from moorage.core.family import Deletion, Member, Tombstone, TombstoneQuery, check_deletion
from moorage.core.ids import check_label, check_ref
from moorage.core.query import Page, SessionQuery, check_instant, check_limit
from moorage.core.session import Session
from moorage.core.turn import LEASE, name_of
from moorage.service.deps import Caller, Deps, stamp_of
from moorage.service.launchers import all_launchers
from moorage.service.sessions import list_sessions
from moorage.service.status import told, without_due

MAX_TREE = 100_000
ENDED_WITHIN = timedelta(seconds=8)  # a launcher stops an agent within a second or two, and gives it five
LOOK_AGAIN = 0.25  # seconds


@brief("session", "children")
class TreeNode(Struct, kw_only=True):
    """A session with its children."""

    session: Session
    children: list[TreeNode] = field(default_factory=list)


async def children_of(
    deps: Deps, caller: Caller, ref: str, *, limit: int = 50, cursor: str | None = None
) -> Page[Session]:
    """Return the session's children, oldest first."""
    check_ref(ref)
    return await list_sessions(deps, caller, SessionQuery(parent=ref, sort="created", limit=limit, cursor=cursor))


async def count_children(deps: Deps, caller: Caller, ref: str) -> int:
    """Return the number of children of a session."""
    return await deps.store.count_children(caller.owner, ref)


async def ancestors_of(deps: Deps, caller: Caller, ref: str) -> list[Session]:
    """Return the ancestors: parent, grandparent … up to the root."""
    return await told(deps, await deps.store.ancestors(caller.owner, ref))


async def tree_of(deps: Deps, caller: Caller, ref: str) -> TreeNode:
    """Return the session with its descendants."""
    sessions = await told(deps, await deps.store.tree(caller.owner, ref, MAX_TREE))
    nodes: dict[str, TreeNode] = {}
    for session in sessions:  # parents come before their children
        node = nodes[session.session_id] = TreeNode(session=session)
        if session.parent_session_id in nodes:
            nodes[session.parent_session_id].children.append(node)
    return nodes[sessions[0].session_id]


async def delete_session(
    deps: Deps,
    caller: Caller,
    ref: str,
    *,
    cascade: bool = True,
    force: bool = False,
    dry_run: bool = False,
    reason: str = "deleted",
) -> Deletion:
    """Delete a session with its tree, or return what would be deleted.

    With force, agents at work in the tree are stopped afterwards; the answer names those without confirmation in time.
    Raises HasChildren without cascade, SessionRunning without force.
    """
    why, at_work = check_label("reason", reason), list[str]()

    def decide(members: list[Member]) -> str:
        check_deletion(root, members, cascade=cascade, force=force)
        at_work[:] = [member.session_id for member in members if member.is_running]
        return why

    try:
        [head] = await without_due(deps, [await deps.store.get(caller.owner, ref)])
        root = head.session_id
    except SessionCorrupt as corrupt:  # an unreadable session can still be deleted
        root = corrupt.session_id
    gone = await deps.store.delete_tree(caller.owner, root, decide, stamp_of(deps, caller), dry_run=dry_run)
    if dry_run or not at_work:
        return gone
    return replace(gone, unconfirmed=await _unconfirmed(deps, caller.owner, at_work))


async def _unconfirmed(deps: Deps, owner: str, at_work: list[str]) -> list[str]:
    """Return the deleted sessions whose agents no launcher has confirmed as ended within `ENDED_WITHIN`."""
    ends = deps.clock.monotonic() + ENDED_WITHIN.total_seconds()
    while True:
        seen, now = deps.store.pulse(), deps.clock.now()
        launchers = await all_launchers(deps.store)
        ended = {name for launcher in launchers for name in launcher.ended_sessions}
        left = [session_id for session_id in at_work if name_of(owner, session_id) not in ended]
        has_live_launcher = any(now - launcher.seen_at < LEASE for launcher in launchers)
        if not left or deps.clock.monotonic() >= ends or not has_live_launcher:
            return left
        await deps.store.wait(seen, LOOK_AGAIN)


async def deleted_sessions(
    deps: Deps,
    caller: Caller,
    *,
    reason: str | None = None,
    since: datetime | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> Page[Tombstone]:
    """Return the deleted sessions: when, by whom and why; newest first."""
    check_instant("since", since)
    query = TombstoneQuery(reason=None if reason is None else check_label("reason", reason), since=since)
    return await deps.store.tombstones(caller.owner, check_limit(limit), cursor, query)

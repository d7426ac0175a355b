"""Families: how a session is created under a parent, forked from another, and deleted with its tree.

A child's parent, root and depth are set at creation and never change. Deleting a
parent deletes its tree; children are never orphaned.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zlib import crc32

from msgspec import Struct, field
from msgspec.structs import replace

from moorage.core.brief import brief
from moorage.core.codec import canonical
from moorage.core.entry import SESSION_DELETED, Event, Kind
from moorage.core.errors import FamilyLimit, HasChildren, OwnAncestor, SessionGone, SessionRunning
from moorage.core.session import Birth, Change, Session, Stamp, merged_metadata

MAX_DEPTH = 16
MAX_OPEN_CHILDREN = 1000


class NewSession(Struct, frozen=True, kw_only=True):
    """A request to create a session: checked, with its ids."""

    session_id: str
    session_name: str | None = None
    task_id: str | None = None
    spare_task_id: str  # used when neither the request nor the parent names a task
    agent_name: str | None = None
    purpose: str | None = None
    project_dir: str | None = None
    owner: str = "local"
    metadata: dict[str, Any] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    expires_at: datetime | None = None


class FamilyLimits(Struct, frozen=True, kw_only=True):
    """The limits on the size of a tree."""

    depth: int = MAX_DEPTH
    open_children: int = MAX_OPEN_CHILDREN


def born(new: NewSession, birth: Birth, stamp: Stamp, limits: FamilyLimits) -> Change:
    """Return a new session, under its parent if it has one."""
    session, parent = _root(new, stamp), birth.parent
    birth.asker.check_not_stopped()
    if parent is not None:
        parent.check_open()
        _check_may_have_child(parent, birth, new, limits)
        session = replace(
            session,
            task_id=new.task_id or parent.task_id,
            parent_session_id=parent.session_id,
            parent_session_name=parent.session_name,
            root_session_id=parent.root_session_id,
            depth=parent.depth + 1,
        )
    change = session.changed(stamp, [(Kind.CREATED, {"agent_name": new.agent_name, "purpose": new.purpose})])
    return change if parent is None else replace(change, open_at_most=limits.open_children)


def _root(new: NewSession, stamp: Stamp) -> Session:
    return Session(
        session_id=new.session_id,
        session_name=new.session_name,
        task_id=new.task_id or new.spare_task_id,
        agent_name=new.agent_name,
        purpose=new.purpose,
        project_dir=new.project_dir,
        owner=new.owner,
        interface=stamp.interface,
        root_session_id=new.session_id,
        version=0,
        metadata=new.metadata,
        labels=new.labels,
        created_at=stamp.at,
        updated_at=stamp.at,
        last_activity_at=stamp.at,
        expires_at=new.expires_at,
    )


def _check_may_have_child(parent: Session, birth: Birth, new: NewSession, limits: FamilyLimits) -> None:
    if parent.session_id == new.session_id:
        raise OwnAncestor(new.session_id)
    if parent.depth + 1 > limits.depth:
        raise FamilyLimit(
            "too_deep",
            f"a family may be {limits.depth} generations deep, not more; name another parent, or none",
            limits.depth,
        )
    if birth.open_descendants >= limits.open_children:
        raise FamilyLimit(
            "too_many_children",
            f"the family of {parent.root_session_id} has {birth.open_descendants} open children already; "
            "finalize or delete some",
            limits.open_children,
        )


def forked(source: Session, at: int, checkpoint: int | None, new: NewSession, stamp: Stamp) -> Change:
    """Return a new root that continues from entry `at` of another session, in whatever state that one is."""
    session = replace(
        _root(new, stamp),
        task_id=new.task_id or source.task_id,
        agent_name=new.agent_name or source.agent_name,
        purpose=new.purpose or source.purpose,
        project_dir=new.project_dir or source.project_dir,
        owner=source.owner,
        forked_from=source.session_id,
        last_entry=at,
        last_checkpoint=checkpoint,
        context_version=source.context_version,
        metadata=merged_metadata(source.metadata, new.metadata),
        labels=new.labels or source.labels,
    )
    return session.changed(stamp, [(Kind.FORKED, {"forked_from": source.session_id, "at": at})])


class Member(Struct, frozen=True):
    """A session of a tree that is to be deleted."""

    session_id: str
    depth: int
    is_running: bool = False


@brief("session_id", "deleted_sessions", "messages", "checkpoints", "dry_run")
class Deletion(Struct, frozen=True, kw_only=True):
    """The counts of a deletion or of its dry run."""

    session_id: str
    deleted_sessions: int
    cascaded_children: int
    messages: int
    entries: int
    runs: int = 0
    checkpoints: int
    session_ids: list[str]
    unconfirmed: list[str] = field(default_factory=list)  # sessions whose agents may still be at work
    dry_run: bool = False


@brief("session_name", "session_id", "deleted_at", "deleted_by", "reason")
class Tombstone(Struct, frozen=True, kw_only=True):
    """The record of a deleted session: its id, when, by whom and why it was deleted."""

    session_id: str
    session_name: str | None = None
    agent_name: str | None = None
    task_id: str | None = None
    state: str
    root_of_deletion: str
    deleted_at: datetime
    deleted_by: str | None = None
    reason: str = "deleted"

    def gone(self) -> SessionGone:
        """Return the error for a request that names this session."""
        return SessionGone(self.session_id, at=self.deleted_at, by=self.deleted_by, why=self.reason)

    def event(self, cursor: int) -> Event:
        """Return the event of the deletion, which is the last of the session."""
        told = {name: getattr(self, name) for name in ("session_name", "root_of_deletion", "deleted_by", "reason")}
        return Event(id=cursor, type=SESSION_DELETED, session_id=self.session_id, timestamp=self.deleted_at, data=told)


class TombstoneQuery(Struct, frozen=True, kw_only=True):
    """A query for deleted sessions: those deleted for that reason, at that instant or later."""

    reason: str | None = None
    since: datetime | None = None

    def admits(self, tombstone: Tombstone) -> bool:
        """Return whether a tombstone matches (the stores' SQL does the same)."""
        return self.reason in (None, tombstone.reason) and (self.since is None or tombstone.deleted_at >= self.since)

    def fingerprint(self) -> int:
        """Return the fingerprint that binds cursors to this list."""
        return crc32(canonical(["tombstones", self]))


EVERY_TOMBSTONE = TombstoneQuery()


def check_deletion(root: str, members: list[Member], *, cascade: bool, force: bool) -> None:
    """Raise HasChildren if a child would be orphaned, SessionRunning if a live turn would lose its session."""
    if len(members) > 1 and not cascade:
        raise HasChildren(root, len(members) - 1)
    running = [member.session_id for member in members if member.is_running]
    if running and not force:
        raise SessionRunning(running)

"""Reads of many sessions at once: one call of the store, however many a list shows."""

from __future__ import annotations

from moorage.core.approval import Approval
from moorage.core.query import Page, SessionQuery
from moorage.core.session import Session
from moorage.service.deps import Caller, Deps
from moorage.service.status import told


async def sessions_of(deps: Deps, caller: Caller, session_ids: list[str]) -> list[Session | None]:
    """The sessions with these ids; None where there is none."""
    found = await deps.store.get_many(caller.owner, session_ids)
    there = iter(await told(deps, [session for session in found if session is not None]))
    return [None if session is None else next(there) for session in found]


async def pages_of(deps: Deps, caller: Caller, queries: list[SessionQuery]) -> list[Page[Session]]:
    """A page of sessions for each query, whose parent is named by its id."""
    pages = await deps.store.find_many(caller.owner, queries)
    every = iter(await told(deps, [session for page in pages for session in page.items]))
    return [Page([next(every) for _ in page.items], page.next) for page in pages]


async def approvals_of(
    deps: Deps, caller: Caller, session_ids: list[str], *, pending_only: bool, limit: int
) -> list[list[Approval]]:
    """What `approvals.list_approvals` gives for each session."""
    return await deps.store.approvals_of(caller.owner, session_ids, pending_only=pending_only, limit=limit)

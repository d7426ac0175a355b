"""Writing the context. What has expired is dropped by the next write."""

from __future__ import annotations

from moorage.core.context import ContextChange
from moorage.ports import ContextDecision
from moorage.stores.postgres import heads, writes
from moorage.stores.postgres.connection import Connection
from moorage.stores.sql.context import items


async def write(
    db: Connection,
    owner: str,
    ref: str,
    decide: ContextDecision,
    at: int,
    key: str | None,
    expected: int | None = None,
) -> ContextChange:
    """Load, decide, write. Whoever writes to a context changes its head, too: so the head's revision guards both."""
    pk, revision, session = await heads.load(db, owner, ref)
    session.check_version(expected)
    change = decide(session, await items(db, owner, pk, at, key))
    if change.session == session:
        return change
    written = writes.head(db, pk, revision, change.session)
    written["context"] = {"at": at, "drop": list(change.drop), "put": writes.context_items(db, pk, change.put)}
    await writes.commit(db, owner, [written])
    return change

"""How far a session's token reaches: that session and its descendants, and nothing beside them."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from moorage.core.errors import NotFound, OutOfReach
from moorage.doors.http.visit import Visit, Visitor
from moorage.remote.operations import Arguments, Operation
from moorage.service import keys


async def check_reach(moor: Visit, visitor: Visitor, operation: Operation, arguments: Arguments) -> None:
    """Raise OutOfReach unless everything the request names belongs to the token's family, and it names something."""
    own = visitor.session_id
    assert own is not None
    if not operation.to_token:
        raise OutOfReach(own)
    if operation.name in ("agents", "agent", "tools"):
        return  # whom there is to delegate to, and what there is to call, is for every agent to know
    if operation.name in ("create", "run"):
        arguments.setdefault("parent", moor._surrounding_session())
    given = [(name, arguments[name]) for name in operation.refs if arguments.get(name, UNSET) not in (None, UNSET)]
    if not given:
        raise OutOfReach(own)
    for name, ref in given:
        await check_one(moor, visitor, name, ref, strictly=operation.name == "delete")


async def check_one(moor: Visit, visitor: Visitor, name: str, ref: Any, *, strictly: bool = False) -> None:
    """Raise OutOfReach unless this one is the token's session (not if `strictly`) or hangs on it."""
    own = visitor.session_id
    assert own is not None
    try:
        session_id = await _session_behind(moor, name, ref)
    except NotFound:  # what is not there and what is not ours look alike
        raise OutOfReach(own) from None
    if (strictly and session_id == own) or not await keys.reaches(moor.deps, visitor.caller.owner, own, session_id):
        raise OutOfReach(own)


async def _session_behind(moor: Visit, name: str, ref: str) -> str:
    """The id of the session that a reference, a run or an approval belongs to."""
    if name == "run_id":
        return (await moor.get_run(ref)).session_id
    if name == "approval_id":
        return (await moor.approval(ref)).session_id
    return (await moor.get(ref)).session_id

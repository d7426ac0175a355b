"""How far a session's token reaches: that session and its descendants, and nothing beside them."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from holdfast.core.errors import NotFound, OutOfReach
from holdfast.doors.http.visit import Visit, Visitor
from holdfast.remote.operations import Arguments, Operation
from holdfast.service import keys


async def check_reach(hf: Visit, visitor: Visitor, operation: Operation, arguments: Arguments) -> None:
    """Raise OutOfReach unless everything the request names belongs to the token's family, and it names something."""
    own = visitor.session_id
    assert own is not None
    if not operation.to_token:
        raise OutOfReach(own)
    if operation.name in ("agents", "agent", "tools"):
        return  # whom there is to delegate to, and what there is to call, is for every agent to know
    if operation.name in ("create", "run"):
        arguments.setdefault("parent", hf._surrounding_session())
    given = [(name, arguments[name]) for name in operation.refs if arguments.get(name, UNSET) not in (None, UNSET)]
    if not given:
        raise OutOfReach(own)
    for name, ref in given:
        await check_one(hf, visitor, name, ref, strictly=operation.name == "delete")


async def check_one(hf: Visit, visitor: Visitor, name: str, ref: Any, *, strictly: bool = False) -> None:
    """Raise OutOfReach unless this one is the token's session (not if `strictly`) or hangs on it."""
    own = visitor.session_id
    assert own is not None
    try:
        session_id = await _session_behind(hf, name, ref)
    except NotFound:  # what is not there and what is not ours look alike
        raise OutOfReach(own) from None
    if (strictly and session_id == own) or not await keys.reaches(hf.deps, visitor.caller.owner, own, session_id):
        raise OutOfReach(own)


async def _session_behind(hf: Visit, name: str, ref: str) -> str:
    """The id of the session that a reference, a run or an approval belongs to."""
    if name == "run_id":
        return (await hf.get_run(ref)).session_id
    if name == "approval_id":
        return (await hf.approval(ref)).session_id
    return (await hf.get(ref)).session_id

"""Tool calls that wait for a person, as approvals of a session."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from typing import Any

from moorage.api import Moorage
from moorage.core.approval import WITHDRAW, Approval, ApprovalState
from moorage.core.errors import AlreadyDecided, ApprovalClosed, Forbidden

ELSEWHERE = "The run went on: its caller answered."
MAX_QUESTION = 200  # characters of a call shown in its question; the plan has all of it


async def ask_once(moor: Moorage, ref: str, call_id: str, name: str, arguments: Any) -> Approval:
    """Ask whether a tool may be called; return the same approval if asked again for the same call."""
    shown = str(arguments)
    shown = shown if len(shown) <= MAX_QUESTION else f"{shown[:MAX_QUESTION]}…"
    plan = {"tool": name, "arguments": arguments, "call_id": call_id}
    once = f"tool:{ref}:{sha256(call_id.encode()).hexdigest()}"
    return await moor.request_approval(ref, f"Call {name} with {shown}?", plan=plan, idempotency_key=once)


async def withdraw(moor: Moorage, approval_id: str) -> None:
    """Withdraw a question that the caller of the framework has answered, unless it is decided already."""
    with suppress(AlreadyDecided, ApprovalClosed, Forbidden):
        await moor.decide(approval_id, WITHDRAW, note=ELSEWHERE)


def decided(approval: Approval) -> bool | None:
    """Return the decision; None while it is pending. Raises ApprovalClosed if it was withdrawn or has expired."""
    if approval.state is ApprovalState.PENDING:
        return None
    if approval.decision is None:
        raise ApprovalClosed(approval.approval_id, approval.state.value)
    return approval.decision == "approve"

"""Interrupts of a graph as questions to a person, and the answers as the return values of `interrupt()`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME

from moorage.adapters.approvals import withdraw
from moorage.adapters.langgraph.layout import APPROVALS
from moorage.adapters.langgraph.stored import each_record
from moorage.api import Moorage
from moorage.core.approval import Approval, ApprovalState
from moorage.core.codec import check_json, encode
from moorage.core.errors import ApprovalClosed, InvalidRequest
from moorage.core.record import Put

LONGEST = 4000  # characters of a question
WORDS = ("question", "query", "message", "description")  # fields in which graphs put their question
DECISIONS: dict[str, Any] = {"approve": True, "reject": False}

PendingWrite = tuple[str, str, Any]  # a task, a channel and the value written to it


class PendingInterrupt(NamedTuple):
    """An interrupt that waits for an answer."""

    id: str  # a task has one id for all of its interrupts
    number: int  # how many of the task's interrupts were answered before
    value: Any

    @property
    def key(self) -> str:
        """Return the key of its approval."""
        return f"{self.id}/{self.number}"


def waiting_in(writes: Iterable[PendingWrite]) -> list[PendingInterrupt]:
    """Return the interrupts of tasks that have not ended."""
    writes = list(writes)
    done = {task for task, channel, _ in writes if channel not in WRITES_IDX_MAP}
    resumed = {
        task: len(value) if isinstance(value, list) else 1 for task, channel, value in writes if channel == RESUME
    }
    return [
        PendingInterrupt(it.id, resumed.get(task, 0), it.value)
        for task, channel, value in writes
        if channel == INTERRUPT and task not in done
        for it in (value if isinstance(value, (list, tuple)) else [value])
        if isinstance(getattr(it, "id", None), str)
    ]


async def ask(moor: Moorage, session_id: str, waiting: Iterable[PendingInterrupt]) -> None:
    """Ask a person about interrupts, each once."""
    for it in waiting:
        if await moor.records.get(session_id, APPROVALS, it.key) is not None:
            continue
        text, plan, options = question_of(it.value)
        once = f"langgraph:{session_id}:{it.key}"
        asked = await moor.request_approval(session_id, text, plan=plan, options=options, idempotency_key=once)
        put = Put(namespace=APPROVALS, key=it.key, value=asked.approval_id.encode(), keep=True)
        await moor.records.write(session_id, [put])


async def answers(moor: Moorage, session_id: str, waiting: Sequence[PendingInterrupt]) -> dict[str, Any] | None:
    """Return the answers to interrupts by their ids; None while one is open. Raises ApprovalClosed if one expired."""
    found = {}
    await ask(moor, session_id, waiting)  # in case the process died between the interrupt and its question
    for it in waiting:
        record = await moor.records.get(session_id, APPROVALS, it.key)
        approval = None if record is None else await moor.approval(record.value.decode())
        if approval is None or approval.state is ApprovalState.PENDING:
            return None
        if approval.decision is None:
            raise ApprovalClosed(approval.approval_id, approval.state.value)
        found[it.id] = answer_to(it.value, approval)
    return found


async def settle(moor: Moorage, session_id: str) -> None:
    """Withdraw the questions of a session whose graph continued: its own caller gave the answers."""
    asked = {record.value.decode() async for record in each_record(moor, session_id, APPROVALS)}
    for approval in await moor.approvals(session_id):
        if approval.approval_id in asked:
            await withdraw(moor, approval.approval_id)


class InterruptQuestion(NamedTuple):
    """The question for a person."""

    text: str
    plan: Any
    options: tuple[str, ...]


def question_of(value: Any) -> InterruptQuestion:
    """Return the question in the value of an interrupt."""
    plan = _as_json(value)
    if isinstance(plan, str):
        return InterruptQuestion(plan[:LONGEST] or "The graph waits for an answer.", None, ())
    asked = plan if isinstance(plan, dict) else {}
    requests = asked.get("action_requests")
    if isinstance(requests, list) and requests:
        return InterruptQuestion(_actions(requests)[:LONGEST], plan, ())
    text = next((asked[word] for word in WORDS if isinstance(asked.get(word), str) and asked[word]), None)
    options = asked.get("options")
    offered = tuple(options) if isinstance(options, list) and all(isinstance(it, str) and it for it in options) else ()
    return InterruptQuestion((text or encode(plan).decode())[:LONGEST], plan, tuple(dict.fromkeys(offered)))


def answer_to(value: Any, approval: Approval) -> Any:
    """Return a decision as the interrupt expects it: True, False, the chosen option, or decisions on actions."""
    decision = approval.decision or ""
    requests = value.get("action_requests") if isinstance(value, dict) else None
    if isinstance(requests, list) and requests:
        note = {"message": approval.note} if decision == "reject" and approval.note else {}
        return {"decisions": [{"type": decision, **note} for _ in requests]}
    return DECISIONS.get(decision, decision)


def _actions(requests: list[Any]) -> str:
    return "; ".join(
        str(it.get("description") or it.get("name")) if isinstance(it, dict) else str(it) for it in requests
    )


def _as_json(value: Any) -> Any:
    try:
        check_json(value, "interrupt")
    except InvalidRequest:
        return repr(value)
    return value

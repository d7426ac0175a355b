"""Events that could not be stored when they happened: their form in the spool, and their later delivery.

An event keeps its time: if it is stored an hour later, the log has the time at which it happened. Of a question (may
earlier work be resumed?) only the delegation is kept, with its answer.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from moorage import config
from moorage.compat.pre_delegate import read_question
from moorage.core.errors import InvalidField, MoorageError, SessionCorrupt, StoreError
from moorage.core.ids import uuid7
from moorage.core.policy import Delegation
from moorage.doors.hooks import claude_code, plain
from moorage.doors.hooks.context import HookContext, delegation_item, parent_of_host
from moorage.service.inline import drive


class SpooledItem(Struct, frozen=True, kw_only=True):
    """One item of the spool."""

    delegation: Delegation | None = None
    command: str = ""
    event: dict[str, Any] | None = None
    at: datetime | None = None
    parent: str | None = None  # from the host's environment at that time


def as_item(command: str, name: str, event: dict[str, Any], at: datetime, code: str) -> bytes | None:
    """Return an event for the spool; None if it need not be kept."""
    if not (claude_code.concerns_us(name, event) if name else command):
        return None
    if name == "PreToolUse":
        return delegation_item(claude_code.unanswered(event, at, code))
    if not name and command == plain.PRE_DELEGATE:
        return delegation_item(_unanswered(event, at, code))
    return msgspec.json.encode({"command": command, "event": event, "at": at, "parent": parent_of_host()})


def _unanswered(event: dict[str, Any], at: datetime, code: str) -> Delegation:
    asked = read_question(event)
    return Delegation(
        delegation_id=uuid7(int(at.timestamp() * 1000), config.entropy(10)),
        at=at,
        resumed=False,
        reason=code,
        agent_name=asked.place.agent,
        task_id=asked.place.task_id,
        project_dir=asked.place.project_dir,
        session_id=asked.session_id,
    )


def deliver(context: HookContext, *, until: float) -> bool:
    """Store spooled items, oldest first; return whether none is left. Raise StoreError or OSError."""
    return context.spool.take_each(lambda item: _refused(context, item), until=until)


def _refused(context: HookContext, raw: bytes) -> str | None:
    """Store one item; return the reason if it can never be stored, so that it does not block the others."""
    try:
        _store(context, msgspec.json.decode(raw, type=SpooledItem))
    except SessionCorrupt as error:
        return error.message  # one session is damaged, not the store
    except StoreError:
        raise
    except MoorageError as error:
        return error.message
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _store(context: HookContext, item: SpooledItem) -> None:
    if item.delegation is not None:
        drive(context.deps.store.record_delegation(context.caller.owner, item.delegation))
        return
    if item.event is None or item.at is None:
        raise InvalidField("event", "is missing")
    then, name = context.at(item.at, item.parent, is_late=True), item.event.get("hook_event_name")
    if isinstance(name, str) and name:
        claude_code.handle(then, name, item.event)
    elif item.command == plain.SUBAGENT_STOP:
        plain.subagent_stop(then, item.event)
    else:
        raise InvalidField("command", f"is {item.command!r}")

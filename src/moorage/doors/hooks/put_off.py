"""Events that could not be stored when they happened: how they are kept, and how they are taken in.

An event keeps its time: taken in an hour later, the log says when it happened. Of a
question (may earlier work be picked up?) only the delegation is kept, as it was answered.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from moorage import config
from moorage.compat.pre_delegate import read_request, working_folder
from moorage.core.delegation import Delegation
from moorage.core.errors import InvalidField, MoorageError, SessionCorrupt, StoreError
from moorage.core.ids import uuid7
from moorage.doors.hooks import claude_code, plain
from moorage.doors.hooks.desk import Desk, delegation_item, parent_of_host


class Item(Struct, frozen=True, kw_only=True):
    """One thing that waits for the store."""

    delegation: Delegation | None = None
    command: str = ""
    event: dict[str, Any] | None = None
    at: datetime | None = None
    parent: str | None = None  # as the host's environment said then


def as_item(command: str, name: str, event: dict[str, Any], at: datetime, code: str) -> bytes | None:
    """An event for the spool; None if nothing of it is to be kept."""
    if not (claude_code.concerns_us(name, event) if name else command):
        return None
    if name == "PreToolUse":
        return delegation_item(claude_code.unanswered(event, at, code))
    if not name and command == plain.PRE_DELEGATE:
        return delegation_item(_unanswered(event, at, code))
    return msgspec.json.encode({"command": command, "event": event, "at": at, "parent": parent_of_host()})


def _unanswered(event: dict[str, Any], at: datetime, code: str) -> Delegation:
    request = read_request(event)
    return Delegation(
        delegation_id=uuid7(int(at.timestamp() * 1000), config.entropy(10)),
        at=at,
        resumed=False,
        reason=code,
        agent_name=request.agent_name,
        task_id=request.task_id,
        project_dir=request.project_dir or working_folder(),
        session_id=request.agent_id,
    )


def take_in(desk: Desk, *, until: float) -> bool:
    """Store what waits, oldest first; whether there is nothing left to wait for.

    What the store cannot take now goes on waiting. A spool that cannot be used is not waited
    for: what is at hand would be lost with it.
    """
    try:
        return deliver(desk, until=until)
    except StoreError:
        return False
    except OSError:
        return True


def deliver(desk: Desk, *, until: float) -> bool:
    """As `take_in`. Raises StoreError and OSError."""
    return desk.spool.take_each(lambda item: _refused(desk, item), until=until)


def _refused(desk: Desk, raw: bytes) -> str | None:
    """Store one; why not, if it never will be: it must not stand in the way of the others."""
    try:
        _store(desk, msgspec.json.decode(raw, type=Item))
    except SessionCorrupt as error:
        return error.message  # the trouble of one session, not of the store
    except StoreError:
        raise
    except MoorageError as error:
        return error.message
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _store(desk: Desk, item: Item) -> None:
    if item.delegation is not None:
        desk.do(desk.deps.store.record_delegation(desk.caller().owner, item.delegation))
        return
    if item.event is None or item.at is None:
        raise InvalidField("event", "is missing")
    desk, name = desk.at(item.at, item.parent, is_late=True), item.event.get("hook_event_name")
    if isinstance(name, str) and name:
        claude_code.handle(desk, name, item.event)
    elif item.command == plain.SUBAGENT_STOP:
        plain.subagent_stop(desk, item.event)
    else:
        raise InvalidField("command", f"is {item.command!r}")

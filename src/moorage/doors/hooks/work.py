"""One event: read it, handle it in time, and answer in any case.

An event that cannot be stored now goes to the spool. However late it is stored, it keeps the time at which it happened.
Of a question (may earlier work be resumed?) only the delegation is kept, with its answer.
"""

from __future__ import annotations

import time
from datetime import datetime

import msgspec
from msgspec import Struct

from moorage import config
from moorage.core.errors import InvalidField, MoorageError, SessionCorrupt, StoreError
from moorage.core.ids import uuid7
from moorage.core.policy import Delegation
from moorage.doors.hooks.context import HookContext, HookReply, Json, delegation_item, parent_of_host
from moorage.doors.hooks.spool import Spool
from moorage.service.delegation import DelegationQuestion
from moorage.service.deps import Deps
from moorage.service.inline import drive

TIME_TO_SPOOL = 0.4  # seconds reserved for the spool
MARGIN = 50  # levels of nesting, and calls, between reading an event and writing it again
HURRY = {"SessionEnd": 0.9}  # seconds less than for others; all hooks of this event share one and a half


class HookWork:
    """One call of the hook."""

    def __init__(self, command: str, raw: bytes | None, *, url: str | None, create: bool, deadline: float) -> None:
        self.command, self.create = command, create
        self.at = config.SystemClock().now()
        self.problem, self.event = _decoded(raw)
        name = self.event.get("hook_event_name") if self.event is not None else None
        self.name = name if isinstance(name, str) else ""
        self.deadline = deadline - HURRY.get(self.name, 0)
        self._url = url
        self._deps: Deps | None = None

    def answer(self) -> HookReply:
        """Return the reply in any case."""
        if self.event is None:
            return HookReply(self._safe("invalid_request"), self.problem)
        try:
            return self._handled(self.event)
        except MoorageError as error:
            if self._deps is None and _is_about_url(error):
                return self._put_off(error.code, error.message, as_dead_letter=True)
            if isinstance(error, StoreError) or self._deps is None:  # without a store, the event is not at fault
                return self._put_off(error.code, error.message)
            reason = "invalid_request" if error.family == "invalid" else error.code
            return HookReply(self._safe(reason), error.message)
        except OSError as error:
            return self._put_off("store_unavailable", f"the system refused ({error})")
        except Exception as error:
            return self._put_off("error", f"unexpected error ({type(error).__name__}: {error})")
        finally:
            self._close()

    def give_up(self) -> HookReply:
        """Return the reply on a timeout; another thread than the working one calls this."""
        if self.event is None:
            return HookReply(self._safe("invalid_request"), self.problem)
        return self._put_off("store_busy", "the store did not answer in time")

    def last_word(self) -> HookReply:
        """Return the reply when no time is left for anything else."""
        return HookReply(self._safe("store_busy"), "neither store nor spool answered in time; it may be lost")

    # Steps --------------------------------------------------------------------------------------

    def _handled(self, event: Json) -> HookReply:
        if self.name:
            from moorage.doors.hooks import claude_code

            if not claude_code.concerns_us(self.name, event):
                return HookReply({}, "" if self.name in claude_code.HANDLERS else f"nothing is kept of {self.name!r}")
        elif not self.command:
            raise InvalidField("hook_event_name", "is missing; say pre-delegate or subagent-stop, or send one")
        left = self.deadline - time.monotonic() - TIME_TO_SPOOL
        self._deps = config.open_deps(config.pick_url(self._url), threaded=False, patience=max(0.05, left))
        context = HookContext(self._deps, self._spool())
        if not self._is_caught_up(context):
            return self._put_off("store_busy", "older events wait for the store still")
        context = context.at(self.at, parent_of_host())
        if self.name:
            return claude_code.handle(context, self.name, event)
        from moorage.doors.hooks import plain

        if self.command == plain.PRE_DELEGATE:
            return plain.pre_delegate(context, event, self.create)
        return plain.subagent_stop(context, event)

    def _is_caught_up(self, context: HookContext) -> bool:
        """Deliver spooled events and end expired holds; return False if this event has to wait behind the spool.

        A question does not wait: it is answered even if nothing can be written now.
        """
        from moorage.service.retention import expire_due

        try:
            if context.spool.has_something() and not self._empty_spool(context) and not self._is_question:
                return False
            context.run(expire_due)
        except StoreError:
            if not self._is_question:
                raise
        return True

    def _empty_spool(self, context: HookContext) -> bool:
        try:
            return deliver(context, until=self.deadline - TIME_TO_SPOOL)
        except StoreError:
            return False
        except OSError:
            return True  # the spool cannot be used, so this event would be lost in it

    @property
    def _is_question(self) -> bool:
        return self.name == "PreToolUse" or (not self.name and self.command == "pre-delegate")

    def _put_off(self, code: str, why: str, *, as_dead_letter: bool = False) -> HookReply:
        """Spool the event until the store can take it; `as_dead_letter` if its URL can never name a store."""
        assert self.event is not None
        safe = self._safe(code)
        try:
            if (item := _as_item(self.command, self.name, self.event, self.at, code)) is None:
                return HookReply(safe, why)
            if as_dead_letter:
                self._spool().refuse(item, self.at, why)
                return HookReply(safe, f"{why}; moved aside; `moorage doctor` tells what to do")
            self._spool().keep(item, self.at)
            return HookReply(safe, f"{why}; put off until the store can take it")
        except Exception as error:
            return HookReply(safe, f"{why}; it could not be put off either ({error}), and is lost")

    def _spool(self) -> Spool:
        is_configured = config.given_url(self._url) is None
        try:
            return Spool(config.pick_url(self._url), is_configured=is_configured)
        except (MoorageError, OSError):
            return Spool(None)

    def _safe(self, reason: str) -> Json:
        if self.name or not self.command:
            return {}
        from moorage.doors.hooks import plain

        return plain.safe_answer(self.command, self.event, reason)

    def _close(self) -> None:
        if self._deps is not None:
            try:
                drive(self._deps.store.close())
            except Exception:
                return  # nothing acknowledged depends on it


def _is_about_url(error: MoorageError) -> bool:
    """Return whether an error means that the URL can never name a store for hooks."""
    return "url" in error.facts or error.facts.get("field") == "url"


def _decoded(raw: bytes | None) -> tuple[str, Json | None]:
    if raw is None:  # reported already
        return "", None
    if not raw.strip():
        return "standard input is empty; an event in JSON is expected, see moorage-hook --help", None
    try:
        event = _json_of(raw)
        _check_depth(event)
    except (ValueError, RecursionError) as error:
        return f"standard input is not JSON ({error}); nothing was done", None
    if not isinstance(event, dict):
        return "standard input is JSON, but no object; nothing was done", None
    return "", event


def _json_of(raw: bytes) -> object:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        import json

        try:  # replace broken characters by `?`: a host may cut a text within one
            text = json.dumps(json.loads(raw.decode(errors="replace")), ensure_ascii=False)
        except (ValueError, RecursionError):
            raise error from None
        return msgspec.json.decode(text.encode(errors="replace"))


def _check_depth(event: object) -> None:
    """Raise RecursionError for input nested too deeply for an answer or the spool."""
    for _ in range(MARGIN):
        event = [event]
    msgspec.json.encode(event)


# The spool --------------------------------------------------------------------------------------


class SpooledItem(Struct, frozen=True, kw_only=True):
    """One item of the spool."""

    delegation: Delegation | None = None
    command: str = ""
    event: Json | None = None
    at: datetime | None = None
    parent: str | None = None  # from the host's environment at that time


def _as_item(command: str, name: str, event: Json, at: datetime, code: str) -> bytes | None:
    """Return an event for the spool; None if it need not be kept."""
    from moorage.doors.hooks import claude_code, plain

    if not (claude_code.concerns_us(name, event) if name else command):
        return None
    if name == "PreToolUse":
        return delegation_item(_unanswered(claude_code.unanswered(event), at, code))
    if not name and command == plain.PRE_DELEGATE:
        from moorage.compat.pre_delegate import read_question

        return delegation_item(_unanswered(read_question(event), at, code))
    return msgspec.json.encode({"command": command, "event": event, "at": at, "parent": parent_of_host()})


def _unanswered(question: DelegationQuestion, at: datetime, reason: str) -> Delegation:
    place = question.place
    return Delegation(
        delegation_id=question.delegation_id or uuid7(int(at.timestamp() * 1000), config.entropy(10)),
        at=at,
        resumed=False,
        reason=reason,
        agent_name=place.agent,
        task_id=place.task_id,
        project_dir=place.project_dir,
        session_id=question.session_id,
        host_session_id=place.host,
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
    from moorage.doors.hooks import claude_code, plain

    if item.event is None or item.at is None:
        raise InvalidField("event", "is missing")
    then, name = context.at(item.at, item.parent, is_late=True), item.event.get("hook_event_name")
    if isinstance(name, str) and name:
        claude_code.handle(then, name, item.event)
    elif item.command == plain.SUBAGENT_STOP:
        plain.subagent_stop(then, item.event)
    else:
        raise InvalidField("command", f"is {item.command!r}")

"""All errors that Moorage raises, as one tree.

::

    MoorageError
    ├── InvalidRequest            fix the request
    │   ├── InvalidId             session_id or session_name not matching pattern     invalid_id, invalid_name
    │   ├── InvalidField          a value of the wrong kind, length or range          invalid_<field>
    │   ├── InvalidJson           not JSON: NaN, a lone surrogate, too deep …         invalid_json
    │   ├── TooLarge              metadata, message, context … above its limit        <what>_too_large
    │   ├── UnknownPhase          no such phase                                       unknown_phase
    │   ├── FinalPhase            a final phase is entered by finalize only           final_phase
    │   ├── InvalidCursor         a cursor of another query, or damaged               invalid_cursor
    │   ├── OwnAncestor           a session cannot be its own parent                  own_ancestor
    │   ├── AmbiguousReference    a prefix that matches several ids                   ambiguous_reference
    │   ├── InvalidImport         a file that is no export of ours                    invalid_import
    │   ├── RequestTooLarge       a request above the size limit of the server        request_too_large
    │   ├── InvalidDefinition     a file that does not describe an agent              invalid_definition
    │   └── Unsupported           this store cannot do that                           unsupported
    ├── NotFound                  it does not exist
    │   ├── SessionNotFound                                                           session_not_found
    │   ├── ParentNotFound                                                            parent_not_found
    │   ├── ApprovalNotFound                                                          approval_not_found
    │   ├── EntryNotFound                                                             entry_not_found
    │   ├── RunNotFound                                                               run_not_found
    │   ├── TurnNotFound                                                              turn_not_found
    │   ├── ItemNotFound          of an inbox                                         item_not_found
    │   ├── KeyNotFound           of access                                           key_not_found
    │   ├── RecordNotFound        of a session or an owner                            record_not_found
    │   ├── LauncherNotFound      it has to register first                            launcher_not_found
    │   ├── ToolNotFound          no such tool                                        tool_not_found
    │   ├── TaskNotFound          no task of that id is remembered                    task_not_found
    │   ├── AgentNotFound         no such agent, or it is switched off                agent_not_found
    │   └── SessionGone           it was deleted: when, by whom, why                  session_gone
    ├── Conflict                  the current state does not allow it; read it again
    │   ├── SessionClosed         final: read, export, fork or delete it              session_closed
    │   ├── HeldByAnother         another holder drives it                            held_by_another
    │   ├── HoldLost              the token given is no longer the hold's             hold_lost
    │   ├── SessionSuspended      it waits for a person                               session_suspended
    │   ├── SessionRunning        a live turn blocks the request                      session_running
    │   ├── TurnLost              the turn is over or another launcher's              turn_lost
    │   ├── RunSettled            the run is over                                     run_settled
    │   ├── RunNotFailed          only a run that failed can be retried               run_not_failed
    │   ├── RunStopped            a stopped run asks for something new                run_stopped
    │   ├── AsksAncestor          a request to a session that waits for it            asks_ancestor
    │   ├── SummaryFailed         the agent asked for a summary gave none             summary_failed
    │   ├── VersionConflict       it changed since the caller read it                 version_conflict
    │   ├── IllegalMove           the transition table does not allow it              illegal_move
    │   ├── OutcomeConflict       already finalized with another outcome              outcome_conflict
    │   ├── IdTaken / NameTaken   that id or name is in use                           id_taken, name_taken
    │   ├── AgentExists           an agent with that name exists                      agent_exists
    │   ├── AgentBuiltIn          an agent that comes with Moorage cannot be removed  agent_built_in
    │   ├── ProgramExists         another program of an agent has that file           program_exists
    │   ├── AgentFailed           in the middle of a stream                           agent_failed
    │   ├── KeyReused             the key was used for another request                key_reused
    │   ├── HasChildren           deletion without cascade                            has_children
    │   ├── FamilyLimit           tree too deep or too wide                           too_deep, too_many_children
    │   ├── StoreInUse            the store must not be in use                        store_in_use
    │   ├── StoreNotEmpty         the store must be empty                             store_not_empty
    │   ├── CopyDiffers           a copy differs from its source                      copy_differs
    │   ├── AlreadyDecided        the approval has another answer                     already_decided
    │   └── ApprovalClosed        expired or withdrawn                       approval_expired, approval_withdrawn
    ├── AccessError               not allowed with this key, or not now
    │   ├── Unauthorized          no key, or an invalid one                           unauthorized
    │   ├── Forbidden             the key lacks a scope                               forbidden
    │   ├── OutOfReach            a session that the session token does not cover     out_of_reach
    │   └── RateLimited           too many requests                                   rate_limited
    └── StoreError                the store cannot answer; nothing was changed
        ├── SessionCorrupt        one session cannot be read completely               session_corrupt
        ├── StoreBusy             locked by others for too long                       store_busy
        ├── StoreReadOnly         the folder or file cannot be written                store_read_only
        ├── StoreFull             no room on the disk                                 store_full
        ├── StoreCorrupt          the file is damaged or no database                  store_corrupt
        ├── StoreReplaced         the file was removed or replaced while it was open  store_replaced
        ├── StoreTooNew           written by a newer Moorage                         store_too_new
        ├── EncryptionKeyMissing  sealed with a key that is not configured            encryption_key_missing
        ├── EncryptionKeyWrong    another key has that id                             encryption_key_wrong
        ├── ServerUnreachable     no answer from a server                             server_unreachable
        ├── OutcomeUnknown        cut off during a commit: check the result           outcome_unknown
        ├── AgentUnreachable      no endpoint of an agent answers                     agent_unreachable
        ├── ToolUnreachable       no endpoint of a tool answers                       tool_unreachable
        ├── ContextUnavailable    the server of `context_url` does not answer         context_unavailable
        └── StoreUnavailable      cannot be opened or reached                         store_unavailable

Families say what the caller can do; `code` is stable and the same at every door, so a class
named after it keeps its name; `facts` holds the details; the message says what to do. The drawing says
what each error means, so most classes have no docstring of their own.
"""

from __future__ import annotations

from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from moorage.core.status import Because


def utc_text(at: datetime) -> str:
    """Return an instant as RFC 3339 with `Z`, as every door shows it."""
    return at.isoformat().replace("+00:00", "Z")


def _to_the_second(at: datetime) -> str:
    """Return an instant for a message; the facts of the error have it whole."""
    return utc_text(at.replace(microsecond=0))


class _Code:
    """The default code of an error: the name of its class in snake case, such as `session_not_found`."""

    def __get__(self, _: object, kind: type) -> str:
        below = list(takewhile(lambda each: "family" not in vars(each), kind.__mro__)) or [kind]
        name = below[-1].__name__.removeprefix("Moorage")
        return "".join(f"_{letter}" if letter.isupper() else letter for letter in name)[1:].lower()


class MoorageError(Exception):
    """Base of all errors that Moorage raises on purpose."""

    code: str = _Code()  # type: ignore[assignment]  # a class or an error may have its own code
    family: ClassVar[str] = "error"

    def __init__(self, message: str, **facts: Any) -> None:
        self.message = message
        self.facts = facts
        super().__init__(message)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["facts"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling between processes: constructors take other arguments than `args`."""
        return _error_from, (type(self), self.code, self.message, self.facts)

    def to_dict(self) -> dict[str, Any]:
        """Return the error as every door shows it: code, detail, facts."""
        return {"code": self.code, "detail": self.message, **self.facts}


def _error_from(kind: type[MoorageError], code: str, message: str, facts: dict[str, Any]) -> MoorageError:
    error = kind.__new__(kind)
    MoorageError.__init__(error, message, **facts)
    error.code = code
    return error


def error_from(code: str, detail: str, facts: dict[str, Any], status: int | None = None) -> MoorageError:
    """Return the error that a door has shown with `to_dict`; `status` is the HTTP status it came with.

    An unknown code becomes an error of the family that the status belongs to.
    """
    kind = _fixed_codes().get(code) or _kind_by_pattern(code, facts) or _FAMILY_BY_STATUS.get(status, MoorageError)
    return _error_from(kind, code, detail, facts)


# Families ---------------------------------------------------------------------------------------


class InvalidRequest(MoorageError):
    """The request itself is wrong; repeating it is refused again."""

    family = "invalid"


class NotFound(MoorageError):
    """The requested object does not exist or belongs to another owner."""

    family = "not_found"


class Conflict(MoorageError):
    """The request is valid, but the current state does not allow it."""

    family = "conflict"


class AccessError(MoorageError):
    """The caller is not authenticated or not authorized."""

    family = "access"


class StoreError(MoorageError):
    """The store could not answer. Nothing was changed."""

    family = "store"


# Fix the request --------------------------------------------------------------------------------


class InvalidId(InvalidRequest):
    def __init__(self, what: str, value: object) -> None:
        self.code = f"invalid_{'name' if what == 'session_name' else 'id'}"
        super().__init__(
            f"{what} {_shown(value)} is not allowed: use 1 to 128 letters, digits, '.', '_', ':' or '-', "
            "beginning with a letter or digit",
            field=what,
        )


class InvalidField(InvalidRequest):
    def __init__(self, field: str, why: str) -> None:
        self.code = f"invalid_{field.split('.')[0].split('[')[0].replace('-', '_')}"
        super().__init__(f"{field} {why}", field=field)


class InvalidJson(InvalidRequest):
    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}; only JSON values can be stored", field=where)


class TooLarge(InvalidRequest):
    def __init__(self, what: str, size: int, limit: int) -> None:
        self.code = f"{what.replace(' ', '_')}_too_large"
        super().__init__(
            f"{what} has {size:,} bytes, at most {limit:,} are allowed; keep the rest in a file and store its path",
            size=size,
            limit=limit,
        )


class UnknownPhase(InvalidRequest):
    def __init__(self, phase: object, allowed: Iterable[str]) -> None:
        names = list(allowed)
        super().__init__(f"there is no phase {_shown(phase)}; use one of {', '.join(names)}", allowed=names)


class FinalPhase(InvalidRequest):
    def __init__(self, phase: str) -> None:
        super().__init__(f"phase {phase!r} is final: call finalize with outcome {phase!r} instead", phase=phase)


class InvalidCursor(InvalidRequest):
    def __init__(self) -> None:
        super().__init__("this cursor does not belong to this query; start again without a cursor")


class OwnAncestor(InvalidRequest):
    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"session {session_id} cannot be its own parent; name another parent, or none", session_id=session_id
        )


class AmbiguousReference(InvalidRequest):
    def __init__(self, prefix: str, candidates: list[str], *, cut: bool = False, noun: str = "session") -> None:
        count = f"{len(candidates)} {noun}s{' or more' if cut else ''}"
        super().__init__(
            f"{prefix!r} fits {count}: {', '.join(candidates)}; give more characters", candidates=candidates
        )


class InvalidImport(InvalidRequest):
    def __init__(self, why: str, *, line: int | None = None, file: str | None = None) -> None:
        self.why = why
        place = f"line {line}: " if line is not None else ""
        if file is None:
            super().__init__(f"{place}{why}; nothing of this session was imported", line=line)
        else:
            super().__init__(f"{file}: {place}{why}; nothing was imported", line=line, file=file)


class RequestTooLarge(InvalidRequest):
    def __init__(self, limit: int) -> None:
        super().__init__(
            f"a request may have {limit:,} bytes, not more; send less at once, or keep the rest in a file", limit=limit
        )


class InvalidDefinition(InvalidRequest):
    """A file that does not describe an agent; the error names the line."""

    def __init__(self, file: str, line: int | None, why: str) -> None:
        place = file if line is None else f"{file}, line {line}"
        super().__init__(f"{place}: {why}", file=file, line=line)


class Unsupported(InvalidRequest):
    """An operation that this store or build does not support."""


# Not found --------------------------------------------------------------------------------------


class SessionNotFound(NotFound):
    def __init__(self, ref: str) -> None:
        super().__init__(
            f"there is no session {_shown(ref)}; `moorage list` lists all sessions", session_id=_plain(ref)
        )


class ParentNotFound(NotFound):
    def __init__(self, ref: str) -> None:
        super().__init__(
            f"there is no session {_shown(ref)} to be the parent, so nothing was created; `moorage list` lists all "
            "sessions",
            parent=_plain(ref),
        )


class ApprovalNotFound(NotFound):
    def __init__(self, approval_id: str) -> None:
        super().__init__(
            f"there is no approval {_shown(approval_id)}; `moorage approvals` lists the open ones",
            approval_id=_plain(approval_id),
        )


class EntryNotFound(NotFound):
    def __init__(self, session_id: str, number: int | None, last: int, what: str = "entry") -> None:
        which = what if number is None else f"{what} {number}"
        super().__init__(
            f"session {session_id} has no {which}; its entries are 1 to {last}", session_id=session_id, last=last
        )


class RunNotFound(NotFound):
    def __init__(self, run_id: str) -> None:
        shown = _plain(run_id)
        super().__init__(f"there is no run {shown!r}; `moorage runs` lists all runs", run_id=shown)


class TurnNotFound(NotFound):
    def __init__(self, turn_id: str) -> None:
        shown = _plain(turn_id)
        super().__init__(f"there is no turn {shown!r}; `moorage runs` lists all runs", turn_id=shown)


class LauncherNotFound(NotFound):
    def __init__(self, launcher_id: str) -> None:
        shown = _plain(launcher_id)
        way_out = "`moorage launchers` lists all; a new one registers first (POST /launchers)"
        super().__init__(f"there is no launcher {shown!r}; {way_out}", launcher_id=shown)


class ItemNotFound(NotFound):
    def __init__(self, item_id: str) -> None:
        shown = _plain(item_id)
        super().__init__(f"there is no item {shown!r}; `moorage inbox` lists all items", item_id=shown)


class KeyNotFound(NotFound):
    def __init__(self, key_id: str) -> None:
        shown = _plain(key_id)
        super().__init__(f"there is no key {shown!r}; `moorage keys list` lists all keys", key_id=shown)


class RecordNotFound(NotFound):
    def __init__(self, namespace: str, key: str) -> None:
        super().__init__(
            f"there is no record {key[:200]!r} in {namespace[:200]!r}; list that namespace to see its keys",
            namespace=namespace,
            key=key,
        )


class ToolNotFound(NotFound):
    def __init__(self, name: object) -> None:
        super().__init__(f"there is no tool {_shown(name)}; `moor.tools()` or GET /tools lists them", tool=_plain(name))


class TaskNotFound(NotFound):
    def __init__(self, task_id: str) -> None:
        super().__init__(
            f"this server knows no task {_shown(task_id)}; ask the server that took it", task_id=_plain(task_id)
        )


class AgentNotFound(NotFound):
    def __init__(self, name: str, nearest: Sequence[str] = ()) -> None:
        shown = _plain(name)
        what = f"there is no agent {shown!r} that could be started" if shown else "no agent is named; name one"
        meant = f"; did you mean {' or '.join(nearest)}?" if nearest else ";"
        super().__init__(
            f"{what}{meant} `moorage agents list` lists all agents", agent_name=shown, nearest=list(nearest)
        )

    @classmethod
    def among(cls, name: str, known: Iterable[str]) -> AgentNotFound:
        """Return the error that suggests the known agents with the most similar names."""
        from difflib import get_close_matches

        return cls(name, sorted(get_close_matches(name, [each for each in known if each != name])))


class SessionGone(NotFound):
    def __init__(self, session_id: str, *, at: datetime, by: str | None, why: str) -> None:
        ended = "expired" if why == "expired" else f"was deleted by {by or 'unknown'} ({why})"
        super().__init__(
            f"session {session_id} {ended} at {_to_the_second(at)}; its id cannot be used again",
            session_id=session_id,
            deleted_at=utc_text(at),
            deleted_by=by,
            reason=why,
        )


# Conflicts --------------------------------------------------------------------------------------


class SessionClosed(Conflict):
    def __init__(self, session_id: str, state: str) -> None:
        super().__init__(
            f"session {session_id} is {state} and takes no more changes; fork it to go on from there",
            session_id=session_id,
            state=str(state),
        )


class HeldByAnother(Conflict):
    def __init__(
        self, session_id: str, holder: str, until: datetime, *, asks: bool = False, runs: bool = False
    ) -> None:
        """`asks`: the request was a prompt, which can be queued. `runs`: the holder is a launcher, for its turn."""
        way = "wait, or release it"
        if runs:
            way = "its agent is at work: wait until that turn ends, or stop it"
        elif asks:
            way = "wait, release it, or ask with `queue` to be answered when the hold ends"
        super().__init__(
            f"session {session_id} is held by {holder} until {_to_the_second(until)}; {way}",
            session_id=session_id,
            holder=holder,
            until=utc_text(until),
        )


class HoldLost(Conflict):
    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"your hold on session {session_id} has ended; resume it again before you go on", session_id=session_id
        )


class SessionSuspended(Conflict):
    def __init__(self, session_id: str, approval_id: str | None = None) -> None:
        why = "was suspended by a person; resume it first"
        if approval_id is not None:
            why = f"waits for an answer to approval {approval_id}; decide it first"
        super().__init__(f"session {session_id} {why}", session_id=session_id, approval_id=approval_id)


class SessionRunning(Conflict):
    def __init__(self, session_ids: list[str]) -> None:
        super().__init__(
            f"running: {', '.join(session_ids)}; stop it first, or use force where it is offered",
            session_ids=session_ids,
        )


class TurnLost(Conflict):
    def __init__(self, turn_id: str, epoch: int) -> None:
        super().__init__(
            f"turn {turn_id} has ended or belongs to another launcher; end its agent and stop reporting",
            turn_id=turn_id,
            epoch=epoch,
        )


class RunSettled(Conflict):
    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"run {run_id} has already ended; `moorage result {run_id}` shows how", run_id=run_id, state="settled"
        )


class RunNotFailed(Conflict):
    def __init__(self, run_id: str | None, state: str | None, session_id: str | None = None) -> None:
        what = f"session {session_id} has no run that ended" if run_id is None else f"run {run_id} is {state}"
        why = f"{what}, and only a run that failed or expired can be retried; to ask again, send a message"
        super().__init__(why, run_id=run_id, state=state)


class RunStopped(Conflict):
    def __init__(self, run_id: str | None, session_id: str | None = None) -> None:
        what = f"the turn of session {session_id}" if run_id is None else f"run {run_id}"
        super().__init__(
            f"{what} was stopped, so nothing new starts in its name; end the agent, or ask again as a person",
            run_id=run_id,
            session_id=session_id,
        )


class AsksAncestor(Conflict):
    def __init__(self, session_id: str, ancestor: str) -> None:
        who = "a session" if session_id == ancestor else f"{session_id} is below {ancestor} and"
        target = "itself" if session_id == ancestor else "it"
        super().__init__(
            f"{who} cannot wait for work asked of {target}; use mode async_poll",
            session_id=session_id,
            ancestor=ancestor,
        )


class SummaryFailed(Conflict):
    def __init__(self, session_id: str, agent: str, why: str) -> None:
        super().__init__(
            f"{agent} gave no summary of session {session_id}: {why}; earlier summaries are kept; ask again",
            session_id=session_id,
            agent=agent,
            why=why,
        )


class VersionConflict(Conflict):
    def __init__(self, session_id: str, expected: int, actual: int, what: str = "") -> None:
        super().__init__(
            f"{what}session {session_id} is at version {actual}, not {expected}; read it again and repeat the change",
            session_id=session_id,
            expected=expected,
            actual=actual,
        )


class IllegalMove(Conflict):
    def __init__(self, what: str, current: str, wanted: str, allowed: Iterable[str]) -> None:
        names = sorted(str(name) for name in allowed)
        super().__init__(
            f"{what} cannot go from {current} to {wanted}; allowed from {current}: {', '.join(names) or 'none'}",
            current=str(current),
            wanted=str(wanted),
            allowed=names,
        )


class OutcomeConflict(Conflict):
    def __init__(self, session_id: str, state: str, outcome: str) -> None:
        super().__init__(
            f"session {session_id} is already {state}, it cannot become {outcome}; fork it to go on",
            session_id=session_id,
            state=str(state),
            outcome=str(outcome),
        )


class IdTaken(Conflict):
    def __init__(self, session_id: str) -> None:
        super().__init__(f"the id {session_id} is in use already; choose another", session_id=session_id)


class NameTaken(Conflict):
    """An open session has the name; or some session, open or closed, has it as its id, and keeps it."""

    def __init__(self, name: str, by: str) -> None:
        why = f"is taken by session {by}; finalize that one or choose another name"
        if name == by:
            why = "is the id of a session; choose another name"
        super().__init__(f"the name {name!r} {why}", session_name=name, session_id=by)


class AgentBuiltIn(Conflict):
    def __init__(self, name: str) -> None:
        why = f"agent {name!r} comes with Moorage and cannot be removed; add one of that name with enabled = false"
        super().__init__(why, agent_name=name)


class AgentExists(Conflict):
    def __init__(self, name: str, file: str) -> None:
        super().__init__(
            f"there is an agent {name!r} already, in {file}; remove it first, or replace it", agent_name=name, file=file
        )


class ProgramExists(Conflict):
    def __init__(self, program: str, folder: str, file: str) -> None:
        super().__init__(f"there is another {program} in {folder}; rename yours, or add it with --replace", file=file)


class AgentFailed(Conflict):
    """An agent failed, or asks a person, while its answer was streamed: the status of the response cannot tell."""

    def __init__(self, agent: str, why: str, reason: str = "", because: Because | None = None) -> None:
        self.because = because
        if because is None:
            super().__init__(f"agent {agent!r} failed: {why}", agent_name=agent, reason=reason)
        else:
            told = {"reason": because.reason.value, "because": because.facts}
            super().__init__(f"agent {agent!r} has not answered: {why}", agent_name=agent, **told)


class KeyReused(Conflict):
    def __init__(self, key: str) -> None:
        super().__init__(f"the key {_shown(key)} was used for another request; use a new key", key=key)


class HasChildren(Conflict):
    def __init__(self, session_id: str, children: int) -> None:
        super().__init__(
            f"session {session_id} has {children} descendant{'' if children == 1 else 's'}; "
            "delete the whole tree (cascade), children are never orphaned",
            session_id=session_id,
            children=children,
        )


class FamilyLimit(Conflict):
    def __init__(self, code: str, message: str, limit: int) -> None:
        self.code = code
        super().__init__(message, limit=limit)


class StoreInUse(Conflict):
    def __init__(self, why: str) -> None:
        super().__init__(
            f"the store is in use: {why}; stop the processes that use it and try again, or use --force", why=why
        )


class StoreNotEmpty(Conflict):
    def __init__(self, why: str) -> None:
        super().__init__(f"the store to copy into must be empty, but {why}; name another one", why=why)


class CopyDiffers(Conflict):
    def __init__(self, kind: str, expected: int, found: int) -> None:
        super().__init__(
            f"the two stores differ: one has {expected} of kind {kind!r}, the other {found}; a process wrote to "
            "one of them meanwhile; stop the processes that use them and copy into an empty store again",
            kind=kind,
            expected=expected,
            found=found,
        )


class AlreadyDecided(Conflict):
    def __init__(self, approval_id: str, decision: str, by: str | None) -> None:
        super().__init__(
            f"approval {approval_id} was already answered {decision!r} by {by or 'unknown'}; an answer is single-use",
            approval_id=approval_id,
            decision=decision,
            decided_by=by,
        )


class ApprovalClosed(Conflict):
    def __init__(self, approval_id: str, state: str) -> None:
        self.code = f"approval_{state}"
        super().__init__(
            f"approval {approval_id} is {state}; the agent must ask again", approval_id=approval_id, state=str(state)
        )


# Access -----------------------------------------------------------------------------------------


class Unauthorized(AccessError):
    """No key was given, or an invalid one. The error does not say which, to give no hint for guessing."""

    def __init__(self) -> None:
        super().__init__("unauthorized: send a valid key in the Authorization header; `moorage keys create` makes one")


class Forbidden(AccessError):
    def __init__(self, scope: str, why: str | None = None) -> None:
        super().__init__(why or f"this key lacks the scope {scope!r}; use one that has it", scope=str(scope))


class OutOfReach(AccessError):
    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"this token is for session {session_id} and its descendants only; use a key for others",
            session_id=session_id,
        )


class RateLimited(AccessError):
    def __init__(self, retry_after: float) -> None:
        super().__init__(f"too many requests; try again in {retry_after:g} seconds", retry_after=retry_after)


# The store cannot answer ------------------------------------------------------------------------


class SessionCorrupt(StoreError):
    def __init__(self, session_id: str, why: str) -> None:
        super().__init__(f"session {session_id} is corrupt ({why}); run `moorage doctor`", session_id=session_id)


class StoreBusy(StoreError):
    def __init__(self, where: str) -> None:
        super().__init__(f"{where} stayed locked by other processes; try again", store=where)


class StoreReadOnly(StoreError):
    def __init__(self, where: str, hint: str = "check its folder's permissions") -> None:
        super().__init__(f"{where} cannot be written; {hint}", store=where)


class StoreFull(StoreError):
    def __init__(self, where: str, hint: str = "free some space") -> None:
        super().__init__(f"no space left for {where}; {hint}; acknowledged writes are safe", store=where)


class StoreCorrupt(StoreError):
    def __init__(self, where: str, why: str, hint: str = "run `moorage doctor --quarantine`") -> None:
        super().__init__(f"{where} is not a complete database ({why}); nothing was changed: {hint}", store=where)


class StoreReplaced(StoreError):
    def __init__(self, where: str) -> None:
        super().__init__(
            f"{where} was removed or replaced while it was open, so nothing was written; put the file back, or restart "
            "this process to use the new one",
            store=where,
        )


class StoreTooNew(StoreError):
    def __init__(self, where: str, found: int, known: int) -> None:
        super().__init__(
            f"{where} has schema {found}, this Moorage knows up to {known}; install a newer release", store=where
        )


class EncryptionKeyMissing(StoreError):
    def __init__(self, key_id: str | None) -> None:
        what = (
            "this store is sealed, and there is no encryption key to seal with"
            if key_id is None
            else f"this is sealed with encryption key {key_id!r}, which is not configured"
        )
        super().__init__(
            f"{what}; put the key into MOORAGE_ENCRYPTION_KEYS or the key file, and start again", key_id=key_id
        )


class EncryptionKeyWrong(StoreError):
    def __init__(self, key_id: str, where: str) -> None:
        super().__init__(
            f"the encryption key {key_id!r} is not the one that {where} was sealed with; configure that one, or give "
            "a new key an id of its own",
            key_id=key_id,
            store=where,
        )


class ServerUnreachable(StoreError):
    """A server did not answer. Unlike with a store, the request may have been carried out."""

    def __init__(self, url: str, why: str, *, is_unsure: bool = True) -> None:
        way_out = (
            "the request may have been carried out: read before you repeat it, or repeat it under the same "
            "idempotency key"
            if is_unsure
            else "check the address, and that `moorage serve` runs there"
        )
        super().__init__(f"no answer from {url} ({why}); {way_out}", url=url, is_unsure=is_unsure)


class OutcomeUnknown(StoreError):
    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"the connection to {where} broke while a change was being committed ({why}): it is complete or absent; "
            "read before you repeat it, or repeat it under the same key",
            store=where,
        )


class AgentUnreachable(StoreError):
    def __init__(self, agent: str, why: str, *, is_unsure: bool = False) -> None:
        """`is_unsure`: the agent may have carried out the request."""
        what = "was lost before it had answered" if is_unsure else "was not asked"
        super().__init__(
            f"agent {agent!r} {what}: {why}; check that it runs there", agent_name=agent, is_unsure=is_unsure
        )


class ToolUnreachable(StoreError):
    def __init__(self, tool: str, why: str, *, is_unsure: bool = False) -> None:
        """`is_unsure`: the tool may have carried out the call."""
        what = "was lost before it had answered" if is_unsure else "was not called"
        super().__init__(f"tool {tool!r} {what}: {why}; check that it runs there", tool=tool, is_unsure=is_unsure)


class StoreUnavailable(StoreError):
    """The store cannot be opened or reached."""


class ContextUnavailable(StoreError):
    def __init__(self, why: str) -> None:
        super().__init__(f"the server of the context does not answer: {why}; the log is not affected")


class Edge:
    """The HTTP status, gRPC status and exit code of one family of errors."""

    __slots__ = ("exit_code", "grpc", "http")

    def __init__(self, *, http: int, grpc: str, exit_code: int) -> None:
        self.http, self.grpc, self.exit_code = http, grpc, exit_code


_EDGES = {
    "invalid": Edge(http=422, grpc="INVALID_ARGUMENT", exit_code=2),
    "not_found": Edge(http=404, grpc="NOT_FOUND", exit_code=3),
    "conflict": Edge(http=409, grpc="FAILED_PRECONDITION", exit_code=4),
    "access": Edge(http=403, grpc="PERMISSION_DENIED", exit_code=4),
    "store": Edge(http=503, grpc="UNAVAILABLE", exit_code=5),
    "error": Edge(http=500, grpc="INTERNAL", exit_code=1),
}
_EXCEPTIONS_TO_THE_FAMILY = {
    "session_gone": Edge(http=410, grpc="NOT_FOUND", exit_code=3),
    "unauthorized": Edge(http=401, grpc="UNAUTHENTICATED", exit_code=4),
    "rate_limited": Edge(http=429, grpc="RESOURCE_EXHAUSTED", exit_code=4),
    "request_too_large": Edge(http=413, grpc="RESOURCE_EXHAUSTED", exit_code=2),
    "agent_failed": Edge(http=502, grpc="ABORTED", exit_code=1),
}


def edge_of(error: MoorageError) -> Edge:
    """Return the HTTP status, gRPC status and exit code of an error, from the one table."""
    return _EXCEPTIONS_TO_THE_FAMILY.get(error.code) or _EDGES[error.family]


# Errors from remote doors -----------------------------------------------------------------------

_FAMILY_BY_STATUS: dict[int | None, type[MoorageError]] = {
    **dict.fromkeys((400, 413, 422), InvalidRequest),
    401: Unauthorized,
    403: AccessError,
    **dict.fromkeys((404, 410), NotFound),
    409: Conflict,
    429: RateLimited,
    **dict.fromkeys((502, 503, 504), StoreError),
}
CODED_ONE_BY_ONE = (InvalidId, InvalidField, TooLarge, FamilyLimit, ApprovalClosed)  # coded per error, not per class


@cache
def _fixed_codes() -> dict[str, type[MoorageError]]:
    """Return every error class of this module that has a fixed code, by code."""
    kinds = [kind for kind in globals().values() if isinstance(kind, type) and issubclass(kind, MoorageError)]
    return {kind.code: kind for kind in kinds if kind not in CODED_ONE_BY_ONE}


def _kind_by_pattern(code: str, facts: dict[str, Any]) -> type[MoorageError] | None:
    """Return the class of an error whose code is computed for each error."""
    if code in ("invalid_id", "invalid_name") and facts.get("field") in ("session_id", "session_name"):
        return InvalidId
    if code.startswith("invalid_"):
        return InvalidField
    if code.endswith("_too_large"):
        return TooLarge
    if code in ("too_deep", "too_many_children"):
        return FamilyLimit
    return ApprovalClosed if code in ("approval_expired", "approval_withdrawn") else None


def _plain(value: object) -> str:
    """Return a value as text that JSON can represent."""
    return value[:256] if isinstance(value, str) and value.isprintable() else _shown(value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"

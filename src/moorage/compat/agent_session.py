"""Sessions as plain functions: ids and dictionaries, False or None instead of exceptions.

::

    agent_id = create_session(agent_name="terraform-architect", metadata={"task_id": "T001"})
    update_state(agent_id, phase="approval")
    if should_resume(agent_id):
        plan = get_session(agent_id)["metadata"]["plan_file"]

What is refused answers False, None or nothing, and the logger `moorage` says why in one line: on standard
error, unless the application has set up its own logging.

A session may be resumed in the phases `approval`, `investigating` and `planning`, with fewer
than three errors, if its last activity is less than 30 minutes ago. A person takes longer
than that to answer, so in `approval` it is seven days. Writing metadata is no activity.

The functions use the store that MOORAGE_URL names, or the file in the data folder;
`AgentSession` can keep one of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

from moorage import config, sync
from moorage.compat.pre_delegate import PHASE_KINDS, as_answer, no_answer, phase_changes, read_request, working_folder
from moorage.core.errors import (
    IdTaken,
    MoorageError,
    NotFound,
    SessionCorrupt,
    SessionNotFound,
    utc_text,
)
from moorage.core.ids import check_label, dated_id, looks_like_ref
from moorage.core.policy import Verdict, verdict_without
from moorage.core.query import MAX_LIMIT as PAGE
from moorage.core.session import Session

P = ParamSpec("P")
T = TypeVar("T")
Json = dict[str, Any]

INTERFACE = "agent_session"
RETRIES = 4  # of an id that somebody has; eight random digits a second make even one unlikely
_connections: dict[tuple[str, str, int], sync.Moorage] = {}


class AgentSession:
    """Sessions of one store: that of a folder, that of a URL, or else the usual one."""

    def __init__(self, base_dir: str | os.PathLike[str] | None = None, *, url: str | None = None) -> None:
        if base_dir is not None and url is not None:
            raise ValueError("give base_dir or url, not both")
        self._folder = None if base_dir is None else os.path.abspath(base_dir)
        self._url = url

    def create_session(
        self, agent_name: str | None = None, purpose: str | None = None, metadata: Json | None = None
    ) -> str | None:
        """Open a session; its id, or None if it could not be kept. A `task_id` in the metadata becomes its own."""
        return self._attempt(None, create, agent_name, purpose, metadata)

    def update_state(
        self,
        agent_id: str | None,
        phase: str | None = None,
        metadata: Json | None = None,
        error: str | None = None,
    ) -> bool:
        """Change the phase, add to the metadata, count an error; all of it or nothing."""
        return self._attempt(False, update, agent_id, phase, metadata, error)

    def should_resume(self, agent_id: str | None = None) -> bool:
        """Whether the work may be picked up where it was left."""
        return self._attempt(False, _may_resume, agent_id)

    def get_session(self, agent_id: str | None) -> Json | None:
        """The session as a dictionary, or None if there is no such session."""
        return self._attempt(None, read, agent_id)

    def finalize_session(self, agent_id: str | None, outcome: str = "completed", summary: str | None = None) -> bool:
        """Close the session: completed, failed or abandoned. The same outcome again is harmless."""
        return self._attempt(False, finalize, agent_id, outcome, summary)

    def cleanup_old_sessions(self, hours: float = 24) -> int:
        """Delete what had no activity for that long; how many went. What is held or asks a person stays."""
        return self._attempt(0, cleanup, hours)

    def list_sessions(self, active_only: bool = False, agent_name: str | None = None) -> list[Json]:
        """Sessions as dictionaries, newest first; those not closed, or those of one agent."""
        return self._attempt([], _read_all, active_only, agent_name)

    def pre_delegate_hook(self, context: Json) -> Json:
        """Before delegating: may earlier work be picked up? The answer, and what is needed to go on.

        `context` has an `agent_name` and, if known, `agent_id`, `task_id`, `task_description`, `metadata`
        and `project_dir`. Without an id the newest fitting session of that agent and task is looked for,
        then of that agent and folder. With `create` a new session is opened if there is none to pick up.
        Every call is counted as a delegation.
        """
        try:
            return delegation(self._connection(), context) | {"original_context": context}
        except (MoorageError, OSError) as error:
            _tell(error)
            return no_answer(context, _reason(error))

    def _attempt(
        self, otherwise: T, action: Callable[Concatenate[sync.Moorage, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        try:
            return action(self._connection(), *args, **kwargs)
        except (MoorageError, OSError) as error:
            _tell(error)
            return otherwise

    def _connection(self) -> sync.Moorage:
        if self._folder is None:
            return connection(self._url)
        config.make_folder(self._folder)
        return connection(config.sqlite_url(os.path.join(self._folder, config.FILE_NAME)))


def connection(url: str | None = None) -> sync.Moorage:
    """This process's one connection to a store; another after a fork, or once the environment names another."""
    key = (config.pick_url(url), config.home(), os.getpid())
    found = _connections.get(key)
    if found is None:
        opened = sync.connect(key[0], interface=INTERFACE)
        # No lock: a child forked while another thread holds it would wait for ever.
        found = _connections.setdefault(key, opened)
        if found is not opened:
            opened.close()
    return found


def _tell(error: Exception) -> None:
    import logging  # five milliseconds that those without a problem do not pay

    why = " ".join(str(error).split())  # one line; without a handler of the application's it goes to standard error
    logging.getLogger("moorage").warning("%s: %s", getattr(error, "code", "store_unavailable"), why)


def _reason(error: Exception) -> str:
    if not isinstance(error, MoorageError):
        return "store_unavailable"
    return "invalid_request" if error.family == "invalid" else error.code


# What the methods do, raising what goes wrong ---------------------------------------------------


def create(moor: sync.Moorage, agent_name: str | None, purpose: str | None, metadata: Json | None) -> str:
    """A new session's id. One that is taken is made again."""
    for _ in range(RETRIES):
        with suppress(IdTaken):
            return _create_once(moor, agent_name, purpose, metadata)
    return _create_once(moor, agent_name, purpose, metadata)


def _create_once(moor: sync.Moorage, agent_name: str | None, purpose: str | None, metadata: Json | None) -> str:
    session = moor.create(
        agent_name,
        purpose=purpose,
        metadata=metadata,
        session_id=new_id(),
        project_dir=working_folder(),
    )
    return session.session_id


def new_id() -> str:
    """The readable kind: agent-YYYYMMDD-HHMMSS-xxxxxxxx."""
    return dated_id(config.SystemClock().now(), os.urandom(4))


def update(moor: sync.Moorage, agent_id: object, phase: str | None, metadata: Json | None, error: str | None) -> bool:
    """True, or an exception that says why not."""
    moor.update(_checked(agent_id), phase=phase, metadata=metadata, error=error)
    return True


def finalize(moor: sync.Moorage, agent_id: object, outcome: str, summary: str | None) -> bool:
    """True, or an exception that says why not."""
    moor.finalize(_checked(agent_id), outcome, summary=summary)
    return True


def verdict(moor: sync.Moorage, agent_id: object) -> Verdict:
    """Whether the work may be picked up, and why not."""
    if not isinstance(agent_id, str) or not looks_like_ref(agent_id):
        return verdict_without(None, str(agent_id))
    return moor.should_resume(agent_id)


def _may_resume(moor: sync.Moorage, agent_id: object) -> bool:
    return verdict(moor, agent_id).decision


def cleanup(moor: sync.Moorage, hours: float) -> int:
    """How many sessions went."""
    return moor.cleanup(hours).removed


def read(moor: sync.Moorage, agent_id: object) -> Json:
    """One session as a dictionary."""
    return as_dictionary(moor, moor.get(_checked(agent_id)))


def _read_all(moor: sync.Moorage, active_only: bool, agent_name: str | None) -> list[Json]:
    found = (_whole_or_none(moor, session) for session in each_session(moor, active_only, agent_name))
    return [known for known in found if known is not None]


def _whole_or_none(moor: sync.Moorage, session: Session) -> Json | None:
    """None if its log is corrupt, or somebody has just deleted it: the others are there all the same."""
    try:
        return as_dictionary(moor, session)
    except (SessionCorrupt, NotFound) as error:
        _tell(error)
        return None


def each_session(moor: sync.Moorage, active_only: bool, agent_name: str | None) -> Iterator[Session]:
    """All sessions that fit, newest first, page after page."""
    agent = None if agent_name is None else check_label("agent_name", agent_name)
    cursor: str | None = None
    while True:
        page = moor.list(agent=agent, active_only=bool(active_only), limit=PAGE, cursor=cursor)
        yield from page.items
        if (cursor := page.next) is None:
            return


def _checked(agent_id: object) -> str:
    if not isinstance(agent_id, str) or not looks_like_ref(agent_id):
        raise SessionNotFound(str(agent_id))
    return agent_id


# A session as a dictionary ----------------------------------------------------------------------


def as_dictionary(moor: sync.Moorage, session: Session) -> Json:
    """The session as JSON values, with the changes of its phase."""
    return {
        "agent_id": session.session_id,
        "agent_name": session.agent_name,
        "purpose": session.purpose,
        "created_at": utc_text(session.created_at),
        "last_updated": utc_text(session.updated_at),
        "phase": session.phase.value,
        "metadata": session.metadata,
        "resume_ready": session.resume_ready,
        "history": list(_phase_changes(moor, session)),
        "error_count": session.error_count,
        "last_error": session.last_error,
        "finalized_at": None if session.finalized_at is None else utc_text(session.finalized_at),
        "duration_seconds": session.duration_seconds,
        "summary": session.summary,
    }


def _phase_changes(moor: sync.Moorage, session: Session) -> Iterator[dict[str, str]]:
    """From the log, page after page, up to where the session was when it was read."""
    if session.last_entry <= 1:  # that it was created, and nothing since
        return
    after = "0"
    while True:
        page = moor.log(session.session_id, after=after, before=session.last_entry + 1, limit=PAGE, kinds=PHASE_KINDS)
        yield from phase_changes(page.items)
        if page.next is None:
            return
        after = page.next


# Before delegating ------------------------------------------------------------------------------


def delegation(moor: sync.Moorage, context: object) -> Json:
    """Whether to resume, which session and why, and what to go on with. Raises InvalidRequest."""
    request = read_request(context)
    done = moor.delegate(
        request.agent_name,
        session_id=request.agent_id,
        task_id=request.task_id,
        project_dir=request.project_dir or working_folder(),
        create=request.create,
        new_id=new_id(),
        purpose=request.purpose,
        metadata=request.metadata,
    )
    resumed = done.session if done.verdict.decision else None
    return as_answer(done, [] if resumed is None else list(_phase_changes(moor, resumed)))


# The functions: the same, on the usual store ----------------------------------------------------

_usual = AgentSession()
create_session = _usual.create_session
update_state = _usual.update_state
should_resume = _usual.should_resume
get_session = _usual.get_session
finalize_session = _usual.finalize_session
cleanup_old_sessions = _usual.cleanup_old_sessions
list_sessions = _usual.list_sessions
pre_delegate_hook = _usual.pre_delegate_hook

"""Sessions as plain functions: ids and dictionaries, False or None instead of exceptions.

::

    agent_id = create_session(agent_name="terraform-architect", metadata={"task_id": "T001"})
    update_state(agent_id, phase="approval")
    if should_resume(agent_id):
        plan = get_session(agent_id)["metadata"]["plan_file"]

A refused call returns False, None or nothing, and the logger `moorage` writes the reason in one line: to standard
error, unless the application has set up its own logging.

A session may be resumed in the phases `approval`, `investigating` and `planning`, with fewer than three errors, if its
last activity is less than 30 minutes ago. In `approval` the limit is seven days, because people take longer to answer.
Writing metadata is no activity.

The functions use the store of MOORAGE_URL, or the file in the data folder; `AgentSession` can use another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial, wraps
from typing import Any, TypeVar, cast

from moorage import config, sync
from moorage.compat.pre_delegate import PHASE_KINDS, as_answer, no_answer, phase_changes, read_question, working_folder
from moorage.core.errors import IdTaken, MoorageError, NotFound, SessionCorrupt, SessionNotFound, utc_text
from moorage.core.ids import check_label, dated_id, looks_like_ref
from moorage.core.policy import Verdict, verdict_without
from moorage.core.query import every
from moorage.core.render import session_json
from moorage.core.session import Session

F = TypeVar("F", bound=Callable[..., Any])
Json = dict[str, Any]

INTERFACE = "agent_session"
RETRIES = 4  # attempts with another id, if one is taken
_connections: dict[tuple[str, str, int], sync.Moorage] = {}


def _safely(otherwise: Callable[[], Any]) -> Callable[[F], F]:
    """Let a method log an error and return `otherwise()` instead of raising."""

    def decorated(method: F) -> F:
        @wraps(method)
        def safe(self: AgentSession, /, *args: Any, **kwargs: Any) -> Any:
            try:
                return method(self, *args, **kwargs)
            except (MoorageError, OSError) as error:
                self._refused(error)
                return otherwise()

        return cast(F, safe)

    return decorated


class AgentSession:
    """Sessions of one store: that of a folder, that of a URL, or else the default one."""

    def __init__(self, base_dir: str | os.PathLike[str] | None = None, *, url: str | None = None) -> None:
        if base_dir is not None and url is not None:
            raise ValueError("give base_dir or url, not both")
        self._folder = None if base_dir is None else os.path.abspath(base_dir)
        self._url = url

    @_safely(lambda: None)
    def create_session(
        self, agent_name: str | None = None, purpose: str | None = None, metadata: Json | None = None
    ) -> str | None:
        """Open a session; return its id, or None if it could not be stored. `task_id` in the metadata sets its task."""
        create = partial(self._connection().create, agent_name, purpose=purpose, metadata=metadata)
        for _ in range(RETRIES):
            with suppress(IdTaken):
                return create(session_id=_new_id(), project_dir=working_folder()).session_id
        return create(session_id=_new_id(), project_dir=working_folder()).session_id

    @_safely(bool)
    def update_state(
        self, agent_id: str | None, phase: str | None = None, metadata: Json | None = None, error: str | None = None
    ) -> bool:
        """Change the phase, add metadata, record an error; apply all of it or nothing."""
        self._connection().update(_checked(agent_id), phase=phase, metadata=metadata, error=error)
        return True

    @_safely(bool)
    def should_resume(self, agent_id: str | None = None) -> bool:
        """Return whether the session may be resumed."""
        return verdict(self._connection(), agent_id).decision

    @_safely(lambda: None)
    def get_session(self, agent_id: str | None) -> Json | None:
        """Return the session as a dictionary, or None if there is no such session."""
        moor = self._connection()
        return _as_dictionary(moor, moor.get(_checked(agent_id)))

    @_safely(bool)
    def finalize_session(self, agent_id: str | None, outcome: str = "completed", summary: str | None = None) -> bool:
        """Close the session: completed, failed or abandoned. Repeating the same outcome is harmless."""
        self._connection().finalize(_checked(agent_id), outcome, summary=summary)
        return True

    @_safely(int)
    def cleanup_old_sessions(self, hours: float = 24) -> int:
        """Delete sessions idle for that long and return their number. Held and waiting sessions stay."""
        return self._connection().cleanup(hours).removed

    @_safely(list)
    def list_sessions(self, active_only: bool = False, agent_name: str | None = None) -> list[Json]:
        """Return sessions as dictionaries, newest first; optionally only open ones, or those of one agent."""
        found: list[Json] = []
        moor = self._connection()
        for session in each_session(moor, active_only, agent_name):
            try:
                found.append(_as_dictionary(moor, session))
            except (SessionCorrupt, NotFound) as error:  # its log is damaged, or another process has deleted it
                _log(error)
        return found

    def pre_delegate_hook(self, context: Json) -> Json:
        """Answer before a delegation whether earlier work may be resumed, with the data for it.

        `context` has an `agent_name` and, if known, `agent_id`, `task_id`, `task_description`, `metadata`
        and `project_dir`. Without an id, the newest matching session of that agent and task is used,
        then of that agent and folder. With `create`, a new session is opened if none can be resumed.
        Every call is counted as a delegation.
        """
        try:
            return _delegation(self._connection(), context) | {"original_context": context}
        except OSError as error:
            _log(error)
            return no_answer(context, "store_unavailable")
        except MoorageError as error:
            _log(error)
            return no_answer(context, "invalid_request" if error.family == "invalid" else error.code)

    def _refused(self, error: Exception) -> None:
        _log(error)

    def _connection(self) -> sync.Moorage:
        if self._folder is None:
            return connection(self._url)
        config.make_folder(self._folder)
        return connection(config.sqlite_url(os.path.join(self._folder, config.FILE_NAME)))


def connection(url: str | None = None) -> sync.Moorage:
    """Return this process's connection to a store; reconnect after a fork or a change of the environment."""
    key = (config.pick_url(url), config.home(), os.getpid())
    found = _connections.get(key)
    if found is None:
        opened = sync.connect(key[0], interface=INTERFACE)
        # No lock: a child forked while another thread holds it would wait forever.
        found = _connections.setdefault(key, opened)
        if found is not opened:
            opened.close()
    return found


def verdict(moor: sync.Moorage, agent_id: object) -> Verdict:
    """Return whether the session may be resumed, and the reason if not."""
    if not isinstance(agent_id, str) or not looks_like_ref(agent_id):
        return verdict_without(None, str(agent_id))
    return moor.should_resume(agent_id)


def each_session(moor: sync.Moorage, active_only: bool, agent_name: str | None) -> Iterator[Session]:
    """Yield the matching sessions, newest first."""
    agent = None if agent_name is None else check_label("agent_name", agent_name)
    return every(partial(moor.list, agent=agent, active_only=bool(active_only)))


def _log(error: Exception) -> None:
    import logging  # 5 ms, only after a refusal

    why = " ".join(str(error).split())  # one line; without a handler of the application it goes to standard error
    logging.getLogger("moorage").warning("%s: %s", getattr(error, "code", "store_unavailable"), why)


def _new_id() -> str:
    """Return a readable id: agent-YYYYMMDD-HHMMSS-xxxxxxxx."""
    return dated_id(config.SystemClock().now(), os.urandom(4))


def _checked(agent_id: object) -> str:
    if not isinstance(agent_id, str) or not looks_like_ref(agent_id):
        raise SessionNotFound(str(agent_id))
    return agent_id


def _as_dictionary(moor: sync.Moorage, session: Session) -> Json:
    return {
        "agent_id": session.session_id,
        "agent_name": session.agent_name,
        "purpose": session.purpose,
        "created_at": utc_text(session.created_at),
        "last_updated": utc_text(session.updated_at),
        "phase": session.phase.value,
        "metadata": session.metadata,
        "resume_ready": session.resume_ready,
        "history": _phase_changes(moor, session),
        "error_count": session.error_count,
        "last_error": session.last_error,
        "finalized_at": None if session.finalized_at is None else utc_text(session.finalized_at),
        "duration_seconds": session.duration_seconds,
        "summary": session.summary,
    }


def _phase_changes(moor: sync.Moorage, session: Session) -> list[dict[str, str]]:
    """Return the phase changes in the log, up to the entry at which the session was read."""
    if session.last_entry <= 1:  # only the entry of its creation
        return []
    upto = session.last_entry + 1
    log = partial(moor.log, session.session_id, before=upto, kinds=PHASE_KINDS)
    return list(phase_changes(every(log, by="after")))


def _delegation(moor: sync.Moorage, context: object) -> Json:
    """Return whether to resume, which session and why, and the data to continue with. Raises InvalidRequest."""
    asked = read_question(context)
    done = moor.delegate(
        asked.place.agent,
        session_id=asked.session_id,
        task_id=asked.place.task_id,
        project_dir=asked.place.project_dir,
        create=asked.create,
        new_id=_new_id(),
        purpose=asked.purpose,
        metadata=asked.metadata,
    )
    resumed = done.session if done.verdict.decision else None
    return as_answer(done, [] if resumed is None else _phase_changes(moor, resumed))


# Children, on the default store -----------------------------------------------------------------


def get_child_sessions(parent_session_id: str) -> list[Json]:
    """Return the direct children of a session, oldest first; an empty list if the session does not exist."""
    with suppress(NotFound):
        return [session_json(child) for child in every(partial(connection().children, parent_session_id))]
    return []


def count_child_sessions(parent_session_id: str) -> int:
    """Return the number of a session's direct children; 0 if the session does not exist."""
    with suppress(NotFound):
        return connection().count_children(parent_session_id)
    return 0

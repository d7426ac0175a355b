from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Session(_message.Message):
    __slots__ = ("session_id", "session_name", "task_id", "agent_name", "purpose", "project_dir", "owner", "state", "status", "phase", "resume_ready", "interface", "parent_session_id", "parent_session_name", "root_session_id", "depth", "version", "last_entry", "error_count", "last_error", "metadata", "created_at", "updated_at", "last_activity_at", "expires_at", "finalized_at", "duration_seconds", "summary", "pending_approvals", "forked_from", "holder", "held_until", "waiting_for", "because", "last_run", "more")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_NAME_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    PROJECT_DIR_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    RESUME_READY_FIELD_NUMBER: _ClassVar[int]
    INTERFACE_FIELD_NUMBER: _ClassVar[int]
    PARENT_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_SESSION_NAME_FIELD_NUMBER: _ClassVar[int]
    ROOT_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_FIELD_NUMBER: _ClassVar[int]
    ERROR_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_ACTIVITY_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    FINALIZED_AT_FIELD_NUMBER: _ClassVar[int]
    DURATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    PENDING_APPROVALS_FIELD_NUMBER: _ClassVar[int]
    FORKED_FROM_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    HELD_UNTIL_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    BECAUSE_FIELD_NUMBER: _ClassVar[int]
    LAST_RUN_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    session_name: str
    task_id: str
    agent_name: str
    purpose: str
    project_dir: str
    owner: str
    state: str
    status: str
    phase: str
    resume_ready: bool
    interface: str
    parent_session_id: str
    parent_session_name: str
    root_session_id: str
    depth: int
    version: int
    last_entry: int
    error_count: int
    last_error: str
    metadata: str
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    last_activity_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    finalized_at: _timestamp_pb2.Timestamp
    duration_seconds: float
    summary: str
    pending_approvals: int
    forked_from: str
    holder: str
    held_until: _timestamp_pb2.Timestamp
    waiting_for: WaitingFor
    because: Because
    last_run: LastRun
    more: str
    def __init__(self, session_id: _Optional[str] = ..., session_name: _Optional[str] = ..., task_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., purpose: _Optional[str] = ..., project_dir: _Optional[str] = ..., owner: _Optional[str] = ..., state: _Optional[str] = ..., status: _Optional[str] = ..., phase: _Optional[str] = ..., resume_ready: bool = ..., interface: _Optional[str] = ..., parent_session_id: _Optional[str] = ..., parent_session_name: _Optional[str] = ..., root_session_id: _Optional[str] = ..., depth: _Optional[int] = ..., version: _Optional[int] = ..., last_entry: _Optional[int] = ..., error_count: _Optional[int] = ..., last_error: _Optional[str] = ..., metadata: _Optional[str] = ..., created_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., last_activity_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., expires_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., finalized_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., duration_seconds: _Optional[float] = ..., summary: _Optional[str] = ..., pending_approvals: _Optional[int] = ..., forked_from: _Optional[str] = ..., holder: _Optional[str] = ..., held_until: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., waiting_for: _Optional[_Union[WaitingFor, _Mapping]] = ..., because: _Optional[_Union[Because, _Mapping]] = ..., last_run: _Optional[_Union[LastRun, _Mapping]] = ..., more: _Optional[str] = ...) -> None: ...

class WaitingFor(_message.Message):
    __slots__ = ("approval_id", "child")
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    approval_id: str
    child: Child
    def __init__(self, approval_id: _Optional[str] = ..., child: _Optional[_Union[Child, _Mapping]] = ...) -> None: ...

class Child(_message.Message):
    __slots__ = ("session_id", "run_id")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ...) -> None: ...

class Because(_message.Message):
    __slots__ = ("reason", "by", "until", "approval_id", "child", "since")
    REASON_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    by: str
    until: _timestamp_pb2.Timestamp
    approval_id: str
    child: Child
    since: _timestamp_pb2.Timestamp
    def __init__(self, reason: _Optional[str] = ..., by: _Optional[str] = ..., until: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., approval_id: _Optional[str] = ..., child: _Optional[_Union[Child, _Mapping]] = ..., since: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class LastRun(_message.Message):
    __slots__ = ("id", "state", "reason", "settled_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SETTLED_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: str
    reason: str
    settled_at: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., settled_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CreateSessionRequest(_message.Message):
    __slots__ = ("agent_name", "session_id", "session_name", "task_id", "purpose", "project_dir", "metadata", "parent", "ttl_seconds")
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_NAME_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    PROJECT_DIR_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    agent_name: str
    session_id: str
    session_name: str
    task_id: str
    purpose: str
    project_dir: str
    metadata: str
    parent: str
    ttl_seconds: float
    def __init__(self, agent_name: _Optional[str] = ..., session_id: _Optional[str] = ..., session_name: _Optional[str] = ..., task_id: _Optional[str] = ..., purpose: _Optional[str] = ..., project_dir: _Optional[str] = ..., metadata: _Optional[str] = ..., parent: _Optional[str] = ..., ttl_seconds: _Optional[float] = ...) -> None: ...

class CreateSessionResponse(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: Session
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ...) -> None: ...

class GetSessionRequest(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: str
    def __init__(self, session: _Optional[str] = ...) -> None: ...

class GetSessionResponse(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: Session
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ("state", "agent_name", "task_id", "parent", "limit", "cursor", "status")
    STATE_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    state: str
    agent_name: str
    task_id: str
    parent: str
    limit: int
    cursor: str
    status: str
    def __init__(self, state: _Optional[str] = ..., agent_name: _Optional[str] = ..., task_id: _Optional[str] = ..., parent: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ..., status: _Optional[str] = ...) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ("sessions", "next")
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[Session]
    next: str
    def __init__(self, sessions: _Optional[_Iterable[_Union[Session, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class SendMessageRequest(_message.Message):
    __slots__ = ("session", "content", "client_key", "wait_seconds", "queue", "no_wake", "token", "run")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_KEY_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NO_WAKE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    session: str
    content: str
    client_key: str
    wait_seconds: float
    queue: bool
    no_wake: bool
    token: str
    run: bool
    def __init__(self, session: _Optional[str] = ..., content: _Optional[str] = ..., client_key: _Optional[str] = ..., wait_seconds: _Optional[float] = ..., queue: bool = ..., no_wake: bool = ..., token: _Optional[str] = ..., run: bool = ...) -> None: ...

class SendMessageResponse(_message.Message):
    __slots__ = ("session_id", "number", "run_id", "status", "result", "error", "problems")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    number: int
    run_id: str
    status: str
    result: str
    error: str
    problems: int
    def __init__(self, session_id: _Optional[str] = ..., number: _Optional[int] = ..., run_id: _Optional[str] = ..., status: _Optional[str] = ..., result: _Optional[str] = ..., error: _Optional[str] = ..., problems: _Optional[int] = ...) -> None: ...

class RetryRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class RetryRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: Run
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("run_id", "session_id", "agent_name", "state", "result", "error", "reason", "retry_of", "because", "created_at", "settled_at")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_OF_FIELD_NUMBER: _ClassVar[int]
    BECAUSE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    SETTLED_AT_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    session_id: str
    agent_name: str
    state: str
    result: str
    error: str
    reason: str
    retry_of: str
    because: Because
    created_at: _timestamp_pb2.Timestamp
    settled_at: _timestamp_pb2.Timestamp
    def __init__(self, run_id: _Optional[str] = ..., session_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., state: _Optional[str] = ..., result: _Optional[str] = ..., error: _Optional[str] = ..., reason: _Optional[str] = ..., retry_of: _Optional[str] = ..., because: _Optional[_Union[Because, _Mapping]] = ..., created_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., settled_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class WatchSessionRequest(_message.Message):
    __slots__ = ("session", "after", "no_follow")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    NO_FOLLOW_FIELD_NUMBER: _ClassVar[int]
    session: str
    after: int
    no_follow: bool
    def __init__(self, session: _Optional[str] = ..., after: _Optional[int] = ..., no_follow: bool = ...) -> None: ...

class WatchSessionResponse(_message.Message):
    __slots__ = ("event",)
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: Event
    def __init__(self, event: _Optional[_Union[Event, _Mapping]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("id", "type", "session_id", "timestamp", "data")
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    id: int
    type: str
    session_id: str
    timestamp: _timestamp_pb2.Timestamp
    data: str
    def __init__(self, id: _Optional[int] = ..., type: _Optional[str] = ..., session_id: _Optional[str] = ..., timestamp: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., data: _Optional[str] = ...) -> None: ...

class SuspendSessionRequest(_message.Message):
    __slots__ = ("session", "reason", "checkpoint", "token")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    session: str
    reason: str
    checkpoint: str
    token: str
    def __init__(self, session: _Optional[str] = ..., reason: _Optional[str] = ..., checkpoint: _Optional[str] = ..., token: _Optional[str] = ...) -> None: ...

class SuspendSessionResponse(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: Session
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ...) -> None: ...

class ResumeSessionRequest(_message.Message):
    __slots__ = ("session", "holder", "hold")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    session: str
    holder: str
    hold: bool
    def __init__(self, session: _Optional[str] = ..., holder: _Optional[str] = ..., hold: bool = ...) -> None: ...

class ReleaseSessionRequest(_message.Message):
    __slots__ = ("session", "token")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    session: str
    token: str
    def __init__(self, session: _Optional[str] = ..., token: _Optional[str] = ...) -> None: ...

class ReleaseSessionResponse(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: Session
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ...) -> None: ...

class ResumeSessionResponse(_message.Message):
    __slots__ = ("session", "holder", "token", "until", "checkpoint", "context", "messages")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    session: Session
    holder: str
    token: str
    until: _timestamp_pb2.Timestamp
    checkpoint: str
    context: str
    messages: str
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ..., holder: _Optional[str] = ..., token: _Optional[str] = ..., until: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., checkpoint: _Optional[str] = ..., context: _Optional[str] = ..., messages: _Optional[str] = ...) -> None: ...

class FinalizeSessionRequest(_message.Message):
    __slots__ = ("session", "outcome", "summary", "token")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    session: str
    outcome: str
    summary: str
    token: str
    def __init__(self, session: _Optional[str] = ..., outcome: _Optional[str] = ..., summary: _Optional[str] = ..., token: _Optional[str] = ...) -> None: ...

class FinalizeSessionResponse(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: Session
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ...) -> None: ...

class DeleteSessionRequest(_message.Message):
    __slots__ = ("session", "no_cascade", "force", "dry_run")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NO_CASCADE_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    session: str
    no_cascade: bool
    force: bool
    dry_run: bool
    def __init__(self, session: _Optional[str] = ..., no_cascade: bool = ..., force: bool = ..., dry_run: bool = ...) -> None: ...

class DeleteSessionResponse(_message.Message):
    __slots__ = ("session_id", "deleted_sessions", "cascaded_children", "messages", "entries", "runs", "checkpoints", "session_ids")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    DELETED_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    CASCADED_CHILDREN_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    SESSION_IDS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    deleted_sessions: int
    cascaded_children: int
    messages: int
    entries: int
    runs: int
    checkpoints: int
    session_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, session_id: _Optional[str] = ..., deleted_sessions: _Optional[int] = ..., cascaded_children: _Optional[int] = ..., messages: _Optional[int] = ..., entries: _Optional[int] = ..., runs: _Optional[int] = ..., checkpoints: _Optional[int] = ..., session_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ListChildrenRequest(_message.Message):
    __slots__ = ("session", "limit", "cursor")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    session: str
    limit: int
    cursor: str
    def __init__(self, session: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListChildrenResponse(_message.Message):
    __slots__ = ("sessions", "next")
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[Session]
    next: str
    def __init__(self, sessions: _Optional[_Iterable[_Union[Session, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class GetContextRequest(_message.Message):
    __slots__ = ("session", "key")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    session: str
    key: str
    def __init__(self, session: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class GetContextResponse(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class PutContextRequest(_message.Message):
    __slots__ = ("session", "key", "value", "ttl_seconds")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    session: str
    key: str
    value: str
    ttl_seconds: float
    def __init__(self, session: _Optional[str] = ..., key: _Optional[str] = ..., value: _Optional[str] = ..., ttl_seconds: _Optional[float] = ...) -> None: ...

class PutContextResponse(_message.Message):
    __slots__ = ("session_id", "version", "keys", "redacted")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    REDACTED_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    version: int
    keys: _containers.RepeatedScalarFieldContainer[str]
    redacted: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, session_id: _Optional[str] = ..., version: _Optional[int] = ..., keys: _Optional[_Iterable[str]] = ..., redacted: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteContextRequest(_message.Message):
    __slots__ = ("session", "key")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    session: str
    key: str
    def __init__(self, session: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class DeleteContextResponse(_message.Message):
    __slots__ = ("session_id", "version", "keys", "redacted")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    REDACTED_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    version: int
    keys: _containers.RepeatedScalarFieldContainer[str]
    redacted: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, session_id: _Optional[str] = ..., version: _Optional[int] = ..., keys: _Optional[_Iterable[str]] = ..., redacted: _Optional[_Iterable[str]] = ...) -> None: ...

class RequestApprovalRequest(_message.Message):
    __slots__ = ("session", "question", "plan", "options", "expires_in_seconds")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    session: str
    question: str
    plan: str
    options: _containers.RepeatedScalarFieldContainer[str]
    expires_in_seconds: float
    def __init__(self, session: _Optional[str] = ..., question: _Optional[str] = ..., plan: _Optional[str] = ..., options: _Optional[_Iterable[str]] = ..., expires_in_seconds: _Optional[float] = ...) -> None: ...

class RequestApprovalResponse(_message.Message):
    __slots__ = ("approval",)
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    approval: Approval
    def __init__(self, approval: _Optional[_Union[Approval, _Mapping]] = ...) -> None: ...

class ListApprovalsRequest(_message.Message):
    __slots__ = ("session", "with_settled", "limit")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    WITH_SETTLED_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    session: str
    with_settled: bool
    limit: int
    def __init__(self, session: _Optional[str] = ..., with_settled: bool = ..., limit: _Optional[int] = ...) -> None: ...

class ListApprovalsResponse(_message.Message):
    __slots__ = ("approvals",)
    APPROVALS_FIELD_NUMBER: _ClassVar[int]
    approvals: _containers.RepeatedCompositeFieldContainer[Approval]
    def __init__(self, approvals: _Optional[_Iterable[_Union[Approval, _Mapping]]] = ...) -> None: ...

class DecideApprovalRequest(_message.Message):
    __slots__ = ("approval_id", "decision", "note")
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    approval_id: str
    decision: str
    note: str
    def __init__(self, approval_id: _Optional[str] = ..., decision: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class DecideApprovalResponse(_message.Message):
    __slots__ = ("approval",)
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    approval: Approval
    def __init__(self, approval: _Optional[_Union[Approval, _Mapping]] = ...) -> None: ...

class Approval(_message.Message):
    __slots__ = ("approval_id", "session_id", "question", "plan", "options", "state", "decision", "note", "decided_by", "asked_at", "decided_at", "expires_at", "plan_hash")
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    DECIDED_BY_FIELD_NUMBER: _ClassVar[int]
    ASKED_AT_FIELD_NUMBER: _ClassVar[int]
    DECIDED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    PLAN_HASH_FIELD_NUMBER: _ClassVar[int]
    approval_id: str
    session_id: str
    question: str
    plan: str
    options: _containers.RepeatedScalarFieldContainer[str]
    state: str
    decision: str
    note: str
    decided_by: str
    asked_at: _timestamp_pb2.Timestamp
    decided_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    plan_hash: str
    def __init__(self, approval_id: _Optional[str] = ..., session_id: _Optional[str] = ..., question: _Optional[str] = ..., plan: _Optional[str] = ..., options: _Optional[_Iterable[str]] = ..., state: _Optional[str] = ..., decision: _Optional[str] = ..., note: _Optional[str] = ..., decided_by: _Optional[str] = ..., asked_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., decided_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., expires_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., plan_hash: _Optional[str] = ...) -> None: ...

class CallOperationRequest(_message.Message):
    __slots__ = ("operation", "arguments")
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    operation: str
    arguments: str
    def __init__(self, operation: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class CallOperationResponse(_message.Message):
    __slots__ = ("answer",)
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    answer: str
    def __init__(self, answer: _Optional[str] = ...) -> None: ...

from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskRequest(_message.Message):
    __slots__ = ("task_id", "agent_id", "input", "parameters", "tool_ids", "session_id", "memory")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    TOOL_IDS_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    agent_id: str
    input: str
    parameters: _containers.ScalarMap[str, str]
    tool_ids: _containers.RepeatedScalarFieldContainer[str]
    session_id: str
    memory: Memory
    def __init__(self, task_id: _Optional[str] = ..., agent_id: _Optional[str] = ..., input: _Optional[str] = ..., parameters: _Optional[_Mapping[str, str]] = ..., tool_ids: _Optional[_Iterable[str]] = ..., session_id: _Optional[str] = ..., memory: _Optional[_Union[Memory, _Mapping]] = ...) -> None: ...

class TaskResponse(_message.Message):
    __slots__ = ("task_id", "output", "success", "error", "metadata", "session_id", "context")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    output: str
    success: bool
    error: str
    metadata: _containers.ScalarMap[str, str]
    session_id: str
    context: str
    def __init__(self, task_id: _Optional[str] = ..., output: _Optional[str] = ..., success: bool = ..., error: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., session_id: _Optional[str] = ..., context: _Optional[str] = ...) -> None: ...

class TaskChunk(_message.Message):
    __slots__ = ("task_id", "content", "is_final", "session_id", "response")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    IS_FINAL_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    content: str
    is_final: bool
    session_id: str
    response: TaskResponse
    def __init__(self, task_id: _Optional[str] = ..., content: _Optional[str] = ..., is_final: bool = ..., session_id: _Optional[str] = ..., response: _Optional[_Union[TaskResponse, _Mapping]] = ...) -> None: ...

class ToolRequest(_message.Message):
    __slots__ = ("tool_id", "operation", "parameters", "session_id")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOOL_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    tool_id: str
    operation: str
    parameters: _containers.ScalarMap[str, str]
    session_id: str
    def __init__(self, tool_id: _Optional[str] = ..., operation: _Optional[str] = ..., parameters: _Optional[_Mapping[str, str]] = ..., session_id: _Optional[str] = ...) -> None: ...

class ToolResponse(_message.Message):
    __slots__ = ("success", "result", "error", "session_id")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    success: bool
    result: str
    error: str
    session_id: str
    def __init__(self, success: bool = ..., result: _Optional[str] = ..., error: _Optional[str] = ..., session_id: _Optional[str] = ...) -> None: ...

class Memory(_message.Message):
    __slots__ = ("history", "context", "turns")
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    history: _containers.RepeatedCompositeFieldContainer[Said]
    context: str
    turns: int
    def __init__(self, history: _Optional[_Iterable[_Union[Said, _Mapping]]] = ..., context: _Optional[str] = ..., turns: _Optional[int] = ...) -> None: ...

class Said(_message.Message):
    __slots__ = ("role", "content")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("agent_id", "session_id")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    session_id: str
    def __init__(self, agent_id: _Optional[str] = ..., session_id: _Optional[str] = ...) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("agent_id", "status", "version", "active_tasks", "completed_tasks", "uptime_seconds", "session_id", "session_status")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_TASKS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_TASKS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_STATUS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    status: str
    version: str
    active_tasks: int
    completed_tasks: int
    uptime_seconds: float
    session_id: str
    session_status: str
    def __init__(self, agent_id: _Optional[str] = ..., status: _Optional[str] = ..., version: _Optional[str] = ..., active_tasks: _Optional[int] = ..., completed_tasks: _Optional[int] = ..., uptime_seconds: _Optional[float] = ..., session_id: _Optional[str] = ..., session_status: _Optional[str] = ...) -> None: ...

class AgentInfo(_message.Message):
    __slots__ = ("agent_id", "name", "description", "kind", "role", "endpoints", "lease_seconds")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    name: str
    description: str
    kind: str
    role: str
    endpoints: _containers.RepeatedScalarFieldContainer[str]
    lease_seconds: float
    def __init__(self, agent_id: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., kind: _Optional[str] = ..., role: _Optional[str] = ..., endpoints: _Optional[_Iterable[str]] = ..., lease_seconds: _Optional[float] = ...) -> None: ...

class RegisterAgentRequest(_message.Message):
    __slots__ = ("agent_id", "name", "description", "endpoint", "role", "lease_seconds")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    name: str
    description: str
    endpoint: str
    role: str
    lease_seconds: float
    def __init__(self, agent_id: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., endpoint: _Optional[str] = ..., role: _Optional[str] = ..., lease_seconds: _Optional[float] = ...) -> None: ...

class RegisterAgentResponse(_message.Message):
    __slots__ = ("success", "error", "agent_id", "lease_seconds")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    success: bool
    error: str
    agent_id: str
    lease_seconds: float
    def __init__(self, success: bool = ..., error: _Optional[str] = ..., agent_id: _Optional[str] = ..., lease_seconds: _Optional[float] = ...) -> None: ...

class ListAgentsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListAgentsResponse(_message.Message):
    __slots__ = ("agents",)
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[AgentInfo]
    def __init__(self, agents: _Optional[_Iterable[_Union[AgentInfo, _Mapping]]] = ...) -> None: ...

class ToolInfo(_message.Message):
    __slots__ = ("tool_id", "name", "description", "operations", "endpoints", "lease_seconds")
    TOOL_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    tool_id: str
    name: str
    description: str
    operations: _containers.RepeatedCompositeFieldContainer[ToolOperation]
    endpoints: _containers.RepeatedScalarFieldContainer[str]
    lease_seconds: float
    def __init__(self, tool_id: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., operations: _Optional[_Iterable[_Union[ToolOperation, _Mapping]]] = ..., endpoints: _Optional[_Iterable[str]] = ..., lease_seconds: _Optional[float] = ...) -> None: ...

class ToolOperation(_message.Message):
    __slots__ = ("name", "description", "parameters")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    parameters: str
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., parameters: _Optional[str] = ...) -> None: ...

class ListToolsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListToolsResponse(_message.Message):
    __slots__ = ("tools",)
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    tools: _containers.RepeatedCompositeFieldContainer[ToolInfo]
    def __init__(self, tools: _Optional[_Iterable[_Union[ToolInfo, _Mapping]]] = ...) -> None: ...

class RegisterToolRequest(_message.Message):
    __slots__ = ("tool_id", "name", "description", "endpoint", "operations", "lease_seconds")
    TOOL_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    tool_id: str
    name: str
    description: str
    endpoint: str
    operations: _containers.RepeatedCompositeFieldContainer[ToolOperation]
    lease_seconds: float
    def __init__(self, tool_id: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., endpoint: _Optional[str] = ..., operations: _Optional[_Iterable[_Union[ToolOperation, _Mapping]]] = ..., lease_seconds: _Optional[float] = ...) -> None: ...

class RegisterToolResponse(_message.Message):
    __slots__ = ("success", "error", "tool_id", "lease_seconds")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOOL_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    success: bool
    error: str
    tool_id: str
    lease_seconds: float
    def __init__(self, success: bool = ..., error: _Optional[str] = ..., tool_id: _Optional[str] = ..., lease_seconds: _Optional[float] = ...) -> None: ...

class TaskStatusRequest(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    def __init__(self, task_id: _Optional[str] = ...) -> None: ...

class TaskStatusResponse(_message.Message):
    __slots__ = ("task_id", "status", "agent_id", "session_id", "error", "started_at", "ended_at")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    status: str
    agent_id: str
    session_id: str
    error: str
    started_at: float
    ended_at: float
    def __init__(self, task_id: _Optional[str] = ..., status: _Optional[str] = ..., agent_id: _Optional[str] = ..., session_id: _Optional[str] = ..., error: _Optional[str] = ..., started_at: _Optional[float] = ..., ended_at: _Optional[float] = ...) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListWorkersResponse(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[AgentInfo]
    def __init__(self, workers: _Optional[_Iterable[_Union[AgentInfo, _Mapping]]] = ...) -> None: ...

"""Each door takes the parameters of the method; this file lists every difference with the door's name for it.

REST and the remote client derive their parameters from `moorage.api`, and gRPC's `CallOperation` calls any operation as
REST does. GraphQL, gRPC, MCP and the command line write theirs down; a parameter that is new in the specification fails
here until each of them offers it, or says that it does not.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import NamedTuple

import click
import pytest

from moorage.api import Context, Moorage
from moorage.doors.cli.app import cli
from moorage.doors.graphql.schema import schema, snake
from moorage.doors.grpc.sessions import METHODS, NAMES, TURNED
from moorage.doors.mcp.tools import TOOLS
from moorage.protobuf import sessions_pb2


class Row(NamedTuple):
    """A method, the parameters that a door has besides, and those that it leaves out."""

    method: str
    besides: str = ""
    without: str = ""


CREATED_AND_UPDATED = "created_after created_before updated_after updated_before"
SELDOM = f"{CREATED_AND_UPDATED} metadata_key metadata_value name_prefix phase project_dir resume_ready sort"

GRAPHQL = {
    "createAgentSession": Row("create", "initial_message"),
    "sendMessageToSession": Row("send", "wait"),
    "renameSession": Row("rename"),
    "suspendSession": Row("suspend"),
    "resumeSession": Row("resume"),
    "releaseSession": Row("release"),
    "completeSession": Row("finalize"),
    "forkSession": Row("fork", "new_session_id", "session_id"),
    "deleteSession": Row("delete"),
    "retryRun": Row("retry"),
    "decideApproval": Row("decide"),
    "agentSessions": Row("list", "after", f"{SELDOM} active_only cursor root"),
    "approvals": Row("approvals"),
}
OF_MEMORY = {"memory", "memories", "setMemory", "deleteMemory"}  # records have a specification of their own
OF_ONE = {"agentSession", "agentSessionsConnection"}  # the same with fewer, or the same, arguments

GRPC = {
    "CreateSession": Row("create", without="idempotency_key labels"),
    "GetSession": Row("get", without="messages"),
    "ListSessions": Row("list", without=f"{SELDOM} active_only interface label root"),
    "RetryRun": Row("retry"),
    "SuspendSession": Row("suspend", without="version"),
    "ResumeSession": Row("resume", without="version"),
    "ReleaseSession": Row("release"),
    "FinalizeSession": Row("finalize", without="version"),
    "DeleteSession": Row("delete", without="reason"),
    "ListChildren": Row("children"),
    "GetContext": Row("context.get"),
    "DeleteContext": Row("context.delete", without="version"),
    "RequestApproval": Row("request_approval", without="idempotency_key"),
    "ListApprovals": Row("approvals"),
    "DecideApproval": Row("decide", without="by plan_hash"),
}  # a client that wants those calls CallOperation

MCP = {
    "start_agent_session": Row("run", "wait_seconds", "expires_in on_event queue session timeout token ttl wake"),
    "send_message": Row("send", "message wait_seconds", "content run token"),
    "rename_session": Row("rename", without="version"),
    "suspend_session": Row("suspend", without="version"),
    "release_session": Row("release"),
    "stop_agent_session": Row("stop"),
    "delete_agent_session": Row("delete", without="reason"),
    "request_approval": Row("request_approval", without="idempotency_key"),
    "search_sessions": Row("search", "query", "text"),
    "list_agent_sessions": Row("list", without=f"{SELDOM} interface"),
    "list_children": Row("children"),
}

CLI = {
    "create": Row("create", "no_parent", "idempotency_key"),
    "update": Row("update"),
    "rename": Row("rename", "no_name", "token version"),
    "suspend": Row("suspend"),
    "resume": Row("resume", "prompt", "hold"),
    "release": Row("release"),
    "finalize": Row("finalize"),
    "fork": Row("fork", without="idempotency_key"),
    "delete": Row("delete", "no_cascade yes", "cascade reason"),
    "list": Row("list", without="interface resume_ready"),
    "children": Row("children", without="cursor limit"),
    "send": Row("send", "no_wake role text", "content run wake"),
    "run": Row("run", "no_session stop_on_exit", "expires_in on_event session_id token ttl wake"),
    "search": Row("search", "words", "text"),
    "cleanup": Row("cleanup", without="progress"),
    "stats": Row("stats", "plot since until", "created_after created_before"),
    "runs": Row("runs"),
    "result": Row("result"),
}
SAME = {
    "agent_name": "agent",
    "session_name": "name",
    "task": "task_id",
    "ttl_seconds": "ttl",
    "parent_session_id": "parent",
    "parent_session_name": "parent",
    "root_session_id": "root",
}  # what sessions call it in JSON, and what the methods do
SHOWING = {"as_json", "url", "wide"}  # where the store is, and how the answer is shown


def wanted(row: Row) -> set[str]:
    """Return what a door has to take, by the names of the method."""
    door, _, name = row.method.rpartition(".")
    parameters = inspect.signature(getattr(Context if door else Moorage, name)).parameters
    without = set(row.without.split())
    assert without <= parameters.keys(), "a parameter that is left out is one of the method's"
    return (parameters.keys() - {"self"} - without) | set(row.besides.split())


def as_the_method(row: Row, given: Iterable[str], **names: str) -> set[str]:
    """Return parameters by the names that the method gives them, `names` and REST's own being other ones for them."""
    renamed = {**SAME, **names}
    return {renamed.get(name, name) for name in given}


def session_of(row: Row, name: str) -> dict[str, str]:
    """Return the name of the parameter that the session is, if the method takes one."""
    return {name: "ref"} if "ref" in wanted(row) else {}


@pytest.mark.parametrize("name", GRAPHQL)
def test_arguments_of_graphql_are_those_of_the_method(name: str) -> None:
    row, root = GRAPHQL[name], schema()
    assert root.query_type is not None
    assert root.mutation_type is not None
    field = {**root.query_type.fields, **root.mutation_type.fields}[name]
    assert as_the_method(row, map(snake, field.args), message="content", **session_of(row, "session_id")) == wanted(row)


def test_no_field_of_graphql_is_forgotten() -> None:
    root = schema()
    assert root.query_type is not None
    assert root.mutation_type is not None
    assert {*root.query_type.fields, *root.mutation_type.fields} == {*GRAPHQL, *OF_MEMORY, *OF_ONE}


@pytest.mark.parametrize("name", METHODS)
def test_fields_of_grpc_are_the_parameters_of_the_method(name: str) -> None:
    row, kind = GRPC[name], getattr(sessions_pb2, f"{name}Request")
    assert row.method == METHODS[name]
    names = {**NAMES, **TURNED, "session": "session", **session_of(row, "session")}
    assert as_the_method(row, (field.name for field in kind.DESCRIPTOR.fields), **names) == wanted(row)


@pytest.mark.parametrize("name", MCP)
def test_arguments_of_mcp_are_those_of_the_method(name: str) -> None:
    row = MCP[name]
    assert as_the_method(row, TOOLS[name].request.__struct_fields__, **session_of(row, "session_id")) == wanted(row)


@pytest.mark.parametrize("name", CLI)
def test_options_of_the_command_line_are_those_of_the_method(name: str) -> None:
    row, command = CLI[name], cli.get_command(click.Context(cli), name)
    assert command is not None
    given = {str(each.name) for each in command.params} - SHOWING
    assert as_the_method(row, given, **session_of(row, "session")) == wanted(row)

"""CallOperation: any operation of the API by its name, with the fields, scopes and answers of REST."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest

from moorage.core.render import to_json
from moorage.protobuf import sessions_pb2 as sp
from moorage.remote.operations import OPERATIONS
from tests.doors.grpc.serving import Served
from tests.doors.grpc.test_access import bearer, guarded, token
from tests.doors.grpc.test_platform import refused, trailing

__all__ = ["guarded"]  # a fixture
Metadata = list[tuple[str, str]] | None
NAMES = sorted({operation.name for operation in OPERATIONS})


async def call(served: Served, operation: str, by: Metadata = None, /, **arguments: Any) -> Any:
    request = sp.CallOperationRequest(operation=operation, arguments=json.dumps(arguments))
    return json.loads((await served.sessions.CallOperation(request, metadata=by)).answer)


async def code(served: Served, operation: str, by: Metadata = None, /, **arguments: Any) -> str:
    request = sp.CallOperationRequest(operation=operation, arguments=json.dumps(arguments))
    return str(trailing(await refused(served.sessions.CallOperation(request, metadata=by)))["error-code"])


async def test_operation_answers_as_the_method_does(served: Served) -> None:
    made = await call(served, "create", session_id="s", agent_name="planner", metadata={"a": [1]})
    assert (made["session_id"], made["interface"], made["metadata"]) == ("s", "grpc", {"a": [1]})
    assert (await call(served, "context.put", session_id="s", key="k", value={"x": 1}))["keys"] == ["k"]
    assert await call(served, "context.get", session_id="s") == {"k": {"x": 1}}
    assert await call(served, "context.get", session_id="s", key="k") == {"x": 1}
    forked = await call(served, "fork", session_id="s", at=1)
    assert forked["forked_from"] == "s"
    listed = await call(served, "list", agent="planner", limit=10)
    assert listed == to_json(await served.moorage().list(agent="planner", limit=10))


async def test_errors_match_those_of_rest(served: Served) -> None:
    assert await code(served, "nonsense") == "invalid_operation"
    assert await code(served, "get") == "invalid_session_id"
    assert await code(served, "get", session_id="nobody") == "session_not_found"
    assert await code(served, "create", nonsense=1) == "invalid_nonsense"
    assert await code(served, "create", agent_name=5) == "invalid_agent_name"
    for wrong in ("[]", "{"):
        request = sp.CallOperationRequest(operation="list", arguments=wrong)
        error = await refused(served.sessions.CallOperation(request))
        assert trailing(error)["error-code"] == "invalid_arguments"


@pytest.mark.parametrize("name", NAMES)
async def test_every_operation_can_be_named(served: Served, name: str) -> None:
    request = sp.CallOperationRequest(operation=name)
    calling = served.sessions.CallOperation(request)
    assert await calling.code() in (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT), await calling.details()


async def test_scopes_are_those_of_the_operation(guarded: Served) -> None:
    reader = await bearer(guarded, "read")
    assert (await call(guarded, "list", reader))["items"] == []
    assert await code(guarded, "create", reader) == "forbidden"
    assert await code(guarded, "keys", await bearer(guarded, "read", "write")) == "forbidden"


async def test_session_token_has_the_same_scope_as_in_rest(guarded: Served) -> None:
    moor = guarded.moorage()
    await moor.create(session_id="own", parent=None)
    await moor.create(session_id="other", parent=None)
    own = await token(guarded, "own")
    assert (await call(guarded, "get", own, session_id="own"))["session_id"] == "own"
    assert await code(guarded, "get", own, session_id="other") == "out_of_reach"
    assert await code(guarded, "search", own, q="x") == "out_of_reach"

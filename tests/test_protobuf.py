"""src/moorage/protobuf is what protoc makes of proto/, and clients of the first days are understood for ever."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from moorage.protobuf import agent_platform_pb2 as pb

SCRIPT = Path(__file__).parents[1] / "scripts" / "generate_proto.py"


def test_the_generated_code_is_fresh() -> None:
    spec = importlib.util.spec_from_file_location("generate_proto", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.is_fresh(), "run scripts/generate_proto.py"


# As the guide has them, by number. Later fields begin at 16.
FIELDS = {
    pb.TaskRequest: "task_id agent_id input parameters tool_ids session_id",
    pb.TaskResponse: "task_id output success error metadata session_id",
    pb.TaskChunk: "task_id content is_final session_id",
    pb.ToolRequest: "tool_id operation parameters session_id",
    pb.ToolResponse: "success result error session_id",
}


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.DESCRIPTOR.name)
def test_fields_have_the_numbers_of_the_guide(kind: type[pb.TaskRequest]) -> None:
    numbered = {field.number: field.name for field in kind.DESCRIPTOR.fields if field.number < 16}
    assert numbered == dict(enumerate(FIELDS[kind].split(), 1))


def test_bytes_of_a_client_of_the_first_days_are_read() -> None:
    """task_id 1, agent_id 2, input 3, parameters 4 (a map), tool_ids 5, session_id 6, written by hand."""
    data = b"\x0a\x01t\x12\x01a\x1a\x01i\x22\x06\x0a\x01k\x12\x01v\x2a\x01x\x32\x01s"
    read = pb.TaskRequest.FromString(data)
    assert (read.task_id, read.agent_id, read.input, read.session_id) == ("t", "a", "i", "s")
    assert (dict(read.parameters), list(read.tool_ids)) == ({"k": "v"}, ["x"])
    answer = pb.TaskResponse(task_id="t", output="o", success=True, error="", metadata={"k": "v"}, session_id="s")
    assert answer.SerializeToString() == b"\x0a\x01t\x12\x01o\x18\x01\x2a\x06\x0a\x01k\x12\x01v\x32\x01s"

"""proto/ keeps the rules of `buf lint`. buf runs where npm can fetch it; the most important rules need no tool."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.protobuf import agent_platform_pb2, sessions_pb2
from tests.npm import buf

ROOT = Path(__file__).parents[1]
OURS = [sessions_pb2.DESCRIPTOR]  # `agentplatform` has the names of a published contract, see buf.yaml
ALL = [*OURS, agent_platform_pb2.DESCRIPTOR]
WORDS = re.compile(r"([A-Z][a-z0-9]*)+")
LOWER = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def test_buf_finds_nothing() -> None:
    done = subprocess.run([buf(), "lint"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_files_of_a_package_are_in_its_folder_and_the_package_has_a_version() -> None:
    for file in OURS:
        assert (ROOT / "proto" / file.name).is_file()
        assert file.name.rpartition("/")[0] == file.package.replace(".", "/")
        assert re.search(r"\.v\d+$", file.package)


def test_services_end_in_service_and_methods_have_messages_of_their_own() -> None:
    methods = [method for file in OURS for service in file.services_by_name.values() for method in service.methods]
    for method in methods:
        assert method.containing_service.name.endswith("Service")
        assert (method.input_type.name, method.output_type.name) == (f"{method.name}Request", f"{method.name}Response")
    used = Counter(kind.full_name for method in methods for kind in (method.input_type, method.output_type))
    assert [name for name, times in used.items() if times > 1] == []


def test_names_are_written_as_protobuf_writes_them() -> None:
    for file in ALL:
        for service in file.services_by_name.values():
            assert all(WORDS.fullmatch(name) for name in (service.name, *(each.name for each in service.methods)))
        for message in messages(file):
            assert WORDS.fullmatch(message.name)
            assert [field.name for field in message.fields if not LOWER.fullmatch(field.name)] == []


def test_values_of_enums_begin_with_unspecified_and_have_its_prefix() -> None:
    for file in ALL:
        for enum in (*file.enum_types_by_name.values(), *(each for m in messages(file) for each in m.enum_types)):
            assert wrong_values(enum.name, [(value.name, value.number) for value in enum.values]) == []


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ([("RUN_STATE_UNSPECIFIED", 0), ("RUN_STATE_QUEUED", 1)], []),
        ([("RUN_STATE_QUEUED", 0)], ["RUN_STATE_QUEUED"]),
        ([("RUN_STATE_UNSPECIFIED", 0), ("QUEUED", 1)], ["QUEUED"]),
    ],
)
def test_wrong_values_of_enums_are_noticed(values: list[tuple[str, int]], wrong: list[str]) -> None:
    """There is no enum in proto/ yet, so the rule is tried on some of our own."""
    assert wrong_values("RunState", values) == wrong


def wrong_values(enum: str, values: list[tuple[str, int]]) -> list[str]:
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum).upper() + "_"
    return [
        name
        for name, number in values
        if not name.startswith(prefix) or (number == 0) is not (name == f"{prefix}UNSPECIFIED")
    ]


def messages(file: Any) -> Iterator[Any]:
    """All messages of a file, those within others too; maps have some that the compiler makes."""
    waiting = list(file.message_types_by_name.values())
    while waiting:
        message = waiting.pop()
        if not message.GetOptions().map_entry:
            yield message
            waiting += message.nested_types

"""The OpenAPI document: whole, unambiguous, and true of the server that shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage import config
from moorage.core.session import PUBLIC_FIELDS
from moorage.doors.http.app import Door
from moorage.doors.http.openapi import openapi
from moorage.doors.http.serve import make_door


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    deps = config.open_deps(f"memory://{tmp_path}", threaded=True)
    yield make_door(deps)
    await deps.store.close()


def operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for verbs in document["paths"].values() for operation in verbs.values()]


async def test_every_operation_has_a_name_of_its_own(door: Door) -> None:
    names = Counter(operation["operationId"] for operation in operations(openapi(door.described)))
    assert [name for name, count in names.items() if count > 1] == []


async def test_every_reference_leads_somewhere(door: Door) -> None:
    document = openapi(door.described)
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(_references(document)) == known, "both ways: nothing dangles, nothing is left over"


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [each for inner in value.values() for each in _references(inner)]
    return [each for inner in value for each in _references(inner)] if isinstance(value, list) else []


async def test_a_session_has_its_public_fields(door: Door) -> None:
    session = openapi(door.described)["components"]["schemas"]["Session"]
    assert set(session["required"]) == set(PUBLIC_FIELDS)


async def test_once_keys_are_needed_the_document_says_so(door: Door) -> None:
    assert {} in openapi(door.described, needs_key=False)["security"]
    document = openapi(door.described, needs_key=True)
    assert document["security"] == [{"key": []}]
    without = {each["operationId"] for each in operations(document) if each.get("security") == []}
    assert without == {"healthz", "readyz", "openapi", "docs", "web"}


async def test_what_a_field_may_say_is_in_the_document(door: Door) -> None:
    document = openapi(door.described)
    [sort] = [each for each in document["paths"]["/sessions"]["get"]["parameters"] if each["name"] == "sort"]
    assert sort["schema"]["enum"] == ["-created", "created", "-updated", "updated"]
    assert "created" in document["paths"]["/sessions"]["get"]["parameters"][1]["schema"]["enum"]


async def test_two_types_of_one_name_are_told(door: Door) -> None:
    from msgspec import Struct, defstruct

    from moorage.doors.http.described import Described

    class Session(Struct):
        other: int

    odd = Described(name="odd", summary="odd", body=defstruct("Run", [("other", int)]), answer=Session)
    with pytest.raises(TypeError, match="two types are called"):
        openapi([*door.described, ("GET", "/odd", odd)])

"""The OpenAPI document: made from the table of operations and from what hand-written routes say of themselves."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast import __version__
from holdfast.core.entry import Entry
from holdfast.core.session import PUBLIC_FIELDS, Session
from holdfast.doors.http.described import Described
from holdfast.remote.operations import OPERATIONS, Operation

JSON = "application/json"
PROBLEM = "application/problem+json"
REF = "#/components/schemas/{name}"
REFUSALS = {
    "401": "No key, or one that is not valid",
    "403": "This key or token may not",
    "404": "Not there, or not yours",
    "405": "Not possible here",
    "409": "Refused as things stand",
    "410": "Deleted",
    "412": "Not the version that If-Match names",
    "413": "Too large",
    "422": "The request is wrong",
    "429": "Too many requests",
    "503": "The store cannot answer; nothing was changed",
}
_KEYED = "idempotency_key"


def openapi(described: list[tuple[str, str, Described]]) -> dict[str, Any]:
    """The whole document. `described` are the routes besides the table: verb, path, what they say."""
    types = _Types()
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.verb.lower()] = _operation(operation, types)
    for verb, path, route in described:
        paths.setdefault(path, {})[verb.lower()] = _described(path, route, types)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": __version__,
            "description": "Durable sessions for AI agents. Errors are application/problem+json with a stable `code`.",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": types.components(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


class _Types:
    """Python types as JSON schemas, shared ones by reference."""

    def __init__(self) -> None:
        self._components: dict[str, Any] = {"Problem": _PROBLEM}

    def schema(self, kind: Any) -> dict[str, Any]:
        """The schema of a type; what it speaks of is kept for `components`."""
        [schema], components = msgspec.json.schema_components([kind], ref_template=REF)
        for name, component in components.items():
            self._components[name] = _session_schema(component) if name == Session.__name__ else component
        return schema

    def components(self) -> dict[str, Any]:
        return dict(sorted(self._components.items()))


_PROBLEM = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "request_id": {"type": "string"},
    },
    "required": ["status", "code", "detail"],
}


def _session_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A session as it is shown: without what only the rules need, with its status."""
    shown = {name: each for name, each in schema["properties"].items() if name in PUBLIC_FIELDS}
    shown["status"] = {"type": "string"}
    shown["redacted"] = {"type": "array", "items": {"type": "string"}}
    shown["messages"] = {"type": "array", "items": {"$ref": REF.format(name=Entry.__name__)}}
    return {**schema, "properties": shown, "required": list(PUBLIC_FIELDS)}


def _operation(operation: Operation, types: _Types) -> dict[str, Any]:
    request = types.schema(operation.request)
    name = request["$ref"].rpartition("/")[2]
    shape = types._components[name] if operation.has_body else types._components.pop(name)
    document: dict[str, Any] = {
        "operationId": f"{operation.name}{'' if operation.path.count('{') < 2 else '_one'}",
        "summary": operation.summary,
        "tags": [operation.path.split("/")[1]],
        "x-scope": operation.scope.value,
        "parameters": [_in_path(name) for name in operation.in_path],
        "responses": _responses(str(operation.status), types.schema(_answer(operation)), JSON),
    }
    if operation.has_body:
        required = bool(shape.get("required"))
        document["requestBody"] = {"required": required, "content": {JSON: {"schema": request}}}
    else:
        document["parameters"] += [_in_query(name, each, shape) for name, each in shape.get("properties", {}).items()]
    if operation.body is not None:
        document["requestBody"] = {"required": True, "content": {JSON: {"schema": types.schema(_whole(operation))}}}
    document["parameters"] += _headers(operation)
    return document


def _whole(operation: Operation) -> Any:
    return dict[str, Any] if operation.body == "values" else Any


def _answer(operation: Operation) -> Any:
    from holdfast.core.query import Page

    if operation.is_list:
        return Page[operation.answer.__args__[0]]  # type: ignore[name-defined]
    return dict[str, operation.answer] if operation.wraps is not None else operation.answer  # type: ignore[name-defined]


def _in_path(name: str) -> dict[str, Any]:
    kind = "integer" if name == "number" else "string"
    return {"name": name, "in": "path", "required": True, "schema": {"type": kind}}


def _in_query(name: str, schema: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
    schema = _without_null(schema)
    many = {"style": "form", "explode": False} if schema.get("type") == "array" else {}
    return {"name": name, "in": "query", "required": name in shape.get("required", ()), "schema": schema, **many}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query has no null: what is not given is left out."""
    options = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if not options:
        return schema
    return options[0] if len(options) == 1 else {**schema, "anyOf": options}


def _headers(operation: Operation) -> list[dict[str, Any]]:
    wanted = []
    if "version" in operation.parameters:
        wanted.append(("If-Match", "The version this change is for, as its ETag says"))
    if _KEYED in operation.parameters:
        wanted.append(("Idempotency-Key", "A repeated request with the same key is answered, not done again"))
    return [
        {"name": name, "in": "header", "required": False, "description": why, "schema": {"type": "string"}}
        for name, why in wanted
    ]


def _responses(status: str, schema: dict[str, Any], kind: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "Done"}
    if status != "204":
        answer["content"] = {kind: {"schema": schema}}
    problem = {PROBLEM: {"schema": {"$ref": REF.format(name="Problem")}}}
    return {status: answer, **{code: {"description": why, "content": problem} for code, why in REFUSALS.items()}}


def _described(path: str, route: Described, types: _Types) -> dict[str, Any]:
    import re

    answer = types.schema(route.answer) if route.answer is not None else {"type": "string"}
    document: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [path.split("/")[1] or "pages"],
        "parameters": [_in_path(name) for name in re.findall(r"{(\w+)}", path)],
        "responses": _responses(str(route.status), answer, route.kind),
    }
    if route.scope is not None:
        document["x-scope"] = route.scope.value
    for name, (kind, why) in route.query.items():
        schema = types.schema(kind)
        document["parameters"].append({"name": name, "in": "query", "description": why, "schema": schema})
    if route.body is not None:
        schema = types.schema(route.body)
        document["requestBody"] = {"required": route.needs_body, "content": {route.takes: {"schema": schema}}}
    return document

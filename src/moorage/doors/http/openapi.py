"""The OpenAPI document: made from the table of operations and from what hand-written routes say of themselves."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from moorage import __version__
from moorage.core.codec import encode
from moorage.core.entry import Entry
from moorage.core.key import scope_text
from moorage.core.query import STATUSES, Page
from moorage.core.session import PUBLIC_FIELDS, Session
from moorage.core.status import Child
from moorage.doors.http import constraints
from moorage.doors.http.constraints import REF
from moorage.doors.http.described import Described
from moorage.doors.http.links import add_links
from moorage.remote.operations import OPERATIONS, SESSION, Operation, variants

JSON = "application/json"
PROBLEM = "application/problem+json"
SSE = "text/event-stream"
BYTES = "application/octet-stream"  # generators know it, and no other type of a file
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
TEXT = {"type": "string"}
EVENTS = {"description": "Server-sent events"}
FILE = {"type": "string", "format": "binary"}
_KEYED = "idempotency_key"


def openapi(described: list[tuple[str, str, Described]], *, needs_key: bool = False) -> dict[str, Any]:
    """The whole document. `described` are the routes besides the table: verb, path, what they say."""
    types = _Types()
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.verb.lower()] = _operation(operation, types)
    for verb, path, route in described:
        paths.setdefault(path, {})[verb.lower()] = _described(path, route, types)
    add_links(paths)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Moorage",
            "version": __version__,
            "description": "Durable sessions for AI agents. Errors are application/problem+json with a stable `code`.",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": types.components(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}] if needs_key else [{}, {"key": []}],
    }


class _Types:
    """Python types as JSON schemas, shared ones by reference."""

    def __init__(self) -> None:
        self._components: dict[str, Any] = {"ProblemDetails": _PROBLEM, **constraints.COMPONENTS}
        self._made: dict[str, bytes] = {}  # before anything was said of them

    def schema(self, kind: Any) -> dict[str, Any]:
        """The schema of a type; what it speaks of is kept for `components`."""
        [schema], components = msgspec.json.schema_components([kind], ref_template=REF)
        for name, component in components.items():
            made = encode(component)
            if self._made.setdefault(name, made) != made:
                raise TypeError(f"two types are called {name}, and the document can have only one")
            self._components.setdefault(name, _session_schema(component) if name == Session.__name__ else component)
        return schema

    def shape(self, schema: dict[str, Any]) -> dict[str, Any]:
        """A schema itself, where `schema` only says where it is."""
        return self._components[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema

    def in_query(self, operation: str, kind: type[msgspec.Struct]) -> list[dict[str, Any]]:
        """The fields of a type as parameters of a query; the type itself is nobody else's then."""
        shape = self._components.pop(kind.__name__)
        del self._made[kind.__name__]
        needed, fields = shape.get("required", ()), shape["properties"]
        narrowed = {name: constraints.narrow_query(operation, name, schema) for name, schema in fields.items()}
        return [_in_query(name, schema, required=name in needed) for name, schema in narrowed.items()]

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


_WAITING_FOR = {
    "type": "object",
    "properties": {
        "approval_id": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "child": {"anyOf": [{"type": "null"}, {"$ref": REF.format(name=Child.__name__)}]},
    },
    "required": ["approval_id", "child"],
}


def _session_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A session as it is shown: without what only the rules need, with its status."""
    shown = {name: each for name, each in schema["properties"].items() if name in PUBLIC_FIELDS}
    shown["status"] = {"enum": list(STATUSES)}
    shown["waiting_for"] = {"anyOf": [{"type": "null"}, _WAITING_FOR]}
    shown["redacted"] = {"type": "array", "items": {"type": "string"}}
    shown["messages"] = {"type": "array", "items": {"$ref": REF.format(name=Entry.__name__)}}
    return {**schema, "properties": shown, "required": list(PUBLIC_FIELDS)}


def _operation(operation: Operation, types: _Types) -> dict[str, Any]:
    request = types.schema(operation.request)
    shape = types.shape(request)
    document: dict[str, Any] = {
        "operationId": _operation_id(operation),
        "summary": operation.summary,
        "tags": [operation.path.split("/")[1]],
        "x-scope": scope_text(operation.scope, operation.or_scope),
        "parameters": [_in_path(name) for name in operation.in_path],
        "responses": _responses(str(operation.status), types.schema(_answer(operation)), JSON),
    }
    if operation.has_body:
        constraints.narrow_body(operation.name, shape)
        required = bool(shape.get("required")) or operation.name in constraints.NEEDS_BODY
        document["requestBody"] = {"required": required, "content": {JSON: {"schema": request}}}
    else:
        document["parameters"] += types.in_query(operation.name, operation.request)
    if operation.body is not None:
        whole = constraints.VALUES if operation.body == "values" else {}
        document["requestBody"] = {"required": True, "content": {JSON: {"schema": whole}}}
    document["parameters"] += _headers(operation)
    return document


def _operation_id(operation: Operation) -> str:
    """The method's name; where two routes lead to it, the one that says more is told apart."""
    every = variants(operation.name)
    return f"{operation.name}_one" if len(every) > 1 and operation is every[0] else operation.name


def _answer(operation: Operation) -> Any:
    if operation.is_list:
        return Page[operation.answer.__args__[0]]  # type: ignore[name-defined]
    return dict[str, operation.answer] if operation.wraps is not None else operation.answer  # type: ignore[name-defined]


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": constraints.PATH.get(name, TEXT)}


def _in_query(name: str, schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    why = {"description": schema.pop("description")} if "description" in schema else {}
    return {"name": name, "in": "query", "required": required, "schema": schema, **why}


def _headers(operation: Operation) -> list[dict[str, Any]]:
    wanted = []
    if operation.verb != "GET" and SESSION in operation.in_path:
        wanted.append(("If-Match", "The version of the session this change is for, as its ETag says"))
    if _KEYED in operation.parameters:
        wanted.append(("Idempotency-Key", "A repeated request with the same key is answered, not done again"))
    return [
        {"name": name, "in": "header", "required": False, "description": why, "schema": constraints.HEADERS[name]}
        for name, why in wanted
    ]


def _responses(status: str, schema: dict[str, Any], kind: str, or_as: tuple[str, ...] = ()) -> dict[str, Any]:
    problem = {PROBLEM: {"schema": {"$ref": REF.format(name="ProblemDetails")}}}
    answers: dict[str, Any] = {code: {"description": why, "content": problem} for code, why in REFUSALS.items()}
    answers[status] = {"description": "Done", "content": {kind: {"schema": schema}}}
    for other in or_as:
        told = {"schema": EVENTS if other == SSE else TEXT}
        answers.setdefault("200", {"description": "Done", "content": {}})["content"][other] = told
    return dict(sorted(answers.items()))


def _described(path: str, route: Described, types: _Types) -> dict[str, Any]:
    answer = types.schema(route.answer) if route.answer is not None else TEXT
    document: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [path.split("/")[1] or "pages"],
        "parameters": [_in_path(name) for name in re.findall(r"{(\w+)}", path)],
        "responses": _responses(str(route.status), answer, route.kind, route.or_as),
    }
    if route.is_open:
        document["security"] = []
    if route.scope is not None:
        document["x-scope"] = route.scope.value
    if route.query is not None:
        types.schema(route.query)
        document["parameters"] += types.in_query(route.name, route.query)
    if route.body is bytes:
        document["requestBody"] = {"required": not route.may_be_empty, "content": {BYTES: {"schema": FILE}}}
    elif route.body is not None:
        schema = types.schema(route.body)
        shape = types.shape(schema)
        constraints.narrow_body(route.name, shape)
        required = bool(shape.get("required")) or route.name in constraints.NEEDS_BODY
        document["requestBody"] = {"required": required, "content": {JSON: {"schema": schema}}}
    return document

"""The OpenAPI document, generated from the routes, also as a page: plain HTML, without scripts, usable offline."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html import escape
from typing import Any

import msgspec
from msgspec.structs import replace

from moorage import __version__
from moorage.core.codec import encode
from moorage.core.entry import Entry
from moorage.core.key import scope_text
from moorage.core.query import STATUSES
from moorage.core.session import PUBLIC_FIELDS, Session
from moorage.core.status import Child
from moorage.doors.http import constraints
from moorage.doors.http.app import Route
from moorage.doors.http.constraints import NULL, REF
from moorage.remote.operations import SESSION, Operation, variants

JSON = "application/json"
PROBLEM = "application/problem+json"
SSE = "text/event-stream"
BYTES = "application/octet-stream"  # known to generators, unlike other types of files
REFUSALS = {
    "401": "Unauthorized: the key is missing or invalid",
    "403": "Forbidden: the key or token lacks the scope",
    "404": "Not found, or owned by another owner",
    "405": "Method not allowed",
    "409": "Conflict with the current state",
    "410": "Gone: it was deleted",
    "412": "Precondition failed: the version differs from If-Match",
    "413": "Content too large",
    "422": "The request is invalid",
    "429": "Too many requests",
    "503": "The store is unavailable; nothing was changed",
}
TEXT = {"type": "string"}


def openapi(routes: Iterable[Route], *, needs_key: bool = False) -> dict[str, Any]:
    """Return the whole document."""
    types = _Types()
    paths: dict[str, dict[str, Any]] = {}
    for route in described(routes):
        paths.setdefault(route.path, {})[route.verb.lower()] = _operation(route, types)
    _add_links(paths)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Moorage",
            "version": __version__,
            "description": "Durable sessions for AI agents. Errors are application/problem+json with a stable `code`.",
        },
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": types.components(), "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{"key": []}] if needs_key else [{}, {"key": []}],
    }


class _Types:
    """Python types as JSON schemas, with shared ones by reference."""

    def __init__(self) -> None:
        self._components: dict[str, Any] = {"ProblemDetails": _PROBLEM, **constraints.COMPONENTS}
        self._made: dict[str, bytes] = {}  # schemas without the descriptions

    def schema(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type; types it refers to are kept for `components`."""
        [schema], components = msgspec.json.schema_components([kind], ref_template=REF)
        for name, component in components.items():
            made = encode(component)
            if self._made.setdefault(name, made) != made:
                raise TypeError(f"two types are called {name}, and the document can have only one")
            self._components.setdefault(name, _session_schema(component) if name == Session.__name__ else component)
        return schema

    def shape(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return a schema itself, where `schema` may return a reference."""
        return self._components[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema

    def in_query(self, operation: str, kind: type[msgspec.Struct]) -> list[dict[str, Any]]:
        """Return the fields of a type as parameters of a query; the type itself is not listed then."""
        self.schema(kind)
        shape = self._components.pop(kind.__name__)
        del self._made[kind.__name__]
        needed, fields = shape.get("required", ()), shape["properties"]
        constraints.narrow_query(operation, fields)
        return [_in_query(name, schema, required=name in needed) for name, schema in fields.items()]

    def components(self) -> dict[str, Any]:
        return dict(sorted(self._components.items()))


_PROBLEM_FIELDS = dict.fromkeys(("type", "title", "status", "code", "detail", "request_id"), TEXT)
_PROBLEM = {
    "type": "object",
    "properties": {**_PROBLEM_FIELDS, "status": {"type": "integer"}},
    "required": ["status", "code", "detail"],
}
_WAITING_FOR = {
    "type": "object",
    "properties": {
        "approval_id": {"anyOf": [TEXT, NULL]},
        "child": {"anyOf": [NULL, {"$ref": REF.format(name=Child.__name__)}]},
    },
    "required": ["approval_id", "child"],
}


def _session_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a session as clients see it: with its status, without fields that only the rules need."""
    shown = {name: each for name, each in schema["properties"].items() if name in PUBLIC_FIELDS}
    shown["status"] = {"enum": list(STATUSES)}
    shown["waiting_for"] = {"anyOf": [NULL, _WAITING_FOR]}
    shown["redacted"] = {"type": "array", "items": {"type": "string"}}
    shown["messages"] = {"type": "array", "items": {"$ref": REF.format(name=Entry.__name__)}}
    return {**schema, "properties": shown, "required": list(PUBLIC_FIELDS)}


def described(routes: Iterable[Route]) -> list[Route]:
    """Return the routes of the document, with all facts of their operations."""
    return [route for route in map(_described, routes) if route.summary is not None]


def _described(route: Route) -> Route:
    """Return the route of an operation with all facts of the operation; return any other route unchanged."""
    operation = route.operation
    if operation is None:
        return route
    return replace(
        route,
        name=_operation_id(operation) if route.name == operation.name else route.name,
        summary=operation.summary,
        query=None if operation.has_body else operation.request,
        body=operation.request if operation.has_body else constraints.WHOLE_BODIES.get(operation.body or ""),
        answer=operation.document,
        status=operation.status,
    )


def _operation_id(operation: Operation) -> str:
    """Return the method's name; of two routes to one method, the longer one gets a suffix."""
    every = variants(operation.name)
    return f"{operation.name}_one" if len(every) > 1 and operation is every[0] else operation.name


def _operation(route: Route, types: _Types) -> dict[str, Any]:
    answer = types.schema(route.answer) if route.answer is not None else TEXT
    document: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.path.split("/")[1] or "pages"],
        "parameters": [_in_path(name) for name in re.findall(r"{(\w+)}", route.path)],
        "responses": _responses(str(route.status), answer, route.kind, route.or_as),
    }
    if route.is_open:
        document["security"] = []
    if route.scope is not None:
        document["x-scope"] = scope_text(route.scope, route.or_scope)
    if route.body is not None:
        document["requestBody"] = _body(route, types)
    if route.query is not None:
        document["parameters"] += types.in_query(_plain_name(route), route.query)
    if route.operation is not None:
        document["parameters"] += _headers(route.operation)
    return document


def _plain_name(route: Route) -> str:
    """Return the name by which constraints know a route."""
    return route.name if route.operation is None else route.operation.name


def _body(route: Route, types: _Types) -> dict[str, Any]:
    if isinstance(route.body, dict):
        return {"required": True, "content": {JSON: {"schema": route.body}}}
    if route.body is bytes:
        return {"required": not route.may_be_empty, "content": {BYTES: {"schema": {**TEXT, "format": "binary"}}}}
    name, schema = _plain_name(route), types.schema(route.body)
    shape = types.shape(schema)
    constraints.narrow_body(name, shape)
    required = bool(shape.get("required")) or name in constraints.NEEDS_BODY
    return {"required": required, "content": {JSON: {"schema": schema}}}


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": constraints.PATH.get(name, TEXT)}


def _in_query(name: str, schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    why = {"description": schema.pop("description")} if "description" in schema else {}
    return {"name": name, "in": "query", "required": required, "schema": schema, **why}


def _headers(operation: Operation) -> list[dict[str, Any]]:
    wanted = []
    if operation.verb != "GET" and SESSION in operation.in_path:
        wanted.append(("If-Match", "The version of the session this change is for, as its ETag says"))
    if operation.key is not None:
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
        told = {"schema": {"description": "Server-sent events"} if other == SSE else TEXT}
        answers.setdefault("200", {"description": "Done", "content": {}})["content"][other] = told
    return dict(sorted(answers.items()))


# Links ------------------------------------------------------------------------------------------
# They tell generators and testing tools that the id of a newly created session leads to its messages.

CREATED = {"session_id": "$response.body#/session_id"}
OF_RUN = ("get_run", "result", "stop_run", "retry")
SAME_SESSION = {"session_id": "$request.path.session_id"}
SAME_RECORD = {"namespace": "$request.path.namespace", "record_key": "$request.path.record_key"}
SAME_KEY = {**SAME_SESSION, "key": "$request.path.key"}

# For each operation: the fields of its answer, and the operations that take them; none listed means all of a
# session's.
LINKS: dict[str, list[tuple[dict[str, str], tuple[str, ...]]]] = {
    "create": [(CREATED, ())],
    "agent_sessions_create": [(CREATED, ("agent_sessions_get", "agent_sessions_messages", "agent_sessions_complete"))],
    "fork": [(CREATED, ("get", "messages", "ancestors"))],
    "run": [
        ({"run_id": "$response.body#/run/run_id"}, OF_RUN),
        ({"session_id": "$response.body#/run/session_id"}, ("get", "messages", "log")),
    ],
    "request_approval": [({"approval_id": "$response.body#/approval_id"}, ("approval", "decide"))],
    "save_checkpoint": [({**SAME_SESSION, "number": "$response.body#/number"}, ("checkpoint_one",))],
    "context.put": [(SAME_KEY, ("context.get_one", "context.delete_one"))],
    "record_put": [({**SAME_SESSION, **SAME_RECORD}, ("record_get", "record_delete"))],
    "memory_put": [(SAME_RECORD, ("memory_get", "memory_delete"))],
    "register_launcher": [
        ({"launcher_id": "$response.body#/launcher_id"}, ("turn_claim", "turn_heartbeat", "drain_launcher"))
    ],
    "create_key": [({"key_id": "$response.body#/key/key_id"}, ("revoke_key",))],
    "define_agent": [({"name": "$response.body#/name"}, ("agent", "remove_agent"))],
}


def _add_links(paths: dict[str, dict[str, Any]]) -> None:
    operations = {each["operationId"]: each for verbs in paths.values() for each in verbs.values()}
    about_one = [  # except for the newest checkpoint: a new session has none
        each["operationId"]
        for path, verbs in paths.items()
        for each in verbs.values()
        if path.startswith("/sessions/{session_id}") and path.count("{") == 1 and each["operationId"] != "checkpoint"
    ]
    for name, links in LINKS.items():
        answer = next(each for status, each in operations[name]["responses"].items() if status in ("200", "201"))
        answer["links"] = {
            target: {"operationId": operations[target]["operationId"], "parameters": values}
            for values, targets in links
            for target in targets or about_one
        }


# The page ---------------------------------------------------------------------------------------

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 0 auto; padding: 1rem; }
summary { cursor: pointer; padding: .3rem 0; }
summary b { display: inline-block; min-width: 4.5rem; font-family: ui-monospace, monospace; }
code, pre { font-family: ui-monospace, monospace; font-size: .9rem; }
pre { overflow-x: auto; padding: .5rem; border: 1px solid #8886; border-radius: .3rem; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem 1rem .15rem 0; vertical-align: top; }
.say { opacity: .75; } details details { margin-left: 1.5rem; }
"""
_STYLE_HASH = b64encode(sha256(_STYLE.encode()).digest())
POLICY = (
    b"default-src 'none'; style-src 'sha256-" + _STYLE_HASH + b"'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'"
)


def docs_page(document: dict[str, Any]) -> str:
    """Return a page with every operation, grouped by topic."""
    groups: dict[str, list[str]] = {}
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            groups.setdefault(operation["tags"][0], []).append(_shown(document, verb.upper(), path, operation))
    body = "".join(f"<h2>{escape(name)}</h2>{''.join(shown)}" for name, shown in groups.items())
    info = document["info"]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(info['title'])} {escape(info['version'])}: REST</title><style>{_STYLE}</style>"
        f"<h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1>"
        f"<p>{escape(info['description'])} For programs: <a href=openapi.json>openapi.json</a>.</p>{body}</html>"
    )


def _shown(document: dict[str, Any], verb: str, path: str, operation: dict[str, Any]) -> str:
    scope = f" · scope <code>{escape(operation['x-scope'])}</code>" if "x-scope" in operation else ""
    answers = ((f"Answer {status}", each) for status, each in operation["responses"].items() if status.startswith("2"))
    shapes = "".join(
        f"<p>{title}, {escape(kind)}</p>{_shape(document, each['schema'])}"
        for title, told in (("Body", operation.get("requestBody", {})), *answers)
        for kind, each in told.get("content", {}).items()
    )
    return (
        f"<details><summary><b>{verb}</b> <code>{escape(path)}</code> <span class=say>{escape(operation['summary'])}"
        f"</span></summary><p><code>{escape(operation['operationId'])}</code>{scope}</p>"
        f"{_table(operation['parameters'])}{shapes}</details>"
    )


def _table(parameters: list[dict[str, Any]]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}<td>{escape(_kind(each['schema']))}"
        f"<td>{'required' if each.get('required') else ''}<td>{escape(each.get('description', ''))}"
        for each in parameters
    )
    return f"<table>{rows}</table>" if rows else ""


def _shape(document: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return the fields of an object, or the kind of anything else."""
    name = schema.get("$ref", "").rpartition("/")[2]
    known = document["components"]["schemas"].get(name, schema)
    fields = known.get("properties")
    if not fields:
        return f"<pre>{escape(_kind(schema))}</pre>"
    required = set(known.get("required", ()))
    lines = [f"  {field}{'' if field in required else '?'}: {_kind(each)}" for field, each in fields.items()]
    return f"<pre>{escape(name)} {{\n{escape(chr(10).join(lines))}\n}}</pre>"


def _kind(schema: dict[str, Any]) -> str:
    """Return a schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"[{_kind(schema.get('items', {}))}]"
    return str(schema.get("format") or schema.get("type") or "any JSON")

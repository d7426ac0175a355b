"""Constraints of request fields beyond their Python types, as JSON schemas for the OpenAPI document.

The server checks the same rules where it uses a field. Schemathesis proves that both agree: the server accepts exactly
the requests that the document allows (tests/doors/http/test_fuzzing.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from moorage.core.context import MAX_KEYS
from moorage.core.duration import MAX_TTL, MIN_TTL
from moorage.core.entry import MAX_MESSAGES_PER_APPEND, ROLES, Kind
from moorage.core.ids import ID_PATTERN, LABEL_PATTERN, MAX_KEY, MAX_LABEL, UNSEEN
from moorage.core.key import Scope
from moorage.core.query import SORTS, STATUSES
from moorage.core.record import DIGITS, MAX_MESSAGES, MAX_NAMESPACE
from moorage.core.record import MAX_KEY as MAX_RECORD_KEY
from moorage.core.run import Join, Mode, RunState
from moorage.core.session import FINAL_STATES, MAX_LABEL_LENGTH, MAX_LABELS, WORKING_PHASES, Phase, State
from moorage.core.turn import TurnState
from moorage.doors.http.messages import MAX_CLIENT_KEY, MAX_LINES
from moorage.doors.http.streams import TYPES
from moorage.doors.http.transfer import FORMATS
from moorage.remote.records import KEYS_AT_ONCE
from moorage.service.analytics import GROUPINGS
from moorage.service.approvals import MAX_OPTIONS
from moorage.service.runs import MAX_CORRELATION

Schema = dict[str, Any]
NULL = {"type": "null"}
REF = "#/components/schemas/{name}"


def one_of(choices: Iterable[str]) -> Schema:
    return {"type": "string", "enum": [str(choice) for choice in choices]}


def label(most: int = MAX_LABEL) -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": most, "pattern": LABEL_PATTERN}


def some(items: Schema, **limits: int) -> Schema:
    return {"type": "array", "items": items, **limits}


def whole(least: int, most: int | None = None) -> Schema:
    return {"type": "integer", "minimum": least, **({} if most is None else {"maximum": most})}


def seconds(most: float) -> Schema:
    return {"type": "number", "minimum": MIN_TTL.total_seconds(), "maximum": most}


LABEL, KEY, PLACE, CORRELATION = label(), label(MAX_KEY), label(4096), label(MAX_CORRELATION)
ID = {"type": "string", "pattern": f"^{ID_PATTERN}$"}
ID_OR_EMPTY = {"type": "string", "pattern": f"^({ID_PATTERN})?$"}  # empty counts as absent
SAID = {"type": "string", "pattern": r"\S"}
LIFETIME = seconds(MAX_TTL.total_seconds())
INSTANT = {"type": "string", "format": "date-time"}
CURSOR = {"type": "string", "format": "cursor", "description": "`next` of the page before"}
MOST_ENTRIES = 2**32 - 1
NUMBER = {"anyOf": [whole(0, MOST_ENTRIES), {"type": "string", "pattern": "^[0-9]{1,9}$"}]}
TAG = {"type": "string", "pattern": r'^(\*|(W/)?"?[0-9]{1,18}(-[0-9]{1,18})?"?)$'}
MESSAGE = {"$ref": REF.format(name="NewMessage")}
PARTS = some({"$ref": REF.format(name="Part")}, minItems=1)
MESSAGES = some({"anyOf": [{"type": "string"}, MESSAGE]}, minItems=1, maxItems=MAX_MESSAGES_PER_APPEND)

KEY_IN_HEADER = {**KEY, "pattern": f"^[^ {UNSEEN}]([^{UNSEEN}]*[^ {UNSEEN}])?$"}  # spaces at its ends are no part of it
DEFINITION = {"anyOf": [{"type": "string", "format": "toml"}, {"type": "object"}]}

# By the parameter that is the whole body.
WHOLE_BODIES: dict[str, Schema] = {
    "values": {"type": "object", "propertyNames": LABEL, "maxProperties": MAX_KEYS},
    "value": {},
}

NAMESPACE = {  # a label that does not begin with a dot, or the label of parts of large values
    "type": "string",
    "maxLength": MAX_NAMESPACE,
    "pattern": rf"^( +[^ {UNSEEN}][^{UNSEEN}]*|[^ .{UNSEEN}][^{UNSEEN}]*|\.parts)$",
}
RECORD_KEY = {"type": "string", "minLength": 1, "maxLength": MAX_RECORD_KEY, "pattern": "^[^\0\U0010ffff]+$"}
RECORD_PREFIX = {"type": "string", "maxLength": MAX_RECORD_KEY, "pattern": "^[^\0\U0010ffff]*$"}
NUMBERED_PREFIX = {**RECORD_PREFIX, "maxLength": MAX_RECORD_KEY - DIGITS}

PATH = {"key": LABEL, "number": whole(0, MOST_ENTRIES), "namespace": NAMESPACE, "record_key": RECORD_KEY}
HEADERS = {"If-Match": TAG, "Idempotency-Key": KEY_IN_HEADER}

RECORDS = ("record", "memory")
# By the field's name, for bodies; `operation.field` for one operation, and for queries.
FIELDS: dict[str, Schema] = {
    "agent_name": LABEL,
    "task_id": LABEL,
    "project_dir": PLACE,
    "labels": some({**ID, "maxLength": MAX_LABEL_LENGTH}, maxItems=MAX_LABELS),
    "session_name": ID,
    "session_id": ID_OR_EMPTY,
    "ttl_seconds": LIFETIME,
    "expires_in": LIFETIME,
    "idempotency_key": KEY,
    "client_key": LABEL,
    "holder": LABEL,
    "agent_sessions_list.agent_name": {},
    "agent_sessions_list.task_id": {},
    "agent_sessions_list.state": one_of(State),
    "agent_sessions_list.cursor": CURSOR,
    "list.state": one_of(State),
    "list.status": one_of(STATUSES),
    "list.phase": one_of(Phase),
    "list.sort": one_of(SORTS),
    **{f"list.{name}_{side}": INSTANT for name in ("created", "updated") for side in ("after", "before")},
    **{f"{name}.cursor": CURSOR for name in ("list", "children", "delegations", "deleted", "runs", "inbox")},
    **{f"{name}.created_{side}": INSTANT for name in ("stats", "delegations") for side in ("after", "before")},
    "stats.by": one_of(GROUPINGS),
    "deleted.since": INSTANT,
    "deleted.reason": LABEL,
    "delete.reason": LABEL,
    "get.messages": whole(1),
    **{f"messages.{name}": whole(1) for name in ("last", "turns", "tokens", "max_bytes")},
    **{f"{name}.{side}": NUMBER for name in ("messages", "log") for side in ("before", "after")},
    "checkpoints.before": NUMBER,
    "log.kinds": some(one_of(Kind), minItems=1),
    "list.metadata_value": {"type": "string", "description": "a JSON value, or a text"},
    "search.q": SAID,
    "keys.owner": LABEL,
    "should_resume.holder": LABEL,
    **{f"context.{name}.ttl": LIFETIME for name in ("put", "merge", "replace")},
    "update.phase": one_of(WORKING_PHASES),
    "update.error": SAID,
    "request_approval.question": SAID,
    "compact.summary": SAID,
    "finalize.outcome": one_of(sorted(FINAL_STATES)),
    "fork.at": whole(1),
    "cleanup.states": one_of(State),
    "cleanup.hours": {"type": "number", "maximum": 24 * 3650},
    "runs.state": one_of(RunState),
    "run.prompt": {"anyOf": [{"type": "string"}, MESSAGE]},
    "run.mode": one_of(Mode),
    "run.join": one_of(Join),
    "run.correlation": CORRELATION,
    "create_key.scopes": some(one_of(Scope), minItems=1),
    "create_key.owner": LABEL,
    "create_key.owners": LABEL,
    "create_key.name": LABEL,
    "request_approval.options": some(LABEL, maxItems=MAX_OPTIONS, uniqueItems=True),
    "decide.by": LABEL,
    **{f"delegate.{name}": PLACE for name in ("agent", "task_id", "project_dir", "host")},
    "delegate.delegation_id": KEY,
    "delegate.new_id": ID_OR_EMPTY,
    "delegate.session_id": {"type": "string"},
    "call_tool.session_id": {},
    "post_messages.role": one_of(ROLES),
    "post_messages.content": {"anyOf": [{"type": "string"}, PARTS]},
    "post_messages.messages": MESSAGES,
    "post_messages.client_key": label(MAX_CLIENT_KEY),
    "turn_finish.outcome": one_of((TurnState.COMPLETED, TurnState.FAILED, TurnState.STOPPED)),
    "turn_finish.messages": some(MESSAGE, maxItems=MAX_MESSAGES_PER_APPEND),
    "turn_entries.messages": some(MESSAGE, maxItems=MAX_MESSAGES_PER_APPEND),
    "define_agent.definition": DEFINITION,
    "put_agent.definition": DEFINITION,
    "export.format": one_of(FORMATS),
    **{f"{name}_{verb}.prefix": RECORD_PREFIX for name in RECORDS for verb in ("list", "clear")},
    **{f"{name}_list.after": RECORD_KEY for name in RECORDS},
    **{f"{name}_put.ttl": LIFETIME for name in RECORDS},
    **{f"{name}_read.keys": some(RECORD_KEY, maxItems=KEYS_AT_ONCE) for name in RECORDS},
    "record_write.messages": some(MESSAGE, maxItems=MAX_MESSAGES),
    "last_lines.sessions": some({"type": "string", "minLength": 1}, minItems=1, maxItems=MAX_LINES),
    **{f"{name}.types": some(one_of(TYPES), minItems=1) for name in ("events", "session_events")},
    **{f"{name}.after": {"type": "string", "pattern": "^(end|[0-9]{1,9})$"} for name in ("events", "session_events")},
}

REQUIRED = {"compact": ("summary",)}  # optional for the method if it gets an agent, which is not sent over HTTP


def _given(name: str) -> Schema:
    """Return the schema of a body that has a field with a value."""
    return {"required": [name], "properties": {name: {"not": {"enum": [None, ""]}}}}


def _said(name: str, other: str) -> Schema:
    """Return the schema of a body with one field and not the other; null counts as absent, an empty text does not."""
    return {"required": [name], "properties": {name: {"not": NULL}, other: NULL}}


def _either(one: str, other: str) -> Schema:
    return {"oneOf": [_said(one, other), _said(other, one)]}


# Rules between fields, by operation.
RULES: dict[str, Schema] = {
    "post_messages": _either("content", "messages"),
    "agent_sessions_messages": _either("message", "content"),
    "run": {"anyOf": [_given("agent_name"), _given("session")]},
    "delegate": {"anyOf": [_given("agent"), _given("session_id")]},
    "create_key": {
        "anyOf": [
            {"properties": {"owners": {"anyOf": [NULL, {"type": "array", "maxItems": 0}]}}},
            {"required": ["scopes"], "properties": {"scopes": {"contains": {"const": Scope.LAUNCH.value}}}},
        ]
    },
}


NEEDS_BODY = RULES.keys() - {"create_key"}


def _part(kind: str, *texts: str) -> Schema:
    fields = {"type": {"const": kind}, **{name: {"type": "string"} for name in texts}}
    return {"required": list(texts), "properties": fields}


def _write(op: str, required: tuple[str, ...], **fields: Schema) -> Schema:
    """Return the schema of one write of records. Values in parts are for our own client and not documented."""
    properties = {"op": {"const": op}, "namespace": NAMESPACE, **fields}
    return {
        "type": "object",
        "properties": properties,
        "required": ["op", "namespace", *required],
        "additionalProperties": False,
    }


def _written(op: str, required: str, **fields: Schema) -> Schema:
    """Return the schema of a write that has a value."""
    told = {"value": {}, "base64": BASE64, "ttl": _or_null(LIFETIME), **fields}
    one_value = [{"required": ["value"]}, {"required": ["base64"]}]
    return {**_write(op, (required,), **told), "allOf": [{"oneOf": one_value}]}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, NULL]}


def _one_or_prefix(op: str, **fields: Schema) -> Schema:
    """Return the schema of a write of one record, or of all with a key prefix."""
    one = {"properties": {"prefix": {"const": False}, "key": {"minLength": 1}}}
    every = {"required": ["prefix"], "properties": {"prefix": {"const": True}}}
    write = _write(op, ("key",), key=RECORD_PREFIX, prefix={"type": "boolean"}, **fields)
    return {**write, "allOf": [{"anyOf": [one, every]}]}


BASE64 = {"type": "string", "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"}
RECORD_VERSION = _or_null({"type": "integer"})
_KNOWN_PARTS = {"text": ("text",), "tool_call": ("id", "name"), "tool_result": ("call_id",)}
COMPONENTS: dict[str, Schema] = {
    "PutDocument": _written("put", "key", key=RECORD_KEY, version=RECORD_VERSION, keep={"type": "boolean"}),
    "AppendDocument": _written("append", "prefix", prefix=NUMBERED_PREFIX),
    "Drop": _one_or_prefix("delete", version=RECORD_VERSION),
    "Touch": _one_or_prefix("touch", ttl=_or_null(LIFETIME)),
    "NewMessage": {
        "title": "NewMessage",
        "description": "Something to say.",
        "type": "object",
        "properties": {
            "role": {**one_of(ROLES), "default": "user"},
            "content": {"anyOf": [{"type": "string"}, PARTS]},
            "client_key": _or_null(LABEL),
        },
        "required": ["content"],
        "additionalProperties": False,
    },
    "Part": {
        "title": "Part",
        "description": "A part of a message; those of other types are kept as they are.",
        "type": "object",
        "properties": {"type": {"type": "string"}},
        "required": ["type"],
        "allOf": [
            {
                "anyOf": [
                    *(_part(kind, *texts) for kind, texts in _KNOWN_PARTS.items()),
                    {"properties": {"type": {"not": {"enum": list(_KNOWN_PARTS)}}}},
                ]
            }
        ],
    },
}


def narrow_body(operation: str, shape: Schema) -> None:
    """Add to the schema of a body the allowed values of its fields and their combinations."""
    for name, field in shape.get("properties", {}).items():
        narrow(field, FIELDS.get(f"{operation}.{name}", FIELDS.get(name, {})))
    for name in REQUIRED.get(operation, ()):
        shape["required"] = [*shape.get("required", ()), name]
        [only] = [each for each in shape["properties"][name]["anyOf"] if each != NULL]
        shape["properties"][name] = dict(only)
    if operation in RULES:
        shape["allOf"] = [RULES[operation]]


def narrow_query(operation: str, fields: dict[str, Schema]) -> None:
    """Add to the schemas of a query's fields their allowed values."""
    for name, field in fields.items():
        narrow(field, FIELDS.get(f"{operation}.{name}", {}))


def narrow(schema: Schema, constraint: Schema) -> None:
    """Apply a constraint, if any, to the parts of a schema with its type; it replaces everything else except null."""
    if not constraint:
        return
    kind = constraint.get("type")
    leaves = [leaf for leaf in _leaves(schema) if kind is not None and leaf.get("type") == kind]
    for leaf in leaves:
        leaf.update(constraint)
    if leaves:
        return
    options = [*constraint.get("anyOf", [constraint]), *([NULL] if NULL in schema.get("anyOf", ()) else [])]
    kept = {key: schema[key] for key in schema if key in ("description", "default")}
    schema.clear()
    schema.update({"anyOf": options} if len(options) > 1 else options[0], **kept)


def _leaves(schema: Schema) -> Iterator[Schema]:
    """Yield a schema, its alternatives, and the schemas of its items."""
    yield schema
    for inner in (*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else [])):
        yield from _leaves(inner)

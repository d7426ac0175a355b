"""Calls as requests, and answers as values: the encoding of arguments and results for HTTP.

Values outside JSON are refused here, with the same errors as in a store; the server checks everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import Enum
from functools import cache, partial
from math import isfinite
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin
from urllib.parse import quote
from uuid import uuid4

import msgspec
from msgspec import UNSET, Struct, UnsetType

from moorage.core import errors
from moorage.core.codec import check_json, encode, encode_text, is_text
from moorage.core.context import check_key, check_values
from moorage.core.duration import check_ttl, check_wait
from moorage.core.entry import check_message
from moorage.core.errors import InvalidField, Unsupported
from moorage.core.ids import check_session_id
from moorage.core.query import Page
from moorage.core.session import Session, check_checkpoint, check_metadata
from moorage.remote.operations import Arguments, Operation, variants
from moorage.remote.transport import Ask, QueryPairs

T = TypeVar("T")

ELSEWHERE = "elsewhere"  # in place of a live turn's id, which is not sent
PARENTS = ("create", "run", "delegate")  # operations that may get the calling session as parent
REPEATABLE = frozenset({"resume", "finalize", "stop", "stop_run", "retry", "decide"})
CONTEXT = "context."
_DERIVED = tuple(b'"status":"%b"' % status for status in (b"running", b"queued", b"waiting"))
_WRONG_TYPE = re.compile(r"Expected `(?P<wanted>.*)`, got `(?P<given>\w+)` - at `\$\.(?P<name>\w+)`")


def ask_for(name: str, given: Arguments) -> tuple[Operation, Ask]:
    """Return the request that calls a method with these arguments."""
    if given.get("count_tokens") is not None:
        raise Unsupported("count_tokens cannot be sent to a server; leave it out, or count the tokens here")
    _check_names(name, given)
    given = {parameter: value for parameter, value in given.items() if value is not UNSET}
    chosen = _variant(name, given)
    named = [name for name in chosen.in_path.values() if name != "key"]  # checked where the path is built
    told = {
        parameter: value if parameter in named else _ready(parameter, value)
        for parameter, value in given.items()
        if parameter in chosen.parameters
    }
    if chosen.body == "value":
        told["value"] = check_values({told["key"]: given["value"]})[told["key"]]
    headers = {}
    if chosen.key is not None and told.get(chosen.key) is None:
        headers["Idempotency-Key"] = new_key()
    own = [(wire, parameter) for wire, parameter in chosen.fields.items() if wire not in chosen.also]
    body = {wire: told[parameter] for wire, parameter in own if parameter in told}
    query, content = ([], encode(body)) if chosen.has_body else (query_of(_of_its_type(chosen, body)), None)
    if chosen.body is not None:
        content = encode(told[chosen.body])
    return chosen, Ask(
        verb=chosen.verb,
        path=chosen.path.format_map({place: segment(name, told[name]) for place, name in chosen.in_path.items()}),
        query=query,
        body=content,
        headers=headers,
        is_repeatable=_is_repeatable(chosen, told),
        wait=told.get("wait") or 0.0,
    )


def _variant(name: str, given: Arguments) -> Operation:
    """Return the variant whose path can be filled in; else the last one, whose path then refuses what is missing."""
    fitting = (each for each in variants(name) if all(given.get(part) is not None for part in each.in_path.values()))
    return next(fitting, variants(name)[-1])


def encoded(fields: Arguments) -> bytes:
    """Return fields as a body. Raise InvalidJson with the name of the one that is no JSON."""
    try:
        return encode(fields)
    except (TypeError, ValueError):
        _blame(fields)
        raise


def _blame(fields: Arguments) -> None:
    for name, value in fields.items():
        try:
            encode(value)
        except (TypeError, ValueError):
            check_json(value, name)


def new_key() -> str:
    """Return a new unique key."""
    return uuid4().hex


def _is_repeatable(operation: Operation, told: Arguments) -> bool:
    """Return whether a repetition has no further effect and gets the same answer."""
    if operation.verb == "GET" or operation.key is not None:
        return True
    if told.get("version") is not None:
        return False  # the second time, the version has changed
    if operation.name == "release":
        return told.get("token") is None
    return operation.name in REPEATABLE or operation.name.startswith(CONTEXT)


# Requests ----------------------------------------------------------------------------------------


def _check_names(method: str, given: Arguments) -> None:
    """Refuse empty names of sessions, which a server takes for none."""
    if method in ("create", "fork", "run") and given.get("session_id") == "":
        check_session_id("")
    if method in ("create", "run") and given.get("parent") == "":
        raise errors.ParentNotFound("")
    if method == "run" and given.get("session") == "":
        raise errors.SessionNotFound("")


def _ready(name: str, value: Any) -> Any:
    """Return a value that can be sent, or raise the error of the rules."""
    if value is None:
        return value
    if name in _CHECKS:
        return _CHECKS[name](value)
    if isinstance(value, datetime) and value.tzinfo is None:
        raise InvalidField(name, "must be a time with a time zone, such as 2026-01-31T12:00:00Z")
    if isinstance(value, str) and not is_text(value):
        raise InvalidField(name, "must be text")
    if isinstance(value, float) and not isfinite(value):
        raise InvalidField(name, "must be a finite number")  # JSON would encode it as null, which means something else
    if isinstance(value, (str, int, float, datetime)):
        return value
    if isinstance(value, Iterable) and not isinstance(value, dict):
        value = [item.value if isinstance(item, Enum) else item for item in value]
    check_json(value, name)
    return value


def _checked_json(value: Any, *, name: str) -> Any:
    check_json(value, name)
    return value


def _seconds(value: object, *, name: str) -> float | None:
    lifetime = check_ttl(value, name)
    return None if lifetime is None else lifetime.total_seconds()


def _prompt(prompt: object) -> dict[str, Any]:
    message = check_message(prompt)
    return {"role": message.role, "content": message.content, "client_key": message.client_key}


_CHECKS: dict[str, Any] = {
    "metadata": check_metadata,
    "checkpoint": check_checkpoint,
    "values": check_values,
    "key": check_key,
    "value": lambda value: value,  # checked with its key
    "plan": partial(_checked_json, name="plan"),
    "metadata_value": partial(_checked_json, name="metadata_value"),
    "ttl": partial(_seconds, name="ttl"),
    "expires_in": partial(_seconds, name="expires_in"),
    "prompt": _prompt,
    "timeout": lambda value: check_wait(value, "timeout"),
}


# Places of values ------------------------------------------------------------------------------

_NOT_FOUND = {
    "approval_id": errors.ApprovalNotFound,
    "run_id": errors.RunNotFound,
    "item_id": errors.ItemNotFound,
    "key_id": errors.KeyNotFound,
    "name": errors.AgentNotFound,
    "tool": errors.ToolNotFound,
}


def segment(name: str, value: object) -> str:
    """Return a value as a part of a path. Raise the server's error for one that cannot be in any path."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value or not is_text(value):
        raise _NOT_FOUND.get(name, errors.SessionNotFound)(value)  # type: ignore[arg-type]  # whatever was given
    return quote(value, safe="").replace(".", "%2E") if value in (".", "..") else quote(value, safe="")


def _of_its_type(operation: Operation, fields: Arguments) -> Arguments:
    """Check the fields of a query, where everything becomes text: a number for a name has to be refused here."""
    try:
        msgspec.convert({name: value for name, value in fields.items() if value is not None}, operation.request)
    except msgspec.ValidationError as error:
        if wrong := _WRONG_TYPE.match(str(error)):
            why = f"must be {wrong['wanted']}, not {wrong['given']}"
            raise InvalidField(operation.fields[wrong["name"]], why) from None
    return fields


def query_of(fields: Arguments) -> QueryPairs:
    """Return fields as a query, without those that are None. Raise InvalidField for one that is no text."""
    return [pair for name, value in fields.items() if value is not None for pair in _pairs(name, value)]


def _pairs(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str) and not is_text(value):
        raise InvalidField(name, "must be text")
    if name == "metadata_value":
        yield name, encode_text(value)
    elif isinstance(value, bool):
        yield name, "true" if value else "false"
    elif isinstance(value, datetime):
        yield name, value.isoformat()
    elif isinstance(value, list):
        for item in value:
            yield name, str(item)
    else:
        yield name, str(value)


# Answers ----------------------------------------------------------------------------------------


def value_of(operation: Operation, answer: bytes) -> Any:
    """Return the result of the method."""
    value = read(answer, operation.document)
    if operation.wraps is not None:
        return value[operation.wraps]
    return value.items if operation.is_list else value


def read(answer: bytes, kind: type[T]) -> T:
    """Return a document as a value of that type."""
    if not any(status in answer for status in _DERIVED):
        value: T = _decoder(kind).decode(answer)  # type: ignore[arg-type]  # a type is hashable
        return value
    plain = msgspec.json.decode(answer)
    for session in _sessions_in(plain, kind):
        session |= _behind(session)
    return msgspec.convert(plain, kind)


def _behind(session: dict[str, Any]) -> dict[str, Any]:
    """Restore the facts, which are not sent, from the status that the server derived from them."""
    for_what = session.get("waiting_for") or {}
    return {
        "live_turn": ELSEWHERE if session.get("status") == "running" else None,
        "waits": session.get("status") == "queued",
        "awaited_approval": for_what.get("approval_id"),
        "awaited_child": for_what.get("child"),
    }


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _sessions_in(plain: Any, kind: Any) -> Iterator[dict[str, Any]]:
    """Yield the sessions in a document of that type."""
    if plain is None:
        return
    if kind is Session:
        yield plain
    elif get_origin(kind) in (list, Page):
        for item in plain if get_origin(kind) is list else plain["items"]:
            yield from _sessions_in(item, get_args(kind)[0])
    elif isinstance(kind, type) and issubclass(kind, Struct):
        for field in msgspec.structs.fields(kind):
            parts: tuple[Any, ...] = get_args(field.type)
            for part in parts if NoneType in parts or UnsetType in parts else (field.type,):
                yield from _sessions_in(plain.get(field.encode_name), part)

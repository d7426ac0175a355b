"""Requests as arguments: path, query, body and headers, checked against the table of operations."""

from __future__ import annotations

import logging
import re
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect

from moorage.core.codec import decode
from moorage.core.errors import InvalidField, InvalidJson, MoorageError
from moorage.core.ids import MAX_KEY, check_label
from moorage.doors.http.exchange import Exchange
from moorage.remote.operations import Arguments, Operation

log = logging.getLogger(__name__)

MAX_QUERY = 100  # fields
EXACT = 2**53  # beyond this, a float is not the number that was written
IS_FLOAT = "got `float`"  # how msgspec says that an integer is written like a float
MAX_REREAD = 256 * 1024  # bytes of a body that is read a second time
_PLACE = re.compile(r"(?P<why>.*?)(?: - at `\$(?P<place>.*)`)?", re.DOTALL)  # names may contain any character
_UNKNOWN = re.compile(r"unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"missing required field `(.*)`")
_EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]+)`(?P<bound>[^,]*)(?:, got `(?P<got>[^`]+)`)?")
_BOUND = re.compile(r"( of length|) ([<>]=?) (-?\d+)(?:\.0)?$")
_BOUNDS = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}
_KINDS = {
    "str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false", "object": "an object",
    "array": "a list",
}  # fmt: skip
_TAG = re.compile(r'(?:W/)?"?(\d{1,18})(?:-\d{1,18})?"?')  # version and last entry, as `etag_of` writes them


async def arguments_of(operation: Operation, exchange: Exchange) -> Arguments:
    """Return the arguments of a request for the operation's method."""
    arguments: Arguments = {name: exchange.params[place] for place, name in operation.in_path.items()}
    for name in operation.numbers_in_path:
        if not re.fullmatch(r"\d{1,18}", text := exchange.params[name]):
            raise InvalidField(name, f"is {text[:80]!r}; give a number")
        arguments[name] = int(text)
    if operation.has_body:
        request = read_body(await exchange.body(), operation.request)
    else:
        if operation.body is not None:
            arguments[operation.body] = value = read_json(await exchange.body())
            if operation.body == "values" and not isinstance(value, dict):
                raise InvalidField("body", "must be an object: keys with their values")
        request = read_query(exchange, operation.request)
    return complete_arguments(operation, exchange, {**arguments, **operation.arguments(request)})


def complete_arguments(operation: Operation, exchange: Exchange, arguments: Arguments) -> Arguments:
    """Add the arguments from headers, and remove sessions without a name."""
    if operation.has_body:
        drop_unnamed(arguments)
    if (key := exchange.header(b"idempotency-key")) is not None and (name := operation.key) is not None:
        if (other := arguments.get(name)) is not None:
            check_label(name, other, MAX_KEY)
        arguments[name] = key
    return arguments


def drop_unnamed(arguments: Arguments) -> None:
    """Remove sessions whose name is empty or, for a parent, an unfilled template."""
    for name in ("parent", "session", "session_id"):
        if arguments.get(name) == "":
            del arguments[name]
    if isinstance(parent := arguments.get("parent"), str) and not is_filled_in(parent):
        del arguments["parent"]


def is_filled_in(name: str | None) -> bool:
    """Return whether a name is given and is not an unfilled template."""
    if name and name.startswith("${"):
        log.warning("a session is named %s: the variable was not filled in; it counts as absent", name[:100])
        return False
    return bool(name)


def arguments_from(operation: Operation, given: dict[str, Any]) -> Arguments:
    """Return the method's arguments from the fields of one JSON object, wherever REST has them."""
    fields, arguments = dict(given), Arguments()
    for place, name in operation.in_path.items():
        if place not in fields:
            raise InvalidField(place, "must be given")
        arguments[name] = fields.pop(place)
    if operation.body is not None:
        if operation.body not in fields:
            raise InvalidField(operation.body, "must be given")
        arguments[operation.body] = fields.pop(operation.body)
    try:
        request = msgspec.convert(fields, operation.request)
    except msgspec.ValidationError as error:
        raise _explained(error, "arguments") from None
    return {**arguments, **operation.arguments(request)}


def read_body(body: bytes, kind: Any) -> Any:
    """Return a JSON body as a value of that type; a missing body is an empty object."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        if IS_FLOAT in str(error) and len(body) <= MAX_REREAD:
            return _with_whole_numbers(body, kind)
        raise _explained(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJson("body", f"it is not JSON ({error})") from None


def _with_whole_numbers(body: bytes, kind: Any) -> Any:
    """Return the same with 1.0 read as 1: JSON has one kind of number, and some languages write it so."""
    try:
        return msgspec.convert(_whole(msgspec.json.decode(body)), kind)
    except msgspec.ValidationError as error:
        raise _explained(error) from None
    except RecursionError as error:
        raise InvalidJson("body", f"it is nested too deeply ({error})") from None


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) <= EXACT:
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(each) for name, each in value.items()}
    return [_whole(each) for each in value] if isinstance(value, list) else value


def read_json(text: bytes | str, what: str = "body") -> Any:
    """Return any JSON value. Raise InvalidJson."""
    try:
        return decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJson(what, f"it is not JSON ({error})") from None


def read_query(exchange: Exchange, kind: Any) -> Any:
    """Return the query as a value of that type. A list may be repeated, or separated by commas."""
    types, given = _types_of(kind), dict[str, Any]()
    for name, text in query_of(exchange):
        expected = types.get(name)
        if expected is inspect.ListType:
            given.setdefault(name, []).extend(text.split(","))
        elif name in given:
            raise InvalidField(name[:80], "is given twice")
        elif expected is inspect.DateTimeType:
            given[name] = _instant(name, text)
        else:
            given[name] = _json_or_text(text) if expected is inspect.AnyType else text
    return read_fields(given, kind)


@cache
def _types_of(kind: Any) -> dict[str, type[inspect.Type]]:
    fields = {each.encode_name: each.type for each in inspect.type_info(kind).fields}  # type: ignore[attr-defined]
    return {name: type(each.type if isinstance(each, inspect.Metadata) else each) for name, each in fields.items()}


def query_of(exchange: Exchange) -> list[tuple[str, str]]:
    """Return the names and texts of the query."""
    text = exchange.scope["query_string"].decode("latin-1")
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_QUERY, errors="strict")
    except ValueError as error:
        raise InvalidField("query", f"cannot be read ({error})") from None


def _instant(name: str, text: str) -> datetime:
    """Return an instant in the format of RFC 3339; refuse a number of seconds."""
    try:
        return msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise InvalidField(name, "must be a time with a time zone, such as 2026-01-31T12:00:00Z") from None


def _json_or_text(value: str) -> Any:
    try:
        return decode(value)
    except msgspec.DecodeError:
        return value


def read_fields(given: dict[str, Any], kind: Any) -> Any:
    """Return texts by name as a value of that type."""
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _explained(error) from None


def _explained(error: msgspec.ValidationError, field: str = "body") -> MoorageError:
    """Turn an error of msgspec into one that names the field."""
    told = _PLACE.fullmatch(str(error))
    assert told is not None
    why, place = told["why"], (told["place"] or "").lstrip(".")
    if unknown := _UNKNOWN.search(why):
        return InvalidField(unknown[1][:80] or "body", "is not a field of this request; check its spelling")
    if missing := _MISSING.search(why):
        return InvalidField(missing[1], "must be given")
    return InvalidField(place or field, _in_words(why))


def _in_words(why: str) -> str:
    """Describe in plain words the kind of value that msgspec expected, and the one that it got."""
    if (told := _EXPECTED.fullmatch(why)) is None:
        return f"is wrong: {why[:1].lower()}{why[1:]}"
    wanted = told["wanted"].split(" | ")
    kinds = [_KINDS.get(kind, kind) for kind in wanted if kind != "null"]
    bound = _BOUND.sub(lambda found: f"{found[1] and ' with a length'} {_BOUNDS[found[2]]} {found[3]}", told["bound"])
    got = "" if told["got"] is None else f", not {_KINDS.get(told['got'], told['got'])}"
    return f"must be {' or '.join(kinds)}{bound}{' or null' if 'null' in wanted else ''}{got}"


def wanted_version(exchange: Exchange) -> int | None:
    """Return the version that If-Match names; None without one, or if any version will do."""
    wanted = exchange.header(b"if-match")
    if wanted is None or wanted == "*":
        return None
    if (tag := _TAG.fullmatch(wanted)) is None:
        raise InvalidField("if-match", f"is {wanted[:80]!r}; give one ETag, as the session came with")
    return int(tag[1])


def knows(exchange: Exchange, tag: bytes) -> bool:
    """Return whether If-None-Match names this ETag, so that the client has the same already."""
    told = exchange.headers.get(b"if-none-match")
    if told is None:
        return False
    return told.strip() == b"*" or tag in (each.strip().removeprefix(b"W/") for each in told.split(b","))

"""Values as JSON bytes: the same documents as everywhere, made quickly for the busiest of them."""

from __future__ import annotations

from typing import Any

from holdfast.core.codec import encode
from holdfast.core.entry import Entry
from holdfast.core.query import Page
from holdfast.core.render import to_json
from holdfast.core.session import PUBLIC_FIELDS, Session
from holdfast.remote.operations import Operation


def answer_of(operation: Operation, value: Any) -> bytes:
    """What a method gave, as it travels."""
    if type(value) is Session:
        return encode(_session(value))
    if operation.is_list:
        value = Page(value)
    if operation.wraps is not None:
        value = {operation.wraps: value}
    return document(value)


def document(value: Any) -> bytes:
    """Any of our values as a JSON document."""
    if type(value) is Page:
        kinds = {type(item) for item in value.items}
        if kinds <= {Session}:
            return encode({"items": [_session(item) for item in value.items], "next": value.next})
        if kinds <= {Entry}:
            return encode(value)
    return encode(to_json(value))


def _session(session: Session) -> dict[str, Any]:
    shown = {name: getattr(session, name) for name in PUBLIC_FIELDS}
    if session.redacted:
        shown["redacted"] = session.redacted
    return shown


def etag_of(session: Session) -> bytes:
    """What changes whenever the session does: its version and its last entry."""
    return f'"{session.version}-{session.last_entry}"'.encode()

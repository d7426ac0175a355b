"""Records on a server: their documents, which the door uses too, and the remote backend.

A JSON value is sent as it is, bytes as base64. A value in parts has the name of its upload instead; the parts are
records of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from moorage.core.codec import check_list
from moorage.core.entry import Message, check_messages
from moorage.core.errors import InvalidField
from moorage.core.query import Page
from moorage.core.record import (
    BYTES,
    JSON,
    MAX_MESSAGES,
    MAX_WRITES,
    Append,
    Drop,
    Put,
    Record,
    RecordRequest,
    Touch,
    check_namespace,
    check_record_key,
    check_record_limit,
    check_requests,
)
from moorage.core.render import like
from moorage.remote.asking import encoded, query_of, segment
from moorage.remote.transport import Ask
from moorage.service.records import RecordsWritten

KEYS_AT_ONCE = 100  # read by one request
NO_VALUE = Raw(b"null")

SendAsk = Callable[[Ask], Awaitable[bytes]]


class RecordDocument(Struct, frozen=True, kw_only=True):
    """A record as it travels, with its value in one of three fields."""

    namespace: str
    key: str
    form: str
    size: int
    version: int
    updated_at: datetime
    expires_at: datetime | None = None
    parts: int = 0
    value: Raw | UnsetType = UNSET
    base64: bytes | UnsetType = UNSET
    upload: str | UnsetType = UNSET


class FoundRecords(Struct, frozen=True):
    """Records in the order in which they were asked for; null for one that is not there."""

    items: list[RecordDocument | None]


class _Value(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value to be written, in one of three fields."""

    namespace: str
    value: Raw | UnsetType = UNSET
    base64: bytes | UnsetType = UNSET
    upload: str | UnsetType = UNSET
    form: str = JSON  # of a value in parts
    parts: int = 0
    size: int | None = None
    ttl: float | None = None


class PutDocument(_Value, frozen=True, kw_only=True, tag_field="op", tag="put"):
    """Write a value under a key."""

    key: str
    version: int | None = None
    keep: bool = False


class AppendDocument(_Value, frozen=True, kw_only=True, tag_field="op", tag="append"):
    """Write a value under the next number after a prefix."""

    prefix: str


WriteDocument = PutDocument | AppendDocument | Drop | Touch


class WriteMemory(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Records to be written in one commit."""

    writes: Annotated[list[WriteDocument], Meta(max_length=MAX_WRITES)]


class WriteRecords(WriteMemory, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Records of a session to be written, and messages to be appended, in one commit."""

    messages: list[dict[str, Any]] | None = None
    token: str | None = None
    version: int | None = None
    memory: Annotated[list[WriteDocument], Meta(max_length=MAX_WRITES, description="records of the owner")] = []


class ReadOfSessions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sessions whose records are to be read."""

    session_ids: Annotated[list[str], Meta(max_length=KEYS_AT_ONCE)]


class ReadRecords(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The records to be read."""

    keys: Annotated[list[str], Meta(max_length=KEYS_AT_ONCE)]


# Documents and records --------------------------------------------------------------------------


def document_of(record: Record) -> RecordDocument:
    """Return a record as it is sent."""
    return like(RecordDocument, record, **_fields(record.value, record.form, record.parts))


def record_of(document: RecordDocument, *, has_value: bool = True) -> Record:
    """Return the record of a document."""
    value, form = _value_of(document) if has_value else (b"", document.form)
    return like(Record, document, value=value, form=form)


def written_as(request: RecordRequest) -> WriteDocument:
    """Return a write as it is sent."""
    if isinstance(request, (Drop, Touch)):
        return request
    kind: type[PutDocument | AppendDocument] = PutDocument if isinstance(request, Put) else AppendDocument
    return like(kind, request, **_fields(request.value, request.form, request.parts))


def request_of(document: WriteDocument) -> RecordRequest:
    """Return the write of a document. Raise InvalidField if it has not exactly one value."""
    if isinstance(document, (Drop, Touch)):
        return document
    if [document.value, document.base64, document.upload].count(UNSET) != 2:
        raise InvalidField("value", "or base64 or upload: give one of the three")
    value, form = _value_of(document)
    kind: type[Put | Append] = Put if isinstance(document, PutDocument) else Append
    return like(kind, document, value=value, form=form)


def _fields(value: bytes, form: str, parts: int) -> dict[str, Any]:
    """Return the field for a value."""
    unset = {"value": UNSET, "base64": UNSET, "upload": UNSET}
    if parts:
        return {**unset, "upload": value.decode()}
    return {**unset, "base64": value} if form == BYTES else {**unset, "value": Raw(value) if value else NO_VALUE}


def _value_of(document: RecordDocument | PutDocument | AppendDocument) -> tuple[bytes, str]:
    """Return a value as it is stored, and its form."""
    if isinstance(document.upload, str):
        return document.upload.encode(), document.form
    if isinstance(document.base64, bytes):
        return document.base64, BYTES
    assert isinstance(document.value, Raw), "one of the three is there"
    return bytes(document.value), JSON


# The backend ------------------------------------------------------------------------------------


class RemoteRecords:
    """Records on a server."""

    def __init__(self, send: SendAsk, keyed: Callable[[Message], dict[str, Any]]) -> None:
        """Set up. `keyed` returns a message as it is sent, with a key, so that it may be sent twice."""
        self._send, self._keyed = send, keyed

    async def _answer(self, ask: Ask, kind: Any) -> Any:
        return msgspec.json.decode(await self._send(ask), type=kind)

    async def read_records(self, ref: str | None, namespace: str, keys: Sequence[str]) -> list[Record | None]:
        """Return records by their keys."""
        wanted = [check_record_key(key) for key in check_list(keys, "keys")]
        return await self._found(f"{_base(ref)}/{segment('namespace', namespace)}", "keys", wanted)

    async def records_of(self, session_ids: Sequence[str], namespace: str, key: str) -> list[Record | None]:
        """Return a record of each session."""
        path = f"/records/{segment('', check_namespace(namespace))}/{segment('', check_record_key(key))}"
        return await self._found(path, "session_ids", check_list(session_ids, "session_ids"))

    async def _found(self, path: str, field: str, names: Sequence[str]) -> list[Record | None]:
        """Return the records of these names, in several requests, because values may be large."""
        found = list[RecordDocument | None]()
        for start in range(0, len(names), KEYS_AT_ONCE):
            body = encoded({field: names[start : start + KEYS_AT_ONCE]})
            ask = Ask(verb="POST", path=path, body=body, is_repeatable=True)
            found += (await self._answer(ask, FoundRecords)).items
        return [None if each is None else record_of(each) for each in found]

    async def list_records(
        self, ref: str | None, namespace: str, *, limit: int, values: bool, after: str | None, **query: Any
    ) -> Page[Record]:
        """Return a page of records; a server may need several requests for it."""
        path, items = f"{_base(ref)}/{segment('namespace', namespace)}", list[Record]()
        check_record_limit(limit)
        while True:
            wanted = {**query, "after": after, "limit": limit - len(items), "values": values}
            ask = Ask(verb="GET", path=path, query=query_of(wanted), is_repeatable=True)
            page = await self._answer(ask, Page[RecordDocument])
            items += [record_of(each, has_value=values) for each in page.items]
            after = page.next
            if after is None or len(items) >= limit:
                return Page(items, after)

    async def write_records(
        self,
        ref: str | None,
        requests: Sequence[RecordRequest],
        *,
        messages: Sequence[Any] = (),
        token: str | None = None,
        version: int | None = None,
        memory: Sequence[RecordRequest] = (),
    ) -> RecordsWritten:
        """Write records; those of a session with messages and records of the owner."""
        check_requests(requests, memory)  # JSON has no way to send an invalid value
        body: dict[str, Any] = {"writes": [written_as(each) for each in requests]}
        if ref is not None:
            said = [self._keyed(each) for each in check_messages(list(messages), MAX_MESSAGES)] if messages else None
            body |= {"messages": said, "token": token, "version": version}
        if memory:
            body["memory"] = [written_as(each) for each in memory]
        is_repeatable = version is None and all(map(_is_repeatable, [*requests, *memory]))
        ask = Ask(verb="POST", path=_base(ref), body=encoded(body), is_repeatable=is_repeatable)
        written: RecordsWritten = await self._answer(ask, RecordsWritten)
        return written


def _base(ref: str | None) -> str:
    return "/memory" if ref is None else f"/sessions/{segment('ref', ref)}/records"


def _is_repeatable(request: RecordRequest) -> bool:
    """Return whether a repeated write leaves the same records, though versions may differ."""
    return isinstance(request, Touch) or (isinstance(request, (Put, Drop)) and request.version is None)

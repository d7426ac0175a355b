"""`/sessions/{session_id}/records` and `/memory`: values beside the log, of a session and of the owner.

A session's token reaches the records of its family and no memory, which is shared by all sessions of the owner.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from moorage.core.codec import encode
from moorage.core.errors import OutOfReach, RecordNotFound
from moorage.core.key import Scope
from moorage.core.query import Page
from moorage.core.record import MAX_WRITES, Record
from moorage.doors.http.app import Door
from moorage.doors.http.exchange import MAX_BODY, Exchange
from moorage.doors.http.reading import read_json
from moorage.doors.http.visit import Visit, Visitor
from moorage.records import RecordSpace
from moorage.remote.records import (
    FoundRecords,
    ReadOfSessions,
    ReadRecords,
    RecordDocument,
    WriteMemory,
    WriteRecords,
    document_of,
    request_of,
)
from moorage.service.records import RecordsWritten, WrittenRecord

BYTES = "application/octet-stream"
AT_ONCE = 16  # records whose values are read together


class PrefixQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """The keys to list or to delete."""

    prefix: Annotated[str, Meta(description="only keys with this prefix")] = ""


class ListQuery(PrefixQuery, kw_only=True, forbid_unknown_fields=True):
    """The filter of a list of records."""

    after: Annotated[str, Meta(description="`next` of the page before")] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_WRITES)] = 100
    descending: bool = False
    values: Annotated[bool, Meta(description="false: names and versions only")] = True


class PutQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """The lifetime of a value, and the version it replaces."""

    ttl: Annotated[float, Meta(description="seconds")] | None = None
    version: Annotated[int, Meta(description="the version it must have; 0: it must be new")] | None = None


class DeleteQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """The version to delete."""

    version: Annotated[int, Meta(description="the version it must have")] | None = None


class Deleted(Struct, frozen=True, kw_only=True):
    """The result of a deletion, whether or not the record existed."""

    namespace: str
    key: str | None = None
    prefix: str | None = None


def add_to(door: Door) -> None:
    """Answer the routes of records and of memory."""
    RecordRoutes(door, "/sessions/{session_id}/records", "record", "of a session").add()
    RecordRoutes(door, "/memory", "memory", "of the owner").add()

    @door.route(
        "POST", "/records/{namespace}/{record_key}", Scope.READ, to_token=False, body=ReadOfSessions,
        answer=FoundRecords,
    )  # fmt: skip
    async def records_of(exchange: Exchange, visitor: Visitor, asked: ReadOfSessions) -> None:
        """Return the record of one key of each of some sessions; null where there is none."""
        namespace, key = _place(exchange)
        found = await door.visit(exchange, visitor).record_backend().records_of(asked.session_ids, namespace, key)
        await exchange.answer(encode(FoundRecords([None if each is None else document_of(each) for each in found])))


class RecordRoutes:
    """The routes of records below one path."""

    def __init__(self, door: Door, base: str, name: str, whose: str) -> None:
        self._door, self._base, self._name, self._whose = door, base, name, whose

    def add(self) -> None:
        """Add the routes."""
        space = f"{self._base}/{{namespace}}"
        one, body = f"{space}/{{record_key}}", WriteMemory if self._name == "memory" else WriteRecords
        self._route("GET", space, self.list, Scope.READ, query=ListQuery, answer=Page[RecordDocument])
        self._route("POST", space, self.read, Scope.READ, body=ReadRecords, answer=FoundRecords)
        self._route("DELETE", space, self.clear, Scope.WRITE, query=PrefixQuery, answer=Deleted)
        self._route("GET", one, self.get, Scope.READ, answer=RecordDocument)
        self._route("PUT", one, self.put, Scope.WRITE, query=PutQuery, body={}, answer=WrittenRecord)
        self._route("DELETE", one, self.delete, Scope.WRITE, query=DeleteQuery, answer=Deleted)
        self._route("POST", self._base, self.write, Scope.WRITE, body=body, answer=RecordsWritten)

    def _route(self, verb: str, path: str, endpoint: Any, scope: Scope, **more: Any) -> None:
        name, summary = f"{self._name}_{endpoint.__name__}", endpoint.__doc__.splitlines()[0].format(self._whose)
        is_memory = self._name == "memory"
        self._door.route(verb, path, scope, to_token=not is_memory, name=name, summary=summary, **more)(endpoint)

    async def list(self, exchange: Exchange, visitor: Visitor, query: ListQuery) -> None:
        """Return a page of records {}, sorted by key.

        It ends early where values are large, so that no answer is.
        """
        backend, ref = self._door.visit(exchange, visitor).record_backend(), exchange.params.get("session_id")
        how: dict[str, Any] = {"prefix": query.prefix, "descending": query.descending, "values": query.values}
        items, after, size = list[Record](), query.after, 0
        while True:
            limit = min(query.limit - len(items), AT_ONCE) if query.values else query.limit
            page = await backend.list_records(ref, exchange.params["namespace"], after=after, limit=limit, **how)
            items, after = items + page.items, page.next
            size += sum(len(each.value) for each in page.items)
            if after is None or len(items) >= query.limit or size > MAX_BODY:
                break
        await exchange.answer(encode(Page([document_of(each) for each in items], after)))

    async def read(self, exchange: Exchange, visitor: Visitor, asked: ReadRecords) -> None:
        """Return records {} by their keys; one with a large value has the name of its upload instead."""
        backend, ref = self._door.visit(exchange, visitor).record_backend(), exchange.params.get("session_id")
        found = await backend.read_records(ref, exchange.params["namespace"], asked.keys)
        await exchange.answer(encode(FoundRecords([None if each is None else document_of(each) for each in found])))

    async def get(self, exchange: Exchange, visitor: Visitor) -> None:
        """Return a record {} with its whole value."""
        namespace, key = _place(exchange)
        found = await _space(exchange, self._door.visit(exchange, visitor)).get(namespace, key)
        if found is None:
            raise RecordNotFound(namespace, key)
        await exchange.answer(encode(document_of(found)))

    async def put(self, exchange: Exchange, visitor: Visitor, query: PutQuery) -> None:
        """Store the body, JSON or bytes, as a record {}."""
        value, moor = await _value(exchange), await self._door.visit_to_change(exchange, visitor)
        namespace, key = _place(exchange)
        written = await _space(exchange, moor).put(namespace, key, value, ttl=query.ttl, version=query.version)
        await exchange.answer(encode(written))

    async def delete(self, exchange: Exchange, visitor: Visitor, query: DeleteQuery) -> None:
        """Delete a record {}. A missing key is no error."""
        moor, (namespace, key) = await self._door.visit_to_change(exchange, visitor), _place(exchange)
        await _space(exchange, moor).delete(namespace, key, version=query.version)
        await exchange.answer(encode(Deleted(namespace=namespace, key=key)))

    async def clear(self, exchange: Exchange, visitor: Visitor, query: PrefixQuery) -> None:
        """Delete all records {} whose keys have this prefix."""
        moor, namespace = await self._door.visit_to_change(exchange, visitor), exchange.params["namespace"]
        await _space(exchange, moor).delete(namespace, query.prefix, prefix=True)
        await exchange.answer(encode(Deleted(namespace=namespace, prefix=query.prefix)))

    async def write(self, exchange: Exchange, visitor: Visitor, asked: WriteMemory) -> None:
        """Write several records {} in one commit; messages of a session may be part of it."""
        ref = exchange.params.get("session_id")
        more: dict[str, Any] = {}
        if isinstance(asked, WriteRecords):
            if asked.memory and visitor.session_id is not None:
                raise OutOfReach(visitor.session_id)
            more = {"messages": asked.messages or (), "token": asked.token, "version": asked.version}
            more["memory"] = [request_of(each) for each in asked.memory]
        backend = (await self._door.visit_to_change(exchange, visitor)).record_backend()
        written = await backend.write_records(ref, [request_of(each) for each in asked.writes], **more)
        await exchange.answer(encode(written))


def _place(exchange: Exchange) -> tuple[str, str]:
    return exchange.params["namespace"], exchange.params["record_key"]


def _space(exchange: Exchange, moor: Visit) -> RecordSpace:
    return RecordSpace(moor.record_backend(), exchange.params.get("session_id"))


async def _value(exchange: Exchange) -> Any:
    """Return the body: bytes if it comes as such, else a JSON value."""
    body = await exchange.body()
    return body if exchange.media_type == BYTES else read_json(body)

"""MoorageStore: the long-term memory of graphs as records of the owner, shared by all threads.

Vector search is missing: `search` with a `query` is refused. Filters work.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)

from moorage.adapters.adapter import Adapter
from moorage.adapters.channel import ConnectTarget
from moorage.adapters.foreign_ids import escaped, unescaped
from moorage.adapters.payload import packed, unpacked
from moorage.api import Moorage
from moorage.core.errors import InvalidField, Unsupported
from moorage.core.query import each_item
from moorage.core.record import JSON, MAX_WRITES, Drop, Put, RecordRequest, Touch
from moorage.records import Record

MEMORY = "langgraph.store"
KEY = "/!"  # separates the namespace from the key; neither contains it
PAGE = 500  # records read at once


class NoVectorSearch(Unsupported, NotImplementedError):
    """The store has no vectors to search."""


class ItemWithTtl(NamedTuple):
    """An item, and its lifetime in minutes after its last use."""

    item: Item
    ttl: float | None


class MoorageStore(Adapter, BaseStore):
    """A store for `builder.compile(store=...)`. Takes a URL or an open connection."""

    framework = "langgraph"
    supports_ttl = True

    def __init__(
        self,
        target: ConnectTarget = None,
        *,
        ttl: TTLConfig | None = None,
        owner: str = "local",
        key: str | None = None,
    ) -> None:
        Adapter.__init__(self, target, owner=owner, key=key)
        self.ttl_config = ttl

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Read, then write, with all writes in one commit."""
        asked = list(ops)
        return self._drive(lambda moor: self._batch(moor, asked))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Read, then write, with all writes in one commit."""
        asked = list(ops)
        return await self._write(lambda moor: self._batch(moor, asked))

    async def _batch(self, moor: Moorage, ops: list[Op]) -> list[Result]:
        results: list[Result] = []
        touched: dict[str, RecordRequest] = {}
        for op in ops:
            match op:
                case GetOp():
                    results.append(await self._get(moor, op, touched))
                case SearchOp():
                    results.append(await self._search(moor, op, touched))
                case ListNamespacesOp():
                    results.append(await _namespaces(moor, op))
                case PutOp():
                    results.append(None)
                case _:
                    raise InvalidField("ops", f"has {op!r}, which this store does not know")
        puts = {_key(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        writes = [*(it for key, it in touched.items() if key not in puts), *await _puts(moor, puts)]
        for start in range(0, len(writes), MAX_WRITES):
            await moor.memory.write(writes[start : start + MAX_WRITES])
        return results

    async def _get(self, moor: Moorage, op: GetOp, touched: dict[str, RecordRequest]) -> Item | None:
        record = await moor.memory.get(MEMORY, _key(op.namespace, op.key))
        if record is None:
            return None
        kept = _kept(record)
        _touch(record, kept, op.refresh_ttl, touched)
        return kept.item

    async def _search(self, moor: Moorage, op: SearchOp, touched: dict[str, RecordRequest]) -> list[SearchItem]:
        if op.query:
            raise NoVectorSearch("this store has no vector search; search with a filter instead of a query")
        found = [it async for it in _each(moor, op.namespace_prefix) if _matches(_kept(it).item.value, op.filter)]
        found.sort(key=lambda record: (record.updated_at, record.key), reverse=True)
        page = found[op.offset : op.offset + op.limit]
        for record in page:
            _touch(record, _kept(record), op.refresh_ttl, touched)
        return [_found(_kept(record).item) for record in page]


# Records ---------------------------------------------------------------------------------------------


def _key(namespace: tuple[str, ...], key: str) -> str:
    return f"{_prefix(namespace)}{KEY[1:]}{escaped(key)}"


def _prefix(namespace: tuple[str, ...]) -> str:
    return "".join(f"{escaped(label)}/" for label in namespace)


def _parts(key: str) -> tuple[tuple[str, ...], str]:
    labels, _, name = f"/{key}".rpartition(KEY)
    return tuple(map(unescaped, labels.removeprefix("/").split("/"))) if labels else (), unescaped(name)


def _kept(record: Record) -> ItemWithTtl:
    stored = unpacked(record.value)
    namespace, key = _parts(record.key)
    created = datetime.fromisoformat(stored["created_at"])
    item = Item(value=stored["value"], key=key, namespace=namespace, created_at=created, updated_at=record.updated_at)
    return ItemWithTtl(item, stored["ttl"])


def _found(item: Item) -> SearchItem:
    return SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at)


def _touch(record: Record, kept: ItemWithTtl, refresh: bool, touched: dict[str, RecordRequest]) -> None:
    if refresh and kept.ttl is not None:
        touched[record.key] = Touch(namespace=MEMORY, key=record.key, ttl=kept.ttl * 60)


async def _puts(moor: Moorage, puts: dict[str, PutOp]) -> list[RecordRequest]:
    """Return the writes of items; an existing item keeps its time of creation."""
    keys, now = list(puts), datetime.now(UTC).isoformat()
    created: dict[str, str] = {}
    for start in range(0, len(keys), MAX_WRITES):
        for record in await moor.memory.get_many(MEMORY, keys[start : start + MAX_WRITES]):
            if record is not None:
                created[record.key] = unpacked(record.value)["created_at"]
    return [_put(key, op, created.get(key, now)) for key, op in puts.items()]


def _put(key: str, op: PutOp, created_at: str) -> RecordRequest:
    if op.value is None:
        return Drop(namespace=MEMORY, key=key)
    if not isinstance(op.value, Mapping):
        raise InvalidField("value", f"is a {type(op.value).__name__}; give a mapping")
    stored = {"value": dict(op.value), "created_at": created_at, "ttl": op.ttl}
    seconds = None if op.ttl is None else op.ttl * 60
    return Put(namespace=MEMORY, key=key, value=packed(stored, "value"), form=JSON, ttl=seconds)


def _each(moor: Moorage, namespace: tuple[str, ...], *, values: bool = True) -> AsyncIterator[Record]:
    ask = partial(moor.memory.list, MEMORY, prefix=_prefix(namespace), limit=PAGE, values=values)
    return each_item(ask, by="after")


async def _namespaces(moor: Moorage, op: ListNamespacesOp) -> list[tuple[str, ...]]:
    conditions = op.match_conditions or ()
    found = {_parts(record.key)[0] async for record in _each(moor, (), values=False)}
    fitting = {it[: op.max_depth] for it in found if all(_fits(it, condition) for condition in conditions)}
    return sorted(fitting)[op.offset : op.offset + op.limit]


def _fits(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    labels = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(labels, path, strict=True))


# Filters ---------------------------------------------------------------------------------------------


def _matches(value: Any, wanted: Any) -> bool:
    """Return whether a value matches all fields of a filter; `{"$gt": 1}` and the like compare."""
    if wanted is None:
        return True
    return all(_equals(value.get(name), each) for name, each in wanted.items())


def _equals(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        if any(name.startswith("$") for name in wanted):
            return all(_compares(value, name, each) for name, each in wanted.items())
        return isinstance(value, dict) and _matches(value, wanted)
    if isinstance(wanted, (list, tuple)):
        return isinstance(value, list) and value == list(wanted)
    return bool(value == wanted)


def _compares(value: Any, operator: str, wanted: Any) -> bool:
    match operator:
        case "$eq":
            return bool(value == wanted)
        case "$ne":
            return bool(value != wanted)
        case "$gt" | "$gte" | "$lt" | "$lte":
            return _is_ordered(value, operator, wanted)
    raise InvalidField("filter", f"has {operator!r}; use $eq, $ne, $gt, $gte, $lt or $lte")


def _is_ordered(value: Any, operator: str, wanted: Any) -> bool:
    try:
        left, right = float(value), float(wanted)
    except (TypeError, ValueError):
        return False
    return (operator.startswith("$gt") and left > right) or (operator.startswith("$lt") and left < right) or (
        operator.endswith("e") and left == right
    )  # fmt: skip

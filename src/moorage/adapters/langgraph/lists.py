"""Lists: a long channel value is stored in segments, and a later version of it shares those of the earlier one.

LangGraph passes the whole state at every step, and most of it is unchanged. A list of more than a few items is a
sequence of slices of segments; a segment is a record with some items. Only new items are serialized and written. To
find them quickly, the items of the newest list are cached, each with a copy of its content: a message counts as known
if its content is equal, any other item if it is the same object with equal content. An item of a type whose changes
could go unnoticed is never known.

A segment never changes. Items of a loaded segment are copied from the cache, which takes a third of the time of reading
them again.

Small segments at the end are merged, 16 at a time, so that a list of n items has about 16 × log16(n) slices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

SHORTEST = 8  # items; a shorter list is stored as one value
FANOUT = 16  # segments of similar size that are merged into one
MOST_SLICES = 128  # of one list

Frame = tuple[str, bytes]  # an item as the serializer writes it
MESSAGES = frozenset({AIMessage, AIMessageChunk, FunctionMessage, HumanMessage, SystemMessage, ToolMessage})


NOTHING: dict[type, Any] = {dict: {}, list: []}  # the empty values for comparison
CONTAINERS = frozenset(NOTHING)


class Slice(NamedTuple):
    """Items `start` to `stop` of a segment."""

    segment: str
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Return the number of its items."""
        return self.stop - self.start


class Unseen(Exception):
    """A value whose changes could go unnoticed: it is neither plain nor a message of plain values."""


UNKNOWN = object()  # stands for the content of an item whose changes could go unnoticed


class KnownList:
    """The items of a stored list, with copies of their content, and where they are stored."""

    def __init__(self, items: list[Any], held: list[Any], slices: list[Slice], loaded: Collection[Slice] = ()) -> None:
        self.items, self.held, self.slices = items, held, slices
        self._starts = {each: start for start, each in _starts_of(slices)}
        self.loaded = self._starts.keys() & loaded  # slices that were read, not passed in, and can be copied
        self._places: dict[object, int] | None = None

    @classmethod
    def of(cls, items: list[Any], slices: list[Slice], before: KnownList | None = None) -> KnownList:
        """Cache a list as it was loaded."""
        held, loaded = list[Any](), set[Slice]()
        for start, each in _starts_of(slices):
            some = items[start : start + each.size]
            copies = [held_by(item) for item in some] if before is None else before._copies(each, some)
            held += copies
            if UNKNOWN not in copies:
                loaded.add(each)
        return cls(list(items), held, slices, loaded)

    @property
    def is_loaded(self) -> bool:
        """Return whether loading it again teaches nothing: all slices are loaded, and messages are known by content."""
        return len(self.loaded) == len(self.slices) and all(type(item) in MESSAGES for item in self.items)

    def copy_of(self, each: Slice) -> list[Any]:
        """Return new items for a loaded slice, equal to those that loading it again would return."""
        start = self._starts[each]
        places = slice(start, start + each.size)
        return [_item(*both) for both in zip(self.items[places], self.held[places], strict=True)]

    def _copies(self, each: Slice, items: list[Any]) -> list[Any]:
        """Return the content of a slice's items, as far as it is cached."""
        start = self._starts.get(each)
        if start is None:
            return [held_by(item) for item in items]
        held = self.held[start : start + each.size]
        if each in self.loaded:
            return held
        return [old if _holds(item, old) else held_by(item) for item, old in zip(items, held, strict=True)]

    def find(self, items: Sequence[Any]) -> Iterator[tuple[int, int] | int]:
        """Yield ranges of known items, as places (start, stop) here, and the indexes of unknown ones."""
        same = self._shared_start(items)
        if same:
            yield 0, same
        is_longer = same == len(self.items)  # all known items are there
        yield from range(same, len(items)) if is_longer else self._find_later(items, same)

    def _shared_start(self, items: Sequence[Any]) -> int:
        index = 0
        for item, known, held in zip(items, self.items, self.held, strict=False):
            if not _is_same(item, known, held):
                return index
            index += 1
        return index

    def _find_later(self, items: Sequence[Any], first: int) -> Iterator[tuple[int, int] | int]:
        run: tuple[int, int] | None = None
        for index in range(first, len(items)):
            place = self._place_of(items[index])
            if run is not None and place == run[1]:
                run = run[0], run[1] + 1
                continue
            if run is not None:
                yield run
            run = None if place is None else (place, place + 1)
            if place is None:
                yield index
        if run is not None:
            yield run

    def _place_of(self, item: Any) -> int | None:
        if self._places is None:
            self._places = {_name(known): place for place, known in enumerate(self.items)}
        place = self._places.get(_name(item))
        return place if place is not None and _is_same(item, self.items[place], self.held[place]) else None

    def slices_of(self, start: int, stop: int) -> Iterator[Slice]:
        """Yield where the items from start to stop are stored."""
        for at, each in _starts_of(self.slices):
            low, high = max(start - at, 0), min(stop - at, each.size)
            if high - low == each.size:
                yield each
            elif low < high:
                yield Slice(each.segment, each.start + low, each.start + high)


def short_list(value: Any) -> KnownList | None:
    """Return a list that is stored as one value, if it has messages: to find those that a later version adds."""
    if type(value) is not list or len(value) >= SHORTEST or not any(type(item) in MESSAGES for item in value):
        return None
    held = [held_by(item) if type(item) in MESSAGES else UNKNOWN for item in value]
    return KnownList(list(value), held, [])


class ListPlan:
    """How to store a list: which slices it is made of, and which segments are new."""

    def __init__(
        self, items: list[Any], known: KnownList | None, new_key: Callable[[], str], pack: Callable[[Any], Frame]
    ) -> None:
        self.segments: dict[str, list[Frame]] = {}
        self.fresh: list[int] = []  # indexes of items that were not known
        self._items, self._new_key, self._pack = items, new_key, pack
        self._held: list[Any] = []
        self.slices: list[Slice] = []
        known = known or KnownList([], [], [])
        self._loaded = known.loaded
        self._take(known)
        self._merge()

    def known(self) -> KnownList:
        """Return what to cache once the list is stored."""
        return KnownList(list(self._items), self._held, self.slices, self._loaded)

    def _take(self, known: KnownList) -> None:
        pending: list[int] = []
        for found in known.find(self._items):
            if isinstance(found, int):
                pending.append(found)
                continue
            self._add_segment(pending)
            pending = []
            is_all = found == (0, len(known.items))
            self.slices += known.slices if is_all else known.slices_of(*found)
            self._held += known.held[slice(*found)]
        self._add_segment(pending)

    def _add_segment(self, indexes: list[int]) -> None:
        if not indexes:
            return
        self.fresh += indexes
        self._held += [held_by(self._items[index]) for index in indexes]
        self.slices.append(self._segment([self._items[index] for index in indexes]))

    def _segment(self, items: list[Any]) -> Slice:
        key = self._new_key()
        self.segments[key] = [self._pack(item) for item in items]
        return Slice(key, 0, len(items))

    def _merge(self) -> None:
        if len(self.slices) > MOST_SLICES:
            self._merge_last(len(self.slices))
        while len(self.slices) >= FANOUT:
            level = max(_level(each) for each in self.slices[-FANOUT:])
            if level != _level(self.slices[-1]):
                return
            self._merge_last(FANOUT)

    def _merge_last(self, count: int) -> None:
        size = sum(each.size for each in self.slices[-count:])
        for each in self.slices[-count:]:
            self.segments.pop(each.segment, None)
        self.slices[-count:] = [self._segment(self._items[len(self._items) - size :])]


def _level(each: Slice) -> int:
    return (each.size.bit_length() - 1) // (FANOUT.bit_length() - 1)


def _starts_of(slices: Iterable[Slice]) -> Iterator[tuple[int, Slice]]:
    """Yield slices of a list, with the places of their first items in it."""
    start = 0
    for each in slices:
        yield start, each
        start += each.size


def held_by(item: Any) -> Any:
    """Return a copy of an item's content, or UNKNOWN if its changes could go unnoticed."""
    try:
        return _copy(item)
    except Unseen:
        return UNKNOWN


def _copy(item: Any) -> Any:
    return _copy_message(item) if type(item) in MESSAGES else _copy_plain(item)


def _copy_message(message: BaseMessage) -> dict[str, Any]:
    if message.__pydantic_extra__:
        raise Unseen
    held: dict[str, Any] = message.__dict__.copy()
    for name, value in held.items():
        if type(value) is not str and value is not None:
            held[name] = _copy_plain(value)
    return held


def _item(known: Any, held: Any) -> Any:
    """Return a new item with this content, of the type of a known one."""
    if type(known) not in MESSAGES:
        return _fresh(held)
    if known.__pydantic_extra__:  # added by its user
        return type(known).model_construct(**_fresh(held))
    item = object.__new__(type(known))  # takes a quarter of the time of `model_construct`
    set_field = object.__setattr__
    set_field(item, "__dict__", _fresh(held))
    set_field(item, "__pydantic_fields_set__", known.__pydantic_fields_set__.copy())
    set_field(item, "__pydantic_extra__", {})
    set_field(item, "__pydantic_private__", None)
    return item


def _fresh(held: Any) -> Any:
    """Return a plain value whose containers are all new."""
    if type(held) is list:
        return [_fresh(each) if type(each) in CONTAINERS else each for each in held]
    if type(held) is not dict:
        return held
    fresh = held.copy()
    for name, each in held.items():
        if type(each) in CONTAINERS:
            fresh[name] = _fresh(each) if each else each.copy()  # most are empty
    return fresh


def _copy_container(value: Any) -> Any:
    if not value:
        return NOTHING[type(value)]
    if type(value) is dict:
        return {name: _copy_plain(each) for name, each in value.items()}
    return [_copy_plain(each) for each in value]


def _copy_plain(value: Any) -> Any:
    kind = type(value)
    if kind is dict or kind is list:
        return _copy_container(value)
    if kind is str or value is None or kind in (int, float, bool, bytes):
        return value
    raise Unseen


def _name(item: Any) -> object:
    """Return the lookup key of an item: the id of a message, else the object itself."""
    return (type(item) in MESSAGES and item.id) or id(item)


def _holds(item: Any, held: Any) -> bool:
    return held is not UNKNOWN and bool((item.__dict__ if type(item) in MESSAGES else item) == held)


def _is_same(item: Any, known: Any, held: Any) -> bool:
    if held is UNKNOWN:
        return False
    kind = type(item)
    if kind in MESSAGES:
        return kind is type(known) and bool(item.__dict__ == held) and not item.__pydantic_extra__
    return item is known and bool(item == held)

"""JSON as text: which characters each value takes, so that one can be changed and all others stay as they are.

Strict, as the readers of such files are: no comments, no comma after the last item, and no
key twice, because nobody could say which of the two is meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

from msgspec import Struct

BYTE_ORDER_MARK = "\ufeff"
MAX_DEPTH = 200  # of brackets in brackets; a scanner that calls itself has to end somewhere

_BLANKS = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(
    r"""
    "[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"  # a text
    | -?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?                    # a number
    | true | false | null
    """,
    re.VERBOSE,
)

T = TypeVar("T")


class Unreadable(Exception):
    """A text that is not what it has to be; `at` is the place."""

    def __init__(self, why: str, at: int) -> None:
        self.why, self.at = why, at
        super().__init__(why)


class Span(Struct, frozen=True):
    """From one character up to another, which does not belong to it any more."""

    start: int
    end: int


class Scalar(Span, frozen=True):
    """A text, a number, true, false or null."""


class Array(Span, frozen=True):
    """Values, one after another."""

    children: Sequence[Scalar | Array | Object]


class Object(Span, frozen=True):
    """Values by their keys."""

    children: Sequence[Member]

    def member(self, key: str) -> Member | None:
        """The key with its value, if it is there."""
        return next((member for member in self.children if member.key == key), None)

    def get(self, key: str) -> Scalar | Array | Object | None:
        """The value under a key."""
        member = self.member(key)
        return member.value if member else None


class Member(Span, frozen=True):
    """A key with its value."""

    key: str
    value: Scalar | Array | Object


Container = Array | Object
Value = Scalar | Container


def is_blank(text: str) -> bool:
    """Whether there is nothing in the text."""
    return _BLANKS.fullmatch(text, first_place(text)) is not None


def first_place(text: str) -> int:
    """Where the text begins, after the mark that some editors put before it."""
    return len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0


def line_and_column(text: str, at: int) -> tuple[int, int]:
    """A place as editors name it: both count from 1."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def plain(text: str, span: Span) -> Any:
    """What a value of this text stands for."""
    return json.loads(text[span.start : span.end])


def parse(text: str) -> Value:
    """The value that the text consists of. Raises Unreadable."""
    scanner = _Scanner(text)
    value = scanner.value()
    if scanner.at < len(text):
        scanner.refuse("there is something after the end")
    return value


class _Scanner:
    """Reads from left to right: `end` is where the last word ended, `at` where the next one begins."""

    def __init__(self, text: str) -> None:
        self.text, self.depth = text, 0
        self._skip_to(first_place(text))

    def value(self) -> Value:
        start = self.at
        if self._next() == "{":
            members = self._children("}", self._member)
            _check_keys(members)
            return Object(start, self.end, members)
        if self._next() == "[":
            items = self._children("]", self.value)
            return Array(start, self.end, items)
        return self._scalar()

    def refuse(self, why: str) -> NoReturn:
        if self.text.startswith(("//", "/*", "#"), self.at):
            why = "comments are no part of JSON"
        raise Unreadable(why, self.at)

    def _children(self, close: str, read: Callable[[], T]) -> list[T]:
        """What stands between two brackets, the second of which is `close`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.refuse(f"it is nested deeper than {MAX_DEPTH}")
        self._skip_to(self.at + 1)
        children = list(self._separated(close, read)) if self._next() != close else []
        self._skip_to(self.at + 1)
        self.depth -= 1
        return children

    def _separated(self, close: str, read: Callable[[], T]) -> Iterator[T]:
        yield read()
        while self._next() != close:
            if self._next() != ",":
                self.refuse(f"a comma or {close} is missing")
            comma = self.at
            self._skip_to(comma + 1)
            if self._next() == close:
                raise Unreadable(f"there is nothing between this comma and the {close}", comma)
            yield read()

    def _member(self) -> Member:
        if self._next() != '"':
            self.refuse("a key in double quotes is missing")
        key = self._scalar()
        if self._next() != ":":
            self.refuse("a colon is missing")
        self._skip_to(self.at + 1)
        value = self.value()
        return Member(key.start, value.end, plain(self.text, key), value)

    def _scalar(self) -> Scalar:
        start = self.at
        found = _SCALAR.match(self.text, start)
        if found is None:
            self.refuse(
                "this text does not end, or has something in it that must be escaped"
                if self._next() == '"'
                else "a value is missing"
            )
        self._skip_to(found.end())
        return Scalar(start, found.end())

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _skip_to(self, end: int) -> None:
        blanks = _BLANKS.match(self.text, end)
        self.end, self.at = end, blanks.end() if blanks else end


def _check_keys(members: Sequence[Member]) -> None:
    known: set[str] = set()
    for member in members:
        if member.key in known:
            raise Unreadable(f"the key {json.dumps(member.key)} is there twice", member.start)
        known.add(member.key)

"""Whole sessions over HTTP: export and import as lines."""

from __future__ import annotations

import asyncio
import gc
from asyncio import to_thread
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from tempfile import SpooledTemporaryFile
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import asdict

from moorage.core.errors import InvalidImport
from moorage.core.key import Scope
from moorage.doors.http.app import Door, document
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.refusals import TooManyImports
from moorage.doors.http.visit import Visitor
from moorage.files.finding import MOORAGE, kind_of_stream
from moorage.service.transfer import Importer, ImportReport, exported, import_histories

MAX_IMPORT = 512 * 1024 * 1024  # bytes of one request
MAX_LINE = 16 * 1024 * 1024  # bytes; decoding a longer one would block all other requests
MAX_VALUES = 1_000_000  # commas and brackets of one line, which mostly determine the time to decode it
MAX_SESSION = 64 * 1024 * 1024  # bytes of one session's lines, which are in memory together
MAX_ENTRIES = 100_000  # of one session
MAX_FOREIGN = 32 * 1024 * 1024  # bytes of a file that is no export: all of it is in memory
MAX_FOREIGN_VALUES = 250_000
IN_MEMORY = 1024 * 1024  # bytes; a longer body is kept in a file
NEVER = 1_000_000  # collections of younger objects before the next of old ones
IMPORTS_AT_ONCE = 4
READ_AT_ONCE = 1  # concurrent imports being read; the others wait
PIECE = 64 * 1024  # bytes sent at once
NDJSON, MARKDOWN = "application/x-ndjson", "text/markdown"
FORMATS = {"jsonl": NDJSON.encode(), "markdown": b"text/markdown; charset=utf-8"}


class ExportQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """The format of an export."""

    tree: Annotated[bool, Meta(description="with its descendants")] = False
    format: Annotated[str, Meta(description=f"one of {', '.join(FORMATS)}")] = "jsonl"


class ImportQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """The options of an import."""

    detach: Annotated[bool, Meta(description="sessions whose parent is not there become roots")] = False
    dry_run: Annotated[bool, Meta(description="only report what would be imported")] = False


class ReceivedLines:
    """The received lines: the length of the current one, and the number of values in it and in all of them."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write, self._length, self._values = write, 0, 0
        self.bytes = self.values = 0

    def take(self, part: bytes) -> None:
        """Write a part of the body. Raise InvalidImport if a line exceeds the limit."""
        first, last = part.find(b"\n"), part.rfind(b"\n")
        end = len(part) if first < 0 else first
        self._length, self._values = self._length + end, self._values + _values(part, 0, end)
        if self._length > MAX_LINE:
            raise InvalidImport(f"a line is longer than {MAX_LINE >> 20} MiB")
        if self._values > MAX_VALUES:
            raise InvalidImport(f"a line has more than {MAX_VALUES:,} values")
        if first >= 0:
            self._length, self._values = len(part) - last - 1, _values(part, last + 1, len(part))
        self.bytes, self.values = self.bytes + len(part), self.values + _values(part, 0, len(part))
        self._write(part)

    @property
    def are_many(self) -> bool:
        """Return whether there are more values than are read of a file that is no export."""
        return self.bytes > MAX_FOREIGN or self.values > MAX_FOREIGN_VALUES

    def check_foreign(self) -> None:
        """Raise InvalidImport if there are."""
        if self.are_many:
            raise InvalidImport(
                f"it is not an export and is larger than {MAX_FOREIGN >> 20} MiB or {MAX_FOREIGN_VALUES:,} values; "
                "`moorage import FILE` reads it where it is"
            )


def _values(part: bytes, start: int, end: int) -> int:
    """Return an upper bound of the number of values: separators and brackets, including those in texts."""
    return sum(part.count(mark, start, end) for mark in (b",", b"{", b"["))


class Imports:
    """Limits concurrent imports: each takes space on the disk, and reading them takes the processor."""

    def __init__(self) -> None:
        self._open, self._reading = 0, asyncio.Semaphore(READ_AT_ONCE)

    @asynccontextmanager
    async def received(self, exchange: Exchange) -> AsyncIterator[tuple[Any, ReceivedLines]]:
        """Receive the body into a file, and wait for the turn to read it. Raise TooManyImports."""
        if self._open >= IMPORTS_AT_ONCE:
            raise TooManyImports(IMPORTS_AT_ONCE)
        self._open += 1
        try:
            with SpooledTemporaryFile(IN_MEMORY) as file:
                lines = ReceivedLines(file.write)
                await exchange.spool(lines.take, MAX_IMPORT)
                file.seek(0)
                async with self._reading:
                    with _without_long_collections():
                        yield file, lines
        finally:
            self._open -= 1


def add_to(door: Door) -> None:
    """Add the routes of exports and imports."""
    imports = Imports()

    @door.route("GET", "/sessions/{session_id}/export", Scope.READ, query=ExportQuery, kind=NDJSON, or_as=(MARKDOWN,))
    async def export(exchange: Exchange, visitor: Visitor, query: ExportQuery) -> None:
        """Return a session as lines: `jsonl` (importable) or `markdown` (to read)."""
        moor, waiting = door.visit(exchange, visitor), b""
        async for line in moor.export(exchange.params["session_id"], tree=query.tree, format=query.format):
            waiting += line.encode() + b"\n"
            if len(waiting) >= PIECE:
                await _send(exchange, query, waiting)
                waiting = b""
        await _send(exchange, query, waiting, is_last=True)

    taking: dict[str, Any] = {"to_token": False, "query": ImportQuery, "body": bytes, "answer": ImportReport}

    @door.route("POST", "/import", Scope.WRITE, name="import", **taking)
    async def take(exchange: Exchange, visitor: Visitor, query: ImportQuery) -> None:
        """Import sessions: an export, a state.json, a transcript of Claude Code, a list of messages."""
        moor, deps, how = door.visit(exchange, visitor), door.deps_of(visitor.caller.owner), asdict(query)
        async with imports.received(exchange) as (file, lines):
            if await to_thread(kind_of_stream, file, 0 if lines.are_many else MAX_FOREIGN) not in (MOORAGE, None):
                lines.check_foreign()
                report = await moor.import_files([file], **how)
            else:
                file.seek(0)
                importer = Importer(deps, visitor.caller, **how)
                bundles = exported(file, max_bytes=MAX_SESSION, max_entries=MAX_ENTRIES)
                while (bundle := await to_thread(next, bundles, None)) is not None:  # it says what is wrong, and where
                    await importer.bring_in(bundle)
                report = importer.report
        await exchange.answer(document(report))

    @door.route("POST", "/import/histories", Scope.WRITE, name="import_histories", may_be_empty=True, **taking)
    async def take_histories(exchange: Exchange, visitor: Visitor, query: ImportQuery) -> None:
        """Import the content of files of other programs, read by the Python client, one file per line."""
        deps = door.deps_of(visitor.caller.owner)
        async with imports.received(exchange) as (file, _):
            report = await import_histories(deps, visitor.caller, _lines(file), **asdict(query))
        await exchange.answer(document(report))


async def _send(exchange: Exchange, query: ExportQuery, lines: bytes, *, is_last: bool = False) -> None:
    """Send some lines; the answer begins with the first, so that an earlier error has its own status."""
    if not exchange.status:
        await exchange.begin([(b"content-type", FORMATS[query.format])])
    await exchange.more(lines, is_last=is_last)


@contextmanager
def _without_long_collections() -> Iterator[None]:
    """Postpone full garbage collections: with a large import in memory each one stops the process for long."""
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)


async def _lines(file: Any) -> AsyncIterator[bytes]:
    while line := await to_thread(file.readline):
        yield line.rstrip(b"\r\n")

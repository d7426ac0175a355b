"""Import files: this module reads them; `service` makes them sessions, on this machine or on a server.

Tables of another program's database become files first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import IO, Any, Protocol, TypeVar

from moorage.core.bundle import Bundle
from moorage.core.errors import InvalidImport
from moorage.core.extras import provided_by
from moorage.files.finding import CONTEXTS, MAX_STATE, MOORAGE, OPENAI, STATE, FoundFile, Source, find
from moorage.service.deps import Caller, Deps
from moorage.service.histories.message_lists import read_messages
from moorage.service.histories.state_files import read_rows, read_state
from moorage.service.histories.transcripts import Transcripts
from moorage.service.transfer import History, Importer, ImportReport, exported

T = TypeVar("T")
FileProgress = Callable[[int, int], None]  # called with the number of bytes read, and their total


class Taker(Protocol):
    """Stores the sessions of an import."""

    async def exports(self, bundles: AsyncIterator[Bundle], *, dry_run: bool) -> ImportReport:
        """Import our own exports, or report what would be imported."""

    async def history(self, history: History, report: ImportReport) -> None:
        """Import the history of another program."""

    async def finish(self, report: ImportReport) -> None:
        """End the import."""


async def import_files(
    deps: Deps,
    caller: Caller,
    sources: Iterable[Source],
    *,
    detach: bool = False,
    dry_run: bool = False,
    **options: Any,
) -> ImportReport:
    """Import these files and folders into a store; the options are those of `take_files`."""
    taker = _StoreTaker(deps, caller, detach=detach, dry_run=dry_run)
    return await take_files(taker, sources, dry_run=dry_run, now=deps.clock.now(), **options)


async def take_files(
    taker: Taker,
    sources: Iterable[Source],
    *,
    source: str = "auto",
    dry_run: bool = False,
    progress: FileProgress | None = None,
    threaded: bool = False,
    now: datetime | None = None,
) -> ImportReport:
    """Import these files and folders.

    Our own exports are read to their end before anything is written, and refused as a whole if they have any error.
    From other programs' files everything valid is imported, and the report lists the rest.
    """
    run = _Run(taker, progress, threaded=threaded, now=now or datetime.now(UTC))
    found = await run.aside(lambda: find(sources, source))
    exports = [file for file in found if file.kind == MOORAGE]
    others = [file for file in found if file.kind != MOORAGE]
    run.total = 2 * sum(file.size for file in exports) + sum(file.size for file in others)
    try:
        report = await run.take_exports(exports, dry_run=True)
        if not dry_run:
            report = await run.take_exports(exports, dry_run=False)
        for file in others:
            await run.take_history(file, report)
        await taker.finish(report)
    finally:
        for file in found:
            file.close()
    return report


class _StoreTaker:
    def __init__(self, deps: Deps, caller: Caller, *, detach: bool, dry_run: bool) -> None:
        self._deps, self._caller, self._detach, self._dry_run = deps, caller, detach, dry_run

    async def exports(self, bundles: AsyncIterator[Bundle], *, dry_run: bool) -> ImportReport:
        importer = Importer(self._deps, self._caller, detach=self._detach, dry_run=dry_run)
        async for bundle in bundles:
            await importer.bring_in(bundle)
        return importer.report

    async def history(self, history: History, report: ImportReport) -> None:
        importer = Importer(self._deps, self._caller, report, detach=self._detach, dry_run=self._dry_run)
        await importer.bring_in_history(history)

    async def finish(self, report: ImportReport) -> None:
        """Do nothing: everything is stored already."""


class _Run:
    def __init__(self, taker: Taker, progress: FileProgress | None, *, threaded: bool, now: datetime) -> None:
        self._taker, self._threaded = taker, threaded
        self._transcripts, self._now = Transcripts(now), now
        self._reading: FoundFile | None = None
        self._progress, self._done, self.total = progress, 0, 0  # in bytes

    def _advance(self, size: int) -> None:
        self._done += size
        if self._progress is not None:
            self._progress(self._done, self.total)

    async def take_exports(self, files: list[FoundFile], *, dry_run: bool) -> ImportReport:
        """Import our own exports; an error in one of several files names that file."""
        if not files:
            return ImportReport()
        try:
            return await self._taker.exports(self._bundles(files), dry_run=dry_run)
        except InvalidImport as error:
            if len(files) == 1 or self._reading is None:
                raise
            raise InvalidImport(error.why, line=error.line, file=self._reading.name) from error

    async def _bundles(self, files: list[FoundFile]) -> AsyncIterator[Bundle]:
        for file in files:
            self._reading = file
            async for bundle in self._each(exported(file.lines(self._advance))):
                yield bundle
        self._reading = None

    async def take_history(self, file: FoundFile, report: ImportReport) -> None:
        if file.kind == CONTEXTS and file.problem is None:
            async for some in self._each(read_rows(file.name, file.lines(self._advance), self._now)):
                await self._taker.history(some, report)
            return
        await self._taker.history(await self.aside(lambda: self._history(file)), report)

    def _history(self, file: FoundFile) -> History:
        if file.problem is not None:
            return _refused(file, file.problem)
        try:
            if file.kind == STATE:
                return self._state(file)
            lines, session = file.lines(self._advance), file.session_id
            if file.kind == OPENAI:
                return read_messages(file.name, lines, now=self._now, task_id=file.task_id, session_id=session)
            return self._transcripts.read(
                file.name, lines, session_id=session, agent_id=file.agent_id, about=file.about
            )
        except OSError as error:
            return _refused(file, f"it cannot be read ({error.strerror})")

    def _state(self, file: FoundFile) -> History:
        with file.opened() as opened:
            data = opened.read(MAX_STATE + 1)
        self._advance(len(data))
        if len(data) > MAX_STATE:
            return _refused(file, f"larger than {MAX_STATE >> 20} MiB")
        return read_state(file.name, data, folder=file.folder)

    async def aside(self, work: Callable[[], T]) -> T:
        """Run blocking work, in a thread if there is an event loop."""
        if not self._threaded:
            return work()
        from asyncio import to_thread

        return await to_thread(work)

    async def _each(self, items: Iterator[T]) -> AsyncIterator[T]:
        while (item := await self.aside(lambda: next(items, None))) is not None:
            yield item


def _refused(file: FoundFile, reason: str) -> History:
    history = History(file=file.name)
    history.leave_out(reason)
    return history


# Tables of a PostgreSQL database ----------------------------------------------------------------

AT_ONCE = 500  # rows fetched at once
# Columns of any type are cast to text, and the time to a form for JSON.
_ROWS = """
SELECT row_to_json(r)::text FROM (
    SELECT session_id::text AS session_id, context::text AS context, updated_at FROM {table} ORDER BY 1
) r
"""


def write_rows(url: str, table: str, file: IO[bytes]) -> int:
    """Write the rows of a table (session_id, context, updated_at), all of one instant; return their number."""
    import asyncio

    return asyncio.run(_write(url, table, file))


async def _write(url: str, table: str, file: IO[bytes]) -> int:
    count = 0
    with provided_by("postgres", "PostgreSQL"):
        import asyncpg
    try:
        connection = await asyncpg.connect(url, statement_cache_size=0)
    except (OSError, ValueError, asyncpg.PostgresError) as error:
        raise InvalidImport(f"the database cannot be reached ({error})", file=table) from None
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            async for row in connection.cursor(_ROWS.format(table=_quoted(table)), prefetch=AT_ONCE):
                file.write(f"{row[0]}\n".encode())
                count += 1
    except asyncpg.PostgresError as error:
        raise InvalidImport(f"it cannot be read ({error})", file=table) from None
    finally:
        await connection.close()
    return count


def _quoted(table: str) -> str:
    """Return a quoted name; a dot separates the schema from the table.

    Without a dot it is a table of `public`: for a user with the name of our schema, PostgreSQL would find our own table
    first.
    """
    table = table if "." in table else f"public.{table}"
    return ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))

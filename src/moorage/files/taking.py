"""Import files: this module reads them; `service` makes them sessions, on this machine or on a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from moorage.core.bundle import Bundle
from moorage.core.errors import InvalidImport
from moorage.files.finding import MAX_STATE, FoundFile, Source, find
from moorage.service.deps import Caller, Deps
from moorage.service.histories.kinds import CONTEXTS, MOORAGE, OPENAI, STATE
from moorage.service.histories.message_lists import read_messages
from moorage.service.histories.state_files import read_rows, read_state
from moorage.service.histories.transcripts import Transcripts
from moorage.service.transfer import History, Importer, ImportReport, exported

T = TypeVar("T")
FileProgress = Callable[[int, int], None]  # called with the number of bytes read, and their total
Advance = Callable[[int], None]


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
    run = _Run(taker, threaded=threaded, now=now or datetime.now(UTC))
    found = await run.aside(lambda: find(sources, source))
    exports = [file for file in found if file.kind == MOORAGE]
    others = [file for file in found if file.kind != MOORAGE]
    advance = _counter(2 * sum(file.size for file in exports) + sum(file.size for file in others), progress)
    try:
        report = await run.take_exports(exports, advance, dry_run=True)
        if not dry_run:
            report = await run.take_exports(exports, advance, dry_run=False)
        for file in others:
            await run.take_history(file, report, advance)
        await taker.finish(report)
    finally:
        for file in found:
            file.close()
    return report


def _counter(total: int, progress: FileProgress | None) -> Advance:
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, total)

    return advance


class _StoreTaker:
    """Imports sessions into a store of this process."""

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
    """The state of one import."""

    def __init__(self, taker: Taker, *, threaded: bool, now: datetime) -> None:
        self._taker, self._threaded = taker, threaded
        self._transcripts, self._now = Transcripts(now), now
        self._reading: FoundFile | None = None

    async def take_exports(self, files: list[FoundFile], advance: Advance, *, dry_run: bool) -> ImportReport:
        """Import our own exports; an error in one of several files names that file."""
        if not files:
            return ImportReport()
        try:
            return await self._taker.exports(self._bundles(files, advance), dry_run=dry_run)
        except InvalidImport as error:
            if len(files) == 1 or self._reading is None:
                raise
            raise InvalidImport(error.why, line=error.line, file=self._reading.name) from error

    async def _bundles(self, files: list[FoundFile], advance: Advance) -> AsyncIterator[Bundle]:
        for file in files:
            self._reading = file
            async for bundle in self._each(exported(file.lines(advance))):
                yield bundle
        self._reading = None

    async def take_history(self, file: FoundFile, report: ImportReport, advance: Advance) -> None:
        """Import the history of another program."""
        if file.kind == CONTEXTS and file.problem is None:
            async for some in self._each(read_rows(file.name, file.lines(advance), self._now)):
                await self._taker.history(some, report)
            return
        await self._taker.history(await self.aside(lambda: self._history(file, advance)), report)

    def _history(self, file: FoundFile, advance: Advance) -> History:
        if file.problem is not None:
            return _refused(file, file.problem)
        try:
            if file.kind == STATE:
                return _state(file, advance)
            if file.kind == OPENAI:
                place = {"task_id": file.task_id, "session_id": file.session_id}
                return read_messages(file.name, file.lines(advance), now=self._now, **place)
            return self._transcripts.read(
                file.name, file.lines(advance), session_id=file.session_id, agent_id=file.agent_id, about=file.about
            )
        except OSError as error:
            return _refused(file, f"it cannot be read ({error.strerror})")

    async def aside(self, work: Callable[[], T]) -> T:
        """Run blocking work, in a thread if there is an event loop."""
        if not self._threaded:
            return work()
        from asyncio import to_thread

        return await to_thread(work)

    async def _each(self, items: Iterator[T]) -> AsyncIterator[T]:
        while (item := await self.aside(lambda: next(items, None))) is not None:
            yield item


def _state(file: FoundFile, advance: Advance) -> History:
    with file.opened() as opened:
        data = opened.read(MAX_STATE + 1)
    advance(len(data))
    if len(data) > MAX_STATE:
        return _refused(file, f"larger than {MAX_STATE >> 20} MiB")
    return read_state(file.name, data, folder=file.folder)


def _refused(file: FoundFile, reason: str) -> History:
    history = History(file=file.name)
    history.leave_out(reason)
    return history

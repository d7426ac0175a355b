"""Sessions on their way to a server: files are read on this machine and validated by the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import Any

from moorage.core.bundle import Bundle
from moorage.core.codec import check_items, encode
from moorage.core.errors import InvalidImport
from moorage.service.transfer import History, ImportReport, bundle_lines, first_line

IN_MEMORY = 8 * 1024 * 1024  # bytes; longer data waits in a file
SendFiles = Callable[..., Awaitable[ImportReport]]


@contextmanager
def spooled(lines: Iterable[str | bytes]) -> Iterator[Any]:
    """Yield lines in a temporary file, because they may have to be sent twice."""
    with SpooledTemporaryFile(IN_MEMORY) as file:
        for number, line in enumerate(check_items(lines, "lines"), 1):
            if not isinstance(line, (str, bytes)):
                raise InvalidImport("a line is no text", line=number)
            add_line(file, line)
        yield file


def add_line(file: Any, line: str | bytes) -> None:
    """Write a line unchecked: the server reports its errors."""
    file.write(line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line)
    file.write(b"\n")


class Sender:
    """Sends the content of files: exports all at once, files of other programs some at a time."""

    def __init__(self, send: SendFiles, *, dry_run: bool) -> None:
        """Set up. `send` gets a path and an open file, and returns the server's answer."""
        self._send, self._dry_run = send, dry_run
        self._waiting = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115  # closed by __exit__

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.close()

    async def exports(self, bundles: AsyncIterator[Bundle], *, dry_run: bool) -> ImportReport:
        """Read all exports, then send them: an unreadable one is noticed before anything is sent."""
        with SpooledTemporaryFile(IN_MEMORY) as file:
            add_line(file, first_line())
            async for bundle in bundles:
                for line in bundle_lines(bundle):
                    add_line(file, line)
            return await self._send("/import", file, dry_run=dry_run)

    async def history(self, history: History, report: ImportReport) -> None:
        """Send the content of one file, or keep it for the next request."""
        add_line(self._waiting, encode(history))
        if self._waiting.tell() >= IN_MEMORY:
            await self.finish(report)

    async def finish(self, report: ImportReport) -> None:
        """Send the rest."""
        if not self._waiting.tell():
            return
        report.add(await self._send("/import/histories", self._waiting, dry_run=self._dry_run))
        self._waiting.seek(0)
        self._waiting.truncate()

"""Sessions on their way to a server: what files of this machine hold, read here and judged there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import Any

from moorage.core.bundle import Bundle
from moorage.core.codec import encode
from moorage.service.importing import History, ImportReport
from moorage.service.transfer import bundle_lines, first_line

IN_MEMORY = 8 * 1024 * 1024  # bytes; what is longer waits in a file
SendFiles = Callable[..., Awaitable[ImportReport]]


@contextmanager
def spooled(lines: Iterable[str | bytes]) -> Iterator[Any]:
    """Lines in a file that is gone afterwards: they may have to be sent twice."""
    with SpooledTemporaryFile(IN_MEMORY) as file:
        for line in lines:
            add_line(file, line)
        yield file


def add_line(file: Any, line: str | bytes) -> None:
    """Write a line, whatever is in it: the server says what is wrong with it."""
    file.write(line.encode("utf-8", "surrogatepass") if isinstance(line, str) else bytes(line))
    file.write(b"\n")


class Sender:
    """Sends what files hold: our own sessions all at once, what others kept some at a time."""

    def __init__(self, send: SendFiles, *, dry_run: bool) -> None:
        """`send` gets a path and an open file, and gives what the server says."""
        self._send, self._dry_run = send, dry_run
        self._waiting = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115  # closed by __exit__

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.close()

    async def exports(self, bundles: AsyncIterator[Bundle], *, dry_run: bool) -> ImportReport:
        """Read all of them, then send them: what cannot be read is noticed before anything is sent."""
        with SpooledTemporaryFile(IN_MEMORY) as file:
            add_line(file, first_line())
            async for bundle in bundles:
                for line in bundle_lines(bundle):
                    add_line(file, line)
            return await self._send("/import", file, dry_run=dry_run)

    async def history(self, history: History, report: ImportReport) -> None:
        """Send what one file held, or keep it for the next time."""
        add_line(self._waiting, encode(history))
        if self._waiting.tell() >= IN_MEMORY:
            await self.finish(report)

    async def finish(self, report: ImportReport) -> None:
        """Send what is still here."""
        if not self._waiting.tell():
            return
        report.add(await self._send("/import/histories", self._waiting, dry_run=self._dry_run))
        self._waiting.seek(0)
        self._waiting.truncate()

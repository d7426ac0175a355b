"""Server-sent events and lines, as they come over a connection that may break."""

from __future__ import annotations

from collections.abc import AsyncIterator

LINE_END = b"\n"


async def lines_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Lines without their ends. Only a line feed ends one: texts may have other separators in them."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(LINE_END)
        for line in whole:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest


async def messages_of(
    lines: AsyncIterator[bytes], begins: str | None = None
) -> AsyncIterator[tuple[str | None, bytes]]:
    """The id and the data of one message after another; the first has no data if it is known where they begin.

    One that is cut off is not given: it comes again. Nothing comes after a refusal: who comes back is told why.
    """
    if begins is not None:
        yield begins, b""
    place: str | None = None
    data: list[bytes] = []
    async for line in lines:
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif line == b"event: refused":
            return
        elif line.startswith(b"id:"):
            place = line[3:].strip().decode("latin-1")
        elif not line and data:
            yield place, LINE_END.join(data)
            place, data = None, []

"""Copy a whole store into another: `moorage migrate --from … --to …`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import click

from moorage.config import SystemClock, is_server, open_store, sqlite_path, sqlite_url, without_password
from moorage.core.errors import InvalidField, Unsupported
from moorage.doors.cli.app import App
from moorage.doors.cli.output import facts, say
from moorage.doors.cli.progress import stating
from moorage.ports import Store


def copy(app: App, source: str | None, target: str | None, *, force: bool, dry_run: bool) -> None:
    """Copy one store into another, or only count what would be."""
    if source is None or target is None:
        raise click.UsageError("--from and --to go together: the store to copy, and an empty one to copy it into")
    names = {"from": _checked("from", source), "to": _checked("to", target)}
    if names["from"] == names["to"]:
        raise InvalidField("url", "of --to is that of the store to be copied")
    import asyncio

    done = asyncio.run(_count(source) if dry_run else _copy(source, target, names["from"], force))
    answer = {**names, **done}
    app.show(answer, lambda: say(facts(_flat(answer))))


def _flat(answer: dict[str, Any]) -> Iterator[tuple[str, object]]:
    for name, value in answer.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{part}", count) for part, count in value.items())
        else:
            yield name, value


def _checked(what: str, url: str) -> str:
    """The name of a store that lasts, the same however its URL is written."""
    shown = without_password(url)
    if url.startswith("memory://") or is_server(url):
        why = "is a server" if is_server(url) else "is gone with its process"
        raise Unsupported(f"--{what} {shown} {why}; name the store itself, sqlite:///FILE or postgresql://…", url=shown)
    if not url.startswith("sqlite://"):
        return shown
    path = sqlite_path(url)
    if what == "from" and not os.path.exists(path):
        raise InvalidField("url", f"of --from is {shown}, and there is no such file")
    return sqlite_url(os.path.abspath(path))


async def _count(source: str) -> dict[str, Any]:
    from moorage.core.record import KINDS
    from moorage.service.copying import all_records

    async with _opened(source) as store:
        counts = {kind: sum([1 async for _ in all_records(store, kind)]) for kind in KINDS}
    return {"to_copy": counts}


async def _copy(source: str, target: str, name: str, force: bool) -> dict[str, Any]:
    from moorage.service.copying import copy_store

    async with AsyncExitStack() as opened:
        ours = await opened.enter_async_context(_opened(source))
        theirs = await opened.enter_async_context(_opened(target))
        with _telling() as progress:
            done = await copy_store(ours, theirs, name, SystemClock().now(), force=force, progress=progress)
    return {"copied": done.counts, "digest": done.digest, "went_on": done.went_on}


@contextmanager
def _telling() -> Iterator[Any]:
    with stating("Copying") as state:
        yield None if state is None else lambda doing, kind, count: state(f"{doing} … {kind} {count}")


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Store]:
    store = open_store(url, threaded=True)
    try:
        yield store
    finally:
        await store.close()

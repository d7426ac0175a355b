"""Care for a PostgreSQL store: `moorage migrate` where there is no file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from msgspec import to_builtins

from moorage.config import open_store
from moorage.doors.cli.progress import counting

if TYPE_CHECKING:
    from moorage.stores.postgres.store import PostgresStore


def migrate(url: str, shown: str, *, dry_run: bool, seal: bool) -> dict[str, Any]:
    """Bring the schema up to date and seal what is there, or only say what is missing; what was done."""
    return asyncio.run(_migrate(url, shown, dry_run, seal))


async def _migrate(url: str, shown: str, dry_run: bool, seal: bool) -> dict[str, Any]:
    async with _opened(url) as store:
        from moorage.stores.postgres.migrate import LATEST

        before = await store.schema()
        missing = list(range(before + 1, LATEST + 1))
        done: dict[str, Any] = {"url": shown, "schema_before": before}
        if dry_run:
            to_seal = {"to_seal": await store.count_plain() if before else 0} if seal else {}
            return done | {"schema": before, "missing": missing} | to_seal
        await store.owners()  # the first who asks something brings the schema up to date
        done |= {"schema": max(before, LATEST), "applied": missing}
        return done | ({"sealed": await _sealed(store)} if seal else {})


async def _sealed(store: PostgresStore) -> dict[str, Any]:
    with counting("Sealing") as progress:
        return cast("dict[str, Any]", to_builtins(await store.seal(progress)))


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[PostgresStore]:
    store = cast("PostgresStore", open_store(url, threaded=True))
    try:
        yield store
    finally:
        await store.close()

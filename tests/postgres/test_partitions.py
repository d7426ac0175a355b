"""The tables that grow can be partitioned by their owner, as docs/scale.md tells it, and everything goes on."""

from __future__ import annotations

import re
from pathlib import Path

from moorage.stores.postgres.store import PostgresStore
from moorage.testing.builders import OWNER, a_session, a_stamp, may_delete, said
from moorage.testing.contract.dump import a_full_store, everything
from moorage.testing.model_store import ModelStore
from moorage.testing.postgres import GivenServer, PostgresServer

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"


def partitioning() -> str:
    """The statements of the page."""
    (sql,) = re.findall(r"```text\n(BEGIN;.*?COMMIT;)\n```", PAGE.read_text(encoding="utf-8"), flags=re.S)
    return str(sql)


async def test_everything_goes_on_when_the_log_and_the_feed_are_partitioned(
    postgres: GivenServer | PostgresServer, postgres_url: str
) -> None:
    name = postgres_url.partition("?")[0].rpartition("/")[2]
    store, model = PostgresStore(postgres_url), ModelStore()
    await a_full_store(store)
    await a_full_store(model)
    before = await everything(store)
    await store.close()

    postgres.sql(partitioning(), name)

    store = PostgresStore(postgres_url)
    assert await everything(store) == before == await everything(model)
    for each in (store, model):
        await each.create(OWNER, a_session("later"))
        await each.append(OWNER, "later", said("on we go"), a_stamp())
        await each.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())
    assert await everything(store) == await everything(model)
    assert await store.check() == []
    await store.close()
    kinds = postgres.sql("SELECT relkind FROM pg_class WHERE oid = 'moorage.entries'::regclass", name)
    assert kinds == ["p"]

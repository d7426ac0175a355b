"""The permissions that docs/redis.md lists are enough for a store, and for nothing else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from moorage.ports import Store
from moorage.stores.redis.store import RedisStore
from moorage.testing.builders import OWNER, a_session, a_stamp, said
from moorage.testing.contract.deletion import DeletionRules
from moorage.testing.contract.dump import DumpRules
from moorage.testing.contract.records import RecordRules
from moorage.testing.contract.turns import TurnRules
from moorage.testing.redis import RedisServer

DOCS = Path(__file__).parents[2] / "docs" / "redis.md"


def listed() -> list[str]:
    """Return the words of the ACL command on the page."""
    [line] = re.findall(r"^ACL SETUSER .*", DOCS.read_text(encoding="utf-8"), flags=re.M)
    return str(line).split()


def url(server: RedisServer, options: str = "") -> str:
    scheme = "redis+cluster" if server.is_cluster else "redis"
    return f"{scheme}://moorage:password@127.0.0.1:{server.port}{options and '?'}{options}"


@pytest.fixture(scope="module")
def guarded() -> Iterator[RedisServer]:
    with RedisServer() as server:
        assert server.ask(*listed()).startswith(b"+OK")
        yield server


class TestStoreOfAUserWithThesePermissions(TurnRules, DeletionRules, DumpRules, RecordRules):
    """Rules that, together, send nearly every command there is."""

    @pytest.fixture
    async def store(self, guarded: RedisServer) -> AsyncIterator[Store]:
        guarded.ask("FLUSHALL", "SYNC")
        store = RedisStore(url(guarded))
        yield store
        await store.close()
        assert guarded.ask("ACL", "LOG").startswith(b"*0"), "a command was refused"


@pytest.mark.parametrize("cluster", [False, True], ids=["server", "cluster"])
async def test_user_may_wait_for_the_file_and_doctor_may_look(cluster: bool) -> None:
    with RedisServer(cluster=cluster, durable=True) as server:
        server.ask(*listed())
        store = RedisStore(url(server, "durability=fsync"))
        await store.create(OWNER, a_session("durable"))
        await store.append(OWNER, "durable", said("hello"), a_stamp())
        assert await store.check() == []
        [facts] = await store.db.facts()
        await store.close()
    assert facts.fsync == "always"


@pytest.mark.parametrize("command", ["FLUSHALL", "KEYS *", "GET other", "CONFIG SET dir /tmp", "SHUTDOWN"])
def test_user_may_do_nothing_else(guarded: RedisServer, command: str) -> None:
    asked = ("ACL", "DRYRUN", "moorage", *command.split())
    assert b"no permission" in guarded.ask(*asked).lower()

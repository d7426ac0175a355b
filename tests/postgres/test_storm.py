"""A storm over servers, launchers, their network and the database itself; then the history must be whole.

MOORAGE_STORM makes it that many times as long: `MOORAGE_STORM=20 python -m pytest tests/postgres/test_storm.py`.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from moorage.stores.postgres.store import PostgresStore
from moorage.testing.history import problems_in
from moorage.testing.postgres import PostgresServer
from moorage.testing.proxy import Proxy
from tests.postgres.fleet import Fleet, until

LENGTH = int(os.environ.get("MOORAGE_STORM", "1"))
SEED = 20261117


def strike(fleet: Fleet, database: PostgresServer, wire: Proxy, chance: random.Random) -> None:
    """Do something terrible."""
    kind = chance.choice(["kill", "kill", "freeze", "cut", "deaf", "wire", "deaf wire"])
    machine, network = chance.choice(fleet.machines), chance.choice(fleet.networks)
    if kind == "kill":
        machine.kill()
    elif kind == "freeze":
        machine.freeze(chance.uniform(0.2, 2.0))
    elif kind == "cut":
        network.reset()
    elif kind in ("deaf", "deaf wire"):  # towards a server, or towards the database
        broken = network if kind == "deaf" else wire
        broken.swallow(chance.choice(["up", "down"]))
        time.sleep(chance.uniform(0.2, 1.5))
        broken.mend()
    else:
        wire.delay(0.05)
        time.sleep(0.3)
        wire.reset()
        wire.mend()


async def problems(url: str, asked: list[str]) -> list[str]:
    store = PostgresStore(url)
    try:
        return await problems_in(store, "local", asked)
    finally:
        await store.close()


@pytest.mark.timeout(300 * LENGTH)
def test_nothing_is_lost_and_nothing_done_twice_in_a_storm(durable_postgres: PostgresServer, tmp_path: Path) -> None:
    database, chance = durable_postgres, random.Random(SEED)
    families, strikes = 4 + 4 * LENGTH, 4 + 4 * LENGTH
    name = database.create_database()
    with Proxy(("127.0.0.1", database.port)) as wire:
        through_wire = database.url(name).replace(str(database.port), str(wire.port))
        with Fleet(through_wire, tmp_path) as fleet:
            asked = [fleet.ask(number) for number in range(families)]
            for number in range(strikes):
                time.sleep(chance.uniform(0.1, 0.6))
                if number % 4 == 2:
                    database.stop("immediate")
                    fleet.servers[number % 3].kill()
                    time.sleep(chance.uniform(0.0, 1.0))
                    database.start()
                strike(fleet, database, wire, chance)
            until(fleet.is_quiet)
    assert asyncio.run(problems(database.url(name), asked)) == []
    assert fleet.left_behind() == []

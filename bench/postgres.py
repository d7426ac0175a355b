"""`python -m bench.postgres`: moorage on PostgreSQL, beside what a competent hand writes with asyncpg, and peers.

One server is started for all, with fsync on, reached through its socket; or MOORAGE_TEST_POSTGRES_URL names
one. Figures are ratios in the same rounds. The floors hold their connections and prepared statements in their
hands, and check no rule:

- a turn is one INSERT of two numbered messages of a session (the tables of `bench.floor`), committed by itself;
- from 64 tasks it is the same through a pool of as many connections as moorage has, without batching;
- the queue is a SKIP LOCKED loop of 8 workers on moorage's own tables, so that it writes the same rows and the same
  indexes, in three transactions (claimed, started, finished) with a statement for each table, as such loops are.

Besides: how long it takes from a child's end, at one server, to its parent's next turn, at another. Both are
processes of their own. With `--peers`, what others keep of a turn (`bench.peers.postgres`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count as count_up
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

import moorage
from bench import material, peerenv
from moorage import config
from moorage.core import work
from moorage.core.query import LogQuery
from moorage.core.session import Needs, Stamp
from moorage.core.turn import LEASE, LOST_AFTER, TurnState
from moorage.core.work import Claim, TurnEnd
from moorage.launcher.embedded import Embedded
from moorage.service import runs
from moorage.service.deps import Caller, Deps
from moorage.service.runs import Wish
from moorage.stores.postgres.store import PostgresStore
from moorage.testing.postgres import GIVEN, GivenServer, PostgresServer

TASKS = 64
WORKERS = 8
POOL = 10  # connections, of moorage and of the floor
SESSIONS = 64


class Line(NamedTuple):
    """A figure and what it must be."""

    title: str
    ours: list[float]
    floor: list[float]
    least: float | None

    @property
    def ratio(self) -> float:
        """Ours by the floor's, in the same rounds."""
        return median(mine / theirs for mine, theirs in zip(self.ours, self.floor, strict=True))

    @property
    def kept(self) -> bool:
        return self.least is None or self.ratio >= self.least

    def __str__(self) -> str:
        target = "" if self.least is None else f"(≥ {self.least:.2f})"
        rates = f"{median(self.ours):8.0f} /s  floor {median(self.floor):6.0f} /s"
        return f"{self.title:<44} {rates}   {self.ratio:5.2f} × {target}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether the promises are kept."""
    parser = argparse.ArgumentParser(prog="python -m bench.postgres", description=__doc__)
    parser.add_argument("--turns", type=int, default=400, metavar="N", help="in one round (400)")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="of each, in turn (7)")
    parser.add_argument("--peers", action="store_true", help="beside what others write, in an environment of their own")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args(arguments)
    with started_database() as url:
        kept = asyncio.run(_measure(url, options.turns, options.rounds, PEERS if options.peers else ()))
    return int(options.check and not all(kept))


@contextmanager
def started_database() -> Iterator[str]:
    """Start a server, or take the one that is named; the URL of an empty database."""
    if given := os.environ.get(GIVEN):
        with GivenServer(given).database() as url:
            yield url
        return
    settings = {"shared_buffers": "256MB", "max_wal_size": "2GB"}
    with PostgresServer(durable=True, settings=settings) as server, server.database() as url:
        print(f"PostgreSQL {server.version}, fsync {server.sql('SHOW fsync')[0]}", file=sys.stderr)
        yield url


async def _measure(url: str, turns: int, rounds: int, peers: Sequence[str]) -> list[bool]:
    lines = [await _append(url, turns, rounds), await _append_from_tasks(url, turns * 4, rounds)]
    for line in lines:
        print(line)
        for peer in peers:
            async with _database_beside(url) as other:  # `sessions` is a name that more than one likes
                print(_peer(peer, other, turns, TASKS if line is lines[1] else 1, line))
    lines.append(await _queue(url, turns, rounds))
    print(lines[-1])
    to_parent = await _to_parent(url, 40)
    print(f"{'child finishes, parent starts elsewhere':<44} {to_parent * 1000:8.1f} ms (< 100 ms)")
    return [*(line.kept for line in lines), to_parent < 0.1]


@asynccontextmanager
async def _database_beside(url: str) -> AsyncIterator[str]:
    """An empty database on the same server."""
    name = f"beside_{uuid4().hex}"
    one = await asyncpg.connect(url)
    await one.execute(f"CREATE DATABASE {name}")
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        await one.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await one.close()


PEERS = ("LangGraph", "OpenAI Agents", "ADK")


def _peer(peer: str, url: str, turns: int, tasks: int, beside: Line) -> str:
    """Run the same work with a peer, in a process and an environment of its own."""
    problems = peerenv.install()
    command = [str(peerenv.python()), "-m", "bench.peers.postgres", peer, url, str(turns), str(tasks)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **peerenv.QUIET})
    if done.returncode:
        return f"  {peer:<42} failed: {'; '.join(problems) or (done.stderr.strip().splitlines() or ['?'])[-1]}"
    rate = float(done.stdout)
    return f"  {peer:<42} {rate:8.0f} /s  {'':>14}   {rate / median(beside.floor):5.2f} ×"


Rate = Callable[[int], Awaitable[float]]


async def race(title: str, ours: Rate, floor: Rate, count: int, rounds: int, least: float | None) -> Line:
    """Both in turn, the order changing; operations a second in each round."""
    for rate in (ours, floor):
        await rate(max(1, count // 10))
    mine, theirs = [], []
    for number in range(rounds):
        for rate, kept in ((ours, mine), (floor, theirs))[:: 1 if number % 2 else -1]:
            kept.append(await rate(count))
    return Line(title, mine, theirs, least)


# Appending ---------------------------------------------------------------------------------------

_FLOOR = """
CREATE SCHEMA IF NOT EXISTS floor;
CREATE TABLE IF NOT EXISTS floor.sessions (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE
);
CREATE TABLE IF NOT EXISTS floor.messages (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, session bigint NOT NULL REFERENCES floor.sessions,
    number bigint NOT NULL, role text NOT NULL, content text NOT NULL, at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (session, number)
);
"""
_BEGIN = "INSERT INTO floor.sessions (id) VALUES (gen_random_uuid()) RETURNING key"
_INSERT = """
INSERT INTO floor.messages (session, number, role, content)
VALUES ($1::bigint, $2::bigint, $3, $4), ($1, $2 + 1, $5, $6)
"""


class Conversation:
    """A session of the floor: its key, and how many messages it has."""

    def __init__(self, key: int) -> None:
        self.key, self.count = key, 0

    def turn(self, number: int) -> tuple[Any, ...]:
        """The values of its next two rows."""
        self.count += 2
        user, assistant = material.turn(number)
        return self.key, self.count - 1, user["role"], user["content"], assistant["role"], assistant["content"]


async def _append(url: str, turns: int, rounds: int) -> Line:
    async with moorage.connect(url) as moor:
        session = (await moor.create(agent="agent-00")).id
        bare = await asyncpg.connect(url)
        await bare.execute(_FLOOR)
        by_hand = Conversation(await bare.fetchval(_BEGIN))
        statement = await bare.prepare(_INSERT)

        async def ours(count: int) -> float:
            began = perf_counter()
            for number in range(count):
                await moor.append(session, material.turn(number))
            return count / (perf_counter() - began)

        async def floor(count: int) -> float:
            began = perf_counter()
            for number in range(count):
                await statement.fetch(*by_hand.turn(number))
            return count / (perf_counter() - began)

        line = await race("append a turn, one after another", ours, floor, turns, rounds, 0.7)
        await bare.close()
    return line


async def _append_from_tasks(url: str, turns: int, rounds: int) -> Line:
    async with moorage.connect(_with(url, pool=POOL)) as moor:
        sessions = [(await moor.create(agent="agent-00")).id for _ in range(SESSIONS)]
        pool = await asyncpg.create_pool(url, min_size=POOL, max_size=POOL)
        by_hand = [Conversation(await pool.fetchval(_BEGIN)) for _ in range(SESSIONS)]

        async def ours(count: int) -> float:
            async def task(number: int) -> None:
                for turn in range(number, count, TASKS):
                    await moor.append(sessions[number], material.turn(turn))

            return await together(task, count)

        async def floor(count: int) -> float:
            async def task(number: int) -> None:
                for turn in range(number, count, TASKS):
                    async with pool.acquire() as one:
                        await one.execute(_INSERT, *by_hand[number].turn(turn))

            return await together(task, count)

        line = await race(f"the same from {TASKS} tasks", ours, floor, turns, rounds, 1.0)
        await pool.close()
    return line


async def together(task: Callable[[int], Awaitable[None]], count: int, tasks: int = TASKS) -> float:
    began = perf_counter()
    await asyncio.gather(*[task(number) for number in range(tasks)])
    return count / (perf_counter() - began)


def _with(url: str, **options: object) -> str:
    return url + ("&" if "?" in url else "?") + "&".join(f"{name}={value}" for name, value in options.items())


# The queue ---------------------------------------------------------------------------------------

_TABLES = ("turns", "runs", "inbox")
_HAND = "by-hand"  # the agent whose turns the floor takes
_NOW = "(extract(epoch FROM now()) * 1000000)::bigint"
_TURN, _RUN, _ITEM = (f"UPDATE moorage.{each} SET %s WHERE owner = $1 AND session = $2" for each in _TABLES)
_SESSION = "UPDATE moorage.sessions SET revision = revision + 1, %s WHERE owner = $1 AND pk = $2"
_ENTRY = f"""
INSERT INTO moorage.entries (owner, root, segment, number, kind, at, data)
SELECT owner, pk, pk, %s, {_NOW}, 'done' FROM moorage.sessions, %s WHERE owner = $1 AND pk = $2
"""
_ARRIVAL = """
INSERT INTO moorage.arrivals (owner, subject, root, last, count)
SELECT owner, pk, pk, last_entry, %s FROM moorage.sessions WHERE owner = $1 AND pk = $2
"""
_ENDING = "unnest(ARRAY['message', 'run_settled', 'turn_ended']) WITH ORDINALITY k (kind, place)"

_NEXT = f"""
SELECT owner, session FROM moorage.turns WHERE owner = 'ann' AND agent = '{_HAND}' AND state = 'queued'
    AND not_before IS NULL ORDER BY n LIMIT 1 FOR UPDATE SKIP LOCKED
"""
_CLAIM = (
    _TURN % f"state = 'running', launcher = 'one', due_at = {_NOW} + 30000000, body = repeat('y', 600)",
    _SESSION % "live_turn = 'turn', epoch = epoch + 1",
    _RUN % "state = 'running', body = repeat('y', 600)",
    _ITEM % "state = 'given', turn = 'turn'",
)
_START = (
    _TURN % f"due_at = {_NOW} + 300000000, body = repeat('z', 650)",
    _SESSION % f"last_entry = last_entry + 1, updated_at = {_NOW}",
    _ENTRY % ("last_entry, kind", "unnest(ARRAY['turn_started']) k (kind)"),
    _ARRIVAL % 1,
)
_FINISH = (
    _TURN % "state = 'completed', due_at = NULL, body = repeat('e', 700)",
    _RUN % "state = 'completed', body = repeat('e', 700)",
    _ITEM % "state = 'consumed'",
    _SESSION % f"last_entry = last_entry + 3, live_turn = NULL, updated_at = {_NOW}",
    _ENTRY % ("last_entry - 3 + place, kind", _ENDING),
    _ARRIVAL % 3,
)


async def _work_by_hand(one: Any) -> None:
    """Three transactions for each turn, a statement for each table."""
    while (found := await _claimed(one)) is not None:
        for step in (_START, _FINISH):
            async with one.transaction():
                await _do(one, step, found)


async def _claimed(one: Any) -> Any:
    async with one.transaction():
        found = await one.fetchrow(_NEXT)
        if found is not None:
            await _do(one, _CLAIM, found)
        return found


async def _do(one: Any, statements: Sequence[str], found: Any) -> None:
    for statement in statements:
        await one.execute(statement, *found)


_AGENT = "worker"


async def _queue(url: str, turns: int, rounds: int) -> Line:
    store = PostgresStore(_with(url, pool=POOL))
    pool = await asyncpg.create_pool(url, min_size=POOL, max_size=POOL)
    names = count_up()

    async def ours(count: int) -> float:
        await _ask_for(store, _AGENT, next(names), count)
        return await together(lambda _: _carry_all(store), count, WORKERS)

    async def floor(count: int) -> float:
        await _ask_for(store, _HAND, next(names), count)

        async def one_worker(_: int) -> None:
            async with pool.acquire() as one:
                await _work_by_hand(one)

        return await together(one_worker, count, WORKERS)

    line = await race("claim to finish, 8 workers", ours, floor, turns, rounds, 0.5)
    await pool.close()
    await store.close()
    return line


def _stamp() -> Stamp:
    return Stamp(at=config.SystemClock().now(), by="bench", interface="bench")


async def _ask_for(store: PostgresStore, agent: str, name: object, count: int) -> None:
    from moorage.testing.builders import OWNER
    from moorage.testing.work import a_run, asked_at_birth

    at = config.SystemClock().now()
    for number in range(count):
        run = a_run(f"run-{name}-{number}", created_at=at, agent_name=agent)
        decide = asked_at_birth(f"session-{name}-{number}", run, "do it", at, agent_name=agent)
        await store.create(OWNER, decide)


async def _carry_all(store: PostgresStore) -> None:
    """Claim and finish turns as a launcher does, until there are none."""
    from moorage.testing.builders import OWNER, said

    wish = Claim(launcher_id="bench", lease=LEASE, lost_after=LOST_AFTER, token="bench")
    end = TurnEnd(outcome=TurnState.COMPLETED, messages=tuple(said("done", role="assistant")))
    while (claimed := await store.claim((OWNER,), (_AGENT,), wish, _stamp())) is not None:
        turn = claimed.turn
        where = (OWNER, turn.session_id)
        await store.apply(
            *where,
            lambda view, turn=turn: work.started(view, turn.turn_id, turn.epoch, _stamp()),
            needs=Needs(turn=turn.turn_id),
        )
        await store.apply(
            *where,
            lambda view, turn=turn: work.finished(view, turn.turn_id, turn.epoch, end, _stamp()),
            needs=Needs(turn=turn.turn_id),
        )


# From one server to another ----------------------------------------------------------------------

_CHILDREN = """
import asyncio, sys
from moorage import config
from moorage.launcher.embedded import Embedded

async def main():
    deps = config.open_deps(sys.argv[1], threaded=True)
    agents = {name: each for name, each in config.agents().items() if name == "hello-world"}
    async with Embedded(deps, lambda: agents):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    await deps.store.close()

asyncio.run(main())
"""


async def _to_parent(url: str, count: int) -> float:
    """The median seconds from a child's settled run, in another process, to its parent's turn here."""
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CHILDREN, url, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdin is not None
    await other.stdout.readline()
    deps = config.open_deps(url, threaded=True)
    agents = {name: each for name, each in config.agents().items() if name == "echo-agent"}
    try:
        async with Embedded(deps, lambda: agents):
            return await _waits(deps, count)
    finally:
        other.stdin.write(b"\n")
        await other.wait()
        await deps.store.close()


async def _waits(deps: Deps, count: int) -> float:
    parent = await runs.start_run(deps, Caller(), "echo-agent", "parent")
    await runs.wait_for_run(deps, Caller(), parent.run.run_id, timeout=60)
    session_id = parent.session.session_id
    for _ in range(count):
        wish = Wish(mode="async_callback", parent=session_id)
        child = await runs.start_run(deps, Caller(), "hello-world", "child", wish=wish)
        await runs.wait_for_run(deps, Caller(), child.run.run_id, timeout=60)
        await asyncio.sleep(0.2)
    entries = await deps.store.log("local", session_id, LogQuery(limit=1000, kinds=("callback", "turn_started")))
    waits = [
        (later.at - first.at).total_seconds()
        for first, later in pairwise(entries)
        if (first.kind, later.kind) == ("callback", "turn_started")
    ]
    return median(waits)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench.postgres`: holdfast on PostgreSQL, beside what a competent hand writes with asyncpg.

One server is started for all, with fsync on, reached through its socket; or HOLDFAST_TEST_POSTGRES_URL names
one. Figures are ratios in the same rounds. The floors hold their connections and prepared statements in their
hands, check no rule, and number nothing:

- a turn is one INSERT of two messages, committed by itself;
- from 64 tasks it is the same through a pool of as many connections as holdfast has, without batching;
- the queue is a SKIP LOCKED loop of 8 workers that writes the same rows as a turn does, in three transactions:
  claimed, started, finished. Once with a statement for each table, as such loops are written, and once, to see
  what there is to gain, with one statement for each step.

Besides: how long it takes from a child's end, at one server, to its parent's next turn, at another. Both are
processes of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import asyncpg

import holdfast
from bench import material
from holdfast import config
from holdfast.core import work
from holdfast.core.session import Stamp
from holdfast.core.turn import LEASE, LOST_AFTER, TurnState
from holdfast.core.work import Claim, TurnEnd
from holdfast.launcher.embedded import Embedded
from holdfast.service import runs
from holdfast.service.deps import Caller, Deps
from holdfast.service.runs import Wish
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.postgres import GIVEN, GivenServer, PostgresServer

TASKS = 64
WORKERS = 8
POOL = 10  # connections, of holdfast and of the floor
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
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args(arguments)
    with _database() as url:
        kept = asyncio.run(_measure(url, options.turns, options.rounds))
    return int(options.check and not all(kept))


@contextmanager
def _database() -> Iterator[str]:
    if given := os.environ.get(GIVEN):
        with GivenServer(given).database() as url:
            yield url
        return
    settings = {"shared_buffers": "256MB", "max_wal_size": "2GB"}
    with PostgresServer(durable=True, settings=settings) as server, server.database() as url:
        print(f"PostgreSQL {server.version}, fsync {server.sql('SHOW fsync')[0]}", file=sys.stderr)
        yield url


async def _measure(url: str, turns: int, rounds: int) -> list[bool]:
    lines = [
        await _append(url, turns, rounds),
        await _append_from_tasks(url, turns * 4, rounds),
        await _queue(url, _plain_worker, "claim to finish, 8 workers", turns, rounds, 0.5),
        await _queue(url, _tight_worker, "… beside one statement a step", turns, rounds, None),
    ]
    for line in lines:
        print(line)
    to_parent = await _to_parent(url, 40)
    print(f"{'child finishes, parent starts elsewhere':<44} {to_parent * 1000:8.1f} ms (< 100 ms)")
    return [*(line.kept for line in lines), to_parent < 0.1]


Rate = Callable[[int], Awaitable[float]]


async def _race(title: str, ours: Rate, floor: Rate, count: int, rounds: int, least: float | None) -> Line:
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
CREATE TABLE IF NOT EXISTS floor.messages (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, session bigint NOT NULL, role text NOT NULL,
    content text NOT NULL, at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS messages_by_session ON floor.messages (session, id);
"""
_INSERT = "INSERT INTO floor.messages (session, role, content) VALUES ($1, $2, $3), ($1, $4, $5)"


def _row(session: int, number: int) -> tuple[Any, ...]:
    user, assistant = material.turn(number)
    return session, user["role"], user["content"], assistant["role"], assistant["content"]


async def _append(url: str, turns: int, rounds: int) -> Line:
    async with holdfast.connect(url) as hf:
        session = (await hf.create(agent="agent-00")).id
        bare = await asyncpg.connect(url)
        await bare.execute(_FLOOR)
        statement = await bare.prepare(_INSERT)

        async def ours(count: int) -> float:
            began = perf_counter()
            for number in range(count):
                await hf.append(session, material.turn(number))
            return count / (perf_counter() - began)

        async def floor(count: int) -> float:
            began = perf_counter()
            for number in range(count):
                await statement.fetch(*_row(1, number))
            return count / (perf_counter() - began)

        line = await _race("append a turn, one after another", ours, floor, turns, rounds, 0.7)
        await bare.close()
    return line


async def _append_from_tasks(url: str, turns: int, rounds: int) -> Line:
    async with holdfast.connect(_with(url, pool=POOL)) as hf:
        sessions = [(await hf.create(agent="agent-00")).id for _ in range(SESSIONS)]
        pool = await asyncpg.create_pool(url, min_size=POOL, max_size=POOL)

        async def ours(count: int) -> float:
            async def task(number: int) -> None:
                for turn in range(number, count, TASKS):
                    await hf.append(sessions[number], material.turn(turn))

            return await _together(task, count)

        async def floor(count: int) -> float:
            async def task(number: int) -> None:
                for turn in range(number, count, TASKS):
                    async with pool.acquire() as one:
                        await one.execute(_INSERT, *_row(number, turn))

            return await _together(task, count)

        line = await _race(f"the same from {TASKS} tasks", ours, floor, turns, rounds, 1.0)
        await pool.close()
    return line


async def _together(task: Callable[[int], Awaitable[None]], count: int, tasks: int = TASKS) -> float:
    began = perf_counter()
    await asyncio.gather(*[task(number) for number in range(tasks)])
    return count / (perf_counter() - began)


def _with(url: str, **options: object) -> str:
    return url + ("&" if "?" in url else "?") + "&".join(f"{name}={value}" for name, value in options.items())


# The queue ---------------------------------------------------------------------------------------

_WORK = """
CREATE SCHEMA {floor};
CREATE TABLE {floor}.heads (pk bigint PRIMARY KEY, state text, live text, epoch bigint, last bigint,
    updated_at timestamptz) WITH (fillfactor = 85);
CREATE TABLE {floor}.turns (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, head bigint, state text, launcher text,
    due_at timestamptz, body text) WITH (fillfactor = 85);
CREATE INDEX turns_ready ON {floor}.turns (n) WHERE state = 'queued';
CREATE TABLE {floor}.runs (n bigint PRIMARY KEY, state text, body text) WITH (fillfactor = 85);
CREATE TABLE {floor}.inbox (n bigint PRIMARY KEY, state text, turn bigint, body text) WITH (fillfactor = 85);
CREATE TABLE {floor}.entries (head bigint, number bigint, kind text, data text, PRIMARY KEY (head, number));
CREATE TABLE {floor}.feed (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, head bigint, last bigint);
"""
_QUEUE = """
WITH made AS (
    INSERT INTO {floor}.turns (head, state, body)
    SELECT n, 'queued', repeat('x', 500) FROM generate_series($1::bigint, $2) n RETURNING head
), heads AS (
    INSERT INTO {floor}.heads SELECT head, 'active', NULL, 0, 2, now() FROM made RETURNING pk
), runs AS (
    INSERT INTO {floor}.runs SELECT head, 'queued', repeat('x', 500) FROM made
)
INSERT INTO {floor}.inbox SELECT head, 'waiting', NULL, repeat('x', 200) FROM made
"""
_NEXT = "SELECT n, head FROM {floor}.turns WHERE state = 'queued' ORDER BY n LIMIT 1 FOR UPDATE SKIP LOCKED"
_CLAIM = (
    "UPDATE {floor}.turns SET state = 'running', launcher = 'one', due_at = now() + interval '30 s', "
    "body = repeat('y', 600) WHERE n = $1",
    "UPDATE {floor}.heads SET live = 'turn', epoch = epoch + 1 WHERE pk = $2",
    "UPDATE {floor}.runs SET state = 'running', body = repeat('y', 600) WHERE n = $2",
    "UPDATE {floor}.inbox SET state = 'given', turn = $1 WHERE n = $2",
)
_START = (
    "UPDATE {floor}.turns SET due_at = now() + interval '5 min', body = repeat('z', 650) WHERE n = $1",
    "UPDATE {floor}.heads SET last = last + 1, updated_at = now() WHERE pk = $2",
    "INSERT INTO {floor}.entries SELECT pk, last, 'turn_started', repeat('s', 100) FROM {floor}.heads WHERE pk = $2",
    "INSERT INTO {floor}.feed (head, last) SELECT pk, last FROM {floor}.heads WHERE pk = $2",
)
_FINISH = (
    "UPDATE {floor}.turns SET state = 'completed', due_at = NULL, body = repeat('e', 700) WHERE n = $1",
    "UPDATE {floor}.runs SET state = 'completed', body = repeat('e', 700) WHERE n = $2",
    "UPDATE {floor}.inbox SET state = 'consumed' WHERE n = $2",
    "UPDATE {floor}.heads SET last = last + 3, live = NULL, updated_at = now() WHERE pk = $2",
    "INSERT INTO {floor}.entries SELECT pk, last - 3 + place, kind, 'done' FROM {floor}.heads, "
    "unnest(ARRAY['message', 'run_settled', 'turn_ended']) WITH ORDINALITY k (kind, place) WHERE pk = $2",
    "INSERT INTO {floor}.feed (head, last) SELECT pk, last FROM {floor}.heads WHERE pk = $2",
)
_TIGHT_CLAIM = """
WITH next AS (
    SELECT n, head FROM {floor}.turns WHERE state = 'queued' ORDER BY n LIMIT 1 FOR UPDATE SKIP LOCKED
), turn AS (
    UPDATE {floor}.turns t SET state = 'running', launcher = 'one', due_at = now() + interval '30 s',
        body = repeat('y', 600) FROM next WHERE t.n = next.n RETURNING t.n, t.head
), head AS (
    UPDATE {floor}.heads h SET live = 'turn', epoch = epoch + 1 FROM turn WHERE h.pk = turn.head
), run AS (
    UPDATE {floor}.runs r SET state = 'running', body = repeat('y', 600) FROM turn WHERE r.n = turn.head
), item AS (
    UPDATE {floor}.inbox i SET state = 'given', turn = turn.n FROM turn WHERE i.n = turn.head
)
SELECT n, head FROM turn
"""
_TIGHT_START = """
WITH turn AS (
    UPDATE {floor}.turns SET due_at = now() + interval '5 min', body = repeat('z', 650) WHERE n = $1 RETURNING head
), moved AS (
    UPDATE {floor}.heads h SET last = last + 1, updated_at = now() FROM turn WHERE h.pk = turn.head RETURNING pk, last
), entry AS (
    INSERT INTO {floor}.entries SELECT pk, last, 'turn_started', repeat('s', 100) FROM moved
)
INSERT INTO {floor}.feed (head, last) SELECT pk, last FROM moved
"""
_TIGHT_FINISH = """
WITH turn AS (
    UPDATE {floor}.turns SET state = 'completed', due_at = NULL, body = repeat('e', 700) WHERE n = $1 RETURNING head
), run AS (
    UPDATE {floor}.runs r SET state = 'completed', body = repeat('e', 700) FROM turn WHERE r.n = turn.head
), item AS (
    UPDATE {floor}.inbox i SET state = 'consumed' FROM turn WHERE i.n = turn.head
), moved AS (
    UPDATE {floor}.heads h SET last = last + 3, live = NULL, updated_at = now() FROM turn WHERE h.pk = turn.head
    RETURNING pk, last
), entries AS (
    INSERT INTO {floor}.entries SELECT pk, last - 3 + place, kind, 'done' FROM moved,
        unnest(ARRAY['message', 'run_settled', 'turn_ended']) WITH ORDINALITY k (kind, place)
)
INSERT INTO {floor}.feed (head, last) SELECT pk, last FROM moved
"""


Worker = Callable[[Any, str], Awaitable[None]]  # on a connection, in a schema


async def _plain_worker(one: Any, floor: str) -> None:
    """Three transactions for each turn, a statement for each table."""
    while (found := await _claimed(one, floor)) is not None:
        for step in (_START, _FINISH):
            async with one.transaction():
                await _steps(one, floor, step, found)


async def _claimed(one: Any, floor: str) -> Any:
    async with one.transaction():
        found = await one.fetchrow(_NEXT.format(floor=floor))
        if found is not None:
            await _steps(one, floor, _CLAIM, found)
        return found


async def _steps(one: Any, floor: str, statements: Sequence[str], found: Any) -> None:
    turn, head = found
    for statement in statements:
        sql = statement.format(floor=floor)
        if "$1" in sql and "$2" in sql:
            await one.execute(sql, turn, head)
        else:
            await one.execute(sql.replace("$2", "$1"), turn if "$1" in sql else head)


async def _tight_worker(one: Any, floor: str) -> None:
    """Three statements for each turn."""
    claim, start, finish = (sql.format(floor=floor) for sql in (_TIGHT_CLAIM, _TIGHT_START, _TIGHT_FINISH))
    while (found := await one.fetchrow(claim)) is not None:
        await one.execute(start, found[0])
        await one.execute(finish, found[0])


_AGENT = "worker"


async def _queue(url: str, worker: Worker, title: str, turns: int, rounds: int, least: float | None) -> Line:
    schema = worker.__name__.strip("_")
    store = PostgresStore(_with(url, pool=POOL))
    pool = await asyncpg.create_pool(url, min_size=POOL, max_size=POOL)
    await pool.execute(_WORK.format(floor=schema))
    made = filled = 0

    async def ours(count: int) -> float:
        nonlocal made
        await _ask_for(store, f"{schema}-{made}", count)
        made += count
        return await _together(lambda _: _carry_all(store), count, WORKERS)

    async def floor(count: int) -> float:
        nonlocal filled
        await pool.execute(_QUEUE.format(floor=schema), filled + 1, filled + count)
        filled += count

        async def one_worker(_: int) -> None:
            async with pool.acquire() as one:
                await worker(one, schema)

        return await _together(one_worker, count, WORKERS)

    line = await _race(title, ours, floor, turns, rounds, least)
    await pool.close()
    await store.close()
    return line


def _stamp() -> Stamp:
    return Stamp(at=config.SystemClock().now(), by="bench", interface="bench")


async def _ask_for(store: PostgresStore, name: object, count: int) -> None:
    from holdfast.testing.builders import OWNER
    from holdfast.testing.work import a_run, asked_at_birth

    at = config.SystemClock().now()
    for number in range(count):
        run = a_run(f"run-{name}-{number}", created_at=at, agent_name=_AGENT)
        decide = asked_at_birth(f"session-{name}-{number}", run, "do it", at, agent_name=_AGENT)
        await store.create(OWNER, decide)


async def _carry_all(store: PostgresStore) -> None:
    """What a launcher does with a turn, as long as there is one."""
    from holdfast.testing.builders import OWNER, said

    wish = Claim(launcher_id="bench", lease=LEASE, lost_after=LOST_AFTER)
    end = TurnEnd(outcome=TurnState.COMPLETED, messages=tuple(said("done", role="assistant")))
    while (claimed := await store.claim((OWNER,), (_AGENT,), wish, _stamp())) is not None:
        turn = claimed.turn
        where = (OWNER, turn.session_id)
        await store.apply(
            *where, lambda view, turn=turn: work.started(view, turn.turn_id, turn.epoch, _stamp()), turn=turn.turn_id
        )
        await store.apply(
            *where,
            lambda view, turn=turn: work.finished(view, turn.turn_id, turn.epoch, end, _stamp()),
            turn=turn.turn_id,
        )


# From one server to another ----------------------------------------------------------------------

_CHILDREN = """
import asyncio, sys
from holdfast import config
from holdfast.launcher.embedded import Embedded

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
    entries = await deps.store.log("local", session_id, limit=1000, kinds=("callback", "turn_started"))
    waits = [
        (later.at - first.at).total_seconds()
        for first, later in pairwise(entries)
        if (first.kind, later.kind) == ("callback", "turn_started")
    ]
    return median(waits)


if __name__ == "__main__":
    sys.exit(main())

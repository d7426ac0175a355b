"""`python -m bench.redis`: moorage on Redis or Valkey, beside what a competent hand writes with redis-py, and peers.

One server is started for all, with an append-only file (fsync every second), reached over the loopback address; or
`--url` names one, which is emptied. Figures are ratios in the same rounds, moorage's rate by the floor's: higher is
better. The floors hold their script's hash in their hands, check no rule, and send the same commands in one script:

- a turn is two entries of a stream, the head's fields, the feed, two sorted sets and a PUBLISH;
- a change is one read of the head, then a script that writes the head, an entry, the feed and a sorted set;
- the last 20 are one XREVRANGE, a page is one ZREVRANGE and a pipeline of 50 HMGET;
- of the context, a key is put by one read of the head and the key, then a script that writes the head, the key, its
  name and its end if the head is as it was read; the whole is read by HGETALL.

Growth compares moorage with itself: small and large. With `--peers`, what others keep of a turn, in an environment of
their own (`bench.peers.redis`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count as count_up
from statistics import median
from time import perf_counter
from typing import Any
from uuid import uuid4

import redis.asyncio as redis_py

import moorage
from bench import material, peerenv
from bench.postgres import Line, race, together
from moorage.core.query import SessionQuery
from moorage.core.session import Birth
from moorage.stores.redis.store import RedisStore
from moorage.stores.redis.values import HeadGuard
from moorage.stores.redis.writes import CommitPlan
from moorage.stores.seam import Loaded, Unit
from moorage.testing.builders import OWNER, a_session, updated
from moorage.testing.redis import RedisServer

TASKS = 64
PEERS = ("OpenAI Agents", "ADK", "LangGraph")
EVERY_SECOND = {"save": "", "appendonly": "yes", "appendfsync": "everysec"}
ONE, MANY = "append a turn, one after another", f"the same from {TASKS} tasks"
_PAGE = SessionQuery(limit=material.PAGE)
Rate = Callable[[int], Awaitable[float]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether the promises are kept."""
    parser = argparse.ArgumentParser(prog="python -m bench.redis", description=__doc__)
    parser.add_argument("--turns", type=int, default=1000, metavar="N", help="in one round (1,000)")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="of each, in turn (7)")
    parser.add_argument("--sessions", type=int, default=1_000_000, metavar="N", help="of the large store (1,000,000)")
    parser.add_argument("--messages", type=int, default=100_000, metavar="N", help="of the long session (100,000)")
    parser.add_argument("--url", help="a server that may be emptied, instead of one that is started")
    parser.add_argument("--peers", action="store_true", help="beside what others write, in an environment of their own")
    parser.add_argument("--memory", action="store_true", help="only how much memory sessions and messages take")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args(arguments)
    with started(options.url) as url:
        kept = asyncio.run(_weigh(url) if options.memory else _measure(url, options))
    return int(options.check and not all(kept))


@contextmanager
def started(given: str | None) -> Iterator[str]:
    """Start a server, or take the one that is named."""
    if given is not None:
        yield given
        return
    with RedisServer(settings=EVERY_SECOND) as server:
        print(f"{server.program.name}, appendonly yes, appendfsync everysec", file=sys.stderr)
        yield server.url(tcp=True)


async def _measure(url: str, options: argparse.Namespace) -> list[bool]:
    raw = redis_py.from_url(url)
    await raw.flushall()
    bench = Bench(url, raw, options)
    kept = []
    async for line in bench.lines():
        print(line, flush=True)
        kept.append(line.kept)
        if options.peers and line.title in bench.beside:
            for peer in PEERS:
                print(_peer(peer, url, options.turns, bench.beside[line.title], line), flush=True)
    await raw.aclose()
    return kept


async def _used(raw: redis_py.Redis) -> int:
    """Return how many bytes are used, without buffers that are empty a moment later."""
    memory = await raw.info("memory")
    return int(memory["used_memory"]) - int(memory["mem_aof_buffer"]) - int(memory["mem_clients_normal"])


async def _weigh(url: str) -> list[bool]:
    """Print how many bytes of memory sessions, messages of 200 bytes and context keys take."""
    raw = redis_py.from_url(url)
    await raw.flushall()
    store = RedisStore(url)
    await fill(store, raw, 100)  # lists exist from here on
    said = [{"role": role, "content": "x" * 200} for role in ("user", "assistant")]

    async def weighed(title: str, count: int, work: Awaitable[Any]) -> None:
        before = await _used(raw)
        await work
        after = await _used(raw)
        print(f"{title:<44} {(after - before) / count:8.0f} bytes", flush=True)

    async with moorage.connect(url) as moor:
        ids = [(await moor.create(agent="agent-00")).id for _ in range(501)]

        async def talk() -> None:
            for id_ in ids[1:] * 10:
                await moor.append(id_, said)

        async def talk_long() -> None:
            for _ in range(100):
                await moor.append(ids[0], said * 100)

        async def remember() -> None:
            for id_ in ids:
                await moor.context.put(id_, "city", "Rome")

        await weighed("a session with metadata and one entry", 50_000, fill(store, raw, 50_000, first=100))
        await weighed("a message of 200 bytes, 20 in a session", 10_000, talk())
        await weighed("a message of 200 bytes, 20,000 in a session", 20_000, talk_long())
        await weighed("the first context key of a session", 501, remember())
    await store.close()
    await raw.aclose()
    return []


# The floor ---------------------------------------------------------------------------------------

_APPEND = """
local last = redis.call('HMGET', KEYS[1], 'state', 'last', 'version', 'token', 'live')[2]
local first = tonumber(last or '0') + 1
local cursor = redis.call('HINCRBY', KEYS[4], 'feed', 2)
redis.call('HINCRBY', KEYS[1], 'revision', 1)
redis.call('HSET', KEYS[1], 'last', first + 1, 'activity', ARGV[1], 'updated', ARGV[1])
redis.call('ZADD', KEYS[5], ARGV[1], ARGV[2])
redis.call('XADD', KEYS[2], first .. '-0', 'b', ARGV[3], 'c', cursor - 1)
redis.call('XADD', KEYS[2], (first + 1) .. '-0', 'b', ARGV[4], 'c', cursor)
redis.call('XADD', KEYS[3], cursor .. '-0', 's', ARGV[2], 'l', first + 1, 'n', 2)
redis.call('ZADD', KEYS[6], cursor, ARGV[2])
redis.call('PUBLISH', 'floor', '')
return first
"""
_CHANGE = """
local cursor = redis.call('HINCRBY', KEYS[4], 'feed', 1)
redis.call('HSET', KEYS[1], 'revision', ARGV[1], 'head', ARGV[3], 'last', ARGV[4], 'state', 'active',
  'version', ARGV[1], 'activity', ARGV[1], 'updated', ARGV[1], 'until', '', 'token', '', 'live', '')
redis.call('ZADD', KEYS[5], ARGV[1], ARGV[2])
redis.call('XADD', KEYS[2], ARGV[4] .. '-0', 'b', ARGV[5], 'c', cursor)
redis.call('XADD', KEYS[3], cursor .. '-0', 's', ARGV[2], 'l', ARGV[4], 'n', 1)
redis.call('ZADD', KEYS[6], cursor, ARGV[2])
redis.call('PUBLISH', 'floor', '')
return 1
"""


_REMEMBER = """
if redis.call('HGET', KEYS[1], 'revision') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'revision', ARGV[1] + 1, 'head', ARGV[2], 'updated', ARGV[3])
redis.call('HSET', KEYS[2], ARGV[4], ARGV[5])
redis.call('ZADD', KEYS[3], 0, ARGV[4])
redis.call('ZADD', KEYS[4], ARGV[3], ARGV[4])
redis.call('ZADD', KEYS[5], 'LT', ARGV[3], '1')
redis.call('PUBLISH', 'floor', '')
return 1
"""


class Floor:
    """By hand: keys, JSON and a script."""

    def __init__(self, raw: redis_py.Redis) -> None:
        self.raw = raw
        self._append = self._change = self._remember = ""

    async def prepare(self) -> None:
        """Load the scripts."""
        await self.raw.hset("f:h:1", "revision", "0")
        self._append, self._change, self._remember = [
            await self.raw.script_load(text) for text in (_APPEND, _CHANGE, _REMEMBER)
        ]

    def keys(self, session: str) -> list[str]:
        """Return the keys that a change of a session writes."""
        return [f"f:h:{session}", f"f:l:{session}", "f:feed", "f:meta", "f:idle", "f:updated"]

    async def append(self, session: str, messages: list[dict[str, str]]) -> int:
        bodies = [json.dumps({**message, "at": "2026-11-18T12:00:00Z", "by": "me"}) for message in messages]
        return await self.raw.evalsha(self._append, 6, *self.keys(session), "1700000000000000", session, *bodies)

    async def change(self, session: str, number: int) -> None:
        head = await self.raw.hgetall(f"f:h:{session}")
        kept = json.loads(head[b"head"]) if b"head" in head else {"session_id": session, "metadata": {}}
        body, text = (
            json.dumps({"kind": "error", "data": {"error": str(number)}}),
            json.dumps({**kept, "error": number}),
        )
        last = int(head.get(b"last", 0)) + 1
        await self.raw.evalsha(self._change, 6, *self.keys(session), str(number), session, text, str(last), body)

    async def remember(self, key: str, value: Any) -> None:
        pipe = self.raw.pipeline(transaction=False)
        (revision, head), found = await pipe.hmget("f:h:1", "revision", "head").hget("f:x:1", key).execute()
        kept = json.loads(head) if head else {"session_id": "1", "metadata": {}, "context_version": 0}
        version = kept["context_version"] + 1
        assert found is None or json.loads(found)["version"] < version
        item = json.dumps({"value": value, "version": version, "updated_at": "2026-11-18T12:00:00Z"})
        text = json.dumps({**kept, "context_version": version})
        keys = ("f:h:1", "f:x:1", "f:n:1", "f:y:1", "f:ends")
        at = "1700000000000000"
        assert await self.raw.evalsha(self._remember, 5, *keys, revision or "0", text, at, key, item)

    async def recall(self) -> dict[str, Any]:
        return {name: json.loads(item)["value"] for name, item in (await self.raw.hgetall("f:x:1")).items()}

    async def last(self, session: str, count: int) -> list[Any]:
        found = await self.raw.xrevrange(f"f:l:{session}", count=count)
        return [json.loads(fields[b"b"]) for _, fields in found]

    async def page(self, count: int) -> list[Any]:
        ids = await self.raw.zrevrange("f:sessions", 0, count - 1)
        pipe = self.raw.pipeline(transaction=False)
        for id_ in ids:
            pipe.hmget(b"f:s:" + id_, "head", "state", "last", "updated")
        return [(json.loads(head), *rest) for head, *rest in await pipe.execute()]


# Works -------------------------------------------------------------------------------------------


class Bench:
    """Every line of the table, one after the other."""

    def __init__(self, url: str, raw: redis_py.Redis, options: argparse.Namespace) -> None:
        self.url, self.floor, self.options = url, Floor(raw), options
        self.beside = {ONE: 1, MANY: TASKS}  # lines that peers are beside, and from how many tasks

    async def lines(self):
        await self.floor.prepare()
        async with moorage.connect(self.url) as moor:
            yield await self._append(moor)
            yield await self._append_from_tasks(moor)
            yield await self._apply()
            async for line in self._log(moor):
                yield line
            async for line in self._context(moor):
                yield line
            async for line in self._list(moor):
                yield line

    async def _raced(self, title: str, ours: Callable[[int], Awaitable[Any]], floor: Callable[[int], Awaitable[Any]],
                    least: float | None, count: int | None = None) -> Line:  # fmt: skip
        return await race(
            title,
            _rate(ours),
            _rate(floor),
            count or self.options.turns,
            self.options.rounds,
            1 / least if least else None,
        )

    async def _append(self, moor: Any) -> Line:
        session = (await moor.create(agent="agent-00")).id
        return await self._raced(
            ONE,
            lambda n: moor.append(session, material.turn(n)),
            lambda n: self.floor.append("one", material.turn(n)),
            1.5,
        )

    async def _append_from_tasks(self, moor: Any) -> Line:
        sessions = [(await moor.create(agent="agent-00")).id for _ in range(TASKS)]

        async def ours(count: int) -> float:
            async def task(number: int) -> None:
                for turn in range(number, count, TASKS):
                    await moor.append(sessions[number], material.turn(turn))

            return await together(task, count)

        async def floor(count: int) -> float:
            async def task(number: int) -> None:
                for turn in range(number, count, TASKS):
                    await self.floor.append(f"many-{number}", material.turn(turn))

            return await together(task, count)

        return await race(MANY, ours, floor, self.options.turns * 4, self.options.rounds, 1 / 1.3)

    async def _apply(self) -> Line:
        store = RedisStore(self.url)
        await store.create(OWNER, a_session("changed"))
        line = await self._raced(
            "apply: view, decide, commit",
            lambda n: store.apply(OWNER, "changed", updated(error=str(n))),
            lambda n: self.floor.change("changed", n),
            2.0,
        )
        await store.close()
        return line

    async def _log(self, moor: Any):
        sizes = (10, 10_000, self.options.messages)
        ours, by_hand = {}, {}
        for size in sizes:
            ours[size], by_hand[size] = (await moor.create(agent="agent-00")).id, f"log-{size}"
            for start in range(0, size, 500):
                await moor.append(ours[size], material.messages(min(500, size - start)))
            for _ in range(size // 2):
                await self.floor.append(by_hand[size], material.turn(0))
        _, middle, large = sizes
        yield await self._raced(
            "last 20 of 10,000",
            lambda n: moor.messages(ours[middle], last=20),
            lambda n: self.floor.last(by_hand[middle], 20),
            1.5,
        )
        twenty = (await moor.create(agent="agent-00")).id
        await moor.append(twenty, material.messages(20))
        yield await self._raced(
            f"last 20 of {large:,}, by that of 20",
            lambda n: moor.messages(ours[large], last=20),
            lambda n: moor.messages(twenty, last=20),
            1.5,
        )
        fresh = count_up()
        short = [(await moor.create(agent="agent-00")).id for _ in range(self.options.rounds * 4)]
        yield await self._raced(
            f"append at {large:,} messages, by that at 10",
            lambda n: moor.append(ours[large], material.turn(n)),
            lambda n: moor.append(short[next(fresh) // 100 % len(short)], material.turn(n)),
            1.5,
        )

    async def _context(self, moor: Any):
        session = (await moor.create(agent="agent-00")).id
        value = {"preference": "italian", "city": "Rome", "days": 3}
        yield await self._raced(
            "context: put a key",
            lambda n: moor.context.put(session, "k", {**value, "n": n}, ttl=3600),
            lambda n: self.floor.remember("k", {**value, "n": n}),
            1.5,
        )
        yield await self._raced("context: get", lambda n: moor.context.get(session), lambda n: self.floor.recall(), 1.5)

    async def _list(self, moor: Any):
        small, large = await self._other(100), await self._other(100_000)
        await self._fill_floor(100_000)
        count = max(50, self.options.turns // 10)
        yield await self._raced(
            "page of 50 among 100,000",
            lambda n: large.find(OWNER, _PAGE),
            lambda n: self.floor.page(50),
            1.5,
            count,
        )
        total = self.options.sessions
        before = await _used(self.floor.raw)
        most = await self._other(total)
        took = await _used(self.floor.raw) - before
        yield await self._raced(
            f"page of 50 among {total:,}, by that among 100",
            lambda n: most.find(OWNER, _PAGE),
            lambda n: small.find(OWNER, _PAGE),
            1.5,
            count,
        )
        print(f"{'memory of a session with one entry':<44} {took / total:8.0f} bytes")
        for store in (small, large, most):
            await store.close()

    async def _other(self, total: int) -> RedisStore:
        """Return a store of so many sessions on the same server."""
        store = RedisStore(f"{self.url}?prefix=b{total}")
        await fill(store, self.floor.raw, total)
        return store

    async def _fill_floor(self, total: int) -> None:
        head = json.dumps({"session_id": str(uuid4()), "agent_name": "agent-00", "metadata": material.METADATA,
                           "created_at": "2026-11-18T12:00:00Z", "purpose": material.PURPOSE})  # fmt: skip
        for start in range(0, total, 1000):
            pipe = self.floor.raw.pipeline(transaction=False)
            for number in range(start, min(start + 1000, total)):
                fields = {"head": head, "state": "created", "last": 1, "updated": 1700000000000000}
                pipe.hset(f"f:s:{number}", mapping=fields)
                pipe.zadd("f:sessions", {str(number): number})
            await pipe.execute()


def _rate(one: Callable[[int], Awaitable[Any]]) -> Rate:
    async def rate(count: int) -> float:
        began = perf_counter()
        for number in range(count):
            await one(number)
        return count / (perf_counter() - began)

    return rate


async def fill(store: RedisStore, raw: redis_py.Redis, total: int, part: int = 200, *, first: int = 0) -> None:
    """Create sessions as the store does, many script calls in one exchange."""
    await store.owners()
    serial = await store.db.numbers(total, ("SADD", store.db.shared("owners"), OWNER))
    for start in range(0, total, part):
        pipe = raw.pipeline(transaction=False)
        for number in range(start, min(start + part, total)):
            agent, id_ = material.agent(number, total), material.seeded_id(first + number)
            unit = Unit(store, OWNER)
            change = a_session(id_, agent_name=agent, purpose=material.PURPOSE, metadata=material.METADATA)(Birth())
            loaded = unit.add(Loaded(change.session, HeadGuard(), is_new=True))
            loaded.guard.serial = serial + number
            await unit.save(loaded, change)
            work = CommitPlan(store.db, unit, {})
            work.put(loaded)
            script, keys, arguments = store.db.call_of(work.plan)
            pipe.eval(script.text, len(keys), *keys, *arguments) if number == start else pipe.evalsha(
                script.sha, len(keys), *keys, *arguments
            )
        await pipe.execute()


# Peers -------------------------------------------------------------------------------------------


def _peer(peer: str, url: str, turns: int, tasks: int, beside: Line) -> str:
    """Run the same work with a peer, in a process and an environment of its own."""
    problems = peerenv.install(peerenv.ON_REDIS)
    command = [str(peerenv.python(peerenv.ON_REDIS)), "-m", "bench.peers.redis", peer, url, str(turns), str(tasks)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **peerenv.QUIET})
    if done.returncode:
        return f"  {peer:<42} failed: {'; '.join(problems) or (done.stderr.strip().splitlines() or ['?'])[-1]}"
    rate = float(done.stdout)
    return f"  {peer:<42} {rate:8.0f} /s  {'':>14}   {rate / median(beside.floor):5.2f} ×"


if __name__ == "__main__":
    sys.exit(main())

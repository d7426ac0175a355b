"""The Lua scripts, and the operations that the rest of the store runs through them: consistent reads, and commits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.msgpack import Decoder, Encoder
from redis.exceptions import NoScriptError, ResponseError

from moorage.core.errors import OutcomeUnknown, StoreUnavailable
from moorage.stores.redis.connection import RedisOptions, Servers, read_url
from moorage.stores.redis.keys import Keys
from moorage.stores.redis.server_facts import ServerFacts, read_facts

if TYPE_CHECKING:
    from moorage.stores.sealing import Sealer

_encode = Encoder().encode
_decode = Decoder(list[Any]).decode
VALUES = 5  # position of the argument of RECORDS that says whether to return values
BODIES_FROM = 4  # position of the first body among the arguments of `commit`
SETTINGS = ("appendfsync", "save")
KNOWN_OWNERS = 1000  # owners whose keys are cached

Op = tuple[Any, ...]  # a command, its key, its arguments


class Script(NamedTuple):
    """A script, and the hash that identifies it on a server."""

    text: str
    sha: str


@cache
def script(name: str) -> Script:
    """Return a script of the folder `scripts`."""
    folder = files("moorage.stores.redis") / "scripts"
    shared = "" if name == "read" else (folder / "entries.lua").read_text(encoding="utf-8")
    text = shared + (folder / f"{name}.lua").read_text(encoding="utf-8")
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


class CommitGuard(NamedTuple):
    """A condition of the commit, and a function that returns the error for a different value."""

    command: str
    key: str
    argument: str | None
    wanted: str | int | None
    refusal: Callable[[str | None], Exception]


class Plan:
    """All checks and writes of one commit."""

    def __init__(self) -> None:
        self.guards: list[CommitGuard] = []
        self.writes: list[Op] = []
        self.entries: list[tuple[Any, ...]] = []  # five keys, the session, the first number, labels and bodies
        self.after: list[Op] = []  # written after the entries

    @property
    def is_empty(self) -> bool:
        """Return whether the plan writes nothing."""
        return not self.writes and not self.entries


class RedisDb:
    """The servers of a store, in the interface for its jobs."""

    def __init__(
        self, url: str, sealer: Sealer | None = None, patience: float | None = None, *, is_known: bool = False
    ) -> None:
        options = read_url(url)
        if patience is not None:
            from msgspec.structs import replace

            options = replace(options, patience=patience)
        self.options: RedisOptions = options
        self.servers = Servers(options, is_known=is_known)
        self.opener = sealer  # opens sealed bodies, whether or not new bodies are sealed
        self.sealer = sealer if sealer is not None and sealer.seals else None
        self.name = os.urandom(6).hex()  # lets a process recognize its own notifications
        self.committed: Callable[[float], None] = lambda _: None  # called for every commit with its duration in seconds
        self._is_prepared = False
        self.keys: Callable[[str], Keys] = lru_cache(KNOWN_OWNERS)(partial(Keys, self.options.prefix))  # of an owner

    def shared(self, name: str) -> str:
        """Return the name of a key that belongs to no owner."""
        return f"{self.options.prefix}:{{-}}:{name}"

    # Reading ------------------------------------------------------------------------------------

    async def one(self, command: str, key: str, *arguments: Any) -> Any:
        """Return the answer of a reading command."""
        await self._prepare()
        return self.servers.checked(await self.servers.ask(key, (command, key, *arguments)))[0]

    async def facts(self) -> list[ServerFacts]:
        """Return the facts that every server reports about itself."""
        found = []
        for info, settings in await self.servers.ask_all(("INFO",), ("CONFIG", "GET", *SETTINGS)):
            self.servers.checked([info])
            told = [] if isinstance(settings, ResponseError) else [part.decode() for part in settings]
            found.append(read_facts(info, dict(zip(told[::2], told[1::2], strict=True))))
        return found

    async def used_memory(self) -> int:
        """Return how many bytes all servers use, for all their clients."""
        found = 0
        for answers in await self.servers.ask_all(("INFO", "memory")):
            [info] = self.servers.checked(answers)
            found += int(info.partition(b"used_memory:")[2].split()[0])
        return found

    async def read(self, *ops: Op) -> list[Any]:
        """Return the answers of several commands that read keys of one slot, all at one instant."""
        if not ops:
            return []
        keys = _Keys()
        plan = [
            (op[0], *map(keys.place, op[1:4]), *op[4:]) if op[0] == "RECORDS" else (op[0], keys.place(op[1]), *op[2:])
            for op in ops
        ]
        form = "bytes" if any(op[0] == "RECORDS" and op[VALUES] for op in ops) else "text"
        answers, _ = await self._run(script("read"), keys.names, (_encode(plan), form), writes=False)
        if form == "text":
            try:
                return [_as_answer(each) for each in _decode(answers)]
            except ValueError:  # damage: the bytes are no text
                answers, _ = await self._run(script("read"), keys.names, (_encode(plan), "bytes"), writes=False)
        return list(answers)

    async def numbers(self, count: int, *more: Op) -> int:
        """Reserve numbers that were never assigned; return the first. `more` are commands on shared keys."""
        await self._prepare()
        key = self.shared("numbers")
        first, *_ = self.servers.checked(await self.servers.ask(key, ("INCRBY", key, count), *more))
        return int(first) - count + 1

    # Writing ------------------------------------------------------------------------------------

    async def commit(self, plan: Plan) -> None:
        """Write all of a plan or nothing. Raises the error of the first guard that fails."""
        began = time.monotonic()
        refused, held = await self._run(*self.call_of(plan), writes=True)
        if refused:
            found = refused[1] if len(refused) > 1 else None
            raise plan.guards[refused[0] - 1].refusal(None if found is None else found.decode())
        self._committed(began, held)

    async def write(self, *writes: Op, guard: CommitGuard | None = None) -> None:
        """Write if a condition holds; raise its error if it does not. Do nothing if there is nothing to write."""
        if writes:
            plan = Plan()
            plan.writes += writes
            plan.guards += [] if guard is None else [guard]
            await self.commit(plan)

    def call_of(self, plan: Plan) -> tuple[Script, list[str], tuple[Any, ...]]:
        """Return the script call that writes a plan: the script, its keys and its arguments."""
        keys, bodies = _Keys(), list[bytes]()
        guards = [
            (guard.command, keys.place(guard.key), guard.argument is not None and guard.argument,
             guard.wanted is not None and guard.wanted)
            for guard in plan.guards
        ]  # fmt: skip
        writes = [_placed(op, keys, bodies) for op in plan.writes]
        entries = [(*map(keys.place, put[:5]), *put[5:]) for put in plan.entries]
        after = [_placed(op, keys, bodies) for op in plan.after]
        return script("commit"), keys.names, (_encode((guards, writes, entries, after)), *self._tells(), *bodies)

    async def append(self, keys: list[str], arguments: list[Any]) -> tuple[int, str] | None:
        """Run the script of the hot path: return the first number and the task, or None if the rules must decide."""
        began = time.monotonic()
        done, held = await self._run(script("append"), keys, (*self._tells(), *arguments), writes=True)
        if done is None:
            return None
        self._committed(began, held)
        return int(done[0]), done[1].decode()

    def _committed(self, began: float, held: Any) -> None:
        self.committed(time.monotonic() - began)
        if held is not None:
            self._check_held(held)

    def _tells(self) -> tuple[str, str]:
        return self.options.channel, self.name

    async def _run(
        self, which: Script, keys: list[str], arguments: tuple[Any, ...], *, writes: bool
    ) -> tuple[Any, Any]:
        """Return the answer of a script, and the answer of waiting until its change is durable."""
        await self._prepare()
        rest = (len(keys), *keys, *arguments)
        answer, held = await self._sent(("EVALSHA", which.sha, *rest), writes=writes, key=keys[0])
        if isinstance(answer, NoScriptError):  # the server was restarted or replaced
            answer, held = await self._sent(("EVAL", which.text, *rest), writes=writes, key=keys[0])
        return self.servers.checked([answer])[0], held

    async def _sent(self, command: Op, *, writes: bool, key: str) -> tuple[Any, Any]:
        """Return the answer and, if a change has to be durable, the answer of the wait for that."""
        wait = self._wait_command() if writes else None
        commands = (command,) if wait is None else (command, wait)
        answers = await self.servers.ask(key, *commands, writes=writes)
        return answers[0], answers[1] if wait is not None else None

    # Durability ---------------------------------------------------------------------------------

    def _wait_command(self) -> Op | None:
        milliseconds = int(self.options.timeout * 500)
        if self.options.durability == "fsync":
            return ("WAITAOF", 1, 0, milliseconds)
        return ("WAIT", 1, milliseconds) if self.options.durability == "replica" else None

    def _check_held(self, held: Any) -> None:
        """Raise OutcomeUnknown unless the requested durability was reached: only then is a change acknowledged."""
        if isinstance(held, ResponseError):
            raise OutcomeUnknown(self.options.shown, f"{self.options.durability}: {held}") from held
        reached = held[0] if isinstance(held, list) else held
        if reached < 1:
            what = "its append-only file" if self.options.durability == "fsync" else "a replica"
            raise OutcomeUnknown(self.options.shown, f"the change has not reached {what} in time")

    async def settle(self, key: str) -> None:
        """Wait until all commits in the slot of a key are as durable as requested.

        A request that is repeated because its outcome was unknown finds its change and writes nothing. Its answer
        must not promise more than the first one could. Replicas and files apply changes in order, so a durable later
        change implies all earlier ones.
        """
        wait = self._wait_command()
        if wait is not None:
            _, held = await self.servers.ask(key, ("SET", key, "1"), wait, writes=True)
            self._check_held(held)

    # Opening ------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        """Check once that the servers support the requested features."""
        if self._is_prepared:
            return
        for facts in await self.facts():
            if (refusal := facts.refusal(self.options.durability)) is not None:
                raise StoreUnavailable(f"{self.options.shown} {refusal}", store=self.options.shown)
        self._is_prepared = True

    async def close(self) -> None:
        """Close every connection."""
        await self.servers.close()


def pairs(flat: Sequence[bytes]) -> list[tuple[str, bytes]]:
    """Return the names and the values in an answer that has them in turn."""
    return [(name.decode(), value) for name, value in zip(flat[::2], flat[1::2], strict=True)]


def scored(flat: Sequence[bytes]) -> list[tuple[int, str]]:
    """Return the scores and the members in an answer to a command WITHSCORES."""
    return [(int(float(score)), member) for member, score in pairs(flat)]


def _as_answer(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return [each.encode() if isinstance(each, str) else _as_answer(each) for each in value]
    return None if value is False else value


def _placed(op: Op, keys: _Keys, bodies: list[bytes]) -> Op:
    """Return a write with key and body replaced by their positions."""
    if op[0] == "PUT":
        bodies.append(op[3])
        return ("PUT", keys.place(op[1]), op[2], BODIES_FROM + len(bodies) - 1)
    if op[0] in ("COPY", "RENAME"):
        return (op[0], keys.place(op[1]), keys.place(op[2]))
    return (op[0], keys.place(op[1]), *op[2:])


class _Keys:
    """The keys of one script call, each with its position."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, key: str) -> int:
        """Return the position of a key, counted from 1."""
        known = self._places.get(key)
        if known is None:
            self.names.append(key)
            known = self._places[key] = len(self.names)
        return known

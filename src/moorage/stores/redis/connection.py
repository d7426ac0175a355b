"""The URL of a store, connections to its servers, commands over them, and translation of their errors into ours.

A command goes to the server that holds the slot of its key. A command that only reads is repeated over a new connection
when the old one breaks. A command that writes is sent once: if the connection breaks before the answer, its outcome is
unknown, and the caller gets OutcomeUnknown.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from msgspec import Struct
from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from moorage.core.errors import (
    InvalidField,
    MoorageError,
    OutcomeUnknown,
    StoreBusy,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from moorage.stores.server import StoreServer, seconds, whole_number

LANES = 4  # connections that commands share; more of them only cost more packets
MOST_TOGETHER = 64  # calls sent at once
TRUSTED_FOR = 1.0  # seconds that an idle connection is assumed to be intact
_REFUSALS = (ResponseError, AuthenticationError)  # of a user, a password, a database: a retry does not help
_SAID = (*_REFUSALS, BusyLoadingError)  # errors sent by the server; the connection is intact
_PASSING = (  # transient; if a slot has moved, look up its server again
    BusyLoadingError, TryAgainError, ClusterDownError, MasterDownError, ReadOnlyError, MovedError, AskError,
)  # fmt: skip
_PASSING_TEXTS = ("NOREPLICAS", "BUSY ", "Script killed by user")  # likewise; a killed script has written nothing

_MARK_IT = "write redis+cluster:// or add `?cluster=true` to the URL"
FOREIGN = "something else writes under its keys, or part of it was deleted"

RedisCommand = Sequence[Any]
DURABILITIES = ("server", "fsync", "replica")


class RedisOptions(Struct, frozen=True, kw_only=True):
    """The address and options of a Redis or Valkey store, which its URL has.

        redis://[user:password@]host[:port][/database]    rediss:// with TLS, unix:///path/of/the.socket
        redis+cluster://host:port                         or ?cluster=true

    All options of redis-py's own URLs are passed on (`ssl_ca_certs`, `db` …). Further options of ours:

        prefix=moorage          prefix of every key
        pool=50                 maximum number of connections to each server
        patience=30             seconds that a caller waits for an unreachable server
        timeout=30              seconds that one command may take
        durability=server       when a change is acknowledged: once the server has it (`server`), once it is in the
                                server's append-only file (`fsync`), once a replica has it too (`replica`)
    """

    url: str  # for the driver
    shown: str  # without a password
    cluster: bool = False
    prefix: str = "moorage"
    pool: int = 50
    patience: float = 30.0
    timeout: float = 30.0
    durability: str = "server"

    @property
    def channel(self) -> str:
        """Return the channel on which processes of this store notify each other."""
        return f"{self.prefix}:commits"


def read_url(url: str) -> RedisOptions:
    """Parse a URL. Raises InvalidField."""
    parts = urlsplit(url)
    scheme, _, kind = parts.scheme.partition("+")
    ours: dict[str, Any] = {"cluster": kind == "cluster"}
    theirs: list[tuple[str, str]] = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in _READERS:
            ours[name] = _READERS[name](name, value)
        else:
            theirs.append((name, value))
    if ours["cluster"] and parts.path not in ("", "/", "/0"):
        raise InvalidField("url", "names a database; a cluster has only number 0")
    rest = urlencode(theirs, quote_via=quote)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return RedisOptions(url=urlunsplit((scheme, parts.netloc, parts.path, rest, "")), shown=shown, **ours)


def _matching(name: str, value: str, *, pattern: str, advice: str) -> str:
    if not re.fullmatch(pattern, value):
        raise InvalidField("url", f"has {name}={value!r}; {advice}")
    return value


def _flag(name: str, value: str) -> bool:
    return _matching(name, value, pattern="true|false", advice="write true or false") == "true"


_PREFIX = {"pattern": r"[A-Za-z0-9_.:-]{1,64}", "advice": "use up to 64 letters, digits and _ . : -"}
_DURABILITY = {"pattern": "|".join(DURABILITIES), "advice": f"use one of {', '.join(DURABILITIES)}"}
_READERS: dict[str, Any] = {
    "cluster": _flag, "prefix": partial(_matching, **_PREFIX), "pool": partial(whole_number, most=10_000),
    "patience": seconds, "timeout": seconds, "durability": partial(_matching, **_DURABILITY),
}  # fmt: skip


class Lost(Exception):
    """The connection is lost; `is_certain` if the commands under way cannot have been executed."""

    def __init__(self, cause: BaseException, *, is_certain: bool) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.cause, self.is_certain = cause, is_certain


class PendingCommands:
    """Commands that wait for a connection, and their outcome."""

    def __init__(self, commands: Sequence[RedisCommand]) -> None:
        self.commands = commands
        self.answers: asyncio.Future[list[Any] | None] = asyncio.get_running_loop().create_future()
        self.leads = False

    def lead(self) -> None:
        """Let this call send its own commands and all others that wait."""
        self.leads = True
        self.answers.set_result(None)

    def answer(self, answers: list[Any]) -> None:
        """Set the answers of the server."""
        if not self.answers.done():
            self.answers.set_result(answers)

    def fail(self, error: BaseException) -> None:
        """Set the error that replaces the answers."""
        if not self.answers.done():
            self.answers.set_exception(error)
            self.answers.exception()  # its caller may have been cancelled


class RedisNode:
    """The connections to one server, opened when needed and kept for the next caller.

    While all of them are busy, callers wait. The first waiting caller then sends the commands of all of them at once: a
    packet costs more than a command. Commands that block their connection (`shares` is False) are sent alone.
    """

    def __init__(self, make: Callable[[], AbstractConnection], most: int, *, shares: bool) -> None:
        self._make, self._shares = make, shares
        self._idle: list[tuple[AbstractConnection, float]] = []
        self._free = min(most, LANES) if shares else most
        self._waiting: deque[PendingCommands] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def exchange(self, commands: Sequence[RedisCommand], timeout: float) -> list[Any]:
        """Return the server's answers to commands; the answer to a refused command is a ResponseError."""
        if self._free:
            self._free -= 1
            try:
                return await self._exchanged(commands, timeout)
            finally:
                self._pass_on()
        call = PendingCommands(commands)
        self._waiting.append(call)
        try:
            answers = await call.answers
        except asyncio.CancelledError:
            if call.leads:
                self._pass_on()
            raise
        return answers if answers is not None else await self._together(call, timeout)

    async def _together(self, call: PendingCommands, timeout: float) -> list[Any]:
        """Send a call together with the waiting ones. If its caller is cancelled, the others are still answered."""
        count = min(len(self._waiting), MOST_TOGETHER) if self._shares else 0
        others = [each for each in (self._waiting.popleft() for _ in range(count)) if not each.answers.done()]
        if not others:
            try:
                return await self._exchanged(call.commands, timeout)
            finally:
                self._pass_on()
        mine = PendingCommands(call.commands)
        task = asyncio.create_task(self._answered([mine, *others], timeout))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        answers = await mine.answers
        assert answers is not None
        return answers

    async def _answered(self, calls: list[PendingCommands], timeout: float) -> None:
        try:
            answers = iter(await self._exchanged([command for call in calls for command in call.commands], timeout))
            for call in calls:
                call.answer([next(answers) for _ in call.commands])
        except BaseException as error:
            for call in calls:
                call.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """Give the connection to the next waiting call."""
        while self._waiting:
            call = self._waiting.popleft()
            if not call.answers.done():
                call.lead()
                return
        self._free += 1

    async def _exchanged(self, commands: Sequence[RedisCommand], timeout: float) -> list[Any]:
        connection = await self._taken(timeout)
        try:
            async with asyncio.timeout(timeout):
                await connection.send_packed_command(packed(commands), check_health=False)
                answers = [await _answer(connection) for _ in commands]
        except (RedisError, OSError, TimeoutError) as error:
            await connection.disconnect(nowait=True)
            await self.close()  # usually the server itself is down
            raise Lost(error, is_certain=False) from error
        except BaseException:  # cancelled: the next caller would read its answer
            await connection.disconnect(nowait=True)
            raise
        self._idle.append((connection, time.monotonic()))
        return answers

    async def _taken(self, timeout: float) -> AbstractConnection:
        while self._idle:
            connection, since = self._idle.pop()
            if _is_open(connection) and (
                time.monotonic() - since < TRUSTED_FOR or await _is_whole(connection, timeout)
            ):
                return connection
            await connection.disconnect(nowait=True)
        connection = self._make()
        try:
            async with asyncio.timeout(timeout):
                await connection.connect()  # type: ignore[no-untyped-call]
        except (RedisError, OSError, TimeoutError) as error:
            if isinstance(error, _REFUSALS) and not _is_passing(error):
                raise
            raise Lost(error, is_certain=True) from error
        return connection

    async def close(self) -> None:
        """Close idle connections."""
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            await connection.disconnect(nowait=True)


def packed(commands: Sequence[RedisCommand]) -> list[bytes]:
    """Return commands in the wire format. Takes half as long as redis-py's own function."""
    parts = []
    for command in commands:
        parts.append(b"*%d\r\n" % len(command))
        for each in command:
            part = each if type(each) is bytes else str(each).encode(errors="surrogatepass")  # found nowhere, no error
            parts.append(b"$%d\r\n%b\r\n" % (len(part), part))
    return [b"".join(parts)]


async def _answer(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response()
    except _SAID as error:
        return error


def _is_passing(answer: object) -> bool:
    return isinstance(answer, _PASSING) or (isinstance(answer, ResponseError) and _has(answer, *_PASSING_TEXTS))


def _has(error: RedisError, *texts: str) -> bool:
    return any(text in str(error) for text in texts)


def _is_open(connection: AbstractConnection) -> bool:
    """Return False if the server has closed it: commands not yet sent were certainly not executed."""
    reader = getattr(connection, "_reader", None)  # redis-py itself can only tell by trying
    return reader is None or not (reader.at_eof() or reader.exception())


async def _is_whole(connection: AbstractConnection, timeout: float) -> bool:
    try:
        async with asyncio.timeout(timeout):
            await connection.send_packed_command(packed([("PING",)]), check_health=False)
            await connection.read_response()
    except (RedisError, OSError, TimeoutError):
        return False
    return True


class Servers(StoreServer):
    """The server of a store, or all servers of its cluster."""

    longest_pause, in_a_hurry = 0.5, 0.5

    def __init__(self, options: RedisOptions, *, is_known: bool = False) -> None:
        """Use these options. With `is_known`, wait for the server even if the first connection is refused."""
        super().__init__(options.shown, options.patience, is_known=is_known)
        self.options = options
        try:
            self._given = dict(parse_url(options.url))
            self.connection()  # this opens no connection yet
        except ValueError as error:
            raise InvalidField("url", f"cannot be read ({error})") from error
        except TypeError as error:
            option = str(error).rpartition("argument ")[2]
            raise InvalidField("url", f"has the option {option}, which Redis URLs do not have; remove it") from error
        self._nodes: dict[tuple[str, int] | None, RedisNode] = {}
        self._slots: dict[int, tuple[str, int]] = {}

    def connection(self, address: tuple[str, int] | None = None) -> AbstractConnection:
        """Return a new, unopened connection to a server: the one of the URL, or one of its cluster."""
        given: dict[str, Any] = dict(self._given)
        kind = given.pop("connection_class", Connection)
        if address is not None:
            given["host"], given["port"] = address
        given = {"socket_connect_timeout": self.options.timeout, "socket_timeout": None, **given}
        made: AbstractConnection = kind(retry=Retry(NoBackoff(), 0), protocol=2, **given)  # a write is not sent twice
        return made

    async def ask(self, key: str, *commands: RedisCommand, writes: bool = False) -> list[Any]:
        """Send commands to the server of a key; return the answers. Raises our errors, a ResponseError for others."""
        return await self._asked(lambda: self._node_of(key), commands, writes=writes)

    async def _asked(
        self, choose: Callable[[], Awaitable[RedisNode]], commands: Sequence[RedisCommand], *, writes: bool
    ) -> list[Any]:
        self.process.check()
        retries = self.retries()
        while True:
            try:
                node = await choose()
                answers = await node.exchange(commands, self.options.timeout)
                self.is_known = True
                if isinstance(answers[0], AuthenticationError):
                    raise answers[0]
                if isinstance(answers[0], MovedError) and not self.options.cluster:
                    raise StoreUnavailable(f"{self.options.shown} is a cluster; {_MARK_IT}", store=self.options.shown)
                if _is_passing(answers[0]):
                    await node.close()  # after a failover the server must be looked up again
                    raise Lost(answers[0], is_certain=True) from answers[0]
                return answers
            except _REFUSALS as error:
                raise self.translated(error) from error
            except Lost as error:
                self._slots.clear()
                if writes and not error.is_certain:
                    raise OutcomeUnknown(self.options.shown, str(error)) from error
                await retries.wait(error, pauses=not isinstance(error.cause, MovedError))

    async def _node_of(self, key: str) -> RedisNode:
        if not self.options.cluster:
            return self._node(None)
        slot = key_slot(key.encode())
        if slot not in self._slots:
            await self._find_slots()
        return self._node(self._slots.get(slot))

    def _node(self, address: tuple[str, int] | None) -> RedisNode:
        known = self._nodes.get(address)
        if known is None:
            shares = self.options.durability == "server"  # WAIT and WAITAOF block the connection
            known = self._nodes[address] = RedisNode(lambda: self.connection(address), self.options.pool, shares=shares)
        return known

    async def _find_slots(self) -> None:
        """Ask any server that answers which server has which slots."""
        trouble: BaseException | None = None
        for address in [None, *self._nodes]:
            try:
                [found] = await self._node(address).exchange([("CLUSTER", "SLOTS")], self.options.timeout)
            except Lost as error:
                trouble = error
                continue
            if isinstance(found, RedisError):
                raise self.translated(found) from found
            for start, end, (host, port, *_), *_ in found:
                known = (host.decode() if host else str(self._given.get("host", "127.0.0.1")), int(port))
                self._slots.update(dict.fromkeys(range(start, end + 1), known))
            return
        raise Lost(trouble or OSError("no server"), is_certain=True) from trouble

    async def ask_all(self, *commands: RedisCommand) -> list[list[Any]]:
        """Return the answers of every server to commands about itself; a refused command gives a ResponseError."""

        async def ask(address: tuple[str, int] | None) -> list[Any]:
            async def node() -> RedisNode:
                return self._node(address)

            return await self._asked(node, commands, writes=False)

        return [await ask(address) for address in await self.addresses()]

    async def addresses(self) -> list[tuple[str, int] | None]:
        """Return the addresses of all servers that have slots."""
        while self.options.cluster and not self._slots:
            await self._asked(lambda: self._node_of(""), [("PING",)], writes=False)
        return list(dict.fromkeys(self._slots.values())) if self.options.cluster else [None]

    def checked(self, answers: list[Any]) -> list[Any]:
        """Return answers. Raises our error for the first command that was refused."""
        for answer in answers:
            if isinstance(answer, ResponseError):
                raise self.translated(answer) from answer
        return answers

    def translated(self, error: RedisError) -> MoorageError:
        """Return our error for an error of the server."""
        where, text = self.options.shown, str(error)
        if isinstance(error, OutOfMemoryError):
            return StoreFull(where, "delete sessions, or raise `maxmemory` of the server")
        if isinstance(error, ReadOnlyError):
            return StoreReadOnly(where, "it is a replica; name the server that takes writes")
        if text.startswith(("WRONGTYPE", "MOORAGE")):
            return StoreCorrupt(where, text, FOREIGN)
        return StoreUnavailable(f"{where} cannot be used ({_said(error)})", store=where)

    def given_up(self, error: Exception) -> MoorageError:
        shown, cause = self.options.shown, error.__cause__
        if isinstance(cause, ReadOnlyError):
            return self.translated(cause)
        if isinstance(cause, ResponseError) and _has(cause, "BUSY "):
            return StoreBusy(shown)
        return StoreUnavailable(f"{shown} cannot be used ({error}); nothing was changed, try again", store=shown)

    async def close(self) -> None:
        """Close every connection."""
        self.process.is_closed = True
        for node in self._nodes.values():
            await node.close()


def _said(error: RedisError) -> str:
    """Return the server's message, with advice where there is any."""
    text = str(error)
    if isinstance(error, NoPermissionError) or "ACL" in text:
        return f"NOPERM: {text}; docs/redis.md lists the permissions that a user needs"
    if isinstance(error, AuthenticationError):
        return f"it refuses the user or the password: {text}"
    if "cluster support disabled" in text:
        return "it is no cluster; leave `cluster` out of the URL"
    if "DB index is out of range" in text:
        return f"{text}; name another database, or none"
    if text.startswith("MISCONF"):
        return f"it refuses writes because it cannot save to its disk: {text}"
    if "unknown command" in text and "eval" in text.lower():
        return f"it runs no scripts, and Moorage needs EVAL and EVALSHA: {text}"
    return text

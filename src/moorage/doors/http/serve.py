"""A server: the HTTP and gRPC doors, a launcher, the sweeper, in one process until it is told to stop.

When told to stop, it takes no more requests, ends its streams (readers reconnect with their cursor), finishes the
answers it has begun, and closes the store. Agents in processes of their own continue; the launcher of the next start
adopts them.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shlex
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from msgspec import Struct

from moorage import config
from moorage.agents.grpc import close_router
from moorage.core.errors import InvalidField, MoorageError, StoreError, StoreUnavailable
from moorage.core.extras import missing
from moorage.doors.graphql import door as graphql
from moorage.doors.http import agent_sessions, launching, messages, monitoring, pages, records, streams, transfer
from moorage.doors.http.app import Door
from moorage.doors.http.authorizer import LOCAL, Authorizer, Rates
from moorage.doors.http.exchange import MAX_BODY, AsgiApp
from moorage.doors.http.monitoring import Heart, Meter, Traces, open_traces, watch_stalls
from moorage.doors.http.protocol import BoundedProtocol
from moorage.doors.http.workers import clear_up
from moorage.doors.mcp import door as mcp
from moorage.launcher import loop
from moorage.service import leases, presence
from moorage.service.deps import LOOK_AGAIN, Caller, Deps
from moorage.service.keys import has_keys
from moorage.service.sweeper import Sweeper
from moorage.service.turns import TurnDispatcher

if TYPE_CHECKING:
    from moorage.doors.grpc.server import GrpcServer, Tls

log = logging.getLogger(__name__)

PORT = 8765
KEEP_ALIVE = 30  # seconds a connection may be idle
FINISH_WITHIN = 10  # seconds to finish begun answers after the server is told to stop
LEASH = 0  # a worker's standard input: it closes when the parent process ends


class ServeOptions(Struct, frozen=True, kw_only=True):
    """The options of a server."""

    url: str | None = None  # of the store
    context_url: str | None = None  # of the server for contexts, if it is another one
    host: str = "127.0.0.1"
    port: int = PORT
    launches: bool = True
    name: str = "serve"  # of its launcher
    greets: bool = False  # whether a user at a terminal reads its log
    open_to_all: bool = False  # to everyone who can reach it, without a key
    fd: int | None = None  # a socket that already listens; `workers` shares one
    slots: int = loop.SLOTS
    grpc_port: int | None = None  # None: no gRPC
    grpc_given: bool = True  # whether the user named that port; if not, it may be taken
    grpc_shared: bool = False  # whether other workers use the port, too
    grpc_cert: str | None = None  # files: a certificate, its key, and the CA of client certificates
    grpc_key: str | None = None
    grpc_client_ca: str | None = None
    allows_eviction: bool = False  # on a store whose server may delete sessions by itself


async def serve(options: ServeOptions) -> None:
    """Serve until SIGTERM or SIGINT."""
    listening = listen(options.host, options.port) if options.fd is None else socket.socket(fileno=options.fd)
    address = _address(options.host, listening)
    if options.fd is None:
        clear_up()
        await asyncio.to_thread(presence.clear_up)
    deps = await asyncio.to_thread(
        config.open_deps, options.url, threaded=True, context_url=options.context_url, is_known=True
    )
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(deps.store.close)
        if options.launches:  # refused before any door answers
            stack.enter_context(loop.alone_in(config.launcher_folder(options.name)))
        await _check_risks(deps, options)
        stack.push_async_callback(close_router)  # after the launcher: its agents may live elsewhere
        rates = Rates(deps.settings.server.rate, deps.settings.server.burst)
        traces, heart, authorizer = open_traces(), Heart(), await _authorizer(deps, options, rates)
        if traces is not None:
            stack.push_async_callback(asyncio.to_thread, traces.close)
        shared, meter = options.fd is not None, Meter()
        door = make_door(deps, authorizer, traces=traces, stop=stop, heart=heart, is_one_of_many=shared, meter=meter)
        server = _Server(_configured(door), stop)
        grpc_server = await _grpc(door, options, heart)
        server_id = deps.new_id()
        if helped := await leases.arrive(deps, server_id):
            log.info("no server ran for a while; turns that get more time until they count as lost: %d", helped)
        work: list[Coroutine[Any, Any, None]] = [
            Sweeper(deps, Caller(by="moorage"), stop).run(),
            _beat(deps, server_id, heart, rates, stop),
            _expire(deps, stop),
            watch_stalls(meter.stall, stop),
            _close(door, stop),
        ]
        if grpc_server is not None:
            work.append(grpc_server.run(stop))
        if options.launches:
            work.append(_launch(door, options, address, stop))
            looking = asyncio.create_task(deps.registered.keep_looking())
            stack.callback(looking.cancel)
        tasks = [asyncio.create_task(each) for each in work]
        for task in tasks:
            task.add_done_callback(server.notice)
        stack.push_async_callback(_ended, tasks, stop)
        if options.fd is not None:
            asyncio.get_running_loop().add_reader(LEASH, server.leave)
        gc.collect()
        gc.freeze()  # modules and routes are never garbage: scanning them repeatedly took a fifth of a read's time
        config.tell_of_server(config.pick_url(options.url), address)
        stack.callback(config.forget_server, config.pick_url(options.url))
        if not options.greets:
            log.info("Moorage serves %s at %s", _store_name(options), address)
        elif options.fd is None:  # the parent of several workers greets for them
            server.greet = partial(greet, options, listening, grpc_server.port if grpc_server else None)
        await server.serve([listening])
        if server.failure is not None:
            raise server.failure


def make_door(
    deps: Deps,
    authorizer: Authorizer | None = None,
    *,
    traces: Traces | None = None,
    stop: asyncio.Event | None = None,
    heart: Heart | None = None,
    is_one_of_many: bool = False,
    meter: Meter | None = None,
) -> Door:
    """Return the door with all its routes; long polls end when the server is told to stop.

    `is_one_of_many`: a client's next request may reach another process. `meter` is shared with gRPC.
    """
    meter = meter or Meter()
    deps.store.on_commit(meter.commit)
    door = Door(deps, authorizer or Authorizer(deps), watcher=meter.call, traces=traces)
    monitoring.add_to(door, meter, heart)
    pages.add_to(door)
    transfer.add_to(door)
    records.add_to(door)
    live = streams.add_to(door)
    door.places.watcher = meter.streams
    messages.add_to(door, live)
    agent_sessions.add_to(door, live)
    mcp.add_to(door, live, stateless=is_one_of_many)
    launching.add_to(door, stop)
    graphql.add_to(door, live)
    return door


async def _check_risks(deps: Deps, options: ServeOptions) -> None:
    """Refuse a store whose server may delete sessions by itself, unless the options allow it."""
    risks = getattr(deps.store, "risks", None)  # other databases delete nothing by themselves
    for risk in [] if risks is None else await risks():
        if not options.allows_eviction:
            raise InvalidField("store", f"{_store_name(options)} may lose sessions: {risk}. Or give --allow-eviction")
        log.critical("%s may lose sessions: %s", _store_name(options), risk)


async def _authorizer(deps: Deps, options: ServeOptions, rates: Rates) -> Authorizer:
    """Return an authorizer that admits local callers until a key exists; elsewhere it needs a key, unless open."""
    if is_loopback(options.host):
        return Authorizer(deps, hosts=frozenset({options.host.strip("[]").lower()}), rates=rates)
    if options.open_to_all:
        log.critical("open to all: everyone who can reach %s can read, change and delete every session", options.host)
        return Authorizer(deps, any_host=True, rates=rates)
    if not await has_keys(deps):
        raise InvalidField(
            "host",
            f"is {options.host}, which others can reach, and there is no key: make one (`moorage keys create "
            "--scope admin`), or listen at 127.0.0.1",
        )
    return Authorizer(deps, closed=True, rates=rates)


async def _grpc(door: Door, options: ServeOptions, heart: Heart) -> GrpcServer | None:
    """Start the gRPC door, if it is enabled and available."""
    if options.grpc_port is None or not _has_grpc(options):
        return None
    from moorage.doors.grpc.door import Watch
    from moorage.doors.grpc.server import GrpcServer

    tls, shared, watch = _tls(options), options.grpc_shared, Watch(door.watcher, door.traces)
    server = GrpcServer(
        door.deps, door.authorizer, deps_of=door.deps_of, shared=shared, heart=heart, places=door.places, watch=watch
    )
    try:
        port = await server.start(options.host, options.grpc_port, tls)
    except StoreUnavailable as error:
        _without_grpc(options, error)
        return None
    if not options.greets:
        log.info("gRPC%s at %s port %d", "" if tls is None else " (TLS)", options.host, port)
    return server


def _has_grpc(options: ServeOptions) -> bool:
    """Return whether gRPC is installed. Raise Unsupported if it is not and its port was requested."""
    if all(map(find_spec, ("grpc", "grpc_health", "grpc_reflection"))):
        return True
    _without_grpc(options, missing("grpc", "gRPC"))
    return False


def _without_grpc(options: ServeOptions, error: MoorageError) -> None:
    """Go on without gRPC. Raise the error if the user named its port."""
    if options.grpc_given:
        raise error
    log.warning("gRPC is off: %s", error)


def _tls(options: ServeOptions) -> Tls | None:
    from moorage.doors.grpc.server import Tls

    if (options.grpc_cert is None) is not (options.grpc_key is None):
        raise InvalidField("grpc_cert", "and its key belong together: give both --grpc-cert and --grpc-key")
    if options.grpc_cert is None or options.grpc_key is None:
        return None
    return Tls(cert=options.grpc_cert, key=options.grpc_key, client_ca=options.grpc_client_ca)


def grpc_place(options: ServeOptions) -> socket.socket | None:
    """Return a reserved gRPC port that all workers share; None without gRPC."""
    if options.grpc_port is None or not _has_grpc(options):
        return None
    try:
        return listen(options.host, options.grpc_port, who="gRPC ", option=socket.SO_REUSEPORT, flag="--grpc-port")
    except StoreUnavailable as error:
        _without_grpc(options, error)
        return None


async def _beat(deps: Deps, server_id: str, heart: Heart, rates: Rates, stop: asyncio.Event) -> None:
    """Renew the server's heartbeat every few seconds, so that launchers wait no longer than necessary."""
    with suppress(StoreError):
        rates.share(await leases.living(deps))
    while not stop.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(leases.BEAT_EVERY.total_seconds()):
                await stop.wait()
                return
        try:
            await leases.arrive(deps, server_id)
            heart.beat()
            rates.share(await leases.living(deps))
        except StoreError as error:
            log.warning("the store cannot be reached, trying again: %s", error)


async def _expire(deps: Deps, stop: asyncio.Event) -> None:
    """Apply the deadlines of turns and runs every second, even if no launcher works and no caller looks."""
    dispatcher = TurnDispatcher(deps)
    while not stop.is_set():
        try:
            await dispatcher.expire()
        except StoreError as error:
            log.warning("deadlines cannot be applied, trying again: %s", error)
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN.total_seconds()):
                await stop.wait()


async def _close(door: Door, stop: asyncio.Event) -> None:
    """End the streams when the server is told to stop: it waits for begun answers, not for a lost database."""
    await stop.wait()
    door.deps.store.hurry()
    await door.close()


class _Server(uvicorn.Server):
    """A uvicorn server that reports at once when it is told to stop."""

    def __init__(self, settings: uvicorn.Config, stop: asyncio.Event) -> None:
        super().__init__(settings)
        self._stop = stop
        self.failure: BaseException | None = None  # the failure of a task beside the door
        self.greet: Callable[[], None] | None = None  # called once it answers and handles signals

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.greet is not None:
            self.greet()

    def notice(self, task: asyncio.Task[None]) -> None:
        """Note that a task beside the door has ended. A failure ends the server, which would be incomplete."""
        if not task.cancelled() and task.exception() is not None and self.failure is None:
            self.failure = task.exception()
            self.leave()

    def leave(self) -> None:
        """Stop as if told to."""
        asyncio.get_running_loop().remove_reader(LEASH)
        self.should_exit = True
        self._stop.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note a signal. uvicorn's own handler would end the process before the rest is closed."""
        self.force_exit = self.force_exit or (self.should_exit and sig == signal.SIGINT)
        self.should_exit = True
        self._stop.set()


def _configured(door: Door) -> uvicorn.Config:
    return uvicorn.Config(
        with_cors(door, door.deps.settings.server.allowed_origins),
        http=BoundedProtocol,
        loop="uvloop",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=FINISH_WITHIN,
        backlog=4096,
        ws="websockets-sansio",  # the older implementation, which some versions choose, raises a deprecation warning
        ws_max_size=MAX_BODY,
        ws_per_message_deflate=False,  # else one event would be compressed a thousand times for a thousand readers
    )


def with_cors(door: Door, origins: frozenset[str]) -> AsgiApp:
    """Return the door with CORS for pages of these origins; unchanged without origins."""
    if not origins:
        return door
    from starlette.middleware.cors import CORSMiddleware

    verbs = ("GET", "POST", "PUT", "PATCH", "DELETE")
    return CORSMiddleware(
        door, allow_origins=sorted(origins), allow_methods=verbs, allow_headers=("*",), expose_headers=("etag",)
    )


def listen(
    host: str, port: int, *, who: str = "", option: int = socket.SO_REUSEADDR, flag: str = "--port"
) -> socket.socket:
    """Return a listening socket. Raise StoreUnavailable if the address is taken."""
    if not 0 <= port < 65536:
        raise InvalidField("port", f"is {port}; give a number from 0 to 65535")
    try:
        [(family, _, _, _, place), *_] = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, option, 1)
        listening.bind(place)
    except OSError as error:
        why = error.strerror or error
        raise StoreUnavailable(
            f"{who}cannot listen on {host} port {port} ({why}); another server may be running: give {flag}", store=host
        ) from error
    return listening


def _address(host: str, listening: socket.socket) -> str:
    port = listening.getsockname()[1]
    name = host.strip("[]")
    if name in ("0.0.0.0", "::", ""):  # all addresses are no address to connect to
        name = "127.0.0.1"
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach that address."""
    name = host.strip("[]").lower()
    return name in LOCAL or name.startswith("127.")


async def _launch(door: Door, options: ServeOptions, address: str, stop: asyncio.Event) -> None:
    """Start the server's own launcher; its agents find the server by the environment."""
    await loop.serve(
        lambda _: TurnDispatcher(door.deps, tokens=True, words=door.words),
        partial(config.agents_of, door.deps),
        folder=config.launcher_folder(options.name),
        name=options.name,
        slots=options.slots,
        environment=config.agent_environment(address),
        stop=stop,
    )


async def _ended(tasks: list[asyncio.Task[None]], stop: asyncio.Event) -> None:
    stop.set()
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)


def greet(options: ServeOptions, listening: socket.socket, grpc_port: int | None) -> None:
    """Print for the user at the terminal where the server is, and a command to try."""
    address = _address(options.host, listening)
    places = {
        "page": f"{address}/",
        "REST": f"{address}/docs",
        "GraphQL": f"{address}/graphql",
        "gRPC": grpc_port and f"{address.removeprefix('http://').rpartition(':')[0]}:{grpc_port}",
        "MCP": f"{address}/mcp" if find_spec("mcp") else None,
    }
    program = os.path.join(os.path.dirname(sys.executable), "moorage")
    if shutil.which("moorage") == program:  # else a shell does not find this installation by that name
        program = "moorage"
    lines = (
        "",
        f"  Moorage is ready. Its sessions are in {_store_name(options)}",
        *(f"    {name:<8}  {place}" for name, place in places.items() if place),
        f"    try       {shlex.quote(program)} --url {address} run echo-agent hello",
        "  Ctrl-C ends the server; sessions stay.",
        "",
    )
    print("\n".join(lines), file=sys.stderr)


def _store_name(options: ServeOptions) -> str:
    return config.without_password(config.pick_url(options.url))

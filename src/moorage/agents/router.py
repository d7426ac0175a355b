"""The router: gRPC calls to remote agents, workers and tools.

Each endpoint has one channel, kept for as long as the event loop. Endpoints of one name take turns; one that cannot
be reached, or reports that it is unhealthy, is skipped until it recovers. A call is sent once: another endpoint is
tried only if no connection could be made, so no call is executed twice.

Variables name the files for TLS: the authority that signs the certificates of `grpcs://` endpoints, and our client
certificate. Without them, gRPC checks an endpoint's certificate with its own defaults.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from moorage.agents.interface import Secret
from moorage.core.extras import provided_by

CONNECT_WITHIN = 0.5  # seconds; then the next endpoint is tried
CONNECT_AT_LAST = 3.0  # seconds for the only endpoint: a busy machine may be slow
PROBE_EVERY = 0.5
PROBE_WITHIN = 0.5
IDLE_AFTER = 60.0  # seconds without a call after which an endpoint is no longer probed
HEALTH = "/grpc.health.v1.Health/Check"
MAX_MESSAGE = 16 * 1024 * 1024
OPTIONS = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 2),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.min_reconnect_backoff_ms", 3_000),  # limit of one attempt; refused attempts end at once
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.service_config_disable_resolution", 1),
]
SCHEME = "grpcs://"  # of endpoints that speak TLS
CA, CERT, KEY = "MOORAGE_GRPC_CA", "MOORAGE_GRPC_CERT", "MOORAGE_GRPC_KEY"
Metadata = tuple[tuple[str, str], ...]


class RemoteCall(NamedTuple):
    """A call of a method that several endpoints offer."""

    places: tuple[str, ...]
    method: str
    request: Any
    answer: Callable[[bytes], Any]  # decodes the answer or a piece of it
    timeout: float | None = None
    metadata: Metadata = ()


class Unreachable(Exception):
    """No endpoint could be reached: nothing was sent."""


class RemoteFailure(Exception):
    """The call was sent and failed; `code` is the name of a gRPC status."""

    def __init__(self, code: str, detail: str, metadata: dict[str, str]) -> None:
        self.code, self.detail, self.metadata = code, detail, metadata
        super().__init__(f"{code}: {detail}")


class Endpoint:
    """One endpoint, its channel and its health."""

    def __init__(self, place: str, credentials: Any = None) -> None:
        """Create a channel; `credentials` are for endpoints with TLS."""
        self.place, self.channel = place, _channel(place, credentials)
        self.is_well = True
        self._used_at = monotonic()
        self._probing: asyncio.Task[None] | None = None

    async def is_ready(self, within: float = CONNECT_WITHIN) -> bool:
        """Return whether there is a connection, or one can be made in time."""
        import grpc

        self._watch()
        state = self.channel.get_state(try_to_connect=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while state is not grpc.ChannelConnectivity.READY:
                    if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                        raise TimeoutError
                    await self.channel.wait_for_state_change(state)
                    state = self.channel.get_state(try_to_connect=True)
                return True
        self.is_well = False
        return False

    def _watch(self) -> None:
        self._used_at = monotonic()
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe(), name=f"moorage-probe-{self.place}")

    async def _probe(self) -> None:
        """Check the endpoint's health repeatedly, as long as it gets calls."""
        while monotonic() - self._used_at < IDLE_AFTER:
            self.is_well = await self._says_well()
            await asyncio.sleep(PROBE_EVERY)

    async def _says_well(self) -> bool:
        """Return the answer of its health service; an endpoint without that service is healthy if it can be reached."""
        import grpc

        ask = self.channel.unary_unary(HEALTH)  # an empty message asks about the server as a whole
        try:
            answer: bytes = await ask(b"", timeout=PROBE_WITHIN)
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.UNIMPLEMENTED
        return answer == b"\x08\x01"  # SERVING

    async def close(self) -> None:
        """Close the channel."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait([self._probing])
        await self.channel.close()


class Router:
    """Sends calls for one event loop."""

    def __init__(self, secret: Secret | None = None) -> None:
        self._secret = secret
        self._credentials: Any = None  # set when they are first needed
        self._endpoints: dict[str, Endpoint] = {}
        self._turn = count()

    async def unary(self, call: RemoteCall) -> Any:
        """Call a method that answers once. Raises Unreachable, RemoteFailure."""
        import grpc

        sent = await self._sent(call, "unary_unary")
        try:
            return await sent  # cancelled with its caller
        except grpc.aio.AioRpcError as error:
            raise _failure(error) from error

    async def stream(self, call: RemoteCall) -> AsyncIterator[Any]:
        """Call a method that answers in pieces. Raises Unreachable, RemoteFailure."""
        import grpc

        sent = await self._sent(call, "unary_stream")
        try:
            async for piece in sent:
                yield piece
        except grpc.aio.AioRpcError as error:
            raise _failure(error) from error
        finally:
            sent.cancel()

    async def _sent(self, call: RemoteCall, kind: str) -> Any:
        """Send a call to an endpoint that can be reached; return its pending answer."""
        channel, serialize = (await self._chosen(call.places)).channel, type(call.request).SerializeToString
        method = getattr(channel, kind)(call.method, request_serializer=serialize, response_deserializer=call.answer)
        return method(call.request, timeout=call.timeout, metadata=call.metadata)

    async def _chosen(self, places: tuple[str, ...]) -> Endpoint:
        """Return the next endpoint in turn that can be reached; unhealthy ones come last."""
        if self._credentials is None and any(place.startswith(SCHEME) for place in places):
            try:
                self._credentials = await asyncio.to_thread(_credentials, self._secret)
            except OSError as error:
                raise Unreachable(f"{error.filename} cannot be read ({error.strerror})") from error
        start = next(self._turn) % max(1, len(places))
        in_turn = [self._endpoint(place) for place in (*places[start:], *places[:start])]
        in_turn.sort(key=lambda each: not each.is_well)
        for within in (CONNECT_WITHIN, CONNECT_AT_LAST):
            for endpoint in in_turn:
                if await endpoint.is_ready(within):
                    return endpoint
        raise Unreachable(f"none of {', '.join(places)} can be reached")

    async def is_reachable(self, places: tuple[str, ...]) -> bool:
        """Return whether one of these endpoints can be called now."""
        try:
            return (await self._chosen(places)).is_well
        except Unreachable:
            return False

    def _endpoint(self, place: str) -> Endpoint:
        known = self._endpoints.get(place)
        if known is None:
            known = self._endpoints[place] = Endpoint(place, self._credentials)
        return known

    async def close(self) -> None:
        """Close all channels."""
        while self._endpoints:
            await self._endpoints.popitem()[1].close()


_routers: WeakKeyDictionary[asyncio.AbstractEventLoop, Router] = WeakKeyDictionary()


def router(secret: Secret | None = None) -> Router:
    """Return the router of the running event loop: channels belong to one loop. `secret` reads variables."""
    loop = asyncio.get_running_loop()
    known = _routers.get(loop)
    if known is None:
        known = _routers[loop] = Router(secret)
    return known


async def close_router() -> None:
    """Close the channels of the running event loop, if there are any."""
    known = _routers.pop(asyncio.get_running_loop(), None)
    if known is not None:
        await known.close()


def _channel(place: str, credentials: Any) -> Any:
    grpc = load_grpc()
    scheme, separator, rest = place.partition("://")
    if place.startswith(SCHEME):
        return grpc.aio.secure_channel(rest, credentials, options=OPTIONS)
    target = rest if separator and scheme in ("grpc", "http") else place
    return grpc.aio.insecure_channel(target, options=OPTIONS)


def _credentials(secret: Secret | None) -> Any:
    """Return the credentials for channels to `grpcs://` endpoints; reads files. Raises OSError."""
    import grpc

    ca, cert, key = (_read(None if secret is None else secret(name)) for name in (CA, CERT, KEY))
    return grpc.ssl_channel_credentials(ca, key, cert)


def _read(path: str | None) -> bytes | None:
    if not path:
        return None
    with open(path, "rb") as file:
        return file.read()


def load_grpc() -> Any:
    """Return the gRPC library. Raises Unsupported if it is not installed."""
    with provided_by("grpc", "gRPC"):
        import grpc
        import grpc.aio
    return grpc


def _failure(error: Any) -> RemoteFailure:
    trailing = {str(key): str(value) for key, value in error.trailing_metadata() or () if isinstance(value, str)}
    return RemoteFailure(error.code().name, error.details() or "", trailing)

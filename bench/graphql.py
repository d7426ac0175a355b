"""`python -m bench.graphql`: what GraphQL costs beside REST, and how soon a thousand subscribers have an event.

One `moorage serve`, a process of its own. The same session with its last 20 messages is asked for by REST
and by GraphQL, with every field that REST answers, in rounds that take turns; the figure is the median of
the ratios of the server's processor time. Then a thousand WebSockets subscribe to one session, from
another process than the server's, and an event is on its way from the moment its sender begins to send.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import httpx2
import uvloop

from bench.__main__ import RUNS
from bench.hooks import Figure
from bench.http import CONNECTIONS, MESSAGES, Loaded, Rounds
from bench.streams import served
from bench.web.load import Request
from bench.web.servers import MoorageServer
from moorage.core.entry import Entry
from moorage.core.session import PUBLIC_FIELDS
from moorage.doors.graphql.schema import camel

ROUNDS, OPERATIONS, SUBSCRIBERS, EVENTS = 9, 2_000, 1_000, 20
MOST_OF_REST, MOST_DELAY = 4.0, 0.500


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether the promises are kept."""
    parser = argparse.ArgumentParser(prog="python -m bench.graphql", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"of each way, in turn ({ROUNDS})")
    parser.add_argument("--subscribers", type=int, default=SUBSCRIBERS, metavar="N", help=f"({SUBSCRIBERS:,})")
    parser.add_argument("--events", type=int, default=EVENTS, metavar="N", help=f"to all of them ({EVENTS})")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args(arguments)
    RUNS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="graphql-", dir=RUNS) as folder:
        figures = _cost(Path(folder), options.rounds)
        figures += uvloop.run(_delay(Path(folder), options.subscribers, options.events))
    width = max(len(each.what) for each in figures)
    for each in figures:
        print(f"{each.what:{width}}  {each.value:>12}  {each.target:16} {'' if each.kept is not False else 'MISSED'}")
    return int(options.check and any(each.kept is False for each in figures))


# The cost ---------------------------------------------------------------------------------------


class Asked(Rounds):
    """The same sessions, by GraphQL."""

    def plan(self) -> None:
        server, loaded = self.loaded.server, self.loaded
        requests = [_query(session_id) for session_id in loaded.read]
        loaded.load.call("plan", port=server.port, requests=requests, connections=CONNECTIONS, may_fail=False)


_CHILD = "child { sessionId runId }"
_PARTS = {
    "hold": "holder until",
    "waitingFor": f"approvalId {_CHILD}",
    "because": f"reason by until approvalId {_CHILD}",
    "lastRun": "id state reason settledAt",
}  # of what is an object
_SESSION = " ".join(f"{name} {{ {_PARTS[name]} }}" if name in _PARTS else name for name in map(camel, PUBLIC_FIELDS))
_ENTRY = " ".join(camel(name) for name in Entry.__struct_fields__)
QUERY = (
    f"query ($id: ID!) {{ agentSession(sessionId: $id) {{ {_SESSION} "
    f"history(last: {MESSAGES}) {{ nodes {{ {_ENTRY} }} }} }} }}"
)


def _query(session_id: str) -> Request:
    return "POST", "/graphql", {"query": QUERY, "variables": {"id": session_id}}


def _cost(folder: Path, rounds: int) -> list[Figure]:
    server = MoorageServer(folder / "cost")
    loaded = Loaded(server, folder / "cost")
    try:
        loaded.prepare()
        [answer] = loaded._each([_query(loaded.read[0])], "data")
        assert len(answer["agentSession"]["history"]["nodes"]) == MESSAGES, answer
        ways: dict[str, Rounds] = {"REST": Rounds(loaded, "get"), "GraphQL": Asked(loaded, "get")}
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds + 1):  # the first warms up
            for name, way in ways.items():
                way.plan()
                took = way.round(OPERATIONS)
                if number:
                    rates[name].append(took.operations / took.seconds)
    finally:
        loaded.load.end()
        server.end()
    by_cpu = median(ours / rest for ours, rest in zip(ways["GraphQL"].cpu[1:], ways["REST"].cpu[1:], strict=True))
    by_rate = median(rest / ours for ours, rest in zip(rates["GraphQL"], rates["REST"], strict=True))
    shown = [
        Figure(f"{name}: a session with its last {MESSAGES}", f"{median(each):,.0f} a second", "", None)
        for name, each in rates.items()
    ]
    target = f"at most {MOST_OF_REST:.0f} ×"
    return [
        *shown,
        Figure("GraphQL beside REST, processor time", f"{by_cpu:.2f} ×", target, by_cpu <= MOST_OF_REST),
        Figure("GraphQL beside REST, time", f"{by_rate:.2f} ×", target, by_rate <= MOST_OF_REST),
    ]


# The delay --------------------------------------------------------------------------------------


async def _delay(folder: Path, count: int, events: int) -> list[Figure]:
    async with served(folder) as (_, address), httpx2.AsyncClient(base_url=address) as http:
        made = await http.post("/sessions", json={"session_id": "s"})
        assert made.status_code == 201, made.text
        readers = [await _Subscriber.open(address, str(number)) for number in range(count)]
        await asyncio.gather(*(reader.read_until(1) for reader in readers))
        delays = []
        for number in range(2, events + 2):
            reading = asyncio.gather(*(reader.read_until(number) for reader in readers))
            await asyncio.sleep(0.2)
            began = perf_counter()
            await http.post("/sessions/s/messages", json={"content": "to everybody", "run": False})
            await reading
            delays.append(perf_counter() - began)
        for reader in readers:
            reader.close()
    typical, worst, target = median(delays), max(delays), f"within {MOST_DELAY * 1000:.0f} ms"
    return [
        Figure(
            f"the last of {count:,} subscribers has it, median",
            f"{typical * 1000:.0f} ms",
            target,
            typical < MOST_DELAY,
        ),
        Figure("the same, at worst", f"{worst * 1000:.0f} ms", "", None),
    ]


FOLLOW = 'subscription { agentSessionEvents(sessionId: "s") { id type data timestamp } }'


class _Subscriber:
    """graphql-transport-ws on a bare connection: frames in, ids noted."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._seen = reader, writer, 0

    @classmethod
    async def open(cls, address: str, name: str) -> _Subscriber:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        writer.write(
            b"GET /graphql HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"sec-websocket-protocol: graphql-transport-ws\r\n\r\n"
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 101 " in head, head
        own = cls(reader, writer)
        own._say({"type": "connection_init"})
        assert json.loads(await own._frame()) == {"type": "connection_ack"}
        own._say({"type": "subscribe", "id": name, "payload": {"query": FOLLOW}})
        return own

    def _say(self, message: object) -> None:
        text, mask = json.dumps(message).encode(), os.urandom(4)
        size = bytes([0x80 | len(text)]) if len(text) < 126 else b"\xfe" + len(text).to_bytes(2, "big")
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(text))
        self._writer.write(b"\x81" + size + mask + masked)

    async def _frame(self) -> bytes:
        kind, size = await self._reader.readexactly(2)
        if size == 126:
            size = int.from_bytes(await self._reader.readexactly(2), "big")
        text = await self._reader.readexactly(size)
        return text if kind == 0x81 else await self._frame()  # a ping of the protocol below is left alone

    async def read_until(self, number: int) -> None:
        while self._seen < number:
            message = json.loads(await self._frame())
            if message["type"] == "next":
                self._seen = int(message["payload"]["data"]["agentSessionEvents"]["id"])

    def close(self) -> None:
        self._writer.close()


if __name__ == "__main__":
    sys.exit(main())

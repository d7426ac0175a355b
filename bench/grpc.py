"""`python -m bench.grpc`: what a session costs a call by gRPC, and a thousand streams at once.

`ExecuteTask` of echo-agent on `moorage serve`, a process of its own: with a session it reads what was said before and
commits what is said now; without one it does neither. Both are done by turns, and the figure is the median of the
paired ratios. Then a thousand streams of answers, and a thousand who watch one session, all open at once.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from threading import Thread
from time import perf_counter
from typing import Any
from uuid import uuid4

import grpc
import uvloop

from bench.__main__ import RUNS
from bench.hooks import Figure
from bench.ours import url
from moorage.protobuf import agent_platform_pb2 as pb
from moorage.protobuf import agent_platform_pb2_grpc, sessions_pb2, sessions_pb2_grpc

ROUNDS, CALLERS, CALLS, STREAMS, CHANNELS = 15, 64, 20, 1_000, 10
MOST = 2.5  # times a call without a session


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether the promises are kept."""
    parser = argparse.ArgumentParser(prog="python -m bench.grpc", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"interleaved ({ROUNDS})")
    parser.add_argument("--streams", type=int, default=STREAMS, metavar="N", help=f"open at once ({STREAMS:,})")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args(arguments)
    figures = uvloop.run(_measured(options.rounds, options.streams))
    width = max(len(each.what) for each in figures)
    for each in figures:
        print(f"{each.what:{width}}  {each.value:>28}  {each.target:16} {'' if each.kept is not False else 'MISSED'}")
    return int(options.check and any(each.kept is False for each in figures))


async def _measured(rounds: int, streams: int) -> list[Figure]:
    RUNS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="grpc-", dir=RUNS) as folder:
        async with _served(Path(folder)) as (process, place):
            figures = [
                await _ratio(process, place, rounds, CALLERS, CALLS),
                await _ratio(process, place, rounds, 1, 100),
                await _answers(place, streams),
                await _watchers(place, streams),
            ]
    return figures


@asynccontextmanager
async def _served(folder: Path) -> AsyncIterator[tuple[int, str]]:
    command = [sys.executable, "-m", "moorage", "serve", "--no-launcher", "--store", url(folder), "--port", "0"]
    command += ["--grpc-port", "0", "--log-format", "text"]
    environment = {**os.environ, "MOORAGE_HOME": str(folder)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)  # noqa: ASYNC220  once
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "gRPC at" in line)
        Thread(target=process.stderr.read, daemon=True).start()  # the log: a full pipe would stop the server
        yield process.pid, f"127.0.0.1:{line.split()[-1]}"
    finally:
        process.kill()
        process.wait()


# Cost of a session -------------------------------------------------------------------------------


async def _ratio(process: int, place: str, rounds: int, callers: int, calls: int) -> Figure:
    async with grpc.aio.insecure_channel(place) as channel:
        agents: Any = agent_platform_pb2_grpc.AgentServiceStub(channel)
        for with_session in (False, True):
            await _round(agents, callers, 2, with_session=with_session)
        pairs, cpu = [], [0.0, 0.0]
        for number in range(rounds):
            took = [0.0, 0.0]
            for with_session in (False, True) if number % 2 else (True, False):
                before = _cpu(process)
                took[with_session] = await _round(agents, callers, calls, with_session=with_session)
                cpu[with_session] += _cpu(process) - before
            pairs.append((took[0], took[1]))
    found = median(kept / plain for plain, kept in pairs)
    each = [callers * calls / median(pair[which] for pair in pairs) for which in (0, 1)]
    told = f"{found:.2f} × ({each[1]:,.0f} of {each[0]:,.0f} a second)"
    what = f"with a session, {callers} caller{'s' if callers > 1 else ''} at once"
    print(f"… {what}: processor {cpu[1] / cpu[0]:.2f} × per call", file=sys.stderr, flush=True)
    return Figure(what, told, f"at most {MOST} ×", found <= MOST)


async def _round(agents: Any, callers: int, calls: int, *, with_session: bool) -> float:
    """Return the seconds until all are done: each makes one call after the other, in a session of its own or none."""

    async def ask() -> None:
        session_id = str(uuid4()) if with_session else ""
        for _ in range(calls):
            request = pb.TaskRequest(task_id="t", agent_id="echo-agent", input="hello there", session_id=session_id)
            answer = await agents.ExecuteTask(request)
            assert answer.success
            assert answer.session_id == session_id

    began = perf_counter()
    await asyncio.gather(*(ask() for _ in range(callers)))
    return perf_counter() - began


def _cpu(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# A thousand at once -----------------------------------------------------------------------------


@asynccontextmanager
async def _channels(place: str) -> AsyncIterator[list[Any]]:
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(place, options=options) for _ in range(CHANNELS)]
    try:
        yield channels
    finally:
        for channel in channels:
            await channel.close()


async def _answers(place: str, count: int) -> Figure:
    """Answers in pieces, all begun before any is read to its end."""
    text = " ".join(["word"] * 200)
    async with _channels(place) as channels:
        began = perf_counter()
        stubs: list[Any] = [agent_platform_pb2_grpc.AgentServiceStub(channel) for channel in channels]
        requests = [
            pb.TaskRequest(agent_id="echo-agent", input=text, session_id=f"a-{number}") for number in range(count)
        ]
        calls = [stubs[number % CHANNELS].StreamTask(request) for number, request in enumerate(requests)]
        firsts = await asyncio.gather(*(call.read() for call in calls))
        assert not any(first.is_final for first in firsts)
        wholes = await asyncio.gather(*(_rest(call) for call in calls))
        took = perf_counter() - began
    whole = f"Echo Agent Response: {text}"
    well = sum(first.content + rest == whole for first, rest in zip(firsts, wholes, strict=True))
    told = f"{well:,} whole in {took:.1f} s"
    return Figure(f"{count:,} answers in pieces at once", told, f"{count:,}", well == count)


def _asking(text: str, session_id: str) -> pb.TaskRequest:
    return pb.TaskRequest(agent_id="echo-agent", input=text, session_id=session_id)


async def _rest(call: Any) -> str:
    pieces = []
    while (chunk := await call.read()) is not grpc.aio.EOF:
        pieces.append(chunk.content)
    return "".join(pieces)


async def _watchers(place: str, count: int) -> Figure:
    """Who watch one session: how long after something was said the last of them knows."""
    async with _channels(place) as channels:
        agents: Any = agent_platform_pb2_grpc.AgentServiceStub(channels[0])
        await agents.ExecuteTask(_asking("first", "watched"))
        asked = sessions_pb2.WatchSessionRequest(session="watched", after=3)
        stubs = [sessions_pb2_grpc.SessionServiceStub(channel) for channel in channels]
        watches = [stubs[number % CHANNELS].WatchSession(asked) for number in range(count)]
        reading = asyncio.gather(*(watch.read() for watch in watches))
        await asyncio.sleep(3)  # all of them are there
        began = perf_counter()
        await agents.ExecuteTask(_asking("second", "watched"))
        heard = sum(each.event.id == 4 for each in await reading)
        took = perf_counter() - began
        for watch in watches:
            watch.cancel()
    return Figure(
        f"{count:,} who watch at once", f"{heard:,} know after {took * 1000:.0f} ms", f"{count:,}", heard == count
    )


if __name__ == "__main__":
    raise SystemExit(main())

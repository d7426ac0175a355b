"""Servers and launchers as processes on one store, to be killed, frozen and cut off, and what their agents do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import moorage.sync
from moorage.core.errors import Conflict, MoorageError, NotFound
from moorage.testing.proxy import Proxy

PATIENCE = 120.0
Answer = TypeVar("Answer")
PARENT = """\
import os, subprocess, sys
prompt = sys.stdin.read()
open({journal!r}, "a").write(f"{{os.getpid()}}\\n")
if "Callbacks" in prompt:
    print("heard")
else:
    for number in range({children}):
        key = os.environ["AGENT_RUN_ID"] + str(number)
        ask = ["run", "child", str(number), "--mode", "async_callback", "--idempotency-key", key]
        subprocess.run([sys.executable, "-m", "moorage", *ask], check=True, stdout=subprocess.DEVNULL)
    print("waiting")
"""
CHILD = """\
import os, sys, time
prompt = sys.stdin.read()
open({journal!r}, "a").write(f"{{os.getpid()}}\\n")
time.sleep(0.1)
print("did " + prompt)
"""

# Has a child in every turn, so its family grows until it is stopped. Without libraries, so that it starts fast.
GROWER = """\
import os, select, socket
place = os.environ["MOORAGE_URL"].split("//")[1].rstrip("/")
open({journal!r}, "a").write(f"{{os.getpid()}}\\n")
body = b'{{"agent_name": "child", "prompt": "grow", "mode": "async_callback"}}'
token = os.environ.get("MOORAGE_TOKEN")
headers = [
    "POST /runs HTTP/1.1", "Host: " + place, "Connection: close", "Content-Type: application/json",
    "Content-Length: %d" % len(body), "X-Agent-Session-Id: " + os.environ["AGENT_SESSION_ID"],
    "X-Agent-Run-Id: " + os.environ["AGENT_RUN_ID"], *(["Authorization: Bearer " + token] if token else []),
]
answer = b""
while answer[9:10] in (b"", b"5"):  # no status, or the server cannot now
    try:
        with socket.create_connection(place.split(":"), 3) as line:
            line.sendall("\\r\\n".join([*headers, "", ""]).encode() + body)
            answer = line.recv(65536)
    except OSError:
        answer = b""
    select.select((), (), (), 0.1 if answer[9:10] in (b"", b"5") else 0)
print("grows")
"""


class Machine:
    """A process that can be killed, frozen and started again."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.name, self._command, self._environment, self._log = name, command, environment, log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "moorage", *self._command], env=self._environment, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """As kill -9 does; then it comes back."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.start()

    def freeze(self, seconds: float) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Told to stop, waited for, started again."""
        self.end()
        self.start()

    def end(self) -> None:
        if self.process is None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")


class Fleet:
    """Some servers on one store, each with a launcher of its own behind a network that can be broken."""

    def __init__(
        self,
        store: str,
        folder: Path,
        count: int = 3,
        children: int = 2,
        *,
        launches: bool = True,
        flags: tuple[str, ...] = (),
        clocks: tuple[dict[str, str], dict[str, str]] = ({}, {}),
    ) -> None:
        """Start nothing yet. `clocks` are the environments of servers and launchers that set their clocks."""
        self.store, self.folder, self._flags = store, folder, flags
        self.journal = folder / "journal"
        self.journal.touch()
        self.home = folder / "home"
        self._clock_of_servers, self._clock_of_launchers = clocks
        for name, code in (("parent", PARENT), ("child", CHILD), ("grower", GROWER)):
            self._define(self.home, name, code.format(journal=str(self.journal), children=children))
        self.ports = [_free_port() for _ in range(count)]
        self.networks = [Proxy(("127.0.0.1", port)) for port in self.ports]  # between launchers and servers
        self.servers = [self.server(number) for number in range(count)]
        self.launchers = [self._launcher(number, folder / f"launcher-{number}") for number in range(count * launches)]

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    @property
    def machines(self) -> list[Machine]:
        return [*self.servers, *self.launchers]

    def start(self) -> None:
        for machine in self.machines:
            machine.start()
        self.wait()

    def wait(self) -> None:
        """Wait until every server answers."""
        for port in self.ports:
            until(partial(answers, port))

    def end(self) -> None:
        for machine in self.machines[::-1]:
            with suppress(ProcessLookupError):
                machine.end()
        for network in self.networks:
            network.close()

    def __enter__(self) -> Fleet:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def ask(self, number: int) -> str:
        """Ask any server that answers for a run of a family; return its id once a server has acknowledged it."""
        key = f"family-{number}"
        return self.insist(
            lambda moor: moor.run("parent", str(number), mode="async_poll", idempotency_key=key).run.run_id, number
        )

    def insist(self, request: Callable[[moorage.sync.Moorage], Answer], server: int = 0) -> Answer:
        """Ask one server after another until one answers; a request that is refused raises its error."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with moorage.sync.connect(self.urls[server % len(self.urls)], deadline=5) as moor:
                try:
                    return request(moor)
                except (NotFound, Conflict):
                    raise
                except MoorageError:
                    server += 1
                    if time.monotonic() > deadline:
                        raise

    def is_quiet(self) -> bool:
        """Whether nothing is asked for and nothing waits any more."""
        for url in self.urls:
            with suppress(MoorageError), moorage.sync.connect(url, deadline=5) as moor:
                return not moor.runs(open_only=True).items and not moor.inbox().items
        return False

    def left_behind(self) -> list[int]:
        """Agents that still live."""
        return [int(line) for line in self.journal.read_text().split() if _is_alive(int(line))]

    def supervisors(self) -> list[int]:
        """Processes that watch agents."""
        return [parent for agent in self.left_behind() if (parent := _supervisor_of(agent)) is not None]

    def _define(self, home: Path, name: str, code: str) -> None:
        script = self.folder / f"{name}.py"
        script.write_text(code)
        agents = home / "agents"
        agents.mkdir(parents=True, exist_ok=True)
        definition = f'[agent]\nname = "{name}"\nkind = "command"\nretry = "always"\n'
        (agents / f"{name}.toml").write_text(f'{definition}command = ["{sys.executable}", "{script}"]\n')

    def server(self, number: int, **environment: str) -> Machine:
        """A server at the address of that number."""
        command = ["serve", "--store", self.store, "--port", str(self.ports[number]), "--no-launcher", "--no-grpc"]
        log = self.folder / f"server-{number}.log"
        environment = {**_environment(self.home), **self._clock_of_servers, **environment}
        return Machine(f"server-{number}", [*command, *self._flags], environment, log)

    def _launcher(self, number: int, home: Path) -> Machine:
        url = f"http://127.0.0.1:{self.networks[number].port}"
        command = ["launcher", "--url", url, "--name", f"launcher-{number}", "--slots", "6"]
        limits = ["--lease", "1s", "--lost-after", "5s"]
        environment = {**_environment(home), **self._clock_of_launchers}
        return Machine(f"launcher-{number}", [*command, *limits], environment, self.folder / f"launcher-{number}.log")


def until(holds: Callable[[], bool], within: float = PATIENCE) -> None:
    """Wait for something, and not for ever."""
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MOORAGE_", "AGENT_"))}
    return {**kept, "MOORAGE_HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _supervisor_of(agent: int) -> int | None:
    """The parent of an agent, unless that is another process since the supervisor died."""
    with suppress(OSError):
        parent = int(Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])
        if "moorage.launcher.supervisor" in Path(f"/proc/{parent}/cmdline").read_text():
            return parent
    return None


class Writer(threading.Thread):
    """Says one thing after another, to whichever server there is, each once; as a client with a deadline does."""

    def __init__(self, urls: list[str], session: str, pause: float = 0.0) -> None:
        super().__init__(daemon=True)
        self._urls, self._session, self._pause = urls, session, pause
        self.acknowledged: list[str] = []
        self.problems: list[MoorageError] = []
        self.stop = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stop.wait(self._pause):
            number += 1
            self._say(number)

    def _say(self, number: int) -> None:
        content = f"line {number}"
        message = {"role": "user", "content": content, "client_key": content}
        for url in [*self._urls, *self._urls, *self._urls]:
            try:
                with moorage.sync.connect(url, deadline=3) as moor:
                    moor.append(self._session, [message])
                    self.acknowledged.append(content)
                    return
            except MoorageError as error:
                self.problems.append(error)


def said_in(url: str, session: str) -> list[str]:
    with moorage.sync.connect(url) as moor:
        said, after = list[str](), 0
        while page := moor.log(session, kinds=["message"], after=after, limit=1000).items:
            said, after = said + [str(entry.content) for entry in page], page[-1].number
        return said

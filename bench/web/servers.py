"""The servers that are compared: how each is started, and how the same work is asked of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

from bench import peerenv
from bench.material import METADATA, PURPOSE, messages, turn
from bench.remote import Failed, environment_of
from bench.web.load import HOST, Request

START_SECONDS = 60.0
END_SECONDS = 15.0
AGENTS = Path(__file__).resolve().parent / "adk_agents"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Kept:
    """How many sessions and messages a store has."""

    sessions: int
    messages: int


class Server:
    """A server in a process of its own, on a port of its own; this one offers nothing but an echo."""

    name = "echo"
    alive_at = "/echo"
    counts = ""  # the statement that counts sessions and messages
    file = ""
    sessions = 256  # that are appended to, and as many that are read
    sets_up = 16  # connections that prepare, where nothing is measured
    may_fail = False  # whether it is measured although some requests fail
    id_field, messages_field = "session_id", "messages"  # of its answers

    def __init__(self, folder: Path, profile: Path | None = None) -> None:
        self.folder, self.port, self.profile = folder, _free_port(), profile
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "server.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), cwd=folder, env=environment_of(self.environment()), stdout=log, stderr=log
            )
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.end()
            raise

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.web.floor", "echo", str(self.port)]

    def environment(self) -> dict[str, str]:
        return {}

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(urllib.error.HTTPError, OSError):
                urllib.request.urlopen(f"http://{HOST}:{self.port}{self.alive_at}", timeout=5).close()
                return
            with suppress(OSError), socket.create_connection((HOST, self.port), timeout=5):
                return
            time.sleep(0.05)
        lines = self._log.read_text(errors="replace").strip().splitlines()
        raise Failed(f"the server did not start: {lines[-1] if lines else 'no message'}")

    def end(self) -> None:
        """Ask it to leave, then insist."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def cpu(self) -> float | None:
        """Return the seconds of processor time it has used; None where the system does not tell."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def kept(self) -> Kept:
        """Return the content of the store, read from its file."""
        db = apsw.Connection(str(self.folder / self.file), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            [(sessions, said)] = db.execute(self.counts).fetchall()
        finally:
            db.close()
        return Kept(sessions, said)

    # Requests -----------------------------------------------------------------------------------

    def create(self) -> Request:
        return "POST", "/echo", {"agent_name": "agent-00", "purpose": PURPOSE, "metadata": METADATA}

    def append(self, session_id: str, number: int) -> Request:
        raise NotImplementedError

    def get(self, session_id: str) -> Request:
        raise NotImplementedError

    def fill(self, session_id: str, count: int) -> list[Request]:
        """The requests after which the session has so many messages."""
        return [self.append(session_id, number) for number in range(count // 2)]


class FloorServer(Server):
    """The hand-written app on plain tables."""

    name = "floor"
    alive_at = "/sessions/none"
    counts = "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM messages)"
    file = "floor.db"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.web.floor", "floor", str(self.port), str(self.folder)]

    def create(self) -> Request:
        return "POST", "/sessions", {"agent_name": "agent-00", "purpose": PURPOSE, "metadata": METADATA}

    def append(self, session_id: str, number: int) -> Request:
        return "POST", f"/sessions/{session_id}/messages", {"messages": turn(number)}

    def get(self, session_id: str) -> Request:
        return "GET", f"/sessions/{session_id}?messages=20", None

    def fill(self, session_id: str, count: int) -> list[Request]:
        return [("POST", f"/sessions/{session_id}/messages", {"messages": messages(count)})]


class MoorageServer(FloorServer):
    """`moorage serve`."""

    name = "moorage"
    alive_at = "/readyz"
    counts = "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM entries WHERE kind = 'message')"
    file = "moorage.db"

    def command(self) -> list[str]:
        profiled = ["-m", "cProfile", "-o", str(self.profile)] if self.profile else []
        store = f"sqlite:///{self.folder / self.file}"
        serve = ["serve", "--no-launcher", "--port", str(self.port), "--store", store]
        return [sys.executable, *profiled, "-m", "moorage", *serve]

    def environment(self) -> dict[str, str]:
        return {"MOORAGE_HOME": str(self.folder)}

    def append(self, session_id: str, number: int) -> Request:
        return "POST", f"/sessions/{session_id}/messages", {"messages": turn(number), "run": False}


class AdkServer(Server):
    """Google ADK's API server on its database session service. A turn is a run of an agent that answers at once.

    With writers side by side some of its requests fail (the database is locked); these are not counted.
    """

    name = "ADK"
    sessions = 64
    sets_up = 1
    may_fail = True
    id_field, messages_field = "id", "events"
    alive_at = "/list-apps"
    counts = "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM events)"
    file = "adk.db"
    _sessions = "/apps/echo/users/local/sessions"

    def command(self) -> list[str]:
        store = f"--session_service_uri=sqlite+aiosqlite:///{self.folder / self.file}?timeout=60"
        adk = [str(peerenv.python().with_name("adk")), "api_server", "--port", str(self.port), store]
        return [*adk, "--log_level", "error", "--no-reload", str(AGENTS)]

    def environment(self) -> dict[str, str]:
        return {**peerenv.QUIET, "PYTHONDONTWRITEBYTECODE": "1"}

    def create(self) -> Request:
        return "POST", self._sessions, {"state": METADATA}

    def append(self, session_id: str, number: int) -> Request:
        said = {"role": "user", "parts": [{"text": turn(number)[0]["content"]}]}
        asked = {"app_name": "echo", "user_id": "local", "session_id": session_id, "new_message": said}
        return "POST", "/run", asked

    def get(self, session_id: str) -> Request:
        return "GET", f"{self._sessions}/{session_id}", None


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        return int(free.getsockname()[1])

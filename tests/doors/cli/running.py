"""Commands under test: in this process for breadth, as processes and on terminals where it matters."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

PATIENCE = 60.0  # seconds for one command


@dataclass(frozen=True)
class Done:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on standard output; fails if there is more."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def id(self) -> str:
        assert self.code == 0, self.err
        return self.out.strip()


Cli = Callable[..., Done]


def run(
    *args: str | bytes,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    before: Callable[[], None] | None = None,
) -> Done:
    """Run `moorage ARGS` as a process of its own, which first calls `before`."""
    done = subprocess.run(
        [sys.executable, "-m", "moorage", *args],
        input=stdin,
        capture_output=True,
        env={**os.environ, **(env or {})},
        preexec_fn=before,
        timeout=PATIENCE,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def contents(database: Path) -> dict[str, list[Any]]:
    """Return everything a database holds, to see whether something changed."""
    if not database.exists():
        return {}
    db = apsw.Connection(str(database))
    try:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        return {table: db.execute(f'SELECT * FROM "{table}"').fetchall() for table in tables}
    finally:
        db.close()


class Unchanged:
    """Remembers a database, to compare it later."""

    def __init__(self, database: Path) -> None:
        self._database, self._before = database, contents(database)

    def check(self) -> None:
        assert contents(self._database) == self._before


class Terminal:
    """A terminal of its own, on which commands run one after another."""

    def __init__(self, columns: int = 160) -> None:
        self.columns = columns
        self.leader, self.follower = pty.openpty()
        self.name = os.ttyname(self.follower)

    def close(self) -> None:
        os.close(self.leader)
        os.close(self.follower)

    def run(self, *args: str, answer: str = "", when: str = "") -> Done:
        """Run `moorage ARGS` here; type `answer` when `when` is shown. Both outputs come as one."""
        process = subprocess.Popen(
            [sys.executable, "-m", "moorage", *args],
            stdin=self.follower,
            stdout=self.follower,
            stderr=self.follower,
            env={**os.environ, "COLUMNS": str(self.columns), "TERM": "dumb", "NO_COLOR": "1"},
        )
        shown, until = b"", time.monotonic() + PATIENCE
        while True:
            ended = process.poll() is not None  # looked at first: what it wrote before its end is there by now
            if select.select([self.leader], [], [], 0 if ended else 0.05)[0]:
                shown += os.read(self.leader, 65536)
            elif ended:
                return Done(process.returncode, shown.decode().replace("\r\n", "\n"), "")
            if answer and when.encode() in shown:
                os.write(self.leader, answer.encode())
                answer = ""
            if time.monotonic() > until:
                process.kill()
                raise TimeoutError(f"{args} still runs; so far: {shown.decode()}")


@contextmanager
def a_terminal(columns: int = 160) -> Iterator[Terminal]:
    terminal = Terminal(columns)
    try:
        yield terminal
    finally:
        terminal.close()

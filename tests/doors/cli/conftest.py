"""A home of its own for each test, and nothing of the caller's environment."""

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import moorage
from moorage.doors.cli import app
from tests.doors.cli.running import Cli, Done, Terminal, Unchanged, a_terminal
from tests.remote.server import Doors

ON_A_SERVER_TOO = {
    "test_approvals",
    "test_audit",
    "test_conversation",
    "test_family",
    "test_holds",
    "test_memory",
    "test_sessions",
    "test_transfer",
}
OURS = ("AGENT_", "MOORAGE_", "_MOORAGE_", "XDG_", "PYTHONWARNINGS")
SOURCE = Path(moorage.__file__).parents[1]  # of the package under test: a mutant is one, too


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for data; the current folder is another one."""
    for name in list(os.environ):
        if name.startswith(OURS):
            monkeypatch.delenv(name)
    folder, workplace = tmp_path / "a home", tmp_path / "workplace"
    workplace.mkdir()
    monkeypatch.setenv("MOORAGE_HOME", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(SOURCE), prepend=os.pathsep)  # the package under test, installed or not
    monkeypatch.chdir(workplace)
    return folder


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of sessions on a store, and on a server with that store behind it."""
    if metafunc.module.__name__.rpartition(".")[2] in ON_A_SERVER_TOO and "cli" in metafunc.fixturenames:
        metafunc.parametrize("served", ["store", "server"], indirect=True)


@pytest.fixture(scope="session")
def doors() -> Iterator[Doors]:
    """A server for all tests."""
    opened = Doors()
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def served(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whether commands work on the file in their home, or on a server that does."""
    if getattr(request, "param", "store") == "store":
        yield
        return
    doors: Doors = request.getfixturevalue("doors")
    home.mkdir(parents=True, exist_ok=True)
    address = doors.open(f"sqlite:///{home / 'moorage.db'}".replace(" ", "%20"))
    monkeypatch.setenv("MOORAGE_URL", address)
    yield
    doors.shut(address)


@pytest.fixture
def database(home: Path) -> Path:
    return home / "moorage.db"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command line in this process."""

    def run(*args: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = app.run(args)
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with a_terminal() as terminal:
        yield terminal


@pytest.fixture
def plan(cli: Cli) -> str:
    """The id of an active session with two messages."""
    session_id = cli("create", "--agent", "architect", "--name", "plan-prod", "--task-id", "T001").id
    cli("send", session_id, "Plan the change")
    cli("send", session_id, "Two to add", "--role", "assistant")
    return session_id


@pytest.fixture
def unchanged(plan: str, database: Path) -> Unchanged:
    """A database with the session `plan` in it, which is to stay as it is."""
    return Unchanged(database)

"""Environments for ./dev: folders beside it, each made on first use and again when it no longer fits.

Every command holds a shared lock on its environment for as long as it and its children live. Making one takes the
lock alone, so no command sees half of an environment, and none is replaced under a running command.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
BASE_PYTHON = os.path.realpath(sys.executable)  # not an environment's own link: it goes when that is made anew
SERVING = ".[server,grpc,mcp]"  # what the greeting of `./dev up` promises
EMPTY, PACKAGES = "an empty environment", "packages"

Step = tuple[str, list[str]]  # a name to show, and a command


@dataclass(frozen=True)
class Environment:
    """A folder with a Python of its own and packages in it."""

    name: str  # of the folder
    wants: tuple[str, ...]  # arguments of `pip install`; `LOWEST` alone stands for the lowest versions
    base: str = BASE_PYTHON  # the Python that it is made with
    compiled: bool = True  # whether to compile everything now, because its programs start often

    @property
    def path(self) -> Path:
        return ROOT / self.name

    @property
    def python(self) -> str:
        return str(self.path / "bin" / "python")

    def hold(self) -> None:
        """Make it whole, and keep it so for as long as this process and its children live.

        Changing a shared lock to an exclusive one lets go for a moment: look again after each change.
        """
        lock = os.open(ROOT / f"{self.name}.lock", os.O_RDWR | os.O_CREAT, 0o666)  # outside of what `make` deletes
        os.set_inheritable(lock, True)
        while True:
            self._take(lock, fcntl.LOCK_SH)
            if self.is_whole():
                return
            self._take(lock, fcntl.LOCK_EX)
            if not self.is_whole():
                self.make()

    def _take(self, lock: int, kind: int) -> None:
        """Take the lock, and say so if that means waiting."""
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"dev: another ./dev uses or makes {self.name}; waiting for it to end", file=sys.stderr, flush=True)
            fcntl.flock(lock, kind)

    def is_whole(self) -> bool:
        """Return whether it was finished, for this project, this Python and this place."""
        stamp = self.path / "dev-stamp"
        return Path(self.python).exists() and stamp.is_file() and stamp.read_text() == self.stamp()

    def stamp(self) -> str:
        """Return all that it depends on; the place counts, because an environment knows its own absolute path."""
        pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
        installed = json.dumps([pyproject["build-system"], pyproject["project"]])  # settings of tools change nothing
        digest = hashlib.sha256(installed.encode()).hexdigest()
        return f"{digest}\n{self.wants}\n{self.base} {python_version(self.base)}\n{ROOT}\n"

    def make(self) -> None:
        """Make it from nothing; the stamp comes last, so that one cut short is seen and made again."""
        print(f"dev: making {self.name} (once; again when its packages change)", flush=True)
        wanted = self.stamp()
        shutil.rmtree(self.path, ignore_errors=True)
        for name, command in self._steps():
            code = run_step(name, command)
            if code != 0:
                print(f"dev: {self.name} could not be made; the lines above say why", file=sys.stderr)
                sys.exit(code)
        if self.compiled:  # a package's broken sample file is no failure
            compile_all = [self.python, "-m", "compileall", "-qq", "-j", "0", "-x", "/site-packages/pip/"]
            run_step("compiling", [*compile_all, str(self.path / "lib"), "src"])
        (self.path / "dev-stamp").write_text(wanted)

    def _steps(self) -> Iterator[Step]:
        """Yield the steps that make it: with uv if there is one that runs, else with pip."""
        is_lowest = self.wants == LOWEST.wants
        uv = install_uv() if is_lowest else find_uv()
        if uv:
            install = [uv, "pip", "install", "--quiet", "--python", self.python, *self.wants]
            yield EMPTY, [uv, "venv", "--quiet", "--python", self.base, str(self.path)]
            yield PACKAGES, [self.base, "-m", "scripts.lowest", uv, self.python] if is_lowest else install
            return
        yield EMPTY, [self.base, "-m", "venv", "--without-pip", str(self.path)]
        install = ["install", "-qq", "--disable-pip-version-check", "--no-compile"]  # twice quiet: errors only
        theirs = [self.base, "-m", "pip", "--python", self.python]
        if _asked([*theirs, "--version"]) is None:  # it has none, or one that is too old to install elsewhere
            yield "pip", [self.python, "-m", "ensurepip"]
        else:
            yield "pip", [*theirs, *install, "pip"]  # the newest: older ones take twice as long for the rest
        yield PACKAGES, [self.python, "-m", "pip", *install, *self.wants]


SMALL = ("--no-binary", "claude-agent-sdk")  # built from its source, it comes without a program of 350 MB
DEV = Environment(".venv", ("--editable", ".[dev]", *SMALL))
SERVE = Environment(".venv-up", ("--editable", SERVING), compiled=False)
TOOLS = Environment(".venv-tools", ("uv",), compiled=False)
DOCS = Environment(".venv-docs", ("mkdocs>=1.6.1,<2",), compiled=False)  # `./dev test` needs none of it
AUDIT = Environment(".venv-audit", ("pip-audit>=2.9,<3",), compiled=False)
LOWEST = Environment(".venv-lowest", ("lowest",))


def with_python(version: str) -> Environment:
    """Return the environment for developers, made with another Python."""
    return Environment(f".venv-{version}", DEV.wants, find_python(version))


def to_serve() -> Environment:
    """Return the environment to serve from: the developers' one if it is there, else a smaller one of its own.

    It is not the same folder with more in it later: a server may be running when the tests want to add to it.
    """
    return DEV if DEV.is_whole() else SERVE


# Programs ---------------------------------------------------------------------------------------


def find_uv() -> str | None:
    """Return the path of uv if it runs: a shim may be on PATH with no uv behind it."""
    found = shutil.which("uv")
    return found if found and _asked([found, "--version"]) else None


def install_uv() -> str:
    """Return the path of uv, which pip installs into an environment of its own if there is none."""
    if found := find_uv():
        return found
    TOOLS.hold()
    return str(TOOLS.path / "bin" / "uv")


def find_python(version: str) -> str:
    """Return the path of a Python of that version: from PATH, from pyenv, or one that uv knows."""
    if not re.fullmatch(r"3\.\d+(\.\d+)?", version):
        sys.exit(f"dev: {version!r} is no version of Python; write it like 3.13")
    for candidate in _candidates(version):
        found = _asked([candidate, "-c", "import os, sys; print(os.path.realpath(sys.executable))"])
        if found and f"{python_version(found)}.".startswith(f"{version}."):
            return found
    sys.exit(f"dev: there is no Python {version}; try `uv python install {version}` or `pyenv install {version}`")


def _candidates(version: str) -> list[str]:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    kept = sorted(pyenv.glob(f"{version}*/bin/python3"), key=lambda path: _numbers(path.parents[1].name), reverse=True)
    uv = find_uv()
    known = _asked([uv, "python", "find", "--no-project", version]) if uv else None
    return [each for each in (shutil.which(f"python{version}"), *map(str, kept), known) if each]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def python_version(python: str) -> str:
    """Return the full version of that Python, or nothing if it does not run."""
    if python == BASE_PYTHON:
        return ".".join(map(str, sys.version_info[:3]))
    return _asked([python, "-c", "import platform; print(platform.python_version())"]) or ""


def _asked(command: list[str]) -> str | None:
    """Return the output of a command, or None if it fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


# Processes --------------------------------------------------------------------------------------


def run_step(name: str, command: Sequence[str]) -> int:
    """Run one step of making an environment, with one line that says what it is and how long it took."""
    print(f"  {name} … ", end="", flush=True)
    started = time.monotonic()
    code = run(command)
    print(f"{time.monotonic() - started:.1f} s" if code == 0 else f"FAILED ({code})", flush=True)
    return code


def run(command: Sequence[str], environment: dict[str, str] | None = None) -> int:
    """Run a command to its end, hand it every signal we get, and return its exit code.

    It inherits the lock: should this process be killed, the environment stays guarded until the command ends.
    """
    env = environment or clean_environment()
    child = subprocess.Popen(command, cwd=ROOT, env=env, close_fds=False)

    def forward(number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGINT or not os.isatty(0):  # a terminal sends Ctrl-C to both of us itself
            child.send_signal(number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    code = child.wait()
    for number, handler in before.items():
        signal.signal(number, handler)
    return code if code >= 0 else 128 - code  # ended by a signal: as a shell would say it


def clean_environment() -> dict[str, str]:
    """Return our environment variables without those of another Python.

    Compiled files are kept: tests start Python some thousand times, and each would compile what has changed.
    """
    others = ("PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    return {key: value for key, value in os.environ.items() if key not in others}


def activated(environment: Environment) -> dict[str, str]:
    """Return our environment variables with that environment activated."""
    path = f"{environment.path / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return clean_environment() | {"VIRTUAL_ENV": str(environment.path), "PATH": path}
